"""Asks a server which models it has, whether it has one, and how large that one is."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from orchestrator.core.addresses import is_loopback
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError, ConnectionFailedError, ProviderError
from orchestrator.core.messages import Message
from orchestrator.engine.models.base import Request
from orchestrator.engine.models.catalog import ModelRef, Provider
from orchestrator.engine.models.wire import dicts, endpoint, host_of, read_json

if TYPE_CHECKING:
    from datetime import datetime

    from orchestrator.core.messages import JsonObject
    from orchestrator.engine.models.wire import Wire


_TIMEOUT_SECONDS = 15.0
_SIZE_TIMEOUT_SECONDS = 3.0
_NAMED = 8


def only_model(api_url: str, api_key: str | None) -> str:
    """The name of the one model that a server has.

    The list is that of https://platform.openai.com/docs/api-reference/models/list, which compatible
    servers have too.

    Raises:
        ConfigurationError: it has none or several, or cannot be asked.
    """
    ask = f"name a model with --model: {host_of(_address(api_url))}"
    listed = _listed(api_url, api_key, _TIMEOUT_SECONDS)
    if isinstance(listed, str):
        raise ConfigurationError(f"{ask} {listed}")
    names = [str(entry["id"]) for entry in listed if entry.get("id")]
    if len(names) != 1:
        raise ConfigurationError(f"{ask} has {_some(names)}")
    return names[0]


def parameters_served(
    api_url: str, api_key: str | None, name: str, *, seconds: float = _SIZE_TIMEOUT_SECONDS
) -> float | None:
    """How many parameters the model has that answers to this name; None where the server does not say so in time.

    llama.cpp's server says it as `meta.n_params`, and has one model, whatever it is called:
    https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
    """
    listed = _listed(api_url, api_key, seconds)
    if isinstance(listed, str):
        return None
    named = [entry for entry in listed if entry.get("id") == name] or listed
    meta = named[0].get("meta") if len(named) == 1 else None
    count = meta.get("n_params") if isinstance(meta, dict) else None
    try:
        return float(count) if isinstance(count, int | float) and count > 0 else None
    except OverflowError:
        return None


def _address(api_url: str) -> str:
    return endpoint(api_url.removesuffix("/chat/completions"), "/models")


def _listed(api_url: str, api_key: str | None, seconds: float) -> list[JsonObject] | str:
    """The entries of the list; or what the server did instead, in words."""
    import httpx2

    from orchestrator.engine.models.transport import read_list

    url, clock = _address(api_url), SystemClock()
    end = clock.monotonic() + seconds
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        with httpx2.Client(timeout=seconds) as client:
            status, _, body = read_list(client, url, headers, host_of(url), lambda: clock.monotonic() > end)
        listed = read_json(body) if status == HTTPStatus.OK else None
    except (httpx2.HTTPError, ProviderError, ValueError) as error:
        return f"could not be asked for its models ({type(error).__name__})"
    if not isinstance(listed, dict):
        return f"answered {status} when asked for its models"
    return list(dicts(listed.get("data")))


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}" if names else "none"


_CHATS = "/chat/completions"
_MESSAGES = "/messages"
_SUCCESS = range(HTTPStatus.OK, HTTPStatus.MULTIPLE_CHOICES)
_NO_LIST = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)


@dataclass(frozen=True, slots=True)
class Presence:
    """What a server says. `is_there` is None where it has no list of models.

    Attributes:
        names: the models that it has, where it lists them.
        window: how many tokens this one can read, where it says so.
    """

    is_there: bool | None
    names: tuple[str, ...] = ()
    window: int | None = None


def look_for(  # noqa: PLR0913  who, where, by which protocol, and how long
    ref: ModelRef, api_url: str, wire: Wire, key: str | None, *, now: datetime, seconds: float
) -> Presence:
    """Ask. The key goes to the address of the wire's server only.

    Anthropic: docs.anthropic.com/en/api/models. Gemini: ai.google.dev/api/models#method:-models.get.
    All others: platform.openai.com/docs/api-reference/models/list.

    Args:
        ref: the model.
        api_url: the address as it was configured.
        wire: the protocol.
        key: shown to the server.
        now: for limits that the server names.
        seconds: the longest wait.

    Raises:
        ModelError: the server cannot be reached, or refuses.
    """
    import httpx2

    from orchestrator.engine.models.failures import error_from_body
    from orchestrator.engine.models.transport import read_list

    url = _url(ref, api_url, wire)
    headers = dict(wire.encode(Request("", [Message.user("?")]), stream=False).headers)
    headers |= wire.credentials(key) if key else {}
    local = is_loopback(urlsplit(url).hostname or "")
    try:
        with httpx2.Client(timeout=seconds, trust_env=not local) as client:
            status, said_headers, body = read_list(client, url, headers, host_of(url))
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
        why = f"{host_of(url)} cannot be reached ({type(error).__name__})"
        raise ConnectionFailedError(f"{why}; is the address right, and the server running?") from None
    one = ref.provider in {Provider.ANTHROPIC, Provider.GEMINI}
    if status in _NO_LIST and not (one and status == HTTPStatus.NOT_FOUND):
        return Presence(None)
    if status == HTTPStatus.NOT_FOUND:
        return Presence(is_there=False)
    if status not in _SUCCESS:
        raise error_from_body(status, said_headers, body, now, host_of(url))
    try:
        said = read_json(body)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise ProviderError(f"{host_of(url)} answered with something else than models; check the API address")
    return _read_one(said) if one else _read_list(said, ref.name)


def _url(ref: ModelRef, api_url: str, wire: Wire) -> str:
    name = quote(ref.name.removeprefix("models/"), safe="")
    match ref.provider:
        case Provider.ANTHROPIC:
            return wire.url.partition("?")[0].removesuffix(_MESSAGES) + f"/models/{name}"
        case Provider.GEMINI:
            return wire.url.partition("?")[0].rpartition(":")[0]
        case _:
            return endpoint(api_url.rstrip("/").removesuffix(_CHATS).removesuffix("/responses"), "/models")


def _read_one(said: dict[str, Any]) -> Presence:
    window = said.get("inputTokenLimit") or said.get("max_input_tokens")
    return Presence(is_there=True, window=window if isinstance(window, int) else None)


def _read_list(said: dict[str, Any], name: str) -> Presence:
    found = {str(entry["id"]): entry for entry in dicts(said.get("data")) if entry.get("id")}
    mine = found.get(name) or found.get(f"{name}:latest")  # as Ollama lists it
    window = (mine or {}).get("context_length") or (mine or {}).get("max_model_len")
    return Presence(mine is not None, tuple(sorted(found)), window if isinstance(window, int) else None)

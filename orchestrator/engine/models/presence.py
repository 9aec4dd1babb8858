"""Asks a server whether it has a model, by the request of its protocol that costs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from orchestrator.core.addresses import is_loopback
from orchestrator.core.errors import ConnectionFailedError, ProviderError
from orchestrator.core.messages import Message
from orchestrator.engine.models.base import Request
from orchestrator.engine.models.catalog import ModelRef, Provider
from orchestrator.engine.models.exchange import read_list
from orchestrator.engine.models.wire import dicts, endpoint, host_of, read_json

if TYPE_CHECKING:
    from datetime import datetime

    from orchestrator.engine.models.wire import Wire

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
        raise wire.error(status, said_headers, body, now)
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

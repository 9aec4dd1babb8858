"""Asks a server which models it has: for people who name none, and to know how large the one they name is."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError, ProviderError
from orchestrator.engine.models.exchange import read_list
from orchestrator.engine.models.wire import dicts, endpoint, host_of, read_json

if TYPE_CHECKING:
    from orchestrator.core.messages import JsonObject

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

"""Asks a server which models it has, for people who name an address and no model."""

from __future__ import annotations

from http import HTTPStatus

from orchestrator.core.errors import ConfigurationError, ProviderError
from orchestrator.models.exchange import read_list
from orchestrator.models.wire import dicts, endpoint, host_of, read_json

_TIMEOUT_SECONDS = 15.0
_NAMED = 8


def only_model(api_url: str, api_key: str | None) -> str:
    """The name of the one model that a server has.

    The list is that of https://platform.openai.com/docs/api-reference/models/list, which compatible
    servers have too.

    Raises:
        ConfigurationError: it has none or several, or cannot be asked.
    """
    import httpx2

    url = endpoint(api_url.removesuffix("/chat/completions"), "/models")
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    ask = f"name a model with --model: {host_of(url)}"
    try:
        with httpx2.Client(timeout=_TIMEOUT_SECONDS) as client:
            status, _, body = read_list(client, url, headers, host_of(url))
        listed = read_json(body) if status == HTTPStatus.OK else None
    except (httpx2.HTTPError, ProviderError, ValueError) as error:
        raise ConfigurationError(
            f"{ask} could not be asked for its models ({type(error).__name__})"
        ) from None
    if not isinstance(listed, dict):
        raise ConfigurationError(f"{ask} answered {status} when asked for its models")
    names = [str(entry["id"]) for entry in dicts(listed.get("data")) if entry.get("id")]
    if len(names) != 1:
        raise ConfigurationError(f"{ask} has {_some(names)}")
    return names[0]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}" if names else "none"

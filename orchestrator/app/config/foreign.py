"""The settings in a configuration of another assistant, in the form of the assistant specification (section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.app.config.settings import (
    Origin,
    SourceKind,
    as_toml,
    check_value,
    nearest_to,
    read_json_file,
)
from orchestrator.app.options import flag_of
from orchestrator.app.plugins import absence_of
from orchestrator.core.checks import is_whole
from orchestrator.core.confined import ConfinedFolder
from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.models.catalog import Provider, detect_provider, is_official

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_KEYS = {"anthropic_api_key": "ANTHROPIC_API_KEY", "openai_api_key": "OPENAI_API_KEY"}
_RENAMED_KEYS = {
    "embedding_api_url": "embedding_api_url",
    "embedding_model": "embedding_model",
    "system_prompt": "system_prompt",
    "context_window": "context_window",
    "max_tokens": "max_output_tokens",
    "max_subagents": "max_subagents",
    "subagent_timeout": "subagent_timeout_seconds",
}
"""Keys that only have another name here."""
_MODEL, _URL, _OTHER_URL, _SERVERS = "model", "api_url", "openai_api_url", "mcpServers"
_KNOWN = (_URL, _MODEL, *_KEYS, _OTHER_URL, *_RENAMED_KEYS, _SERVERS)
_AUTOMATIC = -1
_ENDINGS = ("/chat/completions", "/messages", "/responses", "/embeddings")
_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True)
class Imported:
    """The settings read from a foreign file.

    Attributes:
        values: values by option key.
        notes: what the person has to do or to know, one line each.
    """

    values: Mapping[str, Any]
    notes: tuple[str, ...]


def read_foreign(path: Path, holds_secret: Callable[[str], bool]) -> Imported:
    """Read a `ralph.config.json` file.

    Args:
        holds_secret: returns whether a text is or has a secret; such a value is left out.
    """
    given = read_json_file(path)
    if not isinstance(given, dict):
        raise ConfigurationError(f"{path} must hold one JSON object with the settings")
    notes = [_key_note(key, given) for key in _KEYS if given.get(key)]
    if servers := given.get(_SERVERS):
        count = len(servers) if isinstance(servers, dict | list) else 1
        notes.append(
            f"{_SERVERS}: {count} not imported; name the file when you run, with --mcp-config {path}, "
            f"or for all runs in your own file: mcp_config = {as_toml(str(path.absolute()))}"
        )
    notes += [
        f"{key[:_SHOWN_CHARS]!r} is not known and was left out; the nearest key is {nearest_to(key, _KNOWN)!r}"
        for key in given
        if key not in _KNOWN
    ]
    values: dict[str, Any] = _model(given)
    for key, ours in _RENAMED_KEYS.items():
        value = given.get(key)
        if value in (None, "") or (key == "max_tokens" and value == _AUTOMATIC):
            continue
        values[ours] = float(value) if key == "subagent_timeout" and is_whole(value) else value
    for ours, value in list(values.items()):
        if isinstance(value, str) and holds_secret(value):
            notes.append(f"{ours} holds what looks like a key or password and was left out")
            del values[ours]
        elif absent := absence_of(flag_of(ours)):
            notes.append(f"{ours} was left out: {absent}")
            del values[ours]
        else:
            check_value(ours, value, Origin(SourceKind.USER_FILE, str(path)))
    return Imported(values, tuple(notes))


def _key_note(key: str, given: Mapping[str, Any]) -> str:
    url = given.get(_OTHER_URL) or given.get(_URL) or ""
    is_own_server = key == "openai_api_key" and isinstance(url, str) and url and not is_official(url)
    variable = "PULLWRIGHT_API_KEY" if is_own_server else _KEYS[key]
    return f"{key} was not copied: keys do not belong in files; set the environment variable {variable}"


def _model(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model and its address, without the address if it is a vendor's own.

    A vendor's own address only selects the provider.
    """
    name, url = given.get(_MODEL) or "", given.get(_URL) or ""
    if given.get(_OTHER_URL) and (not url or _provider(url) is Provider.OPENAI):
        url = given[_OTHER_URL]
    values: dict[str, Any] = {}
    if url and not (isinstance(url, str) and is_official(url)):
        values[_URL] = _base(url)
    if name and isinstance(name, str) and _URL not in values:
        values[_MODEL] = f"{_provider(url) if url else Provider.OPENAI}:{name}"
    elif name:
        values[_MODEL] = name
    return values


def _provider(url: object) -> Provider | None:
    return detect_provider(url) if isinstance(url, str) else None


def _base(url: object) -> object:
    """Return the address without the path of a single API request."""
    if isinstance(url, str):
        for ending in _ENDINGS:
            url = url.removesuffix(ending)
    return url


_CONFIGS = ("ralph.config.json", "config.json")


def config_in(folder: Path) -> Path | None:
    """Return the configuration in a folder such as `~/.local/ralph`; None if there is none."""
    try:
        with ConfinedFolder(folder) as opened:
            return next((folder / name for name in _CONFIGS if opened.is_file(name)), None)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be read: {error.strerror or error}") from None

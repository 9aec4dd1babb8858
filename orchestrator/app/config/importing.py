"""Import of `ralph.config.json`, the configuration of the assistant specification (its section 3).

Its settings are added to the user's own file under the option names used here. Nothing in that file is
changed or lost, and no key is written, because keys belong in the environment.
"""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.config.settings import (
    Origin,
    SourceKind,
    check_value,
    nearest_to,
    read_json_file,
    read_toml,
    user_file,
)
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.files import replace_file
from orchestrator.engine.models.catalog import Provider, detect_provider, is_official
from orchestrator.engine.policy.secrets import Redactor

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def read_foreign(path: Path) -> Imported:
    """Read a `ralph.config.json` file.

    Raises:
        ConfigurationError: the file cannot be read, is not a JSON object, or has a value that an option does
            not allow.
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
        whole = isinstance(value, int) and not isinstance(value, bool)
        values[ours] = float(value) if key == "subagent_timeout" and whole else value
    redactor = Redactor()
    for ours, value in list(values.items()):
        if isinstance(value, str) and redactor.holds_secret(value):
            notes.append(f"{ours} holds what looks like a key or password and was left out")
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


@dataclass(frozen=True, slots=True)
class Added:
    """The values added to the user's file, and the keys that kept their present values."""

    path: Path
    added: Mapping[str, Any]
    kept: tuple[str, ...]


def add_to_users_file(values: Mapping[str, Any], environ: Mapping[str, str]) -> Added:
    """Add the options that the user's own file does not set yet, above its present content.

    Raises:
        ConfigurationError: the file cannot be read or written, or is not a regular file.
    """
    path = Path(os.path.realpath(user_file(environ)))
    if path.exists() and not path.is_file():
        raise ConfigurationError(f"{path} is not a file: nothing can be added to it")
    present = read_toml(path) or {}
    added = {key: value for key, value in values.items() if key not in present}
    kept = tuple(key for key, value in values.items() if key in present and present[key] != value)
    if added:
        try:
            _write(path, added, {**present, **added})
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}") from error
    return Added(path, added, kept)


def _write(path: Path, added: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Write the new options above the present content, because its end may be inside a table."""
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    text = "".join(f"{key} = {as_toml(value)}\n" for key, value in added.items()) + old
    if tomllib.loads(text) != wanted:
        raise ConfigurationError(
            f"nothing can be added to {path} without changing its content: add it by hand"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text.encode())


def as_toml(value: Any) -> str:
    """Return a text or a number as TOML."""
    if not isinstance(value, str):
        return json.dumps(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

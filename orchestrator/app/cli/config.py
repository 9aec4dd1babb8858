"""`pullwright config`: prints the effective values, their origins, and which keys are set. Or it imports settings.

They come from `ralph.config.json`, the configuration of the assistant specification (its section 3), and are added
to the user's own file under the option names used here. Nothing in that file is changed or lost, and no key is
written, because keys belong in the environment.
"""

from __future__ import annotations

import os
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import DONE
from orchestrator.app.config.keys import VARIABLES
from orchestrator.app.config.settings import (
    MOST_FILE_BYTES,
    Origin,
    SourceKind,
    as_toml,
    check_value,
    load_settings,
    nearest_to,
    read_json_file,
    read_toml,
    user_file,
)
from orchestrator.app.options import KEYS, OPTIONS
from orchestrator.app.terminal import known_secrets, print_json
from orchestrator.app.words import clean
from orchestrator.bot.journal.folders import Home
from orchestrator.core.checks import is_whole
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.files import read_own, replace_file
from orchestrator.core.redaction import masked
from orchestrator.engine.models.catalog import Provider, detect_provider, is_official

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from orchestrator.app.config.settings import Loaded


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


def config(options: argparse.Namespace) -> int:
    """Print the configuration that a run in this folder would use.

    Raises:
        ConfigurationError: see `orchestrator.app.config.settings.load_settings`.
    """
    if options.import_file is not None:
        return _import(Path(options.import_file), as_json=options.json)
    loaded = load_settings({}, os.environ, Path.cwd())
    home = Home.of(os.environ)
    if options.json:
        print_json(_as_json(loaded, home, os.environ), indent=2)
    else:
        print(_as_text(loaded, home, os.environ))
    return DONE


def _import(path: Path, *, as_json: bool) -> int:
    """Import another program's configuration, and print what was added."""
    found = read_foreign(path)
    done = add_to_users_file(found.values, os.environ)
    kept = [f"{key} stays as it is in {done.path}" for key in done.kept]
    notes = [*kept, *found.notes]
    if as_json:
        fields = {"file": str(done.path), "added": dict(done.added), "notes": notes}
        print_json(fields, indent=2)
        return DONE
    lines = [f"{key} = {as_toml(value)}" for key, value in done.added.items()]
    head = f"Added to {done.path}:" if lines else f"Nothing was added to {done.path}."
    sys.stdout.write(f"{clean(chr(10).join([head, *lines]))}\n")
    sys.stderr.write("".join(f"! {clean(note)}\n" for note in notes))
    return DONE


def key_states(environ: Mapping[str, str]) -> dict[str, str]:
    """Return whether each variable for keys is set. Keys are masked."""
    states = {}
    for variable in (one for variables in VARIABLES.values() for one in variables):
        value = environ.get(variable, "").strip()
        state = value if variable.endswith("_FILE") else masked(value)
        states[variable] = state if value else "not set"
    return states


def _as_json(loaded: Loaded, home: Home, environ: Mapping[str, str]) -> dict[str, Any]:
    settings: dict[str, Any] = {
        key: {
            "value": getattr(loaded.settings, key),
            "origin": loaded.origin[key].kind.value,
            "place": loaded.origin[key].place,
        }
        for key in KEYS
    }
    keys = key_states(environ)
    return {"settings": settings, "notices": loaded.notices, "keys": keys, "home": str(home.root)}


def _as_text(loaded: Loaded, home: Home, environ: Mapping[str, str]) -> str:
    rows = [
        (key, _shown(getattr(loaded.settings, key)), _origin(loaded, key), OPTIONS[key].description)
        for key in KEYS
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    lines = []
    for key, value, origin, words in rows:
        lines += [f"{key:{widths[0]}}  {value:{widths[1]}}  {origin}".rstrip(), f"    {words}"]
    lines += [f"! {notice}" for notice in loaded.notices]
    states = key_states(environ)
    width = max(map(len, states))
    lines += ["", "Keys, from the environment only:"]
    lines += [f"  {variable:{width}}  {state}" for variable, state in states.items()]
    lines += ["", f"State (runs, local pull requests, cache): {home.root}"]
    return clean("\n".join(lines))


def _origin(loaded: Loaded, key: str) -> str:
    origin = loaded.origin[key]
    return "default" if origin.kind is SourceKind.DEFAULT else f"{origin.kind}: {origin.place}"


def _shown(value: object) -> str:
    if value is None or value == ():
        return "-"
    if isinstance(value, tuple):
        return ", ".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


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
        values[ours] = float(value) if key == "subagent_timeout" and is_whole(value) else value
    redactor = known_secrets(os.environ)
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
    old = read_own(path, MOST_FILE_BYTES).decode() if path.exists() else ""
    text = "".join(f"{key} = {as_toml(value)}\n" for key, value in added.items()) + old
    if tomllib.loads(text) != wanted:
        raise ConfigurationError(
            f"nothing can be added to {path} without changing its content: add it by hand"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text.encode())

"""`pullwright config`: prints the effective values, their origins, and which keys are set."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import DONE
from orchestrator.app.config.keys import VARIABLES
from orchestrator.app.config.settings import SourceKind, load_settings
from orchestrator.app.options import KEYS, OPTIONS
from orchestrator.app.words import as_json_text, clean
from orchestrator.bot.journal.folders import Home
from orchestrator.core.redaction import masked

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from orchestrator.app.config.settings import Loaded


def config(options: argparse.Namespace) -> int:
    """Print the configuration that a run in this folder would use.

    Raises:
        ConfigurationError: see `orchestrator.app.config.settings.load_settings`.
    """
    if options.import_file is not None:
        return _import(Path(options.import_file), as_json=options.json)
    loaded = load_settings({}, os.environ, Path.cwd())
    home = Home.of(os.environ)
    shown = _as_json if options.json else _as_text
    sys.stdout.write(f"{shown(loaded, home, os.environ)}\n")
    return DONE


def _import(path: Path, *, as_json: bool) -> int:
    """Import another program's configuration, and print what was added.

    Raises:
        ConfigurationError: it cannot be read, or the user's file cannot be written.
    """
    from orchestrator.app.config.importing import add_to_users_file, as_toml, read_foreign

    found = read_foreign(path)
    done = add_to_users_file(found.values, os.environ)
    kept = [f"{key} stays as it is in {done.path}" for key in done.kept]
    notes = [*kept, *found.notes]
    if as_json:
        fields = {"file": str(done.path), "added": dict(done.added), "notes": notes}
        sys.stdout.write(f"{as_json_text(fields, indent=2)}\n")
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


def _as_json(loaded: Loaded, home: Home, environ: Mapping[str, str]) -> str:
    settings: dict[str, Any] = {
        key: {
            "value": getattr(loaded.settings, key),
            "origin": loaded.origin[key].kind.value,
            "place": loaded.origin[key].place,
        }
        for key in KEYS
    }
    keys = key_states(environ)
    fields = {"settings": settings, "notices": loaded.notices, "keys": keys, "home": str(home.root)}
    return as_json_text(fields, indent=2)


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

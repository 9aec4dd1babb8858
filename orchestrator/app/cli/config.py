"""`pullwright config`: prints the effective values and their origins, and writes the user's own file.

Settings are imported from `ralph.config.json`, the configuration of the assistant specification (its section 3). No
key is written, because keys belong in the environment. A file that cannot be used raises a `ConfigurationError`; what
would lose something of it is not written.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import textwrap
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import DONE
from orchestrator.app.cli.output import print_lines
from orchestrator.app.config import user_file
from orchestrator.app.config.foreign import Imported, config_in, read_foreign
from orchestrator.app.config.settings import (
    MOST_FILE_BYTES,
    REPOSITORIES,
    Origin,
    SourceKind,
    as_toml,
    check_value,
    load_settings,
    read_toml,
    typed,
    unknown_key,
)
from orchestrator.app.options import Reach, all_options, flag_of, kind
from orchestrator.app.plugins import absence_of
from orchestrator.app.terminal import known_secrets, print_json
from orchestrator.app.wiring import BuildContext
from orchestrator.app.wiring.memory import open_session_memory
from orchestrator.app.wiring.repository import label_of, repository_here
from orchestrator.app.words import clean, counted
from orchestrator.bot.journal.folders import Home
from orchestrator.core import event_loop
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.files import read_own, replace_file
from orchestrator.core.redaction import masked
from orchestrator.engine.models.keys import VARIABLES

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from orchestrator.app.config.settings import Loaded

_SHOWN_CHARS = 60
_WIDTH = 100


def config(options: argparse.Namespace) -> int:
    """Run the requested action; without one, print the configuration that a run in this folder would use."""
    action = options.action or ("import" if options.import_file is not None else "show")
    return _ACTIONS[action](options)


def _show(options: argparse.Namespace) -> int:
    loaded = load_settings({}, os.environ, cwd := Path.cwd())
    with suppress(ConfigurationError):  # no repository, or one without options of its own
        here = repository_here(loaded, cwd)
        loaded = load_settings({}, os.environ, cwd, partial(label_of, here))
    home = Home.of(os.environ)
    if options.json:
        print_json(_as_json(loaded, home, os.environ), indent=2)
    else:
        print_lines(_as_text(loaded, home, os.environ).splitlines())
    return DONE


def _init(_options: argparse.Namespace) -> int:
    path = user_file(os.environ)
    if path.exists():
        raise ConfigurationError(f"{path} exists already: 'pullwright config edit' opens it")
    _replace(path, template())
    print_lines(
        [f"Written: {path}. Each option is there with its default; remove the # before those that you set."]
    )
    return DONE


def template() -> str:
    """Return the text of a new `config.toml`, with every option that a file may set in a comment."""
    lines = ["# Your own options of Pullwright, for all repositories. Keys belong in the environment.", ""]
    for key, one in all_options().items():
        if one.reach is Reach.TYPED:
            continue
        if one.begins:
            lines += [f"# -- {one.begins} --", ""]
        told = one.description if one.default is not None else f"{one.description} Allowed: {one.allowed}."
        lines += textwrap.wrap(told, _WIDTH, initial_indent="# ", subsequent_indent="# ")
        lines.append(f"#{key} = {as_toml(one.default)}" if one.default is not None else f"#{key} =")
        lines.append("")
    return "\n".join(lines)


def _own_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the person's own file, which need not exist. A link to it stays one."""
    path = Path(os.path.realpath(user_file(environ)))
    if path.exists() and not path.is_file():
        raise ConfigurationError(f"{path} is not a file: nothing can be added to it")
    return path


def _set(options: argparse.Namespace) -> int:
    key = options.key.replace("-", "_")
    path = _own_file()
    if key not in all_options():
        raise ConfigurationError(unknown_key(key, path))
    if all_options()[key].reach is Reach.TYPED:
        raise ConfigurationError(f"{key} has no effect in a file: type {flag_of(key)}")
    value = options.value if kind(key) is tuple else typed(key, " ".join(options.value))
    if any(map(known_secrets(os.environ).holds_secret, options.value)):
        raise ConfigurationError(
            f"{key} holds what looks like a key or password: keys belong in the environment"
        )
    check_value(key, value, Origin(SourceKind.USER_FILE, str(path)))
    _change(path, {key: value})
    print_lines([f"{key} = {as_toml(value)} in {path}"])
    return DONE


def _unset(options: argparse.Namespace) -> int:
    key, path = options.key.replace("-", "_"), _own_file()
    if key not in (read_toml(path) or {}):
        raise ConfigurationError(f"{path} does not set {key[:_SHOWN_CHARS]!r}")
    _change(path, {key: None})
    print_lines([f"{key} is not set in {path} any more"])
    return DONE


def _edit(_options: argparse.Namespace) -> int:
    """Open the user's file in their editor, and say whether it can be used afterwards."""
    path = _own_file()
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    if not path.exists():
        _replace(path, template())
    try:
        status = subprocess.run([*editor, str(path)], check=False).returncode  # noqa: S603  the person's own editor
    except OSError as error:
        raise ConfigurationError(
            f"{editor[0]} cannot be started: {error.strerror or error}; set EDITOR, or open {path}"
        ) from None
    if status:
        raise ConfigurationError(f"{editor[0]} ended with status {status}; {path} is as it left it")
    load_settings({}, os.environ, Path.cwd())
    print_lines([f"{path} can be used"])
    return DONE


def _import(options: argparse.Namespace) -> int:
    """Import another program's configuration, memories and documents, and print what was added."""
    path = Path(options.import_file).expanduser()
    is_folder = path.is_dir()
    config = config_in(path) if is_folder else path
    found = (
        Imported({}, ()) if config is None else read_foreign(config, known_secrets(os.environ).holds_secret)
    )
    done = add_to_users_file(found.values, os.environ)
    stored, more = event_loop.run(_stored(path)) if is_folder else (0, ())
    notes = [*(f"{key} stays as it is in {done.path}" for key in done.kept), *found.notes, *more]
    if options.json:
        fields = {"file": str(done.path), "added": dict(done.added), "memories": stored, "notes": notes}
        print_json(fields, indent=2)
        return DONE
    lines = [f"{key} = {as_toml(value)}" for key, value in done.added.items()]
    lines.insert(0, f"Added to {done.path}:" if lines else f"Nothing was added to {done.path}.")
    if is_folder:
        lines.append(f"Remembered: {counted(stored, 'memory or document', 'memories or documents')}.")
    print_lines(lines)
    sys.stderr.write("".join(f"! {clean(note)}\n" for note in notes))
    return DONE


async def _stored(folder: Path) -> tuple[int, Sequence[str]]:
    """Store a folder's memories and documents, which are about no repository; return how many are new, and notes."""
    memory = open_session_memory(BuildContext.of({}, os.environ, Path.cwd()))
    if memory is None:
        return 0, [f"memories and documents are not taken: {absence_of('memory')}"]
    try:
        return await memory.import_folder(folder)
    finally:
        await memory.aclose()


def key_states(environ: Mapping[str, str], named: str | None = None) -> dict[str, str]:
    """Return whether each variable for keys is set, and the one that `api_key_variable` names. Keys are masked."""
    states = {}
    usual = (one for variables in VARIABLES.values() for one in variables)
    for variable in (*usual, *([named] if named else [])):
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
        for key in all_options()
    }
    keys = key_states(environ, loaded.settings.api_key_variable)
    places = {name: str(path) for name, path in _places(home, environ)}
    return {
        "settings": settings,
        "notices": loaded.notices,
        "keys": keys,
        "home": str(home.root),
        "places": places,
    }


def _places(home: Home, environ: Mapping[str, str]) -> list[tuple[str, Path]]:
    """Return the name and the path of each place where the program keeps something."""
    return [
        ("your own options", user_file(environ)),
        ("state", home.root),
        ("runs, with their logs", home.runs),
        ("local pull requests", home.forge),
        ("memories", home.memories),
        ("cache", home.cache),
    ]


def _as_text(loaded: Loaded, home: Home, environ: Mapping[str, str]) -> str:
    rows = [
        (key, _shown(getattr(loaded.settings, key)), _origin(loaded, key), all_options()[key].description)
        for key in all_options()
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    lines = []
    for key, value, origin, words in rows:
        lines += [f"{key:{widths[0]}}  {value:{widths[1]}}  {origin}".rstrip(), f"    {words}"]
    lines += [f"! {notice}" for notice in loaded.notices]
    states = key_states(environ, loaded.settings.api_key_variable)
    width = max(map(len, states))
    lines += ["", "Keys, from the environment only:"]
    lines += [f"  {variable:{width}}  {state}" for variable, state in states.items()]
    places = _places(home, environ)
    width = max(len(name) for name, _ in places)
    lines += ["", "Places:"]
    lines += [
        f"  {name:{width}}  {path}{'' if path.exists() else ' (not there yet)'}" for name, path in places
    ]
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
class Added:
    """The values added to the user's file, and the keys that kept their present values."""

    path: Path
    added: Mapping[str, Any]
    kept: tuple[str, ...]


def add_to_users_file(values: Mapping[str, Any], environ: Mapping[str, str]) -> Added:
    """Add the options that the user's own file does not set yet, above its present content."""
    path = _own_file(environ)
    present = read_toml(path) or {}
    added = {key: value for key, value in values.items() if key not in present}
    kept = tuple(key for key, value in values.items() if key in present and present[key] != value)
    if added:
        _change(path, added)
    return Added(path, added, kept)


@dataclass(frozen=True, slots=True)
class OwnChange:
    """A change of the person's own file that is not written yet.

    Attributes:
        old: the present text; None if there is no file.
    """

    path: Path
    old: str | None
    new: str

    def write(self) -> None:
        """Write the file."""
        _replace(self.path, self.new)


def own_change(
    values: Mapping[str, Any],
    tables: Mapping[str, Mapping[str, Any] | None],
    environ: Mapping[str, str],
) -> OwnChange:
    """Return the person's own file with these options set. Everything else in it stays as it is.

    Args:
        values: options for all repositories.
        tables: options for single repositories, which are added to what is there; None removes a repository.
    """
    return _changed(_own_file(environ), values, tables)


def _change(path: Path, values: Mapping[str, Any]) -> None:
    """Set options in a file, or remove those whose value is None. Everything else in it stays as it is."""
    _changed(path, values, {}).write()


def _changed(
    path: Path,
    values: Mapping[str, Any],
    tables: Mapping[str, Mapping[str, Any] | None],
) -> OwnChange:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    present = read_toml(path) or {}
    wanted = {key: value for key, value in {**present, **values}.items() if value is not None}
    if tables:
        before = present.get(REPOSITORIES, {})
        after = {
            name: None if new is None else {**before.get(name, {}), **new} for name, new in tables.items()
        }
        kept = {name: table for name, table in {**before, **after}.items() if table is not None}
        wanted = {key: value for key, value in wanted.items() if key != REPOSITORIES}
        wanted |= {REPOSITORIES: kept} if kept else {}
    try:
        old = read_own(path, MOST_FILE_BYTES).decode() if path.exists() else None
        document = tomlkit.parse("\n".join(_uncommented(line, values) for line in (old or "").split("\n")))
        _set_in(document, values)
        for name, table in tables.items():
            _set_table(document, name, table)
        text = tomlkit.dumps(document)
    except TOMLKitError as error:
        raise ConfigurationError(f"{path} cannot be changed: {error}") from None
    if tomllib.loads(text) != wanted:
        raise ConfigurationError(f"{path} cannot be changed without changing its content: edit it by hand")
    return OwnChange(path, old, text)


def _set_in(table: Any, values: Mapping[str, Any]) -> None:
    """Set options in a table of tomlkit, or remove those whose value is None."""
    for key, value in values.items():
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value


def _set_table(document: Any, name: str, values: Mapping[str, Any] | None) -> None:
    """Set the options of one repository in a document of tomlkit; None removes its table."""
    import tomlkit

    all_of_them = document.get(REPOSITORIES)
    if all_of_them is None:
        all_of_them = tomlkit.table(is_super_table=True)
        document[REPOSITORIES] = all_of_them
    if values is None:
        all_of_them.pop(name, None)
        return
    if name not in all_of_them:
        all_of_them[name] = tomlkit.table()
    _set_in(all_of_them[name], values)


def _uncommented(line: str, values: Mapping[str, Any]) -> str:
    """Return a line of `template` with the option set, if it is that of one of the values; else the line."""
    key = line.removeprefix("#").partition(" =")[0]
    is_for_it = line.startswith(f"#{key} =") and values.get(key) is not None
    return f"{key} = {as_toml(values[key])}" if is_for_it else line


def _replace(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode())
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}") from error


_ACTIONS = {
    "show": _show,
    "init": _init,
    "set": _set,
    "unset": _unset,
    "edit": _edit,
    "import": _import,
}

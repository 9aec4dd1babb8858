"""The agent programs that are known, one data file each in `known`, and how one is filled in for a session.

A file names the package with its tried version, the command, what points the program to its model and to the host's
tools, and a form for each permission level. `{{name}}` stands for a value of the session. Tables below `files` become
JSON, texts stay; a form's tables are merged into the common ones, and its texts are appended.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_FOLDER = Path(__file__).with_name("known")
_OWN_COMMAND = Path(__file__).with_name("own_command.toml")
_VALUE = re.compile(r"\{\{([a-z:_]+)\}\}")
_SAFE_VALUE = re.compile(r"[\w.:/@+ -]*", re.ASCII)
"""What a value may consist of: it becomes part of JSON, TOML and addresses."""
BARE = "bare:"
"""Stands before an agent that is to work without the host's tools and instructions."""


@dataclass(frozen=True, slots=True)
class AgentKind:
    """What is known about one agent program.

    Attributes:
        name: what `--agent` names.
        protocols: in which it asks models.
        reads: whether it reads files without a shell; if not, it gets the host's tools for reading.
        tools: whether it is told of the host's tools by its `session`, or by a `file` of its own.
        forms: for `safe` and `dangerous`: its environment, its files, its `_meta`, and the session's mode.
        title: its name for people.
        package, version: of the npm package that was tried; empty for a command of the user's.
        argv: the command, with values of the session.
        is_bare: whether it gets the task alone, so that a comparison shows what the host's part is worth: no tools of
            the host's but those without which it could not read files, no instructions, no second turn.
    """

    name: str
    protocols: Sequence[str]
    reads: bool
    tools: str
    forms: Mapping[str, Mapping[str, Any]]
    title: str = ""
    package: str = ""
    version: str = ""
    argv: Sequence[str] = ()
    is_bare: bool = False

    @property
    def install(self) -> str:
        """The arguments of npm that install it."""
        return f"{self.package}@{self.version}"


@dataclass(frozen=True, slots=True)
class Installed:
    """Where an agent program is on this machine.

    Attributes:
        argv: with real paths, without values of the session.
        readable: the folders and files that it consists of.
        version: the version of its package; empty if unknown.
    """

    argv: tuple[str, ...]
    readable: tuple[str, ...]
    version: str = ""


@dataclass(frozen=True, slots=True)
class Filled:
    """Everything that an agent needs for one session."""

    environment: Mapping[str, str]
    files: Mapping[str, bytes]
    meta: Mapping[str, Any]
    mode: str


@cache
def known_agents() -> Mapping[str, AgentKind]:
    """Return the known agents by name."""
    return {path.stem: _read(path) for path in sorted(_FOLDER.glob("*.toml"))}


def _read(path: Path) -> AgentKind:
    values = tomllib.loads(path.read_text("utf-8"))
    shared = {name: values.pop(name, {}) for name in ("environment", "files", "meta")}
    forms = {level: _merged(shared, values.pop(level, {})) for level in ("safe", "dangerous")}
    return AgentKind(path.stem, forms=forms, **values)


def agent_named(text: str) -> AgentKind:
    """Return the agent that `--agent` names: a known one, or a command of the user's own; with `bare:` in front, bare."""
    import shlex

    if text.startswith(BARE):
        kind = agent_named(text.removeprefix(BARE))
        return replace(kind, name=f"bare-{kind.name}", title=f"{kind.title}, bare", is_bare=True)
    known = known_agents()
    if text in known:
        return known[text]
    try:
        words = tuple(shlex.split(text))
    except ValueError:
        words = ()
    if not words or not (len(words) > 1 or "/" in text):
        raise ConfigurationError(
            f"--agent {text}: name one of {', '.join(known)}, or the command of a program that speaks the Agent Client "
            "Protocol, such as '/opt/agent/bin/agent --acp'"
        )
    name = Path(words[0]).name
    return replace(_read(_OWN_COMMAND), name=name, title=name, argv=words)


def find_installed(kind: AgentKind, folders: Sequence[Path], path: str) -> Installed:
    """Find an agent on this machine.

    Args:
        folders: Pullwright's own folders for agents, which are looked at first; the last one is for npm.
        path: the value of `PATH`.

    Raises:
        ConfigurationError: it is not installed; the message says how to install it.
    """
    if not kind.package:
        return _command(kind, path)
    node = shutil.which("node", path=path)
    machine = os.uname().machine
    values = {"processor": {"x86_64": "x64", "aarch64": "arm64"}.get(machine, machine)}
    values["node"] = str(Path(node).resolve()) if node else "node"
    for modules in _module_folders(kind, folders, path):
        argv = tuple(_filled(word, {**values, "modules": str(modules)}, ()) for word in kind.argv)
        program = next((word for word in argv if word.startswith(f"{modules}/")), "")
        if Path(program).is_file():
            if argv[0] == "node":
                raise ConfigurationError(
                    f"{kind.title} needs Node.js, which is not on the PATH: apt install nodejs"
                )
            readable = (str(modules),) if argv[0] == program else (str(modules), argv[0])
            return Installed(argv, readable, _version(modules / kind.package / "package.json"))
    raise ConfigurationError(
        f"{kind.title} is not installed: npm install --ignore-scripts --prefix {folders[-1]} {kind.install}"
    )


def _module_folders(kind: AgentKind, folders: Sequence[Path], path: str) -> Sequence[Path]:
    """Return the folders `node_modules` in which the agent may be: ours, and that of a program on the path."""
    found = [(folder / "node_modules").resolve() for folder in folders]
    for name in (kind.package.rpartition("/")[2], kind.name):
        if program := shutil.which(name, path=path):
            found += [one for one in Path(program).resolve().parents if one.name == "node_modules"]
    return [one for one in dict.fromkeys(found) if one.is_dir()]


def _version(file: Path) -> str:
    try:
        return str(json.loads(file.read_text("utf-8"))["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _command(kind: AgentKind, path: str) -> Installed:
    """Return the user's own command: its program, and the folders and files that it names by absolute path."""
    program = shutil.which(kind.argv[0], path=path)
    if program is None:
        raise ConfigurationError(f"--agent {kind.argv[0]}: there is no such program")
    argv = (str(Path(program).absolute()), *kind.argv[1:])
    named = [str(Path(word).resolve()) for word in argv if word.startswith("/") and Path(word).exists()]
    return Installed(argv, tuple(dict.fromkeys(named)))


def fill_in(kind: AgentKind, level: str, values: Mapping[str, str], tools: Sequence[str]) -> Filled:
    """Fill in an agent's environment, files and `_meta` for one session.

    Args:
        level: `safe` or `dangerous`.
        values: by name.
        tools: the names of the host's tools.
    """
    for name, value in values.items():
        if not _SAFE_VALUE.fullmatch(value):
            raise ConfigurationError(
                f"{kind.title} cannot be given the {name} {value!r}: it has unusual characters"
            )
    form = _filled(kind.forms[level], values, tools)
    files = {path: one if isinstance(one, str) else json.dumps(one) for path, one in form["files"].items()}
    contents = {path: text.encode() for path, text in files.items()}
    return Filled(form["environment"], contents, form["meta"], form.get("mode", ""))


def _merged(common: Any, more: Any) -> Any:
    """Return two tables as one: tables are merged, texts joined, everything else replaced."""
    if isinstance(common, dict) and isinstance(more, dict):
        return common | {name: _merged(common.get(name), value) for name, value in more.items()}
    if isinstance(common, str) and isinstance(more, str):
        return f"{common.rstrip()}\n{more.lstrip()}"
    return more


def _filled(value: Any, values: Mapping[str, str], tools: Sequence[str]) -> Any:
    """Return a value of a data file with the session's values in the place of their names."""
    if isinstance(value, dict):
        return {_filled(name, values, tools): _filled(one, values, tools) for name, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, values, tools) for one in value]
    if not isinstance(value, str):
        return value
    whole = _VALUE.fullmatch(value)
    if whole and whole[1].startswith("number:"):
        return int(values[whole[1].partition(":")[2]])
    if whole and whole[1].startswith("allowed:"):
        return [f"{whole[1].partition(':')[2]}{name}" for name in tools]
    return _VALUE.sub(lambda found: values[found[1]], value)

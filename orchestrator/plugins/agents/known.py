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
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.models.catalog import Provider

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_FOLDER = Path(__file__).with_name("known")
_VALUE = re.compile(r"\{\{([a-z:_]+)\}\}")
_SAFE_VALUE = re.compile(r"[\w.:/@+ -]*", re.ASCII)
"""What a value may consist of: it becomes part of JSON, TOML and addresses."""
BARE = "bare:"
"""Stands before an agent that is to work without the host's tools and instructions."""
PROVIDERS = {
    "anthropic": Provider.ANTHROPIC,
    "gemini": Provider.GEMINI,
    "openai-chat": Provider.OPENAI_CHAT,
    "openai-responses": Provider.OPENAI_RESPONSES,
}


@dataclass(frozen=True, slots=True)
class AgentKind:
    """What is known about one agent program.

    Attributes:
        name: what `--agent` names.
        title: its name for people.
        package, version: of the npm package that was tried; empty for a command of the user's.
        argv: the command, with values of the session.
        providers: the protocols in which it asks models.
        reads: whether it reads files without a shell; if not, it gets the host's tools for reading.
        tools: whether it is told of the host's tools by its `session`, or by a `file` of its own.
        common: its environment, its files and its `_meta`.
        forms: the same for `safe` and `dangerous`, with the session's mode.
        is_bare: whether it gets the task alone, so that a comparison shows what the host's part is worth: no tools of
            the host's but those without which it could not read files, no instructions, no second turn.
    """

    name: str
    title: str
    package: str
    version: str
    argv: tuple[str, ...]
    providers: tuple[Provider, ...]
    reads: bool
    tools: str
    common: Mapping[str, Any] = field(default_factory=dict)
    forms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
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
    """An agent's command with everything that it needs for one session."""

    argv: tuple[str, ...]
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
    shared = ("environment", "files", "meta")
    return AgentKind(
        path.stem,
        values["title"],
        values["package"],
        values["version"],
        tuple(values["argv"]),
        tuple(PROVIDERS[name] for name in values["protocols"]),
        values["reads"],
        values["tools"],
        {name: values.get(name, {}) for name in shared},
        {level: values[level] for level in ("safe", "dangerous")},
    )


def agent_named(text: str) -> AgentKind:
    """Return the agent that `--agent` names: a known one, or a command of the user's own; with `bare:` in front, bare.

    A command's program is told of the host's tools by its session, and of its model by the variables of the vendors.
    """
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
    environment = {
        "ANTHROPIC_BASE_URL": "{{relay}}",
        "ANTHROPIC_API_KEY": "{{placeholder}}",
        "OPENAI_BASE_URL": "{{relay}}/v1",
        "OPENAI_API_KEY": "{{placeholder}}",
        "GOOGLE_GEMINI_BASE_URL": "{{relay}}",
        "GEMINI_API_KEY": "{{placeholder}}",
        "MODEL": "{{model}}",
    }
    name = Path(words[0]).name
    common = {"environment": environment, "files": {}, "meta": {}}
    forms: dict[str, Mapping[str, Any]] = {"safe": {}, "dangerous": {}}
    return AgentKind(name, name, "", "", words, tuple(PROVIDERS.values()), False, "session", common, forms)


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
        argv = tuple(_with(word, {**values, "modules": str(modules)}) for word in kind.argv)
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


def _with(word: str, values: Mapping[str, str]) -> str:
    """Return a word with those of the values that it names."""
    return _VALUE.sub(lambda found: values.get(found[1], found[0]), word)


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


def fill_in(
    kind: AgentKind, found: Installed, level: str, values: Mapping[str, str], tools: Sequence[str]
) -> Filled:
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
    form = kind.forms[level]
    shared = {
        name: _merged(kind.common.get(name, {}), form.get(name, {}))
        for name in ("environment", "files", "meta")
    }
    environment, files, meta = (
        _filled(shared[name], values, tools) for name in ("environment", "files", "meta")
    )
    return Filled(
        found.argv,
        environment,
        {path: (one if isinstance(one, str) else json.dumps(one)).encode() for path, one in files.items()},
        meta,
        form.get("mode", ""),
    )


def _merged(common: Any, more: Any) -> Any:
    """Return two tables as one: tables are merged, texts joined, everything else replaced."""
    if isinstance(common, dict) and isinstance(more, dict):
        merged = {**common}
        for name, value in more.items():
            merged[name] = _merged(common[name], value) if name in common else value
        return merged
    return (
        common.rstrip() + "\n" + more.lstrip() if isinstance(common, str) and isinstance(more, str) else more
    )


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

"""The folders in which languages keep their tools, as a sandbox has them: programs to read, the rest empty.

Their variables are those of section 4.2 of the coding agent loop specification. A tool writes into some of these
folders, and they hold keys beside programs (`~/.cargo/credentials.toml`): a command sees an empty folder of its
own in their place, with the host's programs in it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.engine.environments.readable import SYSTEM, homes, is_above

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PREFIX = ("bin", "conf", "include", "lib", "lib64", "libexec", "share")


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a variable names.

    Attributes:
        programs: what in the folder is read: no configuration, no key, no cache.
        default: where the folder is below the home if the variable is not set; empty if nowhere.
        written: its tool writes into it.
        several: the variable may name several folders, with colons between them.
    """

    programs: tuple[str, ...]
    default: str = ""
    written: bool = False
    several: bool = False


_KINDS: dict[str, _Kind] = {
    "ANDROID_HOME": _Kind(("build-tools", "cmdline-tools", "licenses", "ndk", "platform-tools", "platforms")),
    "CARGO_HOME": _Kind(("bin",), ".cargo", written=True),
    "DOTNET_ROOT": _Kind(("dotnet", "host", "packs", "sdk", "shared", "templates")),
    "GEM_HOME": _Kind(("bin", "extensions", "gems", "specifications"), written=True),
    "GOMODCACHE": _Kind((), "go/pkg/mod", written=True),
    "GOPATH": _Kind(("bin",), "go", written=True, several=True),
    "GOROOT": _Kind(("bin", "VERSION", "go.env", "lib", "misc", "pkg", "src")),
    "JAVA_HOME": _Kind((*_PREFIX, "jmods", "jre", "release")),
    "NVM_DIR": _Kind(("alias", "nvm-exec", "nvm.sh", "versions"), ".nvm"),
    "PYENV_ROOT": _Kind(("bin", "libexec", "pyenv.d", "shims", "version", "versions"), ".pyenv"),
    "RBENV_ROOT": _Kind(("bin", "libexec", "rbenv.d", "shims", "version", "versions"), ".rbenv"),
    "RUSTUP_HOME": _Kind(("settings.toml", "toolchains", "update-hashes"), ".rustup"),
    "VIRTUAL_ENV": _Kind((*_PREFIX, "pyvenv.cfg")),
}

_KEPT_CLEAR = (*SYSTEM, "/dev", "/etc", "/proc", "/run", "/sys", "/tmp", "/var")  # noqa: S108  not covered
_NEVER_IN = ("/dev", "/etc", "/proc", "/run", "/sys")


@dataclass(frozen=True, slots=True)
class Toolchains:
    """What commands get of these folders.

    Attributes:
        variables: by name; the paths are the host's.
        readable: programs on the host.
        private: folders that are the command's own and begin empty.
    """

    variables: Mapping[str, str]
    readable: tuple[str, ...]
    private: tuple[str, ...]


def toolchains(inherited: Mapping[str, str], granted: Sequence[str] = ()) -> Toolchains:
    """The folders that are named by this program's variables, or granted where they usually are.

    Args:
        inherited: this program's variables.
        granted: paths that the person who runs this lets commands read, such as `~/go/pkg/mod`.
    """
    variables: dict[str, str] = {}
    readable: list[str] = []
    private: list[str] = []
    for name, kind in _KINDS.items():
        folders = _folders(name, kind, inherited, granted)
        if not folders:
            continue
        variables[name] = ":".join(folders)
        for folder in folders:
            found = [f"{folder}/{part}" for part in kind.programs]
            readable += [path for path in found if os.path.exists(path)]  # noqa: PTH110  names
            private += [folder] if kind.written else []
    return Toolchains(variables, tuple(readable), tuple(dict.fromkeys(private)))


def private_folders(variables: Mapping[str, str], home: str) -> dict[str, str]:
    """The variables among these whose folders tools write to, with folders below a home in their place."""
    return {
        name: f"{home}/{kind.default or name.lower()}"
        for name, kind in _KINDS.items()
        if kind.written and variables.get(name)
    }


def _folders(name: str, kind: _Kind, inherited: Mapping[str, str], granted: Sequence[str]) -> list[str]:
    value = inherited.get(name, "")
    if value:
        parts = value.split(":") if kind.several else [value]
        return [os.path.normpath(part) for part in parts if _can_be_had(part, written=kind.written)]
    usual = [f"{home}/{kind.default}" for home in homes(inherited) if kind.default]
    shown = [folder for folder in usual if any(is_above(folder, path) for path in granted)]
    return [folder for folder in shown if _can_be_had(folder, written=kind.written)][:1]


def _can_be_had(path: str, *, written: bool) -> bool:
    """Whether the folder can be as its tool wants it, without covering what a command needs."""
    if not os.path.isabs(path) or not path.isprintable():  # noqa: PTH117  a name
        return False
    folder = os.path.normpath(path)
    if not written:
        return os.path.isdir(folder)  # noqa: PTH112  a name
    if any(is_above(folder, other) for other in _KEPT_CLEAR) or any(is_above(up, folder) for up in _NEVER_IN):
        return False
    in_system = any(is_above(outer, folder) for outer in SYSTEM)
    return not in_system or (os.path.isdir(folder) and os.path.realpath(folder) == folder)  # noqa: PTH112  a name

"""What of this machine a command in a sandbox may read: an allow-list of programs and what they need.

Nothing of anybody's home is on it but programs: no configuration, no key, no cache.
"""

from __future__ import annotations

import os
import pwd
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
_ETC = (
    "alternatives", "crypto-policies", "debian_version", "fonts", "java-*-openjdk", "ld.so.cache", "localtime",
    "lsb-release", "mime.types", "os-release", "pki/ca-trust/extracted", "pki/tls/certs", "protocols", "services", "ssl/cert.pem",
    "ssl/certs", "ssl/openssl.cnf", "timezone",
)  # fmt: skip
_OF_A_PREFIX = ("bin", "conda-meta", "include", "lib", "lib64", "libexec", "pyvenv.cfg", "share")
_OF_GO = ("VERSION", "go.env", "lib", "misc", "pkg", "src")
_OF_PYENV = ("bin", "libexec", "pyenv.d", "shims", "version", "versions")
_OF_RUSTUP = ("settings.toml", "toolchains", "update-hashes")
_NEVER = ("/", "/boot", "/dev", "/etc", "/home", "/proc", "/root", "/run", "/srv", "/sys", "/tmp", "/var")  # noqa: S108  refused
_BESIDE_PROGRAMS = ("/usr/etc", "/usr/home", "/usr/local/etc", "/usr/local/home")
"""Configuration with keys of package registries, such as npm's, and homes."""
_OF_A_VERSION = ("*/etc", "*/*/etc", "*/pip.conf", "*/.npmrc", "*/*/.npmrc")
_DEPTH_BELOW_HOME = 2
"""A prefix directly below the home, such as `~/.local`, holds keys and caches beside programs."""


def homes(inherited: Mapping[str, str]) -> tuple[str, ...]:
    """The real paths of this user's home."""
    found = [inherited.get("HOME", "")]
    with suppress(KeyError):  # a user without a name
        found.append(pwd.getpwuid(os.getuid()).pw_dir)
    return tuple(dict.fromkeys(os.path.realpath(home) for home in found if home not in {"", "/"}))


def is_above(upper: str, lower: str) -> bool:
    """Whether a path is the other one or a folder above it; both absolute and normal."""
    return lower == upper or lower.startswith(upper.rstrip("/") + "/")


def system_files() -> list[str]:
    """What is readable below `/etc`."""
    etc = Path("/etc")
    return [str(path) for pattern in _ETC for path in sorted(etc.glob(pattern)) if path.exists()]


def hidden_in_system(inherited: Mapping[str, str]) -> list[str]:
    """Folders in those of the system that are no programs."""
    homes_there = [home for home in homes(inherited) if _is_covered(home) and home not in SYSTEM]
    return [path for path in dict.fromkeys([*_BESIDE_PROGRAMS, *homes_there]) if Path(path).is_dir()]


def hidden_in_versions(folder: str) -> list[str]:
    """Configuration with keys in a folder that has a whole installation in each subfolder."""
    if Path(folder).name != "versions":
        return []
    return sorted(str(path) for pattern in _OF_A_VERSION for path in Path(folder).glob(pattern))


def program_folders(
    inherited: Mapping[str, str], tools: Sequence[str] = (), replaced: Sequence[str] = ()
) -> list[str]:
    """What the programs on the path and the running Python need, beside the system's folders.

    Args:
        inherited: this program's variables.
        tools: programs in the folders of languages (`toolchains`).
        replaced: folders that are empty inside but for programs, those of the system too.
    """
    own = homes(inherited)
    found: list[str] = []
    for folder in inherited.get("PATH", "").split(":"):
        if folder.startswith("/") and os.path.isdir(folder):  # noqa: PTH112  names stay as they are written
            found += _of_folder(Path(os.path.normpath(folder)), own)
            found += _of_folder(Path(os.path.realpath(folder)), own)
    for prefix in (sys.prefix, sys.base_prefix, os.path.realpath(sys.base_prefix)):
        found += _present(Path(prefix), _OF_A_PREFIX)
    found += tools
    return [
        path
        for path in dict.fromkeys(found)
        if (not _is_covered(path) or any(is_above(folder, path) for folder in replaced))
        and _may_be_read(path, own)
    ]


def granted(paths: Sequence[str], inherited: Mapping[str, str]) -> list[str]:
    """What the person who runs this lets commands read, checked.

    Raises:
        ConfigurationError: a path is relative, is not there, or is a whole home or system.
    """
    own = homes(inherited)
    for path in paths:
        if not os.path.isabs(path) or not os.path.exists(path):  # noqa: PTH110, PTH117  names stay as written
            raise ConfigurationError(f"--sandbox-read {path}: name an absolute path that exists")
        if is_above("/run", os.path.realpath(path)) or stat.S_ISSOCK(os.stat(path).st_mode):  # noqa: PTH116  a name
            raise ConfigurationError(
                f"--sandbox-read {path} would let commands speak to a service of this machine: name files, no socket"
            )
        if not _may_be_read(os.path.realpath(path), own):
            raise ConfigurationError(
                f"--sandbox-read {path} would show too much: name a folder further down in it"
            )
    return [os.path.normpath(path) for path in paths]


def refuse_root(root: str, inherited: Mapping[str, str]) -> str:
    """Why a folder cannot be the one that commands may change, or nothing."""
    taken = (*SYSTEM[:1], *_NEVER, *homes(inherited))
    if any(is_above(root, other) for other in taken) or any(
        is_above(place, root) for place in ("/proc", "/sys", "/dev", *SYSTEM[:1], "/etc")
    ):
        return f"the sandbox would open {root} to commands, which is no project's folder; use a folder further down"
    return ""


def _of_folder(folder: Path, own: Sequence[str]) -> list[str]:
    found = [str(folder)]
    prefix = folder.parent
    if folder.name == "shims" and (prefix / "versions").is_dir():
        return _present(prefix, _OF_PYENV)
    if folder.name == "bin" and prefix.name == ".cargo":
        return [*found, *_present(prefix.parent / ".rustup", _OF_RUSTUP)]
    if folder.name in {"bin", "sbin"} and _is_prefix(prefix, own):
        found += _present(prefix, _OF_A_PREFIX)
        if (folder / "go").exists():
            found += _present(prefix, _OF_GO)
    return found


def _is_prefix(prefix: Path, own: Sequence[str]) -> bool:
    if any((prefix / mark).exists() for mark in ("pyvenv.cfg", "conda-meta")):
        return str(prefix) not in own
    for home in own:
        if is_above(home, str(prefix)):
            return len(prefix.relative_to(home).parts) >= _DEPTH_BELOW_HOME
    return True


def _present(prefix: Path, names: Sequence[str]) -> list[str]:
    return [str(prefix / name) for name in names if (prefix / name).exists()]


def _is_covered(path: str) -> bool:
    return any(is_above(folder, path) for folder in SYSTEM)


def _may_be_read(path: str, own: Sequence[str]) -> bool:
    real = os.path.realpath(path)
    return not any(is_above(real, other) for other in (*_NEVER, *own)) and not any(
        is_above(place, real) for place in ("/proc", "/sys", "/dev", "/etc")
    )

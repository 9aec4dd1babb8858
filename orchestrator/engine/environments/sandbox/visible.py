"""The part of this machine that a sandboxed command sees: an allow-list, and its mounts.

The list has programs and the files that they need. From home folders it has programs only: no configuration,
no key, no cache.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.core.confined import KERNEL_FOLDERS, ConfinedFolder
from orchestrator.core.errors import ConfigurationError, ToolError
from orchestrator.core.files import lock_new_folder
from orchestrator.engine.environments.files import POINTER_BYTES, is_above

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from orchestrator.engine.environments.base import SandboxFolder

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
_ETC = (
    "alternatives", "crypto-policies", "debian_version", "fonts", "java-*-openjdk", "ld.so.cache", "localtime",
    "lsb-release", "mime.types", "os-release", "pki/ca-trust/extracted", "pki/tls/certs", "protocols", "services", "ssl/cert.pem",
    "ssl/certs", "ssl/openssl.cnf", "timezone",
)  # fmt: skip
_PREFIX_ENTRIES = ("bin", "conda-meta", "include", "lib", "lib64", "libexec", "pyvenv.cfg", "share")
_GO_ENTRIES = ("VERSION", "go.env", "lib", "misc", "pkg", "src")
_PYENV_ENTRIES = ("bin", "libexec", "pyenv.d", "shims", "version", "versions")
_RUSTUP_ENTRIES = ("settings.toml", "toolchains", "update-hashes")
_NEVER = ("/", "/boot", "/dev", "/etc", "/home", "/proc", "/root", "/run", "/srv", "/sys", "/tmp", "/var")  # noqa: S108  refused
_BESIDE_PROGRAMS = ("/usr/etc", "/usr/home", "/usr/local/etc", "/usr/local/home")
"""Folders with homes, or with configuration that holds keys of package registries, such as npm's."""
_VERSION_SECRETS = ("*/etc", "*/*/etc", "*/pip.conf", "*/.npmrc", "*/*/.npmrc")
_DEPTH_BELOW_HOME = 2
"""The smallest depth of a prefix below the home.

A prefix directly below it, such as `~/.local`, holds keys and caches beside programs.
"""


def _homes(inherited: Mapping[str, str]) -> tuple[str, ...]:
    found = [inherited.get("HOME", "")]
    with suppress(KeyError):  # the user has no entry in /etc/passwd
        found.append(pwd.getpwuid(os.getuid()).pw_dir)
    return tuple(dict.fromkeys(os.path.realpath(home) for home in found if home not in {"", "/"}))


def _contains(folder: str, paths: Iterable[str]) -> bool:
    return any(is_above(folder, path) for path in paths)


def _is_inside(path: str, folders: Iterable[str]) -> bool:
    return any(is_above(folder, path) for folder in folders)


def program_folders(
    inherited: Mapping[str, str], tools: Sequence[str] = (), replaced: Sequence[str] = ()
) -> list[str]:
    """Return the paths that the programs on the path and the running Python need.

    The system's folders are not among them.

    Args:
        tools: programs in the folders of toolchains.
        replaced: folders that commands see empty except for programs, including those of the system.
    """
    homes = _homes(inherited)
    found: list[str] = []
    for folder in inherited.get("PATH", "").split(":"):
        if folder.startswith("/") and os.path.isdir(folder):
            found += _paths_for_folder(Path(os.path.normpath(folder)), homes)
            found += _paths_for_folder(Path(os.path.realpath(folder)), homes)
    for prefix in (sys.prefix, sys.base_prefix, os.path.realpath(sys.base_prefix)):
        found += _present(Path(prefix), _PREFIX_ENTRIES)
    found += tools
    return [
        path
        for path in dict.fromkeys(found)
        if (not _is_inside(path, SYSTEM) or _is_inside(path, replaced)) and _may_be_read(path, homes)
    ]


def checked_grants(paths: Sequence[str], inherited: Mapping[str, str]) -> list[str]:
    """Check the paths that the user lets commands read, and return them.

    Raises:
        ConfigurationError: a path is relative, does not exist, or is a whole home or system folder.
    """
    homes = _homes(inherited)
    for path in paths:
        if not os.path.isabs(path) or not os.path.exists(path):
            raise ConfigurationError(f"--sandbox-read {path}: name an absolute path that exists")
        if is_above("/run", os.path.realpath(path)) or stat.S_ISSOCK(os.stat(path).st_mode):
            raise ConfigurationError(
                f"--sandbox-read {path} would let commands connect to a service of this machine: name files, no socket"
            )
        if not _may_be_read(os.path.realpath(path), homes):
            raise ConfigurationError(
                f"--sandbox-read {path} would show too much: name a folder further down in it"
            )
    return [os.path.normpath(path) for path in paths]


def check_root(root: str, inherited: Mapping[str, str]) -> None:
    """Check the folder in which commands run.

    Raises:
        ToolError: the folder contains more than a project, or belongs to the system.
    """
    too_wide = ("/usr", *_NEVER, *_homes(inherited))
    if _contains(root, too_wide) or _is_inside(root, (*KERNEL_FOLDERS, "/usr", "/etc")):
        raise ToolError(
            f"commands may not change {root}, because it is not the folder of a project; use a folder further down"
        )


def _paths_for_folder(folder: Path, homes: Sequence[str]) -> list[str]:
    found = [str(folder)]
    prefix = folder.parent
    if folder.name == "shims" and (prefix / "versions").is_dir():
        return _present(prefix, _PYENV_ENTRIES)
    if folder.name == "bin" and prefix.name == ".cargo":
        return [*found, *_present(prefix.parent / ".rustup", _RUSTUP_ENTRIES)]
    if folder.name in {"bin", "sbin"} and _is_prefix(prefix, homes):
        found += _present(prefix, _PREFIX_ENTRIES)
        if (folder / "go").exists():
            found += _present(prefix, _GO_ENTRIES)
    return found


def _is_prefix(prefix: Path, homes: Sequence[str]) -> bool:
    if any((prefix / mark).exists() for mark in ("pyvenv.cfg", "conda-meta")):
        return str(prefix) not in homes
    for home in homes:
        if is_above(home, str(prefix)):
            return len(prefix.relative_to(home).parts) >= _DEPTH_BELOW_HOME
    return True


def _present(prefix: Path, names: Sequence[str]) -> list[str]:
    return [str(prefix / name) for name in names if (prefix / name).exists()]


def _may_be_read(path: str, homes: Sequence[str]) -> bool:
    real = os.path.realpath(path)
    return not (_contains(real, (*_NEVER, *homes)) or _is_inside(real, (*KERNEL_FOLDERS, "/etc")))


_KIT_ENTRIES = ("bin", "conf", "include", "lib", "lib64", "libexec", "share")


@dataclass(frozen=True, slots=True)
class _Toolchain:
    """The folder that a toolchain's variable names (section 4.2 of the coding agent loop specification).

    Attributes:
        programs: entries of the folder that are readable: no configuration, no key, no cache.
        default: path of the folder below the home if the variable is not set; empty if there is no usual
            place.
        written: whether the tool writes into the folder.
        several: whether the variable may name several folders, with colons between them.
    """

    programs: tuple[str, ...]
    default: str = ""
    written: bool = False
    several: bool = False


_TOOLCHAINS: dict[str, _Toolchain] = {
    "ANDROID_HOME": _Toolchain(
        ("build-tools", "cmdline-tools", "licenses", "ndk", "platform-tools", "platforms")
    ),
    "CARGO_HOME": _Toolchain(("bin",), ".cargo", written=True),
    "DOTNET_ROOT": _Toolchain(("dotnet", "host", "packs", "sdk", "shared", "templates")),
    "GEM_HOME": _Toolchain(("bin", "extensions", "gems", "specifications"), written=True),
    "GOMODCACHE": _Toolchain((), "go/pkg/mod", written=True),
    "GOPATH": _Toolchain(("bin",), "go", written=True, several=True),
    "GOROOT": _Toolchain(("bin", *_GO_ENTRIES)),
    "JAVA_HOME": _Toolchain((*_KIT_ENTRIES, "jmods", "jre", "release")),
    "NVM_DIR": _Toolchain(("alias", "nvm-exec", "nvm.sh", "versions"), ".nvm"),
    "PYENV_ROOT": _Toolchain(_PYENV_ENTRIES, ".pyenv"),
    "RBENV_ROOT": _Toolchain(("bin", "libexec", "rbenv.d", "shims", "version", "versions"), ".rbenv"),
    "RUSTUP_HOME": _Toolchain(_RUSTUP_ENTRIES, ".rustup"),
    "VIRTUAL_ENV": _Toolchain((*_KIT_ENTRIES, "pyvenv.cfg")),
}

_NOT_REPLACEABLE = (*SYSTEM, "/dev", "/etc", "/proc", "/run", "/sys", "/tmp", "/var")  # noqa: S108  not covered


@dataclass(frozen=True, slots=True)
class _Toolchains:
    """The parts of toolchain folders that commands get.

    Attributes:
        variables: variables by name; the paths are the host's.
        readable: programs on the host.
        private: folders that belong to the command alone and are empty at first.
    """

    variables: Mapping[str, str]
    readable: tuple[str, ...]
    private: tuple[str, ...]


def toolchains(inherited: Mapping[str, str], granted: Sequence[str] = ()) -> _Toolchains:
    """Return the toolchain folders that variables name, or that are granted at their usual place.

    A tool writes into some of these folders, and they hold keys beside programs
    (`~/.cargo/credentials.toml`). So a command sees its own empty folder in their place, with the host's
    programs in it.

    Args:
        inherited: this program's variables.
        granted: paths that the user lets commands read, such as `~/go/pkg/mod`.
    """
    variables: dict[str, str] = {}
    readable: list[str] = []
    private: list[str] = []
    for name, kind in _TOOLCHAINS.items():
        folders = _folders(name, kind, inherited, granted)
        if not folders:
            continue
        variables[name] = ":".join(folders)
        for folder in folders:
            found = [f"{folder}/{part}" for part in kind.programs]
            readable += [path for path in found if os.path.exists(path)]
            private += [folder] if kind.written else []
    return _Toolchains(variables, tuple(readable), tuple(dict.fromkeys(private)))


def private_folders(variables: Mapping[str, str], home: str) -> dict[str, str]:
    """Return those of the variables whose folders tools write to, with folders below `home` as values."""
    return {
        name: f"{home}/{kind.default or name.lower()}"
        for name, kind in _TOOLCHAINS.items()
        if kind.written and variables.get(name)
    }


def _folders(name: str, kind: _Toolchain, inherited: Mapping[str, str], granted: Sequence[str]) -> list[str]:
    value = inherited.get(name, "")
    if value:
        parts = value.split(":") if kind.several else [value]
        return [os.path.normpath(part) for part in parts if _is_usable(part, written=kind.written)]
    usual = [f"{home}/{kind.default}" for home in _homes(inherited) if kind.default]
    shown = [folder for folder in usual if _contains(folder, granted)]
    return [folder for folder in shown if _is_usable(folder, written=kind.written)][:1]


def _is_usable(path: str, *, written: bool) -> bool:
    """Return whether the folder is usable for its tool, without covering one that a command needs."""
    if not os.path.isabs(path) or not path.isprintable():
        return False
    folder = os.path.normpath(path)
    if not written:
        return os.path.isdir(folder)
    if _contains(folder, _NOT_REPLACEABLE) or _is_inside(folder, (*KERNEL_FOLDERS, "/etc", "/run")):
        return False
    return not _is_inside(folder, SYSTEM) or (os.path.isdir(folder) and os.path.realpath(folder) == folder)


Step: TypeAlias = "tuple[Any, ...]"
"""A step of `sandbox_init` before a command: its name and arguments; texts are bytes."""

HOME = "/home/sandbox"
HOST_NAME = "sandbox"
SHARED_BYTES = 256 << 20
"""The size of `/dev/shm`."""
_COPIED_BYTES = 128 << 10
_PLAIN_MODE = 0o444
_FIRST_NUMBER = 100
"""The first descriptor number for mounts; a sandbox's first process has none so high."""

# mount(2) and the kernel's include/uapi/linux/mount.h
_READ_ONLY, _PLAIN, _NO_PROGRAMS, _BIND, _RECURSIVE, _PRIVATE = 1, 2 | 4, 8, 4096, 16384, 1 << 18
_CHANGE = 32 | _BIND
_DESCRIBING = frozenset({"kallsyms", "kcore", "key-users", "keys", "kmsg", "sched_debug", "timer_list"})
"""Files of `/proc` that describe the machine and are readable by everybody or by root."""


def system_mounts(inherited: Mapping[str, str]) -> list[str]:
    """Return the mounts of the system's programs and libraries, without files that people put beside them."""
    words: list[str] = []
    for folder in SYSTEM:
        if os.path.islink(folder):
            words += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            words += ["--ro-bind", folder, folder]
    own_homes = [home for home in _homes(inherited) if _is_inside(home, SYSTEM) and home not in SYSTEM]
    for folder in dict.fromkeys([*_BESIDE_PROGRAMS, *own_homes]):
        if os.path.isdir(folder):
            words += ["--tmpfs", folder, "--remount-ro", folder]
    return words


def etc_mounts() -> tuple[list[str], dict[str, bytes]]:
    """Return the readable part of `/etc`: mounts of folders, and the content of small files by path."""
    words: list[str] = []
    copies: dict[str, bytes] = {}
    found = (path for pattern in _ETC for path in sorted(Path("/etc").glob(pattern)) if path.exists())
    for path in map(str, found):
        target = os.path.realpath(path)
        if os.path.islink(path) and _is_inside(target, SYSTEM):
            words += ["--symlink", target, path]
        elif os.path.isfile(path) and os.stat(path).st_size <= _COPIED_BYTES:
            copies[path] = Path(path).read_bytes()
        else:
            words += ["--ro-bind-try", path, path]
    return words, copies


def covered_in_proc() -> list[str]:
    """Return the files of `/proc` that no command may read: those about the machine, and root's own if this is root."""
    root = os.getuid() == 0
    found = []
    for entry in sorted(Path("/proc").iterdir()):
        if entry.name.isdigit():  # a process, which may have ended
            continue
        mode = entry.lstat().st_mode
        if stat.S_ISREG(mode) and (entry.name in _DESCRIBING or (root and stat.S_IMODE(mode) != _PLAIN_MODE)):
            found.append(str(entry))
    return found


def scratch_folders(size: int, more: Sequence[str] = ()) -> dict[str, tuple[int, str]]:
    """Return the private, writable folders in memory, outer ones first: size in bytes and mode of each."""
    own = {HOME: (size, "0700"), **dict.fromkeys(sorted(more), (size, "0700"))}
    return {"/dev/shm": (SHARED_BYTES, "1777"), "/tmp": (size, "1777"), "/var/tmp": (size, "1777"), **own}  # noqa: S108  private


def own_mounts(
    covered: Sequence[str], folders: Mapping[str, tuple[int, str]], kept: Sequence[str]
) -> list[Step]:
    """Return the steps that give a command its own `/proc` and scratch folders.

    That `/proc` is read-only, because root may write to it without any capability. Before that, the command
    is made the first to be killed if the machine runs out of memory.

    Args:
        covered: files of `/proc` to cover.
        folders: see `scratch_folders`.
        kept: existing mounts; those below a scratch folder are mounted again in the new one.
    """
    inside = [path for path in kept if _is_inside(path, folders)]
    inside = [path for path in inside if not any(path != up and is_above(up, path) for up in inside)]
    steps: list[Step] = [("mount", None, b"/", None, _RECURSIVE | _PRIVATE, None)]
    steps += [("open", os.fsencode(path), _FIRST_NUMBER + place) for place, path in enumerate(inside)]
    steps += [
        ("mount", b"proc", b"/proc", b"proc", _PLAIN | _NO_PROGRAMS, None),
        ("file", b"/proc/self/oom_score_adj", b"1000"),
    ]
    steps += [("mount", b"/dev/null", os.fsencode(path), None, _BIND, None) for path in covered]
    steps.append(("mount", None, b"/proc", None, _CHANGE | _READ_ONLY | _PLAIN | _NO_PROGRAMS, None))
    for folder, (size, mode) in folders.items():
        path, options = os.fsencode(folder), f"mode={mode},size={size}".encode()
        steps += [("folder", path), ("mount", b"tmpfs", path, b"tmpfs", _PLAIN, options)]
    for place, name in enumerate(inside):
        path = os.fsencode(name)
        if os.path.isdir(path):
            steps.append(("folder", path))
        else:
            steps += [("folder", os.path.dirname(path)), ("file", path, b"")]
        steps.append(("mount", _handle(_FIRST_NUMBER + place), path, None, _BIND | _RECURSIVE, None))
    return steps


def file_steps(files: Mapping[str, bytes]) -> list[Step]:
    """Return the steps that write files into private folders."""
    steps: list[Step] = []
    for path, content in files.items():
        name = os.fsencode(path)
        steps += [("folder", os.path.dirname(name)), ("file", name, content)]
    return steps


_FIRST_KEPT = 200
"""The first descriptor number for what stays visible; those of `own_mounts` are below it."""


def bare_view(hidden: Sequence[str], kept: Sequence[str]) -> list[Step]:
    """Return the steps after which a command sees no programs but those it needs, and C libraries.

    Args:
        hidden: folders of programs besides those of the system, which are hidden, too.
        kept: absolute paths of programs, and of the folders and files that they need.
    """
    covers = [path for path in SYSTEM if os.path.isdir(path) and not os.path.islink(path)]
    covers += [
        path for path in sorted(hidden) if os.path.isdir(path) and not _is_inside(path, (*covers, *kept))
    ]
    machine = os.uname().machine
    libraries = [f"/usr/lib/{machine}-linux-gnu", f"/lib/{machine}-linux-gnu", "/usr/lib64", "/lib64"]
    shown = [path for path in libraries if os.path.isdir(path) and not _below_link(path)]
    if len(shown) < 2:  # noqa: PLR2004  not Debian's places
        shown = [path for path in ("/usr/lib", *libraries) if os.path.isdir(path) and not _below_link(path)]
    for needed in sorted(kept):
        if not _is_inside(needed, shown):  # else its place would be made anew, in a folder of this machine
            shown.append(needed)
    steps: list[Step] = [("open", os.fsencode(path), _FIRST_KEPT + place) for place, path in enumerate(shown)]
    steps += [
        ("mount", b"tmpfs", os.fsencode(path), b"tmpfs", _PLAIN, b"mode=755,size=1m") for path in covers
    ]
    for place, name in enumerate(shown):
        path = os.fsencode(name)
        if not _is_inside(name, covers):
            continue
        made: list[Step] = [("folder", path)]
        if not os.path.isdir(name):
            made = [("folder", os.path.dirname(path)), ("file", path, b"")]
        steps += [*made, ("mount", _handle(_FIRST_KEPT + place), path, None, _BIND | _RECURSIVE, None)]
    fixed = _CHANGE | _READ_ONLY | _PLAIN
    return [*steps, *(("mount", None, os.fsencode(path), None, fixed, None) for path in covers)]


def _below_link(path: str) -> bool:
    return os.path.realpath(path) != path


def program_mounts(readable: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return each folder of programs with its mounts, outer ones first, without folders inside another one."""
    found: list[tuple[str, list[str]]] = []
    for path in sorted(set(readable)):
        if any(is_above(outer, path) for outer, _ in found):
            continue
        words = ["--ro-bind-try", path, path]
        in_versions = _VERSION_SECRETS if os.path.basename(path) == "versions" else ()
        for secret in sorted(str(one) for pattern in in_versions for one in Path(path).glob(pattern)):
            words += (
                ["--tmpfs", secret, "--remount-ro", secret]
                if os.path.isdir(secret)
                else ["--ro-bind-try", "/dev/null", secret]
            )
        found.append((path, words))
    return found


def user_variables() -> dict[str, str]:
    """Return the variables about the user of commands, as `account_files` names it, and its folders."""
    name = _user_name()
    return {"HOME": HOME, "TMPDIR": "/tmp", "USER": name, "LOGNAME": name}  # noqa: S108  private


def _user_name() -> str:
    return "root" if os.getuid() == 0 else "sandbox"


def account_files() -> dict[str, bytes]:
    """Return files of `/etc` with accounts and names: this user and `nobody`, without the host's own names."""
    user, group, name = os.getuid(), os.getgid(), _user_name()
    people = [f"{name}:x:{user}:{group}::{HOME}:/bin/bash", "nobody:x:65534:65534::/nonexistent:/bin/false"]
    groups = [f"{name}:x:{group}:", "nogroup:x:65534:"]
    texts = {
        "/etc/passwd": "\n".join([*people, ""]),
        "/etc/group": "\n".join([*groups, ""]),
        "/etc/hosts": f"127.0.0.1 localhost {HOST_NAME}\n::1 localhost\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }
    return {path: text.encode() for path, text in texts.items()}


@dataclass(frozen=True, slots=True)
class Protection:
    """How a `.git` of the clone is protected from changes.

    Attributes:
        path: the `.git`, absolute.
        content: the content that is visible in its place; None for the `.git` itself, which is made
            read-only.
        is_folder: whether an empty folder is visible in its place.
        is_missing: whether it does not exist, so that an empty folder has to be created as mount point.
    """

    path: str
    content: bytes | None = None
    is_folder: bool = False
    is_missing: bool = False

    def steps(self, root: str) -> list[Step]:
        """Return the steps of `sandbox_init`. A path that is a link by then is not mounted on."""
        place, target = os.fsencode(self.path), _handle(_FIRST_NUMBER)
        opened: Step = ("open", place, _FIRST_NUMBER)
        # A bind mount cannot remove the flag `noexec` of its file system.
        no_programs = _NO_PROGRAMS if os.statvfs(root).f_flag & os.ST_NOEXEC else 0
        fixed: Step = ("mount", None, place, None, _CHANGE | _READ_ONLY | _PLAIN | no_programs, None)
        if self.content is None:
            return [opened, ("mount", target, target, None, _BIND, None), fixed]
        if self.is_folder:
            made: list[Step] = [("folder", place)] if self.is_missing else []
            return [*made, opened, ("mount", b"tmpfs", target, b"tmpfs", _PLAIN | _READ_ONLY, b"mode=555")]
        copy = b"/dev/shm/copy"
        return [
            ("file", copy, self.content),
            opened,
            ("mount", copy, target, None, _BIND, None),
            fixed,
            ("remove", copy),
        ]


def protections(folder: SandboxFolder) -> list[Protection]:
    """Return how the protected paths of a folder are kept from changes.

    The root's own `.git` is made read-only. Further down a command may have replaced a folder by a link. So
    only an empty folder, or a copy of the file that points to the repository, is mounted there.

    Raises:
        ToolError: a protected path is a link.
    """
    found = (_protection(folder.root, name) for name in folder.protected)
    return [one for one in found if one is not None] + _masks(folder)


def _masks(folder: SandboxFolder) -> list[Protection]:
    """Return what hides the existing files and folders of `SandboxFolder.masked`."""
    found = []
    with ConfinedFolder(folder.root) as opened:
        for name in folder.masked:
            with suppress(OSError):
                if (entry := opened.find(name)) is None:
                    continue
                path = os.path.join(folder.root, name)
                if entry.is_link:
                    raise ToolError(
                        f"{name} is a symbolic link, so a sandbox cannot hide it; no command runs here"
                    )
                empty = b"{}\n" if name.endswith(".json") else b""
                found.append(Protection(path, empty, is_folder=entry.is_dir))
    return found


def _protection(root: str, name: str) -> Protection | None:
    path = os.path.join(root, name)
    try:
        with ConfinedFolder(root) as folder, folder.opened(os.path.dirname(name)) as above:
            can_be_made = os.access(".", os.W_OK, dir_fd=above)
            found = folder.find(name)
    except OSError:
        return None  # a link or nothing: any repository behind it has another path too
    if found is None:
        return Protection(path, b"", is_folder=True, is_missing=True) if can_be_made else None
    if found.is_link:
        raise ToolError(f"{name} is a symbolic link, so a sandbox cannot protect it; no command runs here")
    if "/" not in name:
        return Protection(path)
    if found.is_dir:
        return Protection(path, b"", is_folder=True)
    return Protection(path, _pointer(root, name))


def _handle(number: int) -> bytes:
    return b"/proc/self/fd/%d" % number


def _pointer(root: str, name: str) -> bytes:
    try:
        with ConfinedFolder(root) as folder:
            return folder.beginning(name, POINTER_BYTES)
    except OSError:
        raise ToolError(
            f"{name} cannot be read, so a sandbox cannot protect it; no command runs here"
        ) from None


class Scratch:
    """A temporary folder for one command or container.

    If this process dies, the folder is removed later, as abandoned clones are. The file that marks it is
    beside `path`, where no command can write.

    Attributes:
        path: the folder.

    Raises:
        ToolError: the folder cannot be created.
    """

    def __init__(self) -> None:
        try:
            folder, self._owner = lock_new_folder()
            self._folder = os.path.realpath(folder)
            self.path = os.path.join(self._folder, "home")
            Path(self.path).mkdir(mode=0o700)
        except OSError as error:
            raise ToolError(
                f"the sandbox cannot create a folder for temporary files: {error.strerror or error}"
            ) from error

    def remove(self) -> None:
        """Remove the folder. Files that a command made unremovable are left to the later clean-up."""
        with suppress(OSError), ConfinedFolder(self._folder) as folder:
            folder.remove(os.path.basename(self.path))
            shutil.rmtree(self._folder)  # the mark alone is left in it
        os.close(self._owner)

"""A repository in a folder of this machine: found without git, and used without its configuration and its hooks.

Git obeys a repository that it works in: its hooks run, and settings such as `core.alternateRefsCommand` name programs. So
git works in a folder of ours in place of it, a view, that has the other's objects and refs, and a configuration of our
own with what only describes data or refuses something.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from orchestrator.core.confined import ConfinedFolder, file_kind
from orchestrator.core.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Sequence

_REPOSITORY = ".git"
_POINTER = b"gitdir:"
"""The beginning of a `.git` that is a file: https://git-scm.com/docs/gitrepository-layout."""
_COMMON = "commondir"
_MOST_SMALL_BYTES = 10_000
_MOST_CONFIG_BYTES = 1_000_000
_DIGEST_CHARS = 32
_MOST_FOLDERS = 1_000
"""Number of folders that a git directory may reach by links and lenders."""

_SHARED = ("objects", "refs", "packed-refs", "reftable", "logs", "shallow", "worktrees")
"""What a view takes from the repository: https://git-scm.com/docs/gitrepository-layout."""

_OURS = {
    "core.hooksPath": os.devnull,
    # A push into a repository on this machine promises that its branch is there after a power cut. By default git syncs
    # neither refs nor the objects of a small push.
    "core.fsync": "objects,pack-metadata,reference",
    # A program that names refs of repositories that lend objects; this one names none.
    "core.alternateRefsCommand": "true",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "receive.autogc": "false",
    "receive.updateServerInfo": "false",
}
_DATA = frozenset(
    {
        *("core.ignorecase", "core.precomposeunicode", "core.sharedrepository", "core.logallrefupdates"),
        *("extensions.objectformat", "extensions.refstorage"),
        *(
            "receive.advertiseatomic",
            "receive.denycurrentbranch",
            "receive.denydeletecurrent",
            "receive.denydeletes",
        ),
        *("receive.denynonfastforwards", "receive.fsckobjects", "receive.hiderefs", "receive.maxinputsize"),
        *(
            "receive.shallowupdate",
            "transfer.fsckobjects",
            "transfer.hiderefs",
            "uploadpack.allowanysha1inwant",
        ),
        *("uploadpack.allowfilter", "uploadpack.allowreachablesha1inwant", "uploadpack.allowtipsha1inwant"),
        "uploadpack.hiderefs",
    }
)
"""Settings of the repository that hold in a view. None names a program or a file: https://git-scm.com/docs/git-config."""


@dataclass(frozen=True, slots=True)
class FoundRepository:
    """A repository on this machine.

    Attributes:
        top: the folder with its files, or of a bare repository itself.
        git_dir: the git directory of this working tree.
        common: the git directory that all of its working trees share.
    """

    top: Path
    git_dir: Path
    common: Path

    @property
    def is_owned(self) -> bool:
        """Whether it belongs to this user, as git wants it: https://git-scm.com/docs/git-config, `safe.directory`."""
        users = {os.geteuid()}
        if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdecimal():
            users.add(int(os.environ["SUDO_UID"]))
        places = {self.top, self.git_dir, self.top / _REPOSITORY}
        return all(place.lstat().st_uid in users for place in places if os.path.lexists(place))


def find_repository(folder: Path, *, upwards: bool = False) -> FoundRepository | None:
    """Find the repository of a folder as git does. Nothing but small regular files is opened, and nothing is obeyed.

    Args:
        folder: absolute and without links.
        upwards: whether the folders above count, too.
    """
    disk = folder.stat().st_dev if folder.is_dir() else None
    for place in (folder, *(folder.parents if upwards else ())):
        if not place.is_dir() or place.stat().st_dev != disk:
            return None
        for git_dir in (_pointed(place) or place / _REPOSITORY, place):
            common = _common(git_dir)
            if _is_repository(git_dir, common):
                return FoundRepository(place, git_dir, common)
    return None


def _pointed(place: Path) -> Path | None:
    """Return the git directory that a `.git` that is a file names."""
    line = _small(place, _REPOSITORY)
    return (
        (place / os.fsdecode(line.removeprefix(_POINTER).strip())).resolve()
        if line.startswith(_POINTER)
        else None
    )


def _common(git_dir: Path) -> Path:
    shared = os.fsdecode(_small(git_dir, _COMMON).strip())
    return (git_dir / shared).resolve() if shared else git_dir


def _is_repository(git_dir: Path, common: Path) -> bool:
    """Return whether git would take it for a repository; see `is_git_directory` in git's `setup.c`."""
    return bool(_head(git_dir)) and (common / "objects").is_dir() and (common / "refs").is_dir()


def _head(git_dir: Path) -> bytes:
    """Return the content of HEAD; empty if there is none. An old repository has a symbolic link there."""
    with suppress(OSError):
        if stat.S_ISLNK((git_dir / "HEAD").lstat().st_mode):
            return b"ref: " + os.fsencode((git_dir / "HEAD").readlink())
    return _small(git_dir, "HEAD")


def _small(folder: Path, name: str, most: int = _MOST_SMALL_BYTES) -> bytes:
    """Return the content of a small regular file; empty if there is none."""
    try:
        with ConfinedFolder(folder) as opened:
            return opened.read(name, most)
    except OSError:
        return b""


def refuse_special_files(start: Path, *, upwards: bool = False) -> None:
    """Check that git, which opens files of a repository by their paths, will not wait for one.

    Args:
        start: a folder with a repository.
        upwards: whether the repository is looked for in the folders above, too.
    """
    for git_dir in filter(None, map(_git_dir_in, (start, *(start.parents if upwards else ())))):
        try:
            found = _special_file(git_dir)
        except OSError as error:
            raise WorkspaceError(f"cannot look at {git_dir}: {error.strerror}") from error
        if found is not None:
            path, mode = found
            raise WorkspaceError(f"{path} is {file_kind(mode)}, and git would wait for it: remove it")
        if os.path.lexists(git_dir / "HEAD"):  # else git goes on further up
            return


# Git's own monitor of files leaves a socket in a git directory, which nothing waits for.
_HARMLESS = frozenset({stat.S_IFREG, stat.S_IFDIR, stat.S_IFSOCK})
_ENTERED = re.compile(
    r"objects(?:/(?:info|pack|[^/]{2})(?:/.*)?)?|(?:info|refs|worktrees)(?:/.*)?", re.DOTALL
)
"""The folders in which git opens files. One of loose objects has the first two digits of their names."""


def _special_file(git_dir: Path) -> tuple[Path, int] | None:
    """Return the first thing that git opens and that is no file, with its mode; None if there is nothing.

    Looked at are a git directory, the one that it shares with others, and those that lend objects. Links are followed,
    as git follows them.
    """
    waiting, known = [(git_dir, "")], set[tuple[int, int]]()
    while waiting:
        place, name = waiting.pop()
        with suppress(FileNotFoundError, NotADirectoryError) if place == git_dir else suppress(OSError):
            status = place.stat()
            if stat.S_IFMT(status.st_mode) not in _HARMLESS:
                return place, status.st_mode
            if not stat.S_ISDIR(status.st_mode) or (status.st_dev, status.st_ino) in known:
                continue
            known.add((status.st_dev, status.st_ino))
            if len(known) > _MOST_FOLDERS:
                raise WorkspaceError(f"{git_dir} has links to more than {_MOST_FOLDERS} folders: remove some")
            with ConfinedFolder(place.resolve()) as opened:
                for path, mode in _unusual(opened, name):
                    if not stat.S_ISLNK(mode):
                        return place / path, mode
                    waiting += _followed(place, path, name)
                if name in {"", "objects"}:
                    waiting += _lenders(place / "objects" if not name else place, opened, name)
                if not name and opened.is_file(_COMMON):
                    shared = os.fsdecode(opened.beginning(_COMMON, _MOST_SMALL_BYTES).strip())
                    waiting.append(((place / shared).resolve(), ""))
    return None


def _unusual(opened: ConfinedFolder, name: str) -> list[tuple[str, int]]:
    """Return the paths of what is no plain file or folder where git opens files, with their modes.

    Args:
        name: the place of the folder in a git directory.
    """
    prefix = f"{name}/" if name else ""
    walked = opened.walk(
        enters=lambda path, _entry: _ENTERED.fullmatch(prefix + path) is not None,
        on_error=lambda _path, _error: None,
    )
    return [
        (path, status.st_mode) for path, (_, status) in walked if stat.S_IFMT(status.st_mode) not in _HARMLESS
    ]


def _followed(place: Path, path: str, name: str) -> list[tuple[Path, str]]:
    """Return what git opens behind a link, with its place in a git directory."""
    inside = f"{name}/{path}" if name else path
    if not (place / path).is_dir():
        return [(place / path, inside)]
    return [((place / path).resolve(), inside)] if _ENTERED.fullmatch(inside) else []


def _lenders(objects: Path, opened: ConfinedFolder, name: str) -> list[tuple[Path, str]]:
    """Return the folders that lend objects to a folder of objects: https://git-scm.com/docs/gitrepository-layout."""
    file = "info/alternates" if name else "objects/info/alternates"
    if not opened.is_file(file):
        return []
    lines = os.fsdecode(opened.beginning(file, _MOST_CONFIG_BYTES)).split("\n")
    named = (line.strip('"') for line in lines if line and not line.startswith("#") and "\0" not in line)
    return [(objects / line, "objects") for line in named]


def _git_dir_in(folder: Path) -> Path | None:
    """Return the git directory of a folder, or what is at its place; None if there is none."""
    place = folder / ".git"
    if place.is_file():
        with suppress(OSError), ConfinedFolder(folder) as opened:
            pointer = opened.beginning(".git", _MOST_SMALL_BYTES)
            if pointer.startswith(_POINTER):
                return (folder / os.fsdecode(pointer.removeprefix(_POINTER).strip())).resolve()
        return None
    if os.path.lexists(place):
        return place.resolve()
    is_bare = (
        os.path.lexists(folder / "HEAD") and (folder / "objects").is_dir() and (folder / "refs").is_dir()
    )
    return folder if is_bare else None


def settings_of(found: FoundRepository) -> list[tuple[str, str]]:
    """Return the settings in a repository's own configuration, as data; see `parse_settings`."""
    return parse_settings(_small(found.common, "config", _MOST_CONFIG_BYTES))


@dataclass(frozen=True, slots=True)
class View:
    """A git directory of ours with the objects and refs of a repository as it is now.

    Attributes:
        common: where they are.
        shared: the names of what is taken from there.
        head: the content of HEAD.
        configuration: the content of the configuration.
    """

    common: Path
    shared: tuple[str, ...]
    head: bytes
    configuration: bytes

    @classmethod
    def of(cls, found: FoundRepository) -> View:
        """Return the view of a repository. Raise `OSError` if it cannot be read."""
        there = (name for name in _SHARED if name == "packed-refs" or os.path.lexists(found.common / name))
        configuration = _configuration(found, settings_of(found)).encode("utf-8", "surrogateescape")
        return cls(found.common, tuple(there), _head(found.git_dir), configuration)

    def make(self, place: Path) -> Path:
        """Write the view into an empty folder that only this user can enter, and return it."""
        for name in self.shared:
            (place / name).symlink_to(self.common / name)
        (place / "HEAD").write_bytes(self.head)
        (place / "config").write_bytes(self.configuration)
        return place

    def keep_in(self, folder: Path) -> Path:
        """Return where the view is in a folder that only this user can enter. It is made at the first use, and stays."""
        digest = hashlib.sha256(repr(self).encode("utf-8", "surrogateescape")).hexdigest()
        place = folder / f"view-{digest[:_DIGEST_CHARS]}"
        if not place.is_dir():
            made = self.make(Path(mkdtemp(dir=folder, prefix="view-")))
            try:
                made.rename(place)
            except OSError:
                shutil.rmtree(made)
                if not place.is_dir():  # else another thread was faster
                    raise
        return place


_SPACES = " \t\r\f\v"
_ESCAPED = {"t": "\t", "b": "\b", "n": "\n", "\n": ""}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
# Whatever follows a `=` is a value: so no text is read twice.
_VALUE = re.compile(
    r'[ \t]*+(?>(?:=((?>(?:"(?>(?:[^"\\\n]|\\[^\n]|\\\n)*)"?|\\[^\n]|\\\n|[^"\\\n#;])*))(?>(?:[#;][^\n]*)?))?)(?=\n|\Z)'
)
_PIECE = re.compile(
    r'"(?P<quoted>(?>(?:[^"\\]|\\.)*))"?+|(?P<blank>[ \t\r\f\v]++)|\\.|[^" \t\r\f\v\\]++|\\', re.DOTALL
)
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_SECTION = re.compile(r'\[([A-Za-z0-9.-]*)(?:[ \t]+"((?>(?:[^"\\\n]|\\.)*))")?\]')


def parse_settings(content: bytes) -> list[tuple[str, str]]:
    """Return the settings of a configuration of git, each with its value; what it includes is not read.

    A setting without a value is `true`. Reading ends at the first line that is not valid. Format:
    https://git-scm.com/docs/git-config#_syntax
    """
    text = content.decode("utf-8", "surrogateescape").removeprefix("\ufeff").replace("\r\n", "\n") + "\n"
    found: list[tuple[str, str]] = []
    section, position = "", 0
    while position < len(text):
        if text[position] in f"{_SPACES}\n":
            position += 1
        elif text[position] in "#;":
            position = _line_end(text, position)
        elif named := _SECTION.match(text, position):
            below = re.sub(r"\\(.)", r"\1", named[2]) if named[2] is not None else None
            section = named[1].lower() + (f".{below}" if below is not None else "")
            position = named.end()
        elif key := _KEY.match(text, position):
            value = _VALUE.match(text, key.end())
            if value is None:
                break
            plain = "true" if value[1] is None else _plain(value[1])
            found.append((f"{section}.{key[0].lower()}".removeprefix("."), plain))
            position = value.end()
        else:
            break
    return found


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _plain(value: str) -> str:
    """Return a value without its quotes and escapes. See `parse_value` in git's `config.c`."""
    done, blanks = "", 0
    for piece in _PIECE.finditer(value):
        if piece["blank"]:
            # Those at both ends do not count.
            blanks = len(piece["blank"]) if done else 0
            continue
        text = piece[0] if piece["quoted"] is None else piece["quoted"]
        done += " " * blanks + _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), text)
        blanks = 0
    return done


def _configuration(found: FoundRepository, settings: Sequence[tuple[str, str]]) -> str:
    kept = [(key, _harmless(key, value)) for key, value in settings if key in _DATA]
    keys = {key for key, _ in kept}
    is_bare = dict(settings).get("core.bare", "").lower()
    if is_bare not in {"true", "false"}:
        is_bare = str(found.common.name != _REPOSITORY).lower()
    kept += [("core.bare", is_bare), *_OURS.items()]
    if "core.logallrefupdates" not in keys and is_bare == "false":
        kept.append(("core.logallrefupdates", "true"))
    if not (found.common / "logs").is_dir():
        kept.append(("core.logallrefupdates", "false"))
    version = any(key.startswith("extensions.") for key in keys)
    kept.append(("core.repositoryformatversion", str(int(version))))
    lines = []
    for key, value in kept:
        section, _, variable = key.partition(".")
        lines.append(f"[{section}]\n\t{variable} = {_quoted(value)}\n")
    return "".join(lines)


def _harmless(key: str, value: str) -> str:
    """Return a setting's value. The one that writes into the working tree becomes a refusal, as without it."""
    return "refuse" if key == "receive.denycurrentbranch" and value.lower() == "updateinstead" else value


def _quoted(value: str) -> str:
    plain = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{plain}"'

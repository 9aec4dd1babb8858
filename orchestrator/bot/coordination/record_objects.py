"""Fetching and reading commits that anybody may have written: bounded in size, and never more than data."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.bot.git.failures import error_for
from orchestrator.core.errors import RemoteUnavailableError, WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from orchestrator.bot.git.hostgit import HostGit
    from orchestrator.bot.git.remote import Remote
    from orchestrator.bot.git.swap import Tries

_DOING = "cannot read a record"
_MOST_TREE_BYTES = 16 * 1024
_MOST_PAGES = 32
_FILE = "100644 blob"
_FETCHED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Header:
    """What is known of an object before it is read. `size` in bytes."""

    kind: str
    size: int


@dataclass(frozen=True, slots=True)
class Text:
    """A commit's first parent and its message; or why it cannot be read."""

    parent: str | None = None
    message: str = ""
    fault: str | None = None


def look(git: HostGit, names: Sequence[str]) -> dict[str, Header]:
    """Kind and size of those objects that are here, by the names that were asked for."""
    if not names:
        return {}
    stdin = "".join(f"{name}\n" for name in names).encode("ascii")
    output = git.run("cat-file", "--batch-check", doing=_DOING, stdin=stdin).decode("ascii", "replace")
    found = {}
    for name, line in zip(names, output.splitlines(), strict=True):
        words = line.split(" ")
        if len(words) == 3 and words[2].isdecimal():  # noqa: PLR2004  id, kind, size
            found[name] = Header(words[1], int(words[2]))
    return found


def fetch_all(
    git: HostGit, remote: Remote, commits: Sequence[str], most_bytes: int, tries: Callable[[], Tries]
) -> dict[str, str]:
    """Fetch many commits, and say of which of them that failed, and why. Network failures are tried again.

    Raises:
        RemoteUnavailableError: no answer, after several tries.
        WorkspaceError: it was interrupted.
    """
    faults: dict[str, str] = {}
    for start in range(0, len(commits), _FETCHED_AT_ONCE):
        faults |= _fetch_some(git, remote, commits[start : start + _FETCHED_AT_ONCE], most_bytes, tries)
    return faults


def _fetch_some(
    git: HostGit, remote: Remote, commits: Sequence[str], most_bytes: int, tries: Callable[[], Tries]
) -> dict[str, str]:
    pauses = tries()
    while True:
        try:
            fetch(git, remote, commits, most_bytes)
        except RemoteUnavailableError as error:
            pauses.wait(error)
        except WorkspaceError as error:
            if remote.cancelled():
                raise
            if len(commits) == 1:
                return {commits[0]: str(error)}
            # One that cannot be had must not hide the others.
            half = len(commits) // 2
            first = _fetch_some(git, remote, commits[:half], most_bytes, tries)
            return first | _fetch_some(git, remote, commits[half:], most_bytes, tries)
        else:
            return {}


def fetch(git: HostGit, remote: Remote, commits: Sequence[str], most_bytes: int) -> None:
    """Fetch commits by their ids, without their history.

    Args:
        git: where they go; no reference is made.
        remote: where they are.
        commits: at least one.
        most_bytes: what may be written; the fetch is ended where it is more.

    Raises:
        WorkspaceError: it failed, or was too much.
    """
    doing = f"cannot read the records of {remote.shown}"
    packs = (git.git_dir or git.folder) / "objects" / "pack"
    growth = _Growth(packs, most_bytes, remote.cancelled)
    try:
        result = git.attempt(
            # Always a pack: what came of a fetch can be told from what was written here meanwhile.
            *(
                "-c",
                "fetch.unpackLimit=1",
                "fetch",
                "--quiet",
                "--depth=1",
                "--no-tags",
                "--no-recurse-submodules",
                "--",
                remote.url,
            ),
            *commits,
            doing=doing,
            remote=replace(remote, cancelled=growth),
        )
    except WorkspaceError:
        growth.require_bounds()
        raise
    growth.require_bounds()
    if result.status != 0:
        if "not our ref" in result.stderr:
            raise WorkspaceError("it is not on the remote any more")
        raise error_for(result.stderr, doing)


def read_texts(git: HostGit, known: Mapping[str, Header], most_bytes: int) -> dict[str, Text]:
    """The messages of the objects that are commits of at most that size; a fault for the others."""
    texts = {
        name: Text(fault=_fault(header, most_bytes))
        for name, header in known.items()
        if header.kind != "commit" or header.size > most_bytes
    }
    commits = [name for name in known if name not in texts]
    for name, raw in zip(commits, _contents(git, commits), strict=True):
        head, _, message = raw.partition(b"\n\n")
        parents = [line[7:] for line in head.split(b"\n") if line.startswith(b"parent ")]
        parent = parents[0].decode("ascii", "replace") if parents else None
        texts[name] = Text(parent, message.decode("utf-8", "replace"))
    return texts


def read_pages(git: HostGit, commit: str, most_bytes: int) -> dict[str, bytes]:
    """The plain files at the top of a commit's tree.

    Raises:
        WorkspaceError: there are too many, they are too large, or they are no plain files.
    """
    tree = f"{commit}^{{tree}}"
    header = look(git, [tree]).get(tree)
    if header is None or header.size > _MOST_TREE_BYTES:
        raise WorkspaceError("its tree is missing or too large")
    names, ids = [], []
    for line in git.run("ls-tree", "-z", tree, doing=_DOING).decode("utf-8", "replace").split("\0")[:-1]:
        entry, _, name = line.partition("\t")
        if not entry.startswith(f"{_FILE} "):
            raise WorkspaceError("its tree has more than plain files")
        names.append(name)
        ids.append(entry.removeprefix(f"{_FILE} "))
    known = look(git, ids)
    if len(names) > _MOST_PAGES or sum(known[one].size for one in ids if one in known) > most_bytes:
        raise WorkspaceError("its pages are too many or too large")
    if any(one not in known or known[one].kind != "blob" for one in ids):
        raise WorkspaceError("a page is missing")
    return dict(zip(names, _contents(git, ids), strict=True))


def _contents(git: HostGit, ids: Iterable[str]) -> list[bytes]:
    """What is in objects that are all here."""
    stdin = "".join(f"{one}\n" for one in ids).encode("ascii")
    rest = git.run("cat-file", "--batch", doing=_DOING, stdin=stdin) if stdin else b""
    found = []
    while rest:
        head, _, rest = rest.partition(b"\n")
        size = int(head.rpartition(b" ")[2])
        found.append(rest[:size])
        rest = rest[size + 1 :]
    return found


def _fault(header: Header, most_bytes: int) -> str:
    if header.kind != "commit":
        return f"it is a {header.kind} and no commit"
    return f"it is larger than {most_bytes:,} bytes"


class _Growth:
    """Says to end a fetch when the person wants that, or when too much was written."""

    def __init__(self, packs: Path, most_bytes: int, cancelled: Callable[[], bool]) -> None:
        self._packs = packs
        self._most_bytes = most_bytes
        self._cancelled = cancelled
        self._before = set(packs.iterdir())

    def __call__(self) -> bool:
        return self._size() > self._most_bytes or self._cancelled()

    def require_bounds(self) -> None:
        """Remove what was fetched if it is more than it may be.

        Raises:
            WorkspaceError: it was.
        """
        if self._size() > self._most_bytes:
            for path in set(self._packs.iterdir()) - self._before:
                path.unlink(missing_ok=True)
            message = f"it is larger than {self._most_bytes:,} bytes"
            raise WorkspaceError(message)

    def _size(self) -> int:
        size = 0
        for path in set(self._packs.iterdir()) - self._before:
            with suppress(FileNotFoundError):
                size += path.lstat().st_size
        return size

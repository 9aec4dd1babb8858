"""Small records on hidden refs of a remote: the state that workers share, without a server of our own.

Their git objects are written here, or fetched from untrusted sources: limited in size, and treated as data
only.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from pydantic import BaseModel, ValidationError

from orchestrator.bot.git.folders import new_owned_folder
from orchestrator.bot.git.hostgit import HostGit, error_for, printable_line, storage_errors
from orchestrator.bot.git.local import id_kind, make_bare
from orchestrator.bot.git.objects import Header, look_up, read_objects
from orchestrator.bot.git.remote import (
    HIDDEN,
    PushAnswer,
    RetrySchedule,
    Update,
    is_commit_id,
    listed_refs,
    parse_remote,
    push_updates,
)
from orchestrator.core.checks import first_problem
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import RemoteUnavailableError, WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

    from orchestrator.bot.git.folders import Owner
    from orchestrator.bot.git.local import IdKind
    from orchestrator.bot.git.remote import Remote
    from orchestrator.core.clock import Clock
    from orchestrator.core.redaction import Credential

_Form = TypeVar("_Form", bound=BaseModel)
GIT_DIR = "records.git"
MEMORY = f"{HIDDEN}memory"
"""The ref of the facts that people taught about the repository."""
_READ_ONLY = 0o444
_WRITING = "cannot write a record"


def write_object(objects: Path, kind: Literal["blob", "tree", "commit"], content: bytes, ids: IdKind) -> str:
    """Write a loose object, and return its id.

    The format: "Object Storage" in https://git-scm.com/book/en/v2/Git-Internals-Git-Objects

    Args:
        objects: the `objects` folder of a git directory that only this program writes.
        content: the output that `git cat-file` would print; it is not checked.
    """
    raw = f"{kind} {len(content)}\0".encode("ascii") + content
    # Git's ids of objects, not a defence: the server checks what it receives by its own rules.
    digest = hashlib.sha1(raw, usedforsecurity=False) if ids == "sha1" else hashlib.sha256(raw)
    name = digest.hexdigest()
    path = objects / name[:2] / name[2:]
    with storage_errors(_WRITING):
        if path.exists():
            return name
        path.parent.mkdir(exist_ok=True)
        # A simultaneous reader sees all of it or nothing, and a simultaneous writer writes the same.
        with NamedTemporaryFile(dir=objects, prefix="tmp_obj_", delete=False) as file:
            scratch = Path(file.name)
            file.write(zlib.compress(raw, level=1))
        scratch.chmod(_READ_ONLY)
        scratch.replace(path)
    return name


def write_tree_object(objects: Path, blobs: Mapping[str, str], ids: IdKind) -> str:
    """Write a tree of plain files, given their names and blob ids. Otherwise it is like `write_object`."""
    entries = (
        b"100644 " + os.fsencode(name) + b"\0" + bytes.fromhex(blob) for name, blob in sorted(blobs.items())
    )
    return write_object(objects, "tree", b"".join(entries), ids)


_PAGE = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_WHO = "Pullwright <pullwright@invalid>"


def write_record(  # noqa: PLR0913, PLR0917  one commit, fact by fact
    objects: Path, ids: IdKind, message: str, parent: str | None, pages: Mapping[str, bytes], now: datetime
) -> str:
    """Create a commit, and return its id.

    Args:
        message: see `Records.commit`, as for `parent` and `pages`.
    """
    if parent is not None and not is_commit_id(parent):
        refusal = f"{_WRITING}: {printable_line(parent)!r} is not a commit id"
        raise WorkspaceError(refusal)
    for name in pages:
        if not _PAGE.fullmatch(name):
            refusal = f"{printable_line(name)!r} cannot be the name of a page"
            raise WorkspaceError(refusal)
    blobs = {name: write_object(objects, "blob", page, ids) for name, page in pages.items()}
    lines = [f"tree {write_tree_object(objects, blobs, ids)}"]
    lines += [f"parent {parent}"] if parent is not None else []
    moment = f"{max(int(now.timestamp()), 0)} +0000"
    lines += [f"author {_WHO} {moment}", f"committer {_WHO} {moment}", "", message.rstrip("\n"), ""]
    return write_object(objects, "commit", "\n".join(lines).encode("utf-8", "replace"), ids)


_READING = "cannot read a record"
_MOST_TREE_BYTES = 16 * 1024
_MOST_PAGES = 32
_FILE = "100644 blob"
_FETCHED_AT_ONCE = 500
_MOST_COMMIT_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class RemoteRecord:
    """A commit on a hidden ref. Everyone with push access may have written it.

    Attributes:
        ref: where it was found; empty if it was read by its id.
        parent: the first parent, or None.
        message: complete, at most 64 KiB, with U+FFFD for bytes that are not UTF-8.
        pages: the files at the top of its tree, if requested.
        fault: why it cannot be read, or None. Then only `ref` and `commit` are set.
    """

    ref: str
    commit: str
    parent: str | None = None
    message: str = ""
    pages: Mapping[str, bytes] = field(default_factory=dict)
    fault: str | None = None


def parse_message(form: type[_Form], record: RemoteRecord) -> _Form | str:
    """Parse the JSON below the first line of a record's message. Return why the record cannot be read if it cannot."""
    if record.fault is not None:
        return record.fault
    try:
        return form.model_validate_json(record.message.partition("\n")[2])
    except ValidationError as error:
        return first_problem(error, "its message")


def _fetch_all(
    git: HostGit,
    remote: Remote,
    commits: Sequence[str],
    most_bytes: int,
    schedule: Callable[[], RetrySchedule],
) -> dict[str, str]:
    """Fetch commits, and return those that cannot be fetched, with reasons. Network failures are retried."""
    faults: dict[str, str] = {}
    starts = range(0, len(commits), _FETCHED_AT_ONCE)
    pending = [(commits[start : start + _FETCHED_AT_ONCE], schedule()) for start in starts]
    while pending:
        group, tries = pending.pop()
        try:
            _fetch(git, remote, group, most_bytes)
        except RemoteUnavailableError as error:
            tries.wait(error)
            pending.append((group, tries))
        except WorkspaceError as error:
            if remote.cancelled():
                raise
            if len(group) == 1:
                faults[group[0]] = str(error)
                continue
            # One that cannot be fetched must not hide the others.
            half = len(group) // 2
            pending += [(group[half:], schedule()), (group[:half], schedule())]
    return faults


def _fetch(git: HostGit, remote: Remote, commits: Sequence[str], most_bytes: int) -> None:
    """Fetch commits by their ids, without their history.

    Args:
        git: receives them; no ref is created.
        commits: at least one.
        most_bytes: limit of what may be written; the fetch is stopped beyond it.
    """
    doing = f"cannot read the records of {remote.shown}"
    packs = git.git_dir / "objects" / "pack"
    growth = _Growth(packs, most_bytes, remote.cancelled)
    try:
        result = git.attempt(
            # Always a pack: its files cannot be confused with objects that are written here meanwhile.
            *("-c", "fetch.unpackLimit=1", "fetch", "--quiet", "--depth=1", "--no-tags"),
            *("--no-recurse-submodules", "--", remote.url),
            *commits,
            doing=doing,
            remote=replace(remote, cancelled=growth),
        )
    except WorkspaceError:
        growth.require_limit()
        raise
    growth.require_limit()
    if result.status != 0:
        if "not our ref" in result.stderr:
            raise WorkspaceError("the remote does not have it any more")
        raise error_for(result.stderr, doing)


def _read_texts(git: HostGit, known: Mapping[str, Header]) -> dict[str, RemoteRecord]:
    """Read the messages and parents of commits, by id. Large commits and other objects have a fault."""
    faults = {
        name: f"it is a {header.kind} and no commit"
        if header.kind != "commit"
        else f"it is larger than {_MOST_COMMIT_BYTES:,} bytes"
        for name, header in known.items()
        if header.kind != "commit" or header.size > _MOST_COMMIT_BYTES
    }
    records = {name: RemoteRecord("", name, fault=fault) for name, fault in faults.items()}
    commits = [name for name in known if name not in faults]
    for name, raw in zip(commits, read_objects(git, commits, doing=_READING), strict=True):
        head, _, message = raw.partition(b"\n\n")
        parents = [line[7:] for line in head.split(b"\n") if line.startswith(b"parent ")]
        parent = parents[0].decode("ascii", "replace") if parents else None
        records[name] = RemoteRecord("", name, parent, message.decode("utf-8", "replace"))
    return records


def _read_pages(git: HostGit, commit: str, most_bytes: int) -> dict[str, bytes]:
    """Read the plain files at the top of a commit's tree."""
    tree = f"{commit}^{{tree}}"
    header = look_up(git, [tree], doing=_READING).get(tree)
    if header is None or header.size > _MOST_TREE_BYTES:
        raise WorkspaceError("its tree is missing or too large")
    names, ids = [], []
    for line in git.run("ls-tree", "-z", tree, doing=_READING).decode("utf-8", "replace").split("\0")[:-1]:
        entry, _, name = line.partition("\t")
        if not entry.startswith(f"{_FILE} "):
            raise WorkspaceError("its tree has more than plain files")
        names.append(name)
        ids.append(entry.removeprefix(f"{_FILE} "))
    known = look_up(git, ids, doing=_READING)
    if len(names) > _MOST_PAGES or sum(known[one].size for one in ids if one in known) > most_bytes:
        raise WorkspaceError("its pages are too many or too large")
    if any(one not in known or known[one].kind != "blob" for one in ids):
        raise WorkspaceError("a page is missing")
    return dict(zip(names, read_objects(git, ids, doing=_READING), strict=True))


class _Growth:
    """Stops a fetch if it is cancelled, or if it wrote too much."""

    def __init__(self, packs: Path, most_bytes: int, cancelled: Callable[[], bool]) -> None:
        self._packs = packs
        self._most_bytes = most_bytes
        self._cancelled = cancelled
        self._before = set(packs.iterdir())

    def __call__(self) -> bool:
        return self._size() > self._most_bytes or self._cancelled()

    def require_limit(self) -> None:
        """Remove what was fetched if it exceeds the limit."""
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


_REF = re.compile(r"refs/pullwright/(?:[A-Za-z0-9][A-Za-z0-9._-]*+(?:/|\Z))*")
# The limit of what a fetch of records may write: anybody who can push can make a record as large as the server allows.
_MOST_RECORD_BYTES = 1 << 20
_MOST_PAGES_BYTES = 64 << 20


class Records:
    """The hidden refs of one remote. It is thread-safe.

    Nothing is contacted or written before the first use. Network failures are retried a few times, and then
    raise `RemoteUnavailableError`. Other failures of git raise `WorkspaceError`.

    Args:
        folder: where a temporary git folder is created; only this user should be able to enter it.
        url: a URL without a password, `user@host:path`, or a local path.
        sleep: waits that many seconds between attempts; may raise to interrupt.
        make_git: creates the git that works on our objects, given its folder and git directory.
        make_lock: creates a lock for the threads that share this.

    Attributes:
        remote: the validated address.
    """

    def __init__(  # noqa: PLR0913  each is a fact of the remote, given by name
        self,
        folder: Path,
        url: str,
        credential: Callable[[], Credential | None],
        *,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
        cancelled: Callable[[], bool] = lambda: False,
        make_git: Callable[[Path, Path], HostGit] = HostGit,
        make_lock: Callable[[], AbstractContextManager[object]] = threading.Lock,
    ) -> None:
        self.remote = replace(parse_remote(url, credential), cancelled=cancelled)
        self._make_git = make_git
        self._folder = folder
        self._lock = make_lock()
        self._owner: Owner | None = None
        self._gits: dict[IdKind, HostGit] = {}
        self._clock = clock or SystemClock()
        self._sleep = sleep
        # Each fetch writes git's list of shallow commits, and only one may do so at a time.
        self._fetching = make_lock()
        self._kind: IdKind | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the temporary folder. It may be called again, and the object used again."""
        with self._lock:
            owner, self._owner = self._owner, None
            self._gits.clear()
        if owner is not None:
            owner.remove()

    @property
    def git(self) -> HostGit:
        """Git on our objects, for `push_updates`."""
        return self._scratch()

    @property
    def objects(self) -> Path:
        """The folder with our objects."""
        return self.git.git_dir / "objects"

    def list(self, *prefixes: str) -> dict[str, str]:
        """Return refs and their commits: all below a prefix that ends in `/`, else the one with that name."""
        return self.tips([_checked(prefix) for prefix in prefixes])

    def read(self, where: str, *, pages: bool = False) -> RemoteRecord | None:
        """Return the record at a ref, or None if there is none; or a commit by its id."""
        if is_commit_id(where):
            return self.read_all({"": where}, pages=pages)[""]
        found = self.list(where)
        return self.read_all(found, pages=pages).get(where)

    def read_all(
        self, found: Mapping[str, str], *, pages: bool = False, most_bytes: int = _MOST_PAGES_BYTES
    ) -> dict[str, RemoteRecord]:
        """Return the records of a result of `list`, fetched together.

        Args:
            most_bytes: limit for all pages of a record together, and for what is fetched to read them.
        """
        wanted = sorted(set(found.values()))
        if not wanted:
            return {}
        git, doing = self._scratch(wanted[0]), f"cannot read the records of {self.remote.shown}"
        with self._fetching:
            here = look_up(git, wanted, doing=doing)
            missing = [commit for commit in wanted if commit not in here]
            most = most_bytes if pages else _MOST_RECORD_BYTES
            faults = _fetch_all(git, self.remote, missing, most, self.tries)
            here |= look_up(git, missing, doing=doing)
            read = _read_texts(git, here)
        records = {}
        for ref, commit in found.items():
            absent = RemoteRecord(ref, commit, fault=faults.get(commit, "it does not exist"))
            record = replace(read.get(commit, absent), ref=ref)
            try:
                pages_read = _read_pages(git, commit, most_bytes) if pages and record.fault is None else {}
                records[ref] = replace(record, pages=pages_read)
            except WorkspaceError as error:
                records[ref] = RemoteRecord(ref, commit, fault=str(error))
        return records

    def commit(self, message: str, parent: str | None, pages: Mapping[str, bytes] | None = None) -> str:
        """Create a commit locally; `swap` brings it to the remote.

        Args:
            message: globally unique, so that our own commit can be recognized.
            parent: need not exist locally if `swap` is told where it is.
            pages: files at the top of its tree, by plain names.

        Returns:
            Its id.
        """
        objects = self.objects
        return write_record(objects, self._kind or "sha1", message, parent, pages or {}, self._clock.now())

    def swap(self, ref: str, old: str | None, new: str | None) -> bool:
        """Move a ref if it is at the expected commit. If the answer is lost, the ref is read back.

        Args:
            ref: below `refs/pullwright/`.
            old: the commit that it must have now, or None if it must not exist.
            new: its new commit, created by `commit`; None removes the ref.

        Returns:
            Whether it moved. False: it is elsewhere, and nothing was changed.
        """
        doing = f"cannot update {_checked(ref)} of {self.remote.shown}"
        if old == new:
            return self.list(ref).get(ref) == new
        tries: RetrySchedule | None = None
        while True:
            git = self._scratch(old)
            pushed = push_updates(git, self.remote, [Update(ref, old, new)], doing=doing)
            if pushed.answer is PushAnswer.MOVED:
                return True
            if pushed.answer is PushAnswer.STALE and tries is None:
                return False
            tries = tries or self.tries()
            tries.before_looking(pushed.error)
            found = self.tips([ref], tries).get(ref)
            if found == new or found != old:
                return found == new
            pushed.require_possible()
            tries.wait(pushed.error)

    def delete(self, ref: str, old: str) -> bool:
        """Remove a ref if it is at this commit. See `swap`."""
        return self.swap(ref, old, None)

    def tries(self) -> RetrySchedule:
        """Return the retry schedule for a caller that pushes by itself."""
        return RetrySchedule(self._sleep)

    def tips(self, patterns: Sequence[str], tries: RetrySchedule | None = None) -> dict[str, str]:
        """Return refs and commits as `list` does, for refs of any name; the caller checks the names.

        Args:
            patterns: complete names, and prefixes that end in `/`.
            tries: the remaining retry schedule; None for a new one.
        """
        wanted = [f"{pattern}*" if pattern.endswith("/") else pattern for pattern in patterns]
        # HEAD shows the kind of the repository's ids, even if it has none of our refs yet.
        output = self._ask(("HEAD", *wanted), tries)
        found = listed_refs(output)
        if found:
            self._scratch(next(iter(found.values())))
        # A pattern also matches longer names that end in it.
        names, prefixes = set(patterns), tuple(name for name in patterns if name.endswith("/"))
        return {ref: commit for ref, commit in found.items() if ref in names or ref.startswith(prefixes)}

    def _ask(self, patterns: Iterable[str], tries: RetrySchedule | None = None) -> bytes:
        doing = f"cannot read the records of {self.remote.shown}"
        while True:
            git = self._scratch("")
            try:
                return git.run("ls-remote", "--", self.remote.url, *patterns, doing=doing, remote=self.remote)
            except RemoteUnavailableError as error:
                tries = tries or self.tries()
                tries.wait(error)

    def _scratch(self, known: str | None = None) -> HostGit:
        """Return git for our objects, with the kind of ids of the remote.

        Args:
            known: an id of the remote; empty if any kind will do; None to detect the kind first.
        """
        if known:
            self._kind = id_kind(known)
        elif self._kind is None and known is None:
            self._kind = self._find_kind()
        kind = self._kind or "sha1"
        with self._lock:
            if kind not in self._gits:
                self._gits[kind] = self._new_git(kind)
            return self._gits[kind]

    def _new_git(self, kind: IdKind) -> HostGit:
        """Create a temporary bare repository. What a killed process leaves of it is swept as a clone is."""
        doing = "cannot make a folder for records"
        with storage_errors(doing):
            if self._owner is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._owner = new_owned_folder(self._folder.resolve(), "", "")
            folder = self._owner.folder / kind
            folder.mkdir(exist_ok=True)
            make_bare(folder / GIT_DIR, kind)
        return self._make_git(folder, folder / GIT_DIR)

    def _find_kind(self) -> IdKind:
        # HEAD may name a branch that does not exist. Then any other ref is enough.
        seen = self._ask(("HEAD",)) or self._ask(())
        return id_kind(seen.partition(b"\t")[0].decode("ascii", "replace"))


def _checked(ref: str) -> str:
    """Return the name or prefix, if it is below ours and plain."""
    if not _REF.fullmatch(ref) or ".." in ref or ref.removesuffix("/").endswith((".lock", ".")):
        message = f"{printable_line(ref)!r} cannot be the name of a record"
        raise WorkspaceError(message)
    return ref

"""Small records on hidden references of a remote: the state that workers share, with no server of ours."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from orchestrator.bot.coordination.record_objects import (
    GIT_DIR,
    ScratchRepository,
    fetch_all,
    id_kind,
    read_record_pages,
    read_texts,
    write_record,
)
from orchestrator.bot.git.failures import printable
from orchestrator.bot.git.objects import look_up
from orchestrator.bot.git.remote import is_commit_id, parse_remote
from orchestrator.bot.git.swap import HIDDEN, PushAnswer, Tries, Update, push_updates
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import RemoteUnavailableError, WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from orchestrator.bot.coordination.record_objects import IdKind
    from orchestrator.bot.git.hostgit import HostGit
    from orchestrator.bot.git.remote import GitCredential
    from orchestrator.core.clock import Clock

__all__ = ["HIDDEN", "Records", "RemoteRecord"]

_REF = re.compile(r"refs/pullwright/(?:[A-Za-z0-9][A-Za-z0-9._-]*/?)*")
_MOST_COMMIT_BYTES = 64 * 1024
# What a fetch of records may write: anybody who can push can let a record be as large as the server takes.
_MOST_RECORD_BYTES = 1 << 20
_MOST_PAGES_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class RemoteRecord:
    """A commit on a hidden reference. Anybody who can push may have written it.

    Attributes:
        ref: where it was found; empty if it was read by its id.
        commit: its id.
        parent: the first commit before it, or None.
        message: all of it, at most 64 KiB, with U+FFFD for what is not UTF-8.
        pages: the files at the top of its tree, where they were asked for.
        fault: why it cannot be read, or None. Then there is nothing but `ref` and `commit`.
    """

    ref: str
    commit: str
    parent: str | None = None
    message: str = ""
    pages: Mapping[str, bytes] = field(default_factory=dict)
    fault: str | None = None


class Records:
    """The hidden references of one remote. Safe for use by several threads.

    Nothing is contacted and nothing written before the first use. Network failures are tried again a few
    times; what is raised after that is `RemoteUnavailableError`. Other failures of git
    are `WorkspaceError`.

    Args:
        folder: where a scratch folder for git is made; only this user should be able to enter it.
        url: a URL without a password, `user@host:path`, or a local path.
        sleep: waits that many seconds between tries; may be interrupted by raising.

    Attributes:
        remote: the address, checked.

    Raises:
        WorkspaceError: the address is not accepted.
    """

    def __init__(  # noqa: PLR0913  each is a fact of the remote, given by name
        self,
        folder: Path,
        url: str,
        credential: Callable[[], GitCredential | None],
        *,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self.remote = replace(parse_remote(url, credential), cancelled=cancelled)
        self._objects = ScratchRepository(folder)
        self._clock = clock or SystemClock()
        self._sleep = sleep
        # Git writes down what is shallow, and lets only one at a time do that.
        self._fetching = threading.Lock()
        self._kind: IdKind | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the scratch folder. May be called again, and used again.

        Raises:
            WorkspaceError: something could not be removed.
        """
        self._objects.close()

    @property
    def objects(self) -> Path:
        """The folder with our objects, for `push_updates`."""
        return self._scratch().folder / GIT_DIR / "objects"

    def list(self, *prefixes: str) -> dict[str, str]:
        """References and their commits: all below a prefix that ends in `/`, else the one of that name.

        Raises:
            WorkspaceError: the remote refused, or a name is none of ours.
        """
        return self.tips([_checked(prefix) for prefix in prefixes])

    def read(self, where: str, *, pages: bool = False) -> RemoteRecord | None:
        """The record at a reference, or None where there is none; or a commit by its id."""
        if is_commit_id(where):
            return self.read_all({"": where}, pages=pages)[""]
        found = self.list(where)
        return self.read_all(found, pages=pages).get(where)

    def read_all(self, found: Mapping[str, str], *, pages: bool = False) -> dict[str, RemoteRecord]:
        """The records of what `list` gave, fetched together."""
        wanted = sorted(set(found.values()))
        if not wanted:
            return {}
        git, doing = self._scratch(wanted[0]), f"cannot read the records of {self.remote.shown}"
        with self._fetching:
            here = look_up(git, wanted, doing=doing)
            missing = [commit for commit in wanted if commit not in here]
            most = _MOST_PAGES_BYTES if pages else _MOST_RECORD_BYTES
            faults = fetch_all(git, self.remote, missing, most, self.tries)
            here |= look_up(git, missing, doing=doing)
            texts = read_texts(git, here, _MOST_COMMIT_BYTES)
        records = {}
        for ref, commit in found.items():
            text = texts.get(commit)
            fault = faults.get(commit, "it is not there") if text is None else text.fault
            record = RemoteRecord(ref, commit, fault=fault)
            if text is not None and fault is None:
                record = replace(record, parent=text.parent, message=text.message)
                record = _with_pages(git, record) if pages else record
            records[ref] = record
        return records

    def commit(self, message: str, parent: str | None, pages: Mapping[str, bytes] | None = None) -> str:
        """Make a commit here; nothing of it is on the remote before `swap`.

        Args:
            message: must differ from that of every other commit, so that ours is known again.
            parent: need not be here if `swap` is told where it is.
            pages: files at the top of its tree, by plain names.

        Returns:
            Its id.

        Raises:
            WorkspaceError: git failed, or there is no space.
        """
        objects = self.objects
        return write_record(objects, self._kind or "sha1", message, parent, pages or {}, self._clock.now())

    def swap(self, ref: str, old: str | None, new: str | None, *, objects: Iterable[Path] = ()) -> bool:
        """Move a reference if it is where it is expected. A lost answer is found out by reading back.

        Args:
            ref: below `refs/pullwright/`.
            old: the commit that it must have now, or None where it must not exist.
            new: the commit that it gets, made by `commit`; None removes it.
            objects: folders with more objects that the commit needs.

        Returns:
            Whether it moved. False: it is elsewhere, and nothing was changed.

        Raises:
            RemoteUnavailableError: no answer, after several tries; it may have moved, or do so later.
            PushRejectedError: the server does not want it; the message has its words.
            WorkspaceError: anything else that goes wrong.
        """
        doing = f"cannot update {_checked(ref)} of {self.remote.shown}"
        if old == new:
            return self.list(ref).get(ref) == new
        tries = self.tries()
        first = True
        while True:
            git = self._scratch(old)
            pushed = push_updates(git, self.remote, [Update(ref, old, new)], doing=doing, objects=objects)
            if pushed.answer is PushAnswer.MOVED:
                return True
            if pushed.answer is PushAnswer.STALE and first:
                return False
            first = False
            tries.before_looking(pushed.error)
            found = self.tips([ref], tries).get(ref)
            if found == new or found != old:
                return found == new
            pushed.require_possible()
            tries.wait(pushed.error)

    def delete(self, ref: str, old: str) -> bool:
        """Remove a reference if it is at this commit. See `swap`."""
        return self.swap(ref, old, None)

    def tries(self) -> Tries:
        """Pauses for a caller who pushes by himself."""
        return Tries(self._sleep)

    def tips(self, patterns: Sequence[str], tries: Tries | None = None) -> dict[str, str]:
        """As `list`, for references of any name; their names must be checked.

        Args:
            patterns: whole names, and prefixes that end in `/`.
            tries: the pauses that are left.
        """
        wanted = [f"{pattern}*" if pattern.endswith("/") else pattern for pattern in patterns]
        # HEAD tells the kind of the repository's ids where nothing of ours is there yet.
        output = self._ask(("HEAD", *wanted), tries or self.tries())
        found = {}
        for line in output.decode("utf-8", "surrogateescape").splitlines():
            commit, _, ref = line.partition("\t")
            if not is_commit_id(commit):
                continue
            self._scratch(commit)
            # A pattern also matches longer names that end in it.
            if any(ref == name or (name.endswith("/") and ref.startswith(name)) for name in patterns):
                found[ref] = commit
        return {ref: commit for ref, commit in found.items() if not ref.endswith("^{}")}

    def _ask(self, patterns: Iterable[str], tries: Tries) -> bytes:
        doing = f"cannot read the records of {self.remote.shown}"
        while True:
            git = self._scratch("")
            try:
                return git.run("ls-remote", "--", self.remote.url, *patterns, doing=doing, remote=self.remote)
            except RemoteUnavailableError as error:
                tries.wait(error)

    def _scratch(self, known: str | None = None) -> HostGit:
        """Git on our objects, of the kind that the remote has.

        Args:
            known: an id of the remote; empty where any kind will do; None to find the kind out first.
        """
        if known:
            self._kind = id_kind(known)
        elif self._kind is None and known is None:
            self._kind = self._find_kind()
        return self._objects.git(self._kind or "sha1")

    def _find_kind(self) -> IdKind:
        # An id at HEAD may be missing, where HEAD names a branch that is not there. Any other will do.
        seen = self._ask(("HEAD",), self.tries()) or self._ask((), self.tries())
        return id_kind(seen.partition(b"\t")[0].decode("ascii", "replace"))


def _checked(ref: str) -> str:
    """The name or prefix, if it is below ours and plain.

    Raises:
        WorkspaceError: it is not.
    """
    if not _REF.fullmatch(ref) or ".." in ref or ref.removesuffix("/").endswith((".lock", ".")):
        message = f"{printable(ref)!r} cannot be the name of a record"
        raise WorkspaceError(message)
    return ref


def _with_pages(git: HostGit, record: RemoteRecord) -> RemoteRecord:
    try:
        return replace(record, pages=read_record_pages(git, record.commit, _MOST_PAGES_BYTES))
    except WorkspaceError as error:
        return RemoteRecord(record.ref, record.commit, fault=str(error))

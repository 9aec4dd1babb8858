"""A git server, git and clones without a program: objects are values, the files of a clone are real files.

Repositories have plain files at the top only. `Records`, claims and pushes run over it unchanged.
"""

from __future__ import annotations

import base64
import difflib
import fnmatch
import hashlib
import json
import re
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from orchestrator.bot.coordination.records import write_object, write_tree_object
from orchestrator.bot.git.base import (
    AppliedWork,
    BranchCommit,
    BranchState,
    CommitLine,
    CommitOutcome,
    CommitScreen,
    LeftOut,
    MovedBase,
    Packed,
    RemoteTip,
    Snapshot,
    Staged,
    TrackedFile,
)
from orchestrator.bot.git.branches import Branches
from orchestrator.bot.git.clone import Clone, clean_message
from orchestrator.bot.git.folders import address_key, lock_abandoned_folder, new_owned_folder
from orchestrator.bot.git.hostgit import GitResult, HostGit, storage_errors
from orchestrator.bot.git.local import make_bare
from orchestrator.core.changes import FileChange, FileVersion
from orchestrator.core.errors import BaseConflictError, PushRejectedError, WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from orchestrator.bot.git.base import Identity
    from orchestrator.bot.git.folders import Owner
    from orchestrator.bot.git.hostgit import Peer
    from orchestrator.bot.git.remote import Remote
    from orchestrator.core.clock import Clock

T = TypeVar("T")
ADDRESS = "https://git.example/octo/many.git"
AWAY = "fatal: unable to access 'https://git.example/': Could not resolve host: git.example"
_PLAIN = "100644"
NEWLINE = "\n"
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


class Wire(Protocol):
    """What lies between a program and a server."""

    def request(self, what: str, do: Callable[[], T], fail: Callable[[], T]) -> T:
        """Send a request. `do` is what the server does, `fail` what is seen of a request that fails."""

    def check(self) -> None:
        """Raise if the program is not alive any more: it writes nothing."""


@dataclass(slots=True)
class Move:
    """A ref that moved. `by` names who did it."""

    ref: str
    old: str | None
    new: str | None
    by: str


@dataclass(slots=True)
class MemoryRemote:
    """A server with one repository.

    Attributes:
        objects: kind and content of each object, by its id.
        moves: every change of a ref, oldest first.
        refuse: returns why a change of a ref is refused, or None: the reason, and lines of the server below it.
    """

    objects: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)
    refuse: Callable[[Move], str | None] = lambda _move: None
    on_move: Callable[[Move], None] = lambda _move: None

    def push(self, moves: Sequence[Move], *, has: Callable[[str], bool]) -> GitResult:
        """Move all refs or none, as `git push --porcelain --atomic` tells it."""
        missing = [move.new for move in moves if move.new is not None and not has(move.new)]
        if missing:
            return GitResult(128, b"", f"fatal: the server lacks {missing[0]}")
        stale = {move.ref for move in moves if self.refs.get(move.ref) != move.old}
        reasons = {move.ref: reason for move in moves if (reason := self.refuse(move)) is not None}
        if not stale and not reasons:
            for move in moves:
                self.move(move)
            return GitResult(0, b"Done\n", "")
        lines = []
        for move in moves:
            if move.ref in stale:
                kind = "[rejected] (stale info)"
            elif move.ref in reasons:
                kind = f"[remote rejected] ({reasons[move.ref].partition(NEWLINE)[0]})"
            else:
                kind = "[rejected] (atomic push failed)"
            lines.append(f"!\t{move.new or ''}:{move.ref}\t{kind}\n")
        said = [f"remote: {line}" for reason in reasons.values() for line in reason.splitlines()[1:]]
        words = NEWLINE.join([*said, "error: failed to push some refs"])
        return GitResult(1, "".join(lines).encode(), words)

    def move(self, move: Move) -> None:
        """Move a ref."""
        if move.new is None:
            self.refs.pop(move.ref, None)
        else:
            self.refs[move.ref] = move.new
        self.moves.append(move)
        self.on_move(move)

    def listing(self, patterns: Sequence[str]) -> bytes:
        """What `git ls-remote` prints."""
        named = dict(self.refs)
        if "refs/heads/main" in named:
            named = {"HEAD": named["refs/heads/main"], **named}
        found = [
            f"{commit}\t{ref}\n"
            for ref, commit in sorted(named.items())
            if not patterns or any(fnmatch.fnmatch(f"/{ref}", f"*/{pattern}") for pattern in patterns)
        ]
        return "".join(found).encode()

    def files(self, commit: str) -> dict[str, bytes]:
        """Return the files of a commit."""
        return {name: self.objects[blob][1] for name, blob in tree_entries(self._tree(commit)).items()}

    def parents(self, commit: str) -> list[str]:
        """Return the parents of a commit."""
        return commit_header(self.objects[commit][1], "parent")

    def history(self, commit: str) -> list[str]:
        """Return a commit and all that are below it, nearest first."""
        found: dict[str, None] = {}
        pending = [commit]
        while pending:
            one = pending.pop(0)
            if one not in found and one in self.objects:
                found[one] = None
                pending += self.parents(one)
        return list(found)

    def message(self, commit: str) -> str:
        """Return the message of a commit."""
        return self.objects[commit][1].partition(b"\n\n")[2].decode()

    def commit(
        self, files: Mapping[str, bytes], parents: Sequence[str], who: str, message: str, folder: Path
    ) -> str:
        """Commit as a person does elsewhere. `folder` is for the objects."""
        made = commit_files(folder, files, parents, who, message)
        self.take(made, [folder])
        return made

    def take(self, commit: str, folders: Sequence[Path]) -> bool:
        """Receive a commit and all that it needs. Return whether everything is there."""
        pending = [commit]
        while pending:
            name = pending.pop()
            if name in self.objects:
                continue
            found = read_loose(folders, name)
            if found is None:
                return False
            self.objects[name] = found
            kind, content = found
            if kind == "tree":
                pending += tree_entries(content).values()
            elif kind == "commit":
                pending += [*commit_header(content, "tree"), *commit_header(content, "parent")]
        return True

    def _tree(self, commit: str) -> bytes:
        (tree,) = commit_header(self.objects[commit][1], "tree")
        return self.objects[tree][1]


def commit_header(content: bytes, name: str) -> list[str]:
    """Return the values of a commit's header."""
    head = content.partition(b"\n\n")[0].decode("utf-8", "replace").split("\n")
    return [line.partition(" ")[2] for line in head if line.startswith(f"{name} ")]


def tree_entries(content: bytes) -> dict[str, str]:
    """Return the blobs of a tree by name."""
    found, at = {}, 0
    while at < len(content):
        end = content.index(b"\0", at)
        name = content[at:end].partition(b" ")[2].decode()
        found[name] = content[end + 1 : end + 21].hex()
        at = end + 21
    return found


def read_loose(folders: Sequence[Path], name: str) -> tuple[str, bytes] | None:
    """Return an object from the first folder that has it."""
    for folder in folders:
        with suppress(FileNotFoundError):
            head, _, content = zlib.decompress((folder / name[:2] / name[2:]).read_bytes()).partition(b"\0")
            return head.split(b" ")[0].decode(), content
    return None


def commit_files(  # noqa: PLR0913, PLR0917  one commit, fact by fact
    objects: Path, files: Mapping[str, bytes], parents: Sequence[str], who: str, message: str, at: int = 0
) -> str:
    """Write a commit into a folder of objects. `who` is `name <email>`."""
    blobs = {name: write_object(objects, "blob", content, "sha1") for name, content in files.items()}
    tree = write_tree_object(objects, blobs, "sha1")
    lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
    lines += [f"author {who} {at} +0000", f"committer {who} {at} +0000", "", message]
    return write_object(objects, "commit", "\n".join(lines).encode(), "sha1")


class MemoryGit(HostGit):
    """Git over a server in memory. Its own objects are loose files, as `write_record` makes them."""

    def __init__(self, folder: Path, git_dir: Path, server: MemoryRemote, wire: Wire, who: str) -> None:
        super().__init__(folder, git_dir)
        self.server, self.wire, self.who = server, wire, who
        self._fetched: set[str] = set()

    def attempt(
        self,
        *arguments: str,
        doing: str,
        stdin: bytes = b"",
        index: Path | None = None,
        variables: Mapping[str, str] | None = None,
        remote: Peer | None = None,
    ) -> GitResult:
        """Do what the command would do."""
        del doing, index, remote
        words = list(arguments)
        while words[0] == "-c":
            del words[:2]
        match words[0]:
            case "ls-remote":
                patterns = words[words.index("--") + 2 :]
                return self._ask("git ls-remote", lambda: GitResult(0, self.server.listing(patterns), ""))
            case "push":
                return self._push(words, variables or {})
            case "fetch":
                wanted = words[words.index("--") + 2 :]
                return self._ask("git fetch", lambda: self._fetch(wanted))
            case "cat-file":
                return GitResult(0, self._cat(stdin.decode().split(), is_check="--batch-check" in words), "")
            case "ls-tree":
                return GitResult(0, self._list_tree(words[-1].removesuffix("^{tree}")), "")
            case other:
                raise AssertionError(f"git {other} is not known here")

    def read(self, name: str) -> tuple[str, bytes] | None:
        """Return an object that is here."""
        if name in self._fetched:
            return self.server.objects[name]
        return read_loose([self.git_dir / "objects"], name)

    def fetch(self, commit: str) -> None:
        """Have a commit of the server with its files."""
        names = [commit, *commit_header(self.server.objects[commit][1], "tree")]
        names += tree_entries(self.server.objects[names[1]][1]).values()
        self._fetched.update(names)

    def _ask(self, what: str, do: Callable[[], GitResult]) -> GitResult:
        return self.wire.request(what, do, lambda: GitResult(128, b"", AWAY))

    def _push(self, words: list[str], variables: Mapping[str, str]) -> GitResult:
        leases = [word.removeprefix("--force-with-lease=") for word in words if word.startswith("--force")]
        old = {ref: commit or None for ref, _, commit in (lease.rpartition(":") for lease in leases)}
        specs = words[words.index("--") + 2 :]
        moves = [
            Move(ref, old[ref], commit or None, self.who)
            for commit, _, ref in (spec.partition(":") for spec in specs)
        ]
        others = _QUOTED.findall(variables.get("GIT_ALTERNATE_OBJECT_DIRECTORIES", ""))
        own = self.git_dir / "objects"
        folders = [own, *(type(own)(name) for name in others)]
        what = " ".join(sorted({_kind_of(move.ref) for move in moves}))
        has = lambda commit: self.server.take(commit, folders)  # noqa: E731
        return self._ask(f"git push {what}", lambda: self.server.push(moves, has=has))

    def _fetch(self, wanted: Sequence[str]) -> GitResult:
        for name in wanted:
            if name not in self.server.objects:
                return GitResult(128, b"", f"fatal: remote error: upload-pack: not our ref {name}")
            self.fetch(name)
        return GitResult(0, b"", "")

    def _cat(self, names: Sequence[str], *, is_check: bool) -> bytes:
        lines = []
        for name in names:
            wanted = name
            if name.endswith("^{tree}"):
                commit = self.read(name.removesuffix("^{tree}"))
                wanted = commit_header(commit[1], "tree")[0] if commit else ""
            found = self.read(wanted) if wanted else None
            if found is None:
                lines.append(f"{name} missing\n".encode())
                continue
            kind, content = found
            lines.append(f"{wanted} {kind} {len(content)}\n".encode())
            if not is_check:
                lines.append(content + b"\n")
        return b"".join(lines)

    def _list_tree(self, commit: str) -> bytes:
        found = self.read(commit)
        tree = self.read(commit_header(found[1], "tree")[0]) if found else None
        entries = tree_entries(tree[1]) if tree else {}
        return "".join(f"{_PLAIN} blob {blob}\t{name}\0" for name, blob in entries.items()).encode()


def _kind_of(ref: str) -> str:
    """Return which kind of ref it is: `claims`, `wip`, `spend`, `branch`."""
    return "branch" if ref.startswith("refs/heads/") else ref.split("/")[2]


class MemoryClone(Clone):
    """A clone whose history is in memory, and whose files are real."""

    def __init__(  # noqa: PLR0913, PLR0917  as its parent's, with git
        self,
        owner: Owner,
        base: tuple[str, str],
        identity: Identity,
        clock: Clock,
        git: MemoryGit,
        remote: Remote,
    ) -> None:
        # Not the parent's: it would build what works on a real git directory.
        self.folder, self._owner, self._kept = owner.folder, owner, owner.kept
        self.tree = owner.folder / "tree"
        self.git, self.memory, self.remote = git, git, remote
        self.base_branch, self.base_commit = base
        self._branches = Branches(git, remote, base)
        self._identity, self._clock = identity, clock
        self._lfs_committed = {}
        self.tip = self.head = self.start = self.base_commit
        self.parents = [self.base_commit]
        self.joined: str | None = None
        self.pushed: str | None = None
        self.conflicts: set[str] = set()
        self.applied: set[str] = set()
        self.fresh = True
        git.fetch(self.base_commit)
        # The files that the next commit is compared with, and those that all work here is based on.
        self._head_files = self._base_files = self._start_files = self._files_of(self.base_commit)
        self._pushed_files: dict[str, bytes] | None = None

    def commit_sha256(self, commit: str) -> str:
        return hashlib.sha256(commit.encode()).hexdigest()

    # What is on the disk.

    def changed_paths(self, among: Collection[str] | None = None) -> set[str]:
        self._check()
        changed = _differing(self._head_files, self._on_disk())
        return changed if among is None else changed & set(among)

    def _on_disk(self) -> dict[str, bytes]:
        if not self.tree.is_dir():
            raise WorkspaceError("the clone's files are missing: something removed or replaced their folder")
        return {path.name: path.read_bytes() for path in sorted(self.tree.iterdir()) if path.is_file()}

    def _write_files(self, files: Mapping[str, bytes]) -> None:
        with storage_errors("cannot restore earlier work"):
            for name in self._on_disk().keys() - files.keys():
                (self.tree / name).unlink()
            for name, content in files.items():
                (self.tree / name).write_bytes(content)

    def _wanted(self, touched: set[str], *, include_commands: bool) -> dict[str, bytes]:
        now = self._on_disk()
        wanted = touched | self.conflicts | self.applied
        paths = now.keys() | self._head_files.keys() if include_commands else wanted
        found = dict(self._head_files)
        for path in paths:
            if path in now:
                found[path] = now[path]
            else:
                found.pop(path, None)
        return found

    # What is committed.

    def stage(
        self, touched: set[str], *, include_commands: bool, screen: CommitScreen | None = None
    ) -> Staged:
        self._check()
        screen = screen or CommitScreen()
        staged = self._wanted(touched, include_commands=include_commands)
        held: dict[str, str] = {}
        for change in _changes(self._head_files, staged):
            if (reason := screen.hold(change)) is not None:
                held[change.path] = reason
                staged.pop(change.path, None)
                if change.path in self._head_files:
                    staged[change.path] = self._head_files[change.path]
        files = sorted(_differing(self._head_files, staged))
        whole = tuple(_changes(self._base_files, staged))
        refused = screen.refuse(whole)
        if refused is None and self.conflicts and any(b"<<<<<<<" in staged[path] for path in self.conflicts):
            refused = "conflict markers are left"
        secrets = screen.find_secrets(_diff(self._head_files, staged))
        waiting = [LeftOut(path, reason) for path, reason in sorted(held.items())]
        outcome = CommitOutcome(None, files, [], [], secrets, waiting, b"", whole, refused)
        self._staged_files = staged
        is_new = refused is None and not secrets and bool(files or len(self.parents) > 1)
        return Staged("", outcome, is_new)

    def commit_staged(self, staged: Staged, message: str) -> CommitOutcome:
        self._check()
        if not staged.is_new:
            return _replaced(staged.outcome, None, [])
        who = f"{self._identity.name} <{self._identity.email}>"
        at = int(self._clock.now().timestamp())
        text = clean_message(message)
        tip = commit_files(self._objects, self._staged_files, self.parents, who, text, at)
        self._undo = self.tip, self.parents, self.fresh, self._head_files
        self.tip = self.head = tip
        self.parents, self.fresh = [tip], False
        self._head_files = self._staged_files
        return _replaced(staged.outcome, tip, staged.outcome.files)

    def uncommit(self) -> None:
        self._check()
        self.tip, self.parents, self.fresh, self._head_files = self._undo
        self.head = self.tip

    def diff(self) -> str:
        self._check()
        return _diff(self._base_files, self._head_files)

    def pending_patch(
        self,
        touched: set[str],
        *,
        include_commands: bool,
        pushed: bool = True,
        changed: set[str] | None = None,
    ) -> bytes:
        del changed
        self._check()
        since = self._pushed_files if pushed and self._pushed_files is not None else self._start_files
        return _diff(since, self._wanted(touched, include_commands=include_commands)).encode()

    def snapshot(  # noqa: PLR0913  as the clone has it
        self,
        touched: set[str],
        message: str,
        *,
        include_commands: bool,
        find_secrets: Callable[[str], list[str]] = lambda _diff: [],
        redact: Callable[[str], str] = str,
        leave_out: Callable[[str], str | None] | None = None,
    ) -> Snapshot:
        del find_secrets, redact, leave_out
        self._check()
        files = self._wanted(touched, include_commands=include_commands)
        if files == self._start_files:
            return Snapshot(None, self.start, ())
        who = "Pullwright <pullwright@invalid>"
        return Snapshot(commit_files(self._objects, files, [self.start], who, message), self.start, ())

    def pack(self, snapshot: Snapshot) -> Packed:
        self._check()
        if snapshot.commit is None:
            return Packed(None, snapshot.start, self.base_commit, b"")
        names = [snapshot.commit]
        for name in names:
            kind, content = self._object(name)
            if kind == "commit":
                names += commit_header(content, "tree")
            elif kind == "tree":
                names += tree_entries(content).values()
        objects = {name: (self._object(name)[0], base64.b64encode(self._object(name)[1]).decode()) for name in names}  # fmt: skip
        return Packed(snapshot.commit, snapshot.start, self.base_commit, json.dumps(objects).encode())

    # What the server has.

    def push(self, branch: str, *, expected: str | None, lease: Any = None) -> str:
        self._check()
        pushed = super().push(branch, expected=expected, lease=lease)
        self._pushed_files = self._files_of(pushed)
        return pushed

    def remove_branch(self, branch: str, commit: str) -> None:
        self._check()
        super().remove_branch(branch, commit)

    def _require_forward(self, expected: str | None) -> None:
        if self.joined is not None and expected is not None and expected not in self._history(self.tip):
            raise PushRejectedError(f"cannot push: {expected} has commits that {self.tip} does not have")

    def _use_equal(self, other: str) -> None:
        if other not in self.memory.server.objects:
            return
        mine, theirs = self._object(self.tip)[1], self.memory.server.objects[other][1]
        if all(commit_header(mine, name) == commit_header(theirs, name) for name in ("tree", "parent")):
            self.tip = self.head = other
            self.parents = [other]

    def remote_tip(self, branch: str) -> RemoteTip | None:
        tip = self._server_tip(f"refs/heads/{branch}")
        if tip is None:
            return None
        name, email = _person(commit_header(self._object(tip)[1], "committer")[0])
        return RemoteTip(tip, email, name)

    def branch_state(
        self, branch: str, author_email: str, *, known_bases: Collection[str] = ()
    ) -> BranchState | None:
        tip = self._server_tip(f"refs/heads/{branch}")
        if tip is None:
            return None
        listed = []
        below = self._history(self.base_commit)
        for commit in self._history(tip):
            if commit in below:
                break
            content = self.memory.server.objects[commit][1]
            name, email = _person(commit_header(content, "committer")[0])
            listed.append(BranchCommit(commit, name, email, _person(commit_header(content, "author")[0])[1]))
        parents = self.memory.server.parents(tip)

        def are_ours() -> bool:
            addresses = {address for one in listed for address in (one.author_email, one.committer_email)}
            return addresses == {author_email}

        if listed and not are_ours() and len(parents) == 1 and parents[0] in known_bases:
            del listed[1:]
        start = next(iter(self.memory.server.parents(listed[-1].commit)), "") if listed else tip
        is_ours = are_ours() and len(listed) == 1
        return BranchState(tip, tuple(listed), is_ours, are_ours(), start != self.base_commit, complete=True)

    def message_of(self, commit: str) -> str:
        return self._object(commit)[1].partition(b"\n\n")[2].decode().strip()

    def apply_work(
        self, commit: str, *, reference: str | None = None, packed: Packed | None = None
    ) -> AppliedWork:
        self._check()
        if packed is not None:
            self._unpack(packed)
        elif reference is not None:
            tip = self._server_tip(reference)
            if tip is None:
                raise WorkspaceError(f"cannot restore earlier work: {reference} does not exist any more")
            if commit not in {tip, *self.memory.server.parents(tip)}:
                raise WorkspaceError(
                    f"cannot restore earlier work: {reference} does not lead to {commit} any more"
                )
            self.memory.fetch(commit)
        (above,) = commit_header(self._object(commit)[1], "parent")
        if self.memory.read(above) is None:
            self.memory.fetch(above)
        old, ours, theirs = self._files_of(above), self._on_disk(), self._files_of(commit)
        merged, conflicts = _merge(old, ours, theirs)
        self._write_files(merged)
        paths = _differing(self._head_files, merged)
        self.conflicts |= set(conflicts)
        self.applied |= paths
        return AppliedWork(paths, conflicts, base_moved=old != self._base_files)

    def moved_base(self) -> MovedBase | None:
        tip = self._server_tip(f"refs/heads/{self.base_branch}")
        if tip is None:
            raise BaseConflictError(f"the branch {self.base_branch} does not exist any more")
        return None if tip == self.base_commit else MovedBase(tip, self.base_commit not in self._history(tip))

    def rename_base(self, branch: str) -> bool:
        tip = self._server_tip(f"refs/heads/{branch}")
        if tip is None or self.base_commit not in self._history(tip):
            return False
        self.base_branch = branch
        return True

    def put_onto(self, base: MovedBase, touched: set[str], *, include_commands: bool) -> list[str]:
        self._check()
        if self.joined is not None:
            raise WorkspaceError("main moved while a branch of other people was continued")
        ours = self._wanted(touched, include_commands=include_commands)
        theirs = self._files_of(base.commit)
        merged, conflicts = _merge(self._base_files, theirs, ours)
        if base.is_rewritten:
            for name in set(conflicts) - theirs.keys():
                del merged[name]
        self._write_files(merged)
        self.base_commit = self.tip = self.head = self.start = base.commit
        self._owner.complete("main", base.commit)
        self.parents, self.fresh, self.conflicts = [base.commit], True, set(conflicts)
        self._head_files = self._base_files = self._start_files = theirs
        self.applied = _differing(theirs, merged)
        return conflicts

    def continue_branch(self, branch: str) -> AppliedWork:
        tip = self._server_tip(f"refs/heads/{branch}")
        if tip is None:
            raise WorkspaceError(f"cannot continue branch {branch}: there is no such branch")
        below = self._history(self.base_commit)
        start = next(commit for commit in self._history(tip) if commit in below)
        self.memory.fetch(start)
        merged, conflicts = _merge(self._files_of(start), self._files_of(tip), self._base_files)
        self._write_files(merged)
        self.parents = [tip] if start == self.base_commit else [tip, self.base_commit]
        self.tip = self.joined = tip
        self.start = commit_files(self._objects, merged, self.parents, "Pullwright <pullwright@invalid>", "")
        self._head_files = self._start_files = merged
        self.conflicts |= set(conflicts)
        return AppliedWork(set(conflicts), conflicts, base_moved=start != self.base_commit, tip=tip)

    # The rest.

    def tracked_files(self) -> list[TrackedFile]:
        return [TrackedFile(name, len(content), "file") for name, content in sorted(self._base_files.items())]

    def recent_commits(self, count: int) -> list[CommitLine]:
        del count
        subject = self.message_of(self.base_commit).partition("\n")[0]
        return [CommitLine(self.base_commit, subject, "2026-01-01")]

    def blobs(self, paths: Sequence[str], commit: str = "") -> dict[str, str]:
        del paths, commit
        return {}

    def continue_in(self, folder: Path) -> None:
        self._check()
        raise WorkspaceError(f"cannot move to {folder}: the history is in memory")

    def keep(self) -> None:
        self._check()
        super().keep()

    def close(self) -> None:
        try:
            self._check()
        except BaseException:
            self._owner.release()  # the system does it for a dead process
            raise
        super().close()

    def _check(self) -> None:
        self.memory.wire.check()

    @property
    def _objects(self) -> Path:
        return self.memory.git_dir / "objects"

    def _object(self, name: str) -> tuple[str, bytes]:
        found = self.memory.read(name)
        if found is None:
            raise WorkspaceError(f"the clone does not have {name}")
        return found

    def _files_of(self, commit: str) -> dict[str, bytes]:
        (tree,) = commit_header(self._object(commit)[1], "tree")
        return {name: self._object(blob)[1] for name, blob in tree_entries(self._object(tree)[1]).items()}

    def _history(self, commit: str) -> list[str]:
        found: dict[str, None] = {}
        pending = [commit]
        while pending:
            one = pending.pop(0)
            known = self.memory.read(one) or self.memory.server.objects.get(one)
            if one not in found and known is not None:
                found[one] = None
                pending += commit_header(known[1], "parent")
        return list(found)

    def _server_tip(self, ref: str) -> str | None:
        self._check()

        def fail() -> str | None:
            self.git.run("ls-remote", "--", ADDRESS, ref, doing=f"cannot read {ref}")
            return self.memory.server.refs.get(ref)

        tip = self.memory.wire.request("git fetch", lambda: self.memory.server.refs.get(ref), fail)
        if tip is not None:
            self.memory.fetch(tip)
        return tip

    def _unpack(self, packed: Packed) -> None:
        for kind, content in json.loads(packed.pack or b"{}").values():
            write_object(self._objects, kind, base64.b64decode(content), "sha1")
        if self.memory.read(packed.onto) is None:
            self.memory.fetch(packed.onto)


def open_memory_clone(  # noqa: PLR0913, PLR0917  as `open_clone`
    parent: Path, run: str, identity: Identity, clock: Clock, remote: Remote, git: Callable[[Path, Path], MemoryGit]
) -> MemoryClone:  # fmt: skip
    """Clone `main` of the server into a new folder."""
    doing = f"cannot clone {remote.shown}"
    with storage_errors(doing):
        parent.mkdir(parents=True, exist_ok=True)
        owner = new_owned_folder(parent.resolve(), run, address_key(remote.url))
    try:
        return _filled(owner, identity, clock, remote, git)
    except BaseException:
        owner.release()
        raise


def _filled(
    owner: Owner,
    identity: Identity,
    clock: Clock,
    remote: Remote,
    make: Callable[[Path, Path], MemoryGit],
) -> MemoryClone:
    with storage_errors("cannot clone"):
        make_bare(owner.folder / "host.git")
        (owner.folder / "tree").mkdir()
    git = make(owner.folder, owner.folder / "host.git")
    listed = git.run("ls-remote", "--", remote.url, "refs/heads/main", doing="cannot clone", remote=remote)
    base = listed.decode().partition("\t")[0]
    git.run("fetch", "--", remote.url, base, doing="cannot clone", remote=remote)
    clone = MemoryClone(owner, ("main", base), identity, clock, git, remote)
    clone._write_files(clone._base_files)
    owner.complete("main", base)
    return clone


def reopen_memory_clone(
    folder: Path, identity: Identity, clock: Clock, remote: Remote, make: Callable[[Path, Path], MemoryGit]
) -> MemoryClone:
    """Open the clone of a dead process again."""
    doing = f"cannot open the clone in {folder} again"
    with storage_errors(doing):
        owner = lock_abandoned_folder(folder.absolute())
    if owner is None:
        raise WorkspaceError(f"{doing}: another process uses it, or it is not a clone of this user")
    if not owner.facts.commit:
        owner.release()
        raise WorkspaceError(f"{doing}: it is not complete, so nothing was changed in it")
    git = make(folder, folder / "host.git")
    return MemoryClone(owner, (owner.facts.branch, owner.facts.commit), identity, clock, git, remote)


def _person(line: str) -> tuple[str, str]:
    """Return name and address of a line of a commit."""
    name, _, rest = line.partition(" <")
    return name, rest.partition(">")[0]


def _replaced(outcome: CommitOutcome, commit: str | None, files: list[str]) -> CommitOutcome:
    from dataclasses import replace

    return replace(outcome, commit=commit, files=files)


def _differing(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> set[str]:
    return {name for name in {*old, *new} if old.get(name) != new.get(name)}


def _changes(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> list[FileChange]:
    def version(content: bytes | None) -> FileVersion | None:
        return None if content is None else FileVersion(_PLAIN, content, len(content))

    return [
        FileChange(name, version(old.get(name)), version(new.get(name)))
        for name in sorted(_differing(old, new))
    ]


def _diff(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> str:
    lines = []
    for name in sorted(_differing(old, new)):
        before, after = (files.get(name, b"").decode().splitlines() for files in (old, new))
        lines.append(f"diff --git a/{name} b/{name}")
        lines += difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", lineterm="")
    return "".join(f"{line}\n" for line in lines)


def _merge(
    old: Mapping[str, bytes], ours: Mapping[str, bytes], theirs: Mapping[str, bytes]
) -> tuple[dict[str, bytes], list[str]]:
    """Merge whole files in three ways. Return the files, and those with conflicts."""
    merged, conflicts = dict(ours), []
    for name in _differing(old, theirs):
        if ours.get(name) == old.get(name):
            merged.pop(name, None)
            if name in theirs:
                merged[name] = theirs[name]
        elif ours.get(name) != theirs.get(name):
            conflicts.append(name)
            mine, other = ours.get(name, b""), theirs.get(name, b"")
            merged[name] = (
                b"<<<<<<< pullwright/base\n" + mine + b"=======\n" + other + b">>>>>>> pullwright/work\n"
            )
    return merged, sorted(conflicts)

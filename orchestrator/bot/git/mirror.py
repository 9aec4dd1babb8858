"""A local mirror of a remote, so that a second clone transfers only what is new.

It is a cache and never believed: whatever is odd about it, it is thrown away and the remote is cloned.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bot.git.failures import error_for
from orchestrator.bot.git.folders import address_key, remove_folder
from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.remote import Remote, is_commit_id, plain_branch
from orchestrator.core.errors import WorkspaceError
from orchestrator.core.git_names import is_branch_name
from orchestrator.core.locks import try_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator.core.clock import Clock

STATE = "pullwright-state"
"""The file that a mirror has while it is in good order."""


@dataclass(frozen=True, slots=True)
class Tip:
    """A branch of the remote, as the remote says it is now."""

    branch: str
    commit: str
    is_default: bool


def ask_remote(git: HostGit, remote: Remote, branch: str | None, doing: str) -> Tip | None:
    """What the remote says about the branch; None where a clone will have something to say about it."""
    wanted = () if branch is None else (_HEADS + plain_branch(branch),)
    result = git.attempt(
        "ls-remote", "--symref", "--", remote.url, "HEAD", *wanted, doing=doing, remote=remote
    )
    if result.status != 0:
        raise error_for(result.stderr, doing)
    default, commits = "", {}
    # Not `splitlines`: a branch's name may hold what Unicode takes for the end of a line.
    for line in os.fsdecode(result.stdout).split("\n"):
        value, _, name = line.partition("\t")
        if name == "HEAD" and value.startswith(f"ref: {_HEADS}"):
            default = value.removeprefix(f"ref: {_HEADS}")
        elif is_commit_id(value):
            commits[name] = value
    found = branch if branch is not None else default
    commit = commits.get("HEAD" if branch is None else _HEADS + found)
    if commit is None or not is_branch_name(found):
        return None
    return Tip(found, commit, found == default)


def known_commit(path: Path, digits: int) -> str | None:
    """The tip that the mirror was left with, or None where it was not left in good order."""
    try:
        data = json.loads((path / STATE).read_bytes())
        commit = data["commit"]
        whole = data["shallow"] == _shallow_digest(path)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    good = isinstance(commit, str) and is_commit_id(commit) and len(commit) == digits
    return commit if good and whole else None


def write_state(path: Path, commit: str, now: float) -> None:
    """Say that the mirror is in good order, at which commit, and when it was used: seconds since 1970."""
    state = path / STATE
    scratch = path / f"{STATE}.new"
    scratch.write_text(json.dumps({"commit": commit, "shallow": _shallow_digest(path)}), "ascii")
    scratch.replace(state)
    os.utime(state, (now, now))


def _shallow_digest(path: Path) -> str:
    """Of the file in which git keeps where the history was cut off: a line lost there is a shorter history."""
    try:
        return hashlib.sha256((path / "shallow").read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""


def used_at(path: Path) -> float:
    """When a mirror was used last; one without a state goes first."""
    try:
        return (path / STATE).stat().st_mtime
    except OSError:
        return 0.0


CAP_BYTES = 5_000_000_000
"""All mirrors together; those that were used last stay."""
MOST_PACKS = 20
"""Each fetch that brings something adds a pack. With more than these, what nobody refers to is dropped."""

_TIP = "refs/pullwright/tip"
_HEADS = "refs/heads/"
_PRIVATE = 0o700
_SHA256_DIGITS = 64


class Mirrors:
    """The mirrors below one folder, one for each remote.

    Args:
        root: the folder; made if it is missing, for this user only.
        clock: tells which mirror was used last.
        depth: how many commits a clone has.
        note: takes one line that a person may want to know.
        cap_bytes: of all mirrors together.
        most_packs: of one mirror, before it is cleaned up.
    """

    def __init__(  # noqa: PLR0913  each by name
        self,
        root: Path,
        *,
        clock: Clock,
        depth: int,
        note: Callable[[str], None] = lambda _text: None,
        cap_bytes: int = CAP_BYTES,
        most_packs: int = MOST_PACKS,
    ) -> None:
        self._root = root
        self._clock = clock
        self._depth = depth
        self._note = note
        self._cap_bytes = cap_bytes
        self._most_packs = most_packs

    def clone(
        self,
        folder: Path,
        remote: Remote,
        branch: str | None,
        doing: str,
        clone_from: Callable[[Remote, str], tuple[str, str]],
    ) -> tuple[str, str] | None:
        """Bring the mirror up to date, and make the clone from it.

        Args:
            folder: of the clone; `host.git` and `tree` are made in it.
            remote: the remote.
            branch: the branch, or None for the remote's default.
            doing: begins the message of an error.
            clone_from: clones a branch of a remote into the folder, and returns the branch and the commit.

        Returns:
            The branch and the commit; or None, with the folder as it was, where the remote itself must be
            cloned: it is on this machine, another process uses the mirror, or something about it is odd.

        Raises:
            WorkspaceError: the remote cannot be asked, or the command was interrupted.
        """
        if remote.folder is not None:
            return None
        with ExitStack() as held:
            try:
                path = self._lock(remote, held)
            except OSError as error:
                self._note(f"cloned without the mirror: {error.strerror or error}")
                return None
            if path is None:
                return None
            tip = ask_remote(HostGit(folder), remote, branch, doing)
            if tip is None:
                return None
            try:
                self._refresh(path, folder, remote, tip)
                base = clone_from(_as_remote(path, remote), tip.branch)
                _verify(folder, base, tip)
            except (WorkspaceError, OSError) as error:
                _clear(folder)
                with suppress(WorkspaceError):
                    remove_folder(path)
                if remote.cancelled():
                    raise
                self._note(f"the mirror was thrown away, the remote cloned instead: {error}")
                return None
            with suppress(OSError):
                self._evict(path)
        return base

    def _lock(self, remote: Remote, held: ExitStack) -> Path | None:
        """The mirror's folder, which is now this process's alone."""
        self._root.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        if not _is_ours(self._root):
            self._note(f"cloned without the mirror: {self._root} is not a folder of this user alone")
            return None
        root = self._root.resolve()
        key = address_key(remote.url)
        if not _flock(root / f"{key}.lock", held):
            self._note("cloned without the mirror: another process uses it")
            return None
        path = root / f"{key}.git"
        if os.path.lexists(path) and not _is_ours(path):
            self._note(f"cloned without the mirror: {path} is not a folder of this user alone")
            return None
        return path

    def _refresh(self, path: Path, folder: Path, remote: Remote, tip: Tip) -> None:
        """Give the mirror the tip and the commits before it, and show it as the only branch."""
        git = HostGit(folder, path)
        known = known_commit(path, len(tip.commit))
        if known != tip.commit:
            if known is None:
                remove_folder(path)
                _create(git, path, sha256=len(tip.commit) == _SHA256_DIGITS)
            # Without its state a mirror is worth nothing: a death from here on is seen by the next process.
            (path / STATE).unlink(missing_ok=True)
            self._fetch(git, path, remote, tip)
        # One branch, so that names which exclude each other (`a` and `a/b`) never meet.
        shutil.rmtree(path / "refs" / "heads")
        reference = path / "refs" / "heads" / tip.branch
        reference.parent.mkdir(parents=True)
        reference.write_text(f"{tip.commit}\n", "ascii")
        head = tip.branch if tip.is_default else "pullwright/no-default"
        (path / "HEAD").write_bytes(os.fsencode(f"ref: {_HEADS}{head}\n"))
        write_state(path, tip.commit, self._clock.now().timestamp())

    def _fetch(self, git: HostGit, path: Path, remote: Remote, tip: Tip) -> None:
        # By the id: what comes is what was announced, and the server is not asked for its branches again.
        # The mirror's branches and its last tip tell the server what is here already.
        git.run(
            *("-c", "fetch.unpackLimit=1", "fetch", "--quiet", f"--depth={self._depth}", "--no-tags"),
            *("--update-shallow", "--no-write-fetch-head", "--no-recurse-submodules"),
            *("--", remote.url, f"+{tip.commit}:{_TIP}"),
            doing="cannot fetch into the mirror",
            remote=remote,
        )
        if sum(1 for _ in (path / "objects" / "pack").glob("*.pack")) > self._most_packs:
            shutil.rmtree(path / "refs" / "heads")
            (path / "refs" / "heads").mkdir()
            git.run("-c", "gc.packRefs=false", "gc", "--quiet", "--prune=now", doing="cannot pack the mirror")

    def _evict(self, newest: Path) -> None:
        """Remove mirrors, the least recently used first, until all together are small enough."""
        sizes = {path: _size(path) for path in newest.parent.glob("*.git") if _is_ours(path)}
        total = sum(sizes.values())
        for path in sorted(sizes, key=lambda path: (path == newest, used_at(path))):
            if total <= self._cap_bytes:
                return
            with ExitStack() as held:
                # The newest is locked already.
                if path == newest or _flock(path.with_suffix(".lock"), held):
                    with suppress(WorkspaceError):
                        remove_folder(path)
                        total -= sizes[path]


def _create(git: HostGit, path: Path, *, sha256: bool) -> None:
    path.mkdir(mode=_PRIVATE)
    kind = "sha256" if sha256 else "sha1"
    git.run(
        *("init", "--quiet", "--bare", "--template=", f"--object-format={kind}", "--", str(path)),
        doing="cannot make the mirror",
    )


def _as_remote(path: Path, remote: Remote) -> Remote:
    return Remote(path.as_uri(), str(path), "file", "", lambda: None, path, remote.cancelled)


def _verify(folder: Path, base: tuple[str, str], tip: Tip) -> None:
    """The clone is at the commit that the remote named, and nothing that belongs to it is missing."""
    if base != (tip.branch, tip.commit):
        message = f"it gave {base[1]} instead of {tip.commit}"
        raise WorkspaceError(message)
    git = HostGit(folder, folder / "host.git")
    git.run("rev-list", "--objects", "--quiet", tip.commit, "--", doing="the clone is not complete")


def _clear(folder: Path) -> None:
    for name in ("host.git", "tree"):
        remove_folder(folder / name)


def _is_ours(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _flock(path: Path, held: ExitStack) -> bool:
    """Lock a file until the stack is left. False, at once, where somebody else has it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    held.callback(os.close, handle)
    return try_lock(handle)


def _size(path: Path) -> int:
    return sum(_sizes(path))


def _sizes(path: Path) -> Iterator[int]:
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):
                yield (Path(folder) / name).lstat().st_size

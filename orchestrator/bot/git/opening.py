"""Opens clones: made from the remote or from its mirror on this machine, or reopened after a crash."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import zlib
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from orchestrator.bot.git.clone import Clone
from orchestrator.bot.git.folders import (
    address_key,
    folder_size,
    lock_abandoned_folder,
    new_owned_folder,
    remove_folder,
)
from orchestrator.bot.git.hostgit import HostGit, error_for, main_line, storage_errors
from orchestrator.bot.git.local import id_kind, make_bare
from orchestrator.bot.git.remote import Remote, is_commit_id, listed_refs, parse_remote, plain_branch
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import EmptyRepositoryError, WorkspaceError
from orchestrator.core.event_loop import in_thread
from orchestrator.core.files import lock_file
from orchestrator.core.repositories import is_branch_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from orchestrator.bot.git.base import Identity
    from orchestrator.bot.git.hostgit import GitResult
    from orchestrator.core.clock import Clock
    from orchestrator.core.redaction import Credential

# Ten commits cost as much as one, within the noise, where files change a little at a time (measured with
# tests/benchmarks/clone.py); they are what the first prompt shows of the history.
DEPTH_COMMITS = 10
_REMOVAL_SECONDS = 3.0
"""How long a process that is about to end removes its clone: with the end of its threads, less than the grace."""
STATE = "pullwright-state"
"""A file that a mirror has while it is complete."""


@dataclass(frozen=True, slots=True)
class Tip:
    """The present head of a branch on the remote."""

    branch: str
    commit: str
    is_default: bool


def ask_remote(git: HostGit, remote: Remote, branch: str | None, doing: str) -> Tip | None:
    """Return the head of the branch on the remote; None if cloning will report a problem with it."""
    wanted = () if branch is None else (_HEADS + plain_branch(branch),)
    output = git.run("ls-remote", "--symref", "--", remote.url, "HEAD", *wanted, doing=doing, remote=remote)
    named = _DEFAULT_BRANCH.search(os.fsdecode(output))
    default = named[1] if named else ""
    found = branch if branch is not None else default
    commit = listed_refs(output).get("HEAD" if branch is None else _HEADS + found)
    if commit is None or not is_branch_name(found):
        return None
    return Tip(found, commit, found == default)


def known_commit(path: Path, digits: int) -> str | None:
    """Return the commit that a complete mirror has; None if the mirror is not complete."""
    try:
        data = json.loads((path / STATE).read_bytes())
        commit = data["commit"]
        is_complete = data["shallow"] == _shallow_digest(path)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    is_valid = isinstance(commit, str) and is_commit_id(commit) and len(commit) == digits
    return commit if is_valid and is_complete else None


def write_state(path: Path, commit: str, now: float) -> None:
    """Record that the mirror is complete, its commit, and the time of use in seconds since 1970."""
    state = path / STATE
    scratch = path / f"{STATE}.new"
    scratch.write_text(json.dumps({"commit": commit, "shallow": _shallow_digest(path)}), "ascii")
    scratch.replace(state)
    os.utime(state, (now, now))


def _shallow_digest(path: Path) -> str:
    """Return a digest of git's list of shallow commits: a lost line there would shorten the history."""
    try:
        return hashlib.sha256((path / "shallow").read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""


CAP_BYTES = 5_000_000_000
"""Most bytes of all mirrors together; the most recently used stay."""
MOST_PACKS = 20
"""Each fetch with new objects adds a pack. With more than these, unreachable objects are dropped."""

_TIP = "refs/pullwright/tip"
_HEADS = "refs/heads/"
_DEFAULT_BRANCH = re.compile(rf"^ref: {_HEADS}([^\t\n]*)\tHEAD$", re.MULTILINE)
_PRIVATE = 0o700


class Mirrors:
    """The mirrors below one folder, one for each remote.

    Args:
        root: the folder; created if it is missing, for this user only.
        clock: determines which mirror was used last.
        note: receives one line that a person may want to know.
        cap_bytes: most bytes of all mirrors together.
        most_packs: most packs of one mirror before it is cleaned up.
    """

    def __init__(
        self,
        root: Path,
        *,
        clock: Clock,
        note: Callable[[str], None] = lambda _text: None,
        cap_bytes: int = CAP_BYTES,
        most_packs: int = MOST_PACKS,
    ) -> None:
        self._root = root
        self._clock = clock
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
        """Update the mirror, and make the clone from it.

        Args:
            folder: of the clone; `host.git` and `tree` are created in it.
            branch: the branch, or None for the remote's default.
            clone_from: clones a branch of a remote into the folder, and returns the branch and the commit.

        Returns:
            The branch and the commit; or None, with the folder unchanged, if the remote itself must be
            cloned: it is on this machine, another process uses the mirror, or something about it is wrong.
        """
        if remote.folder is not None:
            return None
        with ExitStack() as held:
            try:
                path = self._lock(remote, held)
            except OSError as error:
                path = error.strerror or str(error)
            if isinstance(path, str):
                self._note(f"cloned without the mirror: {path}")
                return None
            tip = ask_remote(HostGit(folder), remote, branch, doing)
            if tip is None:
                return None
            try:
                self._refresh(path, folder, remote, tip)
                mirror = Remote(path.as_uri(), str(path), "file", "", lambda: None, path, remote.cancelled)
                base = clone_from(mirror, tip.branch)
                _verify(folder, base, tip)
            except (WorkspaceError, OSError) as error:
                for name in ("host.git", "tree"):
                    remove_folder(folder / name)
                with suppress(WorkspaceError):
                    remove_folder(path)
                if remote.cancelled():
                    raise
                self._note(f"the mirror was removed, and the remote cloned instead: {error}")
                return None
            with suppress(OSError):
                self._evict(path)
        return base

    def _lock(self, remote: Remote, held: ExitStack) -> Path | str:
        """Lock the mirror's folder and return it, or why it cannot be used."""
        self._root.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        if not _is_ours(self._root):
            return f"{self._root} is not a private folder of this user"
        root = self._root.resolve()
        key = address_key(remote.url)
        if not _flock(root / f"{key}.lock", held):
            return "another process uses it"
        path = root / f"{key}.git"
        if os.path.lexists(path) and not _is_ours(path):
            return f"{path} is not a private folder of this user"
        return path

    def _refresh(self, path: Path, folder: Path, remote: Remote, tip: Tip) -> None:
        """Fetch the head and its ancestors into the mirror, as its only branch."""
        git = HostGit(folder, path)
        known = known_commit(path, len(tip.commit))
        if known != tip.commit:
            if known is None:
                remove_folder(path)
                path.mkdir(mode=_PRIVATE)
                make_bare(path, id_kind(tip.commit))
            # If this process dies from here on, the next one sees that the mirror is not complete.
            (path / STATE).unlink(missing_ok=True)
            self._fetch(git, path, remote, tip)
        # One branch, so that names which exclude each other (`a` and `a/b`) never meet.
        shutil.rmtree(path / "refs" / "heads")
        _write_branch(path, tip.branch, tip.commit, "" if tip.is_default else "pullwright/no-default")
        write_state(path, tip.commit, self._clock.now().timestamp())

    def _fetch(self, git: HostGit, path: Path, remote: Remote, tip: Tip) -> None:
        # By its id, so that it is the commit that the server named, without another list of its branches. The
        # mirror's branches and its last tip tell the server which objects are here already.
        git.run(
            *("-c", "fetch.unpackLimit=1", "fetch", "--quiet", f"--depth={DEPTH_COMMITS}", "--no-tags"),
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
        sizes = {path: folder_size(path) for path in newest.parent.glob("*.git") if _is_ours(path)}
        total = sum(sizes.values())
        # A mirror without a state is older than all others.
        states = {path: path / STATE for path in sizes}
        used_at = {path: state.stat().st_mtime if state.exists() else 0.0 for path, state in states.items()}
        for path in sorted(sizes, key=lambda path: (path == newest, used_at[path])):
            if total <= self._cap_bytes:
                return
            with ExitStack() as held:
                # The newest is locked already.
                if path == newest or _flock(path.with_suffix(".lock"), held):
                    with suppress(WorkspaceError):
                        remove_folder(path)
                        total -= sizes[path]


def _verify(folder: Path, base: tuple[str, str], tip: Tip) -> None:
    """Check that the clone is at the commit that the remote named, and complete."""
    if base != (tip.branch, tip.commit):
        raise WorkspaceError(f"it has {base[1]} instead of {tip.commit}")
    git = HostGit(folder, folder / "host.git")
    git.run("rev-list", "--objects", "--quiet", tip.commit, "--", doing="the clone is not complete")


def _write_branch(git_dir: Path, branch: str, commit: str, head: str = "") -> None:
    """Write a branch into a git directory, and name it in HEAD, or another one."""
    reference = git_dir / "refs" / "heads" / branch
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text(f"{commit}\n", "ascii")
    (git_dir / "HEAD").write_bytes(os.fsencode(f"ref: {_HEADS}{head or branch}\n"))


def _is_ours(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _flock(path: Path, held: ExitStack) -> bool:
    """Lock a file until the stack is closed. Return False at once if another process holds the lock."""
    try:
        held.callback(os.close, lock_file(path))
    except BlockingIOError:
        return False
    return True


# Commands have no terminal, so the editor of `git commit --amend` and `git revert` keeps the message as it is.
# Outside of a sandbox git also reads the user's configuration. Its keys must not sign these drafts, and its LFS
# filters must not run: the clone has only pointers.
_MODEL_CONFIGURATION = """[core]
\trepositoryformatversion = {version}
\tfilemode = true
\tbare = false
\tlogallrefupdates = true
\teditor = true
\tpager = cat
[gc]
\tauto = 0
[maintenance]
\tauto = false
[commit]
\tgpgSign = false
[tag]
\tgpgSign = false
[filter "lfs"]
\tclean =
\tsmudge =
\tprocess =
\trequired = false
[user]
\tname = {name}
\temail = {email}
"""


def create_model_repository(host: Path, tree: Path, branch: str, commit: str, identity: Identity) -> None:
    """Create `tree/.git` with the history of the clone, without any remote, URL or credential.

    It belongs to the model's commands, which may change all of it, so this program never runs git on it.
    Their changes of files are committed from the files. Messages of their commits are read by a command in
    the model's environment, and are untrusted text like any other.
    """
    own = tree / ".git"
    own.mkdir()
    # Copies and not hard links: the model may write into its own files, and ours must stay as they are.
    shutil.copytree(host / "objects", own / "objects")
    for name in ("index", "shallow"):
        if (host / name).exists():
            shutil.copyfile(host / name, own / name)
    _write_branch(own, branch, commit)
    text = _configuration(
        _MODEL_CONFIGURATION, commit, name=_quoted(identity.name), email=_quoted(identity.email)
    )
    (own / "config").write_text(text, "utf-8")


def _configuration(form: str, commit: str, **values: str) -> str:
    """Fill in a configuration, for a repository with this kind of ids."""
    if id_kind(commit) == "sha1":
        return form.format(version=0, **values)
    return form.format(version=1, **values) + "[extensions]\n\tobjectformat = sha256\n"


def _quoted(text: str) -> str:
    """Quote a value in git's configuration syntax."""
    plain = "".join(letter for letter in text if letter.isprintable())
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


# It replaces git's own, and keeps what `git clone` found out about the file system.
_CONFIGURATION = """[core]
\trepositoryformatversion = {version}
\tfilemode = true
\tbare = false
\tlogallrefupdates = false
\tignorecase = {ignorecase}
\tprecomposeunicode = {precompose}
"""


def first_fetch(folder: Path, remote: Remote, branch: str | None, doing: str) -> tuple[str, str]:
    """Clone with one command into both folders.

    It raises what `open_clone` raises.

    Args:
        folder: receives `host.git`, the git directory, and `tree`, the files.
        branch: the branch, or None for the remote's default.

    Returns:
        The branch and the commit.
    """
    host, tree = folder / "host.git", folder / "tree"
    wanted = () if branch is None else ("--branch", plain_branch(branch))
    options = ("--quiet", "--template=", "--single-branch", "--no-tags", "--no-recurse-submodules")
    git = HostGit(folder)

    def cloned(depth: int) -> GitResult:
        return git.attempt(
            *("clone", *options, f"--depth={depth}", f"--separate-git-dir={host}", *wanted),
            *("--", remote.url, str(tree)),
            doing=doing,
            remote=remote,
        )

    result = cloned(DEPTH_COMMITS)
    if result.status != 0 and remote.folder is not None and _LACKS_OBJECTS.search(result.stderr):
        # A partial clone has the files of its older commits elsewhere.
        result = cloned(1)
        if result.status != 0 and _LACKS_OBJECTS.search(result.stderr):
            fetch = f"git -C {quote(str(remote.folder))} archive --format=tar --output=/dev/null HEAD"
            raise WorkspaceError(
                f"{doing}: it is a partial clone that lacks files of its own commit; to fetch them: {fetch}"
            )
    if result.status != 0:
        if branch is not None and "not found in upstream" in result.stderr:
            _refuse_empty(git, remote, doing)
            raise WorkspaceError(f"{doing}: it has no branch {branch!r}")
        raise error_for(result.stderr, doing)
    # It names the git directory, which tools must not find.
    (tree / ".git").unlink()
    head = os.fsdecode((host / "HEAD").read_bytes()).strip()
    found = head.removeprefix(f"ref: {_HEADS}")
    reference = host / "refs" / "heads" / found
    is_guessed = branch is None and remote.has_detached_head()
    if found != head and reference.is_file() and not is_guessed:
        return found, reference.read_text("ascii").strip()
    if branch is not None:
        raise WorkspaceError(f"{doing}: {branch!r} is a tag; name a branch")
    _refuse_empty(git, remote, doing)
    raise WorkspaceError(
        f"{doing}: it has no default branch (its HEAD is detached or names none); pass --base BRANCH"
    )


def _refuse_empty(git: HostGit, remote: Remote, doing: str) -> None:
    if not git.run("ls-remote", "--heads", "--", remote.url, doing=doing, remote=remote):
        raise EmptyRepositoryError(f"{remote.shown} is empty; push a first commit and run again")


def _configure(host: Path, commit: str) -> None:
    """Replace the configuration that `git clone` wrote, which names the remote, by our own."""
    text = _configuration(
        _CONFIGURATION,
        commit,
        ignorecase=str((host / "head").exists()).lower(),
        precompose=str(sys.platform == "darwin").lower(),
    )
    (host / "config").write_text(text, "utf-8")


_LACKS_OBJECTS = re.compile(r"unable to read [0-9a-f]{40}|possible repository corruption|missing blob")
_LOOSE_FOLDER = re.compile(r"[0-9a-f]{2}")
_SHA1_DIGITS = 40
# What a chunk inflates to is a thousand times as much at most.
_CHUNK_BYTES = 65_536


def open_clone(  # noqa: PLR0913  each is a fact of the run, given by name
    url: str,
    *,
    branch: str | None,
    credential: Callable[[], Credential | None],
    parent: Path,
    with_git: bool,
    identity: Identity,
    clock: Clock | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    mirror: Path | None = None,
    run: str = "",
    note: Callable[[str], None] = lambda _text: None,
) -> Clone:
    """Clone one branch of a repository, shallow, into a new folder.

    Args:
        url: a URL without a password, `user@host:path`, or a local path.
        branch: the branch, or None for the remote's default.
        credential: called whenever the remote is contacted.
        parent: where the new folder is created.
        with_git: whether to give the files a repository of their own, for the model's commands.
        clock: dates the commits; the machine's clock by default.
        cancelled: polled while the remote is contacted; True ends that at once.
        mirror: a folder of this user for mirrors of remotes, which make the next clone cheaper; None for
            none. The clone is the same with and without.
        run: the run's id, which is stored beside the files.
        note: receives one line that a person may want to know, such as why a mirror was not used.

    Raises:
        EmptyRepositoryError: the repository has no commit.
        WorkspaceError: any other problem, in one line.
    """
    if not identity.name.strip(" .,:;<>\"\\'") or not identity.email.strip():
        raise WorkspaceError("git needs a name and an e-mail address for commits")
    remote = replace(parse_remote(url, credential), cancelled=cancelled)
    clock = clock or SystemClock()
    doing = f"cannot clone {remote.shown}"
    with ExitStack() as undo, storage_errors(doing):
        parent.mkdir(parents=True, exist_ok=True)
        owner = new_owned_folder(parent.resolve(), run, address_key(remote.url))
        undo.callback(owner.remove)
        folder = owner.folder
        base = None
        if mirror is not None:
            mirrors = Mirrors(mirror, clock=clock, note=note)
            base = mirrors.clone(folder, remote, branch, doing, partial(first_fetch, folder, doing=doing))
        base = base or first_fetch(folder, remote, branch, doing)
        _configure(folder / "host.git", base[1])
        if with_git:
            create_model_repository(folder / "host.git", folder / "tree", *base, identity)
        owner.complete(*base)
        undo.pop_all()
        return Clone(owner, base, identity, clock, remote)


async def remove_clone(
    clone: Clone, warn: Callable[[str], None], *, ends: bool, seconds: float = _REMOVAL_SECONDS
) -> None:
    """Remove a clone in a thread. What cannot be removed is only a warning.

    Args:
        ends: whether the process is about to end. Then the removal gets only `seconds`, and a later run removes the
            rest: it finds the folder as that of a dead one.
    """
    removal = asyncio.ensure_future(asyncio.to_thread(clone.close))
    removal.add_done_callback(lambda done: done.cancelled() or done.exception())  # else asyncio reports it
    await asyncio.wait([removal], timeout=seconds if ends else None)
    if not removal.done():
        warn(f"the clone in {clone.folder} is not removed yet; a later run removes what is left of it")
    elif error := removal.exception():
        if not isinstance(error, WorkspaceError):
            raise error
        warn(f"the clone could not be removed: {error}")


@asynccontextmanager
async def opened_clone(
    opener: Callable[[], Clone], warn: Callable[[str], None], ends: Callable[[], bool] = lambda: False
) -> AsyncIterator[Clone]:
    """Clone in a thread, yield the clone, and remove it as `remove_clone` does.

    Args:
        ends: returns whether the process is about to end. A block that was cancelled says so, too.
    """
    clone = await in_thread(opener, undo=lambda clone: clone.close())
    try:
        yield clone
    finally:
        is_cancelled = isinstance(sys.exception(), asyncio.CancelledError)
        await remove_clone(clone, warn, ends=is_cancelled or ends())


def reopen_clone(  # noqa: PLR0913  each is a fact of the run, given by name
    folder: Path,
    url: str,
    credential: Callable[[], Credential | None],
    identity: Identity,
    clock: Clock,
    *,
    cancelled: Callable[[], bool] = lambda: False,
) -> Clone:
    """Open the clone that a dead process left.

    The cloned commit is the base again: commits made on it count as uncommitted changes. What git was doing
    when it was killed is repaired. Nothing in `tree` is trusted or run.

    Args:
        folder: the clone's folder, the parent of `tree`.
        url: the address that it was cloned from.
        credential: called whenever the remote is contacted.
        cancelled: polled while the remote is contacted; True ends that at once.

    Raises:
        WorkspaceError: the folder is gone, not ours, used by a live process, a clone of another repository,
            or cannot be repaired. It is left unchanged.
    """
    remote = replace(parse_remote(url, credential), cancelled=cancelled)
    doing = f"cannot open the clone in {folder} again"
    with ExitStack() as undo, storage_errors(doing):
        folder = folder.absolute()
        owner = lock_abandoned_folder(folder)
        if owner is None:
            raise WorkspaceError(f"{doing}: another process uses it, or it is not a clone of this user")
        undo.callback(owner.release)
        if owner.facts.address != address_key(remote.url):
            raise WorkspaceError(f"{doing}: it is a clone of another repository")
        if not owner.facts.commit:
            raise WorkspaceError(f"{doing}: it is not complete, so nothing was changed in it")
        for name in ("host.git", "tree"):
            if (folder / name).is_symlink() or not (folder / name).is_dir():
                raise WorkspaceError(f"{doing}: it cannot be repaired, its {name} is missing")
        base = (owner.facts.branch, owner.facts.commit)
        _repair(folder, *base, doing)
        clone = Clone(owner, base, identity, clock, remote)
        undo.pop_all()
        return clone


def _repair(folder: Path, branch: str, commit: str, doing: str) -> None:
    """Restore the git directory to its state after the clone, with all undamaged objects."""
    host = folder / "host.git"
    for path in _leftovers(host):
        path.unlink(missing_ok=True)
    for path in _damaged_objects(host / "objects", len(commit)):
        path.unlink(missing_ok=True)
    _write_branch(host, branch, commit)
    _configure(host, commit)
    git = HostGit(folder, host)
    whole = git.attempt("rev-list", "--objects", "--quiet", commit, "--", doing=doing)
    if whole.status != 0:
        raise WorkspaceError(
            f"{doing}: it cannot be repaired, objects of the base are missing ({main_line(whole.stderr)})"
        )
    # A new index: the old one may be damaged, or show what was committed on the base as unchanged.
    scratch = host / "index.new"
    git.run("read-tree", commit, doing=doing, index=scratch)
    scratch.replace(host / "index")


def _leftovers(host: Path) -> Iterator[Path]:
    """Yield locks and unfinished files of programs that were killed with the run."""
    for folder, _, names in os.walk(host):
        for name in names:
            unfinished = name.startswith(("tmp_", ".tmp-")) and "objects" in folder
            if unfinished or name.endswith(".lock") or name in {"index.new", "index.commit", "index.patch"}:
                yield Path(folder, name)


def _damaged_objects(objects: Path, digits: int) -> Iterator[Path]:
    """Yield loose objects whose content does not match their name, which git would not write again."""
    for folder in objects.iterdir():
        if _LOOSE_FOLDER.fullmatch(folder.name) and folder.is_dir():
            for path in folder.iterdir():
                if path.is_file() and not _is_whole(path, folder.name + path.name, digits):
                    yield path


def _is_whole(path: Path, name: str, digits: int) -> bool:
    # Git's ids of objects, not a defence: https://git-scm.com/docs/hash-function-transition
    digest = hashlib.sha1(usedforsecurity=False) if digits == _SHA1_DIGITS else hashlib.sha256()
    inflating = zlib.decompressobj()
    with suppress(zlib.error), path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(inflating.decompress(chunk))
        return inflating.eof and digest.hexdigest() == name
    return False

"""Open a clone: a new one, or again that of a run that died."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import zlib
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.bot.git.clone import Clone
from orchestrator.bot.git.failures import error_for, main_line, storage_errors
from orchestrator.bot.git.folders import address_key, hold_again, new_owned_folder
from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.mirror import Mirrors
from orchestrator.bot.git.remote import parse_remote, plain_branch
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import EmptyRepositoryError, WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from orchestrator.bot.git.base import Identity
    from orchestrator.bot.git.remote import GitCredential, Remote
    from orchestrator.core.clock import Clock

# Commands have no terminal, so an editor (`git commit --amend`, `git revert`) takes the message as it is.
# Outside of a sandbox git reads the user's configuration, too: what it says of keys and of LFS is not for a
# commit that is only a draft, and for a clone that has pointers only.
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
    """Make `tree/.git` with the history of the clone, and without any remote, URL or credential.

    It belongs to the model's commands, which may change all of it, so this program never runs git on it.
    What they change in the files is committed from the files. A command that runs where theirs do asks for
    the messages of their commits, which are a text like any other of theirs.
    """
    own = tree / ".git"
    own.mkdir()
    # Copies and not hard links: the model may write into its own files, and ours must stay as they are.
    shutil.copytree(host / "objects", own / "objects")
    for name in ("index", "shallow"):
        if (host / name).exists():
            shutil.copyfile(host / name, own / name)
    reference = own / "refs" / "heads" / branch
    reference.parent.mkdir(parents=True)
    reference.write_text(f"{commit}\n", "ascii")
    (own / "HEAD").write_bytes(os.fsencode(f"ref: refs/heads/{branch}\n"))
    sha256 = len(commit) > 40  # noqa: PLR2004  digits of a SHA-1
    text = _MODEL_CONFIGURATION.format(
        version=1 if sha256 else 0, name=_quoted(identity.name), email=_quoted(identity.email)
    )
    (own / "config").write_text(text + ("[extensions]\n\tobjectformat = sha256\n" if sha256 else ""), "utf-8")


def _quoted(text: str) -> str:
    """A value in git's configuration syntax."""
    plain = "".join(letter for letter in text if letter.isprintable())
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


# Ten commits cost as much as one, within the noise, where files change a little at a time (measured with
# tests/benchmarks/clone.py); they are what the first prompt shows of the history.
DEPTH_COMMITS = 10

# `git clone` finds out about the file system when it makes a repository; ours is written by us.
_CONFIGURATION = """[core]
\trepositoryformatversion = {version}
\tfilemode = true
\tbare = false
\tlogallrefupdates = false
\tignorecase = {ignorecase}
\tprecomposeunicode = {precompose}
"""


def first_fetch(folder: Path, remote: Remote, branch: str | None, doing: str) -> tuple[str, str]:
    """Fill both folders with one command.

    Args:
        folder: gets `host.git`, the git directory, and `tree`, the files.
        remote: what is cloned.
        branch: the branch, or None for the remote's default.
        doing: begins the message of an error.

    Returns:
        The branch and the commit.

    Raises:
        EmptyRepositoryError: the repository has no commit.
        WorkspaceError: there is no such branch, or git failed.
    """
    host, tree = folder / "host.git", folder / "tree"
    wanted = () if branch is None else ("--branch", plain_branch(branch))
    options = ("--quiet", "--template=", "--single-branch", "--no-tags", "--no-recurse-submodules")
    git = HostGit(folder)
    result = git.attempt(
        *("clone", *options, f"--depth={DEPTH_COMMITS}", f"--separate-git-dir={host}", *wanted),
        *("--", remote.url, str(tree)),
        doing=doing,
        remote=remote,
    )
    if result.status != 0:
        if branch is not None and "not found in upstream" in result.stderr:
            _refuse_empty(git, remote, doing)
            message = f"{doing}: it has no branch {branch!r}"
            raise WorkspaceError(message)
        raise error_for(result.stderr, doing)
    # The file that leads from the work tree to the git directory; tools must not find the latter.
    (tree / ".git").unlink()
    head = os.fsdecode((host / "HEAD").read_bytes()).strip()
    found = head.removeprefix("ref: refs/heads/")
    reference = host / "refs" / "heads" / found
    guessed = branch is None and remote.has_detached_head()
    if found != head and reference.is_file() and not guessed:
        return found, reference.read_text("ascii").strip()
    if branch is not None:
        message = f"{doing}: {branch!r} is a tag; name a branch"
        raise WorkspaceError(message)
    _refuse_empty(git, remote, doing)
    message = f"{doing}: it has no default branch (its HEAD is detached or names none); pass --base BRANCH"
    raise WorkspaceError(message)


def _refuse_empty(git: HostGit, remote: Remote, doing: str) -> None:
    if not git.run("ls-remote", "--heads", "--", remote.url, doing=doing, remote=remote):
        message = f"{remote.shown} is empty; push a first commit and run again"
        raise EmptyRepositoryError(message)


def configure(host: Path, *, sha256: bool) -> None:
    """Replace the configuration that `git clone` wrote, which names the remote, by our own."""
    text = _CONFIGURATION.format(
        version=1 if sha256 else 0,
        ignorecase=str((host / "head").exists()).lower(),
        precompose=str(sys.platform == "darwin").lower(),
    )
    (host / "config").write_text(
        text + ("[extensions]\n\tobjectformat = sha256\n" if sha256 else ""), "utf-8"
    )


_LOOSE_FOLDER = re.compile(r"[0-9a-f]{2}")
_SHA1_DIGITS = 40
# What a chunk inflates to is a thousand times as much at most.
_CHUNK_BYTES = 65_536


def open_clone(  # noqa: PLR0913  each is a fact of the run, given by name
    url: str,
    *,
    branch: str | None,
    credential: Callable[[], GitCredential | None],
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
        credential: asked for whenever the remote is contacted.
        parent: where the new folder is made.
        with_git: give the files a repository of their own, for the model's commands.
        identity: author and committer of what is committed.
        clock: dates the commits; the machine's clock by default.
        cancelled: asked while the remote is contacted; True ends that at once.
        mirror: a folder of this user for mirrors of remotes, which make the next clone cheaper; None for
            none. With one or without, the clone is the same.
        run: the run's id; it is written down beside the files.
        note: takes one line that a person may want to know, such as why a mirror was not used.

    Raises:
        EmptyRepositoryError: the repository has no commit.
        WorkspaceError: anything else that goes wrong, said in one line.
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
            mirrors = Mirrors(mirror, clock=clock, depth=DEPTH_COMMITS, note=note)
            base = mirrors.clone(folder, remote, branch, doing, partial(first_fetch, folder, doing=doing))
        base = base or first_fetch(folder, remote, branch, doing)
        configure(folder / "host.git", sha256=len(base[1]) > _SHA1_DIGITS)
        if with_git:
            create_model_repository(folder / "host.git", folder / "tree", *base, identity)
        owner.complete(*base)
        undo.pop_all()
        return Clone(owner, base, identity, clock, remote)


def reopen_clone(  # noqa: PLR0913  each is a fact of the run, given by name
    folder: Path,
    url: str,
    credential: Callable[[], GitCredential | None],
    identity: Identity,
    clock: Clock,
    *,
    cancelled: Callable[[], bool] = lambda: False,
) -> Clone:
    """Open the clone that a dead process left.

    What was cloned is the base again: commits that were made on it count as changes that are not committed
    yet. What git was killed in the middle of is repaired. Nothing in `tree` is believed or run.

    Args:
        folder: the clone's folder, the parent of `tree`.
        url: the address that it was cloned from.
        credential: asked for whenever the remote is contacted.
        identity: author and committer of what is committed.
        clock: dates the commits.
        cancelled: asked while the remote is contacted; True ends that at once.

    Raises:
        WorkspaceError: the folder is gone, not ours, used by a process that lives, a clone of another
            repository, or beyond repair. It stays as it is.
    """
    remote = replace(parse_remote(url, credential), cancelled=cancelled)
    doing = f"cannot open the clone in {folder} again"
    with ExitStack() as undo, storage_errors(doing):
        folder = folder.absolute()
        owner = hold_again(folder)
        if owner is None:
            message = f"{doing}: a process that lives works in it, or it is no clone of this user's"
            raise WorkspaceError(message)
        undo.callback(owner.release)
        if owner.facts.address != address_key(remote.url):
            message = f"{doing}: it is a clone of another repository"
            raise WorkspaceError(message)
        if not owner.facts.commit:
            message = f"{doing}: it was never completed, so nothing was changed in it"
            raise WorkspaceError(message)
        for name in ("host.git", "tree"):
            if (folder / name).is_symlink() or not (folder / name).is_dir():
                message = f"{doing}: it is beyond repair, its {name} is gone"
                raise WorkspaceError(message)
        base = (owner.facts.branch, owner.facts.commit)
        _repair(folder, *base, doing)
        clone = Clone(owner, base, identity, clock, remote)
        undo.pop_all()
        return clone


def _repair(folder: Path, branch: str, commit: str, doing: str) -> None:
    """Bring the git directory into the order in which it was after the clone, with all whole objects."""
    host = folder / "host.git"
    for path in _leftovers(host):
        path.unlink(missing_ok=True)
    for path in _torn_objects(host / "objects", len(commit)):
        path.unlink(missing_ok=True)
    reference = host / "refs" / "heads" / branch
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text(f"{commit}\n", "ascii")
    (host / "HEAD").write_bytes(os.fsencode(f"ref: refs/heads/{branch}\n"))
    configure(host, sha256=len(commit) > _SHA1_DIGITS)
    git = HostGit(folder, host)
    whole = git.attempt("rev-list", "--objects", "--quiet", commit, "--", doing=doing)
    if whole.status != 0:
        message = f"{doing}: it is beyond repair, objects of the base are missing ({main_line(whole.stderr)})"
        raise WorkspaceError(message)
    # A new index: the old one may be torn, or show what was committed on the base as unchanged.
    scratch = host / "index.new"
    git.run("read-tree", commit, doing=doing, variables={"GIT_INDEX_FILE": str(scratch)})
    scratch.replace(host / "index")


def _leftovers(host: Path) -> Iterator[Path]:
    """Locks and unfinished files of the programs that were killed with the run."""
    for folder, _, names in os.walk(host):
        for name in names:
            unfinished = name.startswith(("tmp_", ".tmp-")) and "objects" in folder
            if unfinished or name.endswith(".lock") or name in {"index.new", "index.commit", "index.patch"}:
                yield type(host)(folder) / name


def _torn_objects(objects: Path, digits: int) -> Iterator[Path]:
    """Loose objects whose bytes are not what their name says. Git would not write them a second time."""
    for folder in objects.iterdir():
        if _LOOSE_FOLDER.fullmatch(folder.name) and folder.is_dir():
            for path in folder.iterdir():
                if path.is_file() and not _is_whole(path, folder.name + path.name, digits):
                    yield path


def _is_whole(path: Path, name: str, digits: int) -> bool:
    # The names of objects, not a defence: https://git-scm.com/docs/hash-function-transition
    digest = hashlib.sha1(usedforsecurity=False) if digits == _SHA1_DIGITS else hashlib.sha256()
    inflating = zlib.decompressobj()
    with suppress(zlib.error), path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(inflating.decompress(chunk))
        return inflating.eof and digest.hexdigest() == name
    return False

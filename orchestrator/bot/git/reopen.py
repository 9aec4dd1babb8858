"""Opens the clone of a dead run again, so that what was changed in it can be read."""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.bot.git.clone import assemble
from orchestrator.bot.git.failures import main_line, storage_errors
from orchestrator.bot.git.first_fetch import configure
from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.owner import address_key, hold_again
from orchestrator.bot.git.remote import parse_remote
from orchestrator.core.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from orchestrator.bot.git.base import Identity
    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.git.credential import GitCredential
    from orchestrator.core.clock import Clock

_LOOSE_FOLDER = re.compile(r"[0-9a-f]{2}")
_SHA1_DIGITS = 40
# What a chunk inflates to is a thousand times as much at most.
_CHUNK_BYTES = 65_536


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
        clone = assemble(owner, base, remote, identity, clock)
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

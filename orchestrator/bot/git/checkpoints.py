"""Checkpoints of a person's folder: undo and redo the changes of a model's turns, byte for byte.

Checkpoints are trees in a separate git directory, which borrows the objects of the folder's repository. That
repository, its index and its branches are never written. Checkpoints outlive a conversation, for the one that
continues it, as long as there is room.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.bot.git.folders import folder_size, remove_folder
from orchestrator.bot.git.hostgit import HostGit, storage_errors
from orchestrator.bot.git.local import locate
from orchestrator.bot.git.objects import Difference as Change
from orchestrator.bot.git.objects import (
    TreeEntry,
    change_index,
    differences,
    entries_at,
    read_objects,
    write_tree,
)
from orchestrator.bot.git.remote import is_commit_id
from orchestrator.bot.git.staging import diff, folders_above
from orchestrator.bot.git.work import ChangeMaker
from orchestrator.bot.git.working_tree import WorkingTree
from orchestrator.core.changes import LINK_MODE
from orchestrator.core.confined import ConfinedFolder
from orchestrator.core.errors import WorkspaceError
from orchestrator.core.event_loop import in_thread, to_the_end
from orchestrator.core.repositories import is_git_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence
    from pathlib import Path

    from orchestrator.bot.git.work import ChangeBase, FolderChange

MOST_FILE_BYTES = 10_000_000
"""Largest file in a checkpoint."""
MOST_NEW_BYTES = 200_000_000
"""Most bytes of all files that one checkpoint would have to store."""
MOST_KEPT_BYTES = 200_000_000
"""Most bytes of all checkpoints of ended conversations."""

_DOING = "cannot keep a checkpoint"
_TURNS = "turns.json"
_RESTORING = "cannot restore files"
_PRIVATE = 0o700
_NEW_FOLDER_MODE = 0o777
_EXECUTABLE = "100755"
_MODES = frozenset({"100644", "100755", LINK_MODE})


@dataclass(slots=True)
class TurnChanges:
    """The changes that the tools of one turn made, by path: the entries before and after the turn."""

    changes: dict[str, Change] = field(default_factory=dict)

    def add(self, found: Iterable[Change]) -> None:
        """Add the changes of a later tool."""
        for change in found:
            earlier = self.changes.get(change.path)
            old = earlier.old if earlier else change.old
            self.changes[change.path] = Change(change.path, old, change.new)
            if old == change.new:
                del self.changes[change.path]

    def reversed(self) -> TurnChanges:
        """Return the changes that undo these."""
        return TurnChanges({path: one.reversed() for path, one in self.changes.items()})


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of undo or redo.

    Attributes:
        paths: paths that were restored.
        kept: paths that somebody else has changed since, and that were left unchanged.
    """

    paths: tuple[str, ...]
    kept: tuple[str, ...]


class Checkpoints:
    """Records what tools change in a folder, and restores it.

    Every method that reads or writes files may raise `WorkspaceError`: git failed.

    Args:
        folder: the person's folder.
        store: the place of the git directory, for exclusive use.
        warn: receives one line about what cannot be undone.
        earlier: stores of the conversation that this one continues, the newest first.

    Attributes:
        done: turns with changes, oldest first.
        undone: turns that were undone, in the order of undoing.
        is_whole: whether they reach back to the beginning of the conversation.
    """

    def __init__(
        self, folder: Path, store: Path, warn: Callable[[str], None], earlier: Sequence[Path] = ()
    ) -> None:
        self.done: list[TurnChanges] = []
        self.undone: list[TurnChanges] = []
        self._folder, self._store, self._warn = folder, store, warn
        self._git: HostGit | None = None
        self._seen: WorkingTree | None = None
        self._before = ""
        self._running = 0
        self._count_lock, self._index_lock = asyncio.Lock(), threading.Lock()
        self._turn = TurnChanges()
        self._left_out: set[str] = set()
        self._is_off = False
        self.is_whole = not earlier or any(map(self._continue, earlier))

    def begin_turn(self) -> None:
        """Start a turn, to which later changes of tools belong."""
        self.end_turn()
        self._turn = TurnChanges()

    def end_turn(self) -> None:
        """End the turn."""
        if self._turn.changes:
            self.done.append(self._turn)
            self.undone.clear()
            self._turn = TurnChanges()
            self._write()

    @asynccontextmanager
    async def around(self) -> AsyncIterator[None]:
        """Take a checkpoint before and after a tool. Simultaneous tools share one around all of them."""
        async with self._count_lock:
            if not self._running:
                self._before = await in_thread(self._try_snapshot)
            self._running += 1
        try:
            yield
        finally:
            # Also for a tool that was stopped, whose changes so far remain.
            await to_the_end(asyncio.ensure_future(self._leave()))

    async def _leave(self) -> None:
        async with self._count_lock:
            self._running -= 1
            if not self._running and self._before:
                await in_thread(self._note, self._before)

    def undo(self) -> Restored:
        """Undo the last turn; raise `WorkspaceError` if there is none."""
        self.end_turn()
        if not self.done:
            raise WorkspaceError(
                "there is nothing to undo: the model has changed no file in this conversation"
            )
        restored = self._apply(self.done[-1].reversed())
        self.undone.append(self.done.pop())
        self._write()
        return restored

    def redo(self) -> Restored:
        """Redo the turn that was undone last; raise `WorkspaceError` if there is none."""
        if not self.undone:
            raise WorkspaceError("there is nothing to redo")
        restored = self._apply(self.undone[-1])
        self.done.append(self.undone.pop())
        self._write()
        return restored

    def preview(self, *, redo: bool = False) -> str:
        """Return what `undo` or `redo` would change now, as a diff; empty if nothing."""
        self.end_turn()
        turns = self.undone if redo else self.done
        if not turns:
            return ""
        turn = turns[-1] if redo else turns[-1].reversed()
        return self._diff(self._applicable(turn)[0])

    def changed(self) -> str:
        """Return the remaining changes of the model in the whole conversation, as a diff."""
        whole = TurnChanges()
        for turn in (*self.done, self._turn):
            whole.add(turn.changes.values())
        return self._diff(whole.changes.values())

    def proposal(self, base: ChangeBase, *, everything: bool = False) -> FolderChange:
        """Return the remaining changes of the model in the whole conversation, as work for a clone.

        Args:
            everything: whether to include other changes in the folder since the base.

        Raises:
            WorkspaceError: there is nothing to propose, or tools and people changed the same lines.
        """
        if self._is_off and not everything:
            raise WorkspaceError(
                "not all that the model changed is recorded: /pr --all proposes the folder as it is"
            )
        turns = [turn.changes for turn in (*self.done, self._turn)]
        return ChangeMaker(self._store, self._repository().git_dir, base).make(turns, everything=everything)

    def close(self) -> None:
        """Close the checkpoints. They stay for a continued conversation if there are changes."""
        self.end_turn()
        self._is_off, self._git = True, None
        if self._store.exists() and not (self.done or self.undone):
            remove_folder(self._store)

    # -- from one conversation to the next -----------------------------------------------------------------------

    def _write(self) -> None:
        """Store the turns. If that fails, warn that the next conversation cannot undo them."""
        form = {
            "folder": str(self._folder.resolve()),
            "done": [_form(turn) for turn in self.done],
            "undone": [_form(turn) for turn in self.undone],
        }
        new = self._store / f"{_TURNS}.new"
        try:
            new.write_text(json.dumps(form), encoding="ascii")
            new.replace(self._store / _TURNS)
        except OSError as error:
            self._warn(f"after this conversation its changes cannot be undone any more: {error}")

    def _continue(self, earlier: Path) -> bool:
        """Continue the stored checkpoints of an earlier conversation in this folder. Return whether they are readable."""
        try:
            form = json.loads((earlier / _TURNS).read_text(encoding="ascii"))
            if form["folder"] != str(self._folder.resolve()):
                return False
            done, undone = ([_turn(turn) for turn in form[name]] for name in ("done", "undone"))
            shutil.copytree(earlier, self._store, copy_function=_copy_or_link)
        except FileNotFoundError:
            return False
        except (OSError, ValueError, KeyError, TypeError, AttributeError, shutil.Error):
            shutil.rmtree(self._store, ignore_errors=True)
            return False
        self.done, self.undone = done, undone
        self._git = HostGit(self._store, self._store / "git")
        return True

    # -- trees ---------------------------------------------------------------------------------------------------

    def _repository(self) -> HostGit:
        if self._git is None:
            with storage_errors(_DOING):
                self._store.mkdir(mode=_PRIVATE, parents=True)
            git_dir = self._store / "git"
            HostGit(self._store).run("init", "--quiet", "--bare", "--", str(git_dir), doing=_DOING)
            with storage_errors(_DOING):
                objects = locate(self._folder).home / ".git" / "objects"
                if objects.is_dir():
                    (git_dir / "objects" / "info" / "alternates").write_text(f"{objects}\n")
            self._git = HostGit(self._store, git_dir)
        return self._git

    @property
    def _files(self) -> WorkingTree:
        """The folder's files, byte for byte: line ends and the like are not converted."""
        if self._seen is None:
            self._seen = WorkingTree(self._repository(), self._folder, converts=False)
        return self._seen

    def _try_snapshot(self) -> str:
        """Return the tree of the folder as it is now; empty if that fails, with one warning."""
        if self._is_off:
            return ""
        try:
            return self._snapshot()
        except WorkspaceError as error:
            self._is_off = True
            self._warn(f"/undo cannot undo what the model changes from now on: {error}")
            return ""

    def _note(self, before: str) -> None:
        after = self._try_snapshot()
        if after and after != before:
            found = differences(self._repository(), before, after)
            self._turn.add(one for one in found if not one.has_submodule)

    def _snapshot(self) -> str:
        with self._index_lock:  # `/undo` while a subagent works
            return self._snapshot_alone()

    def _snapshot_alone(self) -> str:
        index = self._store / "index"
        found = self._files.scan(index)
        # Anything else, such as a repository, is left out.
        sizes = {path: status.st_size for path, status in (found.modified | found.new).items()}
        large = {path for path, size in sizes.items() if size > MOST_FILE_BYTES}
        if news := sorted(large - self._left_out):
            self._left_out |= large
            self._warn(f"/undo cannot restore files that are too large: {', '.join(news[:5])}")
        wanted = [path for path in sizes if path not in large]
        total = sum(sizes[path] for path in wanted)
        if total > MOST_NEW_BYTES:
            raise WorkspaceError(
                f"the folder has {total / 1e6:,.0f} MB of files, over {MOST_NEW_BYTES / 1e6:,.0f}"
            )
        stored = self._files.store(wanted, index)
        removed = {*found.removed, *large, *found.odd, *stored.refused} & found.index.keys()
        gone = [Change(path, found.index[path], None) for path in removed]
        here = [Change(path, None, entry) for path, entry in stored.entries.items()]
        self._files.change(index, [*gone, *here], doing=_DOING)
        return self._files.tree(index, doing=_DOING)

    # -- undo and redo --------------------------------------------------------------------------------------------

    def _applicable(self, wanted: TurnChanges) -> tuple[list[Change], list[str]]:
        """Return the changes that can be applied, and the paths that somebody else has changed since."""
        if self._is_off or not wanted.changes:
            return [], sorted(wanted.changes)
        git = self._repository()
        now = entries_at(git, self._snapshot(), wanted.changes)
        fits = [one for path, one in sorted(wanted.changes.items()) if now.get(path) == one.old]
        # A file cannot take the place of a folder, or be below a file, unless that is removed here too.
        with storage_errors(_RESTORING), ConfinedFolder(self._folder) as folder:
            fits = [one for one in fits if one.new is None or not self._is_blocked(folder, one.path, fits)]
        fitting = {one.path for one in fits}
        return fits, sorted(set(wanted.changes) - fitting)

    def _is_blocked(self, folder: ConfinedFolder, path: str, fits: Sequence[Change]) -> bool:
        removed = {one.path for one in fits if one.new is None}
        if folder.is_folder(path):
            return any(not entry.is_dir and below not in removed for below, entry in folder.walk(path))
        found = ((above, folder.find(above)) for above in folders_above(path) if above not in removed)
        return any(entry is not None and not entry.is_dir for _, entry in found)

    def _apply(self, wanted: TurnChanges) -> Restored:
        fits, kept = self._applicable(wanted)
        with storage_errors(_RESTORING), ConfinedFolder(self._folder) as folder:
            for one in fits:
                if one.new is None:
                    folder.remove_file(one.path)
                    _prune(folder, one.path)
            back = [(one.path, one.new) for one in fits if one.new is not None]
            contents = read_objects(
                self._repository(), [entry.object_id for _, entry in back], doing=_RESTORING
            )
            for (path, entry), content in zip(back, contents, strict=True):
                _put(folder, path, entry.mode, content)
        return Restored(tuple(one.path for one in fits), tuple(kept))

    def _diff(self, changes: Iterable[Change]) -> str:
        changes = list(changes)
        if not changes or self._is_off:
            return ""
        git, index, trees = self._repository(), self._store / "index.diff", []
        for entries in (
            [Change(one.path, None, one.old) for one in changes if one.old],
            [Change(one.path, None, one.new) for one in changes if one.new],
        ):
            with storage_errors(_DOING):
                index.unlink(missing_ok=True)
            change_index(git, index, entries, doing=_DOING)
            trees.append(write_tree(git, index, doing=_DOING))
        return diff(git, *trees).decode("utf-8", "replace")


def _prune(folder: ConfinedFolder, path: str) -> None:
    """Remove folders above a path that are now empty, as git does."""
    for above in folders_above(path):
        try:
            folder.remove_empty(above)
        except OSError:
            return


def _put(folder: ConfinedFolder, path: str, mode: str, content: bytes) -> None:
    """Write a file or link in place of what is there, with the permissions that git gives a new file."""
    folder.make_folder(os.path.dirname(path), _NEW_FOLDER_MODE)  # noqa: PTH120  a name of git's
    if mode == LINK_MODE or not folder.is_file(path):
        folder.remove(path)
    if mode == LINK_MODE:
        folder.make_link(path, content)
        return
    folder.write(path, content)
    if mode == _EXECUTABLE:
        permissions = folder.stat(path).mode & 0o777
        # Who may read it may run it.
        folder.chmod(path, permissions | (permissions & 0o444) >> 2)


def remove_old(folder: Path, is_alive: Callable[[str], bool]) -> None:
    """Remove the oldest stores below a folder until the rest fits, and stores without changes.

    Args:
        is_alive: returns whether the run that a store is named after is active.
    """
    with storage_errors("cannot look at the checkpoints"):
        stores = [store for store in folder.iterdir() if not is_alive(store.name)] if folder.is_dir() else []
        room = MOST_KEPT_BYTES
        for store in sorted(stores, key=lambda store: store.name, reverse=True):
            size = folder_size(store)
            if size > room or not (store / _TURNS).exists():
                remove_folder(store)
            else:
                room -= size


def _copy_or_link(source: str, target: str) -> str:
    """Copy a file; an immutable one, such as a git object, is linked instead."""
    if f"{os.sep}objects{os.sep}" in source and f"{os.sep}info{os.sep}" not in source:
        os.link(source, target)
        return target
    return shutil.copy2(source, target)


def _form(turn: TurnChanges) -> dict[str, list[list[str] | None]]:
    return {
        path: [None if entry is None else [entry.mode, entry.object_id] for entry in (one.old, one.new)]
        for path, one in turn.changes.items()
    }


def _turn(form: Any) -> TurnChanges:
    """Decode what `_form` made. Raise ValueError or similar if it is invalid, or a path leaves the folder."""
    changes = {}
    for path, (old, new) in form.items():
        if any(part in {"", ".", ".."} or is_git_name(part) for part in path.split("/")):
            raise ValueError(path)
        changes[path] = Change(path, _entry(old), _entry(new))
    return TurnChanges(changes)


def _entry(form: Any) -> TreeEntry | None:
    if form is None:
        return None
    mode, object_id = form
    if mode not in _MODES or not is_commit_id(object_id):
        raise ValueError(mode)
    return TreeEntry(mode, object_id)

"""The folder in which tests run, one at a time, and what is kept beside it for the next cycle.

<home>/before/<key>.json    the result of a base's run
<home>/<n>/lock             held by the process that runs tests in slot <n>
<home>/<n>/tree             the files of one run; a sandbox reaches nothing else
<home>/<n>/setups/<key>     the files that a set-up created; they may contain the slot's path, so no other slot uses them
<home>/<n>/lent             a copy of them that was part of the last run's tree, kept here between runs
<home>/<n>/lent.json        the stamps of that copy from before the last run; removed when it is read
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import posixpath
import re
import stat
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.bot.git.folders import remove_folder
from orchestrator.bot.verification.base import CaseResult, CaseStatus, RunKind, RunResult
from orchestrator.bot.verification.python_tests import ControlTest
from orchestrator.bot.verification.trees import folders_of
from orchestrator.core.errors import ToolError, WorkspaceError
from orchestrator.core.files import lock_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

_MOST_SLOTS = 32
_MOST_REPORTS = 5_000
_MOST_SETUPS = 3
"""Most cached set-ups of a slot; environments are large."""
_MOST_RESULTS = 100
_MOST_RESULT_BYTES = 50_000_000
_PRIVATE = 0o700
_COPY = ("cp", "-cRp") if sys.platform == "darwin" else ("cp", "-a", "--reflink=auto")
_TICK_NS = 20_000_000
"""Longer than the resolution of file times in any kernel."""
_WILDCARD = re.compile(r"[*?\[\\]")
_NOT_CACHED = frozenset({"__pycache__", ".pytest_cache", ".git"})
"""Not cached if they are in a folder of the repository: compiled files may be outdated for another commit."""


class Slot:
    """A slot held by this process until it is closed. It is not thread-safe.

    Attributes:
        tree: the folder in which files are run; the same path in every run.
        stamper: detects changed files.

    Raises:
        OSError: the folder cannot be written.
    """

    def __init__(self, home: Path, folder: Path, handle: int) -> None:
        self.tree = folder / "tree"
        self._home, self._folder, self._handle = home, folder, handle
        self._setups = folder / "setups"
        self.stamper = Stamper(by_content=not _detects_mapped_writes(folder / "probe"))
        self._lent = _ReusedFolders(folder / "lent", self.stamper)

    @classmethod
    def take(cls, home: Path) -> Slot:
        """Return the first slot that no other process holds.

        Raises:
            ToolError: no slot is free, or the disk is full.
        """
        try:
            home.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            for number in range(_MOST_SLOTS):
                folder = home / str(number)
                folder.mkdir(mode=_PRIVATE, exist_ok=True)
                try:
                    handle = lock_file(folder / "lock")
                except BlockingIOError:
                    continue
                slot = cls(home, folder, handle)
                if not slot._lent.load():
                    _remove(slot._lent.folder)
                slot._evict()
                return slot
        except OSError as error:
            raise _unusable(home, error) from error
        raise ToolError(
            f"{_MOST_SLOTS} processes are running tests of this repository; wait for one of them to end"
        )

    def close(self) -> None:
        """Remove the files of the last run and release the slot. It may be called again."""
        if self._handle < 0:
            return
        try:
            if not self._lent.save(self.tree):
                _remove(self._lent.folder)
            _remove(self.tree)
        finally:
            os.close(self._handle)
            self._handle = -1

    def empty(self) -> None:
        """Make `tree` an empty folder. Raise `ToolError` if it cannot be created."""
        try:
            self._lent.take_back(self.tree)
            _remove(self.tree)
            self.tree.mkdir(mode=_PRIVATE)
        except OSError as error:
            raise _unusable(self.tree, error) from error

    def matching(self, pattern: str) -> list[str]:
        """Return the files in `tree` that match a pattern as in `.gitignore`; none for an empty pattern.

        No link is followed, and nothing outside of `tree` is read.

        Raises:
            ToolError: more than 5,000 files match.
        """
        if not pattern:
            return []
        from pathspec import GitIgnoreSpec

        pattern = pattern.removeprefix("./").lstrip("/")
        spec = GitIgnoreSpec.from_lines([f"/{pattern}"])
        found: list[str] = []
        # All matches are in the folder that the pattern names before its first wildcard.
        top = self.tree
        for part in posixpath.dirname(_WILDCARD.split(pattern, maxsplit=1)[0]).split("/"):
            top /= part
            if part == ".." or not _is_folder(top):
                return []
        for folder, _, names in os.walk(top):
            inside = os.path.relpath(folder, self.tree)
            paths = (posixpath.normpath(posixpath.join(inside, name)) for name in names)
            found += filter(spec.match_file, paths)
            if len(found) > _MOST_REPORTS:
                raise ToolError(
                    f"more than {_MOST_REPORTS:,} files match the pattern of reports; set one that matches fewer"
                )
        return sorted(found)

    def has_setup(self, key: str) -> bool:
        """Return whether the result of a set-up is cached here."""
        return (self._setups / key).is_dir()

    def save_setup(self, key: str, tracked: Mapping[str, str]) -> None:
        """Move the files that a set-up created out of `tree`, into the cache.

        Args:
            key: identifies the inputs of the set-up.
            tracked: the repository's own paths in `tree`.

        Raises:
            ToolError: they cannot be moved.
        """
        draft = self._setups / f"{key}.new"
        try:
            self._lent.forget(key)
            _remove(draft)
            draft.mkdir(mode=_PRIVATE, parents=True)
            for path in _untracked(self.tree, tracked):
                target = draft / path
                target.parent.mkdir(parents=True, exist_ok=True)
                (self.tree / path).rename(target)
            draft.rename(self._setups / key)
        except OSError as error:
            raise _unusable(draft, error) from error
        self._evict()

    def restore_setup(self, key: str) -> None:
        """Put the files that a set-up created into `tree`. Files of the repository are not replaced.

        Raises:
            ToolError: they cannot be copied.
        """
        cached = self._setups / key
        try:
            with suppress(OSError):
                os.utime(cached)
            if self._lent.key != key:
                _remove(self._lent.folder)
            intact = self._lent.place(key, self.tree)
            copied = []
            for folder, names in _missing_entries(cached, self.tree, intact):
                _copy([cached / folder / name for name in names], self.tree / folder)
                copied += [path for name in names if _is_folder(self.tree / (path := _join(folder, name)))]
            self._lent.record(key, self.tree, intact, copied)
        except OSError as error:
            raise _unusable(self.tree, error) from error

    def load(self, key: str) -> tuple[RunResult, ControlTest | None] | None:
        """Return the result and control test that `save` cached; None if they are missing or damaged."""
        path = self._home / "before" / f"{key}.json"
        try:
            with path.open("rb") as file:
                data = json.loads(file.read(_MOST_RESULT_BYTES))
            os.utime(path)
        except (OSError, ValueError, RecursionError):
            return None
        return _decode(data)

    def save(self, key: str, result: RunResult, control: ControlTest | None) -> None:
        """Cache a base's result and its control test. Errors are ignored: then the base is run again."""
        folder = self._home / "before"
        draft = folder / f"{key}.{os.getpid()}"
        with suppress(OSError):
            folder.mkdir(mode=_PRIVATE, exist_ok=True)
            draft.write_text(json.dumps(_encode(result, control)), encoding="utf-8")
            draft.replace(folder / f"{key}.json")

    def _evict(self) -> None:
        """Remove the least recently used caches, and the drafts of processes that died."""
        with suppress(OSError):
            for path in self._setups.glob("*.new"):
                _remove(path)
        for path in _oldest(self._setups, _MOST_SETUPS):
            _remove(path)
        for path in _oldest(self._home / "before", _MOST_RESULTS):
            with suppress(OSError):
                path.unlink()


def _remove(folder: Path) -> None:
    try:
        remove_folder(folder)
    except (WorkspaceError, NotADirectoryError) as error:
        raise ToolError(f"the files of a test run could not be removed: {error}") from error


Stamp: TypeAlias = "tuple[int | str, ...]"
"""Mode, inode number, size, mtime, ctime, and digest of the content or an empty value.

For a folder only the mode, because its entries have stamps of their own.
"""


class Stamper:
    """Makes stamps of files. A file with the same stamp is unchanged, even if commands tried to hide a change.

    Only the kernel sets the time of a file's status change (ctime). Some file systems, such as tmpfs, do not
    update it when a file is written through shared memory (`mmap`); there the stamp includes the content.
    """

    def __init__(self, *, by_content: bool) -> None:
        self._by_content = by_content

    def folder(self, folder: Path) -> Iterator[tuple[str, Stamp]]:
        """Yield the stamps of a folder and of everything in it, by path. No link is followed.

        Raises:
            OSError: a part of it is not accessible.
        """
        pending = [""]
        while pending:
            inside = pending.pop()
            yield inside, self._stamp(folder / inside, os.lstat(folder / inside))
            with os.scandir(folder / inside) as entries:
                for entry in entries:
                    path = _join(inside, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(path)
                    else:
                        yield path, self._stamp(entry, entry.stat(follow_symlinks=False))

    def files(self, folder: Path, paths: Iterable[str]) -> dict[str, Stamp | None]:
        """Return the stamps of some files of a folder; None for missing ones."""
        found: dict[str, Stamp | None] = {}
        for path in paths:
            try:
                found[path] = self._stamp(folder / path, os.lstat(folder / path))
            except OSError:
                found[path] = None
        return found

    def _stamp(self, path: os.PathLike[str], found: os.stat_result) -> Stamp:
        if stat.S_ISDIR(found.st_mode):
            return found.st_mode, 0, 0, 0, 0, ""
        digest = ""
        if self._by_content and stat.S_ISREG(found.st_mode):
            with open(path, "rb") as file:  # noqa: PTH123  an entry of a folder
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        return found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, digest


def _detects_mapped_writes(probe: Path) -> bool:
    """Return whether the file system updates the times of a file that is written through shared memory.

    Raises:
        OSError: the file cannot be created.
    """
    probe.unlink(missing_ok=True)
    with probe.open("xb+") as file:
        file.write(b"0")
        file.flush()
        os.utime(file.fileno(), ns=(0, 0))
        with mmap.mmap(file.fileno(), 1) as shared:
            # Such file systems do not notice a write to a page that was read before.
            shared[0] = shared[0] + 1
        changed = os.fstat(file.fileno()).st_mtime_ns != 0
    probe.unlink()
    return changed


class _ReusedFolders:
    """Folders of a set-up that were part of a run's tree. The next run uses their unchanged parts.

    Attributes:
        folder: their place between two runs.
        key: the key of their set-up; empty if there are none.
    """

    def __init__(self, folder: Path, stamper: Stamper) -> None:
        self.folder, self._stamper = folder, stamper
        self.key = ""
        self._stamps: dict[str, dict[str, Stamp]] = {}  # of everything in a folder, by its path in the tree
        self._record_file = folder.with_name(f"{folder.name}.json")

    def forget(self, key: str) -> None:
        """Forget the folders of a set-up that is made again."""
        if self.key == key:
            self.key, self._stamps = "", {}

    def load(self) -> bool:
        """Load the record of an earlier process. Return False if there is none."""
        try:
            data = json.loads(self._record_file.read_bytes())
            self._record_file.unlink()
            self._stamps = {
                folder: {path: tuple(stamp) for path, stamp in stamps.items()}
                for folder, stamps in data["stamps"].items()
            }
            self.key = str(data["key"])
        except (OSError, ValueError, RecursionError, TypeError, LookupError, AttributeError):
            self._stamps = {}
        return bool(self._stamps)

    def save(self, tree: Path) -> bool:
        """Take the folders back and save their record. Return False if there are none, or the disk is full."""
        if not self._stamps:
            return False
        try:
            self.take_back(tree)
            self._record_file.write_text(
                json.dumps({"key": self.key, "stamps": self._stamps}), encoding="ascii"
            )
        except OSError:
            return False
        return True

    def take_back(self, tree: Path) -> None:
        """Move the folders out of a tree, after its commands have ended."""
        for path in self._stamps:
            target = self.folder / path
            # A run may have replaced the folder, or one above it, by a link.
            if _is_folder(tree / path) and _is_reached_without_links(tree, path):
                target.parent.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
                with suppress(OSError):  # a run may have made it inaccessible; then it is copied again
                    (tree / path).rename(target)

    def place(self, key: str, tree: Path) -> set[str]:
        """Move the folders of a set-up into a tree, without changed parts. Return those that are complete."""
        if key != self.key:
            self._stamps = {}
        intact = set()
        for path, stamps in self._stamps.items():
            source = self.folder / path
            if (
                _is_folder(source)
                and not os.path.lexists(tree / path)
                and _is_reached_without_links(tree, path)
            ):
                changed, is_complete = self._changes_in(source, stamps)
                for one in changed:
                    if _is_folder(one):
                        remove_folder(one)
                    else:
                        one.unlink(missing_ok=True)
                if is_complete:
                    intact.add(path)
                if source.exists():
                    source.rename(tree / path)
        return intact

    def record(self, key: str, tree: Path, intact: Collection[str], copied: Iterable[str]) -> None:
        """Record the stamps of the folders before a command runs in the tree.

        Args:
            tree: contains the folders.
            intact: folders that `place` found complete.
            copied: folders that were copied since.
        """
        known = self._stamps if self.key == key else {}
        inside = tuple(f"{path}/" for path in known)
        folders = [
            *(path for path in known if _is_folder(tree / path)),
            *(path for path in copied if path not in known and not path.startswith(inside)),
        ]
        fresh = {path: dict(self._stamper.folder(tree / path)) for path in folders if path not in intact}
        self.key, self._stamps = key, {path: fresh.get(path) or known[path] for path in folders}
        newest = max((int(stamp[4]) for stamps in fresh.values() for stamp in stamps.values()), default=0)
        # Wait for the clock's next tick, so that a later change has another time.
        time.sleep(min(max(0, newest + _TICK_NS - time.time_ns()), _TICK_NS) / 1e9)

    def _changes_in(self, folder: Path, stamps: Mapping[str, Stamp]) -> tuple[list[Path], bool]:
        """Return the changed and new files and folders, and whether all recorded ones are unchanged."""
        changed, same = [], 0
        try:
            for path, stamp in self._stamper.folder(folder):
                if stamps.get(path) == stamp:
                    same += 1
                else:
                    changed.append(folder / path)
        except OSError:  # a part that a run made inaccessible
            return [folder], False
        return changed, same == len(stamps)


def _copy(sources: list[Path], folder: Path) -> None:
    """Copy files, folders and links unchanged. Raise `ToolError` if copying failed."""
    copying = subprocess.run(  # noqa: S603  a copy of our own
        [*_COPY, "--", *map(str, sources), f"{folder}/"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if copying.returncode != 0:
        reason = copying.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise ToolError(f"the files of the set-up could not be copied: {' '.join(reason)[:300]}")


def _encode(result: RunResult, control: ControlTest | None) -> dict[str, Any]:
    cases = [asdict(case) for case in result.cases.values()]
    facts = {**asdict(replace(result, cases={}, flaky=frozenset())), "cases": cases, "flaky": []}
    return {"result": facts, "control": control and asdict(control)}


def _decode(data: Any) -> tuple[RunResult, ControlTest | None] | None:
    """Return the result and the control test of a cache file; None if it is damaged."""
    try:
        facts, control = data["result"], data["control"]
        cases: Iterable[CaseResult] = (
            CaseResult(**{**case, "status": CaseStatus(case["status"])}) for case in facts["cases"]
        )
        known = {**facts, "kind": RunKind.BEFORE, "flaky": frozenset(), "cached": True}
        result = RunResult(**{**known, "cases": {case.id: case for case in cases}})
        return result, control and ControlTest(
            control["folder"], (control["affixes"][0], control["affixes"][1])
        )
    except (TypeError, KeyError, ValueError, LookupError):
        return None


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _is_reached_without_links(tree: Path, path: str) -> bool:
    """Return whether the folder of a path exists and is not reached through a link."""
    parent = (tree / path).parent
    return parent.is_dir() and os.path.realpath(parent) == os.path.normpath(
        os.path.join(os.path.realpath(tree), os.path.dirname(path))  # noqa: PTH118, PTH120  names
    )


def _unusable(folder: Path, error: OSError) -> ToolError:
    return ToolError(f"tests cannot run in {folder}: {error.strerror or error}")


def _oldest(folder: Path, most: int) -> list[Path]:
    try:
        dated = sorted(((path.stat().st_mtime_ns, path) for path in folder.iterdir()), reverse=True)
    except OSError:
        return []
    return [path for _, path in dated[most:]]


def _untracked(tree: Path, tracked: Mapping[str, str]) -> list[str]:
    """Return the topmost paths that contain no file of the repository. No link is followed."""
    folders = folders_of(tracked)
    found: list[str] = []
    pending = [""]
    while pending:
        inside = pending.pop()
        with os.scandir(tree / inside) as entries:
            for entry in entries:
                path = _join(inside, entry.name)
                if path in folders and entry.is_dir(follow_symlinks=False):
                    pending.append(path)
                elif path not in tracked and path not in folders and entry.name not in _NOT_CACHED:
                    found.append(path)
    return found


def _missing_entries(kept: Path, tree: Path, intact: Collection[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield folders of `tree` with the entries of `kept` to copy into each: none for those in `intact`."""
    pending = [""]
    while pending:
        inside = pending.pop()
        names = []
        with os.scandir(kept / inside) as entries:
            for entry in entries:
                path = _join(inside, entry.name)
                if not os.path.lexists(tree / path):
                    names.append(entry.name)
                elif path not in intact and entry.is_dir(follow_symlinks=False) and _is_folder(tree / path):
                    pending.append(path)
        if names:
            yield inside, names


def _is_folder(path: Path) -> bool:
    """Return whether the path is a folder and not a link to one."""
    return path.is_dir() and not path.is_symlink()

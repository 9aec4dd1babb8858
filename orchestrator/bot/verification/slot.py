"""The folder in which tests run, one at a time, and what is kept beside it for the next cycle.

<home>/before/<key>.json    the result of a base's run
<home>/setup-output.txt     what the last set-up that failed printed
<home>/<n>/lock             held by the process that runs tests in slot <n>
<home>/<n>/tree             the files of one run; a sandbox reaches nothing else
<home>/<n>/setups/<key>     the files that a set-up created; they may contain the slot's path, so no other slot uses them
<home>/<n>/lent             a copy of them that was part of the last run's tree, kept here between runs
<home>/<n>/lent.json        the stamps of that copy from before the last run; removed when it is read
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.bot.verification.base import CaseResult, CaseStatus, RunKind, RunResult
from orchestrator.bot.verification.python_tests import ControlTest
from orchestrator.bot.verification.trees import folders_of
from orchestrator.core.confined import ConfinedFolder
from orchestrator.core.errors import ToolError
from orchestrator.core.files import detects_mapped_writes, lock_file
from orchestrator.engine.environments.patterns import path_test

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from orchestrator.core.confined import Entry

_SETUP_OUTPUT = "setup-output.txt"
_TREE, _SETUPS, _LENT, _RECORD, _BEFORE = "tree", "setups", "lent", "lent.json", "before"
_MOST_RECORD_BYTES = 1 << 30
_MOST_SLOTS = 32
_MOST_REPORTS = 5_000
_MOST_SETUPS = 3
"""Most cached set-ups of a slot; environments are large."""
_MOST_RESULTS = 100
_MOST_RESULT_BYTES = 50_000_000
_COPY = ("cp", "-cRp") if sys.platform == "darwin" else ("cp", "-a", "--reflink=auto")
_COPY_SECONDS = 600.0
_TICK_NS = 20_000_000
"""Longer than the resolution of file times in any kernel."""
_WILDCARD = re.compile(r"[*?\[\\]")
_NOT_CACHED = frozenset({"__pycache__", ".pytest_cache", ".git"})
"""Not cached if they are in a folder of the repository: compiled files may be outdated for another commit."""


class Slot:
    """A slot held by this process until it is closed. It is not thread-safe.

    A `ToolError` of a method means that no slot is free, more than 5,000 files match, or files cannot be moved or
    copied.

    Attributes:
        tree: the folder in which files are run; the same path in every run. This class opens it through `_box` alone.
        stamper: detects changed files.

    Raises:
        OSError: the folder cannot be written.
    """

    def __init__(self, home: Path, number: str, handle: int) -> None:
        self.tree, self._folder = home / number / _TREE, home
        self._home, self._box, self._handle = ConfinedFolder(home), ConfinedFolder(home / number), handle
        self.stamper = Stamper(self._box, by_content=not detects_mapped_writes(home / number / "probe"))
        self._lent = _ReusedFolders(self._box, self.stamper)

    @classmethod
    def take(cls, home: Path) -> Slot:
        """Return the first slot that no other process holds."""
        try:
            for number in map(str, range(_MOST_SLOTS)):
                ConfinedFolder.made(home / number).close()
                try:
                    handle = lock_file(home / number / "lock")
                except BlockingIOError:
                    continue
                slot = cls(home, number, handle)
                if not slot._lent.load():
                    _remove(slot._box, _LENT)
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
            if not self._lent.save():
                _remove(self._box, _LENT)
            _remove(self._box, _TREE)
        finally:
            self._box.close()
            self._home.close()
            os.close(self._handle)
            self._handle = -1

    def empty(self) -> None:
        """Make `tree` an empty folder. Raise `ToolError` if it cannot be created."""
        try:
            self._lent.take_back()
            _remove(self._box, _TREE)
            self._box.make_folder(_TREE)
        except OSError as error:
            raise _unusable(self.tree, error) from error

    def matching(self, pattern: str) -> list[str]:
        """Return the files in `tree` that match a pattern as in `.gitignore`; none for an empty pattern.

        No link is followed, and nothing outside of `tree` is read.
        """
        if not pattern:
            return []
        pattern = pattern.removeprefix("./").lstrip("/")
        is_wanted = path_test([f"/{pattern}"])
        found: list[str] = []
        # All matches are in the folder that the pattern names before its first wildcard.
        first = posixpath.dirname(_WILDCARD.split(pattern, maxsplit=1)[0])
        if ".." in first.split("/") or not self._box.is_folder(top := _join(_TREE, first)):
            return []
        try:
            for path, entry in self._box.walk(top, on_error=lambda _path, _error: None):
                inside = path.removeprefix(f"{_TREE}/")
                if not entry.is_dir and is_wanted(inside):
                    found.append(inside)
                if len(found) > _MOST_REPORTS:
                    break
        except OSError as error:
            raise ToolError(f"the reports cannot be looked for: {error.strerror or error}") from error
        if len(found) > _MOST_REPORTS:
            raise ToolError(
                f"more than {_MOST_REPORTS:,} files match the pattern of reports; set one that matches fewer"
            )
        return sorted(found)

    def has_setup(self, key: str) -> bool:
        """Return whether the result of a set-up is cached here."""
        return self._box.is_folder(f"{_SETUPS}/{key}")

    def save_setup(self, key: str, tracked: Mapping[str, str]) -> None:
        """Move the files that a set-up created out of `tree`, into the cache.

        Args:
            key: identifies the inputs of the set-up.
            tracked: the repository's own paths in `tree`.
        """
        draft = f"{_SETUPS}/{key}.new"
        try:
            self._lent.forget(key)
            _remove(self._box, draft)
            self._box.make_folder(draft)
            for path in _untracked(self._box, tracked):
                self._box.make_folder(posixpath.dirname(f"{draft}/{path}"))
                self._box.rename(f"{_TREE}/{path}", f"{draft}/{path}")
            self._box.rename(draft, f"{_SETUPS}/{key}")
        except OSError as error:
            raise _unusable(self._box.path / draft, error) from error
        self._evict()

    def restore_setup(self, key: str) -> None:
        """Put the files that a set-up created into `tree`. Files of the repository are not replaced."""
        box, cached = self._box, f"{_SETUPS}/{key}"
        try:
            with suppress(OSError):
                box.touch(cached)
            if self._lent.key != key:
                _remove(box, _LENT)
            intact = self._lent.place(key)
            copied = []
            for folder, names in _missing_entries(box, cached, intact):
                _copy([box.path / cached / folder / name for name in names], self.tree / folder)
                paths = [_join(folder, name) for name in names]
                copied += [path for path in paths if box.is_folder(f"{_TREE}/{path}")]
            self._lent.record(key, intact, copied)
        except OSError as error:
            raise _unusable(self.tree, error) from error

    def load(self, key: str) -> tuple[RunResult, ControlTest | None] | None:
        """Return the result and control test that `save` cached; None if they are missing or damaged."""
        path = f"{_BEFORE}/{key}.json"
        try:
            data = json.loads(self._home.read(path, _MOST_RESULT_BYTES))
            self._home.touch(path)
        except (OSError, ValueError, RecursionError):
            return None
        return _decode(data)

    def save(self, key: str, result: RunResult, control: ControlTest | None) -> None:
        """Cache a base's result and its control test. Errors are ignored: then the base is run again."""
        with suppress(OSError):
            self._home.make_folder(_BEFORE)
            self._home.write(f"{_BEFORE}/{key}.json", json.dumps(_encode(result, control)).encode())

    def keep_output(self, output: str) -> str:
        """Keep the whole output of a set-up that failed, in place of an older one. Return its path; empty on an error."""
        with suppress(OSError):
            self._home.write(_SETUP_OUTPUT, output.encode("utf-8", "replace"))
            return str(self._folder / _SETUP_OUTPUT)
        return ""

    def _evict(self) -> None:
        """Remove the least recently used caches, and the drafts of processes that died."""
        with suppress(OSError):
            for entry in self._box.entries(_SETUPS):
                if entry.name.endswith(".new"):
                    _remove(self._box, f"{_SETUPS}/{entry.name}")
        for path in _oldest(self._box, _SETUPS, _MOST_SETUPS):
            _remove(self._box, path)
        for path in _oldest(self._home, _BEFORE, _MOST_RESULTS):
            with suppress(OSError):
                self._home.remove(path)


def _remove(box: ConfinedFolder, path: str) -> None:
    try:
        box.remove(path)
    except OSError as error:
        raise ToolError(
            f"the files of a test run in {box.path / path} could not be removed: {error.strerror or error}; "
            "remove them by hand"
        ) from error


Stamp: TypeAlias = "tuple[int | str, ...]"
"""Mode, inode number, size, mtime, ctime, and digest of the content or an empty value.

For a folder only the mode, because its entries have stamps of their own.
"""


class Stamper:
    """Makes stamps of files. A file with the same stamp is unchanged, even if commands tried to hide a change.

    Only the kernel sets the time of a file's status change (ctime). Some file systems, such as tmpfs, do not
    update it when a file is written through shared memory (`mmap`); there the stamp includes the content.
    """

    def __init__(self, box: ConfinedFolder, *, by_content: bool) -> None:
        self._box, self._by_content = box, by_content

    def folder(self, folder: str) -> Iterator[tuple[str, Stamp]]:
        """Yield the stamps of a folder of the slot and of everything in it, by path. No link is followed."""
        yield "", self._stamp(folder, self._box.stat(folder))
        for path, entry in self._box.walk(folder):
            yield path.removeprefix(f"{folder}/"), self._stamp(path, entry)

    def files(self, paths: Iterable[str]) -> dict[str, Stamp | None]:
        """Return the stamps of some files of the tree; None for missing ones."""
        found: dict[str, Stamp | None] = {}
        for path in paths:
            try:
                found[path] = self._stamp(f"{_TREE}/{path}", self._box.stat(f"{_TREE}/{path}"))
            except OSError:
                found[path] = None
        return found

    def _stamp(self, path: str, entry: Entry) -> Stamp:
        found = entry.status
        if entry.is_dir:
            return found.st_mode, 0, 0, 0, 0, ""
        digest = ""
        if self._by_content and entry.is_file:
            digest = self._box.digest(path)
        return found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, digest


class _ReusedFolders:
    """Folders of a set-up that were part of a run's tree. The next run uses their unchanged parts.

    Attributes:
        key: the key of their set-up; empty if there are none.
    """

    def __init__(self, box: ConfinedFolder, stamper: Stamper) -> None:
        self._box, self._stamper = box, stamper
        self.key = ""
        self._stamps: dict[str, dict[str, Stamp]] = {}  # of everything in a folder, by its path in the tree

    def forget(self, key: str) -> None:
        """Forget the folders of a set-up that is made again."""
        if self.key == key:
            self.key, self._stamps = "", {}

    def load(self) -> bool:
        """Load the record of an earlier process. Return False if there is none."""
        try:
            data = json.loads(self._box.read(_RECORD, _MOST_RECORD_BYTES))
            self._box.remove(_RECORD)
            self._stamps = {
                folder: {path: tuple(stamp) for path, stamp in stamps.items()}
                for folder, stamps in data["stamps"].items()
            }
            self.key = str(data["key"])
        except (OSError, ValueError, RecursionError, TypeError, LookupError, AttributeError):
            self._stamps = {}
        return bool(self._stamps)

    def save(self) -> bool:
        """Take the folders back and save their record. Return False if there are none, or the disk is full."""
        if not self._stamps:
            return False
        try:
            self.take_back()
            record = json.dumps({"key": self.key, "stamps": self._stamps})
            self._box.write(_RECORD, record.encode("ascii"))
        except OSError:
            return False
        return True

    def take_back(self) -> None:
        """Move the folders out of the tree, after its commands have ended."""
        for path in self._stamps:
            # A run may have replaced the folder, or one above it, by a link.
            if self._box.is_folder(f"{_TREE}/{path}"):
                self._box.make_folder(posixpath.dirname(f"{_LENT}/{path}"))
                with suppress(OSError):  # a run may have made it inaccessible; then it is copied again
                    self._box.rename(f"{_TREE}/{path}", f"{_LENT}/{path}")

    def place(self, key: str) -> set[str]:
        """Move the folders of a set-up into the tree, without changed parts. Return those that are complete."""
        if key != self.key:
            self._stamps = {}
        intact = set()
        for path, stamps in self._stamps.items():
            source, target = f"{_LENT}/{path}", f"{_TREE}/{path}"
            if (
                self._box.is_folder(source)
                and self._box.is_folder(posixpath.dirname(target))
                and not self._box.exists(target)
            ):
                changed, is_complete = self._changes_in(source, stamps)
                for one in changed:
                    self._box.remove(one)
                if is_complete:
                    intact.add(path)
                if self._box.exists(source):
                    self._box.rename(source, target)
        return intact

    def record(self, key: str, intact: Collection[str], copied: Iterable[str]) -> None:
        """Record the stamps of the folders before a command runs in the tree.

        Args:
            intact: folders that `place` found complete.
            copied: folders that were copied since.
        """
        known = self._stamps if self.key == key else {}
        inside = tuple(f"{path}/" for path in known)
        folders = [
            *(path for path in known if self._box.is_folder(f"{_TREE}/{path}")),
            *(path for path in copied if path not in known and not path.startswith(inside)),
        ]
        fresh = {
            path: dict(self._stamper.folder(f"{_TREE}/{path}")) for path in folders if path not in intact
        }
        self.key, self._stamps = key, {path: fresh.get(path) or known[path] for path in folders}
        newest = max((int(stamp[4]) for stamps in fresh.values() for stamp in stamps.values()), default=0)
        # Wait for the clock's next tick, so that a later change has another time.
        time.sleep(min(max(0, newest + _TICK_NS - time.time_ns()), _TICK_NS) / 1e9)

    def _changes_in(self, folder: str, stamps: Mapping[str, Stamp]) -> tuple[list[str], bool]:
        """Return the changed and new files and folders, and whether all recorded ones are unchanged."""
        changed, same = [], 0
        try:
            for path, stamp in self._stamper.folder(folder):
                if stamps.get(path) == stamp:
                    same += 1
                else:
                    changed.append(_join(folder, path))
        except OSError:  # a part that a run made inaccessible
            return [folder], False
        return changed, same == len(stamps)


def _copy(sources: list[Path], folder: Path) -> None:
    """Copy files, folders and links unchanged. Raise `ToolError` if copying failed."""
    try:
        copying = subprocess.run(  # noqa: S603  a copy of our own
            [*_COPY, "--", *map(str, sources), f"{folder}/"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_COPY_SECONDS,
        )
    except subprocess.TimeoutExpired:
        message = f"the files of the set-up were not copied within {_COPY_SECONDS:.0f} s"
        raise ToolError(message) from None
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
    return "/".join(filter(None, (folder, name)))


def _unusable(folder: Path, error: OSError) -> ToolError:
    return ToolError(f"tests cannot run in {folder}: {error.strerror or error}")


def _oldest(box: ConfinedFolder, folder: str, most: int) -> list[str]:
    try:
        dated = sorted(((one.modified_ns, one.name) for one in box.entries(folder)), reverse=True)
    except OSError:
        return []
    return [f"{folder}/{name}" for _, name in dated[most:]]


def _untracked(box: ConfinedFolder, tracked: Mapping[str, str]) -> list[str]:
    """Return the topmost paths in the tree that contain no file of the repository. No link is followed."""
    folders = folders_of(tracked)
    found: list[str] = []
    pending = [""]
    while pending:
        inside = pending.pop()
        for entry in box.entries(_join(_TREE, inside)):
            path = _join(inside, entry.name)
            if path in folders and entry.is_dir:
                pending.append(path)
            elif path not in tracked and path not in folders and entry.name not in _NOT_CACHED:
                found.append(path)
    return found


def _missing_entries(
    box: ConfinedFolder, kept: str, intact: Collection[str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield folders of the tree with the entries of `kept` to copy into each: none for those in `intact`."""
    pending = [""]
    while pending:
        inside = pending.pop()
        names = []
        for entry in box.entries(_join(kept, inside)):
            path = _join(inside, entry.name)
            present = box.find(f"{_TREE}/{path}")
            if present is None:
                names.append(entry.name)
            elif path not in intact and entry.is_dir and present.is_dir:
                pending.append(path)
        if names:
            yield inside, names

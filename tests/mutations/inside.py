"""Runs in each process that imports the program from the copy of the tree: imports the woven modules.

It is executed as a text, behind the copy's `orchestrator/__init__.py`, and is no module there: what looks at the
imported modules sees none more. `FOLDER` is the run's, with a folder `woven` of code objects and `playing`, where a
process that plays tests has a folder with its number. What a test starts finds it above itself in the process tree.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import marshal
import os
import struct
import sys

FOLDER: str = globals()["FOLDER"]


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        with open(f"{FOLDER}/woven/{fullname}", "rb") as file:  # noqa: PTH123  quick
            return marshal.load(file)  # noqa: S302  our own


class _Finder:
    def __init__(self) -> None:
        self._names = frozenset(os.listdir(f"{FOLDER}/woven"))  # noqa: PTH208  quick

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, ARG002
        if name not in self._names:
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)
        if found is None or found.origin is None:
            return found
        return importlib.util.spec_from_file_location(
            name,
            found.origin,
            loader=_Loader(name, found.origin),
            submodule_search_locations=found.submodule_search_locations,
        )


class Mutant:
    """Whether a place's mutation is played, and which places were reached."""

    def __init__(self) -> None:
        self.reached: set[int] = set()
        self._active: int | None = None
        self._file = ""
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def __call__(self, number: int) -> bool:
        """Note that a place was reached; return whether its mutation is played."""
        if number not in self.reached:
            self._note(number)
        return number == self._active

    def _forget(self) -> None:
        self.reached.clear()
        self._active, self._file = None, ""

    def _note(self, number: int) -> None:
        if self._active is None:
            self._look()
        self.reached.add(number)
        if self._file:
            try:
                with open(self._file, "ab") as file:  # noqa: PTH123  quick
                    file.write(struct.pack("<i", number))
            except OSError:  # a sandbox
                self._file = ""

    def _look(self) -> None:
        """Find the folder of the process above that plays tests. Its own set is read by that process itself."""
        process, self._active = os.getpid(), -1
        while process > 1:
            folder = f"{FOLDER}/playing/{process}"
            try:
                with open(f"{folder}/active", encoding="ascii") as file:  # noqa: PTH123  quick
                    self._active = int(file.read())
            except OSError:
                process = _parent(process)
            else:
                self._file = "" if process == os.getpid() else f"{folder}/reached"
                return


def _parent(process: int) -> int:
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:  # noqa: PTH123  quick
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


builtins.__mutant__ = Mutant()  # type: ignore[attr-defined]
sys.meta_path.insert(0, _Finder())

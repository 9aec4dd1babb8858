"""A disk that forgets at a power cut what was not synced: a model of it, fed with the system calls of a real program.

A content is on the disk once its file was synced after the last write, and a name once its folder was synced after the
last change of the name (POSIX promises no more: fsync(2), "also fsync the directory").
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_CALLS = (
    *("openat", "creat", "write", "pwrite64", "writev", "ftruncate", "fsync", "fdatasync"),
    *("rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir"),
)
_LINE = re.compile(r"(\d+) +(?:<\.\.\. )?(\w+)(?: resumed>)?\(?(.*)")
_FILE = re.compile(r"^\d+<([^>]*)>")
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_OPENED = re.compile(r"= \d+<([^>]*)>")

needs_tracing = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a thread that succeeded, with the paths that it is about, and the beginning of what it wrote."""

    thread: str
    name: str
    paths: tuple[str, ...]
    text: str = ""
    creates: bool = False


def traced(command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> list[Call]:
    """Run a program, and return the calls of its process and of all that it started, in their order."""
    log = folder / "calls.txt"
    words = [
        "strace",
        "-f",
        "-y",
        "-qq",
        "-z",
        "-s",
        "160",
        "-e",
        f"trace={','.join(_CALLS)}",
        "-o",
        str(log),
    ]
    done = subprocess.run([*words, *command], env=dict(environ), capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    return list(_calls(log))


def _calls(log: Path) -> Iterator[Call]:
    begun: dict[str, str] = {}
    for line in log.read_text("utf-8", "replace").splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        pid, name, rest = found[1], found[2], found[3]
        if rest.endswith("<unfinished ...>"):
            begun[pid] = rest
            continue
        if "resumed>" in line:
            rest = begun.pop(pid, "") + rest
        if name.startswith("open") or name == "creat":
            opened = _OPENED.search(rest)
            if opened is not None:
                yield Call(pid, "open", (opened[1],), creates="O_CREAT" in rest or name == "creat")
        elif on := _FILE.match(rest):
            text = rest[on.end() :]
            if name.endswith("at") or name == "renameat2":  # below a folder that is open
                continue
            yield Call(pid, name, (on[1],), text)
        else:
            yield Call(pid, name, tuple(_TEXT.findall(rest)))


@dataclass(slots=True)
class Disk:
    """What would be lost by a power cut now, below a folder.

    Attributes:
        contents: files that were written since they were synced.
        names: files and folders that were made or renamed since their folder was synced.
    """

    root: str
    contents: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    _known: set[str] = field(default_factory=set)

    def take(self, call: Call) -> None:
        """Add the next call."""
        paths = tuple(path for path in call.paths if path.startswith(self.root))
        if not paths:
            return
        path = paths[-1]
        match call.name:
            case "open" if call.creates and path not in self._known:
                self._known.add(path)
                self.names.add(path)
            case "mkdir":
                self._known.add(path)
                self.names.add(path)
            case "write" | "pwrite64" | "writev" | "ftruncate":
                self.contents.add(path)
            case "fsync" | "fdatasync":
                self.contents.discard(path)
                self.names = {one for one in self.names if one.rpartition("/")[0] != path}
            case "rename" | "renameat" | "renameat2" | "link":
                source = paths[0]
                if source in self.contents:
                    self.contents.add(path)
                else:
                    self.contents.discard(path)
                self._known.add(path)
                self.names.add(path)
                if call.name != "link":
                    self._forget(source)
            case "unlink" | "rmdir":
                self._forget(path)
            case _:
                pass

    def lost(self, but: str = r"$.") -> list[str]:
        """Return what would be lost, without what matches a pattern, from the root on."""
        found = {path.removeprefix(self.root) for path in (*self.contents, *self.names)}
        return sorted(path for path in found if re.search(but, path) is None)

    def _forget(self, path: str) -> None:
        self._known.discard(path)
        self.contents.discard(path)
        self.names.discard(path)

"""Whether a file can still be read by what its name promises: Python, JSON or TOML. Nothing of it is run."""

from __future__ import annotations

import json
import re
import sys
import threading
import tomllib
import warnings
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from orchestrator.core.changes import LINK_MODE, SUBMODULE_MODE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orchestrator.core.changes import FileChange, FileVersion

Parsed = TypeVar("Parsed")

MAX_BYTES = 500_000
"""Of a file that is looked at; a larger one would take a second and more."""

_MOST_DOTS = 200
"""In one line of TOML: `tomllib` takes memory by the square of the parts of a key."""

_MAX_TEXT_CHARS = 160
_MARK = "\ufeff"
_ENCODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.MULTILINE)
"""https://docs.python.org/3/reference/lexical_analysis.html#encoding-declarations"""
_UTF_8 = re.compile(rb"utf[-_]?8", re.IGNORECASE)
_WITH_COMMENTS = re.compile(
    r"(?:^|/)(?:[tj]sconfig[^/]*|devcontainer|tslint|\.[^/]*rc|api-extractor|\.?jsbeautifyrc)\.json$|(?:^|/)\.(?:vscode|devcontainer)/"
)
"""JSON files whose readers allow comments: https://code.visualstudio.com/docs/languages/json#_json-with-comments"""

_WARNINGS = threading.Lock()
"""The list of filters that `catch_warnings` changes and puts back is one for all threads."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a file cannot be read.

    Attributes:
        path: the file.
        language: with the version where that matters.
        line: from 1; 0 where none is known.
        text: of that line, without blanks around it; of a long one, the beginning.
        reason: the parser's words.
    """

    path: str
    language: str
    line: int
    text: str
    reason: str

    def __str__(self) -> str:
        """In one line: the file, the line and its text, and what is wrong."""
        where = f" at line {self.line}, {self.text!r}" if self.line else ""
        path = self.path.encode("utf-8", "backslashreplace").decode()
        return f"{path} cannot be read as {self.language}{where}: {self.reason}"


class _Refused(Exception):  # noqa: N818  never leaves this module
    """What a parser found wrong, and in which line."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


def newly_unreadable(path: str, before: bytes | None, after: bytes) -> Unreadable | None:
    """What is wrong with a file that could be read before it was changed, or is new, and cannot be read now.

    A file of another kind, one over `MAX_BYTES` and one that no parser gets to the end of are not judged.

    Args:
        path: its suffix says how it is read.
        before: None where the file is new.
        after: what it holds now.
    """
    problem = _problem(path, after)
    if problem is None or (before is not None and not _is_readable(path, before)):
        return None
    return problem


def unreadable_files(changes: Iterable[FileChange]) -> list[Unreadable]:
    """The files of a change that could be read before it, or are new, and cannot be read after it.

    A new file is taken for one that was removed and had its name or its text, so that a file that moved
    is not taken for a new one.
    """
    known = tuple(changes)
    removed = [change for change in known if change.new is None]
    found = []
    for change in known:
        after = _regular(change.new)
        if after is None:
            continue
        before = _regular(change.old)
        if change.old is None:
            name = PurePosixPath(change.path).name
            origins = (_regular(one.old) for one in removed if PurePosixPath(one.path).name == name)
            same = (_regular(one.old) for one in removed)
            before = next(filter(None, origins), None) or next((data for data in same if data == after), None)
        if (problem := newly_unreadable(change.path, before, after)) is not None:
            found.append(problem)
    return found


def _regular(version: FileVersion | None) -> bytes | None:
    """The content of a file. None for a link, a submodule, and a file that was not read."""
    if version is None or version.mode in {LINK_MODE, SUBMODULE_MODE}:
        return None
    return version.content


def without_warnings(parse: Callable[[], Parsed]) -> Parsed:
    """Call a parser of Python. Its warnings about the source are not ours."""
    with _WARNINGS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return parse()


def _is_readable(path: str, data: bytes) -> bool:
    return len(data) <= MAX_BYTES and _problem(path, data) is None


def _problem(path: str, data: bytes) -> Unreadable | None:
    found = _LANGUAGES.get(PurePosixPath(path).suffix.lower())
    if found is None or len(data) > MAX_BYTES or _WITH_COMMENTS.search(path):
        return None
    language, read = found
    try:
        read(_text(data, language))
    except _Refused as refused:
        lines = re.split(r"\r\n|\n|\r", data.decode("utf-8", "replace").removeprefix(_MARK))
        at = min(max(refused.line, 0), len(lines))
        text = lines[at - 1].strip()[:_MAX_TEXT_CHARS] if at else ""
        return Unreadable(path, language, at, text, refused.reason)
    except (ValueError, RecursionError, MemoryError, OverflowError, SystemError):
        return None  # nested too deeply, or a number too long: nobody says that it is wrong
    return None


def _text(data: bytes, language: str) -> str:
    """The text of a file.

    Raises:
        _Refused: it is not UTF-8, and nothing says that it should be something else.
        ValueError: it is in an encoding of its own.
    """
    if language == _PYTHON:
        named = _ENCODING.search(b"\n".join(data.split(b"\n", 2)[:2]))
        if named is not None and not _UTF_8.match(named[1]):
            raise ValueError("not UTF-8")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _Refused(f"it is not UTF-8: byte {data[error.start]:#04x}", line) from None
    return text.removeprefix(_MARK)


def _read_python(text: str) -> None:
    if "\0" in text:
        raise _Refused("it has a NUL character", text.count("\n", 0, text.index("\0")) + 1)
    try:
        without_warnings(lambda: compile(text, "<a changed file>", "exec", dont_inherit=True))
    except SyntaxError as error:
        raise _Refused(error.msg or "invalid syntax", error.lineno or 0) from None


def _read_json(text: str) -> None:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise _Refused(error.msg, error.lineno) from None


def _read_toml(text: str) -> None:
    if any(line.count(".") > _MOST_DOTS for line in text.split("\n")):
        raise ValueError("a key may be too long")
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at line (\d+), column \d+\)$", str(error))
        last = len(text.rstrip().splitlines())
        raise _Refused(str(error), int(place[1]) if place else last) from None


_PYTHON = f"Python {sys.version_info.major}.{sys.version_info.minor}"
_LANGUAGES: dict[str, tuple[str, Callable[[str], None]]] = {
    ".py": (_PYTHON, _read_python),
    ".pyi": (_PYTHON, _read_python),
    ".json": ("JSON", _read_json),
    ".ipynb": ("JSON", _read_json),
    ".toml": ("TOML", _read_toml),
}

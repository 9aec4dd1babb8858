"""Checks whether a file can still be parsed as its name promises: Python, JSON or TOML. No code of it is run."""

from __future__ import annotations

import ast
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
"""The limit of a file that is checked; a larger one would take more than a second."""

_MOST_COMPILED_CHARS = 32_000
"""The limit of Python that is compiled, and not only parsed: the compiler compares all functions that look alike, and
no other thread runs meanwhile."""
_MOST_DOTS = 200
"""The limit in one line of TOML: `tomllib` needs memory quadratic in the number of parts of a key."""

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
"""Guards the list of warning filters, which `catch_warnings` changes and restores for all threads."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The reason why a file cannot be parsed.

    Attributes:
        language: the language, with its version where that matters.
        line: number of the line, from 1; 0 if unknown.
        text: text of that line, without blanks around it and shortened.
    """

    path: str
    language: str
    line: int
    text: str
    reason: str

    def __str__(self) -> str:
        """Return one line: the file, the line and its text, and the reason."""
        where = f" at line {self.line}, {self.text!r}" if self.line else ""
        path = self.path.encode("utf-8", "backslashreplace").decode()
        return f"{path} cannot be read as {self.language}{where}: {self.reason}"


class _Refused(Exception):  # noqa: N818  never leaves this module
    """A parser's message, and the line it is about."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


def newly_unreadable(path: str, before: bytes | None, after: bytes) -> Unreadable | None:
    """Return why a changed or new file cannot be parsed, unless it could not be parsed before either.

    None for a file of another kind, for one over `MAX_BYTES`, and for one that no parser can read to the end.

    Args:
        path: its suffix determines the language.
        before: previous content; None for a new file.
        after: content now.
    """
    problem = _problem(path, after)
    if problem is None or before is None:
        return problem
    was_readable = len(before) <= MAX_BYTES and _problem(path, before) is None
    return problem if was_readable else None


def unreadable_files(changes: Iterable[FileChange]) -> list[Unreadable]:
    """Return the files of a change that cannot be parsed after it, but could be before or are new.

    A new file is compared with a removed file of the same name or the same content, so that a moved file does
    not count as new.
    """
    known = tuple(changes)
    removed = [(PurePosixPath(one.path).name, _regular(one.old)) for one in known if one.new is None]
    found = []
    for change in known:
        after = _regular(change.new)
        if after is None:
            continue
        before = _regular(change.old)
        if change.old is None:
            name = PurePosixPath(change.path).name
            same_name = (data for removed_name, data in removed if data and removed_name == name)
            same_content = (data for _, data in removed if data == after)
            before = next(same_name, None) or next(same_content, None)
        if (problem := newly_unreadable(change.path, before, after)) is not None:
            found.append(problem)
    return found


def _regular(version: FileVersion | None) -> bytes | None:
    """Return the content of a file; None for a link, a submodule, and a file that was not read."""
    if version is None or version.mode in {LINK_MODE, SUBMODULE_MODE}:
        return None
    return version.content


def without_warnings(parse: Callable[[], Parsed]) -> Parsed:
    """Call a Python parser, and ignore its warnings about the source."""
    with _WARNINGS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return parse()


def _problem(path: str, data: bytes) -> Unreadable | None:
    language, parse = _LANGUAGES.get(PurePosixPath(path).suffix.lower(), ("", None))
    if parse is None or len(data) > MAX_BYTES or _WITH_COMMENTS.search(path):
        return None
    try:
        parse(_text(data, language))
    except _Refused as refused:
        lines = re.split(r"\r\n|\n|\r", data.decode("utf-8", "replace").removeprefix(_MARK))
        at = min(max(refused.line, 0), len(lines))
        text = lines[at - 1].strip()[:_MAX_TEXT_CHARS] if at else ""
        return Unreadable(path, language, at, text, refused.reason)
    except (ValueError, RecursionError, MemoryError, OverflowError, SystemError):
        return None  # nested too deeply, or a number too long: it may still be valid
    return None


def _text(data: bytes, language: str) -> str:
    """Decode the text of a file."""
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
        # Compiling finds more mistakes, such as a `return` in no function.
        flags = 0 if len(text) <= _MOST_COMPILED_CHARS else ast.PyCF_ONLY_AST
        without_warnings(lambda: compile(text, "<a changed file>", "exec", flags, dont_inherit=True))
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

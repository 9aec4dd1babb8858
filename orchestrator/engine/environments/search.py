"""Searches a tree: `grep` with or without ripgrep, and `glob`.

Ripgrep finds candidates quickly. `.gitignore` rules and file patterns are evaluated here, so that a search
gives the same answers with ripgrep and without it. Format of its output:
https://docs.rs/grep-printer/latest/grep_printer/struct.JSON.html.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import re
import shutil
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.core.encodings import as_declared, shifted_encoding, sure_encoding
from orchestrator.core.errors import FileUnreadableError, ToolError
from orchestrator.core.repositories import is_git_name
from orchestrator.engine.environments.base import GrepMatch
from orchestrator.engine.environments.commands import start_program
from orchestrator.engine.environments.declared_encodings import DeclaredEncodings
from orchestrator.engine.environments.files import shown
from orchestrator.engine.environments.limited_child import in_child
from orchestrator.engine.environments.patterns import IgnoreRules, PathPattern, walk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from orchestrator.engine.environments.base import GrepOptions
    from orchestrator.engine.environments.files import ConfinedTree

_TIME_LIMIT_SECONDS = 20.0
_MAX_FILE_BYTES = 50_000_000
_MAX_LINE_CHARS = 500
_MAX_JSON_LINE_BYTES = 4 * _MAX_FILE_BYTES
"""The part of a line of ripgrep's output that is kept. A match whose text does not fit is skipped."""

_SUBMATCHES = b',"absolute_offset":'
"""The text after which ripgrep lists each match in the line, maybe millions.

It cannot occur in the text of the line itself, where quotes are escaped.
"""

_CHUNK_BYTES = 65_536
_BATCH_CHARS = 4_000_000
_LINE_COST_CHARS = 100
_NO_MATCH = 1
_PLAIN_NAME = re.compile(r"[\w.-]+")
_MOST_LOOKED_FOLDERS = 500
_PLAIN_NAME_PATTERN = re.compile(r"[\w.*-]+")
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def find_ripgrep() -> str | None:
    """Return the `rg` program on the path or beside the running Python, or None."""
    beside = Path(sys.executable).parent / "rg"
    return shutil.which("rg") or (str(beside) if beside.is_file() else None)


def glob_files(tree: ConfinedTree, pattern: str, path: str) -> list[str]:
    """Return the files below a folder whose path relative to it matches; newest first, without ignored files."""
    wanted = PathPattern.for_paths(pattern)
    base = tree.split(path)
    deadline = time.monotonic() + _TIME_LIMIT_SECONDS
    found: list[tuple[int, str]] = []
    for names, entry in walk(tree, base, _rules_for(tree, base)):
        if wanted.matches(names[len(base) :]):
            found.append((-entry.modified_ns, shown("/".join(names))))
        if time.monotonic() > deadline:
            raise _too_slow()
    return [name for _, name in sorted(found)]


async def grep_tree(
    tree: ConfinedTree, pattern: str, path: str, options: GrepOptions, ripgrep: str | None
) -> list[GrepMatch]:
    """Return the lines that match a regular expression, in the order of paths and lines.

    Args:
        path: a folder or a file of the tree.
        ripgrep: the program; None searches in Python.

    Raises:
        ToolError: the path does not exist or is refused, the pattern or filter is invalid, or the search took
            too long.
    """
    search = await asyncio.to_thread(_Search.prepare, tree, pattern, path, options)
    # Ripgrep would find other letters in UTF-8 alone, and nothing in UTF-16 without a mark.
    if ripgrep is None or not pattern.isascii() or search.is_wide:
        return await _grep_in_python(search)
    return await _grep_with_ripgrep(ripgrep, search)


@dataclass(frozen=True, slots=True)
class _Search:
    """A validated search, which decides which files and lines match.

    Attributes:
        base: the names from the root to the file or folder that is searched.
        is_file: whether `base` is a file; it is then searched even if the rules exclude it.
        rules: None if an ignored folder was named explicitly.
        wanted: the file filter, if there is one.
        is_wide: whether a file is searched for which the project names UTF-16.
        excluded: paths of ignored folders near the top, which ripgrep leaves out. It reads no rules itself, because
            a `.gitignore` may be a named pipe.
    """

    tree: ConfinedTree
    pattern: str
    options: GrepOptions
    base: tuple[str, ...]
    is_file: bool
    rules: IgnoreRules | None
    wanted: PathPattern | None
    excluded: tuple[str, ...] = ()
    is_wide: bool = False

    @classmethod
    def prepare(cls, tree: ConfinedTree, pattern: str, path: str, options: GrepOptions) -> _Search:
        """Validate the arguments of a search."""
        if not pattern or any(char in "\n\0" or "\ud800" <= char <= "\udfff" for char in pattern):
            raise ToolError(
                "the pattern must be valid text, not empty, and without line breaks and NUL characters"
            )
        found = tree.stat(path)
        if not (found.is_dir or found.is_file):
            raise FileUnreadableError(f"{path} is neither a file nor a folder")
        base = tree.split(path)
        wanted = PathPattern.for_filter(options.glob_filter) if options.glob_filter else None
        rules = _rules_for(tree, base)
        excluded = tuple(_ignored_folders(tree, base, rules)) if rules is not None and found.is_dir else ()
        is_wide = DeclaredEncodings.of_tree(tree).names_wide(base)
        return cls(tree, pattern, options, base, found.is_file, rules, wanted, excluded, is_wide)

    def accepts(self, names: tuple[str, ...]) -> bool:
        """Return whether the result may contain lines of this file."""
        if self.is_file:
            return True
        if any(is_git_name(name) for name in names):
            return False
        if self.wanted is not None:
            # A filter with folders in it is matched from the root and from the folder that is searched.
            tried = [self.wanted.matches(names), self.wanted.matches(names[len(self.base) :])]
            if not (all(tried) if self.wanted.negated else any(tried)):
                return False
        return self.rules is None or not self.rules.ignored(names, is_dir=False)


def _rules_for(tree: ConfinedTree, base: tuple[str, ...]) -> IgnoreRules | None:
    """Return the rules for a search in a folder; None if the folder itself is an ignored one."""
    rules = IgnoreRules.of(tree)
    return None if rules.ignored(base, is_dir=True) else rules


def _ignored_folders(tree: ConfinedTree, base: tuple[str, ...], rules: IgnoreRules) -> Iterator[str]:
    """Yield the topmost ignored folders whose paths are plain patterns. Deep ones are filtered from the result."""
    waiting = deque([base])
    looked = 0
    while waiting and looked < _MOST_LOOKED_FOLDERS:
        names = waiting.popleft()
        looked += 1
        with suppress(ToolError):  # no permission, or removed meanwhile
            for entry in tree.entries(names):
                below = (*names, entry.name)
                if not entry.is_dir:
                    continue
                if not rules.ignored(below, is_dir=True):
                    waiting.append(below)
                elif all(map(_PLAIN_NAME.fullmatch, below)):
                    yield "/".join(below)


def _cut_line(line: str) -> str:
    if len(line) <= _MAX_LINE_CHARS:
        return line
    return f"{line[:_MAX_LINE_CHARS]} [... {len(line) - _MAX_LINE_CHARS} more characters]"


def _invalid_pattern(reason: str) -> ToolError:
    return ToolError(f"the pattern is not a valid regular expression: {reason}")


def _too_slow() -> ToolError:
    return ToolError(
        f"the search took over {_TIME_LIMIT_SECONDS:.0f} seconds: narrow the path or the pattern"
    )


async def _grep_in_python(search: _Search) -> list[GrepMatch]:
    """Search without ripgrep: slower, with Python's expressions.

    A model's expression can take time without end, so a limited process tries it on many lines at a time.
    """
    deadline = time.monotonic() + _TIME_LIMIT_SECONDS
    batches = _batches(search, deadline)
    found: list[GrepMatch] = []
    while (batch := await asyncio.to_thread(next, batches, None)) is not None:
        asked = {"do": "lines", "pattern": search.pattern, "ignore_case": search.options.case_insensitive}
        lines = "\n".join(match.text for match in batch).encode("utf-8", "surrogatepass")
        answer = await in_child(asked, max(deadline - time.monotonic(), 0.0), data=lines)
        if answer is None:
            raise _too_slow()
        if "invalid" in answer:
            raise _invalid_pattern(answer["invalid"])
        found += (
            replace(batch[at], text=_cut_line(batch[at].text)) for at in answer["found"] if at < len(batch)
        )
        if len(found) >= search.options.max_results:
            return found[: search.options.max_results]
    return found


def _batches(search: _Search, deadline: float) -> Iterator[list[GrepMatch]]:
    """Yield the lines of the files that are searched, many at a time, and at least one list."""
    walked = (names for names, _ in walk(search.tree, search.base, search.rules))
    declared = DeclaredEncodings.of_tree(search.tree)
    batch: list[GrepMatch] = []
    characters = 0
    for names in [search.base] if search.is_file else walked:
        if time.monotonic() > deadline:
            raise _too_slow()
        if not search.accepts(names):
            continue
        name = shown("/".join(names))
        for number, line in _text_lines(search.tree, names, declared):
            batch.append(GrepMatch(name, number, line))
            characters += len(line) + _LINE_COST_CHARS
            if characters >= _BATCH_CHARS:
                yield batch
                batch, characters = [], 0
    yield batch


def _decoded(data: bytes, declared: str) -> str | None:
    """Return bytes as text; None for what is no text. U+FFFD stands for what is in no encoding that is sure.

    Args:
        declared: the encoding that the project names for the file; empty for none.
    """
    if data.startswith(_UTF16_MARKS):
        return data.decode("utf-16", "replace")
    if declared and (name := as_declared(data, declared)):
        return data.decode(name)
    if b"\0" in data:
        return None
    try:
        return data.decode(shifted_encoding(data) or "utf-8-sig")
    except UnicodeDecodeError:
        return data.decode(sure_encoding(data) or "utf-8", "replace")


def _text_lines(
    tree: ConfinedTree, names: tuple[str, ...], declared: DeclaredEncodings
) -> Iterator[tuple[int, str]]:
    try:
        data = tree.read_names(names, max_bytes=_MAX_FILE_BYTES)
    except ToolError:  # too large, no permission, or removed meanwhile
        return
    # What is ASCII reads the same in each encoding that a project names, but for UTF-16, which has NUL.
    found = None if data.isascii() and b"\0" not in data else declared.of(names)
    text = _decoded(data, found.name if found else "")
    if text is None:
        return
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), 1):
        yield number, line.removesuffix("\r")


async def _grep_with_ripgrep(program: str, search: _Search) -> list[GrepMatch]:
    try:
        process = await start_program(
            program,
            *_ripgrep_arguments(search),
            cwd=search.tree.root,
            env={},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:  # no processes left, the pattern is too long, the folder is gone
        raise ToolError(f"ripgrep could not be started: {error.strerror}") from error
    assert process.stdout is not None  # noqa: S101  a pipe, see above
    assert process.stderr is not None  # noqa: S101  a pipe, see above
    reading_errors = asyncio.create_task(process.stderr.read())
    found: list[GrepMatch] = []
    try:
        async with process, asyncio.timeout(_TIME_LIMIT_SECONDS):
            async for match in _matches_in(process.stdout, search):
                found.append(match)
                if len(found) >= search.options.max_results:
                    return found
            status = await process.wait()
            error_output = (await reading_errors).decode("utf-8", "replace")
    except TimeoutError:
        raise _too_slow() from None
    finally:
        await reading_errors
    if status not in {0, _NO_MATCH} and not found:
        _raise_error(error_output)
    return found


def _raise_error(error_output: str) -> None:
    """Raise an error if ripgrep reported one.

    Ripgrep also exits with an error for files that it could not read. It prints nothing then, and the result
    is valid.
    """
    reasons = [line for line in error_output.splitlines() if line.startswith("error: ")]
    if reasons:
        raise _invalid_pattern(reasons[-1].removeprefix("error: "))
    if error_output.strip():
        raise ToolError(f"ripgrep could not search: {' '.join(error_output.split())}")


def _ripgrep_arguments(search: _Search) -> list[str]:
    """Return ripgrep's arguments. It runs in the root."""
    options, wanted = search.options, search.options.glob_filter
    names = [] if search.wanted is None else [one[-1] for one in search.wanted.alternatives]
    is_sure = wanted is not None and not search.is_file and not wanted.startswith("!") and "/" not in wanted
    if not (is_sure and all(map(_PLAIN_NAME_PATTERN.fullmatch, names))):
        names = []  # ripgrep's patterns may differ from ours, so it gets none
    return [
        *("--json", "--no-config", "--no-follow", "--no-messages", "--hidden"),
        "--no-ignore",
        *("--crlf", "--sort=path"),
        f"--max-filesize={_MAX_FILE_BYTES}",
        f"--max-count={options.max_results}",
        "--ignore-case" if options.case_insensitive else "--case-sensitive",
        *(f"--glob={name}" for name in names),
        *(f"--glob=!/{path}" for path in search.excluded),
        "--iglob=!.git",  # after the filter, because the last match decides
        *("-e", search.pattern, "--", "./" + "/".join(search.base)),
    ]


async def _matches_in(output: asyncio.StreamReader, search: _Search) -> AsyncIterator[GrepMatch]:
    """Yield the matches in accepted files, each file's at its end event, which says whether it is binary."""
    waiting: list[GrepMatch] = []
    names: tuple[str, ...] = ()
    accepted = False
    declared = DeclaredEncodings.of_tree(search.tree)
    async for line in _lines(output):
        event = _event(line)
        if event is None:
            continue
        data = event["data"]
        match event["type"]:
            case "begin":
                waiting = []
                names = _names(data)
                accepted = search.accepts(names)
            case "match" if accepted:
                text = _text(data["lines"], names, declared).removesuffix("\n").removesuffix("\r")
                waiting.append(GrepMatch(shown("/".join(names)), data["line_number"], _cut_line(text)))
            case "end" if accepted and waiting and data["binary_offset"] is None:
                for found in await asyncio.to_thread(_confirmed, search.tree, names, waiting, declared):
                    yield found
            case _:
                pass


def _confirmed(
    tree: ConfinedTree, names: tuple[str, ...], found: list[GrepMatch], declared: DeclaredEncodings
) -> list[GrepMatch]:
    """Return those matches that are really in the file.

    Ripgrep opens files by their paths, so a folder that a command replaces by a link meanwhile leads it
    outside.
    """
    wanted = {match.line: match for match in found}
    lines = itertools.islice(_text_lines(tree, names, declared), max(wanted))
    return [
        wanted[number]
        for number, line in lines
        if number in wanted and wanted[number].text == _cut_line(line)
    ]


async def _lines(output: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield each line without its line break; a line that is too long is cut."""
    line = bytearray()
    while chunk := await output.read(_CHUNK_BYTES):
        first, *others = chunk.split(b"\n")
        line += first[: max(0, _MAX_JSON_LINE_BYTES - len(line))]
        for other in others:
            yield bytes(line)
            line = bytearray(other)


def _event(line: bytes) -> Any:
    """Return the event of a line, without the list of matches in the line; None if the line was too long."""
    known, submatches, _ = line.partition(_SUBMATCHES)
    if submatches:
        return json.loads(known + b"}}")
    return json.loads(line) if len(line) < _MAX_JSON_LINE_BYTES else None


def _names(data: Mapping[str, Any]) -> tuple[str, ...]:
    path = data["path"]
    name = path["text"] if "text" in path else os.fsdecode(base64.b64decode(path["bytes"]))
    return tuple(part for part in name.split("/") if part not in {"", "."})


def _text(value: Mapping[str, str], names: tuple[str, ...], declared: DeclaredEncodings) -> str:
    if "text" in value:
        return value["text"]
    found = declared.of(names)
    return _decoded(base64.b64decode(value["bytes"]), found.name if found else "") or ""

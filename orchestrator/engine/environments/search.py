"""Searches a tree: `grep` with ripgrep or without, and `glob`.

Ripgrep finds candidates quickly. `.gitignore` rules and file patterns are decided here, so that both ways give the
same answers. Format of its output: https://docs.rs/grep-printer/latest/grep_printer/struct.JSON.html.
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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.core.errors import FileUnreadableError, ToolError
from orchestrator.core.git_names import is_git_name
from orchestrator.engine.environments.base import GrepMatch
from orchestrator.engine.environments.commands import start_program
from orchestrator.engine.environments.files import shown
from orchestrator.engine.environments.patterns import IgnoreRules, PathPattern, walk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from orchestrator.engine.environments.base import GrepOptions
    from orchestrator.engine.environments.files import ConfinedTree
    from orchestrator.engine.environments.patterns import ReadsFiles

TIME_LIMIT_SECONDS = 20.0
MAX_FILE_BYTES = 50_000_000
MAX_LINE_CHARS = 500


@dataclass(frozen=True, slots=True)
class Search:
    """A checked search: what decides which files and lines count.

    Attributes:
        base: the names from the root to where it begins.
        is_file: the beginning is a file: it is searched whatever the rules say.
        rules: None where ignored files were asked for by name.
        wanted: the file filter, if there is one.
    """

    pattern: str
    options: GrepOptions
    base: tuple[str, ...]
    is_file: bool
    rules: IgnoreRules | None
    wanted: PathPattern | None

    def accepts(self, names: tuple[str, ...]) -> bool:
        """Whether lines of this file may be in the answer."""
        if self.is_file:
            return True
        if any(is_git_name(name) for name in names):
            return False
        if self.wanted is not None and not self._is_wanted(names):
            return False
        return self.rules is None or not self.rules.ignored(names, is_dir=False)

    def _is_wanted(self, names: tuple[str, ...]) -> bool:
        """Filters with folders in them are tried from the root and from the beginning of the search."""
        wanted = self.wanted
        if wanted is None:
            return True
        tried = [wanted.matches(names), wanted.matches(names[len(self.base) :])]
        return all(tried) if wanted.negated else any(tried)


def prepare(tree: ConfinedTree, pattern: str, path: str, options: GrepOptions) -> Search:
    """Check what was asked.

    Raises:
        ToolError: nothing is at the path, it is refused, or the pattern or filter makes no sense.
    """
    check_pattern(pattern)
    found = tree.stat(path)
    if not (found.is_dir or found.is_file):
        raise FileUnreadableError(f"{path} is neither a file nor a folder")
    base = tree.split(path)
    wanted = PathPattern.for_filter(options.glob_filter) if options.glob_filter else None
    return Search(pattern, options, base, found.is_file, rules_for(tree, base), wanted)


def check_pattern(pattern: str) -> None:
    """Refuse what no search can take.

    Raises:
        ToolError: it is empty, has a line break or a NUL character, or is not valid Unicode.
    """
    if not pattern or any(char in "\n\0" or "\ud800" <= char <= "\udfff" for char in pattern):
        raise ToolError(
            "the pattern must be valid text, not empty, and without line breaks and NUL characters"
        )


def rules_for(tree: ReadsFiles, base: tuple[str, ...]) -> IgnoreRules | None:
    """The rules for a search that begins here; none where an ignored folder was named itself."""
    rules = IgnoreRules(tree)
    return None if rules.ignored(base, is_dir=True) else rules


def cut_line(line: str) -> str:
    """The line, or its beginning and how much is missing."""
    if len(line) <= MAX_LINE_CHARS:
        return line
    return f"{line[:MAX_LINE_CHARS]} [... {len(line) - MAX_LINE_CHARS} more characters]"


def invalid_pattern(reason: str) -> ToolError:
    """The expression cannot be compiled."""
    return ToolError(f"the pattern is not a valid regular expression: {reason}")


def too_slow() -> ToolError:
    """The time limit passed."""
    return ToolError(f"the search took over {TIME_LIMIT_SECONDS:.0f} seconds: narrow the path or the pattern")


MAX_JSON_LINE_BYTES = 4 * MAX_FILE_BYTES
"""What is kept of one. A match whose text does not fit is passed over."""

_PLACES = b',"absolute_offset":'
"""Behind it a match lists each place in its line that matches, maybe millions. No text holds it: quotes are escaped."""

_CHUNK_BYTES = 65_536
_NO_MATCH = 1
TROUBLE = 2
"""The exit code for a bad expression, or a file that could not be read."""

_PLAIN_NAME_PATTERN = re.compile(r"[\w.*-]+")


Confirm: TypeAlias = Callable[[tuple[str, ...], list[GrepMatch]], list[GrepMatch]]
"""Given a file's names and its matches: those that are really there. It may read the file."""


async def grep_with_ripgrep(program: str, root: str, search: Search, confirm: Confirm) -> list[GrepMatch]:
    """Search below `root`; the caller has checked the path.

    Ripgrep opens files by their paths, so a folder that a command swaps for a link meanwhile leads it
    outside. So what it found counts only where `confirm` finds it too, in a thread.

    Raises:
        ToolError: the expression is invalid, or the time limit passed.
    """
    process = await _start(program, root, search)
    assert process.stdout is not None  # noqa: S101  asked for above
    assert process.stderr is not None  # noqa: S101  asked for above
    complaints = asyncio.create_task(process.stderr.read())
    found: list[GrepMatch] = []
    try:
        async with asyncio.timeout(TIME_LIMIT_SECONDS):
            async for match in matches_in(process.stdout, search, confirm):
                found.append(match)
                if len(found) >= search.options.max_results:
                    return found
            status = await process.wait()
            complaint = (await complaints).decode("utf-8", "replace")
    except TimeoutError:
        raise too_slow() from None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        while await process.stdout.read(_CHUNK_BYTES):
            pass  # a full pipe would keep the process from being taken down
        await complaints
        await process.wait()
    if status not in {0, _NO_MATCH} and not found:
        complain(complaint)
    return found


async def _start(program: str, root: str, search: Search) -> asyncio.subprocess.Process:
    try:
        return await start_program(
            program,
            *ripgrep_arguments(search),
            cwd=root,
            env={},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:  # no processes left, the pattern is too long, the folder is gone
        raise ToolError(f"ripgrep could not be started: {error.strerror}") from error


def ripgrep_arguments(search: Search) -> list[str]:
    """What ripgrep is told, to run in the root."""
    options = search.options
    return [
        "--json",
        "--no-config",
        "--no-follow",
        "--no-messages",
        "--hidden",
        "--no-ignore-parent",
        "--no-ignore-dot",
        "--no-ignore-exclude",
        "--no-ignore-global",
        "--no-require-git" if search.rules is not None else "--no-ignore",
        "--crlf",
        "--sort=path",
        f"--max-filesize={MAX_FILE_BYTES}",
        f"--max-count={options.max_results}",
        "--ignore-case" if options.case_insensitive else "--case-sensitive",
        *_quick_filter(search),
        "--iglob=!.git",  # after the filter: the last one that matches decides
        "-e",
        search.pattern,
        "--",
        "./" + "/".join(search.base),
    ]


def _quick_filter(search: Search) -> list[str]:
    """Let ripgrep skip files by name where its patterns surely mean what ours mean."""
    wanted = search.options.glob_filter
    if wanted is None or search.is_file:
        return []
    names = [alternative[-1] for alternative in PathPattern.for_filter(wanted).alternatives]
    if wanted.startswith("!") or "/" in wanted or not all(map(_PLAIN_NAME_PATTERN.fullmatch, names)):
        return []
    return [f"--glob={name}" for name in names]


async def matches_in(
    output: asyncio.StreamReader, search: Search, confirm: Confirm | None = None
) -> AsyncIterator[GrepMatch]:
    """Matches of text files that count. Those of a file wait for its end, which says if it is binary."""
    waiting: list[GrepMatch] = []
    names: tuple[str, ...] = ()
    accepted = False
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
                text = _text(data["lines"]).removesuffix("\n").removesuffix("\r")
                waiting.append(GrepMatch(shown("/".join(names)), data["line_number"], cut_line(text)))
            case "end" if accepted and data["binary_offset"] is None:
                standing = (
                    await asyncio.to_thread(confirm, names, waiting) if confirm and waiting else waiting
                )
                for found in standing:
                    yield found
            case _:
                pass


async def _lines(output: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Each line without its end; of one that is too long its beginning."""
    line = bytearray()
    while chunk := await output.read(_CHUNK_BYTES):
        first, *others = chunk.split(b"\n")
        line += first[: max(0, MAX_JSON_LINE_BYTES - len(line))]
        for other in others:
            yield bytes(line)
            line = bytearray(other)


def _event(line: bytes) -> Any:
    """What a line says, without the places; None where it was too long."""
    known, places, _ = line.partition(_PLACES)
    if places:
        return json.loads(known + b"}}")
    return json.loads(line) if len(line) < MAX_JSON_LINE_BYTES else None


def _names(data: Mapping[str, Any]) -> tuple[str, ...]:
    path = data["path"]
    name = path["text"] if "text" in path else os.fsdecode(base64.b64decode(path["bytes"]))
    return tuple(part for part in name.split("/") if part not in {"", "."})


def _text(value: Mapping[str, str]) -> str:
    return value["text"] if "text" in value else base64.b64decode(value["bytes"]).decode("utf-8", "replace")


def complain(complaint: str) -> None:
    """Ripgrep ends with 2 for a bad expression, and for files that it could not read, which is no reason to stop."""
    reasons = [line.removeprefix("error: ") for line in complaint.splitlines() if line.startswith("error: ")]
    if reasons:
        raise invalid_pattern(reasons[-1])
    if complaint.strip():
        raise ToolError(f"ripgrep could not search: {' '.join(complaint.split())}")


_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def find_ripgrep() -> str | None:
    """The `rg` program: on the path, or beside the running Python; None where there is none."""
    beside = Path(sys.executable).parent / "rg"
    return shutil.which("rg") or (str(beside) if beside.is_file() else None)


def grep_in_python(tree: ConfinedTree, search: Search) -> list[GrepMatch]:
    """The fallback for a machine without ripgrep: slower, with Python's regular expressions.

    Raises:
        ToolError: the expression is invalid, or the time limit passed between two files.
    """
    try:
        expression = re.compile(search.pattern, re.IGNORECASE if search.options.case_insensitive else 0)
    except re.error as error:
        raise invalid_pattern(str(error)) from None
    deadline = time.monotonic() + TIME_LIMIT_SECONDS
    found: list[GrepMatch] = []
    files = (
        iter([search.base])
        if search.is_file
        else (names for names, _ in walk(tree, search.base, search.rules))
    )
    for names in files:
        if time.monotonic() > deadline:
            raise too_slow()
        if search.accepts(names):
            for number, line in _text_lines(tree, names):
                if expression.search(line):
                    found.append(GrepMatch(shown("/".join(names)), number, cut_line(line)))
                    if len(found) >= search.options.max_results:
                        return found
    return found


def _text_lines(tree: ConfinedTree, names: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    try:
        data = tree.read_names(names, max_bytes=MAX_FILE_BYTES)
    except ToolError:  # too large, no permission, or removed meanwhile
        return
    if data.startswith(_UTF16_MARKS):
        text = data.decode("utf-16", "replace")
    elif b"\0" in data:
        return
    else:
        text = data.decode("utf-8-sig", "replace")
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), 1):
        yield number, line.removesuffix("\r")


def glob_files(tree: ConfinedTree, pattern: str, path: str) -> list[str]:
    """Files below the folder whose path, seen from it, matches; newest first, ignored ones left out.

    Raises:
        ToolError: the pattern makes no sense, or there is no folder at the path.
    """
    wanted = PathPattern.for_paths(pattern)
    base = tree.split(path)
    deadline = time.monotonic() + TIME_LIMIT_SECONDS
    found: list[tuple[int, str]] = []
    for names, entry in walk(tree, base, rules_for(tree, base)):
        if wanted.matches(names[len(base) :]):
            found.append((-entry.modified_ns, shown("/".join(names))))
        if time.monotonic() > deadline:
            raise too_slow()
    return [name for _, name in sorted(found)]


async def grep(
    tree: ConfinedTree, pattern: str, path: str, options: GrepOptions, ripgrep: str | None
) -> list[GrepMatch]:
    """Lines that match, in the order of paths and lines.

    Args:
        tree: where to search.
        pattern: a regular expression.
        path: a folder or a file of the tree.
        options: see `GrepOptions`.
        ripgrep: the program, or None to do without.

    Raises:
        ToolError: see `prepare` and `grep_in_python`.
    """
    search = await asyncio.to_thread(prepare, tree, pattern, path, options)
    if ripgrep is None:
        return await asyncio.to_thread(grep_in_python, tree, search)

    def confirm(names: tuple[str, ...], found: list[GrepMatch]) -> list[GrepMatch]:
        wanted = {match.line: match for match in found}
        last = max(wanted)
        lines = itertools.islice(_text_lines(tree, names), last)
        return [
            wanted[number]
            for number, line in lines
            if number in wanted and wanted[number].text == cut_line(line)
        ]

    return await grep_with_ripgrep(ripgrep, tree.root, search, confirm)

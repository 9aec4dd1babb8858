"""Searches a tree: `grep` with ripgrep or without, and `glob`.

ripgrep finds candidates quickly; `.gitignore` rules and file patterns are decided here, so that
both ways give the same answers.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import ToolError
from orchestrator.engine.environments.base import GrepMatch
from orchestrator.engine.environments.globs import PathPattern
from orchestrator.engine.environments.ignored import walk
from orchestrator.engine.environments.paths import shown
from orchestrator.engine.environments.query import (
    MAX_FILE_BYTES,
    TIME_LIMIT_SECONDS,
    cut_line,
    invalid_pattern,
    prepare,
    rules_for,
    too_slow,
)
from orchestrator.engine.environments.ripgrep import grep_with_ripgrep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.engine.environments.base import GrepOptions
    from orchestrator.engine.environments.confined import ConfinedTree
    from orchestrator.engine.environments.query import Search

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

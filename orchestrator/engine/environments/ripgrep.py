"""Runs ripgrep and reads its JSON lines (https://docs.rs/grep-printer/latest/grep_printer/struct.JSON.html)."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.core.errors import ToolError
from orchestrator.engine.environments.base import GrepMatch
from orchestrator.engine.environments.globs import PathPattern
from orchestrator.engine.environments.paths import shown
from orchestrator.engine.environments.query import (
    MAX_FILE_BYTES,
    TIME_LIMIT_SECONDS,
    Search,
    cut_line,
    invalid_pattern,
    too_slow,
)
from orchestrator.engine.environments.starting import start_program

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

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

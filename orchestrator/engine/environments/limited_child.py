"""Reads untrusted PDF documents and tries foreign patterns, in a process with limits of time and memory.

This file is both sides. `in_child` starts it as the main script of the process, which imports nothing else of
this package. There it reads one line of JSON from standard input, and the bytes after it if the line says so,
and answers with one JSON object.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.core.messages import JsonObject

CPU_SECONDS = 30
MEMORY_BYTES = 2 * 1024**3


async def in_child(
    request: JsonObject, seconds: float, *, data: bytes | None = None, program: Path = Path(__file__)
) -> dict[str, Any] | None:
    """Run a function in a limited process; return None if it failed or took over `seconds`.

    The process gets none of this program's environment variables, because some of them are keys.

    Args:
        request: the function's name in `WORK` as `do`, and its arguments.
        data: passed as an additional argument named `data`.
        program: the module with `WORK`.
    """
    import asyncio

    from orchestrator.engine.environments.commands import start_program

    process = await start_program(
        sys.executable,
        "-P",
        __file__,
        str(program),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    line = json.dumps({**request, "has_data": data is not None}).encode() + b"\n"
    async with process:
        try:
            async with asyncio.timeout(seconds):
                output, _ = await process.communicate(line + (data or b""))
        except TimeoutError:
            return None
    return json.loads(output) if process.returncode == 0 else None


def main() -> None:
    """Set the limits of this process, and run the function that standard input names."""
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    asked = json.loads(sys.stdin.buffer.readline())
    if asked.pop("has_data"):
        asked["data"] = sys.stdin.buffer.read()
    spec = spec_from_file_location("program", sys.argv[1])
    if spec is None or spec.loader is None:
        raise SystemExit(2)
    program = module_from_spec(spec)
    spec.loader.exec_module(program)
    json.dump(program.WORK[asked.pop("do")](**asked), sys.stdout)


def _compiled(pattern: str, *, ignore_case: bool) -> re.Pattern[str] | str:
    """Return a foreign pattern, or why it is invalid."""
    try:
        return re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)


def find_lines(pattern: str, ignore_case: bool, data: bytes) -> dict[str, Any]:  # noqa: FBT001  from JSON
    """Return the indices of the lines in which the pattern matches."""
    expression = _compiled(pattern, ignore_case=ignore_case)
    if isinstance(expression, str):
        return {"invalid": expression}
    lines = data.decode("utf-8", "surrogatepass").split("\n")
    return {"found": [index for index, line in enumerate(lines) if expression.search(line)]}


def fits(pattern: str, text: str, whole: bool) -> dict[str, Any]:  # noqa: FBT001  from JSON
    """Return whether the pattern matches the whole text, or any part of it."""
    expression = _compiled(pattern, ignore_case=False)
    if isinstance(expression, str):
        return {"invalid": expression}
    return {"fits": (expression.fullmatch if whole else expression.search)(text) is not None}


_DETAIL_CHARACTERS = 150
_PAGE_CHARACTERS = 70
"""The characters shown beside the text of a page: its heading, and a note if it has no text."""


def pdf_pages(
    data: bytes, first: int, most_pages: int, most_characters: int, seconds: float
) -> dict[str, Any]:
    """Return the text of a PDF document's pages: as many of the requested ones as fit under headings, at least one.

    Args:
        first: number of the first page, from 1.
        seconds: time after which no other page is begun.

    Returns:
        `total`, `texts` (None for a page that cannot be read) and `cut`, the number of characters left out of
        the only text; or `problem` and `detail`.
    """
    from pypdf import PdfReader

    end = time.monotonic() + seconds
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            return {"problem": "encrypted", "detail": ""}
        total = len(reader.pages)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  the library: "broken PDF files might cause other Exceptions"
        return {"problem": "damaged", "detail": _line(str(error) or type(error).__name__)}
    texts: list[str | None] = []
    left, cut = most_characters, 0
    for number in range(first, min(first + most_pages - 1, total) + 1):
        text = _page_text(reader, number)
        room = left - _PAGE_CHARACTERS
        if texts and (room < 0 or (len(text or "") > room and any(texts))):
            break
        if text and len(text) > room:
            room = max(room, 1)
            text, cut = text[:room], len(text) - room
        left = room - len(text or "")
        texts.append(text)
        if cut or time.monotonic() > end:
            break
    return {"total": total, "texts": texts, "cut": cut}


def _page_text(reader: Any, number: int) -> str | None:
    """Return the lines of a page without empty ones at its ends; None if it cannot be read."""
    try:
        found = reader.pages[number - 1].extract_text()
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  see above
        return None
    text = found.encode("utf-8", "replace").decode().replace("\r\n", "\n").replace("\0", "")
    lines = [line.rstrip() for line in text.replace("\r", "\n").replace("\f", "\n").split("\n")]
    return "\n".join(lines).strip("\n")


def _line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_DETAIL_CHARACTERS]


WORK = {"fits": fits, "lines": find_lines, "pages": pdf_pages}
"""The functions that the parent process can request."""


if __name__ == "__main__":
    main()

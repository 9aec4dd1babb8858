"""Fuzz target: time. A text in which a piece is repeated four times as often takes about four times as long.

It compares what two sizes cost the thread that reads them, whatever else the machine does, and measures again
where that seems too much.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.core.errors import PathRefusedError, ToolError
from orchestrator.core.messages import FinishReason, Message, Usage
from orchestrator.engine.contracts.json_plan import JsonPlan, find_plan
from orchestrator.engine.contracts.written_calls import written_calls
from orchestrator.engine.environments.files import split_path
from orchestrator.engine.models.base import Response
from orchestrator.engine.policy.shell import Unparsed, parse_line, scan
from orchestrator.engine.tools.patches.formats import parse_unified, parse_v4a
from orchestrator.engine.tools.patches.hunks import apply_chunks
from tests.fuzz import commands, plans
from tests.fuzz.target import Target, pieces, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL_CHARS = 2_000
TIMES = 4
MOST_GROWTH = 9.0
"""Linear is 4, quadratic 16."""
NOISE_S = 0.03
"""What a large input may cost before growth is looked at: below, it can be anything."""
TRIES = 4

Reader: TypeAlias = "Callable[[str], object]"
Parts: TypeAlias = tuple[str, str, str]
"""What comes once, the piece, and what ends the text."""


def _strictly(text: str) -> None:
    with suppress(Unparsed):
        parse_line(text)


def _path(text: str) -> None:
    with suppress(PathRefusedError):
        split_path(text)


def _patched(text: str) -> None:
    """Read in both formats, and put into the patch itself."""
    for read in (parse_v4a, parse_unified):
        with suppress(ToolError):
            for change in read(text):
                apply_chunks("f", text, change.chunks)


def _plan(text: str) -> None:
    for finish in (FinishReason.STOP, FinishReason.LENGTH):
        response = Response(Message.assistant(text), finish, Usage(), "test")
        JsonPlan().read(response, plans.TOOLS, round_number=1)


READERS: tuple[tuple[Reader, float], ...] = (
    (_strictly, NOISE_S),
    (scan, NOISE_S),
    (commands.RULES.refusal, NOISE_S),
    (_path, NOISE_S),
    (lambda text: find_plan(text, ended_early=False), NOISE_S),
    (_plan, NOISE_S),
    (lambda text: written_calls(text, plans.TOOLS, 1), NOISE_S),
    (_patched, NOISE_S),
)


def run(data: bytes) -> None:
    """See `taken_apart`."""
    reader, noise_s, parts = taken_apart(data)
    if parts[1]:
        grows(reader, parts, noise_s)


def taken_apart(data: bytes) -> tuple[Reader, float, Parts]:
    """The first byte says which reader; behind it are the parts of the text, with NULs between."""
    reader, noise_s = READERS[(data[0] if data else 0) % len(READERS)]
    begin, _, rest = text_of(data[1:]).partition("\0")
    piece, _, end = rest.partition("\0")
    return reader, noise_s, (begin, piece, end)


def repeated(parts: Parts, chars: int) -> str:
    """The text in which the piece fills so many characters, or comes once."""
    begin, piece, end = parts
    return begin + piece * max(1, chars // len(piece)) + end


def seconds(reader: Reader, text: str) -> float:
    """What a run costs by the clock of this thread."""
    start = time.thread_time()
    reader(text)
    return time.thread_time() - start


def grows(
    reader: Reader,
    parts: Parts,
    noise_s: float = NOISE_S,
    stopwatch: Callable[[Reader, str], float] = seconds,
    *,
    small_chars: int = SMALL_CHARS,
) -> None:
    """Fail where the cost grows much faster than the text; measured again where it seems so.

    Args:
        reader: what is measured.
        parts: of the texts that it reads.
        noise_s: a cost below this is not looked at.
        stopwatch: runs a reader on a text and says what that cost.
        small_chars: about so long is the smaller text; the larger one has four times as much of the piece.
    """
    piece_chars = max(1, small_chars // len(parts[1])) * len(parts[1])
    small, large = (repeated(parts, piece_chars * times) for times in (1, TIMES))
    if (slow := stopwatch(reader, large)) < noise_s:
        return
    fast = stopwatch(reader, small)
    for _ in range(TRIES):
        if slow < max(noise_s, MOST_GROWTH * fast):
            return
        fast, slow = max(fast, stopwatch(reader, small)), min(slow, stopwatch(reader, large))
    message = f"{TIMES} times the text takes {slow / fast:.0f} times as long: {slow:.3f} s for {parts[1]!r}"
    raise AssertionError(message)


def _case(reader: int, begin: str, piece: str, end: str = "") -> bytes:
    return bytes([reader]) + f"{begin}\0{piece}\0{end}".encode()


TARGET = Target(
    run,
    (
        _case(6, "<tool>", " ", "x"),
        _case(6, "", "<tool>"),
        _case(6, "", "```a\n"),
        _case(6, "```\n", " \n"),
        _case(7, "*** Begin Patch\n*** Update File: f\n@@\n a\n", " \n", "*** End Patch"),
        _case(7, "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n+y\n", "\n", "+z"),
        _case(7, "--- x", " ", "y\n+++ b\n@@\n+x"),
        _case(7, "", "```\n", "x"),
        _case(7, "--- a\n+++ b\n", "@@\n x\n"),
        _case(7, "*** Begin Patch\n*** Update File: f\n", "@@ a\n", "+b\n*** End Patch"),
        _case(4, "", '[{"'),
        _case(4, "", '{"plan'),
        _case(5, '{"tool_calls":[{"tool_name":"', '\\"'),
        _case(5, "", '{"plan": "", "tool_calls": [{'),
        _case(5, '{"plan": "", "tool_calls": [', "{},", "]}"),
        _case(5, "", ",]"),
        _case(5, '{"plan": "p", "tool_calls": [', '{"a": "b" "c": None,},', "x"),
        _case(5, '{"plan": ', "//\n"),
        _case(5, '{"plan": ', '"a”, '),
        _case(5, '{"plan": "', "\\"),
        _case(4, '{"tool_calls": []}', '{ "'),
        _case(1, "", "sh -c '"),
        _case(1, "", "<<a\n"),
        _case(2, "", "a(){ "),
        _case(2, "", "sudo "),
        _case(0, "p ", "=a'b'"),
        _case(3, "", "a/../"),
    ),
    (
        *commands.TARGET.pieces[::3],
        *plans.TARGET.pieces[::2],
        *pieces("\0", "\0", "\n", " ", "@@ ", "--- a\n+++ b\n"),
    ),
)

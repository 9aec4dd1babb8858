"""Fuzz target: time. A text in which a piece is repeated four times as often takes about four times as long."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from orchestrator.contracts.extract import extract
from orchestrator.contracts.json_plan import JsonPlan
from orchestrator.contracts.written_calls import written_calls
from orchestrator.core.errors import PathRefusedError, ToolError
from orchestrator.core.messages import FinishReason, Message, Usage
from orchestrator.environments.paths import split_path
from orchestrator.guard.shell_scan import scan
from orchestrator.guard.shell_syntax import Unparsed, parse_line
from orchestrator.models.base import Response
from orchestrator.tools.hunks import apply_chunks
from orchestrator.tools.unified import parse_unified
from orchestrator.tools.v4a import parse_v4a
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
REPAIR_S = 5.0
"""The same where json-repair may be asked, which takes quadratic time: `extract` bounds what it is given."""
TRIES = 4


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


READERS: tuple[tuple[Callable[[str], object], float], ...] = (
    (_strictly, NOISE_S),
    (scan, NOISE_S),
    (commands.RULES.refusal, NOISE_S),
    (_path, NOISE_S),
    (lambda text: extract(text, ended_early=False), REPAIR_S),
    (_plan, REPAIR_S),
    (lambda text: written_calls(text, plans.TOOLS, 1), NOISE_S),
    (_patched, NOISE_S),
)


def run(data: bytes) -> None:
    """The first byte says which reader; behind it are what comes once, the piece, and what ends the text, with NULs between."""
    reader, noise_s = READERS[(data[0] if data else 0) % len(READERS)]
    begin, _, rest = text_of(data[1:]).partition("\0")
    piece, _, end = rest.partition("\0")
    if piece:
        grows(reader, (begin, piece, end), noise_s)


def grows(reader: Callable[[str], object], parts: tuple[str, str, str], noise_s: float = NOISE_S) -> None:
    """Fail where time grows much faster than the text; measured again where it seems so."""
    begin, piece, end = parts
    count = max(1, SMALL_CHARS // len(piece))
    small, large = (begin + piece * count * times + end for times in (1, TIMES))
    if (slow := _seconds(reader, large)) < noise_s:
        return
    fast = _seconds(reader, small)
    for _ in range(TRIES):
        if slow < max(noise_s, MOST_GROWTH * fast):
            return
        fast, slow = max(fast, _seconds(reader, small)), min(slow, _seconds(reader, large))
    message = f"{TIMES} times the text takes {slow / fast:.0f} times as long: {slow:.3f} s for {piece!r}"
    raise AssertionError(message)


def _seconds(reader: Callable[[str], object], text: str) -> float:
    start = time.thread_time()
    reader(text)
    return time.thread_time() - start


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

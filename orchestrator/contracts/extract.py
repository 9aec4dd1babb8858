"""Finds the plan's JSON in what a model wrote: as it stands, in a fence or prose, broken, or cut off."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from orchestrator.contracts.scan import Scan, scan
from orchestrator.contracts.strict_json import BrokenJsonError, decode, decode_at, decode_leniently, flaws
from orchestrator.contracts.variants import is_plan

# Over four times what the most talkative models can say in one reply.
_LONGEST_REPLY_CHARS = 2_000_000
# json-repair takes quadratic time in a long string full of escaped quotes: 0.2 s for 10,000
# characters, 13 s for 100,000 (measured with 0.64).
_LONGEST_REPAIR_CHARS = 30_000
# What a parser of guesses may run into: an AssertionError was seen with 0.64.
_REPAIR_FAULTS = (ValueError, RecursionError, AssertionError, LookupError, TypeError, AttributeError)
_TAIL_CHARS = 2_000
_MOST_STARTS = 50
_FENCE_CHARS = 20
_THOUGHTS = re.compile(r"\s*<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL)
_END_OF_THOUGHTS = "</think>"
_START = re.compile(r"""\{\s*+(?:["'\u201c\u2018]|(?:plan|tool_calls|tool_name)\b)|\[\s*+\{""")
_WORD_OF_A_PLAN = "tool_"
_OPEN_FENCE = re.compile(r"`{3,}[ \t]*(?:json[c5]?)?[ \t]*\r?\n?[ \t]*\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Found:
    """The value that was meant as the plan.

    Attributes:
        value: for a reply that was cut off, only what is there as a whole.
        tail: the beginning of the call in which a reply was cut off, mended; else None.
        repaired: the text around the JSON, or the JSON itself, was not as it should be.
        cut_off: the JSON ended in the middle.
    """

    value: Any
    repaired: bool
    cut_off: bool = False
    tail: Any = None


@dataclass(frozen=True, slots=True)
class NotFound:
    """Why there is no value: one line."""

    problem: str


def extract(text: str, *, ended_early: bool) -> Found | NotFound:
    """Find the one plan in a reply.

    Args:
        text: the whole reply.
        ended_early: the provider says that the reply stopped at a limit of length.
    """
    if len(text) > _LONGEST_REPLY_CHARS:
        return NotFound(f"reply: longer than {_LONGEST_REPLY_CHARS:,} characters")
    text = text.removeprefix("\ufeff")
    try:
        return Found(decode(text), repaired=False)
    except BrokenJsonError:
        pass
    answer = _without_thoughts(text)
    found = _search(answer)
    if len(found.plans) > 1:
        return NotFound(f"reply: holds {len(found.plans)} JSON objects with calls; send exactly one")
    if found.plans:
        return Found(found.plans[0], repaired=True)
    if found.broken_start is None or found.fault is None:
        return NotFound(_nothing(text, ended_early=ended_early))
    return _mended(answer, found.broken_start, found.fault, ended_early=ended_early)


def _nothing(text: str, *, ended_early: bool) -> str:
    if ended_early:
        return "reply: ended before its JSON object began; think less and send a shorter reply"
    if not text.strip():
        return "reply: empty"
    return "reply: no JSON object with `plan` and `tool_calls` in it"


def _without_thoughts(text: str) -> str:
    if match := _THOUGHTS.match(text):
        return text[match.end() :]
    # Some chat templates open the block in the prompt, so that the reply only closes it.
    thoughts, mark, answer = text.partition(_END_OF_THOUGHTS)
    return answer if mark and not _START.search(thoughts) else text


@dataclass(frozen=True, slots=True)
class _Search:
    """All plans that can be read as they stand; without one, where the first broken one begins."""

    plans: tuple[Any, ...]
    broken_start: int | None = None
    fault: BrokenJsonError | None = None


def _search(text: str) -> _Search:
    plain: list[Any] = []
    in_fences: list[Any] = []
    position, skipped = 0, False
    for _ in range(_MOST_STARTS):
        match = _START.search(text, position)
        if match is None:
            break
        start = match.start()
        try:
            value, position = decode_at(text, start)
        except BrokenJsonError as error:
            end = _end_of_other_data(text, start) if error.mendable else None
            if end is None:
                # What follows is not searched: it may be text inside this object.
                return _Search(_preferred(plain, in_fences), start, error)
            position, skipped = end, True
            continue
        kind = in_fences if _OPEN_FENCE.search(text, max(0, start - _FENCE_CHARS), start) else plain
        if is_plan(value) and value not in kind and not (skipped and "tool_calls" not in value):
            kind.append(value)
    return _Search(_preferred(plain, in_fences))


def _end_of_other_data(text: str, start: int) -> int | None:
    """Where a broken object ends that is no plan; None where it may be one."""
    seen = scan(text, start)
    return None if not seen.complete or _WORD_OF_A_PLAN in text[start : seen.end] else seen.end


def _preferred(plain: list[Any], in_fences: list[Any]) -> tuple[Any, ...]:
    return tuple(in_fences if len(in_fences) == 1 else [*plain, *in_fences])


def _mended(text: str, start: int, fault: BrokenJsonError, *, ended_early: bool) -> Found | NotFound:
    unusable = NotFound(f"reply: not valid JSON ({fault})")
    if not fault.mendable:
        return unusable
    seen = scan(text, start)
    if ended_early or not seen.complete:
        return _cut_off(text, start, seen)
    region = text[start : seen.end]
    try:
        return Found(decode_leniently(region), repaired=True)
    except BrokenJsonError:
        pass
    if len(region) > _LONGEST_REPAIR_CHARS:
        return unusable
    value = _repair(region)
    return Found(value, repaired=True) if is_plan(value) else unusable


def _cut_off(text: str, start: int, seen: Scan) -> Found | NotFound:
    """Only calls whose whole text is there, in valid JSON, are kept; the rest is the tail."""
    if seen.list_start is None:
        return NotFound("reply: ended in the middle, before the first call; send a shorter reply")
    calls: list[Any] = []
    for call in seen.calls:
        try:
            value = decode_at(call, 0, lenient=True)[0]
        except BrokenJsonError:
            return Found(
                _plan(text, start, seen, calls), repaired=True, cut_off=True, tail=_repair(call[:_TAIL_CHARS])
            )
        calls.append(value)
    tail = text[seen.tail_start : seen.tail_start + _TAIL_CHARS].lstrip(" \t\r\n,")
    mended = _repair(tail) if tail.startswith("{") else None
    return Found(_plan(text, start, seen, calls), repaired=True, cut_off=True, tail=mended)


def _plan(text: str, start: int, seen: Scan, calls: list[Any]) -> dict[str, Any]:
    head = text[start : seen.list_start].rstrip()
    try:
        value = decode_leniently(f"{head} null}}")
    except BrokenJsonError:
        value = {}
    plan = value.get("plan", "") if isinstance(value, dict) else ""
    return {"plan": plan if not flaws(plan) else "", "tool_calls": calls}


def _repair(text: str) -> Any:
    """What the json-repair library makes of a text; None where it gives up."""
    import json_repair

    try:
        # Without `stream_stable`, line ends at the end of a string are lost, and with them a file's last one.
        value = json_repair.loads(text, skip_json_loads=True, stream_stable=True)
    except _REPAIR_FAULTS:
        return None
    if isinstance(value, list) and len(value) == 1:
        return value[0]
    return value

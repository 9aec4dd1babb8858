"""Finds the plan in a model's reply, which may have other text, faults, or a missing end.

These other forms that models write can be read in one way only:

=====================================================  ==========================================
written                                                read as
=====================================================  ==========================================
a list of calls, or one call, instead of the object    the plan's `tool_calls`, with an empty plan
`plan` missing                                         an empty plan
`plan` a list of strings                               its lines
`tool_calls` one call instead of a list                a list of it
`tool`, `name`, `function` instead of `tool_name`      `tool_name`
`args`, `parameters` or `input` for `arguments`        `arguments`
`{"type": "function", "function": {...}}`              the inner object
`arguments` a string that holds a JSON object          that object
`arguments` null or missing, no other key              `{}`
`arguments` missing, other keys there                  the other keys, except `id` and `type`
=====================================================  ==========================================

Anything else stays unchanged, and the schema validation reports it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.core.prompts import one_line
from orchestrator.engine.contracts.base import THOUGHTS, Malformed
from orchestrator.engine.contracts.plan_json import (
    BrokenJsonError,
    flaws,
    parse_json,
    parse_json_at,
    read_tolerantly,
)

if TYPE_CHECKING:
    from orchestrator.engine.contracts.plan_json import TolerantValue


# Over four times the longest reply of current models.
_LONGEST_REPLY_CHARS = 2_000_000
_MOST_STARTS = 50
_FENCE_CHARS = 20
_EXCERPT_CHARS = 24
_LONGEST_EXCERPT_CHARS = 100
_END_OF_THOUGHTS = "</think>"
_START = re.compile(
    r"""\{[\s,\ufeff]*+(?:["'“”„\u2018]|(?:plan|tool_calls|tool_name)\b|//|/\*|\#)|\[[\s,]*+(?:\{|//|/\*)""",
    re.VERBOSE,
)
_OPEN_FENCE = re.compile(r"`{3,}[ \t]*(?:json[c5]?)?[ \t]*\r?\n?[ \t]*\Z", re.IGNORECASE)
_STRING_OR_BRACKET = re.compile(r'"(?>(?:[^"\\]++|\\.)*)(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
_WORD_OF_A_PLAN = re.compile(r"tool_|\bplan\b")
# Text that remains if a quotation mark or a bracket ended the JSON too early, or began it too late.
_CALL_OUTSIDE = re.compile(r"""tool_(?:calls|name)["'“”\u2018\u2019]\s*+:""")
_JSON_AFTER = re.compile(r'"\s*+[}\]:]|[{\[]\s*+"')
_END_OF_ANSWER = re.compile(r"[ \t}\]);,.`*]*+(?:\Z|\r?\n|</|<\||//|/\*|#)")
_LEFT_OVER = (
    "text of calls outside the one JSON object: close each bracket once, and "
    'write \\" for each quotation mark inside a string'
)
_SENTENCE = re.compile(r'[^"\\{}\[\]<>`=;]*[.!?…]\s*+\Z')


@dataclass(frozen=True, slots=True)
class FoundPlan:
    """The value that is most likely the plan.

    Attributes:
        value: of a truncated reply: only its complete part.
        tail: the call in which a reply was truncated, as far as it is complete, or a last call that may be
            incomplete; else None. It must not run.
        repaired: whether the JSON, or the text around it, was not in the required form.
        cut_off: whether the JSON ended in the middle.
    """

    value: Any
    repaired: bool
    cut_off: bool = False
    tail: Any = None


def find_plan(text: str, *, ended_early: bool) -> FoundPlan | Malformed:
    """Find the only plan in a reply.

    Args:
        ended_early: whether the provider reports that the reply reached a length limit.
    """
    if len(text) > _LONGEST_REPLY_CHARS:
        return Malformed((f"reply: longer than {_LONGEST_REPLY_CHARS:,} characters",))
    text = text.removeprefix("\ufeff")
    try:
        return FoundPlan(parse_json(text), repaired=False)
    except BrokenJsonError:
        pass
    return _Search(text, ended_early=ended_early).run()


def _end_of_thoughts(text: str) -> int:
    if match := THOUGHTS.match(text):
        return match.end()
    # Some chat templates open the block in the prompt, so that the reply only closes it.
    end = text.find(_END_OF_THOUGHTS)
    return 0 if end < 0 or _START.search(text, 0, end) else end + len(_END_OF_THOUGHTS)


class _Search:
    """Examines the objects and lists of a reply from first to last. All of them must be understood."""

    def __init__(self, text: str, *, ended_early: bool) -> None:
        self._text = text
        self._ended_early = ended_early
        self._plain: list[Any] = []
        self._in_fences: list[Any] = []
        self._after_plan = False
        self._skipped = False

    def run(self) -> FoundPlan | Malformed:
        place = _end_of_thoughts(self._text)
        for _ in range(_MOST_STARTS):
            match = _START.search(self._text, place)
            start = match.start() if match else len(self._text)
            if problem := self._leftover_problem(place, start):
                return Malformed((problem,))
            if match is None:
                return self._result()
            after = self._take(start)
            if not isinstance(after, int):
                return after
            place = after
        return Malformed((f"reply: holds more than {_MOST_STARTS} JSON objects; send exactly one",))

    def _take(self, start: int) -> int | FoundPlan | Malformed:
        """Read the value that begins here; return its end, or the result of the search."""
        try:
            value, end = parse_json_at(self._text, start)
        except BrokenJsonError as error:
            if not error.repairable:
                return Malformed((f"reply: not valid JSON ({error})",))
            return self._take_broken(start)
        self._add(value, start)
        return end

    def _take_broken(self, start: int) -> int | FoundPlan | Malformed:
        try:
            read = read_tolerantly(self._text, start)
        except BrokenJsonError as error:
            self._skipped = True
            end = None if self._plans() else _end_of_other_data(self._text, start)
            return Malformed((_fault_text(self._text, error),)) if end is None else end
        if not is_plan(read.value) and not read.unfinished:
            self._skipped = True
            return read.end
        if problems := stray_keys(read.value):
            return Malformed((problems[0],))
        if self._plans():
            return Malformed(("reply: holds more than one JSON object with calls; send exactly one",))
        if read.unfinished or self._ended_early:
            return _cut_off(read, self._text, ended_early=self._ended_early)
        self._add(read.value, start)
        return read.end

    def _add(self, value: Any, start: int) -> None:
        fenced = _OPEN_FENCE.search(self._text, max(0, start - _FENCE_CHARS), start)
        kind = self._in_fences if fenced else self._plain
        if is_plan(value) and not (self._skipped and "tool_calls" not in value):
            self._after_plan = True
            if value not in kind:
                kind.append(value)

    def _plans(self) -> list[Any]:
        return self._in_fences if len(self._in_fences) == 1 else [*self._plain, *self._in_fences]

    def _result(self) -> FoundPlan | Malformed:
        plans = self._plans()
        if len(plans) == 1:
            return FoundPlan(plans[0], repaired=True)
        if plans:
            problem = f"reply: holds {len(plans)} JSON objects with calls; send exactly one"
        elif self._ended_early:
            problem = "reply: ended before its JSON object began; think less and send a shorter reply"
        elif self._text.strip():
            problem = "reply: no JSON object with `plan` and `tool_calls` in it"
        else:
            problem = "reply: empty"
        return Malformed((problem,))

    def _leftover_problem(self, start: int, end: int) -> str | None:
        """Return the problem with the text between two values or after the last one, or None."""
        text = self._text
        match = _CALL_OUTSIDE.search(text, start, end)
        place = match.start() if match else None
        if place is None and self._after_plan:
            match = _JSON_AFTER.search(text, start, end)
            ends = _END_OF_ANSWER.match(text, start, end) or _SENTENCE.match(text, start, end)
            place = match.start() if match else None if ends else start
        return None if place is None else _fault_text(text, BrokenJsonError(_LEFT_OVER, place=place))


def _end_of_other_data(text: str, start: int) -> int | None:
    """Return the end of a broken object that is not a plan; None if it may be one."""
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text, start):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(match[0], 0)
        if depth == 0:
            return None if _WORD_OF_A_PLAN.search(text, start, match.end()) else match.end()
    return None


def _cut_off(read: TolerantValue, text: str, *, ended_early: bool) -> FoundPlan | Malformed:
    """Return the complete part of a truncated plan.

    Only calls that a comma or the end of the list follows are kept, because the cut may have been inside a
    string. The same holds for the last call of a complete but broken reply that the provider reports as
    truncated.
    """
    value = read.value
    calls = value if isinstance(value, list) else value.get("tool_calls")
    if isinstance(calls, list):
        is_open = any(item is calls for item in read.unfinished)
        is_last = is_open and read.unfinished[-1] is calls
        all_whole = not read.awaits_comma if is_last else not is_open and bool(read.unfinished)
    else:
        calls, all_whole = [calls] if isinstance(calls, dict) else [], False
    whole = calls if all_whole else calls[:-1]
    if not whole and not (ended_early and calls):
        place = one_line(text[-_EXCERPT_CHARS:], limit=_LONGEST_EXCERPT_CHARS)
        what_to_do = (
            "send a shorter reply" if ended_early else "send it again, with every string and bracket closed"
        )
        problem = (
            f"reply: ended in the middle, after `{place}`, before its first call was complete; {what_to_do}"
        )
        return Malformed((problem,))
    plan = "" if isinstance(value, list) else value.get("plan", "")
    plan = "" if flaws(plan) else plan
    tail = None if all_whole else calls[-1]
    return FoundPlan({"plan": plan, "tool_calls": whole}, repaired=True, cut_off=True, tail=tail)


def _fault_text(text: str, error: BrokenJsonError) -> str:
    """Describe a fault in one line: its place, the text around it, and its cause."""
    if error.place is None:
        return f"reply: not valid JSON ({error})"
    place = error.place
    line, column = text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)
    before, after = (
        one_line(part, limit=_LONGEST_EXCERPT_CHARS)
        for part in (text[max(0, place - _EXCERPT_CHARS) : place], text[place : place + _EXCERPT_CHARS])
    )
    return f"reply: line {line}, column {column}, between `{before}` and `{after}`: {error}"


_NAME_KEYS = ("tool", "name", "function")
_ARGUMENT_KEYS = ("args", "parameters", "input")
_BOOKKEEPING_KEYS = frozenset({"tool_name", "id", "type"})
_CALL_KEYS = _BOOKKEEPING_KEYS | {*_NAME_KEYS, *_ARGUMENT_KEYS, "arguments"}
_PLAN_KEYS = frozenset({"plan", "tool_calls"})
_KEY_CHARS = 40


def is_plan(value: Any) -> bool:
    """Return whether a value is meant as a plan, in any of the forms."""
    if isinstance(value, list):
        return bool(value) and all(is_call(item) for item in value)
    return isinstance(value, dict) and ("tool_calls" in value or is_call(value))


def is_call(value: Any) -> bool:
    """Return whether a value is meant as one call. A `name` alone is not enough: other data has names."""
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("function"), dict):
        value = value["function"]
    has_arguments = any(key in value for key in ("arguments", *_ARGUMENT_KEYS))
    return "tool_name" in value or (has_arguments and any(key in value for key in _NAME_KEYS))


def stray_keys(value: Any) -> tuple[str, ...]:
    """Return the unused keys, a line each. In broken JSON they may be the rest of a string."""
    calls = value.get("tool_calls", value) if isinstance(value, dict) else value
    found: list[str] = []
    if isinstance(value, dict) and "tool_calls" in value:
        keys = [*value]
        found = [_stray("reply", key) for key in keys[keys.index("tool_calls") :] if key not in _PLAN_KEYS]
    for index, call in enumerate(calls if isinstance(calls, list) else [calls]):
        if isinstance(call, dict) and any(key in call for key in ("arguments", *_ARGUMENT_KEYS)):
            found += [_stray(f"tool_calls[{index}]", key) for key in call if key not in _CALL_KEYS | {"plan"}]
    return tuple(found)


def _stray(path: str, key: str) -> str:
    shown = one_line(key, limit=_KEY_CHARS)
    return f'{path}: unexpected key `{shown}`; if it is text of a string, write \\" for each quotation mark in it'


def plan_of(value: Any) -> Any:
    """Return the value in the plan's form, as far as the table above converts it."""
    if isinstance(value, list) and is_plan(value):
        value = {"plan": "", "tool_calls": value}
    elif is_call(value) and "tool_calls" not in value:
        call = {key: item for key, item in value.items() if key != "plan"}
        value = {"plan": value.get("plan", ""), "tool_calls": [call]}
    if not isinstance(value, dict) or "tool_calls" not in value:
        return value
    plan, calls = value.get("plan", ""), value["tool_calls"]
    if isinstance(plan, list) and all(isinstance(line, str) for line in plan):
        plan = "\n".join(plan)
    if isinstance(calls, dict):
        calls = [calls]
    if isinstance(calls, list):
        calls = [call_of(call) for call in calls]
    return {**value, "plan": plan, "tool_calls": calls}


def call_of(call: Any) -> Any:
    """Return one call in the plan's form, as far as the table above converts it."""
    if not isinstance(call, dict):
        return call
    inner = call.get("function")
    if isinstance(inner, dict) and "tool_name" not in call:
        call = inner
    call = _renamed(_renamed(call, _NAME_KEYS, "tool_name"), _ARGUMENT_KEYS, "arguments")
    if "tool_name" not in call:
        return call
    if "arguments" not in call:
        loose = {key: item for key, item in call.items() if key not in _BOOKKEEPING_KEYS}
        return {"tool_name": call["tool_name"], "arguments": loose}
    return {**call, "arguments": _arguments(call["arguments"])}


def _renamed(call: dict[str, Any], written: tuple[str, ...], wanted: str) -> dict[str, Any]:
    there = [key for key in written if key in call]
    if wanted in call or len(there) != 1:
        return call
    return {wanted if key == there[0] else key: item for key, item in call.items()}


def _arguments(value: Any) -> Any:
    if value is None:
        return {}
    if not isinstance(value, str):
        return value
    try:
        inner = parse_json(value)
    except BrokenJsonError:
        return value
    return inner if isinstance(inner, dict) else value

"""The contract of one JSON object, `{"plan", "tool_calls"}`, in place of function calling.

A reply may have other text around the object, faults in it, or a missing end. These other forms that models write can
be read in one way only:

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

import functools
import json
import re
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from orchestrator.core.messages import FinishReason, JsonObject, Message, Reasoning, ToolCall
from orchestrator.core.prompts import one_line, render
from orchestrator.engine.contracts.base import (
    THOUGHTS,
    Actions,
    Contract,
    Malformed,
    Running,
    problem_lines,
    text_with_results,
)
from orchestrator.engine.contracts.plan_json import (
    BrokenJsonError,
    flaws,
    parse_json,
    parse_json_at,
    read_tolerantly,
)
from orchestrator.engine.models.base import INVALID_ARGUMENTS, OutputSchema
from orchestrator.engine.tools.registry import argument_problems, first_problems, problems, without_extras

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator.core.messages import ToolDefinition, ToolResult
    from orchestrator.engine.contracts.base import ReadReply
    from orchestrator.engine.contracts.plan_json import TolerantValue
    from orchestrator.engine.models.base import Request, Response

_EXAMPLE_TOOLS = frozenset({"edit_file", "create_pull_request", "finish"})


class JsonPlan(Contract):
    """Reads a plan strictly first, then tolerantly, and never completes a truncated call.

    A call of a tool that is not offered is passed on: the agent refuses and records it. If the arguments of the
    first call do not match an offered tool's schema, the whole reply is refused; a later such call fails when
    its turn comes.
    """

    name = "json_plan"
    running = Running.IN_ORDER
    has_own_form = True

    def go_on(self, tools: tuple[ToolDefinition, ...]) -> str:
        """Return the message that asks for a call, or for `finish`."""
        return render("agent/no_calls", tools=[tool.name for tool in tools])

    def shape(self, request: Request, tools: tuple[ToolDefinition, ...]) -> Request:
        """Return the request with the schema of a plan that calls only these tools."""
        return replace(request, output_schema=OutputSchema("plan", narrowed_schema(tools)))

    def describe(self, tools: tuple[ToolDefinition, ...]) -> str:
        """Return the form of the reply, and the tools with their parameters."""
        return render(
            "contracts/json_plan",
            tools=[_tool_words(tool) for tool in tools],
            names=[tool.name for tool in tools],
            example_tools=_EXAMPLE_TOOLS,
        )

    def read(self, response: Response, tools: tuple[ToolDefinition, ...], *, round_number: int) -> ReadReply:
        """Return the plan in a reply, or every path with a problem. Call ids are `r<round>c<index>`."""
        found = find_plan(response.text, ended_early=response.finish is FinishReason.LENGTH)
        if hidden := _among_thoughts(response):
            return hidden
        if isinstance(found, Malformed):
            return found
        value = plan_of(found.value)
        if (
            flawed := _first_flaws(found.value)
            or _first_flaws(value)
            or problems(_first_only(value), plan_schema())
        ):
            return Malformed(flawed)
        calls, flawed, note = _checked_calls(found.value, value["tool_calls"], tools, round_number)
        if flawed:
            return Malformed(flawed)
        withheld = _withheld(found, len(calls), round_number)
        if found.cut_off and not calls and not withheld:
            return Malformed(("reply: ended in the middle of its first call; send a shorter reply",))
        repaired = found.repaired or value != found.value
        return Actions(value["plan"], calls, withheld, repaired=repaired, cut_off=found.cut_off, note=note)

    def answer(self, results: tuple[ToolResult, ...], note: str = "") -> Message:
        """Return the results in order, as text."""
        return text_with_results("contracts/json_plan_results", results, note)

    def complain(self, problems: tuple[str, ...]) -> Message:
        """Return the problems, a line each, and the request to send the whole reply again."""
        return Message.user(render("contracts/json_plan_complaint", problems=problem_lines(problems)))


_MOST_CALLS = 200


def _first_only(value: Any) -> Any:
    """Return a plan without the calls after the first one; other values as they are."""
    if not isinstance(value, dict) or not isinstance(value.get("tool_calls"), list):
        return value
    kept = {key: item for key, item in value.items() if key != "tool_calls"}
    kept["tool_calls"] = value["tool_calls"][:1]
    return type(value)(kept)


def _first_flaws(value: Any) -> tuple[str, ...]:
    return flaws(_first_only(value))


def _checked_calls(
    written: Any, calls: list[Any], tools: tuple[ToolDefinition, ...], round_number: int
) -> tuple[tuple[ToolCall, ...], tuple[str, ...], str]:
    """Return the calls, or what is wrong with the first one or with an item that names no tool; and a note.

    A later call that is wrong fails when its turn comes: the calls before it run, as they do if the reply is cut
    off there.
    """
    offered = {tool.name: tool for tool in tools}
    items = written.get("tool_calls") if isinstance(written, dict) else None
    originals = items if isinstance(items, list) else calls
    checked: list[ToolCall] = []
    everything: list[str] = []
    notes: list[str] = []
    refused = False
    for index, (original, call) in enumerate(zip(originals, calls, strict=True)):
        name, where = _name_of(call), f"tool_calls[{index}]"
        arguments: JsonObject = {}
        wrong = _form_problems(original, call, where)
        if len(calls) > _MOST_CALLS and index == _MOST_CALLS:
            wrong = (f"tool_calls: has {len(calls)} items, at most {_MOST_CALLS} are allowed",)
        if wrong:
            arguments = {INVALID_ARGUMENTS: "; ".join(first_problems(wrong))}
        else:
            arguments = call["arguments"]
            if tool := offered.get(name):
                arguments, note = without_extras(without_nulls(arguments, tool.parameters), tool)
                notes += filter(None, [note])
                wrong = argument_problems(arguments, tool, f"{where}.arguments")
        everything.extend(wrong)
        refused = refused or bool(wrong and not (index and name))
        checked.append(ToolCall(_call_id(round_number, index), name, arguments))
    return tuple(checked), first_problems(tuple(everything)) if refused else (), "\n".join(notes)


def _form_problems(original: Any, call: Any, where: str) -> tuple[str, ...]:
    """Return what is wrong with a call, whatever its tool; `original` is the call as the model wrote it."""
    item = plan_schema()["properties"]["tool_calls"]["items"]
    return tuple(f"{where}.{flaw}" for flaw in flaws(original) or flaws(call)) or problems(call, item, where)


def _name_of(call: Any) -> str:
    """Return the name of the tool that a call names; empty if it names none."""
    name = call_of(call).get("tool_name") if isinstance(call, dict) else None
    return name if isinstance(name, str) and not flaws(name) else ""


_END_OF_JSON = re.compile(r"[\"}\]]")
_AMONG_THOUGHTS = "reply: its JSON object is among the thoughts, where nothing runs: end them with </think> before the object"


def _among_thoughts(response: Response) -> Malformed | None:
    """Return the problem of a reply whose plan is in its thoughts, or begins there; else None."""
    thoughts = "".join(part.text for part in response.message.parts if isinstance(part, Reasoning))
    text = f"{thoughts}{_END_OF_THOUGHTS}{response.text}" if thoughts else response.text
    end = len(thoughts) or _end_of_thoughts(text)
    answer = _START.search(text, end)
    if answer and not _END_OF_JSON.search(text, end, answer.start()):
        return None
    is_answered = response.finish is FinishReason.LENGTH or answer
    for start in islice(_START.finditer(text, 0, end), _MOST_STARTS):
        if not _WORD_OF_A_PLAN.search(text, start.start()):
            break
        if not is_answered or _end_of_value(text, start.start()) > end:
            return Malformed((_AMONG_THOUGHTS,))
    return None


def _end_of_value(text: str, start: int) -> int:
    """Return where the JSON value that begins here ends, or where it can no longer be read."""
    try:
        return read_tolerantly(text, start).end
    except BrokenJsonError as error:
        return error.place or start


def _withheld(found: FoundPlan, index: int, round_number: int) -> tuple[ToolCall, ...]:
    call = call_of(found.tail)
    if not isinstance(call, dict) or flaws(call):
        return ()
    name, arguments = call.get("tool_name"), call.get("arguments")
    if not isinstance(name, str) or not name:
        return ()
    return (ToolCall(_call_id(round_number, index), name, arguments if isinstance(arguments, dict) else {}),)


def _call_id(round_number: int, index: int) -> str:
    return f"r{round_number}c{index + 1}"


def _tool_words(tool: ToolDefinition) -> dict[str, Any]:
    required = tool.parameters.get("required", ())
    parameters = [
        {
            "name": name,
            "type": _type_words(schema),
            "required": name in required,
            "description": schema.get("description", ""),
        }
        for name, schema in tool.parameters.get("properties", {}).items()
    ]
    return {"name": tool.name, "description": tool.description, "parameters": parameters}


def _type_words(schema: JsonObject) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    if variants := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(map(_type_words, variants))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type_words(schema.get('items', {}))}"
    return kind if isinstance(kind, str) else " or ".join(kind)


@functools.cache
def plan_schema() -> JsonObject:
    """Return the schema of any plan, whatever its tools."""
    text = Path(__file__).with_name("plan.schema.json").read_text(encoding="utf-8")
    return cast("JsonObject", json.loads(text))


def narrowed_schema(tools: Sequence[ToolDefinition]) -> JsonObject:
    """Return the schema of a plan that calls only these tools, in the form for constrained decoding.

    It uses only what all providers' decoders accept: every object closed, no `pattern`, `$ref`, `oneOf` or
    bounds. Optional parameters stay optional, because a small model that must write each of them invents
    values. Protocols of providers that require all of them convert the schema.
    """
    base = plan_schema()["properties"]
    calls = [
        _closed(
            {
                "tool_name": {"type": "string", "enum": [tool.name]},
                "arguments": decodable({"type": "object", **tool.parameters}),
            }
        )
        for tool in tools
    ] or [decodable(base["tool_calls"]["items"])]
    items = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return _closed({"plan": {"type": "string"}, "tool_calls": {"type": "array", "items": items}})


def _closed(properties: JsonObject, required: Iterable[str] | None = None) -> JsonObject:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties if required is None else required),
        "additionalProperties": False,
    }


def decodable(schema: Any) -> JsonObject:
    """Return a schema with every object closed, and only the keywords that all constrained decoders support.

    The reply is validated against the tool's own schema anyway. An object with arbitrary keys becomes an
    empty one.
    """
    if not isinstance(schema, dict):
        return {}
    variants = schema.get("anyOf") or schema.get("oneOf")
    if variants:
        return {"anyOf": [decodable(variant) for variant in variants]}
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        required = [key for key in schema.get("required", ()) if key in properties]
        return _closed({key: decodable(value) for key, value in properties.items()}, required)
    kept = {key: schema[key] for key in ("type", "enum", "const") if key in schema}
    if "items" in schema:
        kept["items"] = decodable(schema["items"])
    return kept


def without_nulls(value: Any, schema: Any) -> Any:
    """Return the value without nulls that only mean "not given".

    These are nulls in optional properties whose own schema does not allow them: models write them, and have
    to if a provider requires every property.
    """
    if not isinstance(schema, dict):
        return value
    if isinstance(value, list):
        return [without_nulls(item, schema.get("items")) for item in value]
    if not isinstance(value, dict):
        return value
    from jsonschema import Draft202012Validator

    properties = schema.get("properties", {})
    required = schema.get("required", ())
    return {
        key: without_nulls(item, properties.get(key))
        for key, item in value.items()
        if item is not None
        or key in required
        or key not in properties
        or Draft202012Validator(properties[key]).is_valid(None)
    }


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
_OPEN_FENCE = re.compile(r"`{3,}+[ \t]*+(?:json[c5]?)?[ \t]*+\r?\n?[ \t]*+\Z", re.IGNORECASE)
_STRING_OR_BRACKET = re.compile(r'"(?>(?:[^"\\]++|\\(?:.|\Z))*)(?:"|\Z)|[{}\[\]]', re.DOTALL)
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

    Only calls are kept that the name of the next call or the end of the list follows: a quotation mark that was
    not escaped may end a string early, and brackets and a comma of its text may follow. A list that is not in an
    object may have other data later, and then be no plan. If the provider does not say that the reply was cut off,
    it is faulty, as any whole reply with a fault, and only brackets after the list may be missing.
    """
    value = read.value
    calls = value if isinstance(value, list) else value.get("tool_calls")
    whole: list[Any] = []
    if not isinstance(calls, list):
        calls = [calls] if isinstance(calls, dict) else []
    elif not isinstance(value, list):
        is_open = any(item is calls for item in read.unfinished)
        certain = _certain_calls(calls, read.unfinished, is_open=is_open)
        whole = calls[: certain if ended_early or not is_open else 0]
    if not whole and not (ended_early and calls):
        place = one_line(text[-_EXCERPT_CHARS:], limit=_LONGEST_EXCERPT_CHARS)
        rest = (
            ", before its first call was complete; send a shorter reply"
            if ended_early
            else "; send it again, with every string and bracket closed"
        )
        problem = f"reply: ended in the middle, after `{place}`{rest}"
        return Malformed((problem,))
    plan = "" if isinstance(value, list) else value.get("plan", "")
    plan = "" if flaws(plan) else plan
    tail = calls[len(whole)] if len(whole) < len(calls) else None
    return FoundPlan({"plan": plan, "tool_calls": whole}, repaired=True, cut_off=True, tail=tail)


def _certain_calls(calls: list[Any], unfinished: tuple[Any, ...], *, is_open: bool) -> int:
    """Return how many calls of a truncated plan are certainly complete."""
    is_begun = bool(calls) and any(item is calls[-1] for item in unfinished)
    names = [bool(_name_of(call)) for call in calls]
    if not all(names[:-1] if is_begun else names):
        return 0  # an item is no call, so this is no plan
    if unfinished and not is_open:
        return len(calls)
    return max(len(calls) - (2 if is_begun and not names[-1] else 1), 0)


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

"""Forms that models write instead of the plan's, and that can be read in one way only.

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

Anything else stays as it is, and the schema finds the fault.
"""

from __future__ import annotations

from typing import Any

from orchestrator.engine.contracts.fence import one_line
from orchestrator.engine.contracts.strict_json import BrokenJsonError, decode

_NAME_KEYS = ("tool", "name", "function")
_ARGUMENT_KEYS = ("args", "parameters", "input")
_BOOKKEEPING_KEYS = frozenset({"tool_name", "id", "type"})
_CALL_KEYS = _BOOKKEEPING_KEYS | {*_NAME_KEYS, *_ARGUMENT_KEYS, "arguments"}
_PLAN_KEYS = frozenset({"plan", "tool_calls"})
_KEY_CHARS = 40


def is_plan(value: Any) -> bool:
    """Whether a value is meant as a plan, in any of the forms."""
    if isinstance(value, list):
        return bool(value) and all(is_call(item) for item in value)
    return isinstance(value, dict) and ("tool_calls" in value or is_call(value))


def is_call(value: Any) -> bool:
    """Whether a value is meant as one call. A `name` alone is not enough: other data has names."""
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("function"), dict):
        value = value["function"]
    has_arguments = any(key in value for key in ("arguments", *_ARGUMENT_KEYS))
    return "tool_name" in value or (has_arguments and any(key in value for key in _NAME_KEYS))


def stray_keys(value: Any) -> tuple[str, ...]:
    """Keys that nothing reads, a line each. In JSON that is broken they may be the rest of a string."""
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
    """The value in the plan's form, as far as the table goes."""
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
    """One call in the plan's form, as far as the table goes."""
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
        inner = decode(value)
    except BrokenJsonError:
        return value
    return inner if isinstance(inner, dict) else value

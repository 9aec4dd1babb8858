"""The plan's JSON Schema: the file, its narrowing to the tools on offer, and what a value does wrong.

The file is `plan.schema.json` beside this module. Everything here is a pure function of values.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jsonschema import ValidationError

    from orchestrator.core.messages import JsonObject, ToolDefinition

_MOST_PROBLEMS = 10
_LONGEST_PROBLEM_CHARS = 200
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_JSON_TYPES = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
_TYPE_WORDS = {"object": "an object", "array": "a list", "string": "a string", "integer": "an integer"}


@functools.cache
def base_schema() -> JsonObject:
    """The schema of any plan, whatever its tools."""
    text = Path(__file__).with_name("plan.schema.json").read_text(encoding="utf-8")
    return cast("JsonObject", json.loads(text))


def narrowed_schema(tools: Sequence[ToolDefinition]) -> JsonObject:
    """The schema of a plan that calls these tools only, in the form that constrained decoding takes.

    It keeps to what all providers' decoders accept: every object closed, no `pattern`, `$ref`,
    `oneOf` or bounds. Optional parameters stay optional: a small model that must write each of
    them makes up values. A provider that demands all of them is the protocol's business.
    """
    base = base_schema()["properties"]
    calls = [_call_schema(tool) for tool in tools] or [plain(base["tool_calls"]["items"])]
    items = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return _closed({"plan": {"type": "string"}, "tool_calls": {"type": "array", "items": items}})


def _call_schema(tool: ToolDefinition) -> JsonObject:
    name = {"type": "string", "enum": [tool.name]}
    return _closed({"tool_name": name, "arguments": plain({"type": "object", **tool.parameters})})


def _closed(properties: JsonObject, required: Iterable[str] | None = None) -> JsonObject:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties if required is None else required),
        "additionalProperties": False,
    }


def plain(schema: Any) -> JsonObject:
    """A schema with every object closed, and only the keywords that constrained decoding knows everywhere.

    The reply is checked against the tool's own schema anyway. An object with free keys becomes one
    without.
    """
    if not isinstance(schema, dict):
        return {}
    variants = schema.get("anyOf") or schema.get("oneOf")
    if variants:
        return {"anyOf": [plain(variant) for variant in variants]}
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        required = [key for key in schema.get("required", ()) if key in properties]
        return _closed({key: plain(value) for key, value in properties.items()}, required)
    kept = {key: schema[key] for key in ("type", "enum", "const") if key in schema}
    if "items" in schema:
        kept["items"] = plain(schema["items"])
    return kept


def without_nulls(value: Any, schema: Any) -> Any:
    """The value without those nulls that only stand for "not given".

    That is a null in an optional property whose own schema does not allow it: models write it, and
    where a provider demands every property they must.
    """
    if not isinstance(schema, dict):
        return value
    if isinstance(value, list):
        return [without_nulls(item, schema.get("items")) for item in value]
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties", {})
    required = schema.get("required", ())
    return {
        key: without_nulls(item, properties.get(key))
        for key, item in value.items()
        if item is not None or key in required or key not in properties or _allows_null(properties[key])
    }


def _allows_null(schema: Any) -> bool:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(schema).is_valid(None)


def plan_problems(value: Any) -> tuple[str, ...]:
    """What keeps a value from being a plan, a line each; empty where nothing does."""
    return _problems(value, base_schema(), "")


def argument_problems(arguments: Mapping[str, Any], tool: ToolDefinition, index: int) -> tuple[str, ...]:
    """What is wrong with the arguments of call `index`, a line each; empty where nothing is."""
    return _problems(arguments, tool.parameters, f"tool_calls[{index}].arguments")


def _problems(value: Any, schema: JsonObject, where: str) -> tuple[str, ...]:
    from jsonschema import Draft202012Validator

    lines: dict[str, None] = {}
    for error in Draft202012Validator(schema).iter_errors(value):
        lines.update(dict.fromkeys(_lines(error, path_text(error.absolute_path, where))))
    return shortened(tuple(lines))


def shortened(problems: tuple[str, ...]) -> tuple[str, ...]:
    """The first problems, and how many more there are."""
    more = len(problems) - _MOST_PROBLEMS
    return problems if more <= 0 else (*problems[:_MOST_PROBLEMS], f"and {more} more")


def path_text(path: Iterable[str | int], where: str = "") -> str:
    """A JSON path as a person writes it: `tool_calls[1].arguments.path`; `reply` for the root."""
    text = where
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(_cut(step))}]"
    return text or "reply"


def _lines(error: ValidationError, path: str) -> list[str]:
    instance: Any = error.instance
    expected: Any = error.validator_value
    if error.validator == "required":
        prefix = "" if path == "reply" else f"{path}."
        return [
            f"{prefix}{name}: '{name}' is a required property" for name in expected if name not in instance
        ]
    if error.validator == "type":
        names = [expected] if isinstance(expected, str) else expected
        words = " or ".join(_TYPE_WORDS.get(name, name) for name in names)
        return [f"{path}: must be {words}, not {_JSON_TYPES.get(type(instance), 'a number')}"]
    if error.validator == "maxItems":
        return [f"{path}: has {len(instance)} items, at most {expected} are allowed"]
    if error.validator == "enum":
        return [f"{path}: must be one of {_cut(json.dumps(expected))}"]
    return [f"{path}: {_cut(error.message)}"]


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_PROBLEM_CHARS else text[:_LONGEST_PROBLEM_CHARS] + "…"

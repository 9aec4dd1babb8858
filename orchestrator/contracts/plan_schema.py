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
_NULL = {"type": "null"}


@functools.cache
def base_schema() -> JsonObject:
    """The schema of any plan, whatever its tools."""
    text = Path(__file__).with_name("plan.schema.json").read_text(encoding="utf-8")
    return cast("JsonObject", json.loads(text))


def narrowed_schema(tools: Sequence[ToolDefinition]) -> JsonObject:
    """The schema of a plan that calls these tools only, in the form that constrained decoding takes.

    It keeps to what all of OpenAI's strict mode
    (https://platform.openai.com/docs/guides/structured-outputs#supported-schemas), llama.cpp's
    grammars and their relatives accept: every object closed, every property required, no
    `pattern`, `$ref`, `oneOf` or bounds.
    """
    base = base_schema()["properties"]
    calls = [_call_schema(tool) for tool in tools] or [strict(base["tool_calls"]["items"])]
    items = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return _closed({"plan": {"type": "string"}, "tool_calls": {"type": "array", "items": items}})


def _call_schema(tool: ToolDefinition) -> JsonObject:
    name = {"type": "string", "enum": [tool.name]}
    return _closed({"tool_name": name, "arguments": strict({"type": "object", **tool.parameters})})


def _closed(properties: JsonObject) -> JsonObject:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def strict(schema: Any) -> JsonObject:
    """A schema with every object closed and every property required; an optional one may be null.

    Keywords that constrained decoding does not know everywhere are left out: the reply is
    checked against the tool's own schema anyway. An object with free keys becomes one without.
    """
    if not isinstance(schema, dict):
        return {}
    variants = schema.get("anyOf") or schema.get("oneOf")
    if variants:
        return {"anyOf": [strict(variant) for variant in variants]}
    if schema.get("type") == "object":
        required = schema.get("required", ())
        properties = schema.get("properties", {})
        return _closed(
            {
                key: strict(value) if key in required else _nullable(strict(value))
                for key, value in properties.items()
            }
        )
    kept = {key: schema[key] for key in ("type", "enum", "const") if key in schema}
    if "items" in schema:
        kept["items"] = strict(schema["items"])
    return kept


def _nullable(schema: JsonObject) -> JsonObject:
    if "anyOf" in schema:
        variants = schema["anyOf"]
        return schema if _NULL in variants else {"anyOf": [*variants, _NULL]}
    types = schema.get("type", ())
    return schema if "null" in types else {"anyOf": [schema, _NULL]}


def without_nulls(value: Any, schema: Any) -> Any:
    """The value without those nulls that only stand for "not given".

    That is a null in an optional property whose own schema does not allow it: the answer to a
    schema which `strict` made.
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

"""The plan's JSON Schema: the file, its narrowing to the tools on offer, and what a value does wrong.

The file is `plan.schema.json` beside this module. Everything here is a pure function of values.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from orchestrator.engine.tools.registry import problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator.core.messages import JsonObject, ToolDefinition


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
    return problems(value, base_schema())

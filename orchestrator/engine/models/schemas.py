"""Structured output: each vendor supports a subset of JSON Schema for replies.

- OpenAI: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
- Anthropic: https://platform.claude.com/docs/en/build-with-claude/structured-outputs
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.engine.models.wire import plain_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.engine.models.base import OutputSchema

_NAME_LENGTH = 64
_NULL = {"type": "null"}
_NOT_STRICT = frozenset(
    [
        "allOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "dependentRequired",
        "dependentSchemas",
        "patternProperties",
    ]
)


def openai_format(output: OutputSchema, *, demanding: bool) -> dict[str, Any]:
    """Return the request field that constrains a whole reply.

    Args:
        output: the schema.
        demanding: require every property, and let optional ones be null, as strict mode demands.
    """
    schema = all_required(output.schema) if demanding else output.schema
    named = {"name": plain_name(output.name, _NAME_LENGTH), "schema": schema, "strict": allows_strict(schema)}
    return {"type": "json_schema", "json_schema": named}


def all_required(schema: Any) -> Any:
    """Return the schema with every property required; an optional one may be null instead."""
    if not isinstance(schema, dict):
        return schema
    changed = dict(schema)
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            changed[key] = [all_required(part) for part in schema[key]]
    if "items" in schema:
        changed["items"] = all_required(schema["items"])
    if "properties" in schema:
        required = schema.get("required", ())
        changed["properties"] = {
            key: all_required(value) if key in required else _nullable(all_required(value))
            for key, value in schema["properties"].items()
        }
        changed["required"] = list(schema["properties"])
    return changed


def _nullable(schema: Any) -> Any:
    if "anyOf" in schema:
        variants = schema["anyOf"]
        return schema if _NULL in variants else {**schema, "anyOf": [*variants, _NULL]}
    return schema if "null" in schema.get("type", ()) else {"anyOf": [schema, _NULL]}


def allows_strict(schema: object) -> bool:
    """Return whether strict mode accepts the schema: every object closed, with all properties required."""
    return isinstance(schema, dict) and schema.get("type") == "object" and _is_strict(schema)


def _is_strict(schema: object) -> bool:
    if not isinstance(schema, dict) or _NOT_STRICT & schema.keys():
        return False
    kinds = schema.get("type")
    if kinds == "object" or (isinstance(kinds, list) and "object" in kinds):
        properties = schema.get("properties", {})
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", ())) != set(properties):
            return False
    if not schema.keys() & {"type", "anyOf", "$ref", "enum", "const"}:
        return False
    if kinds == "array" and "items" not in schema:
        return False
    return all(_is_strict(part) for part in _parts(schema))


def _parts(schema: dict[str, Any]) -> Iterator[Any]:
    yield from [schema["items"]] if "items" in schema else []
    for key in ("anyOf", "allOf"):
        yield from schema.get(key, ())
    for key in ("properties", "$defs"):
        yield from schema.get(key, {}).values()


# Keywords that the vendor refuses. They may be dropped, because the reply is validated later anyway.
_DROPPED = frozenset(
    [
        "$id",
        "$schema",
        "examples",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "pattern",
        "uniqueItems",
    ]
)


_NOT_ANTHROPIC = frozenset(
    [
        "contains",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "if",
        "not",
        "patternProperties",
        "prefixItems",
        "propertyNames",
        "then",
    ]
)


_TYPE_KEYWORDS = frozenset(["type", "anyOf", "allOf", "$ref", "enum", "const"])


def anthropic_format(schema: object) -> dict[str, Any] | None:
    """Return the request field that constrains a whole reply; None if the vendor does not support the schema.

    Every object must be closed. An object with properties is closed here; one that allows any key is refused.
    """
    narrowed = _anthropic_schema(schema)
    return {"type": "json_schema", "schema": narrowed} if _is_anthropic(narrowed) else None


def _anthropic_schema(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key not in _DROPPED}
    if "oneOf" in kept:
        kept["anyOf"] = kept.pop("oneOf")
    if kept.get("minItems", 0) not in {0, 1}:
        kept["minItems"] = 1
    for key in ("anyOf", "allOf"):
        if key in kept:
            kept[key] = [_anthropic_schema(part) for part in kept[key]]
    for key in ("properties", "$defs"):
        if key in kept:
            kept[key] = {name: _anthropic_schema(part) for name, part in kept[key].items()}
    if "items" in kept:
        kept["items"] = _anthropic_schema(kept["items"])
    if kept.get("properties"):
        kept.setdefault("additionalProperties", False)
    return kept


def _is_anthropic(schema: Any) -> bool:
    if not isinstance(schema, dict) or _NOT_ANTHROPIC & schema.keys() or not _TYPE_KEYWORDS & schema.keys():
        return False
    kinds = schema.get("type", ())
    is_object = "object" in ((kinds,) if isinstance(kinds, str) else kinds)
    if is_object and schema.get("additionalProperties") is not False:
        return False
    return all(_is_anthropic(part) for part in _parts(schema))

"""Structured output as Anthropic has it, which takes a part of JSON Schema only.

https://platform.claude.com/docs/en/build-with-claude/structured-outputs
"""

from __future__ import annotations

from typing import Any

# What the vendor refuses, and a reply can do without: it is checked again after it has come.
_DROPPED = frozenset(
    (
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
    )
)
_REFUSED = frozenset(
    (
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
    )
)
_SAYS_WHAT = frozenset(("type", "anyOf", "allOf", "$ref", "enum", "const"))


def output_format(schema: object) -> dict[str, Any] | None:
    """The field that constrains a whole reply; None where the vendor cannot do it with this schema.

    Every object must be closed: one with properties is closed here, one that takes any key is refused.
    """
    narrowed = _narrowed(schema)
    return {"type": "json_schema", "schema": narrowed} if _is_fit(narrowed) else None


def _narrowed(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key not in _DROPPED}
    if "oneOf" in kept:
        kept["anyOf"] = kept.pop("oneOf")
    if kept.get("minItems", 0) not in {0, 1}:
        kept["minItems"] = 1
    for key in ("anyOf", "allOf"):
        if key in kept:
            kept[key] = [_narrowed(part) for part in kept[key]]
    for key in ("properties", "$defs"):
        if key in kept:
            kept[key] = {name: _narrowed(part) for name, part in kept[key].items()}
    if "items" in kept:
        kept["items"] = _narrowed(kept["items"])
    if kept.get("properties"):
        kept.setdefault("additionalProperties", False)
    return kept


def _is_fit(schema: Any) -> bool:
    if not isinstance(schema, dict) or _REFUSED & schema.keys() or not _SAYS_WHAT & schema.keys():
        return False
    kinds = schema.get("type", ())
    is_object = "object" in ((kinds,) if isinstance(kinds, str) else kinds)
    if is_object and schema.get("additionalProperties") is not False:
        return False
    below = [*schema.get("anyOf", ()), *schema.get("allOf", ())]
    below += [schema["items"]] if "items" in schema else []
    for key in ("properties", "$defs"):
        below += schema.get(key, {}).values()
    return all(_is_fit(part) for part in below)

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from orchestrator.engine.models.base import OutputSchema, Request
from orchestrator.engine.models.openai import all_required, allows_strict
from orchestrator.engine.models.openai_chat import ChatWire
from tests.tables import table

CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


@table(
    ("schema", "strict"),
    [
        (CLOSED, True),
        ({**CLOSED, "required": []}, False),
        ({**CLOSED, "additionalProperties": True}, False),
        ({"type": "object"}, False),
        ({"type": "array", "items": CLOSED}, False),
        ({"anyOf": [CLOSED]}, False),
        ({**CLOSED, "properties": {"a": {"type": "object"}}}, False),
        ({**CLOSED, "properties": {"a": {"type": "array", "items": CLOSED}}}, True),
        ({**CLOSED, "properties": {"a": {"type": "array"}}}, False),
        ({**CLOSED, "properties": {"a": {"anyOf": [CLOSED, {"type": "null"}]}}}, True),
        ({**CLOSED, "properties": {"a": {"oneOf": [CLOSED, {"type": "null"}]}}}, False),
        (
            {**CLOSED, "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": "object"}}},
            False,
        ),
        ({**CLOSED, "properties": {"a": {}}}, False),
        ({**CLOSED, "properties": {"a": True}}, False),
    ],
)
def test_strict_only_where_the_vendor_takes_it(schema: object, *, strict: bool) -> None:
    assert allows_strict(schema) is strict


TEXT = {"type": "string"}
OPTIONAL = {
    "type": "object",
    "properties": {"a": TEXT, "b": TEXT},
    "required": ["a"],
    "additionalProperties": False,
}


@table(
    ("api_url", "strict"),
    [
        ("https://api.openai.com/v1", True),
        ("https://one.openai.azure.com/openai", True),
        ("http://127.0.0.1:8080/v1", False),
        ("https://api.openai.com.example.com/v1", False),
    ],
)
def test_only_the_vendor_demands_every_property(api_url: str, *, strict: bool) -> None:
    request = Request("", (), output_schema=OutputSchema("plan", OPTIONAL))
    form = ChatWire.at(api_url, "x").encode(request, stream=False).body["response_format"]["json_schema"]
    assert form["strict"] is strict
    assert form["schema"]["required"] == (["a", "b"] if strict else ["a"])


@pytest.mark.parametrize("value", [{"a": "x", "b": None}, {"a": "x", "b": "y"}])
def test_an_optional_property_may_be_null_instead(value: dict[str, Any]) -> None:
    schema = all_required(OPTIONAL)
    assert allows_strict(schema)
    assert Draft202012Validator(schema).is_valid(value)
    assert not Draft202012Validator(schema).is_valid({"a": None, "b": "y"})
    assert not Draft202012Validator(schema).is_valid({"a": "x"})


def test_objects_at_any_depth_are_reached() -> None:
    nested = {**OPTIONAL, "properties": {"a": {"type": "array", "items": {"anyOf": [OPTIONAL, TEXT]}}}}
    assert allows_strict(all_required(nested))


def test_what_may_be_null_already_gets_no_second_null() -> None:
    properties = {"a": {"type": ["string", "null"]}, "b": {"anyOf": [TEXT, {"type": "null"}]}}
    changed = all_required({"type": "object", "properties": properties})["properties"]
    assert changed["a"] == {"type": ["string", "null"]}
    assert changed["b"]["anyOf"].count({"type": "null"}) == 1

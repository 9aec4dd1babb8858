"""The schema sent to a model, and the way back from what it answers."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from orchestrator.core.messages import Message, ToolDefinition
from orchestrator.engine.contracts.json_plan import (
    JsonPlan,
    decodable,
    narrowed_schema,
    plan_schema,
    without_nulls,
)
from orchestrator.engine.models.base import Request
from orchestrator.engine.tools.registry import path_text
from tests.tables import table
from tests.unit.engine.contracts.samples import FINISH, READ, TEXT, TOOLS, WRITE, call, plan, tool

KEYWORDS = {"type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf"}


def _schemas(schema: Any) -> list[dict[str, Any]]:
    """A schema and all schemas inside it."""
    found = [schema]
    for inner in [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]:
        found += _schemas(inner)
    return found + (_schemas(schema["items"]) if "items" in schema else [])


def accepts(schema: Any, value: object) -> bool:
    return Draft202012Validator(schema).is_valid(value)


def test_the_file_is_a_valid_schema() -> None:
    Draft202012Validator.check_schema(plan_schema())


def test_the_request_carries_the_schema_and_nothing_else_changes() -> None:
    request = Request("system", (Message.user("task"),), temperature=0.5)
    shaped = JsonPlan().shape(request, TOOLS)
    assert shaped.output_schema is not None
    assert (shaped.output_schema.name, shaped.output_schema.schema) == ("plan", narrowed_schema(TOOLS))
    assert (shaped.system, shaped.messages, shaped.temperature, shaped.tools) == (
        "system",
        request.messages,
        0.5,
        (),
    )


def test_the_plan_comes_before_the_calls_and_the_name_before_the_arguments() -> None:
    text = json.dumps(narrowed_schema(TOOLS)["properties"])
    assert (
        text.index('"plan"')
        < text.index('"tool_calls"')
        < text.index('"tool_name"')
        < text.index('"arguments"')
    )


def test_every_object_is_closed_and_optional_parameters_stay_optional() -> None:
    nested = tool("deep", {"a": {"type": "array", "items": {"type": "object", "properties": {"b": TEXT}}}})
    for schema in _schemas(narrowed_schema((*TOOLS, nested))):
        assert set(schema) <= KEYWORDS
        if schema.get("type") == "object":
            assert set(schema["required"]) <= set(schema["properties"])
            assert schema["additionalProperties"] is False


def test_only_the_tools_on_offer_can_be_called() -> None:
    schema = narrowed_schema(TOOLS)
    assert accepts(schema, plan(call("write_file", path="a", content="b"), call("finish")))
    assert not accepts(schema, plan(call("run_shell_command", command="ls")))
    assert not accepts(schema, plan(call("write_file", path="a")))
    assert "run_shell_command" not in json.dumps(schema)


@table("tools", [(), (FINISH,), TOOLS])
def test_it_is_a_valid_schema_for_any_number_of_tools(tools: tuple[ToolDefinition, ...]) -> None:
    Draft202012Validator.check_schema(narrowed_schema(tools))


@table(
    ("schema", "expected"),
    [
        ({"type": "string", "pattern": "^a", "minLength": 1, "description": "x"}, {"type": "string"}),
        ({"type": "string", "enum": ["a", "b"]}, {"type": "string", "enum": ["a", "b"]}),
        ({"oneOf": [{"type": "string"}, {"type": "integer", "minimum": 1}]},
         {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 3}, {"type": "array", "items": {"type": "string"}}),
        (True, {}),
    ],
)  # fmt: skip
def test_only_simple_keywords_are_kept(schema: Any, expected: Any) -> None:
    assert decodable(schema) == expected


def test_nulls_that_mean_something_stay() -> None:
    inner = {"type": "object", "properties": {"c": TEXT}, "required": []}
    schema = {
        "type": "object",
        "properties": {
            "a": TEXT,
            "b": {"type": ["string", "null"]},
            "r": TEXT,
            "d": {"type": "array", "items": inner},
        },
        "required": ["r"],
    }
    value = {"a": None, "b": None, "r": None, "d": [{"c": None}, {"c": "x"}], "unknown": None}
    assert without_nulls(value, schema) == {"b": None, "r": None, "d": [{}, {"c": "x"}], "unknown": None}


OPTIONAL = st.none() | st.integers()


@given(path=st.text(), offset=OPTIONAL, limit=OPTIONAL)
def test_what_the_narrowed_schema_accepts_fits_the_tool(
    path: str, offset: int | None, limit: int | None
) -> None:
    value = {"path": path, "offset": offset, "limit": limit}
    given_ones = {key: item for key, item in value.items() if item is not None}
    assert accepts(narrowed_schema((READ, WRITE)), plan(call("read_file", **given_ones)))
    assert accepts(READ.parameters, without_nulls(value, READ.parameters))


def test_paths_are_written_as_people_write_them() -> None:
    assert path_text(["tool_calls", 1, "arguments", "path"]) == "tool_calls[1].arguments.path"
    assert path_text(["a b", 0], "x") == 'x["a b"][0]'
    assert path_text([]) == "reply"

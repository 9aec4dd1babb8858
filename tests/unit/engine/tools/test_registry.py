"""What can be registered as a tool, and what is refused with which words."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.errors import ConfigurationError
from orchestrator.core.messages import ToolDefinition
from orchestrator.engine.tools.base import Ok, Tool, ToolContext, ToolOutcome
from orchestrator.engine.tools.files import overwrite_file, read_text_or_image
from orchestrator.engine.tools.registry import ToolRegistry, check_tool
from orchestrator.engine.tools.shell import shell
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = {"type": "object", "properties": {"filter": {"type": "string"}}}


async def run(_arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
    return Ok("ran")


class Runner:
    async def __call__(self, _arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        return Ok("ran")


def tool(
    name: Any = "run_tests", schema: Any = SCHEMA, execute: Any = run, description: Any = "Runs."
) -> Tool:
    return Tool(ToolDefinition(name, description, schema), execute)


@table("name", ["a", "_", "run_tests", "github__create-pr", "A1", "x" * 64])
def test_names_that_every_vendor_takes(name: str) -> None:
    registry = ToolRegistry()
    registry.register(tool(name))
    assert registry.names() == (name,)


@table(
    "name",
    [
        *("", " ", "run tests", "run.tests", "run/tests", "run:tests", "1st", "-x", "é", "x" * 65, "a\n"),
        *("$", "名", "a\0", None, 5, b"run"),
    ],
)
def test_a_name_that_a_vendor_refuses_is_refused_at_once(name: Any) -> None:
    registry = ToolRegistry()
    with pytest.raises(ConfigurationError, match="is no name for a tool: use 1 to 64 letters") as refused:
        registry.register(tool(name))
    assert "\n" not in str(refused.value)
    assert registry.names() == ()


@table(
    "execute",
    [run, Runner(), functools.partial(run), lambda a, c=None: run(a, c), Runner().__call__],
)
def test_functions_of_every_kind_are_taken(execute: Any) -> None:
    check_tool(tool(execute=execute))


@table(
    ("execute", "words"),
    [
        (None, "execute of the tool run_tests must be a function, not None"),
        ("run", "must be a function, not a text"),
        (Ok("ran"), "must be a function, not a Ok"),
        (lambda: None, "must take two arguments, execute(arguments, context); it takes ()"),
        (lambda arguments: arguments, "must take two arguments"),
        (lambda a, b, c: (a, b, c), "must take two arguments"),
    ],
)
def test_what_cannot_be_called_as_a_tool_is_refused(execute: Any, words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_tool(tool(execute=execute))
    assert words in str(refused.value)


@table(
    ("schema", "words"),
    [
        (None, "they are a NoneType, not a dict"),
        ([], "they are a list"),
        ("{}", "they are a str"),
        ({}, 'their "type" must be "object"'),
        ({"type": "string"}, 'their "type" must be "object"'),
        ({"type": "object", "properties": []}, "properties: [] is not of type 'object'"),
        ({"type": "object", "properties": {"a": {"type": "text"}}}, "properties.a.type"),
        ({"type": "object", "required": "a"}, "required"),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, "properties.a.pattern"),
        ({"type": "object", "properties": {"a": {"enum": {1}}}}, "cannot be written as JSON"),
        ({"type": "object", "properties": {"a": {"default": float("nan")}}}, "cannot be written as JSON"),
        (
            {"type": "object", "properties": {1: {"type": "string"}}},
            "they change when they are written as JSON",
        ),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}}, "$ref '#/$defs/b' has no target"),
        ({"type": "object", "properties": {"a": {"$ref": "https://example.org/a"}}}, "has no target"),
    ],
)
def test_parameters_that_are_no_schema_of_an_object_are_refused(schema: Any, words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_tool(tool(schema=schema))
    assert "the parameters of the tool run_tests are no JSON Schema of an object" in str(refused.value)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_schema_with_references_of_its_own_is_taken() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/b"}, "$ref": {"type": "string"}},
        "$defs": {"b": {"type": "integer"}, "c/d": {"$anchor": "c", "allOf": [{"$ref": "#/$defs/b"}]}},
        "anyOf": [{"$ref": "#"}, {"$ref": "#c"}, {"$ref": "#/$defs/c~1d"}, {"$ref": "#/$defs/c%2Fd/allOf/0"}],
    }
    check_tool(tool(schema=schema))


@table(
    ("wrong", "words"),
    [
        (run, "only a Tool can be registered, not a function"),
        ({"name": "x"}, "only a Tool can be registered, not a dict"),
        (Tool(run, run), "the definition of a tool must be a ToolDefinition"),  # type: ignore[arg-type]
        (tool(description=None), "the description of the tool run_tests must be a text, not None"),
        (replace(tool(), dangerous="no"), "dangerous of the tool run_tests must be True or False"),  # type: ignore[arg-type]
        (replace(tool(), order="alone"), "order of the tool run_tests must be an Order"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_tool_is_refused(wrong: Any, words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        ToolRegistry([wrong])
    assert words in str(refused.value)


def test_the_latest_of_a_name_wins_in_its_place() -> None:
    registry = ToolRegistry([read_text_or_image(), shell(), overwrite_file()])
    mine = tool("shell")
    registry.register(mine)
    assert registry.names() == ("read_file", "shell", "write_file")
    assert registry.get("shell") is mine

"""The tools of one session by name, and checks of tools and of the arguments of a call."""

from __future__ import annotations

import functools
import inspect
import json
import re
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

from orchestrator.core.checks import check_callable, check_flag, check_kind
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.messages import ToolDefinition
from orchestrator.core.prompts import cut
from orchestrator.engine.tools.base import Order, Tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from jsonschema import ValidationError

    from orchestrator.core.messages import JsonObject


_MOST_PROBLEMS = 10
_LONGEST_PROBLEM_CHARS = 200
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_JSON_TYPES = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
_TYPE_WORDS = {"object": "an object", "array": "a list", "string": "a string", "integer": "an integer"}


def argument_problems(
    arguments: Mapping[str, Any], tool: ToolDefinition, where: str = "arguments"
) -> tuple[str, ...]:
    """Return what is wrong with the arguments of a call, one line each; empty if they are valid."""
    return problems(arguments, tool.parameters, where)


def problems(value: Any, schema: JsonObject, where: str = "") -> tuple[str, ...]:
    """Return what is wrong with a value, as lines `path: message`; empty if it is valid.

    Args:
        where: the path of the value itself.
    """
    from jsonschema import Draft202012Validator

    lines: dict[str, None] = {}
    for error in Draft202012Validator(schema).iter_errors(value):
        lines.update(dict.fromkeys(_lines(error, path_text(error.absolute_path, where))))
    return first_problems(tuple(lines))


_REMARKS = frozenset(
    {
        *(
            "_comment",
            "comment",
            "comments",
            "description",
            "explanation",
            "intent",
            "intention",
            "justification",
        ),
        *(
            "note",
            "notes",
            "purpose",
            "rationale",
            "reason",
            "reasoning",
            "thinking",
            "thought",
            "thoughts",
            "why",
        ),
        *("id", "call_id", "tool_call_id", "tool_name"),
    }
)
"""Names under which models write why they call a tool, or which call it is."""


def without_extras(arguments: JsonObject, tool: ToolDefinition) -> tuple[JsonObject, str]:
    """Return the arguments without properties that the tool does not have and that mean nothing, and a note on them.

    These are empty values, and remarks beside all the texts that the tool takes. Any other unknown property may
    change what the call is to do, so it stays, and is a problem.
    """
    properties = tool.parameters.get("properties")
    if tool.parameters.get("additionalProperties") is not False or not isinstance(properties, dict):
        return arguments, ""
    texts = {
        name
        for name, schema in properties.items()
        if isinstance(schema, dict) and schema.get("type") == "string"
    }
    says_all = texts <= arguments.keys()
    extras = [
        name
        for name, value in arguments.items()
        if name not in properties
        and (value in (None, "") or (says_all and name in _REMARKS and isinstance(value, str)))
    ]
    if not extras:
        return arguments, ""
    kept = {name: value for name, value in arguments.items() if name not in extras}
    names = ", ".join(f"`{cut(name, _SHOWN_NAME_CHARS)}`" for name in extras)
    return (
        kept,
        f"{tool.name} has no parameter {names}, so that was left out; its parameters: {', '.join(properties)}.",
    )


def first_problems(problems: tuple[str, ...]) -> tuple[str, ...]:
    """Return the first problems, and how many more there are."""
    more = len(problems) - _MOST_PROBLEMS
    return problems if more <= 0 else (*problems[:_MOST_PROBLEMS], f"and {more} more")


def path_text(path: Iterable[str | int], where: str = "") -> str:
    """Format a JSON path: `tool_calls[1].arguments.path`; `reply` for the root."""
    text = where
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(cut(step, _LONGEST_PROBLEM_CHARS))}]"
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
    if error.validator == "additionalProperties" and expected is False:
        known = error.schema.get("properties", {}) if isinstance(error.schema, dict) else {}
        extras = ", ".join(f"`{cut(name, _SHOWN_NAME_CHARS)}`" for name in instance if name not in known)
        return [f"{path}: has no property {extras}; leave it out, or use {', '.join(known) or '{}'}"]
    if error.validator == "maxItems":
        return [f"{path}: has {len(instance)} items, at most {expected} are allowed"]
    if error.validator == "enum":
        return [f"{path}: must be one of {cut(json.dumps(expected), _LONGEST_PROBLEM_CHARS)}"]
    return [f"{path}: {cut(error.message, _LONGEST_PROBLEM_CHARS)}"]


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)
"""The tool names that every vendor accepts.

OpenAI and Anthropic: `^[a-zA-Z0-9_-]{1,64}$`; Google's names do not begin with a digit or a dash
(https://ai.google.dev/api/caching#FunctionDeclaration).
"""

_SHOWN_NAME_CHARS = 80


class ToolRegistry:
    """Tools in the order of their registration; a tool replaces an earlier one of its name, in its place.

    A tool that cannot be used raises a `ConfigurationError`; see `register`.
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self.register(tool)

    @classmethod
    def unchecked(cls, tools: Iterable[Tool]) -> Self:
        """Create a registry of tools that this program made itself, or that were checked before."""
        registry = cls()
        registry._tools = {tool.name: tool for tool in tools}
        return registry

    def register(self, tool: Tool) -> None:
        """Add a tool, or replace the one with the same name.

        Raises:
            ConfigurationError: the object is no `Tool`; its name is not accepted by every vendor (1 to 64
                letters, digits, `_` and `-`, beginning with a letter or `_`); its parameters are no JSON
                Schema of an object; or its function cannot be called with arguments and context.
        """
        check_tool(tool)
        self._tools[tool.name] = tool

    def unregister(self, name: str) -> None:
        """Remove a tool; an unknown name is no error."""
        self._tools.pop(name, None)

    def get(self, name: str) -> Tool | None:
        """Return the tool of this name, or None."""
        return self._tools.get(name)

    def __iter__(self) -> Iterator[Tool]:
        return iter(tuple(self._tools.values()))

    def names(self) -> tuple[str, ...]:
        """Return all names, in order."""
        return tuple(self._tools)

    def definitions(self, *, dangerous: bool) -> tuple[ToolDefinition, ...]:
        """Return the definitions for the model. Without `dangerous`, dangerous tools are left out."""
        return tuple(tool.definition for tool in self._tools.values() if dangerous or not tool.dangerous)


def with_custom(tools: Iterable[Tool], custom: Iterable[Tool]) -> ToolRegistry:
    """Return a registry of a profile's tools and a host's own, which override those of the same name."""
    registry = ToolRegistry.unchecked(tools)
    for tool in custom:
        registry.register(tool)
    return registry


def check_tool(tool: object) -> None:
    """Check that a model can call a tool.

    It raises what `ToolRegistry.register` raises.
    """
    if not isinstance(tool, Tool):
        raise ConfigurationError(
            f"only a Tool can be registered, not a {type(tool).__name__}: Tool(ToolDefinition(...), execute)"
        )
    definition = tool.definition
    check_kind("the definition of a tool", definition, ToolDefinition, "a ToolDefinition")
    name: object = definition.name
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{str(name)[:_SHOWN_NAME_CHARS]!r} is no name for a tool: use 1 to 64 letters, digits, "
            "_ and -, beginning with a letter or _"
        )
    what = f"of the tool {name}"
    check_kind(f"the description {what}", definition.description, str, "a text")
    check_callable(f"execute {what}", tool.execute)
    _check_arguments(what, tool)
    check_flag(f"dangerous {what}", tool.dangerous)
    check_flag(f"only_reads {what}", tool.only_reads)
    check_kind(f"order {what}", tool.order, Order, "an Order")
    if tool.refusal is not None:
        check_callable(f"refusal {what}", tool.refusal)
    if problem := _schema_problem(definition.parameters):
        raise ConfigurationError(f"the parameters {what} are no JSON Schema of an object: {problem}")


def _check_arguments(what: str, tool: Tool) -> None:
    try:
        signature = inspect.signature(tool.execute)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return
    try:
        signature.bind({}, None)
    except TypeError:
        raise ConfigurationError(
            f"execute {what} must take two arguments, execute(arguments, context); it takes {signature}"
        ) from None


def _schema_problem(parameters: object) -> str:
    """Return what is wrong with a tool's parameters; empty if they are valid."""
    if not isinstance(parameters, dict):
        return f"they are a {type(parameters).__name__}, not a dict"
    if parameters.get("type") != "object":
        return 'their "type" must be "object"'
    try:
        written = json.dumps(parameters, allow_nan=False)
        if json.loads(written) != parameters:
            return "they change when they are written as JSON and read again (a tuple, or a key that is no string)"
        return _written_schema_problem(written)
    except (TypeError, ValueError, RecursionError) as error:
        return f"they cannot be written as JSON ({' '.join(str(error).split())[:200]})"


@functools.lru_cache(maxsize=256)
def _written_schema_problem(written: str) -> str:
    """Return what is wrong with a schema in JSON; empty if it is valid.

    Results are cached: each session has the same tools, and a check takes milliseconds.
    """
    from jsonschema import Draft202012Validator, SchemaError

    parameters = json.loads(written)
    try:
        checker = Draft202012Validator.FORMAT_CHECKER  # it also compiles regular expressions
        Draft202012Validator.check_schema(parameters, format_checker=checker)
        return _unresolved_reference(parameters)
    except SchemaError as error:
        place = ".".join(str(step) for step in error.absolute_path)
        return f"{place or 'the whole'}: {' '.join(error.message.split())[:200]}"


def _unresolved_reference(schema: dict[str, Any]) -> str:
    """Return a message about the first `$ref` without a target in the schema; no reference is fetched."""
    nodes = list(schema_nodes(schema))
    anchors = {f"#{node.get('$anchor')}" for node in nodes}
    for node in nodes:
        reference = node.get("$ref")
        if (
            isinstance(reference, str)
            and reference not in anchors
            and follow_reference(schema, reference) is None
        ):
            return f"$ref {reference[:_SHOWN_NAME_CHARS]!r} has no target in it"
    return ""


def schema_nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a schema, with the schema itself."""
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node


def follow_reference(schema: Mapping[str, Any], reference: str) -> Any:
    """Return the part of a schema that a JSON pointer (RFC 6901, section 6) names, or None."""
    address, sign, pointer = reference.partition("#")
    if address or not sign or (pointer and not pointer.startswith("/")):
        return None
    node: Any = schema
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node

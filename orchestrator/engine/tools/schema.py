"""What a JSON value does wrong against a JSON Schema (2020-12), in lines that a model can act on."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jsonschema import ValidationError

    from orchestrator.core.messages import JsonObject, ToolDefinition

_MOST_PROBLEMS = 10
_LONGEST_PROBLEM_CHARS = 200
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_JSON_TYPES = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
_TYPE_WORDS = {"object": "an object", "array": "a list", "string": "a string", "integer": "an integer"}


def argument_problems(
    arguments: Mapping[str, Any], tool: ToolDefinition, where: str = "arguments"
) -> tuple[str, ...]:
    """What is wrong with the arguments of a call, a line each; empty where nothing is."""
    return problems(arguments, tool.parameters, where)


def problems(value: Any, schema: JsonObject, where: str = "") -> tuple[str, ...]:
    """What is wrong with a value, a line each, `path: message`; empty where nothing is.

    Args:
        value: any JSON value.
        schema: what it must satisfy.
        where: the path of the value itself.
    """
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

"""Checks a call's arguments against its tool's JSON Schema (2020-12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.core.messages import ToolDefinition

_MOST_PROBLEMS = 10


def argument_problems(definition: ToolDefinition, arguments: Mapping[str, Any]) -> list[str]:
    """What is wrong with the arguments, a line each, `path: message`; empty if nothing is."""
    from jsonschema import Draft202012Validator

    errors = Draft202012Validator(definition.parameters).iter_errors(arguments)
    ordered = sorted(errors, key=lambda error: list(map(str, error.absolute_path)))
    return [
        f"{'.'.join(['arguments', *map(str, error.absolute_path)])}: {error.message[:300]}"
        for error in ordered[:_MOST_PROBLEMS]
    ]

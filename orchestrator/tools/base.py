"""What a tool is, what it is given, and the three ways in which it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.core.messages import JsonObject, ToolDefinition
from orchestrator.core.prompts import tool_words

if TYPE_CHECKING:
    from orchestrator.environments.base import ExecutionEnvironment


@dataclass(frozen=True, slots=True)
class Ok:
    """The tool did it. `output` is what the model is told, before truncation."""

    output: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The tool could not do it. `message` tells the model why, and what else to try.

    Attributes:
        cut_as: the tool by whose limits a long message is cut, where it is not the tool called:
            a refused `write_file` shows a file, as `read_file` does.
    """

    message: str
    cut_as: str | None = None


@dataclass(frozen=True, slots=True)
class Ends:
    """The tool did it, and the session is over after it.

    Attributes:
        ending: `finish` or `question`.
        text: the reason given, or the question.
    """

    ending: str
    text: str


ToolOutcome: TypeAlias = Ok | Failed | Ends


@dataclass(slots=True)
class Ledger:
    """What the tools of one session have shown and changed. Paths are relative, with `/`.

    Attributes:
        shown: files whose text the model has seen in this session: in the first prompt, by
            `read_file`, or because it wrote them.
        touched: files that tools wrote, changed or removed.
        shell_used: a command ran, so that files may have changed that no tool names.
        held_writes: shrinking writes that were refused once, by path and digest of content.
    """

    shown: set[str] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)
    shell_used: bool = False
    held_writes: set[tuple[str, str]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may use. `print` shows output as it comes; it never blocks."""

    environment: ExecutionEnvironment
    ledger: Ledger
    print: Callable[[str], None]


Executor: TypeAlias = Callable[[Mapping[str, Any], ToolContext], Awaitable[ToolOutcome]]
"""Runs a call whose arguments satisfy the tool's schema. May raise `ToolError`, nothing else."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: how the model sees it, what runs, and whether safe mode hides it."""

    definition: ToolDefinition
    execute: Executor
    dangerous: bool = False

    @property
    def name(self) -> str:
        """The name under which the model calls it."""
        return self.definition.name


def define(name: str, properties: Mapping[str, JsonObject], required: tuple[str, ...] = ()) -> ToolDefinition:
    """Build a definition whose words come from `prompts/tools/<name>.md`.

    Args:
        name: the tool's name, and its prompt file's.
        properties: JSON Schema of each parameter, without `description`.
        required: the parameters that must be given.
    """
    words = tool_words(name)
    described = {key: {**schema, "description": words.parameters[key]} for key, schema in properties.items()}
    schema = {
        "type": "object",
        "properties": described,
        "required": list(required),
        "additionalProperties": False,
    }
    return ToolDefinition(name, words.description, schema)

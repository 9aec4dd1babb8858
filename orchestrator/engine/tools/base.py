"""The interface of a tool: its definition, its context, its three outcomes, and how its output is truncated.

The algorithm, the numbers and the text of the truncation are those of sections 5.1 to 5.3 of the coding agent
loop specification. The full output is in the event stream.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from orchestrator.core.clock import SystemClock
from orchestrator.core.messages import JsonObject, ToolDefinition
from orchestrator.core.prompts import render
from orchestrator.core.todos import TodoList

if TYPE_CHECKING:
    from orchestrator.core.clock import Clock
    from orchestrator.core.messages import Image
    from orchestrator.engine.environments.base import ExecutionEnvironment


MOST_KEPT_CHARS = 20_000_000
"""The limit of all outputs of a session together; the oldest are dropped first."""

_HANDLE = re.compile(r"(?:\./)?(output:[1-9]\d*)")
_MOST_MISSED = 5
_MAX_COMPARED_CHARS = 4_000
_ALIKE = 0.95
TEXT: JsonObject = {"type": "string"}
FLAG: JsonObject = {"type": "boolean"}
FROM_ONE: JsonObject = {"type": "integer", "minimum": 1}
"""The most common schemas of a parameter."""

MCP_PREFIX = "mcp_"
"""Prefix of the name of every tool of an MCP server, and of no other tool."""

DEFAULT_TIMEOUT_MS = 10_000
MAX_TIMEOUT_MS = 600_000


def is_mcp_tool(name: str) -> bool:
    """Return whether a tool of this name belongs to an MCP server."""
    return name.startswith(MCP_PREFIX)


@dataclass(frozen=True, slots=True)
class Ok:
    """The result of a successful call.

    Attributes:
        output: text for the model, before truncation.
        images: images to show after the text.
        full: text for the event, if the model asked for less than all.
    """

    output: str
    images: tuple[Image, ...] = ()
    full: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The result of a failed call. `message` tells the model why it failed, and what to try instead.

    Attributes:
        cut_as: the tool whose limits apply to a long message, if it is not the tool called: a refused
            `write_file` shows a file, as `read_file` does.
        full: see `Ok`.
    """

    message: str
    cut_as: str | None = None
    full: str | None = None


@dataclass(frozen=True, slots=True)
class Ends:
    """The result of a successful call that ends the session.

    Attributes:
        ending: `finish` or `question`.
        text: the reason given, or the question.
    """

    ending: str
    text: str


ToolOutcome: TypeAlias = Ok | Failed | Ends


@dataclass(slots=True)
class Outputs:
    """The long outputs of which a model was shown a part, kept in memory under a handle such as `output:3`."""

    most_chars: int = MOST_KEPT_CHARS
    _texts: dict[str, str] = field(default_factory=dict)
    _count: int = 0
    _chars: int = 0

    def keep(self, text: str) -> str | None:
        """Keep a text and return its handle; None if the text alone is too long."""
        if len(text) > self.most_chars:
            return None
        self._count += 1
        handle = f"output:{self._count}"
        self._texts[handle] = text
        self._chars += len(text)
        while self._chars > self.most_chars:
            oldest = next(iter(self._texts))
            self._chars -= len(self._texts.pop(oldest))
        return handle

    def get(self, path: str) -> str | None:
        """Return the text of a handle that a model wrote as a path; None if it is no handle or was dropped."""
        match = _HANDLE.fullmatch(path.strip())
        return self._texts.get(match[1]) if match else None


@dataclass(slots=True)
class Ledger:
    """A record of what the tools of one session have shown and changed. Paths are relative, with `/`.

    Attributes:
        shown: files whose text the model has seen in this session: in the first prompt, by `read_file`, or
            because it wrote them.
        touched: files that tools wrote, changed or removed.
        shell_used: whether a command ran, which may have changed files that no tool names.
        refused_writes: doubtful writes that were refused once, by path and digest of content.
        originals: the content of files before a tool replaced them for the first time.
        removed: the content of files that a tool removed: one that is made anew keeps encoding and line ends.
        missed: by path, texts to be replaced that were not in the file, since the file last changed.
        unreadable: files that a tool changed and that Python, JSON or TOML can no longer parse.
        outputs: outputs of which the model was shown a part.
        changing: held by a tool that runs alone (`Order.ALONE`), also beside the tools of subagents: two edits of one
            file at the same time would lose one.
    """

    shown: set[str] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)
    shell_used: bool = False
    refused_writes: set[tuple[str, str]] = field(default_factory=set)
    originals: dict[str, bytes] = field(default_factory=dict)
    removed: dict[str, bytes] = field(default_factory=dict)
    missed: dict[str, list[str]] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    outputs: Outputs = field(default_factory=Outputs)
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def misses_again(self, path: str, old: str) -> bool:
        """Record a text that is not in a file; return whether a similar one was recorded before."""
        known = self.missed.setdefault(path, [])
        is_known = any(_is_similar(old, one) for one in known)
        known[:] = [*known[1 - _MOST_MISSED :], old]
        return is_known

    def take_over(self, inner: Ledger, folder: str) -> None:
        """Add the changes of tools that worked in a subfolder of this ledger's folder."""
        self.touched |= {f"{folder}/{path}" for path in inner.touched}
        self.shell_used |= inner.shell_used


def _is_similar(one: str, other: str) -> bool:
    """Return whether two texts are the same except for a few per cent of their characters."""
    one, other = (" ".join(text.split())[:_MAX_COMPARED_CHARS] for text in (one, other))
    return one == other or SequenceMatcher(None, one, other, autojunk=False).quick_ratio() >= _ALIKE


@dataclass(frozen=True, slots=True)
class CommandTimes:
    """The default and the maximum time-out of a command, in milliseconds."""

    default_ms: int = DEFAULT_TIMEOUT_MS
    max_ms: int = MAX_TIMEOUT_MS


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The objects that a tool may use. `print` shows output as it comes; it never blocks.

    Attributes:
        todos: the session's to-do list.
        skills: the skill texts that the session's model was given, by name.
        shown: the names of the tools that the model was shown. No text for it may name another one.
    """

    environment: ExecutionEnvironment
    ledger: Ledger
    print: Callable[[str], None]
    times: CommandTimes = CommandTimes()
    todos: TodoList = field(default_factory=TodoList)
    clock: Clock = field(default_factory=SystemClock)
    skills: dict[str, str] = field(default_factory=dict)
    shown: frozenset[str] = frozenset()

    def if_shown(self, name: str, text: str) -> str:
        """Return a text that names a tool; empty if the model was not shown that tool."""
        return text if name in self.shown else ""


Executor: TypeAlias = Callable[[Mapping[str, Any], ToolContext], Awaitable[ToolOutcome]]
"""Runs a call whose arguments satisfy the tool's schema. May raise `ToolError`, no other error."""


class Order(StrEnum):
    """When a call runs relative to the other calls of the same reply."""

    TOGETHER = "together"
    """At the same time as others: it changes nothing that they read."""
    ALONE = "alone"
    """After all calls before it and before all calls after it: it changes files."""
    LAST = "last"
    """Alone, and only if no call before it failed: it publishes or runs the whole change, or ends the session."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: its definition for the model, its function, and when and beside which calls it may run.

    Attributes:
        dangerous: whether safe mode hides it.
        only_reads: whether it changes nothing although it is dangerous.
        is_timed: whether it is stopped if it takes longer than any tool should; otherwise its host limits its
            time.
        outbound: whether its arguments are sent to a third party, so that they may hold no secret.
        refusal: returns why a call with these arguments never runs, before the gate or a person is asked; None
            refuses nothing.
        consent: returns what a person has to agree to, at every level, before a call with these arguments runs;
            empty if nothing. None never needs anybody.
    """

    definition: ToolDefinition
    execute: Executor
    dangerous: bool = False
    order: Order = Order.TOGETHER
    is_timed: bool = True
    outbound: bool = False
    refusal: Callable[[Mapping[str, Any]], str | None] | None = None
    only_reads: bool = False
    consent: Callable[[Mapping[str, Any]], str] | None = None

    @property
    def changes(self) -> bool:
        """Whether a call may change something that stays: files, a memory, or what another program keeps."""
        return not self.only_reads and (self.dangerous or self.order is Order.ALONE)

    @property
    def name(self) -> str:
        """The name under which the model calls the tool."""
        return self.definition.name


class ProfileTools(Protocol):
    """What makes the tools of one kind for each profile, such as the web tools."""

    def tools(self, profile: str) -> tuple[Tool, ...]:
        """Return the tools of a profile, by its name."""


class ForeignTools(Protocol):
    """Tools of a session that other programs run."""

    async def open(self) -> tuple[Tool, ...]:
        """Start the programs and return their tools. One that fails is skipped with a warning."""

    async def close(self) -> None:
        """Stop all programs. May be called again, and before `open`."""


def foreign_tool(definition: ToolDefinition, execute: Executor, *, dangerous: bool) -> Tool:
    """Return a tool that another program runs, so that its arguments leave this program."""
    order = Order.ALONE if dangerous else Order.TOGETHER
    return Tool(definition, execute, dangerous=dangerous, order=order, outbound=True)


def define(
    name: str,
    properties: Mapping[str, JsonObject],
    required: tuple[str, ...] = (),
    *,
    prompt: str | None = None,
) -> ToolDefinition:
    """Build a definition whose texts come from a file in `prompts/tools/`, or in the folder of a plug-in.

    Args:
        properties: JSON Schema of each parameter, without `description`.
        prompt: the prompt file below `prompts/tools/`, without `.md`, or below `prompts/` if it begins with
            `plugins/`; None means `name`.
    """
    description, parameters = _read_prompt(prompt or name)
    described = {key: {**schema, "description": parameters[key]} for key, schema in properties.items()}
    schema = {
        "type": "object",
        "properties": described,
        "required": list(required),
        "additionalProperties": False,
    }
    return ToolDefinition(name, description, schema)


@functools.cache
def _read_prompt(name: str) -> tuple[str, dict[str, str]]:
    """Read a tool's description, and the texts of its parameters, each below a heading `## parameter`."""
    path = name if name.startswith("plugins/") else f"tools/{name}"
    description, *sections = f"\n{render(path)}".split("\n## ")
    parameters = {}
    for section in sections:
        parameter, _, text = section.partition("\n")
        parameters[parameter.strip()] = " ".join(text.split())
    return description.strip(), parameters


class Mode(StrEnum):
    """Which part of a long output is kept."""

    HEAD_TAIL = "head_tail"
    TAIL = "tail"


DEFAULT_MAX_CHARS: Mapping[str, int] = {
    "read_file": 50_000,
    "shell": 30_000,
    "grep": 20_000,
    "glob": 20_000,
    "edit_file": 10_000,
    "apply_patch": 10_000,
    "write_file": 1_000,
    "spawn_agent": 20_000,
    "todo_list": 100_000,
}

_TAIL_TOOLS = frozenset({"grep", "glob", "edit_file", "apply_patch", "write_file"})
"""The tools of whose output the end is kept; of the others both ends are."""

DEFAULT_MAX_LINES: Mapping[str, int] = {"shell": 256, "grep": 200, "glob": 500}

OTHER_MAX_CHARS = 20_000
"""The limit of a tool that is in no table."""

_KIND_OF_TOOL: Mapping[str, str] = {
    "run_shell_command": "shell",
    "shell_command": "shell",
    "shell_execute": "shell",
    "run_command": "shell",
    "grep_files": "grep",
    "file_search": "grep",
    "read_many_files": "read_file",
    "file_read": "read_file",
    "file_write": "write_file",
    "file_append": "write_file",
    "file_delta": "edit_file",
}
"""The tool of the tables for each other name that a profile gives it."""


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """Limits that a host sets instead of the defaults, by the tool's own name or its name in the tables.

    Attributes:
        chars: maximum of characters that are kept; 0 keeps none.
        lines: maximum of lines; None switches the limit off.
        most_chars: maximum for every tool, even if another limit is higher; None sets none.
    """

    chars: Mapping[str, int] = field(default_factory=dict)
    lines: Mapping[str, int | None] = field(default_factory=dict)
    most_chars: int | None = None


def truncate(output: str, tool_name: str, limits: OutputLimits = OutputLimits()) -> str:
    """Return the part of a tool's output that the model is shown. The markers are not counted in the limits."""
    kind = _KIND_OF_TOOL.get(tool_name, tool_name)
    max_chars = DEFAULT_MAX_CHARS.get(kind, OTHER_MAX_CHARS)
    max_lines = DEFAULT_MAX_LINES.get(kind)
    for name in (kind, tool_name):  # the limit of the tool's own name takes precedence
        max_chars = limits.chars.get(name, max_chars)
        max_lines = limits.lines.get(name, max_lines)
    if limits.most_chars is not None:
        max_chars = min(max_chars, limits.most_chars)
    result = truncate_chars(output, max_chars, Mode.TAIL if kind in _TAIL_TOOLS else Mode.HEAD_TAIL)
    return result if max_lines is None else truncate_lines(result, max_lines)


def truncate_chars(output: str, max_chars: int, mode: Mode) -> str:
    """Keep `max_chars` characters, and add how many were removed."""
    removed = len(output) - max_chars
    if removed <= 0:
        return output
    if mode is Mode.TAIL:
        return (
            f"[WARNING: Tool output was truncated. First {removed} characters were removed. "
            f"The full output is available in the event stream.]\n\n{output[removed:]}"
        )
    head = max_chars // 2
    return (
        f"{output[:head]}\n\n[WARNING: Tool output was truncated. {removed} characters were removed from the middle. "
        "The full output is available in the event stream. If you need to see specific parts, "
        f"re-run the tool with more targeted parameters.]\n\n{output[head + removed :]}"
    )


def truncate_lines(output: str, max_lines: int) -> str:
    """Keep `max_lines` lines, from both ends, and add how many were omitted."""
    lines = output.split("\n")
    omitted = len(lines) - max_lines
    if omitted <= 0:
        return output
    head = max_lines // 2
    return "\n".join([*lines[:head], f"[... {omitted} lines omitted ...]", *lines[head + omitted :]])


def integer(arguments: Mapping[str, Any], name: str) -> int | None:
    """Return an integer argument, which JSON may spell `5.0`; None if it was left out."""
    value = arguments.get(name)
    return None if value is None else int(value)

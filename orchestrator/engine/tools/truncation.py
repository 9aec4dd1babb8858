"""Cuts a tool's output to what a model is shown: by characters first, then by lines.

The algorithm, the numbers and the words of the markers are those of sections 5.1 to 5.3 of the
coding agent loop specification. Whoever needs the full output takes it from the event stream.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


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
}

DEFAULT_MODES: Mapping[str, Mode] = {
    "read_file": Mode.HEAD_TAIL,
    "shell": Mode.HEAD_TAIL,
    "grep": Mode.TAIL,
    "glob": Mode.TAIL,
    "edit_file": Mode.TAIL,
    "apply_patch": Mode.TAIL,
    "write_file": Mode.TAIL,
    "spawn_agent": Mode.HEAD_TAIL,
}

DEFAULT_MAX_LINES: Mapping[str, int] = {"shell": 256, "grep": 200, "glob": 500}

OTHER_MAX_CHARS = 20_000
"""For a tool that is in no table, which is cut as `head_tail`."""

_KIND_OF_TOOL: Mapping[str, str] = {
    "run_shell_command": "shell",
    "shell_command": "shell",
    "grep_files": "grep",
    "read_many_files": "read_file",
}
"""Names under which a profile shows a tool of the tables."""


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """What a host sets in place of the defaults: by the tool's own name, or by its name in the tables.

    Attributes:
        chars: the most characters that are kept; 0 keeps none.
        lines: the most lines; None switches the limit off.
    """

    chars: Mapping[str, int] = field(default_factory=dict)
    lines: Mapping[str, int | None] = field(default_factory=dict)


_DEFAULTS = OutputLimits()


def truncate(output: str, tool_name: str, limits: OutputLimits | None = None) -> str:
    """What the model is shown of a tool's output. The markers come on top of the limits."""
    overrides = limits or _DEFAULTS
    kind = _KIND_OF_TOOL.get(tool_name, tool_name)
    max_chars = DEFAULT_MAX_CHARS.get(kind, OTHER_MAX_CHARS)
    max_lines = DEFAULT_MAX_LINES.get(kind)
    for name in (kind, tool_name):  # the tool's own name has the last word
        max_chars = overrides.chars.get(name, max_chars)
        max_lines = overrides.lines.get(name, max_lines)
    result = truncate_chars(output, max_chars, DEFAULT_MODES.get(kind, Mode.HEAD_TAIL))
    return result if max_lines is None else truncate_lines(result, max_lines)


def truncate_chars(output: str, max_chars: int, mode: Mode) -> str:
    """Keep `max_chars` characters and say how many are gone."""
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
    """Keep `max_lines` lines, from both ends, and say how many are gone."""
    lines = output.split("\n")
    omitted = len(lines) - max_lines
    if omitted <= 0:
        return output
    head = max_lines // 2
    return "\n".join([*lines[:head], f"[... {omitted} lines omitted ...]", *lines[head + omitted :]])

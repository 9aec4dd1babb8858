"""The gate between validation and execution: may this call run?"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeAlias
from urllib.parse import unquote

from orchestrator.core.events import Defence
from orchestrator.engine.policy.command_rules import CommandRules, Level
from orchestrator.engine.tools.base import Order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.core.messages import ToolCall
    from orchestrator.engine.tools.base import Tool

Gate: TypeAlias = Callable[["Tool", "ToolCall"], str | None]
"""Gives the reason why a call may not run, or None if it may. A `Refusal` also says which defence it was."""

Approve: TypeAlias = "Callable[[Tool, ToolCall, Refusal], Awaitable[str | None]]"
"""Asks a person about a call that the gate refuses and whose `Refusal` has a scope; None if it may run, else why not."""

WEB_TOOLS = frozenset({"web_search", "web_open", "web_find", "web_fetch"})
"""What their arguments say leaves the machine, whoever made them. Others say so themselves: `Tool.outbound`."""

_COMMAND = "command"
_FOLDERS = ("workdir", "working_dir", "working_directory")
_HERE = frozenset({None, "", ".", "./"})


class Refusal(str):
    """The reason why a call may not run, as the model is told, and the defence that says so.

    Attributes:
        scope: what a person may allow: the tool, with its command where it runs one, and with all its arguments where
            others run it. Empty where nobody may, because the call is blocked at every level.
    """

    __slots__ = ("defence", "scope")
    defence: Defence
    scope: str

    def __new__(cls, reason: str, defence: Defence = Defence.LEVEL, scope: str = "") -> Self:
        """Put them together."""
        refusal = super().__new__(cls, reason)
        refusal.defence, refusal.scope = defence, scope
        return refusal


def not_available(call: ToolCall) -> Refusal:
    """What is said of a tool that the model was not shown: nothing about it."""
    return Refusal(f"{call.name[:200]} is not available. Use only the tools that you were given.")


def shows_all(_tool: Tool) -> bool:
    """Show every tool."""
    return True


def allow_all(_tool: Tool, _call: ToolCall) -> str | None:
    """Let every call run: for a host that has a wall of its own around the session."""
    return None


def _holds_none(_text: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Gatekeeper:
    """The gate of a level and its rules, and what it lets the model see.

    Attributes:
        level: what the session may do.
        rules: which commands are granted and denied.
        holds_secret: whether a text holds a secret; such a text is not sent to the web or to an MCP server.
        asks: somebody can be asked: at the level `safe` the model sees the dangerous tools, too, and a call that
            a higher level would let run is refused with a scope. `read-only` stays a wall.
    """

    level: Level = Level.SAFE
    rules: CommandRules = field(default_factory=CommandRules)
    holds_secret: Callable[[str], bool] = _holds_none
    asks: bool = False

    def shows(self, tool: Tool) -> bool:
        """Whether the tool exists for the model at all."""
        match self.level:
            case Level.READ_ONLY:
                return not tool.dangerous and tool.order is not Order.ALONE
            case Level.SAFE:
                return not tool.dangerous or self.asks or (_takes_command(tool) and bool(self.rules.allow))
            case Level.DANGEROUS:
                return True

    def __call__(self, tool: Tool, call: ToolCall) -> str | None:
        """Why the call may not run; its arguments satisfy the tool's schema."""
        if not self.shows(tool):
            return not_available(call)
        if tool.dangerous and _takes_command(tool):
            return self._refuse_command(call)
        if (tool.outbound or call.name in WEB_TOOLS) and any(map(self._holds_secret, _texts(call.arguments))):
            return Refusal("Not run: the arguments hold a secret, which does not leave.", Defence.SECRETS)
        if tool.dangerous and self.level is Level.SAFE:
            return Refusal(f"Not run: {call.name} needs the level dangerous.", scope=_call_scope(tool, call))
        return None

    def _refuse_command(self, call: ToolCall) -> str | None:
        command = call.arguments.get(_COMMAND)
        if not isinstance(command, str):
            return Refusal("Not run: the command is no text.", Defence.COMMANDS)
        elsewhere = any(call.arguments.get(name) not in _HERE for name in _FOLDERS)
        reason = self.rules.refusal(command, self.level, elsewhere=elsewhere)
        if reason is None:
            return None
        may_ask = self.asks and self.rules.refusal(command, Level.DANGEROUS, elsewhere=elsewhere) is None
        return Refusal(reason, Defence.COMMANDS, _command_scope(call) if may_ask else "")

    def _holds_secret(self, text: str) -> bool:
        return self.holds_secret(text) or ("%" in text and self.holds_secret(unquote(text)))


def safe_mode(tool: Tool, call: ToolCall) -> str | None:
    """The level `safe` without a rule: no dangerous tool runs. The model may guess their names."""
    return not_available(call) if tool.dangerous else None


def _call_scope(tool: Tool, call: ToolCall) -> str:
    """The tool. Of one that others run, also all that they would be told."""
    return f"{call.name} {json.dumps(call.arguments, ensure_ascii=False)}" if tool.outbound else call.name


def _command_scope(call: ToolCall) -> str:
    """The exact command, and where it would run if that is not the session's folder."""
    folder = next((call.arguments[name] for name in _FOLDERS if call.arguments.get(name) not in _HERE), None)
    return f"{call.arguments[_COMMAND]}" if folder is None else f"(in {folder}) {call.arguments[_COMMAND]}"


def _takes_command(tool: Tool) -> bool:
    """Whether its argument `command` is for the shell here. Rules for commands say nothing of somebody else's."""
    properties = tool.definition.parameters.get("properties")
    return not tool.outbound and isinstance(properties, dict) and _COMMAND in properties


def _texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value, names of fields too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)

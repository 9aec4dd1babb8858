"""The gate between validation and execution: decides whether a call may run."""

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
    from collections.abc import Iterable, Iterator

    from orchestrator.core.messages import ToolCall
    from orchestrator.engine.tools.base import Tool

Gate: TypeAlias = Callable[["Tool", "ToolCall"], str | None]
"""Returns the reason why a call must not run, or None if it may. A `Refusal` also names the defence."""

Approve: TypeAlias = "Callable[[Tool, ToolCall, Refusal], Awaitable[str | None]]"
"""Asks a person about a call that the gate refuses with a scope.

Returns None if the call may run, else the reason why not.
"""

WEB_TOOLS = frozenset({"web_search", "web_open", "web_find", "web_fetch"})
"""Tools that send their arguments to the web, whatever program implements them.

Other tools set `Tool.outbound`.
"""

NO_SUCH_TOOL = "You have no tool of this name."

_COMMAND = "command"
_FOLDERS = ("workdir", "working_dir", "working_directory")
_HERE = frozenset({None, "", ".", "./"})


class Refusal(str):
    """The reason why a call must not run, as the model is told, and the defence that refused it.

    Attributes:
        scope: what a person may allow: the tool, with its command if it runs one, with all its arguments if
            another program runs it, or what `Tool.consent` returned. Empty if the call is blocked at every level, so that nobody may allow
            it.
    """

    __slots__ = ("defence", "scope")
    defence: Defence
    scope: str

    def __new__(cls, reason: str, defence: Defence = Defence.LEVEL, scope: str = "") -> Self:
        """Create the text, with the defence and the scope beside it."""
        refusal = super().__new__(cls, reason)
        refusal.defence, refusal.scope = defence, scope
        return refusal


def no_such_tool(shown: Iterable[str]) -> str:
    """Return the answer to a call of a tool that the model was not shown, whether there is such a tool or not.

    Args:
        shown: the names of the tools that it was shown.
    """
    names = ", ".join(shown)
    return f"{NO_SUCH_TOOL} Yours are: {names}." if names else NO_SUCH_TOOL


def not_available() -> Refusal:
    """Return the refusal of a call of a tool that the level does not allow."""
    return Refusal("Not run: this tool is not available here. Use only the tools that you were given.")


def shows_all(_tool: Tool) -> bool:
    """Show every tool."""
    return True


def allow_all(_tool: Tool, _call: ToolCall) -> str | None:
    """Let every call run, for a host that isolates the session by other means."""
    return None


@dataclass(frozen=True, slots=True)
class Gatekeeper:
    """A gate that applies a level and command rules, and hides the tools that they never allow.

    Attributes:
        level: what the session may do.
        rules: which commands are granted and denied.
        holds_secret: returns whether a text contains a secret; such a text is not sent to the web or to an
            MCP server.
        asks: whether a person can be asked. Then the level `safe` also shows the dangerous tools, and a call
            that a higher level would allow is refused with a scope. `read-only` never asks.
    """

    level: Level = Level.SAFE
    rules: CommandRules = field(default_factory=CommandRules)
    holds_secret: Callable[[str], bool] = lambda _text: False
    asks: bool = False

    def shows(self, tool: Tool) -> bool:
        """Return whether the tool is visible to the model."""
        match self.level:
            case Level.READ_ONLY:
                return not tool.dangerous and tool.order is not Order.ALONE
            case Level.SAFE:
                return not tool.dangerous or self.asks or (_takes_command(tool) and bool(self.rules.allow))
            case Level.DANGEROUS:
                return True

    def __call__(self, tool: Tool, call: ToolCall) -> str | None:
        """Return why the call must not run; None if it may. Its arguments match the tool's schema."""
        if not self.shows(tool):
            return not_available()
        if tool.consent is not None and (what := tool.consent(call.arguments)):
            return Refusal("Not run: only a person may decide this.", scope=what if self.asks else "")
        if tool.dangerous and _takes_command(tool):
            return self._refuse_command(call)
        if (tool.outbound or call.name in WEB_TOOLS) and any(map(self._holds_secret, _texts(call.arguments))):
            return Refusal(
                "Not run: the arguments contain a secret, and secrets are not sent out.", Defence.SECRETS
            )
        if tool.dangerous and self.level is Level.SAFE:
            arguments = f" {json.dumps(call.arguments, ensure_ascii=False)}" if tool.outbound else ""
            return Refusal(
                f"Not run: {call.name} needs the level dangerous.", scope=f"{call.name}{arguments}"
            )
        return None

    def _refuse_command(self, call: ToolCall) -> str | None:
        command = call.arguments.get(_COMMAND)
        if not isinstance(command, str):
            return Refusal("Not run: the command is not a text.", Defence.COMMANDS)
        folders = [call.arguments.get(name) for name in _FOLDERS if call.arguments.get(name) not in _HERE]
        reason = self.rules.refusal(command, self.level, outside_root=bool(folders))
        if reason is None:
            return None
        may_ask = (
            self.asks and self.rules.refusal(command, Level.DANGEROUS, outside_root=bool(folders)) is None
        )
        scope = f"(in {folders[0]}) {command}" if folders else command
        return Refusal(reason, Defence.COMMANDS, scope if may_ask else "")

    def _holds_secret(self, text: str) -> bool:
        return self.holds_secret(text) or ("%" in text and self.holds_secret(unquote(text)))


safe_mode = Gatekeeper()
"""The gate that refuses and hides every dangerous tool: the level `safe` without rules."""


def _takes_command(tool: Tool) -> bool:
    """Return whether the tool's `command` is for the local shell: rules do not apply to another program's."""
    properties = tool.definition.parameters.get("properties")
    return not tool.outbound and isinstance(properties, dict) and _COMMAND in properties


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in a JSON value, names of fields included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)

"""Turns what an agent tells about itself into events, and answers what it asks for. Nothing here is taken for the truth.

Each event is a `SubagentEvent` with the agent's name, so that every view shows who said it. The files, the host's own tool
calls and the relay's record say what happened.
"""

from __future__ import annotations

import json
import posixpath
import re
from typing import TYPE_CHECKING, Any

from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    FileEditToolCallContent,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
)

from orchestrator.core.changes import FileChange, FileVersion
from orchestrator.core.errors import ToolError
from orchestrator.core.events import (
    CallStatus,
    Defence,
    Guarded,
    PlanAccepted,
    ReasoningDelta,
    SubagentEvent,
    TextDelta,
    TodosChanged,
    ToolCallEnded,
    ToolCallStarted,
    Warned,
)
from orchestrator.core.messages import ToolCall
from orchestrator.core.prompts import one_line
from orchestrator.core.todos import MOST_CHARACTERS, TodoList, TodoPriority, TodoStatus
from orchestrator.engine.session.gate import Refusal
from orchestrator.engine.tools.shell import run_shell_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from acp.schema import ToolCallUpdate

    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit, Event
    from orchestrator.engine.session.budget import Budget
    from orchestrator.engine.session.gate import Gate

_TITLE_CHARS, _OUTPUT_CHARS, _TEXT_CHARS = 200, 20_000, 20_000
_MOST_CALLS = 5_000
_READS = frozenset({"read", "search", "think", "fetch", "switch_mode"})
_EDITS = frozenset({"edit", "delete", "move"})
_ANY_FILE = FileVersion("100644", b"", 0)
_WORD = re.compile(r"[A-Za-z]+(?:_[A-Za-z]+)*")
_MOST_WORDS = 6


class Told:
    """What one agent tells in one session, and the answers to its requests.

    Args:
        agent: its name in events.
        emit: receives the events.
        policy: answers its requests for permission.
        ours: the names of the host's tools, whose calls the host itself tells of.

    Attributes:
        last_text: what it said since its last call, which is its last word at the end of a turn.
    """

    def __init__(
        self, agent: str, emit: Emit, policy: PermissionPolicy, ours: Sequence[str], clock: Clock
    ) -> None:
        self._agent, self._emit, self._policy, self._ours, self._clock = (
            agent,
            emit,
            policy,
            frozenset(ours),
            clock,
        )
        self._calls: dict[str, str] = {}
        self._ended: set[str] = set()
        self._is_full = False
        self.last_text = ""

    def told(self, update: Any) -> None:
        """See `Listener`."""
        match update:
            case AgentMessageChunk(content=TextContentBlock(text=text)):
                self.last_text = (self.last_text + text)[:_TEXT_CHARS]
                self._tell(TextDelta(text))
            case AgentThoughtChunk(content=TextContentBlock(text=text)):
                self._tell(ReasoningDelta(text))
            case ToolCallStart():
                self._begin(update.tool_call_id, update.title, update)
                self._progress(update)
            case ToolCallProgress():
                self._progress(update)
            case AgentPlanUpdate():
                self._plan(update)
            case _:
                pass

    def end_turn(self) -> str:
        """Keep what was said last, end the calls that have no end, and return that text."""
        text = self._flush()
        for number in [one for one in self._calls if one not in self._ended]:
            self._end(number, CallStatus.INTERRUPTED, "the turn ended before this call")
        return text

    def may(self, call: ToolCallUpdate) -> bool:
        """See `Listener`."""
        if call.kind in {None, "other"} and self._is_ours(call.title or ""):
            return True
        self._begin(call.tool_call_id, call.title or "", call)
        refusal = self._policy.refusal(call)
        if refusal is not None:
            self._policy.budget.count_denial()
            self._emit(Guarded(refusal.defence, f"{self._agent} asked, and was refused: {refusal}"))
            self._end(call.tool_call_id, CallStatus.REFUSED, str(refusal))
        return refusal is None

    def _is_ours(self, title: str) -> bool:
        """Return whether a call is one of the host's tools, such as `mcp__pullwright__finish`, by its title."""
        words = _WORD.findall(title[:_TITLE_CHARS].replace("pullwright_", "pullwright "))
        return len(words) <= _MOST_WORDS and "pullwright" in words and not self._ours.isdisjoint(words)

    def _tell(self, event: Event) -> None:
        self._emit(SubagentEvent(self._agent, event))

    def _flush(self) -> str:
        text, self.last_text = self.last_text.strip(), ""
        if text:
            self._tell(PlanAccepted(text, 0))
        return text

    def _begin(self, number: str, title: str, call: Any) -> None:
        if number in self._calls or self._is_ours(title):
            return
        if len(self._calls) >= _MOST_CALLS:
            if not self._is_full:
                self._is_full = True
                self._emit(
                    Warned(
                        f"{self._agent} told of more than {_MOST_CALLS:,} calls; the others are not recorded"
                    )
                )
            return
        self._flush()
        name = self._calls[number] = self._named(title or call.kind or "call")
        self._tell(ToolCallStarted(number, name, _arguments(call)))

    def _named(self, title: str) -> str:
        """Return a title as it can be shown: one line, in which a terminal finds nothing to carry out."""
        return one_line(title, limit=_TITLE_CHARS, keep="`")

    def _progress(self, update: Any) -> None:
        status = {"completed": CallStatus.OK, "failed": CallStatus.FAILED}.get(update.status or "")
        if status is not None:
            self._end(update.tool_call_id, status, _output(update))

    def _end(self, number: str, status: CallStatus, output: str) -> None:
        if number in self._calls and number not in self._ended:
            self._ended.add(number)
            self._tell(ToolCallEnded(number, self._calls[number], status, output))

    def _plan(self, update: AgentPlanUpdate) -> None:
        """Show the agent's plan as the todo list."""
        todos, now = TodoList(), self._clock.now()
        try:
            for entry in update.entries:
                item = todos.add(entry.content[:MOST_CHARACTERS], TodoPriority(entry.priority), now)
                todos.update(item.id, now, status=TodoStatus(entry.status))
        except (ToolError, ValueError):
            pass  # the rest of a plan that is too long, or has an empty line
        self._emit(TodosChanged(todos.items, todos.added))


class PermissionPolicy:
    """Answers an agent's requests as the gate answers a model's calls.

    Args:
        root: the clone's tree. Nothing else may be edited.
        gate: decides about commands.
        protect: returns why the change to a file waits for a person, or None.
        runs_commands: whether the agent may run commands at all.
        budget: counts what was refused.
    """

    def __init__(
        self,
        root: str,
        gate: Gate,
        protect: Callable[[FileChange], str | None],
        budget: Budget,
        *,
        runs_commands: bool,
    ) -> None:
        self._root, self._gate, self._protect, self._runs_commands = root, gate, protect, runs_commands
        self.budget = budget

    def refusal(self, call: ToolCallUpdate) -> Refusal | None:
        """Return why the agent may not do this; None if it may."""
        kind = call.kind or "other"
        if kind in _READS:
            return None
        if kind in _EDITS:
            return self._of_edit(call)
        command = _command(call.raw_input) or call.title or ""
        if not self._runs_commands:
            return Refusal(f"no command runs here: {one_line(command, limit=_TITLE_CHARS)}", Defence.LEVEL)
        tool = run_shell_command()
        found = self._gate(tool, ToolCall(call.tool_call_id, tool.name, {"command": command}))
        return found if found is None or isinstance(found, Refusal) else Refusal(found, Defence.COMMANDS)

    def _of_edit(self, call: ToolCallUpdate) -> Refusal | None:
        paths = _paths(call)
        if not paths:
            return Refusal("the edit names no file", Defence.PATHS)
        for path in paths:
            inside = posixpath.relpath(posixpath.normpath(posixpath.join(self._root, path)), self._root)
            if inside.split("/")[0] in {"..", ".", ".git"}:
                return Refusal(
                    f"{one_line(path, limit=_TITLE_CHARS)} is outside of the clone's files", Defence.PATHS
                )
            if reason := self._protect(FileChange(inside, None, _ANY_FILE)):
                return Refusal(
                    f"{one_line(inside, limit=_TITLE_CHARS)} waits for a person: {reason}",
                    Defence.PROTECTED_PATHS,
                )
        return None


def _command(given: Any) -> str:
    """Return the command in the input of a call, as programs write it."""
    value = given.get("command", given.get("cmd")) if isinstance(given, dict) else None
    if isinstance(value, list):
        # The last word of `bash -lc COMMAND` is what counts.
        return str(value[-1]) if value else ""
    return value if isinstance(value, str) else ""


def _paths(call: Any) -> list[str]:
    """Return the files that an edit names: its places, and its differences."""
    found = [one.path for one in call.locations or ()]
    found += [one.path for one in call.content or () if isinstance(one, FileEditToolCallContent)]
    return list(dict.fromkeys(found))


def _arguments(call: Any) -> dict[str, Any]:
    """Return what a call is about, in a bounded form: its kind, its places, and its input as text."""
    told: dict[str, Any] = {"kind": str(call.kind or "other")}
    if places := _paths(call):
        told["paths"] = [one_line(path, limit=_TITLE_CHARS) for path in places[:20]]
    if call.raw_input:
        told["input"] = json.dumps(call.raw_input, default=str)[:_OUTPUT_CHARS]
    return told


def _output(update: Any) -> str:
    """Return the text of a call's result, and its differences, in a bounded form."""
    parts = []
    for one in update.content or ():
        if isinstance(one, FileEditToolCallContent):
            parts.append(f"{one.path}\n- {one.old_text or ''}\n+ {one.new_text}")
        elif (inner := getattr(one, "content", None)) is not None and isinstance(inner, TextContentBlock):
            parts.append(inner.text)
    if not parts and update.raw_output:
        parts.append(json.dumps(update.raw_output, default=str))
    return "\n".join(parts)[:_OUTPUT_CHARS]

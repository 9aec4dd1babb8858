"""The events of a conversation as updates of the protocol."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from acp import helpers, schema

from orchestrator.app.event_lines import telling_argument
from orchestrator.app.terminal import known_secrets
from orchestrator.app.words import clean, short_line
from orchestrator.core import events
from orchestrator.engine.policy.secrets import RedactedStream
from orchestrator.engine.session.history import FROM_USER, TurnKind
from orchestrator.plugins.chat.view import ReplyText

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from orchestrator.engine.session.history import Turn

_KINDS: Mapping[schema.ToolKind, tuple[str, ...]] = {
    "execute": ("shell", "run_tests"),
    "fetch": ("web",),
    "edit": ("edit", "write", "append", "delta", "patch"),
    "search": ("grep", "glob", "search", "list"),
    "read": ("read", "info", "extract"),
    "think": ("todo",),
}
"""The kinds of calls, by words in a tool's name; the first that fits. An editor chooses a symbol by it."""
_PATHS = ("path", "file_path")
_OLD, _NEW = ("old_text", "old_string"), ("new_text", "new_string", "content")
_MOST_OUTPUT_CHARS = 20_000


class Updates:
    """Makes the updates of one session. Ids of calls are our own, because a model may give one twice.

    Attributes:
        folder: where relative paths begin.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, redactor = folder, known_secrets(os.environ)
        self._number = 0
        self._running: dict[str, schema.ToolCallStart] = {}
        self._text, self._thoughts = ReplyText(redactor), RedactedStream(redactor)

    def of(self, event: events.Event) -> Iterator[Any]:
        """Yield the updates of an event."""
        match event:
            case events.TextStarted() if self._text.came:
                yield from self.words(f"{self._text.end()}\n\n(The reply broke off, and begins again.)\n\n")
            case events.ReasoningDelta(text):
                yield from _thought(self._thoughts.add(clean(text)))
            case events.TextDelta() | events.ReplyReceived():
                yield from _thought(self._thoughts.end())
            case events.ToolCallStarted(call_id, name, arguments):
                self._running[call_id] = started = self._call(name, arguments, "in_progress")
                yield started
            case events.ToolCallEnded(call_id, status=status, output=output) if call_id in self._running:
                yield _ended(self._running.pop(call_id), output, is_good=status is events.CallStatus.OK)
            case events.TodosChanged(items):
                yield helpers.update_plan(
                    helpers.plan_entry(one.content, priority=one.priority.value, status=one.status.value)
                    for one in items
                )
            case events.Warned(message) | events.Guarded(message=message):
                yield from _thought(f"{clean(message)}\n\n")
            case _:
                pass
        yield from self.words(self._text.of(event))

    def end(self) -> Iterator[Any]:
        """Yield what is left when an answer ended, also in the middle."""
        yield from _thought(self._thoughts.end())
        yield from self.words(self._text.end())
        for call in self._running.values():
            yield helpers.update_tool_call(call.tool_call_id, status="failed")
        self._running.clear()

    def past(self, turns: Sequence[Turn]) -> Iterator[Any]:
        """Yield what was said and done in an earlier conversation."""
        for turn in turns:
            if turn.kind in FROM_USER and turn.said.strip():
                yield helpers.update_user_message_text(clean(turn.said))
            elif turn.kind is TurnKind.ASSISTANT:
                yield from _thought(clean(turn.reasoning))
                yield from self.words(turn.content)
                for call in turn.tool_calls:
                    yield self._call(call.name, call.arguments, "completed")

    @staticmethod
    def words(text: str) -> Iterator[Any]:
        """Yield a text for the person."""
        if text:
            yield helpers.update_agent_message_text(clean(text))

    def new_id(self) -> str:
        """Return an id for a call."""
        self._number += 1
        return f"call-{self._number}"

    def asked_about(self, tool: str, scope: str) -> schema.ToolCallUpdate:
        """Return the running call that a question is about. The question itself shows what an answer covers."""
        calls = [one for one in self._running.values() if one.title.split()[0] == tool]
        fits = [one for one in calls if one.raw_input and scope in map(str, one.raw_input.values())] or calls
        name, title = (fits[0].tool_call_id, fits[0].title) if fits else (self.new_id(), tool)
        return schema.ToolCallUpdate(tool_call_id=name, title=title, kind=_kind(tool), status="pending")

    def _call(self, tool: str, arguments: Mapping[str, Any], status: Any) -> schema.ToolCallStart:
        """Return the beginning of a call, with its file, and with the change where the arguments have it as text."""
        named, old, new = (_text_of(arguments, keys) for keys in (_PATHS, _OLD, _NEW))
        path = str(self.folder / named) if named else ""
        return helpers.start_tool_call(
            self.new_id(),
            f"{short_line(tool, 40)} {telling_argument(arguments)}".rstrip(),
            kind=_kind(tool),
            status=status,
            content=[helpers.tool_diff_content(path, new, old)] if path and new is not None else [],
            locations=[schema.ToolCallLocation(path=path)] if path else [],
            raw_input=dict(arguments),
        )


def _ended(started: schema.ToolCallStart, output: str, *, is_good: bool) -> Any:
    """Return the end of a call. An output would take the place of the change, so only an error does."""
    shown = [helpers.tool_content(helpers.text_block(clean(output[:_MOST_OUTPUT_CHARS])))]
    return helpers.update_tool_call(
        started.tool_call_id,
        status="completed" if is_good else "failed",
        content=None if is_good and started.content else shown,
    )


def _thought(text: str) -> Iterator[Any]:
    if text:
        yield helpers.update_agent_thought_text(text)


def _kind(tool: str) -> schema.ToolKind:
    return next((kind for kind, words in _KINDS.items() if any(word in tool for word in words)), "other")


def _text_of(arguments: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """Return the first of these arguments that is a text."""
    return next((arguments[key] for key in keys if isinstance(arguments.get(key), str)), None)

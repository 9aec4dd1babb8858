"""What an editor may ask for: sessions, each a conversation of `chat`, whose events it gets as updates of the protocol.

The official library calls the methods by name.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from acp import PROTOCOL_VERSION, RequestError, helpers, schema

from orchestrator.app.cli.arguments import given_settings
from orchestrator.app.event_lines import telling_argument
from orchestrator.app.terminal import known_secrets
from orchestrator.app.words import clean, short_line
from orchestrator.bot.journal.folders import new_run_id
from orchestrator.core import events
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError, PullwrightError
from orchestrator.core.prompts import fenced
from orchestrator.engine.policy.secrets import RedactedStream
from orchestrator.engine.session.history import FROM_USER, TurnKind
from orchestrator.plugins.chat.command import COMMAND, mentions_in
from orchestrator.plugins.chat.conversation import ApprovalAnswer, continued_last
from orchestrator.plugins.chat.program import build_chat
from orchestrator.plugins.chat.slash import LEAVING, run_slash_command, slash_commands
from orchestrator.plugins.chat.view import ReplyText

if TYPE_CHECKING:
    import argparse
    from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence

    from orchestrator.app.wiring import Observers
    from orchestrator.engine.session.history import Turn
    from orchestrator.plugins.chat.conversation import Conversation
    from orchestrator.plugins.chat.program import ChatProgram

_KINDS: Mapping[schema.ToolKind, tuple[str, ...]] = {
    "execute": ("shell", "run_tests"),
    "fetch": ("web",),
    "edit": ("edit", "write", "append", "delta", "patch"),
    "search": ("grep", "glob", "search", "list"),
    "read": ("read", "info", "extract"),
    "think": ("todo",),
}
"""The kinds of calls, by words in a tool's name; the first that fits. An editor chooses a symbol by it."""
_PATHS, _OLD, _NEW = ("path", "file_path"), ("old_text", "old_string"), ("new_text", "new_string", "content")
_TERMINAL_ONLY = frozenset({*LEAVING, "/new", "/clear", "/resume", "/paste", "/debug", "/save"})
"""Commands whose place an editor takes: it has sessions, files and several lines of its own."""
_ANSWERS: Mapping[schema.PermissionOptionKind, tuple[str, events.Decision]] = {
    "allow_once": ("Run it", events.Decision.ONCE),
    "allow_always": ("Always in this session", events.Decision.ALWAYS),
    "reject_once": ("Do not run it", events.Decision.NO),
}
_MOST_OUTPUT_CHARS, _MOST_EMBEDDED_BYTES = 20_000, 60_000
_FAILED, _REFUSED = -32_603, -32_602


class Updates:
    """Makes the updates of one session.

    Attributes:
        folder: where relative paths begin.
        ids: new ids of calls: a model may give one twice.
    """

    def __init__(self, folder: Path) -> None:
        redactor = known_secrets(os.environ)
        self.folder, self.ids = folder, (f"call-{number}" for number in count(1))
        self._running: dict[str, schema.ToolCallStart] = {}
        self._text, self._thoughts = ReplyText(redactor), RedactedStream(redactor)

    def of(self, event: events.Event) -> Iterator[Any]:
        """Yield the updates of an event."""
        match event:
            case events.TextStarted() if self._text.came:
                yield from told(f"{self._text.end()}\n\n(The reply broke off, and begins again.)\n\n")
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
        yield from told(self._text.of(event))

    def end(self) -> Iterator[Any]:
        """Yield what is left when an answer ended, also in the middle."""
        yield from _thought(self._thoughts.end())
        yield from told(self._text.end())
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
                yield from told(turn.content)
                for call in turn.tool_calls:
                    yield self._call(call.name, call.arguments, "completed")

    def asked_about(self, tool: str, scope: str) -> schema.ToolCallUpdate:
        """Return the running call that a question is about. The question itself shows what an answer covers."""
        calls = [one for one in self._running.values() if one.title.split()[0] == tool]
        fits = [one for one in calls if one.raw_input and scope in map(str, one.raw_input.values())] or calls
        name, title = (fits[0].tool_call_id, fits[0].title) if fits else (next(self.ids), tool)
        return schema.ToolCallUpdate(tool_call_id=name, title=title, kind=_kind(tool), status="pending")

    def _call(self, tool: str, arguments: Mapping[str, Any], status: Any) -> schema.ToolCallStart:
        """Return the beginning of a call, with its file, and with the change where the arguments have it as text."""
        texts = {name: value for name, value in arguments.items() if isinstance(value, str)}
        named, old, new = (
            next((texts[name] for name in names if name in texts), None) for names in (_PATHS, _OLD, _NEW)
        )
        path = str(self.folder / named) if named else ""
        return helpers.start_tool_call(
            next(self.ids),
            f"{short_line(tool, 40)} {telling_argument(arguments)}".rstrip(),
            kind=_kind(tool),
            status=status,
            content=[helpers.tool_diff_content(path, new, old)] if path and new is not None else [],
            locations=[schema.ToolCallLocation(path=path)] if path else [],
            raw_input=dict(arguments),
        )


def _kind(tool: str) -> schema.ToolKind:
    return next((kind for kind, words in _KINDS.items() if any(word in tool for word in words)), "other")


def _ended(started: schema.ToolCallStart, output: str, *, is_good: bool) -> Any:
    """Return the end of a call. An output would take the place of the change, so only an error does."""
    shown = [helpers.tool_content(helpers.text_block(clean(output[:_MOST_OUTPUT_CHARS])))]
    return helpers.update_tool_call(
        started.tool_call_id,
        status="completed" if is_good else "failed",
        content=None if is_good and started.content else shown,
    )


def told(text: str) -> Iterator[Any]:
    """Yield a text for the person."""
    if text:
        yield helpers.update_agent_message_text(clean(text))


def _thought(text: str) -> Iterator[Any]:
    if text:
        yield helpers.update_agent_thought_text(text)


class EditorAgent:
    """Serves one editor, which may have several sessions.

    Attributes:
        is_stopped: whether a signal ended it.
    """

    def __init__(self, options: argparse.Namespace, observers: Observers) -> None:
        self.is_stopped = False
        self._options, self._observers = options, observers
        self._editor: Any = None
        self._sessions: dict[str, EditorSession] = {}

    def on_connect(self, conn: Any) -> None:
        """Take the connection to the editor."""
        self._editor = conn

    async def initialize(self, protocol_version: int, **_: Any) -> schema.InitializeResponse:
        """Say what we offer. An editor that does not speak our version leaves."""
        del protocol_version
        attached = schema.PromptCapabilities(embedded_context=True)
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=schema.AgentCapabilities(load_session=True, prompt_capabilities=attached),
            agent_info=schema.Implementation(name="pullwright", version="1"),
        )

    async def new_session(self, cwd: str, mcp_servers: Any = None, **_: Any) -> schema.NewSessionResponse:
        """Begin a conversation in a folder. Its id is that of its run."""
        name = new_run_id(SystemClock().now(), random.SystemRandom())
        await self._open(name, cwd, mcp_servers, is_new=True)
        return schema.NewSessionResponse(session_id=name)

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Any = None, **_: Any
    ) -> schema.LoadSessionResponse:
        """Continue a conversation, and show it from its beginning."""
        if session_id in self._sessions:
            await self._sessions.pop(session_id).close()
        await self._open(session_id, cwd, mcp_servers, is_new=False)
        return schema.LoadSessionResponse()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> schema.PromptResponse:
        """Answer a message, or run a command that begins with `/`."""
        if session_id not in self._sessions:
            raise RequestError(_REFUSED, "there is no such session: open it first")
        try:
            return schema.PromptResponse(stop_reason=await self._sessions[session_id].answer(prompt))
        except PullwrightError as error:
            raise RequestError(_FAILED, str(error)) from error

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Stop the answer that is being given, if any."""
        if session_id in self._sessions:
            self._sessions[session_id].cancel()

    def stop(self) -> None:
        """End everything at once, because of a signal."""
        self.is_stopped = True
        for session in self._sessions.values():
            session.chat.context.stop.at_once()
        self.cancel_all()

    def cancel_all(self) -> None:
        """Stop all answers."""
        for session in self._sessions.values():
            session.cancel()

    async def close(self) -> list[str]:
        """End all sessions, and return lines for the person."""
        return [line for session in self._sessions.values() for line in await session.close()]

    async def _open(self, name: str, cwd: str, servers: object, *, is_new: bool) -> None:
        if not await asyncio.to_thread(lambda: os.path.isabs(cwd) and os.path.isdir(cwd)):  # noqa: PTH112, PTH117  one call
            raise RequestError(_REFUSED, "cwd is no absolute path of a folder")
        session = EditorSession(name, Path(cwd), self._editor)
        try:
            await asyncio.to_thread(session.build, self._options, self._observers, is_new=is_new)
        except PullwrightError as error:
            raise RequestError(_FAILED, str(error)) from error
        self._sessions[name] = session
        await session.begin(has_servers=bool(servers))


class EditorSession:
    """A conversation whose person sits at an editor. It is the `Chat` where they type commands.

    A `PullwrightError` means that the configuration is wrong, there is no such run, or the model or the host failed.

    Args:
        name: the editor's name for it.
    """

    debug = False
    chat: ChatProgram

    def __init__(self, name: str, folder: Path, editor: Any) -> None:
        self._name, self._folder, self._editor = name, folder, editor
        self._working: asyncio.Task[schema.StopReason] | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._updates = Updates(folder)
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    def build(self, options: argparse.Namespace, observers: Observers, *, is_new: bool) -> None:
        """Build the conversation, in a thread: a new one, or one that the run of this name began."""
        given, folder = given_settings(options), self._folder
        how = {"ask": self.ask, "dry_run": options.dry_run, "observers": observers}
        self.chat = build_chat("chat", options.repo, given, os.environ, folder, self._emit, **how)
        if is_new:
            self.chat.next_run = self._name
        else:
            self.chat.begun = continued_last(self.chat.context.home, self.chat.label, self._name)

    async def begin(self, *, has_servers: bool) -> None:
        """Show what was said before, and then, after the answer to the editor's request, the commands."""
        self._send(self._updates.past(self.chat.begun.turns if self.chat.begun else ()))
        await self._sent()
        if has_servers:
            self._emit(
                events.Warned("the editor's MCP servers are not used: name them in Pullwright's settings")
            )
        self._send([helpers.update_available_commands(_commands())])

    async def answer(self, blocks: Sequence[Any]) -> schema.StopReason:
        """Answer a message, and return why the answer ended, in the protocol's words."""
        if self._working is not None:
            raise RequestError(_REFUSED, "the last message is not answered yet")
        task = self._working = asyncio.ensure_future(self._answer(blocks))
        try:
            return await task
        except asyncio.CancelledError:
            if (current := asyncio.current_task()) and current.cancelling():
                raise
            return "cancelled"
        finally:
            self._working = None
            self._send(self._updates.end())
            await self._sent()

    def cancel(self) -> None:
        """Stop the answer."""
        if self._working is not None:
            self._working.cancel()

    async def close(self) -> list[str]:
        """End the conversation, and return lines for the person."""
        self.cancel()
        if self._working is not None:
            await asyncio.wait([self._working])
        return await self.chat.close()

    async def _answer(self, blocks: Sequence[Any]) -> schema.StopReason:
        text = _written("\n".join(block.text for block in blocks if block.type == "text"))
        if COMMAND.match(text):
            try:
                if text.split()[0] in _TERMINAL_ONLY:
                    raise ConfigurationError("that command is for a terminal: the editor has its own")
                await run_slash_command(self, text)
            except PullwrightError as error:
                self.say(f"pullwright: {error}")
            return "end_turn"
        conversation = await self.chat.opened()
        self._updates.folder = self.chat.folder or self._folder  # with --repo it is a clone
        embedded, paths = self._attached(conversation, blocks)
        files = await conversation.mentioned_files((*mentions_in(text), *paths), self.say)
        end = await self.chat.say("\n\n".join((text, *embedded, *files)))
        if end.limit:
            self.say("The reply ended there. Your next message starts a new reply.")
        return "max_turn_requests" if end.limit else "end_turn"

    def _attached(self, conversation: Conversation, blocks: Sequence[Any]) -> tuple[list[str], list[str]]:
        """Return the texts that the editor attached, for the model, and the paths that it named."""
        texts, paths = [], []
        for block in blocks:
            if block.type == "resource_link":
                paths.append(self._path(block.uri))
            elif block.type == "resource" and isinstance(block.resource, schema.TextResourceContents):
                data = _written(block.resource.text).encode()[:_MOST_EMBEDDED_BYTES]
                texts.append(conversation.mentioned(self._path(block.resource.uri), data))
            elif block.type != "text":
                self.say(f"what is attached as {block.type} is not shown to the model: only text is")
        return texts, paths

    def _path(self, uri: str) -> str:
        """Return the path of an attached file as the model's tools name it."""
        parts = urlsplit(_written(uri))
        path = unquote(parts.path) if parts.scheme == "file" else _written(uri)
        return path.removeprefix(f"{self._folder}/")

    # -- what the person sees, and is asked ----------------------------------------------------------------------

    @property
    def view(self) -> EditorSession:
        """What shows the output of commands."""
        return self

    async def program(self) -> ChatProgram:
        """Return the conversation."""
        return self.chat

    def say(self, text: str) -> None:
        """Show lines of the program itself."""
        self._send(told(f"{text}\n\n"))

    def rows(self, rows: Sequence[tuple[str, str]]) -> None:
        """Show two columns."""
        width = max(len(left) for left, _ in rows)
        self.say(fenced("\n".join(f"{left:<{width}}  {right}".rstrip() for left, right in rows)))

    def code(self, diff: str) -> None:
        """Show a diff."""
        self.say(fenced(diff, "diff"))

    async def ask(self, tool: str, scope: str, why: str) -> ApprovalAnswer:
        """Ask the person whether a call above the permission level may run."""
        call = self._updates.asked_about(tool, scope)
        call.content = [helpers.tool_content(helpers.text_block(f"{fenced(scope)}\n{why}"))]
        chosen = await self._chosen(call, {kind: words for kind, (words, _) in _ANSWERS.items()})
        return ApprovalAnswer(_ANSWERS[chosen][1])

    async def confirm(self, question: str) -> bool:
        """Ask the person yes or no."""
        call = schema.ToolCallUpdate(tool_call_id=next(self._updates.ids), title=question, kind="other")
        is_agreed = await self._chosen(call, {"allow_once": "Yes", "reject_once": "No"}) == "allow_once"
        end = helpers.update_tool_call(call.tool_call_id, status="completed" if is_agreed else "failed")
        self._send([end])
        return is_agreed

    async def _chosen(
        self, call: schema.ToolCallUpdate, names: Mapping[schema.PermissionOptionKind, str]
    ) -> schema.PermissionOptionKind:
        """Have the editor ask, and return the kind of the answer: a refusal if it is gone, or gives no such answer."""
        options = [
            schema.PermissionOption(option_id=kind, name=name, kind=kind) for kind, name in names.items()
        ]
        await self._sent()
        with suppress(ConnectionError, RequestError, ValueError):
            answer = await self._editor.request_permission(
                session_id=self._name, tool_call=call, options=options
            )
            given = getattr(answer.outcome, "option_id", "")
            return next((kind for kind in names if kind == given), "reject_once")
        return "reject_once"

    def _emit(self, event: events.Event) -> None:
        """Show an event, in the order in which they come, also from another thread."""
        if threading.get_ident() == self._thread:
            self._send(self._updates.of(event))
        else:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._emit, event)

    def _send(self, updates: Iterable[Any]) -> None:
        for update in updates:
            task = asyncio.ensure_future(_delivered(self._editor.session_update(self._name, update)))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _sent(self) -> None:
        """Wait until the editor has what was sent."""
        await asyncio.gather(*self._sending)


async def _delivered(sending: Coroutine[Any, Any, None]) -> None:
    with suppress(ConnectionError):  # the editor is gone, and the work is saved as always
        await sending


def _commands() -> Iterator[schema.AvailableCommand]:
    for name, one in slash_commands().items():
        hint = schema.UnstructuredCommandInput(hint=one.arguments)
        taken = schema.AvailableCommandInput(root=hint) if one.arguments else None
        if name not in _TERMINAL_ONLY:
            yield schema.AvailableCommand(name=name[1:], description=one.text, input=taken)


def _written(text: str) -> str:
    """Return a text without what no encoding has: an editor can send halves of characters as JSON."""
    return text.encode("utf-8", "replace").decode()

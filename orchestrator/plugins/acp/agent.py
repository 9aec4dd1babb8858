"""What an editor may ask for: sessions, each a conversation of `chat`, whose events it gets as updates of the protocol.

The official library calls the methods by name.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from acp import CLIENT_METHODS, PROTOCOL_VERSION, RequestError, helpers, schema
from acp.utils import serialize_params

from orchestrator.app.cli.arguments import given_settings
from orchestrator.app.event_lines import telling_argument
from orchestrator.app.terminal import known_secrets
from orchestrator.app.words import clean, short_line
from orchestrator.bot.journal.folders import new_run_id
from orchestrator.core import events
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError, PullwrightError
from orchestrator.core.events import CallStatus, Decision
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
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from orchestrator.app.wiring import Observers
    from orchestrator.engine.session.history import Turn
    from orchestrator.plugins.chat.conversation import Conversation
    from orchestrator.plugins.chat.program import ChatProgram

    Put = Callable[[dict[str, Any]], object]
    """Sends a message to the editor, after those before it. It waits for nothing, and any thread may call it."""

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
_TO_RUN: Mapping[schema.PermissionOptionKind, str] = {
    "allow_once": "Run it",
    "allow_always": "Always in this session",
    "reject_once": "Do not run it",
}
_TO_AGREE: Mapping[schema.PermissionOptionKind, str] = {"allow_once": "Yes", "reject_once": "No"}
_DECISIONS = {"allow_once": Decision.ONCE, "allow_always": Decision.ALWAYS}
_MOST_OUTPUT_CHARS = 20_000
_FAILED, _REFUSED = -32_603, -32_602


class EditorView:
    """Shows a session: events become updates, also from other threads. Commands print here.

    Attributes:
        session: the editor's name for it.
        folder: where relative paths begin.
        ids: new ids of calls.
    """

    def __init__(self, session: str, folder: Path, put: Put) -> None:
        redactor = known_secrets(os.environ)
        self.session, self.folder, self._put = session, folder, put
        self.ids = (f"call-{number}" for number in count(1))  # a model may give one twice
        self._running: dict[str, schema.ToolCallStart] = {}
        self._text, self._thoughts = ReplyText(redactor), RedactedStream(redactor)
        self._lock = threading.RLock()

    def __call__(self, event: events.Event) -> None:
        """Show an event."""
        with self._lock:
            match event:
                case events.TextStarted() if self._text.came:
                    self.say(f"{self._text.end()}\n\n(The reply broke off, and begins again.)")
                case events.ReasoningDelta(text):
                    self._think(self._thoughts.add(clean(text)))
                case events.TextDelta() | events.ReplyReceived():
                    self._think(self._thoughts.end())
                case events.ToolCallStarted(call_id, name, arguments):
                    self._running[call_id] = started = self._call(name, arguments, "in_progress")
                    self._show(started)
                case events.ToolCallEnded(call_id, status=status, output=output) if call_id in self._running:
                    call, is_good = self._running.pop(call_id), status is CallStatus.OK
                    shown = [helpers.tool_content(helpers.text_block(clean(output[:_MOST_OUTPUT_CHARS])))]
                    # An output would take the place of the change, so only an error does.
                    shows = not (is_good and call.content)
                    self.end_call(call.tool_call_id, is_good=is_good, shown=shown if shows else None)
                case events.TodosChanged(items):
                    entries = (
                        helpers.plan_entry(one.content, priority=one.priority.value, status=one.status.value)
                        for one in items
                    )
                    self._show(helpers.update_plan(entries))
                case events.Warned(message) | events.Guarded(message=message):
                    self._think(f"{clean(message)}\n\n")
                case _:
                    pass
            self._tell(self._text.of(event))

    def end(self) -> None:
        """Show what is left when an answer ended, also in the middle."""
        with self._lock:
            self._think(self._thoughts.end())
            self._tell(self._text.end())
            for call in self._running.values():
                self.end_call(call.tool_call_id, is_good=False)
            self._running.clear()

    def past(self, turns: Sequence[Turn]) -> None:
        """Show what was said and done in an earlier conversation."""
        for turn in turns:
            if turn.kind in FROM_USER and turn.said.strip():
                self._show(helpers.update_user_message_text(clean(turn.said)))
            elif turn.kind is TurnKind.ASSISTANT:
                self._think(clean(turn.reasoning))
                self._tell(turn.content)
                for call in turn.tool_calls:
                    self._show(self._call(call.name, call.arguments, "completed"))

    def offer_commands(self) -> None:
        """Offer the commands."""
        offered = []
        for name, one in slash_commands().items():
            hint = schema.UnstructuredCommandInput(hint=one.arguments)
            taken = schema.AvailableCommandInput(root=hint) if one.arguments else None
            if name not in _TERMINAL_ONLY:
                offered.append(schema.AvailableCommand(name=name[1:], description=one.text, input=taken))
        self._show(helpers.update_available_commands(offered))

    def say(self, text: str) -> None:
        """Show lines of the program itself."""
        self._tell(f"{text}\n\n")

    def rows(self, rows: Sequence[tuple[str, str]]) -> None:
        """Show two columns."""
        width = max(len(left) for left, _ in rows)
        self.say(fenced("\n".join(f"{left:<{width}}  {right}".rstrip() for left, right in rows)))

    def code(self, diff: str) -> None:
        """Show a diff."""
        self.say(fenced(diff, "diff"))

    def asked_about(self, tool: str, scope: str) -> schema.ToolCallUpdate:
        """Return the running call that a question is about. The question itself shows what an answer covers."""
        calls = [one for one in self._running.values() if one.title.split()[0] == tool]
        fits = [one for one in calls if one.raw_input and scope in map(str, one.raw_input.values())] or calls
        name, title = (fits[0].tool_call_id, fits[0].title) if fits else (next(self.ids), tool)
        return schema.ToolCallUpdate(tool_call_id=name, title=title, kind=_kind(tool), status="pending")

    def end_call(self, call_id: str, *, is_good: bool, shown: Sequence[Any] | None = None) -> None:
        """Show the end of a call."""
        status: schema.ToolCallStatus = "completed" if is_good else "failed"
        self._show(helpers.update_tool_call(call_id, status=status, content=shown))

    def _show(self, update: Any) -> None:
        told = serialize_params(helpers.session_notification(self.session, update))
        self._put({"jsonrpc": "2.0", "method": CLIENT_METHODS["session_update"], "params": told})

    def _tell(self, text: str) -> None:
        if text:
            self._show(helpers.update_agent_message_text(clean(text)))

    def _think(self, text: str) -> None:
        if text:
            self._show(helpers.update_agent_thought_text(text))

    def _call(self, tool: str, arguments: Mapping[str, Any], status: Any) -> schema.ToolCallStart:
        """Return the beginning of a call, with its file, and with the change where the arguments have it as text."""
        named, old, new = (
            next((text for name in names if isinstance(text := arguments.get(name), str)), None)
            for names in (_PATHS, _OLD, _NEW)
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


class EditorAgent:
    """Serves one editor, which may have several sessions.

    Attributes:
        sessions: those that are open, by the editor's names for them.
    """

    def __init__(self, options: argparse.Namespace, observers: Observers, put: Put) -> None:
        self._options, self._observers, self._put = options, observers, put
        self._editor: Any = None
        self.sessions: dict[str, EditorSession] = {}

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
        if session_id in self.sessions:
            await self.sessions.pop(session_id).close()
        await self._open(session_id, cwd, mcp_servers, is_new=False)
        return schema.LoadSessionResponse()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> schema.PromptResponse:
        """Answer a message, or run a command that begins with `/`."""
        with _errors_answered():
            if session_id not in self.sessions:
                raise ConfigurationError("there is no such session: open it first")
            return schema.PromptResponse(stop_reason=await self.sessions[session_id].answer(prompt))

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Stop the answer that is being given, if any."""
        if session_id in self.sessions:
            self.sessions[session_id].cancel()

    async def _open(self, name: str, cwd: str, servers: object, *, is_new: bool) -> None:
        def build() -> EditorSession:
            if not os.path.isabs(cwd) or not os.path.isdir(cwd):  # noqa: PTH112, PTH117  an empty path is no folder
                raise ConfigurationError("cwd is no absolute path of a folder")
            view = EditorView(name, Path(cwd), self._put)
            return EditorSession(view, self._editor, self._options, self._observers, is_new=is_new)

        with _errors_answered():
            session = self.sessions[name] = await asyncio.to_thread(build)
        session.view.past(session.chat.begun.turns if session.chat.begun else ())
        if servers:
            session.view.say("The editor's MCP servers are not used: name them in Pullwright's settings.")
        asyncio.get_running_loop().call_soon(session.view.offer_commands)  # after the answer to the request


@contextmanager
def _errors_answered() -> Iterator[None]:
    """Answer a request with the error that is raised meanwhile."""
    try:
        yield
    except PullwrightError as error:
        code = _REFUSED if isinstance(error, ConfigurationError) else _FAILED
        raise RequestError(code, str(error)) from error


class EditorSession:
    """A conversation whose person sits at an editor. It is the `Chat` where they type commands.

    A `PullwrightError` means that the configuration is wrong, there is no such run, or the model or the host failed.

    Args:
        is_new: whether the view's session is a new run, and not the one that is continued.
    """

    debug = False

    def __init__(
        self,
        view: EditorView,
        editor: Any,
        options: argparse.Namespace,
        observers: Observers,
        *,
        is_new: bool,
    ) -> None:
        self.view, self._editor, self._folder = view, editor, view.folder
        self._working: asyncio.Task[schema.StopReason] | None = None
        given, how = given_settings(options), {"dry_run": options.dry_run, "observers": observers}
        self.chat = build_chat(
            "chat", options.repo, given, os.environ, self._folder, view, ask=self.ask, **how
        )
        if is_new:
            self.chat.next_run = view.session
        else:
            self.chat.begun = continued_last(self.chat.context.home, self.chat.label, view.session)

    async def answer(self, blocks: Sequence[Any]) -> schema.StopReason:
        """Answer a message, and return why the answer ended, in the protocol's words."""
        if self._working is not None:
            raise ConfigurationError("the last message is not answered yet")
        task = self._working = asyncio.ensure_future(self._answer(blocks))
        try:
            await asyncio.wait([task])
        finally:
            self._working = None
            self.view.end()
        return "cancelled" if task.cancelled() else task.result()

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
        text = "\n".join(block.text for block in blocks if block.type == "text")
        if COMMAND.match(text):
            try:
                if text.split()[0] in _TERMINAL_ONLY:
                    raise ConfigurationError("that command is for a terminal: the editor has its own")
                await run_slash_command(self, text)
            except PullwrightError as error:
                self.view.say(f"pullwright: {error}")
            return "end_turn"
        conversation = await self.chat.opened()
        self.view.folder = self.chat.folder or self._folder  # with --repo it is a clone
        embedded, paths = self._attached(conversation, blocks)
        files = await conversation.mentioned_files((*mentions_in(text), *paths), self.view.say)
        end = await self.chat.say("\n\n".join((text, *embedded, *files)))
        if end.limit:
            self.view.say("The reply ended there. Your next message starts a new reply.")
        return "max_turn_requests" if end.limit else "end_turn"

    def _attached(self, conversation: Conversation, blocks: Sequence[Any]) -> tuple[list[str], list[str]]:
        """Return the texts that the editor attached, for the model, and the paths that it named."""
        texts, paths = [], []
        for block in blocks:
            if block.type == "resource_link":
                paths.append(self._path(block.uri))
            elif block.type == "resource" and isinstance(block.resource, schema.TextResourceContents):
                data = block.resource.text.encode()
                texts.append(conversation.mentioned(self._path(block.resource.uri), data))
            elif block.type != "text":
                self.view.say(f"what is attached as {block.type} is not shown to the model: only text is")
        return texts, paths

    def _path(self, uri: str) -> str:
        """Return the path of an attached file as the model's tools name it."""
        parts = urlsplit(uri)
        path = unquote(parts.path) if parts.scheme == "file" else uri
        return path.removeprefix(f"{self._folder}/")

    # -- what the person is asked --------------------------------------------------------------------------------

    async def program(self) -> ChatProgram:
        """Return the conversation."""
        return self.chat

    async def ask(self, tool: str, scope: str, why: str) -> ApprovalAnswer:
        """Ask the person whether a call above the permission level may run."""
        call = self.view.asked_about(tool, scope)
        call.content = [helpers.tool_content(helpers.text_block(f"{fenced(scope)}\n{why}"))]
        return ApprovalAnswer(await self._decision(call, _TO_RUN))

    async def confirm(self, question: str) -> bool:
        """Ask the person yes or no."""
        call = schema.ToolCallUpdate(tool_call_id=next(self.view.ids), title=question, kind="other")
        is_agreed = await self._decision(call, _TO_AGREE) is Decision.ONCE
        self.view.end_call(call.tool_call_id, is_good=is_agreed)
        return is_agreed

    async def _decision(
        self, call: schema.ToolCallUpdate, answers: Mapping[schema.PermissionOptionKind, str]
    ) -> Decision:
        """Have the editor ask. It is a refusal if it is gone, or gives none of the answers."""
        options = [schema.PermissionOption(option_id=kind, name=answers[kind], kind=kind) for kind in answers]
        with suppress(ConnectionError, RequestError, ValueError):
            given = await self._editor.request_permission(self.view.session, call, options)
            chosen = getattr(given.outcome, "option_id", "")
            return _DECISIONS.get(chosen if chosen in answers else "", Decision.NO)
        return Decision.NO

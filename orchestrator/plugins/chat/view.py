"""Shows a conversation at a terminal, with the model's Markdown as it arrives, and asks the questions of MCP servers."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.app.cli.live import LiveView
from orchestrator.app.cli.output import open_console, print_lines
from orchestrator.app.terminal import known_secrets
from orchestrator.app.words import YES, clean, counted
from orchestrator.core.events import (
    CallStatus,
    PlanAccepted,
    ProcessingEnded,
    ReplyReceived,
    TextDelta,
    TextStarted,
    ToolCallEnded,
    ToolCallStarted,
    TurnStarted,
)
from orchestrator.core.prompts import cut, fence_after

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from rich.console import Console

    from orchestrator.core.events import Event
    from orchestrator.engine.policy.secrets import RedactedStream, Redactor
    from orchestrator.plugins.mcp.elicitation import AnswerValue, QuestionField, ServerQuestion

_WRITTEN_CALL = re.compile(
    r"\s*(?:[{\[]|<tool|<function|<invoke|<\||\[TOOL_CALLS|```(?:json|xml|tool)?\s*[{\[<])"
)
"""The beginning of a reply that may be a tool call written as text."""
_MAY_BECOME_ONE = re.compile(r"\s*(?:`{1,3}\w{0,6}\s*|<\w{0,12})?\Z")
_MOST_OUTPUT_LINES, _MOST_OUTPUT_CHARS = 8, 400
_CODE_THEME = "ansi_dark"
_NOT_SENT = "That looks like a key or a password. It is not sent: a server must not ask for one in this way."


def _indented(text: str) -> str:
    return text.replace("\n", "\n    ")


class MarkdownBlocks:
    """Splits a stream of text into complete Markdown blocks, so that each is shown once."""

    def __init__(self) -> None:
        self._rest = ""
        self._lines: list[str] = []
        self._fence = ""

    def add(self, piece: str) -> list[str]:
        """Add a piece, and return the blocks that it completes."""
        *lines, self._rest = (self._rest + piece).split("\n")
        whole: list[str] = []
        for line in lines:
            self._lines.append(line)
            self._fence = fence_after(line, self._fence)
            if not line.strip() and not self._fence:
                whole += self._cut()
        return whole

    def end(self) -> list[str]:
        """Return the last block, and reset for the next text."""
        self._lines.append(self._rest)
        self._rest = self._fence = ""
        return self._cut()

    def _cut(self) -> list[str]:
        block = "\n".join(self._lines).strip("\n")
        self._lines = []
        return [block] if block.strip() else []


class ReplyText:
    """The text of each reply as it arrives, redacted. What may be a tool call is held back until that is known.

    Attributes:
        came: whether a piece of this reply came.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self.begin()

    def begin(self) -> None:
        """Forget what came, for another reply."""
        from orchestrator.engine.policy.secrets import RedactedStream

        self.came = False
        self._text = RedactedStream(self._redactor)
        self._held = ""
        self._may_be_call: bool | None = None

    def of(self, event: Event) -> str:
        """Return the text that may be shown after an event."""
        match event:
            case TurnStarted() | TextStarted():
                self.begin()
            case TextDelta(text):
                self.came = True
                return self._add(text)
            case ReplyReceived(message=message) if not self.came:
                return self._add(message.text)
            case PlanAccepted(plan=plan):
                return self.end(is_call=not plan.strip())
            case ProcessingEnded():
                return self.end()
            case _:
                pass
        return ""

    def end(self, *, is_call: bool = False) -> str:
        """Return the rest of the text; nothing if it is a call written as text."""
        rest = self._held + self._text.end()
        if self._may_be_call is None:
            self._may_be_call = _WRITTEN_CALL.match(rest) is not None
        shown = "" if is_call and self._may_be_call else rest
        self.begin()
        return shown

    def _add(self, piece: str) -> str:
        text = self._text.add(clean(piece))
        if self._may_be_call is None and text:
            self._held += text
            if _WRITTEN_CALL.match(self._held):
                self._may_be_call = True
            elif not _MAY_BECOME_ONE.match(self._held):
                self._may_be_call = False
                text, self._held = self._held, ""
        elif self._may_be_call:
            self._held += text
        return text if self._may_be_call is False else ""


class ChatView:
    """An `Emit` that shows messages and actions. Without a terminal, complete answers go to standard output.

    Args:
        console: console of a terminal on standard output; None for plain lines.
    """

    def __init__(self, console: Console | None) -> None:
        self._console = console
        self._redactor = known_secrets(os.environ)
        if console is None:
            self.live = LiveView.on_stderr(plain=True, answers=True)
        else:
            self.live = LiveView(console, answers=True, stream=self._new_stream, phase="at work")
        self._commands: set[str] = set()
        self._text, self._blocks = ReplyText(self._redactor), MarkdownBlocks()

    @classmethod
    def make(cls, *, plain: bool) -> ChatView:
        """Create the view of this process, with status and colours if input and output are a terminal."""
        if plain or not (sys.stdin.isatty() and sys.stdout.isatty()):
            return cls(None)
        console = open_console()
        return cls(None if console.is_dumb_terminal else console)

    @property
    def is_plain(self) -> bool:
        """Whether only plain lines are printed."""
        return self._console is None

    def __call__(self, event: Event) -> None:
        """Show an event."""
        shown = self._blocks.add(self._text.of(event))
        if isinstance(event, TurnStarted | TextStarted):
            self._blocks = MarkdownBlocks()
        elif isinstance(event, PlanAccepted | ProcessingEnded):
            shown += self._blocks.end()
        for block in shown:
            self._show(block)
        self.live(event)
        if isinstance(event, ToolCallStarted) and isinstance(event.arguments.get("command"), str):
            self._commands.add(event.call_id)
        elif isinstance(event, ToolCallEnded) and event.call_id in self._commands:
            self._commands.discard(event.call_id)
            self._show_output(event)

    def _show_output(self, event: ToolCallEnded) -> None:
        """Show the last lines that a successful command printed. A failed one has them in its own line."""
        lines = [line for line in clean(event.output).splitlines() if line.strip()]
        if event.status is not CallStatus.OK or self._console is None or not lines:
            return
        from rich.text import Text

        left_out = len(lines) - _MOST_OUTPUT_LINES
        first = [f"... {counted(left_out, 'line')} before"] if left_out > 0 else []
        text = "\n".join(
            f"    {cut(line, _MOST_OUTPUT_CHARS)}" for line in [*first, *lines[-_MOST_OUTPUT_LINES:]]
        )
        self.live.show(Text(text, style="dim"))

    def say(self, text: str, *, to_copy: bool = False) -> None:
        """Print lines from the program itself, on standard output.

        Args:
            to_copy: whether the terminal wraps long lines itself, so that they can be copied as one line.
        """
        self.live.pause()
        if self._console is None or to_copy:
            print(clean(text), flush=True)
        else:
            print_lines([text])

    def rows(self, rows: Sequence[tuple[str, str]]) -> None:
        """Print two columns. Long text in the second column is wrapped inside it."""
        self.live.pause()
        if self._console is None:
            width = max(len(left) for left, _ in rows)
            self.say("\n".join(f"{left:<{width}}  {right}".rstrip() for left, right in rows))
            return
        from rich.table import Table

        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, style="cyan")
        grid.add_column(overflow="fold")
        for left, right in rows:
            grid.add_row(*(clean(text) for text in (left, right)))
        self._console.print(grid)

    def ask(self, tool: str, scope: str, why: str) -> None:
        """Show the tool call that needs consent. A yes allows exactly what is shown."""
        reason = why.removeprefix("Not run: ")
        self.say(f"The model wants to call {tool}:\n\n    {_indented(scope)}\n\n{reason}\n")

    def markdown(self, text: str) -> None:
        """Print Markdown from the program itself. Without a terminal it is printed as it is."""
        self.live.pause()
        self._show(clean(text))

    def code(self, diff: str) -> None:
        """Print a diff, in colours on a terminal."""
        self.live.pause()
        text = clean(diff)
        if self._console is None:
            print(text, flush=True)
            return
        from rich.syntax import Syntax

        self._console.print(
            Syntax(text, "diff", theme=_CODE_THEME, background_color="default", word_wrap=True)
        )

    def _new_stream(self) -> RedactedStream:
        from orchestrator.engine.policy.secrets import RedactedStream

        return RedactedStream(self._redactor)

    def _show(self, block: str) -> None:
        if self._console is None:
            print(f"{block}\n", flush=True)
            return
        from rich.markdown import Markdown
        from rich.padding import Padding

        shown = Markdown(block, code_theme=_CODE_THEME, hyperlinks=False)
        self.live.show(Padding(shown, (0, 0, 1, 0)))


@dataclass(frozen=True, slots=True)
class ServerQuestions:
    """Asks the person the questions of an MCP server, marked as the server's own words.

    The answer has only what the person typed.

    Args:
        read_line: reads a line after a prompt, without adding it to a history.
        holds_secret: returns whether a text contains a secret.
    """

    view: ChatView
    read_line: Callable[[str], Awaitable[str]]
    holds_secret: Callable[[str], bool]

    def show_page(self, server: str, page: str) -> None:
        """Show the sign-in page of a server."""
        self.view.say(f"Sign in to the MCP server {server} in your browser, at:\n\n{page}\n", to_copy=True)

    async def ask(self, question: ServerQuestion) -> dict[str, AnswerValue] | None:
        """Ask the question, and return the answers; None if the person declines.

        Raises:
            EOFError: Ctrl+D was pressed.
            KeyboardInterrupt: Ctrl+C was pressed.
        """
        message = _indented(question.message)
        self.view.say(f"The MCP server {question.server} asks you, in its own words:\n\n    {message}\n")
        if question.page:
            self.view.say(
                f"It wants you to open this page in your browser:\n\n{question.page}\n", to_copy=True
            )
            answer = await self.read_line("Open it only if you trust that site. Do you agree? [y]es, [n]o: ")
            return {} if answer.strip().casefold() in YES else None
        self.view.say("What you type goes to that server, and not to the model.")
        if question.wants_secret:
            self.view.say("It seems to ask for a password or a key. A server must not: do not type one here.")
        if (await self.read_line("Answer it? [y]es, [n]o: ")).strip().casefold() not in YES:
            return None
        answers = {field.name: await self._answer(field) for field in question.fields}
        return {name: value for name, value in answers.items() if value is not None}

    async def _answer(self, field: QuestionField) -> AnswerValue | None:
        while True:
            typed = await self.read_line(clean(_words(field)))
            if self.holds_secret(typed):
                self.view.say(_NOT_SENT)
                continue
            try:
                return field.read(typed)
            except ValueError as error:
                self.view.say(f"{error}.")


def _words(field: QuestionField) -> str:
    """Return the prompt for a field: its label, the allowed values, and the effect of an empty line."""
    from orchestrator.plugins.mcp.elicitation import FieldKind

    allowed = f": {', '.join(field.choices)}" if field.choices else ""
    what = "" if field.kind is FieldKind.TEXT else f" ({field.kind}{allowed})"
    empty = "" if field.is_required else " (may be left out)"
    if field.default is not None:
        shown = ", ".join(field.default) if isinstance(field.default, list) else field.default
        empty = f" [{'yes' if shown is True else 'no' if shown is False else shown}]"
    return f"  {field.label}{what}{empty}: "

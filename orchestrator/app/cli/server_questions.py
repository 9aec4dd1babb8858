"""Asks the person at a terminal the questions of an MCP server, and shows its sign-in page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.app.cli.chat_view import indented
from orchestrator.app.words import clean
from orchestrator.engine.mcp.elicitation import FieldKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator.app.cli.chat_view import ChatView
    from orchestrator.engine.mcp.elicitation import AnswerValue, QuestionField, ServerQuestion

_YES = frozenset({"y", "yes"})
_NOT_SENT = "That looks like a key or a password. It is not sent: a server must not ask for one in this way."


@dataclass(frozen=True, slots=True)
class ServerQuestions:
    """Shows a server's question, marked as the server's own words, and returns only what the person typed.

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
        said = f"The MCP server {question.server} asks you, in its own words:\n\n    {indented(question.message)}\n"
        self.view.say(said)
        if question.page:
            self.view.say(
                f"It wants you to open this page in your browser:\n\n{question.page}\n", to_copy=True
            )
            going = await self.read_line("Go there only if you know the place. Do you? [y]es, [n]o: ")
            return {} if going.strip().casefold() in _YES else None
        self.view.say("What you type goes to that server, and not to the model.")
        if question.wants_secret:
            self.view.say("It seems to ask for a password or a key. A server must not: do not type one here.")
        if (await self.read_line("Answer it? [y]es, [n]o: ")).strip().casefold() not in _YES:
            return None
        answers = {}
        for field in question.fields:
            value = await self._answer(field)
            if value is not None:
                answers[field.name] = value
        return answers

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
    what = "" if field.kind is FieldKind.TEXT else f" ({field.kind}"
    if what:
        what += f": {', '.join(field.choices)})" if field.choices else ")"
    empty = "" if field.is_required else " (may be left out)"
    if field.default is not None:
        shown = ", ".join(field.default) if isinstance(field.default, list) else field.default
        empty = f" [{'yes' if shown is True else 'no' if shown is False else shown}]"
    return f"  {field.label}{what}{empty}: "

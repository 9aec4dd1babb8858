"""`/memory` in a conversation: does what `pullwright memory` does, for the memory of that conversation."""

from __future__ import annotations

import shlex
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING

from orchestrator.app.plugins import SlashCommand
from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    from orchestrator.plugins.chat.slash import Chat


async def _memory(chat: Chat, rest: str) -> None:
    from orchestrator.app.cli.arguments import UsageError, parse
    from orchestrator.plugins.memory.command import CREATES, act
    from orchestrator.plugins.memory.plugin import memory_help
    from orchestrator.plugins.memory.sessions import RunMemory

    words = _words_of_memory(rest)
    if not words or words == ["help"]:
        chat.view.rows([(f"/memory {what}", text) for what, text in memory_help()])
        return
    try:
        options = parse(["memory", *words])
    except (UsageError, SystemExit) as error:
        raise ConfigurationError(f"/memory: {error}; /memory help lists the actions") from None
    if options.repo:
        raise ConfigurationError("/memory shows the memory of this conversation only: leave out --repo")
    memory = (await chat.program()).memory
    if not isinstance(memory, RunMemory):
        raise ConfigurationError("another plug-in remembers for this conversation")
    if options.action not in CREATES and not memory.file.exists():
        chat.view.say("nothing is remembered on this machine")
        return
    out = StringIO()
    with redirect_stdout(out):
        await act(memory.opened(), options)
    chat.view.say(out.getvalue().rstrip("\n") or "nothing was found")


_WORDS_BEFORE_TEXT = {"add": 0, "search": 0, "edit": 2}
"""The actions of `/memory` whose last argument is the rest of the line, and how many words stand before it."""


def _words_of_memory(rest: str) -> list[str]:
    action, _, text = rest.partition(" ")
    if action not in _WORDS_BEFORE_TEXT:
        try:
            return shlex.split(rest)
        except ValueError as error:
            raise ConfigurationError(f"{rest[:60]}: {error}") from None
    words = [action]
    while (text := text.lstrip()) and (len(words) <= _WORDS_BEFORE_TEXT[action] or text.startswith("--")):
        count = 2 if text.startswith("--") else 1
        *first, text = [*text.split(maxsplit=count), ""][: count + 1]
        words += first
    quote = text[:1]
    if len(text) > 1 and quote in {'"', "'"} and text.endswith(quote) and quote not in text[1:-1]:
        text = text[1:-1]
    return [*words, "--", text] if text else words


COMMANDS = (
    SlashCommand("/memory", "ACTION", "show or change the memory of this machine; /memory help", _memory),
)

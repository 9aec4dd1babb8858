"""What `chat` adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.app.plugins import CommandEntry, Plugin

if TYPE_CHECKING:
    import argparse


def _add_subject(to: argparse._ActionsContainer) -> None:
    from orchestrator.app.cli.flags import REPO, add_repo, add_text

    add_repo(to, f"use a clone of this repository instead of this folder: {REPO}")
    add_text(
        to,
        "--resume",
        "RUN",
        "continue a conversation: its id, the beginning of the id, or 'last' for the newest about this folder",
    )


def _add_chat(parser: argparse.ArgumentParser) -> None:
    from orchestrator.app.cli.flags import add_debug, add_plain, add_settings, add_switch, add_text

    subject = parser.add_argument_group("what to talk about")
    _add_subject(subject)
    text = "continue the task of a run that made no pull request, with its conversation, files and question"
    add_text(subject, "--run", "RUN", text)
    how = parser.add_argument_group("how to talk")
    add_switch(how, "--dry-run", "let /pr push nothing, but print what it would propose")
    add_plain(how, "read and print plain lines, even at a terminal")
    add_debug(how)
    add_settings(parser)


def _add_ask(parser: argparse.ArgumentParser) -> None:
    from orchestrator.app.cli.flags import add_debug, add_json, add_plain, add_settings, add_switch, add_text
    from orchestrator.bot.suggestions import PROGRAM

    parser.usage = f"{PROGRAM} ask [FLAG ...] TEXT"
    add_text(parser, "text", "TEXT", "what to ask, or - to read it from standard input")
    _add_subject(parser.add_argument_group("what to ask about"))
    how = parser.add_argument_group("how to ask")
    add_switch(how, "--submit", "let the model go on until it calls submit(answer)")
    add_json(how, "print one JSON result on standard output")
    add_plain(how)
    add_debug(how)
    add_settings(parser)


PLUGIN = Plugin(
    name="chat",
    text="talk with the model about a folder, a repository or a task",
    commands={
        "chat": CommandEntry(
            "talk with the model about this folder, or a clone of a repository",
            "start",
            _add_chat,
            ".command:chat",
            has_many_flags=True,
        ),
        "ask": CommandEntry(
            "ask the model one question about this folder, and print its answer",
            "start",
            _add_ask,
            ".ask:ask",
            has_many_flags=True,
        ),
    },
    uses=("mcp",),
)

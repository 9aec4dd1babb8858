"""What `acp` adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.app.plugins import CommandEntry, Plugin

if TYPE_CHECKING:
    import argparse


def _add_acp(parser: argparse.ArgumentParser) -> None:
    from orchestrator.app.cli.flags import REPO, add_repo, add_settings, add_switch

    subject = parser.add_argument_group("what to talk about")
    add_repo(subject, f"use a clone of this repository instead of the editor's folder: {REPO}")
    how = parser.add_argument_group("how to talk")
    add_switch(how, "--dry-run", "let /pr push nothing, but show what it would propose")
    add_settings(parser)


PLUGIN = Plugin(
    name="acp",
    text="talk with the model in an editor, over the Agent Client Protocol",
    commands={
        "acp": CommandEntry(
            "talk in an editor that speaks the Agent Client Protocol",
            "start",
            _add_acp,
            ".command:acp",
            has_many_flags=True,
        )
    },
    needs=("chat",),
    extra="agents",
)

"""What `digest` adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.app.plugins import CommandEntry, Plugin

if TYPE_CHECKING:
    import argparse


def _add_flags(parser: argparse.ArgumentParser) -> None:
    from orchestrator.app.cli.flags import add_json, add_repo, add_text

    which = parser.add_mutually_exclusive_group()
    text = "start of the period: 90m, 24h (the default), 7d, or a date such as 2026-11-20"
    add_text(which, "--since", "TIME", text)
    add_text(which, "--run", "RUN", "report one run: its id, the beginning of the id, or 'last'")
    add_repo(parser, "only this repository, as runs name it")
    text = "also write it as a comment on this issue, which later digests replace"
    add_text(parser, "--post", "issue:N", text)
    add_json(parser, "print one JSON object")


_TEXT = "report what was done, what was not done and why, and the cost"
PLUGIN = Plugin(
    name="digest",
    text=_TEXT,
    commands={"digest": CommandEntry(_TEXT, "watch", _add_flags, ".command:digest")},
)

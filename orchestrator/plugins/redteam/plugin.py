"""What `redteam` adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.app.plugins import CommandEntry, Plugin

if TYPE_CHECKING:
    import argparse


def _add_flags(parser: argparse.ArgumentParser) -> None:
    from orchestrator.app.cli.flags import add_json, add_settings, add_text

    add_text(parser, "--only", "NAME", "only this attack")
    add_json(parser, "print one JSON object per attack")
    add_settings(parser)


_TEXT = "try known attacks on this configuration, offline"
PLUGIN = Plugin(
    name="redteam",
    text=_TEXT,
    commands={"redteam": CommandEntry(_TEXT, "check", _add_flags, ".command:redteam", has_many_flags=True)},
    uses=("agents", "dashboard", "fleet", "github", "mcp", "memory", "verify_pr", "web", "worker"),
)

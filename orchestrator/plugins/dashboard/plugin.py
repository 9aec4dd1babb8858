"""What `dashboard` adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.app.plugins import CommandEntry, Plugin, Point

if TYPE_CHECKING:
    import argparse


def _add_flags(parser: argparse.ArgumentParser) -> None:
    from orchestrator.app.cli.flags import add_settings, add_text, port

    parser.add_argument(
        "--port", type=port, default=0, metavar="N", help="the port on 127.0.0.1 (default: any free port)"
    )
    text = (
        "the file of the fleet to show (default: fleet.toml, or the only fleet of this machine); "
        "PULLWRIGHT_DATABASE_URL has precedence"
    )
    add_text(parser, "--config", "FILE", text)
    add_settings(parser)


_TEXT = "show the runs of this machine as a page in a browser"
PLUGIN = Plugin(
    name="dashboard",
    text=_TEXT,
    commands={
        "dashboard": CommandEntry(_TEXT, "watch", _add_flags, ".command:dashboard", has_many_flags=True)
    },
    adds={Point.ATTACKS: ".attacks:FOLDER"},
    uses=("fleet",),
)

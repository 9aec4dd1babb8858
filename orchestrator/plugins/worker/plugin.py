"""What `worker` adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.app.plugins import CommandEntry, Plugin, Point

if TYPE_CHECKING:
    import argparse


def _add_worker(parser: argparse.ArgumentParser) -> None:
    from orchestrator.app.cli.flags import DRY_RUN, add_json, add_settings, add_switch, add_text

    add_text(parser, "--config", "FILE", "the fleet's file, such as fleet.toml", required=True)
    text = "also receive GitHub's webhooks at this address, such as 127.0.0.1:8788, so that work begins within seconds"
    add_text(parser, "--webhook", "ADDRESS", text)
    add_switch(parser, "--once", "run one cycle for each repository, then exit")
    add_switch(parser, "--dry-run", DRY_RUN)
    add_json(parser, "print one JSON object per cycle on standard output")
    add_settings(parser)


PLUGIN = Plugin(
    name="worker",
    text="run cycles for the repositories of a fleet's file, with health and webhooks",
    commands={
        "worker": CommandEntry(
            "work on several repositories, as a fleet's file says",
            "start",
            _add_worker,
            ".run:worker",
            has_many_flags=True,
            lists_actions=True,
        ),
    },
    adds={Point.ATTACKS: ".attacks:FOLDER"},
    needs=("fleet",),
    extra="fleet",
)

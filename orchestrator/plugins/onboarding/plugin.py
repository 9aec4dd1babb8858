"""What `onboarding` adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.app.plugins import CommandEntry, Plugin

if TYPE_CHECKING:
    import argparse


def _add_flags(parser: argparse.ArgumentParser) -> None:
    import argparse

    from orchestrator.app.cli.flags import REPO, add_repo, add_settings, add_switch
    from orchestrator.app.options import TEST_KEYS

    add_repo(parser, f"{REPO}; this folder if not named")
    for flag, text in (
        ("--actions", "also write a workflow for GitHub Actions that does a task every hour"),
        ("--labels", "create the label of the backlog on GitHub"),
    ):
        parser.add_argument(
            flag, action=argparse.BooleanOptionalAction, help=f"{text} (without a terminal: no)"
        )
    parser.add_argument(
        "--local",
        action=argparse.BooleanOptionalAction,
        help="keep the pull requests in this folder, although it was cloned from GitHub",
    )
    text = "write nothing here, but propose the files as one pull request; if it is open, update its text"
    add_switch(parser, "--pull-request", text)
    add_switch(parser, "--yes", "ask nothing, even if a file changes")
    add_settings(
        parser, {"model", "api_url", "api_key_variable", *TEST_KEYS, "max_usd", "label", "base", "github_url"}
    )


_TEXT = "set a repository up: rules, label, workflow, your own options"
PLUGIN = Plugin(
    name="onboarding",
    text=_TEXT,
    commands={"init": CommandEntry(_TEXT, "start", _add_flags, ".command:init", has_many_flags=True)},
    uses=("github",),
)

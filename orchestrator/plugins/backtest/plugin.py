"""What `backtest` adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.app.plugins import CommandEntry, Plugin

if TYPE_CHECKING:
    import argparse


def _add_flags(parser: argparse.ArgumentParser) -> None:
    from orchestrator.app.cli.flags import (
        add_json,
        add_plain,
        add_repo,
        add_settings,
        add_switch,
        add_text,
        amount,
        whole_number,
    )
    from orchestrator.app.options import all_options, choices

    past = parser.add_argument_group("which changes of the past")
    add_repo(past)
    text = "maximum number of cases, newest first (default: 10)"
    past.add_argument("--last", type=whole_number, default=10, metavar="N", help=text)
    text = "use commits that changed code and tests, instead of merged pull requests that closed an issue"
    add_switch(past, "--from-git", text)
    arms = parser.add_argument_group("what is compared")
    text = "a model, as PROVIDER:NAME; several are compared side by side"
    add_text(arms, "--model", "MODEL", text, dest="models", action="append")
    arms.add_argument(
        "--contract",
        dest="contracts",
        action="append",
        choices=choices("contract"),
        help="form of the model's replies; several are compared, each with each model",
    )
    if "agent" in all_options():
        text = "an agent program in place of the model's loop, none for the loop itself; several are compared, each with each model"
        add_text(arms, "--agent", "AGENT", text, dest="agents", action="append")
    text = "number of tries per case (default: 1)"
    arms.add_argument("--tries", type=whole_number, default=1, metavar="N", help=text)
    how = parser.add_argument_group("how to run")
    text = "number of concurrent tries (default: 1)"
    how.add_argument("--jobs", type=whole_number, default=1, metavar="N", help=text)
    text = "maximum US dollars of all tries, including earlier ones"
    how.add_argument("--max-usd-total", type=amount, metavar="N", help=text)
    how.add_argument("--max-minutes-total", type=amount, metavar="N", help="maximum minutes of this command")
    add_text(how, "--html", "FILE", "write a page with every try and its change")
    add_text(how, "--ctrf", "FILE", "write the results in the Common Test Report Format")
    add_text(how, "--harbor", "FOLDER", "write each case as a task of Harbor, and try nothing")
    add_json(how, "print one JSON object on standard output")
    add_plain(how)
    add_settings(parser, without={"model", "contract", "agent"})


_TEXT = "try models and settings on past changes of a repository"
PLUGIN = Plugin(
    name="backtest",
    text=_TEXT,
    commands={"backtest": CommandEntry(_TEXT, "check", _add_flags, ".command:backtest", has_many_flags=True)},
)

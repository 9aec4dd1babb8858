"""What `fleet` adds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.app.plugins import CommandEntry, Plugin, Point

if TYPE_CHECKING:
    import argparse


_FLEET_ACTIONS: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "run": ("run a worker on this machine until somebody ends it", {}),
    "list": ("list the queue: what runs, what waits, what is scheduled", {}),
    "status": ("show workers, repositories, pauses and today's cost", {}),
    "add": (
        "check a repository now, or do one of its tasks next",
        {"repository": {}, "task": {"nargs": "?", "help": "the task's key, such as issue-12"}},
    ),
    "pause": (
        "start no new work in these repositories",
        {"repository": {"nargs": "+"}, "--reason": {"default": "by hand", "metavar": "TEXT"}},
    ),
    "resume": ("continue with repositories that are paused or need a person", {"repository": {"nargs": "+"}}),
    "cancel": (
        "cancel the work of a repository, and continue with another task; unfinished work is saved",
        {"repository": {}},
    ),
    "drain": ("let a worker exit after its current rounds", {"worker": {}}),
}


def _add_fleet(parser: argparse.ArgumentParser) -> None:
    from orchestrator.app.cli.flags import DRY_RUN, actions_of, add_settings, add_switch, text_value
    from orchestrator.bot.suggestions import PROGRAM

    parser.set_defaults(config="fleet.toml", database_url=None, json=False)
    _add_flags_of_fleet(parser)
    add_action = actions_of(parser)
    for name, (text, arguments) in _FLEET_ACTIONS.items():
        action = add_action(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        for argument, shape in arguments.items():
            metavar = {} if argument.startswith("-") else {"metavar": argument.upper()}
            action.add_argument(argument, type=text_value, **metavar, **shape)
        _add_flags_of_fleet(action)
        if name == "run":
            action.usage = f"{PROGRAM} fleet run [FLAG ...]"
            add_switch(action, "--dry-run", DRY_RUN)
            add_settings(action)


def _add_flags_of_fleet(to: argparse.ArgumentParser) -> None:
    """Add the flags that may stand before and after the action of `fleet`."""
    import argparse

    from orchestrator.app.cli.flags import add_json, add_text

    add_text(to, "--config", "FILE", "the fleet's file (fleet.toml)", default=argparse.SUPPRESS)
    text = (
        "URL, without a password, of the PostgreSQL database that all workers share. If it needs a password, "
        "set PULLWRIGHT_DATABASE_URL instead. Without either, one worker uses a file on this machine"
    )
    add_text(to, "--database-url", "URL", text, default=argparse.SUPPRESS)
    add_json(to, "print JSON lines", default=argparse.SUPPRESS)


_TEXT = "let workers on several machines share one queue of repositories"
PLUGIN = Plugin(
    name="fleet",
    text=_TEXT,
    commands={
        "fleet": CommandEntry(_TEXT, "steer", _add_fleet, ".command:fleet", lists_actions=True),
    },
    adds={Point.PROBES: ".probes:fleet_probes"},
    extra="fleet",
)

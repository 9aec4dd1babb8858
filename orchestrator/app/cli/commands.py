"""The commands of the program with the flags of each: the program's own, and those of the plug-ins."""

from __future__ import annotations

import argparse
import functools
import shutil
import textwrap
from typing import TYPE_CHECKING

from orchestrator.app.cli.flags import (
    DRY_RUN,
    RUN,
    actions_of,
    add_debug,
    add_json,
    add_plain,
    add_repo,
    add_server,
    add_settings,
    add_switch,
    add_text,
    text_value,
    whole_number,
)
from orchestrator.app.plugins import CommandEntry, installed

if TYPE_CHECKING:
    from collections.abc import Mapping

GROUPS = {
    "start": ("init", "doctor", "run", "worker", "chat", "ask", "acp"),
    "watch": ("dashboard", "show", "logs", "pulls", "digest"),
    "steer": ("fleet", "claims", "accept", "retry", "close", "forget", "runs", "memory", "mcp"),
    "check": ("backtest", "verify-pr", "config", "redteam", "plugins", "help", "completion"),
}
"""The commands of the help page, grouped by purpose. Those of other people's plug-ins follow in their group."""
_LEAST_TEXT = 30


def commands_in_groups() -> str:
    """Return all commands in their groups. A text that is wider than the terminal goes on below itself."""
    known, columns = commands(), shutil.get_terminal_size().columns
    width = max(map(len, known))
    room = max(columns - width - 4, _LEAST_TEXT)
    parts = []
    for title in GROUPS:
        here = {name: one.text for name, one in known.items() if one.group == title}
        texts = {name: f"\n{'':{width + 4}}".join(textwrap.wrap(text, room)) for name, text in here.items()}
        parts.append(
            "\n".join((f"{title}:", *(f"  {name:{width}}  {text}" for name, text in texts.items()), ""))
        )
    return "\n".join(parts)


SHELLS = ("bash", "zsh", "fish")

_SETTINGS_OF = {
    "runs": {"runs_days", "runs_mb"},
}
"""The options of the configuration that commands take which do not take all of them."""


def _pull_number(value: str) -> int:
    return whole_number(value.removeprefix("#"))


# The flags of each command.


def _add_run(parser: argparse.ArgumentParser) -> None:
    work = parser.add_argument_group("what to work on")
    add_switch(work, "--demo", "use an example repository and model; needs no key and no network")
    add_repo(work)
    task = work.add_mutually_exclusive_group()
    task.add_argument("--issue", type=whole_number, metavar="N", help="work on this issue")
    text = "only this issue or pull request, if it is a task; for events"
    task.add_argument("--thread", type=whole_number, metavar="N", help=text)
    add_text(task, "--task", "TEXT", "work on this text, or on the task with this key")
    add_text(work, "--answer", "TEXT", "answer the question that the task's last cycle asked")
    add_switch(work, "--continuous", "continue with the next task after each one")
    how = parser.add_argument_group("how to run")
    add_switch(how, "--dry-run", DRY_RUN)
    add_json(how, "print one JSON result per cycle on standard output, one per line")
    add_plain(how)
    add_debug(how)
    add_settings(parser)


def _add_logs(parser: argparse.ArgumentParser) -> None:
    add_text(parser, "run", "RUN", RUN, nargs="?")
    text = "keep printing while the run continues; Ctrl+C does not end the run"
    parser.add_argument("-f", "--follow", action="store_true", help=text)
    add_switch(parser, "--verbose", "print everything whole, including unusable replies")
    parser.set_defaults(list=False, state=False, json=False, html=None)


def _add_show(parser: argparse.ArgumentParser) -> None:
    _add_logs(parser)
    add_switch(parser, "--list", "list the runs, newest first")
    text = "print the state of the run's session: plan, actions, calls, context"
    add_switch(parser, "--state", text)
    add_text(parser, "--html", "FILE", "write the run as one HTML page that needs no server and no network")
    add_json(parser, "print records as JSON lines, with --state one JSON object")


def _add_runs(parser: argparse.ArgumentParser) -> None:
    add_action = actions_of(parser)
    text = "remove the folders of old runs; what is unfinished stays"
    prune = add_action("prune", help=text, description=f"{text[0].upper()}{text[1:]}.")
    add_switch(prune, "--dry-run", "remove nothing; print what would be removed")
    add_json(prune, "print one JSON object")
    add_settings(prune, _SETTINGS_OF["runs"])


def _add_pulls(parser: argparse.ArgumentParser) -> None:
    text = "show this one whole: its text, its comments and its change; needs --repo unless one repository is known"
    parser.add_argument("number", type=_pull_number, nargs="?", metavar="N", help=text)
    add_text(parser, "--repo", "PATH", "only pull requests of this repository")
    add_json(parser, "print JSON lines")


def _add_claims(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(repo=None, json=False, key=None)
    _add_flags_of_claims(parser)
    add_action = actions_of(parser, required=False)
    for name, text in (
        ("list", "list all claims (the default action)"),
        ("show", "show the claim on one task"),
        ("release", "release a task that a worker holds"),
    ):
        action = add_action(name, help=text)
        _add_flags_of_claims(action)
        if name != "list":
            add_text(action, "key", "KEY", "the task's key, such as issue-12")


def _add_flags_of_claims(to: argparse.ArgumentParser) -> None:
    """Add the flags that may stand before and after the action of `claims`."""
    add_repo(to, default=argparse.SUPPRESS)
    add_server(to)
    add_json(to, "print JSON lines", default=argparse.SUPPRESS)


def _add_retry(parser: argparse.ArgumentParser) -> None:
    text = "an issue's or pull request's number, the task's key, or a part of the task's text"
    add_text(parser, "task", "TASK", text)
    _add_flags_of_decisions(parser)


def _add_forget(parser: argparse.ArgumentParser) -> None:
    add_switch(parser, "--yes", "do not ask, even if work is lost")
    _add_retry(parser)


def _add_close(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("number", type=_pull_number, metavar="N", help="the pull request's number")
    _add_flags_of_decisions(parser)


def _add_accept(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("number", type=_pull_number, metavar="N", help="the pull request's number")
    add_text(parser, "--repo", "PATH", "the repository; this folder if not named")
    add_json(parser, "print one JSON object")


def _add_flags_of_decisions(parser: argparse.ArgumentParser) -> None:
    add_repo(parser)
    add_server(parser)
    add_json(parser, "print one JSON object")


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    add_repo(parser)
    text = (
        "also run the probes that write: a hidden ref that is removed again, requests that GitHub refuses, "
        "and one short request to each model"
    )
    add_switch(parser, "--write", text)
    text = "also run the tests of the default branch once, with the command that is set or proposed"
    add_switch(parser, "--run-tests", text)
    add_json(parser, "print one JSON object per probe")
    add_settings(parser)


_IMPORT = "add the settings of a ralph.config.json to your own file, except those that it has already"


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(import_file=None, json=False)
    add_action = actions_of(parser, required=False)
    for name, text in (
        ("show", "print each option with its value and where it comes from (the default action)"),
        ("init", "write your own config.toml, with every option and its default in a comment"),
        ("set", "set an option in your own config.toml"),
        ("unset", "remove an option from it"),
        ("edit", "open it in your editor (VISUAL or EDITOR)"),
        ("import", _IMPORT),
    ):
        action = add_action(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        if name in {"set", "unset"}:
            add_text(action, "key", "KEY", "the option, such as model")
        if name == "set":
            action.add_argument(
                "value", nargs="+", type=text_value, metavar="VALUE", help="its value; several for a list"
            )
        if name == "import":
            add_text(
                action, "import_file", "FILE", "the file, such as ralph.config.json, or a folder with one"
            )
        if name in {"show", "import"}:
            add_json(action, "print one JSON object", default=argparse.SUPPRESS)
    add_text(parser, "--import", "FILE", _IMPORT, dest="import_file")
    add_json(parser, "print one JSON object")


def _add_plugins(parser: argparse.ArgumentParser) -> None:
    add_json(parser, "print one JSON object per plug-in")


def _add_help(parser: argparse.ArgumentParser) -> None:
    text = "the command to explain"
    parser.add_argument("topic", nargs="?", choices=commands(), metavar="COMMAND", help=text)
    add_switch(parser, "--all", "with COMMAND: all flags, not only those that a first week needs")
    add_switch(parser, "--man", "print the manual page, for man -l -")


def _add_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


_IN = "orchestrator.app.cli"
_OWN: Mapping[str, CommandEntry] = {
    "doctor": CommandEntry(
        "test what a run needs, and say how to fix what is missing",
        "start",
        _add_doctor,
        f"{_IN}.doctor:doctor",
        has_many_flags=True,
    ),
    "run": CommandEntry(
        "take one task, change the repository, open a pull request",
        "start",
        _add_run,
        f"{_IN}.run:run",
        has_many_flags=True,
    ),
    "show": CommandEntry("print what happened in a run", "watch", _add_show, f"{_IN}.show:show"),
    "logs": CommandEntry(
        "print what happened in the newest run, or in a named one", "watch", _add_logs, f"{_IN}.show:logs"
    ),
    "pulls": CommandEntry(
        "list pull requests and questions of local repositories, show one",
        "watch",
        _add_pulls,
        f"{_IN}.tasks:pulls",
    ),
    "claims": CommandEntry(
        "list who works on which task, or release a task", "steer", _add_claims, f"{_IN}.tasks:claims"
    ),
    "accept": CommandEntry(
        "merge a pull request of a local repository, and remove its branch",
        "steer",
        _add_accept,
        f"{_IN}.tasks:accept",
        examples=("accept 1", "accept 1 --repo ../shop"),
    ),
    "retry": CommandEntry(
        "let the next cycle take a task again",
        "steer",
        _add_retry,
        f"{_IN}.tasks:retry",
        examples=("retry 12 --repo owner/name", "retry item-c3238589 --repo .", 'retry "Fix add()" --repo .'),
    ),
    "close": CommandEntry(
        "close a pull request, so that its task is not taken again",
        "steer",
        _add_close,
        f"{_IN}.tasks:close",
        examples=("close 7 --repo owner/name", "close 1 --repo ."),
    ),
    "forget": CommandEntry(
        "delete what is stored about a task, such as unfinished work",
        "steer",
        _add_forget,
        f"{_IN}.tasks:forget",
        examples=("forget issue-12 --repo owner/name", "forget item-c3238589 --repo . --yes"),
    ),
    "runs": CommandEntry(
        "remove the folders of old runs", "steer", _add_runs, f"{_IN}.show:runs", lists_actions=True
    ),
    "config": CommandEntry(
        "print the effective configuration, or write your own config.toml",
        "check",
        _add_config,
        f"{_IN}.config:config",
    ),
    "plugins": CommandEntry(
        "list the plug-ins: what each adds, and how many lines it has",
        "check",
        _add_plugins,
        f"{_IN}.plugins:plugins",
    ),
    "help": CommandEntry(
        "print this page, the help of a command, or the manual page", "check", _add_help, f"{_IN}.help:help"
    ),
    "completion": CommandEntry(
        "print a script for the completion of commands and flags in a shell",
        "check",
        _add_completion,
        f"{_IN}.help:completion",
    ),
}
"""The commands of the program without its plug-ins."""


@functools.cache
def commands() -> dict[str, CommandEntry]:
    """Return all commands by name, in the order of the help page."""
    found = dict(_OWN)
    for one in installed().values():
        found |= {
            name: command._replace(run=one.absolute(command.run))
            for name, command in one.plugin.commands.items()
        }
    order = [name for names in GROUPS.values() for name in names]
    return {name: found[name] for name in dict.fromkeys((*order, *found)) if name in found}


def command(name: str) -> CommandEntry | None:
    """Return one command; None if there is none. For one of the program's own no plug-in is loaded."""
    return _OWN.get(name) or commands().get(name)

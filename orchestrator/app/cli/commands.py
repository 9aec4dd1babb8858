"""The commands of the program, with the flags of each."""

from __future__ import annotations

import argparse
import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator.core.suggestions import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


class CommandEntry(NamedTuple):
    """A command.

    Attributes:
        text: the description in one line.
        add_flags: adds the command's flags to its parser.
        module: the module that runs the command, if it has another name.
    """

    text: str
    add_flags: Callable[[argparse.ArgumentParser], None]
    module: str = ""


GROUPS = {
    "start": ("init", "doctor", "run", "worker", "chat", "ask"),
    "watch": ("dashboard", "show", "logs", "pulls", "digest"),
    "steer": ("fleet", "claims", "retry", "close", "forget", "runs", "memory", "mcp"),
    "check": ("backtest", "verify-pr", "config", "redteam", "help", "completion"),
}
"""The commands of the short help page, grouped by purpose."""


def commands_in_groups() -> str:
    """Return all commands in their groups, a line each."""
    width = max(map(len, COMMANDS))
    parts = []
    for title, names in GROUPS.items():
        lines = (f"  {name:{width}}  {COMMANDS[name].text}" for name in names)
        parts.append("\n".join((f"{title}:", *lines, "")))
    return "\n".join(parts)


CONFIGURED = ("init", "run", "worker", "chat", "ask", "doctor", "backtest", "redteam", "dashboard")
"""The commands whose flags are too many for a usage line."""
EXAMPLES = {
    "retry": ("retry 12 --repo owner/name", "retry item-c3238589 --repo .", 'retry "Fix add()" --repo .'),
    "close": ("close 7 --repo owner/name", "close 1 --repo ."),
    "forget": ("forget issue-12 --repo owner/name", "forget item-c3238589 --repo . --yes"),
    "verify-pr": (
        "verify-pr 12 --repo owner/name --test-command auto",
        "verify-pr https://github.com/owner/name/pull/12 --test-command 'pytest -q' --html report.html",
        "verify-pr feature --repo . --test-command auto",
    ),
}
"""The examples in the help of a command, without the program's name."""
SHELLS = ("bash", "zsh", "fish")

_SETTINGS_OF = {
    "init": {
        *("model", "api_url", "test_command", "setup_command", "test_report"),
        *("max_usd", "label", "base", "github_url"),
    },
    "mcp": {"mcp_config", "mcp_unconfined", "sandbox"},
    "runs": {"runs_days", "runs_mb"},
    "verify-pr": {
        *("test_command", "setup_command", "test_report", "test_minutes", "test_paths", "max_minutes"),
        *("sandbox", "sandbox_read", "allow_host", "base", "github_url", "github_app_id", "mirror"),
    },
}
"""The options of the configuration that commands take which do not take all of them."""
_DRY_RUN = (
    "push nothing and write nothing to GitHub; print what would be proposed. Requests to the model still cost: "
    "they count for this machine's daily limit, not for the repository's"
)
_REPO = "owner/name, a URL, or a path"
_RUN = "the run's id, the beginning of the id, or 'last'"
_LAST_PORT = 65_535
_PORT_DIGITS = 5


# The types of values. argparse puts the flag before the message.


def _text(value: str) -> str:
    if not value.strip():
        raise argparse.ArgumentTypeError("must not be empty")
    return value


def _number(value: str) -> int:
    if not (value.isascii() and value.isdigit() and int(value[:20]) > 0):
        raise argparse.ArgumentTypeError(f"{value!r} is not a number from 1")
    return int(value[:20])


_MOST_DIGITS_OF_SECONDS = 10


def _seconds(value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS_OF_SECONDS):
        raise argparse.ArgumentTypeError(f"{value!r} is not a number of seconds")
    return int(value)


def _pull_number(value: str) -> int:
    return _number(value.removeprefix("#"))


def _amount(value: str) -> float:
    try:
        amount = float(value)
    except ValueError:
        amount = math.nan
    if not 0 < amount < math.inf:
        raise argparse.ArgumentTypeError(f"{value!r} is not a number above 0")
    return amount


def _port(value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= _PORT_DIGITS and int(value) <= _LAST_PORT):
        raise argparse.ArgumentTypeError(f"{value!r} is not a port from 0 to {_LAST_PORT}")
    return int(value)


# Flags that several commands have.


def _add_text(to: argparse._ActionsContainer, name: str, metavar: str, text: str, **more: Any) -> None:
    to.add_argument(name, type=_text, metavar=metavar, help=text, **more)


def _add_switch(to: argparse._ActionsContainer, flag: str, text: str, **more: Any) -> None:
    to.add_argument(flag, action="store_true", help=text, **more)


def _add_json(to: argparse._ActionsContainer, text: str, **more: Any) -> None:
    _add_switch(to, "--json", text, **more)


def _add_repo(to: argparse._ActionsContainer, text: str = _REPO, **more: Any) -> None:
    _add_text(to, "--repo", "REPO", text, **more)


def _add_server(to: argparse._ActionsContainer) -> None:
    to.add_argument(
        "--github-url", metavar="URL", default=argparse.SUPPRESS, help="address of a GitHub Enterprise server"
    )


def _add_plain(to: argparse._ActionsContainer, text: str = "plain lines instead of the live view") -> None:
    _add_switch(to, "--plain", text)


def _add_debug(to: argparse._ActionsContainer) -> None:
    _add_switch(to, "--debug", "show the state of the session after each turn")


def _add_settings(
    parser: argparse.ArgumentParser, only: Collection[str] = (), without: Collection[str] = ()
) -> None:
    """Add the flags of the configuration's options, which are not loaded for a command without them."""
    from orchestrator.app.options import add_settings

    add_settings(parser, only, without)


def _actions_of(parser: argparse.ArgumentParser, *, required: bool = True) -> Callable[..., Any]:
    """Return a function that adds an action to the parser of a command."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=required)
    return partial(actions.add_parser, allow_abbrev=False)


# The flags of each command.


def _add_init(parser: argparse.ArgumentParser) -> None:
    _add_repo(parser, f"{_REPO}; this folder if not named")
    for flag, text in (
        ("--actions", "also write a workflow for GitHub Actions that does a task every hour"),
        ("--labels", "create the label of the backlog on GitHub"),
    ):
        parser.add_argument(
            flag, action=argparse.BooleanOptionalAction, help=f"{text} (without a terminal: no)"
        )
    text = "write nothing here, but propose the files as one pull request; if it is open, update its text"
    _add_switch(parser, "--pull-request", text)
    _add_switch(parser, "--yes", "ask nothing, even if a file changes")
    _add_settings(parser, _SETTINGS_OF["init"])


def _add_run(parser: argparse.ArgumentParser) -> None:
    work = parser.add_argument_group("what to work on")
    _add_switch(work, "--demo", "use an example repository and model; needs no key and no network")
    _add_repo(work)
    task = work.add_mutually_exclusive_group()
    task.add_argument("--issue", type=_number, metavar="N", help="work on this issue")
    _add_text(task, "--task", "TEXT", "work on the task in this text, or on the task with this key")
    _add_text(work, "--answer", "TEXT", "answer the question that the task's last cycle asked")
    _add_switch(work, "--continuous", "continue with the next task after each one")
    how = parser.add_argument_group("how to run")
    _add_switch(how, "--dry-run", _DRY_RUN)
    _add_json(how, "print one JSON result per cycle on standard output, one per line")
    _add_plain(how)
    _add_debug(how)
    _add_settings(parser)


def _add_worker(parser: argparse.ArgumentParser) -> None:
    _add_text(parser, "--config", "FILE", "the fleet's file, such as fleet.toml", required=True)
    _add_switch(parser, "--once", "run one cycle for each repository, then exit")
    _add_switch(parser, "--dry-run", _DRY_RUN)
    _add_json(parser, "print one JSON object per cycle on standard output")
    _add_settings(parser)


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
    parser.set_defaults(config="fleet.toml", database_url=None, json=False)
    _add_flags_of_fleet(parser)
    add_action = _actions_of(parser)
    for name, (text, arguments) in _FLEET_ACTIONS.items():
        action = add_action(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        for argument, shape in arguments.items():
            metavar = {} if argument.startswith("-") else {"metavar": argument.upper()}
            action.add_argument(argument, type=_text, **metavar, **shape)
        _add_flags_of_fleet(action)
        if name == "run":
            action.usage = f"{PROGRAM} fleet run [FLAG ...]"
            _add_switch(action, "--dry-run", _DRY_RUN)
            _add_settings(action)


def _add_flags_of_fleet(to: argparse.ArgumentParser) -> None:
    """Add the flags that may stand before and after the action of `fleet`."""
    _add_text(to, "--config", "FILE", "the fleet's file (fleet.toml)", default=argparse.SUPPRESS)
    text = (
        "URL, without a password, of the PostgreSQL database that all workers share. If it needs a password, "
        "set PULLWRIGHT_DATABASE_URL instead. Without either, one worker uses a file on this machine"
    )
    _add_text(to, "--database-url", "URL", text, default=argparse.SUPPRESS)
    _add_json(to, "print JSON lines", default=argparse.SUPPRESS)


def _add_subject(to: argparse._ActionsContainer) -> None:
    _add_repo(to, f"use a clone of this repository instead of this folder: {_REPO}")
    _add_text(to, "--resume", "RUN", "continue a conversation: its id, the beginning of the id, or 'last'")


def _add_chat(parser: argparse.ArgumentParser) -> None:
    subject = parser.add_argument_group("what to talk about")
    _add_subject(subject)
    text = "continue the task of a run that made no pull request, with its conversation, files and question"
    _add_text(subject, "--run", "RUN", text)
    how = parser.add_argument_group("how to talk")
    _add_switch(how, "--dry-run", "let /pr push nothing, but print what it would propose")
    _add_plain(how, "read and print plain lines, even at a terminal")
    _add_debug(how)
    _add_settings(parser)


def _add_ask(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{PROGRAM} ask [FLAG ...] TEXT"
    _add_text(parser, "text", "TEXT", "what to ask, or - to read it from standard input")
    _add_subject(parser.add_argument_group("what to ask about"))
    how = parser.add_argument_group("how to ask")
    _add_switch(how, "--submit", "let the model go on until it calls submit(answer)")
    _add_json(how, "print one JSON result on standard output")
    _add_plain(how)
    _add_debug(how)
    _add_settings(parser)


def _add_dashboard(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=_port, default=0, metavar="N", help="the port on 127.0.0.1 (default: any free port)"
    )
    text = (
        "the file of the fleet to show (default: fleet.toml, or the only fleet of this machine; "
        "PULLWRIGHT_DATABASE_URL has precedence)"
    )
    _add_text(parser, "--config", "FILE", text)
    _add_settings(parser)


def _add_logs(parser: argparse.ArgumentParser) -> None:
    _add_text(parser, "run", "RUN", _RUN, nargs="?")
    text = "keep printing while the run continues; Ctrl+C does not end the run"
    parser.add_argument("-f", "--follow", action="store_true", help=text)
    _add_switch(parser, "--verbose", "print everything whole, including unusable replies")
    parser.set_defaults(list=False, state=False, json=False, html=None)


def _add_show(parser: argparse.ArgumentParser) -> None:
    _add_logs(parser)
    _add_switch(parser, "--list", "list the runs, newest first")
    text = "print the state of the run's session: plan, actions, calls, context"
    _add_switch(parser, "--state", text)
    _add_text(parser, "--html", "FILE", "write the run as one HTML page that needs no server and no network")
    _add_json(parser, "print records as JSON lines, with --state one JSON object")


def _add_runs(parser: argparse.ArgumentParser) -> None:
    add_action = _actions_of(parser)
    text = "remove the folders of old runs; what is unfinished stays"
    prune = add_action("prune", help=text, description=f"{text[0].upper()}{text[1:]}.")
    _add_switch(prune, "--dry-run", "remove nothing; print what would be removed")
    _add_json(prune, "print one JSON object")
    _add_settings(prune, _SETTINGS_OF["runs"])


def _add_pulls(parser: argparse.ArgumentParser) -> None:
    _add_text(parser, "--repo", "PATH", "only pull requests of this repository")
    _add_json(parser, "print JSON lines")


def _add_digest(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    text = "start of the period: 90m, 24h (the default), 7d, or a date such as 2026-11-20"
    _add_text(which, "--since", "TIME", text)
    _add_text(which, "--run", "RUN", "report one run: its id, the beginning of the id, or 'last'")
    _add_repo(parser, "only this repository, as runs name it")
    text = "also write it as a comment on this issue, which later digests replace"
    _add_text(parser, "--post", "issue:N", text)
    _add_json(parser, "print one JSON object")


def _add_claims(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(repo=None, json=False, key=None)
    _add_flags_of_claims(parser)
    add_action = _actions_of(parser, required=False)
    for name, text in (
        ("list", "list all claims (the default action)"),
        ("show", "show the claim on one task"),
        ("release", "release a task that a worker holds"),
    ):
        action = add_action(name, help=text)
        _add_flags_of_claims(action)
        if name != "list":
            _add_text(action, "key", "KEY", "the task's key, such as issue-12")


def _add_flags_of_claims(to: argparse.ArgumentParser) -> None:
    """Add the flags that may stand before and after the action of `claims`."""
    _add_repo(to, default=argparse.SUPPRESS)
    _add_server(to)
    _add_json(to, "print JSON lines", default=argparse.SUPPRESS)


_INDEX = {"index": {"nargs": "?"}}
_WORDS: dict[str, Any] = {"nargs": "+"}
_NEW_MEMORY: dict[str, dict[str, Any]] = {
    "--type": {
        "choices": ["correction", "instruction", "preference", "fact", "web_content", "general"],
        "default": "general",
        "help": "corrections and instructions are part of every session; the default is general",
    },
    "--importance": {
        "choices": ["critical", "high", "normal", "low"],
        "default": "normal",
        "help": "critical and high stay for ever, normal 90 days (the default), low 7",
    },
    "--ttl": {"type": _seconds, "metavar": "SECONDS", "help": "forget it after this time; 0 is never"},
}
_MEMORY_ACTIONS: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "list": ("list the items of an index, newest first", _INDEX),
    "add": ("remember a text", {"text": _WORDS, **_NEW_MEMORY}),
    "search": ("find items by words and by meaning", {"query": _WORDS}),
    "show": ("show one item with all its fields", {"id": {}}),
    "edit": (
        "change one field: content, type, source, importance or expires_at",
        {"id": {}, "field": {}, "value": _WORDS},
    ),
    "forget": ("remove items for good", {"id": {"nargs": "+"}}),
    "indices": ("list all indices", {}),
    "stats": ("show statistics of an index", _INDEX),
    "export": ("print all items, or those of one index, as JSON lines", _INDEX),
    "import": ("import items that export printed", {"file": {}}),
    "embed": ("compute the vectors of an index again with the present embeddings", _INDEX),
}


def _add_memory(parser: argparse.ArgumentParser) -> None:
    add_action = _actions_of(parser)
    for name, (text, arguments) in _MEMORY_ACTIONS.items():
        action = add_action(name, help=text)
        for argument, shape in arguments.items():
            type_of = _number if argument == "id" else _text
            named = {} if argument.startswith("-") else {"type": type_of, "metavar": argument.upper()}
            action.add_argument(argument, **named, **shape)
        _add_repo(action)
        _add_server(action)
        _add_json(action, "print JSON lines")


def memory_help() -> list[tuple[str, str]]:
    """Return the usage and the description of each action of `memory`."""

    def word(name: str, shape: Mapping[str, Any]) -> str:
        if name.startswith("-"):
            return f"[{name} {shape.get('metavar') or name.removeprefix('--').upper()}]"
        return f"[{name.upper()}]" if shape.get("nargs") == "?" else name.upper()

    return [
        (" ".join((name, *(word(argument, shape) for argument, shape in arguments.items()))), text)
        for name, (text, arguments) in _MEMORY_ACTIONS.items()
    ]


def _add_mcp(parser: argparse.ArgumentParser) -> None:
    add_action = _actions_of(parser)
    listing = add_action("list", help="list the configured servers without starting them")
    trial = add_action("test", help="start one server, and show its tools")
    _add_text(trial, "name", "NAME", "the server's name")
    _add_switch(trial, "--approve", "approve its present tools for runs, without asking")
    _add_text(trial, "--repo", "PATH", "the repository's folder, for a server that may read it")
    for action in (listing, trial):
        _add_json(action, "print JSON")
        _add_settings(action, _SETTINGS_OF["mcp"])


def _add_retry(parser: argparse.ArgumentParser) -> None:
    text = "an issue's or pull request's number, the task's key, or a part of the task's text"
    _add_text(parser, "task", "TASK", text)
    _add_flags_of_decisions(parser)


def _add_forget(parser: argparse.ArgumentParser) -> None:
    _add_switch(parser, "--yes", "do not ask, even if work is lost")
    _add_retry(parser)


def _add_close(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("number", type=_pull_number, metavar="N", help="the pull request's number")
    _add_flags_of_decisions(parser)


def _add_flags_of_decisions(parser: argparse.ArgumentParser) -> None:
    _add_repo(parser)
    _add_server(parser)
    _add_json(parser, "print one JSON object")


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    _add_repo(parser)
    text = (
        "also run the probes that write: a hidden ref that is removed again, requests that GitHub refuses, "
        "and one short request to each model"
    )
    _add_switch(parser, "--write", text)
    text = "also run the tests of the default branch once, with the command that is set or proposed"
    _add_switch(parser, "--run-tests", text)
    _add_json(parser, "print one JSON object per probe")
    _add_settings(parser)


def _add_backtest(parser: argparse.ArgumentParser) -> None:
    from orchestrator.app.options import choices

    past = parser.add_argument_group("which changes of the past")
    _add_repo(past)
    text = "maximum number of cases, newest first (default: 10)"
    past.add_argument("--last", type=_number, default=10, metavar="N", help=text)
    text = "use commits that changed code and tests, instead of merged pull requests that closed an issue"
    _add_switch(past, "--from-git", text)
    arms = parser.add_argument_group("what is compared")
    text = "a model, as PROVIDER:NAME; several are compared side by side"
    _add_text(arms, "--model", "MODEL", text, dest="models", action="append")
    arms.add_argument(
        "--contract",
        dest="contracts",
        action="append",
        choices=choices("contract"),
        help="form of the model's replies; several are compared, each with each model",
    )
    text = "number of tries per case (default: 1)"
    arms.add_argument("--tries", type=_number, default=1, metavar="N", help=text)
    how = parser.add_argument_group("how to run")
    text = "number of concurrent tries (default: 1)"
    how.add_argument("--jobs", type=_number, default=1, metavar="N", help=text)
    text = "maximum US dollars of all tries, including earlier ones"
    how.add_argument("--max-usd-total", type=_amount, metavar="N", help=text)
    how.add_argument("--max-minutes-total", type=_amount, metavar="N", help="maximum minutes of this command")
    _add_text(how, "--html", "FILE", "write a page with every try and its change")
    _add_json(how, "print one JSON object on standard output")
    _add_plain(how)
    _add_settings(parser, without={"model", "contract"})


def _add_redteam(parser: argparse.ArgumentParser) -> None:
    _add_text(parser, "--only", "NAME", "only this attack")
    _add_json(parser, "print one JSON object per attack")
    _add_settings(parser)


def _add_verify_pr(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{PROGRAM} verify-pr PULL [FLAG ...]"
    text = "a pull request's number or address; or a branch, or a file of git bundle"
    _add_text(parser, "pull", "PULL", text)
    _add_repo(parser)
    text = "file with the description of a branch or a bundle; - reads standard input"
    _add_text(parser, "--body", "FILE", text)
    text = "also write a check run for the head, if the token permits it"
    _add_switch(parser, "--check", text)
    _add_text(parser, "--html", "FILE", "also write a page")
    _add_text(parser, "--markdown", "FILE", "also add the report to a file, such as a job's summary")
    _add_json(parser, "print one JSON object")
    _add_settings(parser, _SETTINGS_OF["verify-pr"])


_IMPORT = "add the settings of a ralph.config.json to your own file, except those that it has already"


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(import_file=None, json=False)
    add_action = _actions_of(parser, required=False)
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
            _add_text(action, "key", "KEY", "the option, such as model")
        if name == "set":
            action.add_argument(
                "value", nargs="+", type=_text, metavar="VALUE", help="its value; several for a list"
            )
        if name == "import":
            _add_text(
                action, "import_file", "FILE", "the file, such as ralph.config.json, or a folder with one"
            )
        if name in {"show", "import"}:
            _add_json(action, "print one JSON object", default=argparse.SUPPRESS)
    _add_text(parser, "--import", "FILE", _IMPORT, dest="import_file")
    _add_json(parser, "print one JSON object")


def _add_help(parser: argparse.ArgumentParser) -> None:
    text = "the command to explain"
    parser.add_argument("topic", nargs="?", choices=COMMANDS, metavar="COMMAND", help=text)
    _add_switch(parser, "--all", "with COMMAND: all flags, not only those that a first week needs")
    _add_switch(parser, "--man", "print the manual page, for man -l -")


def _add_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


COMMANDS = {
    "init": CommandEntry(
        "set a repository up: its rules, a label, a workflow, or one pull request with all of it", _add_init
    ),
    "run": CommandEntry("take one task, change the repository, open a pull request", _add_run),
    "worker": CommandEntry("work on several repositories, as a fleet's file says", _add_worker),
    "fleet": CommandEntry(
        "work on several repositories with workers on several machines and one queue", _add_fleet
    ),
    "chat": CommandEntry(
        "talk with the model about this folder, or about a clone of a repository", _add_chat
    ),
    "ask": CommandEntry(
        "ask the model one question about this folder, and print its answer", _add_ask, "run"
    ),
    "show": CommandEntry("print what happened in a run", _add_show),
    "logs": CommandEntry("print what happened in the newest run, or in a named one", _add_logs, "show"),
    "dashboard": CommandEntry("show the runs of this machine as a page in a browser", _add_dashboard, "show"),
    "pulls": CommandEntry("list the pull requests and questions of local repositories", _add_pulls, "tasks"),
    "backtest": CommandEntry("try models and settings on past changes of a repository", _add_backtest),
    "redteam": CommandEntry("try known attacks on this configuration, offline", _add_redteam, "doctor"),
    "verify-pr": CommandEntry(
        "run the tests of a pull request again, and say which of its claims hold", _add_verify_pr
    ),
    "digest": CommandEntry("report what was done, what was not done and why, and the cost", _add_digest),
    "claims": CommandEntry("list who works on which task, or release a task", _add_claims, "tasks"),
    "retry": CommandEntry("let the next cycle take a task again", _add_retry, "tasks"),
    "close": CommandEntry(
        "close a pull request of Pullwright, so that its task is not taken again", _add_close, "tasks"
    ),
    "runs": CommandEntry("remove the folders of old runs", _add_runs, "show"),
    "forget": CommandEntry(
        "delete what is stored about a task: unfinished work, conversation, failures", _add_forget, "tasks"
    ),
    "mcp": CommandEntry("list the MCP servers, test one, approve its tools", _add_mcp),
    "memory": CommandEntry(
        "add, show, change, export or import what is remembered for later sessions", _add_memory
    ),
    "doctor": CommandEntry("test what a run needs, and say how to fix what is missing", _add_doctor),
    "config": CommandEntry("print the effective configuration, or write your own config.toml", _add_config),
    "help": CommandEntry("print this page, the help of a command, or the manual page", _add_help),
    "completion": CommandEntry(
        "print a script for the completion of commands and flags in a shell", _add_completion, "help"
    ),
}
"""The commands, in the order of `--help`."""

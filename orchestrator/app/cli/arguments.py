"""The grammar of the command line, its one-line error messages, and the meaning of the exit status."""

from __future__ import annotations

import argparse
import difflib
import math
import re
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from orchestrator import __version__
from orchestrator.app.options import SETTING_KEYS, add_settings, choices
from orchestrator.core.errors import BudgetExhaustedError, ConfigurationError
from orchestrator.core.redaction import is_secret_name
from orchestrator.core.repositories import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence


DONE = 0
FAILED = 1
USAGE = 2
NOTHING = 3
QUESTION = 4
LIMIT = 5
REFUTED = 6
INTERRUPTED = 130

MEANINGS: dict[int, str] = {
    DONE: "done: a pull request was proposed, or planned with --dry-run; ask, chat: answered; verify-pr: all claims hold",
    FAILED: "the model's provider, GitHub or git failed; verify-pr: unknown whether the claims hold",
    USAGE: "bad usage or configuration",
    NOTHING: "nothing to do: no cycle of the run found a task",
    QUESTION: "a question was asked that a person has to answer",
    LIMIT: "a limit was reached",
    REFUTED: "verify-pr: a claim of the pull request does not hold, or its tests fail",
    INTERRUPTED: "interrupted",
}

_OUTCOMES = {
    "proposed": DONE,
    "planned": DONE,
    "finished": DONE,
    "answered": DONE,
    "found": DONE,
    "no_task": NOTHING,
    "question": QUESTION,
    "limit": LIMIT,
    "paused": FAILED,
    "failed": FAILED,
    "interrupted": INTERRUPTED,
}


def for_outcome(outcome: str) -> int:
    """Return the exit status for a cycle's outcome; an unknown outcome is a failure."""
    return _OUTCOMES.get(outcome, FAILED)


def for_run(ends: Collection[int], last: int) -> int:
    """Return the exit status of a run of several cycles.

    Args:
        ends: exit status of the last cycle on each task.
        last: exit status of the last cycle.
    """
    if last in {INTERRUPTED, USAGE}:
        return last
    # The last cycle of a complete run finds nothing to do, so NOTHING counts only if no other cycle ended.
    return next((code for code in (QUESTION, FAILED, LIMIT, DONE) if code in {*ends, last}), NOTHING)


def for_error(error: BaseException) -> int:
    """Return the exit status for an error that ended the program."""
    if isinstance(error, ConfigurationError):
        return USAGE
    if isinstance(error, BudgetExhaustedError):
        return LIMIT
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return FAILED


COMMANDS = {
    "init": "set a repository up: its rules, a label, a workflow, or one pull request with all of it",
    "run": "take one task, change the repository, open a pull request",
    "worker": "work on several repositories, as a fleet's file says",
    "fleet": "work on several repositories with workers on several machines and one queue",
    "chat": "talk with the model about this folder, or about a clone of a repository",
    "ask": "ask the model one question about this folder, and print its answer",
    "show": "print what happened in a run",
    "logs": "print what happened in the newest run, or in a named one",
    "dashboard": "show the runs of this machine as a page in a browser",
    "pulls": "list the pull requests and questions of local repositories",
    "backtest": "try models and settings on past changes of a repository",
    "redteam": "try known attacks on this configuration, offline",
    "verify-pr": "run the tests of a pull request again, and say which of its claims hold",
    "digest": "report what was done, what was not done and why, and the cost",
    "claims": "list who works on which task, or release a task",
    "retry": "let the next cycle take a task again",
    "close": "close a pull request of Pullwright, so that its task is not taken again",
    "forget": "delete what is stored about a task: unfinished work, conversation, failures",
    "mcp": "list the MCP servers, test one, approve its tools",
    "memory": "show, change, export or import what is remembered for later sessions",
    "doctor": "test what a run needs, and say how to fix what is missing",
    "config": "print the effective configuration and where it comes from",
    "help": "print this page, the help of a command, or the manual page",
    "completion": "print a script for the completion of commands and flags in a shell",
}
GROUPS = {
    "start": ("init", "doctor", "run", "worker", "chat", "ask"),
    "watch": ("dashboard", "show", "logs", "pulls", "digest"),
    "steer": ("fleet", "claims", "retry", "close", "forget", "memory", "mcp"),
    "check": ("backtest", "verify-pr", "config", "redteam", "help", "completion"),
}
"""The commands of the short help page, grouped by purpose."""
_CONFIGURED = ("init", "run", "worker", "chat", "ask", "doctor", "backtest", "redteam", "dashboard")
"""The commands that take every option of the configuration."""
# `chat` checks after it has shown its prompt.
_REFUSE_SECRETS = frozenset({*_CONFIGURED, "fleet", "claims", "mcp"}) - {"chat"}
SHELLS = ("bash", "zsh", "fish")
_DECISIONS = ("retry", "close", "forget")
_EXAMPLES = {
    "retry": ("retry 12 --repo owner/name", "retry item-c3238589 --repo .", 'retry "Fix add()" --repo .'),
    "close": ("close 7 --repo owner/name", "close 1 --repo ."),
    "forget": ("forget issue-12 --repo owner/name", "forget item-c3238589 --repo . --yes"),
    "verify-pr": (
        "verify-pr 12 --repo owner/name --test-command auto",
        "verify-pr https://github.com/owner/name/pull/12 --test-command 'pytest -q' --html report.html",
        "verify-pr feature --repo . --test-command auto",
    ),
}
REPLAY = "replay:"

_LAST_PORT = 65_535
_PORT_DIGITS = 5
_CLOSE = 0.6
_VERY_CLOSE = 0.85


def _text(value: str) -> str:
    if not value.strip():
        raise argparse.ArgumentTypeError("must not be empty")
    return value


_REPO: dict[str, Any] = {"type": _text, "metavar": "REPO", "help": "owner/name, a URL, or a path"}
_DRY_RUN = (
    "push nothing and write nothing to GitHub; print what would be proposed. Requests to the model still cost: "
    "they count for this machine's daily limit, not for the repository's"
)
_KEYS_TEXT = "keys come from the environment (OPENAI_API_KEY, GITHUB_TOKEN, ...), never from the command line"


class UsageError(Exception):
    """The command line is not valid. The message is one line."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        if missing := re.search(r"arguments are required: (\S+)$", message):
            helps = [one.help for one in self._actions if one.metavar == missing[1] and one.help]
            raise UsageError(f"name {missing[1]}{''.join(f': {text}' for text in helps)}")
        if wrong := re.match(r"argument COMMAND: invalid choice: '([^']*)'", message):
            raise UsageError(f"there is no command {wrong[1]!r}{_suggestion(wrong[1], COMMANDS)}")
        raise UsageError(re.sub(r"^argument ([^:]+): ", r"\1: ", message))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line. Options of the configuration that were not given are missing in the result.

    Raises:
        UsageError: the command line is not valid.
        SystemExit: `--help` or `--version` was printed.
    """
    parser = _build(argv[0] if argv else "")
    if argv and not argv[0].startswith("-") and argv[0] not in COMMANDS:
        raise UsageError(f"there is no command {argv[0]!r}{_suggestion(argv[0], COMMANDS)}")
    options, unknown = parser.parse_known_args(argv)
    if unknown:
        raise UsageError(_unknown(unknown[0], _flags(parser, options)))
    if options.command is None:  # nothing was typed
        return argparse.Namespace(command="help", topic=None, man=False)
    if options.command in _REFUSE_SECRETS or options.command in _EXAMPLES:
        refuse_secrets(options)
    if options.command == "run":
        _check_run(options)
    if options.command == "chat" and options.run is not None:
        _check_taken_up(options)
    if options.command == "show":
        _check_show(options)
    if options.command == "pulls" and options.action == "close" and options.repo is None:
        raise UsageError("pulls close needs --repo PATH: numbers count per repository")
    return options


def whole_parser() -> argparse.ArgumentParser:
    """Build the parser with the options of every command."""
    return _build("")


def given_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the given flags that are options of the configuration, by key."""
    return {key: value for key, value in vars(options).items() if key in SETTING_KEYS}


def _build(first: str) -> _Parser:
    """Build the parser.

    If the first word names a command, only this command gets its options, because adding them takes time.
    """
    statuses = "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())
    parser = _Parser(
        prog=PROGRAM,
        description="Takes a task from a backlog, changes the repository, opens a pull request.",
        epilog=f"exit status:\n{statuses}\n\n'{PROGRAM} COMMAND --help' tells more about a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    built = {
        name: commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=_examples(name) + f"exit status:\n{statuses}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        for name, text in COMMANDS.items()
    }
    # These commands take every option of the configuration: a full usage line would be too long.
    for name in _CONFIGURED:
        built[name].usage = f"{PROGRAM} {name} [FLAG ...]"
    adders = _adders()
    for name in [first] if first in adders else adders:
        adders[name](built[name])
    return parser


def _adders() -> dict[str, Callable[[argparse.ArgumentParser], None]]:
    """Return the functions that add the options of each command."""
    return {
        "init": _add_init,
        "run": _add_run,
        "worker": _add_worker,
        "fleet": _add_fleet,
        "chat": _add_chat,
        "ask": _add_ask,
        "show": _add_show,
        "logs": _add_logs,
        "dashboard": _add_dashboard,
        "pulls": _add_pulls,
        "backtest": _add_backtest,
        "redteam": _add_redteam,
        "digest": _add_digest,
        "claims": _add_claims,
        **{name: partial(_add_decision, command=name) for name in _DECISIONS},
        "verify-pr": _add_verify_pr,
        "memory": _add_memory,
        "mcp": _add_mcp,
        "doctor": _add_doctor,
        "config": _add_config,
        "help": _add_help,
        "completion": _add_completion,
    }


_OF_INIT = frozenset(
    {
        "model",
        "api_url",
        "test_command",
        "setup_command",
        "test_report",
        "max_usd",
        "label",
        "base",
        "github_url",
    }
)


def _add_init(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repo", **{**_REPO, "help": f"{_REPO['help']}; this folder if not named"})
    parser.add_argument(
        "--actions",
        action=argparse.BooleanOptionalAction,
        help="also write a workflow for GitHub Actions that does a task every hour (without a terminal: no)",
    )
    parser.add_argument(
        "--labels",
        action=argparse.BooleanOptionalAction,
        help="create the label of the backlog on GitHub (without a terminal: no)",
    )
    parser.add_argument(
        "--pull-request",
        action="store_true",
        help="write nothing here, but propose the files as one pull request; if it is open, update its text",
    )
    parser.add_argument("--yes", action="store_true", help="ask nothing, even if a file changes")
    add_settings(parser, _OF_INIT)


def _add_help(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "topic", nargs="?", choices=COMMANDS, metavar="COMMAND", help="the command to explain"
    )
    parser.add_argument("--man", action="store_true", help="print the manual page, for man -l -")


def _add_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--import",
        dest="import_file",
        type=_text,
        metavar="FILE",
        help="add the settings of a ralph.config.json to your own file, except those that it has already",
    )
    _add_json(parser, "print one JSON object")


def _add_run(parser: argparse.ArgumentParser) -> None:
    work = parser.add_argument_group("what to work on")
    work.add_argument(
        "--demo", action="store_true", help="use an example repository and model; needs no key and no network"
    )
    work.add_argument("--repo", **_REPO)
    task = work.add_mutually_exclusive_group()
    task.add_argument("--issue", type=_number, metavar="N", help="work on this issue")
    task.add_argument(
        "--task",
        type=_text,
        metavar="TEXT",
        help="work on the task in this text, or on the task with this key",
    )
    work.add_argument(
        "--answer", type=_text, metavar="TEXT", help="answer the question that the task's last cycle asked"
    )
    work.add_argument("--continuous", action="store_true", help="continue with the next task after each one")
    how = parser.add_argument_group("how to run")
    how.add_argument("--dry-run", action="store_true", help=_DRY_RUN)
    _add_json(how, "print one JSON result per cycle on standard output, one per line")
    how.add_argument("--plain", action="store_true", help="plain lines instead of the live view")
    how.add_argument("--debug", action="store_true", help="show the state of the session after each turn")
    add_settings(parser)


def _add_worker(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=_text, required=True, metavar="FILE", help="the fleet's file, such as fleet.toml"
    )
    parser.add_argument("--once", action="store_true", help="run one cycle for each repository, then exit")
    parser.add_argument("--dry-run", action="store_true", help=_DRY_RUN)
    _add_json(parser, "print one JSON object per cycle on standard output")
    add_settings(parser)


_FLEET_ACTIONS: dict[str, tuple[str, tuple[tuple[str, dict[str, Any]], ...]]] = {
    "run": ("run a worker on this machine until somebody ends it", ()),
    "list": ("list the queue: what runs, what waits, what is scheduled", ()),
    "status": ("show workers, repositories, pauses and today's cost", ()),
    "add": (
        "check a repository now, or do one of its tasks next",
        (("repository", {}), ("task", {"nargs": "?", "help": "the task's key, such as issue-12"})),
    ),
    "pause": (
        "start no new work in these repositories",
        (("repository", {"nargs": "+"}), ("--reason", {"default": "by hand", "metavar": "TEXT"})),
    ),
    "resume": (
        "continue with repositories that are paused or need a person",
        (("repository", {"nargs": "+"}),),
    ),
    "cancel": (
        "cancel the work of a repository, and continue with another task; unfinished work is saved",
        (("repository", {}),),
    ),
    "drain": ("let a worker exit after its current rounds", (("worker", {}),)),
}


def _add_fleet(parser: argparse.ArgumentParser) -> None:
    def common(to: argparse.ArgumentParser, *, is_action: bool) -> None:
        def default(value: Any) -> Any:
            return argparse.SUPPRESS if is_action else value

        to.add_argument(
            "--config",
            type=_text,
            default=default("fleet.toml"),
            metavar="FILE",
            help="the fleet's file (fleet.toml)",
        )
        to.add_argument(
            "--database-url",
            type=_text,
            default=default(None),
            metavar="URL",
            help="URL, without a password, of the PostgreSQL database that all workers share. If it needs a password, "
            "set PULLWRIGHT_DATABASE_URL instead. Without either, one worker uses a file on this machine",
        )
        to.add_argument("--json", action="store_true", default=default(False), help="print JSON lines")

    common(parser, is_action=False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    for name, (text, words) in _FLEET_ACTIONS.items():
        action = actions.add_parser(
            name, help=text, description=f"{text[0].upper()}{text[1:]}.", allow_abbrev=False
        )
        for word, how in words:
            shown = {} if word.startswith("-") else {"metavar": word.upper()}
            action.add_argument(word, type=_text, **{**shown, **how})
        common(action, is_action=True)
        if name == "run":
            action.usage = f"{PROGRAM} fleet run [FLAG ...]"
            action.add_argument("--dry-run", action="store_true", help=_DRY_RUN)
            add_settings(action)


def _add_subject(what: argparse._ArgumentGroup) -> None:
    what.add_argument(
        "--repo",
        **{**_REPO, "help": f"use a clone of this repository instead of this folder: {_REPO['help']}"},
    )
    what.add_argument(
        "--resume",
        type=_text,
        metavar="RUN",
        help="continue a conversation: its id, the beginning of the id, or 'last'",
    )


def _add_chat(parser: argparse.ArgumentParser) -> None:
    subject = parser.add_argument_group("what to talk about")
    _add_subject(subject)
    subject.add_argument(
        "--run",
        type=_text,
        metavar="RUN",
        help="continue the task of a run that made no pull request, with its conversation, files and question",
    )
    how = parser.add_argument_group("how to talk")
    how.add_argument(
        "--dry-run", action="store_true", help="let /pr push nothing, but print what it would propose"
    )
    how.add_argument("--plain", action="store_true", help="read and print plain lines, even at a terminal")
    how.add_argument("--debug", action="store_true", help="show the state of the session after each turn")
    add_settings(parser)


def _add_ask(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{PROGRAM} ask [FLAG ...] TEXT"
    parser.add_argument(
        "text", type=_text, metavar="TEXT", help="what to ask, or - to read it from standard input"
    )
    _add_subject(parser.add_argument_group("what to ask about"))
    how = parser.add_argument_group("how to ask")
    _add_json(how, "print one JSON result on standard output")
    how.add_argument("--plain", action="store_true", help="plain lines instead of the live view")
    how.add_argument("--debug", action="store_true", help="show the state of the session after each turn")
    add_settings(parser)


def _add_dashboard(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=_port, default=0, metavar="N", help="the port on 127.0.0.1 (default: any free port)"
    )
    parser.add_argument(
        "--config",
        type=_text,
        metavar="FILE",
        help="the file of the fleet to show (default: fleet.toml, or the only fleet of this machine; "
        "PULLWRIGHT_DATABASE_URL has precedence)",
    )
    add_settings(parser)


def _add_logs(parser: argparse.ArgumentParser) -> None:
    _add_which_run(parser)
    parser.set_defaults(list=False, state=False, json=False, html=None)


def _add_which_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", nargs="?", default=None, metavar="RUN", help="the run's id, the beginning of the id, or 'last'"
    )
    parser.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="keep printing while the run continues; Ctrl+C does not end the run",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="print everything whole, including unusable replies"
    )


def _add_show(parser: argparse.ArgumentParser) -> None:
    _add_which_run(parser)
    parser.add_argument("--list", action="store_true", help="list the runs, newest first")
    parser.add_argument(
        "--state",
        action="store_true",
        help="print the state of the run's session: plan, actions, calls, context",
    )
    parser.add_argument(
        "--html",
        type=_text,
        metavar="FILE",
        help="write the run as one HTML page that needs no server and no network",
    )
    _add_json(parser, "print records as JSON lines, with --state one JSON object")


def _add_pulls(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repo", type=_text, metavar="PATH", help="only pull requests of this repository")
    _add_json(parser, "print JSON lines")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
    close = actions.add_parser("close", help="close a pull request without merging it", allow_abbrev=False)
    close.add_argument("number", type=_number, metavar="N", help="the pull request's number")
    close.add_argument("--repo", type=_text, metavar="PATH", default=argparse.SUPPRESS, help="its repository")


def _add_digest(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    since = "start of the period: 90m, 24h (the default), 7d, or a date such as 2026-11-20"
    which.add_argument("--since", type=_text, metavar="TIME", help=since)
    which.add_argument(
        "--run", type=_text, metavar="RUN", help="report one run: its id, the beginning of the id, or 'last'"
    )
    parser.add_argument("--repo", type=_text, metavar="REPO", help="only this repository, as runs name it")
    parser.add_argument(
        "--post",
        type=_text,
        metavar="issue:N",
        help="also write it as a comment on this issue, which later digests replace",
    )
    _add_json(parser, "print one JSON object")


def _add_claims(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(key=None)
    parser.add_argument("--repo", **_REPO)
    _add_server(parser)
    _add_json(parser, "print JSON lines")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
    for name, text in (
        ("list", "list all claims (the default action)"),
        ("show", "show the claim on one task"),
        ("release", "release a task that a worker holds"),
    ):
        action = actions.add_parser(name, help=text, allow_abbrev=False)
        action.add_argument(
            "--repo",
            type=_text,
            metavar="REPO",
            default=argparse.SUPPRESS,
            help="the same as before the action",
        )
        _add_server(action)
        action.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="the same as before the action"
        )
        if name != "list":
            action.add_argument("key", type=_text, metavar="KEY", help="the task's key, such as issue-12")


_MEMORY_ACTIONS: dict[str, tuple[str, tuple[tuple[str, dict[str, Any]], ...]]] = {
    "list": ("list the items of an index, newest first", (("index", {"nargs": "?"}),)),
    "search": ("find items by words and by meaning", (("query", {}),)),
    "show": ("show one item with all its fields", (("id", {}),)),
    "edit": (
        "change one field: content, type, source, importance or expires_at",
        (("id", {}), ("field", {}), ("value", {})),
    ),
    "forget": ("remove items for good", (("id", {"nargs": "+"}),)),
    "indices": ("list all indices", ()),
    "stats": ("show statistics of an index", (("index", {"nargs": "?"}),)),
    "export": ("print all items, or those of one index, as JSON lines", (("index", {"nargs": "?"}),)),
    "import": ("import items that export printed", (("file", {}),)),
    "embed": (
        "compute the vectors of an index again with the present embeddings",
        (("index", {"nargs": "?"}),),
    ),
}


_OF_MCP = frozenset({"mcp_config", "mcp_unconfined", "sandbox"})


def _add_mcp(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    listing = actions.add_parser(
        "list", help="list the configured servers without starting them", allow_abbrev=False
    )
    trial = actions.add_parser("test", help="start one server, and show its tools", allow_abbrev=False)
    trial.add_argument("name", type=_text, metavar="NAME", help="the server's name")
    trial.add_argument(
        "--approve", action="store_true", help="approve its present tools for runs, without asking"
    )
    trial.add_argument(
        "--repo", type=_text, metavar="PATH", help="the repository's folder, for a server that may read it"
    )
    for action in (listing, trial):
        _add_json(action, "print JSON")
        add_settings(action, _OF_MCP)


def memory_help() -> list[tuple[str, str]]:
    """Return the usage and the description of each action of `memory`."""

    def word(name: str, shape: Mapping[str, Any]) -> str:
        return f"[{name.upper()}]" if shape.get("nargs") == "?" else name.upper()

    return [
        (" ".join((name, *(word(argument, shape) for argument, shape in arguments))), text)
        for name, (text, arguments) in _MEMORY_ACTIONS.items()
    ]


def _add_memory(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    for name, (text, arguments) in _MEMORY_ACTIONS.items():
        action = actions.add_parser(name, help=text, allow_abbrev=False)
        for argument, shape in arguments:
            kind_of = _number if argument == "id" else _text
            action.add_argument(argument, type=kind_of, metavar=argument.upper(), **shape)
        action.add_argument("--repo", **_REPO)
        _add_server(action)
        _add_json(action, "print JSON lines")


def _examples(command: str) -> str:
    lines = "".join(f"  {PROGRAM} {example}\n" for example in _EXAMPLES.get(command, ()))
    return f"examples:\n{lines}\n" if lines else ""


def _add_decision(parser: argparse.ArgumentParser, command: str) -> None:
    if command == "close":
        parser.add_argument("number", type=_numbered, metavar="N", help="the pull request's number")
    else:
        text = "an issue's or pull request's number, the task's key, or a part of the task's text"
        parser.add_argument("task", type=_text, metavar="TASK", help=text)
    if command == "forget":
        parser.add_argument("--yes", action="store_true", help="do not ask, even if work is lost")
    parser.add_argument("--repo", **_REPO)
    _add_server(parser)
    _add_json(parser, "print one JSON object")


def _add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--github-url", metavar="URL", default=argparse.SUPPRESS, help="address of a GitHub Enterprise server"
    )


def _numbered(value: str) -> int:
    return _number(value.removeprefix("#"))


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repo", **_REPO)
    parser.add_argument(
        "--write",
        action="store_true",
        help="also run the probes that write: a hidden ref that is removed again, requests that GitHub refuses, "
        "and one short request to each model",
    )
    parser.add_argument(
        "--run-tests",
        action="store_true",
        help="also run the tests of the default branch once, with the command that is set or proposed",
    )
    _add_json(parser, "print one JSON object per probe")
    add_settings(parser)


def _add_backtest(parser: argparse.ArgumentParser) -> None:
    past = parser.add_argument_group("which changes of the past")
    past.add_argument("--repo", **_REPO)
    past.add_argument(
        "--last",
        type=_number,
        default=10,
        metavar="N",
        help="maximum number of cases, newest first (default: 10)",
    )
    past.add_argument(
        "--from-git",
        action="store_true",
        help="use commits that changed code and tests, instead of merged pull requests that closed an issue",
    )
    arms = parser.add_argument_group("what is compared")
    arms.add_argument(
        "--model",
        dest="models",
        action="append",
        type=_text,
        metavar="MODEL",
        help="a model, as PROVIDER:NAME; several are compared side by side",
    )
    arms.add_argument(
        "--contract",
        dest="contracts",
        action="append",
        choices=choices("contract"),
        help="form of the model's replies; several are compared, each with each model",
    )
    arms.add_argument(
        "--tries", type=_number, default=1, metavar="N", help="number of tries per case (default: 1)"
    )
    _add_backtest_limits(parser)
    add_settings(parser, without={"model", "contract"})


def _add_backtest_limits(parser: argparse.ArgumentParser) -> None:
    how = parser.add_argument_group("how to run")
    how.add_argument(
        "--jobs", type=_number, default=1, metavar="N", help="number of concurrent tries (default: 1)"
    )
    how.add_argument(
        "--max-usd-total",
        type=_amount,
        metavar="N",
        help="maximum US dollars of all tries, including earlier ones",
    )
    how.add_argument("--max-minutes-total", type=_amount, metavar="N", help="maximum minutes of this command")
    how.add_argument("--html", type=_text, metavar="FILE", help="write a page with every try and its change")
    _add_json(how, "print one JSON object on standard output")
    how.add_argument("--plain", action="store_true", help="plain lines instead of the live view")


def _add_redteam(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", type=_text, metavar="NAME", help="only this attack")
    _add_json(parser, "print one JSON object per attack")
    add_settings(parser)


_OF_VERIFY_PR = frozenset(
    {
        *("test_command", "setup_command", "test_report", "test_minutes", "test_paths", "max_minutes"),
        *("sandbox", "sandbox_read", "allow_host", "base", "github_url", "github_app_id", "mirror"),
    }
)


def _add_verify_pr(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{PROGRAM} verify-pr PULL [FLAG ...]"
    parser.add_argument(
        "pull",
        type=_text,
        metavar="PULL",
        help="a pull request's number or address; or a branch, or a file of git bundle",
    )
    parser.add_argument("--repo", **_REPO)
    parser.add_argument(
        "--body",
        type=_text,
        metavar="FILE",
        help="file with the description of a branch or a bundle; - reads standard input",
    )
    parser.add_argument(
        "--check", action="store_true", help="also write a check run for the head, if the token permits it"
    )
    parser.add_argument("--html", type=_text, metavar="FILE", help="also write a page")
    parser.add_argument(
        "--markdown",
        type=_text,
        metavar="FILE",
        help="also add the report to a file, such as a job's summary",
    )
    _add_json(parser, "print one JSON object")
    add_settings(parser, _OF_VERIFY_PR)


def _add_json(parser: argparse._ActionsContainer, text: str) -> None:
    parser.add_argument("--json", action="store_true", help=text)


def _number(value: str) -> int:
    if not (value.isascii() and value.isdigit() and int(value[:20]) > 0):
        raise argparse.ArgumentTypeError(f"{value!r} is not a number from 1")
    return int(value[:20])


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


def _check_taken_up(options: argparse.Namespace) -> None:
    for name in ("repo", "resume", "dry_run"):
        if getattr(options, name):
            flag = name.replace("_", "-")
            raise UsageError(
                f"--run continues a task with its repository and its conversation: leave out --{flag}"
            )


def _check_show(options: argparse.Namespace) -> None:
    forms = [name for name in ("list", "state", "html", "follow") if getattr(options, name)]
    if options.html and options.json:
        forms.append("json")
    if len(forms) > 1:
        raise UsageError(f"--{forms[0]} and --{forms[1]} are two ways to show a run: choose one")


def _check_run(options: argparse.Namespace) -> None:
    if options.demo:
        for name in ("repo", "issue", "task", "answer"):
            if getattr(options, name) is not None:
                raise UsageError(f"--demo brings its own repository and task: leave out --{name}")
    elif options.repo is None and not getattr(options, "model", "").startswith(REPLAY):
        raise UsageError(
            "no repository is named: pass --repo with owner/name, a URL or a path, or try --demo"
        )
    if options.answer is not None and (options.continuous or options.dry_run):
        other = "--continuous" if options.continuous else "--dry-run"
        raise UsageError(f"--answer is for one cycle that goes on with its work: leave out {other}")


def refuse_secrets(options: argparse.Namespace) -> None:
    """Refuse flags that hold a secret, because all users of the machine can read a process's arguments.

    `chat` calls this after it has shown its prompt, because the detection of secrets takes a while to load.

    Raises:
        UsageError: a flag holds a secret.
    """
    from orchestrator.engine.policy.secrets import Redactor

    redactor = Redactor()
    for name, value in vars(options).items():
        if name not in {"task", "text"} and isinstance(value, str) and redactor.holds_secret(value):
            raise UsageError(
                f"--{name.replace('_', '-')} holds what looks like a key or password; {_KEYS_TEXT}"
            )


def _flags(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[str]:
    """Return the flags of the named command."""
    for action in parser._actions:  # noqa: SLF001  argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction) and options.command:  # noqa: SLF001  the same
            parser = action.choices[options.command]
            break
    return [flag for action in parser._actions for flag in action.option_strings]  # noqa: SLF001  the same


def _unknown(argument: str, flags: Iterable[str]) -> str:
    name = argument.partition("=")[0]
    if not name.startswith("-"):
        return f"{name[:60]!r} is an unexpected argument; put text with spaces in quotes"
    if is_secret_name(name) and not _suggestion(name, flags, _VERY_CLOSE):
        return f"there is no flag {name}; {_KEYS_TEXT}"
    return f"there is no flag {name}{_suggestion(name, flags)}"


def _suggestion(name: str, known: Iterable[str], cutoff: float = _CLOSE) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {near[0]}?" if near else ""

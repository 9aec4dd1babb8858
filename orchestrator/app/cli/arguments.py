"""What may be typed after `pullwright`, the one clear line for what may not, and what the exit status means."""

from __future__ import annotations

import argparse
import difflib
import math
import re
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from orchestrator import __version__
from orchestrator.app.options import SETTING_KEYS, add_settings, choices
from orchestrator.core.errors import ConfigurationError, NothingLeftError
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
    DONE: "done: a pull request was proposed, or planned with --dry-run; with ask and chat, answered; with verify-pr, it holds",
    FAILED: "the model's provider, GitHub or git failed; with verify-pr, it could not be told",
    USAGE: "bad usage or configuration",
    NOTHING: "nothing to do: no task was found, in no cycle of the run",
    QUESTION: "a question was asked, a person has to answer",
    LIMIT: "a limit was reached",
    REFUTED: "verify-pr: what the pull request says does not hold, or its tests fail",
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
        ends: the status with which the last cycle on each task ended.
        last: the status of the last cycle of all.
    """
    if last in {INTERRUPTED, USAGE}:
        return last
    # Every run that has done its work ends by a cycle that finds nothing to do.
    return next((code for code in (QUESTION, FAILED, LIMIT, DONE) if code in {*ends, last}), NOTHING)


def for_error(error: BaseException) -> int:
    """Return the exit status for an error that ended the program."""
    if isinstance(error, ConfigurationError):
        return USAGE
    if isinstance(error, NothingLeftError):
        return LIMIT
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return FAILED


COMMANDS = {
    "init": "set a repository up: its rules, a label, a workflow, or one pull request with all of it",
    "run": "take one task, change the repository, open a pull request",
    "worker": "look after many repositories, as a fleet's file says",
    "fleet": "look after many repositories on several machines, with one queue",
    "chat": "talk with the model about this folder, or about a clone of a repository",
    "ask": "ask the model one thing about this folder, and print its answer",
    "show": "print what happened in a run",
    "logs": "print what happened in the newest run, or in one that is named",
    "dashboard": "show the runs of this machine as a page in a browser",
    "pulls": "list the pull requests and questions of local repositories",
    "backtest": "try models and settings on changes of a repository's past",
    "redteam": "try known attacks on this configuration, offline",
    "verify-pr": "run the tests of a pull request again, and say which of its claims hold",
    "digest": "tell what was done, what was not and why, and what it cost",
    "claims": "list who works on which task, or take a task away",
    "retry": "let the next cycle take a task again",
    "close": "close a pull request of Pullwright's, so that its task is not taken again",
    "forget": "drop what is kept of a task: unfinished work, conversation, failures",
    "mcp": "list the MCP servers, try one, approve its tools",
    "memory": "look at what is remembered for later sessions, change it, take it along",
    "doctor": "try what a run needs, and say how to mend what is missing",
    "config": "print the effective configuration and where it comes from",
    "help": "print this page, the help of a command, or the manual page",
    "completion": "print what lets a shell complete commands and flags",
}
GROUPS = {
    "start": ("init", "doctor", "run", "worker", "chat", "ask"),
    "watch": ("dashboard", "show", "logs", "pulls", "digest"),
    "steer": ("fleet", "claims", "retry", "close", "forget", "memory", "mcp"),
    "check": ("backtest", "verify-pr", "config", "redteam", "help", "completion"),
}
"""The commands as the short page shows them, by what they are for."""
_CONFIGURED = ("init", "run", "worker", "chat", "ask", "doctor", "backtest", "redteam", "dashboard")
"""The commands with every option of the configuration."""
# `chat` looks once its prompt is there.
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
    "push nothing, write nothing to GitHub; print what would be proposed. The model is asked all the same: "
    "what that costs counts for this machine's day, not for the repository's"
)
_KEYS_TEXT = "keys come from the environment (OPENAI_API_KEY, GITHUB_TOKEN, ...), never from the command line"


class UsageError(Exception):
    """What was typed cannot be done; the message is one line."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        if missing := re.search(r"arguments are required: (\S+)$", message):
            helps = [one.help for one in self._actions if one.metavar == missing[1] and one.help]
            raise UsageError(f"name {missing[1]}{''.join(f': {text}' for text in helps)}")
        if wrong := re.match(r"argument COMMAND: invalid choice: '([^']*)'", message):
            raise UsageError(f"there is no command {wrong[1]!r}{_suggestion(wrong[1], COMMANDS)}")
        raise UsageError(re.sub(r"^argument ([^:]+): ", r"\1: ", message))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line. Options of `config` that were not given are missing in the result.

    Raises:
        UsageError: it makes no sense.
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
    """Return the flags that were typed and are options of the configuration, by key."""
    return {key: value for key, value in vars(options).items() if key in SETTING_KEYS}


def _build(first: str) -> _Parser:
    """Build the parser. If the first word names a command, no other command has its options: they take long to add."""
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
    # With every option of the configuration.
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
        help="also write a workflow for GitHub Actions, a task an hour (without a terminal: no)",
    )
    parser.add_argument(
        "--labels",
        action=argparse.BooleanOptionalAction,
        help="make the label of the backlog on GitHub (without a terminal: no)",
    )
    parser.add_argument(
        "--pull-request",
        action="store_true",
        help="write nothing here: propose it as one pull request; again, to bring that one's text up to date",
    )
    parser.add_argument("--yes", action="store_true", help="ask nothing, also where a file changes")
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
        help="put what a ralph.config.json sets into your own file, where that does not set it yet",
    )
    _add_json(parser, "print one JSON object")


def _add_run(parser: argparse.ArgumentParser) -> None:
    work = parser.add_argument_group("what to work on")
    work.add_argument(
        "--demo", action="store_true", help="a made-up repository and model; no key, no network"
    )
    work.add_argument("--repo", **_REPO)
    task = work.add_mutually_exclusive_group()
    task.add_argument("--issue", type=_number, metavar="N", help="work on this issue")
    task.add_argument(
        "--task", type=_text, metavar="TEXT", help="work on what this text says, or on the task with this key"
    )
    work.add_argument(
        "--answer", type=_text, metavar="TEXT", help="answer the question that the task's last cycle asked"
    )
    work.add_argument("--continuous", action="store_true", help="go on with the next task after each one")
    how = parser.add_argument_group("how to run")
    how.add_argument("--dry-run", action="store_true", help=_DRY_RUN)
    _add_json(how, "print one JSON result on standard output, a line a cycle")
    how.add_argument("--plain", action="store_true", help="plain lines instead of the live view")
    how.add_argument("--debug", action="store_true", help="show the state of the session after each turn")
    add_settings(parser)


def _add_worker(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=_text, required=True, metavar="FILE", help="the fleet's file, such as fleet.toml"
    )
    parser.add_argument("--once", action="store_true", help="one cycle for each repository, then the end")
    parser.add_argument("--dry-run", action="store_true", help=_DRY_RUN)
    _add_json(parser, "print one JSON object a cycle on standard output")
    add_settings(parser)


_FLEET_ACTIONS: dict[str, tuple[str, tuple[tuple[str, dict[str, Any]], ...]]] = {
    "run": ("work on this machine until somebody ends it", ()),
    "list": ("the queue: what runs, what waits, what comes later", ()),
    "status": ("workers, repositories, pauses and what they cost today", ()),
    "add": (
        "look at a repository now, or try one of its tasks next",
        (("repository", {}), ("task", {"nargs": "?", "help": "the task's key, such as issue-12"})),
    ),
    "pause": (
        "begin nothing more in some repositories",
        (("repository", {"nargs": "+"}), ("--reason", {"default": "by hand", "metavar": "TEXT"})),
    ),
    "resume": ("go on with repositories that are paused or need a person", (("repository", {"nargs": "+"}),)),
    "cancel": (
        "end what a repository runs or waits for, and go on with another task; work is kept",
        (("repository", {}),),
    ),
    "drain": ("let a worker end after the rounds that it runs", (("worker", {}),)),
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
            help="the PostgreSQL that all workers share, without a password; with one, set PULLWRIGHT_DATABASE_URL. "
            "Without either, a file on this machine is used, for one worker",
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
        "--repo", **{**_REPO, "help": f"a clone of it, in place of this folder: {_REPO['help']}"}
    )
    what.add_argument(
        "--resume",
        type=_text,
        metavar="RUN",
        help="go on with a conversation: its id, the beginning of it, or 'last'",
    )


def _add_chat(parser: argparse.ArgumentParser) -> None:
    subject = parser.add_argument_group("what to talk about")
    _add_subject(subject)
    subject.add_argument(
        "--run",
        type=_text,
        metavar="RUN",
        help="take up the task of a run that came to no pull request: its conversation, its files, its question",
    )
    how = parser.add_argument_group("how to talk")
    how.add_argument(
        "--dry-run", action="store_true", help="have /pr push nothing, and print what it would propose"
    )
    how.add_argument("--plain", action="store_true", help="read lines and print lines, also at a terminal")
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
        "--port", type=_port, default=0, metavar="N", help="the port on 127.0.0.1 (default: one that is free)"
    )
    parser.add_argument(
        "--config",
        type=_text,
        metavar="FILE",
        help="the file of the fleet that the page shows (default: fleet.toml, or the only fleet of this machine; "
        "PULLWRIGHT_DATABASE_URL goes before)",
    )
    add_settings(parser)


def _add_logs(parser: argparse.ArgumentParser) -> None:
    _add_which_run(parser)
    parser.set_defaults(list=False, state=False, json=False, html=None)


def _add_which_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", nargs="?", default=None, metavar="RUN", help="its id, the beginning of it, or 'last'"
    )
    parser.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="go on printing while the run goes on; Ctrl+C leaves it alone",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="cut nothing, and print replies that could not be used whole"
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
        help="write the run as one page that opens anywhere, without a server or a network",
    )
    _add_json(parser, "print records as JSON lines, with --state one JSON object")


def _add_pulls(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repo", type=_text, metavar="PATH", help="only those of this repository")
    _add_json(parser, "print JSON lines")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
    close = actions.add_parser("close", help="close a pull request without merging it", allow_abbrev=False)
    close.add_argument("number", type=_number, metavar="N", help="the pull request's number")
    close.add_argument("--repo", type=_text, metavar="PATH", default=argparse.SUPPRESS, help="its repository")


def _add_digest(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    since = "since then: 90m, 24h (the default), 7d, or a date such as 2026-11-20"
    which.add_argument("--since", type=_text, metavar="TIME", help=since)
    which.add_argument(
        "--run", type=_text, metavar="RUN", help="one run: its id, the beginning of it, or 'last'"
    )
    parser.add_argument("--repo", type=_text, metavar="REPO", help="only this repository, as runs name it")
    parser.add_argument(
        "--post",
        type=_text,
        metavar="issue:N",
        help="also as the one comment on this issue, changed in place",
    )
    _add_json(parser, "print one JSON object")


def _add_claims(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(key=None)
    parser.add_argument("--repo", **_REPO)
    _add_server(parser)
    _add_json(parser, "print JSON lines")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
    for name, text in (
        ("list", "all claims (also where no action is named)"),
        ("show", "the claim on one task"),
        ("release", "take a task away from whoever holds it"),
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
    "list": ("the items of an index, newest first", (("index", {"nargs": "?"}),)),
    "search": ("find items by words and by meaning", (("query", {}),)),
    "show": ("all that is known of one item", (("id", {}),)),
    "edit": (
        "change one field: content, type, source, importance or expires_at",
        (("id", {}), ("field", {}), ("value", {})),
    ),
    "forget": ("remove items for good", (("id", {"nargs": "+"}),)),
    "indices": ("all indices", ()),
    "stats": ("what an index holds", (("index", {"nargs": "?"}),)),
    "export": ("all items as JSON lines, or those of one index", (("index", {"nargs": "?"}),)),
    "import": ("take in what export printed", (("file", {}),)),
    "embed": ("make the vectors of an index anew, by the embeddings of now", (("index", {"nargs": "?"}),)),
}


_OF_MCP = frozenset({"mcp_config", "mcp_unconfined", "sandbox"})


def _add_mcp(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    listing = actions.add_parser(
        "list", help="the servers that are configured; none is started", allow_abbrev=False
    )
    trial = actions.add_parser("test", help="start one server, and show what it offers", allow_abbrev=False)
    trial.add_argument("name", type=_text, metavar="NAME", help="the server's name")
    trial.add_argument(
        "--approve", action="store_true", help="let runs use its tools as they are now, without asking"
    )
    trial.add_argument(
        "--repo", type=_text, metavar="PATH", help="the folder that it may read, if it may read one"
    )
    for action in (listing, trial):
        _add_json(action, "print JSON")
        add_settings(action, _OF_MCP)


def memory_help() -> list[tuple[str, str]]:
    """Return what can be typed after `memory`, with explanations."""

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
        text = "an issue's or pull request's number, the task's key, or a part of its words"
        parser.add_argument("task", type=_text, metavar="TASK", help=text)
    if command == "forget":
        parser.add_argument("--yes", action="store_true", help="do not ask, also where work is lost")
    parser.add_argument("--repo", **_REPO)
    _add_server(parser)
    _add_json(parser, "print one JSON object")


def _add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--github-url", metavar="URL", default=argparse.SUPPRESS, help="an Enterprise server")


def _numbered(value: str) -> int:
    return _number(value.removeprefix("#"))


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repo", **_REPO)
    parser.add_argument(
        "--write",
        action="store_true",
        help="also try what writes: a hidden ref that is removed again, requests that GitHub refuses, "
        "one short request to each model",
    )
    parser.add_argument(
        "--run-tests",
        action="store_true",
        help="also run the tests of the default branch once, by what is set or proposed",
    )
    _add_json(parser, "print one JSON object a probe")
    add_settings(parser)


def _add_backtest(parser: argparse.ArgumentParser) -> None:
    past = parser.add_argument_group("which changes of the past")
    past.add_argument("--repo", **_REPO)
    past.add_argument(
        "--last", type=_number, default=10, metavar="N", help="so many cases, the newest (default: 10)"
    )
    past.add_argument(
        "--from-git",
        action="store_true",
        help="commits that changed code and tests, in place of merged pull requests that closed an issue",
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
        help="how replies become actions; several are compared, each with each model",
    )
    arms.add_argument(
        "--tries", type=_number, default=1, metavar="N", help="how often each does each case (default: 1)"
    )
    how = parser.add_argument_group("how to run")
    how.add_argument("--jobs", type=_number, default=1, metavar="N", help="tries at once (default: 1)")
    how.add_argument(
        "--max-usd-total", type=_amount, metavar="N", help="most US dollars of all tries, earlier ones too"
    )
    how.add_argument("--max-minutes-total", type=_amount, metavar="N", help="minutes until this command ends")
    how.add_argument("--html", type=_text, metavar="FILE", help="write a page with every try and its change")
    _add_json(how, "print one JSON object on standard output")
    how.add_argument("--plain", action="store_true", help="plain lines instead of the live view")
    add_settings(parser, without={"model", "contract"})


def _add_redteam(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", type=_text, metavar="NAME", help="only this attack")
    _add_json(parser, "print one JSON object an attack")
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
        help="the description that goes with a branch or a bundle; - reads it",
    )
    parser.add_argument(
        "--check", action="store_true", help="also write a check run for the head, where the token may"
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
                f"--run takes up a task with its repository and its conversation: leave out --{flag}"
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
            "name what to work on: --repo owner/name (a URL or a path will do), or --demo to try it out"
        )
    if options.answer is not None and (options.continuous or options.dry_run):
        other = "--continuous" if options.continuous else "--dry-run"
        raise UsageError(f"--answer is for one cycle that goes on with its work: leave out {other}")


def refuse_secrets(options: argparse.Namespace) -> None:
    """Refuse flags that hold a secret: everybody on the machine can read a running program's arguments.

    `chat` asks this behind its prompt, because what finds secrets takes a while to load.

    Raises:
        UsageError: one does.
    """
    from orchestrator.engine.policy.secrets import Redactor

    redactor = Redactor()
    for name, value in vars(options).items():
        if name not in {"task", "text"} and isinstance(value, str) and redactor.holds_secret(value):
            raise UsageError(
                f"--{name.replace('_', '-')} holds what looks like a key or password; {_KEYS_TEXT}"
            )


def _flags(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[str]:
    """Return the flags of the selected command."""
    for action in parser._actions:  # noqa: SLF001  argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction) and options.command:  # noqa: SLF001  the same
            parser = action.choices[options.command]
            break
    return [flag for action in parser._actions for flag in action.option_strings]  # noqa: SLF001  the same


def _unknown(argument: str, flags: Iterable[str]) -> str:
    name = argument.partition("=")[0]
    if not name.startswith("-"):
        return f"{name[:60]!r} is one argument too many; put text with spaces in quotes"
    if is_secret_name(name) and not _suggestion(name, flags, _VERY_CLOSE):
        return f"there is no flag {name}; {_KEYS_TEXT}"
    return f"there is no flag {name}{_suggestion(name, flags)}"


def _suggestion(name: str, known: Iterable[str], cutoff: float = _CLOSE) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {near[0]}?" if near else ""

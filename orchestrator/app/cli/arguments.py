"""Parses the command line, with one-line error messages, and defines the exit statuses."""

from __future__ import annotations

import argparse
import copy
import re
from typing import TYPE_CHECKING, Any, NoReturn

from orchestrator.app.cli.commands import command, commands, commands_in_groups
from orchestrator.app.plugins import absence_of
from orchestrator.app.terminal import print_fixed
from orchestrator.bot.suggestions import PROGRAM
from orchestrator.core.errors import BudgetExhaustedError, ConfigurationError
from orchestrator.core.version import __version__

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from orchestrator.app.plugins import CommandEntry

DONE = 0
FAILED = 1
USAGE = 2
NOTHING = 3
QUESTION = 4
LIMIT = 5
REFUTED = 6
INTERRUPTED = 130
KILLED = 137
"""128 + SIGKILL: what a shell reports after the watchdog ended the program (`orchestrator.core.watchdog`)."""

MEANINGS: dict[int, str] = {
    DONE: "done: a pull request was proposed, or planned with --dry-run; ask, chat: answered; verify-pr: all claims hold",
    FAILED: "the model's provider, GitHub or git failed; verify-pr: unknown whether the claims hold",
    USAGE: "bad usage or configuration",
    NOTHING: "nothing to do: everything could be read, and no cycle of the run found a task",
    QUESTION: "a question was asked that a person has to answer",
    LIMIT: "a limit was reached",
    REFUTED: "the tests fail, so the change was not proposed; verify-pr: a claim does not hold, or the tests fail",
    INTERRUPTED: "interrupted",
    KILLED: "killed: the program did not end within 10 seconds after it was told to",
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
    "withdrawn": NOTHING,
    "superseded": NOTHING,
    "conflict": FAILED,
    "paused": FAILED,
    "failed": FAILED,
    "tests_fail": REFUTED,
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
    return next((code for code in (QUESTION, FAILED, REFUTED, LIMIT, DONE) if code in {*ends, last}), NOTHING)


def for_error(error: BaseException) -> int:
    """Return the exit status for an error that ended the program."""
    if isinstance(error, ConfigurationError):
        return USAGE
    if isinstance(error, BudgetExhaustedError):
        return LIMIT
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return FAILED


_NOT_SEARCHED_FOR_SECRETS = frozenset({"chat", "show", "logs", "help", "completion"})
"""The commands whose arguments are not searched here: `chat` does it later, and the others take names only."""

_CLOSE = 0.6
_VERY_CLOSE = 0.85
_KEYS_TEXT = "keys come from the environment (OPENAI_API_KEY, GITHUB_TOKEN, ...), never from the command line"


class UsageError(Exception):
    """The command line is not valid. The message is one line."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        if missing := re.search(r"arguments are required: (\S+)$", message):
            helps = [one.help for one in self._actions if one.metavar == missing[1] and one.help]
            raise UsageError(f"name {missing[1]}{''.join(f': {text}' for text in helps)}")
        if wrong := re.match(r"argument COMMAND: invalid choice: '([^']*)'", message):
            raise _no_command(wrong[1])
        raise UsageError(re.sub(r"^argument ([^:]+): ", r"\1: ", message))

    def format_help(self) -> str:
        """Return the help: that of the program has the commands in groups, and is the place of the exit statuses."""
        if self.prog != PROGRAM:
            return super().format_help()
        return "\n".join(
            (self.format_usage(), self.description or "", "", commands_in_groups(), self.epilog or "", "")
        )

    def _print_message(self, message: str, file: Any = None) -> None:  # noqa: ARG002  argparse passes it
        """Print the help or the version, which argparse prints with this method."""
        print_fixed(message)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line. Options of the configuration that were not given are missing in the result.

    Raises:
        UsageError: the command line is not valid.
        SystemExit: `--help` or `--version` was printed.
    """
    first = command(argv[0]) if argv and not argv[0].startswith("-") else None
    if first is None and argv and not argv[0].startswith("-"):
        raise _no_command(argv[0])
    if first is not None and first.lists_actions and len(argv) == 1:
        return argparse.Namespace(command="help", topic=argv[0], man=False, all=False)
    parser = build_parser(next((word for word in argv if not word.startswith("-")), ""))
    options, unknown = parser.parse_known_args(argv)
    if unknown:
        chosen = subparsers(parser).get(options.command, parser)
        flags = [flag for action in chosen._actions for flag in action.option_strings]  # noqa: SLF001  no other way
        raise UsageError(_unknown(unknown[0], flags))
    if options.command is None:  # nothing was typed
        return argparse.Namespace(command="help", topic=None, man=False, all=False)
    if options.command not in _NOT_SEARCHED_FOR_SECRETS:
        refuse_secrets(options)
    if options.command == "run":
        _check_run(options)
    if options.command == "chat" and options.run is not None:
        _check_taken_up(options)
    if options.command == "show":
        _check_show(options)
    return options


def given_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the given flags that are options of the configuration, by key."""
    from orchestrator.app.options import setting_keys

    return {key: value for key, value in vars(options).items() if key in setting_keys()}


_STATUSES = "exit status:\n" + "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Build the parser.

    Args:
        only: the one command that gets a parser with its flags, because making them takes time; None for all
            commands. The others share a parser that is never used.
    """
    parser = _Parser(
        prog=PROGRAM,
        description="Takes a task from a backlog, changes the repository, opens a pull request.",
        epilog=f"{_STATUSES}\n\n'{PROGRAM} COMMAND --help' tells more about a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    others = _Parser(add_help=False)

    def parser_of(prog: str, **shape: Any) -> argparse.ArgumentParser:
        return _Parser(prog, **shape) if only in {prog.rpartition(" ")[2], None} else others

    added = parser.add_subparsers(  # type: ignore[call-overload]  # argparse only calls parser_class
        dest="command",
        metavar="COMMAND",
        title="commands",
        parser_class=parser_of,
    )
    known = command(only) if only else None
    for name, one in {only: known}.items() if only and known else commands().items():
        to = added.add_parser(name, help=one.text, **_shape_of(name, one))
        if to is not others:
            to.add_argument("-h", "--help", action=_Help, nargs="?", metavar="all", help=_HELP)
            one.add_flags(to)
    return parser


def _shape_of(name: str, known: CommandEntry) -> dict[str, Any]:
    """Return the arguments of a command's parser."""
    examples = "".join(f"  {PROGRAM} {example}\n" for example in known.examples)
    return {
        "description": f"{known.text[0].upper()}{known.text[1:]}.",
        "epilog": (f"examples:\n{examples}\n" if examples else "")
        + f"'{PROGRAM} --help' lists the exit statuses.",
        "add_help": False,
        "formatter_class": argparse.RawDescriptionHelpFormatter,
        "allow_abbrev": False,
        "usage": f"{PROGRAM} {name} [FLAG ...]" if known.has_many_flags else None,
    }


_HELP = "print this page; with 'all' every flag"


class _Help(argparse.Action):
    """Prints the help of a command and ends the program."""

    def __call__(self, parser: argparse.ArgumentParser, *given: Any) -> NoReturn:
        print_fixed(parser.format_help() if given[1] == "all" else short_help(parser))
        parser.exit()


def short_help(parser: argparse.ArgumentParser) -> str:
    """Return the help of a command without the options that a first week does not need, each in one sentence."""
    groups = [
        (group.title, [one for one in group._group_actions if _is_shown(one)])  # noqa: SLF001  argparse has no other way
        for group in parser._action_groups  # noqa: SLF001  the same
    ]
    formatter = argparse.RawDescriptionHelpFormatter(parser.prog, max_help_position=28)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups)  # noqa: SLF001  the same
    formatter.add_text(parser.description)
    for title, actions in groups:
        formatter.start_section(title)
        formatter.add_arguments([_short(one) for one in actions])
        formatter.end_section()
    is_short = not all(map(_is_shown, parser._actions))  # noqa: SLF001  the same
    more = f"'{parser.prog} --help all' shows every flag.\n" if is_short else ""
    formatter.add_text(f"{more}{parser.epilog or ''}")
    return formatter.format_help()


def _is_shown(action: argparse.Action) -> bool:
    """Return whether the short help has the flag."""
    from orchestrator.app.options import FIRST, flag_of, setting_keys

    return action.dest not in setting_keys() or (
        action.dest in FIRST and flag_of(action.dest) in action.option_strings
    )


def _short(action: argparse.Action) -> argparse.Action:
    """Return a copy of an action whose help is its words in the short help, or its first clause."""
    from orchestrator.app.options import FIRST

    short = copy.copy(action)
    if action.help is not None and action.help != argparse.SUPPRESS:
        short.help = FIRST.get(action.dest) or re.split(r"[.;] ", action.help, maxsplit=1)[0]
    if isinstance(action.metavar, str) and "|" in action.metavar:
        short.metavar = action.dest.upper()
    return short


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


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of a parser's commands or actions. argparse has no public way to list them."""
    for action in parser._actions:  # noqa: SLF001  see above
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  the same
            return dict(action.choices)
    return {}


def _no_command(name: str) -> UsageError:
    return UsageError(absence_of(name) or f"there is no command {name!r}{_suggestion(name, commands())}")


def _unknown(argument: str, flags: Iterable[str]) -> str:
    name = argument.partition("=")[0]
    if not name.startswith("-"):
        return f"{name[:60]!r} is an unexpected argument; put text with spaces in quotes"
    from orchestrator.core.redaction import is_secret_name

    if is_secret_name(name) and not _suggestion(name, flags, _VERY_CLOSE):
        return f"there is no flag {name}; {_KEYS_TEXT}"
    return absence_of(name) or f"there is no flag {name}{_suggestion(name, flags)}"


def _suggestion(name: str, known: Iterable[str], cutoff: float = _CLOSE) -> str:
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {near[0]}?" if near else ""

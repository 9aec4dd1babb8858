"""Recognises command lines that only read: they start no other program, write no file and change nothing.

A line is one command, or several joined by `|` and `||`. Only programs of the tables here may run. A sandbox that
cannot write is the wall behind this check.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.engine.policy.program_options import git_refusal, subcommand_at, words_to_name
from orchestrator.engine.policy.shell import (
    CLOSE_BRACE,
    COMMA,
    DOLLAR,
    FREE_JOINS,
    OPEN_BRACE,
    OPEN_BRACKET,
    QUESTION,
    QUOTED_DOLLAR,
    STAR,
    TILDE,
    TooManyWords,
    Unparsed,
    expand_braces,
    parse_words,
    shortened,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator.engine.policy.shell import Redirect, SimpleCommand, Word

VALUES: Mapping[str, str] = {
    name: f"/{name.lower()}"
    for name in ("HOME", "PWD", "OLDPWD", "TMPDIR", "USER", "LOGNAME", "SHELL", "LANG", "PATH")
}
"""The variables that a command may name, with an assumed value of each."""

_NOWHERE = "/dev/null"
_MOST_WORDS = 200
_GLOBS = frozenset({STAR, QUESTION, OPEN_BRACKET})
_VARIABLE = re.compile(
    rf"[{DOLLAR}{QUOTED_DOLLAR}](?:([A-Za-z_][A-Za-z0-9_]*+)|[{{{OPEN_BRACE}]([A-Za-z_][A-Za-z0-9_]*+)[}}{CLOSE_BRACE}])"
)
_TILDE = re.compile(rf"(?:\A|[=:]){TILDE}[^/]*+")
_AS_TEXT = str.maketrans(
    {
        DOLLAR: "$",
        QUOTED_DOLLAR: "$",
        OPEN_BRACE: "{",
        CLOSE_BRACE: "}",
        COMMA: ",",
        TILDE: "~",
        STAR: "*",
        QUESTION: "?",
        OPEN_BRACKET: "[",
    }
)

_ANY_OPTION = frozenset(
    "[ b2sum base32 basename cat cksum cmp column comm cut df dirname du echo egrep expand expr false fgrep fmt "  # noqa: SIM905  words read best without quotes
    "fold grep groups head hexdump id join jq ls md5sum nl nproc numfmt od paste printenv printf pwd readlink realpath "
    "rev seq sha1sum sha224sum sha256sum sha384sum sha512sum stat sum tac tail test tr true type uname unexpand uptime "
    "wc which whoami".split()
)
"""Programs that only read, whatever their options are."""

_OTHER = frozenset({"awk", "gawk", "mawk", "nawk", "find", "rg", "fd", "sed", "sort"})
"""Programs that only read without the options that `program_options` knows."""

_GIT = frozenset(
    "blame cat-file check-ignore count-objects describe diff diff-tree for-each-ref grep log ls-files ls-tree merge-base "  # noqa: SIM905  words read best without quotes
    "name-rev rev-list rev-parse shortlog show show-ref status whatchanged".split()
)
_GIT_WORDS: Mapping[str, re.Pattern[str]] = {
    "branch": re.compile(r"-a|-r|-v|-vv|-l|-av|-avv|-rv|--all|--remotes|--list|--verbose|--show-current"),
    "tag": re.compile(r"-l|--list|-n\d*"),
    "remote": re.compile(r"-v|--verbose"),
    "stash": re.compile(r"list|show|-p|--stat|stash@\{\d+\}"),
    "config": re.compile(r"get|list|--get|--list|-l|[A-Za-z][\w.-]*"),
    "reflog": re.compile(r"show|-\d+|HEAD|--all"),
    "worktree": re.compile(r"list"),
}
"""Subcommands of git that also change something, with the words after which they only show it."""
_GIT_FIRST: Mapping[str, frozenset[str]] = {
    "stash": frozenset({"list", "show"}),
    "config": frozenset({"get", "list", "--get", "--list", "-l"}),
    "worktree": frozenset({"list"}),
}
"""The words of which one must come first."""


def why_not_reading(command: str) -> str | None:
    """Return why a command line may do more than read; None if it only reads."""
    try:
        line = parse_words(command)
    except Unparsed as error:
        return f"{error}"
    if other := next((join for join in line.joins if join not in FREE_JOINS), None):
        return f"{other} joins commands; send them one by one"
    return next(filter(None, map(_why_not, line.commands)), None)


def _why_not(command: SimpleCommand) -> str | None:
    if command.assignments:
        return "no variable may be set"
    if reason := next(filter(None, map(_why_not_redirect, command.redirects)), None):
        return reason
    name = command.words[0].live
    name = "[" if name == OPEN_BRACKET else name
    if name not in _CHECKS.keys() | _ANY_OPTION | _OTHER:
        return f"{shortened(command.words[0].text)} is no program that only reads"
    try:
        arguments = arguments_of(command)
    except Unparsed as error:
        return str(error)
    except TooManyWords:
        return "braces make too many words"
    return _why_not_arguments(name, arguments)


def _why_not_arguments(name: str, arguments: Sequence[Argument]) -> str | None:
    argv = (name, *(one.text for one in arguments))
    if place := min(words_to_name(argv), default=None):
        return f"with {shortened(argv[place])}, {name} could start a program or write a file"
    unsure = next((shortened(one.text) for one in arguments if one.may_be_option), None)
    if unsure and name not in _ANY_OPTION:
        return f"{unsure} could become an option: put a folder in front of it, as in ./{unsure}"
    return _CHECKS[name](argv[1:]) if name in _CHECKS else None


def _why_not_redirect(redirect: Redirect) -> str | None:
    target = redirect.target
    is_plain = target.live == target.text
    if redirect.operator in {"<", "0<"} and is_plain and not target.text.startswith("/dev/"):
        return None
    is_output = redirect.operator.lstrip("12") in {">", ">>"}
    if (is_output and is_plain and target.text == _NOWHERE) or (redirect.copies and ">" in redirect.operator):
        return None
    return f"{redirect.operator} {shortened(target.text)} could write a file"


@dataclass(frozen=True, slots=True)
class Argument:
    """One word that a program may get; `may_be_option` if a file's name in its place could begin with a dash."""

    text: str
    may_be_option: bool


def arguments_of(command: SimpleCommand) -> list[Argument]:
    """Return the words that a program gets, with `VALUES` for variables; files that match are not looked up.

    Raises:
        Unparsed: a value is not known.
    """
    return [argument for word in command.words[1:] for argument in _arguments(word)]


def _arguments(word: Word) -> list[Argument]:
    made: list[Argument] = []
    for text in expand_braces(word.live, _MOST_WORDS):
        whole = _VARIABLE.sub(_value, _TILDE.sub(_home, text))
        if word.live != text and whole.startswith("-"):
            raise Unparsed("braces may make no options")
        made.append(Argument(whole.translate(_AS_TEXT), whole[:1] in _GLOBS))
    return made


def _home(found: re.Match[str]) -> str:
    if found[0] != TILDE:
        raise Unparsed("~ stands for a folder that is not known")
    return VALUES["HOME"]


def _value(found: re.Match[str]) -> str:
    name = found[1] or found[2]
    if name not in VALUES:
        raise Unparsed(f"the value of ${shortened(name)} is not known")
    return VALUES[name]


def _operands(arguments: Sequence[str], with_value: str = "") -> int:
    """Return how many arguments are no options and no values of these options."""
    count, is_value, may_be_option = 0, False, True
    for word in arguments:
        if is_value:
            is_value = False
        elif may_be_option and word.startswith("-") and word != "-":
            is_value = len(word) == len("-x") and word[1] in with_value
            may_be_option = word != "--"
        else:
            count += 1
    return count


def _one_file(with_value: str) -> Callable[[Sequence[str]], str | None]:
    def check(arguments: Sequence[str]) -> str | None:
        return "a second file would be written" if _operands(arguments, with_value) > 1 else None

    return check


def _without(*options: str) -> Callable[[Sequence[str]], str | None]:
    """Return a check that refuses these options: one letter also in a cluster, long ones also abbreviated."""
    letters = {option[1] for option in options if len(option) == len("-x")}
    names = [option for option in options if len(option) > len("-x")]

    def check(arguments: Sequence[str]) -> str | None:
        for word in arguments:
            name = word.partition("=")[0]
            is_long = (
                word.startswith("--") and len(name) > len("--") and any(one.startswith(name) for one in names)
            )
            if is_long or (word[:1] == "-" and word[1:2] != "-" and letters.intersection(word)):
                return f"{shortened(word)} could start a program or write"
        return None

    return check


def _date(arguments: Sequence[str]) -> str | None:
    if _operands(arguments, "dfr") > sum(word.startswith("+") for word in arguments):
        return "date could set the clock"
    return _without("-s", "--set")(arguments)


def _command(arguments: Sequence[str]) -> str | None:
    return None if arguments[:1] in (("-v",), ("-V",)) else "command could start a program"


def _git(arguments: Sequence[str]) -> str | None:
    argv = ("git", *arguments)
    if reason := git_refusal(argv):
        return reason
    place = subcommand_at(argv)
    if argv[place : place + 1] == ("cat-file",):  # the filters of a repository are programs
        return _without("--filters", "--textconv")(argv)
    if place == len(argv) or argv[place] in _GIT:
        return None
    name, rest = argv[place], argv[place + 1 :]
    expected, first = _GIT_WORDS.get(name), _GIT_FIRST.get(name)
    if (
        expected is None
        or (first and not first.intersection(rest[:1]))
        or not all(map(expected.fullmatch, rest))
    ):
        return f"git {shortened(' '.join((name, *rest)))} could change something"
    return None


_CHECKS: Mapping[str, Callable[[Sequence[str]], str | None]] = {
    "base64": _without("-o", "--output"),  # of macOS
    "command": _command,
    "date": _date,
    "diff": _without("-l", "--paginate", "--to-file"),
    "file": _without("-C", "-z", "-Z", "--compile", "--uncompress", "--uncompress-noreport"),
    "git": _git,
    "tree": _without("-o", "--output"),
    "uniq": _one_file("fsw"),
}
"""The programs that only read after a check of their arguments."""

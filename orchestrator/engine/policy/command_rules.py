"""The commands that may run: permission levels, rules, and commands blocked at every level.

A rule is read by the parser that reads commands. `*` as a word stands for any number of words, also none.
Inside a word it stands for any characters but `/`. Everything else stands for itself. Examples:
`"pytest *"`, `"git diff *"`, `"FOO=* pytest *"`, `"pytest * > *"`, `"cd * && pytest *"`.

Commands blocked at every level would destroy a machine (see `destructive`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from posixpath import basename
from typing import TYPE_CHECKING, Self

from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.policy.destructive import blocked
from orchestrator.engine.policy.program_options import (
    git_refusal,
    program_name,
    starts_others,
    stays_inside,
    subcommand_at,
    unusual_subcommand,
    without_options,
    words_to_name,
)
from orchestrator.engine.policy.shell import (
    FREE_JOINS,
    QUESTION,
    STAR,
    TooManyShells,
    Unparsed,
    parse_line,
    scan_deep,
    shortened,
    tails,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator.engine.policy.shell import CommandLine, Redirect, SimpleCommand, Word

_MOVES = frozenset({"cd", "pushd", "popd"})

_STEERING_VARIABLE = re.compile(
    r"(?:GIT|LD|DYLD|PYTHON|NODE|NPM|PERL|RUBY|BASH|LESS|PYTEST|MAKE|GREP|RIPGREP|SSH|CURL|TAR|GCC|CC|JAVA)_?.*"
    r"|.*(?:PAGER|EDITOR|VISUAL|SHELL|PATH|OPTIONS|OPTS|FLAGS)|ENV|IFS|PS4|PROMPT_COMMAND|HOME|CDPATH|TMPDIR"
)
"""Variables that can make programs run others. A star does not match their values."""

_MOST_NAMED = 20
_SHOWN_CHARS = 100


class Level(StrEnum):
    """The permission level of a session."""

    READ_ONLY = "read-only"
    """Read files only: no tool that changes files, no command."""
    SAFE = "safe"
    """Change files with the tools for it, and run the commands that rules grant."""
    DANGEROUS = "dangerous"
    """Run every command, except those that rules deny and those that are always blocked."""


@dataclass(frozen=True, slots=True)
class CommandRule:
    """A rule: its text, and the command line parsed from it."""

    text: str
    line: CommandLine


@dataclass(frozen=True, slots=True)
class CommandRules:
    """The rules that grant commands, and those that deny commands in any case. Created by `parse`."""

    allow: tuple[CommandRule, ...] = ()
    deny: tuple[CommandRule, ...] = ()

    @classmethod
    def parse(cls, allow: Iterable[str] = (), deny: Iterable[str] = ()) -> Self:
        """Parse rules.

        Raises:
            ConfigurationError: a rule is no command that the parser understands, or would grant any program.
        """
        return cls(tuple(map(_allow_rule, allow)), tuple(map(_deny_rule, deny)))

    def refusal(self, command: str, level: Level = Level.SAFE, *, outside_root: bool = False) -> str | None:
        """Return why a command does not run at this level and which commands do; None if it runs.

        Args:
            outside_root: whether it would run in another folder than the root of the clone.
        """
        if level is Level.READ_ONLY:
            return "Not run: no command runs at the level read-only."
        if reason := blocked(command):
            return f"Not run at any level: {reason}."
        if level is Level.DANGEROUS:
            return self._denied_deep(command)
        try:
            line = parse_line(command)
        except Unparsed as error:
            return f"Not run: {error}. {self.granted}"
        inner = [words for one in line.commands for words in tails(one.argv)]
        outside_root = outside_root or any(words[0] in _MOVES for words in inner)
        if (
            reason := self._denied(inner)
            or _git_refusal(inner, outside_root=outside_root)
            or self._not_granted(line)
        ):
            return f"{reason} {self.granted}"
        return None

    @property
    def granted(self) -> str:
        """A sentence for the model about the commands that the rules grant."""
        if not self.allow:
            return "No command is granted."
        named = ", ".join(f"`{rule.text}`" for rule in self.allow[:_MOST_NAMED])
        more = f" and {len(self.allow) - _MOST_NAMED} more" if len(self.allow) > _MOST_NAMED else ""
        return f"Granted commands: {named}{more}. They may be joined by | and ||, and by nothing else."

    @property
    def open(self) -> tuple[str, ...]:
        """The texts of the rules with a star after a program that may start other programs."""
        return tuple(rule.text for rule in self.allow if any(map(_is_open, rule.line.commands)))

    def _denied_deep(self, command: str) -> str | None:
        try:
            return self._denied(found.argv for found in scan_deep(command) if found.argv)
        except TooManyShells:
            return "Not run: it runs more shells than can be compared with the rules that deny."

    def _denied(self, commands: Iterable[Sequence[str]]) -> str | None:
        if not self.deny:
            return None
        for words in commands:
            forms = {tuple(words), (basename(words[0]), *words[1:])}
            if program_name(words[0]) == "git":
                forms.add(without_options(("git", *words[1:])))
            for rule in self.deny:
                if any(_denies(rule.line.commands[0], form) for form in forms):
                    return f"Not run: the rule `{rule.text}` denies it."
        return None

    def _not_granted(self, line: CommandLine) -> str | None:
        """Return why no rules cover the line from left to right, with free joins between two; None if they do."""
        commands, reach = tuple(map(_Candidate.of, line.commands)), {0}
        for at in range(len(commands)):
            if at not in reach:
                continue
            for rule in self.allow:
                end = at + len(rule.line.commands)
                if end <= len(commands) and _covers(rule.line, commands, line.joins, at):
                    if end == len(commands):
                        return None
                    if line.joins[end - 1] in FREE_JOINS:
                        reach.add(end)
        at = max(reach)
        return f"Not run: {self._why_not_granted(commands[at], line.joins[at : at + 1])}"

    def _why_not_granted(self, candidate: _Candidate, joined: tuple[str, ...]) -> str:
        """Return why no rule covers a command."""
        command = candidate.command
        alone = (rule.line.commands[0] for rule in self.allow if not rule.line.joins)
        if joined and any(_grants(one, candidate) for one in alone):
            return f"no rule grants {joined[0]} between these commands."
        bare = any(_grants_words(rule.line.commands[0].words, candidate) for rule in self.allow)
        if bare and command.redirects:
            return "no rule grants this redirection; only a relative path inside of the clone can be granted by *."
        if bare and command.assignments:
            return "no rule grants setting a variable in front of the command."
        near = [rule for rule in self.allow if rule.line.commands[0].words[0].text == command.argv[0]]
        for place, reason in sorted(candidate.must_name.items()):
            if near and place:
                return f"{reason}."
        return f"`{' '.join(command.argv)[:_SHOWN_CHARS]}` is granted by no rule."


def _is_open(command: SimpleCommand) -> bool:
    if not any(word.is_glob for word in (*command.words, *command.assignments)):
        return False
    words = tuple(word.text for word in command.words if not word.is_glob)
    if words[0] == "git":  # `program_options` knows what a star after it grants
        return unusual_subcommand(words) is not None
    return starts_others(words)


def _allow_rule(text: str) -> CommandRule:
    rule = _rule(text)
    for command in rule.line.commands:
        if program_name(command.argv[0]) == "git" and (reason := git_refusal(_without_stars(command))):
            raise ConfigurationError(f"the rule {text!r} is refused: {reason}")
    return rule


def _deny_rule(text: str) -> CommandRule:
    rule = _rule(text)
    first = rule.line.commands[0]
    if rule.line.joins or first.redirects or first.assignments:
        raise ConfigurationError(
            f"the rule {text!r} is refused: a rule that denies is one command without |, ;, &&, redirections and variables"
        )
    return rule


def _rule(text: str) -> CommandRule:
    try:
        line = parse_line(text)
    except Unparsed as error:
        hint = "; a rule begins with the name of a program" if text.strip()[:1] in "*?" else ""
        raise ConfigurationError(f"the rule {text!r} cannot be read: {error}{hint}") from error
    for command in line.commands:
        for word in (*command.words, *command.assignments, *(found.target for found in command.redirects)):
            if QUESTION in word.pattern:
                raise ConfigurationError(
                    f"the rule {text!r} has a ?: only * is a wildcard; put the ? in quotes"
                )
        for word in command.assignments:
            if word.is_glob and _STEERING_VARIABLE.fullmatch(word.text.partition("=")[0].rstrip("+")):
                raise ConfigurationError(
                    f"the rule {text!r} must give the variable's value: the variable can make programs run others"
                )
    return CommandRule(text.strip(), line)


def _without_stars(command: SimpleCommand) -> tuple[str, ...]:
    """Return the words of a rule without stars; a harmless subcommand is added to an open `git config`."""
    words = tuple(word.text for word in command.words if not word.is_glob)
    if subcommand_at(words) < len(words) and words[-1] == "config":
        return (*words, "get")
    return words


def _git_refusal(commands: Iterable[Sequence[str]], *, outside_root: bool) -> str | None:
    for words in commands:
        if program_name(words[0]) != "git":
            continue
        if outside_root:  # a folder that looks like a bare repository has a configuration of its own
            return "Not run: git runs in the root of the clone only; name the folder as an argument."
        if reason := git_refusal(words):
            return f"Not run: {reason}."
    return None


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A command to be checked.

    Attributes:
        must_name: the reasons why a rule must name a word itself, by the word's place.
    """

    command: SimpleCommand
    must_name: dict[int, str]

    @classmethod
    def of(cls, command: SimpleCommand) -> Self:
        """Create a candidate, finding the words that a rule must name."""
        argv = command.argv
        places = words_to_name(argv)
        for place, word in enumerate(command.words):
            folder = word.pattern.partition(STAR)[0].partition(QUESTION)[0]
            if word.is_glob and ("/" not in folder or word.text[0] == "-"):
                shown = shortened(word.text)
                places[place] = (
                    f"{shown} could become an option: put a folder in front of it, as in ./{shown}"
                )
        if program_name(argv[0]) == "git" and (unusual := unusual_subcommand(argv)) is not None:
            places.setdefault(unusual, f"git {shortened(argv[unusual])}: a rule must name this subcommand")
        return cls(command, places)


def _covers(rule: CommandLine, commands: Sequence[_Candidate], joins: tuple[str, ...], at: int) -> bool:
    """Return whether a whole rule matches the commands from `at` on, with the same joins between them."""
    end = at + len(rule.commands)
    return rule.joins == joins[at : end - 1] and all(map(_grants, rule.commands, commands[at:end]))


def _grants(rule: SimpleCommand, candidate: _Candidate) -> bool:
    """Return whether one command of a rule matches one command: words, variables in front, redirections."""
    command = candidate.command
    return (
        rule.words[0].text == command.words[0].text  # most rules fail here, so this is checked first
        and len(rule.assignments) == len(command.assignments)
        and len(rule.redirects) == len(command.redirects)
        # In the value of a variable the shell expands only `~`, which the parser refuses.
        and all(
            _expression(one.pattern, ".").fullmatch(value.text)
            for one, value in zip(rule.assignments, command.assignments, strict=True)
        )
        and all(map(_grants_redirect, rule.redirects, command.redirects))
        and _grants_words(rule.words, candidate)
    )


def _grants_redirect(rule: Redirect, redirect: Redirect) -> bool:
    if rule.operator != redirect.operator or redirect.target.is_glob:
        return False
    target = redirect.target.text
    if not rule.target.is_glob:
        return rule.target.text == target
    inside = not redirect.copies and stays_inside(target)
    return inside and (
        rule.target.pattern == STAR or _expression(rule.target.pattern).fullmatch(target) is not None
    )


def _grants_words(rule: Sequence[Word], candidate: _Candidate) -> bool:
    """Return whether the words of a rule match a command's. A star matches no word that a rule must name."""
    words, must_name = candidate.command.words, candidate.must_name
    reach = {0}
    for word in rule:
        if word.pattern == STAR:
            reach = _star_reach(reach, len(words), must_name)
        else:
            reach = {
                at + 1
                for at in reach
                if at < len(words) and _matches_word(word, words[at], named=at in must_name)
            }
        if not reach:
            return False
    return len(words) in reach


def _star_reach(starts: set[int], length: int, must_name: dict[int, str]) -> set[int]:
    """Return the places where a star from `starts` may end: at the latest before a word that must be named."""
    reached: set[int] = set()
    is_open = False
    for at in range(length + 1):
        is_open = at in starts or (is_open and at - 1 not in must_name)
        if is_open:
            reached.add(at)
    return reached


def _matches_word(rule: Word, word: Word, *, named: bool) -> bool:
    if not rule.is_glob:
        return rule.text == word.text and not word.is_glob
    return not named and _expression(rule.pattern).fullmatch(word.pattern) is not None


@lru_cache(maxsize=4096)
def _expression(pattern: str, letter: str = "[^/]") -> re.Pattern[str]:
    """Compile a word of a rule with stars into an expression for `Word.pattern`.

    No plain character of the rule matches an unquoted `*` or `?` of the command. Between two stars the first
    place that fits is final (atomic groups), so the time is linear.
    """
    first, *others = map(re.escape, pattern.split(STAR))
    if not others:
        return re.compile(first)
    *middle, last = others
    parts = "".join(f"(?>{letter}*?{part})" for part in middle if part)
    return re.compile(f"{first}{parts}{letter}*{last}", re.DOTALL)


def _denies(rule: SimpleCommand, words: Sequence[str]) -> bool:
    """Return whether a denying rule matches these words. Here a star inside a word matches `/` too."""
    reach = {0}
    for word in rule.words:
        if word.pattern == STAR:
            reach = set(range(min(reach), len(words) + 1))
            continue
        expression = _expression(word.pattern, ".")
        reach = {at + 1 for at in reach if at < len(words) and expression.fullmatch(words[at])}
        if not reach:
            return False
    return len(words) in reach

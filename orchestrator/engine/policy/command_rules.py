"""Which commands may run: levels, and rules on parsed commands.

A rule is read by the parser that reads commands. `*` as a word stands for any number of words, none
too; inside a word for any characters but `/`. Everything else stands for itself: `"pytest *"`,
`"git diff *"`, `"FOO=* pytest *"`, `"pytest * > *"`, `"cd * && pytest *"`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from posixpath import basename
from typing import TYPE_CHECKING, Self

from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.policy.blocked import blocked
from orchestrator.engine.policy.executing import program, starts_others
from orchestrator.engine.policy.git_options import (
    git_refusal,
    subcommand_at,
    unusual_subcommand,
    without_options,
)
from orchestrator.engine.policy.rule_match import Candidate, covers, denies, grants, grants_words
from orchestrator.engine.policy.shell_scan import scan_deep, tails
from orchestrator.engine.policy.shell_syntax import QUESTION, Unparsed, parse_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator.engine.policy.shell_syntax import Line, SimpleCommand

_FREE_JOINS = frozenset({"|", "||"})
"""These join granted commands without a rule that says so."""

_MOVES = frozenset({"cd", "pushd", "popd"})

_STEERING_VARIABLE = re.compile(
    r"(?:GIT|LD|DYLD|PYTHON|NODE|NPM|PERL|RUBY|BASH|LESS|PYTEST|MAKE|GREP|RIPGREP|SSH|CURL|TAR|GCC|CC|JAVA)_?.*"
    r"|.*(?:PAGER|EDITOR|VISUAL|SHELL|PATH|OPTIONS|OPTS|FLAGS)|ENV|IFS|PS4|PROMPT_COMMAND|HOME|CDPATH|TMPDIR"
)
"""Variables by which programs are made to run others: a star does not stand for their values."""

_MOST_NAMED = 20
_SHOWN_CHARS = 100


class Level(StrEnum):
    """What a session may do."""

    READ_ONLY = "read-only"
    """Look: no tool that changes files, no command."""
    SAFE = "safe"
    """Change files by the tools for it, and run the commands that rules grant."""
    DANGEROUS = "dangerous"
    """Run every command but what rules deny and what is always blocked."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: its text, and what it was parsed to."""

    text: str
    line: Line


@dataclass(frozen=True, slots=True)
class CommandRules:
    """Which commands are granted, and which are denied whatever is granted. Make it with `parse`."""

    allow: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()

    @classmethod
    def parse(cls, allow: Iterable[str] = (), deny: Iterable[str] = ()) -> Self:
        """Read rules.

        Raises:
            ConfigurationError: a rule is no command that the parser knows, or would grant any program.
        """
        return cls(tuple(map(_allow_rule, allow)), tuple(map(_deny_rule, deny)))

    def refusal(self, command: str, level: Level = Level.SAFE, *, elsewhere: bool = False) -> str | None:
        """Why a command does not run at this level, and what would; None if it runs.

        Args:
            command: what the shell would be given.
            level: the session's.
            elsewhere: it would run in another folder than the root of the clone.
        """
        if level is Level.READ_ONLY:
            return "Not run: no command runs at the level read-only."
        if reason := blocked(command):
            return f"Not run at any level: {reason}."
        if level is Level.DANGEROUS:
            return self._denied(found.words for found in scan_deep(command) if found.words)
        try:
            line = parse_line(command)
        except Unparsed as error:
            return f"Not run: {error}. {self.granted}"
        inner = [words for one in line.commands for words in tails(one.argv)]
        elsewhere = elsewhere or any(words[0] in _MOVES for words in inner)
        if reason := self._denied(inner) or _git(inner, elsewhere=elsewhere) or self._not_granted(line):
            return f"{reason} {self.granted}"
        return None

    @property
    def granted(self) -> str:
        """What the rules grant, as a model is told."""
        if not self.allow:
            return "No command is granted."
        named = ", ".join(f"`{rule.text}`" for rule in self.allow[:_MOST_NAMED])
        more = f" and {len(self.allow) - _MOST_NAMED} more" if len(self.allow) > _MOST_NAMED else ""
        return f"Granted are: {named}{more}. They may be joined by | and ||, and nothing else."

    @property
    def open(self) -> tuple[str, ...]:
        """The rules in which a star stands behind a program that is not known to start nothing else."""
        return tuple(rule.text for rule in self.allow if any(map(_is_open, rule.line.commands)))

    def _denied(self, commands: Iterable[Sequence[str]]) -> str | None:
        if not self.deny:
            return None
        for words in commands:
            forms = {tuple(words), (basename(words[0]), *words[1:])}
            if program(words[0]) == "git":
                forms.add(without_options(("git", *words[1:])))
            for rule in self.deny:
                if any(denies(rule.line.commands[0], form) for form in forms):
                    return f"Not run: the rule `{rule.text}` denies it."
        return None

    def _not_granted(self, line: Line) -> str | None:
        """Cover the line with rules from left to right; only a free join may lie between two rules."""
        commands, reach = tuple(map(Candidate.of, line.commands)), {0}
        for at in range(len(commands)):
            if at not in reach:
                continue
            for rule in self.allow:
                end = at + len(rule.line.commands)
                if end <= len(commands) and covers(rule.line, commands, line.joins, at):
                    if end == len(commands):
                        return None
                    if line.joins[end - 1] in _FREE_JOINS:
                        reach.add(end)
        at = max(reach)
        return f"Not run: {self._why(commands[at], line.joins[at : at + 1])}"

    def _why(self, candidate: Candidate, joined: tuple[str, ...]) -> str:
        """What the first command that no rule covers lacks."""
        command = candidate.command
        alone = (rule.line.commands[0] for rule in self.allow if not rule.line.joins)
        if joined and any(grants(one, candidate) for one in alone):
            return f"no rule grants {joined[0]} between these commands."
        bare = any(grants_words(rule.line.commands[0].words, candidate) for rule in self.allow)
        if bare and command.redirects:
            return "no rule grants this redirection; only a relative path inside of the clone can be granted by *."
        if bare and command.assignments:
            return "no rule grants setting a variable in front of the command."
        near = [rule for rule in self.allow if rule.line.commands[0].words[0].text == command.argv[0]]
        for place, reason in sorted(candidate.by_name.items()):
            if near and place:
                return f"{reason}."
        return f"`{' '.join(command.argv)[:_SHOWN_CHARS]}` is granted by no rule."


def _is_open(command: SimpleCommand) -> bool:
    if not any(word.is_glob for word in (*command.words, *command.assignments)):
        return False
    words = tuple(word.text for word in command.words if not word.is_glob)
    if words[0] == "git":  # what a star behind it grants, `git_options` says
        return unusual_subcommand(words) is not None
    return starts_others(words)


def _allow_rule(text: str) -> Rule:
    rule = _rule(text)
    for command in rule.line.commands:
        if program(command.argv[0]) == "git" and (reason := git_refusal(_without_stars(command))):
            raise ConfigurationError(f"the rule {text!r} cannot be: {reason}")
    return rule


def _deny_rule(text: str) -> Rule:
    rule = _rule(text)
    first = rule.line.commands[0]
    if rule.line.joins or first.redirects or first.assignments:
        raise ConfigurationError(
            f"the rule {text!r} cannot be: what is denied is one command without |, ;, &&, redirections and variables"
        )
    return rule


def _rule(text: str) -> Rule:
    try:
        line = parse_line(text)
    except Unparsed as error:
        hint = "; a rule begins with the name of a program" if text.strip()[:1] in "*?" else ""
        raise ConfigurationError(f"the rule {text!r} cannot be read: {error}{hint}") from error
    for command in line.commands:
        for word in (*command.words, *command.assignments, *(found.target for found in command.redirects)):
            if QUESTION in word.pattern:
                raise ConfigurationError(
                    f"the rule {text!r} has a ?: only * stands for something else, quote it"
                )
        for word in command.assignments:
            if word.is_glob and _STEERING_VARIABLE.fullmatch(word.text.partition("=")[0].rstrip("+")):
                raise ConfigurationError(
                    f"the rule {text!r} must say the variable's value: it can run other programs"
                )
    return Rule(text.strip(), line)


def _without_stars(command: SimpleCommand) -> tuple[str, ...]:
    """The words of a rule that stand for themselves; a subcommand left open passes as a harmless one."""
    words = tuple(word.text for word in command.words if not word.is_glob)
    if subcommand_at(words) < len(words) and words[-1] == "config":
        return (*words, "get")
    return words


def _git(commands: Iterable[Sequence[str]], *, elsewhere: bool) -> str | None:
    for words in commands:
        if program(words[0]) != "git":
            continue
        if elsewhere:  # a folder that looks like a bare repository has a configuration of its own
            return "Not run: git runs in the root of the clone only; name the folder as an argument."
        if reason := git_refusal(words):
            return f"Not run: {reason}."
    return None

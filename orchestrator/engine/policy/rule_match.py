"""Whether a rule stands for a command."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Self

from orchestrator.engine.policy.executing import named_only, program, stays_inside
from orchestrator.engine.policy.git_options import unusual_subcommand
from orchestrator.engine.policy.shell_syntax import QUESTION, STAR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.engine.policy.shell_syntax import Line, Redirect, SimpleCommand, Word


@dataclass(frozen=True, slots=True)
class Candidate:
    """A command that asks to be granted, and the places of words that a rule must name, with the reason."""

    command: SimpleCommand
    by_name: dict[int, str]

    @classmethod
    def of(cls, command: SimpleCommand) -> Self:
        """Look up which words must be named."""
        return cls(command, _by_name(command))


def covers(rule: Line, commands: Sequence[Candidate], joins: tuple[str, ...], at: int) -> bool:
    """Whether a whole rule stands for the commands from `at` on, with the same joins between them."""
    end = at + len(rule.commands)
    return rule.joins == joins[at : end - 1] and all(map(grants, rule.commands, commands[at:end]))


def grants(rule: SimpleCommand, candidate: Candidate) -> bool:
    """Whether one command of a rule stands for one command: words, variables in front, redirections."""
    command = candidate.command
    return (
        rule.words[0].text == command.words[0].text  # most rules end here
        and len(rule.assignments) == len(command.assignments)
        and len(rule.redirects) == len(command.redirects)
        and all(map(_grants_value, rule.assignments, command.assignments))
        and all(map(_grants_redirect, rule.redirects, command.redirects))
        and grants_words(rule.words, candidate)
    )


def _grants_value(rule: Word, word: Word) -> bool:
    """The value of a variable: nothing is expanded in it but `~`, which the parser refuses."""
    return _expression(rule.pattern, ".").fullmatch(word.text) is not None


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


def grants_words(rule: Sequence[Word], candidate: Candidate) -> bool:
    """Whether the words of a rule stand for those of a command; a star for none that must be named."""
    words, by_name = candidate.command.words, candidate.by_name
    reach = {0}
    for word in rule:
        if word.pattern == STAR:
            reach = _star_reach(reach, len(words), by_name)
        else:
            reach = {
                at + 1
                for at in reach
                if at < len(words) and _stands_for(word, words[at], named=at in by_name)
            }
        if not reach:
            return False
    return len(words) in reach


def _star_reach(starts: set[int], length: int, by_name: dict[int, str]) -> set[int]:
    """Where a star that begins at any of `starts` may end: it goes on up to a word that must be named."""
    reached: set[int] = set()
    is_open = False
    for at in range(length + 1):
        is_open = at in starts or (is_open and at - 1 not in by_name)
        if is_open:
            reached.add(at)
    return reached


def _stands_for(rule: Word, word: Word, *, named: bool) -> bool:
    if not rule.is_glob:
        return rule.text == word.text and not word.is_glob
    return not named and _expression(rule.pattern).fullmatch(word.pattern) is not None


@lru_cache(maxsize=4096)
def _expression(pattern: str, letter: str = "[^/]") -> re.Pattern[str]:
    """A word with stars, for the `pattern` of a word: what the shell would expand is no letter of a rule's.

    Between two stars the first place that fits is taken for good, so that the time is linear.
    """
    first, *others = map(re.escape, pattern.split(STAR))
    if not others:
        return re.compile(first)
    *middle, last = others
    parts = "".join(f"(?>{letter}*?{part})" for part in middle if part)
    return re.compile(f"{first}{parts}{letter}*{last}", re.DOTALL)


def _by_name(command: SimpleCommand) -> dict[int, str]:
    """The places of the words that only a rule which names them grants, with the reason."""
    argv = command.argv
    places = named_only(argv)
    for place, word in enumerate(command.words):
        if word.is_glob and (
            "/" not in word.pattern.partition(STAR)[0].partition(QUESTION)[0] or word.text[0] == "-"
        ):
            places[place] = (
                f"{word.text[:60]} could become an option: put a folder in front of it, as in ./{word.text[:60]}"
            )
    if program(argv[0]) == "git" and (unusual := unusual_subcommand(argv)) is not None:
        places.setdefault(unusual, f"git {argv[unusual][:60]}: a rule must name this subcommand")
    return places


def denies(rule: SimpleCommand, words: Sequence[str]) -> bool:
    """Whether a rule that denies stands for these words: here a star inside a word stands for `/` too."""
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

"""Fuzz target: the strict command parser, the scanner behind it, and the rules."""

from __future__ import annotations

from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.policy.command_rules import CommandRules, Level
from orchestrator.engine.policy.destructive import LONGEST_COMMAND, blocked
from orchestrator.engine.policy.shell import (
    QUESTION,
    STAR,
    CommandLine,
    SimpleCommand,
    Unparsed,
    Word,
    parse_line,
    scan,
)
from tests.fuzz.target import Target, pieces, text_of

RULES = CommandRules.parse(
    ("pytest *", "git diff *", "git status", "FOO=* make *", "ls *", "cat * > *", "cd * && pytest *", "rg *"),
    ("pytest --pdb *", "git push *", "rm *"),
)


def run(data: bytes) -> None:
    text = text_of(data)
    for level in Level:
        _is_line(RULES.refusal(text, level))
    _is_line(blocked(text))
    _rule(text)
    try:
        line = parse_line(text)
    except Unparsed as error:
        _is_line(str(error))
        assert RULES.refusal(text) is not None, "granted what is not parsed"
        return
    _agrees_with_scan(text, line)
    again = rendered(line)
    assert parse_line(again) == line, again
    if max(len(text), len(again)) > LONGEST_COMMAND:
        return
    granted = RULES.refusal(text) is None
    assert granted == (RULES.refusal(again) is None), "quotes decide whether it is granted"
    if granted:
        assert RULES.refusal(text, Level.DANGEROUS) is None, "granted, and refused at the level above"
        assert RULES.refusal(text, Level.READ_ONLY) is not None
        assert {one.argv[0] for one in line.commands} <= {"pytest", "git", "make", "ls", "cat", "cd", "rg"}


def _is_line(answer: str | None) -> None:
    if answer is not None:
        assert answer.strip(), "an empty reason"
        assert "\n" not in answer, answer


def _rule(text: str) -> None:
    try:
        CommandRules.parse((text,), (text,))
    except ConfigurationError as error:
        _is_line(str(error))


def _agrees_with_scan(text: str, line: CommandLine) -> None:
    assert scan(text) == list(line.commands), "the scanner sees other commands"


def rendered(line: CommandLine) -> str:
    """A text that means the line: everything in quotes that may be."""
    parts = [_command(line.commands[0])]
    for join, command in zip(line.joins, line.commands[1:], strict=True):
        parts += [join, _command(command)]
    return " ".join(parts)


def _command(command: SimpleCommand) -> str:
    words = []
    for word in command.assignments:
        name, equals, _ = word.pattern.partition("=")
        words.append(name + equals + _quoted(word.pattern[len(name) + 1 :]))
    words += [_word(word) for word in command.words]
    for redirect in command.redirects:
        target = redirect.target.text if redirect.copies else _word(redirect.target)
        words.append(redirect.operator + target)
    return " ".join(words)


def _word(word: Word) -> str:
    return _quoted(word.pattern) or "''"


def _quoted(pattern: str) -> str:
    kept = {STAR: "*", QUESTION: "?", "'": "\\'"}
    return "".join(kept.get(char) or f"'{char}'" for char in pattern)


TARGET = Target(
    run,
    pieces(
        "A=1 pytest -q 'a b' \"c\"d\\ e 2>&1 >> out | tail -3 || echo HEAD~1 a#b x=1",
        "cd ./src && pytest -k 'a and b' | rg -n \"x y\" ; ls ./a*/?b > o",
        "FOO='$(x)' make all",
        "git -c core.pager=x diff; git diff --ext-diff `id`",
        "f(){ f|f& };f",
        "sudo env A=1 sh -c 'bash -c \"rm -rf / \"'",
        "bash <<'E'\nrm -rf /\nE\n",
        "cat <<a <<b\nx\na\ny\nb\nls",
        "$'\\x2f\\777\\u1234'",
        "$(" * 60 + ")" * 30,
        "`" * 61,
        "sudo " * 200,
        "sh -c 'sh -c \"sh -c a\"'",
        "p '\u202e' \ue000 \x00 \udc80",
        "'A'=1 p",
        "''2>a p",
    ),
    pieces(
        *" \t\n'\"\\$`|&;<>(){}[]*?!#~=%+@^,.-:/A12ap\x00\x1b\u00e9\u2028\ue000\ue001\r",
        "pytest ", "git ", "diff ", "ls ", "cd ", "rm -rf ", "sudo ", "sh -c ", "eval ", "env ", "A=1 ", "A+=", "FOO=",
        "||", "&&", ";;", "$(", "<(", "2>&1", ">&2", ">>", "<<", "<<-", "<<<", "&>", "$'", "''", "if ", "{a,b}", "\\\n",
        "--", " -", "./", "../", "/dev/sda", "--ext-diff", "-c ", "~/", "a(){", "};a", "\\x2f", "\\777",
    ),
)  # fmt: skip

"""The reader of shell text against real shells: what the strict door accepts means to them exactly what it says."""

from __future__ import annotations

import random
import re
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.engine.policy.shell import (
    OUTPUT,
    CommandLine,
    TooManyShells,
    Unparsed,
    parse_line,
    printed_words,
    scan,
    scan_deep,
)
from tests.tables import table

if TYPE_CHECKING:
    from pathlib import Path

ALPHABET = (
    *" \t \n'\"\\$`|&;<>(){}[]*?!#~=%+@^,.-:/A12ap\x00\x1b\u00a0\u00e9\u2028\ue000\r", "p ", "p ", "p ", "p ",
    " p", "' '", '"a"', "||", "&&", "$(p)", "2>&1", ">&2", " >a", "A=1 ", "A+=1 ", "''", "\\'", "if ", "{a,b}",
    "a=~", "<<a", "<(p)", "$'a'", " -x", "\\\n", "| p ", "; p ", "a:~", "12>a", "''2>a", "--",
)  # fmt: skip
TEXTS = st.one_of(
    st.lists(st.sampled_from(ALPHABET), min_size=1, max_size=14).map("".join),
    st.lists(st.sampled_from(ALPHABET), min_size=1, max_size=14).map(lambda parts: "p " + "".join(parts)),
)
LINES_AT_ONCE = 2_500


def many_texts(seed: int) -> list[str]:
    """As `TEXTS`, but fast: one shell reads them all."""
    chance = random.Random(seed)  # noqa: S311  no secret
    parts = (chance.choices(ALPHABET, k=chance.randint(1, 14)) for _ in range(LINES_AT_ONCE))
    return [chance.choice(("p ", "p ", "")) + "".join(some) for some in parts]


# `p` says on descriptor 9 what it was given, so that pipes and redirections cannot take it away.
PROGRAM = r"""
UNIT=$(printf '\037')
p() {
  said="A=${A-}$UNIT"; for word in "$@"; do said="$said$word$UNIT"; done
  printf '%s\036' "$said" >&9
  return "$STATUS"
}
"""


def said_by_shell(shell: str, folder: Path, lines: list[str], status: int) -> list[list[list[str]]]:
    """For each line the calls of `p`, in the order of their ends, as `[A, arguments...]`."""
    script = [PROGRAM]
    for line in lines:
        quoted = line.replace("'", "'\\''")
        script.append(f"(STATUS={status}; eval '{quoted}') 9>&1 >/dev/null 2>&1 </dev/null")
        script.append("printf '\\035'")
    done = subprocess.run(
        [shell], input="\n".join(script).encode(), cwd=folder, capture_output=True, check=False, timeout=60
    )
    records = done.stdout.decode("utf-8", "surrogateescape").split("\035")[:-1]
    assert len(records) == len(lines)
    return [[call.split("\037")[:-1] for call in record.split("\036")[:-1]] for record in records]


def ours(line: CommandLine) -> list[list[str]]:
    calls = []
    for command in line.commands:
        value = "".join(word.text.partition("=")[2] for word in command.assignments)
        calls.append([f"A={value}", *command.argv[1:]])
    return calls


def harmless(line: CommandLine) -> bool:
    """Whether it can be run here: nothing but `p`, no redirection out of the folder, no files that a star finds."""
    writes = any(command.redirects for command in line.commands)
    return all(
        command.argv[0] == "p"
        and not any(word.is_glob and (writes or "/" in word.text) for word in command.words)
        and all(re.fullmatch(r"[a-z12]", redirect.target.text) for redirect in command.redirects)
        and all(word.text.startswith(("A=", "A+=")) for word in command.assignments)
        for command in line.commands
    )


def parsed(text: str) -> CommandLine | None:
    try:
        return parse_line(text)
    except Unparsed:
        return None


@pytest.mark.parametrize("shell", ["bash", "dash"])
@settings(
    max_examples=3,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**32))
def test_shells_pass_programs_exactly_the_parsed_words(
    shell: str, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    known = {text: line for text in many_texts(seed) if (line := parsed(text)) and harmless(line)}
    if shell == "dash":  # it has no +=, and its functions lose the variables in front of them
        known = {text: line for text, line in known.items() if "A" not in text}
    for status, join in ((0, "||"), (1, "&&")):
        lines = [text for text, line in known.items() if join not in line.joins]
        lines.sort(key=lambda text: ">" in text)  # a star finds no files, as none is written before it
        folder = tmp_path_factory.mktemp("shell")
        for text, calls in zip(lines, said_by_shell(shell, folder, lines, status), strict=True):
            line = known[text]
            if any("<" in redirect.operator for command in line.commands for redirect in command.redirects):
                assert all(call in ours(line) for call in calls), text  # a file to read may be missing
            elif "|" in line.joins:
                assert sorted(calls) == sorted(ours(line)), text
            else:
                assert calls == ours(line), text


@settings(max_examples=4 * settings().max_examples, deadline=None)
@given(text=TEXTS)
def test_the_scanner_finds_what_the_parser_reads(text: str) -> None:
    line = parsed(text)
    if line is None:
        scan(text)
        return
    assert scan(text) == list(line.commands)


@table(
    ("text", "found"),
    [
        ("p 'a b' | q > x", [("p", "a b"), ("q",), ">x"]),
        ("A=1 p\n! q", [("p",), ("!", "q")]),
        ("p \\ #a; q", [("p", " #a"), ("q",)]),
        ("p # a; b\nq", [("p",), ("q",)]),
        ("`p # a`; q", [("p",), ("$()",), ("q",)]),
        ("p a\r#b; q", [("p", "a", "#b"), ("q",)]),
        ('p $(q "$(r)") s', [("r",), ("q", "$()"), ("p", "$()", "s")]),
        ("(p; q) 2>x", [("p",), ("q",), ">x"]),
        ("p <<a 12>x\nb\na\nq", [("p",), ">x", ("q",)]),
        ("p <<a | sh\nb\na\nq", [("p",), ("sh",), ("sh", "-c", "\nb\n"), ("q",)]),
        ("p <<a\nb", [("p",), ("b",)]),
        ("p $'\\x2f\\057' \"a'\\\"b\" c\\\nd", [("p", "//", "a'\"b", "cd")]),
        ("p &>x >|y <>z", [("p",), ">x", ">y", ">z"]),
        ("p 'a", [("p", "a")]),
        ("1&>x p; p 2&>y", [("p",), ">x", ("p",), ">y"]),
    ],
)
def test_the_commands_of_any_text(text: str, found: list[object]) -> None:
    seen: list[object] = []
    for command in scan(text):
        seen += [command.argv] if command.words else []
        seen += [f">{redirect.target.text}" for redirect in command.redirects]
    assert seen == found


def test_commands_are_found_in_five_shells_in_one_another_and_in_twenty_of_one_text() -> None:
    def inside(shells: int, command: str) -> str:
        for _ in range(shells):
            command = shlex.join(["sh", "-c", command])
        return command

    def finds_p(text: str) -> bool | None:
        try:
            return any(found.argv == ("p",) for found in [*scan_deep(text)])
        except TooManyShells:
            return None

    assert [finds_p(inside(shells, "p")) for shells in range(9)] == [*[True] * 6, None, None, None]
    assert finds_p("; ".join([*[inside(1, "q")] * 19, inside(1, "p")])) is True
    assert finds_p("; ".join([*[inside(1, "q")] * 20, inside(1, "p")])) is None


@table(
    ("text", "why"),
    [
        ("p $(id)", "expanded"),
        ('p "$(id)"', "double quote"),
        ("p $HOME", "expanded"),
        ("p `id`", "backtick"),
        ("p <(id)", "redirection"),
        ("p >(id)", "redirection"),
        ("p\nid", "line break"),
        ("p \\\nid", "backslash"),
        ("p\rid", "line break"),
        ("p & id", "background"),
        ("p |& id", "this use of |"),
        ("(p)", "subshell"),
        ("{ p; }", "expanded"),
        ("p {a,b}", "expanded"),
        ("p [a]", "expanded"),
        ("p ~", "~ is expanded"),
        ("p a=~/b", "~ is expanded"),
        ("p a:~root", "~ is expanded"),
        ("p # a", "comment"),
        ("#", "comment"),
        ("! p", "! has a meaning"),
        ("if p", "a keyword of the shell"),
        ("'if' p", "a keyword of the shell"),
        ("time p", "a keyword of the shell"),
        ("p <<a", "redirection"),
        ("p <<<a", "redirection"),
        ("p >|a", "redirection"),
        ("p &>a", "background"),
        ("p <>a", "redirection"),
        ("p 12>a", "above 9"),
        ("p >", "no target"),
        ("p > > a", "no target"),
        ("", "missing"),
        ("p |", "missing"),
        ("| p", "missing"),
        ("p ;", "missing"),
        ("p ;; p", "this use of ;"),
        ("A=1", "missing"),
        ("'A'=1 p", "has a ="),
        ("./a=b", "has a ="),
        ("p 'a", "single quote"),
        ("p 'a\nb'", "single quote"),
        ('p "a', "double quote"),
        ("p é", "not understood"),
        ("p '\u202e'", "not printable"),
        ("p '\ue000'", "not printable"),
        ("p '\udc80'", "not printable"),
        ("p \x00", "not understood"),
        ("p '\x00'", "single quote"),
        ("p \\", "backslash"),
        ("* p", "empty or has a wildcard"),
        ("'' p", "empty or has a wildcard"),
    ],
)
def test_text_outside_of_the_language_is_an_error_with_its_reason(text: str, why: str) -> None:
    with pytest.raises(Unparsed, match=re.escape(why)):
        parse_line(text)


def test_words_operators_variables_and_redirections() -> None:
    line = parse_line("A=1 pytest -q 'a b' \"c\"d\\ e 2>&1 >> out | tail -3 || echo HEAD~1 a#b x=1")
    assert line.joins == ("|", "||")
    first, second, third = line.commands
    assert first.argv == ("pytest", "-q", "a b", "cd e")
    assert [word.text for word in first.assignments] == ["A=1"]
    assert [(found.operator, found.target.text, found.copies) for found in first.redirects] == [
        ("2>&", "1", True),
        (">>", "out", False),
    ]
    assert second.argv == ("tail", "-3")
    assert third.argv == ("echo", "HEAD~1", "a#b", "x=1")


def test_only_stars_without_quotes_look_for_files() -> None:
    words = parse_line("ls ./a* './b*' ./c\\* d?").commands[0].words
    assert [word.is_glob for word in words] == [False, True, False, False, True]
    assert [word.text for word in words] == ["ls", "./a*", "./b*", "./c*", "d?"]


def test_a_word_ends_where_a_redirection_begins() -> None:
    (command,) = parse_line("p a>b c").commands
    assert command.argv == ("p", "a", "c")


@table(
    "text, printed",
    [
        ("which a b", "b"),
        ("command -v a", "a"),
        ("command a", OUTPUT),
        ("command a -v", OUTPUT),
        ("grep -v a", OUTPUT),
        ("which", OUTPUT),
        ("command", OUTPUT),
        ("cat a", OUTPUT),
        ("echo -n a b", "a b"),
        ("! which a", "a"),
    ],
)
def test_what_a_program_prints_as_far_as_that_is_plain(text: str, printed: str) -> None:
    (command,) = scan(text)
    assert printed_words(command.words) == printed

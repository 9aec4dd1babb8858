"""The short page, the manual page, and completion as the shells themselves do it."""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING

import pytest

from orchestrator.app.cli import main
from orchestrator.app.cli.commands import GROUPS, SHELLS, commands
from orchestrator.app.options import FIRST, all_options, flag_of
from orchestrator.app.plugins import absence_of
from tests.tables import table

if TYPE_CHECKING:
    from pathlib import Path

    from _pytest.capture import CaptureFixture
    from _pytest.monkeypatch import MonkeyPatch


def printed(capsys: CaptureFixture[str], *argv: str) -> str:
    assert main(argv) == 0
    return capsys.readouterr().out


def test_nothing_typed_prints_a_page_of_one_screen(capsys: CaptureFixture[str]) -> None:
    page = printed(capsys)
    assert page == printed(capsys, "help")
    assert len(page.splitlines()) <= 41
    assert [line for line in page.splitlines() if len(line) > 80] == []
    for name in commands():
        assert page.count(f"\n  {name} ") == 1


def test_a_text_of_the_page_goes_on_below_itself_where_the_terminal_is_narrow(
    capsys: CaptureFixture[str], monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    page = printed(capsys)
    before, after = "  doctor      test what a run needs, and say how", "              to fix what is missing"
    assert f"{before}\n{after}\n" in page
    assert "  pullwright init\n      set this repository up\n" in page
    assert [line for line in page.splitlines() if len(line) > 50] == []


def test_each_command_has_a_place_on_the_page() -> None:
    placed = [name for names in GROUPS.values() for name in names]
    assert len(placed) == len(set(placed))
    assert set(commands()) <= set(placed)


def test_the_help_of_a_command_is_its_own(capsys: CaptureFixture[str]) -> None:
    assert printed(capsys, "help", "doctor") == printed(capsys, "doctor", "--help")


def test_the_help_of_run_is_one_screen_and_names_what_a_first_week_needs(capsys: CaptureFixture[str]) -> None:
    short = printed(capsys, "help", "run")
    assert len(short.splitlines()) <= 50
    assert all(len(line) <= 80 for line in short.splitlines())
    for key in FIRST:
        assert f"  {flag_of(key)}" in short
    assert "'pullwright run --help all' shows every flag." in short
    whole = printed(capsys, "help", "run", "--all")
    assert all(f"  {flag_of(key)}" in whole for key in all_options())


@table("name", [name for name in ("worker", "fleet", "memory", "mcp", "runs") if not absence_of(name)])
def test_a_command_with_actions_alone_lists_them(name: str) -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([name]) == 0
    assert out.getvalue().startswith(f"usage: pullwright {name} ")


def test_the_manual_page_has_every_command_and_option(capsys: CaptureFixture[str], tmp_path: Path) -> None:
    page = printed(capsys, "help", "--man")
    for name in (*commands(), *map(flag_of, all_options())):
        assert f"\\fB{name}".replace("-", "\\-") in page
    file = tmp_path / "pullwright.1"
    file.write_text(page)
    for words in (["mandoc", "-Tlint", "-Wwarning"], ["man", "--warnings", "-l"]):
        if shutil.which(words[0]):
            done = subprocess.run([*words, file], capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, "")


CASES = [
    (["run", "--contra"], ["--contract"]),
    (["run", "--contract", "n"], ["native"]),
    (["comp"], ["completion"]),
    (["claims", "rel"], ["release"]),
    (["claims", "show", "--js"], ["--json"]),
    (["completion", "f"], ["fish"]),
    (["help", "doc"], ["doctor"]),
]
BASH = """
source "$1"; shift
COMP_WORDS=(pullwright "$@"); COMP_CWORD=$#
_pullwright
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1='READY>'; autoload -U compinit; compinit -u -D; source $1; pullwright() :"
zpty -r shell text '*READY>*READY>*'
shift
zpty -w -n shell "pullwright ${(j: :)@}"$'\\t'
zpty -r shell text "*pullwright ${(j: :)@}*[= ]"
print -r -- "$text"
zpty -d shell
"""


@table(("words", "expected"), CASES)
def test_bash_completes(words: list[str], expected: list[str]) -> None:
    assert completed("bash", BASH, words) == expected


@table(("words", "expected"), CASES)
def test_fish_completes(words: list[str], expected: list[str]) -> None:
    asked = "source $argv[1]; complete -C (string join ' ' -- pullwright $argv[2..])"
    found = completed("fish", asked, words)
    assert [line.partition("\t")[0] for line in found] == expected


@pytest.mark.slow(reason="an interactive shell for each case")
@table(("words", "expected"), CASES)
def test_zsh_completes(words: list[str], expected: list[str]) -> None:
    assert expected[0] in " ".join(completed("zsh", ZSH, words))


def completed(shell: str, script: str, words: list[str]) -> list[str]:
    """What a shell says to a script, which is given the file of the completion and the words so far."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell}")
    with tempfile.NamedTemporaryFile("w", suffix=f".{shell}") as file:
        with contextlib.redirect_stdout(file):
            assert main(["completion", shell]) == 0
        file.flush()
        more = ["pullwright"] if shell != "fish" else []
        done = subprocess.run(
            [program, "-c", script, *more, file.name, *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_shell_that_is_not_known_is_named() -> None:
    assert main(["completion", "cmd"]) == 2
    assert set(SHELLS) == {"bash", "zsh", "fish"}

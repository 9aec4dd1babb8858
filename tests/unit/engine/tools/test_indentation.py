"""Old lines whose indentation is off by the same blanks: applied with the new lines shifted alike, or refused."""

from __future__ import annotations

import calendar
import difflib
import json.decoder
import queue
import random
import string
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import ToolError
from orchestrator.engine.tools.base import Failed, Ok
from orchestrator.engine.tools.edit import edit_text
from orchestrator.engine.tools.matching import Shift, ShiftedLines
from orchestrator.engine.tools.patches.formats import parse_unified, parse_v4a
from orchestrator.engine.tools.patches.hunks import apply_chunks
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.engine.tools.base import ToolContext

SOURCES = [
    Path(str(module.__file__)).read_text() for module in (calendar, json.decoder, queue, string, textwrap)
]
SHIFTS = ("  ", "    ", "        ", "\t")
Shifted = tuple[str, str, list[str], str, str]
"""A file, what it should become, a hunk in marked lines with a wrong indentation, and the same as old and new text."""


def _shifted(line: str, blanks: str, *, right: bool) -> str | None:
    if not line.strip():
        return line
    if right:
        return blanks + line
    return line.removeprefix(blanks) if line.startswith(blanks) else None


def _edited(lines: list[str], at: int, dice: random.Random) -> list[str]:
    """What could come in the place of the line `at`."""
    line = lines[at]
    blanks = line[: len(line) - len(line.lstrip())]
    return dice.choice(
        (
            [f"{line}  # changed" if line.strip() else f"{blanks}changed()"],
            [line, f"{blanks}added = 1", "", f"{blanks}if added:", f"{blanks}    pass"],
            [],
            [f"{blanks}if True:", f"    {line}"],
        )
    )


def hunks(count: int, seed: int) -> Iterator[Shifted]:
    """Changes to real modules, with up to three lines around, all shifted by the same blanks."""
    dice = random.Random(seed)  # noqa: S311  no secret
    while count:
        lines = dice.choice(SOURCES).splitlines()
        at, around = dice.randrange(3, len(lines) - 3), dice.randint(1, 3)
        new = _edited(lines, at, dice)
        blanks, right = dice.choice(SHIFTS), dice.random() < 0.5
        before, after = lines[at - around : at], lines[at + 1 : at + 1 + around]
        marked = [
            *(f" {line}" for line in before),
            f"-{lines[at]}",
            *(f"+{line}" for line in new),
            *(f" {line}" for line in after),
        ]
        wrong = [(line[0], _shifted(line[1:], blanks, right=right)) for line in marked]
        if any(line is None for _, line in wrong) or new == [lines[at]]:
            continue
        count -= 1
        old_text, new_text = (
            "".join(f"{line}\n" for mark, line in wrong if mark in {" ", side}) for side in "-+"
        )
        text, wanted = (
            "".join(f"{line}\n" for line in side) for side in (lines, [*lines[:at], *new, *lines[at + 1 :]])
        )
        yield text, wanted, [f"{mark}{line}" for mark, line in wrong], old_text, new_text


def _as_v4a(marked: list[str]) -> str:
    return "\n".join(["*** Begin Patch", "*** Update File: f", "@@", *marked, "*** End Patch"])


def _as_unified(text: str, wanted: str, marked: list[str]) -> str:
    """The hunk with the numbers that a correct diff has."""
    first = next(
        at
        for at, pair in enumerate(zip(text.splitlines(), wanted.splitlines(), strict=False))
        if len(set(pair)) > 1
    )
    before = next(at for at, line in enumerate(marked) if not line.startswith(" "))
    return "\n".join(["--- a/f", "+++ b/f", f"@@ -{first - before + 1} +1 @@", *marked])


def test_real_hunks_that_are_off_by_a_constant_are_applied_as_meant_or_refused() -> None:
    applied, total = 0, 0
    for text, wanted, marked, _, _ in hunks(200, seed=1):
        for changes in (
            parse_v4a(_as_v4a(marked)),
            parse_unified(_as_unified(text, wanted, marked)),
        ):
            total += 1
            try:
                got = apply_chunks("f", text, changes[0].chunks).text
            except ToolError:
                continue
            assert got == wanted, "\n".join(difflib.unified_diff(wanted.split("\n"), got.split("\n")))
            applied += 1
    assert applied > 0.9 * total


async def test_real_edits_that_are_off_by_a_constant_are_made_as_meant_or_refused(
    context: ToolContext, tmp_path: Path
) -> None:
    made, total = 0, 0
    for text, wanted, _, old, new in hunks(40, seed=2):
        (tmp_path / "f.txt").write_text(text)
        outcome = await edit_text(context, "f.txt", old, new)
        total += 1
        if isinstance(outcome, Ok):
            assert (tmp_path / "f.txt").read_text() == wanted
            assert "new_text was indented alike" in outcome.output
            made += 1
        else:
            assert (tmp_path / "f.txt").read_text() == text
    assert made > 0.8 * total  # a line or two around are not always there once


CLASS = "class A:\n    def f(self):\n        a = 1\n\n        return a\n"


@table(
    ("before", "hunk", "after", "remark"),
    [
        (CLASS, " a = 1\n \n-return a\n+b = 2\n+\n+if b:\n+    return b", f"{CLASS[:-17]}        b = 2\n\n        if b:\n            return b\n", "3, where the lines have 8 spaces more before them"),
        (CLASS, "             a = 1\n-\n-            return a\n+            return 1", f"{CLASS[:-18]}        return 1\n", "3, where the lines have 4 spaces less before them"),
        ("f:\n\tx\n\t\ty\n", " x\n-\ty\n+\tz\n+\t\tzz", "f:\n\tx\n\t\tz\n\t\t\tzz\n", "2, where the lines have 1 tab more before them"),
        ("f:\n\tx\n", "-\t\tx\n+\t\tz", "f:\n\tz\n", "2, where the lines have 1 tab less before them"),
        ("f:\r\n  x\r\n  y", "-x\n+z\n y", "f:\r\n  z\r\n  y", "2, where the lines have 2 spaces more before them"),
        ("  it\u2019s\n  x\n", "-it's\n+is\n x", "  is\n  x\n", "1, where the lines have 2 spaces more before them"),
    ],
)  # fmt: skip
def test_new_lines_are_shifted_as_the_old_ones(before: str, hunk: str, after: str, remark: str) -> None:
    edited = apply_chunks("f", before, parse_v4a(_as_v4a(hunk.split("\n")))[0].chunks)
    assert edited.text == after
    assert edited.remarks == (f"hunk 1 matched at line {remark}; its new lines were indented alike",)


@table(
    ("before", "hunk", "words"),
    [
        ("  a\n    b\n", "-a\n+A\n b", "its lines are not in the file"),
        ("\ta\n\t\tb\n", "-a\n+A\n     b", "its lines are not in the file"),
        ("a\nb\n", "-    a\n+   A\n     b", "the file's lines have 4 spaces less before them, which cannot be removed from its new line '   A'"),
        ("  a\n  b\n    a\n    b\n", "-a\n+A\n b", "more than once (lines 1, 3)"),
        ("a\nx\n  a\n", "-x\n+y\n@@\n-a\n+A", "put the hunks in the order of the file"),
        ("a\n  x\n", "-x\n+y\n*** End of File\n@@\n-a\n+A", "put the hunks in the order of the file"),
        ("a\nb\n  a\n", "-a\n+A\n*** End of File", "marked as the end of the file, but its lines are at line 1"),
        ("  \n  \n", "-\n+\n x", "its lines are not in the file"),
        ("\u00a0 a\n", "-a\n+b", "its lines are not in the file"),
    ],
)  # fmt: skip
def test_what_is_not_one_shift_in_one_place_is_refused(before: str, hunk: str, words: str) -> None:
    with pytest.raises(ToolError) as failure:
        apply_chunks("f", before, parse_v4a(_as_v4a(hunk.split("\n")))[0].chunks)
    assert words in str(failure.value)


def test_of_several_places_a_unified_diff_means_the_one_that_it_names() -> None:
    text = "  a\n  b\n    a\n    b\n"
    (change,) = parse_unified("--- a/f\n+++ b/f\n@@ -3,2 +3,2 @@\n-a\n+A\n b\n")
    assert apply_chunks("f", text, change.chunks).text == "  a\n  b\n    A\n    b\n"
    (change,) = parse_unified("--- a/f\n+++ b/f\n@@ -2,2 +2,2 @@\n-a\n+A\n b\n")
    with pytest.raises(ToolError, match="more than once"):
        apply_chunks("f", text, change.chunks)


@pytest.mark.parametrize(
    ("before", "old", "new", "after", "said"),
    [
        (CLASS, "a = 1\n\nreturn a\n", "if a:\n    return 2\n", f"{CLASS[:26]}        if a:\n            return 2\n", "the file has 8 spaces more before each line"),
        (CLASS, "            a = 1\n\n            return a", "            return 2", f"{CLASS[:26]}        return 2\n", "the file has 4 spaces less before each line"),
        (CLASS, "            return a", "            return 2", f"{CLASS[:-17]}        return 2\n", "the file has 4 spaces less before each line"),
        (CLASS, "    return a", "    if a:\n        return a", f"{CLASS[:-17]}        if a:\n            return a\n", "the file has 4 spaces more before the line"),
        ("x\r\n  a\r\n  b\r\ny\r\n", "a\nb\n", "a\n\nc\n", "x\r\n  a\r\n\r\n  c\r\ny\r\n", "2 spaces more"),
        ("x\n  a\n  b", "a\nb\n", "c\n", "x\n  c", "2 spaces more"),
        ("x\na", "x\na\n", "b\n", "b", "it differed in blanks at line ends."),
    ],
)  # fmt: skip
async def test_an_edit_is_shifted_and_says_so(  # noqa: PLR0913, PLR0917  a table
    before: str, old: str, new: str, after: str, said: str, context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "f.txt").write_bytes(before.encode())
    outcome = await edit_text(context, "f.txt", old, new)
    assert isinstance(outcome, Ok), outcome
    assert (tmp_path / "f.txt").read_bytes().decode() == after
    assert said in outcome.output


@pytest.mark.parametrize(
    ("before", "old", "new", "words"),
    [
        ("  a\n  b\n\n    a\n    b\n", "a\nb", "c", "only with other indentation, and more than once, at line 1, 4"),
        ("a\nb\n", "    a\n    b", "  c", "4 spaces less before them, which cannot be removed from new_text. These are the lines as they are:\n```\na\nb\n```"),
        ("  a\n    b\n", "a\nb", "c", "old_text is not in f.txt. The nearest is this"),
    ],
)  # fmt: skip
async def test_an_edit_that_is_not_one_shift_in_one_place_is_refused(  # noqa: PLR0913, PLR0917  a table
    before: str, old: str, new: str, words: str, context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "f.txt").write_text(before)
    outcome = await edit_text(context, "f.txt", old, new)
    assert isinstance(outcome, Failed)
    assert words in outcome.message
    assert (tmp_path / "f.txt").read_text() == before


async def test_a_number_of_places_is_that_of_exact_ones(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("  a\n  b\n")
    assert isinstance(await edit_text(context, "f.txt", "a\nb", "c", places=2), Failed)
    assert isinstance(await edit_text(context, "f.txt", "a\nb", "c", places=None), Ok)
    assert (tmp_path / "f.txt").read_text() == "  c\n"


def test_blank_lines_alone_are_in_no_place() -> None:
    assert not ShiftedLines(["", "  ", "a"]).places(["", " "])
    assert ShiftedLines(["  a", "", "  b"]).places(["a", "   ", "b"]) == [(0, Shift(added="  "))]


def test_a_text_of_the_same_lines_is_given_up_soon() -> None:
    lines = ["  same"] * 100_000
    assert not ShiftedLines(lines).places([*["same"] * 5_000, " same"])

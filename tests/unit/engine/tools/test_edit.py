"""edit_file on real files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import FileUnreadableError, PathRefusedError, ToolError
from orchestrator.engine.tools.base import Failed, Ok, ToolContext
from orchestrator.engine.tools.edit import edit_file
from orchestrator.engine.tools.matching import find_text, nearest_lines

if TYPE_CHECKING:
    from pathlib import Path


async def edit(
    context: ToolContext, old: str, new: str, *, path: str = "a.py", replace_all: bool = False
) -> Ok | Failed:
    arguments = {"path": path, "old_text": old, "new_text": new, "replace_all": replace_all}
    outcome = await edit_file().execute(arguments, context)
    assert isinstance(outcome, (Ok, Failed))
    return outcome


EXACT = "def a():\n    return 1\n\ndef b():\n    return 2\n"


async def test_an_exact_piece_is_replaced(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(EXACT)
    outcome = await edit(context, "    return 2\n", "    return 3\n    # new\n")
    assert (tmp_path / "a.py").read_text() == EXACT.replace("return 2\n", "return 3\n    # new\n")
    assert outcome == Ok(
        "Edited a.py at line 5. It now reads:\n3 | \n4 | def b():\n5 |     return 3\n6 |     # new"
    )
    assert context.ledger.touched == {"a.py"}
    assert context.ledger.shown == set()


async def test_an_empty_new_text_removes(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a\nb\nc\n")
    assert isinstance(await edit(context, "b\n", ""), Ok)
    assert (tmp_path / "a.py").read_text() == "a\nc\n"


@pytest.mark.parametrize(
    ("before", "old", "new", "after", "tolerance"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb\n", "a\nx\ny\n", b"a\r\nx\r\ny\r\nc\r\n", ""),
        (b"a\r\nb\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\n", ""),
        (b"a\nb\n", "a\r\nb\r\n", "x\r\ny\r\n", b"x\ny\n", ""),
        (b"a\nb\r\nc\n", "b", "x\ny", b"a\nx\r\ny\r\nc\n", ""),
        (b"a\nb\r\nc\n", "b\nc", "x\ny", b"a\nx\r\ny\n", ""),
        (b"a\r\nb\r\n", "\nb", "\nx", b"a\r\nx\r\n", ""),
        (b"a\r\nb\r\n", "b\r", "x\r", b"a\r\nx\r\n", "blanks at line ends"),
        (b"a\r\nb\nc\r\n", "a\nb\nc\n", "a\nn\nc\n", b"a\r\nn\nc\r\n", ""),
        (b"a  \nb\t\nc\n", "a\nb\nc", "x", b"x\n", "blanks at line ends"),
        (b"a\nb\nc\n", "a \nb  \n", "x\n", b"x\nc\n", "blanks at line ends"),
        ("say “hi” \u2013 now\n".encode(), 'say "hi" - now', "said", b"said\n", "quotes, dashes or spaces"),
        (b"it's\n", "it\u2019s", "it is", b"it is\n", "quotes, dashes or spaces"),
        ("a\u00a0b\n".encode(), "a b", "c", b"c\n", "quotes, dashes or spaces"),
        (b"\xef\xbb\xbfa\nb", "b", "c", b"\xef\xbb\xbfa\nc", ""),
        (b"a\r", "a", "b\nc", b"b\rc\r", ""),
        (b"a\rb\rc\r", "b\nc\n", "x\r\ny\n", b"a\rx\ry\r", ""),
        (b"total = count\nx\n", "count ", "n", b"total = n\nx\n", "blanks at line ends"),
        (b"a \n\nb\n", " \n\nb", "", b"a\n", ""),
        (b"\xef\xbb\xbfa\nb", "a\n", "", b"\xef\xbb\xbfb", ""),
        (b"no newline", "no", "a\nb", b"a\nb newline", ""),
        (b"a\rb\rc\r", "a\rb", "x\ry", b"x\ry\rc\r", ""),
        # What the model does not change keeps the file's own characters.
        (
            "s = “x”; n = 1\n".encode(),
            's = "x"; n = 1',
            's = "x"; n = 2',
            "s = “x”; n = 2\n".encode(),
            "quotes, dashes or spaces",
        ),
        (
            "a\u00a0= 1\nb = 2\n".encode(),
            "a = 1\nb = 2",
            "a = 1\nb = 3",
            "a\u00a0= 1\nb = 3\n".encode(),
            "quotes, dashes or spaces",
        ),
        (
            "“a”\nb\n“c”\n".encode(),
            '"a"\nb\n"c"',
            '"a"\nx\ny\n"c"',
            "“a”\nx\ny\n“c”\n".encode(),
            "quotes, dashes or spaces",
        ),
        ("“a” b\n".encode(), '"a" b', "'a' b", b"'a' b\n", "quotes, dashes or spaces"),
        (b"a  \nb\n", "a\nb", "a\nc", b"a  \nc\n", "blanks at line ends"),
    ],
)
async def test_what_is_overlooked_is_said_and_the_rest_stays(  # noqa: PLR0913, PLR0917  a table
    before: bytes, old: str, new: str, after: bytes, tolerance: str, context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_bytes(before)
    outcome = await edit(context, old, new)
    assert isinstance(outcome, Ok), outcome
    assert (tmp_path / "a.py").read_bytes() == after
    if tolerance:
        assert f"not there exactly: it differed in {tolerance}." in outcome.output
    else:
        assert "exactly" not in outcome.output


async def test_the_mode_stays(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a\n")
    (tmp_path / "a.py").chmod(0o750)
    await edit(context, "a", "b")
    assert (tmp_path / "a.py").stat().st_mode & 0o777 == 0o750


async def test_more_than_one_place_needs_more_text_or_all(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\ny = 2\nx = 1\n")
    assert await edit(context, "x = 1", "x = 3") == Failed(
        "old_text is in a.py 2 times, at line 1, 3. Add lines around it until it is there once, or set replace_all."
    )
    assert isinstance(await edit(context, "x = 1", "x = 3", replace_all=True), Ok)
    assert (tmp_path / "a.py").read_text() == "x = 3\ny = 2\nx = 3\n"


async def test_a_place_that_overlaps_itself_is_not_unique(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("aaa\n")
    outcome = await edit(context, "aa", "b")
    assert isinstance(outcome, Failed)
    assert "overlapping" in outcome.message


async def test_the_nearest_lines_are_shown(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("".join(f"def f{n}(x):\n    return x + {n}\n\n" for n in range(30)))
    outcome = await edit(context, "def f17(x):\n    return x * 17\n", "pass\n")
    assert isinstance(outcome, Failed)
    assert "52 | def f17(x):\n53 |     return x + 17" in outcome.message
    outcome = await edit(context, "    retrun x + 17", "pass")
    assert isinstance(outcome, Failed)
    assert "53 |     return x + 17" in outcome.message
    outcome = await edit(context, "§§§§ nothing like it §§§§", "pass")
    assert isinstance(outcome, Failed)
    assert "nor anything like it" in outcome.message
    assert context.ledger.touched == set()


async def test_a_missing_or_empty_file_is_created_by_an_empty_old_text(
    context: ToolContext, tmp_path: Path
) -> None:
    assert await edit(context, "", "a\nb\n", path="new/a.py") == Ok("Created new/a.py: 2 lines.")
    assert (tmp_path / "new/a.py").read_text() == "a\nb\n"
    (tmp_path / "a.py").touch()
    assert isinstance(await edit(context, "", "a\n"), Ok)
    assert context.ledger.shown == context.ledger.touched == {"new/a.py", "a.py"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("same", "same", "the same"),
        ("", "x", "old_text is empty, but a.py is not"),
        ("a \n", "a\n", "would not change"),
        ("  \n \t", "x", "nor anything like it"),
    ],
)
async def test_edits_that_make_no_sense(
    old: str, new: str, message: str, context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("a\nb\n")
    outcome = await edit(context, old, new)
    assert isinstance(outcome, Failed)
    assert message in outcome.message
    assert (tmp_path / "a.py").read_text() == "a\nb\n"


async def test_a_missing_file_is_not_edited(context: ToolContext) -> None:
    outcome = await edit(context, "a", "b")
    assert isinstance(outcome, Failed)
    assert "a.py does not exist" in outcome.message


async def test_what_cannot_be_edited(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"a\0")
    with pytest.raises(FileUnreadableError, match=r"a\.py cannot be edited: a\.py is a binary file"):
        await edit(context, "a", "b")
    (tmp_path / "a.py").write_bytes(b"a\xe9")
    with pytest.raises(FileUnreadableError, match="not UTF-8"):
        await edit(context, "a", "b")
    (tmp_path / "link").symlink_to("a.py")
    with pytest.raises(PathRefusedError):
        await edit(context, "a", "b", path="link")
    with pytest.raises(ToolError, match="surrogate"):
        await edit(context, "a", "\ud800")


@pytest.mark.parametrize(
    ("before", "old"),
    [
        ("counter = 1\n", "count "),
        ("counter = 1\n", "count \t"),
        ("def counter():\n    pass\n", "def count "),
        ("x = it\u2019s counter\n", "it's count "),
        ("a\nbc\n", "a \nb "),
        ("recount = 1\n", " count"),
        ("a\nb\n", "  \nb"),
        ("say a\n\u201cb\n", '\t\n"b'),
    ],
)
async def test_blanks_part_words(before: str, old: str, context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(before)
    assert isinstance(await edit(context, old, "total"), Failed)
    assert (tmp_path / "a.py").read_text() == before


NUMBERED = "copy the text without the numbers"


async def test_an_edit_that_fails_again_is_answered_with_the_lines_as_they_are(
    context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("def a():\n\treturn  1\n\ndef b():\n    return 2\n")
    wrong = "def a():\n    return 1\n\ndef b():"
    first = await edit(context, wrong, "x")
    assert isinstance(first, Failed)
    assert NUMBERED in first.message
    copied = ""
    for old, new in ((wrong, "x"), (wrong, "y"), (f"{wrong} ", "x")):
        again = await edit(context, old, new)
        assert isinstance(again, Failed)
        copied = again.message.split("```")[1].strip("\n")
        assert "You have sent similar text before; do not send it again." in again.message
        assert "fences, or use a few of them:\n```\ndef a():\n\treturn  1\n\ndef b():\n```\n" in again.message
        assert "in old_text, line 2: '    return 1'\nin the file, line 2: '\\treturn  1'" in again.message
    assert isinstance(await edit(context, copied, "def b():"), Ok)
    assert isinstance(other := await edit(context, wrong, "x"), Failed)
    assert NUMBERED in other.message


async def test_an_edit_in_several_places_that_comes_again_is_told_how_they_differ(
    context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("if a:\n    x = 1\nif b:\n    x = 1\n")
    assert isinstance(await edit(context, "x = 1", "x = 3"), Failed)
    again = await edit(context, "x = 1", "x = 3")
    assert isinstance(again, Failed)
    assert "From line 1 on:\n```\nif a:\n    x = 1\nif b:\n```" in again.message
    assert "From line 3 on:\n```\nif b:\n    x = 1\n```" in again.message


async def test_lines_that_hold_a_fence_are_in_a_longer_one(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("````py\nfirst line\n````\n")
    await edit(context, "```py\nfirst lime\n```", "x", path="a.md")
    again = await edit(context, "```py\nfirst lime\n```", "x", path="a.md")
    assert isinstance(again, Failed)
    assert "\n`````\n````py\nfirst line\n````\n`````\n" in again.message


def test_large_files_are_searched() -> None:
    assert not find_text(" " * 1_000_000 + "x\n", "y   \n").spans
    lines = [f"line {n}" for n in range(200_000)]
    assert nearest_lines(lines, ["line 77", "lime 78"]) == (77, 79)
    assert nearest_lines(["same"] * 200_000, ["same"] * 5_000 + ["other"]) is not None
    nearest_lines(["x" * 5_000] * 20_000, ["y" * 5_000])


@given(st.text("ab \t\r\n“-\u2013", max_size=30), st.text('ab \t\r\n"-', min_size=1, max_size=6))
def test_places_are_in_the_text_apart_and_alike(text: str, old: str) -> None:
    found = find_text(text, old)
    end = 0
    for start, stop in found.spans:
        assert end <= start < stop <= len(text)
        end = stop
        if not found.tolerance:
            assert text[start:stop] == old
    assert bool(found.spans) or old not in text


@given(st.text("ab \t\n\u2019'", max_size=24), st.text("ab \t\n'", min_size=1, max_size=8))
def test_words_that_blanks_part_stay_apart(text: str, old: str) -> None:
    """What is overlooked is before a line end, in the file and in the old text."""
    for start, stop in find_text(text, old).spans:
        assert text[start:stop].replace("\u2019", "'").split() == old.split()
        for outside, inside in (
            (text[stop : stop + 1], old[-1]),
            (text[start - 1 : start] if start else "", old[0]),
        ):
            if inside in " \t" and not outside.isspace() and outside:
                assert text[start:stop][0 if inside is old[0] else -1].isspace()

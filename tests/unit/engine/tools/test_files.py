"""read_file and write_file on real files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import FileMissingError, FileUnreadableError, PathRefusedError, ToolError
from orchestrator.engine.tools.base import Failed, Ok, ToolContext, ToolOutcome
from orchestrator.engine.tools.files import MAX_SHOWN_CHARS, lines_left_out, read_file, write_file
from orchestrator.engine.tools.textfile import lines_of

if TYPE_CHECKING:
    from pathlib import Path


async def read(context: ToolContext, path: str, **rest: int) -> str:
    outcome = await read_file().execute({"path": path, **rest}, context)
    assert isinstance(outcome, Ok)
    return outcome.output


async def write(context: ToolContext, path: str, content: str) -> ToolOutcome:
    return await write_file().execute({"path": path, "content": content}, context)


async def written(context: ToolContext, path: str, content: str) -> str:
    outcome = await write(context, path, content)
    assert isinstance(outcome, Ok), outcome
    return outcome.output


async def refused(context: ToolContext, path: str, content: str) -> str:
    outcome = await write(context, path, content)
    assert isinstance(outcome, Failed), outcome
    return outcome.message


async def test_lines_are_numbered_from_one(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\n  three\x0c\u2028x\n")
    assert await read(context, "./a.txt") == "1 | one\n2 | \n3 |   three\x0c\u2028x"
    assert context.ledger.shown == {"a.txt"}


async def test_a_part_does_not_count_as_shown(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, 3_001)))
    assert await read(context, "a.txt", offset=2, limit=2) == (
        "2 | line 2\n3 | line 3\n[lines 2 to 3 of 3000; go on with offset 4]"
    )
    assert (await read(context, "a.txt")).endswith(
        "2000 | line 2000\n[lines 1 to 2000 of 3000; go on with offset 2001]"
    )
    assert (await read(context, "a.txt", offset=3_000)).endswith(
        "3000 | line 3000\n[lines 3000 to 3000 of 3000]"
    )
    assert context.ledger.shown == set()
    await read(context, "a.txt", limit=3_000)
    assert context.ledger.shown == {"a.txt"}


async def test_a_file_longer_than_what_a_model_is_shown_does_not_count_as_shown(
    context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text(f"{'x' * 1_000}\n" * 60)
    await read(context, "a.txt")
    assert context.ledger.shown == set()


async def test_a_long_line_is_cut(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("y" * 5_000 + "\n")
    assert await read(context, "a.txt") == f"1 | {'y' * 2_000} [... 3,000 more characters of this line]"
    assert context.ledger.shown == set()


async def test_remarks_on_line_ends(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "crlf").write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")
    (tmp_path / "mixed").write_bytes(b"a\r\nb\n")
    (tmp_path / "open").write_bytes(b"a\nb")
    assert await read(context, "crlf") == "1 | a\n2 | b\n[line ends are CR LF]"
    assert await read(context, "mixed") == "1 | a\n2 | b\n[line ends are mixed]"
    assert await read(context, "open") == "1 | a\n2 | b\n[no line end after the last line]"


async def test_an_empty_file_is_said_to_be(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert await read(context, "a") == "a is empty."


async def test_what_cannot_be_read(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "bin").write_bytes(b"a\0b")
    (tmp_path / "latin").write_bytes(b"\xcc\xe8\xf0\xe9\n")
    (tmp_path / "short").write_text("a\n")
    with (tmp_path / "big").open("wb") as file:
        file.truncate(200_000_000)
    with pytest.raises(FileUnreadableError, match=r"bin is a binary file \(3 bytes\)"):
        await read(context, "bin")
    with pytest.raises(FileUnreadableError, match=r"latin is not UTF-8 text \(5 bytes, byte 0 is 0xcc\)"):
        await read(context, "latin")
    with pytest.raises(FileUnreadableError, match=r"200,000,000 bytes.*grep"):
        await read(context, "big")
    with pytest.raises(FileUnreadableError, match="200,000,000 bytes"):
        await read(context, "big", offset=1)
    assert "ends with line 1" in await read(context, "short", offset=2)
    with pytest.raises(FileMissingError):
        await read(context, "missing")
    with pytest.raises(PathRefusedError):
        await read(context, "/proc/self/environ")
    assert context.ledger.shown == set()


async def test_a_part_of_a_file_over_10_mb_is_read(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"0123456789abcde\n" * 1_000_000)
    with pytest.raises(FileUnreadableError, match="or read a part"):
        await read(context, "big")
    assert (await read(context, "big", offset=999_999, limit=1)).startswith("999999 | 0123456789abcde\n")


async def test_a_new_file_is_written_with_its_folders(context: ToolContext, tmp_path: Path) -> None:
    assert await written(context, "a/b/c.txt", "one\ntwo") == "Created a/b/c.txt: 7 bytes, 2 lines."
    assert (tmp_path / "a/b/c.txt").read_bytes() == b"one\ntwo"
    assert context.ledger.touched == context.ledger.shown == {"a/b/c.txt"}


async def test_a_file_that_was_not_shown_is_shown_instead_of_replaced(
    context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("old text\n")
    outcome = await write(context, "a.txt", "new\n")
    assert isinstance(outcome, Failed)
    assert outcome.message.endswith("\n\nold text\n")
    assert "edit_file" in outcome.message
    assert outcome.cut_as == "read_file"
    assert (tmp_path / "a.txt").read_text() == "old text\n"
    assert context.ledger.touched == set()
    assert await written(context, "a.txt", "new\n") == "Replaced a.txt: 4 bytes, 1 lines."
    assert (tmp_path / "a.txt").read_text() == "new\n"


async def test_a_file_too_long_to_be_shown_is_left_to_edit_file(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n" * MAX_SHOWN_CHARS)
    for _ in range(2):
        message = await refused(context, "a.txt", "new\n")
        assert "edit_file" in message
        assert len(message) < 500


async def test_a_file_that_was_read_is_replaced_at_once(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old\n")
    await read(context, "a.txt")
    await written(context, f"{tmp_path}/a.txt", "new\n")
    assert context.ledger.touched == {"a.txt"}


async def test_taking_more_than_half_of_the_lines_needs_the_same_call_twice(
    context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("line\n" * 21)
    await read(context, "a.txt")
    assert "has 21 lines and your content only 10" in await refused(context, "a.txt", "line\n" * 10)
    assert "edit_file" in await refused(context, "a.txt", "other\n" * 10)
    await written(context, "a.txt", "line\n" * 10)
    assert (tmp_path / "a.txt").read_text() == "line\n" * 10


@pytest.mark.parametrize("mark", ["[redacted]", "<U+200B>"])
async def test_what_stands_for_text_that_was_not_shown_is_written_at_the_second_call(
    mark: str, context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("key = 1\n" * 21)
    await read(context, "a.txt")
    assert "which stands for text that you were not shown" in await refused(
        context, "a.txt", f"key = {mark}\n"
    )
    await written(context, "a.txt", f"key = {mark}\n")
    await written(context, "a.txt", f"x = {mark}\n")  # it is there already
    await written(context, "new.txt", mark)


@pytest.mark.parametrize(("before", "after"), [(20, 1), (21, 11), (40, 20)])
async def test_smaller_cuts_pass_at_once(
    before: int, after: int, context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("line\n" * before)
    await read(context, "a.txt")
    await written(context, "a.txt", "line\n" * after)


async def test_the_same_content_is_not_written(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"same\r\n")
    before = (tmp_path / "a.txt").stat()
    assert "unchanged" in await written(context, "a.txt", "same\n")
    assert (tmp_path / "a.txt").stat().st_ino == before.st_ino
    assert context.ledger.touched == set()


async def test_line_ends_and_mark_of_the_file_stay(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    await read(context, "a.txt")
    await written(context, "a.txt", "one\nTWO")
    assert (tmp_path / "a.txt").read_bytes() == b"\xef\xbb\xbfone\r\nTWO"


async def test_files_that_are_not_replaced(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "bin").write_bytes(b"a\0")
    (tmp_path / "latin").write_bytes(b"\xe9")
    (tmp_path / "large").write_bytes(b"x" * 1_000_001)
    for name, reason in (("bin", "binary"), ("latin", "not UTF-8"), ("large", "1,000,001 bytes")):
        context.ledger.shown.add(name)
        with pytest.raises(FileUnreadableError, match=f"{name} is not replaced: .*{reason}"):
            await write(context, name, "text")


async def test_content_that_is_no_text(context: ToolContext) -> None:
    with pytest.raises(ToolError, match="half of a surrogate pair at character 2"):
        await write(context, "a.txt", "ab\ud83d")
    with pytest.raises(ToolError, match="NUL"):
        await write(context, "a.txt", "ab\0")
    with pytest.raises(ToolError, match="names a folder"):
        await write(context, "a/", "text")
    with pytest.raises(PathRefusedError):
        await write(context, ".git/hooks/pre-commit", "#!/bin/sh")
    assert await context.environment.list_directory(".", depth=1) == []


THREE = '"""Three."""\n\n\ndef a():\n    return 1\n\n\ndef b():\n    return 2\n\n\ndef c():\n    return 3\n'


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (THREE, ""),
        (THREE.replace("return 3", "return 4"), ""),
        (
            THREE[: THREE.index("\n\n\ndef c")].replace("return 2", "return 20"),
            "\n\n\ndef c():\n    return 3\n",
        ),
        (THREE[: THREE.index("\n\n\ndef b")], ""),  # with what follows the file as it was: refused
        ('"""Three."""\n\n\ndef a():\n    return 10\n\n\n\n\n', THREE[THREE.index("\n\n\ndef b") :]),
        (THREE.removesuffix("    return 3\n"), ""),  # in the middle of a function: taken out on purpose
        (THREE + "\n\ndef d():\n    return 4\n", ""),
        ("def c():\n    return 3\n\n\ndef b():\n    return 2\n\n\ndef a():\n    return 1\n", ""),  # moved
        ("import sys\n\nprint(sys.argv)\n", ""),
        ("", ""),
    ],
)
async def test_the_rest_of_a_file_that_a_small_model_left_out_is_kept(
    context: ToolContext, tmp_path: Path, content: str, kept: str
) -> None:
    (tmp_path / "a.py").write_text(THREE)
    context.ledger.shown.add("a.py")
    outcome = await write_file(keeps_tail=True).execute({"path": "a.py", "content": content}, context)
    there = (tmp_path / "a.py").read_text()
    if not isinstance(outcome, Ok):
        assert there == THREE
        assert not kept
        return
    assert there == (content.rstrip() + kept if kept else content)
    assert ("were kept" in outcome.output) == bool(kept)


@given(
    st.lists(st.sampled_from(["def a():", "    return 1", "", "x = 1", "    y", "#", ")"]), max_size=12),
    st.text(),
)
def test_what_is_left_out_is_the_end_of_the_file_and_not_in_the_content(
    lines: list[str], content: str
) -> None:
    old = "\n".join(lines)
    for text in (content, *("\n".join(lines[:count]) for count in range(len(lines)))):
        count = lines_left_out(old, text)
        assert 0 <= count < max(len(lines_of(old)), 1)
        assert not count or not (
            set(filter(None, lines_of(old)[-count:])) & {"def a():", "x = 1"} & set(text.splitlines())
        )


@pytest.mark.parametrize(("count", "kept"), [(50, 198), (150, 0)])
def test_what_is_left_out_of_a_long_file_or_by_a_long_content_is_not_looked_for(
    count: int, kept: int
) -> None:
    functions = [f"def f{number}():\n    return {number}\n\n\n" for number in range(count)]
    assert (
        lines_left_out("".join(functions), functions[0].rstrip().replace("return 0", "return zero")) == kept
    )
    # Comparing so many lines of two kinds would take hours.
    assert lines_left_out("    0,\n    1,\n" * 1_000, "    1,\n    1,\n    0,\n" * 50_000) == 0
    assert lines_left_out("    0,\n    1,\n" * 100, "    1,\n    1,\n    0,\n" * 50_000) == 0
    assert lines_left_out("01" * 200_000 + "\n\n\nx = 1\ny = 2\nz = 3\n", "10" * 99) == 5


async def test_a_file_is_not_replaced_by_another_one_until_it_is_said_twice(
    context: ToolContext, tmp_path: Path
) -> None:
    four = THREE + "\n\ndef d():\n    return 4\n"
    (tmp_path / "a.py").write_text(four)
    context.ledger.shown.add("a.py")
    other = "class Account:\n    def __init__(self):\n        self.balance = 0\n"
    assert "of its 9 different lines your content has 0" in await refused(context, "a.py", other)
    assert (tmp_path / "a.py").read_text() == four
    await written(context, "a.py", other)
    assert (tmp_path / "a.py").read_text() == other

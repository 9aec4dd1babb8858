"""read_file and read_many_files of the coding agent loop specification: long files, images, what is no text."""

from __future__ import annotations

import gzip
import sqlite3
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.messages import Image
from orchestrator.engine.tools.base import Failed, Ok, ToolContext, truncate
from orchestrator.engine.tools.files import (
    MAX_FILES,
    MAX_IMAGE_BYTES,
    read_file,
    read_many_files,
    read_text_or_image,
)
from orchestrator.engine.tools.registry import argument_problems
from orchestrator.engine.tools.search import grep
from tests.doubles.pdf_files import pdf
from tests.unit.engine.tools.test_profile_tools import checked, failure, told

if TYPE_CHECKING:
    from pathlib import Path


def png() -> bytes:
    """One black pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(b"\0\0"))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")


IMAGES = [
    (png(), "image/png"),
    (b"\xff\xd8\xff\xe0\x00\x10JFIF\x00", "image/jpeg"),
    (b"GIF89a\x01\x00\x01\x00", "image/gif"),
    (b"GIF87a\x01\x00\x01\x00", "image/gif"),
    (b"RIFF\x24\x00\x00\x00WEBPVP8 ", "image/webp"),
]


@pytest.mark.parametrize(("data", "media_type"), IMAGES)
async def test_an_image_is_handed_over_whatever_its_name(
    data: bytes, media_type: str, context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "logo.txt").write_bytes(data)
    outcome = await checked(read_text_or_image(), context, {"file_path": "logo.txt"})
    assert outcome == Ok(
        f"logo.txt is an image ({media_type}, {len(data)} bytes).", images=(Image(data, media_type),)
    )
    assert await checked(read_file(), context, {"path": "logo.txt"}) == outcome
    assert context.ledger.shown == set()


async def test_a_large_image_is_refused(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png() + b"\0" * MAX_IMAGE_BYTES)
    message = await failure(read_text_or_image(), context, file_path="a.png")
    assert "a.png is an image (image/png)" in message
    assert "the limit is 5,000,000" in message


def archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a", "b")


def database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("create table a (b)")
    connection.close()


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (archive, "a ZIP archive"),
        (database, "an SQLite database"),
        (lambda path: path.write_bytes(gzip.compress(b"text")), "gzip data"),
        (lambda path: path.write_bytes(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"), "a is a damaged PDF document: "),
        (lambda path: path.write_bytes(b"\x7fELF\x02\x01\x01\0"), "an ELF program"),
        (lambda path: path.write_bytes(b"\xff\xfetext!"[:-2] + b"\x00\xd8"), "UTF-16 text"),
        (lambda path: path.write_bytes(b"RIFF\x24\x00\x00\x00WAVEfmt "), "binary file ("),
        (lambda path: path.write_bytes(b"a\0b"), "binary file (3 bytes)"),
        (lambda path: path.write_bytes(b"\xcc\xe8\xf0\xe9"), "not UTF-8 text (4 bytes, byte 0 is 0xcc)"),
    ],
)
async def test_what_is_no_text_is_refused_as_what_it_is(
    make: Any, kind: str, context: ToolContext, tmp_path: Path
) -> None:
    make(tmp_path / "a")
    assert kind in await failure(read_text_or_image(), context, file_path="a")


async def test_the_beginning_of_a_binary_file_does_not_make_text_binary(
    context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("MZ is the mark of a Windows program\n")
    (tmp_path / "b").write_text("%PDF-1.7 written by hand\n")
    for name in ("a", "b"):
        assert (await told(read_text_or_image(), context, file_path=name)).startswith("1 | ")


async def test_a_pdf_document_comes_in_numbered_pages(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "manual").write_bytes(pdf(["one\ntwo", "x" * 40_000, "y" * 40_000]))
    answer = await told(read_file(), context, path="manual")
    assert answer.startswith(
        "manual is a PDF document of 3 pages.\n\n=== page 1 of 3 ===\none\ntwo\n\n=== page 2 of 3"
    )
    assert answer.endswith("x\n\n[pages 1 to 2 of 3; go on with offset 3]")
    assert truncate(answer, "read_file") == answer
    second = await told(read_text_or_image(), context, file_path="manual", offset=1, limit=1)
    assert second.endswith("=== page 1 of 3 ===\none\ntwo\n\n[pages 1 to 1 of 3; go on with offset 2]")
    assert "nothing from page 4 on" in await told(read_file(), context, path="manual", offset=4)
    assert context.ledger.shown == set()


async def test_a_long_line_is_whole_in_the_answer_and_cut_when_shown(
    context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "big.txt").write_text("x" * 100_000)
    answer = await told(read_text_or_image(), context, file_path="big.txt")
    assert "x" * 100_000 in answer
    assert "[line 1 alone has 100,000 characters" in answer
    assert "[WARNING: Tool output was truncated." in truncate(answer, "read_file")
    assert context.ledger.shown == set()


async def test_two_lines_of_10_mb(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"head," + b"x" * 10_000_000 + b"\ntail," + b"y" * 10_000_000 + b"\n")
    answer = await told(read_text_or_image(), context, file_path="a.csv")
    shown = truncate(answer, "read_file")
    assert len(shown) < 51_000
    assert shown.startswith("1 | head,xxx")
    assert "alone has 10,000,005 characters" in shown
    second = await told(read_text_or_image(), context, file_path="a.csv", offset=2, limit=1)
    assert truncate(second, "read_file").startswith("2 | tail,yyy")
    found = await told(grep("core/grep"), context, pattern="^tail")
    assert found.startswith("a.csv:2: tail,yyy")
    assert len(found) < 1_000


async def test_2000_lines_by_default(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\n" * 2_001)
    answer = await told(read_text_or_image(), context, file_path="a")
    assert answer.endswith("2000 | x\n[lines 1 to 2000 of 2001; go on with offset 2001]")
    assert await told(read_text_or_image(), context, file_path="a", offset=2_001.0) == (
        "2001 | x\n[lines 2001 to 2001 of 2001]"
    )
    assert "ends with line 2001" in await told(read_text_or_image(), context, file_path="a", offset=2_002)


async def test_a_file_over_the_cap_says_what_to_do(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789abcde\n" * 1_600_000)
    message = await failure(read_text_or_image(), context, file_path="a")
    assert "a is 25,600,000 bytes" in message
    assert "read a part of it with offset and limit" in message
    assert (await told(read_text_or_image(), context, file_path="a", offset=1_600_000)).startswith(
        "1600000 | 0123"
    )
    with (tmp_path / "b").open("wb") as file:
        file.truncate(60_000_000)
    assert "60,000,000 bytes" in await failure(read_text_or_image(), context, file_path="b", offset=1)


async def test_many_files_in_one_answer(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/b.py").write_text("b\n")
    (tmp_path / "src/a.py").write_text("a\n")
    (tmp_path / "[x].md").write_text("x\n")
    (tmp_path / "logo").write_bytes(png())
    (tmp_path / "bin").write_bytes(b"a\0")
    paths = ["[x].md", "src/*.py", "./src/a.py", "logo", "bin", "nope.py", "../out", "*.none", "/etc/*"]
    outcome = await checked(read_many_files(), context, {"paths": paths})
    assert isinstance(outcome, Ok)
    assert outcome.output == (
        "=== [x].md ===\n1 | x\n\n"
        "=== src/a.py ===\n1 | a\n\n"
        "=== src/b.py ===\n1 | b\n\n"
        f"=== logo ===\nlogo is an image (image/png, {len(png())} bytes).\n\n"
        "=== bin ===\nbin is a binary file (2 bytes)\n\n"
        "=== nope.py ===\nnope.py does not exist.\n\n"
        "=== ../out ===\n../out is refused: it leaves the repository; use a path inside it\n\n"
        "=== *.none ===\nNo file matches this pattern.\n\n"
        "=== /etc/* ===\n/etc/* is refused: it is outside the repository; use a path relative to its root"
    )
    assert outcome.images == (Image(png(), "image/png"),)
    assert context.ledger.shown == {"[x].md", "src/a.py", "src/b.py"}


async def test_what_would_make_the_answer_too_long_is_named(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a\n")
    (tmp_path / "b").write_text("b" * 60_000)
    (tmp_path / "c").write_text("c\n")
    answer = await told(read_many_files(), context, paths=["a", "b", "c"])
    assert answer == (
        "=== a ===\n1 | a\n\n=== c ===\n1 | c\n\n"
        "[not shown, because the answer would be too long: b. Read them in another call.]"
    )
    assert context.ledger.shown == {"a", "c"}
    alone = await told(read_many_files(), context, paths=["b", "c"])
    assert "b" * 60_000 in alone
    assert alone.endswith("too long: c. Read them in another call.]")
    assert len(truncate(alone, "read_many_files")) < 51_000


async def test_a_file_left_out_does_not_count_as_shown(context: ToolContext, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("0123456789\n" * 1_900)
    await told(read_many_files(), context, paths=["a", "b"])
    assert context.ledger.shown == {"a"}
    context.ledger.shown.add("b")
    await told(read_many_files(), context, paths=["a", "b"])
    assert context.ledger.shown == {"a", "b"}


async def test_many_files_have_their_limits(context: ToolContext, tmp_path: Path) -> None:
    for number in range(MAX_FILES + 25):
        (tmp_path / f"{number:03}").write_text("x\n")
    answer = await told(read_many_files(), context, paths=["*"])
    assert answer.count("=== ") == MAX_FILES
    assert "too long: 100, 101" in answer
    assert "119 and 5 more." in answer
    (tmp_path / "images").mkdir()
    for number in range(7):
        (tmp_path / f"images/{number}.png").write_bytes(png())
    outcome = await checked(read_many_files(), context, {"paths": ["images/*"]})
    assert isinstance(outcome, Ok)
    assert len(outcome.images) == 5
    assert "too long: images/5.png, images/6.png." in outcome.output


async def test_nothing_that_can_be_read_is_a_failure(context: ToolContext) -> None:
    outcome = await checked(read_many_files(), context, {"paths": ["a", "*.b"]})
    assert isinstance(outcome, Failed)
    assert "a does not exist" in outcome.message
    assert argument_problems({"paths": []}, read_many_files().definition)

"""PDF documents: numbered pages, and one clear line for each that cannot be read."""

from __future__ import annotations

import sys
import zlib
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import FileUnreadableError
from orchestrator.engine.environments.limited_child import in_child, pdf_pages
from orchestrator.engine.tools.base import OTHER_MAX_CHARS
from orchestrator.engine.tools.pdf import PageRange, PdfPages, pdf_extract_text, read_pdf, shown_pages
from orchestrator.engine.tools.textfile import is_pdf
from tests.doubles.pdf_files import pdf
from tests.tables import table
from tests.unit.engine.tools.test_profile_tools import told

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.engine.tools.base import ToolContext

THREE = pdf(["First page (one)\nwith two lines", "", "Third \\ page"])
EVERYTHING = {"first": 1, "most_pages": 100, "most_characters": 10_000, "seconds": 60.0}


async def test_the_text_of_each_page_in_a_process_of_its_own() -> None:
    assert is_pdf(THREE)
    found = await read_pdf("a.pdf", THREE)
    assert found == PdfPages(3, 1, ("First page (one)\nwith two lines", "", "Third \\ page"))
    assert shown_pages(found) == (
        "=== page 1 of 3 ===\nFirst page (one)\nwith two lines\n\n"
        "=== page 2 of 3 ===\n[no text on this page, only pictures]\n\n"
        "=== page 3 of 3 ===\nThird \\ page"
    )


@table(
    "asked, texts, cut",
    [
        ({"first": 3}, ["Third \\ page"], 0),
        ({"first": 4}, [], 0),
        ({"most_pages": 1}, ["First page (one)\nwith two lines"], 0),
        # The page without text still fits, and the third one does not.
        ({"most_characters": 31 + 2 * 70}, ["First page (one)\nwith two lines", ""], 0),
        ({"most_characters": 75}, ["First"], 26),
        ({"most_characters": 100}, ["First page (one)\nwith two line"], 1),
        ({"seconds": -1.0}, ["First page (one)\nwith two lines"], 0),
    ],
)
def test_as_many_pages_as_fit(asked: dict[str, float], texts: list[str], cut: int) -> None:
    found = pdf_pages(THREE, **{**EVERYTHING, **asked})  # type: ignore[arg-type]
    assert found == {"total": 3, "texts": texts, "cut": cut}


ENCRYPTED = "a.pdf is an encrypted PDF document: it cannot be read without its password"
NO_TEXT = "a.pdf is a PDF document without text to be read: its 2 pages have no text, only pictures"


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (pdf(["secret"], password="x"), ENCRYPTED),
        (pdf(["secret"], password="x", algorithm="RC4-128"), ENCRYPTED),
        (b"%PDF-1.7\n" + b"\xff\x00rubbish" * 50, "a.pdf is a damaged PDF document: "),
        (THREE[: len(THREE) // 3], "a.pdf is a damaged PDF document: "),
        (pdf(["", ""]), NO_TEXT),
        (
            pdf([""]),
            "a.pdf is a PDF document without text to be read: its only page has no text, only pictures",
        ),
    ],
    ids=["aes", "rc4", "rubbish", "cut", "pictures", "picture"],
)
async def test_what_cannot_be_read_is_said_in_one_line(data: bytes, line: str) -> None:
    with pytest.raises(FileUnreadableError) as caught:
        await read_pdf("a.pdf", data)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


async def test_what_takes_too_long_is_stopped() -> None:
    with pytest.raises(
        FileUnreadableError, match=r"^a\.pdf is a PDF document that cannot be read within 0\.01 s"
    ):
        await read_pdf("a.pdf", THREE, seconds=0.01)


async def test_a_small_document_that_unpacks_to_much_is_one_clear_line() -> None:
    packed = zlib.compress(zlib.compress(b"0 g " * 50_000_000, 1), 9)
    assert len(packed) < 5_000
    with pytest.raises(FileUnreadableError) as caught:
        await read_pdf("bomb.pdf", _with_content(packed, "[/FlateDecode /FlateDecode]"))
    assert str(caught.value).startswith("bomb.pdf is a PDF document without text to be read: its only page")
    assert "\n" not in str(caught.value)


def _with_content(content: bytes, filters: str) -> bytes:
    """A document of one page whose content is packed."""
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources << >> >>",
        b"<< /Length %d /Filter %b >>\nstream\n%b\nendstream" % (len(content), filters.encode(), content),
    )
    data, places = b"%PDF-1.4\n", []
    for number, said in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj\n%b\nendobj\n" % (number, said)
    rows = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"xref\n0 5\n0000000000 65535 f \n%btrailer\n<< /Size 5 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n"
    return data + end % (rows, len(data))


@pytest.mark.slow(reason="growth: five thousand pages")
async def test_five_thousand_pages_are_read_a_part_at_a_time() -> None:
    found = await read_pdf("a.pdf", pdf(["x"] * 5_000), PageRange(4_990, 2))
    assert (found.total, found.texts) == (5_000, ("x", "x"))
    assert shown_pages(found).endswith("[pages 4990 to 4991 of 5000; go on with offset 4992]")


async def test_the_child_has_limits_and_none_of_our_variables(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, resource, sys\n"
        "def tell(data):\n"
        "    return {'cpu': resource.getrlimit(resource.RLIMIT_CPU), 'as': resource.getrlimit(resource.RLIMIT_AS),\n"
        "            'variables': sorted(os.environ), 'ours': [n for n in sys.modules if n.startswith('orchestrator')],\n"
        "            'data': data.hex()}\n"
        "WORK = {'tell': tell}\n"
    )
    told = await in_child({"do": "tell"}, 60.0, data=b"\n\x00\xff", program=program)
    assert told is not None
    assert told["cpu"] == [30, 30]
    assert sys.platform == "darwin" or told["as"] == [2 * 1024**3] * 2
    assert {"PYTHONPATH"} <= set(told["variables"]) <= {"PYTHONPATH", "LC_CTYPE"}
    assert (told["ours"], told["data"]) == ([], "0a00ff")


async def test_the_text_of_pages(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf(["one", "two", "x" * 17_990, "four"]))
    second = await told(pdf_extract_text(), context, file_path="a.pdf", start_page=2, end_page=2)
    assert second == "=== page 2 of 4 ===\ntwo\n\n[pages 2 to 2 of 4; go on with start_page 3]"
    whole = await told(pdf_extract_text(), context, file_path="a.pdf")
    assert whole.endswith("[pages 1 to 2 of 4; go on with start_page 3]")
    assert len(whole) < OTHER_MAX_CHARS
    assert "nothing from page 9 on" in await told(
        pdf_extract_text(), context, file_path="a.pdf", start_page=9
    )

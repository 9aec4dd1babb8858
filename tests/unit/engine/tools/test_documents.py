"""`pdf_extract_text` and `process_pdf_document` of the assistant's specification."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from orchestrator.engine.tools.base import OTHER_MAX_CHARS
from orchestrator.engine.tools.documents import pdf_extract_text, process_pdf_document
from tests.doubles.pdf_files import pdf
from tests.unit.engine.tools.test_profile_tools import failure, told

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from orchestrator.engine.documents.chunks import Chunk
    from orchestrator.engine.tools.base import ToolContext


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


async def test_what_is_refused(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "long.pdf").write_bytes(pdf(["x"] * 1_001))
    assert await failure(pdf_extract_text(), context, file_path="a.txt") == "a.txt is no PDF document"
    backwards = await failure(pdf_extract_text(), context, file_path="a.txt", start_page=3, end_page=2)
    assert "end_page is before start_page" in backwards

    async def add(_index: str, _source: str, _chunks: Sequence[Chunk]) -> int:
        raise AssertionError("nothing may be stored")

    long = await failure(process_pdf_document(add), context, file_path="long.pdf", index_name="docs")
    assert long.startswith(
        "long.pdf is a PDF document of 1,001 pages, and no more than 1,000 are read at once"
    )


async def test_a_document_goes_into_an_index_in_pieces_with_their_pages(
    context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "docs").mkdir()
    sentences = "\n".join(f"This is sentence number {number} of the page." for number in range(40))
    (tmp_path / "docs/a.pdf").write_bytes(pdf(["Title", "", sentences]))
    stored: list[tuple[str, str, Sequence[Chunk]]] = []

    async def add(index: str, source: str, chunks: Sequence[Chunk]) -> int:
        stored.append((index, source, chunks))
        return len(chunks)

    answer = await told(process_pdf_document(add), context, file_path="./docs/a.pdf", index_name="manuals")
    ((index, source, chunks),) = stored
    assert (index, source) == ("manuals", "docs/a.pdf")
    assert [chunk.page for chunk in chunks] == [1, 3, 3]
    assert chunks[1].text.startswith("This is sentence number 0 of")
    assert chunks[2].text.endswith("number 39 of the page.")
    assert json.loads(answer) == {"index_name": "manuals", "pages": 3, "pages_without_text": 1, "chunks": 3}

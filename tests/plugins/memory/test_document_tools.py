"""`pdf_extract_text` and `process_pdf_document` of the assistant's specification."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.clock import ManualClock
from orchestrator.engine.tools.pdf import pdf_extract_text
from orchestrator.plugins.memory.embedding import LexicalEmbedder
from orchestrator.plugins.memory.items import Author
from orchestrator.plugins.memory.memory import LongTermMemory
from orchestrator.plugins.memory.store import MEMORIES, MemoryStore
from orchestrator.plugins.memory.tools import document_tools
from tests.doubles.pdf_files import pdf
from tests.unit.engine.tools.test_profile_tools import failure, told

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.engine.tools.base import Tool, ToolContext

VECTOR_TOOLS = (
    *("create_index", "delete_index", "list_indices"),
    *("add_vector", "update_vector", "delete_vector", "get_vector", "search"),
    *("add_text", "add_chunked_text", "add_pdf_document"),
    *("search_text", "search_by_time"),
)
"""Section 2.3.5 and appendix A of the assistant's specification."""


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[LongTermMemory]:
    with MemoryStore(tmp_path / "memory.db", str) as store:
        yield LongTermMemory(store, LexicalEmbedder(), ManualClock())


def _tool(memory: LongTermMemory, name: str = "process_pdf_document") -> Tool:
    (found,) = (tool for tool in document_tools(memory) if tool.name == name)
    return found


async def test_what_is_refused(context: ToolContext, tmp_path: Path, memory: LongTermMemory) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "long.pdf").write_bytes(pdf(["x"] * 1_001))
    assert await failure(pdf_extract_text(), context, file_path="a.txt") == "a.txt is not a PDF document"
    backwards = await failure(pdf_extract_text(), context, file_path="a.txt", start_page=3, end_page=2)
    assert "end_page is before start_page" in backwards

    refused = {"file_path": "long.pdf", "index_name": "docs"}
    long = await failure(_tool(memory), context, **refused)
    assert long.startswith(
        "long.pdf is a PDF document of 1,001 pages, and no more than 1,000 are read at once"
    )

    of_memories = {"file_path": "a.txt", "index_name": MEMORIES}
    assert "another index name" in await failure(_tool(memory), context, **of_memories)
    (tmp_path / "a.pdf").write_bytes(pdf(["text"]))
    no_name = {"file_path": "a.pdf", "index_name": "no name"}
    assert "is not a valid name of an index" in await failure(_tool(memory), context, **no_name)
    assert memory.store.indices() == ()


@pytest.mark.parametrize("name", ["process_pdf_document", "vector_db_add_pdf_document"])
async def test_a_document_goes_into_an_index_in_pieces_with_their_pages(
    context: ToolContext, tmp_path: Path, memory: LongTermMemory, name: str
) -> None:
    (tmp_path / "docs").mkdir()
    sentences = "\n".join(f"This is sentence number {number} of the page." for number in range(40))
    (tmp_path / "docs/a.pdf").write_bytes(pdf(["Title", "", sentences]))
    named = {"file_path": "./docs/a.pdf", "index_name": "manuals"}
    told_first = json.loads(await told(_tool(memory, name), context, **named))
    assert told_first == {
        "index_name": "manuals",
        "pages": 3,
        "pages_without_text": 1,
        "chunks": 3,
        "replaced": 0,
    }
    pieces = memory.store.listed("manuals")[::-1]
    assert {(piece.source, piece.author) for piece in pieces} == {("docs/a.pdf", Author.MODEL)}
    assert [piece.metadata for piece in pieces] == [
        {"page": page, "chunk": number, "chunks": 3} for number, page in enumerate((1, 3, 3), 1)
    ]
    assert pieces[1].content.startswith("This is sentence number 0 of")
    assert pieces[2].content.endswith("number 39 of the page.")
    (index,) = memory.store.indices()
    assert (index.items, index.vectors) == (3, 3)

    (tmp_path / "docs/a.pdf").write_bytes(pdf(["Another title"]))
    again = json.loads(await told(_tool(memory, name), context, **named))
    assert (again["chunks"], again["replaced"]) == (1, 3)
    assert [piece.content for piece in memory.store.listed("manuals")] == ["Another title"]


def test_all_tools_of_the_specification_are_there(memory: LongTermMemory) -> None:
    names = [tool.name for tool in document_tools(memory)]
    assert len(set(names)) == len(names)
    assert set(names) == {
        "pdf_extract_text",
        "process_pdf_document",
        *(f"vector_db_{one}" for one in VECTOR_TOOLS),
    }

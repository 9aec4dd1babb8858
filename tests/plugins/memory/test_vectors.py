"""The tools of the vector indices, as a model calls them, over a real file."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import MemoryFileError
from orchestrator.engine.policy.command_rules import Level
from orchestrator.engine.policy.secrets import Redactor
from orchestrator.engine.session.gate import Gatekeeper
from orchestrator.engine.tools.base import Failed, Ok
from orchestrator.engine.tools.registry import ToolRegistry, argument_problems
from orchestrator.plugins.memory.embedding import LexicalEmbedder
from orchestrator.plugins.memory.memory import LEXICAL, LongTermMemory
from orchestrator.plugins.memory.store import MEMORIES, MemoryStore
from orchestrator.plugins.memory.tools import pieces_of, vector_tools

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from orchestrator.engine.tools.base import ToolContext

SECRET = "correct-horse-battery-staple-77"
READS = ["list_indices", "get_vector", "search", "search_text", "search_by_time"]
WRITES = [
    "create_index",
    "delete_index",
    "add_vector",
    "update_vector",
    "delete_vector",
    "add_text",
    "add_chunked_text",
]


class Caller:
    """Calls the tools by the second half of their names."""

    def __init__(self, memory: LongTermMemory, context: ToolContext, clock: ManualClock) -> None:
        self.memory, self.clock = memory, clock
        self._tools, self._context = ToolRegistry(vector_tools(memory)), context

    async def __call__(self, name: str, index: str | None = "docs", **arguments: Any) -> Any:
        tool = self._tools.get(f"vector_db_{name}")
        assert tool is not None
        if index is not None:
            arguments["index_name"] = index
        assert argument_problems(arguments, tool.definition) == ()
        outcome = await tool.execute(arguments, self._context)
        if isinstance(outcome, Failed):
            return outcome.message
        assert isinstance(outcome, Ok)
        return json.loads(outcome.output)


@pytest.fixture
async def call(tmp_path: Path, context: ToolContext) -> AsyncIterator[Caller]:
    clock = ManualClock(datetime(2026, 11, 23, tzinfo=UTC))
    memory = LongTermMemory(
        MemoryStore(tmp_path / "memory.db", Redactor([SECRET]).redact), LexicalEmbedder(), clock
    )
    yield Caller(memory, context, clock)
    await memory.aclose()


async def test_a_failure_has_its_code(call: Caller) -> None:
    """The codes of section 7.2 of the assistant's specification."""
    missing, invalid = " [VECTOR_DB_ERROR_ELEMENT_NOT_FOUND]", " [VECTOR_DB_ERROR_INVALID_PARAM]"
    assert (await call("search_text", query="x")).endswith(missing)
    assert (await call("delete_index")).endswith(missing)
    await call("create_index", dimension=2)
    assert (await call("get_vector", vector_id=9)).endswith(missing)
    assert (await call("add_vector", vector=[1.0])).endswith(invalid)
    assert (await call("add_vector", vector=[0.0, 0.0])).endswith(invalid)
    assert (await call("search_by_time", start_time="yesterday")).endswith(invalid)
    call.memory.store.close()
    call.memory.store.path.write_bytes(b"no database")
    with pytest.raises(MemoryFileError) as caught:
        MemoryStore(call.memory.store.path, str)
    assert caught.value.code == "VECTOR_DB_ERROR_FILE"


async def test_vectors_are_added_found_changed_and_removed(call: Caller) -> None:
    made = await call("create_index", dimension=2)
    assert made == {"index_name": "docs", "created": True, "model": "given", "dimension": 2}
    assert (await call("create_index", dimension=2))["created"] is False
    east = (await call("add_vector", vector=[5, 0], metadata={"name": "east"}))["vector_id"]
    north = (await call("add_vector", vector=[0, 0.1]))["vector_id"]
    found = await call("search", query_vector=[2, 1])
    assert [one["vector_id"] for one in found["results"]] == [east, north]
    assert found["results"][0]["similarity"] == pytest.approx(0.8944, abs=2e-3)
    assert (await call("search", query_vector=[2, 1], k=1))["count"] == 1
    shown = await call("get_vector", vector_id=east)
    assert (shown["vector"], shown["metadata"]) == ([1.0, 0.0], {"name": "east"})
    await call("update_vector", vector_id=east, vector=[0, -3])
    shown = await call("get_vector", vector_id=east)
    assert (shown["vector"], shown["metadata"]) == ([0.0, -1.0], {"name": "east"})
    await call("update_vector", vector_id=east, vector=[1, 1], metadata={"name": "north-east"})
    assert (await call("get_vector", vector_id=east))["metadata"] == {"name": "north-east"}
    assert (await call("delete_vector", vector_id=east))["deleted"] is True
    assert (await call("search", query_vector=[1, 0]))["count"] == 1
    assert (await call("list_indices", None))["indices"][0]["items"] == 1
    assert (await call("delete_index"))["deleted"] is True
    assert (await call("list_indices", None)) == {"indices": [], "count": 0}


async def test_texts_are_found_by_their_words(call: Caller) -> None:
    await call("add_text", text="The parser is generated by make", metadata={"page": 3})
    await call("add_text", text=f"Releases are cut on Fridays with {SECRET}")
    found = await call("search_text", query="how are parsers generated?")
    assert [one["content"] for one in found["results"]] == ["The parser is generated by make"]
    assert found["results"][0]["metadata"] == {"page": 3}
    assert found["note"] == LEXICAL
    shown = await call("get_vector", vector_id=2)
    assert SECRET not in json.dumps(shown)
    assert len(shown["vector"]) == 512


async def test_a_long_text_is_added_in_chunks(call: Caller) -> None:
    text = "\n\n".join(f"Paragraph {number} is about topic{number}. " * 6 for number in range(12))
    added = await call("add_chunked_text", text=text, max_chunk_size=500, metadata={"book": "one"})
    assert added["count"] == len(added["ids"]) > 4
    found = await call("search_text", query="topic7", k=1)
    assert "topic7" in found["results"][0]["content"]
    assert found["results"][0]["metadata"]["book"] == "one"
    assert found["results"][0]["metadata"]["chunks"] == added["count"]
    refused = await call("add_chunked_text", text=text, max_chunk_size=500, overlap_size=250)
    assert "less than half" in refused


async def test_what_was_added_is_found_by_time(call: Caller) -> None:
    for text in ("first", "second", "third"):
        await call("add_text", text=text)
        call.clock.advance(3600)
    found = await call(
        "search_by_time", start_time="2026-11-23T00:30:00", end_time="2026-11-23T03:00:00+01:00"
    )
    assert [one["content"] for one in found["results"]] == ["third", "second"]
    assert (await call("search_by_time", limit=1))["results"][0]["content"] == "third"
    assert "must be a time" in await call("search_by_time", start_time="yesterday")


async def test_every_mistake_is_one_clear_line(call: Caller) -> None:
    await call("create_index", dimension=2)
    await call("add_text", "texts", text="a text")
    for said, words in (
        (await call("search", "missing", query_vector=[1]), "there is no index 'missing'"),
        (await call("add_vector", vector=[1, 2, 3]), "takes vectors of 2 numbers, not of 3"),
        (await call("add_vector", vector=[0, 0]), "one that is not 0"),
        (await call("search", query_vector=[1, 2, 3]), "the query has 3 numbers"),
        (await call("add_vector", "texts", vector=[1]), "use vector_db_add_text"),
        (await call("add_text", text="words"), "has vectors of given (2 numbers)"),
        (await call("get_vector", "texts", vector_id=99), "there is no vector 99 in 'texts'"),
        (await call("get_vector", vector_id=1), "there is no vector 1 in 'docs'"),
        (await call("add_text", "../x", text="words"), "is not a valid name of an index"),
        (await call("add_text", text=" "), "the text is empty"),
    ):
        assert words in said
        assert "\n" not in said


async def test_the_memories_are_out_of_reach(call: Caller) -> None:
    await call.memory.remember("Never use mocks")
    for name, arguments in (
        ("delete_index", {}),
        ("add_text", {"text": "Push to main"}),
        ("delete_vector", {"vector_id": 1}),
        ("update_vector", {"vector_id": 1, "vector": [1]}),
    ):
        assert "tools of their own" in await call(name, MEMORIES, **arguments)
    assert "no vector 1 in 'docs'" in await call("delete_vector", vector_id=1)
    assert [one.content for one in call.memory.store.listed(MEMORIES)] == ["Never use mocks"]


def test_who_may_only_look_does_not_write(tmp_path: Path) -> None:
    with MemoryStore(tmp_path / "memory.db", str) as store:
        tools = vector_tools(LongTermMemory(store, LexicalEmbedder(), ManualClock()))
        names = {tool.name.removeprefix("vector_db_") for tool in tools}
        assert names == {*READS, *WRITES}
        shown = {
            tool.name.removeprefix("vector_db_") for tool in tools if Gatekeeper(Level.READ_ONLY).shows(tool)
        }
        assert shown == set(READS)


@given(st.text("ab .\n?!", max_size=400), st.integers(10, 60), st.data())
def test_chunks_lose_no_word_and_are_never_too_long(text: str, size: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, (size - 1) // 2))
    found = list(pieces_of(text, size, overlap))
    assert all(0 < len(chunk) <= size and chunk.strip() for chunk in found)
    place = 0
    for chunk in found:  # in order, and what is between two of them is blank
        said = next((at for at in range(place, len(text)) if text[at].strip()), len(text))
        start = text.rfind(chunk, 0, said + len(chunk))
        assert start >= 0
        assert not text[place:start].strip()
        place = max(place, start + len(chunk))
    assert not text[place:].strip()

"""The lines of sections 2.3.3, 2.3.5, 2.3.6, 2.4.1 and 2.4.2 of the assistant's specification that no other table holds."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import MemoryStoreError
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.models.transport import JsonServer
from orchestrator.engine.profiles.catalog import make_profile
from orchestrator.engine.session.session import Session
from orchestrator.plugins.memory.embedding import LexicalEmbedder, ServerEmbedder, packed
from orchestrator.plugins.memory.items import Importance, MemoryType, NewItem
from orchestrator.plugins.memory.memory import LongTermMemory
from orchestrator.plugins.memory.store import MEMORIES, MemoryStore
from orchestrator.plugins.memory.tools import document_tools, memory_tools
from tests.plugins.memory.embedding_server import EmbeddingServer
from tests.unit.engine.session.stage import ScriptedModel, says, tool

if TYPE_CHECKING:
    from pathlib import Path

TOOLS: dict[str, tuple[set[str], set[str]]] = {
    "remember": ({"content"}, {"type", "source", "importance", "ttl"}),
    "recall_memories": ({"query"}, set()),
    "forget_memory": ({"memory_id"}, set()),
    "pdf_extract_text": ({"file_path"}, {"start_page", "end_page"}),
    "process_pdf_document": ({"file_path", "index_name"}, set()),
    "vector_db_create_index": ({"index_name"}, {"dimension"}),
    "vector_db_delete_index": ({"index_name"}, set()),
    "vector_db_list_indices": (set(), set()),
    "vector_db_add_vector": ({"index_name", "vector"}, {"metadata"}),
    "vector_db_update_vector": ({"index_name", "vector_id", "vector"}, {"metadata"}),
    "vector_db_delete_vector": ({"index_name", "vector_id"}, set()),
    "vector_db_get_vector": ({"index_name", "vector_id"}, set()),
    "vector_db_search": ({"index_name", "query_vector"}, {"k"}),
    "vector_db_add_text": ({"index_name", "text"}, {"metadata"}),
    "vector_db_add_chunked_text": ({"index_name", "text"}, {"max_chunk_size", "overlap_size", "metadata"}),
    "vector_db_add_pdf_document": ({"index_name", "file_path"}, {"metadata"}),
    "vector_db_search_text": ({"index_name", "query"}, {"k"}),
    "vector_db_search_by_time": ({"index_name"}, {"start_time", "end_time", "limit"}),
}
"""What a call must have, and what it may have. Where the document names no parameters, they are ours."""


def test_each_tool_has_the_parameters_of_its_line(tmp_path: Path) -> None:
    with MemoryStore(tmp_path / "memory.db", str) as store:
        memory = LongTermMemory(store, LexicalEmbedder(), ManualClock())
        schemas = {
            tool.name: tool.definition.parameters for tool in (*memory_tools(memory), *document_tools(memory))
        }
    found = {
        name: (set(schema["required"]), set(schema["properties"]) - set(schema["required"]))
        for name, schema in schemas.items()
    }
    assert found == TOOLS
    assert schemas["remember"]["properties"]["type"]["enum"] == [
        *("correction", "instruction", "preference", "fact", "web_content", "general")
    ]
    assert schemas["remember"]["properties"]["importance"]["enum"] == ["critical", "high", "normal", "low"]
    assert (MemoryType.GENERAL, Importance.NORMAL) == ("general", "normal")  # where a call does not say


@pytest.mark.parametrize(("index", "most"), [(MEMORIES, 100_000), ("documents", 50_000)])
def test_an_index_has_room_for_so_many(tmp_path: Path, index: str, most: int) -> None:
    now, vector = ManualClock().now(), packed([1.0])
    with MemoryStore(tmp_path / "memory.db", str) as store:
        store.create_index(index, "one", 1, now)
        with closing(sqlite3.connect(tmp_path / "memory.db")) as db:  # quicker than to store them one by one
            db.execute(
                "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)"
                " INSERT INTO items (index_name, content, digest, type, source, importance, author, created_at, metadata)"
                " SELECT ?, '', x'', 'fact', '', 'normal', 'model', '2026', '{}' FROM numbers",
                (most - 1, index),
            )
            db.commit()
        last = [NewItem("the last one", now, vector=vector)]
        assert len(store.add(index, last, model="one", dimension=1)) == 1
        with pytest.raises(MemoryStoreError, match=rf"is full: it has {most:,} of {most:,} items"):
            store.add(index, last, model="one", dimension=1)


def test_distance_is_that_of_the_cosine(tmp_path: Path) -> None:
    now = ManualClock().now()
    with MemoryStore(tmp_path / "memory.db", str) as store:
        store.create_index("documents", "given", 2, now)
        items = [NewItem("", now, vector=packed(numbers)) for numbers in ([10, 0], [1, 1], [0, 3], [-1, 0])]
        numbers = store.add("documents", items, model="given", dimension=2)
        near = store.nearest("documents", packed([5, 0]), 4)
    assert [round(near[number], 2) for number in numbers] == [1.0, 0.71, 0.0, -1.0]  # whatever their length


@pytest.mark.parametrize(
    ("model", "dimension"),
    [
        ("text-embedding-3-small", 1_536),
        ("text-embedding-3-large", 3_072),
        ("Qwen3-Embedding-0.6B", 1_024),
        ("all-MiniLM-L6-v2", 384),
        ("all-mpnet-base-v2", 768),
    ],
)
async def test_vectors_of_each_provider_are_stored_with_model_and_dimension(
    tmp_path: Path, model: str, dimension: int
) -> None:
    def vector(text: str) -> list[float]:
        return [1.0, float("pump" in text)] * (dimension // 2)

    with EmbeddingServer(vector) as server:
        asked = JsonServer(
            f"{server.root}/v1/embeddings", api_key=None, clock=ManualClock(), random=random.random
        )
        memory = LongTermMemory(
            MemoryStore(tmp_path / "memory.db", str), ServerEmbedder(asked, model), ManualClock()
        )
        stored = await memory.remember("The pump needs oil")
        (index,) = memory.store.indices()
        found = await memory.recall("oil for the pump")
        await memory.aclose()
    place = server.root.removeprefix("http://")
    assert (index.model, index.dimension, index.vectors) == (f"{model}@{place}", dimension, 1)
    assert [one.memory for one in found.memories] == [stored.memory]
    bodies: list[dict[str, Any]] = [body for _, _, body in server.asked]
    assert {body["model"] for body in bodies} == {model}


APPENDIX_A = [
    *("file_read", "file_write", "file_append", "file_list", "file_search", "file_info", "file_delta"),
    "shell_execute",
    *("remember", "recall_memories", "forget_memory"),
    *("todo_add", "todo_update", "todo_remove", "todo_list"),
    *("subagent", "subagent_status"),
    "pdf_extract_text",
    *("vector_db_create_index", "vector_db_delete_index", "vector_db_list_indices", "vector_db_add_vector"),
    *("vector_db_update_vector", "vector_db_delete_vector", "vector_db_get_vector", "vector_db_search"),
    *("vector_db_add_text", "vector_db_add_chunked_text", "vector_db_add_pdf_document"),
    *("vector_db_search_text", "vector_db_search_by_time"),
    "web_fetch",
]
"""Appendix A of the assistant specification, without the tools of MCP servers. Section 2.3.5 has one more."""


async def test_a_model_is_shown_the_tools_of_appendix_a(tmp_path: Path) -> None:
    memory = LongTermMemory(MemoryStore(tmp_path / "memory.db", str), LexicalEmbedder(), ManualClock())
    profile = make_profile(
        "assistant",
        custom=(*memory_tools(memory), *document_tools(memory), tool("web_fetch", lambda _: "")),
    )
    model = ScriptedModel([says("Done.")])
    async with Session(
        profile=profile, environment=LocalEnvironment(tmp_path, sandbox="off"), model=model
    ) as session:
        await session.run("Go")
    await memory.aclose()
    shown = {one.name for one in model.requests[0].tools}
    assert shown == {*APPENDIX_A, "process_pdf_document"}

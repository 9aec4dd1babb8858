"""Vectors of texts: by a server of embeddings, and by letters."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import AuthenticationError, ConnectionFailedError, ModelError, ProviderError
from orchestrator.engine.models.transport import JsonServer
from orchestrator.engine.models.wire import endpoint
from orchestrator.plugins.memory.embedding import LexicalEmbedder, ServerEmbedder, unpacked
from tests.plugins.memory.embedding_server import EmbeddingServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEY = "sk-made-up-0123456789"


@asynccontextmanager
async def embedder_at(address: str, clock: ManualClock | None = None) -> AsyncIterator[ServerEmbedder]:
    server = JsonServer(
        endpoint(address, "/embeddings"), api_key=KEY, clock=clock or ManualClock(), random=lambda: 0.5
    )
    embedder = ServerEmbedder(server, "text-embedding-3-small")
    try:
        yield embedder
    finally:
        await embedder.aclose()


def by_length(text: str) -> list[float]:
    return [float(len(text)), 1.0, 0.0]


async def test_a_server_is_asked_in_the_vendors_form() -> None:
    from openai.types import CreateEmbeddingResponse

    with EmbeddingServer(by_length) as server:
        async with embedder_at(f"{server.root}/v1") as embedder:
            vectors = await embedder.embed(["abc", "z"])
        assert embedder.model == f"text-embedding-3-small@{server.root.removeprefix('http://')}"
    ((path, authorization, body),) = server.asked
    assert path == "/v1/embeddings"
    assert authorization == f"Bearer {KEY}"
    assert body == {
        "model": "text-embedding-3-small",
        "input": ["abc", "z"],
        "encoding_format": "float",
    }
    CreateEmbeddingResponse.model_validate(server.reply(body), strict=True)
    assert unpacked(vectors[0]) == pytest.approx((3 / math.sqrt(10), 1 / math.sqrt(10), 0), abs=1e-3)
    assert unpacked(vectors[1])[0] == pytest.approx(1 / math.sqrt(2), abs=1e-3)


async def test_many_texts_go_in_several_requests_and_long_ones_are_cut() -> None:
    with EmbeddingServer(by_length) as server:
        async with embedder_at(server.root) as embedder:
            vectors = await embedder.embed(["x" * 9_000, *["y"] * 249])
    assert len(vectors) == 250
    assert [len(body["input"]) for _, _, body in server.asked] == [100, 100, 50]
    assert len(server.asked[0][2]["input"][0]) == 8_000


async def test_a_server_that_is_busy_is_asked_again() -> None:
    clock = ManualClock()
    busy = {"error": {"message": "overloaded", "type": "server_error"}}
    with EmbeddingServer(by_length, [(503, busy), (429, busy)]) as server:
        async with embedder_at(server.root, clock) as embedder:
            assert len(await embedder.embed(["a"])) == 1
    assert len(server.asked) == 3
    assert len(clock.slept) == 2


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        (401, {"error": {"message": f"wrong key {KEY}"}}, AuthenticationError, "wrong key"),
        (200, b"<html>", ProviderError, "did not answer with JSON"),
        (200, [], ProviderError, "0 vectors for 1 texts"),
        (200, {"data": []}, ProviderError, "0 vectors for 1 texts"),
        (200, {"data": [{"index": 1, "embedding": [1.0]}]}, ProviderError, "1 vectors for 1 texts"),
        (200, {"data": [{"index": 0, "embedding": "AAAA"}]}, ProviderError, "not a list of numbers"),
        (200, {"data": [{"index": 0, "embedding": [True]}]}, ProviderError, "not a list of numbers"),
        (200, {"data": [{"index": 0, "embedding": [0.0]}]}, ProviderError, "sent an invalid vector"),
        (200, {"data": [{"index": 0, "embedding": [10**400]}]}, ProviderError, "sent an invalid vector"),
    ],
)
async def test_a_reply_without_vectors_is_one_clear_error(
    status: int, body: Any, error: type[ModelError], message: str
) -> None:
    with EmbeddingServer(by_length, [(status, body)]) as server:
        async with embedder_at(server.root) as embedder:
            with pytest.raises(error, match=message) as raised:
                await embedder.embed(["a"])
    assert KEY not in str(raised.value)


async def test_vectors_of_different_lengths_are_refused() -> None:
    with EmbeddingServer(lambda text: [1.0] * len(text)) as server:
        async with embedder_at(server.root) as embedder:
            with pytest.raises(ProviderError, match="different lengths"):
                await embedder.embed(["a", "bc"])


@pytest.mark.parametrize("given", [2, 3])
async def test_a_server_is_asked_for_a_dimension_and_held_to_it(given: int) -> None:
    with EmbeddingServer(lambda _text: [1.0] * given) as server:
        asked = JsonServer(f"{server.root}/embeddings", api_key=None, clock=ManualClock(), random=lambda: 0.5)
        embedder = ServerEmbedder(asked, "text-embedding-3-large", dimension=2)
        if given == 2:
            assert len(await embedder.embed(["a"])) == 1
        else:
            with pytest.raises(ProviderError, match=r"of 3 numbers, not of 2: set embedding_dimension"):
                await embedder.embed(["a"])
        await embedder.aclose()
    assert [body["dimensions"] for _, _, body in server.asked] == [2]


async def test_a_server_that_is_not_there_is_one_clear_error() -> None:
    with EmbeddingServer(by_length) as server:
        pass
    async with embedder_at(server.root) as embedder:
        with pytest.raises(ConnectionFailedError, match="cannot connect"):
            await embedder.embed(["a"])


async def test_letters_bring_forms_of_words_together() -> None:
    texts = ["never mock the clock", "mocking clocks is forbidden", "the readme is in French", "", "!?"]
    vectors = [unpacked(one) for one in await LexicalEmbedder().embed(texts)]

    def similarity(one: int, other: int) -> float:
        return sum(a * b for a, b in zip(vectors[one], vectors[other], strict=True))

    assert similarity(0, 1) > LexicalEmbedder.least_similarity > similarity(0, 2)
    assert all(math.hypot(*vector) == pytest.approx(1, abs=1e-2) for vector in vectors)

"""How well memories are found by messages that say the same in other words.

    python -m tests.plugins.memory.evaluation

The pairs are those of `paraphrases.tsv`. All memories are in one index; each message is asked for its own. A paraphrase
says the same; a question is answered by the memory and has hardly a word of it, which is hard. MRR is the
mean of 1 / the place of the right one (0 where it is not found), hit@5 the share that is among the first five. `vectors`
orders by the vectors alone; `recall` is what a session does: by words and by vectors, in the order of the
specification. The server of the first row is on loopback and has the offline model behind it, so that its vectors went
through the wire's form.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.clock import SystemClock
from orchestrator.engine.models.transport import JsonServer
from orchestrator.plugins.memory.embedding import (
    OFFLINE_MODEL,
    LexicalEmbedder,
    OfflineEmbedder,
    ServerEmbedder,
    unpacked,
)
from orchestrator.plugins.memory.items import NewItem
from orchestrator.plugins.memory.memory import LongTermMemory
from orchestrator.plugins.memory.store import MEMORIES, MemoryStore
from tests.plugins.memory.embedding_server import EmbeddingServer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator.plugins.memory.embedding import Embedder

PAIRS = Path(__file__).with_name("paraphrases.tsv")
KINDS = ("paraphrases", "questions")
_LOOKED_AT = 20
_HITS = 5


@dataclass(frozen=True, slots=True)
class Quality:
    """How well the right ones were found."""

    mrr: float
    hits: float


def read_pairs(path: Path = PAIRS) -> dict[str, list[tuple[str, str]]]:
    """The memories with their messages, by the kind of message."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return {kind: [(row[0], row[place]) for row in rows] for place, kind in enumerate(KINDS, 1)}


async def measure(embedder: Embedder, pairs: Sequence[tuple[str, str]]) -> tuple[Quality, Quality]:
    """The quality of the vectors alone, and of the recall of a session."""
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as folder, MemoryStore(Path(folder) / "memory.db", str) as store:
        memory = LongTermMemory(store, embedder, clock)
        numbers = await memory.add_items(MEMORIES, [NewItem(said, clock.now()) for said, _ in pairs])
        by_vectors, recalled = [], []
        for number, (_, message) in zip(numbers, pairs, strict=True):
            (vector,) = await embedder.embed([message])
            by_vectors.append(_place(number, store.nearest(MEMORIES, vector, _LOOKED_AT)))
            found = await memory.recall(message, _LOOKED_AT)
            recalled.append(_place(number, (one.memory.id for one in found.memories)))
    return _quality(by_vectors), _quality(recalled)


def _place(number: int, found: Iterable[int]) -> int | None:
    return next((place for place, one in enumerate(found, 1) if one == number), None)


def _quality(places: Sequence[int | None]) -> Quality:
    return Quality(
        sum(1 / place for place in places if place) / len(places),
        sum(1 for place in places if place and place <= _HITS) / len(places),
    )


async def _print_table() -> None:
    offline = OfflineEmbedder()
    kinds = read_pairs()
    said = list({text for pairs in kinds.values() for pair in pairs for text in pair})
    known = dict(zip(said, map(unpacked, await offline.embed(said)), strict=True))
    print(
        f"{'messages':16}  {'embeddings':10}  {'vectors: MRR':>12}  {'hit@5':>5}  {'recall: MRR':>12}  {'hit@5':>5}"
    )
    with EmbeddingServer(lambda text: list(known[text])) as server:
        url = f"{server.root}/v1/embeddings"
        asked = JsonServer(url, api_key=None, clock=SystemClock(), random=random.random)
        embedders: dict[str, Embedder] = {
            "endpoint": ServerEmbedder(asked, OFFLINE_MODEL),
            "offline": offline,
            "lexical": LexicalEmbedder(),
        }
        for kind, pairs in kinds.items():
            for name, embedder in embedders.items():
                bare, whole = await measure(embedder, pairs)
                print(
                    f"{len(pairs)} {kind:12}  {name:10}  {bare.mrr:12.3f}  {bare.hits:5.2f}"
                    f"  {whole.mrr:12.3f}  {whole.hits:5.2f}"
                )
        for embedder in embedders.values():
            await embedder.aclose()


if __name__ == "__main__":
    asyncio.run(_print_table())

"""What a search for the nearest vectors costs beside the bare scan, and what it costs to store and to open.

The search is at most 1.5 times the bare scan: the program says so at its end, by its exit status too.
Run: python -m tests.plugins.memory.benchmark [VECTORS [DIMENSION]]
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import simsimd

from orchestrator.plugins.memory.items import NewItem
from orchestrator.plugins.memory.store import MEMORIES, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

VECTORS, DIMENSION, RUNS = 100_000, 384, 30
LIMIT = 20
MOST_RATIO = 1.5
NOW = datetime(2026, 11, 23, tzinfo=UTC)
_BATCH = 10_000


def fill(store: MemoryStore, count: int, dimension: int) -> bytes:
    """Store random vectors; all of them, one after the other."""
    source = random.Random(15)  # noqa: S311  a measurement is repeated alike
    raw = bytearray(source.randbytes(2 * count * dimension))
    raw[1::2] = raw[1::2].translate(bytes((byte & 0x83) | 0x28 for byte in range(256)))  # a length of about 1
    store.create_index(MEMORIES, "random", dimension, NOW)
    size = 2 * dimension
    for start in range(0, count, _BATCH):
        batch = [
            NewItem(f"item {number}", NOW, vector=bytes(raw[number * size : (number + 1) * size]))
            for number in range(start, min(start + _BATCH, count))
        ]
        store.add(MEMORIES, batch, model="random", dimension=dimension)
    return bytes(raw)


def main(count: int = VECTORS, dimension: int = DIMENSION) -> int:
    """Measure, print, and say whether the bar is held."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        with MemoryStore(path, str) as store:
            start = time.perf_counter()
            raw = fill(store, count, dimension)
            print(
                f"{count:,} x {dimension}: stored in {time.perf_counter() - start:.1f} s, {path.stat().st_size:,} bytes"
            )
        with MemoryStore(path, str) as store:
            query = raw[: 2 * dimension]
            start = time.perf_counter()
            store.nearest(MEMORIES, query, LIMIT)
            print(
                f"first search of a process, which reads the file: {(time.perf_counter() - start) * 1000:.0f} ms"
            )
            rows = memoryview(raw).cast("B").cast("H", shape=[count, dimension])
            one = memoryview(query).cast("B").cast("H", shape=[1, dimension])
            bare = processor_seconds(lambda: simsimd.cdist(one, rows, "cosine", dtype="float16"))
            ours = processor_seconds(lambda: store.nearest(MEMORIES, query, LIMIT))
    print(f"the bare scan {bare * 1000:.1f} ms, the {LIMIT} nearest {ours * 1000:.1f} ms")
    print(f"ratio {ours / bare:.2f}, at most {MOST_RATIO}")
    return 0 if ours <= MOST_RATIO * bare else 1


def processor_seconds(job: Callable[[], object]) -> float:
    """The least time of the processor that a job took; how long it waited for one does not count."""
    seconds = []
    for _ in range(RUNS):
        start = time.process_time()
        job()
        seconds.append(time.process_time() - start)
    return min(seconds)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))

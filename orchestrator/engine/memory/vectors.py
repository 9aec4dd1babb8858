"""Vectors as float16 bytes, and an exact nearest-neighbour search."""

from __future__ import annotations

import heapq
import math
import struct
from array import array
from typing import TYPE_CHECKING, cast

from orchestrator.core.errors import MemoryStoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from typing_extensions import Buffer

MOST_DIMENSIONS = 8_192
_SAMPLED = 31
"""One of this many distances is in the sample."""


def packed(numbers: Sequence[float]) -> bytes:
    """Return the unit vector in the direction of this one, as little-endian float16.

    Raises:
        MemoryStoreError: the vector is zero, has too many numbers, or one that is not finite.
    """
    if not 0 < len(numbers) <= MOST_DIMENSIONS:
        raise MemoryStoreError(f"a vector has 1 to {MOST_DIMENSIONS:,} numbers, not {len(numbers):,}")
    largest = max(map(abs, numbers))
    if not largest or not all(map(math.isfinite, numbers)):
        raise MemoryStoreError("a vector must have finite numbers, and one that is not 0")
    scaled = [number / largest for number in numbers]  # so that squares neither overflow nor underflow
    length = math.sqrt(math.fsum(number * number for number in scaled))
    return struct.pack(f"<{len(scaled)}e", *(number / length for number in scaled))


def unpacked(vector: bytes) -> tuple[float, ...]:
    """Return the numbers of a packed vector."""
    return struct.unpack(f"<{len(vector) // 2}e", vector)


class Matrix:
    """The vectors of an index, one after the other, with the ids of their items in ascending order.

    Args:
        state: the state of the index when this was created; after a change everything must be read again.
    """

    def __init__(self, dimension: int, state: object) -> None:
        self.dimension, self.state = dimension, state
        self._ids = array("q")
        self._data = bytearray()

    @property
    def last_id(self) -> int:
        """The id of the newest item; 0 if there is none."""
        return self._ids[-1] if self._ids else 0

    def extend(self, rows: Iterable[tuple[int, bytes]]) -> None:
        """Append vectors with their ids."""
        for number, data in rows:
            self._ids.append(number)
            self._data += data

    def nearest(self, vector: bytes, limit: int) -> dict[int, float]:
        """Return the items nearest to a vector, best first, each with `1 - cosine distance`."""
        if len(vector) != 2 * self.dimension:
            raise MemoryStoreError(
                f"the query has {len(vector) // 2} numbers, the vectors of the index {self.dimension}"
            )
        if not self._ids or limit < 1:
            return {}
        distances = self._distances(vector)
        places = _smallest(distances, limit)
        return {self._ids[place]: 1.0 - distances[place] for place in places}

    def _distances(self, vector: bytes) -> memoryview[float]:
        import simsimd

        size = len(self._ids)
        query = memoryview(vector).cast("B").cast("H", shape=[1, self.dimension])
        rows = memoryview(self._data).toreadonly().cast("H", shape=[size, self.dimension])
        found = simsimd.cdist(query, rows, "cosine", dtype="float16")
        return memoryview(cast("Buffer", found)).cast("B").cast("d")


def _smallest(distances: memoryview[float], limit: int) -> list[int]:
    """Return the positions of the smallest distances, in order; of equals the later position comes first.

    A sample gives an upper bound, below which there are at least `limit` distances. So only few have to be
    sorted.
    """
    sample = distances[::_SAMPLED].tolist()
    bound = heapq.nsmallest(limit, sample)[-1] if len(sample) >= limit else math.inf
    near = [(distance, -place) for place, distance in enumerate(distances) if distance <= bound]
    return [-place for _, place in heapq.nsmallest(limit, near)]

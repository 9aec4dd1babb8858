"""Vectors that are made on this machine, by the model of the extra `embed`."""

from __future__ import annotations

import functools
import subprocess
import sys

import pytest

from orchestrator.bot.suggestions import install_command
from orchestrator.core.errors import ConfigurationError, ModelNotFoundError
from orchestrator.plugins.memory import embedding
from orchestrator.plugins.memory.embedding import (
    OFFLINE_TOKENS,
    OfflineEmbedder,
    WordPieces,
    is_installed,
    unpacked,
)
from tests.plugins.memory.evaluation import measure, read_pairs
from tests.tables import table

TOKENS: list[tuple[str, list[int]]] = [
    ("", [101, 102]),
    ("  ", [101, 102]),
    ("Never mock the clock.", [101, 2196, 12934, 1996, 5119, 1012, 102]),
    ("naïve Café", [101, 15743, 7668, 102]),
    ("İstanbul ΣΟΦΟΣ ß", [101, 9960, 1173, 29730, 29736, 29730, 29733, 1096, 102]),
    ("日本語のテスト", [101, 1864, 1876, 1950, 1671, 30239, 30233, 30240, 102]),
    (
        "pytest --maxfail=1 tests/unit::test_x[a-b]",
        [
            *(101, 1052, 17250, 3367, 1011, 1011, 4098, 7011, 4014, 1027, 1015, 5852, 1013, 3131, 1024),
            *(1024, 3231, 1035, 1060, 1031, 1037, 1011, 1038, 1033, 102),
        ],
    ),
    ("don't", [101, 2123, 1005, 1056, 102]),
    ("a\u200bb\0c\ufffd\td\u00a0e", [101, 5925, 1040, 1041, 102]),
    (
        "supercalifragilisticexpialidocious",
        [101, 3565, 9289, 10128, 29181, 24411, 4588, 10288, 19312, 21273, 10085, 6313, 102],
    ),
    ("x" * 101, [101, 100, 102]),
    ("\U0001f600 emoji", [101, 100, 7861, 29147, 2072, 102]),
    ("$5 ^ `x` ~", [101, 1002, 1019, 1034, 1036, 1060, 1036, 1066, 102]),
    ("\ufb01nal \u01c5", [101, 1984, 12032, 100, 102]),
    ("ÅÄÖ Å", [101, 9779, 2080, 1037, 102]),
    ("12,345.67", [101, 2260, 1010, 23785, 1012, 6163, 102]),
]
"""What `tokenizers` 0.22 makes of the texts by the `tokenizer.json` of the model."""


@table("text, ids", TOKENS)
def test_texts_are_cut_as_the_models_own_tokenizer_cuts_them(text: str, ids: list[int]) -> None:
    assert pieces().ids(text) == ids


def test_no_text_is_longer_than_the_model_reads() -> None:
    long = pieces().ids("word " * 5_000)
    assert (len(long), long[0], long[-1]) == (OFFLINE_TOKENS, 101, 102)


async def test_texts_that_mean_the_same_are_near() -> None:
    embedder = OfflineEmbedder()
    texts = ["Deployments happen only on Tuesdays.", "When do we ship to production?", "The cat sleeps.", ""]
    vectors = [unpacked(one) for one in await embedder.embed(texts)]
    assert [len(vector) for vector in vectors] == [384] * 4

    def similarity(one: int, other: int) -> float:
        return sum(a * b for a, b in zip(vectors[one], vectors[other], strict=True))

    assert similarity(0, 1) > OfflineEmbedder.least_similarity > similarity(0, 2)
    assert (
        await embedder.embed(texts[:1]) == (await embedder.embed(texts[::-1]))[-1:]
    )  # whatever goes with it
    await embedder.aclose()


@functools.cache
def pieces() -> WordPieces:
    return WordPieces(embedding._read_vocabulary())


def test_without_the_extra_one_line_names_it() -> None:
    assert is_installed()
    with pytest.raises(ConfigurationError) as raised:
        OfflineEmbedder(("numpy", "no_such_module"))
    assert install_command("embed") in str(raised.value)
    assert "\n" not in str(raised.value)


def test_another_file_in_the_place_of_the_model_is_refused() -> None:
    with pytest.raises(ModelNotFoundError, match="does not have the expected hash"):
        embedding._check_hash(b"other weights", embedding.MODEL_SHA256, "model.onnx")


def test_nothing_heavy_is_imported_before_the_first_text() -> None:
    code = (
        "import sys; from orchestrator.plugins.memory.embedding import OfflineEmbedder; OfflineEmbedder();"
        "sys.exit(bool({'numpy', 'onnxruntime'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow(reason="the model reads 240 texts")
async def test_paraphrases_are_recalled_offline() -> None:
    bare, whole = await measure(OfflineEmbedder(), read_pairs()["paraphrases"])
    assert bare.mrr >= 0.95
    assert whole.mrr >= 0.9
    assert whole.hits >= 0.95

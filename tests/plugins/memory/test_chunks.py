"""Pieces of documents: nothing is lost, none is too long, and cuts are where a reader would make them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.plugins.memory.tools import CHUNK_CHARACTERS, TextChunk, chunks_of, pieces_of
from tests.tables import table


@table(
    "text, most, pieces",
    [
        ("", 10, []),
        (" \n\n ", 10, []),
        ("short", 10, ["short"]),
        ("One two. Three four.", 12, ["One two.", "Three four."]),
        ("First.\n\nSecond one.", 14, ["First.", "Second one."]),
        ("alpha beta gamma", 11, ["alpha beta", "gamma"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
    ],
)
def test_where_a_text_is_cut(text: str, most: int, pieces: list[str]) -> None:
    assert list(pieces_of(text, most, overlap=0)) == pieces


def test_a_piece_begins_with_the_last_sentence_of_the_one_before() -> None:
    text = "The first is long enough. Tiny. The next one is long."
    assert list(pieces_of(text, 34, overlap=10)) == [
        "The first is long enough. Tiny.",
        "Tiny. The next one is long.",
    ]


def test_pieces_know_their_page() -> None:
    assert list(chunks_of([(1, "a"), (3, "b " * 600)])) == [
        TextChunk("a", 1, 1),
        *(TextChunk(piece, number, 3) for number, piece in enumerate(pieces_of("b " * 600), 2)),
    ]


words = st.lists(st.text("ab.!\n é\u2028", min_size=1, max_size=40), max_size=60).map(" ".join)


@given(words, st.integers(1, 60), st.integers(0, 30))
def test_no_word_is_lost_and_no_piece_too_long(text: str, most: int, overlap: int) -> None:
    pieces = list(pieces_of(text, most, min(overlap, most - 1)))
    assert all(0 < len(piece) <= most for piece in pieces)
    told = iter("".join(pieces))
    assert all(character in told for character in text if not character.isspace())  # in this order


@given(words, st.integers(1, 60))
def test_without_an_overlap_nothing_is_told_twice(text: str, most: int) -> None:
    assert "".join("".join(pieces_of(text, most, 0)).split()) == "".join(text.split())


def test_the_size_is_what_small_models_read() -> None:
    assert CHUNK_CHARACTERS == 1_000

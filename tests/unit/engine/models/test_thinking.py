from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.models.base import (
    ReasoningPiece,
    TextPiece,
)
from orchestrator.engine.models.openai_chat import ThinkSplitter
from tests.tables import table

if TYPE_CHECKING:
    from orchestrator.engine.models.base import Piece


def split(pieces: list[str]) -> tuple[str, str]:
    splitter = ThinkSplitter()
    found: list[Piece] = [piece for text in pieces for piece in splitter.feed(text)]
    found += splitter.finish()
    thoughts = "".join(piece.text for piece in found if isinstance(piece, ReasoningPiece))
    return thoughts, "".join(piece.text for piece in found if isinstance(piece, TextPiece))


@table(
    ("text", "thoughts", "rest"),
    [
        ("plain <think>no</think>", "", "plain <think>no</think>"),
        ("\n<think>a < b</think>\n c", "a < b", "c"),
        ("<think>never ends</thin", "never ends</thin", ""),
        ("<think></think>x", "", "x"),
        ("<thin", "", "<thin"),
        ("  spaces", "", "  spaces"),
        ("<think>a</think>", "a", ""),
    ],
)
@table("size", [1, 2, 5, 100])
def test_blocks(text: str, thoughts: str, rest: str, size: int) -> None:
    assert split([text[at : at + size] for at in range(0, len(text), size)]) == (thoughts, rest)


@given(st.lists(st.sampled_from(["<think>", "</think>", "<", "think>", "a", " ", "\n", "</"]), max_size=12))
def test_pieces_give_what_the_whole_gives(pieces: list[str]) -> None:
    assert split(pieces) == split(["".join(pieces)])

"""How a conversation is shown: whole blocks of Markdown, each once, and no call that was written as text."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from orchestrator.core.events import (
    InputReceived,
    PlanAccepted,
    ProcessingEnded,
    ReplyReceived,
    SessionState,
    TextDelta,
    TextStarted,
    TurnStarted,
)
from orchestrator.core.messages import FinishReason, Message, Usage
from orchestrator.plugins.chat.view import ChatView, MarkdownBlocks
from tests.tables import table

_LINES = st.lists(st.sampled_from(["", "a word", "```python", "```", "~~~", "- item", "# head", "    code"]))


def blocks_of(pieces: list[str]) -> list[str]:
    blocks = MarkdownBlocks()
    return [block for piece in pieces for block in blocks.add(piece)] + blocks.end()


@given(lines=_LINES, cut=st.integers(1, 7))
def test_the_blocks_are_the_text_however_it_is_cut(lines: list[str], cut: int) -> None:
    text = "\n".join(lines)
    pieces = [text[at : at + cut] for at in range(0, len(text), cut)]
    found = blocks_of(pieces)
    assert found == blocks_of([text])
    assert [line for block in found for line in block.split("\n") if line] == [line for line in lines if line]


@table(
    ("text", "count"),
    [
        ("one\n\ntwo", 2),
        ("```\na\n\nb\n```\n\nend", 2),
        ("```` md\n```\n\n```\n````", 1),
        ("~~~\n```\n\n~~~\n\nx", 2),
        ("```python\n\nnever closed", 1),
        ("```x``` is code\n\nin a line", 2),
        ("", 0),
        ("\n\n\n", 0),
    ],
)
def test_a_fence_is_one_block(text: str, count: int) -> None:
    assert len(blocks_of([text])) == count


def shown(text: str, *, calls: int = 0, plan: str | None = None, pieces: bool = True) -> str:
    """What a terminal shows of a reply."""
    out = io.StringIO()
    view = ChatView(Console(file=out, width=80, force_terminal=True, color_system=None, legacy_windows=False))
    view(InputReceived("x"))
    view(TurnStarted(1))
    view(TextStarted())
    for at in range(0, len(text) if pieces else 0, 5):
        view(TextDelta(text[at : at + 5]))
    view(ReplyReceived(Message.assistant(text), FinishReason.STOP, Usage(), 0.0, "m"))
    view(PlanAccepted(text if plan is None else plan, calls))
    view(ProcessingEnded(SessionState.IDLE, ""))
    return out.getvalue()


def test_each_word_is_shown_once_in_pieces_or_whole() -> None:
    for pieces in (True, False):
        assert shown("First.\n\n**Second** thing.\n", pieces=pieces).count("Second") == 1


@table(
    "text",
    ['{"name": "x", "arguments": {}}', '```json\n{"name": "x"}\n```', "<tool_call>{}</tool_call>", "`x` is"],
)
def test_a_call_that_was_written_as_text_is_not_shown(text: str) -> None:
    is_words = text.startswith("`x`")
    assert ("x" in shown(text, calls=1, plan="")) is is_words
    assert shown(text, plan=text).strip(), "it is shown where it was none"


def test_what_a_terminal_would_obey_is_not_shown() -> None:
    assert "\x1b[2J" not in shown("a\x1b[2Jb\n\nc")


def test_a_secret_is_not_shown_however_it_is_cut() -> None:
    secret = "ghp_" + "a1B2" * 9
    assert secret[4:] not in shown(f"It is {secret} here.")

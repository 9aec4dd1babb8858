"""The message that stands for a conversation's beginning: it is never longer than its room, whatever is known."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.core.prompts import fenced
from orchestrator.engine.session.compaction import (
    LEAST_BYTES,
    WEIGHTS,
    KnownFacts,
    block_within,
    blocks_within,
    both_ends,
    fair_shares,
    message_within,
)
from orchestrator.engine.session.history import RanCommand
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADINGS_BYTES = 2_000
"""More than the message has without what is known; the largest part of a very small room."""
FENCE = re.compile(r"^(`{3,})$", re.MULTILINE)

LETTERS = st.sampled_from("ab `\n#é漢😀\udc80")
TEXTS = st.builds(
    lambda text, times: text * times, st.text(LETTERS, max_size=8), st.sampled_from([0, 1, 40, 700])
)
LINES = TEXTS.map(lambda text: " ".join(text.split()) or "x")
KNOWN = st.builds(
    KnownFacts,
    task=TEXTS,
    orders=st.lists(TEXTS, max_size=9),
    files=st.lists(st.tuples(TEXTS, st.just("1 lines, 5 bytes")), max_size=9),
    commands=st.lists(
        st.builds(RanCommand, TEXTS, st.booleans(), TEXTS.map(lambda text: text[-300:])), max_size=5
    ),
    plan=TEXTS,
    todos=st.lists(LINES.map(lambda text: text[:530]), max_size=9),
    more=TEXTS,
    summary=TEXTS,
    missing=st.lists(TEXTS.map(lambda text: text[:300]), max_size=9),
    images=st.integers(0, 9),
    images_left_out=st.integers(0, 9),
)
LARGE = KnownFacts(
    task="Do it. " * 5_000,
    orders=["Mind this. " * 900] * 40,
    files=[(f"folder/file{number}.py", "9 lines, 90 bytes") for number in range(400)],
    commands=[RanCommand(f"run {number}", ok=True, ending="y" * 300) for number in range(20)],
    plan="Go on. " * 3_000,
    todos=[f"{number}: {'z' * 512} (pending)" for number in range(100)],
    more="Rules. " * 5_000,
    summary="## Goal\n" + "Words. " * 5_000,
    missing=[f"gone/{'n' * 290}"] * 100,
    images=3,
    images_left_out=2,
)


def size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


@given(KNOWN, st.integers(-100, 60_000))
@example(LARGE, 12_000)
@example(LARGE, 160_000)
@example(LARGE, 0)
def test_it_is_never_longer_than_its_room(known: KnownFacts, room: int) -> None:
    assert size(message_within(known, room)) <= max(room, HEADINGS_BYTES + LEAST_BYTES)


@given(KNOWN)
def test_what_fits_is_whole(known: KnownFacts) -> None:
    text = message_within(known, 10**9)
    said = [known.task, *known.orders, known.plan, known.summary]
    assert all(fenced(part) in text for part in said if part.strip())
    assert known.more.strip() in text
    assert all(line in text for line in known.todos)
    assert not re.search(r"left out\b|and \d+ more", text)


@table("most", [4_000, 9_000, 40_000])
def test_every_part_of_a_large_conversation_is_told(most: int) -> None:
    text = message_within(LARGE, most)
    assert size(text) > most * 0.8
    for words in (
        "Do it.",
        "Mind this.",
        "folder/file0.py",
        "`run 19` ended well",
        "Go on.",
        "\n0: z",
        "Rules.",
        "## Goal",
        "comes" if LARGE.images == 1 else "The first 3 images",
        "2 more images",
    ):
        assert words in text, words
    assert "(pending)" not in text  # its items are cut, and as many told as have room
    assert re.search(r"and \d+ more", text)
    assert ("older ones are left out" in text) is (most < 40_000)


def test_a_short_order_is_whole_beside_many_long_ones() -> None:
    orders = ["Never touch api.py", *(f"{number}: {'and so on ' * 400}" for number in range(20))]
    blocks = blocks_within(orders, 6_000)
    assert "Never touch api.py" in blocks[0]
    assert len(blocks) == len(orders)
    assert sum(map(size, blocks)) <= 6_000


def test_of_too_many_orders_the_newest_are_told_and_the_others_counted() -> None:
    orders = [f"order number {number} of many, in some words that take room" for number in range(900)]
    text = message_within(KnownFacts(orders=orders), 6_000)
    told = re.findall(r"order number (\d+) of", text)
    assert told == [str(number) for number in range(900 - len(told), 900)]
    assert f"[{900 - len(told)} older ones are left out.]" in text


@given(TEXTS, st.integers(-5, 3_000))
@example("`" * 900, 700)
def test_a_block_is_closed_by_its_own_fence_alone(text: str, most: int) -> None:
    block = block_within(text, most)
    assert size(block) <= max(most, 0)
    if block:
        fence = block.split("\n", 1)[0]
        assert block.endswith(fence)
        assert [found for found in FENCE.findall(block) if len(found) >= len(fence)] == [fence, fence]


@given(TEXTS, st.integers(0, 3_000))
def test_a_shortened_text_has_both_ends(text: str, most: int) -> None:
    cut = both_ends(text, most)
    assert size(cut) <= max(most, 0)
    assert cut == text or size(text) > most
    if most >= 200 and cut != text:
        head, _mark, tail = cut.partition("\n[... ")
        assert text.startswith(head)
        assert "characters are left out here" in tail


SHARES = st.dictionaries(st.sampled_from(sorted(WEIGHTS)), st.integers(0, 10_000))


@given(SHARES, st.integers(-5, 30_000))
def test_nobody_gets_less_than_its_share_and_all_together_no_more_than_there_is(
    wanted: dict[str, int], room: int
) -> None:
    shares = fair_shares(wanted, WEIGHTS, room)
    assert shares.keys() == wanted.keys()
    assert sum(shares.values()) <= max(room, 0)
    total = sum(WEIGHTS[name] for name in wanted)
    for name, share in shares.items():
        assert min(wanted[name], max(room, 0) * WEIGHTS[name] // total) <= share <= wanted[name]
    if sum(shares.values()) < min(sum(wanted.values()), room):
        assert min(sum(wanted.values()), room) - sum(shares.values()) < len(wanted)


@table(
    "change, words",
    [
        ({}, ""),
        ({"images": 1}, "The first image that people sent comes behind this message."),
        ({"images": 2}, "The first 2 images that people sent come behind this message."),
        ({"images_left_out": 1}, "1 image that people sent is not shown to you any more."),
        (
            {"images": 1, "images_left_out": 2},
            "2 more images that people sent are not shown to you any more.",
        ),
    ],
)
def test_it_says_which_images_it_has(change: dict[str, Any], words: str) -> None:
    text = message_within(replace(KnownFacts(task="Do it"), **change), 9_000)
    assert words in text
    assert ("image" in text) is bool(words)


def test_markdown_of_the_program_that_is_cut_closes_nothing() -> None:
    rules = "Instructions:\n\n```\n" + "Never mock.\n" * 900 + "```\n"
    text = message_within(KnownFacts(more=rules, summary="## Goal\nThe end"), 4_000)
    fences: Sequence[str] = FENCE.findall(text)
    assert len(fences[0]) > 3
    assert fences.count(fences[0]) == 2
    assert text.endswith("```\n## Goal\nThe end\n```")

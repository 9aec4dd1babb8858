"""What a request has of a conversation: the slices, and when a conversation is due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.messages import Message, Reasoning, Role, Text, ToolCall, ToolResult, Usage
from orchestrator.engine.contracts.native import Native
from orchestrator.engine.session.compaction import newest_within, summary_plus_recent
from orchestrator.engine.session.config import ASSUMED_WINDOW, EXPLORER, CompactionPolicy
from orchestrator.engine.session.history import History, Turn, TurnKind, recent
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = ManualClock().now()
LETTERS = {
    "u": TurnKind.USER,
    "s": TurnKind.STEERING,
    "p": TurnKind.SYSTEM,
    "a": TurnKind.ASSISTANT,
    "r": TurnKind.TOOL_RESULTS,
    "S": TurnKind.SUMMARY,
}


def turn(letter: str, number: int, keeps: int = 0) -> Turn:
    """A turn; `c` is a reply with a call, and `r` has the result of the call before it."""
    if letter == "c":
        thought = Reasoning("so", {"anthropic": {"signature": f"sig{number}"}})
        call = ToolCall(f"call{number}", "look", {"n": number})
        return Turn(TurnKind.ASSISTANT, Message(Role.ASSISTANT, (thought, Text("look"), call)), NOW)
    if letter == "r":
        return Turn(
            TurnKind.TOOL_RESULTS, Message(Role.TOOL, (ToolResult(f"call{number - 1}", "look", "x"),)), NOW
        )
    role = Role.ASSISTANT if letter == "a" else Role.USER
    return Turn(LETTERS[letter], Message(role, (Text(f"{letter}{number}"),)), NOW, keeps=keeps)


def turns(letters: str, keeps: int = 0) -> list[Turn]:
    return [turn(letter, number, keeps) for number, letter in enumerate(letters)]


PIECES = st.lists(st.sampled_from(["u", "s", "p", "a", "cr", "cr", "crcr"]), max_size=20).map("".join)


def check_whole(shown: Sequence[Turn]) -> None:
    """Each result has its call before it, and each call its result behind it."""
    asked: set[str] = set()
    for one in shown:
        assert {result.call_id for result in one.results} == (asked if one.results else set())
        assert not asked or one.results
        asked = {call.id for call in one.tool_calls}
    assert not asked


@table(
    "letters, limit, first",
    [
        ("", 5, 0),
        ("u", 5, 0),
        ("ucrcra", 2, 0),
        ("ucrcra", 1, 5),
        ("uacrcru", 1, 6),
        ("uucrcra", 2, 1),
        ("uapsau", 2, 4),
        ("ucrcrcrcr", 1, 0),
        ("uau", 0, 3),
    ],
)
def test_tool_turns_ride_along_and_do_not_count(letters: str, limit: int, first: int) -> None:
    whole = turns(letters)
    assert list(recent(whole, limit)) == whole[first:]


@given(PIECES, st.integers(0, 8))
def test_recent_is_whole_and_counts_what_people_and_the_model_say(letters: str, limit: int) -> None:
    whole = turns(letters)
    shown = History(whole).recent(limit)
    assert list(History(whole).shown) == whole
    assert list(shown) == whole[len(whole) - len(shown) :]
    check_whole(shown)
    said = sum(letters.count(letter) for letter in "usa")
    kept = [
        one
        for one in shown
        if one.kind in {TurnKind.USER, TurnKind.STEERING}
        or (one.kind is TurnKind.ASSISTANT and not one.tool_calls)
    ]
    assert len(kept) == min(limit, said)


@given(PIECES, PIECES, st.integers(0, 30), st.integers(0, 3))
@example("ucrcr", "u", 1, 1)
@example("cr", "cr", 9, 1)
def test_what_follows_a_summary_is_whole_and_the_history_stays(
    before: str, after: str, keeps: int, olds: int
) -> None:
    old = turns("S") * min(olds, 1)
    record = [*old, *turns(before), turn("S", 98, keeps), *turns(after)]
    copy = list(record)
    shown = summary_plus_recent(record)
    assert record == copy
    assert shown[0] is record[len(old) + len(before)]
    assert list(shown[len(shown) - len(after) :] if after else []) == record[len(old) + len(before) + 1 :]
    assert sum(one.kind is TurnKind.SUMMARY for one in shown) == 1
    assert len(shown) <= 1 + keeps + len(after)
    check_whole(shown)


@given(PIECES, PIECES, st.integers(0, 30))
def test_a_history_has_what_the_transform_gives_and_takes_each_later_turn(
    before: str, after: str, keeps: int
) -> None:
    record = [*turns(before), turn("S", 98, keeps), *turns(after)]
    grown = History((), summary_plus_recent)
    for one in record:
        grown.add(one)
    assert list(grown.turns) == record
    assert list(grown.context(Native())) == [one.message for one in summary_plus_recent(record)]
    made = History(record, summary_plus_recent)
    assert (made.tokens, made.chat_turns) == (grown.tokens, grown.chat_turns)
    assert grown.tokens == History(summary_plus_recent(record)[1:]).tokens + History([turn("u", 98)]).tokens
    assert grown.generation == 1


@given(PIECES, st.integers(0, 30))
@example("ucrcr", 1)
@example("ucrcr", 3)
@example("ucrcra", 4)
def test_the_newest_turns_within_a_size_are_whole_and_as_many_as_fit(letters: str, most: int) -> None:
    whole = turns(letters)
    first = newest_within(whole, lambda _one: 1, most)
    assert len(whole) - first <= most
    check_whole(whole[first:])
    for longer in range(max(len(whole) - most, 0), first):
        with pytest.raises(AssertionError):
            check_whole(whole[longer:])


def test_requests_under_way_keep_their_conversation() -> None:
    history = History(turns("ucrcr"), summary_plus_recent)
    under_way = history.context(Native())
    said = list(under_way)
    history.add(turn("S", 98, 2))
    history.add(turn("a", 99))
    assert list(under_way) == said
    assert len(history.context(Native())) == 4


@table(
    "policy, tokens, steps, window, due",
    [
        (CompactionPolicy(share=0.4), 39_999, 500, 100_000, ""),
        (CompactionPolicy(share=0.4), 40_000, 1, 100_000, "40% of the context window is used"),
        (CompactionPolicy(share=0.4), int(ASSUMED_WINDOW * 0.4) - 1, 1, None, ""),
        (CompactionPolicy(share=0.4), int(ASSUMED_WINDOW * 0.4), 1, None, "it has 51,200 tokens"),
        (EXPLORER, 19_999, 19, None, ""),
        (EXPLORER, 20_000, 1, 1_000_000, "it has 20,000 tokens"),
        (EXPLORER, 1, 20, None, "it has 20 turns"),
        (CompactionPolicy(share=0.5, max_tokens=900), 900, 1, 1_000, "50% of the context window is used"),
        (CompactionPolicy(share=0.5, max_tokens=900), 899, 1, None, ""),
        (CompactionPolicy(share=0.5, max_tokens=900), 900, 1, None, "it has 900 tokens"),
        (CompactionPolicy(max_turns=3), 10**9, 2, None, "it has 128,000 tokens"),
    ],
)
def test_a_conversation_is_due_by_the_first_limit_that_it_reaches(
    policy: CompactionPolicy, tokens: int, steps: int, window: int | None, due: str
) -> None:
    assert policy.due(tokens, steps, window) == due
    assert policy.target_tokens(window) * 2 <= policy.most_tokens(window)


@table(
    "constant, value",
    [
        (EXPLORER.max_turns, 20),  # MAX_TURNS, and so CONTEXT_WINDOW
        (EXPLORER.max_tokens, 20_000),  # TOKEN_LIMIT
        (EXPLORER.keep_turns, 5),  # MESSAGES_AFTER_SUMMARIZATION
        (EXPLORER.share, None),
    ],
)
def test_the_constants_are_the_documents(constant: float | None, value: float | None) -> None:
    assert constant == value


@table(
    "values",
    [
        {"share": 0.0},
        {"share": 1.0},
        {"share": 1},
        {"max_turns": 0},
        {"max_tokens": True},
        {"keep_turns": -1},
    ],
)
def test_a_policy_out_of_its_bounds_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(values))):
        CompactionPolicy(**values)


def test_a_new_conversation_is_estimated_at_the_rates_of_the_old_one() -> None:
    history = History(turns("u" + "cr" * 50), summary_plus_recent)
    size = sum(len(text) for text in ["x"] * 400)
    history.meter.record_count(Usage(5_000, 100), "m", "m", size)
    before = history.meter.likely_tokens("m", size)
    assert before == 5_100
    history.add(turn("S", 98, 2))
    after, most = history.meter.likely_tokens("m", size), history.meter.tokens("m", size)
    assert after < before / 5
    assert most >= after
    assert history.meter.has_count_of("m")
    history.meter.record_count(Usage(300, 10), "m", "m", size)
    assert history.meter.likely_tokens("m", size) == history.meter.tokens("m", size) == 310

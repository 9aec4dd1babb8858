"""What of a conversation a request has under a contract that forgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.clock import ManualClock
from orchestrator.core.messages import Message, Role
from orchestrator.engine.contracts.native import Native
from orchestrator.engine.contracts.whole_file import WholeFile
from orchestrator.engine.session.history import History, Turn, TurnKind

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = ManualClock().now()


def history(*kinds: TurnKind) -> History:
    turns = History()
    for number, kind in enumerate(kinds):
        say = Message.assistant if kind is TurnKind.ASSISTANT else Message.user
        turns.add(Turn(kind, say(f"{kind} {number}"), NOW))
    return turns


def texts(turns: History) -> list[str]:
    return [message.text for message in latest(turns)]


def latest(turns: History) -> Sequence[Message]:
    """What a request has under the contract of whole files, which has read each reply."""
    replies = [turn for turn in turns.turns if turn.kind is TurnKind.ASSISTANT]
    return turns.context(WholeFile(replies=len(replies)))


def test_the_last_reply_is_there_after_each_odd_one() -> None:
    begin, reply, results = TurnKind.USER, TurnKind.ASSISTANT, TurnKind.TOOL_RESULTS
    assert texts(history(begin)) == ["user 0"]
    assert texts(history(begin, reply, results)) == ["user 0", "assistant 1", "tool_results 2"]
    assert texts(history(begin, reply, results, reply, results)) == ["user 0\n\ntool_results 4"]
    third = history(begin, reply, results, reply, results, reply, TurnKind.SYSTEM)
    assert texts(third) == ["user 0", "assistant 5", "system 6"]


@given(st.lists(st.sampled_from(TurnKind)))
def test_what_people_say_is_never_forgotten(kinds: list[TurnKind]) -> None:
    turns = history(*kinds)
    people = [turn.content for turn in turns.turns if turn.kind in {TurnKind.USER, TurnKind.STEERING}]
    said = texts(turns)
    together = "\n\n".join(said)
    assert all(text in together for text in people)
    roles = [message.role for message in latest(turns)]
    assert roles.count(Role.ASSISTANT) <= 1
    assert turns.context(Native()) == [turn.message for turn in turns.turns]

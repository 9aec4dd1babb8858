"""What a request has of a conversation, and how an earlier one is taken up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.journal.records import decode_event, encode_event
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import BadReplyError, ConnectionFailedError
from orchestrator.core.events import Event, MessageAdded, ReplyReceived, SubagentEvent
from orchestrator.core.messages import (
    FinishReason,
    Image,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from orchestrator.engine.contracts.json_plan import JsonPlan
from orchestrator.engine.contracts.native import Native
from orchestrator.engine.contracts.whole_file import WholeFile
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.session.config import Host, SessionConfig
from orchestrator.engine.session.history import (
    MOST_COMMANDS,
    History,
    RanCommand,
    Turn,
    TurnKind,
    history_of,
    message_bytes,
    repaired_turns,
)
from orchestrator.engine.session.session import Session
from tests.unit.engine.session.stage import ScriptedModel, profile, says, session_in

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


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


async def test_what_was_wrong_is_said_only_where_the_reply_is_shown(tmp_path: Path) -> None:
    contract = WholeFile("gcd.py", tests="test_gcd fails.")
    steps = [says("No."), says("No."), says("No.")]
    async with session_in(tmp_path, *steps, contract=contract) as (session, model):
        with pytest.raises(BadReplyError):
            await session.run("Mend gcd")
    shown = [[message.text for message in request.messages] for request in model.requests[1:]]
    assert ["No." in texts for texts in shown] == [True, False]
    assert ["no code block" in texts[-1] for texts in shown] == [True, False]
    assert ["test_gcd fails." in texts[-1] for texts in shown] == [False, True]


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


AT = ManualClock().now()
LOOK = ("glob", {"pattern": "*"})


def write(name: str) -> tuple[str, dict[str, str]]:
    return "write_file", {"file_path": name, "content": name}


def plan(*calls: tuple[str, Any]) -> str:
    return json.dumps({"plan": "p", "tool_calls": [{"tool_name": n, "arguments": a} for n, a in calls]})


NATIVE = [
    says("I look.", LOOK, write("a.txt")),
    says("I write.", write("b.txt")),
    ConnectionFailedError("the network is gone"),
    says("", write("../c.txt"), LOOK),
    says("Half a reply", ("glob", {"pattern": "x"}), finish=FinishReason.LENGTH),
    says("", LOOK),
    says("", LOOK),
    says("Done."),
]
PLANNED = [
    says(plan(LOOK)),
    says("no plan at all"),
    says(plan()),
    ConnectionFailedError("the network is gone"),
    says(plan(write("a.txt"), LOOK)),
    says(plan(write("b.txt"))),
]


async def recorded(folder: Path, steps: Sequence[Any], **fields: Any) -> tuple[list[Event], ScriptedModel]:
    """The events of a session, through the journal's form, and the model that was asked."""
    events: list[Event] = []
    host = Host(system=lambda _shown: "You are tested.", emit=events.append)
    config = SessionConfig(loop_detection_window=2, max_turns=len(steps))
    async with session_in(folder, *steps, host=host, config=config, **fields) as (session, model):
        session.steer("Mind the tests")
        with pytest.raises(ConnectionFailedError):
            await session.run("Go")
        session.steer("And the docs")
        await session.run("Go on")
    written = [decode_event(json.loads(json.dumps(encode_event(event)))) for event in events]
    return [event for event in written if isinstance(event, Event)], model


def sent(message: Message) -> list[object]:
    """What vendors see of a message; a journal has lists for tuples in arguments."""
    return [message.role, *message.parts]


@pytest.mark.parametrize(("steps", "contract"), [(NATIVE, None), (PLANNED, JsonPlan())])
async def test_wherever_a_session_is_cut_the_next_one_asks_with_the_same_messages(
    tmp_path: Path, steps: Sequence[Any], contract: JsonPlan | None
) -> None:
    events, model = await recorded(tmp_path, steps, **({"contract": contract} if contract else {}))
    whole = [sent(message) for message in model.requests[-1].messages]
    lengths = []
    for cut in range(len(events) + 1):
        turns = history_of(events[:cut], AT)
        messages = [sent(turn.message) for turn in turns]
        assert messages[: len(whole)] == whole[: len(messages)], f"cut at {cut}"
        mended = repaired_turns(turns, AT)
        assert repaired_turns(mended, AT) == mended
        assert_valid([turn.message for turn in mended])
        lengths.append(len(messages))
    assert lengths[-1] >= len(whole)
    assert max(lengths) > len(steps)


async def test_a_resumed_sessions_first_request_is_the_one_that_was_cut(tmp_path: Path) -> None:
    events, model = await recorded(tmp_path, NATIVE)
    replies = [index for index, event in enumerate(events) if isinstance(event, ReplyReceived)]
    turns = history_of(events[: replies[3]], AT)  # before the fourth reply was read
    other = ScriptedModel([says("Done.")])
    session = Session(
        profile=profile(),
        environment=LocalEnvironment(tmp_path, sandbox="off"),
        model=other,
        host=Host(system=lambda _shown: "You are tested."),
        earlier=turns,
    )
    async with session:
        await session.run("The network is back")
    messages = [sent(message) for message in other.requests[0].messages]
    before = [sent(message) for message in model.requests[4].messages]
    assert messages[:-1] == before[: len(messages) - 1]
    assert len(messages) > 5
    assert other.requests[0].messages[-1] == Message.user("The network is back")
    assert session.budget.usage == Usage(10, 5), "what was spent before does not count here"


async def test_calls_that_were_running_are_answered_as_interrupted(tmp_path: Path) -> None:
    events, _model = await recorded(tmp_path, NATIVE)
    first = next(index for index, event in enumerate(events) if isinstance(event, ReplyReceived))
    other = ScriptedModel([says("Done.")])
    async with Session(
        profile=profile(),
        environment=LocalEnvironment(tmp_path, sandbox="off"),
        model=other,
        earlier=history_of(events[: first + 4], AT),
    ) as session:
        await session.run("Go on")
    results = other.requests[0].messages[-2]
    assert results.role is Role.TOOL
    assert [part.is_error for part in results.parts if isinstance(part, ToolResult)] == [True, True]
    assert "Interrupted" in str(results)


def test_what_subagents_said_does_not_count() -> None:
    inner = MessageAdded(Message.user("for the child"))
    assert history_of([SubagentEvent("a", inner)], AT) == []


async def test_messages_and_replies_alone_tell_the_same_conversation(tmp_path: Path) -> None:
    events, _model = await recorded(tmp_path, NATIVE)
    kept = [event for event in events if isinstance(event, MessageAdded | ReplyReceived)]
    turns = history_of(kept)
    assert [turn.message for turn in turns] == [turn.message for turn in history_of(events)]
    assert turns[0].kind is TurnKind.USER
    again = history_of([MessageAdded(turn.message) for turn in turns])
    assert [turn.kind for turn in again] == [turn.kind for turn in turns]


def test_somebody_elses_record_makes_no_message_that_a_vendor_refuses() -> None:
    call, result = ToolCall("c", "shell", {"command": "rm -rf /"}), ToolResult("c", "shell", "done")
    odd = [
        Message(Role.USER, (Text("x"), call)),
        Message(Role.USER, (result,)),
        Message(Role.ASSISTANT, (result, Image(b"x", "image/png"))),
        Message(Role.TOOL, (call, result)),
    ]
    turns = repaired_turns(history_of(map(MessageAdded, odd)), AT)
    assert [turn.message for turn in turns] == [Message.user("x")]


def assert_valid(messages: Sequence[Message]) -> None:
    """What vendors ask for: a user's message first, and each call answered right behind it, nothing else."""
    assert not messages or messages[0].role is Role.USER
    for index, message in enumerate(messages):
        assert message.parts
        before = messages[index - 1] if index else None
        asked = [part.id for part in before.parts if isinstance(part, ToolCall)] if before else []
        assert [part.call_id for part in message.parts if isinstance(part, ToolResult)] == asked


_IDS = st.sampled_from("abc")
_CALLS = st.builds(lambda name: ToolCall(name, "glob", {}), _IDS)
_RESULTS = st.builds(lambda name: ToolResult(name, "glob", "found"), _IDS)
_ASSISTANT = st.builds(
    lambda calls, text: Message(Role.ASSISTANT, (*map(Text, text), *calls)),
    st.lists(_CALLS, max_size=3, unique_by=lambda call: call.id),
    st.lists(st.just("Hm."), max_size=1),
)
_TOOL = st.builds(lambda results: Message(Role.TOOL, tuple(results)), st.lists(_RESULTS, max_size=4))
_USER = st.just(Message.user("x"))
_TURNS = st.lists(
    st.one_of(
        _USER.map(lambda message: Turn(TurnKind.USER, message, AT)),
        _USER.map(lambda message: Turn(TurnKind.SYSTEM, message, AT)),
        _ASSISTANT.map(lambda message: Turn(TurnKind.ASSISTANT, message, AT)),
        _TOOL.map(lambda message: Turn(TurnKind.TOOL_RESULTS, message, AT)),
    ),
    max_size=12,
)


@given(_TURNS)
def test_every_list_of_turns_becomes_sound_and_a_sound_one_stays(turns: list[Turn]) -> None:
    mended = repaired_turns(turns, AT)
    assert_valid([turn.message for turn in mended])
    assert repaired_turns(mended, AT) == mended
    words = [turn for turn in turns if turn.message.role is Role.USER]
    assert [turn for turn in mended if turn.message.role is Role.USER] == words, "no words are lost"


def test_pictures_and_what_vendors_want_back_count() -> None:
    picture = Message(Role.USER, (Image(b"x", "image/png"),))
    thought = Message(Role.ASSISTANT, (Reasoning("", {"anthropic": "s" * 9_000}),))
    assert min(message_bytes(picture), message_bytes(thought)) > 1_000


def test_of_each_command_the_last_run_is_known_in_order_and_of_many_the_newest() -> None:
    turns = History()
    for number in range(40):
        ran = (RanCommand(f"run {number % 30}", ok=number < 30, ending=str(number)),)
        turns.add(Turn(TurnKind.TOOL_RESULTS, Message.user("x"), NOW, ran=ran))
    assert len(turns.commands) == MOST_COMMANDS == 20
    assert [ran.command for ran in turns.commands] == [
        f"run {number}" for number in (*range(20, 30), *range(10))
    ]
    assert [ran.ok for ran in turns.commands] == [True] * 10 + [False] * 10


def test_what_people_said_before_a_place_is_known_after_pruning_too() -> None:
    kinds = [TurnKind.USER, *[TurnKind.ASSISTANT, TurnKind.STEERING, TurnKind.TOOL_RESULTS] * 4]
    turns = history(*kinds)

    def said(place: int) -> list[Turn]:
        return [turn for turn in turns.turns[:place] if turn.kind in {TurnKind.USER, TurnKind.STEERING}]

    assert [turns.user_turns_before(place) for place in range(14)] == [said(place) for place in range(14)]
    assert turns.prune()
    assert [turns.user_turns_before(place) for place in range(14)] == [said(place) for place in range(14)]

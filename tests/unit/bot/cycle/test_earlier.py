"""Pages that anybody who can push may have written."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime

from orchestrator.bot.cycle.earlier import (
    SESSION_PAGE,
    STATE_PAGE,
    BegunProposal,
    Earlier,
    RestoredWork,
    UnfinishedState,
    begun_proposal,
    conversation,
    files_to_keep,
    pages_of,
    read_kept,
    read_state_pages,
    trimmed_events,
)
from orchestrator.bot.cycle.tasks import Remark, Task, TaskKind
from orchestrator.bot.git.base import Packed
from orchestrator.bot.journal.run_facts import RunFacts
from orchestrator.core.cycle_events import Proposed, Proposing
from orchestrator.core.events import (
    CallStatus,
    Compacted,
    Event,
    InputReceived,
    MessageAdded,
    ReplyReceived,
    SteeringInjected,
    TodosChanged,
    ToolCallEnded,
    ToolCallStarted,
    Warned,
)
from orchestrator.core.messages import FinishReason, Image, Message, Role, Text, Usage
from orchestrator.core.redaction import REPLACEMENT
from orchestrator.engine.policy.secrets import Redactor
from orchestrator.engine.session.compaction import summary_plus_recent
from orchestrator.engine.session.history import TurnKind, ending_of, history_of, images_of, todos_of
from tests.tables import table
from tests.unit.app.cli.examples import TODOS

NOW = datetime(2026, 11, 21, tzinfo=UTC)
STATE = {"run": "r", "why": "limit", "model": "m", "contract": "native", "profile": "p"}
REPLY = {"type": "ReplyReceived", "message": {"role": "assistant", "parts": []}, "usage": {}, "usd": 10**400}


@table("line", [b"[]", b"1", b"null", b'"x"', b"[" * 100_000, json.dumps(REPLY).encode(), b"\xff"])
def test_a_conversation_that_is_not_in_form_is_not_used(line: bytes) -> None:
    assert read_state_pages({STATE_PAGE: json.dumps(STATE).encode(), SESSION_PAGE: line}) is None


@table(
    "state",
    [
        b"",
        b"[]",
        b"1",
        b'"abc"',
        b"null",
        b"{}",
        *(json.dumps(STATE | {"touched": odd}).encode() for odd in (3, [[1]])),
    ],
)
def test_a_state_that_is_not_in_form_is_not_used(state: bytes) -> None:
    assert read_state_pages({STATE_PAGE: state}) is None


BEGUN = BegunProposal("Make add() add", "It subtracted.", "pullwright/issue-1-add", "1" * 40)


@table("odd", [1, "x", [], {}, {"title": "x"}, {**asdict(BEGUN), "body": 1}])
def test_a_begun_proposal_that_is_not_in_form_is_not_used(odd: object) -> None:
    assert read_state_pages({STATE_PAGE: json.dumps(STATE | {"proposal": odd}).encode()}) is None


def test_a_state_is_read_as_it_was_written() -> None:
    state = UnfinishedState(
        "r",
        "paused",
        "m",
        "native",
        "p",
        ("a", "not utf-8 \udcff"),
        tip="2" * 40,
        proposal=BEGUN,
        status_marker="x",
    )
    assert read_state_pages(pages_of(state, (), Redactor())) == (state, ())
    (redacted, _) = read_state_pages(pages_of(state, (), Redactor(["subtracted"]))) or (
        None,
        (),
    )
    assert redacted is not None
    assert redacted.proposal == replace(BEGUN, body=f"It {REPLACEMENT}.")


def test_of_the_models_list_the_last_state_is_kept() -> None:
    lists = [TodosChanged(TODOS[:count], count) for count in (1, 2, 3)]
    reply = ReplyReceived(Message.assistant("{}"), FinishReason.STOP, Usage(1, 1), 0.0, "m")
    said = conversation(
        [MessageAdded(Message.user("Do it.")), lists[0], reply, lists[1], reply, lists[2], reply]
    )
    assert [event for event in said if isinstance(event, TodosChanged)] == [lists[2]]
    state = UnfinishedState("r", "limit", "m", "native", "p")
    _, events = read_state_pages(pages_of(state, trimmed_events(said), Redactor(["Read calc.py"]))) or (
        None,
        (),
    )
    assert [item.content for item in todos_of(events).items] == [
        REPLACEMENT,
        *(item.content for item in TODOS[1:]),
    ]
    assert todos_of([*events, *conversation([lists[0]])]).items == TODOS[:1]
    assert history_of(events) == history_of(said)


def test_of_a_call_only_the_end_of_a_command_s_output_is_kept() -> None:
    output = "".join(f"line {number}\n" for number in range(1_000))
    calls: list[Event] = [MessageAdded(Message.user("Do it."))]
    for call, name, arguments in (
        ("1", "shell", {"command": "pytest -q"}),
        ("2", "read_file", {"path": "a.py"}),
        ("1", "read_file", {"path": "b.py"}),  # another call with an id that was used
    ):
        calls += [
            ToolCallStarted(call, name, arguments),
            ToolCallEnded(call, name, CallStatus.OK, output),
        ]
    kept = conversation([*calls, Warned("of the program"), SteeringInjected("Go on.")])
    assert [type(event) for event in kept] == [
        *(InputReceived, MessageAdded, ToolCallStarted, ToolCallEnded, ToolCallEnded, ToolCallEnded),
        SteeringInjected,
    ]
    assert [event.output for event in kept if isinstance(event, ToolCallEnded)] == [ending_of(output), "", ""]


def long_conversation(
    replies: int, compacted_at: dict[int, int], image: bytes = b"", more: str = ""
) -> list[Event]:
    """A first message, and so many replies with answers of 1 kB; after some of them it was made shorter.

    Args:
        compacted_at: how many turns stayed, by the number of the reply.
        more: the rest of what stands for the others.
    """
    first = Message(Role.USER, (Text("Do it."), *([Image(image, "image/png")] if image else [])))
    events: list[Event] = [MessageAdded(first)]
    for number in range(replies):
        events.append(
            ReplyReceived(Message.assistant(f"reply {number}"), FinishReason.STOP, Usage(1, 1), 0.0, "m")
        )
        events.append(MessageAdded(Message.user(f"answer {number} " + "x" * 1_000)))
        if number in compacted_at:
            keeps = compacted_at[number]
            events.append(Compacted(9, 1, keeps, "due", f"what stands at {number}{more}", int(bool(image))))
    return conversation(events)


@table(
    "compacted_at, stands, shown",
    [
        ({}, "", 21),
        ({10: 2}, "what stands at 10", 20),
        ({10: 2, 40: 4}, "what stands at 40", 20),
        ({45: 4}, "what stands at 45", 12),
        ({40: 90}, "what stands at 40", 20),
        ({48: 90}, "what stands at 48", 20),
        ({49: 0}, "what stands at 49", 1),
    ],
)
def test_a_conversation_that_is_too_large_loses_its_middle_and_not_what_stands_for_it(
    compacted_at: dict[int, int], stands: str, shown: int
) -> None:
    said = long_conversation(50, compacted_at)
    trimmed = trimmed_events(said, 14_000)
    assert sum(map(len, pages_of_events(trimmed))) <= 14_000
    turns = list(summary_plus_recent(history_of(trimmed)))
    assert turns[0].content == (stands or "Do it.")
    assert turns[-1].content.startswith("answer 49" if shown > 1 else stands)
    assert len(turns) - shown in range(-4, 4)
    texts = [turn.content for turn in turns[1:]]
    assert "Do it." not in texts
    if texts and stands:
        whole = [turn.content for turn in summary_plus_recent(history_of(said))]
        assert texts == whole[len(whole) - len(texts) :]


def test_what_stands_for_the_middle_takes_its_room() -> None:
    trimmed = trimmed_events(long_conversation(50, {10: 2}, more="s" * 6_000), 14_000)
    assert 12_000 < sum(map(len, pages_of_events(trimmed))) <= 14_000
    assert sum(isinstance(event, Compacted) for event in trimmed) == 1


def pages_of_events(events: list[Event]) -> list[str]:
    page = pages_of(UnfinishedState("r", "limit", "m", "native", "p"), events, Redactor())[SESSION_PAGE]
    return page.decode().splitlines()


def test_images_that_are_too_large_to_be_stored_go_before_the_conversation_does() -> None:
    said = long_conversation(9, {5: 2}, b"\xff" * 12_000)
    turns = history_of(trimmed_events(said, 14_000))
    assert turns[0].content == "Do it."
    assert images_of(turns) == []
    assert turns[-1].content.startswith("answer 8")
    assert trimmed_events(said, 40_000) == said
    stands = next(turn for turn in history_of(said) if turn.kind is TurnKind.SUMMARY)
    assert [type(part) for part in stands.message.parts] == [Text, Image]


def test_a_state_of_an_older_version_does_not_know_the_branch() -> None:
    (state, _) = read_state_pages({STATE_PAGE: json.dumps(STATE).encode()}) or (None, ())
    assert state is not None
    assert (state.tip, state.proposal) == (None, None)
    assert Earlier(state, None, "", None).knows("3" * 40), "so that nothing is taken for over"


def test_what_is_kept_is_read_as_it_was_written() -> None:
    state = UnfinishedState("r", "paused", "m", "native", "p", tip="", proposal=BEGUN)
    packed = Packed("4" * 40, "5" * 40, "5" * 40, b"pack")
    files = files_to_keep(packed, pages_of(state, (), Redactor()), "6" * 40)
    found, replaces = read_kept(files) or (None, None)
    assert found == Earlier(state, "4" * 40, "", None, "5" * 40, objects=packed)
    assert replaces == "6" * 40
    assert found is not None
    assert [found.knows(tip) for tip in ("", BEGUN.commit, "7" * 40)] == [True, True, False]


@table("page", ["state.json", "work.json"])
@table("content", [b"", b"[]", b'{"work": 1}'])
def test_what_is_kept_and_damaged_is_not_used(page: str, content: bytes) -> None:
    files = files_to_keep(
        Packed(None, "5" * 40, "5" * 40, b""), pages_of(UnfinishedState(*"rwmcp"), (), Redactor()), None
    )
    assert read_kept({**files, page: content}) is None


def facts_of(*events: Event) -> RunFacts:
    facts = RunFacts()
    for event in events:
        facts.take(event, NOW)
    return facts


def test_a_proposal_is_begun_until_it_was_read_back() -> None:
    begun = Proposing(BEGUN.title, BEGUN.body, BEGUN.branch, BEGUN.commit)
    done = Proposed(2, BEGUN.title, "https://example.com/2", BEGUN.branch, BEGUN.commit, created=True)
    assert begun_proposal(facts_of()) is None
    assert begun_proposal(facts_of(begun)) == BEGUN
    assert begun_proposal(facts_of(begun, done)) is None
    assert begun_proposal(facts_of(begun, done, begun)) == BEGUN
    assert begun_proposal(facts_of(), BEGUN) == BEGUN
    assert begun_proposal(facts_of(done), BEGUN) is None


def test_a_proposal_does_no_other_task_and_no_newer_words() -> None:
    found = Earlier(
        UnfinishedState("r", "w", "m", "c", "p", proposal=BEGUN, status_marker="one"), None, "", None
    )
    task = Task("issue-1", "Add", "", "issue", 1)
    assert found.begun_for(task) == BEGUN
    assert found.begun_for(replace(task, key="issue-12")) is None
    assert found.begun_for(replace(task, kind=TaskKind.UNFINISHED)) == BEGUN
    review = replace(task, kind=TaskKind.REVIEW, status_marker="one")
    assert found.begun_for(review) == BEGUN
    assert found.begun_for(replace(review, status_marker="two")) is None
    assert found.begun_for(replace(review, status_marker="")) is None


def test_a_conversation_that_lacks_what_is_asked_now_is_told_it() -> None:
    asked = Message.user("Add it.\n\n```\nPlease keep it short.\n```")
    state = UnfinishedState("r", "w", "m", "c", "p", status_marker="one")
    found = Earlier(state, None, "", None, events=(MessageAdded(asked),))
    task = Task(
        "issue-1", "Add", "", "issue", 1, remarks=(Remark("ada", "Please keep it short.", trusted=True),)
    )
    assert found.has_shown(task)
    said = replace(task, remarks=(*task.remarks, Remark("ada", "And document it.\n", trusted=True)))
    assert not found.has_shown(said)
    assert replace(found, answer=said.remarks[1]).has_shown(said)
    assert found.has_shown(replace(task, kind=TaskKind.REVIEW, status_marker="one"))
    assert not found.has_shown(replace(task, kind=TaskKind.REVIEW, status_marker="two"))


def test_a_commit_alone_puts_what_was_proposed_onto_its_base_unless_they_conflict() -> None:
    proposed = RestoredWork(("a.py",), joined=True)
    assert proposed.replays
    assert not replace(proposed, conflicts=("a.py",)).replays
    assert not RestoredWork(("a.py",)).replays

"""What a cycle's session keeps for the next one, and what it tells and asks while it runs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.bot.cycle.act import CycleSession
from orchestrator.bot.cycle.briefing import FirstMessage
from orchestrator.bot.cycle.earlier import BegunProposal, Earlier, RestoredWork, UnfinishedState
from orchestrator.bot.cycle.parts import CycleResult
from orchestrator.bot.cycle.repository_rules import Statement
from orchestrator.bot.cycle.tasks import Remark, Task
from orchestrator.bot.git.base import Snapshot
from orchestrator.bot.journal.run_facts import RunFacts
from orchestrator.core.clock import ManualClock
from orchestrator.core.cycle_events import Proposing, Resumed
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.events import (
    CallStatus,
    Event,
    MessageAdded,
    ReplyReceived,
    ToolCallEnded,
    ToolCallStarted,
    Warned,
)
from orchestrator.core.messages import FinishReason, Message, Spent, Usage
from orchestrator.engine.session.budget import Limits
from orchestrator.engine.tools.base import Ledger
from tests.tables import table

TASK = Task("issue-7", "Add", "It subtracts.", "issue", 7)
EARLIER = Earlier(
    UnfinishedState("run-0", "limit", "m-0", "c-0", "p-0", question="Which?", question_url="u-0", attempts=2),
    "1" * 40,
    "refs/work",
    "2" * 40,
    "3" * 40,
    events=(MessageAdded(Message.user("Add it.")),),
)
BEGUN = BegunProposal("Add", "Text.", "pullwright/issue-7-add", "4" * 40)


def session(*, earlier: Earlier | None = None, running: Any = None, **parts: Any) -> Any:
    """Return a session as it is after its start, without a clone and an environment."""
    made: Any = CycleSession.__new__(CycleSession)
    made.told = list[Event]()
    given: dict[str, Any] = {
        "run": "run-1",
        "operator": None,
        "model": SimpleNamespace(name="m"),
        "contract": SimpleNamespace(name="c"),
        "profile_name": "p",
        "clock": ManualClock(),
        "limits": Limits(minutes=10),
        "price": lambda usage: usage.total_tokens / 100,
        "memory": None,
        "recorded_tests": None,
        "verifier": None,
        "options": SimpleNamespace(require_tests=False),
        "emit": made.told.append,
        **parts,
    }
    made._parts, made.earlier, made._session = SimpleNamespace(**given), earlier, running
    made._task, made._result, made.ledger = TASK, CycleResult("run-1"), Ledger(touched={"b.py", "a.py"})
    made._events, made.said, made._happened = [], [], RunFacts()
    made._commits = SimpleNamespace(messages=["One"])
    made.proposer = SimpleNamespace(pushed=None, branch=BEGUN.branch)
    made.verification = SimpleNamespace(refused=None, keeps_back=False)
    made._statements = SimpleNamespace(usage=Usage(), requests=0, is_able=True)
    made._sanitizer = SimpleNamespace(text=lambda _where, text: f"clean {text}")
    made.clone, made.restored = SimpleNamespace(start="5" * 40, blobs=None), RestoredWork()
    made._started, made._is_restored, made._has_ended = given["clock"].monotonic(), True, False
    made._evidence = lambda _event: None
    made._nested, made._calls, made._about, made._recalled = {}, {}, set(), ""
    return made


def running(**values: Any) -> Any:
    budget = {
        "usage": Usage(3, 4),
        "uncertain_tokens": 5,
        "usd": 0.5,
        "rounds": 2,
        "wrapping_up": None,
        "exceeded": lambda: None,
    }
    steered: list[str] = []
    return SimpleNamespace(
        budget=SimpleNamespace(**{**budget, **values}), steer=steered.append, steered=steered
    )


def test_a_cycle_with_a_conversation_keeps_its_own() -> None:
    made = session(earlier=EARLIER, running=running())
    made._result.question, made._result.question_url = "What?", "u"
    state = made.state("question")
    assert (state.model, state.contract, state.profile) == ("m", "c", "p")
    assert (state.question, state.question_url, state.attempts) == ("What?", "u", 3)
    assert (state.touched, state.messages, state.tip, state.proposal) == (
        ("a.py", "b.py"),
        ("One",),
        "",
        None,
    )
    made._result.question_url = None
    assert made.state("question").question_url == ""


def test_a_cycle_that_had_none_keeps_that_of_the_one_before() -> None:
    state = session(earlier=EARLIER).state("paused")
    assert (state.model, state.contract, state.profile) == ("m-0", "c-0", "p-0")
    assert (state.question, state.question_url) == ("Which?", "u-0")
    asked = session(earlier=EARLIER)
    asked._result.question = "What?"
    assert (asked.state("question").question, asked.state("question").question_url) == ("What?", "")
    alone = session().state("paused")
    assert (alone.model, alone.question, alone.attempts) == ("m", "", 1)


@table(
    ("earlier", "operator", "counts", "attempts"),
    [
        (None, None, True, 1),
        (None, None, False, 0),
        (EARLIER, None, True, 3),
        (EARLIER, None, False, 2),
        (EARLIER, "a person", True, 0),
    ],
)
def test_attempts_are_counted(earlier: Earlier | None, operator: Any, *, counts: bool, attempts: int) -> None:
    assert session(earlier=earlier, operator=operator).state("limit", counts=counts).attempts == attempts


def test_what_was_about_to_be_proposed_is_kept() -> None:
    made = session()
    assert made.state("limit").proposal is None
    made.verification = SimpleNamespace(refused=("Add", "Text."), keeps_back=False)
    assert made.state("limit").proposal is None
    made.verification.keeps_back = True
    assert made.state("tests_fail").proposal == replace(BEGUN, commit="")
    made._happened.take(
        Proposing(BEGUN.title, BEGUN.body, BEGUN.branch, BEGUN.commit), made._parts.clock.now()
    )
    assert made.state("paused").proposal == BEGUN
    before = session(earlier=replace(EARLIER, state=replace(EARLIER.state, proposal=BEGUN)))
    assert before.state("paused").proposal == BEGUN
    before._session = running()
    assert before.state("paused").proposal is None, "the model has gone on since"


@table(
    ("earlier", "is_restored", "continues", "files", "events"),
    [
        (None, True, None, Snapshot(None, "5" * 40, ()), 0),
        (EARLIER, True, "2" * 40, Snapshot("1" * 40, "3" * 40, ()), 1),
        (EARLIER, False, None, Snapshot(None, "5" * 40, ()), 0),
        (replace(EARLIER, work=None), True, "2" * 40, Snapshot(None, "5" * 40, ()), 1),
    ],
)
def test_what_was_taken_up_is_contained(
    earlier: Earlier | None, *, is_restored: bool, continues: str | None, files: Snapshot, events: int
) -> None:
    made = session(earlier=earlier)
    made._is_restored = is_restored
    assert (made.continues, made.saved_files, len(made.conversation)) == (continues, files, events)
    made._session = running()
    assert made.conversation == []


def test_the_cost_has_the_questions_about_the_rules_too() -> None:
    made = session()
    made._parts.clock.advance(120)
    assert made.spent == Spent(0.0, 0, 2.0, 0)
    made._session = running()
    assert made.spent == Spent(0.5, 12, 2.0, 2)
    made._statements = SimpleNamespace(usage=Usage(10, 10), requests=1)
    assert made.spent == Spent(0.7, 32, 2.0, 2)
    assert made._minutes_left() == 8.0
    made._parts.limits = Limits()
    assert made._minutes_left() is None


REPLIES = (
    ReplyReceived(Message.assistant("First."), FinishReason.STOP, Usage(1, 1), 0.0, "m"),
    ReplyReceived(Message.assistant("Last."), FinishReason.STOP, Usage(1, 1), 0.0, "m"),
    ReplyReceived(Message.assistant(" "), FinishReason.STOP, Usage(1, 1), 0.0, "m"),
)


@table(
    ("earlier", "shown", "hidden"),
    [
        (EARLIER, ["(limit)", "Which?"], ["said last", "answered:"]),
        (replace(EARLIER, events=REPLIES), ["clean Last.", "Which?"], ["First."]),
        (replace(EARLIER, answer=Remark("ada", "Two.", trusted=True)), ["`ada`", "Two."], []),
        (replace(EARLIER, answer=Remark("", "Two.", trusted=True)), ["who runs you", "Two."], ["`" + "`,"]),
        (replace(EARLIER, state=replace(EARLIER.state, question="")), ["(limit)"], ["asked a person"]),
        (replace(EARLIER, state=replace(EARLIER.state, run="")), [], ["(limit)"]),
    ],
)
def test_a_model_that_lacks_the_conversation_is_told_of_it(
    earlier: Earlier, shown: list[str], hidden: list[str]
) -> None:
    first: Any = FirstMessage.__new__(FirstMessage)
    object.__setattr__(
        first,
        "attempt",
        SimpleNamespace(sanitizer=SimpleNamespace(text=lambda _where, text: text and f"clean {text}")),
    )
    text = first.take_over(earlier)
    assert [part for part in shown if part not in text] == []
    assert [part for part in hidden if part in text] == []
    assert bool(text) is bool(earlier.state.run)


@table(
    ("values", "has_ended", "goes_on", "is_last"),
    [
        (None, False, True, False),
        ({}, False, True, False),
        ({}, True, False, False),
        ({"wrapping_up": "tokens"}, False, False, True),
        ({"exceeded": lambda: "tokens"}, False, False, False),
    ],
)
def test_whether_the_model_is_asked_again(
    values: dict[str, Any] | None, *, has_ended: bool, goes_on: bool, is_last: bool
) -> None:
    made = session(running=None if values is None else running(**values))
    made._has_ended = has_ended
    assert (made._may_go_on(), made._is_last()) == (goes_on, is_last)


DOUBTFUL = [Statement("CONTRIBUTING.md", f"Sentence {number}.") for number in range(14)]


@pytest.mark.parametrize(
    ("recorded", "doubtful", "found", "able", "asked", "warnings"),
    [
        (None, DOUBTFUL[:2], DOUBTFUL[1], True, 2, 0),
        (None, DOUBTFUL[:2], None, True, 2, 1),
        (None, DOUBTFUL[:2], DOUBTFUL[0], False, 2, 1),
        (None, [], None, True, 0, 0),
        ("a replay", DOUBTFUL[:2], DOUBTFUL[1], True, 0, 0),
        (None, DOUBTFUL, None, True, 14, 1),
    ],
)
async def test_doubtful_sentences_are_asked_about(  # noqa: PLR0913  a table
    recorded: Any,
    doubtful: list[Statement],
    *,
    found: Statement | None,
    able: bool,
    asked: int,
    warnings: int,
) -> None:
    shown: list[str] = []

    async def refusing(statements: list[Statement]) -> Statement | None:
        shown.extend(one.sentence for one in statements)
        return found

    made = session(recorded_tests=recorded)
    made._statements = SimpleNamespace(refusing=refusing, is_able=able)
    said = await made._refusing(doubtful)
    assert shown == [f"clean {one.sentence}" for one in doubtful[:asked]]
    assert said == ("" if found is None or not asked else str(found))
    told = [event.message for event in made.told if isinstance(event, Warned)]
    assert len(told) == warnings
    if len(doubtful) > 12:
        assert "; 2 more, which are less likely to be one, were not asked about" in told[0]


@table(
    ("verifier", "recorded", "required", "made"),
    [
        (lambda _clone: "it", None, False, "it"),
        (lambda _clone: "it", "a replay", True, None),
        (None, None, True, None),
        (lambda _clone: None, None, False, None),
    ],
)
def test_who_runs_the_tests(verifier: Any, recorded: Any, *, required: bool, made: str | None) -> None:
    options = SimpleNamespace(require_tests=required)
    assert session(verifier=verifier, recorded_tests=recorded, options=options)._make_verifier() == made


def test_required_tests_need_a_command() -> None:
    with pytest.raises(ConfigurationError, match="name it with --test-command"):
        session(verifier=lambda _clone: None, options=SimpleNamespace(require_tests=True))._make_verifier()


@pytest.mark.parametrize(
    ("path", "status", "shown"),
    [
        ("src/app/a.py", CallStatus.OK, ["src/", "src/app/"]),
        ("./src/b.py", CallStatus.OK, ["src/"]),
        ("docs/a.md", CallStatus.OK, []),
        ("src/app/a.py", CallStatus.FAILED, []),
    ],
)
def test_the_rules_of_a_folder_come_with_its_first_file(
    path: str, status: CallStatus, shown: list[str]
) -> None:
    made = session(running=running())
    made._nested = {"src/app/": "Use tabs.", "src/": "Use spaces."}
    for call in ("1", "2"):
        made._emit(ToolCallStarted(call, "read_file", {"path": path}))
        made._emit(ToolCallEnded(call, "read_file", status, ""))
    assert [
        next(one for one in ("src/app/", "src/") if one in words) for words in made._session.steered
    ] == shown
    assert len(made._nested) == 2 - len(shown)


def test_what_a_person_says_to_the_model_is_kept() -> None:
    made, other = session(), running()
    made.record_message(other, "x" * 5_000, EARLIER.events)
    assert made._session is other
    assert made.said == ["x" * 4_000]
    assert len(made.conversation) == 2, "an input, and the message"
    made.record_message(other, "", EARLIER.events)
    assert (len(made.said), len(made.conversation)) == (1, 2)


@pytest.mark.parametrize("is_default", [True, False])
async def test_a_profile_is_completed_and_its_warnings_are_told(*, is_default: bool) -> None:
    given: list[Any] = []

    def complete(profile: str, sources: Any) -> str:
        given.append((sources.trees, sources.whole_file))
        sources.warn("a skill cannot be read")
        return f"{profile}, completed"

    async def default(_restored: Any) -> bool:
        return is_default

    made = session(completions=(complete,), contract=SimpleNamespace(name="c", writes_whole_files=True))
    made._first_message = SimpleNamespace(is_default=default)
    clone = SimpleNamespace(trees="trees", base_commit="1" * 40)
    sanitizer = SimpleNamespace(text=str, line=lambda text: f"clean {text}")
    made.attempt = SimpleNamespace(clone=clone, sanitizer=sanitizer)
    assert await made._complete("profile") == "profile, completed"
    assert given == [("trees" if is_default else None, True)]
    assert made.told == [Warned("clean a skill cannot be read")]


class Memory:
    """Remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def recall(self, message: str, _about: Any, _blobs: Any) -> str:
        self.asked.append(message)
        return "a fact"


async def test_memories_of_the_first_message_are_those_of_the_task() -> None:
    assert await session()._recall("Hello") == ""
    memory = Memory()
    made = session(memory=memory)
    assert await made._recall("Hello") == "a fact"
    assert made._recalled == "clean a fact"
    made._session = running(rounds=0)
    await made._recall("Hello")
    made._session = running()
    await made._recall("And?")
    assert memory.asked == ["Add\nIt subtracts."] * 2 + ["And?"]


def test_what_is_gone_on_with_is_told() -> None:
    made = session(earlier=EARLIER)
    made.restored = RestoredWork(("a.py",), ("a.py",))
    made.tell_resumed(4)
    assert made.told == [Resumed("run-0", "limit", 4, 1, ("a.py",), "2" * 40)]
    branch_alone = replace(EARLIER, state=replace(EARLIER.state, run=""))
    for nothing in (session(), session(earlier=branch_alone)):
        nothing.tell_resumed()
        assert nothing.told == []

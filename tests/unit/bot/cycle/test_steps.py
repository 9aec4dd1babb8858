"""The steps of a cycle around its session: what needs no model, what is proposed unasked, and when tests send a change back."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.bot.cycle.act import _in_words, _paths_in
from orchestrator.bot.cycle.cycle import (
    _complete_earlier_proposal,
    _plan_and_act,
    _propose_refused_change,
    _propose_unasked_changes,
    _replay,
    _run_session,
    _time_limit,
)
from orchestrator.bot.cycle.earlier import BegunProposal, Earlier, RestoredWork, UnfinishedState
from orchestrator.bot.cycle.parts import CycleResult, PullRequestResult
from orchestrator.bot.cycle.propose import UnfitTextError
from orchestrator.bot.cycle.tasks import Task, TaskKind
from orchestrator.bot.forge.base import PullRequest, PullRequestState
from orchestrator.core.errors import BadReplyError, BudgetExhaustedError, ToolError
from orchestrator.core.events import Event, Warned
from orchestrator.core.messages import Spent
from orchestrator.engine.session.loop import EndKind, SessionEnd
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator

TASK = Task("issue-7", "Add", "", "issue", 7, "https://f/7")
PULL = PullRequest(
    9, "Add", "", "https://f/9", False, PullRequestState.OPEN, "pullwright/issue-7-add", "main", "1" * 40
)
REBASE = replace(TASK, kind=TaskKind.REBASE, pull=PULL)
OPENED = PullRequestResult.of(PULL)
RESTORED = RestoredWork(("a.py",), base_moved=True, joined=True)


class Session:
    """A session whose parts answer what they are told, and note what they are asked."""

    def __init__(self, task: Task = TASK, **verification: Any) -> None:
        self.told: list[Event] = []
        self.asked: list[str] = []
        self.result = CycleResult("run-1", task=task)
        clone = SimpleNamespace(base_branch="main")
        self.attempt: Any = SimpleNamespace(task=task, result=self.result, clone=clone, emit=self.told.append)
        self.restored, self.earlier = RESTORED, None
        self.begun: SessionEnd | None = None
        self.answers: list[str | Exception | None] = []
        self.tests: list[Exception | None] = []
        self.requested: list[Any] = []
        self.end: SessionEnd | None = SessionEnd(EndKind.FINISH, "Done.")
        self.changed = {"a.py"}
        self.pending = SimpleNamespace(paths=lambda: self.changed)
        self.proposer: Any = SimpleNamespace(
            prepare=self._prepare,
            prepare_replay=self._prepare_replay,
            propose=self._propose,
            replay=self._replay,
            has_pull_request=False,
            draft=False,
            read_message=lambda text: BegunProposal(text, "", "b", ""),
        )
        values = {"refused": None, "is_required": False, "keeps_back": False, "proposes_failing": False}
        self.verification: Any = SimpleNamespace(
            check=self._check, final_attempt=self._final_attempt, **{**values, **verification}
        )

    async def begin(self) -> SessionEnd | None:
        return self.begun

    async def close(self) -> None:
        self.asked.append("close")

    async def requests(self) -> Any:
        for one in self.requested:
            yield one

    def tell_resumed(self) -> None:
        self.asked.append("resumed")

    @contextmanager
    def _final_attempt(self) -> Iterator[None]:
        self.asked.append("final")
        yield

    async def _prepare(self, title: str, body: str, *, ignore_doubts: bool) -> str:
        if "unfit" in body:
            raise UnfitTextError("unfit")
        return f"{title}{' (no doubts)' if ignore_doubts else ''}"

    async def _prepare_replay(self, pull: PullRequest) -> str:
        return f"replay {pull.number}"

    async def _check(self, change: str, *, ignore_doubts: bool) -> None:
        self.asked.append(f"check {change} {ignore_doubts}")
        if self.tests and (error := self.tests.pop(0)):
            raise error

    def _answer(self, change: str) -> str | None:
        self.asked.append(f"propose {change}")
        answer = self.answers.pop(0) if self.answers else "Opened."
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _propose(self, change: str) -> str | None:
        return self._answer(change)

    async def _replay(self, pull: PullRequest, change: str) -> str | None:
        assert pull is PULL
        return self._answer(change)

    @property
    def warnings(self) -> list[str]:
        return [event.message for event in self.told if isinstance(event, Warned)]


@pytest.mark.parametrize(
    ("task", "restored", "end"),
    [
        (TASK, RESTORED, None),
        (replace(REBASE, kind=TaskKind.REVIEW), RESTORED, None),
        (REBASE, replace(RESTORED, conflicts=("a.py",)), None),
        (REBASE, replace(RESTORED, base_moved=False), "https://f/7 is on top of main already"),
        (REBASE, RESTORED, "Opened."),
    ],
)
async def test_a_pull_request_is_put_onto_its_base_without_a_model(
    task: Task, restored: RestoredWork, end: str | None
) -> None:
    session: Any = Session(task)
    session.restored = restored
    found = await _replay(session)
    assert found == (None if end is None else SessionEnd(EndKind.FINISH, end))
    replayed = ["check replay 9 True", "propose replay 9"] if end == "Opened." else []
    assert session.asked == replayed


async def test_a_base_that_moves_meanwhile_has_the_change_put_onto_it_again() -> None:
    session: Any = Session(REBASE)
    session.answers = [None, "Opened."]
    assert await _replay(session) == SessionEnd(EndKind.FINISH, "Opened.")
    assert session.asked == ["check replay 9 True", "propose replay 9"] * 2


async def test_a_change_that_fails_on_its_new_base_needs_a_model() -> None:
    session: Any = Session(REBASE)
    session.tests = [ToolError("1 fails")]
    assert await _replay(session) is None
    assert session.warnings == ["the change does not pass its tests on top of main: 1 fails"]


BEGUN = BegunProposal("Add", "It subtracted.", "pullwright/issue-7-add", "2" * 40)
PREPARED = "an earlier cycle had prepared the change, but did not open the pull request"


def left(**values: Any) -> Earlier:
    state = UnfinishedState("r", values.pop("why", "failed"), "m", "c", "p", **values)
    return Earlier(state, None, "", None)


@pytest.mark.parametrize(
    ("earlier", "restored", "end", "asked"),
    [
        (None, RESTORED, None, []),
        (left(), RESTORED, None, []),
        (left(question="Which?"), RESTORED, SessionEnd(EndKind.QUESTION, "Which?"), ["resumed"]),
        (left(question="Which?", question_url="u"), RESTORED, None, []),
        (left(proposal=BEGUN), RESTORED, SessionEnd(EndKind.FINISH, PREPARED), ["Add"]),
        (left(proposal=BEGUN), replace(RESTORED, conflicts=("a.py",)), None, []),
        (left(), replace(RESTORED, message="Made"), SessionEnd(EndKind.FINISH, PREPARED), ["Made"]),
        (left(proposal=BEGUN), replace(RESTORED, message="Made"), SessionEnd(EndKind.FINISH, PREPARED), ["Made"]),
    ],
)  # fmt: skip
async def test_what_an_earlier_cycle_could_not_tell_is_told(
    earlier: Earlier | None, restored: RestoredWork, end: SessionEnd | None, asked: list[str]
) -> None:
    session: Any = Session()
    session.earlier, session.restored = earlier, restored
    assert await _complete_earlier_proposal(session) == end
    steps = (
        [f"{step} {asked[0]} (no doubts){more}" for step, more in (("check", " True"), ("propose", ""))]
        if asked
        else []
    )
    assert session.asked == (asked if asked[:1] == ["resumed"] else [*steps, *(["resumed"] if asked else [])])


async def test_work_that_a_later_cycle_proposed_is_over() -> None:
    session: Any = Session(replace(TASK, kind=TaskKind.UNFINISHED, pull=PULL))
    session.earlier, session.restored = left(proposal=BEGUN), RestoredWork(is_over=True)
    end = await _complete_earlier_proposal(session)
    assert end == SessionEnd(EndKind.FINISH, "a later cycle proposed this work: https://f/9")
    assert session.result.pull_request == OPENED
    assert session.asked == []


@pytest.mark.parametrize(
    ("refused", "proposes_failing", "is_open", "warned", "ends"),
    [
        (None, False, False, True, False),
        (("Add", ""), False, False, False, False),  # the model is told
        (("Add", ""), True, False, False, False),
        (("Add", ""), True, True, False, True),
    ],
)
async def test_a_prepared_change_that_its_tests_refuse(
    refused: tuple[str, str] | None, *, proposes_failing: bool, is_open: bool, warned: bool, ends: bool
) -> None:
    session: Any = Session(refused=refused, proposes_failing=proposes_failing)
    session.earlier, session.tests = left(proposal=BEGUN), [ToolError("1 fails")]
    session.result.pull_request = OPENED if is_open else None
    end = await _complete_earlier_proposal(session)
    assert (end is not None) is ends
    assert bool(session.warnings) is warned
    assert ("final" in session.asked) is proposes_failing


LAST = SessionEnd(EndKind.COMPLETED, " The last words. ")


@pytest.mark.parametrize(
    ("end", "refused", "opened", "changed", "proposed"),
    [
        (LAST, None, False, {"a.py"}, True),
        (replace(LAST, kind=EndKind.AWAITING), None, False, {"a.py"}, True),
        (replace(LAST, kind=EndKind.FINISH), None, False, {"a.py"}, False),
        (replace(LAST, kind=EndKind.LIMIT), None, False, {"a.py"}, False),
        (LAST, ("Add", ""), False, {"a.py"}, False),
        (LAST, None, True, {"a.py"}, False),
        (LAST, None, False, set(), False),
    ],
)
async def test_changes_that_a_model_forgot_to_propose_are_a_draft(
    end: SessionEnd,
    refused: tuple[str, str] | None,
    *,
    opened: bool,
    changed: set[str],
    proposed: bool,
) -> None:
    session: Any = Session(refused=refused)
    session.proposer.has_pull_request, session.changed = opened, changed
    await _propose_unasked_changes(session, end)
    steps = ["check Add (no doubts) True", "propose Add (no doubts)"]
    assert session.asked == (steps if proposed else [])
    assert session.proposer.draft is proposed


@pytest.mark.parametrize("refused", [None, ("Add", "")])
async def test_changes_that_cannot_be_proposed_unasked(refused: tuple[str, str] | None) -> None:
    session: Any = Session()

    async def check(_change: str, *, ignore_doubts: bool) -> None:
        session.verification.refused = refused
        raise ToolError(f"1 fails {ignore_doubts}")

    session.verification.check = check
    await _propose_unasked_changes(session, replace(LAST, text="unfit"))
    expected = "the changes, which the model did not propose, cannot be proposed for it: 1 fails True"
    assert session.warnings == ([] if refused else [expected])


@pytest.mark.parametrize(
    ("values", "opened", "proposed"),
    [
        ({"refused": ("Add", "")}, False, True),
        ({}, False, False),
        ({"refused": ("Add", ""), "is_required": True}, False, False),
        ({"refused": ("Add", ""), "keeps_back": True}, False, False),
        ({"refused": ("Add", "")}, True, False),
    ],
)
async def test_a_refused_change_is_proposed_at_the_end(
    values: dict[str, Any], *, opened: bool, proposed: bool
) -> None:
    session: Any = Session(**values)
    session.proposer.has_pull_request = opened
    await _propose_refused_change(session)
    assert session.asked == (["final", "check Add False", "propose Add"] if proposed else [])
    session.tests = [ToolError("the files have changed")]
    await _propose_refused_change(session)
    assert len(session.warnings) == proposed


@pytest.mark.parametrize(
    ("kind", "refused_at_end", "unasked"),
    [
        (EndKind.FINISH, True, False),
        (EndKind.COMPLETED, True, False),
        (EndKind.AWAITING, True, False),
        (EndKind.LIMIT, True, False),
        (EndKind.QUESTION, False, False),
        (EndKind.INTERRUPTED, False, False),
        (EndKind.OVERFLOW, False, False),
    ],
)
async def test_after_which_ends_a_refused_change_is_proposed(
    kind: EndKind, *, refused_at_end: bool, unasked: bool
) -> None:
    session: Any = Session(refused=("Add", ""))
    session.end, session.restored = SessionEnd(kind, ""), RestoredWork()
    assert await _run_session(session, None) == session.end
    assert ("final" in session.asked) is refused_at_end
    assert session.proposer.draft is unasked


async def test_a_session_answers_each_request_unless_nothing_is_left_to_do() -> None:
    answered: list[str] = []

    def answer(work: Any) -> None:
        work.close()
        answered.append("answered")

    session: Any = Session()
    session.restored = RestoredWork()
    session.requested = [SimpleNamespace(title="Add", body="", answer=answer)] * 2
    assert await _run_session(session, None) == session.end
    assert answered == ["answered"] * 2
    session.begun = SessionEnd(EndKind.FINISH, "refused")
    assert await _run_session(session, None) == session.begun
    assert answered == ["answered"] * 2


@pytest.mark.parametrize("by_a_rule", [True, False])
async def test_a_person_works_in_place_of_the_model(*, by_a_rule: bool) -> None:
    session: Any = Session()
    ended = SessionEnd(EndKind.FINISH, "by a person")

    async def work(_session: Any, _propose: Any) -> SessionEnd:
        return ended

    operator: Any = SimpleNamespace(work=work)
    session.begun = SessionEnd(EndKind.FINISH, "by a rule") if by_a_rule else None
    assert await _run_session(session, operator) == (session.begun or ended)


@pytest.mark.parametrize("opened", [None, OPENED])
async def test_a_model_that_breaks_after_its_pull_request_ends_nothing(
    opened: PullRequestResult | None,
) -> None:
    session: Any = Session()
    session.result.pull_request = opened

    async def begin() -> None:
        raise BadReplyError("no plan")

    session.begin = begin
    if opened is None:
        with pytest.raises(BadReplyError):
            await _plan_and_act(session, None)
    else:
        assert await _plan_and_act(session, None) == SessionEnd(EndKind.COMPLETED, "")
        assert session.warnings == ["the model continued after its pull request, and did not finish: no plan"]
    assert session.asked == ["close"]


async def test_a_cycle_ends_after_its_minutes_and_says_so() -> None:
    with pytest.raises(BudgetExhaustedError, match=r"^0 minutes are over, and the cycle did not end"):
        async with _time_limit(0, 0.0):
            await asyncio.Event().wait()
    with pytest.raises(TimeoutError, match="of somebody else"):
        async with _time_limit(5):
            raise TimeoutError("of somebody else")
    async with _time_limit(None):
        pass


@table(
    ("arguments", "paths"),
    [
        ({"path": "./src/a.py", "content": "b.py"}, ["src/a.py"]),
        ({"file_path": "a", "dir_path": "b", "directory": "c", "filename": "d"}, ["a", "b", "c", "d"]),
        ({"path": 7}, []),
        ({"patch": "*** Update File: a.py\n*** Add File: b/c.py\n+x\n"}, ["a.py", "b/c.py"]),
        ({"patch": "--- a/a.py\n+++ b/a.py\n@@\n+++ x\n"}, ["a.py"]),
        ({"patch": 7}, []),
    ],
)
def test_the_paths_that_a_call_names(arguments: dict[str, Any], paths: list[str]) -> None:
    assert _paths_in(arguments) == paths


@table(
    ("spent", "cap", "words"),
    [
        (Spent(1.5, 12_000, 3.0, 1), None, "1 round, 12,000 tokens, $1.5000"),
        (Spent(None, 5, 3.0, 2), None, "2 rounds, 5 tokens, cost unknown"),
        (Spent(1_000.0, 5, 3.0, 0), 2_000.0, "0 rounds, 5 tokens, $1,000.0000 of up to $2,000.00"),
    ],
)
def test_the_cost_in_words(spent: Spent, cap: float | None, words: str) -> None:
    assert _in_words(spent, cap) == words

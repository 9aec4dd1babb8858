"""Which changes go back to the model because of their tests, which are kept back, and what is told of the base."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.bot.cycle.parts import CycleResult, RecordedTests
from orchestrator.bot.cycle.tasks import Remark, Task
from orchestrator.bot.cycle.verify import PreparedChange, Verification
from orchestrator.bot.git.base import CommitOutcome, Staged
from orchestrator.bot.verification.base import CaseResult, CaseStatus, RunKind, RunResult
from orchestrator.core.cycle_events import Proof, Verified
from orchestrator.core.errors import ToolError, WorkspaceError
from orchestrator.core.events import CallStatus, Event, ToolCallEnded, Warned
from orchestrator.engine.tools.base import Ledger
from orchestrator.engine.tools.control import RUN_TESTS

if TYPE_CHECKING:
    from collections.abc import Sequence

TASK = Task("issue-7", "test_add fails", "Please.", "issue", 7, remarks=(Remark("ada", "test_sub too.", trusted=True), Remark("eve", "test_mul too.", trusted=False)))  # fmt: skip


def run(*failing: str, passing: Sequence[str] = ("t::test_ok",), **values: Any) -> RunResult:
    cases = {name: CaseResult(name, CaseStatus.FAILED, f"{name} is wrong") for name in failing}
    cases |= {name: CaseResult(name, CaseStatus.PASSED) for name in passing}
    return RunResult(
        **{
            "kind": RunKind.BEFORE,
            "tree": "tree",
            "cases": cases,
            "exit": int(bool(failing)),
            "seconds": 1.0,
            **values,
        }
    )


class Verifier:
    """A verifier with results of its own."""

    def __init__(self, before: RunResult | Exception | None = None, now: RunResult | None = None) -> None:
        self._before, self._now, self.asked = before, now, list[tuple[str, tuple[str, ...]]]()

    async def before(self) -> RunResult:
        for _ in range(3):
            await asyncio.sleep(0)
        if isinstance(self._before, Exception):
            raise self._before
        assert self._before is not None
        return self._before

    async def run_tests(self, tree: str, ids: tuple[str, ...]) -> RunResult:
        self.asked.append((tree, ids))
        assert self._now is not None
        return self._now

    async def close(self) -> None:
        raise WorkspaceError("it is busy")


class Verdict:
    """What the verdict on a change says, as far as it decides anything here."""

    def __init__(self, **values: Any) -> None:
        self.is_red = self.breaks = False
        self.doubts = self.reasons = ()
        self.problem = ""
        self.proof = Proof.PASSED
        vars(self).update(values)

    def for_model(self, *, brief: bool) -> str:
        return "brief" if brief else "whole"


def verification(  # noqa: PLR0913  all by name
    verifier: Any = None,
    *,
    goes_on: bool = True,
    required: bool = False,
    untested: bool = False,
    recorded: RecordedTests | None = None,
    left: float | None = None,
    operator: object = None,
    **values: Any,
) -> tuple[Verification, list[Event]]:
    told: list[Event] = []
    options = SimpleNamespace(require_tests=required, untested=untested)
    parts = SimpleNamespace(options=options, recorded_tests=recorded, operator=operator)
    clone = SimpleNamespace(
        base_commit="1" * 40, changed_tree=lambda touched, **more: f"{sorted(touched)} {more}"
    )
    attempt: Any = SimpleNamespace(
        parts=parts,
        clone=clone,
        task=TASK,
        emit=told.append,
        ledger=Ledger(touched={"a.py"}),
        result=CycleResult("run-1"),
        sanitizer=SimpleNamespace(text=lambda _where, text: text),
    )
    return Verification(attempt, verifier, lambda: goes_on, lambda: left, **values), told


RED = {"is_red": True, "reasons": ("1 test fails",)}


@pytest.mark.parametrize(
    ("verdict", "settings", "ignores", "refusal"),
    [
        ({}, {}, False, ""),
        (RED, {}, False, "whole"),
        (RED, {"is_brief": True}, False, "brief"),
        (RED, {}, True, "whole"),
        (RED, {"goes_on": False}, False, ""),
        (RED, {"goes_on": False, "required": True}, False, "whole"),
        ({**RED, "breaks": True}, {"goes_on": False}, False, "whole"),
        ({**RED, "breaks": True}, {"goes_on": False, "proposes_failing": True}, False, ""),
        ({"doubts": ("t::a",)}, {}, False, "whole"),
        ({"doubts": ("t::a",)}, {"is_brief": True}, False, "brief"),
        ({"doubts": ("t::a",)}, {}, True, ""),
        ({"doubts": ("t::a",)}, {"goes_on": False}, False, ""),
        ({"proof": Proof.AS_BEFORE}, {"required": True}, False, ""),
        ({"proof": Proof.UNKNOWN, "problem": "no disk"}, {"required": True}, False, "no disk"),
        ({"proof": Proof.UNKNOWN}, {"required": True}, False, Proof.UNKNOWN.sentence),
        ({"proof": Proof.WARNED, "reasons": ("a is gone",)}, {"required": True}, False, "a is gone"),
        ({"proof": Proof.UNKNOWN}, {}, False, ""),
    ],
)
def test_which_changes_go_back_to_the_model(
    verdict: dict[str, Any], settings: dict[str, Any], *, ignores: bool, refusal: str
) -> None:
    steps, _ = verification(**settings)
    judged: Any = Verdict(**verdict)
    steps.verdict = judged
    found = steps._refusal(judged, ignore_doubts=ignores)
    assert bool(found) is bool(refusal)
    assert refusal in found
    if verdict.get("proof") is Proof.WARNED:
        assert Proof.WARNED.sentence not in found
    with steps.final_attempt():
        steps.verdict = judged
        required = settings.get("required") or steps.keeps_back
        assert bool(steps._refusal(judged, ignore_doubts=False)) is bool(required and refusal)
    assert not steps._is_final


def test_a_doubt_goes_back_once() -> None:
    steps, _ = verification()
    first: Any = Verdict(doubts=("t::a",))
    second: Any = Verdict(doubts=("t::a", "t::b"))
    refusals = [
        bool(steps._refusal(verdict, ignore_doubts=False)) for verdict in (first, first, second, second)
    ]
    assert refusals == [True, False, True, False]


@pytest.mark.parametrize(
    ("verdict", "required", "proposes_failing", "keeps_back", "doubtful"),
    [
        (None, True, False, False, False),
        ({}, True, False, False, False),
        ({"reasons": ("a is gone",)}, False, False, False, True),
        (RED, False, False, False, False),
        (RED, True, False, True, False),
        ({**RED, "breaks": True}, False, False, True, False),
        ({**RED, "breaks": True}, False, True, False, False),
        ({**RED, "breaks": True}, True, True, True, False),
    ],
)
def test_which_changes_are_kept_back(
    verdict: dict[str, Any] | None,
    *,
    required: bool,
    proposes_failing: bool,
    keeps_back: bool,
    doubtful: bool,
) -> None:
    steps, _ = verification(required=required, proposes_failing=proposes_failing)
    judged: Any = None if verdict is None else Verdict(**verdict)
    steps.verdict = judged
    assert (steps.keeps_back, steps.is_doubtful) == (keeps_back, doubtful)
    assert steps.is_red is bool(verdict and verdict.get("is_red"))


@pytest.mark.parametrize(
    ("values", "refused", "why"),
    [
        (RED, True, "1 test fails"),
        ({**RED, "problem": "no disk"}, True, "no disk; 1 test fails"),
        ({}, True, Proof.PASSED.sentence),
        (RED, False, ""),
    ],
)
def test_why_nothing_was_proposed(values: dict[str, Any], *, refused: bool, why: str) -> None:
    steps, _ = verification()
    judged: Any = Verdict(**values)
    steps.verdict, steps.refused = judged, ("Add", "") if refused else None
    assert steps.why_refused == why


def change(tree: str) -> PreparedChange:
    outcome = CommitOutcome(None, [], [], [])
    return PreparedChange("Add", "Text.", "The model's.", Staged(tree, outcome, is_new=True))


def recorded(*refusals: str, answers: Sequence[CallStatus] = ()) -> RecordedTests:
    verified = [Verified("tree", False, (), {}, refusal) for refusal in refusals]
    runs = [ToolCallEnded(str(n), RUN_TESTS, status, f"said {n}") for n, status in enumerate(answers)]
    return RecordedTests([*verified, *runs])


async def test_without_a_verifier_nothing_is_refused_and_nothing_runs() -> None:
    steps, told = verification()
    await steps.check(change("one"), ignore_doubts=False)
    assert (steps.refused, steps.can_run, await steps.describe_base(has_tool=True, brief=False)) == (
        None,
        False,
        "",
    )
    with pytest.raises(ToolError, match="No test command is set"):
        await steps.run_tests(())
    assert told == []
    async with steps:
        pass


async def test_only_the_change_that_was_refused_before_is_proposed_at_the_end() -> None:
    steps, _ = verification()
    steps._refused_tree = "one"
    with steps.final_attempt():
        await steps.check(change("one"), ignore_doubts=False)
        with pytest.raises(ToolError, match="have changed since"):
            await steps.check(change("two"), ignore_doubts=False)
    await steps.check(change("two"), ignore_doubts=False)


async def test_a_folder_that_cannot_be_removed_is_told() -> None:
    steps, told = verification(Verifier())
    async with steps:
        pass
    assert [event.message for event in told if isinstance(event, Warned)] == [
        "the folder in which the tests ran could not be removed: it is busy"
    ]


@pytest.mark.parametrize(
    ("now", "before", "fails", "words"),
    [
        (run(), None, False, "passed: 1"),
        (run("t::a"), None, True, "t::a"),
        (run("t::a"), run("t::a"), False, "These failed before your change, too: `t::a`."),
        (run("t::a", "t::b"), run("t::a"), True, "These failed before your change, too: `t::a`."),
        (run("t::a"), run("t::a", "t::b"), False, "too: `t::a`."),
        (run("t::a", problem="no report"), run("t::a"), True, "no report"),
        (run(exit=1), None, True, ""),
        (run(*(f"t::a{n:02}" for n in range(22))), run(*(f"t::a{n:02}" for n in range(22))), False, "`t::a19` and 2 more."),
    ],
)  # fmt: skip
async def test_the_model_runs_the_tests(
    now: RunResult, before: RunResult | None, *, fails: bool, words: str
) -> None:
    verifier = Verifier(now=now)
    steps, _ = verification(verifier)
    steps._before = before
    assert steps.can_run
    try:
        said, failed = await steps.run_tests(["t::a"]), False
    except ToolError as error:
        said, failed = str(error), True
    assert failed is fails
    assert words.casefold() in said.casefold()
    assert verifier.asked == [("['a.py'] {'include_commands': False}", ("t::a",))]


@pytest.mark.parametrize(
    ("before", "settings", "words", "warned"),
    [
        (run(), {}, "1 pass and 0 fail", ""),
        (run("t::test_add"), {}, "`t::test_add`", ""),
        (run("t::test_sub"), {}, "`t::test_sub`", ""),
        (run(problem="no report"), {}, "no report", "the repository's tests cannot be used: no report"),
        (run(passing=(), exit=0), {}, "exit code 0", ""),
        (ToolError("no disk"), {"untested": True}, "no disk", "the repository's tests cannot be used: no disk"),
        (ToolError("no disk"), {"operator": "a person"}, "no disk", "the repository's tests cannot be used: no disk"),
    ],
)  # fmt: skip
async def test_the_base_s_tests_are_told(
    before: Any, settings: dict[str, Any], words: str, warned: str
) -> None:
    steps, told = verification(Verifier(before), **settings)
    assert words in await steps.describe_base(has_tool=True, brief=False)
    assert [event.message for event in told if isinstance(event, Warned)] == ([warned] if warned else [])


@pytest.mark.parametrize(
    ("left", "words"), [(5.0, "1 pass"), (0.0, "minutes of the cycle were over"), (-1.0, "over")]
)
async def test_the_base_s_tests_end_with_the_cycle_s_minutes(left: float, words: str) -> None:
    steps, _ = verification(Verifier(run()), left=left)
    assert words in await steps.describe_base(has_tool=True, brief=False)


@pytest.mark.parametrize("name", ["t::test_mul", "t::test_other"])
async def test_a_test_that_nobody_who_may_names_is_not_told(name: str) -> None:
    steps, _ = verification(Verifier(run(name)))
    assert name not in await steps.describe_base(has_tool=True, brief=False)


@pytest.mark.parametrize(
    ("before", "settings", "words"),
    [
        (ToolError("no disk"), {}, "the tests cannot be prepared, so no model was asked: no disk"),
        (ToolError("no disk"), {"required": True}, "--require-tests proposes nothing without them: no disk"),
        (run(problem="no report"), {"required": True}, "without them: no report"),
        (run(passing=(), exit=0), {"required": True}, "nothing shows that a test ran"),
    ],
)
async def test_a_base_that_cannot_be_tested_ends_the_cycle(
    before: Any, settings: dict[str, Any], words: str
) -> None:
    steps, _ = verification(Verifier(before), **settings)
    with pytest.raises(WorkspaceError, match=words):
        await steps.describe_base(has_tool=True, brief=False)


async def test_a_base_without_a_sign_of_a_test_may_fail_where_tests_are_required() -> None:
    steps, _ = verification(Verifier(run(passing=(), exit=1)), required=True)
    assert "exit code 1" in await steps.describe_base(has_tool=True, brief=False)


@pytest.mark.parametrize(("brief", "shown"), [(True, 2), (False, 5)])
async def test_of_many_named_tests_some_are_shown(*, brief: bool, shown: int) -> None:
    steps, _ = verification(Verifier(run(*(f"t::test_add[{n}]" for n in range(7)))))
    text = await steps.describe_base(has_tool=False, brief=brief)
    assert text.count("`t::test_add[") == shown
    assert f"And {7 - shown} more." in text
    assert steps.is_brief is brief


async def test_a_replay_has_the_recorded_results() -> None:
    steps, _ = verification(recorded=recorded(answers=(CallStatus.OK, CallStatus.FAILED)))
    assert steps.can_run
    assert await steps.run_tests(()) == "said 0"
    with pytest.raises(ToolError, match="said 1"):
        await steps.run_tests(())
    with pytest.raises(ToolError, match="no more runs"):
        await steps.run_tests(())
    assert not verification(recorded=recorded())[0].can_run


async def test_a_replay_refuses_what_the_recorded_run_refused() -> None:
    steps, _ = verification(recorded=recorded("1 test fails", "", "2 tests fail"))
    assert steps.can_run
    with pytest.raises(ToolError, match="1 test fails"):
        await steps.check(change("one"), ignore_doubts=False)
    assert (steps.refused, steps.keeps_back) == (("Add", "The model's."), False), "the model was asked again"
    await steps.check(change("two"), ignore_doubts=False)
    assert (steps.refused, steps.keeps_back) == (None, False)
    with pytest.raises(ToolError, match="2 tests fail"):
        await steps.check(change("three"), ignore_doubts=False)
    assert steps.keeps_back, "no further change was verified"

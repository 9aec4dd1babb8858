"""Outages at any request of a cycle: what was paid for is found afterwards, and paid for once.

The cycle fixes a file, writes another one, and opens a pull request; it makes some fifty requests to GitHub's
interface and its git server, which fail from the n-th on, or at the n-th alone. Then the outage is over, and
the next cycle runs: on the same machine, which has its state, or on another one, which knows only what reached
the remote. `PULLWRIGHT_TEST_CHAOS=full` plays the whole table, some 1,600 cases of two seconds each.
"""

from __future__ import annotations

import itertools
import os
import shlex
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.doubles.github import people
from tests.doubles.model_server import ModelServer
from tests.scenarios.dying import claims
from tests.scenarios.outages import (
    KINDS,
    LATER,
    NEWS,
    OPENING,
    Case,
    Place,
    check_one_pull_request,
    outage,
    play,
)
from tests.scenarios.stage import FINISH, FIX, FIXED, PROPOSE, do, git

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.bot.cycle.parts import CycleResult
    from tests.doubles.github.server import GitHub

slow = pytest.mark.slow(reason="several whole cycles over HTTP; three of this file are in the default tier")

pytestmark = pytest.mark.timeout(3600)
FULL = os.environ.get("PULLWRIGHT_TEST_CHAOS") == "full"
rarely = pytest.mark.skipif(not FULL, reason="its like is tested above; PULLWRIGHT_TEST_CHAOS=full runs it")
REQUESTS = {"both": 50, "api": 26, "git": 27}
"""At least as many as a cycle makes to each side."""
SAMPLE = (
    Case("503", "both", 38, ever=True, whole=False),
    Case("refused", "both", 43, ever=True, machine="other", whole=False),
    Case("403", "git", 17, ever=True, whole=False),
    Case("401", "api", 21, ever=False, machine="other", whole=False),
)
BRANCH = "pullwright/issue-1-add-subtracts"
HELD = ("write_file", {"path": ".github/workflows/test.yml", "content": "name: test\non: push\n"})
OURS = {"name": "Pullwright", "email": "pullwright@users.noreply.github.com"}


@pytest.fixture
def place(github: GitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    with ModelServer() as model:
        yield Place(github, tmp_path, model)


def cases() -> list[Case]:
    """Every request of each side, with every kind of fault, once and for ever, and both machines."""
    return [
        Case(kind, side, at, ever=ever, machine=machine)
        for side, most in REQUESTS.items()
        for at, kind, ever, machine in itertools.product(
            range(most), KINDS, (True, False), ("first", "other")
        )
    ]


@slow
@pytest.mark.parametrize("case", cases() if FULL else SAMPLE, ids=str)
async def test_after_an_outage_there_is_one_pull_request_and_nothing_is_paid_twice(
    place: Place, case: Case
) -> None:
    came = await play(case, place)
    assert came.struck or FULL, "the whole table has a few more numbers than there are requests"


async def broken_off(place: Place, kind: str = "503", side: str = "both") -> CycleResult:
    """A cycle whose branch is pushed; from the look for its pull request on nothing answers any more."""

    def pushed() -> bool:
        return bool(place.branches)

    place.github.faults[:] = [outage(kind, side, since=OPENING, when=pushed)]
    done = await place.cycle("first")
    place.github.faults.clear()
    assert str(done.outcome) in {"paused", "failed"}, done.error
    assert len(place.branches) == 1
    assert place.repo.pulls == {}
    return done


async def goes_on(place: Place, machine: str = "first", **settings: Any) -> CycleResult:
    """The next cycle, which asks no model and opens the pull request."""
    before = len(place.model.requests)
    done = await place.cycle(machine, LATER, **settings)
    assert str(done.outcome) == "proposed", (done.error, done.reason)
    assert len(place.model.requests) == before
    return done


@slow
async def test_a_branch_whose_pull_request_could_not_be_opened_is_gone_on_with_on_this_machine(
    place: Place,
) -> None:
    done = await broken_off(place)
    assert place.wip() == []
    assert "+    return a + b" in Path(str(done.patch)).read_text()
    before = place.branches
    assert (await goes_on(place)).commit == before[BRANCH]
    check_one_pull_request(place)
    assert place.branches == before, "what was pushed is not pushed again"
    assert list((place.folder / "first" / "unfinished").glob("*/*")) == []


@slow
async def test_what_only_this_machine_has_is_told_and_can_be_forgotten(place: Place) -> None:
    place.github.faults[:] = [
        outage("503", "both", since=r"GET /.*/info/refs", when=lambda: len(place.model.requests) == 2)
    ]
    done = await place.cycle("first")
    assert (str(done.outcome), done.saved, place.branches) == ("paused", None, {})
    assert "+    return a + b" in Path(str(done.patch)).read_text()
    place.github.faults.clear()
    with place.tasks("other") as tasks:
        assert tasks.decisions.find("#1").has_work is False
    with place.tasks("first") as tasks:
        (state,) = tasks.decisions.states()
        assert (str(state.status), state.known.is_here, state.wip) == ("unfinished", True, None)
        assert "(2 changed files) and its conversation" in tasks.decisions.would_lose(state)
        decided = tasks.decisions.forget(state)
    assert (decided.changed, decided.after.has_work) == (True, False)
    assert list((place.folder / "first" / "unfinished").glob("*/*")) == []


@slow
async def test_a_branch_that_was_pushed_is_named_by_who_forgets_its_task(place: Place) -> None:
    await broken_off(place)
    with place.tasks("first") as tasks:
        decided = tasks.decisions.forget(tasks.decisions.find("#1"))
    push, _, deleted = shlex.split(decided.words.partition("to drop that: git ")[2])
    assert (push, deleted) == ("push", f":refs/heads/{BRANCH}")
    git(place.repo.path, "push", ".", deleted)
    assert place.branches == {}
    before = len(place.model.requests)
    assert str((await place.cycle("first", LATER)).outcome) == "proposed"
    assert len(place.model.requests) > before, "it is thought of anew"


@slow
@rarely
async def test_an_outage_that_goes_on_costs_no_model_and_loses_nothing(place: Place) -> None:
    await broken_off(place)
    before = len(place.model.requests)
    for side in ("both", "api"):
        place.github.faults[:] = [outage("503", side, since=OPENING)]
        done = await place.cycle("first")
        assert str(done.outcome) == "paused"
    place.github.faults.clear()
    assert len(place.model.requests) == before
    await goes_on(place)
    check_one_pull_request(place)


@slow
async def test_a_base_that_moved_is_under_it_and_a_new_title_makes_no_second_branch(place: Place) -> None:
    await broken_off(place)
    people.rename(place.github, place.repo.issues[1], "Subtraction in add()", "reporter")
    place.github.commit(place.repo, {"other.py": "x = 1\n"})
    await goes_on(place, "other")
    check_one_pull_request(place)
    assert place.show(BRANCH, "other.py") == b"x = 1\n"


@slow
@pytest.mark.parametrize("machine", ["first", pytest.param("other", marks=rarely)])
async def test_a_conflict_with_the_base_is_the_models(place: Place, machine: str) -> None:
    await broken_off(place)
    place.github.commit(place.repo, {"calc.py": "def add(a, b):\n    return a - b  # sic\n"})
    mended = ("write_file", {"path": "calc.py", "content": FIXED})
    place.model.script = [do(("read_file", {"path": "calc.py"})), do(mended), do(PROPOSE, FINISH)]
    before = len(place.model.requests)
    assert str((await place.cycle(machine, LATER)).outcome) == "proposed"
    assert len(place.model.requests) == before + 3
    told = str(place.model.requests[before].body["messages"])
    assert ("Round 0." in told) is (machine == "first"), "what was said is on the first machine alone"
    check_one_pull_request(place)


@slow
async def test_what_waits_for_a_person_is_shown_to_them(place: Place) -> None:
    place.model.script = [do(FIX, NEWS, HELD), do(PROPOSE, FINISH)]
    await broken_off(place)
    await goes_on(place)
    check_one_pull_request(place, "Part of #1")
    (pull,) = place.repo.pulls.values()
    assert "test.yml" in pull.comments[0].body


@slow
async def test_what_was_refused_once_is_not_refused_again(place: Place) -> None:
    odd = ("write_file", {"path": "odd.py", "content": "def (:\n"})
    place.model.script = [do(FIX, odd), do(PROPOSE), do(PROPOSE, FINISH)]
    await broken_off(place)
    assert len(place.model.requests) == 3, "the file that cannot be read was named once"
    await goes_on(place)
    (pull,) = place.repo.pulls.values()
    assert "odd.py" in str(pull.body)


@slow
async def test_what_people_committed_is_not_replaced_and_costs_no_model(place: Place) -> None:
    await broken_off(place)
    theirs = place.github.commit(place.repo, {"calc.py": "# mine\n"}, branch=BRANCH)
    before = len(place.model.requests)
    done = await place.cycle("other", LATER)
    assert str(done.outcome) == "failed"
    assert "not replaced; merge or delete the branch first" in str(done.error)
    assert place.branches == {BRANCH: theirs}
    assert len(place.model.requests) == before
    assert place.repo.pulls == {}


@slow
@rarely
async def test_a_dry_run_changes_nothing_and_a_task_that_was_withdrawn_is_left(place: Place) -> None:
    await broken_off(place)
    before = place.branches
    assert str((await place.cycle("first", LATER, dry_run=True)).outcome) == "planned"
    assert (place.branches, place.repo.pulls) == (before, {})
    place.github.close(place.repo, 1)
    assert str((await place.cycle("first", LATER)).outcome) == "no_task"
    assert (place.branches, place.repo.pulls) == (before, {})


@slow
@rarely
async def test_another_try_after_a_no_replaces_the_branch_that_was_refused(place: Place) -> None:
    await place.cycle("first")
    (pull,) = place.repo.pulls.values()
    place.github.close(place.repo, pull.number)
    people.label(place.github, place.repo.issues[1], "pullwright:retry", "reporter")
    before = len(place.model.requests)
    assert str((await place.cycle("other", LATER)).outcome) == "proposed"
    assert len(place.model.requests) == before + 2, "it is thought of anew"
    assert len(place.branches) == 1
    assert [one.state for one in place.repo.pulls.values()] == ["closed", "open"]


@slow
async def test_a_question_that_could_not_be_put_is_put_by_the_next_cycle(place: Place) -> None:
    asking = do(FIX, ("ask_question", {"question_text": "Floats too?"}))
    place.model.script = [asking]
    place.github.faults[:] = [outage("503", "both", since=r"(GET|POST) .*/issues/1/comments", at=1)]
    first = await place.cycle("first")
    place.github.faults.clear()
    assert str(first.outcome) == "paused"
    again = await place.cycle("first", LATER)
    assert str(again.outcome) == "question", again.error
    assert len(place.model.requests) == 1
    (comment,) = place.repo.issues[1].comments
    assert "Floats too?" in comment.body
    assert "waits for an answer" in str((await place.cycle("first", LATER)).reason)


@slow
@rarely
async def test_what_another_worker_did_meanwhile_counts_and_the_rest_is_set_aside(place: Place) -> None:
    place.github.faults[:] = [
        outage("503", "both", since=r"GET /.*/info/refs", when=lambda: len(place.model.requests) == 2)
    ]
    assert str((await place.cycle("first")).outcome) == "paused"
    place.github.faults.clear()
    place.model.script = [do(FIX, NEWS), do(PROPOSE, ("ask_question", {"question_text": "Why?"}))]
    assert str((await place.cycle("other", LATER)).outcome) == "question"
    (kept,) = (place.folder / "first" / "unfinished").glob("*/*.zip")
    with zipfile.ZipFile(kept) as archive:
        assert b"Round 0." in archive.read("session.jsonl")
    before = place.branches
    assert str((await place.cycle("first", LATER)).outcome) == "no_task"
    assert place.branches == before
    assert claims(place.repo.path)[0]["state"] == "released"


@slow
async def test_saved_work_that_is_proposed_by_now_is_not_gone_on_with(place: Place) -> None:
    assert str((await place.cycle("first", max_rounds=1)).outcome) == "limit"
    assert len(place.wip()) == 1
    place.github.faults[:] = [outage("503", "git", since=r"GET /.*", when=lambda: bool(place.repo.pulls))]
    assert str((await place.cycle("first")).outcome) == "proposed"
    place.github.faults.clear()
    assert (len(place.wip()), place.asked) == (1, [0, 1]), "it could not be dropped"
    done = await place.cycle("other", LATER)
    assert str(done.outcome) == "proposed", (done.error, done.reason)
    assert place.asked == [0, 1]
    assert place.wip() == []
    check_one_pull_request(place)


@slow
async def test_a_review_that_was_answered_is_not_answered_twice(place: Place) -> None:
    await place.cycle("first")
    (pull,) = place.repo.pulls.values()
    place.github.add_comment(place.repo, pull.number, "Say so in the news, please.")
    more = ("write_file", {"path": "more.md", "content": "# More\n"})
    place.model.script = [do(more, PROPOSE, FINISH)]
    before = place.branches
    place.github.faults[:] = [
        outage("503", "both", since=r"GET /.*/info/refs", when=lambda: not place.model.script)
    ]
    first = await place.cycle("first", LATER, quiet_minutes=0)
    assert str(first.outcome) == "paused", first.error
    assert place.branches == before
    place.github.faults.clear()
    done = await goes_on(place, quiet_minutes=0)
    assert done.task is not None
    assert done.task.kind == "review"
    assert place.show(BRANCH, "more.md") == b"# More\n"
    assert len(place.repo.pulls) == 1

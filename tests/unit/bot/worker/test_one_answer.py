"""May a task be taken now? Whatever takes it, chooses it, lists it or examines it gives the same answer."""

from __future__ import annotations

import io
import json
import tempfile
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.app.cli.tasks import write_claims, write_claims_json
from orchestrator.app.doctor.repository import tasks_in_words
from orchestrator.bot.coordination.claim_record import ClaimRecord, LeaseTimes, claim_message, claim_ref
from orchestrator.bot.coordination.claims import Claims, Lease
from orchestrator.bot.coordination.records import Records
from orchestrator.bot.coordination.saved_work import wip_ref
from orchestrator.bot.cycle.claim import claim_next, find_next
from orchestrator.bot.cycle.claimer import Claimer
from orchestrator.bot.cycle.earlier import SESSION_PAGE, STATE_PAGE
from orchestrator.bot.cycle.parts import FoundTask
from orchestrator.bot.cycle.task_state import TaskState, asked_digest, words_digest
from orchestrator.bot.cycle.tasks import RETRY_LABEL, from_issue
from orchestrator.bot.forge.base import Permission, Proposal, PullRequestState
from orchestrator.bot.journal.folders import KeptWork
from orchestrator.bot.suggestions import Commands
from orchestrator.bot.worker.backlog import Backlog, TaskSelection
from orchestrator.bot.worker.task_decisions import TaskDecisions
from orchestrator.bot.worker.task_rules import ReviewLimits, TaskAuthorization
from orchestrator.core.clock import ManualClock
from orchestrator.core.messages import Spent
from tests.doubles.memory_forge import MemoryForge
from tests.doubles.memory_git import MemoryGit, MemoryRemote, Move

if TYPE_CHECKING:
    from collections.abc import Callable


LABEL = "pullwright"
OUTCOMES = (
    *("failed", "no_task", "superseded", "tests_fail", "limit", "error", "conflict", "proposed", "question"),
    *("interrupted", "crashed", "waits", "retry", "by hand", "withdrawn"),
)
CHANGES: dict[str, dict[str, Any]] = {
    "edited": {"body": "It subtracts, and it should add."},
    "closed": {"is_open": False},
    "unlabelled": {"labels": ()},
    "assigned": {"assignees": ("grace",)},
}
LEFT_ALONE = ("stop", "closed", "unlabelled", "assigned", "blocked")
"""What people say so that nothing is done. It may be one reason of several, of which each tells the first it finds."""
COMMANDS = Commands("octo/calc")
CAP = 5.0


@dataclass(frozen=True)
class Past:
    """What happened to a task before anybody asks.

    Attributes:
        claim: `held`, `expired`, `dead` (its run is known to be), `released`, or empty for none.
        minutes: since the claim moved.
        said: what people did after the last cycle.
        pull: the state of its pull request; empty if there is none.
        left: attempts that unfinished work counts; None without such work.
    """

    claim: str = "released"
    outcome: str = "failed"
    minutes: int = 120
    deaths: int = 0
    number: bool = False
    usd: float = 0.0
    said: str = ""
    pull: str = ""
    left: int | None = None
    question: bool = False


PASTS = st.builds(
    Past,
    claim=st.sampled_from(["", "held", "expired", "dead", "released", "released", "released"]),
    outcome=st.sampled_from(OUTCOMES),
    minutes=st.sampled_from([1, 20, 120]),
    deaths=st.sampled_from([0, 0, 1, 2, 3]),
    number=st.booleans(),
    usd=st.sampled_from([0.0, 0.0, 0.0, 6.0]),
    said=st.sampled_from(
        ["", "", "", "edited", "comment", "stranger", *LEFT_ALONE, "retry", "stranger's retry"]
    ),
    pull=st.sampled_from(["", "", "", *PullRequestState]),
    left=st.sampled_from([None, None, 1, 3]),
    question=st.booleans(),
)


class Straight:
    """A wire on which nothing fails."""

    def request(self, what: str, do: Callable[[], Any], fail: Callable[[], Any]) -> Any:
        del what, fail
        return do()

    def check(self) -> None:
        """Nobody dies."""


class Place:
    """A repository with one issue, and all who say what may be done about it."""

    def __init__(self, folder: Path, past: Past) -> None:
        self.folder, self.clock, self.server = folder, ManualClock(), MemoryRemote()
        self.objects = folder / "objects"
        self.objects.mkdir()
        self._number = 0
        base = self.server.commit({"a.py": b"1\n"}, [], "Ada <ada@example.com>", "First\n", self.objects)
        self.server.move(Move("refs/heads/main", None, base, "ada"))
        self.forge = MemoryForge("octo/calc", "https://git.example/octo/calc.git", self._tip)
        self.forge.people = {"ada": Permission.WRITE}
        self.issue = self.forge.add_issue("Sum", "It subtracts.", author="ada", labels=(LABEL,))
        self.key = f"issue-{self.issue}"
        make = lambda at, git_dir: MemoryGit(at, git_dir, self.server, Straight(), "worker")  # noqa: E731
        self.records = Records(
            folder / "records", self.forge.clone_url, lambda: None, clock=self.clock, make_git=make
        )
        self.claims = Claims(self.records, "host", self.clock, LeaseTimes(), self.nonce)
        self.kept = KeptWork(folder / "kept")
        self.dead = ("run-dead",)
        self._happen(past)

    def nonce(self) -> str:
        self._number += 1
        return f"n{self._number}"

    def _tip(self, branch: str) -> str | None:
        return self.server.refs.get(f"refs/heads/{branch}")

    def _happen(self, past: Past) -> None:
        task = from_issue(self.forge.issue(self.issue))
        branch = f"pullwright/{self.key}-sum"
        if past.question:
            self.forge.ensure_comment(self.issue, f"question-{self.key}", "Floats too?")
        if past.left is not None:
            self._leave(past, f"{self.forge._url(self.issue)}" if past.question else "")
        pull = None
        if past.pull:
            tip = self.server.refs["refs/heads/main"]
            self.server.move(Move(f"refs/heads/{branch}", None, tip, "worker"))
            pull, _ = self.forge.ensure_pull_request(Proposal(branch, "main", "Sum", "", draft=False))
            self.forge.change(pull.number, state=PullRequestState(past.pull))
            if past.pull != "open":
                self.server.move(Move(f"refs/heads/{branch}", tip, None, "ada"))
        if past.claim:
            self._claim(past, asked_digest(task), words_digest(task), pull.number if pull else None)
        self._say(past.said)

    def _leave(self, past: Past, url: str) -> None:
        state = {"run": "run-1", "why": "limit", "model": "m", "contract": "c", "profile": "p"}
        asked = {"question": "Floats too?" if url else "", "question_url": url, "attempts": past.left}
        base = self.server.refs["refs/heads/main"]
        fields = {"version": 1, "key": self.key, "work": None, "base": base}
        pages = {STATE_PAGE: json.dumps(state | asked).encode(), SESSION_PAGE: b""}
        words = f"pullwright: unfinished work\n\n{json.dumps(fields)}\n"
        made = self.server.commit(pages, [base], "P <p@example.com>", words, self.objects)
        self.server.move(Move(wip_ref(self.key), None, made, "worker"))

    def _claim(self, past: Past, asked: str, words: str, pull: int | None) -> None:
        at = self.clock.now() - timedelta(minutes=past.minutes)
        record = ClaimRecord(
            self.key,
            "held",
            "host",
            "run-dead" if past.claim == "dead" else "run-1",
            3,
            at,
            at,
            at + timedelta(minutes=-30 if past.claim == "expired" else 300),
            pull=pull if pull is not None else 77 if past.number else None,
            spent=Spent(past.usd),
            nonce=self.nonce(),
            asked=asked,
            deaths=past.deaths,
        )
        if past.claim == "released":
            digest = {"failed", "no_task", "superseded", "tests_fail", "limit", "error", "conflict"}
            outcome = f"{past.outcome} {words}" if past.outcome in digest else past.outcome
            why = "the server refuses the file" if past.outcome == "waits" else ""
            record = replace(record, state="released", outcome=outcome, why=why, expires_at=at)
        commit = self.records.commit(claim_message(record), None)
        assert self.records.swap(claim_ref(self.key), None, commit)

    def _say(self, said: str) -> None:
        match said:
            case "edited" | "closed" | "unlabelled" | "assigned":
                self.forge.change(self.issue, **CHANGES[said])
            case "comment":
                self.forge.say(self.issue, "ada", "With integers only.")
            case "stranger":
                self.forge.say(self.issue, "mallory", "Me too.")
            case "stop":
                self.forge.say(self.issue, "ada", "Please stop.")
            case "blocked":
                other = self.forge.add_issue("First", "", author="ada")
                self.forge.waits[self.issue] = (other,)
            case "retry":
                self.forge.put_label(self.issue, RETRY_LABEL, by="ada")
            case "stranger's retry":
                self.forge.put_label(self.issue, RETRY_LABEL, by="mallory")
            case _:
                assert not said

    def over_budget(self, spent: Spent) -> str | None:
        return f"${spent.usd:.2f} are spent" if (spent.usd or 0.0) > CAP else None

    def backlog(self, claimer: Claimer | None = None) -> Backlog:
        limits = ReviewLimits(max_open_prs=9, max_prs_per_day=9, max_unreviewed=9)
        hooks: dict[str, Any] = {"unfinished": lambda: {self.key} & self._wips()}
        if claimer is not None:
            hooks = {
                "in_flight": claimer.held_by_others,
                "retry_request": claimer.retry_request,
                "unfinished": claimer.unfinished,
            }
        return Backlog(
            self.forge, TaskSelection(), LABEL, limits=limits, commands=COMMANDS, clock=self.clock, **hooks
        )

    def _wips(self) -> set[str]:
        return {ref.rpartition("/")[2] for ref in self.server.refs if ref.startswith("refs/pullwright/wip/")}

    def claimer(self) -> Claimer:
        return Claimer(
            self.records,
            self.claims,
            self.forge,
            "run-now",
            self.dead,
            named=False,
            may=TaskAuthorization(self.forge, LABEL).may_cause_work,
            clean=lambda text, _who: text,
            why_over_budget=self.over_budget,
            kept=self.kept,
            warn=lambda _text: None,
            commands=COMMANDS,
        )

    def state(self) -> TaskState | None:
        """What `claims`, `doctor` and the page are made of."""
        decisions = TaskDecisions(
            self.records,
            self.claims,
            self.forge,
            LeaseTimes(),
            self.clock,
            COMMANDS,
            self.dead,
            {},
            self.kept,
            self.backlog(),
            self.over_budget,
        )
        return next((one for one in decisions.states() if one.key == self.key), None)


def answers(past: Past) -> tuple[dict[str, bool], dict[str, str]]:
    """Whether the task may be taken, by who says so, and in which words."""
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder), past)
        state = place.state()
        found: dict[str, bool] = {}
        words: dict[str, str] = {}
        if state is not None:
            found["states"], words["states"] = not state.refusal, state.describe()
            with redirect_stdout(io.StringIO()) as out:
                write_claims_json([state], place.clock.now(), LeaseTimes())
            if printed := out.getvalue():
                found["claims"] = json.loads(printed)["may_be_taken"]
            with redirect_stdout(io.StringIO()) as out:
                write_claims([state], place.clock.now(), LeaseTimes(), COMMANDS)
            words["claims"] = out.getvalue()
            words["doctor"] = tasks_in_words([state], COMMANDS).found
        claimer = place.claimer()
        look = find_next(place.backlog(claimer), claimer, "")
        found["a look"] = isinstance(look, FoundTask)
        words["a look"] = "" if isinstance(look, FoundTask) else look.reason
        claimer = place.claimer()
        choice = claim_next(place.backlog(claimer), claimer, "")
        found["the claimer"], words["the claimer"] = isinstance(choice.lease, Lease), choice.reason
        if state is not None and past.said not in LEFT_ALONE:
            waiting = place.key in claimer.waiting
            assert waiting == bool(state.why), "the page, the digest and `fleet status` tell who waits"
            assert past.pull or state.refusal in words["the claimer"]
    return found, words


@settings(deadline=None, max_examples=150)
@example(Past(outcome="failed", said="edited"))
@example(Past(outcome="limit", left=3, said="comment"))
@example(Past(outcome="waits", said="edited"))
@example(Past(outcome="question", left=1, question=True, said="comment"))
@example(Past(claim="dead", deaths=1, minutes=1))
@example(Past(outcome="proposed", number=True, minutes=1))
@example(Past(outcome="proposed", pull="closed", said="retry"))
@example(Past(outcome="failed", usd=6.0, said="edited"))
@example(Past(outcome="proposed", pull="open", left=1))
@example(Past(claim="", said="blocked"))
@example(Past(outcome="limit", left=1, said="blocked"))
@given(PASTS)
def test_all_say_the_same(past: Past) -> None:
    found, words = answers(past)
    assert len(set(found.values())) == 1, f"{found}: {words}"

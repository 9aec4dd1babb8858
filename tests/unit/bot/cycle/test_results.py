"""The result of a cycle: what each end of a session means, and what people and the next cycle are told of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.bot.coordination.saved_work import wip_ref
from orchestrator.bot.cycle.choice import Choice
from orchestrator.bot.cycle.earlier import Earlier, UnfinishedState, read_kept
from orchestrator.bot.cycle.finish import (
    TESTS_FAIL_KEY,
    _Saving,
    finish_cycle,
    outcome_words,
    post_question,
    release_claim,
    says_no_task,
    tell_overtaken,
)
from orchestrator.bot.cycle.parts import CycleResult, Outcome, PullRequestResult, Stop
from orchestrator.bot.cycle.task_state import words_digest
from orchestrator.bot.cycle.tasks import Task, TaskKind
from orchestrator.bot.forge.base import PullRequest, PullRequestState
from orchestrator.bot.git.base import Packed, Snapshot
from orchestrator.core.clock import ManualClock
from orchestrator.core.cycle_events import Phase, PhaseEntered, QuestionAsked
from orchestrator.core.errors import (
    AuthenticationError,
    BaseConflictError,
    ForgePermissionError,
    JournalError,
    PeoplesCommitsError,
    PushRejectedError,
    RemoteUnavailableError,
    SupersededError,
    ToolError,
    WithdrawnError,
)
from orchestrator.core.events import Event, Warned
from orchestrator.core.messages import Spent
from orchestrator.engine.policy.secrets import Redactor
from orchestrator.engine.session.loop import EndKind, SessionEnd
from tests.tables import table

ISSUE = Task("issue-7", "Add", "Please.", "issue", 7, "https://f/7")
TEXT = Task("text-1", "Add", "", "text")
OPENED = PullRequestResult("Add", "", draft=False, number=9, url="https://f/9")
SECRET = "made-up-" + "value-0123456789"


class Forge:
    """Remembers what is shown on it."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.shown, self.refusal = list[tuple[Any, ...]](), refusal

    def ensure_comment(self, number: int, key: str, body: str) -> None:
        self.shown.append((number, key, body))

    def ensure_question(self, place: int | None, key: str, body: str) -> str:
        if self.refusal is not None:
            raise self.refusal
        self.shown.append((place, key, body))
        return f"https://f/{place}#question"

    def remove_label(self, number: int, label: str) -> None:
        self.shown.append((number, label))


class Session:
    """Of a session, what its end is recorded from."""

    def __init__(self, task: Task = ISSUE, *, dry_run: bool = False, why: str = "") -> None:
        wording = SimpleNamespace(comment=lambda text, **_: text, inline=str)
        self.told = list[Event]()
        self.forge = Forge()
        self.parts: Any = SimpleNamespace(
            emit=self.told.append,
            forge=self.forge,
            run="run-1",
            repository="octo/calc",
            options=SimpleNamespace(dry_run=dry_run),
            guards=SimpleNamespace(redactor=Redactor([SECRET]), wording=wording),
            stop=Stop(),
            clock=ManualClock(),
            kept=None,
        )
        self.result = CycleResult("run-1", task=task)
        self.attempt = SimpleNamespace(parts=self.parts, task=task, result=self.result)
        self.left = b""
        self.pending = SimpleNamespace(left=lambda: (set(), self.left))
        self.verification = SimpleNamespace(refused=None, keeps_back=False, why_refused="", verdict=None)
        self.proposer = SimpleNamespace(refusal=None)
        self.earlier: Earlier | None = None
        if why:
            self.earlier = Earlier(UnfinishedState("r", why, "m", "c", "p"), None, "", None)

    async def finish(self, kind: EndKind, text: str = "Said.") -> CycleResult:
        session: Any = self
        await finish_cycle(session, SessionEnd(kind, text))
        assert PhaseEntered(Phase.FINISH) in self.told
        return self.result


PATCH = b"diff"


@pytest.mark.parametrize(
    ("kind", "opened", "left", "outcome", "reason", "error"),
    [
        (EndKind.FINISH, None, b"", Outcome.NO_TASK, "Said.", None),
        (EndKind.FINISH, OPENED, b"", Outcome.PROPOSED, "Said.", None),
        (EndKind.FINISH, OPENED, PATCH, Outcome.PROPOSED, "Said.", None),
        (
            EndKind.FINISH,
            None,
            PATCH,
            Outcome.FAILED,
            "Said.",
            "the model finished without proposing its changes; they are in the patch",
        ),
        (EndKind.COMPLETED, OPENED, b"", Outcome.PROPOSED, "Said.", None),
        (
            EndKind.COMPLETED,
            None,
            b"",
            Outcome.FAILED,
            None,
            "the model stopped and proposed nothing; its last words: Said.",
        ),
        (EndKind.AWAITING, OPENED, b"", Outcome.PROPOSED, "Said.", None),
        (EndKind.AWAITING, None, b"", Outcome.QUESTION, None, None),
        (EndKind.QUESTION, None, b"", Outcome.QUESTION, None, None),
        (EndKind.QUESTION, OPENED, b"", Outcome.QUESTION, None, None),
        (EndKind.LIMIT, None, b"", Outcome.LIMIT, "Said.", None),
        (EndKind.LIMIT, OPENED, PATCH, Outcome.LIMIT, "Said.", None),
        (EndKind.LIMIT, OPENED, b"", Outcome.PROPOSED, "Said.", None),
        (EndKind.LIMIT, None, PATCH, Outcome.LIMIT, "Said.", None),
        (EndKind.OVERFLOW, None, b"", Outcome.FAILED, None, "Said."),
        (EndKind.INTERRUPTED, None, b"", Outcome.INTERRUPTED, None, None),
    ],
)
async def test_what_each_end_of_a_session_means(  # noqa: PLR0913  a table
    *,
    kind: EndKind,
    opened: PullRequestResult | None,
    left: bytes,
    outcome: Outcome,
    reason: str | None,
    error: str | None,
) -> None:
    session = Session()
    session.left, session.result.pull_request = left, opened
    result = await session.finish(kind)
    assert (result.outcome, result.reason, result.error) == (outcome, reason, error)
    asks = outcome is Outcome.QUESTION
    assert (result.question, result.question_url) == (
        ("Said.", "https://f/7#question") if asks else (None, None)
    )
    assert len(session.forge.shown) == asks


async def test_an_end_without_words_has_no_reason_and_a_dry_run_only_plans() -> None:
    assert (await Session().finish(EndKind.FINISH, "")).reason is None
    session = Session(dry_run=True)
    session.result.pull_request = OPENED
    assert (await session.finish(EndKind.FINISH)).outcome is Outcome.PLANNED


@pytest.mark.parametrize(
    ("kind", "opened", "outcome"),
    [
        (EndKind.FINISH, None, Outcome.TESTS_FAIL),
        (EndKind.COMPLETED, None, Outcome.TESTS_FAIL),
        (EndKind.AWAITING, None, Outcome.TESTS_FAIL),
        (EndKind.LIMIT, None, Outcome.TESTS_FAIL),
        (EndKind.QUESTION, None, Outcome.QUESTION),  # it may still get on
        (EndKind.INTERRUPTED, None, Outcome.INTERRUPTED),
        (EndKind.FINISH, OPENED, Outcome.PROPOSED),
    ],
)
async def test_a_change_that_its_tests_keep_back(
    kind: EndKind, opened: PullRequestResult | None, outcome: Outcome
) -> None:
    session = Session()
    session.result.pull_request = opened
    session.verification = SimpleNamespace(
        refused=("Add", ""), keeps_back=True, why_refused="1 fails", verdict=None
    )
    result = await session.finish(kind)
    assert result.outcome is outcome
    if outcome is Outcome.TESTS_FAIL:
        assert (result.reason, result.error) == ("1 fails", None)


@pytest.mark.parametrize(
    ("kind", "left", "refused", "outcome", "reason", "error"),
    [
        (EndKind.FINISH, b"", True, Outcome.FAILED, "Said.", "nothing was proposed because of its tests (1 fails); the work is kept"),
        (EndKind.FINISH, b"", False, Outcome.FAILED, "Said.", "nothing was proposed because of its tests (1 fails); the work is kept"),
        (EndKind.LIMIT, b"", True, Outcome.LIMIT, "Said.; nothing was proposed because of its tests (1 fails); the work is kept", None),
        (EndKind.INTERRUPTED, b"", True, Outcome.INTERRUPTED, None, None),
    ],
)  # fmt: skip
async def test_a_change_that_went_back_to_the_model(  # noqa: PLR0913  a table
    kind: EndKind, left: bytes, *, refused: bool, outcome: Outcome, reason: str | None, error: str | None
) -> None:
    session = Session()
    session.left = left
    session.verification.refused = ("Add", "") if refused else None
    session.verification.why_refused = "1 fails"
    result = await session.finish(kind)
    assert (result.outcome, result.reason, result.error) == (outcome, reason, error)


@pytest.mark.parametrize(
    ("kind", "opened", "outcome", "error"),
    [
        (EndKind.FINISH, None, Outcome.FAILED, "the change is too large"),
        (EndKind.COMPLETED, None, Outcome.FAILED, "the change is too large"),
        (EndKind.FINISH, OPENED, Outcome.PROPOSED, None),
        (EndKind.LIMIT, None, Outcome.LIMIT, None),
        (EndKind.LIMIT, OPENED, Outcome.LIMIT, None),
    ],
)
async def test_a_refusal_is_why_a_model_gave_up(
    kind: EndKind, opened: PullRequestResult | None, outcome: Outcome, error: str | None
) -> None:
    session = Session()
    session.left, session.result.pull_request = PATCH if kind is EndKind.LIMIT else b"", opened
    session.proposer.refusal = refusal = ToolError("the change is too large")
    result = await session.finish(kind)
    assert (result.outcome, result.error) == (outcome, error)
    assert (result.cause is refusal) is (error is not None)


@pytest.mark.parametrize(
    ("why", "dry_run", "task", "shown"),
    [
        ("tests_fail", False, ISSUE, [(7, TESTS_FAIL_KEY, "")]),
        ("limit", False, ISSUE, []),
        ("", False, ISSUE, []),
        ("tests_fail", True, ISSUE, []),
        ("tests_fail", False, TEXT, []),
    ],
)
async def test_what_was_said_of_failing_tests_is_taken_back(
    why: str, *, dry_run: bool, task: Task, shown: list[object]
) -> None:
    session = Session(task, dry_run=dry_run, why=why)
    session.result.pull_request = OPENED
    await session.finish(EndKind.FINISH)
    assert session.forge.shown == ([] if dry_run else shown)


@pytest.mark.parametrize("has_files", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_work_that_the_remote_does_not_take_stays_on_this_machine(*, has_files: bool, fails: bool) -> None:
    """Without a claim the remote is not asked."""
    session: Any = Session()
    state = UnfinishedState("run-1", "limit", "m", "c", "p")
    earlier, made = Snapshot("1" * 40, "2" * 40, ()), Snapshot("3" * 40, "4" * 40, ())
    session.state = lambda outcome, *, counts: replace(state, why=str(outcome), attempts=int(counts))
    session.conversation, session.continues, session.saved_files = [], "5" * 40, earlier
    session.ledger = SimpleNamespace(touched={"a.py"}, shell_used=False)
    asked: list[Any] = []

    def snapshot(_touched: set[str], _subject: str, **more: Any) -> Snapshot:
        asked.append(more["find_secrets"](f"--- a/a\n+++ b/a\n@@ -0,0 +1 @@\n+{SECRET}\n"))
        return made

    def pack(snapshot: Snapshot) -> Packed:
        return Packed(snapshot.commit, snapshot.start, snapshot.start, b"pack")

    session.clone = SimpleNamespace(snapshot=snapshot, pack=pack)
    files: dict[str, bytes] = {}

    def write(key: str, content: dict[str, bytes]) -> None:
        if fails:
            raise JournalError("the disk is full")
        assert key == "issue-7"
        files.update(content)

    lease: Any = Lease()
    kept: Any = SimpleNamespace(write=write)
    saving = _Saving(session, lease, kept, Outcome.LIMIT, session.told.append, holds_claim=False, counts=True)
    assert not saving.save(has_files=has_files)
    assert asked == ([["a:1"]] if has_files else [])
    (told,) = [event.message for event in session.told if isinstance(event, Warned)]
    if fails:
        assert told == (
            "the work could not be stored on this machine; the next cycle starts without it: the disk is full"
        )
        return
    assert told == "the next cycle on issue-7 on this machine continues the work"
    found, replaces = read_kept(files) or (None, None)
    assert found is not None
    assert (found.work, replaces) == ("3" * 40 if has_files else "1" * 40, "5" * 40)
    assert (found.state.files_lost, found.state.why, found.state.attempts) == (not has_files, "limit", 1)


@pytest.mark.parametrize(
    ("outcome", "rounds", "holds", "is_over"),
    [
        (Outcome.PROPOSED, 1, True, True),
        (Outcome.PROPOSED, 1, False, False),
        (Outcome.NO_TASK, 1, True, True),
        (Outcome.NO_TASK, 0, True, False),  # this cycle did not continue it
        (Outcome.PROPOSED, 0, True, True),
    ],
)
def test_what_was_saved_goes_once_nothing_is_left(
    outcome: Outcome, rounds: int, *, holds: bool, is_over: bool
) -> None:
    session: Any = Session()
    session.result.rounds = rounds
    lease: Any = Lease()
    kept: Any = None
    _Saving(session, lease, kept, outcome, session.told.append, holds_claim=holds, counts=True).end()
    assert session.result.is_over is is_over


@table(
    ("outcome", "reason", "expected"),
    [
        (Outcome.NO_TASK, "There is No Task here.", True),
        (Outcome.NO_TASK, "no_task", True),
        (Outcome.NO_TASK, "Nothing to do.", True),
        (Outcome.NO_TASK, "It is done already.", False),
        (Outcome.NO_TASK, None, False),
        (Outcome.PROPOSED, "no task is left", False),
    ],
)
def test_who_says_that_there_is_no_task(outcome: Outcome, reason: str | None, *, expected: bool) -> None:
    assert says_no_task(CycleResult("r", outcome, reason=reason)) is expected


@table(
    ("outcome", "cause", "words"),
    [
        (Outcome.PROPOSED, None, "proposed"),
        (Outcome.QUESTION, None, "question"),
        (Outcome.PAUSED, RemoteUnavailableError("away"), "paused"),
        (Outcome.FAILED, None, "failed DIGEST"),
        (Outcome.FAILED, ToolError("of the model"), "failed DIGEST"),
        (Outcome.FAILED, JournalError("the disk"), "error DIGEST"),
        (Outcome.LIMIT, JournalError("the disk"), "limit DIGEST"),
        (Outcome.NO_TASK, None, "no_task DIGEST"),
        (Outcome.TESTS_FAIL, None, "tests_fail DIGEST"),
        (Outcome.WITHDRAWN, None, "withdrawn DIGEST"),
        (Outcome.CONFLICT, None, "conflict DIGEST"),
        (Outcome.SUPERSEDED, None, "superseded DIGEST"),
    ],
)
def test_the_outcome_in_a_claim(outcome: Outcome, cause: Exception | None, words: str) -> None:
    found = outcome_words(CycleResult("r", outcome, cause=cause), ISSUE)
    assert found == words.replace("DIGEST", words_digest(ISSUE))


@pytest.mark.parametrize("repository", ["octo/calc", "/srv/calc"])
async def test_a_question_says_how_it_is_answered(repository: str) -> None:
    session = Session()
    session.parts.repository = repository
    url, refusal = await post_question(session.parts, ISSUE, "Which?\n\n1. One\n2. Two")
    ((place, key, body),) = session.forge.shown
    assert (url, refusal, place) == ("https://f/7#question", "", 7)
    assert key.startswith("issue-7-")
    assert len(key) == len("issue-7-") + 8
    assert ("--answer" in body) is (repository == "/srv/calc")
    assert "with the number of a choice" in body
    await post_question(session.parts, ISSUE, "What?")
    assert session.forge.shown[1][1] != key
    assert "with the number of a choice" not in session.forge.shown[1][2]
    assert [event.url for event in session.told if isinstance(event, QuestionAsked)] == [url, url]


@pytest.mark.parametrize(
    ("question", "dry_run", "shown"),
    [
        ("Which?", False, "Which?"),
        ("Which?", True, ""),
        (f"Is it {SECRET}?", False, ""),
        (f"X{SECRET}", False, ""),
    ],
)
async def test_a_question_with_a_secret_is_not_posted(question: str, *, dry_run: bool, shown: str) -> None:
    session = Session(dry_run=dry_run)
    session.parts.guards.wording.comment = lambda text, **_: text.replace("X", "")
    url, refusal = await post_question(session.parts, ISSUE, question)
    assert (bool(url), refusal) == (bool(shown), "")
    assert len(session.forge.shown) == bool(shown)
    assert [event.question for event in session.told if isinstance(event, QuestionAsked)] == [question]


@pytest.mark.parametrize(("task", "place"), [(ISSUE, "https://f/7"), (replace(ISSUE, url=None), "#7")])
async def test_a_question_that_cannot_be_posted_stays_with_its_task(task: Task, place: str) -> None:
    session = Session()
    session.forge.refusal = ForgePermissionError("the issue is locked")
    assert await post_question(session.parts, task, "Which?") == (place, "the issue is locked")
    assert [event.message for event in session.told if isinstance(event, Warned)] == [
        "the question could not be posted: the issue is locked"
    ]


@pytest.mark.parametrize(
    ("cause", "task", "dry_run", "kept", "words"),
    [
        (WithdrawnError("it was assigned"), ISSUE, False, True, "The work is kept; if it is wanted"),
        (WithdrawnError("it was assigned"), ISSUE, False, False, "it was assigned"),
        (WithdrawnError("it was closed", is_over=True), ISSUE, False, True, ""),
        (SupersededError("the base has it"), ISSUE, False, False, "close this issue"),
        (SupersededError("the base has it"), ISSUE, True, False, ""),
        (SupersededError("the base has it"), TEXT, False, False, ""),
        (SupersededError("the base has it"), None, False, False, ""),
        (ToolError("of the model"), ISSUE, False, False, ""),
        (None, ISSUE, False, False, ""),
    ],
)
async def test_who_was_overtaken_says_so(
    cause: Any, task: Task | None, *, dry_run: bool, kept: bool, words: str
) -> None:
    session = Session(dry_run=dry_run)
    result = CycleResult("run-1", task=task, saved="ref" if kept else None)
    if cause is not None:
        result.end_by(cause)
    await tell_overtaken(session.parts, result)
    assert len(session.forge.shown) == bool(words)
    if words:
        ((number, key, body),) = session.forge.shown
        assert (number, key) == (7, "overtaken")
        assert words in body
        assert ("work is kept" in body) is kept
    assert result.cause is (cause if isinstance(cause, ToolError) else None)


@pytest.mark.parametrize("cause", [WithdrawnError("it was assigned"), BaseConflictError("main is gone")])
@pytest.mark.parametrize("here", [True, False])
async def test_work_that_only_this_machine_has_is_not_promised_to_others(cause: Any, *, here: bool) -> None:
    session = Session(dry_run=False)
    result = CycleResult("run-1", task=ISSUE, patch="/a.patch", is_kept_here=here)
    result.end_by(cause)
    await tell_overtaken(session.parts, result)
    ((_, _, body),) = session.forge.shown
    assert ("kept on the machine of this run alone" in body) is here
    assert "kept, and" not in body
    assert "kept;" not in body


class Lease:
    """A claim that remembers how it was released."""

    lost = False

    def __init__(self, *failures: Exception) -> None:
        self.failures, self.releases = list(failures), list[tuple[tuple[Any, ...], dict[str, Any]]]()
        self.record = SimpleNamespace(task="issue-7")

    def release(self, *words: Any, **more: Any) -> bool:
        self.releases.append((words, more))
        if self.failures:
            raise self.failures.pop(0)
        return True


def left(attempts: int = 1, commit: str | None = "1" * 40) -> Earlier:
    state = UnfinishedState("r", "failed", "m", "c", "p", attempts=attempts)
    return Earlier(state, None, "", commit)


async def released(
    result: CycleResult, choice: Choice, session: Session
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    lease: Any = choice.lease
    await release_claim(session.parts, choice, result)
    words, more = lease.releases[-1]
    return words, more


@pytest.mark.parametrize(
    ("outcome", "cause", "attempts", "why"),
    [
        (Outcome.FAILED, JournalError("the disk is full"), 2, "the disk is full"),
        (Outcome.FAILED, JournalError("the disk is full"), 1, ""),
        (Outcome.FAILED, ToolError("of the model"), 2, ""),
        (Outcome.FAILED, AuthenticationError("the key is wrong"), 2, ""),
        (Outcome.FAILED, None, 2, ""),
        (Outcome.PAUSED, JournalError("the disk is full"), 2, ""),
        (Outcome.FAILED, PeoplesCommitsError("branch x has commits of people"), 0, "branch x has commits of people"),
    ],
)  # fmt: skip
async def test_a_task_waits_for_a_person_after_three_faults(
    outcome: Outcome, cause: Exception | None, attempts: int, why: str
) -> None:
    session, lease = Session(), Lease()
    result = CycleResult("run-1", outcome, cause=cause, error=None if cause is None else str(cause))
    choice = Choice(ISSUE, lease=lease, earlier=left(attempts) if attempts else None)  # type: ignore[arg-type]
    words, more = await released(result, choice, session)
    assert (words[0] == "waits") is bool(why)
    assert more["why"] == why
    assert result.waits == ({"issue-7": why} if why else {})
    assert [key for _, key, *_ in session.forge.shown] == (["waits"] if why else []) + ["pullwright:working"]


@pytest.mark.parametrize(
    ("outcome", "deaths"),
    [(Outcome.PAUSED, None), (Outcome.INTERRUPTED, None), (Outcome.PROPOSED, 0), (Outcome.FAILED, 0)],
)
async def test_the_release_says_what_was_spent_and_proposed(outcome: Outcome, deaths: int | None) -> None:
    session, lease = Session(), Lease()
    result = CycleResult("run-1", outcome, rounds=2, usd=0.5, pull_request=OPENED)
    choice = Choice(ISSUE, lease=lease, spent_before=Spent(1.0, 10, 2.0, 3))  # type: ignore[arg-type]
    words, more = await released(result, choice, session)
    assert words[0].partition(" ")[0] == str(outcome)
    assert words[1:] == (9, Spent(1.5, 10, 2.0, 5))
    assert more == {"deaths": deaths, "why": "", "drops": None}


@pytest.mark.parametrize(
    ("is_over", "earlier", "dropped"),
    [(True, left(), True), (False, left(), False), (True, left(commit=None), False), (True, None, False)],
)
async def test_saved_work_goes_with_the_claim_that_is_over(
    *, is_over: bool, earlier: Earlier | None, dropped: bool
) -> None:
    session, lease = Session(), Lease()
    result = CycleResult("run-1", Outcome.PROPOSED, is_over=is_over)
    choice = Choice(ISSUE, lease=lease, earlier=earlier)  # type: ignore[arg-type]
    _, more = await released(result, choice, session)
    drops = more["drops"]
    assert (drops is not None) is dropped
    if drops is not None:
        assert (drops.ref, drops.old, drops.new) == (wip_ref("issue-7"), "1" * 40, None)


async def test_saved_work_that_cannot_be_removed_keeps_no_claim() -> None:
    session, lease = Session(), Lease(PushRejectedError("somebody saved"))
    result = CycleResult("run-1", Outcome.PROPOSED, is_over=True)
    choice = Choice(ISSUE, lease=lease, earlier=left())  # type: ignore[arg-type]
    _, more = await released(result, choice, session)
    assert (len(lease.releases), more.get("drops")) == (2, None)
    assert "could not be removed: somebody saved" in "".join(
        event.message for event in session.told if isinstance(event, Warned)
    )


@pytest.mark.parametrize("failure", [PushRejectedError("taken over"), RemoteUnavailableError("away")])
async def test_a_claim_that_cannot_be_released_expires(failure: Exception) -> None:
    session, lease = Session(), Lease(failure)
    choice = Choice(ISSUE, lease=lease, earlier=None)  # type: ignore[arg-type]
    await release_claim(session.parts, choice, CycleResult("run-1", Outcome.PROPOSED))
    assert len(lease.releases) == 1
    (told,) = [event.message for event in session.told if isinstance(event, Warned)]
    assert told == f"the claim on issue-7 was not released, and expires by itself: {failure}"


PULL = PullRequest(9, "Add", "", "https://f/9", False, PullRequestState.OPEN, "b", "main", "abcdef0123456789")
REVIEW = replace(ISSUE, kind=TaskKind.REVIEW, pull=PULL, status_marker="<!-- pullwright:marker -->")


@pytest.mark.parametrize(
    ("outcome", "rounds", "task", "is_released", "shown"),
    [
        (Outcome.PROPOSED, 1, REVIEW, True, "the pull request was updated"),
        (Outcome.PROPOSED, 1, REVIEW, False, "the pull request was updated"),
        (Outcome.FAILED, 1, REVIEW, True, "it failed"),
        (Outcome.FAILED, 1, REVIEW, False, ""),  # it is done again
        (Outcome.LIMIT, 0, REVIEW, True, ""),
        (Outcome.PAUSED, 1, REVIEW, True, ""),
        (Outcome.QUESTION, 1, REVIEW, True, ""),
        (Outcome.INTERRUPTED, 1, REVIEW, True, ""),
        (Outcome.PROPOSED, 1, replace(REVIEW, status_marker=""), True, ""),
        (Outcome.PROPOSED, 1, ISSUE, True, ""),
    ],
)
async def test_a_round_is_noted_once_what_was_asked_is_handled(
    outcome: Outcome, rounds: int, task: Task, *, is_released: bool, shown: str
) -> None:
    session = Session(task)
    lease = Lease(*([] if is_released else [RemoteUnavailableError("away")]))
    result = CycleResult("run-1", outcome, rounds=rounds, reason="Because.")
    await release_claim(session.parts, Choice(task, lease=lease), result)  # type: ignore[arg-type]
    bodies = [
        body for number, key, body in (one for one in session.forge.shown if len(one) == 3) if key == "status"
    ]
    assert len(bodies) == bool(shown)
    if shown:
        assert shown in bodies[0]
        assert "Because." in bodies[0]
        assert task.status_marker in bodies[0]

"""The pull request of a cycle: what is refused, what is said of what is left out, and how a moved base is followed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.bot.cycle.choice import Unwanted
from orchestrator.bot.cycle.earlier import fingerprints
from orchestrator.bot.cycle.parts import CycleResult, PullRequestResult, Withheld
from orchestrator.bot.cycle.propose import (
    FAILING_LABEL,
    MOST_MOVES,
    MOST_REFUSALS,
    CycleCommand,
    PendingChanges,
    Proposer,
    PullRequestAnnotations,
    SessionEvidence,
    UnfitTextError,
    left_out_in,
    notes_in,
    quoted_patch,
    todo_line,
)
from orchestrator.bot.cycle.repository_rules import RepositoryRules
from orchestrator.bot.cycle.tasks import Task, TaskKind
from orchestrator.bot.forge.base import PullRequest, PullRequestState
from orchestrator.bot.git.base import CommitOutcome, LeftOut, MovedBase, RemoteTip, Staged
from orchestrator.bot.git.staging import A_SUBMODULE, IN_SUBMODULE
from orchestrator.bot.policy.test_listing import TestListing
from orchestrator.bot.policy.wording import Wording
from orchestrator.core.cycle_events import PhaseEntered
from orchestrator.core.errors import (
    BaseConflictError,
    ForgeUnavailableError,
    PeoplesCommitsError,
    PushRefusedError,
    PushRejectedError,
    SupersededError,
    ToolError,
    WithdrawnError,
    WorkspaceError,
)
from orchestrator.core.events import CallStatus, Guarded, TodosChanged, ToolCallEnded, ToolCallStarted, Warned
from orchestrator.engine.policy.secrets import Redactor
from orchestrator.engine.tools.base import Ledger
from tests.tables import table
from tests.unit.app.cli.examples import TODOS

if TYPE_CHECKING:
    from orchestrator.core.events import Event

SECRET = "made-up-" + "value-0123456789"
TASK = Task("issue-7", "Add", "", "issue", 7)
PULL = PullRequest(
    9, "Add", "", "https://f/9", False, PullRequestState.OPEN, "pullwright/issue-7-add", "main", "1" * 40
)
OPENED = PullRequestResult("Add", "", draft=False, number=9, url="https://f/9")
NOTHING = CommitOutcome(None, [], [], [])


class Clone:
    """A clone that takes everything, or what it is told to refuse."""

    base_branch = "main"
    joined = None

    def __init__(self) -> None:
        self.moved: list[MovedBase] = []
        self.conflicts: list[str] | Exception = []
        self.refusals: list[Exception] = []
        self.tip: RemoteTip | None = None
        self.done: list[str] = []
        self.changed: set[str] = set()
        self.patch = b"patch"

    def moved_base(self) -> MovedBase | None:
        return self.moved.pop(0) if self.moved else None

    def put_onto(self, moved: MovedBase, touched: set[str], *, include_commands: bool) -> list[str]:
        del touched, include_commands
        self.done.append(f"onto {moved.commit[:1]}")
        if isinstance(self.conflicts, Exception):
            raise self.conflicts
        return self.conflicts

    def push(self, branch: str, *, expected: str | None, lease: object) -> str:
        del lease
        self.done.append(f"push {branch} over {(expected or 'nothing')[:7]}")
        if self.refusals:
            raise self.refusals.pop(0)
        return "2" * 40

    def uncommit(self) -> None:
        self.done.append("uncommit")

    def remote_tip(self, branch: str) -> RemoteTip | None:
        del branch
        return self.tip

    def changed_paths(self, among: set[str] | None) -> set[str]:
        return self.changed if among is None else self.changed & among

    def pending_patch(self, touched: set[str], **more: Any) -> bytes:
        self.done.append(f"patch {sorted(touched)} {more['pushed']} {more['changed']}")
        return self.patch


class Forge:
    """Remembers labels and comments."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.failure: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> None:
            if self.failure is not None:
                raise self.failure
            self.done.append((name, *arguments))

        return call


class Stage:
    """A proposer with its surroundings."""

    def __init__(self, task: Task = TASK, *, dry_run: bool = False, tree: Path | None = None) -> None:
        self.told: list[Event] = []
        self.unwanted: Unwanted | None = None
        self.clone, self.forge, self.ledger = Clone(), Forge(), Ledger(touched={"a.py"})
        vars(self.clone)["tree"] = tree or Path(__file__).parent
        self.guards = SimpleNamespace(
            redactor=Redactor([SECRET]),
            wording=Wording(),
            size=lambda _changes: None,
            tests=lambda _changes: TestListing(),
            output=lambda text: SimpleNamespace(text=text, removed=()),
        )
        options = SimpleNamespace(dry_run=dry_run, draft=False, author_email="bot@example.com")
        tasks = SimpleNamespace(why_unwanted=lambda _task: self.unwanted)
        parts = SimpleNamespace(
            options=options, guards=self.guards, forge=self.forge, tasks=tasks, memory=None, run="run-1"
        )
        sanitizer = SimpleNamespace(text=lambda _where, text: text, paths=sorted)
        self.result = CycleResult("run-1", task=task)
        self.attempt: Any = SimpleNamespace(
            parts=parts,
            task=task,
            clone=self.clone,
            moved_base=self.clone.moved_base,
            ledger=self.ledger,
            result=self.result,
            emit=self.told.append,
            sanitizer=sanitizer,
        )
        self.verification: Any = SimpleNamespace(is_red=False, is_required=False, verifier=None, verdict=None)
        commits: Any = SimpleNamespace(mark_committed=lambda: self.clone.done.append("marked"))
        attempt: Any = self.attempt
        verification: Any = self.verification
        self.proposer = Proposer(attempt, SessionEvidence(), verification, cost=lambda: "$1", commits=commits)

    @property
    def warnings(self) -> list[str]:
        return [event.message for event in self.told if isinstance(event, Warned)]


@table(
    ("task", "found", "expected"),
    [
        (TASK, "", TASK.branch),
        (TASK, "pullwright/issue-7-earlier", "pullwright/issue-7-earlier"),
        (replace(TASK, pull=PULL), "pullwright/issue-7-earlier", PULL.branch),
        (replace(TASK, title=SECRET), "", "pullwright/issue-7-task"),
    ],
)
def test_the_branch_is_that_of_earlier_cycles_and_shows_no_secret(
    task: Task, found: str, expected: str
) -> None:
    stage = Stage(task)
    stage.proposer.found_branch = found
    assert stage.proposer.branch == expected


ADDED, REWRITTEN = MovedBase("3" * 40, is_rewritten=False), MovedBase("4" * 40, is_rewritten=True)


@pytest.mark.parametrize(
    ("moved", "moves", "joined", "done"),
    [
        (None, 0, None, None),
        (ADDED, MOST_MOVES - 1, None, "onto 3"),
        (ADDED, MOST_MOVES, None, None),
        (REWRITTEN, MOST_MOVES, None, "onto 4"),
        (ADDED, 0, "5" * 40, None),  # a branch with people's commits has its own base
        (REWRITTEN, 0, "5" * 40, "onto 4"),
    ],
)
async def test_a_base_that_moved_is_followed(
    moved: MovedBase | None, moves: int, joined: str | None, done: str | None
) -> None:
    stage = Stage()
    stage.clone.moved = [moved] if moved else []
    vars(stage.clone)["joined"] = joined
    stage.proposer.is_committed, stage.proposer._moves = True, moves
    assert await stage.proposer._is_current() is (done is None)
    assert stage.clone.done == ([done] if done else [])
    assert stage.proposer.is_committed is (done is None)
    if moved and done:
        assert stage.warnings == [f"main has moved: the change is put onto {moved.commit[:10]}"]


async def test_a_base_that_goes_on_moving_is_followed_twice() -> None:
    stage = Stage()
    stage.clone.moved = [ADDED] * 5
    assert [await stage.proposer._is_current() for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize(
    ("conflicts", "words"),
    [
        (["a.py"], "main has moved, and the change conflicts with it in a.py"),
        (list("abcdefg"), "in a, b, c, d, e$"),
        (WorkspaceError("the disk is full"), "main has moved: the disk is full"),
    ],
)
async def test_a_change_that_does_not_fit_onto_the_base(conflicts: Any, words: str) -> None:
    stage = Stage()
    stage.clone.moved, stage.clone.conflicts = [ADDED], conflicts
    with pytest.raises(BaseConflictError, match=words):
        await stage.proposer._is_current()


@pytest.mark.parametrize("is_over", [True, False])
async def test_a_task_that_nobody_wants_any_more_is_not_proposed(*, is_over: bool) -> None:
    stage = Stage()
    stage.unwanted = Unwanted("it was closed", is_over)
    with pytest.raises(WithdrawnError, match="it was closed") as caught:
        await stage.proposer._is_current()
    assert caught.value.is_over is is_over


@pytest.mark.parametrize(
    ("url", "created", "draft", "is_draft", "answer", "warned"),
    [
        ("https://f/9", True, False, False, "Pull request #9 is open: https://f/9", False),
        ("https://f/9", False, False, False, "Pull request #9 is updated: https://f/9", False),
        ("/srv/9", True, True, True, "Pull request #9 is open on the branch pullwright/issue-7-add", False),
        ("https://f/9", True, False, True, "Pull request #9 is open: https://f/9", True),
        ("https://f/9", False, False, True, "Pull request #9 is updated: https://f/9", False),
    ],
)
async def test_a_pull_request_is_created_or_updated(  # noqa: PLR0913  a table
    url: str, *, created: bool, draft: bool, is_draft: bool, answer: str, warned: bool
) -> None:
    stage = Stage()
    stage.proposer.draft = is_draft
    stage.verification.is_doubtful = False
    pull = replace(PULL, url=url, draft=draft)
    vars(stage.forge)["ensure_pull_request"] = lambda proposal: (replace(pull, title=proposal.title), created)
    assert await stage.proposer._publish("Add", lambda head: f"on {head[:1]}", NOTHING) == answer
    assert stage.result.pull_request == PullRequestResult("Add", "", draft=draft, number=9, url=url)
    assert ("is no draft" in "".join(stage.warnings)) is warned
    stage.clone.moved = [ADDED]
    assert await stage.proposer._publish("Add", str, NOTHING) is None, "it is put onto the base first"


TAKEN = PushRejectedError("somebody pushed")


def refused(*, may_differ: bool) -> PushRefusedError:
    return PushRefusedError("refused", may_differ=may_differ, said="a file is too large")


async def test_a_push_is_noted() -> None:
    stage = Stage()
    error = stage.proposer.refusal = refused(may_differ=True)
    lease: Any = SimpleNamespace(ensure_held=lambda: stage.clone.done.append("held"))
    stage.proposer.lease = lease
    assert await stage.proposer._push("b") == "2" * 40
    assert stage.clone.done == ["push b over nothing", "marked", "held"]
    assert stage.proposer.pushed == "2" * 40
    assert stage.proposer.refusal != error
    assert (stage.result.branch, stage.result.commit) == ("b", "2" * 40)


OURS = RemoteTip("6" * 40, "bot@example.com", "Bot")


@pytest.mark.parametrize(
    ("tip", "is_retry", "pushed", "raised", "pushes"),
    [
        (OURS, True, None, None, ["push b over nothing", "push b over 6666666"]),
        (OURS, False, None, PushRejectedError, ["push b over nothing"]),
        (OURS, True, "7" * 40, PushRejectedError, ["push b over 7777777"]),
        (None, True, None, PushRejectedError, ["push b over nothing"]),
        (replace(OURS, committer_email="ada@example.com", committer_name="Ada"), True, None, PeoplesCommitsError, ["push b over nothing"]),
    ],
)  # fmt: skip
async def test_only_our_own_branch_is_replaced_and_only_for_another_try(
    tip: RemoteTip | None, *, is_retry: bool, pushed: str | None, raised: Any, pushes: list[str]
) -> None:
    stage = Stage(replace(TASK, is_retry=is_retry))
    stage.clone.refusals, stage.clone.tip, stage.proposer.pushed = [TAKEN], tip, pushed
    if raised is None:
        await stage.proposer._push("b")
    else:
        with pytest.raises(raised, match="a commit by Ada" if raised is PeoplesCommitsError else "pushed"):
            await stage.proposer._push("b")
    assert [one for one in stage.clone.done if one.startswith("push")] == pushes


@pytest.mark.parametrize(
    ("may_differ", "uncommitted", "expected", "done"),
    [
        (True, True, True, ["uncommit"]),
        (True, False, False, ["uncommit"]),
        (True, None, True, []),  # nothing was committed
        (False, False, True, []),
    ],
)
async def test_a_change_that_a_server_refuses_goes_back_to_the_model(
    *, may_differ: bool, uncommitted: bool | None, expected: bool, done: list[str]
) -> None:
    stage = Stage()
    stage.clone.refusals = [error := refused(may_differ=may_differ)]
    stage.proposer.is_committed, stage.proposer._uncommitted = True, uncommitted
    with pytest.raises(ToolError if may_differ else PushRefusedError) as caught:
        await stage.proposer._push("b")
    assert ("a file is too large" in str(caught.value)) is may_differ
    assert stage.clone.done[1:] == done
    assert stage.proposer.is_committed is expected
    assert stage.proposer.refusal is error


async def test_a_server_may_refuse_a_change_three_times() -> None:
    stage = Stage()
    stage.clone.refusals = [refused(may_differ=True) for _ in range(MOST_REFUSALS)]
    for _ in range(MOST_REFUSALS - 1):
        with pytest.raises(ToolError):
            await stage.proposer._push("b")
    with pytest.raises(PushRefusedError):
        await stage.proposer._push("b")


@table(
    ("title", "body", "error", "words"),
    [
        ("", "Text.", ToolError, "The title is empty"),
        (f"Add {SECRET}", "Text.", UnfitTextError, "The title holds something"),
        ("Add", f"Text {SECRET}.", UnfitTextError, "The body holds something"),
    ],
)
def test_a_text_that_must_not_be_published(title: str, body: str, error: type[ToolError], words: str) -> None:
    stage = Stage()
    with pytest.raises(error, match=words):
        stage.proposer._harmless(title, body)
    assert any(isinstance(event, Guarded) for event in stage.told) is (error is UnfitTextError)


def staged(*, is_new: bool = True, **more: Any) -> Staged:
    return Staged("tree", replace(NOTHING, **more), is_new)


GENERATED, HELD = (
    LeftOut("b.txt", "an ignore rule names it", may_be_allowed=True),
    LeftOut("ci.yml", "a person"),
)


@pytest.mark.parametrize(
    ("given", "is_committed", "moves", "error", "words"),
    [
        (staged(), False, 0, None, ""),
        (staged(is_new=False), True, 0, None, ""),
        (staged(held_back=["a.py:1", "b.py:2"]), False, 0, ToolError, "looks like a secret, at a.py:1, b.py:2"),
        (staged(refused="it is too large"), False, 0, ToolError, "it is too large"),
        (staged(is_new=False), False, 0, ToolError, "Nothing has changed that may be proposed.$"),
        (staged(is_new=False, left_out=[GENERATED], held=[HELD]), False, 0, ToolError, r"proposed. b.txt is left out: an ignore rule names it. ci.yml is left out: a person.$"),
        (staged(is_new=False), False, 1, SupersededError, "main has this change already"),
        (staged(is_new=False), True, 1, SupersededError, "main has this change already"),
        (staged(), False, 1, None, ""),
        (staged(is_new=False, left_out=[GENERATED]), False, 1, ToolError, "Nothing has changed"),
        (staged(is_new=False, held=[HELD]), False, 1, ToolError, "Nothing has changed"),
    ],
)  # fmt: skip
def test_what_is_staged_is_refused_with_its_reason(
    given: Staged, *, is_committed: bool, moves: int, error: Any, words: str
) -> None:
    stage = Stage()
    stage.proposer.is_committed, stage.proposer._moves = is_committed, moves
    if error is None:
        stage.proposer._check(given)
    else:
        with pytest.raises(error, match=words):
            stage.proposer._check(given)
    guarded = [event.details for event in stage.told if isinstance(event, Guarded)]
    held = [("ci.yml: a person",)] if given.outcome.held else []
    assert guarded == ([("a.py:1", "b.py:2")] if given.outcome.held_back else held)


async def test_a_remark_on_names_is_made_once() -> None:
    stage = Stage()
    stage.guards.protect = stage.guards.admits = None
    stage.clone.stage = lambda *_given, **_more: staged(files=["A.py"], notes=["A note."])  # type: ignore[attr-defined]
    for _ in range(2):
        await stage.proposer._stage(ignore_doubts=False)
    assert stage.warnings == ["A note."]
    stage.clone.stage = lambda *_given, **_more: staged(notes=["A note.", "Another."])  # type: ignore[attr-defined]
    await stage.proposer._stage(ignore_doubts=False)
    assert stage.warnings == ["A note.", "Another."]


def test_a_model_with_commands_is_told_of_its_stash() -> None:
    stage = Stage()
    stage.ledger.shell_used = True
    with pytest.raises(ToolError, match="git stash pop"):
        stage.proposer._check(staged(is_new=False))


@table(
    ("left_out", "held", "expected"),
    [
        ([], [], False),
        ([], [HELD], True),
        ([GENERATED], [], False),  # only commands made it
        ([LeftOut("a.py", "an ignore rule names it")], [], True),
        ([LeftOut("sub", A_SUBMODULE)], [], True),
        ([LeftOut("sub/a", f"{IN_SUBMODULE} sub")], [], True),
    ],
)
def test_a_change_is_incomplete_without_what_tools_wrote(
    left_out: list[LeftOut], held: list[LeftOut], *, expected: bool
) -> None:
    outcome = replace(NOTHING, left_out=left_out, held=held)
    assert Stage().proposer._is_incomplete(outcome) is expected


def test_what_is_left_out_is_named_with_the_flag_that_lets_it_in() -> None:
    outcome = replace(
        NOTHING,
        left_out=[GENERATED, LeftOut(f"{SECRET}/x y", "too large", may_be_allowed=True)],
        held=[
            HELD,
            LeftOut("todo.md", "its item is not done as long as files of the change are left out", True),
        ],
    )
    withheld = Stage().proposer._withheld(outcome)
    assert [(one.path, one.flag) for one in withheld] == [
        ("ci.yml", ""),
        ("todo.md", ""),
        ("b.txt", "--allow-path b.txt"),
        ("[redacted]/x y", f"--allow-path '{SECRET}/x y'"),
    ]
    assert [str(one) for one in withheld[::2]] == [
        "ci.yml: a person",
        "b.txt: an ignore rule names it; --allow-path b.txt lets it in",
    ]
    assert str(Withheld("a", "b")) == "a: b"


def test_the_answer_names_what_was_committed_and_what_was_not() -> None:
    answer = Proposer._answer
    outcome = replace(NOTHING, files=["a.py", "b.py"], left_out=[GENERATED], held=[HELD], notes=["A note."])
    assert answer("Opened.", outcome) == (
        "Opened.\nCommitted: a.py, b.py.\nLeft out: b.txt (an ignore rule names it).\n"
        "Waits for a person: ci.yml (a person).\nA note.\nIf the task is done, call finish."
    )
    assert "No further change to commit." in answer("Updated.", NOTHING)


@table("trailers", [(), ("Signed-off-by: Bot <bot@example.com>", "Assisted-by: m")])
@table("body", ["It subtracted.\n\nNow it adds.", ""])
@table("is_partial", [False, True])
def test_a_message_is_read_as_it_was_written(
    trailers: tuple[str, ...], body: str, *, is_partial: bool
) -> None:
    proposer = Stage().proposer
    proposer.rules, proposer._is_partial = RepositoryRules(trailers=trailers), is_partial
    message = proposer._message("Make add() add", body)
    assert ("Fixes #7" in message) is not is_partial
    begun = proposer.read_message(message)
    assert (begun.title, begun.body, begun.branch, begun.commit) == ("Make add() add", body, TASK.branch, "")


@pytest.mark.parametrize(
    ("required", "verifier", "refused"), [(True, None, True), (False, None, False), (True, "it", False)]
)
def test_lost_tests_are_refused_where_tests_are_required_and_none_are_run(
    *, required: bool, verifier: object, refused: bool
) -> None:
    stage = Stage()
    listing = SimpleNamespace(notes=("a note",), lost=("a is gone", "b is gone"), lines=lambda: ["a is gone"])
    stage.guards.tests = lambda _changes: listing
    stage.verification.is_required, stage.verification.verifier = required, verifier
    refusal = stage.proposer._refusal(())
    expected = "Tests are gone or skipped, which is refused here (--require-tests): a is gone; b is gone"
    assert refusal == (expected if refused else None)
    (told,) = [event for event in stage.told if isinstance(event, Guarded)]
    assert told.details == ("a is gone",)
    stage.guards.size = lambda _changes: "it is too large"
    assert stage.proposer._refusal(()) == "it is too large"


# Changes that are not proposed.


@pytest.mark.parametrize(
    ("changed", "opened", "may_end", "is_done", "may_finish"),
    [
        ({"a.py"}, None, False, False, False),
        ({"a.py"}, OPENED, False, False, False),
        (set(), OPENED, True, True, True),
        (set(), None, False, False, True),
        ({"of-a-person"}, OPENED, True, True, True),  # no tool touched it
    ],
)
async def test_a_session_does_not_end_with_changes_that_nobody_sees(
    changed: set[str],
    opened: PullRequestResult | None,
    *,
    may_end: bool,
    is_done: bool,
    may_finish: bool,
) -> None:
    stage = Stage()
    stage.clone.changed, stage.result.pull_request = changed, opened
    pending = PendingChanges(stage.attempt, stage.proposer, lambda: False)
    assert await pending.is_done() is is_done
    for ask, accepted in ((pending.may_end, may_end), (pending.may_finish, may_finish)):
        said = await ask("Done.")
        assert (said is None) is accepted
        if changed and not accepted:
            assert "a.py" in (said or "")
        assert await ask("Done.") is None, "it is reminded once"


async def test_the_last_turn_may_finish_with_changes() -> None:
    stage = Stage()
    stage.clone.changed = {"a.py"}
    assert await PendingChanges(stage.attempt, stage.proposer, lambda: True).may_finish("") is None


def test_files_that_were_left_out_or_are_proposed_already_are_none_of_ours(tmp_path: Path) -> None:
    stage = Stage(tree=tmp_path)
    for name in ("a.py", "b.py", "c.py"):
        (tmp_path / name).write_text("one")
    stage.ledger.touched = {"a.py", "b.py", "c.py"}
    stage.clone.changed = {"a.py", "b.py", "c.py"}
    pending = PendingChanges(stage.attempt, stage.proposer, lambda: False)
    assert pending.paths() == {"a.py", "b.py", "c.py"}
    stage.proposer.left_out = {"c.py"}
    assert pending.paths() == {"a.py", "b.py"}
    pending.restored = replace(pending.restored, fingerprints=fingerprints(tmp_path, ["a.py", "b.py"]))
    assert pending.paths() == set()
    (tmp_path / "b.py").write_text("two")
    assert pending.paths() == {"b.py"}


@pytest.mark.parametrize(
    ("changed", "dry_run", "is_proposed", "is_committed", "has_patch"),
    [
        (set(), False, False, False, True),  # of a commit that is not pushed
        (set(), True, False, False, False),
        (set(), False, True, False, False),
        (set(), False, True, True, True),
        ({"a.py"}, True, False, False, True),
        ({"a.py"}, False, True, False, True),
    ],
)
def test_what_is_left_is_read_once(
    changed: set[str], *, dry_run: bool, is_proposed: bool, is_committed: bool, has_patch: bool
) -> None:
    stage = Stage(dry_run=dry_run)
    stage.clone.changed, stage.proposer.is_committed = changed, is_committed
    pending = PendingChanges(stage.attempt, stage.proposer, lambda: False)
    pending.restored = replace(pending.restored, joined=is_proposed)
    expected = (changed, b"patch" if has_patch else b"")
    assert pending.left() == pending.left() == expected
    assert stage.clone.done == (["patch ['a.py'] False None"] if has_patch else [])


@pytest.mark.parametrize(
    ("task", "opened", "pushed"),
    [(TASK, None, False), (TASK, OPENED, True), (replace(TASK, pull=PULL), None, True)],
)
def test_a_patch_is_on_top_of_what_people_see(
    task: Task, opened: PullRequestResult | None, *, pushed: bool
) -> None:
    stage = Stage(task)
    stage.clone.changed, stage.result.pull_request, stage.ledger.shell_used = {"x"}, opened, True
    PendingChanges(stage.attempt, stage.proposer, lambda: False).left()
    assert stage.clone.done == [f"patch ['a.py'] {pushed} {{'x'}}"]


# Labels and comments.


@pytest.mark.parametrize(
    ("is_red", "labels", "before", "done"),
    [
        (True, (), False, ("ensure_label", 9, FAILING_LABEL)),
        (False, (FAILING_LABEL,), False, ("remove_label", 9, FAILING_LABEL)),
        (False, (), True, ("remove_label", 9, FAILING_LABEL)),
        (False, (), False, None),
    ],
)
async def test_the_label_of_failing_tests_follows_them(
    *, is_red: bool, labels: tuple[str, ...], before: bool, done: tuple[object, ...] | None
) -> None:
    stage = Stage()
    annotations = PullRequestAnnotations(stage.attempt)
    if before:
        await annotations.mark_failing(PULL, is_red=True)
        stage.forge.done.clear()
    await annotations.mark_failing(replace(PULL, labels=labels), is_red=is_red)
    assert stage.forge.done == ([done] if done else [])
    stage.forge.done.clear()
    await annotations.mark_failing(PULL, is_red=False)
    assert len(stage.forge.done) == is_red, "once"


async def test_what_waits_for_a_person_is_shown_and_taken_back() -> None:
    stage = Stage()
    annotations = PullRequestAnnotations(stage.attempt)
    await annotations.comment(9, NOTHING)
    assert stage.forge.done == []
    patch = b"--- a/ci.yml\n+++ b/ci.yml\n@@ -1 +1 @@\n-a\n+b\n"
    await annotations.comment(9, replace(NOTHING, held=[HELD], held_patch=patch))
    ((_, number, key, body),) = stage.forge.done
    assert (number, key) == (9, "held")
    assert quoted_patch(patch.decode()) in body
    await annotations.comment(9, NOTHING)
    assert len(stage.forge.done) == 2, "or that none waits any more"


@table(
    "patch",
    [
        b"",
        b"+" + b"x" * 50_000 + b"\n",
        b"+\xff\n",
        b"+a\x0cb\n",
        b"+<!-- a -->\n",
        f"+{SECRET}\n".encode(),
    ],
)
def test_a_patch_that_a_comment_would_change_is_not_in_it(patch: bytes) -> None:
    annotations = PullRequestAnnotations(Stage().attempt)
    held = replace(NOTHING, held=[HELD] * 22, held_patch=patch)
    text = annotations._text(held)
    assert "```" not in text
    assert text.count("ci.yml") == 20
    assert "2 more" in text


async def test_a_forge_that_fails_is_a_warning() -> None:
    stage = Stage()
    annotations = PullRequestAnnotations(stage.attempt)
    stage.forge.failure = ForgeUnavailableError("away")
    await annotations.comment(9, replace(NOTHING, held=[HELD]))
    assert stage.warnings == ["pull request #9 has no comment on what waits for a person (ci.yml): away"]
    stage.forge.failure = None
    await annotations.comment(9, NOTHING)
    assert stage.forge.done == [], "there is none to take back"


@pytest.mark.parametrize(
    ("task", "before", "done"),
    [
        (TASK, "withdrawn 0123", True),
        (TASK, "conflict", True),
        (TASK, "failed 0123", False),
        (TASK, None, False),
        (replace(TASK, number=None, kind=TaskKind.REVIEW, pull=PULL), "conflict", False),
    ],
)
async def test_that_nothing_was_proposed_is_taken_back(task: Task, before: str | None, *, done: bool) -> None:
    stage = Stage(task)
    lease: Any = SimpleNamespace(previous=None if before is None else SimpleNamespace(outcome=before))
    await PullRequestAnnotations(stage.attempt).take_back(task, lease)
    assert stage.forge.done == ([("ensure_comment", 7, "overtaken", "")] if done else [])


# Texts of pull requests.

NOTES = "## What the model wants to remember"


@table(
    ("body", "notes"),
    [
        ("", []),
        (f"- no\n\n{NOTES}\n\n- one\r\n- two\n\nmore\n", ["one", "two"]),
        (f"{NOTES}\n- a copy\n{NOTES}\n- one", ["one"]),  # the last one is the program's
        (f"{NOTES}\n" + "".join(f"- {n}\n" for n in range(7)), list("01234")),
    ],
)
def test_the_notes_of_a_pull_request(body: str, notes: list[str]) -> None:
    assert notes_in(body) == notes


LACKS = "> This change lacks files that were changed with it:"


@table(
    ("body", "lines"),
    [
        ("", []),
        (f"{LACKS}\n> - `a: b`\n> - more\n> - `c`\n>\n> - `d`\n\n***\nText", ["a: b", "c"]),
        (f"Text\r\n{LACKS}\r\n> - `a`\r\n", ["a"]),
        (f"Text\n\n***\n{LACKS}\n> - `a`\n", []),  # a model's words
    ],
)
def test_what_a_pull_request_says_is_left_out(body: str, lines: list[str]) -> None:
    assert left_out_in(body) == lines


def test_a_line_that_cannot_be_shown_says_so() -> None:
    assert todo_line(Wording(), "Run `x`") == "Run x"
    assert todo_line(Wording(), "``") == "(nothing that can be shown)"


# Evidence.


def started(name: str, command: object, call: str = "1") -> ToolCallStarted:
    return ToolCallStarted(call, name, {"command": command})


def ended(status: CallStatus, call: str = "1") -> ToolCallEnded:
    return ToolCallEnded(call, "shell", status, "")


@table(
    ("name", "status", "commands"),
    [
        ("shell", CallStatus.OK, [CycleCommand("pytest -q", passed=True)]),
        ("shell", CallStatus.FAILED, [CycleCommand("pytest -q", passed=False)]),
        ("shell", CallStatus.REFUSED, []),
        ("mcp__server__run", CallStatus.OK, []),
    ],
)
def test_the_commands_of_a_session_are_evidence(
    name: str, status: CallStatus, commands: list[CycleCommand]
) -> None:
    evidence = SessionEvidence(notes_in=lambda event: [event.call_id])
    for event in (
        started(name, " pytest\n  -q "),
        ended(status),
        ended(CallStatus.FAILED, "2"),
        TodosChanged(TODOS, 1),
    ):
        evidence(event)
    assert evidence.commands == commands
    assert [one.status for one in commands] == [str(status).replace("ok", "passed") for _ in commands]
    assert evidence.todos == TODOS
    assert evidence.notes == (["1"] if name != "shell" else [])
    evidence(PhaseEntered)  # type: ignore[arg-type]


def test_a_command_is_shown_without_secrets_and_never_empty() -> None:
    evidence = SessionEvidence(Redactor([SECRET]).redact)
    for number, command in enumerate((f"curl {SECRET}", " ", "x" * 300)):
        evidence(started("shell", command, str(number)))
        evidence(ended(CallStatus.OK, str(number)))
    shown = [one.text for one in evidence.commands]
    assert shown[:2] == ["curl [redacted]", "(nothing)"]
    assert len(shown[2]) <= 200

"""The host's part of a pull request: commit what tools touched, push, read back, create or update, label."""

from __future__ import annotations

import asyncio
import re
import shlex
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.earlier import (
    BegunProposal,
    RestoredWork,
    fingerprints,
)
from orchestrator.bot.cycle.parts import OVERTAKEN, OVERTAKEN_KEY, PullRequestResult, Withheld
from orchestrator.bot.cycle.repository_rules import RepositoryRules, fill_template
from orchestrator.bot.cycle.verify import PreparedChange, Verification
from orchestrator.bot.forge.base import Proposal
from orchestrator.bot.git.base import CommitScreen
from orchestrator.bot.git.staging import A_SUBMODULE, IN_SUBMODULE
from orchestrator.bot.policy.change_checks import places_of_secrets
from orchestrator.bot.policy.test_listing import TestListing
from orchestrator.bot.verification.page import find_block, statement_of
from orchestrator.core.changes import diff_stat
from orchestrator.core.cycle_events import (
    Phase,
    PhaseEntered,
    Proposed,
    Proposing,
)
from orchestrator.core.errors import (
    BaseConflictError,
    ForgeError,
    PeoplesCommitsError,
    PushRefusedError,
    PushRejectedError,
    SupersededError,
    ToolError,
    WithdrawnError,
    WorkspaceError,
)
from orchestrator.core.events import (
    CallStatus,
    Defence,
    Guarded,
    TodosChanged,
    ToolCallEnded,
    ToolCallStarted,
    Warned,
)
from orchestrator.core.prompts import fenced, one_line, render, shown_path
from orchestrator.core.todos import done_in_words
from orchestrator.engine.policy.file_syntax import unreadable_files
from orchestrator.engine.tools.base import is_mcp_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from orchestrator.bot.coordination.claims import Lease
    from orchestrator.bot.cycle.attempt import Attempt
    from orchestrator.bot.cycle.model_commits import ModelCommits
    from orchestrator.bot.cycle.parts import Guards
    from orchestrator.bot.cycle.tasks import Task
    from orchestrator.bot.forge.base import PullRequest
    from orchestrator.bot.git.base import CommitOutcome, Staged
    from orchestrator.bot.policy.wording import Wording
    from orchestrator.core.changes import FileChange
    from orchestrator.core.events import Event
    from orchestrator.core.todos import TodoItem
    from orchestrator.engine.policy.file_syntax import Unreadable
    from orchestrator.engine.policy.secrets import Redactor


_MESSAGE_CHARACTERS = 10_000
"""Most characters of the body in a commit message, from which a later cycle can restore it."""
# GitHub accepts 65,536 characters in a body. With 40,000 of the model's text and 50 findings, all of these fit.
_FINDING_CHARACTERS = 200
_MOST_COMMANDS = 30
_MOST_TODOS = 20
_MOST_NOTES = 5
_MOST_UNREADABLE = 5
_MOST_LOST = 10
_MOST_CONFLICTS = 5
_SHORT_COMMIT = 10
MOST_MOVES = 2
"""How often a base that moves while tests run is followed. After that a pull request begins a little below its head."""
MOST_REFUSALS = 3
"""How often a server may refuse the change of one cycle before the task waits for a person."""
_RULE = "\n\n***\n"
"""Separates the program's text at the top of a pull request from the model's: see `pull_request_body.md`."""
_OWNER_CHARACTERS = 100
_NOT_DONE = "its item is not done as long as files of the change are left out"
_STASH_HINT = (
    " What is proposed are the files as they are now: bring back what is in a stash or on another branch "
    "(git stash pop, git switch)."
)


class UnfitTextError(ToolError):
    """The title or body must not be published; the change itself was not checked."""


@dataclass(slots=True)
class Proposer:
    """Creates the cycle's pull request, and updates it at each further request of the model.

    Attributes:
        rules: the repository's rules for contributions, read before the session.
        cost: returns the task's cost so far, in words.
        lease: the claim, which is updated with every push; None if nothing is claimed.
        found_branch: the task's branch, if an earlier cycle pushed it and opened no pull request.
        pushed: the commit that we pushed to the remote's branch, if any.
        new_branch: the branch that this cycle has pushed, if there was none before; empty otherwise.
        left_out: changes that are not proposed, by path.
        is_committed: whether something was committed in this cycle.
        refusal: why the server refused the last push; None if it took it.
    """

    attempt: Attempt
    evidence: SessionEvidence
    verification: Verification
    cost: Callable[[], str]
    commits: ModelCommits
    lease: Lease | None = None
    rules: RepositoryRules = RepositoryRules()  # noqa: RUF009  a frozen value
    draft: bool = field(init=False)
    found_branch: str = ""
    pushed: str | None = None
    new_branch: str = ""
    left_out: set[str] = field(default_factory=set)
    is_committed: bool = False
    _moves: int = 0
    _is_partial: bool = False
    refusal: PushRefusedError | None = None
    _refusals: int = 0
    _uncommitted: bool | None = None
    _tests: TestListing = field(default_factory=TestListing)
    _lost_tests: bool = False
    _noted: set[str] = field(default_factory=set)
    _unreadable: list[Unreadable] = field(default_factory=list)
    _reported_unreadable: set[str] = field(default_factory=set)
    _annotations: PullRequestAnnotations = field(init=False)
    _guards: Guards = field(init=False)
    _redactor: Redactor = field(init=False)

    def __post_init__(self) -> None:
        self.draft = self.attempt.parts.options.draft
        self._annotations = PullRequestAnnotations(self.attempt)
        self._guards = self.attempt.parts.guards
        self._redactor = self._guards.redactor

    @property
    def branch(self) -> str:
        """The branch of the pull request; without the task's title if that contains a secret."""
        if self.attempt.task.pull is not None:
            return self.attempt.task.pull.branch
        if self.found_branch:
            return self.found_branch
        branch = self.attempt.task.branch
        return self.attempt.task.plain_branch if self._redactor.holds_secret(branch) else branch

    @property
    def has_pull_request(self) -> bool:
        """Whether the task's pull request is known to exist, so that people see what is pushed."""
        return self.attempt.task.pull is not None or self.attempt.result.pull_request is not None

    async def prepare(self, title: str, body: str, *, ignore_doubts: bool = False) -> PreparedChange:
        """Make the text harmless, and stage the files that tools touched.

        Args:
            body: the model's text, without the parts that are added here.
            ignore_doubts: see `ProposeChange`.

        Raises:
            ToolError: nothing has changed, or the change must not be published; the model can repair it.
            WorkspaceError: git failed.
        """
        line, text = self._harmless(title, body)
        if self.attempt.ledger.shell_used:
            await self.commits.look()
        return PreparedChange(line, text, body, await self._stage(ignore_doubts=ignore_doubts))

    async def propose(self, change: PreparedChange) -> str | None:
        """Commit, push, and create or update the pull request.

        Returns:
            The answer for the model; None if the base has moved: the change was put onto it, and has to be prepared
            again.

        Raises:
            OvertakenError: the task is not wanted any more, or the change does not fit onto the base.
            WorkspaceError: git failed.
            ForgeError: the forge failed.
        """
        attempt, result = self.attempt, self.attempt.result
        title, body = change.title, change.body
        attempt.emit(PhaseEntered(Phase.PROPOSE))
        unseen: ForgeError | WorkspaceError | None = None
        try:
            if not (attempt.parts.options.dry_run or await self._is_current()):
                return None
        except (ForgeError, WorkspaceError) as error:
            unseen = error  # raised when the proposal is in the journal, so that the next cycle asks no model again
        outcome = await self._commit(change.staged, self._message_with_commits(title, change.model_body))
        diff = await asyncio.to_thread(attempt.clone.diff)
        result.changed = diff_stat(diff)
        paths = [file.path for file in outcome.changes]
        if attempt.parts.options.dry_run:
            result.branch, result.commit = self.branch, outcome.commit or result.commit
            full = self._body(body, paths, attempt.clone.head_commit)
            result.pull_request = PullRequestResult(title, full, self._is_draft)
            result.diff = diff
            self.commits.mark_committed()
            answer = "Dry run: the pull request would be opened now."
        else:
            attempt.emit(Proposing(title, body, self.branch, attempt.clone.head_commit, diff))
            if unseen is not None:
                raise unseen
            published = await self._publish(title, lambda head: self._body(body, paths, head), outcome)
            if published is None:
                return None
            answer = published
        return self._answer(answer, outcome)

    async def _is_current(self) -> bool:
        """Look at task and base again. Return whether the change can be published as it is.

        If not, the base has moved, and the change has been put onto it. A base that was only added to is followed
        `MOST_MOVES` times; a rewritten one always.
        """
        attempt = self.attempt
        unwanted = await asyncio.to_thread(attempt.parts.tasks.why_unwanted, attempt.task)
        if unwanted is not None:
            raise WithdrawnError(unwanted.reason, is_over=unwanted.is_over)
        clone, name = attempt.clone, attempt.clone.base_branch
        moved = await asyncio.to_thread(attempt.moved_base)
        if clone.base_branch != name:
            attempt.emit(Warned(f"{name} was renamed: the base is {clone.base_branch} now"))
        is_followed = moved is not None and (moved.is_rewritten or self._moves < MOST_MOVES)
        if moved is None or not (is_followed if clone.joined is None else moved.is_rewritten):
            return True
        try:
            conflicts = await asyncio.to_thread(
                clone.put_onto,
                moved,
                set(attempt.ledger.touched),
                include_commands=attempt.ledger.shell_used,
            )
        except WorkspaceError as error:
            raise BaseConflictError(f"{clone.base_branch} has moved: {error}") from error
        self._moves += 1
        attempt.emit(
            Warned(f"{clone.base_branch} has moved: the change is put onto {moved.commit[:_SHORT_COMMIT]}")
        )
        if conflicts:
            names = ", ".join(shown_path(path) for path in conflicts[:_MOST_CONFLICTS])
            raise BaseConflictError(
                f"{clone.base_branch} has moved, and the change conflicts with it in {names}"
            )
        self.is_committed = False
        return False

    async def _stage(self, *, ignore_doubts: bool) -> Staged:
        """Stage what will be committed, and check that it may be."""
        screen = CommitScreen(
            lambda diff: places_of_secrets(diff, self._redactor.holds_secret),
            self._guards.protect,
            lambda changes: (
                self._refusal(changes) or self._unreadable_once(changes, ignore_doubts=ignore_doubts)
            ),
            self._guards.admits,
        )
        staged = await self._staged(screen)
        task, outcome = self.attempt.task, staged.outcome
        source = task.source if task.key.startswith("item-") else ""
        is_allowed = outcome.refused is None and not outcome.held_back
        if is_allowed and source in outcome.files and self._is_incomplete(outcome):

            def hold(change: FileChange) -> str | None:
                return _NOT_DONE if change.path == source else self._guards.protect(change)

            staged = await self._staged(replace(screen, hold=hold))
        self._is_partial = self._is_incomplete(staged.outcome)
        self.attempt.result.left_out = self._withheld(staged.outcome)
        for note in staged.outcome.notes:
            if note not in self._noted:
                self._noted.add(note)
                self.attempt.emit(Warned(note))
        self.left_out = {item.path for item in (*staged.outcome.left_out, *staged.outcome.held)}
        self._check(staged)
        return staged

    async def _staged(self, screen: CommitScreen) -> Staged:
        touched, by_commands = set(self.attempt.ledger.touched), self.attempt.ledger.shell_used
        return await asyncio.to_thread(
            self.attempt.clone.stage, touched, include_commands=by_commands, screen=screen
        )

    def _is_incomplete(self, outcome: CommitOutcome) -> bool:
        """Return whether something that belongs to the change is not in it, so that it does not complete the task.

        What only commands made, such as a folder of built files, does not belong to it.
        """
        left_out = {item.path for item in outcome.left_out}
        in_submodule = any(item.reason.startswith((A_SUBMODULE, IN_SUBMODULE)) for item in outcome.left_out)
        return bool(outcome.held or in_submodule or left_out & self.attempt.ledger.touched)

    def _withheld(self, outcome: CommitOutcome) -> list[Withheld]:
        """Return what is left out, each as it may be shown, with the flag that would let it in."""
        return [
            Withheld(
                self._redactor.redact(shown_path(item.path)),
                item.reason,
                f"--allow-path {shlex.quote(shown_path(item.path))}"
                if item.may_be_allowed and item.reason != _NOT_DONE
                else "",
            )
            for item in (*outcome.held, *outcome.left_out)
        ]

    async def _commit(self, staged: Staged, message: str) -> CommitOutcome:
        outcome = await asyncio.to_thread(self.attempt.clone.commit_staged, staged, message)
        self._uncommitted = None if outcome.commit is None else self.is_committed
        self.is_committed |= outcome.commit is not None
        return outcome

    @property
    def _is_draft(self) -> bool:
        return self.draft or self.verification.is_red

    def _harmless(self, title: str, body: str) -> tuple[str, str]:
        """Return title and body as they may be published. They are checked again: removals may form a secret."""
        wording = self._guards.wording
        line = wording.title(title)
        text = wording.text(body.strip(), issue=self.attempt.task.number)
        message = self._message(line, body)
        for name, texts in (("title", (title, line)), ("body", (body, text, message))):
            if any(map(self._redactor.holds_secret, texts)):
                self._report(Defence.SECRETS, f"the pull request's {name} holds what looks like a secret")
                raise UnfitTextError(
                    f"The {name} holds something that looks like a secret. Write it without."
                )
        if not line:
            raise ToolError("The title is empty. Say in it what the change does.")
        return line, text

    def _refusal(self, changes: Sequence[FileChange]) -> str | None:
        """Return why the whole change must not be proposed. Changes that were proposed before are included."""
        if too_much := self._guards.size(changes):
            self._report(Defence.CHANGE_SIZE, too_much)
            return too_much
        self._tests = self._guards.tests(changes)
        if self._tests.notes:
            message = "a person has to check how the change affects tests"
            self._report(Defence.TEST_INTEGRITY, message, self._tests.lines())
        if self._tests.lost and self.verification.is_required and self.verification.verifier is None:
            lost = "; ".join(self._tests.lost[:_MOST_LOST])
            return f"Tests are gone or skipped, which is refused here (--require-tests): {lost}"
        return None

    def _unreadable_once(self, changes: Sequence[FileChange], *, ignore_doubts: bool) -> str | None:
        """Return why the change is refused because files can no longer be parsed. Each file is reported once.

        A file may be broken on purpose, as in tests of a parser; then the second call proposes it.
        """
        self._unreadable = unreadable_files(changes)
        fresh = [found for found in self._unreadable if found.path not in self._reported_unreadable]
        self._reported_unreadable |= {found.path for found in fresh}
        if ignore_doubts or not fresh:
            return None
        more = f"; and {len(fresh) - _MOST_UNREADABLE} more files" if len(fresh) > _MOST_UNREADABLE else ""
        return (
            f"The pull request was not made: {'; '.join(map(str, fresh[:_MOST_UNREADABLE]))}{more}. Mend this and propose "
            "it again. If the text is meant to be so, propose it again as it is."
        )

    def _check(self, staged: Staged) -> None:
        outcome = staged.outcome
        if outcome.held_back:
            where = ", ".join(outcome.held_back)
            self._report(Defence.SECRETS, "the change adds what looks like a secret", outcome.held_back)
            raise ToolError(
                f"The change adds something that looks like a secret, at {where}. Take it out first."
            )
        if outcome.refused:
            raise ToolError(outcome.refused)
        if outcome.held:
            held = [f"{item.path}: {item.reason}" for item in outcome.held]
            self._report(Defence.PROTECTED_PATHS, "changes wait for a person", held)
        if self._moves and not (staged.is_new or outcome.left_out or outcome.held):
            raise SupersededError(f"{self.attempt.clone.base_branch} has this change already")
        if not (self.is_committed or staged.is_new):
            left_out = "".join(
                f" {item.path} is left out: {item.reason}." for item in (*outcome.left_out, *outcome.held)
            )
            hint = _STASH_HINT if self.attempt.ledger.shell_used else ""
            raise ToolError(f"Nothing has changed that may be proposed.{left_out}{hint}")

    def _report(self, defence: Defence, message: str, details: Iterable[str] = ()) -> None:
        self.attempt.emit(Guarded(defence, message, tuple(details)))

    def _message_with_commits(self, title: str, body: str) -> str:
        """Return the commit message with those of the model's own commits, unless the result contains a secret."""
        message = self._message(title, body, self.commits.as_list(title))
        if self._redactor.holds_secret(message):
            self._report(Defence.SECRETS, "the messages of commits together hold what looks like a secret")
            return self._message(title, body)
        return message

    def _message(self, title: str, body: str, commits: str = "") -> str:
        paragraphs = (body[:_MESSAGE_CHARACTERS], commits)
        return self._guards.wording.message(
            title, paragraphs, (self._closing, "\n".join(self.rules.trailers))
        )

    @property
    def _closing(self) -> str:
        """The line of a commit message that closes the task's issue; empty without one, and if a part is left out."""
        return "" if self._is_partial else self._fixes

    @property
    def _fixes(self) -> str:
        return f"Fixes #{self.attempt.task.number}" if self.attempt.task.number else ""

    def _body(self, body: str, paths: Sequence[str], head: str) -> str:
        if self.rules.template is not None:
            # Checked again as a whole: a template may turn code of the body into text, and text into code.
            filled = fill_template(self.rules.template, body)
            body = self._guards.wording.text(filled, issue=self.attempt.task.number)
        commands, todos = self.evidence.commands, self.evidence.todos
        verdict = self.verification.verdict
        # If tests were run, only those effects on tests are listed that the runs do not show.
        listed = self._tests.lines(beside_runs=verdict is not None and not verdict.problem)
        full = render(
            "cycle/pull_request_body",
            body=body,
            number=self.attempt.task.number,
            is_partial=self._is_partial,
            left_out=[
                one_line(str(item), limit=_FINDING_CHARACTERS)
                for item in self.attempt.result.left_out[:_MOST_LISTED]
            ],
            more_left_out=max(len(self.attempt.result.left_out) - _MOST_LISTED, 0),
            run=self.attempt.result.run,
            model=self.attempt.parts.model.name,
            commands=commands[-_MOST_COMMANDS:],
            earlier=max(len(commands) - _MOST_COMMANDS, 0),
            passed=sum(command.passed for command in commands),
            failed=sum(not command.passed for command in commands),
            tests_warning=self.verification.warning,
            tests=self.verification.report(head),
            listed=[one_line(line, limit=_FINDING_CHARACTERS) for line in listed],
            took_tests=self._lost_tests and not self._tests.lost,
            todos=[
                (item.status, todo_line(self._guards.wording, item.content)) for item in todos[:_MOST_TODOS]
            ],
            todos_done=done_in_words(todos),
            more_todos=max(len(todos) - _MOST_TODOS, 0),
            notes=self._notes(),
            unreadable=[
                one_line(str(found), limit=_FINDING_CHARACTERS)
                for found in self._unreadable[:_MOST_UNREADABLE]
            ],
            cost=self.cost(),
            owners=[one_line(owner, limit=_OWNER_CHARACTERS) for owner in self.rules.owners(paths)],
            starts_no_checks=self.rules.starts_no_checks,
        )
        return f"{full}\n\n{self.attempt.task.marker}"

    def _notes(self) -> list[str]:
        """Return the model's notes to remember if this is merged, as Markdown: from now and from earlier proposals."""
        if self.attempt.parts.memory is None:
            return []
        before = notes_in(self.attempt.task.pull.body) if self.attempt.task.pull else []
        new = [todo_line(self._guards.wording, note) for note in self.evidence.notes]
        return list(dict.fromkeys([*before, *new]))[:_MOST_NOTES]

    async def _publish(self, title: str, body: Callable[[str], str], outcome: CommitOutcome) -> str | None:
        branch = self.branch
        commit = await self._push(branch)
        if not await self._is_current():
            return None
        await self._state_tests(commit)
        proposal = Proposal(branch, self.attempt.clone.base_branch, title, body(commit), self._is_draft)
        pull, created = await asyncio.to_thread(self.attempt.parts.forge.ensure_pull_request, proposal)
        self.attempt.result.pull_request = PullRequestResult.of(pull)
        self.attempt.emit(Proposed(pull.number, pull.title, pull.url, branch, commit, created))
        if created and self._is_draft and not pull.draft:
            self.attempt.emit(
                Warned(f"pull request #{pull.number} is no draft: this repository's plan has no drafts")
            )
        await self._annotations.take_back(self.attempt.task, self.lease)
        if self._tests.lost or self.verification.is_doubtful:
            self._lost_tests |= bool(self._tests.lost)
            await self._annotations.label(pull.number, REVIEW_LABEL)
        await self._annotations.mark_failing(pull, is_red=self.verification.is_red)
        await self._annotations.comment(pull.number, outcome)
        if (memory := self.attempt.parts.memory) is not None and (notes := self._notes()):
            paths = [file.path for file in outcome.changes]
            await memory.note(notes, pull, await asyncio.to_thread(self.attempt.clone.blobs, paths, commit))
        # The files of a local forge are for programs.
        where = f": {pull.url}" if pull.url.startswith("http") else f" on the branch {branch}"
        return f"Pull request #{pull.number} is {'open' if created else 'updated'}{where}"

    async def _state_tests(self, commit: str) -> None:
        """Keep what the tests show of a proposed commit, for whoever signs it."""
        verdict = self.verification.verdict
        if verdict is not None:
            sha256 = await asyncio.to_thread(self.attempt.clone.commit_sha256, commit)
            self.attempt.result.statement = statement_of(verdict, commit, sha256)

    async def _push(self, branch: str) -> str:
        """Push, check the claim once more, and return the commit that the remote has."""
        try:
            commit = await self._push_over(branch)
        except PushRefusedError as error:
            await self._note_refusal(error)
            raise
        self.commits.mark_committed()
        if self.pushed is None and not (self.found_branch or self.has_pull_request):
            self.new_branch = branch
        self.pushed, self.refusal = commit, None
        self.attempt.result.branch, self.attempt.result.commit = branch, commit
        if self.lease is not None:
            await asyncio.to_thread(self.lease.ensure_held)
        return commit

    async def _note_refusal(self, error: PushRefusedError) -> None:
        """Let the model read why the server refused its change, if another one may be accepted.

        The commit is taken back: a server judges each commit that it is given, not only the last one.
        """
        self.refusal = error
        self._refusals += 1
        if not error.may_differ or self._refusals >= MOST_REFUSALS:
            return
        if self._uncommitted is not None:
            await asyncio.to_thread(self.attempt.clone.uncommit)
            self.is_committed, self._uncommitted = self._uncommitted, None
        said = self.attempt.sanitizer.text("what the server said", error.said)
        raise ToolError(render("cycle/push_refused", said=fenced(said))) from error

    async def _push_over(self, branch: str) -> str:
        """Push, also over the branch of a closed pull request that is tried again."""
        try:
            return await self._push_once(branch)
        except PushRefusedError:
            raise
        except PushRejectedError:
            # Checked only here: most branches are new, and the check takes a request.
            is_retry = self.pushed is None and self.attempt.task.is_retry
            if not is_retry or not await self._may_replace(branch):
                raise
            return await self._push_once(branch)

    async def _push_once(self, branch: str) -> str:
        return await asyncio.to_thread(
            self.attempt.clone.push, branch, expected=self.pushed, lease=self.lease
        )

    async def prepare_replay(self, pull: PullRequest) -> PreparedChange:
        """Stage the pull request's own change on the moved base, with its text unchanged.

        It raises what `prepare` raises.
        """
        return PreparedChange(pull.title, "", "", await self._stage(ignore_doubts=True))

    async def replay(self, pull: PullRequest, change: PreparedChange) -> str | None:
        """Push the pull request's own change on the moved base, without a model.

        It raises what `propose` raises.

        Returns:
            What was done; None if the base has moved again, as for `propose`.
        """
        attempt = self.attempt
        attempt.emit(PhaseEntered(Phase.PROPOSE))
        if not (attempt.parts.options.dry_run or await self._is_current()):
            return None
        outcome = await self._commit(change.staged, self._message(self._guards.wording.title(pull.title), ""))
        if not attempt.parts.options.dry_run:
            commit = await self._push(pull.branch)
            await self._state_tests(commit)
            pull = await self._refreshed(pull, [file.path for file in outcome.changes], commit)
            attempt.result.pull_request = PullRequestResult.of(pull)
            attempt.emit(Proposed(pull.number, pull.title, pull.url, pull.branch, commit, created=False))
        return f"pull request #{pull.number} is on top of {attempt.clone.base_branch} again"

    async def _refreshed(self, pull: PullRequest, paths: Sequence[str], head: str) -> PullRequest:
        """Return the pull request with the present test results at its top. The rest of its text stays."""
        old, rule, words = pull.body.replace("\r\n", "\n").partition(_RULE)
        if self.verification.verdict is None and find_block(old).statement is None:
            return pull
        ours = self._body("", paths, head).removesuffix(self.attempt.task.marker).rstrip()
        below = f"{rule}{words}" if rule else f"\n\n{self.attempt.task.marker}"
        proposal = Proposal(
            pull.branch,
            self.attempt.clone.base_branch,
            pull.title,
            f"{ours}{below}",
            pull.draft or self._is_draft,
        )
        found, _ = await asyncio.to_thread(self.attempt.parts.forge.ensure_pull_request, proposal)
        await self._annotations.mark_failing(found, is_red=self.verification.is_red)
        return found

    async def _may_replace(self, branch: str) -> bool:
        """Return whether the branch may be replaced: its pull request is closed, and it has no commits of people."""
        tip = await asyncio.to_thread(self.attempt.clone.remote_tip, branch)
        if tip is None:
            return False
        if tip.committer_email != self.attempt.parts.options.author_email:
            raise PeoplesCommitsError(
                f"branch {branch} has a commit by {tip.committer_name}, which is not replaced; "
                "merge or delete the branch first"
            )
        self.pushed = tip.commit
        return True

    def read_message(self, message: str) -> BegunProposal:
        """Return title and body from a commit message of `_message`, as far as it contains them."""
        text = message.strip()
        for last in ("\n".join(self.rules.trailers), self._fixes):
            text = text.removesuffix(last).rstrip() if last else text
        title, _, body = text.partition("\n")
        return BegunProposal(title, body.strip(), self.branch, "")

    @staticmethod
    def _answer(result: str, outcome: CommitOutcome) -> str:
        files = f"Committed: {', '.join(outcome.files)}." if outcome.files else "No further change to commit."
        left_out = "".join(f"\nLeft out: {item.path} ({item.reason})." for item in outcome.left_out)
        left_out += "".join(f"\nWaits for a person: {item.path} ({item.reason})." for item in outcome.held)
        notes = "".join(f"\n{note}" for note in outcome.notes)
        return f"{result}\n{files}{left_out}{notes}\nIf the task is done, call finish."


_LEFT_OUT = re.compile(r"> - `([^`\n]+)`")
_LEFT_OUT_HEADING = "> This change lacks files that were changed with it:"


def left_out_in(body: str) -> list[str]:
    """Return what a pull request's text says that is left out, a line each: what the program wrote above the model's."""
    lines = body.replace("\r\n", "\n").partition(_RULE)[0].split("\n")
    start = lines.index(_LEFT_OUT_HEADING) + 1 if _LEFT_OUT_HEADING in lines else len(lines)
    listed = takewhile(lambda line: line.startswith("> - "), lines[start:])
    return [found[1] for line in listed if (found := _LEFT_OUT.fullmatch(line))]


_NOTES_HEADING = "## What the model wants to remember"
_NOTE = re.compile(r"- (\S.*)")


def notes_in(body: str) -> list[str]:
    """Return the notes to remember from a pull request's text, as Markdown."""
    lines = body.replace("\r\n", "\n").split("\n")
    start = len(lines) - lines[::-1].index(_NOTES_HEADING) if _NOTES_HEADING in lines else len(lines)
    return [found[1] for line in lines[start:] if (found := _NOTE.fullmatch(line))][:_MOST_NOTES]


def todo_line(wording: Wording, content: str) -> str:
    """Return a todo item or a note as one line of Markdown.

    A pull request's body may become a commit message, so this may contain no more than a title may.
    """
    return wording.inline(wording.title(content).replace("`", "")) or "(nothing that can be shown)"


REVIEW_LABEL = "tests-need-review"
"""Label of a pull request that removes or skips tests, or whose tests pass only because they were changed."""

FAILING_LABEL = "tests-fail"
"""Label of a pull request whose tests, run by the host, fail."""

_HELD_KEY = "held"
_PATCH_CHARACTERS = 50_000
"""GitHub accepts 65,536 characters in a comment; the list of names needs some of them."""
_MOST_LISTED = 20


class PullRequestAnnotations:
    """Adds labels and comments to an existing pull request. A failure is a warning."""

    def __init__(self, attempt: Attempt) -> None:
        self._forge, self._guards, self._emit = attempt.parts.forge, attempt.parts.guards, attempt.emit
        self._run = attempt.result.run or ""
        self._has_comment = self._is_marked = False

    async def label(self, number: int, label: str) -> None:
        """Add a label to a pull request."""
        failure = f"pull request #{number} has no label {label!r}"
        await self._try(failure, self._forge.ensure_label, number, label)

    async def mark_failing(self, pull: PullRequest, *, is_red: bool) -> None:
        """Add the label of failing tests to a pull request, or remove it."""
        if is_red:
            self._is_marked = True
            await self.label(pull.number, FAILING_LABEL)
        elif self._is_marked or FAILING_LABEL in pull.labels:
            self._is_marked = False
            failure = f"pull request #{pull.number} keeps its label {FAILING_LABEL!r}"
            await self._try(failure, self._forge.remove_label, pull.number, FAILING_LABEL)

    async def comment(self, number: int, outcome: CommitOutcome) -> None:
        """Show the changes that wait for a person, as a patch that can be applied; or that none wait any more."""
        if not outcome.held and not self._has_comment:
            return
        body = self._text(outcome)
        names = ", ".join(shown_path(item.path) for item in outcome.held[:_MOST_LISTED]) or "nothing"
        failure = f"pull request #{number} has no comment on what waits for a person ({names})"
        self._has_comment |= await self._try(failure, self._forge.ensure_comment, number, _HELD_KEY, body)

    async def take_back(self, task: Task, lease: Lease | None) -> None:
        """Remove our comment on the issue that nothing was proposed, if an earlier cycle may have written it."""
        before = lease.previous.outcome.partition(" ")[0] if lease and lease.previous else ""
        if task.number is not None and before in OVERTAKEN:
            failure = f"issue #{task.number} keeps the comment that nothing was proposed"
            await self._try(failure, self._forge.ensure_comment, task.number, OVERTAKEN_KEY, "")

    async def _try(self, failure: str, call: Callable[..., object], *arguments: object) -> bool:
        """Call the forge, and return whether it worked. If not, emit a warning that begins with `failure`."""
        try:
            await asyncio.to_thread(call, *arguments)
        except ForgeError as error:
            self._emit(Warned(f"{failure}: {error}"))
            return False
        return True

    def _text(self, outcome: CommitOutcome) -> str:
        patch = outcome.held_patch.decode("utf-8", "replace")
        return render(
            "cycle/held_changes",
            # A reason may contain names of files, which are untrusted.
            held=[
                (shown_path(item.path), self._guards.wording.inline(item.reason))
                for item in outcome.held[:_MOST_LISTED]
            ],
            more=max(len(outcome.held) - _MOST_LISTED, 0),
            patch=quoted_patch(patch) if self._is_shown_unchanged(patch, outcome.held_patch) else None,
            run=self._run,  # a person finds the whole patch in the run's folder
        )

    def _is_shown_unchanged(self, patch: str, raw: bytes) -> bool:
        """Return whether a comment shows the patch unchanged. A cut or changed patch does not apply."""
        return (
            bool(patch)
            and len(quoted_patch(patch)) <= _PATCH_CHARACTERS
            and patch.encode() == raw
            and patch.splitlines() == patch.removesuffix("\n").split("\n")
            and "<!--" not in patch
            and not self._guards.output(patch).removed
            and self._guards.redactor.redact(patch) == patch
        )


def quoted_patch(text: str) -> str:
    """Return the text as a code block in a block quote, so that no line of the comment begins with any of it.

    All characters that some program treats as a line break count.
    """
    return "\n".join(f"> {line}" for line in fenced(text).splitlines())


COMMAND_CHARACTERS = 200


_MOST_READ_CHARACTERS = 20_000
"""The longest part of a command that is searched for secrets, so that the search takes little time."""


@dataclass(frozen=True, slots=True)
class CycleCommand:
    """A command that a tool ran, on one line, and whether it exited with status 0."""

    text: str
    passed: bool

    @property
    def status(self) -> str:
        """How the command ended, in one word."""
        return "passed" if self.passed else "failed"


@dataclass(slots=True)
class SessionEvidence:
    """Collects facts for the pull request from the events of a session.

    Attributes:
        redact: removes secrets from a command before it is cut.
        notes_in: returns what a successful call has newly stored in a memory; None without one.
        notes: new facts that the model wants to remember.
    """

    redact: Callable[[str], str] = str
    notes_in: Callable[[ToolCallEnded], Sequence[str]] | None = None
    commands: list[CycleCommand] = field(default_factory=list)
    todos: tuple[TodoItem, ...] = ()
    notes: list[str] = field(default_factory=list)
    _running: dict[str, str] = field(default_factory=dict)

    def __call__(self, event: Event) -> None:
        """Record an event."""
        match event:
            case ToolCallStarted(call_id, name, {"command": command}) if not is_mcp_tool(name):
                line = " ".join(str(command)[:_MOST_READ_CHARACTERS].split())
                shown = one_line(self.redact(line), limit=COMMAND_CHARACTERS)
                self._running[call_id] = shown or "(nothing)"
            case ToolCallEnded(call_id, status=status) if call_id in self._running:
                text = self._running.pop(call_id)
                if status in {CallStatus.OK, CallStatus.FAILED}:
                    self.commands.append(CycleCommand(text, status is CallStatus.OK))
            case ToolCallEnded(status=CallStatus.OK) if self.notes_in is not None:
                self.notes += self.notes_in(event)
            case TodosChanged(items):
                self.todos = items
            case _:
                pass


class PendingChanges:
    """The changes in the clone that are not proposed, and the objections to ending the session with them.

    Args:
        is_last: returns whether this is the last turn that the session can have.

    Attributes:
        restored: the work restored onto the clone before the session began.
    """

    def __init__(self, attempt: Attempt, proposer: Proposer, is_last: Callable[[], bool]) -> None:
        self._attempt, self._proposer, self._is_last = attempt, proposer, is_last
        self.restored = RestoredWork()
        self._was_reminded = self._finish_refused = False
        self._left: tuple[set[str], bytes] | None = None

    def paths(self) -> set[str]:
        """Return the paths of changes that are not committed."""
        return self._own(self._look())

    def _look(self) -> set[str]:
        """Return the clone's changed paths; without commands only those that tools touched."""
        ledger = self._attempt.ledger
        return self._attempt.clone.changed_paths(None if ledger.shell_used else ledger.touched)

    def _own(self, changed: set[str]) -> set[str]:
        """Return the changed files of our tools, without those that were left out or are proposed already."""
        before = self.restored.fingerprints
        own = changed - self._proposer.left_out
        now = fingerprints(self._attempt.clone.tree, own & before.keys())
        return {path for path in own if path not in now or now[path] != before[path]}

    def left(self) -> tuple[set[str], bytes]:
        """Return the changes that are not proposed: their paths, and a patch.

        The patch includes changes that wait for a person. In a dry run it contains only what would not be proposed.
        It is called after the session, when files no longer change, and computes its result once.
        """
        if self._left is not None:
            return self._left
        attempt, proposer = self._attempt, self._proposer
        changed = self._look()
        paths = self._own(changed)
        is_proposed = self.restored.is_proposed and not proposer.is_committed
        patch = b""
        if paths or not (attempt.parts.options.dry_run or is_proposed):
            patch = attempt.clone.pending_patch(
                set(attempt.ledger.touched),
                include_commands=attempt.ledger.shell_used,
                pushed=proposer.has_pull_request,
                changed=changed if attempt.ledger.shell_used else None,
            )
        self._left = paths, patch
        return paths, patch

    async def may_end(self, _text: str) -> str | None:
        """Return the reminder for a reply without tool calls: nobody reads it. None accepts the reply.

        The model is reminded once, unless all changes are proposed.
        """
        paths = await asyncio.to_thread(self.paths)
        if self._was_reminded or (self._attempt.result.pull_request and not paths):
            return None
        self._was_reminded = True
        return render("cycle/nobody_reads", paths=self._attempt.sanitizer.paths(paths))

    async def is_done(self) -> bool:
        """Return whether the pull request is open and contains all changes, so that the session can end."""
        return self._attempt.result.pull_request is not None and not await asyncio.to_thread(self.paths)

    async def may_finish(self, _reason: str) -> str | None:
        """Return why the first `finish` is refused if it would leave changes unproposed; None accepts it."""
        paths = await asyncio.to_thread(self.paths)
        if not paths or self._finish_refused or self._is_last():
            return None
        self._finish_refused = True
        return render("agent/finish_refused", paths=self._attempt.sanitizer.paths(paths))

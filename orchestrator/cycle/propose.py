"""The host's half of a pull request: commit what the tools touched, push, read back, create or update."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.core.errors import PushRejectedError, ToolError
from orchestrator.core.events import Phase, PhaseEntered, Proposed, Warned
from orchestrator.core.prompts import render
from orchestrator.cycle.result import PullRequestResult
from orchestrator.cycle.template import fill_template
from orchestrator.forge.base import Proposal
from orchestrator.guard.outgoing import places_of_secrets
from orchestrator.workspace.base import Screen

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.core.events import Emit
    from orchestrator.cycle.evidence import Evidence
    from orchestrator.cycle.result import CycleResult
    from orchestrator.cycle.tasks import Task
    from orchestrator.environments.base import ExecutionEnvironment
    from orchestrator.forge.base import Forge, PullRequest
    from orchestrator.tools.base import Ledger
    from orchestrator.workspace.base import CommitOutcome
    from orchestrator.workspace.clone import Clone

_BODY_CHARACTERS = 40_000
"""GitHub takes 65,536; the template and the footer need room."""
_TEMPLATE_BYTES = 64_000
_MESSAGE_CHARACTERS = 2_000


@dataclass(slots=True)
class Proposer:
    """Makes the cycle's pull request, as often as the model asks; the second time updates it.

    Attributes:
        hold_back: tells whether a text holds a secret that must not leave.
        redact: takes secrets out of a text, for the messages of commits that the model made.
        author_email: whose commits on the task's branch may be replaced.
        template: the path of the repository's pull-request template, if it has one.
        pushed: the commit that the remote's branch holds by our doing, if any.
        left_out: changes that are not proposed although they are there, by path.
    """

    clone: Clone
    forge: Forge
    environment: ExecutionEnvironment
    task: Task
    ledger: Ledger
    evidence: Evidence
    result: CycleResult
    emit: Emit
    hold_back: Callable[[str], bool]
    redact: Callable[[str], str]
    author_email: str
    model: str
    template: str | None
    draft: bool
    dry_run: bool
    pushed: str | None = None
    left_out: set[str] = field(default_factory=set)
    _is_committed: bool = False

    async def propose(self, title: str, body: str) -> str:
        """Commit, push and open the pull request; returns what the model is told.

        Raises:
            ToolError: nothing has changed, or the change may not leave; the model can mend it.
            WorkspaceError: git failed.
            ForgeError: the forge failed.
        """
        self.emit(PhaseEntered(Phase.PROPOSE))
        title = " ".join(title.split())
        for name, text in (("title", title), ("body", body)):
            if self.hold_back(text):
                raise ToolError(f"The {name} holds something that looks like a secret. Write it without.")
        outcome = await asyncio.to_thread(
            self.clone.commit,
            set(self.ledger.touched),
            self._message(title, body),
            include_commands=self.ledger.shell_used,
            screen=Screen(self.redact, lambda diff: places_of_secrets(diff, self.hold_back)),
        )
        for note in outcome.notes:
            self.emit(Warned(note))
        self.left_out = {item.path for item in outcome.left_out}
        self._is_committed |= outcome.commit is not None
        self._check(outcome)
        full_body = await self._body(body)
        if self.dry_run:
            self.result.branch, self.result.commit = self.task.branch, outcome.commit or self.result.commit
            self.result.pull_request = PullRequestResult(title, full_body, self.draft)
            self.result.diff = await asyncio.to_thread(self.clone.diff)
            words = "Dry run: the pull request would be opened now."
        else:
            words = await self._publish(title, full_body)
        return self._answer(words, outcome)

    def _check(self, outcome: CommitOutcome) -> None:
        if outcome.held_back:
            where = ", ".join(outcome.held_back)
            raise ToolError(
                f"The change adds something that looks like a secret, at {where}. Take it out first."
            )
        if not self._is_committed:
            left_out = "".join(f" {item.path} is left out: {item.reason}." for item in outcome.left_out)
            raise ToolError(f"Nothing has changed, so there is nothing to propose.{left_out}")

    def _message(self, title: str, body: str) -> str:
        closing = f"\n\nFixes #{self.task.number}" if self.task.number else ""
        return f"{title}\n\n{body.strip()[:_MESSAGE_CHARACTERS]}".strip() + closing

    async def _body(self, body: str) -> str:
        body = body.strip()[:_BODY_CHARACTERS]
        if self.template is not None:
            try:
                raw = await self.environment.read_file(self.template, max_bytes=_TEMPLATE_BYTES)
                body = fill_template(raw.decode("utf-8", "replace"), body)
            except ToolError:
                pass  # a template that cannot be read is no reason to lose the change
        full = render(
            "cycle/pull_request_body",
            body=body,
            number=self.task.number,
            run=self.result.run,
            model=self.model,
            commands=self.evidence.commands,
        )
        return f"{full}\n\n{self.task.marker}"

    async def _publish(self, title: str, body: str) -> str:
        branch = self.task.branch
        if self.pushed is None:
            await self._look_at_branch(branch)
        self.pushed = await asyncio.to_thread(self.clone.push, branch, expected=self.pushed)
        self.result.branch, self.result.commit = branch, self.pushed
        proposal = Proposal(branch, self.clone.base_branch, title, body, self.draft)
        pull, created = await asyncio.to_thread(self.forge.ensure_pull_request, proposal)
        self.result.pull_request = _as_result(pull)
        self.emit(Proposed(pull.number, pull.title, pull.url, branch, self.pushed, created))
        return f"Pull request #{pull.number} is {'open' if created else 'updated'}: {pull.url}"

    async def _look_at_branch(self, branch: str) -> None:
        """A branch that an earlier run left behind may be replaced; other people's work may not."""
        tip = await asyncio.to_thread(self.clone.remote_tip, branch)
        if tip is None:
            return
        if tip.committer_email != self.author_email:
            raise PushRejectedError(
                f"branch {branch} has a commit by {tip.committer_name}, which is not replaced; "
                "merge or delete the branch first"
            )
        self.pushed = tip.commit

    @staticmethod
    def _answer(words: str, outcome: CommitOutcome) -> str:
        files = f"Committed: {', '.join(outcome.files)}." if outcome.files else "No further change to commit."
        left_out = "".join(f"\nLeft out: {item.path} ({item.reason})." for item in outcome.left_out)
        notes = "".join(f"\n{note}" for note in outcome.notes)
        return f"{words}\n{files}{left_out}{notes}\nIf the task is done, call finish."


def _as_result(pull: PullRequest) -> PullRequestResult:
    return PullRequestResult(pull.title, pull.body, pull.draft, pull.number, pull.url)

"""The `Operator` of a task that a person works on with the model."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.parts import Outcome
from orchestrator.bot.git.objects import differences
from orchestrator.bot.git.staging import diff
from orchestrator.bot.git.work import change_letter
from orchestrator.core.errors import ToolError, WorkspaceError
from orchestrator.core.messages import Spent
from orchestrator.core.prompts import fenced, render
from orchestrator.engine.session.loop import EndKind, SessionEnd

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from orchestrator.bot.cycle.act import CycleSession, ProposeChange
    from orchestrator.bot.cycle.parts import CycleResult
    from orchestrator.core.events import Event
    from orchestrator.engine.session.session import Session
    from orchestrator.plugins.chat.conversation import Conversation


class TaskOperator:
    """Lets a person work with the model on a task's clone, and propose from it, until the person leaves.

    Args:
        converse: creates the conversation, for the cycle's session.
        before: the events of the run that is continued.

    Attributes:
        conversation: None until the person can talk.
        session: the cycle's session; None before it begins.
    """

    prepared_work = None
    spent = Spent()

    def __init__(
        self, converse: Callable[[CycleSession], Awaitable[Conversation]], before: Sequence[Event]
    ) -> None:
        self.conversation: Conversation | None = None
        self._is_ready = asyncio.Event()
        self.session: CycleSession | None = None
        self._converse, self._before = converse, before
        self._propose: ProposeChange | None = None
        self._has_left = asyncio.Event()
        self._refused = ""

    async def work(self, session: CycleSession, propose: ProposeChange) -> SessionEnd:
        """Wait until the person leaves."""
        self.session, self._propose = session, propose
        conversation = await self._converse(session)
        try:
            self.conversation = conversation
            self._is_ready.set()
            await self._has_left.wait()
        finally:
            await conversation.close()
        proposed = session.attempt.result.pull_request is not None
        return SessionEnd(
            EndKind.FINISH if proposed else EndKind.INTERRUPTED, "the person ended the conversation"
        )

    async def ready(self) -> Conversation:
        """Wait until the person can talk, which may never happen."""
        await self._is_ready.wait()
        if self.conversation is None:
            raise AssertionError("it was made ready")
        return self.conversation

    def leave(self) -> None:
        """End the cycle, because the person is done."""
        self._has_left.set()

    def record_message(self, session: Session, message: str) -> None:
        """Record that the person sent a message in this session."""
        if self.session is not None:
            earlier = self.session.earlier
            before = earlier.events if earlier and earlier.events else self._before
            self.session.record_message(session, message, before)

    @property
    def question(self) -> str:
        """The run's question that nobody has answered yet; may be empty."""
        earlier = self.session.earlier if self.session else None
        return earlier.state.question if earlier and earlier.answer is None else ""

    def change(self, *, everything: bool) -> TaskChange:
        """Return the change that would be proposed now.

        Args:
            everything: whether to include the person's own changes in the clone.
        """
        if self.session is None:
            raise AssertionError("the person has a session")
        clone, ledger = self.session.clone, self.session.ledger
        ledger.shell_used |= everything
        tree = clone.changed_tree(set(ledger.touched), include_commands=ledger.shell_used)
        found = differences(clone.git, clone.base_commit, tree)
        if not found:
            raise WorkspaceError("there is nothing to propose: no file is changed")
        left_out = set() if ledger.shell_used else clone.changed_paths() - ledger.touched
        text = diff(clone.git, clone.base_commit, tree).decode("utf-8", "replace")
        paths = tuple((one.path, change_letter(one)) for one in found)
        return TaskChange(tree, paths, text, tuple(sorted(left_out)), tree == self._refused)

    async def propose(self, title: str, body: str, change: TaskChange) -> CycleResult:
        """Propose the change as the task's pull request, and return the result so far."""
        session, propose = self.session, self._propose
        if session is None or propose is None:
            raise AssertionError("the person has a session")
        session.verification.may_go_on = lambda: not change.insists
        session.verification.proposes_failing = change.insists
        try:
            await propose(title, body, ignore_doubts=change.insists)
        except ToolError:
            self._refused = change.tree
            raise
        dry_run = session.attempt.parts.options.dry_run
        return replace(session.attempt.result, outcome=Outcome.PLANNED if dry_run else Outcome.PROPOSED)

    @staticmethod
    def situation(session: CycleSession) -> str:
        """Return the model's instructions about the task that a person continues."""
        restored, earlier = session.restored, session.earlier
        paths = session.attempt.sanitizer.paths
        answer = earlier.answer.text if earlier and earlier.answer else ""
        return render(
            "plugins/chat/taken_up",
            why=earlier.state.why if earlier else "ended",
            question=fenced(earlier.state.question) if earlier and earlier.state.question else "",
            answer=fenced(answer) if answer else "",
            files_lost=bool(earlier and earlier.state.files_lost),
            paths=[f"`{path}`" for path in paths(restored.paths)],
            base_moved=restored.base_moved,
            conflicts=[f"`{path}`" for path in paths(restored.conflicts)],
        )


@dataclass(frozen=True, slots=True)
class TaskChange:
    """The changes in a task's clone.

    Attributes:
        tree: of all files; equal changes have equal trees.
        paths: paths that differ from the base, each with `A`, `M` or `D`.
        left_out: changed files that are not proposed, because no tool wrote them.
        insists: whether the same change was refused before.
    """

    tree: str
    paths: tuple[tuple[str, str], ...]
    diff: str
    left_out: tuple[str, ...]
    insists: bool

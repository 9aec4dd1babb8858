"""The `Operator` of a person who proposes the changes of a folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.earlier import Earlier, UnfinishedState
from orchestrator.core.errors import ToolError
from orchestrator.core.prompts import one_line, shown_path
from orchestrator.engine.session.loop import EndKind, SessionEnd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.bot.cycle.act import CycleSession, ProposeChange
    from orchestrator.bot.git.work import FolderChange
    from orchestrator.core.events import Event
    from orchestrator.core.messages import Spent

_MOST_NAMED = 5
_REFUSAL_CHARS = 500


@dataclass(slots=True)
class FolderOperator:
    """Proposes a conversation's changes in a person's folder, with the text that the person approved.

    Attributes:
        run: id of the conversation's run.
        spent: cost of the conversation.
        is_whole: whether the change contains everything that the conversation has changed.
        insists: whether the person saw the objections to this change and wants it proposed unchanged.
        events: of the conversation, the evidence for commands in the pull request.
        refusal: why it was not proposed, for a model that can repair it; empty if it was.
    """

    run: str
    change: FolderChange
    title: str
    body: str
    spent: Spent
    events: Sequence[Event] = ()
    is_whole: bool = True
    insists: bool = False
    refusal: str = field(default="", init=False)

    @property
    def prepared_work(self) -> Earlier:
        """The change to propose."""
        work = self.change.work
        state = UnfinishedState(self.run, "a person proposes it", "", "", "", attempts=0)
        return Earlier(state, work.work, "", None, work.base, objects=work)

    async def work(self, session: CycleSession, propose: ProposeChange) -> SessionEnd:
        """Propose the change."""
        session.tell_resumed()
        for event in self.events:
            session.proposer.evidence(event)
        try:
            self._check_change(session)
            session.verification.may_go_on = lambda: not self.insists
            session.verification.proposes_failing = self.insists
            await propose(self.title, self.body, ignore_doubts=self.insists)
        except ToolError as error:
            self.refusal = str(error)
            raise ToolError(one_line(self.refusal, limit=_REFUSAL_CHARS, keep="`")) from None
        return SessionEnd(EndKind.FINISH, "")

    def _check_change(self, session: CycleSession) -> None:
        """Raise `ToolError` if the target branch has changed the same lines, or if earlier changes would be lost."""
        if conflicts := session.restored.conflicts:
            paths = ", ".join(map(shown_path, conflicts[:_MOST_NAMED]))
            raise ToolError(
                f"{session.clone.base_branch} has other changes on the same lines of {paths}: "
                "bring this folder up to date (git pull), then /pr"
            )
        if session.attempt.task.pull is not None and not self.is_whole:
            raise ToolError(
                "the pull request has changes of this conversation that are not recorded here any more: "
                "/pr --all proposes the folder as it is"
            )

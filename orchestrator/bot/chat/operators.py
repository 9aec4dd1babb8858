"""People who work on a task in the place of the model's loop: see `Operator`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.earlier import Earlier, UnfinishedState
from orchestrator.bot.cycle.parts import shown_path
from orchestrator.core.errors import ToolError
from orchestrator.core.fence import one_line
from orchestrator.engine.session.loop import EndKind, SessionEnd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.bot.cycle.act import CycleSession
    from orchestrator.bot.cycle.parts import ProposeChange
    from orchestrator.bot.git.folder_change import FolderChange
    from orchestrator.core.events import Event
    from orchestrator.core.messages import Spent

_MOST_NAMED = 5
_REFUSAL_CHARS = 500


@dataclass(slots=True)
class FolderOperator:
    """Proposes what a conversation changed in a person's folder, in the words that the person was shown.

    Attributes:
        run: of the conversation.
        spent: what the conversation has cost.
        insists: the person saw what speaks against this change, and wants it proposed as it is.
        events: of the conversation: what a pull request tells of commands is true of them.
        refusal: why it was not proposed, for the model that can mend it; empty if it was.
    """

    run: str
    change: FolderChange
    title: str
    body: str
    spent: Spent
    insists: bool = False
    events: Sequence[Event] = ()
    refusal: str = field(default="", init=False)

    @property
    def brings(self) -> Earlier:
        """The change."""
        work = self.change.work
        state = UnfinishedState(self.run, "a person proposes it", "", "", "", attempts=0)
        return Earlier(state, work.work, "", None, work.base, objects=work)

    async def work(self, session: CycleSession, propose: ProposeChange) -> SessionEnd:
        """Propose it."""
        session.tell_resumed()
        for event in self.events:
            session.proposer.evidence(event)
        try:
            _require_merged(session)
            session.verification.may_go_on = lambda: not self.insists
            await propose(self.title, self.body, is_begun=self.insists)
        except ToolError as error:
            self.refusal = str(error)
            raise ToolError(one_line(self.refusal, limit=_REFUSAL_CHARS, keep="`")) from None
        return SessionEnd(EndKind.FINISH, "")


def _require_merged(session: CycleSession) -> None:
    """Raise `ToolError` where the branch that it goes to has changed the same lines."""
    if conflicts := session.brought.conflicts:
        paths = ", ".join(map(shown_path, conflicts[:_MOST_NAMED]))
        base = session.clone.base_branch
        raise ToolError(
            f"{base} has other changes on the same lines of {paths}: bring this folder up to date (git pull), then /pr"
        )

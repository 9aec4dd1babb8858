"""What a session says and hears: inputs and follow-ups, each worked on by the loop until it is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.events import ErrorOccurred, InputReceived, MessageAdded
from orchestrator.core.messages import Message
from orchestrator.engine.session.history import Turn, TurnKind
from orchestrator.engine.session.hooks import Hooks
from orchestrator.engine.session.loop import EndKind, SessionEnd, run_loop
from orchestrator.engine.session.repetition import Repetition

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.core.events import Emit
    from orchestrator.engine.session.ask import Ask
    from orchestrator.engine.session.config import SessionConfig
    from orchestrator.engine.session.history import History
    from orchestrator.engine.session.inbox import Inbox
    from orchestrator.engine.session.limits import Budget
    from orchestrator.engine.session.talk import Setting, Talk

_OF_ONE_INPUT = frozenset({"tool_rounds", "replies"})
"""Limits after which the next input may go on."""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """The conversation of one session, and what bounds it."""

    history: History
    budget: Budget
    inbox: Inbox
    hooks: Hooks
    setting: Setting
    emit: Emit

    async def work_on(self, message: Message, talk: Talk, ask: Callable[[], Ask]) -> SessionEnd:
        """The input, then the follow-ups, as long as the model ends each by its own.

        Args:
            message: the input.
            talk: the session, which has started.
            ask: how the model is asked in the next round.
        """
        while True:
            self.emit(InputReceived(message.text))
            self.history.add(Turn(TurnKind.USER, message, self.setting.clock.now()))
            self.emit(MessageAdded(message))
            try:
                end = await run_loop(ask, talk.bench, self.budget, self.history, self.hooks)
            finally:
                self.budget.tool_rounds = 0  # also where somebody stops it: the next input has all its rounds
            done = end.kind in {EndKind.COMPLETED, EndKind.AWAITING, EndKind.FINISH}
            done = done or (end.limit in _OF_ONE_INPUT and not self.budget.exceeded())
            follow_up = self.inbox.next_follow_up() if done else None
            if follow_up is None:
                return end
            message = Message.user(follow_up)

    def change(self, config: SessionConfig) -> None:
        """Take other limits from now on."""
        self.budget.change(config.limits, config.wrap_up_share)
        watched = self.hooks.repetition
        if not config.enable_loop_detection:
            self.hooks.repetition = None
        elif watched is None or watched.window != config.loop_detection_window:
            self.hooks.repetition = Repetition(config.loop_detection_window)

    def interrupt(self) -> None:
        """Answer the calls that were cut short."""
        self.history.interrupt(self.setting.clock.now())

    def tell(self, error: BaseException) -> None:
        """Say that the session cannot go on with its input."""
        self.interrupt()
        self.emit(ErrorOccurred(type(error).__name__, str(error)))


def hooks_of(setting: Setting, inbox: Inbox) -> Hooks:
    """What the loop asks the host between rounds."""
    config, host = setting.config, setting.host
    return Hooks(
        now=setting.clock.now,
        stopped=host.stopped,
        steering=inbox.take_steering,
        may_end=host.may_end,
        is_done=host.is_done,
        wrap_up=host.wrap_up,
        repetition=Repetition(config.loop_detection_window) if config.enable_loop_detection else None,
    )

"""What is said to a session while it works, or before: words for the next round, and further tasks."""

from __future__ import annotations

from collections import deque

from orchestrator.core.errors import ConfigurationError
from orchestrator.core.messages import Message, Text


class Inbox:
    """Two queues, emptied in order."""

    def __init__(self) -> None:
        self._steering: deque[str] = deque()
        self._follow_ups: deque[str] = deque()

    def steer(self, message: str) -> None:
        """Queue a word for the next round.

        Raises:
            ConfigurationError: there are no words in it.
        """
        self._steering.append(words_of(message).text)

    def follow_up(self, message: str) -> None:
        """Queue a further task.

        Raises:
            ConfigurationError: there are no words in it.
        """
        self._follow_ups.append(words_of(message).text)

    def take_steering(self) -> list[str]:
        """All words for the next round, which are gone then."""
        words = list(self._steering)
        self._steering.clear()
        return words

    def next_follow_up(self) -> str | None:
        """The next task, which is gone then; None where there is none."""
        return self._follow_ups.popleft() if self._follow_ups else None


def words_of(user: object) -> Message:
    """What somebody says to the model.

    Raises:
        ConfigurationError: it is no text and no message, or there is nothing in it.
    """
    message = Message.user(user) if isinstance(user, str) else user
    if not isinstance(message, Message):
        raise ConfigurationError(f"say it as text or as a Message, not as {type(user).__name__}")
    if not any(not isinstance(part, Text) or part.text.strip() for part in message.parts):
        raise ConfigurationError("there is nothing in it: say in words what is to be done")
    return message

"""Notices when a model's tool calls go round in a circle."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, deque
from typing import TYPE_CHECKING

from orchestrator.core.prompts import render

if TYPE_CHECKING:
    from orchestrator.core.messages import ToolCall

LONGEST_PATTERN = 3
DEFAULT_WINDOW = 10


class FailedCalls:
    """The answers of failed calls since a call changed something."""

    def __init__(self) -> None:
        self._answers: Counter[tuple[str, str]] = Counter()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._answers)

    def answer(self, call: ToolCall, message: str) -> str:
        """What the model is told of a call that failed; that it was told the same before, if it was.

        The answer tells, not the call: a call that is nearly the same fails for the same reason.
        """
        count = self.note(call.name, message)
        return message if count == 1 else f"{message}\n\n{render('agent/failed_again', count=count)}"

    def note(self, name: str, message: str) -> int:
        """Take note of an answer; how often it was given."""
        self._answers[name, message] += 1
        return self._answers[name, message]

    def forget(self) -> None:
        """Take note that something was changed, after which the same call may do."""
        self._answers.clear()


class Repetition:
    """The last calls of a session, by name and arguments.

    Args:
        window: how many calls must follow one pattern; at least 2.
    """

    def __init__(self, window: int = DEFAULT_WINDOW) -> None:
        self.window = max(window, 2)
        self._recent: deque[bytes] = deque(maxlen=self.window)

    def add(self, call: ToolCall) -> None:
        """Take note of a call."""
        said = json.dumps([call.name, dict(call.arguments)], sort_keys=True, default=str)
        self._recent.append(hashlib.sha256(said.encode("utf-8", "replace")).digest())

    def found(self) -> bool:
        """Whether the whole window repeats one, two or three calls. After a yes the window begins anew.

        The pattern need not fit the window evenly: ten calls of a cycle of three are a loop.
        """
        calls = list(self._recent)
        if len(calls) < self.window:
            return False
        for length in range(1, LONGEST_PATTERN + 1):
            if 2 * length <= self.window and all(
                calls[i] == calls[i - length] for i in range(length, len(calls))
            ):
                self._recent.clear()
                return True
        return False

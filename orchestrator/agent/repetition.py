"""Notices when a model's tool calls go round in a circle."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.core.messages import ToolCall

LONGEST_PATTERN = 3
DEFAULT_WINDOW = 10


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

"""Long outputs of tools, kept whole in memory under a handle until their session ends."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MOST_KEPT_CHARS = 20_000_000
"""The limit of all outputs of a session together; the oldest are dropped first."""

_HANDLE = re.compile(r"(?:\./)?(output:[1-9]\d*)")


@dataclass(slots=True)
class Outputs:
    """The outputs of which a model was shown a part."""

    most_chars: int = MOST_KEPT_CHARS
    _texts: dict[str, str] = field(default_factory=dict)
    _count: int = 0
    _chars: int = 0

    def keep(self, text: str) -> str | None:
        """Keep a text and return its handle; None if the text alone is too long."""
        if len(text) > self.most_chars:
            return None
        self._count += 1
        handle = f"output:{self._count}"
        self._texts[handle] = text
        self._chars += len(text)
        while self._chars > self.most_chars:
            oldest = next(iter(self._texts))
            self._chars -= len(self._texts.pop(oldest))
        return handle

    def get(self, path: str) -> str | None:
        """Return the text of a handle that a model wrote as a path; None if it is no handle or was dropped."""
        match = _HANDLE.fullmatch(path.strip())
        return self._texts.get(match[1]) if match else None

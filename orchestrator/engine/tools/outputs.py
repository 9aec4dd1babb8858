"""Long outputs of tools, kept whole in memory under a handle for as long as their session lives."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MOST_KEPT_CHARS = 20_000_000
"""Of all outputs of a session together; the oldest go first."""

_HANDLE = re.compile(r"(?:\./)?(output:[1-9]\d*)")


@dataclass(slots=True)
class Outputs:
    """The outputs that a model was shown in part."""

    most_chars: int = MOST_KEPT_CHARS
    _texts: dict[str, str] = field(default_factory=dict)
    _count: int = 0
    _chars: int = 0

    def keep(self, text: str) -> str | None:
        """Keep a text, and give its handle; None where it alone is too long."""
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
        """The text of a handle, where a model wrote one as a path; None if it is none, or is kept no more."""
        match = _HANDLE.fullmatch(path.strip())
        return self._texts.get(match[1]) if match else None

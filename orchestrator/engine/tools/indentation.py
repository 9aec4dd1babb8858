"""Finds lines in a file though each of them is indented by the same blanks too much or too little."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from orchestrator.engine.tools.line_index import LineIndex
from orchestrator.engine.tools.matching import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_PLACES = 11
"""That `ShiftedLines.places` gives: two are too many already, the others are to be named."""

_MOST_CANDIDATES = 1_000
"""Places with the same text in any indentation. Of more of them none is looked at, for none would be the only one."""


@dataclass(frozen=True, slots=True)
class Shift:
    """By what the indentation of a file's lines differs from that of the lines that a model wrote.

    Attributes:
        added: the blanks that the file has more before each line.
        removed: the blanks that it has less. At least one of the two is empty.
    """

    added: str = ""
    removed: str = ""

    def line(self, text: str) -> str | None:
        """A line of the model's as the file would indent it; None where it lacks the blanks to be taken away."""
        if not text.strip():
            return text
        if not text.startswith(self.removed):
            return None
        return self.added + text.removeprefix(self.removed)

    def __str__(self) -> str:
        """What the file's lines have before them, in words."""
        blanks = self.added or self.removed
        kind = {" ": "space", "\t": "tab"}.get(blanks[:1]) if len(set(blanks)) == 1 else "blank"
        return f"{len(blanks)} {kind}{'s' * (len(blanks) != 1)} {'more' if self.added else 'less'}"


class ShiftedLines:
    """Looks for lines without regard to their indentation, and says by what it is off.

    Args:
        lines: of the file, without their ends.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._index = LineIndex([_bare(line) for line in lines])

    def places(self, old: Sequence[str], start: int = 0) -> list[tuple[int, Shift]]:
        """Where lines are that differ from `old` by one shift, and in what `plain` overlooks; `MOST_PLACES` at most.

        Blank lines agree with every shift, so that there is no place where `old` has no other lines.

        Args:
            old: at least one line.
            start: the first place that counts.
        """
        wanted = [_bare(line) for line in old]
        if not any(wanted):
            return []
        candidates = list(islice(self._index.places(wanted, start, start), _MOST_CANDIDATES + 1))
        if len(candidates) > _MOST_CANDIDATES:
            return []
        found = (
            (place, shift)
            for place in candidates
            if (shift := _shift(self._lines[place : place + len(wanted)], old)) is not None
        )
        return list(islice(found, MOST_PLACES))


def _bare(line: str) -> str:
    return plain(line).strip()


def _shift(there: Sequence[str], old: Sequence[str]) -> Shift | None:
    """The one shift between lines that are else the same, None where they do not agree on one."""
    shift: Shift | None = None
    for line, wanted in zip(there, old, strict=True):
        if not wanted.strip():
            continue
        has, said = _indentation(line), _indentation(wanted)
        if has is None or said is None:
            return None
        if has.endswith(said):
            found = Shift(added=has.removesuffix(said))
        elif said.endswith(has):
            found = Shift(removed=said.removesuffix(has))
        else:
            return None
        if shift not in {None, found}:
            return None
        shift = found
    return shift


def _indentation(line: str) -> str | None:
    """The spaces and tabs before a line's text; None where other blanks follow them."""
    text = line.lstrip(" \t")
    return None if text[:1].isspace() else line[: len(line) - len(text)]

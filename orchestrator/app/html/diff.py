"""A unified diff as lines for display, and two diffs of the same files side by side."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LineKind: TypeAlias = Literal["added", "removed", "same", "hunk", "note"]

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_FILE = re.compile(r"diff --git .*?(?: \"b/(?P<quoted>.*)\"| b/(?P<plain>.*))")
_MOST_LINES = 2_000
_MOST_LINE_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a diff, without its sign.

    Attributes:
        old: line number in the old file, if the line is in it.
        new: line number in the new file, if the line is in it.
    """

    kind: LineKind
    text: str
    old: int | None = None
    new: int | None = None

    @property
    def sign(self) -> str:
        """The sign before the line in a diff."""
        return {"added": "+", "removed": "-", "same": " "}.get(self.kind, "")


@dataclass(slots=True)
class FileDiff:
    """The part of a diff about one file."""

    path: str
    lines: list[DiffLine] = field(default_factory=list)
    left_out: int = 0

    @property
    def added(self) -> int:
        """The number of added lines among the shown ones."""
        return sum(line.kind == "added" for line in self.lines)

    @property
    def removed(self) -> int:
        """The number of removed lines among the shown ones."""
        return sum(line.kind == "removed" for line in self.lines)


@dataclass(frozen=True, slots=True)
class DiffBlock:
    """A unified diff, file by file, from the output of `git diff`. The page shows how many lines were left out."""

    kind: ClassVar[str] = "diff"
    text: str

    @property
    def files(self) -> list[FileDiff]:
        """The files, in the order of the diff."""
        return read_diff(self.text)


@dataclass(frozen=True, slots=True)
class DiffPair:
    """Two diffs of one repository side by side, such as a model's change and the real one."""

    kind: ClassVar[str] = "pair"
    left: str
    right: str
    left_name: str
    right_name: str

    @property
    def rows(self) -> list[tuple[str, FileDiff | None, FileDiff | None]]:
        """Each path with its part of either diff. Paths that both diffs change come first."""
        sides = [{one.path: one for one in read_diff(text)} for text in (self.left, self.right)]
        paths = dict.fromkeys([*sides[0], *sides[1]])
        ordered = sorted(paths, key=lambda path: not all(path in side for side in sides))
        return [(path, sides[0].get(path), sides[1].get(path)) for path in ordered]


def read_diff(text: str, most_lines: int = _MOST_LINES) -> list[FileDiff]:
    """Parse a unified diff. Other text becomes notes. Only lines beyond `most_lines` are dropped."""
    files: list[FileDiff] = []
    # A carriage return or another separator inside a line does not end it for git.
    lines = text.removesuffix("\n").split("\n") if text.strip() else []
    shown = 0
    for path, line in _lines(lines):
        if path is not None:
            files.append(FileDiff(path))
        if line is None:
            continue
        if not files:
            files.append(FileDiff(""))
        if shown < most_lines:
            files[-1].lines.append(line)
            shown += 1
        else:
            files[-1].left_out += 1
    return files


def _lines(lines: Sequence[str]) -> Iterator[tuple[str | None, DiffLine | None]]:
    """Yield each line, or the path of a file at its beginning. The counts in a hunk's header give its length."""
    old = new = old_left = new_left = 0
    is_named = False
    for raw in lines:
        sign, rest = raw[:1], _cut(raw[1:])
        if old_left > 0 or new_left > 0:
            if sign == "+":
                yield None, DiffLine("added", rest, None, new)
                new, new_left = new + 1, new_left - 1
                continue
            if sign == "-":
                yield None, DiffLine("removed", rest, old, None)
                old, old_left = old + 1, old_left - 1
                continue
            if sign in {" ", ""}:
                yield None, DiffLine("same", rest, old, new)
                old, new, old_left, new_left = old + 1, new + 1, old_left - 1, new_left - 1
                continue
        if match := _HUNK.match(raw):
            old, new = int(match[1]), int(match[3])
            old_left, new_left = int(match[2] or 1), int(match[4] or 1)
            is_named = False
            yield None, DiffLine("hunk", _cut(raw))
        elif match := _FILE.fullmatch(raw):
            old_left = new_left = 0
            is_named = True
            yield match["quoted"] or match["plain"], None
        elif raw.startswith("+++ ") and not is_named:  # not from git, which names the file before
            yield raw[4:].partition("\t")[0].removeprefix("b/"), None
        elif not raw.startswith(("--- ", "+++ ", "index ")):
            yield None, DiffLine("note", _cut(raw))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_LINE_CHARS else f"{text[:_MOST_LINE_CHARS]}… {len(text):,} characters"

"""File patterns: `*`, `?`, `[...]`, `{a,b}` and `**`, matched name by name so that no pattern is slow."""

from __future__ import annotations

import fnmatch
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Sequence

_ANY_FOLDERS = "**"
_MAX_ALTERNATIVES = 100
_MAX_PATTERN_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A file pattern, ready to be matched.

    Attributes:
        alternatives: the pattern with its braces written out; each a sequence of names.
        negated: it began with `!`, and matches what the rest does not.
    """

    alternatives: tuple[tuple[str, ...], ...]
    negated: bool = False

    @classmethod
    def for_paths(cls, pattern: str) -> PathPattern:
        """A pattern of whole paths: `*.py` is in the folder itself, `**/*.py` at any depth.

        Raises:
            ToolError: it is empty, absolute, leaves the folder, or its braces are too many.
        """
        return cls(tuple(_names(alternative, pattern) for alternative in _expanded(pattern)))

    @classmethod
    def for_filter(cls, pattern: str) -> PathPattern:
        """A filter as `ripgrep --glob` takes it: without `/` it is about names at any depth; `!` negates.

        Raises:
            ToolError: see `for_paths`.
        """
        negated = pattern.startswith("!")
        bare = pattern.removeprefix("!")
        alternatives = [
            _names(alternative.removeprefix("/"), pattern)
            if "/" in alternative
            else (_ANY_FOLDERS, alternative)
            for alternative in _expanded(bare)
        ]
        return cls(tuple(alternatives), negated)

    def matches(self, names: Sequence[str]) -> bool:
        """Whether the path made of these names matches."""
        return any(_match(alternative, names) for alternative in self.alternatives) is not self.negated


def _names(pattern: str, original: str) -> tuple[str, ...]:
    names = tuple(name for name in pattern.split("/") if name not in {"", "."})
    if pattern.startswith("/") or ".." in names or not names:
        raise ToolError(
            f"the pattern {original!r} is not relative to the folder searched; write such as src/**/*.py"
        )
    return names


def _expanded(pattern: str) -> list[str]:
    if not pattern.strip() or "\0" in pattern or len(pattern) > _MAX_PATTERN_CHARS:
        raise ToolError(
            f"the pattern is empty, over {_MAX_PATTERN_CHARS:,} characters long, or has a NUL character"
        )
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        if len(done) + len(waiting) > _MAX_ALTERNATIVES:
            raise ToolError(
                f"the pattern's braces stand for over {_MAX_ALTERNATIVES} patterns; ask in several calls"
            )
        current = waiting.pop()
        opened = _first_braces(current)
        if opened is None:
            done.append(current)
            continue
        start, end, choices = opened
        waiting += [current[:start] + choice + current[end:] for choice in reversed(choices)]
    return done


def _first_braces(pattern: str) -> tuple[int, int, list[str]] | None:
    """The first outermost `{...}` that has a comma: where it begins and ends, and its choices."""
    depth, start, cuts = 0, 0, []
    for position, char in enumerate(pattern):
        if char == "{":
            if depth == 0:
                start, cuts = position, [position]
            depth += 1
        elif char == "," and depth == 1:
            cuts.append(position)
        elif char == "}" and depth:
            depth -= 1
            if depth == 0 and len(cuts) > 1:
                bounds = [*cuts, position]
                choices = [pattern[a + 1 : b] for a, b in itertools.pairwise(bounds)]
                return start, position + 1, choices
    return None


def _match(pattern: Sequence[str], names: Sequence[str]) -> bool:
    """Match by columns: which prefixes of `names` the pattern so far can stand for."""
    reached = [True] + [False] * len(names)
    for part in pattern:
        if part == _ANY_FOLDERS:
            first = reached.index(True) if True in reached else len(reached)
            reached = [position >= first for position in range(len(reached))]
        else:
            reached = [False] + [
                before and fnmatch.fnmatchcase(name, part)
                for before, name in zip(reached, names, strict=False)
            ]
    return reached[-1]

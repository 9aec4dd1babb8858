"""What a test demands, in any language."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_FINDINGS = 50


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A place where a change weakens tests.

    Attributes:
        path: of the file.
        line: in the new file, or in the old one where the thing is gone; counted from 1.
        what: one line that says what was weakened.
    """

    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


class Strength(IntEnum):
    """How much of a result an assertion pins down."""

    ALWAYS_TRUE = 0
    LOOSE = 1
    """Truth, `is not None`, a type, a difference."""
    BOUND = 2
    """An order, a membership, a pattern, what a predicate says."""
    EXACT = 3


@dataclass(frozen=True, slots=True)
class Assertion:
    """One demand of a test.

    Attributes:
        key: equal for equal assertions.
        shape: the key without its constants; equal for assertions that differ in an expected value.
        strength: how much it pins down.
        line: counted from 1.
        kind: in a word, for messages.
        slack: what it tolerates, larger is looser; compared between assertions of one shape.
        conditional: it stands under an `if`, so it may never be reached.
    """

    key: str
    shape: str
    strength: Strength
    line: int
    kind: str
    slack: float = 0.0
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class Checks:
    """A function or block that holds assertions: a test, or what tests call.

    Attributes:
        name: qualified by its classes; empty for what stands outside of all of them.
        line: counted from 1.
        collected: a test runner finds it by its name and its file's.
        assertions: those that can be reached.
        skips: what keeps it from running or from failing, with its line.
        cases: those of its tables; None where there is no table, or it cannot be read.
        words: the names that it uses.
        text: its source; equal for functions that nobody changed.
    """

    name: str
    line: int
    collected: bool
    assertions: tuple[Assertion, ...]
    skips: tuple[tuple[str, int], ...]
    cases: tuple[str, ...] | None
    words: frozenset[str]
    text: str


@dataclass(frozen=True, slots=True)
class FileChecks:
    """The functions of a file before and after a change, by name; empty where there is no file."""

    path: str
    old: Mapping[str, Checks]
    new: Mapping[str, Checks]
    removed: bool = False

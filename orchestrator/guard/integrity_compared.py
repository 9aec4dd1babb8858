"""Whether tests demand less after a change than before."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.guard.integrity_tests import Assertion, Checks, FileChecks, Finding, Strength

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_ALIKE = 0.6
"""The share of a test's words that its successor under another name has to have."""


@dataclass(slots=True)
class _Change:
    """All functions that a change touches, and the assertions that are new anywhere in it.

    Attributes:
        pairs: those that were there before and are after.
        gone: tests that are no longer where they were.
        fresh: those that were not there.
        arrived: how often an assertion or a case is new.
        used: the names that tests which were touched use.
        by_words: which of `fresh` use a word, so that each test gone is compared with few of them.
        heirs: how many tests each of `fresh` stands in for.
    """

    pairs: list[tuple[str, Checks, Checks]] = field(default_factory=list)
    gone: list[tuple[str, Checks]] = field(default_factory=list)
    fresh: list[tuple[str, Checks]] = field(default_factory=list)
    arrived: Counter[str] = field(default_factory=Counter)
    used: set[str] = field(default_factory=set)
    by_words: dict[str, list[int]] = field(default_factory=dict)
    heirs: Counter[int] = field(default_factory=Counter)


def compared(files: Iterable[FileChecks]) -> Iterator[Finding]:
    """Where functions demand less than before. What moved within the change, and still runs, is not less."""
    files = list(files)
    change = _Change()
    for file in files:
        _sort_in(file, change)
    touched = [*(new for *_, new in change.pairs), *(new for _, new in change.fresh)]
    change.used.update(*(one.words for one in touched if one.collected))
    for path, old, new in change.pairs:
        yield from _weaker(path, old, new, change.arrived)
    removed = {file.path for file in files if file.removed}
    lost: Counter[str] = Counter()
    for number, (_, checks) in enumerate(change.fresh):
        for word in (*checks.words, _definition(checks)):
            change.by_words.setdefault(word, []).append(number)
    for path, old in change.gone:
        found = _fate(path, old, change)
        if found and path in removed and found[0].what.endswith("test removed"):
            lost[path] += 1
        else:
            yield from found
    for path, number in lost.items():
        yield Finding(path, 1, f"test file removed, with {number} test{'s' if number > 1 else ''}")


def _sort_in(file: FileChecks, change: _Change) -> None:
    """Put a file's functions where they belong: changed, gone, fresh."""
    for name, old in file.old.items():
        new = file.new.get(name)
        if new is None:
            if old.collected:
                change.gone.append((file.path, old))
        elif new.text != old.text or new.collected != old.collected or new.cases != old.cases:
            change.pairs.append((file.path, old, new))
            change.arrived.update(_missing(new.assertions, old.assertions))
            change.arrived.update(
                f"case {case}" for case in (Counter(new.cases or ()) - Counter(old.cases or ()))
            )
    for name, new in file.new.items():
        if name not in file.old:
            change.fresh.append((file.path, new))
            if not new.skips:
                change.arrived.update(one.key for one in new.assertions if not one.conditional)
                change.arrived.update(f"case {case}" for case in new.cases or ())


def _missing(these: Sequence[Assertion], others: Sequence[Assertion]) -> Counter[str]:
    """The keys that `these` have more often than `others`."""
    return Counter(one.key for one in these) - Counter(one.key for one in others)


def _fate(path: str, old: Checks, change: _Change) -> list[Finding]:
    """What became of a test that is no longer where it was."""
    heirs = _heirs(old, change)
    told: list[Finding] | None = None
    for number in heirs:
        where, heir = change.fresh[number]
        if heir.collected and change.heirs[number] < max(len(heir.cases or ()), 1):
            found = list(_weaker(where, old, heir, change.arrived))
            if not found:
                change.heirs[number] += 1
                return []
            told = found if told is None else told
    for number in heirs:
        where, heir = change.fresh[number]
        unused = heir.name.rpartition(".")[2] not in change.used
        if not heir.collected and unused and (heir.name == old.name or _same_body(old, heir)):
            return [Finding(where, heir.line, f"{old.name}: moved to where it is not collected")]
    if old.assertions and not _left(old.assertions, change.arrived):
        return []
    return told or [Finding(path, old.line, f"{old.name}: test removed")]


_MOST_HEIRS = 5
_COMMON_WORD = 40
"""A word that more fresh functions use tells none of them from the others."""


def _heirs(old: Checks, change: _Change) -> list[int]:
    """The fresh functions that may be this test under another name or in another file, the likeliest first."""
    shared: Counter[int] = Counter()
    for word in (*old.words, _definition(old)):
        numbers = change.by_words.get(word, ())
        if len(numbers) <= _COMMON_WORD:
            shared.update(numbers)
    named = old.name.rpartition(".")[2]
    ranked = []
    for number, _ in shared.most_common(4 * _MOST_HEIRS):
        heir = change.fresh[number][1]
        same_name = heir.name.rpartition(".")[2] == named
        share = len(old.words & heir.words) / max(len(old.words), 1)
        if same_name or share >= _ALIKE:
            ranked.append((same_name, share, -number))
    return [-number for *_, number in sorted(ranked, reverse=True)[:_MOST_HEIRS]]


def _definition(checks: Checks) -> str:
    """A word for the name of a function, whatever class it is in."""
    return f"def {checks.name.rpartition('.')[2]}"


def _same_body(old: Checks, new: Checks) -> bool:
    return bool(old.assertions) and not _missing(old.assertions, new.assertions)


def _left(assertions: Sequence[Assertion], arrived: Counter[str]) -> list[Assertion]:
    """The assertions that turned up nowhere else in the change. One that did counts for one."""
    left = []
    for one in assertions:
        if arrived[one.key] > 0:
            arrived[one.key] -= 1
        else:
            left.append(one)
    return left


def _weaker(path: str, old: Checks, new: Checks, arrived: Counter[str]) -> Iterator[Finding]:
    """What `new` demands less than `old`."""
    name = new.name or "outside of tests"
    if old.collected and not new.collected:
        yield Finding(path, new.line, f"{name}: no longer collected")
    yield from _skips(path, name, old, new)
    yield from _cases(path, name, old, new, arrived)
    yield from _assertions(path, name, old, new, arrived)


def _cases(path: str, name: str, old: Checks, new: Checks, arrived: Counter[str]) -> Iterator[Finding]:
    """Cases are counted: one that was edited is not gone, nor is one that another table has now."""
    if new.cases == () and old.cases != ():
        yield Finding(path, new.line, f"{name}: no cases are left")
    elif old.cases and new.cases and len(new.cases) < len(old.cases):
        gone = Counter(old.cases) - Counter(new.cases)
        moved = sum(min(number, arrived[f"case {case}"]) for case, number in gone.items())
        if len(new.cases) + moved < len(old.cases):
            what = f"{name}: cases reduced from {len(old.cases)} to {len(new.cases)}"
            yield Finding(path, new.line, what)


def _skips(path: str, name: str, old: Checks, new: Checks) -> Iterator[Finding]:
    known = Counter(what for what, _ in old.skips)
    for what, line in new.skips:
        if known[what]:
            known[what] -= 1
        else:
            yield Finding(path, line, f"{name}: {what.partition(chr(0))[0]}")


def _assertions(path: str, name: str, old: Checks, new: Checks, arrived: Counter[str]) -> Iterator[Finding]:
    lost, won = _missing(old.assertions, new.assertions), _missing(new.assertions, old.assertions)
    removed, added = list(_picked(old.assertions, lost)), list(_picked(new.assertions, won))
    for one in added:
        if one.strength is Strength.ALWAYS_TRUE:
            yield Finding(path, one.line, f"{name}: assertion that is always true")
    yield from _made_conditional(path, name, old, new)
    removed = [one for one in removed if one.strength is not Strength.ALWAYS_TRUE]
    added = [one for one in added if one.strength is not Strength.ALWAYS_TRUE]
    reported, removed, added = _slackened(removed, added)
    for one in reported:
        yield Finding(path, one.line, f"{name}: assertion loosened: a wider bound")
    yield from _dominated(path, name, (_left(removed, arrived), added), new)


def _picked(assertions: Sequence[Assertion], keys: Counter[str]) -> Iterator[Assertion]:
    left = keys.copy()
    for one in reversed(assertions):
        if left[one.key] > 0:
            left[one.key] -= 1
            yield one


def _made_conditional(path: str, name: str, old: Checks, new: Checks) -> Iterator[Finding]:
    firm = Counter(one.key for one in old.assertions if not one.conditional)
    now = Counter(one.key for one in new.assertions if not one.conditional)
    for one in new.assertions:
        if one.conditional and firm[one.key] > now[one.key]:
            firm[one.key] -= 1
            yield Finding(path, one.line, f"{name}: assertion made conditional")


def _slackened(
    removed: list[Assertion], added: list[Assertion]
) -> tuple[list[Assertion], list[Assertion], list[Assertion]]:
    """Pair assertions of one shape: those whose bound is wider now, and what is left on both sides."""
    by_shape: dict[str, list[Assertion]] = {}
    for one in added:
        by_shape.setdefault(one.shape, []).append(one)
    wider, left = [], []
    for one in removed:
        partners = by_shape.get(one.shape)
        if not partners:
            left.append(one)
            continue
        partner = partners.pop(0)
        if partner.slack > one.slack or partner.strength < one.strength:
            wider.append(partner)
    return wider, left, [one for partners in by_shape.values() for one in partners]


def _dominated(
    path: str, name: str, sides: tuple[list[Assertion], list[Assertion]], new: Checks
) -> Iterator[Finding]:
    """Each assertion removed needs a new one at least as strong."""
    removed = sorted(sides[0], key=lambda one: -one.strength)
    added = sorted(sides[1], key=lambda one: -one.strength)
    for before, after in zip(removed, added, strict=False):
        if after.strength < before.strength:
            what = f"{name}: assertion loosened: {before.kind} became {after.kind}"
            yield Finding(path, after.line, what)
    missing = len(removed) - len(added)
    if missing > 0:
        count = "assertion" if missing == 1 else f"{missing} assertions"
        yield Finding(path, new.line, f"{name}: {count} removed")

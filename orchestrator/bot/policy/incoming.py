"""Removes from other people's text what a person would not see, and reports what was removed.

Hidden characters and hidden markup are removed: all markup that is not certain to be visible on GitHub, where only
a short list of HTML tags and attributes is. Two things stay and are reported, although the page does not show them
in this form: the addresses of links, and tags without attributes, such as the one in `List<String>`.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.bot.policy.hidden_characters import (
    Cleaned,
    Cut,
    Removed,
    apply_cuts,
    escaped,
    every_invisible,
    hidden_characters,
    may_hide,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    _Search = Callable[[str], tuple[list[Cut], list[Cut]]]
    """Returns the cuts, and the parts that stay although the page shows them in another form."""

_MOST_ROUNDS = 6
"""Most searches of one text. After a cut, the texts on its two sides may together be hidden markup again."""


def clean_words(text: str) -> Cleaned:
    """Remove hidden characters and hidden markup from a text that people wrote.

    The markup is parsed as GitHub does: Markdown with HTML and mathematics. What GitHub shows literally, such
    as code, stays. All other markup is either removed and listed in `removed`, or stays and is listed in
    `kept`. What is not certain to be visible is removed. Cleaning the result again changes nothing.
    """
    if not may_hide(text) and not _may_contain_markup(text):
        return Cleaned(text)
    # Characters are removed after markup, because GitHub parses markup with the hidden characters in it.
    # Only a byte order mark at the beginning is removed first.
    searches = (
        (_byte_order_mark, every_invisible),
        (_hidden_markup, _cut_all_markup),
        (_characters, every_invisible),
    )
    return _cleaned(text, searches)


def clean_name(text: str) -> Cleaned:
    """Remove hidden characters and line breaks from a title, a file name or a branch name."""
    if not may_hide(text) and "\n" not in text and "\r" not in text and "\t" not in text:
        return Cleaned(text)
    return _cleaned(text, ((_hidden_in_name, every_invisible),))


def _byte_order_mark(text: str) -> tuple[list[Cut], list[Cut]]:
    return [Cut(0, 1, "format characters", escaped("\ufeff"))] if text.startswith("\ufeff") else [], []


def _characters(text: str) -> tuple[list[Cut], list[Cut]]:
    return hidden_characters(text), []


def _hidden_in_name(text: str) -> tuple[list[Cut], list[Cut]]:
    cuts = [
        replace(cut, replacement=cut.replacement.replace("\n", " ")) for cut in hidden_characters(text)
    ] + [
        Cut(offset, offset + 1, "control character", escaped(char), " ")
        for offset, char in enumerate(text)
        if char in "\t\n\r"
    ]
    return sorted(cuts, key=lambda cut: cut.start), []


class _OffsetMap:
    """Maps offsets in a text after several rounds of cuts to offsets in the original text."""

    def __init__(self) -> None:
        self._rounds: list[tuple[list[int], list[int]]] = []

    def add(self, cuts: Sequence[Cut]) -> None:
        """Add one round of cuts."""
        new, old = [0], [0]
        for cut in cuts:
            offset = new[-1] + cut.start - old[-1]
            if cut.replacement:
                new.append(offset)
                old.append(cut.start)
            new.append(offset + len(cut.replacement))
            old.append(cut.end)
        self._rounds.append((new, old))

    def original(self, offset: int) -> int:
        """Return the offset in the original text of the character that is at this offset now."""
        for new, old in reversed(self._rounds):
            index = bisect_right(new, offset) - 1
            offset = old[index] + offset - new[index]
        return offset


def _cleaned(text: str, searches: Sequence[tuple[_Search, Callable[[str], list[Cut]]]]) -> Cleaned:
    """Repeat the searches, each followed by its cuts, until they find nothing more.

    After `_MOST_ROUNDS`, the fallback of each search cuts everything that the search could ever find.
    """
    offsets = _OffsetMap()
    removed: list[Removed] = []
    kept: dict[int, Removed] = {}
    result = text

    def reported(cuts: Sequence[Cut]) -> list[Removed]:
        return [Removed(offsets.original(cut.start), cut.kind, cut.text) for cut in cuts]

    def cut_once(cuts: Sequence[Cut], found: Sequence[Cut] = ()) -> bool:
        nonlocal result
        removed.extend(reported(cuts))
        # Findings of each round count: later cuts may change how the page shows a part.
        kept.update((part.offset, part) for part in reported(found))
        offsets.add(cuts)
        result = apply_cuts(result, cuts)
        return bool(cuts)

    for _ in range(_MOST_ROUNDS):
        if sum(cut_once(*find(result)) for find, _ in searches) == 0:
            break
    else:
        for _, find_all in searches:
            cut_once(find_all(result))
    remaining = [part for _, part in sorted(kept.items()) if part.text in result]
    removed.sort(key=lambda part: part.offset)
    return Cleaned(result if removed else text, tuple(removed), tuple(remaining))


_MARKUP_SIGNS = {
    "<": ("<",),
    "&": ("&",),
    "[": ("](", "][", "]:", "!["),
    "`": ("```",),
    "~": ("~~~",),
    "|": ("-",),
    "$": ("$",),
}
"""Beginnings of markup, each with one character that is fast to search for."""


def _may_contain_markup(text: str) -> bool:
    """Return whether the text may contain markup and has to be parsed."""
    return any(
        first in text and any(trace in text for trace in traces) for first, traces in _MARKUP_SIGNS.items()
    )


def _hidden_markup(text: str) -> tuple[list[Cut], list[Cut]]:
    """Return the cuts, and the other parts that are not shown in this form; these are complete only without cuts."""
    if not _may_contain_markup(text):
        return [], []
    # Most texts have no markup, so that its reader is not loaded.
    from orchestrator.bot.policy.hidden_markup import hidden_markup

    return hidden_markup(text)


def _cut_all_markup(text: str) -> list[Cut]:
    """Cut everything after the first sign of markup, for a text in which each cut creates new markup."""
    first = min((place for place in map(text.find, "<[&`~|$") if place >= 0), default=len(text))
    return [Cut(first, len(text), "nested markup", text[first:])] if first < len(text) else []

"""What may come in: other people's words without what a person would not see, and a report of what that was."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.bot.policy.hidden_characters import (
    Cut,
    Removed,
    escaped,
    every_invisible,
    hidden_characters,
    may_hide,
)
from orchestrator.bot.policy.hidden_markup import everything_marked_up, hidden_markup, may_hold_markup

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    _Search = Callable[[str], tuple[list[Cut], list[Cut]]]
    """Finds what is to be taken out, and what stays although it is not shown as it stands."""

__all__ = ["Cleaned", "Removed", "clean_name", "clean_words", "show_hidden"]

_MOST_ROUNDS = 6
"""What is taken out may bring together what hides something again. After so many rounds that is no accident."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A text as a person sees it.

    Attributes:
        text: what is left; the same object where nothing was hidden.
        removed: what was taken out, or made visible, in the order of the original text.
        kept: what a person does not see as it stands, and the model does: tags that have no effect, addresses of links.
    """

    text: str
    removed: tuple[Removed, ...] = ()
    kept: tuple[Removed, ...] = ()


def clean_words(text: str) -> Cleaned:
    """What people wrote, without hidden characters and hidden markup.

    Markup is read as GitHub shows it: Markdown with HTML and mathematics. What it shows literally, such as
    code, stays. Whatever else there is, is either taken out and in `removed`, or stays and is in `kept`.
    What cannot be told visible is taken out. Cleaning the result again changes nothing.
    """
    if not may_hide(text) and not may_hold_markup(text):
        return Cleaned(text)
    # GitHub reads markup with the hidden characters in it: without them, what it hides may look like code.
    # Only the mark at the beginning is skipped.
    searches = (
        (_byte_order_mark, every_invisible),
        (hidden_markup, everything_marked_up),
        (_characters, every_invisible),
    )
    return _cleaned(text, searches)


def clean_name(text: str) -> Cleaned:
    """A title, a file's name, a branch: without hidden characters, in one line."""
    if not may_hide(text) and "\n" not in text and "\r" not in text and "\t" not in text:
        return Cleaned(text)
    return _cleaned(text, ((_hidden_in_name, every_invisible),))


def show_hidden(text: str) -> Cleaned:
    """What a file holds or a tool printed, with hidden characters written out: `<U+200B>`.

    A run of tag characters or of variation selectors is written with what it spells:
    `<hidden: "...">`. Markup stays: it can be seen.
    """
    if not may_hide(text):
        return Cleaned(text)
    cuts = hidden_characters(text)
    if not cuts:
        return Cleaned(text)
    removed = tuple(Removed(cut.start, cut.kind, cut.text) for cut in cuts)
    return Cleaned(_without(text, [_made_visible(text, cut) for cut in cuts]), removed)


def _made_visible(text: str, cut: Cut) -> Cut:
    is_spelled = cut.text != escaped(text[cut.start : cut.end])
    shown = f'<hidden: "{cut.text}">' if is_spelled else cut.text
    return Cut(cut.start, cut.end, cut.kind, cut.text, shown)


def _byte_order_mark(text: str) -> tuple[list[Cut], list[Cut]]:
    mark = "\ufeff"
    return [Cut(0, 1, "format characters", escaped(mark))] if text.startswith(mark) else [], []


def _characters(text: str) -> tuple[list[Cut], list[Cut]]:
    return hidden_characters(text), []


def _hidden_in_name(text: str) -> tuple[list[Cut], list[Cut]]:
    cuts = [
        Cut(cut.start, cut.end, cut.kind, cut.text, cut.replacement.replace("\n", " "))
        for cut in hidden_characters(text)
    ]
    breaks = [
        Cut(place, place + 1, "control character", escaped(char), " ")
        for place, char in enumerate(text)
        if char in "\t\n\r"
    ]
    return sorted([*cuts, *breaks], key=lambda cut: cut.start), []


def _without(text: str, cuts: Sequence[Cut]) -> str:
    pieces: list[str] = []
    position = 0
    for cut in cuts:
        pieces += text[position : cut.start], cut.replacement
        position = cut.end
    return "".join([*pieces, text[position:]])


class _Places:
    """Where the characters of a text were before the cuts that led to it."""

    def __init__(self) -> None:
        self._rounds: list[tuple[list[int], list[int]]] = []

    def after(self, cuts: Sequence[Cut]) -> None:
        """Take note of one round of cuts."""
        now, before = [0], [0]
        for cut in cuts:
            place = now[-1] + cut.start - before[-1]
            if cut.replacement:
                now.append(place)
                before.append(cut.start)
            now.append(place + len(cut.replacement))
            before.append(cut.end)
        self._rounds.append((now, before))

    def original(self, place: int) -> int:
        """The place in the first text of what is at this place now."""
        for now, before in reversed(self._rounds):
            index = bisect_right(now, place) - 1
            place = before[index] + place - now[index]
        return place


def _cleaned(text: str, searches: Sequence[tuple[_Search, Callable[[str], list[Cut]]]]) -> Cleaned:
    """Cut until nothing more is found. Each search comes with one that leaves nothing for it to find."""
    places = _Places()
    removed: list[Removed] = []
    kept: dict[int, Removed] = {}
    result = text

    def cut_once(cuts: Sequence[Cut], found: Sequence[Cut] = ()) -> bool:
        nonlocal result
        removed.extend(_reported(cuts))
        # What is taken out changes what the rest means: what was once not on the page never was.
        kept.update((one.offset, one) for one in _reported(found))
        places.after(cuts)
        result = _without(result, cuts)
        return bool(cuts)

    def _reported(cuts: Sequence[Cut]) -> list[Removed]:
        return [Removed(places.original(cut.start), cut.kind, cut.text) for cut in cuts]

    for _ in range(_MOST_ROUNDS):
        if sum(cut_once(*find(result)) for find, _ in searches) == 0:
            break
    else:
        for _, find_all in searches:
            cut_once(find_all(result))
    still = [one for _, one in sorted(kept.items()) if one.text in result]
    removed.sort(key=lambda item: item.offset)
    return Cleaned(result if removed else text, tuple(removed), tuple(still))

"""Finds what GitHub's Markdown and HTML hide from a reader: comments, hidden elements, attributes, titles.

A first pass (`markup_page`, `markup_reader`) splits the text into what matters; here is decided what goes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrator.guard.hidden_characters import Cut
from orchestrator.guard.markup_links import BAD_TARGET
from orchestrator.guard.markup_page import Page
from orchestrator.guard.markup_reader import Reader
from orchestrator.guard.markup_seen import (
    ONE_ATTRIBUTE,
    VISIBLE_TAGS,
    VOID_TAGS,
    hides_content,
    is_seen,
    name_and_value,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator.guard.markup_page import Mark

_TRACES = {"<": ("<",), "&": ("&",), "[": ("](", "][", "]:", "!["), "`": ("```",), "~": ("~~~",), "|": ("-",)}
"""What could hide something, by a character that is quickly looked for."""

_RAW_TAGS = frozenset({"script", "style"})
_DEFINITION = re.compile(r"\[(?:[^\[\]\\]|\\.)++\]:\s*+(?P<target><(?:[^<>\n\\]|\\.)*+>|\S++)", re.DOTALL)


def may_hold_markup(text: str) -> bool:
    """Whether the text needs a closer look."""
    return any(first in text and any(trace in text for trace in traces) for first, traces in _TRACES.items())


def hidden_markup(text: str) -> list[Cut]:
    """What is to be taken out of a text, in order, for a person to see on GitHub what a model sees."""
    if not may_hold_markup(text):
        return []
    page = Page(text)
    return list(_joined(text, _decided(page, Reader(page).marks())))


def everything_marked_up(text: str) -> list[Cut]:
    """All from the first thing on that could be markup: for a text that never comes to rest."""
    first = min((place for place in map(text.find, "<[&`~|") if place >= 0), default=len(text))
    return [Cut(first, len(text), "nested markup", text[first:])] if first < len(text) else []


def _decided(page: Page, marks: Sequence[Mark]) -> Iterator[Cut]:
    text = page.text
    labels: set[str] = set()
    definitions: list[Mark] = []
    waiting = iter(range(len(marks)))
    for index in waiting:
        mark = marks[index]
        if mark.kind == "definition":
            definitions.append(mark)
        elif mark.kind:
            yield Cut(mark.start, mark.end, mark.kind, text[mark.start : mark.end], mark.replacement)
        elif mark.label:
            labels.add(mark.label)
        elif mark.opens and hides_content(mark.opens, page.view[slice(*mark.attributes)]):
            last = index if mark.opens in VOID_TAGS else _closing(page, marks, index)
            end = marks[last].end if last < len(marks) else len(text)
            yield Cut(mark.start, end, "hidden element", text[mark.start : end])
            for _ in range(index, min(last, len(marks) - 1)):
                next(waiting)
        else:
            yield from _tag_cuts(page, mark)
    for mark in definitions:
        yield from _definition_cuts(page, mark, labels)


def _closing(page: Page, marks: Sequence[Mark], index: int) -> int:
    """Where the element that opens here ends. Tags that do not match close nothing."""
    inside = [marks[index].opens]
    for place in range(index + 1, len(marks)):
        mark = marks[place]
        if mark.opens and mark.opens not in VOID_TAGS and inside[-1] not in _RAW_TAGS:
            inside.append(mark.opens)
        elif mark.closes == inside[-1]:
            # The cell of a table closes nothing that began in another line.
            if mark.in_table and page.view.find("\n", marks[index].end, mark.start) >= 0:
                continue
            inside.pop()
            if not inside:
                return place
    return len(marks)


def _tag_cuts(page: Page, mark: Mark) -> Iterator[Cut]:
    text, start, end = page.text, *mark.attributes
    if (mark.opens or mark.closes) not in VISIBLE_TAGS:
        yield Cut(mark.start, mark.end, "unknown tag", text[mark.start : mark.end])
    elif mark.closes:
        if text[start:end].strip():
            yield Cut(start, end, "hidden attribute", text[start:end])
    else:
        seen: set[str] = set()
        for attribute in ONE_ATTRIBUTE.finditer(page.view, start, end):
            name, value = name_and_value(attribute["whole"])
            if not is_seen(name, value) or name in seen:
                kind = {"alt": "alt text", "title": "title text"}.get(name, "hidden attribute")
                yield Cut(*attribute.span(), kind, text[slice(*attribute.span())].strip())
            seen.add(name)


def _definition_cuts(page: Page, mark: Mark, labels: set[str]) -> Iterator[Cut]:
    """A definition is not shown. It stays, without its title, where the reader sees its label."""
    text, end = page.text, mark.end
    address = _DEFINITION.search(page.view, mark.start, end)
    if (
        mark.label not in labels or address is None or BAD_TARGET.match(address["target"])
    ):  # the first one counts
        yield Cut(mark.start, end, "link definition", text[mark.start : end])
        return
    labels.remove(mark.label)
    title = text[address.end() : end]
    if title.strip():
        yield Cut(address.end(), address.end() + len(title.rstrip()), "title text", title.strip())


def _joined(text: str, cuts: Iterator[Cut]) -> Iterator[Cut]:
    """In order, and none inside another."""
    position = 0
    for cut in sorted(cuts, key=lambda cut: (cut.start, -cut.end)):
        if cut.end <= position:
            continue
        start = max(cut.start, position)
        seen = cut.text if start == cut.start else text[start : cut.end]
        yield Cut(start, cut.end, cut.kind, seen, cut.replacement)
        position = cut.end

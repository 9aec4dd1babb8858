"""Reads brackets: links, images, and the labels that stand for addresses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.guard.markup_page import Mark

if TYPE_CHECKING:
    from orchestrator.guard.markup_page import Page

_ESCAPED = r"\\[!-/:-@\[-`{-~]"
_POINTED = re.compile(r"<(?:[^<>\n\\]|\\.)*+>")
_SIGNS = re.compile(rf"{_ESCAPED}|[()\t\n ]")
_BLANKS = re.compile(r"[ \t\n]*+")
_TITLE_AND_END = re.compile(
    r"(?P<title>[ \t\n]++(?:\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|\((?:[^()\\]|\\.)*+\)))?+[ \t\n]*+\)",
    re.DOTALL,
)
BAD_TARGET = re.compile(r"(?i)<[^<>\n]*?[ \t][^<>\n]*+>|<?(?:data|javascript|vbscript):")
_DEEPEST_PARENTHESES = 32
_LABEL = re.compile(r"\[((?:[^\[\]\\]|\\.){0,999}+)\]", re.DOTALL)
_LONGEST_LABEL_CHARS = 999  # https://spec.commonmark.org/0.31.2/#link-label
_LONGEST_NUMBER = 3


@dataclass(slots=True)
class Brackets:
    """Opening brackets that wait, each with whether it is an image's; the first `inactive` begin no link."""

    waiting: list[tuple[int, bool]]
    inactive: int = 0


class LinkReader:
    """The part of a reader that knows links. It notes marks, and how far the text is read."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._view = page.view
        self._marks: list[Mark] = []
        self._position = 0

    def _cut(self, start: int, end: int, kind: str, replacement: str = "") -> None:
        self._marks.append(Mark(start, end, kind=kind, replacement=replacement))
        self._position = max(self._position, end)

    def _read_bracket(self, brackets: Brackets) -> None:
        """https://spec.commonmark.org/0.31.2/#an-algorithm-for-parsing-nested-emphasis-and-links."""
        view, place, waiting = self._view, self._position, brackets.waiting
        self._position += 1
        if view[place] == "[":
            waiting.append((place, place > 0 and view[place - 1] == "!" and not _is_escaped(view, place - 1)))
        elif waiting:
            opener, image = waiting.pop()
            is_active = image or len(waiting) >= brackets.inactive
            brackets.inactive = min(brackets.inactive, len(waiting))
            if is_active and self._read_link(opener, place, image=image) and not image:
                brackets.inactive = len(waiting)  # no link is inside another

    def _read_link(self, opener: int, close: int, *, image: bool) -> bool:
        """What follows a closing bracket: an address with a title, or a label. Says whether it is a link."""
        view, after = self._view, close + 1
        if view.startswith("(", after):
            if image and close > opener + 1:
                self._marks.append(Mark(opener + 1, close, kind="alt text"))
            if self._read_address(opener, close, image=image):
                return True
        inner = view[opener + 1 : close] if close - opener <= _LONGEST_LABEL_CHARS else ""
        label = _LABEL.match(view, after)
        name = label[1] if label and label[1].strip() else inner
        address = self._address(name)
        if address is None:
            return False
        end = label.end() if label else after
        if image:
            self._cut(opener + 1, end, "alt text", f"]({address})")
        elif label and name is not inner and not _is_number(name):
            self._cut(*label.span(), "link label", f"({address})")
        else:
            self._marks.append(Mark(opener, after, label=normalised(name)))
            self._position = end
        return True

    def _read_address(self, opener: int, close: int, *, image: bool) -> bool:
        """`(address "title")`, if it is that: see https://spec.commonmark.org/0.31.2/#inline-link."""
        view = self._view
        start, end = self._target(close + 2)
        tail = _TITLE_AND_END.match(view, end)
        if tail is None:
            return False
        if BAD_TARGET.match(view, start, end):
            self._cut(start, end, "link target")
        if tail["title"]:
            self._cut(*tail.span("title"), "title text")
        if not image and close == opener + 1:
            self._cut(opener, tail.end(), "link without text")
        self._position = tail.end()
        return True

    def _target(self, place: int) -> tuple[int, int]:
        """Where an address begins and ends. Its parentheses are in pairs, as deep as GitHub's parser follows."""
        view = self._view
        start = end = _BLANKS.match(view, place).end()  # type: ignore[union-attr]
        if pointed := _POINTED.match(view, start):
            return start, pointed.end()
        depth = 0
        for sign in _SIGNS.finditer(view, start):
            end = sign.start()
            if sign[0] == "(":
                depth += 1
            elif sign[0] == ")":
                depth -= 1
            elif len(sign[0]) > 1:
                continue
            if depth < 0 or depth > _DEEPEST_PARENTHESES or sign[0] in " \t\n":
                break
        else:
            end = len(view)
        return start, end

    def _address(self, label: str) -> str | None:
        if not label or not self._page.addresses:
            return None
        return self._page.addresses.get(normalised(label))


def _is_number(label: str) -> bool:
    """Whether the label is too short to say anything."""
    return label.isascii() and label.isdigit() and len(label) <= _LONGEST_NUMBER


def normalised(label: str) -> str:
    """A label as it is compared."""
    from markdown_it.common.utils import normalizeReference

    return normalizeReference(label)


def _is_escaped(view: str, place: int) -> bool:
    """Whether an odd number of backslashes stands before this place. Few do."""
    before = view[max(0, place - 64) : place]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1

"""The text of our one comment on an issue or pull request: sections by key, each replaced on its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_COMMENT = 65_536
"""Characters that GitHub takes as a comment or as a pull request's body."""
MARKER = "<!-- pullwright:comment -->"
"""The last line of our comment."""
_CUT = "\n\n*(cut: the comment would be too long)*"
_MOST_SECTIONS = 50
_LONGEST_KEY = 80
_SECTION = re.compile(r"^<!-- pullwright:section:([^\s<>]*) -->$", re.MULTILINE)
_OLDER = re.compile(r"<!-- pullwright:comment:([^\s<>]*) -->")
"""The last line of a comment of an earlier version, which wrote one for each key."""
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


def sections_of(comment: str) -> dict[str, str] | None:
    """The sections of a comment's text, in order; None if it does not have the form of ours.

    Who wrote the comment is another question: anybody can write this form.
    """
    text = same_lines(comment)
    body, _, last = text.rpartition("\n")
    older = _OLDER.fullmatch(last)
    if older is not None:
        return {unquote(older[1]): _harmless(body)}
    if last != MARKER:
        return None
    _, *parts = _SECTION.split(body)
    return {unquote(key): part.strip() for key, part in zip(parts[::2], parts[1::2], strict=True)}


def is_of_one_key(comment: str) -> bool:
    """Whether it is a comment of an earlier version."""
    return _OLDER.fullmatch(same_lines(comment).rpartition("\n")[2]) is not None


def with_section(sections: Mapping[str, str], key: str, body: str) -> dict[str, str]:
    """The sections with one of them replaced where it stands, or added at the end. An empty body removes it.

    Nothing in a body begins an HTML comment afterwards, so that no text of a model or a stranger
    makes a marker.
    """
    text = _harmless(body)
    changed = {**sections, key[:_LONGEST_KEY]: text}
    return {name: section for name, section in changed.items() if section}


def composed(sections: Mapping[str, str], newest: str) -> str:
    """The comment's text. Where it would be too long the other sections are cut before the newest is."""
    newest = newest[:_LONGEST_KEY]
    others = [key for key in sections if key != newest][-_MOST_SECTIONS:]
    kept = [key for key in sections if key == newest or key in others]
    heads = {key: f"<!-- pullwright:section:{quote(key, safe='')} -->\n" for key in kept}
    room = LONGEST_COMMENT - len(MARKER) - sum(len(head) + 2 for head in heads.values())
    texts: dict[str, str] = {}
    # The newest takes what it needs; of the others the short ones leave room for the long ones.
    order = [*(key for key in kept if key == newest), *sorted(others, key=lambda key: len(sections[key]))]
    for left, key in zip(range(len(order), 0, -1), order, strict=True):
        texts[key] = _closed(sections[key], room if key == newest else room // left)
        room -= len(texts[key])
    return "".join(f"{heads[key]}{texts[key]}\n\n" for key in kept) + MARKER


def same_lines(text: str) -> str:
    """Text as it is compared: GitHub's web pages write other line ends, and trim."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


def _harmless(body: str) -> str:
    return same_lines(body).replace("<!--", "&lt;!--")


def _closed(text: str, most: int) -> str:
    """The text in that many characters. A block of code that it leaves open would swallow what comes after it."""
    fence = _open_fence(text)
    if len(text) + len(fence) <= most:
        return text + fence
    kept = text[: max(0, most - len(_CUT))]
    while kept and len(kept) + len(_open_fence(kept)) + len(_CUT) > most:
        kept = kept[: most - len(_CUT) - len(_open_fence(kept))] if most > len(_CUT) else ""
    return (kept + _open_fence(kept) + _CUT).strip() if kept else _CUT.strip()[:most]


def _open_fence(text: str) -> str:
    """What closes the block of code that the text leaves open; empty if it leaves none.

    spec.commonmark.org/0.31.2/#fenced-code-blocks
    """
    opened = ""
    for line in text.split("\n"):
        match = _FENCE.fullmatch(line)
        if match is None:
            continue
        fence, rest = match[1], match[2]
        if not opened:
            opened = fence if fence[0] == "~" or "`" not in rest else ""
        elif fence[0] == opened[0] and len(fence) >= len(opened) and not rest.strip():
            opened = ""
    return f"\n{opened}" if opened else ""

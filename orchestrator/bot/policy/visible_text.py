"""The first step for every text that a model had a hand in: what a person sees of it, and nothing else."""

from __future__ import annotations

import re
from html import unescape
from html.entities import html5

_LINE_END = re.compile(r"\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
# https://spec.commonmark.org/0.31.2/#entity-and-numeric-character-references; leading zeros are HTML's.
_REFERENCE = re.compile(r"&(?:#0{0,8}[0-9]{1,7}|#[xX]0{0,8}[0-9a-fA-F]{1,6}|([A-Za-z][A-Za-z0-9]{1,40}));")
_MOST_ROUNDS = 8


def visible_text(text: str) -> str:
    """The text with every character reference decoded, without what nobody sees, with plain line ends.

    The result holds no character reference, so giving it back changes nothing. Text that is nested
    deeper than any honest text (`&amp;amp;amp;...`) loses its ampersands instead.
    """
    for _ in range(_MOST_ROUNDS):
        plain = without_unseen(_REFERENCE.sub(_decoded, text))
        if plain == text:
            return text
        text = plain
    return without_unseen(text.replace("&", ""))


def without_unseen(text: str) -> str:
    """The text without control characters and what else has no shape of its own, with plain line ends.

    Character references stay: this is for code, where they stand for themselves.
    """
    if text.isascii() and text.isprintable():
        return text
    from orchestrator.bot.policy.hidden_characters import every_invisible, hidden_characters

    text = _CONTROL.sub("", _LINE_END.sub("\n", text))
    finders = [hidden_characters] * _MOST_ROUNDS
    # What is needed by its neighbours stays. Where taking one out always bares another, none is needed.
    for find in [*finders, every_invisible]:
        cuts = find(text)
        if not cuts:
            break
        pieces: list[str] = []
        at = 0
        for cut in cuts:
            pieces += text[at : cut.start], cut.replacement
            at = cut.end
        text = "".join([*pieces, text[at:]])
    return text


def _decoded(match: re.Match[str]) -> str:
    if match[1] is None:
        return unescape(match[0])
    return html5.get(f"{match[1]};", match[0])

"""The significant words of a text."""

from __future__ import annotations

import re

_WORD = re.compile(r"\w+")
_COMMON = """
a about after all also an and any are as at be been but by can could did do does for from had has have he
her here him his how i if in into is it its just like me more my no not of on one or our out over she should
so some than that the their them then there these they this those to up us was we were what when where which
who why will with would you your
"""
_COMMON_WORDS = frozenset(_COMMON.split())


def significant_words(text: str) -> list[str]:
    """Return the words in lower case, in order, without common ones."""
    return [word for word in _WORD.findall(text.lower()) if word not in _COMMON_WORDS]

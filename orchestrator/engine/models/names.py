"""Tool names and call ids of other vendors' models, and names that a model made up, as a vendor takes them.

A conversation may begin at one vendor and go on at another, and one name that is refused would end it.
"""

from __future__ import annotations

import hashlib
import re

_NOT_PLAIN = re.compile(r"[^a-zA-Z0-9_-]")
_NOT_DOTTED = re.compile(r"[^a-zA-Z0-9_.:-]")
_DIGEST_CHARACTERS = 16


def plain_name(text: str, most: int) -> str:
    """Letters, digits, `_` and `-`, of which there is at least one and at most `most`."""
    return _NOT_PLAIN.sub("_", text)[:most] or "_"


def dotted_name(text: str, most: int) -> str:
    """The same with dots and colons; it begins with a letter or `_`."""
    name = _NOT_DOTTED.sub("_", text)
    return (name if name[:1].isalpha() or name.startswith("_") else f"_{name}")[:most]


def short_id(text: str, most: int) -> str:
    """The id; one that is too long ends in a digest, so that different ones stay different."""
    if len(text) <= most:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{text[: most - _DIGEST_CHARACTERS - 1]}_{digest}"

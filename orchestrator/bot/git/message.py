"""A commit's message as git takes it: its trailers stay its last paragraph, whatever the text above says."""

from __future__ import annotations

import re

_MOST_CHARACTERS = 20_000
_MOST_TRAILER_CHARACTERS = 4_000
_DEFAULT = "Change files"
# A line `Key: value`, and lines that begin with a blank and continue it:
# https://git-scm.com/docs/git-interpret-trailers
_TRAILERS = re.compile(r"(?:[A-Za-z0-9-]+:[ \t]*\S[^\n]*(?:\n[ \t]+\S[^\n]*)*(?:\n|$))+")
# Where git takes the message to be over: what follows would hide the trailers.
_ENDS = re.compile(r"^(?=---\s|---$|# -+ >8 -+$)", re.MULTILINE)


def clean_message(text: str) -> str:
    """The message with a line feed at its end, without NUL, at most 20,000 characters.

    What is too long loses the end of its text, and keeps the trailers.
    """
    plain = text.replace("\0", "").replace("\r\n", "\n").strip() or _DEFAULT
    plain = _ENDS.sub(" ", plain)
    body, blank, last = plain.rpartition("\n\n")
    if blank and len(last) <= _MOST_TRAILER_CHARACTERS and _TRAILERS.fullmatch(last):
        room = _MOST_CHARACTERS - len(last) - 2
        return f"{body[:room].rstrip()}\n\n{last}\n"
    return f"{plain[:_MOST_CHARACTERS].rstrip()}\n"

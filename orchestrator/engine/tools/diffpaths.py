"""The paths in a unified diff: quoted, with prefixes, with time stamps behind them."""

from __future__ import annotations

import re

NOWHERE = "/dev/null"
"""Stands for the side on which the file does not exist."""

_TIME_STAMP = re.compile(r"(?<!\s)\s+\d{4}-\d\d-\d\d[ T]\d\d:\d\d.*$")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_LETTERS = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_PREFIXES = {"a/", "b/", "c/", "i/", "o/", "w/"}
"""What git puts before paths: https://git-scm.com/docs/diff-config, `diff.mnemonicPrefix`."""


def header_path(text: str) -> str:
    """The path behind `--- ` or `+++ `, or behind `rename from `."""
    text = text.strip(" ")
    if quoted := _QUOTED.match(text):
        return _unquoted(quoted.group())
    return _TIME_STAMP.sub("", text.split("\t")[0]).strip()


def paths_of_git_line(text: str) -> tuple[str, str]:
    """The two paths behind `diff --git `; empty where blanks in them make it unclear."""
    text = text.strip()
    if quoted := _QUOTED.match(text):
        return _unquoted(quoted.group()), header_path(text[quoted.end() :])
    middle = len(text) // 2
    if text[middle : middle + 1] == " " and text[:middle][2:] == text[middle + 1 :][2:]:
        return text[:middle], text[middle + 1 :]
    old, _, new = text.partition(" ")
    return ("", "") if not new or " " in new else (old, new)


def without_prefixes(old: str, new: str) -> tuple[str | None, str | None]:
    """Both paths as they are in the repository; None for the side that is nowhere."""
    if NOWHERE in (old, new):
        return (
            None if old == NOWHERE else old.removeprefix("a/"),
            None if new == NOWHERE else new.removeprefix("b/"),
        )
    if (old[:2], new[:2]) == ("a/", "b/"):
        return old[2:], new[2:]
    if old[2:] == new[2:] and old[:2] != new[:2] and {old[:2], new[:2]} <= _PREFIXES:
        return old[2:], new[2:]
    if old == f"a/{new}":
        return new, new
    if new == f"b/{old}":
        return old, old
    return old, new


def _unquoted(text: str) -> str:
    """Undo git's quoting of a path, which is that of C: https://git-scm.com/docs/git-config, `core.quotePath`."""

    def plain(escape: re.Match[bytes]) -> bytes:
        code = escape[1]
        return bytes([int(code, 8) & 0xFF]) if len(code) > 1 else _LETTERS.get(code, code)

    return _ESCAPE.sub(plain, text[1:-1].encode("utf-8", "surrogatepass")).decode(errors="replace")

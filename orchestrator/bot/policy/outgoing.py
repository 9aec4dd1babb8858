"""What may leave: a change that adds a secret may not."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MOST_PLACES = 5
_UNREADABLE = "the change"
_A_NAME = "the name of a file"

# https://git-scm.com/docs/diff-format#generate_patch_text_with_p
_HUNK = re.compile(r"@@ -[0-9]+(?:,([0-9]+))? \+([0-9]+)(?:,([0-9]+))? @@")
_NEW_NAME = ("rename to ", "copy to ", "new file mode ")
_HEADER = re.compile(
    r"diff --git |index |old mode |new mode |deleted file mode |new file mode |copy from |copy to |rename from |"
    r"rename to |similarity index |dissimilarity index |--- |\+\+\+ |Binary files |\\ |$"
)
# How programs write one text in two: "abc" + "def", also over a line's end.
_GLUE = re.compile(r"[\"'][ \t]{0,8}[+.,&\\]?[ \t]{0,8}(?:\r?\n)?[ \t]{0,80}[+.&]?[ \t]{0,8}[rbfu]?[\"']")
_LONGEST_ITEM_CHARS = 31
"""Of a text in a list that may be a part of a secret. A hash is longer, and a whole secret by itself is found."""


class _UnreadableError(ValueError):
    pass


@dataclass(slots=True)
class _File:
    """What a change adds to a file: the lines of each hunk with their numbers."""

    names: list[str]
    path: str = ""
    is_new: bool = False
    hunks: list[list[tuple[int, str]]] = field(default_factory=list)


def places_of_secrets(diff: str, holds_secret: Callable[[str], bool]) -> list[str]:
    """Where a unified diff adds something that looks like a secret, as `path:line`, at most five.

    What a file held before does not count: the repository has it already. Lines that were added
    to a file are also looked at together, because a key may take several, and texts that are
    written in parts are put together. Names that a change gives to files count, too. A diff that
    cannot be read is looked at as a whole.
    """
    places: list[str] = []
    try:
        for file in _files(diff):
            if file.is_new and holds_secret("\n".join(file.names)):
                places.append(_A_NAME)
            places += _places_in(file, holds_secret)
            if len(places) >= _MOST_PLACES:
                break
    except _UnreadableError:
        return [_UNREADABLE] if _holds(diff, holds_secret) else []
    return list(dict.fromkeys(places))[:_MOST_PLACES]


def _places_in(file: _File, holds_secret: Callable[[str], bool]) -> Iterator[str]:
    lines = [line for hunk in file.hunks for line in hunk]
    if not lines or not _holds("\n".join(text for _, text in lines), holds_secret):
        return
    path = _A_NAME if holds_secret(file.path) else file.path
    found = False
    for hunk in file.hunks:
        if hunk and _holds("\n".join(text for _, text in hunk), holds_secret):
            number = next((number for number, text in hunk if _holds(text, holds_secret)), hunk[0][0])
            yield f"{path}:{number}"
            found = True
    if not found:  # only together
        yield f"{path}:{lines[0][0]}"


def _holds(text: str, holds_secret: Callable[[str], bool]) -> bool:
    """Whether a text holds a secret as it is, as UTF-16, or in parts that a program would put together."""
    if holds_secret(text):
        return True
    plain = text.replace("\0", "")
    glued = _GLUE.sub(_joined, plain)
    return glued != text and holds_secret(glued)


def _joined(glue: re.Match[str]) -> str:
    """Nothing, or the glue itself where a comma stands behind a long text: a list of hashes is no secret."""
    if "," not in glue[0]:
        return ""
    before = glue.string[max(glue.start() - _LONGEST_ITEM_CHARS - 1, 0) : glue.start()]
    return "" if "'" in before or '"' in before else glue[0]


def _files(diff: str) -> Iterator[_File]:  # noqa: C901  a line of a diff is one of these
    """The files of a diff.

    Raises:
        _UnreadableError: a line is none that git writes, or a hunk has too few lines.
    """
    lines = iter(diff.split("\n"))
    file: _File | None = None
    for line in lines:
        if hunk := _HUNK.match(line):
            if file is None:
                raise _UnreadableError
            file.hunks.append(_added(lines, hunk))
        elif not _HEADER.match(line):
            raise _UnreadableError
        elif line.startswith("diff --git ") or (
            line.startswith("--- ") and (file is None or file.hunks or file.path)
        ):
            if file is not None:
                yield file
            file = _File([line])
        elif file is not None:
            file.is_new |= line.startswith(_NEW_NAME)
            if line.startswith(("+++ ", "rename to ", "copy to ")):
                file.names.append(line)
            if line.startswith("+++ "):
                file.path = _path(line[4:])
    if file is not None:
        yield file


def _path(name: str) -> str:
    name = name.removesuffix("\r").removesuffix("\t")
    if name.startswith('"') and name.endswith('"'):
        name = name[1:-1]
    return name.removeprefix("b/")


def _added(lines: Iterator[str], hunk: re.Match[str]) -> list[tuple[int, str]]:
    """The added lines of a hunk, counted as its head says: a line's text cannot end it."""
    old, new = (1 if count is None else int(count) for count in (hunk[1], hunk[3]))
    number = int(hunk[2])
    added = []
    while old > 0 or new > 0:
        line = next(lines, None)
        sign = line[:1] if line is not None else "?"
        if line is None or sign not in ("", " ", "+", "-", "\\"):
            raise _UnreadableError
        if sign == "+":
            added.append((number, line[1:]))
        if sign in ("", " ", "+"):
            number += 1
            new -= 1
        if sign in ("", " ", "-"):
            old -= 1
    if old < 0 or new < 0:
        raise _UnreadableError
    return added

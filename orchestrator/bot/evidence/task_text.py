"""Builds the text of a past task, without hints at its solution."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from orchestrator.bot.policy.incoming import clean_name, clean_words

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from orchestrator.core.changes import FileChange, FileVersion

MOST_TASK_CHARS = 12_000
_LEAST_CODE_CHARS = 15
"""Shorter lines of code, such as `return None`, may appear in any text, and are not hints."""
_LEAST_ID_DIGITS = 7
_MOST_LINES = 20_000
_PROSE = (".md", ".rst", ".txt", ".adoc", ".org")
_REMOVED = "(removed)"

_LINK = re.compile(r"\bhttps?://[^\s<>()\[\]\"'`]+/(?:pull|pulls|commit|commits|compare)/[^\s<>()\[\]\"'`]*")
_HEXADECIMAL = re.compile(rf"\b[0-9a-f]{{{_LEAST_ID_DIGITS},64}}\b")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*([^\n`]*)$")
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")
_PATCH = re.compile(r"(?:diff --git |Index: \S|--- (?:a/|\S+\t)|\+\+\+ (?:b/|\S+\t))")
_IN_PATCH = re.compile(
    r"[+\-\\]|@@ |diff |index |--- |\+\+\+ |(?:new|deleted) file mode|similarity |rename | "
)
_TRAILER = re.compile(
    r"(?:(?:co-authored|signed-off|reviewed|acked|tested|reported|assisted|suggested)-by|change-id|cc)[ \t]*:",
    re.IGNORECASE,
)
_CLOSES = re.compile(r"(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)[ \t]*:?[ \t]+\S*#\d+[.,;]?", re.IGNORECASE)
_MERGED = re.compile(r"\s*\(#\d+\)\s*$")
"""GitHub's suffix to the title of a squashed pull request."""
_BULLET = re.compile(r"[ \t]*(?:[*+>-]|\d+[.)])?[ \t]*`*")


def is_prose(path: str) -> bool:
    """Return whether a file is documentation and not code, judged by its name."""
    return path.lower().endswith(_PROSE)


class Hint(StrEnum):
    """The kinds of hints that are removed from a text."""

    PATCH = "patch"
    LINK = "link"
    CODE = "line of the real change"
    FILE = "line about a changed file"
    TRAILER = "trailer"
    LATER = "text of a later time"


@dataclass(frozen=True, slots=True)
class RealChange:
    """The parts of a real change that could appear in the text of its task.

    Attributes:
        pull: number of its pull request; None without one.
        commits: ids of its commits.
        code: lines of code that it adds, stripped.
        paths: files of code that it changes.
    """

    pull: int | None
    commits: frozenset[str]
    code: frozenset[str]
    paths: frozenset[str]

    @classmethod
    def of(
        cls,
        changes: Iterable[FileChange],
        *,
        pull: int | None,
        commits: Iterable[str],
        tests: Collection[str],
    ) -> RealChange:
        """Collect the lines and paths of a change, without those of tests and documentation."""
        code: set[str] = set()
        paths: set[str] = set()
        for change in changes:
            if change.path in tests or is_prose(change.path):
                continue
            paths.add(change.path)
            code |= _lines(change.new) - _lines(change.old)
        wanted = {line for line in code if len(line) >= _LEAST_CODE_CHARS}
        return cls(pull, frozenset(commits), frozenset(sorted(wanted)[:_MOST_LINES]), frozenset(paths))


@dataclass(frozen=True, slots=True)
class TaskText:
    """A task as a person could have written it.

    Attributes:
        removed: number of removed places, by kind of hint.
    """

    title: str
    body: str
    removed: Mapping[str, int] = field(default_factory=dict)

    @property
    def whole(self) -> str:
        """The title as the first line, then the rest."""
        return f"{self.title}\n\n{self.body}".strip()


def task_text(title: str, body: str, real: RealChange, *, is_commit: bool = False) -> TaskText:
    """Return the text of a task without patches, links to the real change, and lines that quote it.

    Args:
        is_commit: whether it is a commit message, which describes the solution: its trailers, and lines that
            begin with a file of the change, are removed as well.
    """
    removed: Counter[str] = Counter()
    title, count = _MERGED.subn("", clean_name(title).text)
    removed.update({Hint.LINK: count} if count else {})
    title = _without_references(title, real, removed).strip()
    text = _without_patches(clean_words(body.replace("\r\n", "\n")).text, removed)
    lines = []
    for line in text.split("\n"):
        kind = _hint_in(line, real, is_commit=is_commit)
        if kind:
            removed[kind] += 1
        else:
            lines.append(_without_references(line, real, removed))
    body = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    return TaskText(title, body[:MOST_TASK_CHARS], dict(removed))


def _lines(version: FileVersion | None) -> set[str]:
    content = version.content if version else None
    if not content or b"\0" in content:
        return set()
    return {_plain(line) for line in content.decode("utf-8", "replace").split("\n")}


def _plain(line: str) -> str:
    return " ".join(line.split())


def _hint_in(line: str, real: RealChange, *, is_commit: bool) -> str:
    """Return why a line of the text must not be shown; empty if it may."""
    plain = _plain(line)
    if len(plain) >= _LEAST_CODE_CHARS and any(code in plain for code in real.code):
        return Hint.CODE
    if not is_commit:
        return ""
    if _TRAILER.match(plain):
        return Hint.TRAILER
    begins = _BULLET.sub("", line, count=1)
    return Hint.FILE if any(begins.startswith(path) for path in real.paths) else ""


def _without_references(line: str, real: RealChange, removed: Counter[str]) -> str:
    """Remove links to changes, and the number and ids of the real change, from a line."""

    def cut(pattern: re.Pattern[str], text: str, kind: str) -> str:
        text, count = pattern.subn(_REMOVED, text)
        if count:
            removed[kind] += count
        return text

    line = cut(_LINK, line, Hint.LINK)
    if real.pull is not None:
        line = cut(re.compile(rf"(?<![\w/])(?:GH-|#){real.pull}\b"), line, Hint.LINK)
    line, count = _CLOSES.subn("", line)
    removed.update({Hint.LINK: count} if count else {})
    for found in set(_HEXADECIMAL.findall(line)):
        if any(commit.startswith(found) for commit in real.commits):
            line = line.replace(found, _REMOVED)
            removed[Hint.LINK] += 1
    return line


def _without_patches(text: str, removed: Counter[str]) -> str:
    """Remove everything that `git apply` or `patch` accepts, inside and outside of code blocks."""
    kept: list[str] = []
    block: list[str] = []
    fence = ""
    in_patch = False
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if fence:
            block.append(line)
            if found and found[1].startswith(fence) and not found[2].strip():
                kept += _unless_patch(block, removed)
                fence, block = "", []
            continue
        if found:
            fence, block, in_patch = found[1], [line], False
        elif _PATCH.match(line) or _HUNK.match(line):
            removed[Hint.PATCH] += not in_patch
            in_patch = True
        elif not (in_patch and _IN_PATCH.match(line)):
            in_patch = False
            kept.append(line)
    return "\n".join(kept + _unless_patch(block, removed))


def _unless_patch(block: list[str], removed: Counter[str]) -> list[str]:
    """Return a block of code, or nothing if it is a patch."""
    named = bool(block) and block[0].strip().lstrip("`~ ").lower() in {"diff", "patch"}
    if named or any(_HUNK.match(line.lstrip()) or _PATCH.match(line.lstrip()) for line in block):
        removed[Hint.PATCH] += 1
        return []
    return block

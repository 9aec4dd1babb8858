"""Fills a repository's pull-request template with what the model wrote."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Places and names: https://docs.github.com/communities/using-templates-to-encourage-useful-issues-and-pull-requests
_FOLDERS = ("", ".github", "docs")
_NAMES = ("pull_request_template.md", "pull_request_template.txt", "pull_request_template")
_HEADING = re.compile(r"#{1,6}[ \t]+(?P<title>\S.*?)[ \t]*#*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_COMMENT = re.compile(r"<!--.*?-->\s*", re.DOTALL)
_DESCRIPTIVE = re.compile(r"descri|summary|what|change|overview|purpose", re.IGNORECASE)


def find_template(paths: list[str]) -> str | None:
    """The path of the repository's pull-request template among its files, in any spelling of case."""
    by_lower = {path.lower(): path for path in paths}
    for folder in _FOLDERS:
        for name in _NAMES:
            if found := by_lower.get(str(PurePosixPath(folder, name))):
                return found
    return None


def fill_template(template: str, body: str) -> str:
    """Put the body under the template's describing heading and keep its other sections.

    A body that already has all of the template's headings is taken as the filled-in template.
    Comments, which tell authors what to write, are dropped.
    """
    plain = _COMMENT.sub("", template).strip()
    headings = list(_headings(plain))
    if not headings:
        return f"{body}\n\n{plain}".strip()
    written = {title.lower() for title, _ in _headings(body)}
    if all(title.lower() in written for title, _ in headings):
        return body
    _, end = next((heading for heading in headings if _DESCRIPTIVE.search(heading[0])), headings[0])
    return f"{plain[:end]}\n\n{body}\n{plain[end:]}".strip()


def _headings(text: str) -> Iterator[tuple[str, int]]:
    """The titles of headings, and where each ends. What stands in a block of code is none."""
    fence, at = "", 0
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if fence:
            fence = "" if mark and mark[1].startswith(fence) else fence
        elif mark:
            fence = mark[1]
        elif heading := _HEADING.match(line.rstrip("\n")):
            yield heading["title"], at + heading.end()
        at += len(line)

"""Fills a repository's pull-request template with what the model wrote."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

# Places and names: https://docs.github.com/communities/using-templates-to-encourage-useful-issues-and-pull-requests
_FOLDERS = ("", ".github", "docs")
_NAMES = ("pull_request_template.md", "pull_request_template.txt", "pull_request_template")
_HEADING = re.compile(r"^#{1,6}[ \t]+(?P<title>\S.*?)[ \t]*#*$", re.MULTILINE)
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
    headings = list(_HEADING.finditer(plain))
    if not headings:
        return f"{body}\n\n{plain}".strip()
    written = {match["title"].lower() for match in _HEADING.finditer(body)}
    if all(match["title"].lower() in written for match in headings):
        return body
    chosen = next((match for match in headings if _DESCRIPTIVE.search(match["title"])), headings[0])
    before, after = plain[: chosen.end()], plain[chosen.end() :]
    return f"{before}\n\n{body}\n{after}".strip()

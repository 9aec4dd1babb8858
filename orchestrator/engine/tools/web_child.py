"""Works on what strangers wrote, in a process of its own that can be stopped: readable text, and matches.

It is run as a program by its path, with nothing of this package imported: it reads one JSON object from
standard input and answers with one.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from contextlib import suppress
from typing import Any

CPU_SECONDS = 30
MEMORY_BYTES = 2 * 1024**3
MAX_MATCHES = 2_000
MAX_EXTRACTED_CHARACTERS = 5_000_000


def extract(page: str, url: str) -> dict[str, Any]:
    """The title and the readable text of an HTML page, as Markdown with its links."""
    import trafilatura

    tree = trafilatura.load_html(page)
    if tree is None:
        return {"title": "", "text": ""}
    title = " ".join((tree.findtext(".//title") or "").split())
    text = trafilatura.extract(
        page, url=url, output_format="markdown", include_links=True, include_comments=True, favor_recall=True
    )
    return {"title": title, "text": (text or "")[:MAX_EXTRACTED_CHARACTERS]}


def find(pattern: str, paragraphs: list[str]) -> dict[str, Any]:
    """Where the pattern matches, as `[paragraph, start, end]`; matches of nothing do not count."""
    try:
        expression = re.compile(pattern, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        return {"invalid": str(error)}
    found: list[tuple[int, int, int]] = []
    for number, paragraph in enumerate(paragraphs):
        for match in expression.finditer(paragraph):
            if match.end() > match.start():
                found.append((number, match.start(), match.end()))
                if len(found) >= MAX_MATCHES:
                    return {"found": found, "more": True}
    return {"found": found, "more": False}


def main() -> None:
    """Do what standard input asks for."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    with suppress(OSError, ValueError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    asked = json.load(sys.stdin.buffer)
    work = extract if asked.pop("do") == "extract" else find
    json.dump(work(**asked), sys.stdout)


if __name__ == "__main__":
    main()

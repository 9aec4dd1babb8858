"""The readers of foreign text in this plug-in, for the table of `tests.fuzz.foreign`."""

from __future__ import annotations

from contextlib import suppress

from orchestrator.core.errors import PullwrightError
from orchestrator.plugins.web import client


def page(text: str) -> None:
    for kind in ("", "text/html"):
        with suppress(PullwrightError):
            client.page_text(kind, text.encode("utf-8", "replace"))


READERS = {"page of the web": page}
KNOWN: list[tuple[str, tuple[str, str, str]]] = []
"""Texts for which a reader once took too long."""

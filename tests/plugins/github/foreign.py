"""The readers of foreign text in this plug-in, for the table of `tests.fuzz.foreign`."""

from __future__ import annotations

from orchestrator.plugins.github import parsing, pull_requests

READERS = {
    "sections of a comment": pull_requests.sections_of,
    "comment, normalized": pull_requests.normalized,
    "signed image": parsing._SIGNED.search,
}
KNOWN: list[tuple[str, tuple[str, str, str]]] = []
"""Texts for which a reader once took too long."""

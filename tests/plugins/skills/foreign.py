"""The readers of foreign text in this plug-in, for the table of `tests.fuzz.foreign`."""

from __future__ import annotations

from orchestrator.plugins.skills import skills


def front_matter(text: str) -> None:
    for front in (f"---\n{text}", f"---\n{text}\n---\nx", f"---\nname: a\ndescription: {text}\n---\nx"):
        skills._split_front_matter(front)


READERS = {"skill": front_matter}
KNOWN: list[tuple[str, tuple[str, str, str]]] = []
"""Texts for which a reader once took too long."""

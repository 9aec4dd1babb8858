"""The readers of foreign text in this plug-in, for the table of `tests.fuzz.foreign`."""

from __future__ import annotations

from orchestrator.plugins.memory import embedding, items, lessons, tools

READERS = {
    "pieces of a document": lambda text: [*tools.pieces_of(text)],
    "significant words": items.significant_words,
    "lexical vector": embedding._lexical_vector,
    "own words": lessons.own_words,
}
KNOWN: list[tuple[str, tuple[str, str, str]]] = []
"""Texts for which a reader once took too long."""

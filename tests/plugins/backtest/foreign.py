"""The readers of foreign text in this plug-in, for the table of `tests.fuzz.foreign`."""

from __future__ import annotations

from orchestrator.plugins.backtest import past_changes


def past(text: str) -> None:
    real = past_changes.RealChange(
        7, frozenset({"a" * 40}), frozenset({"x = 1 + 2 + 3 + 4"}), frozenset({"src/a.py"})
    )
    past_changes.task_text(text[:1_000], text, real, is_commit=True)


READERS = {"task of the past": past}
KNOWN = [("task of the past", ("", " ", "x"))]
"""Texts for which a reader once took too long."""

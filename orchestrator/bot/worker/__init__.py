"""Cycles one after another, and where their tasks come from."""

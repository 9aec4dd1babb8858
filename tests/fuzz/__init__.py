"""Fuzzing of what reads text that a model wrote. Run: python -m tests.fuzz."""

"""Talking with a person at a terminal: the same session, journal and guards as a cycle's, without a task."""

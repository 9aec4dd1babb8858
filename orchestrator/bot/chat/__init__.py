"""Conversations with a person at a terminal: session, journal and guards as in a cycle, without a task."""

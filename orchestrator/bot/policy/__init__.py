"""Checks of text that comes in, of changes and text that go out, and of paths that wait for a person."""

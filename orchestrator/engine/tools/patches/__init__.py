"""Patches: what they ask for, where their hunks belong in a file, and how all of it is written."""

"""Patches: their formats, the places of their hunks in a file, and how all of a patch is written."""

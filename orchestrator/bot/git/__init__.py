"""Runs git safely: clone, commit, push, merge, mirror."""

"""Tries models and settings on past changes of a repository, whose own tests judge each try."""

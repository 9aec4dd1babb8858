"""Pullwright: takes a task from a backlog, changes the repository, opens a pull request."""

__version__ = "0.1.0"

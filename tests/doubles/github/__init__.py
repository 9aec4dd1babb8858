"""A GitHub double: `with GitHub(folder) as github: ...`. See `server.GitHub`."""

from tests.doubles.github.faults import Fault, lost_reply, primary_limit, secondary_limit, server_error
from tests.doubles.github.server import GitHub, Recorded
from tests.doubles.github.state import App, Comment, Grant, Issue, Pull, Repo

__all__ = [
    "App",
    "Comment",
    "Fault",
    "GitHub",
    "Grant",
    "Issue",
    "Pull",
    "Recorded",
    "Repo",
    "lost_reply",
    "primary_limit",
    "secondary_limit",
    "server_error",
]

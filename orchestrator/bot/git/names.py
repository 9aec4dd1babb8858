"""Checks of names that come from elsewhere, before git sees them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrator.bot.git.failures import printable
from orchestrator.core.errors import WorkspaceError
from orchestrator.core.git_names import is_branch_name

if TYPE_CHECKING:
    from collections.abc import Collection

# A task's key: what every file system and every git takes for one and the same name.
_KEY = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
_MOST_KEY_CHARACTERS = 100
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def is_commit_id(text: str) -> bool:
    """Whether the text is a full object id, SHA-1 or SHA-256."""
    return _COMMIT.fullmatch(text) is not None


def in_the_way(name: str, there: Collection[str], *, below: bool = True) -> str | None:
    """The reference that keeps one of this name from being made, or None.

    Git keeps references as files, so `a` and `a/b` exclude each other; on some servers `A` and `a` do.

    Args:
        name: a full name.
        there: the full names of those that exist. `name` itself is not in its own way.
        below: whether those below `name` count too.
    """
    folded = name.casefold()
    above = {folded[:at] for at, letter in enumerate(folded) if letter == "/"}
    for one in there:
        other = one.casefold()
        if one == name:
            continue
        if other == folded or other in above or (below and other.startswith(f"{folded}/")):
            return one
    return None


def plain_branch(text: str) -> str:
    """The name, if it can be a branch's.

    Raises:
        WorkspaceError: it cannot.
    """
    if not is_branch_name(text):
        message = f"{printable(text)!r} cannot be the name of a branch"
        raise WorkspaceError(message)
    return text


def plain_key(text: str) -> str:
    """The text, if it can be the key of a task: the last part of its references' names.

    Raises:
        WorkspaceError: it cannot.
    """
    if len(text) > _MOST_KEY_CHARACTERS or not _KEY.fullmatch(text) or text.endswith(".lock"):
        message = f"{printable(text)[:_MOST_KEY_CHARACTERS]!r} is not the key of a task, such as issue-12"
        raise WorkspaceError(message)
    return text

"""What a test lets people do on the double: be collaborators, label, rename and edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.doubles.github.state import BodyEdit, Happening

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from tests.doubles.github.server import GitHub
    from tests.doubles.github.state import Repo, Thread

PERMISSIONS = {"triage": "read", "maintain": "write"}
"""What GitHub says of the roles that are finer than its permissions."""


def collaborate(repo: Repo, login: str, role: str, *, based_on: str = "") -> None:
    """Give somebody a role; `based_on` is the permission of a role that an organization made up."""
    repo.people[login.lower()] = (based_on or PERMISSIONS.get(role, role), role)


def label(github: GitHub, thread: Thread, name: str, by: str, at: datetime | None = None) -> datetime:
    """Somebody puts a label on."""
    thread.labels.append(name)
    return _happen(github, thread, "labeled", by, at, name)


def unlabel(github: GitHub, thread: Thread, name: str, by: str) -> datetime:
    """Somebody takes a label off."""
    thread.labels.remove(name)
    return _happen(github, thread, "unlabeled", by, None, name)


def rename(github: GitHub, thread: Thread, title: str, by: str, at: datetime | None = None) -> datetime:
    """Somebody gives it another title."""
    moment = at or github.tick()
    happening = Happening(github.next_id(), "renamed", by, moment, old=thread.title, new=title)
    thread.title = title
    thread.happenings.append(happening)
    thread.updated_at = max(thread.updated_at, moment)
    return moment


def edit(github: GitHub, thread: Thread, body: str, by: str, at: datetime | None = None) -> datetime:
    """Somebody writes another body."""
    moment = at or github.tick()
    if not thread.body_edits:
        thread.body_edits.append(BodyEdit(thread.author, thread.created_at, thread.body or ""))
    thread.body = body
    thread.body_edits.append(BodyEdit(by, moment, body))
    thread.updated_at = max(thread.updated_at, moment)
    return moment


def label_all(github: GitHub, thread: Thread, names: Iterable[str], by: str) -> None:
    """The labels that an issue is created with."""
    for name in names:
        label(github, thread, name, by, thread.created_at)


def _happen(  # noqa: PLR0913, PLR0917  the parts of one event
    github: GitHub, thread: Thread, kind: str, by: str, at: datetime | None, name: str
) -> datetime:
    moment = at or github.tick()
    thread.happenings.append(Happening(github.next_id(), kind, by, moment, name))
    thread.updated_at = max(thread.updated_at, moment)
    return moment

"""Converts GitHub's JSON into our values. JSON of another form raises KeyError, TypeError or ValueError."""

from __future__ import annotations

import base64
import html
import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from orchestrator.bot.forge.base import (
    BOT_ENDING,
    Comment,
    Edit,
    Issue,
    Permission,
    PullRequest,
    PullRequestState,
    Repository,
)
from orchestrator.core.errors import ForgeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")
LOGIN = re.compile(_USER.pattern + r"(?:\[bot\])?")
"""The possible logins of people and bots. Nothing else is put into a path or looked up."""


@dataclass(frozen=True, slots=True)
class LabelEvent:
    """An event that adds a label to an issue or removes it."""

    id: int
    label: str
    is_on: bool
    actor: str
    at: datetime


def to_login(user: Mapping[str, Any] | None) -> str:
    """Return a user's login, a bot's with `[bot]` at its end; empty if the account does not count as anybody.

    GraphQL returns bots without `[bot]`, which could be a person's login. An imported account (a mannequin)
    may have anybody's name. GitHub attributes the acts of deleted accounts to `ghost`:
    docs.github.com/account-and-profile/concepts/account-management
    """
    if user is None:
        return ""
    login, kind = str(user["login"]), user["__typename"] if "__typename" in user else user["type"]
    name = login.removesuffix(BOT_ENDING) if kind == "Bot" else login
    if kind not in {"User", "Bot"} or not _USER.fullmatch(name) or name.lower() == "ghost":
        return ""
    return name + BOT_ENDING if kind == "Bot" else name


def to_permission(data: Mapping[str, Any], login: str) -> Permission:
    """Return an account's permission. An organization's custom role counts as the permission behind it."""
    user = data["user"]
    if user is not None and str(user["login"]).lower() != login.lower():
        return Permission.NONE
    permission = Permission(data["permission"])
    roles = {Permission.WRITE: Permission.MAINTAIN, Permission.READ: Permission.TRIAGE}
    role = roles.get(permission)
    return role if role is not None and data.get("role_name") == role.value else permission


def to_event(data: Mapping[str, Any]) -> LabelEvent | Edit | None:
    """Return a change of an issue's labels or title; None for any other event."""
    kind = data["event"]
    if kind not in {"labeled", "unlabeled", "renamed"}:
        return None
    actor, at = to_login(data["actor"]), to_datetime(data["created_at"])
    if kind == "renamed":
        return Edit(actor, at, "title")
    return LabelEvent(int(data["id"]), str(data["label"]["name"]), kind == "labeled", actor, at)


def to_body_edit(data: Mapping[str, Any]) -> Edit:
    """Return an edit of a body, from GraphQL."""
    return Edit(to_login(data["editor"]), to_datetime(data["editedAt"]), "body")


def to_datetime(text: str) -> datetime:
    """Return a time of GitHub's, which has a time zone.

    Raises:
        ValueError: the text is no time, or has no time zone.
    """
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(text)
    return time


def to_datetime_or_none(text: str | None) -> datetime | None:
    """Return the time as `to_datetime` does; None for an empty text or None."""
    return to_datetime(text) if text else None


_SIGNED = re.compile(r"""src="(https://private-user-images\.githubusercontent\.com/[^"\s]+)\"""")


def to_signed_image(data: Mapping[str, Any], name: str) -> str | None:
    """Return the address of the image of this name in GitHub's HTML of an issue; None if it is not there."""
    found = (html.unescape(url) for url in _SIGNED.findall(str(data.get("body_html") or "")))
    return next((url for url in found if name and name in urlsplit(url).path), None)


def to_comment(data: Mapping[str, Any]) -> Comment:
    """Return a comment."""
    return Comment(
        id=int(data["id"]),
        author=to_login(data["user"]),
        body=data["body"] or "",
        created_at=to_datetime(data["created_at"]),
        url=data["html_url"],
        updated_at=to_datetime_or_none(data.get("updated_at")),
    )


def to_repository(data: Mapping[str, Any], *, is_empty: bool) -> Repository:
    """Return a repository."""
    branch = None if is_empty else str(data["default_branch"])
    return Repository(data["full_name"], data["clone_url"], branch, data["html_url"])


def to_issue(data: Mapping[str, Any]) -> Issue | None:
    """Return an issue; None for a pull request, which GitHub lists among issues."""
    if "pull_request" in data:
        return None
    return Issue(
        number=int(data["number"]),
        title=data["title"],
        body=data["body"] or "",
        is_open=data["state"] == "open",
        labels=to_labels(data["labels"]),
        author=to_login(data["user"]),
        url=data["html_url"],
        created_at=to_datetime(data["created_at"]),
        # Every assignee counts, also an account for which `to_login` returns nothing.
        assignees=tuple(to_login(user) or str(user["login"]) for user in data.get("assignees") or ()),
        updated_at=to_datetime_or_none(data.get("updated_at")),
        association=str(data.get("author_association") or ""),
        blocked_by=int((data.get("issue_dependencies_summary") or {}).get("blocked_by") or 0),
        open_parts=_open_parts(data.get("sub_issues_summary") or {}),
    )


def _open_parts(summary: Mapping[str, Any]) -> int:
    return max(int(summary.get("total") or 0) - int(summary.get("completed") or 0), 0)


def to_labels(data: Iterable[Any]) -> tuple[str, ...]:
    """Return the names of labels."""
    return tuple(label if isinstance(label, str) else label["name"] for label in data)


def to_pull_request(data: Mapping[str, Any]) -> PullRequest:
    """Return a pull request."""
    state = PullRequestState.MERGED if data["merged_at"] else PullRequestState(data["state"])
    return PullRequest(
        number=int(data["number"]),
        title=data["title"],
        body=data["body"] or "",
        url=data["html_url"],
        draft=bool(data.get("draft")),
        state=state,
        branch=data["head"]["ref"],
        base=data["base"]["ref"],
        commit=data["head"]["sha"],
        author=to_login(data.get("user")),
        labels=to_labels(data.get("labels") or ()),
        created_at=to_datetime_or_none(data.get("created_at")),
        updated_at=to_datetime_or_none(data.get("updated_at")),
        # This reference stays when the branch or its fork is deleted.
        reference=f"refs/pull/{int(data['number'])}/head",
        base_commit=str(data["base"].get("sha") or ""),
    )


def to_own_pull_request(data: Mapping[str, Any]) -> PullRequest | None:
    """Return a pull request; None if its branch is in another repository, or in a deleted one."""
    head = data["head"]["repo"]
    if head is None or head["id"] != data["base"]["repo"]["id"]:
        return None
    return to_pull_request(data)


def to_listed_pull_request(data: Mapping[str, Any]) -> PullRequest | None:
    """Return the same as `to_own_pull_request`, but a substitute for an unreadable pull request.

    The substitute has its branch and number and counts as open unless it is closed. A task is known to be
    proposed by its branch, and must not be proposed twice.
    """
    try:
        return to_own_pull_request(data)
    except (KeyError, TypeError, ValueError, AttributeError):
        branch, number = data["head"]["ref"], data["number"]
        if not isinstance(branch, str) or not isinstance(number, int):
            raise
        is_closed = data.get("state") == PullRequestState.CLOSED.value
        state = PullRequestState.CLOSED if is_closed else PullRequestState.OPEN
        url = str(data.get("html_url") or f"pull request {number}")
        return PullRequest(number, "", "", url, draft=True, state=state, branch=branch, base="", commit="")


def to_text(data: Any) -> str | None:
    """Return a file's text; None for a folder or a submodule.

    Raises:
        ForgeError: the file is over one megabyte, which GitHub does not return in this way.
    """
    if isinstance(data, list) or data["type"] != "file":
        return None
    if data["encoding"] != "base64":
        raise ForgeError(f"cannot read {data['path']}: it is over one megabyte")
    return base64.b64decode(data["content"]).decode("utf-8-sig", errors="replace")

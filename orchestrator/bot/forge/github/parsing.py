"""GitHub's JSON becomes our nouns. A form that is not GitHub's raises KeyError, TypeError or ValueError."""

from __future__ import annotations

import base64
import html
import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from orchestrator.bot.forge.base import (
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
_BOT = "[bot]"
LOGIN = re.compile(_USER.pattern + r"(?:\[bot\])?")
"""What a person or a bot may be called. Nothing else is put into a path, or asked about."""


@dataclass(frozen=True, slots=True)
class LabelEvent:
    """A label went on an issue, or came off."""

    id: int
    label: str
    is_on: bool
    actor: str
    at: datetime


def to_login(user: Mapping[str, Any] | None) -> str:
    """Whose act it was: a person's login, a bot's with `[bot]` at its end, or empty for nobody.

    GraphQL gives bots without `[bot]`, which could be a person's login. An imported account (a
    mannequin) may be called like anybody. What a deleted account did is credited to `ghost`:
    docs.github.com/account-and-profile/concepts/account-management
    """
    if user is None:
        return ""
    login, kind = str(user["login"]), user["__typename"] if "__typename" in user else user["type"]
    name = login.removesuffix(_BOT) if kind == "Bot" else login
    if kind not in {"User", "Bot"} or not _USER.fullmatch(name) or name.lower() == "ghost":
        return ""
    return name + _BOT if kind == "Bot" else name


def is_bot(login: str) -> bool:
    """Tell whether it is the name of a bot, as `to_login` gives it."""
    return login.endswith(_BOT)


def to_permission(data: Mapping[str, Any], login: str) -> Permission:
    """Tell what somebody may do. A role that an organization made up is worth the permission that it is based on."""
    user = data["user"]
    if user is not None and str(user["login"]).lower() != login.lower():
        return Permission.NONE
    permission = Permission(data["permission"])
    roles = {Permission.WRITE: Permission.MAINTAIN, Permission.READ: Permission.TRIAGE}
    role = roles.get(permission)
    return role if role is not None and data.get("role_name") == role.value else permission


def to_event(data: Mapping[str, Any]) -> LabelEvent | Edit | None:
    """Tell what happened to an issue's labels or title, or None for anything else."""
    kind = data["event"]
    if kind not in {"labeled", "unlabeled", "renamed"}:
        return None
    actor, at = to_login(data["actor"]), to_time(data["created_at"])
    if kind == "renamed":
        return Edit(actor, at, "title")
    return LabelEvent(int(data["id"]), str(data["label"]["name"]), kind == "labeled", actor, at)


def to_body_edit(data: Mapping[str, Any]) -> Edit:
    """Read a change of a body, from GraphQL."""
    return Edit(to_login(data["editor"]), to_time(data["editedAt"]), "body")


def to_time(text: str) -> datetime:
    """Read a time of GitHub's, which has a zone.

    Raises:
        ValueError: it is none, or has no zone.
    """
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(text)
    return time


def to_time_or_none(text: str | None) -> datetime | None:
    """Do as `to_time`, or return None where there is no text."""
    return to_time(text) if text else None


_SIGNED = re.compile(r"""src="(https://private-user-images\.githubusercontent\.com/[^"\s]+)\"""")


def to_signed_image(data: Mapping[str, Any], name: str) -> str | None:
    """Find where GitHub's HTML of an issue has the image of this name; None where it has not."""
    found = (html.unescape(url) for url in _SIGNED.findall(str(data.get("body_html") or "")))
    return next((url for url in found if name and name in urlsplit(url).path), None)


def to_comment(data: Mapping[str, Any]) -> Comment:
    """Read a comment."""
    return Comment(
        id=int(data["id"]),
        author=to_login(data["user"]),
        body=data["body"] or "",
        created_at=to_time(data["created_at"]),
        url=data["html_url"],
        updated_at=to_time_or_none(data.get("updated_at")),
    )


def to_repository(data: Mapping[str, Any], *, is_empty: bool) -> Repository:
    """Read a repository."""
    branch = None if is_empty else str(data["default_branch"])
    return Repository(data["full_name"], data["clone_url"], branch, data["html_url"])


def to_issue(data: Mapping[str, Any]) -> Issue | None:
    """Read an issue. None for a pull request, which GitHub lists among them."""
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
        created_at=to_time(data["created_at"]),
        # An assignee is never nobody, whether or not the account may do anything.
        assignees=tuple(to_login(user) or str(user["login"]) for user in data.get("assignees") or ()),
        updated_at=to_time_or_none(data.get("updated_at")),
    )


def to_labels(data: Iterable[Any]) -> tuple[str, ...]:
    """Return the names of labels."""
    return tuple(label if isinstance(label, str) else label["name"] for label in data)


def to_pull_request(data: Mapping[str, Any]) -> PullRequest:
    """Read a pull request."""
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
        created_at=to_time_or_none(data.get("created_at")),
        updated_at=to_time_or_none(data.get("updated_at")),
        # There whatever becomes of the branch, and of the fork that it is in.
        reference=f"refs/pull/{int(data['number'])}/head",
        base_commit=str(data["base"].get("sha") or ""),
    )


def to_own_pull_request(data: Mapping[str, Any]) -> PullRequest | None:
    """Read a pull request. None for one whose branch is in another repository, or in one that is gone."""
    head = data["head"]["repo"]
    if head is None or head["id"] != data["base"]["repo"]["id"]:
        return None
    return to_pull_request(data)


def to_listed_pull_request(data: Mapping[str, Any]) -> PullRequest | None:
    """Do as `to_own_pull_request`; one that cannot be read is still known by its branch, and counts as open.

    By their branches tasks are known that are proposed already: none may be proposed twice.
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
        ForgeError: the file is over one megabyte, which GitHub does not give in this way.
    """
    if isinstance(data, list) or data["type"] != "file":
        return None
    if data["encoding"] != "base64":
        raise ForgeError(f"cannot read {data['path']}: it is over one megabyte")
    return base64.b64decode(data["content"]).decode("utf-8-sig", errors="replace")

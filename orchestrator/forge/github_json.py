"""GitHub's JSON becomes our nouns. A form that is not GitHub's raises KeyError, TypeError or ValueError."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ForgeError
from orchestrator.forge.base import Issue, PullRequest, PullRequestState, Repository

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment on an issue."""

    id: int
    body: str
    author: str
    by_bot: bool
    url: str


def to_comment(data: Mapping[str, Any]) -> Comment:
    """A comment."""
    user = data["user"] or {"login": "ghost", "type": "User"}
    return Comment(int(data["id"]), data["body"], user["login"], user["type"] == "Bot", data["html_url"])


def to_repository(data: Mapping[str, Any], *, is_empty: bool) -> Repository:
    """A repository."""
    branch = None if is_empty else str(data["default_branch"])
    return Repository(data["full_name"], data["clone_url"], branch, data["html_url"])


def to_issue(data: Mapping[str, Any]) -> Issue | None:
    """An issue, or None for a pull request, which GitHub lists among them."""
    if "pull_request" in data:
        return None
    return Issue(
        number=int(data["number"]),
        title=data["title"],
        body=data["body"] or "",
        is_open=data["state"] == "open",
        labels=tuple(label if isinstance(label, str) else label["name"] for label in data["labels"]),
        author=(data["user"] or {"login": "ghost"})["login"],
        url=data["html_url"],
        created_at=datetime.fromisoformat(data["created_at"]),
    )


def to_pull_request(data: Mapping[str, Any]) -> PullRequest:
    """A pull request."""
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
    )


def to_own_pull_request(data: Mapping[str, Any]) -> PullRequest | None:
    """A pull request, or None for one whose branch is in another repository, or in one that is gone."""
    head = data["head"]["repo"]
    if head is None or head["id"] != data["base"]["repo"]["id"]:
        return None
    return to_pull_request(data)


def to_text(data: Any) -> str | None:
    """A file's text; None for a folder or a submodule.

    Raises:
        ForgeError: the file is over one megabyte, which GitHub does not give in this way.
    """
    if isinstance(data, list) or data["type"] != "file":
        return None
    if data["encoding"] != "base64":
        raise ForgeError(f"cannot read {data['path']}: it is over one megabyte")
    return base64.b64decode(data["content"]).decode("utf-8-sig", errors="replace")

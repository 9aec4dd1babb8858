"""What is said on GitHub's issues and pull requests, in REST: comments, ours among them, and labels."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from orchestrator.core.errors import ForgePermissionError
from orchestrator.forge.calls import Request
from orchestrator.forge.github_json import is_bot, to_comment
from orchestrator.forge.github_place import RestPlace

if TYPE_CHECKING:
    from orchestrator.forge.base import Comment

LONGEST_COMMENT = 65_536
"""Characters that GitHub takes as a comment or as a pull request's body."""
_COMMENTS = 200
_COMMENT_PAGES = 3


class RestThreads(RestPlace):
    """Comments and labels of issues and pull requests, which share their numbers."""

    _login: str | None = None

    def comments(self, number: int) -> list[Comment]:
        """The newest comments on an issue or pull request, oldest of them first; at most 200."""
        request = self._request("GET", f"/issues/{number}/comments", f"read the comments on #{number}")
        return self._calls.last_pages(request, to_comment, most=_COMMENT_PAGES)[-_COMMENTS:]

    def ensure_question(self, issue: int | None, key: str, body: str) -> str | None:
        """Put a question on the issue, or replace the one with this key. None without an issue."""
        return None if issue is None else self._ensure_comment(issue, "question", key, body)

    def ensure_comment(self, number: int, key: str, body: str) -> str:
        """Put a comment on an issue or pull request, or replace the one with this key."""
        return self._ensure_comment(number, "comment", key, body)

    def ensure_label(self, number: int, label: str) -> None:
        """Put a label on an issue or pull request, unless it is there. GitHub makes a label that is new."""
        self._need_token(f"put a label on #{number}")
        place, doing = f"/issues/{number}/labels", f"put the label {label!r} on #{number}"
        there = self._calls.pages(self._request("GET", place, doing), lambda data: str(data["name"]))
        if label.lower() not in {name.lower() for name in there}:
            # What is there stays, so that it may be sent again after a lost reply.
            self._calls.call(self._request("POST", place, doing, body={"labels": [label]}), repeatable=True)

    def _ensure_comment(self, number: int, kind: str, key: str, body: str) -> str:
        self._need_token(f"comment on issue #{number}")
        marker = f"<!-- pullwright:{kind}:{quote(key, safe='')} -->"
        text = f"{body[: LONGEST_COMMENT - len(marker) - 2]}\n\n{marker}"
        comment, _ = self._ensure(
            lambda: self._own_comment(number, marker), lambda: self._comment(number, text)
        )
        if same_lines(comment.body) != same_lines(text):
            place, doing = f"/issues/comments/{comment.id}", f"update the comment on issue #{number}"
            self._calls.read(self._request("PATCH", place, doing, body={"body": text}), to_comment)
        return comment.url

    def _own_comment(self, issue: int, marker: str) -> Comment | None:
        """Our comment with the marker. Somebody else may have quoted or planted it, so the author counts."""
        request = self._request("GET", f"/issues/{issue}/comments", f"read the comments on issue #{issue}")
        marked = [comment for comment in self._calls.pages(request, to_comment) if marker in comment.body]
        if not marked:
            return None
        me = self._own_login()
        return next((c for c in marked if (is_bot(c.author) if me is None else c.author == me)), None)

    def _own_login(self) -> str | None:
        """Our user name. None for an app and a workflow's token, which GitHub does not tell theirs."""
        if self._login is None and not self._is_app:
            try:
                request = Request("GET", "/user", "ask whose the token is")
                self._login = self._calls.read(request, lambda data: str(data["login"]))
            except ForgePermissionError:
                return None
        return self._login

    def _comment(self, issue: int, text: str) -> Comment:
        request = self._request(
            "POST", f"/issues/{issue}/comments", f"comment on issue #{issue}", body={"body": text}
        )
        return self._calls.read(request, to_comment)


def same_lines(text: str) -> str:
    """Text as it is compared: GitHub's web pages write other line ends, and trim."""
    return text.replace("\r\n", "\n").strip()

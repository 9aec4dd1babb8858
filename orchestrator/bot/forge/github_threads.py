"""What is said on GitHub's issues and pull requests, in REST: comments, ours among them, and labels."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote

from orchestrator.bot.forge.comment_sections import (
    LONGEST_COMMENT,
    composed,
    is_of_one_key,
    same_lines,
    sections_of,
    with_section,
)
from orchestrator.bot.forge.github_json import is_bot, to_comment
from orchestrator.bot.forge.github_token import RestToken
from orchestrator.core.errors import ForgeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.bot.forge.base import Comment

_COMMENTS = 200
_COMMENT_PAGES = 3


class RestThreads(RestToken):
    """Comments and labels of issues and pull requests, which share their numbers."""

    def comments(self, number: int) -> list[Comment]:
        """The newest comments on an issue or pull request, oldest of them first; at most 200."""
        request = self._request("GET", f"/issues/{number}/comments", f"read the comments on #{number}")
        return self._calls.last_pages(request, to_comment, most=_COMMENT_PAGES)[-_COMMENTS:]

    def ensure_question(self, issue: int | None, key: str, body: str) -> str | None:
        """Put a question on the issue, or replace the one with this key. None without an issue.

        It is a comment of its own, because a comment that changes notifies nobody.
        """
        if issue is None:
            return None
        self._need_token(f"comment on #{issue}")
        marker = f"<!-- pullwright:question:{quote(key, safe='')} -->"
        text = f"{body[: LONGEST_COMMENT - len(marker) - 2]}\n\n{marker}"

        def ours() -> Comment | None:
            return next(
                iter(self._own(issue, lambda said: same_lines(said).rpartition("\n")[2] == marker)), None
            )

        comment, _ = self._ensure(ours, lambda: self._comment(issue, text))
        return self._changed(comment, issue, text).url

    def ensure_comment(self, number: int, key: str, body: str) -> str:
        """Put a section into our one comment, or replace it there; an empty one removes it.

        What an earlier version wrote, a comment for each key, becomes one comment here, and so do
        two that were made at the same moment.
        """
        self._need_token(f"comment on #{number}")
        ours = self._own_comments(number)
        if not ours:
            alone = with_section({}, key, body)
            if not alone:
                return self._thread_url(number)
            made, _ = self._ensure(
                lambda: next(iter(self._own_comments(number)), None),
                lambda: self._comment(number, composed(alone, key)),
            )
            ours = [made]
        first, *others = ours
        sections: dict[str, str] = {}
        for comment in (first, *others):
            found = sections_of(comment.body) or {}
            sections |= {name: text for name, text in found.items() if name not in sections}
        wanted = with_section(sections, key, body)
        if wanted:
            self._changed(first, number, composed(wanted, key))
        for comment in others if wanted else (first, *others):
            self._delete(comment, number)
        return first.url if wanted else self._thread_url(number)

    def ensure_label(self, number: int, label: str) -> None:
        """Put a label on an issue or pull request, unless it is there. GitHub makes a label that is new."""
        self._need_token(f"put a label on #{number}")
        place, doing = f"/issues/{number}/labels", f"put the label {label!r} on #{number}"
        there = self._calls.pages(self._request("GET", place, doing), lambda data: str(data["name"]))
        if label.lower() not in {name.lower() for name in there}:
            # What is there stays, so that it may be sent again after a lost reply.
            self._calls.call(self._request("POST", place, doing, body={"labels": [label]}), repeatable=True)

    def remove_label(self, number: int, label: str) -> None:
        """Take a label off an issue or pull request, if it is there."""
        self._need_token(f"take a label off #{number}")
        if not label.strip("."):
            raise ForgeError(f"cannot take the label {label!r} off #{number}: it is no label")
        place, doing = f"/issues/{number}/labels", f"take the label {label!r} off #{number}"
        there = self._calls.pages(self._request("GET", place, doing), lambda data: str(data["name"]))
        if label.lower() in {name.lower() for name in there}:
            request = self._request("DELETE", f"{place}/{quote(label, safe='')}", doing)
            # After a lost reply it is not there any more.
            self._calls.call(request, accept=(HTTPStatus.NOT_FOUND,))

    def _own_comments(self, number: int) -> list[Comment]:
        """Our comment with sections, and others that should be in it, an earlier version's last."""
        found = self._own(number, lambda said: sections_of(said) is not None)
        found.sort(key=lambda comment: is_of_one_key(comment.body))
        return found if self.own_login() else found[:1]

    def _own(self, number: int, is_meant: Callable[[str], bool]) -> list[Comment]:
        """Our comments of this form. Somebody else may have quoted or planted a marker, so the author counts."""
        request = self._request("GET", f"/issues/{number}/comments", f"read the comments on #{number}")
        found = [comment for comment in self._calls.pages(request, to_comment) if is_meant(comment.body)]
        if not found:
            return []
        me = self.own_login()
        return [one for one in found if (is_bot(one.author) if me is None else one.author == me)]

    def _changed(self, comment: Comment, number: int, text: str) -> Comment:
        if same_lines(comment.body) == same_lines(text):
            return comment
        place, doing = f"/issues/comments/{comment.id}", f"update the comment on #{number}"
        return self._calls.read(self._request("PATCH", place, doing, body={"body": text}), to_comment)

    def _delete(self, comment: Comment, number: int) -> None:
        place, doing = f"/issues/comments/{comment.id}", f"remove the comment on #{number}"
        self._calls.call(self._request("DELETE", place, doing), accept=(HTTPStatus.NOT_FOUND,))

    def _thread_url(self, number: int) -> str:
        return f"{self._url}/issues/{number}"

    def _comment(self, issue: int, text: str) -> Comment:
        request = self._request(
            "POST", f"/issues/{issue}/comments", f"comment on issue #{issue}", body={"body": text}
        )
        return self._calls.read(request, to_comment)

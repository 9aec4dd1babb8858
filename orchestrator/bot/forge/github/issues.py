"""Issues on GitHub: their comments, our own comment, labels, edits, and the permissions of people."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, reduce
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from orchestrator.bot.forge.base import Edit, Issue, IssueHistory, Permission
from orchestrator.bot.forge.github.parsing import (
    LOGIN,
    LabelEvent,
    is_bot,
    to_body_edit,
    to_comment,
    to_datetime,
    to_event,
    to_issue,
    to_login,
    to_permission,
)
from orchestrator.bot.forge.github.repository import SETTLED_SECONDS, RestRepository
from orchestrator.core.errors import ForgeError, ForgeNotFoundError, ForgePermissionError
from orchestrator.core.prompts import fence_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from orchestrator.bot.forge.base import Comment

LONGEST_COMMENT = 65_536
"""The most characters that GitHub accepts for a comment or a pull request's body."""
MARKER = "<!-- pullwright:comment -->"
"""The last line of our comment."""
_CUT = "\n\n*(cut: the comment would be too long)*"
_MOST_SECTIONS = 50
_LONGEST_KEY = 80
_SECTION = re.compile(r"^<!-- pullwright:section:([^\s<>]*) -->$", re.MULTILINE)
_LABEL_COLOUR = "1d76db"
_COMMENTS = 200
_COMMENT_PAGES = 3
MOST_EVENT_PAGES = 20
"""The most pages of a hundred events. Somebody may rename an issue all day, and must not block the program."""
MOST_EDIT_PAGES = 5
PERMISSION_SECONDS = 3600.0
"""How long a permission is cached. After that, a revoked one does not count any more."""
_MOST_REMEMBERED = 1000
BODY_EDITS = """
query($owner: String!, $name: String!, $number: Int!, $after: String) {
  repository(owner: $owner, name: $name) {
    issue(number: $number) {
      lastEditedAt
      editor { __typename login }
      userContentEdits(first: 100, after: $after) {
        nodes { editedAt editor { __typename login } }
        pageInfo { hasNextPage endCursor }
      }
    }
  }
}
"""
"""docs.github.com/graphql/reference/objects#usercontentedit; REST does not return the edits of a body."""


@dataclass(frozen=True, slots=True)
class _EditPage:
    edits: list[Edit]
    is_complete: bool
    next: str | None


@dataclass(frozen=True, slots=True)
class _KnownEdits:
    """A body's edits, read at `read_at` while the issue had an ETag that was first seen at `seen_at`."""

    tag: str
    seen_at: float
    read_at: float
    edits: list[Edit]
    is_complete: bool


class RestIssues(RestRepository):
    """Issues, their comments, labels and history. Pull requests share their numbers, comments and labels."""

    @cached_property
    def _permissions(self) -> dict[str, tuple[Permission, float]]:
        """The permissions that are known, by login, each with the time at which it was read."""
        return {}

    @cached_property
    def _edits(self) -> dict[int, _KnownEdits]:
        """The edits of bodies that are known, by the issue's number."""
        return {}

    def open_issues(self, label: str) -> list[Issue]:
        """Return the open issues with this label, oldest first. Empty if issues are disabled."""
        query = {"state": "open", "labels": label, "sort": "created", "direction": "asc"}
        request = self._request("GET", "/issues", "list the issues", query=query)
        found = self._calls.pages(request, to_issue, empty=(HTTPStatus.GONE,), skips=True)
        # PyGithub drops the query when it follows a redirection, so the answer is checked and sorted.
        wanted = {part.strip().lower() for part in label.split(",")}
        issues = [i for i in found if i and i.is_open and wanted <= {name.lower() for name in i.labels}]
        return sorted(issues, key=lambda issue: (issue.created_at, issue.number))

    def labelled_issues(self, label: str) -> list[int]:
        """Return the numbers of issues, open and closed, that have this label: at most 100 of them."""
        query = {"state": "all", "labels": label}
        request = self._request("GET", "/issues", "list the issues", query=query)
        found = self._calls.pages(request, to_issue, most=1, empty=(HTTPStatus.GONE,), skips=True)
        named = [(issue.number, {name.lower() for name in issue.labels}) for issue in found if issue]
        return [number for number, labels in named if label.lower() in labels]

    def issue(self, number: int) -> Issue:
        """Return one issue."""
        request = self._request("GET", f"/issues/{number}", f"read issue #{number}")
        issue, place = self._calls.read_cached(
            request, lambda data: (to_issue(data), str(data["repository_url"]))
        )
        if not place.lower().endswith(f"/repos/{self._name}".lower()):
            raise ForgeNotFoundError(
                f"cannot {request.doing}: it was transferred to {place.partition('/repos/')[2]}"
            )
        if issue is None:
            raise ForgeNotFoundError(f"#{number} in {self._name} is a pull request: name an issue")
        return issue

    def blockers(self, issue: Issue) -> list[Issue]:
        """Return the open issues that an issue waits for: those that block it, and its sub-issues.

        docs.github.com/rest/issues/issue-dependencies and docs.github.com/rest/issues/sub-issues
        """
        counts = {"dependencies/blocked_by": issue.blocked_by, "sub_issues": issue.open_parts}
        found: dict[str, Issue] = {}
        for place, count in counts.items():
            if count:
                doing = f"read what issue #{issue.number} waits for"
                request = self._request("GET", f"/issues/{issue.number}/{place}", doing)
                listed = self._calls.pages(request, to_issue, empty=(HTTPStatus.NOT_FOUND, HTTPStatus.GONE))
                found |= {one.url: one for one in listed if one is not None and one.is_open}
        return list(found.values())

    def permission(self, login: str) -> Permission:
        """Return the permission of a person or bot, cached for an hour. `NONE` for an impossible login.

        docs.github.com/rest/collaborators/collaborators#get-repository-permissions-for-a-user
        """
        if not LOGIN.fullmatch(login):
            return Permission.NONE
        now = self._clock.monotonic()
        known = self._permissions.get(login.lower())
        if known is not None and now - known[1] < PERMISSION_SECONDS:
            return known[0]
        found = self._requested_permission(login)
        self._permissions[login.lower()] = (found, now)
        return found

    def history(self, number: int, label: str) -> IssueHistory:
        """Return who put the label on an issue, and who edited it, read now.

        The body's edits of an unchanged issue come from a cache.
        """
        events, all_events = self._events_of(number)
        labels = [event for event in events if isinstance(event, LabelEvent)]
        renames = [event for event in events if isinstance(event, Edit)]
        body_edits, all_edits = self._edits_of(number)
        by, at = _labelled(labels, label)
        return IssueHistory(by, at, (*renames, *body_edits), is_complete=all_events and all_edits)

    def labelled_by(self, number: int, label: str) -> str | None:
        """Return who put on the label that an issue or pull request has now; None also if it has too many events."""
        events, is_complete = self._events_of(number)
        by, _ = _labelled((event for event in events if isinstance(event, LabelEvent)), label)
        return by if is_complete else None

    def comments(self, number: int) -> list[Comment]:
        """Return the newest comments on an issue or pull request, at most 200, oldest first."""
        request = self._request("GET", f"/issues/{number}/comments", f"read the comments on #{number}")
        return self._calls.last_pages(request, to_comment, most=_COMMENT_PAGES)[-_COMMENTS:]

    def ensure_question(self, issue: int | None, key: str, body: str) -> str | None:
        """Write a question on the issue, or replace the one with this key. None without an issue.

        A question is a comment of its own, because GitHub does not notify people of changed comments.
        """
        if issue is None:
            return None
        self._need_token(f"comment on #{issue}")
        marker = f"<!-- pullwright:question:{quote(key, safe='')} -->"
        text = f"{body[: LONGEST_COMMENT - len(marker) - 2]}\n\n{marker}"

        def ours() -> Comment | None:
            found = self._own_comments_like(
                issue, lambda said: normalized(said).rpartition("\n")[2] == marker
            )
            return found[0] if found else None

        comment, _ = self._ensure(ours, lambda: self._comment(issue, text))
        return self._updated(comment, issue, text).url

    def ensure_comment(self, number: int, key: str, body: str) -> str:
        """Write a section of our one comment, or replace it there; an empty one removes it.

        Two comments of ours that were created at the same moment become one here.
        """
        self._need_token(f"comment on #{number}")
        ours = self._own_comments(number)
        if not ours:
            alone = with_section({}, key, body)
            if not alone:
                return self._thread_url(number)
            made, _ = self._ensure(
                lambda: next(iter(self._own_comments(number)), None),
                lambda: self._comment(number, compose_comment(alone, key)),
            )
            ours = [made]
        first, *others = ours
        sections: dict[str, str] = {}
        for comment in (first, *others):
            found = sections_of(comment.body) or {}
            sections |= {name: text for name, text in found.items() if name not in sections}
        wanted = with_section(sections, key, body)
        if wanted:
            self._updated(first, number, compose_comment(wanted, key))
        for comment in others if wanted else (first, *others):
            place, doing = f"/issues/comments/{comment.id}", f"remove the comment on #{number}"
            self._calls.call(self._request("DELETE", place, doing), accept=(HTTPStatus.NOT_FOUND,))
        return first.url if wanted else self._thread_url(number)

    def ensure_label(self, number: int, label: str) -> None:
        """Add a label to an issue or pull request unless it has the label. GitHub creates an unknown label."""
        self._need_token(f"add a label to #{number}")
        place, doing = f"/issues/{number}/labels", f"add the label {label!r} to #{number}"
        if label.lower() not in self._labels_at(place, doing):
            # Adding a label twice changes nothing, so that the request may be repeated after a lost reply.
            self._calls.call(self._request("POST", place, doing, body={"labels": [label]}), repeatable=True)

    def make_label(self, label: str, description: str) -> bool:
        """Create a label unless it exists: docs.github.com/rest/issues/labels#create-a-label."""
        self._need_token("create a label")
        body = {"name": label, "color": _LABEL_COLOUR, "description": description}
        request = self._request("POST", "/labels", f"create the label {label!r}", body=body)
        answer = self._calls.call(request, accept=(HTTPStatus.UNPROCESSABLE_ENTITY,), repeatable=True)
        return answer.status == HTTPStatus.CREATED

    def remove_label(self, number: int, label: str) -> None:
        """Remove a label from an issue or pull request if it has the label."""
        self._need_token(f"remove a label from #{number}")
        if not label.strip("."):
            raise ForgeError(f"cannot remove the label {label!r} from #{number}: this is not a label")
        place, doing = f"/issues/{number}/labels", f"remove the label {label!r} from #{number}"
        if label.lower() in self._labels_at(place, doing):
            request = self._request("DELETE", f"{place}/{quote(label, safe='')}", doing)
            # Not found: an earlier request removed it, and only its reply was lost.
            self._calls.call(request, accept=(HTTPStatus.NOT_FOUND,))

    def _labels_at(self, place: str, doing: str) -> set[str]:
        """Return the labels at a place, in lower case."""
        return set(
            self._calls.pages(self._request("GET", place, doing), lambda data: str(data["name"]).lower())
        )

    def _events_of(self, number: int) -> tuple[list[LabelEvent | Edit | None], bool]:
        """Return the events of an issue or pull request, and whether these are all."""
        request = self._request("GET", f"/issues/{number}/events", f"read the history of #{number}")
        return self._calls.first_pages(request, to_event, most=MOST_EVENT_PAGES)

    def _requested_permission(self, login: str) -> Permission:
        place, doing = f"/collaborators/{quote(login, safe='')}/permission", f"read the permission of {login}"
        request = self._request("GET", place, doing)
        try:
            reply = self._calls.get(request, accept=(HTTPStatus.NOT_FOUND,))
        except ForgePermissionError as error:
            raise ForgePermissionError(
                f"{error}: use the token of somebody who may write, or one with the permission metadata=read"
            ) from None
        if reply.status == HTTPStatus.NOT_FOUND:
            return Permission.NONE
        return self._calls.parsed(reply, request.doing, lambda data: to_permission(data, login))

    def _edits_of(self, number: int) -> tuple[list[Edit], bool]:
        """Return the body's edits, and whether these are all. GraphQL has no ETags, but the issue has one.

        An edit changes the issue's `updated_at` and with it the ETag. GraphQL's answer may lag behind. It is
        therefore cached only if it was requested some time after the ETag was first seen.
        """
        request = self._request("GET", f"/issues/{number}", f"read issue #{number}")
        tag, now = self._calls.get(request).headers.get("etag", ""), self._clock.monotonic()
        known = self._edits.get(number)
        if known is not None and known.tag == tag != "" and known.read_at - known.seen_at > SETTLED_SECONDS:
            return known.edits, known.is_complete
        edits, is_complete = self._body_edits(number)
        seen_at = known.seen_at if known is not None and known.tag == tag else now
        if len(self._edits) >= _MOST_REMEMBERED:
            self._edits.clear()
        self._edits[number] = _KnownEdits(tag, seen_at, now, edits, is_complete)
        return edits, is_complete

    def _body_edits(self, number: int) -> tuple[list[Edit], bool]:
        """Return the body's edits, and whether these are all."""
        doing = f"read the edits of issue #{number}"
        found: list[Edit] = []
        after: str | None = None
        for _ in range(MOST_EDIT_PAGES):
            page = self._query(BODY_EDITS, "issue", doing, _to_edit_page, number=number, after=after)
            found += page.edits
            if not page.is_complete or page.next is None:
                return found, page.is_complete
            after = page.next
        return found, False

    def _own_comments(self, number: int) -> list[Comment]:
        """Return our comments with sections, at most the first if GitHub does not tell our login."""
        found = self._own_comments_like(number, lambda said: sections_of(said) is not None)
        return found if self.own_login() else found[:1]

    def _own_comments_like(self, number: int, is_meant: Callable[[str], bool]) -> list[Comment]:
        """Return our comments of this form. The author counts, because anybody may quote or forge a marker."""
        request = self._request("GET", f"/issues/{number}/comments", f"read the comments on #{number}")
        found = [comment for comment in self._calls.pages(request, to_comment) if is_meant(comment.body)]
        if not found:
            return []
        me = self.own_login()
        return [one for one in found if (is_bot(one.author) if me is None else one.author == me)]

    def _updated(self, comment: Comment, number: int, text: str) -> Comment:
        if normalized(comment.body) == normalized(text):
            return comment
        place, doing = f"/issues/comments/{comment.id}", f"update the comment on #{number}"
        return self._calls.read(self._request("PATCH", place, doing, body={"body": text}), to_comment)

    def _thread_url(self, number: int) -> str:
        return f"{self._url}/issues/{number}"

    def _comment(self, issue: int, text: str) -> Comment:
        request = self._request(
            "POST", f"/issues/{issue}/comments", f"comment on issue #{issue}", body={"body": text}
        )
        return self._calls.read(request, to_comment)


def _labelled(events: Iterable[LabelEvent], label: str) -> tuple[str | None, datetime | None]:
    """Return who added the last of the wanted labels, and when; None if one of them was removed since."""
    wanted = {part.strip().lower() for part in label.split(",")}
    there: set[str] = set()
    by, at = None, None
    for event in sorted(events, key=lambda event: (event.at, event.id)):
        name = event.label.lower()
        if name not in wanted:
            continue
        if not event.is_on:
            there.discard(name)
            by, at = None, None
            continue
        there.add(name)
        if there == wanted:
            by, at = event.actor, event.at
    return by, at


def _to_edit_page(issue: Mapping[str, Any]) -> _EditPage:
    """Return one page of the edits of an issue's body."""
    # The newest edit is also taken from these fields, in case the list does not have it yet.
    last = issue["lastEditedAt"]
    edits = [] if last is None else [Edit(to_login(issue["editor"]), to_datetime(last), "body")]
    listed = issue["userContentEdits"]
    if listed is None:
        return _EditPage(edits, last is None, None)
    nodes, after = listed["nodes"], listed["pageInfo"]
    # The list's first entry is the creation. It is kept: judged as an edit by the author at that
    # time, it changes nothing, and the program need not guess which entry it is.
    edits += [to_body_edit(node) for node in nodes if node is not None]
    following = str(after["endCursor"]) if after["hasNextPage"] else None
    return _EditPage(edits, None not in nodes, following)


def sections_of(comment: str) -> dict[str, str] | None:
    """Return the sections of a comment's text, in order; None if it does not have the form of our comments.

    The caller has to check the author: anybody can write this form.
    """
    text = normalized(comment)
    body, _, last = text.rpartition("\n")
    if last != MARKER:
        return None
    _, *parts = _SECTION.split(body)
    return {unquote(key): part.strip() for key, part in zip(parts[::2], parts[1::2], strict=True)}


def with_section(sections: Mapping[str, str], key: str, body: str) -> dict[str, str]:
    """Return the sections with one replaced in its place or added at the end. An empty body removes it.

    HTML comments in the body are escaped, so that a model's or a stranger's text cannot forge a marker.
    """
    changed = {**sections, key[:_LONGEST_KEY]: normalized(body).replace("<!--", "&lt;!--")}
    return {name: section for name, section in changed.items() if section}


def compose_comment(sections: Mapping[str, str], newest: str) -> str:
    """Return the comment's text. If it would be too long, the other sections are cut before the newest."""
    newest = newest[:_LONGEST_KEY]
    others = [key for key in sections if key != newest][-_MOST_SECTIONS:]
    kept = [key for key in sections if key == newest or key in others]
    heads = {key: f"<!-- pullwright:section:{quote(key, safe='')} -->\n" for key in kept}
    room = LONGEST_COMMENT - len(MARKER) - sum(len(head) + 2 for head in heads.values())
    texts: dict[str, str] = {}
    # The newest section gets the room that it needs. Of the others, the shortest come first and leave room to the longest.
    order = [*(key for key in kept if key == newest), *sorted(others, key=lambda key: len(sections[key]))]
    for left, key in zip(range(len(order), 0, -1), order, strict=True):
        texts[key] = _shortened(sections[key], room if key == newest else room // left)
        room -= len(texts[key])
    return "".join(f"{heads[key]}{texts[key]}\n\n" for key in kept) + MARKER


def normalized(text: str) -> str:
    """Return the form of a text that is compared: GitHub's web pages change line endings and trim."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


def _shortened(text: str, most: int) -> str:
    """Return the text cut to that many characters. An open code block is closed, so that it ends there."""
    fence = _open_fence(text)
    if len(text) + len(fence) <= most:
        return text + fence
    kept = text[: max(0, most - len(_CUT))]
    while kept and len(kept) + len(_open_fence(kept)) + len(_CUT) > most:
        kept = kept[: most - len(_CUT) - len(_open_fence(kept))] if most > len(_CUT) else ""
    return (kept + _open_fence(kept) + _CUT).strip() if kept else _CUT.strip()[:most]


def _open_fence(text: str) -> str:
    """Return the line that closes the text's open code block; empty if no block is open."""
    fence = reduce(lambda fence, line: fence_after(line, fence), text.split("\n"), "")
    return f"\n{fence}" if fence else ""

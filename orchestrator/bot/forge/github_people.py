"""Who may do what on GitHub, and who wrote an issue as it is: REST, and GraphQL for a body's edits."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from orchestrator.bot.forge.base import Edit, IssueHistory, Permission
from orchestrator.bot.forge.github_json import (
    LOGIN,
    LabelEvent,
    to_body_edit,
    to_event,
    to_login,
    to_permission,
    to_time,
)
from orchestrator.bot.forge.github_place import SETTLED_SECONDS, RestPlace
from orchestrator.bot.forge.line import Line, Request
from orchestrator.core.errors import ForgeNotFoundError, ForgePermissionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from orchestrator.bot.forge.calls import Patience

MOST_EVENT_PAGES = 20
"""Of a hundred events each. Somebody may rename an issue all day, and must not hold us up."""
MOST_EDIT_PAGES = 5
PERMISSION_SECONDS = 3600.0
"""How long what somebody may do is remembered: a right that is taken away counts no longer."""
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
"""docs.github.com/graphql/reference/objects#usercontentedit; REST does not tell a body's edits."""


@dataclass(frozen=True, slots=True)
class _EditPage:
    edits: list[Edit]
    is_complete: bool
    next: str | None


@dataclass(frozen=True, slots=True)
class _KnownEdits:
    """A body's edits, read at `read_at` while the issue had a tag that was there since `seen_at`."""

    tag: str
    seen_at: float
    read_at: float
    edits: list[Edit]
    is_complete: bool


class RestPeople(RestPlace):
    """What people may do, and what they did to an issue."""

    def __init__(self, name: str, line: Line, patience: Patience, *, is_app: bool) -> None:
        super().__init__(name, line, patience, is_app=is_app)
        self._permissions: dict[str, tuple[Permission, float]] = {}
        self._edits: dict[int, _KnownEdits] = {}

    def permission(self, login: str) -> Permission:
        """What a person or bot may do, asked once an hour. `NONE` for a name that nobody can have.

        docs.github.com/rest/collaborators/collaborators#get-repository-permissions-for-a-user

        Raises:
            ForgePermissionError: the token may not ask.
        """
        if not LOGIN.fullmatch(login):
            return Permission.NONE
        now = self._clock.monotonic()
        known = self._permissions.get(login.lower())
        if known is not None and now - known[1] < PERMISSION_SECONDS:
            return known[0]
        found = self._asked(login)
        self._permissions[login.lower()] = (found, now)
        return found

    def history(self, number: int, label: str) -> IssueHistory:
        """Who put the label on an issue, and who edited it, read now.

        What an issue's unchanged state stands for is not asked again.

        Raises:
            ForgeNotFoundError: there is no such issue.
        """
        events, all_events = self._events_of(number)
        labels = [event for event in events if isinstance(event, LabelEvent)]
        renames = [event for event in events if isinstance(event, Edit)]
        body_edits, all_edits = self._edits_of(number)
        by, at = _labelled(labels, label)
        return IssueHistory(by, at, (*renames, *body_edits), is_complete=all_events and all_edits)

    def labelled_by(self, number: int, label: str) -> str | None:
        """Who put a label on that is on an issue or pull request now; None also where too much has happened to it.

        Raises:
            ForgeNotFoundError: there is none of this number.
        """
        events, is_complete = self._events_of(number)
        by, _ = _labelled((event for event in events if isinstance(event, LabelEvent)), label)
        return by if is_complete else None

    def _events_of(self, number: int) -> tuple[list[LabelEvent | Edit | None], bool]:
        """What happened to an issue or pull request, and whether this is all."""
        request = self._request("GET", f"/issues/{number}/events", f"read the history of #{number}")
        return self._calls.first_pages(request, to_event, most=MOST_EVENT_PAGES)

    def _asked(self, login: str) -> Permission:
        place, doing = f"/collaborators/{quote(login, safe='')}/permission", f"ask what {login} may do"
        request = self._request("GET", place, doing)
        try:
            reply = self._calls.get(request, accept=(HTTPStatus.NOT_FOUND,))
        except ForgePermissionError as error:
            raise ForgePermissionError(
                f"{error}: it takes the token of somebody who may write, or the permission metadata=read"
            ) from None
        if reply.status == HTTPStatus.NOT_FOUND:
            return Permission.NONE
        return self._calls.understood(reply, request.doing, lambda data: to_permission(data, login))

    def _edits_of(self, number: int) -> tuple[list[Edit], bool]:
        """The body's edits, and whether these are all. GraphQL has no ETags, but the issue has.

        An edit moves the issue's `updated_at` and with it the ETag. What GraphQL says may lag
        behind, so it is remembered only if it was asked some time after the ETag was seen first.
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
        """The body's edits, and whether these are all."""
        doing = f"read the edits of issue #{number} of {self._name}"
        owner, name = self._name.split("/")
        found: list[Edit] = []
        after: str | None = None
        for _ in range(MOST_EDIT_PAGES):
            variables = {"owner": owner, "name": name, "number": number, "after": after}
            body = {"query": BODY_EDITS, "variables": variables}
            page = self._calls.read(Request("POST", "", doing, body=body, is_graphql=True), _to_edit_page)
            if page is None:
                raise ForgeNotFoundError(f"cannot {doing}: there is no such issue")
            found += page.edits
            if not page.is_complete or page.next is None:
                return found, page.is_complete
            after = page.next
        return found, False


def _labelled(events: Iterable[LabelEvent], label: str) -> tuple[str | None, datetime | None]:
    """Who made the labels complete that are wanted, and when; of one that came off nothing counts."""
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


def _to_edit_page(data: Mapping[str, Any]) -> _EditPage | None:
    """One page of a body's edits, or None where there is no such issue."""
    repository = data["data"]["repository"]
    issue = repository and repository["issue"]
    if issue is None:
        return None
    # The newest edit is said twice: if the list does not have it yet, it is judged all the same.
    last = issue["lastEditedAt"]
    edits = [] if last is None else [Edit(to_login(issue["editor"]), to_time(last), "body")]
    listed = issue["userContentEdits"]
    if listed is None:
        return _EditPage(edits, last is None, None)
    nodes, after = listed["nodes"], listed["pageInfo"]
    # The list's first entry is the creation. It stays in: judged as an edit by the author at that
    # time it changes nothing, and nobody has to guess which entry it is.
    edits += [to_body_edit(node) for node in nodes if node is not None]
    following = str(after["endCursor"]) if after["hasNextPage"] else None
    return _EditPage(edits, None not in nodes, following)

"""Issues and pull requests on GitHub: comments, labels, people's permissions, feedback, checks, and what is linked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, reduce
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from orchestrator.bot.forge.base import (
    ACTIONS_APP,
    Check,
    CheckState,
    Edit,
    Feedback,
    FeedbackKind,
    Issue,
    IssueHistory,
    Permission,
    Proposal,
    PullRequest,
    PullRequestState,
    is_bot,
)
from orchestrator.core.errors import ForgeError, ForgeNotFoundError, ForgePermissionError
from orchestrator.core.prompts import fence_after
from orchestrator.plugins.github.parsing import (
    LOGIN,
    LabelEvent,
    to_body_edit,
    to_comment,
    to_datetime,
    to_event,
    to_issue,
    to_labels,
    to_listed_pull_request,
    to_login,
    to_own_pull_request,
    to_permission,
    to_pull_request,
)
from orchestrator.plugins.github.repository import SETTLED_SECONDS, RestRepository

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from orchestrator.bot.forge.base import Comment, OwnCheck


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


LINKED = """
query($owner: String!, $name: String!, $number: Int!) {
  repository(owner: $owner, name: $name) {
    issue(number: $number) {
      closedByPullRequestsReferences(first: 100) {
        nodes {
          number title body url isDraft state headRefName baseRefName headRefOid createdAt updatedAt
          author { __typename login }
          labels(first: 100) { nodes { name } }
        }
      }
    }
  }
}
"""
FEEDBACK = """
query($owner: String!, $name: String!, $number: Int!) {
  repository(owner: $owner, name: $name) {
    pullRequest(number: $number) {
      reviews(last: 100) {
        nodes { fullDatabaseId state body createdAt submittedAt lastEditedAt url author { __typename login } }
      }
      reviewThreads(last: 100) {
        nodes {
          isResolved path line
          comments(last: 50) {
            nodes { fullDatabaseId state body createdAt publishedAt lastEditedAt url author { __typename login } }
          }
        }
      }
      comments(last: 100) {
        nodes { fullDatabaseId body createdAt lastEditedAt url author { __typename login } }
      }
    }
  }
}
"""
"""`databaseId` is too small for today's ids. `updatedAt` changes without an edit."""
MOST_PULL_PAGES = 10
MOST_CHECK_PAGES = 3
"""The most pages of a hundred checks."""
_WORKFLOWS = (".github/workflows/", ".github/actions/")
"""Where a repository keeps workflows and, by convention, the local actions that they use."""
_MOST_COMPARED = 300
"""The most files that GitHub lists in a comparison: docs.github.com/rest/commits/commits#compare-two-commits"""
_RUN_STATES = {
    "success": CheckState.PASSED,
    "failure": CheckState.FAILED,
    "timed_out": CheckState.FAILED,
    "action_required": CheckState.FAILED,
    "startup_failure": CheckState.FAILED,
}
"""The states by conclusion: docs.github.com/rest/checks/runs"""
_STATUS_STATES = {
    "success": CheckState.PASSED,
    "failure": CheckState.FAILED,
    "error": CheckState.FAILED,
    "pending": CheckState.RUNNING,
}
"""The states of commit statuses: docs.github.com/rest/commits/statuses"""
_CONCLUSIONS = {
    CheckState.PASSED: "success",
    CheckState.FAILED: "failure",
    CheckState.OTHER: "neutral",
    CheckState.RUNNING: "neutral",
}
_CHECK_TITLE_CHARS = 200
_MOST_ATTESTATIONS = "30"
_CHECK_SUMMARY_CHARS = 65_535
"""The limit of GitHub: docs.github.com/rest/checks/runs#create-a-check-run"""
_Entry = tuple[str, str, int, Check]
"""The kind of check, when it began, its id, and the check."""


class RestPullRequests(RestIssues):
    """Pull requests, with reviews, checks and linked issues."""

    def pull_request(self, number: int) -> PullRequest:
        """Return any pull request, also from forks and by other people, read now."""
        request = self._request("GET", f"/pulls/{number}", f"read pull request #{number}")
        return self._calls.read(request, to_pull_request)

    def our_pull_requests(self, branch_prefix: str | tuple[str, ...]) -> list[PullRequest]:
        """Return the pull requests of our branches among the newest thousand; newest first."""
        query = {"state": "all", "sort": "created", "direction": "desc"}
        request = self._request("GET", "/pulls", "list the pull requests", query=query)
        found = self._calls.pages(request, to_listed_pull_request, most=MOST_PULL_PAGES, skips=True)
        return [pull for pull in found if pull is not None and pull.branch.startswith(branch_prefix)]

    def ensure_pull_request(self, proposal: Proposal) -> tuple[PullRequest, bool]:
        """Create the pull request of this branch, or update the open one."""
        self._need_token("open a pull request")
        pull, created = self._ensure(
            lambda: self._open_pull_request(proposal), lambda: self._create_pull_request(proposal)
        )
        same = (pull.title, normalized(pull.body)) == (proposal.title, normalized(proposal.body))
        if created or same:
            return pull, created
        request = self._request(
            "PATCH",
            f"/pulls/{pull.number}",
            f"update pull request #{pull.number}",
            body={"title": proposal.title, "body": proposal.body},
        )
        return self._calls.read(request, to_pull_request), False

    def close_pull_request(self, number: int) -> PullRequest:
        """Close a pull request without merging it: docs.github.com/rest/pulls/pulls#update-a-pull-request."""
        self._need_token("close a pull request")
        doing = f"close pull request #{number}"
        request = self._request("PATCH", f"/pulls/{number}", doing, body={"state": "closed"})
        pull = self._calls.read(request, to_pull_request)
        if pull.state is PullRequestState.MERGED:
            raise ForgeError(f"pull request #{number} is merged: there is nothing to close")
        return pull

    def linked_pull_requests(self, number: int) -> list[PullRequest]:
        """Return all open pull requests, also from forks and by other people, that say they close this issue."""
        doing = f"read the pull requests of issue #{number}"
        return self._query(LINKED, "issue", doing, _to_linked, number=number)

    def feedback(self, number: int) -> list[Feedback]:
        """Return the feedback on a pull request, oldest first.

        At most the newest 100 reviews, 100 comments, and 100 threads on lines with their newest 50 comments.
        """
        doing = f"read the feedback on pull request #{number}"
        return self._query(FEEDBACK, "pullRequest", doing, _to_feedback, number=number)

    def checks(self, commit: str) -> list[Check]:
        """Return the newest run of each check of a commit, and its statuses. Empty if there are none."""
        newest: dict[tuple[str, str], tuple[str, int, Check]] = {}
        unreadable: ForgePermissionError | None = None
        for part in _PARTS:
            try:
                entries = self._read_entries(commit, part)
            except ForgePermissionError as error:
                unreadable, entries = error, []
            for kind, moment, number, check in entries:
                known = newest.get((kind, check.name))
                if known is None or (moment, number) > known[:2]:
                    newest[kind, check.name] = (moment, number, check)
        found = [newest[key][2] for key in sorted(newest)]
        if unreadable is not None and not any(check.state is CheckState.FAILED for check in found):
            raise unreadable
        return found

    def ensure_check(self, check: OwnCheck) -> str:
        """Write a check run for a commit, or replace our own with its key.

        Only apps may do so. A workflow's token is an app's: docs.github.com/rest/checks/runs
        """
        doing = f"write a check run for {check.commit[:12]}"
        self._need_token(doing)
        output = {"title": check.title[:_CHECK_TITLE_CHARS], "summary": check.summary[:_CHECK_SUMMARY_CHARS]}
        said = {"status": "completed", "conclusion": _CONCLUSIONS[check.state], "output": output}
        body = {"name": check.name, "head_sha": check.commit, "external_id": check.key, **said}
        create = self._request("POST", "/check-runs", doing, body=body)
        known, is_new = self._ensure(
            lambda: self._own_check(check, doing), lambda: self._calls.read(create, _to_place)
        )
        if is_new:
            return known[1]
        change = self._request("PATCH", f"/check-runs/{known[0]}", doing, body=said)
        try:
            # Repeating the request changes nothing.
            return self._calls.read(change, _to_place, repeatable=True)[1]
        except (ForgePermissionError, ForgeNotFoundError):  # another App's, which only that App can change
            return self._calls.read(create, _to_place)[1]

    def attestations(self, digest: str) -> list[dict[str, Any]]:
        """Return the bundles of attestations: docs.github.com/rest/repos/attestations. An older server has none."""
        request = self._request(
            "GET",
            f"/attestations/{quote(digest, safe=':')}",
            "read the attestations",
            query={"per_page": _MOST_ATTESTATIONS},
        )
        reply = self._calls.get(request, accept=(HTTPStatus.NOT_FOUND,))
        if reply.status == HTTPStatus.NOT_FOUND:
            return []
        return self._calls.parsed(reply, request.doing, _to_bundles)

    def _own_check(self, check: OwnCheck, doing: str) -> tuple[int, str] | None:
        """Return the number and the address of the newest check run of a commit with this key."""
        query = {"check_name": check.name, "per_page": "100"}
        request = self._request(
            "GET", f"/commits/{quote(check.commit, safe='')}/check-runs", doing, query=query
        )
        found = self._calls.read(request, lambda data: list(data["check_runs"]))
        ours = [_to_place(run) for run in found if run.get("external_id") == check.key]
        return max(ours, default=None)

    def configured_checks(self, checks: Sequence[Check], commit: str, base: str) -> list[Check]:
        """Return those of a commit's checks that belong to a workflow or an app that its base branch configures.

        A workflow's job counts if the commit changes no workflow of the branch. Another app's check counts if
        a rule for the branch requires a check of this name by this app. A commit status has no app and does
        not count, and neither does a check for which the token may not read the rules.
        """
        jobs = [check for check in checks if check.app == ACTIONS_APP]
        others = [check for check in checks if check.app_id and check.app != ACTIONS_APP]
        if jobs and self._may_change_workflows(commit, base):
            jobs = []
        required = self._required_checks(base) if others else frozenset()
        return [*jobs, *(check for check in others if (check.name, check.app_id) in required)]

    def _may_change_workflows(self, commit: str, base: str) -> bool:
        """Return whether a commit changes workflows since it left the branch, or this is unknown."""
        place = f"/compare/{quote(base, safe='')}...{quote(commit, safe='')}"
        request = self._request("GET", place, f"compare {commit[:12]} with {base}")
        try:
            changed = self._calls.read_cached(request, _to_paths)
        except (ForgeNotFoundError, ForgePermissionError):
            return True
        return len(changed) >= _MOST_COMPARED or any(path.startswith(_WORKFLOWS) for path in changed)

    def _required_checks(self, base: str) -> frozenset[tuple[str, int]]:
        """Return the checks that a branch's rules require from a certain app: the name, and the app's number."""
        try:
            rules = self.rules(base)
        except (ForgeNotFoundError, ForgePermissionError):
            return frozenset()
        wanted = [
            one
            for rule in rules
            if rule.kind == "required_status_checks"
            for one in rule.parameters.get("required_status_checks") or ()
        ]
        return frozenset(
            (str(one["context"]), int(one["integration_id"])) for one in wanted if one.get("integration_id")
        )

    def unreadable_checks(self, commit: str) -> list[str]:
        """Return the permissions that the token lacks to read the checks of a commit, or of a branch's head."""
        lacking = []
        for part in _PARTS:
            try:
                self._read_entries(commit, part)
            except ForgePermissionError:
                lacking.append(part.permission)
        return lacking

    def _read_entries(self, commit: str, part: _Part) -> list[_Entry]:
        doing = f"read the checks of {commit[:12]}'s {part.words}"
        found: list[_Entry] = []
        for page in range(1, MOST_CHECK_PAGES + 1):
            query = {"per_page": "100", "page": str(page)}
            request = self._request(
                "GET", f"/commits/{quote(commit, safe='')}/{part.path}", doing, query=query
            )
            total, entries = self._calls.read_cached(request, part.read)
            found += entries
            if not entries or len(found) >= total:
                break
        return found

    def has_conflict(self, number: int) -> bool:
        """Return whether GitHub says that a pull request has a merge conflict with its base.

        False while GitHub is still finding out.
        """
        request = self._request("GET", f"/pulls/{number}", f"read pull request #{number}")
        return self._calls.read_cached(request, lambda data: str(data["mergeable_state"]) == "dirty")

    def _open_pull_request(self, proposal: Proposal) -> PullRequest | None:
        """Return the open pull request of the branch; if there are several, the one to the same base."""
        owner = self._name.split("/")[0]
        query = {"state": "open", "head": f"{owner}:{proposal.branch}"}
        request = self._request("GET", "/pulls", "list the pull requests", query=query)
        found = [
            pull
            for pull in self._calls.pages(request, to_own_pull_request)
            if pull and pull.branch == proposal.branch and pull.state is PullRequestState.OPEN
        ]
        found.sort(key=lambda pull: pull.base != proposal.base)
        return found[0] if found else None

    def _create_pull_request(self, proposal: Proposal) -> PullRequest | None:
        body = {
            "title": proposal.title,
            "body": proposal.body,
            "head": proposal.branch,
            "base": proposal.base,
        }
        doing = f"open a pull request from {proposal.branch} to {proposal.base}"
        rejected = (HTTPStatus.UNPROCESSABLE_ENTITY,)
        request = self._request("POST", "/pulls", doing, body={**body, "draft": proposal.draft})
        reply = self._calls.call(request, accept=rejected)
        if reply.status in rejected and proposal.draft and "draft" in reply.messages().lower():
            request = self._request("POST", "/pulls", doing, body=body)
            reply = self._calls.call(request, accept=rejected)
        if reply.status in rejected:
            if "already exists" in reply.messages():
                return None
            raise ForgeError(f"cannot {request.doing}: GitHub rejected it ({reply.messages()})")
        return self._calls.parsed(reply, doing, to_pull_request)


def _to_bundles(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [dict(one["bundle"]) for one in data["attestations"] if isinstance(one.get("bundle"), dict)]


def _to_place(run: Mapping[str, Any]) -> tuple[int, str]:
    return int(run["id"]), str(run["html_url"] or "")


def _to_paths(data: Mapping[str, Any]) -> list[str]:
    """Return the changed files. A renamed file gives both of its names."""
    names = ("filename", "previous_filename")
    return [str(file[name]) for file in data.get("files") or () for name in names if file.get(name)]


def _to_run(run: Mapping[str, Any]) -> _Entry:
    if run["status"] == "completed":
        state = _RUN_STATES.get(run["conclusion"] or "", CheckState.OTHER)
    else:
        state = CheckState.RUNNING
    output = run["output"]
    words = [output[part] for part in ("title", "summary", "text") if output[part]]
    app = run["app"] or {}
    check = Check(
        name=str(run["name"]),
        state=state,
        summary="\n\n".join(words),
        url=run["html_url"] or run["details_url"] or "",
        app=str(app.get("slug") or ""),
        app_id=int(app.get("id") or 0),
    )
    # Two apps may use the same name for a check, and one must not hide the other.
    return f"run {app.get('id', '')}", run["started_at"] or "9", int(run["id"]), check


def _to_status(status: Mapping[str, Any]) -> _Entry:
    state = _STATUS_STATES.get(status["state"], CheckState.OTHER)
    check = Check(
        name=str(status["context"]),
        state=state,
        summary=status["description"] or "",
        url=status["target_url"] or "",
    )
    return "status", status["updated_at"], int(status["id"]), check


@dataclass(frozen=True, slots=True)
class _Part:
    """One of the two interfaces that return checks, and the permission that it needs."""

    permission: str
    path: str
    words: str
    key: str
    to_entry: Callable[[Mapping[str, Any]], _Entry]

    def read(self, data: Mapping[str, Any]) -> tuple[int, list[_Entry]]:
        """Return the total number of entries, and those of this page."""
        return int(data["total_count"]), [self.to_entry(one) for one in data[self.key]]


_PARTS = (
    _Part("checks", "check-runs", "runs", "check_runs", _to_run),
    _Part("statuses", "status", "statuses", "statuses", _to_status),
)


def _to_linked(issue: Mapping[str, Any]) -> list[PullRequest]:
    """Return the open pull requests that close an issue.

    GitHub's answer includes merged ones, although its documentation says that only open ones are returned.
    """
    listed = issue["closedByPullRequestsReferences"]
    return [_to_pull_request(node) for node in _nodes(listed) if node["state"] == "OPEN"]


def _to_pull_request(node: Mapping[str, Any]) -> PullRequest:
    return PullRequest(
        number=int(node["number"]),
        title=node["title"],
        body=node["body"],
        url=node["url"],
        draft=bool(node["isDraft"]),
        state=PullRequestState.OPEN,
        branch=node["headRefName"],
        base=node["baseRefName"],
        commit=node["headRefOid"],
        author=to_login(node["author"]),
        labels=to_labels(_nodes(node["labels"])),
        created_at=to_datetime(node["createdAt"]),
        updated_at=to_datetime(node["updatedAt"]),
    )


def _to_feedback(pull: Mapping[str, Any]) -> list[Feedback]:
    """Return the feedback on a pull request, oldest first, without what its author has not submitted yet."""
    found = [
        *(_to_one_feedback(node, FeedbackKind.REVIEW) for node in _nodes(pull["reviews"]) if _is_sent(node)),
        *(
            _to_one_feedback(node, FeedbackKind.LINE, thread)
            for thread in _nodes(pull["reviewThreads"])
            for node in _nodes(thread["comments"])
            if _is_sent(node)
        ),
        *(_to_one_feedback(node, FeedbackKind.COMMENT) for node in _nodes(pull["comments"])),
    ]
    return sorted(found, key=lambda said: (said.created_at, said.id))


def _to_one_feedback(
    node: Mapping[str, Any], kind: FeedbackKind, thread: Mapping[str, Any] | None = None
) -> Feedback:
    sent = node.get("submittedAt") or node.get("publishedAt") or node["createdAt"]
    created, edited = to_datetime(sent), node["lastEditedAt"]
    return Feedback(
        kind=kind,
        id=int(node["fullDatabaseId"]),
        author=to_login(node["author"]),
        body=node["body"],
        created_at=created,
        updated_at=max(created, to_datetime(edited)) if edited else created,
        url=node["url"],
        state=str(node["state"]).lower() if kind is FeedbackKind.REVIEW else "",
        path=thread["path"] if thread else "",
        line=thread["line"] if thread else None,
        is_resolved=bool(thread and thread["isResolved"]),
    )


def _is_sent(node: Mapping[str, Any]) -> bool:
    return str(node["state"]) != "PENDING"


def _nodes(connection: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Return the nodes of a connection. GitHub may return null for it, and for nodes that the token cannot see."""
    nodes = connection["nodes"] if connection else None
    return [node for node in nodes or () if node is not None]

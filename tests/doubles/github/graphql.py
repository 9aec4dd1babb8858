"""Reads a GraphQL query: the part of the language and of GitHub's schema that Pullwright uses.

The schema is that of the npm package `@octokit/graphql-schema`, 15.26.1, cut down by hand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

SCHEMA: dict[str, dict[str, str]] = {
    "Query": {"repository": "Repository", "viewer": "User"},
    "User": {"login": ""},
    "Repository": {"issue": "Issue", "pullRequest": "PullRequest", "pullRequests": "PullRequestConnection"},
    "Issue": {
        **dict.fromkeys(("number", "body", "url", "lastEditedAt", "createdAt", "title"), ""),
        "comments": "IssueCommentConnection",
        "editor": "Actor",
        "userContentEdits": "UserContentEditConnection",
        "closedByPullRequestsReferences": "PullRequestConnection",
    },
    "PullRequestConnection": {"nodes": "PullRequest", "pageInfo": "PageInfo", "totalCount": ""},
    "PullRequest": {
        **dict.fromkeys(("number", "title", "body", "url", "isDraft", "state", "headRefName"), ""),
        **dict.fromkeys(("baseRefName", "headRefOid", "createdAt", "updatedAt"), ""),
        **dict.fromkeys(("changedFiles", "additions", "deletions"), ""),
        "mergeCommit": "Commit",
        "commits": "PullRequestCommitConnection",
        "closingIssuesReferences": "IssueConnection",
        "author": "Actor",
        "labels": "LabelConnection",
        "reviews": "PullRequestReviewConnection",
        "reviewThreads": "PullRequestReviewThreadConnection",
        "comments": "IssueCommentConnection",
    },
    "Commit": {"oid": "", "authoredDate": ""},
    "PullRequestCommitConnection": {"nodes": "PullRequestCommit", "totalCount": ""},
    "PullRequestCommit": {"commit": "Commit"},
    "IssueConnection": {"nodes": "Issue", "totalCount": ""},
    "LabelConnection": {"nodes": "Label", "pageInfo": "PageInfo", "totalCount": ""},
    "Label": {"name": ""},
    "PullRequestReviewConnection": {"nodes": "PullRequestReview", "pageInfo": "PageInfo"},
    "PullRequestReview": {
        **dict.fromkeys(("fullDatabaseId", "state", "body", "createdAt", "submittedAt"), ""),
        **dict.fromkeys(("updatedAt", "lastEditedAt", "url"), ""),
        "author": "Actor",
    },
    "PullRequestReviewThreadConnection": {"nodes": "PullRequestReviewThread", "pageInfo": "PageInfo"},
    "PullRequestReviewThread": {
        **dict.fromkeys(("isResolved", "isOutdated", "path", "line"), ""),
        "comments": "PullRequestReviewCommentConnection",
    },
    "PullRequestReviewCommentConnection": {"nodes": "PullRequestReviewComment", "pageInfo": "PageInfo"},
    "PullRequestReviewComment": {
        **dict.fromkeys(("fullDatabaseId", "state", "body", "createdAt", "publishedAt"), ""),
        **dict.fromkeys(("updatedAt", "lastEditedAt", "url"), ""),
        "author": "Actor",
    },
    "IssueCommentConnection": {"nodes": "IssueComment", "pageInfo": "PageInfo"},
    "IssueComment": {
        **dict.fromkeys(("fullDatabaseId", "body", "createdAt", "publishedAt", "authorAssociation"), ""),
        **dict.fromkeys(("updatedAt", "lastEditedAt", "url"), ""),
        "author": "Actor",
    },
    "UserContentEditConnection": {"nodes": "UserContentEdit", "pageInfo": "PageInfo", "totalCount": ""},
    "UserContentEdit": {"editedAt": "", "deletedAt": "", "diff": "", "editor": "Actor"},
    "PageInfo": dict.fromkeys(("hasNextPage", "endCursor", "hasPreviousPage", "startCursor"), ""),
    "Actor": {"__typename": "", "login": ""},
}
"""The fields of a type and their types; the empty one is a value."""
ARGUMENTS = {
    "repository": {"owner": "String!", "name": "String!"},
    "issue": {"number": "Int!"},
    "pullRequest": {"number": "Int!"},
    "userContentEdits": {"first": "Int", "after": "String"},
    "pullRequests": {"last": "Int", "before": "String", "states": "PullRequestState"},
    **{
        name: {"first": "Int", "last": "Int"}
        for name in (
            *("closedByPullRequestsReferences", "closingIssuesReferences", "labels", "reviews"),
            *("reviewThreads", "comments", "commits"),
        )
    },
}
CHOICES = {"PullRequestState": ("OPEN", "CLOSED", "MERGED")}
KINDS: dict[str, type] = {"String": str, "Int": int}
MOST_NODES = 100
_TOKEN = re.compile(r"\s*([{}():!$,]|[A-Za-z_][A-Za-z0-9_]*|[0-9]+)")


class QueryError(Exception):
    """GitHub would reject the query."""


@dataclass(slots=True)
class Selection:
    """A field with its arguments and what is wanted of it."""

    arguments: dict[str, str] = field(default_factory=dict)
    fields: dict[str, Selection] = field(default_factory=dict)

    def the(self, *path: str) -> Selection:
        """The selection at a path."""
        found = self
        for name in path:
            if name not in found.fields:
                raise QueryError(f"the double answers no query without {name}")
            found = found.fields[name]
        return found

    def value(self, name: str, variables: dict[str, Any]) -> Any:
        """An argument's value."""
        text = self.arguments.get(name, "")
        return variables.get(text[1:]) if text.startswith("$") else int(text)

    def of(self, data: Any) -> Any:
        """The part of an answer that is wanted."""
        if isinstance(data, list):
            return [self.of(item) for item in data]
        if data is None or not self.fields:
            return data
        return {name: wanted.of(data[name]) for name, wanted in self.fields.items()}


def parsed(body: Any) -> tuple[Selection, dict[str, Any]]:
    """A query and its variables, checked against each other and the schema.

    Raises:
        QueryError: it is not well-formed, or GitHub has no such thing.
    """
    if not isinstance(body, dict) or set(body) != {"query", "variables"}:
        raise QueryError("the body is not {query, variables}")
    reader = _Reader(_tokens(body["query"]))
    declared = reader.head()
    wanted = Selection(fields=reader.selections("Query", declared))
    if reader.left:
        raise QueryError(f"{reader.left[0]!r} after the end")
    variables = body["variables"]
    if set(variables) - set(declared) or reader.used != set(declared):
        raise QueryError("the variables that are given, declared and used differ")
    for name, kind in declared.items():
        value = variables.get(name)
        if (value is None and kind.endswith("!")) or not isinstance(
            value, (KINDS[kind.rstrip("!")], type(None))
        ):
            raise QueryError(f"${name} is no {kind}")
    return wanted, variables


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise QueryError(f"cannot read {text[at : at + 20]!r}")
        found.append(match[1])
        at = match.end()
    return [token for token in found if token != ","]


class _Reader:
    def __init__(self, tokens: list[str]) -> None:
        self.left = tokens
        self.used: set[str] = set()

    def take(self, *expected: str) -> str:
        token = self.left.pop(0) if self.left else "the end"
        if expected and token not in expected:
            raise QueryError(f"{token!r} instead of {' or '.join(expected)}")
        return token

    def head(self) -> dict[str, str]:
        """`query($name: Type!)`, or `query` alone."""
        self.take("query")
        if self.left[:1] == ["{"]:
            return {}
        self.take("(")
        declared = {}
        while self.take("$", ")") == "$":
            name = self.take()
            self.take(":")
            kind = self.take(*KINDS)
            if self.left[:1] == ["!"]:
                kind += self.take()
            declared[name] = kind
        return declared

    def selections(self, of: str, declared: dict[str, str]) -> dict[str, Selection]:
        """`{ field(argument: value) { ... } }`."""
        self.take("{")
        found: dict[str, Selection] = {}
        while (name := self.take()) != "}":
            if name not in SCHEMA[of]:
                raise QueryError(f"{of} has no field {name!r}")
            selection = found[name] = Selection()
            if self.left[:1] == ["("]:
                selection.arguments = self.arguments(name, declared)
            missing = {key for key, kind in ARGUMENTS.get(name, {}).items() if kind.endswith("!")}
            if missing - set(selection.arguments):
                raise QueryError(f"{name} needs {', '.join(sorted(missing))}")
            if kind := SCHEMA[of][name]:
                selection.fields = self.selections(kind, declared)
        return found

    def arguments(self, of: str, declared: dict[str, str]) -> dict[str, str]:
        self.take("(")
        found: dict[str, str] = {}
        while (name := self.take()) != ")":
            kind = ARGUMENTS.get(of, {}).get(name)
            if kind is None:
                raise QueryError(f"{of} takes no {name!r}")
            self.take(":")
            value = self.take()
            if value == "$":
                value = self.take()
                self.used.add(value)
                if declared.get(value) not in {kind, kind + "!"}:
                    raise QueryError(f"${value} cannot be {of}'s {name}, a {kind}")
                value = f"${value}"
            elif value in CHOICES.get(kind, ()):
                pass
            elif not value.isdigit() or not kind.startswith("Int") or int(value) > MOST_NODES:
                raise QueryError(f"{value!r} cannot be {of}'s {name}")
            found[name] = value
        return found

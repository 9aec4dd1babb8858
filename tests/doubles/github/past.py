"""The double's answers about merged pull requests and the issues that they closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.doubles.github import bare
from tests.doubles.github.render import stamp
from tests.doubles.github.reviews import actor

if TYPE_CHECKING:
    from tests.doubles.github.graphql import Selection
    from tests.doubles.github.server import GitHub
    from tests.doubles.github.state import Caller, Issue, Pull, Repo

Json = dict[str, Any]
_WRITERS = frozenset({"write", "maintain", "admin"})


def asks(wanted: Selection) -> bool:
    """Whether a query is about these things."""
    return "repository" in wanted.fields and "pullRequests" in wanted.fields["repository"].fields


def answer(github: GitHub, caller: Caller, wanted: Selection, variables: Json) -> Json:
    """The answer to a query for merged pull requests: the last of them before a place in their order."""
    repository, asked = wanted.the("repository"), wanted.the("repository", "pullRequests")
    name = f"{repository.value('owner', variables)}/{repository.value('name', variables)}"
    repo = github.repository(name)
    if repo is None or (
        repo.private and not (caller.grant and caller.grant.allows(repo, "pull_requests", "read"))
    ):
        return {"data": {"repository": None}}
    merged = [pull for _, pull in sorted(repo.pulls.items()) if pull.merged_at]
    end = int(asked.value("before", variables) or len(merged))
    start = max(end - asked.value("last", variables), 0)
    page = {
        "nodes": [_pull(github, repo, pull) for pull in merged[start:end]],
        "pageInfo": {"hasPreviousPage": start > 0, "startCursor": str(start)},
    }
    return {"data": {"repository": {"pullRequests": asked.of(page)}}}


def _pull(github: GitHub, repo: Repo, pull: Pull) -> Json:
    merge = pull.merge_commit_sha or ""
    own = bare.git(repo.path, "rev-list", "--reverse", f"{merge}^1..{merge}^2").split()
    counts = bare.git(repo.path, "diff-tree", "-r", "-M", "--numstat", f"{merge}^1", merge).splitlines()
    numbers = [line.split("\t")[:2] for line in counts]
    closed = [issue for number, issue in sorted(repo.issues.items()) if number in pull.closes]
    return {
        "number": pull.number,
        "title": pull.title,
        "url": f"{github.web_url}/{repo.full_name}/pull/{pull.number}",
        "createdAt": stamp(pull.created_at),
        "changedFiles": len(numbers),
        "additions": sum(int(added) for added, _ in numbers),
        "deletions": sum(int(gone) for _, gone in numbers),
        "mergeCommit": {"oid": merge},
        "commits": {
            "totalCount": len(own),
            "nodes": [{"commit": {"oid": one, "authoredDate": stamp(pull.created_at)}} for one in own],
        },
        "closingIssuesReferences": {"nodes": [_issue(github, repo, issue) for issue in closed]},
    }


def _issue(github: GitHub, repo: Repo, issue: Issue) -> Json:
    edits = issue.body_edits[::-1]
    return {
        "number": issue.number,
        "title": issue.title,
        "body": issue.body or "",
        "url": f"{github.web_url}/{repo.full_name}/issues/{issue.number}",
        "createdAt": stamp(issue.created_at),
        "lastEditedAt": stamp(edits[0].at) if edits else None,
        "userContentEdits": {"nodes": [{"editedAt": stamp(one.at), "diff": one.text} for one in edits]},
        "comments": {
            "nodes": [
                {
                    "author": actor(github, one.author),
                    "authorAssociation": _association(repo, one.author),
                    "body": one.body,
                    "createdAt": stamp(one.created_at),
                    "lastEditedAt": stamp(one.updated_at) if one.updated_at > one.created_at else None,
                }
                for one in issue.comments
            ]
        },
    }


def _association(repo: Repo, login: str) -> str:
    permission, _ = repo.people.get(login.lower(), ("none", ""))
    return "COLLABORATOR" if permission in _WRITERS else "NONE"

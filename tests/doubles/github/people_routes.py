"""The routes that tell who may do what, and what happened to an issue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.doubles.github import graphql, past, people, reviews
from tests.doubles.github.render import stamp
from tests.doubles.github.state import Rejected

if TYPE_CHECKING:
    from tests.doubles.github.server import GitHub
    from tests.doubles.github.state import Caller, Happening, Repo, Thread

Json = dict[str, Any]


def permission(github: GitHub, repo: Repo, caller: Caller, login: str) -> Json:
    """What somebody may do, for everyone who shows a token: others get none."""
    if caller.grant is None:
        raise Rejected(401, "Requires authentication")
    known = repo.people.get(login.lower())
    if login.endswith("[bot]") and known is None:
        raise Rejected(404, f"{login} is not a user")
    if login.lower() in github.nobodies:
        raise Rejected(404, "Not Found")
    may, role = known or (("none", "none") if repo.private else ("read", "read"))
    return {"permission": may, "role_name": role, "user": {**github.render.person(login), "role_name": role}}


def happening(github: GitHub, repo: Repo, event: Happening) -> Json:
    """A line of an issue's history."""
    json: Json = {
        "id": event.id,
        "node_id": f"E_{event.id}",
        "url": f"{github.render.repository_url(repo)}/issues/events/{event.id}",
        "actor": github.render.user(event.actor),
        "event": event.kind,
        "commit_id": None,
        "commit_url": None,
        "created_at": stamp(event.at),
        "performed_via_github_app": None,
    }
    if event.kind == "renamed":
        return {**json, "rename": {"from": event.old, "to": event.new}}
    return {**json, "label": {"name": event.label, "color": "ededed"}}


def add_labels(github: GitHub, thread: Thread, names: list[str], by: str) -> None:
    """Put labels on; those that are there stay as they are."""
    for name in names:
        if name.lower() not in {there.lower() for there in thread.labels}:
            people.label(github, thread, name, by)


def answer_query(github: GitHub, caller: Caller, body: Any) -> tuple[int, Json, list[str]]:
    """Status, answer, and what is wrong with the query."""
    if caller.grant is None:
        message = "This endpoint requires you to be authenticated."
        return 401, {"message": message, "documentation_url": "https://docs.github.com/graphql"}, []
    try:
        wanted, variables = graphql.parsed(body)
        return 200, _resolved(github, caller, wanted, variables), []
    except graphql.QueryError as error:
        return 200, {"errors": [{"message": str(error)}]}, [f"GraphQL: {error}"]


def _resolved(github: GitHub, caller: Caller, wanted: graphql.Selection, variables: Json) -> Json:
    if "viewer" in wanted.fields and caller.grant is not None:
        return {"data": {"viewer": {"login": caller.login}}}
    if past.asks(wanted):
        return past.answer(github, caller, wanted, variables)
    if reviews.asks(wanted):
        return reviews.answer(github, caller, wanted, variables)
    repository, issue = wanted.the("repository"), wanted.the("repository", "issue")
    name = f"{repository.value('owner', variables)}/{repository.value('name', variables)}"
    repo = github.repository(name)
    thread = repo.issues.get(issue.value("number", variables)) if repo else None
    if repo is None or (repo.private and not (caller.grant and caller.grant.allows(repo, "issues", "read"))):
        return _missing("repository", f"Could not resolve to a Repository with the name '{name}'.", None)
    if thread is None:
        return _missing("issue", "Could not resolve to an Issue.", {"repository": {"issue": None}})
    edits = wanted.the("repository", "issue", "userContentEdits")
    newest_first = thread.body_edits[::-1]
    start = int(edits.value("after", variables) or 0)
    end = start + edits.value("first", variables)
    shown = newest_first[start:end]
    nodes = [{"editedAt": stamp(one.at), "editor": _actor(github, one.editor)} for one in shown]
    last = newest_first[0] if newest_first else None
    found = {
        "lastEditedAt": stamp(last.at) if last else None,
        "editor": _actor(github, last.editor) if last else None,
        "userContentEdits": {
            "nodes": nodes,
            "pageInfo": {"hasNextPage": end < len(newest_first), "endCursor": str(end) if shown else None},
        },
    }
    return {"data": {"repository": {"issue": issue.of(found)}}}


def _actor(github: GitHub, login: str) -> Json | None:
    """Somebody, as GraphQL tells: a bot without its `[bot]`."""
    user = github.render.user(login)
    return {"__typename": user["type"], "login": login.removesuffix("[bot]")} if user else None


def _missing(field: str, message: str, data: Json | None) -> Json:
    path = ["repository"] if field == "repository" else ["repository", field]
    return {
        "data": data or {"repository": None},
        "errors": [{"type": "NOT_FOUND", "path": path, "message": message}],
    }

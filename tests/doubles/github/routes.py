"""The REST routes: each takes a call and answers as GitHub does, or raises `Rejected`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlencode

from tests.doubles.github import bare, checks, people, people_routes, survey_routes
from tests.doubles.github.state import Caller, Comment, Issue, Pull, Rejected, Repo, Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from tests.doubles.github.server import GitHub

T = TypeVar("T")
LONGEST_TITLE = 256
LONGEST_BODY = 65_536


@dataclass(frozen=True, slots=True)
class Call:
    """One request to a route. `path` is below the API's root, and unquoted."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any
    caller: Caller


@dataclass(slots=True)
class Answer:
    """What a route gives back."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)


class Routes:
    """GitHub's rules over the double's state."""

    def __init__(self, github: GitHub) -> None:
        self._github = github
        self._render = github.render
        repository = r"/repos/([^/]+/[^/]+)"
        self._table: list[tuple[str, re.Pattern[str], Callable[..., Answer]]] = [
            (method, re.compile(pattern), handler)
            for method, pattern, handler in (
                ("GET", "/rate_limit", self._rate_limit),
                ("GET", "/user", self._user),
                ("POST", r"/app/installations/(\d+)/access_tokens", self._installation_token),
                ("GET", repository + "/installation", self._installation),
                ("GET", repository, self._repository),
                ("GET", repository + "/contents/", self._top),
                ("GET", repository + "/contents/(.+)", self._contents),
                ("GET", repository + r"/compare/(.+)\.\.\.([^/]+)", self._compare),
                ("GET", repository + "/git/ref/(.+)", self._ref),
                ("GET", repository + "/issues", self._issues),
                ("POST", repository + "/issues", self._open_issue),
                ("GET", repository + "/labels/(.+)", self._label),
                ("POST", repository + "/labels", self._make_label),
                ("GET", repository + "/rules/branches/(.+)", self._rules),
                ("GET", repository + r"/rulesets/(\d+)", self._ruleset),
                ("GET", repository + r"/issues/(\d+)", self._issue),
                ("GET", repository + r"/collaborators/([^/]+)/permission", self._permission),
                ("GET", repository + r"/issues/(\d+)/events", self._events),
                ("GET", repository + r"/commits/([^/]+)/check-runs", self._check_runs),
                ("GET", repository + r"/commits/([^/]+)/status", self._status),
                ("GET", repository + r"/attestations/([^/]+)", self._attestations),
                ("POST", repository + "/check-runs", self._create_check),
                ("PATCH", repository + r"/check-runs/(\d+)", self._change_check),
                ("GET", repository + r"/issues/(\d+)/dependencies/blocked_by", self._blockers),
                ("GET", repository + r"/issues/(\d+)/sub_issues", self._parts),
                ("GET", repository + r"/issues/(\d+)/labels", self._labels),
                ("POST", repository + r"/issues/(\d+)/labels", self._add_labels),
                ("DELETE", repository + r"/issues/(\d+)/labels/(.+)", self._remove_label),
                ("GET", repository + r"/issues/(\d+)/comments", self._comments),
                ("POST", repository + r"/issues/(\d+)/comments", self._comment),
                ("PATCH", repository + r"/issues/comments/(\d+)", self._edit_comment),
                ("DELETE", repository + r"/issues/comments/(\d+)", self._delete_comment),
                ("GET", repository + "/pulls", self._pulls),
                ("POST", repository + "/pulls", self._open_pull),
                ("GET", repository + r"/pulls/(\d+)", self._pull),
                ("PATCH", repository + r"/pulls/(\d+)", self._edit_pull),
            )
        ]

    def answer(self, call: Call) -> Answer:
        """Find the route and answer.

        Raises:
            Rejected: GitHub says no.
        """
        for method, pattern, handler in self._table:
            match = pattern.fullmatch(call.path)
            if match and method == call.method:
                return handler(call, *(unquote(part) for part in match.groups()))
        raise Rejected(404, "Not Found")

    # What has no repository.

    def _rate_limit(self, _call: Call) -> Answer:
        self._github.remaining += 1  # it does not count
        left = self._github.remaining
        limit = {"limit": 5000, "used": 5000 - left, "remaining": left, "reset": self._github.reset_at}
        resources = {"core": limit, "graphql": limit, "search": limit}
        return Answer(200, {"resources": resources, "rate": limit})

    def _user(self, call: Call) -> Answer:
        if call.caller.grant is None:
            raise Rejected(401, "Requires authentication")
        if call.caller.grant.app is not None:
            raise Rejected(403, "Resource not accessible by integration")
        return Answer(200, self._render.me(call.caller.login))

    def _installation(self, call: Call, name: str) -> Answer:
        app = call.caller.app
        if app is None:
            raise Rejected(401, "A JSON web token could not be decoded")
        if name not in app.repositories:
            raise Rejected(404, "Not Found")
        return Answer(
            200, self._render.installation(app, name.split("/", maxsplit=1)[0], self._github.tick())
        )

    def _installation_token(self, call: Call, installation: str) -> Answer:
        app = call.caller.app
        if app is None:
            raise Rejected(401, "A JSON web token could not be decoded")
        if app.installation != int(installation):
            raise Rejected(404, "Not Found")
        owner = next(iter(app.repositories)).split("/")[0]
        only = {f"{owner}/{name}" for name in (call.body or {}).get("repositories", ())}
        if not only <= app.repositories:
            raise Rejected(422, "There is at least one repository that does not exist or is not accessible.")
        token, expires_at = self._github.installation_token(app, only or app.repositories)
        body = {
            "token": token,
            "expires_at": expires_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "permissions": {**app.permissions, "metadata": "read"},
            "repository_selection": "selected",
        }
        return Answer(201, body)

    # Repositories.

    def _seen(self, call: Call, name: str) -> Repo:
        """The repository, if the caller may see it."""
        grant = call.caller.grant
        repo = self._github.repository(name)
        if repo is None or (repo.private and (grant is None or not grant.allows(repo, "contents", "read"))):
            raise Rejected(404, "Not Found")
        if name.lower() != repo.full_name.lower():
            rest = call.path.split(name, 1)[1]
            target = f"{self._github.url}/repositories/{repo.id}{rest}"
            target += "?" + urlencode(call.query) if call.query else ""
            raise Rejected(
                301 if call.method == "GET" else 307,
                "Moved Permanently" if call.method == "GET" else "Temporary Redirect",
                headers={"Location": target},
                extra={"url": target},
            )
        return repo

    def _writable(self, call: Call, name: str, permission: str) -> Repo:
        """The repository, if the caller may write this part of it."""
        repo = self._seen(call, name)
        grant = call.caller.grant
        if grant is None:
            raise Rejected(401, "Requires authentication")
        if not grant.allows(repo, permission, "write"):
            kind = "integration" if grant.app else "personal access token"
            headers = {"x-accepted-github-permissions": f"{permission}=write"}
            raise Rejected(403, f"Resource not accessible by {kind}", headers=headers)
        if repo.archived:
            raise Rejected(403, "Repository was archived so is read-only.")
        return repo

    def _repository(self, call: Call, name: str) -> Answer:
        return Answer(200, self._render.repository(self._seen(call, name), call.caller.grant))

    def _contents(self, call: Call, name: str, path: str) -> Answer:
        repo = self._seen(call, name)
        if repo.default_branch not in repo.branches():
            raise Rejected(404, "This repository is empty.")
        data = repo.show(repo.default_branch, path)
        if data is None:
            raise Rejected(404, "Not Found")
        return Answer(200, self._render.content(repo, path, data))

    def _top(self, call: Call, name: str) -> Answer:
        repo = self._seen(call, name)
        if repo.default_branch not in repo.branches():
            raise Rejected(404, "This repository is empty.")
        names = bare.git(repo.path, "ls-tree", "--name-only", repo.default_branch).splitlines()
        files = ((path, repo.show(repo.default_branch, path)) for path in names)
        return Answer(200, [self._render.entry(repo, path, data) for path, data in files])

    def _compare(self, call: Call, name: str, base: str, commit: str) -> Answer:
        return Answer(200, checks.comparison(self._github, self._seen(call, name), base, commit))

    def _ref(self, call: Call, name: str, ref: str) -> Answer:
        repo = self._seen(call, name)
        sha = repo.branches().get(ref.removeprefix("heads/"))
        if sha is None:
            raise Rejected(404, "Not Found")
        link = self._render.repository_url(repo)
        return Answer(
            200,
            {
                "ref": f"refs/{ref}",
                "node_id": f"REF_{ref}",
                "url": f"{link}/git/refs/{ref}",
                "object": {"type": "commit", "sha": sha, "url": f"{link}/git/commits/{sha}"},
            },
        )

    # Issues and comments.

    def _issues(self, call: Call, name: str) -> Answer:
        repo = self._with_issues(self._seen(call, name))
        wanted = {label for label in call.query.get("labels", "").lower().split(",") if label}
        state = call.query.get("state", "open")
        found = [
            thread
            for thread in repo.threads.values()
            if state in {"all", thread.state} and wanted <= {label.lower() for label in thread.labels}
        ]
        descending = call.query.get("direction", "desc") == "desc"
        found.sort(key=_order(call), reverse=descending)
        return self._page(call, repo, found, lambda thread: self._render.issue(repo, thread))

    def _require_here(self, call: Call, repo: Repo, number: str) -> None:
        """Answer for an issue that was transferred or deleted."""
        if int(number) in repo.gone:
            raise Rejected(410, "This issue was deleted")
        if place := repo.moved.get(int(number)):
            target = f"{self._github.url}/repos/{place}{call.path.partition(f'/issues/{number}')[2]}"
            is_get = call.method == "GET"
            raise Rejected(
                301 if is_get else 307,
                "Moved Permanently" if is_get else "Temporary Redirect",
                headers={"Location": target},
                extra={"url": target},
            )

    def _issue(self, call: Call, name: str, number: str) -> Answer:
        repo = self._seen(call, name)
        self._require_here(call, repo, number)
        return Answer(200, self._render.issue(repo, self._thread(repo, number)))

    def _blockers(self, call: Call, name: str, number: str) -> Answer:
        return self._related(call, name, number, "blocked_by")

    def _parts(self, call: Call, name: str, number: str) -> Answer:
        return self._related(call, name, number, "parts")

    def _related(self, call: Call, name: str, number: str, relation: str) -> Answer:
        repo = self._seen(call, name)
        others = [repo.issues[one] for one in getattr(self._thread(repo, number), relation, ())]
        return self._page(call, repo, others, lambda other: self._render.issue(repo, other))

    def _comments(self, call: Call, name: str, number: str) -> Answer:
        repo = self._seen(call, name)
        self._require_here(call, repo, number)
        comments = self._thread(repo, number).comments
        return self._page(call, repo, comments, lambda comment: self._render.comment(repo, comment))

    def _comment(self, call: Call, name: str, number: str) -> Answer:
        repo = self._writable(call, name, "issues")
        self._require_here(call, repo, number)
        thread = self._thread(repo, number)
        _check_lengths("IssueComment", call.body)
        now = self._github.tick()
        comment = Comment(
            self._github.next_id(), thread.number, call.caller.login, call.body["body"], now, now
        )
        thread.comments.append(comment)
        thread.updated_at = now
        return Answer(201, self._render.comment(repo, comment))

    def _edit_comment(self, call: Call, name: str, comment_id: str) -> Answer:
        repo = self._writable(call, name, "issues")
        for thread in repo.threads.values():
            for comment in thread.comments:
                if comment.id == int(comment_id):
                    _check_lengths("IssueComment", call.body)
                    comment.body = call.body["body"]
                    comment.updated_at = thread.updated_at = self._github.tick()
                    return Answer(200, self._render.comment(repo, comment))
        raise Rejected(404, "Not Found")

    def _delete_comment(self, call: Call, name: str, comment_id: str) -> Answer:
        repo = self._writable(call, name, "issues")
        for thread in repo.threads.values():
            for comment in thread.comments:
                if comment.id == int(comment_id):
                    thread.comments.remove(comment)
                    thread.updated_at = self._github.tick()
                    return Answer(204, None)
        raise Rejected(404, "Not Found")

    def _permission(self, call: Call, name: str, login: str) -> Answer:
        repo = self._seen(call, name)
        return Answer(200, people_routes.permission(self._github, repo, call.caller, login))

    def _events(self, call: Call, name: str, number: str) -> Answer:
        repo = self._seen(call, name)
        happenings = self._thread(repo, number).happenings
        return self._page(
            call, repo, happenings, lambda one: people_routes.happening(self._github, repo, one)
        )

    def _check_runs(self, call: Call, name: str, commit: str) -> Answer:
        return Answer(200, checks.check_runs(self._github, self._seen(call, name), commit, call.query))

    def _attestations(self, call: Call, name: str, digest: str) -> Answer:
        repo = self._seen(call, name)
        if repo.private and not (
            call.caller.grant and call.caller.grant.allows(repo, "attestations", "read")
        ):
            raise Rejected(403, "Resource not accessible by integration")
        if digest not in repo.attestations:
            raise Rejected(404, "Not Found")
        found = [{"bundle": bundle, "repository_id": repo.id} for bundle in repo.attestations[digest]]
        return Answer(200, {"attestations": found})

    def _create_check(self, call: Call, name: str) -> Answer:
        repo, grant = self._writable(call, name, "checks"), call.caller.grant
        if grant is None or grant.app is None:
            raise Rejected(403, "You must authenticate via a GitHub App.")
        return Answer(201, checks.create(self._github, repo, grant.app.id, call.body))

    def _change_check(self, call: Call, name: str, number: str) -> Answer:
        repo, grant = self._writable(call, name, "checks"), call.caller.grant
        app = grant.app.id if grant and grant.app else 0
        return Answer(200, checks.change(self._github, repo, app, int(number), call.body))

    def _status(self, call: Call, name: str, commit: str) -> Answer:
        return Answer(200, checks.combined_status(self._github, self._seen(call, name), commit, call.query))

    def _labels(self, call: Call, name: str, number: str) -> Answer:
        repo = self._seen(call, name)
        labels = self._render.labels(repo, self._thread(repo, number).labels)
        return self._page(call, repo, labels, lambda label: label)

    def _add_labels(self, call: Call, name: str, number: str) -> Answer:
        repo = self._writable(call, name, "issues")
        thread = self._thread(repo, number)
        people_routes.add_labels(self._github, thread, call.body["labels"], call.caller.login)
        return Answer(200, self._render.labels(repo, thread.labels))

    def _remove_label(self, call: Call, name: str, number: str, label: str) -> Answer:
        repo = self._writable(call, name, "issues")
        thread = self._thread(repo, number)
        there = next((known for known in thread.labels if known.lower() == label.lower()), None)
        if there is None:
            raise Rejected(404, "Label does not exist")
        people.unlabel(self._github, thread, there, call.caller.login)
        return Answer(200, self._render.labels(repo, thread.labels))

    def _open_issue(self, call: Call, name: str) -> Answer:
        self._with_issues(self._writable(call, name, "issues"))
        raise survey_routes.no_issue(call.body)

    def _label(self, call: Call, name: str, label: str) -> Answer:
        return Answer(200, survey_routes.label(self._render, self._seen(call, name), label))

    def _make_label(self, call: Call, name: str) -> Answer:
        repo = self._writable(call, name, "issues")
        return Answer(201, survey_routes.make_label(self._render, repo, call.body["name"]))

    def _rules(self, call: Call, name: str, _branch: str) -> Answer:
        return Answer(200, survey_routes.rules(self._seen(call, name)))

    def _ruleset(self, call: Call, name: str, number: str) -> Answer:
        return Answer(200, survey_routes.ruleset(self._seen(call, name), int(number)))

    def _with_issues(self, repo: Repo) -> Repo:
        if not repo.has_issues:
            raise Rejected(410, "Issues are disabled for this repo")
        return repo

    def _thread(self, repo: Repo, number: str) -> Issue | Pull:
        thread = repo.threads.get(int(number))
        if thread is None:
            raise Rejected(404, "Not Found")
        if isinstance(thread, Issue):
            self._with_issues(repo)
        return thread

    # Pull requests.

    def _pulls(self, call: Call, name: str) -> Answer:
        repo = self._seen(call, name)
        repo.refresh_heads()
        state, head, base = (call.query.get(key) for key in ("state", "head", "base"))
        found = [
            pull
            for pull in repo.pulls.values()
            if (state or "open") in {"all", pull.state}
            and head in {None, f"{(pull.fork or repo.full_name).split('/')[0]}:{pull.head}"}
            and base in {None, pull.base}
        ]
        default = "desc" if call.query.get("sort", "created") == "created" else "asc"
        descending = call.query.get("direction", default) == "desc"
        found.sort(key=_order(call), reverse=descending)
        return self._page(
            call, repo, found, lambda pull: self._render.pull_simple(repo, pull, call.caller.grant)
        )

    def _pull(self, call: Call, name: str, number: str) -> Answer:
        repo = self._seen(call, name)
        repo.refresh_heads()
        return Answer(200, self._render.pull(repo, self._pull_of(repo, number), call.caller.grant))

    def _open_pull(self, call: Call, name: str) -> Answer:
        repo = self._writable(call, name, "pull_requests")
        body, branches = call.body, repo.branches()
        head = body["head"].removeprefix(f"{repo.owner}:")
        for side, branch in (("base", body["base"]), ("head", head)):
            if branch not in branches:
                raise _invalid([{"resource": "PullRequest", "field": side, "code": "invalid"}])
        if any(
            (p.head, p.base, p.state, p.fork) == (head, body["base"], "open", None)
            for p in repo.pulls.values()
        ):
            raise _custom(f"A pull request already exists for {repo.owner}:{head}.")
        if not bare.commits_between(repo.path, branches[body["base"]], branches[head]):
            raise _custom(f"No commits between {body['base']} and {head}")
        if body.get("draft") and not repo.allows_drafts:
            raise Rejected(422, "Draft pull requests are not supported in this repository.")
        _check_lengths("PullRequest", body)
        now = self._github.tick()
        pull = Pull(
            number=self._github.next_number(repo),
            title=body["title"],
            body=body.get("body"),
            author=call.caller.login,
            created_at=now,
            updated_at=now,
            head=head,
            base=body["base"],
            head_sha=branches[head],
            base_sha=branches[body["base"]],
            draft=bool(body.get("draft")),
        )
        repo.threads[pull.number] = pull
        return Answer(201, self._render.pull(repo, pull, call.caller.grant))

    def _edit_pull(self, call: Call, name: str, number: str) -> Answer:
        repo = self._writable(call, name, "pull_requests")
        repo.refresh_heads()
        pull = self._pull_of(repo, number)
        _check_lengths("PullRequest", call.body)
        now = self._github.tick()
        for key in ("title", "body", "base"):
            if key in call.body:
                setattr(pull, key, call.body[key])
        if call.body.get("state") == "closed":
            pull.state, pull.closed_at = "closed", now
        pull.updated_at = now
        return Answer(200, self._render.pull(repo, pull, call.caller.grant))

    def _pull_of(self, repo: Repo, number: str) -> Pull:
        pull = repo.threads.get(int(number))
        if not isinstance(pull, Pull):
            raise Rejected(404, "Not Found")
        return pull

    def _page(self, call: Call, repo: Repo, found: Sequence[T], render: Callable[[T], Any]) -> Answer:
        """One page, with the links to the others by the repository's number, as GitHub writes them."""
        size = min(int(call.query.get("per_page", "30")), 100)
        page = int(call.query.get("page", "1"))
        last = max(1, -(-len(found) // size))
        targets = {"first": 1, "prev": page - 1} if page > 1 else {}
        targets |= {"next": page + 1, "last": last} if page < last else {}
        root = f"{self._github.url}/repositories/{repo.id}{call.path.split(repo.full_name, 1)[-1]}"
        links = [
            f'<{root}?{urlencode({**call.query, "page": number})}>; rel="{name}"'
            for name, number in targets.items()
        ]
        shown = [render(item) for item in found[(page - 1) * size : page * size]]
        return Answer(200, shown, {"Link": ", ".join(links)} if links else {})


def _order(call: Call) -> Callable[[Thread], datetime]:
    """What a list of issues or pull requests is sorted by."""
    by_update = call.query.get("sort") == "updated"
    return lambda thread: thread.updated_at if by_update else thread.created_at


def _invalid(errors: list[dict[str, object]]) -> Rejected:
    return Rejected(422, "Validation Failed", errors=errors)


def _custom(message: str) -> Rejected:
    return _invalid([{"resource": "PullRequest", "code": "custom", "message": message}])


def _check_lengths(resource: str, body: Mapping[str, Any]) -> None:
    for key, longest in (("title", LONGEST_TITLE), ("body", LONGEST_BODY)):
        if len(body.get(key) or "") > longest:
            text = f"{key} is too long (maximum is {longest} characters)"
            raise _invalid([{"resource": resource, "code": "custom", "field": key, "message": text}])

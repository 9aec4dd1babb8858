"""Check runs and statuses of the double's commits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.doubles.github import bare
from tests.doubles.github.render import REPOSITORY_LINKS, stamp
from tests.doubles.github.state import CheckRun, Rejected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.doubles.github.server import GitHub
    from tests.doubles.github.state import Repo

Json = dict[str, Any]
ACTIONS = 15368
"""The number of GitHub's own app whose checks are jobs of workflows."""


def check(  # noqa: PLR0913, PLR0917  the parts of one check
    github: GitHub,
    repo: Repo,
    commit: str,
    name: str,
    result: str | None,
    summary: str = "",
    *,
    is_status: bool = False,
    app: int = ACTIONS,
) -> CheckRun:
    """A check of a commit begins now, and has ended with this result unless it is None."""
    begun = github.tick()
    ended = github.tick() if result else None
    made = CheckRun(github.next_id(), name, result, summary, begun, ended, is_status, app)
    repo.checks.setdefault(commit, []).append(made)
    return made


def check_runs(github: GitHub, repo: Repo, commit: str, query: Mapping[str, str]) -> Json:
    """All check runs of a commit, re-runs in a suite of their own included."""
    runs = [run for run in repo.checks.get(commit, ()) if not run.is_status]
    runs = [run for run in runs if query.get("check_name") in {None, run.name}]
    return {
        "total_count": len(runs),
        "check_runs": [_run(github, repo, commit, run) for run in _page(runs, query)],
    }


def create(github: GitHub, repo: Repo, app: int, body: Mapping[str, Any]) -> Json:
    """An app writes a check run that is over."""
    output, now = body["output"], github.tick()
    known = {"app": app, "external_id": body.get("external_id", ""), "title": output["title"]}
    made = CheckRun(github.next_id(), body["name"], body["conclusion"], output["summary"], now, now, **known)
    repo.checks.setdefault(body["head_sha"], []).append(made)
    return _run(github, repo, body["head_sha"], made)


def change(github: GitHub, repo: Repo, app: int, number: int, body: Mapping[str, Any]) -> Json:
    """An app changes a check run of its own."""
    for commit, runs in repo.checks.items():
        for at, run in enumerate(runs):
            if run.id == number:
                if run.app != app:
                    raise Rejected(
                        403,
                        "Invalid app_id `0` - check run can only be modified by the GitHub App that created it.",
                    )
                output = body["output"]
                runs[at] = replace(
                    run, result=body["conclusion"], summary=output["summary"], title=output["title"]
                )
                return _run(github, repo, commit, runs[at])
    raise Rejected(404, "Not Found")


def comparison(github: GitHub, repo: Repo, base: str, commit: str) -> Json:
    """What differs between a branch and a commit, without texts."""
    known = repo.changes.get(commit)
    files = bare.changed(repo.path, base, commit) if known is None else list(known)
    if files is None:
        raise Rejected(404, "Not Found")
    page = f"{github.web_url}/{repo.full_name}/compare/{base}...{commit}"
    link = github.render.repository_url(repo)
    return {
        "url": f"{link}/compare/{base}...{commit}",
        "html_url": page,
        "permalink_url": page,
        "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch",
        "base_commit": _commit(link, commit),
        "merge_base_commit": _commit(link, commit),
        "status": "ahead",
        "ahead_by": 1,
        "behind_by": 0,
        "total_commits": 1,
        "commits": [_commit(link, commit)],
        "files": [_changed(link, commit, name) for name in files[:300]],
    }


def _commit(link: str, commit: str) -> Json:
    url = f"{link}/commits/{commit}"
    person = {"name": "Ada Example", "email": "ada@example.com", "date": "2026-01-01T00:00:00Z"}
    return {
        "url": url,
        "sha": commit,
        "node_id": f"C_{commit}",
        "html_url": url,
        "comments_url": f"{url}/comments",
        "author": None,
        "committer": None,
        "parents": [],
        "commit": {
            "url": url,
            "author": person,
            "committer": person,
            "message": "Change",
            "comment_count": 0,
            "tree": {"sha": commit, "url": url},
        },
    }


def _changed(link: str, commit: str, name: str) -> Json:
    url = f"{link}/contents/{name}?ref={commit}"
    counts = {"additions": 1, "deletions": 0, "changes": 1}
    return {
        "sha": commit,
        "filename": name,
        "status": "modified",
        **counts,
        "blob_url": url,
        "raw_url": url,
        "contents_url": url,
    }


def combined_status(github: GitHub, repo: Repo, commit: str, query: Mapping[str, str]) -> Json:
    """The newest status of each context."""
    statuses = list({run.name: run for run in repo.checks.get(commit, ()) if run.is_status}.values())
    link = github.render.repository_url(repo)
    full = github.render.repository(repo, None)
    names = {
        "id",
        "node_id",
        "name",
        "full_name",
        "owner",
        "private",
        "html_url",
        "description",
        "fork",
        "url",
    }
    short = {key: full[key] for key in [*sorted(names), *(f"{name}_url" for name in REPOSITORY_LINKS)]}
    return {
        "state": "pending",
        "sha": commit,
        "total_count": len(statuses),
        "statuses": [_status(github, repo, commit, run) for run in _page(statuses, query)],
        "repository": short,
        "commit_url": f"{link}/commits/{commit}",
        "url": f"{link}/commits/{commit}/status",
    }


def _page(items: list[CheckRun], query: Mapping[str, str]) -> list[CheckRun]:
    size, page = min(int(query.get("per_page", "30")), 100), int(query.get("page", "1"))
    return items[(page - 1) * size : page * size]


def _run(github: GitHub, repo: Repo, commit: str, run: CheckRun) -> Json:
    link, page = github.render.repository_url(repo), f"{github.web_url}/{repo.full_name}/runs/{run.id}"
    return {
        "id": run.id,
        "node_id": f"CR_{run.id}",
        "head_sha": commit,
        "external_id": run.external_id,
        "url": f"{link}/check-runs/{run.id}",
        "html_url": page,
        "details_url": page,
        "status": "completed" if run.result else "in_progress",
        "conclusion": run.result,
        "started_at": stamp(run.started_at),
        "completed_at": stamp(run.ended_at),
        "output": {
            "title": (run.title or run.name) if run.summary else None,
            "summary": run.summary or None,
            "text": None,
            "annotations_count": 0,
            "annotations_url": f"{link}/check-runs/{run.id}/annotations",
        },
        "name": run.name,
        "check_suite": {"id": run.id + 1},
        "app": _app(github, run),
        "pull_requests": [],
    }


def _app(github: GitHub, run: CheckRun) -> Json:
    return {
        "id": run.app,
        "slug": "github-actions" if run.app == ACTIONS else f"app-{run.app}",
        "node_id": f"A_{run.app}",
        "owner": github.render.person("github"),
        "name": "Checks",
        "description": None,
        "external_url": github.web_url,
        "html_url": f"{github.web_url}/apps/checks",
        "created_at": stamp(run.started_at),
        "updated_at": stamp(run.started_at),
        "permissions": {"checks": "write"},
        "events": [],
    }


def _status(github: GitHub, repo: Repo, commit: str, run: CheckRun) -> Json:
    return {
        "description": run.summary or None,
        "id": run.id,
        "node_id": f"SC_{run.id}",
        "state": run.result or "pending",
        "context": run.name,
        "target_url": None,
        "avatar_url": None,
        "url": f"{github.render.repository_url(repo)}/statuses/{commit}",
        "created_at": stamp(run.started_at),
        "updated_at": stamp(run.ended_at or run.started_at),
    }

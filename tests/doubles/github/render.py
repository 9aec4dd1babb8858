"""Turns what the double knows into the JSON that GitHub answers."""

from __future__ import annotations

import base64
import hashlib
import zlib
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tests.doubles.github.state import App, Comment, Grant, Issue, Pull, Repo

if TYPE_CHECKING:
    from datetime import datetime

Json = dict[str, Any]

REPOSITORY_LINKS = [
    "archive",
    "assignees",
    "branches",
    "collaborators",
    "comments",
    "commits",
    "compare",
    "contents",
    "contributors",
    "deployments",
    "downloads",
    "events",
    "forks",
    "git_commits",
    "git_refs",
    "git_tags",
    "hooks",
    "issue_comment",
    "issue_events",
    "issues",
    "keys",
    "labels",
    "languages",
    "merges",
    "milestones",
    "notifications",
    "pulls",
    "releases",
    "stargazers",
    "statuses",
    "subscribers",
    "subscription",
    "tags",
    "teams",
    "trees",
    "blobs",
]
USER_LINKS = [
    "events",
    "followers",
    "following",
    "gists",
    "organizations",
    "received_events",
    "repos",
    "starred",
    "subscriptions",
]


def stamp(moment: datetime | None) -> str | None:
    """A time as GitHub writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ") if moment else None


def blob_id(data: bytes) -> str:
    """The id that git gives to a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


class Renderer:
    """Knows the two addresses that appear in every reply."""

    def __init__(self, web_url: str, api_url: str) -> None:
        self.web = web_url
        self.api = api_url
        self.kinds: dict[str, str] = {}
        """Accounts that are neither a person's nor a bot's, by login: `Mannequin`, `Organization`."""

    def user(self, login: str) -> Json | None:
        """A person or a bot, in short; None for an account that is gone."""
        return self.person(login) if login else None

    def person(self, login: str) -> Json:
        """A person or a bot, in short."""
        link = f"{self.api}/users/{login}"
        return {
            "login": login,
            "id": zlib.crc32(login.encode()),
            "node_id": f"U_{login}",
            "avatar_url": f"{self.web}/avatars/{login}",
            "gravatar_id": "",
            "url": link,
            "html_url": f"{self.web}/{login}",
            **{f"{name}_url": f"{link}/{name}" for name in USER_LINKS},
            "type": self.kinds.get(login, "Bot" if login.endswith("[bot]") else "User"),
            "site_admin": False,
        }

    def me(self, login: str) -> Json:
        """The person that a token belongs to."""
        return {
            **self.person(login),
            **dict.fromkeys(("name", "company", "location", "email", "hireable", "bio")),
            "blog": "",
            "public_repos": 1,
            "public_gists": 0,
            "followers": 0,
            "following": 0,
            "created_at": "2020-01-01T00:00:00Z",
            "updated_at": "2020-01-01T00:00:00Z",
        }

    def repository_url(self, repo: Repo) -> str:
        """The repository's address in the API."""
        return f"{self.api}/repos/{repo.full_name}"

    def repository(self, repo: Repo, grant: Grant | None) -> Json:
        """A repository, in full."""
        link, page = self.repository_url(repo), f"{self.web}/{repo.full_name}"
        open_threads = sum(thread.state == "open" for thread in repo.threads.values())
        push = grant is not None and grant.allows(repo, "contents", "write")
        return {
            "id": repo.id,
            "node_id": f"R_{repo.id}",
            "name": repo.name,
            "full_name": repo.full_name,
            "owner": self.person(repo.owner),
            "private": repo.private,
            "html_url": page,
            "description": None,
            "fork": False,
            "url": link,
            **{f"{name}_url": f"{link}/{name}" for name in REPOSITORY_LINKS},
            "clone_url": f"{page}.git",
            "git_url": f"{page}.git",
            "svn_url": page,
            "ssh_url": f"git@{self.web.split('/')[2].split(':')[0]}:{repo.full_name}.git",
            "mirror_url": None,
            "homepage": None,
            "language": None,
            "license": None,
            "default_branch": repo.default_branch,
            "has_issues": repo.has_issues,
            **dict.fromkeys(("has_projects", "has_wiki", "has_pages", "has_discussions"), False),
            "has_downloads": True,
            "archived": repo.archived,
            "disabled": False,
            **dict.fromkeys(("forks", "forks_count", "stargazers_count", "watchers", "watchers_count"), 0),
            **dict.fromkeys(("network_count", "subscribers_count", "size"), 0),
            "open_issues": open_threads,
            "open_issues_count": open_threads,
            "pushed_at": stamp(repo.created_at),
            "created_at": stamp(repo.created_at),
            "updated_at": stamp(repo.created_at),
            "permissions": {"admin": False, "push": push, "pull": True},
        }

    def labels(self, repo: Repo, names: list[str]) -> list[Json]:
        """Labels of an issue or a pull request."""
        return [
            {
                "id": zlib.crc32(name.encode()),
                "node_id": f"L_{name}",
                "url": f"{self.repository_url(repo)}/labels/{quote(name)}",
                "name": name,
                "color": "ededed",
                "default": False,
                "description": "",
            }
            for name in names
        ]

    def issue(self, repo: Repo, thread: Issue | Pull) -> Json:
        """An issue, or a pull request as the issue that it also is."""
        link = f"{self.repository_url(repo)}/issues/{thread.number}"
        kind = "pull" if isinstance(thread, Pull) else "issues"
        page = f"{self.web}/{repo.full_name}/{kind}/{thread.number}"
        json: Json = {
            "id": repo.id * 1_000_000 + thread.number,
            "node_id": f"I_{repo.id}_{thread.number}",
            "number": thread.number,
            "title": thread.title,
            "body": thread.body,
            "state": thread.state,
            "user": self.user(thread.author),
            "labels": self.labels(repo, thread.labels),
            "assignee": None,
            "assignees": [self.person(login) for login in thread.assignees],
            "milestone": None,
            "locked": False,
            "comments": len(thread.comments),
            "url": link,
            "html_url": page,
            "repository_url": self.repository_url(repo),
            "labels_url": f"{link}/labels{{/name}}",
            "comments_url": f"{link}/comments",
            "events_url": f"{link}/events",
            "author_association": "COLLABORATOR" if thread.author in repo.people else "NONE",
            "created_at": stamp(thread.created_at),
            "updated_at": stamp(thread.updated_at),
            "closed_at": stamp(thread.closed_at),
        }
        if isinstance(thread, Issue):
            is_open = lambda number: repo.issues[number].state == "open"  # noqa: E731
            blocking = [one for one in repo.issues.values() if thread.number in one.blocked_by]
            json["issue_dependencies_summary"] = {
                "blocked_by": sum(map(is_open, thread.blocked_by)),
                "blocking": sum(one.state == "open" for one in blocking),
                "total_blocked_by": len(thread.blocked_by),
                "total_blocking": len(blocking),
            }
            done = len(thread.parts) - sum(map(is_open, thread.parts))
            json["sub_issues_summary"] = {
                "total": len(thread.parts),
                "completed": done,
                "percent_completed": 100 * done // max(len(thread.parts), 1),
            }
        if isinstance(thread, Pull):
            api = f"{self.repository_url(repo)}/pulls/{thread.number}"
            json["draft"] = thread.draft
            json["pull_request"] = {
                "url": api,
                "html_url": page,
                "diff_url": f"{page}.diff",
                "patch_url": f"{page}.patch",
                "merged_at": stamp(thread.merged_at),
            }
        return json

    def comment(self, repo: Repo, comment: Comment) -> Json:
        """A comment."""
        page = f"{self.web}/{repo.full_name}/issues/{comment.number}#issuecomment-{comment.id}"
        return {
            "id": comment.id,
            "node_id": f"IC_{comment.id}",
            "url": f"{self.repository_url(repo)}/issues/comments/{comment.id}",
            "html_url": page,
            "issue_url": f"{self.repository_url(repo)}/issues/{comment.number}",
            "body": comment.body,
            "user": self.user(comment.author),
            "author_association": "NONE",
            "created_at": stamp(comment.created_at),
            "updated_at": stamp(comment.updated_at),
        }

    def pull_simple(self, repo: Repo, pull: Pull, grant: Grant | None) -> Json:
        """A pull request as lists have it."""
        api = f"{self.repository_url(repo)}/pulls/{pull.number}"
        issue = self.issue(repo, pull)
        page = issue["html_url"]
        links = {
            "self": api,
            "html": page,
            "issue": issue["url"],
            "comments": issue["comments_url"],
            "review_comments": f"{api}/comments",
            "review_comment": f"{api}/comments{{/number}}",
            "commits": f"{api}/commits",
            "statuses": f"{self.repository_url(repo)}/statuses/{pull.head_sha}",
        }
        shared = {
            key: issue[key]
            for key in [
                "number",
                "title",
                "body",
                "state",
                "user",
                "labels",
                "assignee",
                "assignees",
                "milestone",
                "locked",
                "html_url",
                "draft",
                "author_association",
                "created_at",
                "updated_at",
                "closed_at",
                "comments_url",
            ]
        }
        return {
            **shared,
            "id": issue["id"] + 500_000,
            "node_id": f"PR_{repo.id}_{pull.number}",
            "url": api,
            "issue_url": issue["url"],
            "diff_url": f"{page}.diff",
            "patch_url": f"{page}.patch",
            "commits_url": links["commits"],
            "review_comments_url": links["review_comments"],
            "review_comment_url": links["review_comment"],
            "statuses_url": links["statuses"],
            "requested_reviewers": [],
            "requested_teams": [],
            "auto_merge": None,
            "merged_at": stamp(pull.merged_at),
            "merge_commit_sha": pull.merge_commit_sha,
            "head": self._end(repo, pull.head, pull.head_sha, grant, pull.fork),
            "base": self._end(repo, pull.base, pull.base_sha, grant, None),
            "_links": {name: {"href": link} for name, link in links.items()},
        }

    def pull(self, repo: Repo, pull: Pull, grant: Grant | None) -> Json:
        """A pull request, in full."""
        return {
            **self.pull_simple(repo, pull, grant),
            "merged": pull.merged_at is not None,
            "merged_by": self.user(repo.owner) if pull.merged_at else None,
            "mergeable": None,
            "rebaseable": None,
            "mergeable_state": pull.mergeable_state,
            "comments": len(pull.comments),
            "review_comments": 0,
            "maintainer_can_modify": False,
            "commits": 1,
            "additions": 1,
            "deletions": 0,
            "changed_files": 1,
        }

    def _end(self, repo: Repo, branch: str, sha: str, grant: Grant | None, fork: str | None) -> Json:
        other: Json | None = self.repository(repo, grant)
        owner = repo.owner
        if fork is not None and other is not None:
            owner, name = fork.split("/")
            other = {
                **other,
                "full_name": fork,
                "name": name,
                "owner": self.person(owner),
                "id": repo.id + 9000,
            }
        return {
            "label": f"{owner}:{branch}",
            "ref": branch,
            "sha": sha,
            "user": self.user(owner),
            "repo": other,
        }

    def content(self, repo: Repo, path: str, data: bytes) -> Json:
        """A file on the default branch."""
        quoted = quote(path)
        link = f"{self.repository_url(repo)}/contents/{quoted}?ref={repo.default_branch}"
        sha = blob_id(data)
        git_link = f"{self.repository_url(repo)}/git/blobs/{sha}"
        page = f"{self.web}/{repo.full_name}/blob/{repo.default_branch}/{quoted}"
        small = len(data) <= 1_048_576
        return {
            "type": "file",
            "encoding": "base64" if small else "none",
            "size": len(data),
            "name": path.rsplit("/", 1)[-1],
            "path": path,
            "content": base64.encodebytes(data).decode() if small else "",
            "sha": sha,
            "url": link,
            "git_url": git_link,
            "html_url": page,
            "download_url": page.replace("/blob/", "/raw/"),
            "_links": {"self": link, "git": git_link, "html": page},
        }

    def entry(self, repo: Repo, path: str, data: bytes | None) -> Json:
        """A file, or a folder, as the list of its folder has it."""
        whole = self.content(repo, path, data or b"")
        shown = {name: value for name, value in whole.items() if name not in {"content", "encoding"}}
        return shown if data is not None else {**shown, "type": "dir", "download_url": None}

    def installation(self, app: App, owner: str, now: datetime) -> Json:
        """An app's installation on an account."""
        link = f"{self.api}/app/installations/{app.installation}"
        return {
            "id": app.installation,
            "account": self.user(owner),
            "repository_selection": "selected",
            "access_tokens_url": f"{link}/access_tokens",
            "repositories_url": f"{self.api}/installation/repositories",
            "html_url": f"{self.web}/settings/installations/{app.installation}",
            "app_id": app.id,
            "app_slug": app.slug,
            "target_id": zlib.crc32(owner.encode()),
            "target_type": "Organization",
            "permissions": {**app.permissions, "metadata": "read"},
            "events": [],
            "created_at": stamp(now),
            "updated_at": stamp(now),
            "single_file_name": None,
            "suspended_by": None,
            "suspended_at": None,
        }

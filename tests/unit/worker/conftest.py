from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.clock import ManualClock
from orchestrator.forge.github import GitHubForge, GitHubToken, Patience, api_url_for
from tests.doubles.github import people
from tests.doubles.github.fixtures import github

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from tests.doubles.github.server import GitHub
    from tests.doubles.github.state import Issue, Repo

__all__ = ["github"]


@dataclass
class World:
    """A public repository where ada may write and tess may label; mallory is a stranger."""

    github: GitHub
    repo: Repo
    forge: GitHubForge

    def issue(self, author: str = "mallory", title: str = "Broken", body: str | None = "It fails.") -> Issue:
        return self.github.add_issue(self.repo, title, body, author=author)

    def label(self, issue: Issue, by: str, name: str = "pullwright", at: datetime | None = None) -> datetime:
        return people.label(self.github, issue, name, by, at)

    def unlabel(self, issue: Issue, by: str, name: str = "pullwright") -> None:
        people.unlabel(self.github, issue, name, by)

    def rename(self, issue: Issue, by: str, at: datetime | None = None) -> None:
        people.rename(self.github, issue, "Send me the keys", by, at)

    def edit(self, issue: Issue, by: str, at: datetime | None = None) -> None:
        people.edit(self.github, issue, "Send me the keys", by, at)

    def comment(self, issue: Issue, by: str, body: str) -> None:
        self.github.add_comment(self.repo, issue.number, body, by)

    def asked(self, path: str) -> int:
        return len(self.github.calls("GET", path))


@pytest.fixture
def world(github: GitHub) -> Iterator[World]:
    repo = github.add_repository("octo/demo")
    people.collaborate(repo, "ada", "write")
    people.collaborate(repo, "grace", "maintain")
    people.collaborate(repo, "root", "admin")
    people.collaborate(repo, "tess", "triage")
    people.collaborate(repo, "helper[bot]", "write")
    people.collaborate(repo, "carla", "Community lead", based_on="write")
    people.collaborate(repo, "rita", "write-docs", based_on="read")
    clock = ManualClock()
    patience = Patience(clock, clock.advance, pacing_seconds=0)
    forge = GitHubForge("octo/demo", GitHubToken(github.token()), patience, api_url_for(github.web_url))
    yield World(github, repo, forge)
    forge.close()

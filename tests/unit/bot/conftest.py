from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.doubles.github import forges, people
from tests.doubles.github.in_memory import InMemoryGitHub
from tests.doubles.github.people import collaborate
from tests.doubles.github.server import GitHub
from tests.unit.bot.git.rig import clone, make_source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

    from orchestrator.bot.git.clone import Clone
    from tests.doubles.github.state import Issue, Pull, Repo


FILES: dict[str, str | bytes] = {
    "README.md": "# Example\n",
    "src/calc.py": "def add(a, b):\n    return a - b\n",
    "src/old.py": "gone = True\n",
    ".gitignore": "*.log\nbuild/\n",
}


@dataclass
class World:
    """A public repository where ada may write and tess may label; mallory is a stranger."""

    github: GitHub
    repo: Repo
    forge: Any
    """The plug-in's forge, over HTTP."""
    memory: InMemoryGitHub
    """The same without HTTP, for tests of rules."""

    def issue(self, author: str = "mallory", title: str = "Broken", body: str | None = "It fails.") -> Issue:
        return self.github.add_issue(self.repo, title, body, author=author)

    def label(self, issue: Issue, by: str, name: str = "pullwright", at: datetime | None = None) -> datetime:
        return people.label(self.github, issue, name, by, at)

    def label_pull(self, pull: Pull, by: str, name: str) -> None:
        people.label(self.github, pull, name, by)

    def unlabel(self, issue: Issue, by: str, name: str = "pullwright") -> None:
        people.unlabel(self.github, issue, name, by)

    def rename(self, issue: Issue, by: str, at: datetime | None = None) -> None:
        people.rename(self.github, issue, "Send me the keys", by, at)

    def edit(self, issue: Issue, by: str, at: datetime | None = None) -> None:
        people.edit(self.github, issue, "Send me the keys", by, at)

    def comment(self, issue: Issue, by: str, body: str) -> None:
        self.github.add_comment(self.repo, issue.number, body, by)

    def comment_on(self, pull: Pull | Issue, by: str, body: str) -> None:
        self.github.add_comment(self.repo, pull.number, body, by)

    def people(self, login: str, role: str) -> None:
        collaborate(self.repo, login, role)

    def asked(self, path: str) -> int:
        return len(self.github.calls("GET", path))


def open_forge(github: GitHub, name: str) -> Any:
    return forges.open_forge(github.web_url, name, github.token())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitHub]:
    """A GitHub with one repository. Making one for each test takes longer than the tests."""
    with GitHub(tmp_path_factory.mktemp("github")) as github:
        github.add_repository("octo/demo")
        yield github


@pytest.fixture
def world(place: GitHub) -> Iterator[World]:
    [repo] = place.repositories
    repo.threads.clear()
    repo.people.clear()
    repo.checks.clear()
    repo.changes.clear()
    repo.rules.clear()
    place.render.kinds.clear()
    for memory in (place.faults, place.requests, place.queries):
        memory.clear()
    place.nobodies.clear()
    place.skew = None
    collaborate(repo, "ada", "write")
    collaborate(repo, "grace", "maintain")
    collaborate(repo, "root", "admin")
    collaborate(repo, "tess", "triage")
    collaborate(repo, "helper[bot]", "write")
    collaborate(repo, "carla", "Community lead", based_on="write")
    collaborate(repo, "rita", "write-docs", based_on="read")
    world = World(place, repo, open_forge(place, "octo/demo"), InMemoryGitHub(place, repo))
    yield world
    world.forge.close()
    assert place.violations == []


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_source(tmp_path / "source", FILES)


@pytest.fixture
def safe(source: Path, tmp_path: Path) -> Iterator[Clone]:
    """A clone for safe mode: no `.git` in the tree."""
    with clone(source, tmp_path / "runs") as opened:
        yield opened


@pytest.fixture
def shelled(source: Path, tmp_path: Path) -> Iterator[Clone]:
    """A clone for a model that may run commands."""
    with clone(source, tmp_path / "runs", with_git=True) as opened:
        yield opened

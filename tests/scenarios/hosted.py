"""A repository on the double of GitHub that people look after, and what they do there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tests.doubles.github import bare, people
from tests.scenarios.stage import FILES, FIX_IT, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.doubles.github.server import GitHub
    from tests.doubles.github.state import Comment, Pull, Repo

NAME = "octo/calc"
BRANCH = "pullwright/issue-1-add-subtracts"
BOT = "pullwright-bot"
OUR_EMAIL = "pullwright@users.noreply.github.com"


@dataclass(slots=True)
class Hosted:
    """`octo/calc` with the issue 1, where ada may write and mallory is a stranger."""

    github: GitHub
    repo: Repo
    stage: Stage

    @classmethod
    def begin(cls, github: GitHub, stage: Stage, files: Mapping[str, str | bytes] = FILES) -> Hosted:
        """The repository with one task in its backlog; the flags of `stage` name it."""
        repo = github.add_repository(NAME, files)
        people.collaborate(repo, "ada", "write")
        github.add_issue(repo, "add() subtracts", "Please fix `add`.", ["pullwright"])
        stage.flags = ["--github-url", github.web_url, "--repo", NAME]
        return cls(github, repo, stage)

    @property
    def asked(self) -> int:
        """How often the model was asked so far."""
        return len(self.stage.model.requests)

    @property
    def pull(self) -> Pull:
        """The only pull request of the program."""
        (pull,) = (pull for pull in self.repo.pulls.values() if pull.author == BOT)
        return pull

    @property
    def tip(self) -> str:
        """The commit of the program's branch."""
        return self.repo.branches()[BRANCH]

    def propose(self, *flags: str) -> Pull:
        """A cycle that proposes, by one request to the model."""
        self.stage.script(FIX_IT)
        done = self.stage.run(*flags)
        assert done.result["outcome"] == "proposed", done.err
        return self.repo.pulls[done.result["pull_request"]["number"]]

    def issue(self, title: str) -> int:
        """One more task in the backlog."""
        return self.github.add_issue(self.repo, title, "", ["pullwright"]).number

    def ours(self, number: int) -> list[Comment]:
        """The program's comments on an issue or pull request."""
        return [comment for comment in self.repo.threads[number].comments if comment.author == BOT]

    def left_alone(self, *flags: str) -> str:
        """A cycle that asks no model, pushes nothing and opens nothing; returns its reason."""
        before = self.asked, self.repo.branches(), len(self.repo.pulls)
        done = self.stage.run(*flags)
        assert (done.code, done.result["outcome"]) == (3, "no_task"), done.err
        assert (self.asked, self.repo.branches(), len(self.repo.pulls)) == before
        return str(done.result["reason"])

    def people_commit(self, files: Mapping[str, str | bytes | None], branch: str = BRANCH) -> str:
        """Ada commits to a branch."""
        return self.github.commit(self.repo, files, branch=branch)

    def git(self, *words: str) -> str:
        """What git prints in the repository on the server."""
        return bare.git(self.repo.path, *words)

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether nothing of `older` was thrown away in `newer`."""
        return self.git("merge-base", older, newer) == older

    def refs(self, prefix: str) -> list[str]:
        """The refs of the server below a prefix."""
        return self.git("for-each-ref", "--format=%(refname)", prefix).splitlines()


def minutes_ago(minutes: float) -> datetime:
    """A moment by the machine's clock, which is the program's."""
    return datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=minutes)

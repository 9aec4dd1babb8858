from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.forge.base import Proposal
from orchestrator.core.clock import ManualClock
from orchestrator.plugins.github.address import api_url_for
from orchestrator.plugins.github.calls import CallTiming
from orchestrator.plugins.github.forge import GitHubForge
from orchestrator.plugins.github.transport import GitHubToken
from tests.doubles.github.fixtures import github
from tests.unit.bot.conftest import place, world

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.plugins.github.transport import GitHubAuth
    from tests.doubles.github.server import GitHub
    from tests.doubles.github.state import Repo

__all__ = ["github", "place", "world"]
PROPOSAL = Proposal("pullwright/1-fix", "main", "Fix it", "Because.", draft=True)


@dataclass
class Bench:
    """A repository on the double, a forge for it, and what it waited for."""

    github: GitHub
    repo: Repo
    clock: ManualClock = field(default_factory=ManualClock)
    waits: list[tuple[float, str]] = field(default_factory=list)
    opened: list[GitHubForge] = field(default_factory=list)

    def forge(
        self,
        auth: GitHubAuth | str = "a token of its own",
        *,
        name: str = "",
        pacing: float = 0.0,
        longest_wait: float = 120.0,
    ) -> GitHubForge:
        if isinstance(auth, str):
            auth = GitHubToken(self.github.token() if auth == "a token of its own" else auth)
        timing = CallTiming(
            self.clock,
            self.clock.advance,
            lambda seconds, reason: self.waits.append((seconds, reason)),
            longest_wait_seconds=longest_wait,
            pacing_seconds=pacing,
        )
        forge = GitHubForge(name or self.repo.full_name, auth, timing, api_url_for(self.github.web_url))
        self.opened.append(forge)
        return forge

    @property
    def waited(self) -> list[float]:
        return [seconds for seconds, _ in self.waits]


@pytest.fixture
def bench(github: GitHub) -> Iterator[Bench]:
    """A public repository with a branch to propose."""
    repo = github.add_repository("octo/demo", {"README.md": "# Demo\n", "docs/a.md": "a\n"})
    github.commit(repo, {"fix.py": "fixed = True\n"}, branch=PROPOSAL.branch)
    bench = Bench(github, repo)
    yield bench
    for forge in bench.opened:
        forge.close()

"""The folders that play GitHub, as they are listed: with what git says, also where the repository is gone."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from orchestrator.app.wiring.forge import local_forges
from orchestrator.bot.forge.base import Proposal, PullRequestState
from orchestrator.bot.journal.folders import Home
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ConfigurationError
from tests.doubles.github import bare

if TYPE_CHECKING:
    from pathlib import Path

BRANCH = "pullwright/1-fix"


def states(home: Home, repository: str | None = None) -> list[PullRequestState]:
    [forge] = local_forges(home, repository, ManualClock())
    return [pull.state for pull in forge.pull_requests()]


def test_what_git_says_is_listed_until_the_repository_is_gone(tmp_path: Path) -> None:
    home, path = Home(tmp_path / "home"), tmp_path / "demo.git"
    bare.create(path, "main")
    bare.commit(path, {"a": "1"}, branch="main", message="A commit", start=None)
    head = bare.commit(path, {"a": "2"}, branch=BRANCH, message="A change", start="main")
    [forge] = local_forges(home, str(path), ManualClock())
    forge.ensure_pull_request(Proposal(BRANCH, "main", "Fix", "Because.", draft=False))
    assert (states(home), forge.read_file("a")) == ([PullRequestState.OPEN], "1")

    bare.merge(path, base="main", head=head, message="Merge")
    assert states(home) == states(home, str(path)) == [PullRequestState.MERGED]

    shutil.rmtree(path)
    assert states(home) == [PullRequestState.OPEN]
    [forge] = local_forges(home, None, ManualClock())
    assert forge.read_file("a") is None
    assert len(forge.pulse()) == 64


def test_only_folders_are_listed(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="only local repositories are listed"):
        local_forges(Home(tmp_path), "octo/spoon", ManualClock())

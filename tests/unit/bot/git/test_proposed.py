"""What somebody proposes is fetched with as much history as it takes to know where it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.git.base import ProposedCommits
from orchestrator.core.errors import WorkspaceError
from tests.unit.bot.git.rig import add_empty_commits, clone, git, make_source, write

if TYPE_CHECKING:
    from pathlib import Path

MAIN = "refs/heads/main"
FEATURE = "refs/heads/feature"


class Source:
    """A repository on which people commit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = make_source(folder / "source", {"a.txt": "a\n"})
        self.count = 0

    def commit(self, branch: str, *, empty: int = 0) -> str:
        """A commit on a branch, and empty ones below it."""
        git(self.path, "checkout", "-q", branch)
        if empty:
            add_empty_commits(self.path, empty, f"{branch}: empty")
        self.count += 1
        write(self.path, {f"{self.count}.txt": "x\n"})
        git(self.path, "add", ".")
        git(self.path, "commit", "-qm", f"commit {self.count}")
        return self.tip(branch)

    def branch(self, name: str = "feature", start: str = "main") -> None:
        git(self.path, "branch", name, start)

    def tip(self, name: str) -> str:
        return git(self.path, "rev-parse", name)

    def merge(self, name: str, *flags: str) -> None:
        git(self.path, "checkout", "-q", "main")
        git(self.path, "merge", "-q", "--no-edit", *flags, name)

    def proposed(
        self, reference: str = FEATURE, onto: str = MAIN, bundle: Path | None = None
    ) -> ProposedCommits:
        with clone(self.path, self.folder / "clones", branch="main") as made:
            return made.fetch_proposed(reference, onto, bundle)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


@pytest.mark.parametrize("far", [0, 60])
def test_a_branch_begins_where_it_left_the_base(source: Source, far: int) -> None:
    start = source.commit("main")
    source.branch()
    head = source.commit("feature", empty=far)
    onto = source.commit("main", empty=far)
    assert source.proposed() == ProposedCommits(head, onto, start)
    assert source.proposed(reference=head, onto=onto) == ProposedCommits(head, onto, start)


def test_a_base_that_was_merged_into_the_branch_is_where_it_begins(source: Source) -> None:
    source.branch()
    source.commit("feature", empty=20)
    start = source.commit("main", empty=20)
    git(source.path, "checkout", "-q", "feature")
    git(source.path, "merge", "-q", "--no-edit", "main")
    head = source.tip("feature")
    onto = source.commit("main")
    assert source.proposed() == ProposedCommits(head, onto, start)


def test_a_way_to_an_older_commit_does_not_hide_the_later_one_behind_it(source: Source) -> None:
    source.commit("main")
    source.branch("side")
    source.commit("side")
    start = source.commit("main")
    source.branch()
    source.commit("feature", empty=20)
    git(source.path, "merge", "-q", "--no-edit", "side")
    head = source.tip("feature")
    onto = source.commit("main")
    assert source.proposed() == ProposedCommits(head, onto, start)


@pytest.mark.parametrize("later", [0, 15])
def test_a_branch_that_was_merged_begins_where_it_did(source: Source, later: int) -> None:
    start = source.commit("main")
    source.branch()
    source.commit("feature")
    head = source.commit("feature")
    source.commit("main")
    source.merge("feature", "--no-ff")
    onto = source.commit("main", empty=later)
    assert source.proposed() == ProposedCommits(head, onto, start, is_merged=True)


def test_a_branch_that_the_base_took_as_it_is_begins_at_its_parent(source: Source) -> None:
    source.branch()
    start = source.commit("feature")
    head = source.commit("feature")
    source.merge("feature", "--ff-only")
    assert source.proposed() == ProposedCommits(head, head, start, is_merged=True)


def test_a_bundle_brings_the_branch_along(source: Source, tmp_path: Path) -> None:
    start = source.commit("main")
    source.branch()
    head = source.commit("feature")
    bundle = tmp_path / "work.bundle"
    git(source.path, "bundle", "create", "-q", str(bundle), "main..feature")
    git(source.path, "checkout", "-q", "main")
    git(source.path, "branch", "-qD", "feature")
    onto = source.commit("main", empty=30)
    assert source.proposed(bundle=bundle) == ProposedCommits(head, onto, start)


def test_what_cannot_be_read_is_told(source: Source, tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="the remote does not have it, or does not have refs/heads/main"):
        source.proposed()
    with pytest.raises(WorkspaceError, match="does not have refs/heads/none"):
        source.proposed(MAIN, "refs/heads/none")
    no_bundle = tmp_path / "x"
    no_bundle.write_text("x")
    with pytest.raises(WorkspaceError, match="it is not a bundle of git"):
        source.proposed(bundle=no_bundle)
    source.branch()
    source.commit("feature")
    several = tmp_path / "several"
    git(source.path, "bundle", "create", "-q", str(several), "main", "feature")
    with pytest.raises(WorkspaceError, match="it has 2 branches; create one with a single branch"):
        source.proposed(bundle=several)


def test_a_bundle_on_top_of_what_nobody_has_is_told(source: Source, tmp_path: Path) -> None:
    source.branch()
    unknown = source.commit("feature")
    source.commit("feature")
    bundle = tmp_path / "work.bundle"
    git(source.path, "bundle", "create", "-q", str(bundle), f"{unknown}..feature")
    other = Source(tmp_path / "other")
    with pytest.raises(WorkspaceError, match="lacks these prerequisite commits"):
        other.proposed(bundle=bundle)


def test_a_history_without_a_common_commit_is_told(source: Source) -> None:
    git(source.path, "checkout", "-q", "--orphan", "feature")
    git(source.path, "commit", "-qm", "another beginning")
    with pytest.raises(WorkspaceError, match="it has no commit in common with refs/heads/main"):
        source.proposed()

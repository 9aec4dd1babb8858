"""What a merged pull request was on its base, and what its issue said when it was begun."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from orchestrator.bot.forge.base import MergedPullRequest, PastComment, PastIssue, TextVersion
from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.local import RepositoryHistory
from orchestrator.plugins.backtest.past_changes import (
    PastChange,
    UnfitChange,
    body_at,
    from_pull_requests,
    text_at,
)
from tests.scenarios.stage import add_commit, git, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BEGUN = datetime(2026, 5, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
ISSUE = PastIssue(3, "It breaks", "Now.", "https://example.com/3", BEGUN - 9 * HOUR)
PULL = MergedPullRequest(
    12, "Fix it", "https://example.com/12", BEGUN + HOUR, BEGUN, "0" * 40, (), 1, 1, 1, 0, (ISSUE,)
)


def edited(*versions: tuple[int, str]) -> PastIssue:
    """The issue with bodies that it had from so many hours after the change was begun on."""
    texts = tuple(TextVersion(BEGUN + hours * HOUR, text) for hours, text in versions)
    return replace(ISSUE, edited_at=max(one.at for one in texts), versions=texts)


def test_a_body_that_was_edited_later_is_the_one_of_then() -> None:
    assert body_at(ISSUE, BEGUN) == "Now."
    assert body_at(edited((-9, "First."), (-5, "Now.")), BEGUN) == "Now."
    assert body_at(edited((-9, "First."), (2, "Now.")), BEGUN) == "First."
    assert body_at(edited((2, "Now."), (-9, "First."), (-3, "Second.")), BEGUN) == "Second."


def test_a_body_of_which_the_earlier_text_is_not_known_is_dropped() -> None:
    assert body_at(replace(ISSUE, edited_at=BEGUN + HOUR), BEGUN) is None
    assert body_at(edited((2, "Now.")), BEGUN) is None, "the oldest that is listed is later"
    differences = edited((-9, "+ First."), (2, "- First.\n+ Now."))
    assert body_at(differences, BEGUN) is None, "what is listed are no whole texts"


def test_comments_count_if_a_writer_made_them_before() -> None:
    def said(body: str, hours: float, *, writer: bool = True, edited: float | None = None) -> PastComment:
        changed = None if edited is None else BEGUN + edited * HOUR
        return PastComment("ada", body, BEGUN + hours * HOUR, writer, changed)

    issue = replace(
        ISSUE,
        comments=(
            said("early", -2),
            said("by a stranger", -2, writer=False),
            said("edited later", -2, edited=3),
            said("while it was done", 0.5),
            said("use max()", 2),
        ),
    )
    body, left_out = text_at(issue, "It breaks", PULL, with_comments=True)
    assert body == "Now.\n\nComment by ada:\nearly"
    assert left_out == 3
    assert text_at(issue, "Was", PULL, with_comments=False)[1] == 1, "the title was another"


@dataclass
class Played:
    """A forge with some merged pull requests."""

    pulls: list[MergedPullRequest]
    fetched: list[tuple[str, int]] = field(default_factory=list)

    def merged_pull_requests(self) -> Iterator[MergedPullRequest]:
        yield from self.pulls

    def title_at(self, issue: PastIssue, moment: datetime) -> str:
        del moment
        return issue.title

    def issue_rate(self) -> float | None:
        return None


def changes(folder: Path, *pulls: MergedPullRequest) -> list[PastChange | UnfitChange]:
    """What the pull requests become."""
    history = RepositoryHistory(HostGit(folder, folder / ".git"))
    return list(from_pull_requests(Played(list(pulls)), lambda _commit, _depth: history, with_comments=True))


def head(folder: Path, name: str = "HEAD") -> str:
    return git(folder, "rev-parse", name)


def test_a_squash_a_rebase_and_a_merge_have_each_their_base(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "r", {"a.py": "a = 1\n"})
    first = head(folder)
    add_commit(folder, {"b.py": "b = 1\n"}, "One")
    add_commit(folder, {"c.py": "c = 1\nd = 1\n"}, "Two")
    rebased = replace(PULL, merge_commit=head(folder), commit_count=2, files=2, added=3)
    squashed = replace(PULL, merge_commit=head(folder), commit_count=2, files=1, added=2)
    git(folder, "checkout", "-q", "-b", "side", first)
    add_commit(folder, {"e.py": "e = 1\n"}, "Three")
    git(folder, "checkout", "-q", "main")
    git(folder, "merge", "-q", "--no-ff", "-m", "Merge", "side")
    merged = replace(PULL, merge_commit=head(folder))
    neither = replace(squashed, added=9)

    found = changes(folder, rebased, squashed, merged, neither)

    assert [one.base for one in found if isinstance(one, PastChange)] == [
        first,
        head(folder, "main~1~1"),
        head(folder, "main~1"),
    ]
    assert isinstance(found[3], UnfitChange)
    assert "cannot be identified" in found[3].reason


def test_what_closed_nothing_is_no_case_and_what_was_written_afterwards_is_left_out(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "r", {"a.py": "a = 1\n"})
    late = replace(PULL, issues=(replace(ISSUE, created_at=BEGUN + HOUR),))
    (found,) = changes(folder, replace(PULL, issues=()), late)
    assert found == UnfitChange("pull-12", "Fix it", "its issue is newer than its first commit")

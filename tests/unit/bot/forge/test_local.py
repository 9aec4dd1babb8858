"""The folder that plays GitHub: its files, damage, other processes, a full disk."""

from __future__ import annotations

import json
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest

from orchestrator.bot.forge.base import Proposal, PullRequestState
from orchestrator.bot.forge.local import (
    LocalForge,
    PlaceRecord,
    places,
    root_of,
    save_record,
    take_number,
)
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import DiskFullError, ForgeError, ForgeNotFoundError
from tests.doubles.folder_git import FolderGit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.pool import Pool

PROPOSAL = Proposal("pullwright/1-fix", "main", "Fix it", "Because.", draft=True)


def git(*merged: str) -> FolderGit:
    """`main`, and branches of ours; the commits are named after them."""
    branches = ["pullwright/1-fix", *(f"pullwright/{number}" for number in range(20))]
    commits = {"main": "M", **{branch: f"commit of {branch}" for branch in branches}}
    return FolderGit(commits, into={"M": merged})


def forge_for(root: Path, answers: FolderGit | None = None, base: str | None = None) -> LocalForge:
    return LocalForge(root, root.parent, answers or git(), base=base, clock=ManualClock())


def test_a_pull_request_is_a_file_that_people_can_read(tmp_path: Path) -> None:
    pull, _ = forge_for(tmp_path / "forge").ensure_pull_request(PROPOSAL)
    file = Path(unquote(urlsplit(pull.url).path))

    assert file == tmp_path / "forge" / "pulls" / "1.json"
    assert json.loads(file.read_text()) == {
        "schema_version": 1,
        "number": 1,
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
        "title": "Fix it",
        "body": "Because.",
        "branch": "pullwright/1-fix",
        "base": "main",
        "commit": "commit of pullwright/1-fix",
        "draft": True,
        "is_closed": False,
        "comments": [],
        "labels": [],
    }


def test_comments_and_labels_stay_when_the_pull_request_changes(tmp_path: Path) -> None:
    forge = forge_for(tmp_path / "forge")
    pull, _ = forge.ensure_pull_request(PROPOSAL)
    file = Path(unquote(urlsplit(pull.url).path))
    old = json.loads(file.read_text())
    del old["comments"], old["labels"]
    file.write_text(json.dumps(old))  # as an earlier version wrote it

    url = forge.ensure_comment(1, "a b", "Held back.")
    forge.ensure_label(1, "bug")
    before = file.stat().st_mtime_ns
    forge.ensure_comment(1, "a b", "Held back.")
    forge.ensure_label(1, "BUG")
    assert file.stat().st_mtime_ns == before
    forge.ensure_pull_request(replace(PROPOSAL, title="Fix it well"))
    forge.close_pull_request(1)

    kept = json.loads(file.read_text())
    assert url == f"{file.as_uri()}#a%20b"
    assert kept["comments"] == [{"key": "a b", "body": "Held back."}]
    assert (kept["labels"], kept["title"], kept["is_closed"]) == (["bug"], "Fix it well", True)
    assert forge_for(tmp_path / "forge").pull_requests()[0].labels == ("bug",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", r"1\.json is damaged \(Invalid JSON"),
        ("[]", r"1\.json is damaged"),
        ("{}", r"1\.json is damaged \(number: Field required\)"),
        ('{"schema_version": 2}', r"1\.json is damaged \(schema_version: Input should be 1\)"),
        ("\x00", r"1\.json is damaged"),
    ],
)
def test_a_damaged_file_is_named_and_kept(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "forge" / "pulls" / "1.json"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    forge = forge_for(tmp_path / "forge")

    for verb in (
        forge.pull_requests,
        lambda: forge.ensure_pull_request(PROPOSAL),
        lambda: forge.close_pull_request(1),
    ):
        with pytest.raises(ForgeError, match=words) as caught:
            verb()
        assert "\n" not in str(caught.value)
    assert file.read_text() == text


def test_a_number_that_was_taken_and_never_written_is_skipped(tmp_path: Path) -> None:
    root = tmp_path / "forge"
    take_number(root / "pulls")
    (root / "pulls" / "notes.json").write_text("not ours")

    pull, _ = forge_for(root).ensure_pull_request(PROPOSAL)

    assert pull.number == 2
    assert [found.number for found in forge_for(root).pull_requests()] == [2]


def test_numbers_are_numbers_and_not_words(tmp_path: Path) -> None:
    forge = forge_for(tmp_path / "forge")
    for number in range(1, 12):
        forge.ensure_pull_request(replace(PROPOSAL, branch=f"pullwright/{number}"))
    assert [pull.number for pull in forge.pull_requests()] == list(range(11, 0, -1))


def test_nothing_is_made_by_looking(tmp_path: Path) -> None:
    forge = forge_for(tmp_path / "forge")
    assert forge.pull_requests() == []
    assert forge.questions() == []
    assert forge.open_issues("pullwright") == []
    assert not (tmp_path / "forge").exists()


def test_nothing_is_rewritten_when_nothing_changed(tmp_path: Path) -> None:
    forge = forge_for(tmp_path / "forge")
    pull, _ = forge.ensure_pull_request(PROPOSAL)
    file = tmp_path / "forge" / "pulls" / f"{pull.number}.json"
    before = file.stat().st_ino
    forge.ensure_pull_request(PROPOSAL)
    assert file.stat().st_ino == before


def test_closing_means_no_and_is_repeatable(tmp_path: Path) -> None:
    forge = forge_for(tmp_path / "forge")
    number = forge.ensure_pull_request(PROPOSAL)[0].number
    assert forge.close_pull_request(number).state is PullRequestState.CLOSED
    assert forge.close_pull_request(number).state is PullRequestState.CLOSED
    with pytest.raises(ForgeNotFoundError, match="no pull request #9"):
        forge.close_pull_request(9)


def test_what_is_merged_cannot_be_closed(tmp_path: Path) -> None:
    root = tmp_path / "forge"
    number = forge_for(root).ensure_pull_request(PROPOSAL)[0].number
    forge = forge_for(root, git("commit of pullwright/1-fix"))
    with pytest.raises(ForgeError, match="is merged"):
        forge.close_pull_request(number)


def test_git_is_asked_about_all_at_once(tmp_path: Path) -> None:
    answers = git("commit of pullwright/3", "commit of pullwright/gone")
    forge = forge_for(tmp_path / "forge", answers)
    for number in (1, 2, 3):
        forge_for(tmp_path / "forge").ensure_pull_request(replace(PROPOSAL, branch=f"pullwright/{number}"))
    forge.close_pull_request(2)
    answers.asked.clear()

    listed = forge.our_pull_requests("pullwright/")
    assert [pull.state for pull in listed] == [
        PullRequestState.MERGED,
        PullRequestState.CLOSED,
        PullRequestState.OPEN,
    ]
    assert answers.asked == ["heads", "merged"]


def test_git_is_asked_no_more_than_the_answer_needs(tmp_path: Path) -> None:
    answers = git()
    forge = forge_for(tmp_path / "forge", answers)

    def asked(*verbs: Callable[[], object]) -> list[str]:
        answers.asked.clear()
        for verb in verbs:
            verb()
        return list(answers.asked)

    assert asked(forge.fingerprint) == ["heads"]
    assert asked(forge.pull_requests, lambda: forge.our_pull_requests("pullwright/")) == []
    assert asked(lambda: forge.read_file("BACKLOG.md")) == ["heads", "file"]
    assert asked(lambda: forge.read_file("BACKLOG.md", forge.fingerprint())) == ["heads", "file"]
    assert asked(lambda: forge.read_file("BACKLOG.md", "an earlier one")) == ["heads", "file"]
    assert asked(lambda: forge.ensure_pull_request(PROPOSAL)) == ["heads", "merged"]
    assert asked(lambda: forge.ensure_pull_request(PROPOSAL)) == ["heads", "merged"]
    assert asked(forge.fingerprint) == ["heads", "merged"]
    assert asked(lambda: forge.our_pull_requests("other/")) == []


def test_a_merged_branch_that_is_gone_stays_merged(tmp_path: Path) -> None:
    root = tmp_path / "forge"
    number = forge_for(root).ensure_pull_request(PROPOSAL)[0].number
    without = FolderGit({"main": "M"}, into={"M": {"commit of pullwright/1-fix"}})
    [pull] = forge_for(root, without).pull_requests()
    assert (pull.number, pull.state, pull.commit) == (
        number,
        PullRequestState.MERGED,
        "commit of pullwright/1-fix",
    )


def test_nothing_is_proposed_that_is_merged(tmp_path: Path) -> None:
    forge = forge_for(tmp_path / "forge", git("commit of pullwright/1-fix"))
    with pytest.raises(ForgeError, match="no commits between main and pullwright/1-fix"):
        forge.ensure_pull_request(PROPOSAL)
    assert forge.pull_requests() == []


def test_every_answer_is_of_now(tmp_path: Path) -> None:
    answers = git()
    forge = forge_for(tmp_path / "forge", answers)
    forge.ensure_pull_request(PROPOSAL)
    before = forge.fingerprint()
    assert forge.fingerprint() == before
    answers.commits = {**answers.commits, "pullwright/1-fix": "N"}
    assert forge.fingerprint() != before
    assert forge.pull_requests()[0].commit == "N"
    answers.into = {"M": {"N"}}
    assert forge.pull_requests()[0].state is PullRequestState.MERGED


def test_a_file_is_read_now_or_at_the_moment_of_the_fingerprint(tmp_path: Path) -> None:
    answers = git()
    forge = forge_for(tmp_path / "forge", answers)
    seen = forge.fingerprint()
    answers.commits = {**answers.commits, "main": "N"}
    assert forge.read_file("f", seen) == "f in M"
    assert forge.read_file("f") == forge.read_file("f", "another") == "f in N"
    forge.fingerprint()
    assert forge.read_file("f", seen) == "f in N"


def test_another_base_is_where_things_are_merged_and_not_what_is_read(tmp_path: Path) -> None:
    commits = {"main": "M", "next": "X", "pullwright/1-fix": "C"}
    answers = FolderGit(commits, into={"X": {"C"}})
    forge = forge_for(tmp_path / "forge", answers, base="next")
    assert forge.read_file("f") == "f in M"
    assert forge.repository().default_branch == "main"
    with pytest.raises(ForgeError, match="no commits"):
        forge.ensure_pull_request(PROPOSAL)

    detached = FolderGit(commits, head=None)
    assert forge_for(tmp_path / "forge", detached, base="next").read_file("f") == "f in X"
    assert forge_for(tmp_path / "forge", detached).read_file("f") is None
    assert forge_for(tmp_path / "forge", detached, base="no").read_file("f") is None
    assert forge_for(tmp_path / "forge", detached, base="no").ensure_pull_request(PROPOSAL)[1]


def test_questions_are_listed(tmp_path: Path) -> None:
    forge = forge_for(tmp_path / "forge")
    url = forge.ensure_question(None, "add-tests", "Which ones?")
    [question] = forge.questions()
    assert (question.key, question.body, question.url) == ("add-tests", "Which ones?", url)


def test_an_issue_is_answered_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ForgeNotFoundError, match=r"use --task TEXT or a BACKLOG\.md"):
        forge_for(tmp_path / "forge").issue(3)


def test_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    forge = forge_for(tmp_path / "gone" / "forge")
    with pytest.raises(ForgeNotFoundError, match="no such repository"):
        forge.repository()


@pytest.mark.skipif(
    os.geteuid() == 0 and not Path("/dev/full").exists(), reason="needs a way to fail a write"
)
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where a folder should be")
    with pytest.raises(ForgeError, match=r"cannot write .*: Not a directory"):
        forge_for(blocked / "forge").ensure_pull_request(PROPOSAL)


def test_every_repository_has_a_folder_of_its_own(tmp_path: Path) -> None:
    one, two = tmp_path / "a" / "My Repo.git", tmp_path / "b" / "My Repo.git"
    assert root_of(tmp_path, one) != root_of(tmp_path, two)
    assert root_of(tmp_path, one) == root_of(tmp_path, tmp_path / "a" / ".." / "a" / "My Repo.git")
    assert root_of(tmp_path, one).parent == tmp_path / "forge"
    assert root_of(tmp_path, one).name.startswith("My-Repo-")
    assert root_of(tmp_path, Path("/")).name.startswith("repository-")


def test_all_folders_are_found_with_their_repositories(tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert places(state) == {}
    repository = tmp_path / "repo"
    repository.mkdir()
    root = root_of(state, repository)
    forge = LocalForge(root, repository, git(), clock=ManualClock())
    forge.ensure_question(None, "k", "?")
    assert places(state) == {root: repository}


def _take_many(folder: Path, count: int) -> list[int]:
    return [take_number(folder) for _ in range(count)]


def _ensure_many(root: Path, branches: list[str]) -> list[int]:
    forge = forge_for(root)
    return [forge.ensure_pull_request(replace(PROPOSAL, branch=branch))[0].number for branch in branches]


@pytest.fixture(scope="module")
def processes() -> Iterator[Pool]:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        yield pool


def test_two_processes_never_share_a_number(tmp_path: Path, processes: Pool) -> None:
    taken = processes.starmap(_take_many, [(tmp_path, 60), (tmp_path, 60)])
    assert sorted(taken[0] + taken[1]) == list(range(1, 121))


def test_two_processes_open_one_pull_request_for_one_branch(tmp_path: Path, processes: Pool) -> None:
    branches = [f"pullwright/{number}" for number in range(15)]
    first, second = processes.starmap(_ensure_many, [(tmp_path / "forge", branches)] * 2)
    assert first == second
    assert len(forge_for(tmp_path / "forge").pull_requests()) == 15


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
def test_a_full_disk_is_told(tmp_path: Path) -> None:
    from orchestrator.bot.forge.local import _file_errors

    with (
        pytest.raises(DiskFullError, match="the disk is full"),
        _file_errors("write", tmp_path),
        Path("/dev/full").open("wb", buffering=0) as full,
    ):
        full.write(b"x")


def test_a_failed_write_leaves_the_old_text(tmp_path: Path) -> None:
    target = tmp_path / "repository.json"
    save_record(target, PlaceRecord(path="/old"))
    target.chmod(0o600)
    (tmp_path / "blocked").mkdir()
    with pytest.raises(ForgeError, match="cannot write"):
        save_record(tmp_path / "blocked", PlaceRecord(path="/new"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blocked", "repository.json"]

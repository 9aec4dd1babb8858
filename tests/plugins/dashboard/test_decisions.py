"""What the page reads of a repository on this disk, and what a person decides there about its tasks."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from orchestrator.bot.forge.base import Check, CheckState, Feedback, FeedbackKind
from orchestrator.plugins.dashboard.actions import _checks_in_words, _reviews_in_words
from tests.plugins.dashboard.scene import make_scene
from tests.plugins.dashboard.test_server import page
from tests.scenarios.stage import FIX_IT, add_commit
from tests.tables import table
from tests.unit.bot.coordination.records_rig import Worker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.scenarios.stage import Stage

BACKLOG = {"BACKLOG.md": "- [ ] Fix add() in calc.py\n"}
THEN = datetime(2026, 11, 23, tzinfo=UTC)


def test_a_repository_on_this_disk_is_read_and_decided_about(
    stage: Stage, repository: Path, tmp_path: Path
) -> None:
    add_commit(repository, BACKLOG, "A backlog")
    name = str(repository)
    stage.script(FIX_IT)
    assert stage.run("--repo", name).result["outcome"] == "proposed"
    scene = make_scene(tmp_path, state=stage.home)
    looks = scene.dashboard.looks

    def text_of(path: str, **query: str) -> str:
        answer = asyncio.run(scene.get(f"{path}?{urlencode({'repository': name, 'name': name, **query})}"))
        return " ".join(page(answer).text_content().split())

    def done(verb: str, **fields: str) -> str:
        answer = asyncio.run(scene.post("/do", {"verb": verb, "repository": name, **fields}))
        return " ".join(page(answer).text_content().split())

    shown = text_of("/repository")
    for part in ("Make add() add", "proposed", "no checks", "no reviews", "asks git on this disk"):
        assert part in shown
    assert [str(state.status) for state in looks[name].states] == ["proposed"]
    assert "open, draft" in text_of("/")

    Worker(repository, tmp_path).take(task="issue-12")
    assert "released issue-12, held by host-a; its next push is refused" in done("release", task="issue-12")
    assert "nobody holds issue-13" in done("release", task="issue-13")

    asked = text_of("/confirm", verb="close", number="1")
    assert "This closes pull request #1 without merging it." in asked
    assert f"pullwright close 1 --repo {name}" in asked
    assert [str(one.pull.state) for one in looks[name].pulls] == ["open"]
    done("close", number="1")
    assert looks[name].pulls == (), "it is read again after what was decided"
    assert "declined" in text_of("/repository")
    assert "'1x' is not a pull request's number" in asyncio.run(
        scene.post("/do", {"verb": "close", "repository": name, "number": "1x"})
    ).text.replace("&#39;", "'")


def check(state: CheckState) -> Check:
    return Check("a", state, "", "https://ci.example/1")


def said(kind: FeedbackKind, author: str, body: str, state: str = "") -> Feedback:
    return Feedback(kind, 1, author, body, THEN, THEN, "https://forge.example/1", state)


def test_checks_are_counted_by_their_ends() -> None:
    assert _checks_in_words([]) == "no checks"
    found = [check(CheckState.PASSED), check(CheckState.FAILED), check(CheckState.PASSED)]
    assert _checks_in_words(found) == "2 passed, 1 failed"


@table(
    ("feedback", "words"),
    [
        ([], "no reviews"),
        ([said(FeedbackKind.COMMENT, "ada", "Why?")], "1 comment"),
        ([said(FeedbackKind.REVIEW, "ada", " ", "commented")], "no reviews"),
        (
            [
                said(FeedbackKind.REVIEW, "ada", "no", "changes_requested"),
                said(FeedbackKind.REVIEW, "bob", "no", "changes_requested"),
                said(FeedbackKind.LINE, "bob", "here"),
                said(FeedbackKind.LINE, "bob", "and here"),
                said(FeedbackKind.REVIEW, "ada", "", "approved"),
            ],
            "1 approved, 1 want changes, 2 comments",
        ),
    ],
)
def test_the_last_verdict_of_each_reviewer_counts(feedback: list[Feedback], words: str) -> None:
    assert _reviews_in_words(feedback) == words

"""What the lines of a verification come to, and the object that programs read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.bot.forge.base import CheckState, PullRequest, PullRequestState
from orchestrator.bot.git.base import ProposedCommits
from orchestrator.plugins.verify_pr.claims import EvidenceLevel, EvidenceLine, Standing
from orchestrator.plugins.verify_pr.pull_request import (
    EvidenceOutcome,
    ProposedChange,
    PullRequestEvidence,
    evidence_in_markdown,
    evidence_in_words,
    own_check,
)
from tests.doubles.github_page import github_page
from tests.tables import table

CHANGE = ProposedChange("#7", "refs/pull/7/head", "main", title="Fix it", commit="a" * 40)
COMMITS = ProposedCommits("a" * 40, "c" * 40, "b" * 40)
DOCS = Path(__file__).parents[3] / "docs"


def evidence(*standings: str, stale: bool = False) -> PullRequestEvidence:
    """Lines with these standings, each at a level of its own: `rerun:refuted`."""
    parts = (standing.split(":") for standing in standings)
    lines = tuple(EvidenceLine(EvidenceLevel(level), "x", Standing(standing)) for level, standing in parts)
    return PullRequestEvidence(CHANGE, lines, COMMITS, is_stale=stale)


@table(
    ("standings", "stale", "outcome", "words"),
    [
        (("digests:holds", "tests:holds"), False, "holds", "All claims of the report hold"),
        (("block:noted", "tests:holds"), False, "holds", "There is no report."),
        (("rerun:refuted", "tests:holds"), False, "refuted", "A claim of the report does not hold."),
        (("rerun:refuted", "rerun:unknown"), True, "refuted", "A claim of the report does not hold."),
        (("rerun:holds", "tests:refuted"), False, "refuted", "The tests do not pass."),
        (("rerun:holds", "tests:unknown"), False, "unknown", "It could not be decided."),
        (("rerun:holds", "tests:holds"), True, "unknown", "It changed during the verification"),
        (("block:noted",), False, "unknown", "It could not be decided."),
        ((), False, "unknown", "It could not be decided."),
    ],
)
def test_the_outcome_of_all_lines(
    *, standings: tuple[str, ...], stale: bool, outcome: str, words: str
) -> None:
    found = evidence(*standings, stale=stale)
    assert found.outcome.value == outcome
    assert evidence_in_words(found).startswith(words)


@table(
    ("standing", "stale", "state"),
    [
        ("tests:holds", False, CheckState.PASSED),
        ("tests:holds", True, CheckState.OTHER),
        ("tests:unknown", False, CheckState.OTHER),
        ("tests:refuted", False, CheckState.FAILED),
    ],
)
def test_only_what_holds_is_a_success_in_a_check_run(
    *, standing: str, stale: bool, state: CheckState
) -> None:
    check = own_check(evidence(standing, stale=stale))
    assert check is not None
    assert (check.state, check.commit) == (state, COMMITS.head)


def test_without_a_head_there_is_no_check_run() -> None:
    assert own_check(PullRequestEvidence(CHANGE, ())) is None


@pytest.mark.skipif(not DOCS.is_dir(), reason="the built wheel brings no pages along")
def test_the_object_has_the_fields_that_the_page_names() -> None:
    page = (DOCS / "evidence.md").read_text("utf-8").partition("\n## Try it")[0]
    rows = re.findall(r"^\| (`[^|]+`) \|", page, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)} - set(EvidenceOutcome)
    named -= {"PASSED", "FAILED", "WARNED"}
    assert {*evidence("tests:holds").to_json(), "repository", "check"} == named


HOSTILE = "@ada fixes #1 | <img src=x> `x` [a](https://evil.example) \\ ```\n# big"


def test_nothing_that_others_wrote_is_live_in_the_markdown() -> None:
    line = EvidenceLine(EvidenceLevel.RERUN, "x", Standing.REFUTED, HOSTILE, HOSTILE, HOSTILE)
    page = github_page(evidence_in_markdown(PullRequestEvidence(CHANGE, (line,), COMMITS)))
    assert (page.links, page.odd) == ([], [])
    assert page.tags <= {"p", "strong", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "code", "br"}
    assert "@ada" not in page.words


@pytest.mark.parametrize(
    ("state", "onto"),
    [(PullRequestState.OPEN, ""), (PullRequestState.MERGED, "d" * 40), (PullRequestState.CLOSED, "d" * 40)],
)
def test_what_is_over_is_compared_with_what_its_base_was(state: PullRequestState, onto: str) -> None:
    pull = PullRequest(
        *(7, "Fix it", "Because.", "https://forge.example/7"),
        draft=False,
        state=state,
        branch="feature",
        base="main",
        commit="a" * 40,
        reference="refs/pull/7/head",
        base_commit="d" * 40,
    )
    change = ProposedChange.of(pull)
    assert (change.reference, change.onto, change.onto_commit) == ("refs/pull/7/head", "main", onto)

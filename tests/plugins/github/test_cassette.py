"""The verbs against replies that another GitHub stand-in gave, recorded once: see `tests/data/github/SOURCE.md`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.bot.forge.base import Proposal, PullRequestState
from orchestrator.core.clock import ManualClock
from orchestrator.plugins.github.calls import CallTiming
from orchestrator.plugins.github.forge import GitHubForge
from orchestrator.plugins.github.transport import GitHubToken

if TYPE_CHECKING:
    from collections.abc import Iterator

vcr: Any = importlib.import_module("vcr")  # has no types

CASSETTE = Path(__file__).parents[2] / "data" / "github" / "cassettes" / "emulate.yaml"


@pytest.fixture
def tape() -> Iterator[Any]:
    recorder = vcr.VCR(
        record_mode=vcr.mode.NONE if CASSETTE.exists() else vcr.mode.ONCE,
        match_on=["method", "uri", "body"],
        filter_headers=["authorization", "user-agent"],
        decode_compressed_response=True,
    )
    with recorder.use_cassette(str(CASSETTE)) as tape:
        yield tape


def test_the_verbs_understand_a_stand_in_that_is_not_ours(tape: Any) -> None:
    clock = ManualClock()
    timing = CallTiming(clock, clock.advance, pacing_seconds=0)
    forge = GitHubForge("octo/demo", GitHubToken("test_token_admin"), timing, "http://127.0.0.1:4801")
    proposal = Proposal("pullwright/1-one", "main", "Fix one", "Fixes #1", draft=True)

    repository = forge.repository()
    readme = forge.read_file("README.md")
    missing = forge.read_file("BACKLOG.md")
    issues = forge.open_issues("pullwright")
    first, created = forge.ensure_pull_request(proposal)
    second, created_again = forge.ensure_pull_request(
        Proposal(proposal.branch, "main", "Fix one well", "Fixes #1\n", draft=True)
    )
    ours = forge.our_pull_requests("pullwright/")
    asked = forge.ensure_question(1, "1", "Which one?")
    asked_again = forge.ensure_question(1, "1", "Or that one?")
    forge.close()

    assert tape.play_count == len(tape)
    assert (repository.name, repository.default_branch) == ("octo/demo", "main")
    assert (readme, missing) == ("# demo\n\nA demo\n", None)
    assert [(issue.number, issue.title, issue.author) for issue in issues] == [
        (1, "One", "octo"),
        (2, "Two", "octo"),
    ]
    assert (created, first.title, first.draft, first.state) == (True, "Fix one", True, PullRequestState.OPEN)
    assert (created_again, second.number, second.title) == (False, first.number, "Fix one well")
    assert [pull.number for pull in ours] == [first.number]
    assert asked == asked_again is not None

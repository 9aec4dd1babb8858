"""Rate limits, outages and lost replies: what is waited for, what is repeated, what is not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ForgeRateLimitError, ForgeUnavailableError
from tests.doubles.github.faults import Fault, lost_reply, primary_limit, secondary_limit, server_error
from tests.plugins.github.conftest import PROPOSAL

if TYPE_CHECKING:
    from tests.plugins.github.conftest import Bench

REPOSITORY = "/repos/octo/demo"
PULLS = "/repos/octo/demo/pulls"


@pytest.mark.parametrize("status", [403, 429])
def test_a_short_primary_limit_is_waited_for(bench: Bench, status: int) -> None:
    reset = int((bench.clock.now() + timedelta(seconds=40)).timestamp())
    bench.github.faults.append(primary_limit("GET", REPOSITORY, reset_at=reset, status=status))

    assert bench.forge().repository().name == "octo/demo"

    assert bench.waited == [41.0]
    assert "rate limit" in bench.waits[0][1]


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_limit_ends_by_the_servers_clock(bench: Bench, hours: int) -> None:
    """The moment that it names is one of the clock that its reply shows, not of ours."""
    bench.clock = ManualClock(datetime.now(UTC))
    bench.github.skew = timedelta(hours=hours)
    forge = bench.forge()
    reset = int((bench.clock.now() + bench.github.skew).timestamp()) + 40
    bench.github.faults.append(primary_limit("GET", REPOSITORY, reset_at=reset))
    bench.github.reset_at = reset
    forge.repository()
    [(seconds, _)] = bench.waits
    assert 30 <= seconds <= 50
    assert abs(forge.ahead() - bench.github.skew) <= timedelta(minutes=2)
    [quota] = forge.quotas()
    assert abs((quota.reset - bench.clock.now()).total_seconds()) < 120


def test_a_long_primary_limit_says_when_to_come_back(bench: Bench) -> None:
    reset = bench.clock.now() + timedelta(seconds=1800)
    bench.github.faults.append(primary_limit("GET", REPOSITORY, reset_at=int(reset.timestamp())))

    with pytest.raises(
        ForgeRateLimitError, match="cannot open the repository octo/demo before 2026-01-01"
    ) as caught:
        bench.forge().repository()

    assert caught.value.resume_at == reset + timedelta(seconds=1)
    assert bench.waited == []


def test_a_reset_in_the_past_does_not_spin(bench: Bench) -> None:
    bench.github.faults.append(primary_limit("GET", REPOSITORY, reset_at=1, times=100))

    with pytest.raises(ForgeRateLimitError):
        bench.forge().repository()

    assert bench.waited == [1.0] * 5


@pytest.mark.parametrize(("retry_after", "seconds"), [(7, 7.0), (None, 60.0)])
def test_a_secondary_limit_is_waited_for(bench: Bench, retry_after: int | None, seconds: float) -> None:
    bench.github.faults.append(secondary_limit("POST", PULLS, retry_after=retry_after))

    _, created = bench.forge().ensure_pull_request(PROPOSAL)

    assert created
    assert bench.waited == [seconds]
    assert len(bench.repo.pulls) == 1


def test_waits_for_limits_add_up_to_the_cap(bench: Bench) -> None:
    bench.github.faults.append(secondary_limit("GET", REPOSITORY, retry_after=50, times=9))

    with pytest.raises(ForgeRateLimitError):
        bench.forge(longest_wait=120).repository()

    assert bench.waited == [50.0, 50.0]


def test_reads_are_repeated_after_an_outage(bench: Bench) -> None:
    bench.github.faults.append(server_error("GET", REPOSITORY, status=502, times=2))
    bench.github.faults.append(lost_reply("GET", REPOSITORY))

    assert bench.forge().repository().name == "octo/demo"

    assert bench.waited == [1.0, 2.0, 4.0]


def test_an_outage_that_lasts_is_an_error(bench: Bench) -> None:
    bench.github.faults.append(server_error("GET", REPOSITORY, times=99))

    with pytest.raises(ForgeUnavailableError, match=r"has a problem \(502\): try again later"):
        bench.forge().repository()

    assert len(bench.github.calls("GET")) == 4


def test_a_server_that_is_not_there_is_an_error(bench: Bench) -> None:
    forge = bench.forge()
    bench.github.faults.append(lost_reply("GET", REPOSITORY, times=99))

    with pytest.raises(ForgeUnavailableError, match=r"no answer from 127\.0\.0\.1:\d+ \(ConnectionError\)"):
        forge.repository()


@pytest.mark.parametrize(
    "fault",
    [
        lost_reply("POST", PULLS),
        server_error("POST", PULLS, status=500),
        server_error("POST", PULLS, times=2),
    ],
    ids=["reply lost", "not done", "not done twice"],
)
def test_one_pull_request_comes_out_of_a_broken_creation(bench: Bench, fault: Fault) -> None:
    bench.github.faults.append(fault)

    pull, created = bench.forge().ensure_pull_request(PROPOSAL)

    assert created
    assert list(bench.repo.pulls) == [pull.number]
    assert bench.github.calls("PATCH") == []


def test_a_pull_request_that_appears_between_look_and_creation_is_found(bench: Bench) -> None:
    forge = bench.forge()
    forge.repository()
    first = bench.forge().ensure_pull_request(PROPOSAL)[0]
    stale = Fault("GET", PULLS, status=200, body=[])
    bench.github.faults.append(stale)

    pull, created = forge.ensure_pull_request(PROPOSAL)

    assert (pull.number, created) == (first.number, False)
    assert len(bench.repo.pulls) == 1


def test_one_comment_comes_out_of_a_lost_reply(bench: Bench) -> None:
    issue = bench.github.add_issue(bench.repo, "Broken")
    bench.github.faults.append(lost_reply("POST", f"{REPOSITORY}/issues/{issue.number}/comments"))

    url = bench.forge().ensure_question(issue.number, "1", "Which one?")

    assert url is not None
    assert len(issue.comments) == 1


def test_writes_keep_their_distance(bench: Bench) -> None:
    bench.github.commit(bench.repo, {"b.py": "b\n"}, branch="pullwright/2-more")
    forge = bench.forge(pacing=1.0)
    before = bench.clock.monotonic()

    forge.ensure_pull_request(PROPOSAL)
    assert bench.clock.monotonic() == before
    forge.our_pull_requests("pullwright/")
    bench.github.commit(bench.repo, {"c.py": "c\n"}, branch="pullwright/3-other")
    forge.ensure_pull_request(type(PROPOSAL)("pullwright/3-other", "main", "Other", "", draft=False))

    assert bench.clock.monotonic() == before + 1.0
    assert bench.waits == []


def test_an_unchanged_list_is_read_without_spending_quota(bench: Bench) -> None:
    forge = bench.forge()
    forge.ensure_pull_request(PROPOSAL)

    first = forge.our_pull_requests("pullwright/")
    again = forge.our_pull_requests("pullwright/")

    assert first == again != []
    assert [seen.status for seen in bench.github.calls("GET", "/pulls")][-2:] == [200, 304]

    bench.github.close(bench.repo, first[0].number)
    assert forge.our_pull_requests("pullwright/") != first

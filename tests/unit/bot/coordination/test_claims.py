from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.coordination.claim_record import ClaimRecord, claim_message, claim_ref, parse_claim
from orchestrator.bot.coordination.claims import KEPT_DAYS, Lease, is_old, remove_tombstones
from orchestrator.bot.coordination.records import RemoteRecord
from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.remote import Update
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import (
    ClaimLostError,
    PushRejectedError,
    RemoteUnavailableError,
    WorkspaceError,
)
from orchestrator.core.messages import Spent
from orchestrator.core.redaction import Credential
from tests.doubles.github.faults import Fault, lost_reply, server_error
from tests.doubles.github.fixtures import github
from tests.tables import table
from tests.unit.bot.coordination.records_rig import (
    LOST,
    REF,
    TASK,
    TIMES,
    Worker,
    bare,
    broken_git,
    holder,
    logged_git,
    put,
)
from tests.unit.bot.git.rig import git

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.doubles.github.server import GitHub

__all__ = ["github"]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SPENT = Spent(usd=1.5, tokens=1000, minutes=2.5, rounds=3)


@pytest.fixture(params=["sha1", "sha256"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return bare(tmp_path, f"--object-format={request.param}")


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return bare(tmp_path)


def test_the_life_of_a_claim(remote: Path, tmp_path: Path) -> None:
    one, two = Worker(remote, tmp_path, "a"), Worker(remote, tmp_path, "b")
    assert one.claims.show(TASK) is None
    assert list(one.claims.list()) == []
    lease = one.take()
    assert lease.previous is None
    assert lease.record.number == 1
    assert lease.record.expires_at == NOW + timedelta(minutes=20)
    assert two.try_to_take() == lease.record
    assert holder(remote) == "pullwright: issue-12 held by host-a/run-a, number 1"

    one.clock.advance(300)
    assert lease.renew(SPENT).expires_at == NOW + timedelta(minutes=25)
    assert two.claims.show(TASK) == lease.record
    assert lease.release("proposed", pull=7)
    assert lease.release("proposed", pull=7)
    assert holder(remote) == "pullwright: issue-12 released (proposed) by host-a/run-a, number 1"
    with pytest.raises(ClaimLostError, match="released"):
        lease.renew()

    (left,) = two.claims.list()
    assert (left.state, left.outcome, left.pull, left.spent, left.number) == (
        "released",
        "proposed",
        7,
        SPENT,
        1,
    )
    after = two.take()
    assert after.previous == left
    assert (after.record.number, after.record.pull, after.record.spent) == (2, 7, SPENT)
    # Each claim is a child of the one before: nothing but fast-forwards.
    assert git(remote, "rev-list", "--count", REF) == "4"


def test_a_reason_not_to_take_a_task_that_is_free(plain: Path, tmp_path: Path) -> None:
    worker = Worker(plain, tmp_path)
    first = worker.claims.take(TASK, "run-1", unless=lambda _record: "never asked: there was none")
    assert isinstance(first, Lease)
    held = worker.claims.take(TASK, "run-2", unless=lambda _record: "never asked: it is held")
    assert isinstance(held, ClaimRecord)
    first.release("no_task 0123")
    assert worker.claims.take(TASK, "run-2", unless=lambda record: record.outcome) == "no_task 0123"
    assert worker.claims.show(TASK) == first.record


def test_one_of_twenty_gets_it(plain: Path, tmp_path: Path) -> None:
    workers = [Worker(plain, tmp_path, f"w{number}") for number in range(20)]
    taken: list[Lease | ClaimRecord | str] = []
    start = threading.Barrier(len(workers))

    def race(worker: Worker) -> None:
        start.wait()
        taken.append(worker.try_to_take())

    threads = [threading.Thread(target=race, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [one for one in taken if isinstance(one, Lease)]
    assert [one for one in taken if not isinstance(one, Lease)] == [winner.record] * 19


def test_only_an_expired_claim_is_taken_over(plain: Path, tmp_path: Path) -> None:
    one, two = Worker(plain, tmp_path, "a"), Worker(plain, tmp_path, "b")
    lease = one.take()
    two.clock.advance(TIMES.lease_seconds + TIMES.skew_seconds)
    assert two.try_to_take() == lease.record
    two.clock.advance(0.001)
    after = two.take()
    assert after.record.number == 2
    assert after.previous == lease.record
    # The one who held it is a zombie now, whatever it does.
    before = lease.lost
    with pytest.raises(ClaimLostError, match="held by host-b, run run-b, number 2"):
        lease.renew()
    assert (before, lease.lost) == (False, True)
    assert not lease.release("proposed")
    assert two.claims.show(TASK) == after.record


def test_an_expired_claim_that_nobody_wanted_is_still_ours(plain: Path, tmp_path: Path) -> None:
    worker = Worker(plain, tmp_path)
    lease = worker.take()
    worker.clock.advance(100_000)
    assert lease.renew().number == 1
    assert not lease.lost


def test_the_claim_of_a_run_that_is_dead_is_free(plain: Path, tmp_path: Path) -> None:
    worker = Worker(plain, tmp_path)
    first = worker.take("run-1")
    assert worker.try_to_take("run-2", dead=("run-3",)) == first.record
    second = worker.take("run-2", dead=("run-1",))
    assert second.record.number == 2
    assert second.previous == first.record


def test_holders_that_die_are_counted_until_one_ends_or_something_else_is_asked(
    plain: Path, tmp_path: Path
) -> None:
    worker = Worker(plain, tmp_path)

    def take(run: str, asked: str = "x") -> Lease:
        taken = worker.claims.take(TASK, run, dead_runs=[f"run-{number}" for number in range(9)], asked=asked)
        assert isinstance(taken, Lease)
        return taken

    assert take("run-1").record.deaths == 0
    assert take("run-2").record.deaths == 1
    third = take("run-3")
    assert (third.record.deaths, third.record.died) == (2, 3)
    third.release("paused")
    fourth = take("run-4")
    assert fourth.record.deaths == 2
    fourth.undo_claim()
    assert take("run-5").record.deaths == 2
    assert take("run-6", "something else").record.deaths == 0
    last = take("run-7", "something else")
    last.release("waits", deaths=3, why="it\n died")
    found = worker.claims.show(TASK)
    assert found is not None
    assert (found.outcome, found.deaths, found.why, found.asked) == ("waits", 3, "it died", "something else")
    worker.claims.request_retry(TASK)
    assert take("run-8", "something else").record.deaths == 0


@pytest.mark.parametrize(("first", "second"), [(600.0, -600.0), (-600.0, 600.0)])
def test_clocks_that_are_ten_minutes_wrong_never_give_two_holders(
    plain: Path, tmp_path: Path, first: float, second: float
) -> None:
    start = NOW
    one = Worker(plain, tmp_path, "a", clock=ManualClock(start + timedelta(seconds=first)))
    two = Worker(plain, tmp_path, "b", clock=ManualClock(start + timedelta(seconds=second)))
    lease = one.take()
    for _ in range(6):
        for worker in (one, two):
            worker.clock.advance(TIMES.renew_seconds)
        assert isinstance(two.try_to_take(), ClaimRecord)
        lease.renew()
    two.clock.advance(TIMES.lease_seconds + 3 * TIMES.skew_seconds + 1)
    assert two.take().record.number == 2
    with pytest.raises(ClaimLostError):
        lease.renew()


def written(**changes: object) -> ClaimRecord:
    record = ClaimRecord(TASK, "held", "host-z", "run-z", 3, NOW, NOW, NOW + timedelta(minutes=20), nonce="n")
    return replace(record, **changes)  # type: ignore[arg-type]  # the test names the fields


@pytest.mark.parametrize(
    ("changes", "free"),
    [
        ({}, False),
        ({"expires_at": NOW + timedelta(days=9000)}, False),
        (
            {"expires_at": NOW + timedelta(days=9000), "renewed_at": NOW - timedelta(hours=24, minutes=9)},
            False,
        ),
        (
            {"expires_at": NOW + timedelta(days=9000), "renewed_at": NOW - timedelta(hours=24, minutes=11)},
            True,
        ),
        ({"expires_at": NOW + timedelta(days=9000), "renewed_at": NOW + timedelta(minutes=20)}, False),
        ({"expires_at": NOW + timedelta(days=9000), "renewed_at": NOW + timedelta(minutes=21)}, True),
        ({"expires_at": NOW - timedelta(days=1)}, True),
    ],
)
def test_absurd_times_do_not_block_a_task(
    plain: Path, tmp_path: Path, changes: dict[str, object], *, free: bool
) -> None:
    put(plain, REF, claim_message(written(**changes)))
    worker = Worker(plain, tmp_path)
    assert isinstance(worker.try_to_take(), Lease) is free


def message(**changes: object) -> str:
    line, _, body = claim_message(written()).partition("\n\n")
    return f"{line}\n\n{json.dumps(json.loads(body) | changes)}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "first\n\n{}",
        "first\n\n[[[[",
        "first\n\n" + "[" * 10_000,
        message(version=2),
        message(task="issue-13"),
        message(number=0),
        message(number=10**30),
        message(number="3"),
        message(state="mine"),
        message(expires_at="9999-12-31T23:59:59+00:00"),
        message(renewed_at="0001-01-01T00:00:00+14:00"),
        message(renewed_at="2026-01-01T00:00:00"),
        message(owner="x" * 201),
        message(owner="a\x1b[2Jb"),
        message(run=""),
        message(spent=None),
        message(pull=-1),
        b"\xff" * 100,
    ],
)
def test_garbage_is_held_until_a_person_releases_it(plain: Path, tmp_path: Path, text: str | bytes) -> None:
    put(plain, REF, text)
    worker = Worker(plain, tmp_path)
    worker.clock.advance(10**8)
    found = worker.try_to_take(dead=("",))
    assert isinstance(found, ClaimRecord)
    assert found.owner == "unreadable record"
    assert found.fault
    assert [found] == list(worker.claims.list())
    assert worker.claims.release(TASK, "by hand") == found
    assert isinstance(worker.try_to_take(), Lease)


def test_an_amount_of_nothing_finite(plain: Path, tmp_path: Path) -> None:
    put(plain, REF, message(spent={"usd": 1, "tokens": 1, "minutes": 1, "rounds": 1}).replace("1.0", "1e999"))
    body = message().replace('"minutes": 0.0', '"minutes": NaN')
    put(plain, f"{REF}3", body.replace(TASK, "issue-123"))
    claims = Worker(plain, tmp_path).claims.list()
    assert [claim.fault is None for claim in claims] == [True, False]


@given(st.text(), st.text())
def test_no_message_breaks_the_reader(line: str, body: str) -> None:
    assert parse_claim(TASK, RemoteRecord(REF, "1" * 40, message=f"{line}\n\n{body}")).fault


@given(
    st.builds(
        Spent,
        usd=st.none() | st.floats(0, 1e9),
        tokens=st.integers(0, 10**12),
        minutes=st.floats(0, 1e6),
        rounds=st.integers(0, 10**6),
    ),
    st.integers(1, 10**12),
    st.none() | st.integers(1, 10**9),
)
def test_what_is_written_is_read(spent: Spent, number: int, pull: int | None) -> None:
    record = written(spent=spent, number=number, pull=pull, outcome="a question, thus released")
    assert parse_claim(TASK, RemoteRecord(REF, "1" * 40, message=claim_message(record))) == record


@pytest.mark.parametrize(
    "task",
    [
        "",
        "a/b",
        "../x",
        "a..b",
        "A-1",
        "x.lock",
        "-x",
        "a b",
        "a\n",
        "a:b",
        "*",
        "x" * 101,
        "é-1",
        "a-",
        "@{u}",
    ],
)
def test_keys_that_are_none(plain: Path, tmp_path: Path, task: str) -> None:
    worker = Worker(plain, tmp_path)
    for work in (lambda: worker.try_to_take(task=task), lambda: worker.claims.show(task)):
        with pytest.raises(WorkspaceError, match="is not the key of a task"):
            work()


@table("task", ["issue-12", "text-1a2b3c4d", "item-fix-the_thing", "pull-7-checks"])
def test_keys(task: str) -> None:
    assert claim_ref(task) == f"refs/pullwright/claims/{task}"


def test_a_person_takes_a_task_from_a_worker(plain: Path, tmp_path: Path) -> None:
    worker, person = Worker(plain, tmp_path, "a"), Worker(plain, tmp_path, "p")
    lease = worker.take()
    shown = person.claims.show(TASK)
    worker.clock.advance(300)
    lease.renew(SPENT)
    # A heartbeat after the person looked changes nothing: it is the holder who is released.
    assert person.claims.release(TASK, "by hand", shown) == lease.record
    with pytest.raises(ClaimLostError, match="released by host-a"):
        lease.renew()
    assert person.claims.release(TASK, "by hand") is None
    assert person.claims.release("issue-99", "by hand") is None
    after = Worker(plain, tmp_path, "b").take()
    assert (after.record.number, after.record.spent) == (2, SPENT)
    assert shown is not None
    with pytest.raises(PushRejectedError, match="has changed meanwhile"):
        person.claims.release(TASK, "by hand", shown)


def test_other_names_below_the_claims_are_no_claims(plain: Path, tmp_path: Path) -> None:
    put(plain, "refs/pullwright/claims/a/b", "x")
    put(plain, "refs/pullwright/claims/UPPER", "x")
    worker = Worker(plain, tmp_path)
    lease = worker.take()
    assert list(worker.claims.list()) == [lease.record]


# Lost answers.

DO_AND_LOSE = f'case " $* " in *" push "*) $real "$@" >&2; {LOST};; esac'


def test_answers_that_are_lost(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(plain, tmp_path)
    broken_git(tmp_path, monkeypatch, DO_AND_LOSE)
    lease = worker.take()
    assert lease.record.number == 1
    worker.clock.advance(300)
    lease.renew(SPENT)
    assert lease.release("proposed", pull=3)
    assert git(plain, "rev-list", "--count", REF) == "3"
    assert lease.record == worker.claims.show(TASK)


def test_a_claim_that_arrived_although_nobody_could_say_so(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(plain, tmp_path)
    dead = f'case " $* " in *" push "*) $real "$@" >/dev/null 2>&1; touch {tmp_path}/sent; {LOST};; esac\n'
    dead += f'case " $* " in *" ls-remote "*) test ! -e {tmp_path}/sent || {{ {LOST}; }};; esac'
    with monkeypatch.context() as broken:
        broken_git(tmp_path, broken, dead)
        with pytest.raises(RemoteUnavailableError):
            worker.try_to_take()
    assert isinstance(worker.try_to_take("another"), ClaimRecord)
    lease = worker.take()
    assert lease.record.number == 1
    (tmp_path / "sent").unlink()
    with monkeypatch.context() as broken:
        broken_git(tmp_path, broken, dead)
        with pytest.raises(RemoteUnavailableError):
            lease.renew(SPENT)
    # It arrived; the next renewal finds that out, and goes on from there.
    assert lease.renew().spent == SPENT
    assert worker.claims.show(TASK) == lease.record


# Over HTTP, with git's own server.

PUSH = r"/o/r\.git/git-receive-pack"
ASK = r"/o/r\.git/info/refs"


def http_worker(github: GitHub, folder: Path, name: str) -> Worker:
    credential = Credential(github.web_url.partition("://")[2], "x-access-token", github.token())
    return Worker(f"{github.web_url}/o/r.git", folder, name, credential=credential)


FAULTS: list[tuple[str, Callable[[], list[Fault]]]] = [
    ("nothing", list),
    ("5xx before", lambda: [server_error("POST", PUSH)]),
    ("5xx twice", lambda: [server_error("POST", PUSH, times=2)]),
    ("no refs", lambda: [server_error("GET", ASK, status=503, times=2)]),
    ("lost reply", lambda: [lost_reply("POST", PUSH)]),
    ("lost reply, and none can look", lambda: [lost_reply("POST", PUSH), server_error("GET", ASK, times=3)]),
]


@pytest.mark.parametrize("faults", [make for _, make in FAULTS], ids=[name for name, _ in FAULTS])
def test_over_http(github: GitHub, tmp_path: Path, faults: Callable[[], list[Fault]]) -> None:
    github.add_repository("o/r")
    one, two = http_worker(github, tmp_path, "a"), http_worker(github, tmp_path, "b")
    github.faults += faults()
    lease = one.take()
    assert isinstance(two.try_to_take(), ClaimRecord)
    github.faults += faults()
    one.clock.advance(300)
    lease.renew(SPENT)
    github.faults += faults()
    assert lease.release("proposed", pull=1)
    assert two.claims.show(TASK) == lease.record


def test_a_free_task_costs_two_round_trips_and_a_heartbeat_one(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = logged_git(tmp_path, monkeypatch)
    worker = Worker(plain, tmp_path)
    lease = worker.take()
    assert commands() == ["ls-remote", "push"]
    lease.renew()
    assert commands() == ["push"]
    lease.release("proposed")
    assert commands() == ["push"]


def test_what_was_seen_is_not_asked_for_again(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = logged_git(tmp_path, monkeypatch)
    worker = Worker(plain, tmp_path)
    seen = worker.records.list("refs/pullwright/")
    assert list(worker.claims.list(seen)) == []
    assert commands() == ["ls-remote"]
    lease = worker.claims.take(TASK, "run-a", seen=seen)
    assert isinstance(lease, Lease)
    assert commands() == ["push"]
    assert list(worker.claims.list()) == [lease.record]
    assert commands() == ["ls-remote"], "what we wrote ourselves is not read"
    lease.renew()
    commands()
    assert list(worker.claims.list()) == [lease.record]
    assert commands() == ["ls-remote", "cat-file", "cat-file"], "it is here, so it is not fetched"
    other = Worker(plain, tmp_path, "b")
    assert list(other.claims.list()) == [lease.record]
    assert commands() == ["ls-remote", "cat-file", "fetch", "cat-file", "cat-file"]
    assert list(other.claims.list()) == [lease.record]
    assert commands() == ["ls-remote"]


def test_what_was_seen_too_long_ago_takes_nothing_away(plain: Path, tmp_path: Path) -> None:
    one, two = Worker(plain, tmp_path, "a"), Worker(plain, tmp_path, "b")
    nothing = two.records.list(REF)
    lease = one.take()
    assert two.claims.take(TASK, "run-b", seen=nothing) == lease.record, "somebody was there first"
    held, held_record = two.records.list(REF), lease.record
    lease.release("failed", 7)
    stale = two.claims.take(TASK, "run-b", seen=held)
    assert stale == held_record, "it looked held, which is looked at again soon"
    again = two.claims.take(TASK, "run-b", seen=nothing)
    assert isinstance(again, Lease)
    assert (again.record.number, again.record.pull, again.previous) == (2, 7, lease.record)
    gone = one.records.list(REF)
    git(plain, "update-ref", "-d", REF)
    again = one.claims.take(TASK, "run-b", dead_runs=["run-b"], seen=gone)
    assert isinstance(again, Lease)
    assert (again.record.number, again.previous) == (1, None), "it was removed meanwhile"


def test_a_claim_that_is_put_at_another_task_is_not_believed(plain: Path, tmp_path: Path) -> None:
    worker = Worker(plain, tmp_path)
    worker.take()
    assert len(worker.claims.list()) == 1
    git(plain, "update-ref", "refs/pullwright/claims/issue-13", REF)
    mine, copied = worker.claims.list()
    assert (mine.fault, copied.fault) == (None, "it is about another task")
    assert worker.claims.list()[1].fault == copied.fault


# A claim that moved with a push.


@pytest.fixture
def fenced(plain: Path, tmp_path: Path) -> tuple[Worker, Lease]:
    """A claim that moved together with a branch."""
    worker = Worker(plain, tmp_path)
    lease = worker.take()
    push_branch(worker, lease)
    return worker, lease


def push_branch(worker: Worker, lease: Lease) -> None:
    place = worker.records.objects.parent
    made = worker.records.commit(f"work at {worker.clock.monotonic()}", None)
    update = Update(f"refs/heads/{made}", None, made)
    assert lease.push(HostGit(place.parent, place), update, doing="cannot push") == made


def test_a_claim_that_just_moved_is_not_moved_again(fenced: tuple[Worker, Lease], plain: Path) -> None:
    worker, lease = fenced
    tip = git(plain, "rev-parse", REF)
    worker.clock.advance(TIMES.renew_seconds - 1)
    lease.ensure_held()
    assert git(plain, "rev-parse", REF) == tip
    worker.clock.advance(1)
    lease.ensure_held()
    assert git(plain, "rev-parse", f"{REF}^") == tip, "after a while it is renewed"


def test_only_a_push_counts(plain: Path, tmp_path: Path) -> None:
    worker = Worker(plain, tmp_path)
    lease = worker.take()
    for _ in range(2):
        tip = git(plain, "rev-parse", REF)
        lease.ensure_held()
        assert git(plain, "rev-parse", f"{REF}^") == tip
    lease.release("proposed")
    with pytest.raises(ClaimLostError):
        lease.ensure_held()


class SleepyClock(ManualClock):
    """One whose durations leave out what the machine slept."""

    def monotonic(self) -> float:
        return 0.0


def test_a_machine_that_slept_asks_again(plain: Path, tmp_path: Path) -> None:
    worker = Worker(plain, tmp_path, clock=SleepyClock())
    lease = worker.take()
    push_branch(worker, lease)
    worker.clock.advance(TIMES.lease_seconds + TIMES.skew_seconds + 1)
    rival = Worker(plain, tmp_path, "b", clock=worker.clock)
    rival.take()
    with pytest.raises(ClaimLostError, match="held by host-b"):
        lease.ensure_held()


def test_a_claim_that_was_gone_when_it_was_read_back_is_asked_for(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(plain, tmp_path)
    lease = worker.take()
    with monkeypatch.context() as broken:
        taken = f'case " $* " in *" push "*) $real "$@"; said=$?; GIT_DIR={plain} $real update-ref -d {REF}; exit $said;; esac'
        broken_git(tmp_path, broken, taken)
        push_branch(worker, lease)
    with pytest.raises(ClaimLostError, match="somebody removed it"):
        lease.ensure_held()


def test_where_two_pushes_were_needed_the_claim_is_renewed(plain: Path, tmp_path: Path) -> None:
    git(plain, "config", "receive.advertiseAtomic", "false")
    worker = Worker(plain, tmp_path)
    lease = worker.take()
    push_branch(worker, lease)
    tip = git(plain, "rev-parse", REF)
    lease.ensure_held()
    assert git(plain, "rev-parse", f"{REF}^") == tip


@pytest.mark.parametrize("atomic", ["true", "false"])
def test_old_claims_are_removed_where_none_of_them_moved(atomic: str, tmp_path: Path) -> None:
    remote = bare(tmp_path)
    git(remote, "config", "receive.advertiseAtomic", atomic)
    worker = Worker(remote, tmp_path)
    for task in ("issue-1", "issue-2", "issue-3"):
        worker.take(task=task).release("proposed")
    found = {task: git(remote, "rev-parse", claim_ref(task)) for task in ("issue-1", "issue-2")}
    assert remove_tombstones(worker.records, found)
    assert git(remote, "for-each-ref", "--format=%(refname)", "refs/pullwright") == claim_ref("issue-3")
    assert not remove_tombstones(worker.records, {"issue-3": found["issue-1"]})
    assert git(remote, "for-each-ref", "--format=%(refname)", "refs/pullwright") == claim_ref("issue-3")
    assert remove_tombstones(worker.records, {})


def test_only_a_released_claim_becomes_old(plain: Path, tmp_path: Path) -> None:
    worker = Worker(plain, tmp_path)
    lease = worker.take()
    held, after = lease.record, timedelta(days=KEPT_DAYS)
    lease.release("proposed")
    (released,) = worker.claims.list()
    assert not is_old(released, released.renewed_at + after)
    assert is_old(released, released.renewed_at + after + timedelta(seconds=1))
    assert not is_old(held, held.renewed_at + after * 2)
    assert not is_old(replace(released, fault="unreadable"), released.renewed_at + after * 2)


# What is given back as it was.


def test_a_task_that_is_given_back_says_what_it_said(remote: Path, tmp_path: Path) -> None:
    one, two = Worker(remote, tmp_path, "a"), Worker(remote, tmp_path, "b")
    one.take().release("failed 0123", 7, SPENT)
    said = one.claims.show(TASK)
    assert said is not None
    two.clock.advance(1000)
    lease = two.take()
    assert lease.undo_claim()
    assert lease.undo_claim()
    found = one.claims.show(TASK)
    assert found is not None
    assert found == replace(said, number=2, nonce=found.nonce)
    assert found.nonce != said.nonce
    with pytest.raises(ClaimLostError):
        lease.renew()
    assert one.take().record.number == 3


def test_a_task_that_nobody_let_go_of_is_given_back_free(plain: Path, tmp_path: Path) -> None:
    worker = Worker(plain, tmp_path)
    first = worker.take()
    assert first.undo_claim()
    assert worker.claims.show(TASK) == first.record
    assert (first.record.state, first.record.outcome) == ("released", "skipped")
    worker.take("run-1")
    after = worker.take("run-2", dead=("run-1",))
    assert after.undo_claim()
    found = worker.claims.show(TASK)
    assert found is not None
    assert (found.state, found.run, found.outcome) == ("released", "run-2", "skipped")


def test_a_claim_that_was_lost_is_not_given_back(plain: Path, tmp_path: Path) -> None:
    one, two = Worker(plain, tmp_path, "a"), Worker(plain, tmp_path, "b")
    one.take().release("failed", 7)
    lease = one.take()
    after = two.take(dead=("run-a",))
    assert not lease.undo_claim()
    assert two.claims.show(TASK) == after.record


@pytest.mark.parametrize(("state", "words"), [("held", "held by"), ("released", "released (failed) by")])
def test_the_first_line_of_a_claim_says_who_has_the_task(state: str, words: str) -> None:
    record = written(state=state, outcome="" if state == "held" else "failed")
    line = claim_message(record).partition("\n")[0]
    assert line == f"pullwright: {record.task} {words} {record.owner}/{record.run}, number {record.number}"


def test_a_pull_request_is_waited_for_an_hour(plain: Path, tmp_path: Path) -> None:
    worker = Worker(plain, tmp_path)
    lease = worker.take()
    lease.release("proposed", 7)
    for seconds, expected in ((0, 7), (3599, 7), (3600, None), (10**8, None), (-3599, 7), (-3600, None)):
        assert lease.record.new_pull(NOW + timedelta(seconds=seconds)) == expected
    again = worker.take()
    worker.clock.advance(3600)
    assert again.undo_claim()
    assert again.record.new_pull(worker.clock.now()) is None, "looking does not make it new"


def test_what_was_given_back_moves_nothing_any_more(remote: Path, tmp_path: Path) -> None:
    """Neither a look nor a push finds out: the run knows it itself, also where it moved the claim a moment ago."""
    worker = Worker(remote, tmp_path)
    lease = worker.take()
    main = git(remote, "rev-parse", "refs/heads/main")
    host = HostGit(remote, remote)
    assert lease.push(host, Update("refs/heads/one", None, main), doing="test") == main
    lease.ensure_held()
    lease.release("proposed", pull=1)
    before = git(remote, "for-each-ref")
    with pytest.raises(ClaimLostError, match="it was released"):
        lease.ensure_held()
    for update in (Update("refs/heads/two", None, main), Update("refs/heads/one", main, main)):
        with pytest.raises(ClaimLostError, match="it was released"):
            lease.push(host, update, doing="test")
    assert git(remote, "for-each-ref") == before


def test_a_request_to_retry_tells_who_has_the_task(remote: Path, tmp_path: Path) -> None:
    lease = Worker(remote, tmp_path).take()
    other = Worker(remote, tmp_path, "b")
    assert other.claims.request_retry(TASK) == lease.record
    assert other.claims.show(TASK) == lease.record, "and it is still theirs"
    lease.release("failed")
    assert other.claims.request_retry(TASK) is None
    assert isinstance(other.try_to_take(), Lease)

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import ClaimLostError, PushRejectedError, RemoteUnavailableError
from orchestrator.core.redaction import Credential
from tests.doubles.commits import commit_touched
from tests.doubles.github.faults import Fault, lost_reply, server_error
from tests.doubles.github.fixtures import github
from tests.unit.bot.coordination.records_rig import LOST, REF, TASK, TIMES, Worker, bare, broken_git, holder
from tests.unit.bot.git.rig import clone, git, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from orchestrator.bot.git.clone import Clone
    from tests.doubles.github.server import GitHub

__all__ = ["github"]

BRANCH = "pullwright/issue-12-fix"


def commit(opened: Clone, text: str = "1") -> str:
    write(opened.tree, {"a.txt": text})
    made = commit_touched(opened, {"a.txt"}, f"write {text}", include_commands=False).commit
    assert made is not None
    return made


def branch(path: Path, name: str = BRANCH) -> str | None:
    found = git(path, "for-each-ref", "--format=%(objectname)", f"refs/heads/{name}")
    return found or None


@pytest.fixture(params=["atomic", "not atomic", "sha256"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = bare(tmp_path, *(("--object-format=sha256",) if request.param == "sha256" else ()))
    if request.param == "not atomic":
        git(path, "config", "receive.advertiseAtomic", "false")
    # No history of ours is ever rewritten, so a server may forbid it.
    git(path, "config", "receive.denyNonFastForwards", "true")
    return path


@pytest.fixture
def opened(remote: Path, tmp_path: Path) -> Iterator[Clone]:
    with clone(remote, tmp_path / "clones") as found:
        yield found


def test_branch_and_claim_move_together(opened: Clone, remote: Path, tmp_path: Path) -> None:
    worker = Worker(remote, tmp_path)
    lease = worker.take()
    before = git(remote, "rev-parse", REF)
    first = commit(opened)
    worker.clock.advance(60)
    assert opened.push(BRANCH, expected=None, lease=lease) == first == branch(remote)
    assert git(remote, "rev-parse", f"{REF}~1") == before
    assert worker.claims.show(TASK) == lease.record
    assert lease.record.renewed_at == worker.clock.now()
    second = commit(opened, "2")
    assert opened.push(BRANCH, expected=None, lease=lease) == second == branch(remote)
    assert opened.push(BRANCH, expected=None, lease=lease) == second
    assert lease.renew().number == 1
    assert lease.release("proposed", pull=1)
    assert worker.take("run-next").record.base == opened.base_commit


def test_what_moves_nothing_is_looked_at_and_not_pushed(
    opened: Clone, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Worker(remote, tmp_path, "a"), Worker(remote, tmp_path, "b")
    lease = one.take()
    made = commit(opened)
    opened.push(BRANCH, expected=None, lease=lease)
    broken_git(tmp_path, monkeypatch, f'case " $* " in *" push "*) {LOST};; esac')
    assert opened.push(BRANCH, expected=None, lease=lease) == made
    git(remote, "update-ref", f"refs/heads/{BRANCH}", "main")
    with pytest.raises(PushRejectedError, match="the remote has"):
        opened.push(BRANCH, expected=None, lease=lease)
    git(remote, "update-ref", f"refs/heads/{BRANCH}", made)
    monkeypatch.undo()
    two.clock.advance(TIMES.lease_seconds + TIMES.skew_seconds + 61)
    two.take()
    with pytest.raises(ClaimLostError, match="held by host-b, run run-b, number 2"):
        opened.push(BRANCH, expected=None, lease=lease)
    assert lease.lost


def test_a_claim_that_was_taken_over_from_an_older_record(
    opened: Clone, remote: Path, tmp_path: Path
) -> None:
    """The history behind the claim is not here: it was fetched without, into another folder than the clone."""
    other = Worker(remote, tmp_path, "b").take()
    for _ in range(3):
        other.renew()
    other.release("failed")
    lease = Worker(remote, tmp_path).take()
    made = commit(opened)
    assert opened.push(BRANCH, expected=None, lease=lease) == made == branch(remote)


def test_a_zombies_branch_goes_down_with_its_claim(opened: Clone, remote: Path, tmp_path: Path) -> None:
    one, two = Worker(remote, tmp_path, "a"), Worker(remote, tmp_path, "b")
    lease = one.take()
    first = commit(opened)
    opened.push(BRANCH, expected=None, lease=lease)
    two.clock.advance(TIMES.lease_seconds + TIMES.skew_seconds + 61)
    two.take()
    commit(opened, "2")
    for name in (BRANCH, f"{BRANCH}-new"):
        with pytest.raises(ClaimLostError, match="held by host-b, run run-b, number 2"):
            opened.push(name, expected=None, lease=lease)
    assert lease.lost
    assert branch(remote) == first
    assert branch(remote, f"{BRANCH}-new") is None
    assert holder(remote) == "pullwright: issue-12 held by host-b/run-b, number 2"


@pytest.mark.parametrize("how", ["released", "removed", "garbage"])
def test_a_person_stops_a_worker(opened: Clone, remote: Path, tmp_path: Path, how: str) -> None:
    worker, person = Worker(remote, tmp_path, "a"), Worker(remote, tmp_path, "p")
    lease = worker.take()
    if how == "released":
        person.claims.release(TASK, "by hand")
    elif how == "removed":
        git(remote, "update-ref", "-d", REF)
    else:
        git(remote, "update-ref", REF, "main")
    commit(opened)
    with pytest.raises(ClaimLostError, match="does not hold the claim"):
        opened.push(BRANCH, expected=None, lease=lease)
    assert branch(remote) is None


def test_a_branch_that_changed_leaves_the_claim_ours(opened: Clone, remote: Path, tmp_path: Path) -> None:
    lease = Worker(remote, tmp_path).take()
    git(remote, "branch", BRANCH, "main")
    made = commit(opened)
    with pytest.raises(PushRejectedError, match="the branch changed on the remote meanwhile"):
        opened.push(BRANCH, expected=None, lease=lease)
    assert branch(remote) == opened.base_commit
    lease.renew()
    assert opened.push(BRANCH, expected=opened.base_commit, lease=lease) == made


def test_a_server_that_does_not_want_the_branch(opened: Clone, remote: Path, tmp_path: Path) -> None:
    lease = Worker(remote, tmp_path).take()
    git(remote, "config", "receive.hideRefs", "refs/heads/pullwright")
    commit(opened)
    with pytest.raises(PushRejectedError, match="deny updating a hidden ref"):
        opened.push(BRANCH, expected=None, lease=lease)
    assert branch(remote) is None
    assert lease.renew().number == 1


def test_a_lost_answer_of_a_push(
    opened: Clone, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(remote, tmp_path)
    lease = worker.take()
    made = commit(opened)
    broken_git(tmp_path, monkeypatch, f'case " $* " in *" push "*) $real "$@" >/dev/null 2>&1; {LOST};; esac')
    if git(remote, "config", "--default", "true", "receive.advertiseAtomic") == "true":
        assert opened.push(BRANCH, expected=None, lease=lease) == made == branch(remote)
        assert worker.claims.show(TASK) == lease.record


def test_a_push_that_arrived_although_nobody_could_say_so(
    opened: Clone, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(remote, tmp_path)
    lease = worker.take()
    made = commit(opened)
    with monkeypatch.context() as broken:
        script = (
            f'case " $* " in *" push "*) $real "$@" >/dev/null 2>&1; {LOST};; *" ls-remote "*) {LOST};; esac'
        )
        broken_git(tmp_path, broken, script)
        with pytest.raises(RemoteUnavailableError):
            opened.push(BRANCH, expected=None, lease=lease)
    assert not lease.lost
    # Again, with what is known: harmless, whether it arrived or not.
    assert opened.push(BRANCH, expected=None, lease=lease) == made == branch(remote)
    assert worker.claims.show(TASK) == lease.record


def test_a_claim_that_is_lost_between_the_two_pushes_of_a_server_without_atomic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the branch may move although the claim does not: that is said at once."""
    path = bare(tmp_path)
    git(path, "config", "receive.advertiseAtomic", "false")
    lease = Worker(path, tmp_path).take()
    with clone(path, tmp_path / "clones") as opened:
        made = commit(opened)
        script = f'case " $* " in *" push "*refs/heads/*) case " $* " in *" --atomic "*);; *) GIT_DIR={path} $real update-ref -d {REF};; esac;; esac'
        broken_git(tmp_path, monkeypatch, script)
        with pytest.raises(ClaimLostError, match="somebody removed it"):
            opened.push(BRANCH, expected=None, lease=lease)
    # Nothing more can be had from such a server.
    assert branch(path) == made
    assert lease.lost


# Over HTTP.

PUSH = r"/o/r\.git/git-receive-pack"
ASK = r"/o/r\.git/info/refs"


@pytest.mark.slow(reason="many programs or examples; the like of them is in the default tier")
@pytest.mark.parametrize(
    "faults",
    [
        list,
        lambda: [server_error("POST", PUSH)],
        lambda: [server_error("GET", ASK, status=503)],
        lambda: [lost_reply("POST", PUSH)],
        lambda: [lost_reply("POST", PUSH), server_error("GET", ASK, times=2)],
    ],
    ids=["nothing", "5xx", "no refs", "lost reply", "lost reply, and none can look"],
)
@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "not atomic"])
def test_over_http(
    github: GitHub, tmp_path: Path, faults: Callable[[], list[Fault]], *, atomic: bool
) -> None:
    repo = github.add_repository("o/r")
    git(repo.path, "config", "receive.advertiseAtomic", str(atomic).lower())
    credential = Credential(github.web_url.partition("://")[2], "x-access-token", github.token())
    url = f"{github.web_url}/o/r.git"
    lease = Worker(url, tmp_path, credential=credential).take()
    rival = Worker(url, tmp_path, "b", credential=credential)
    rival.clock.advance(TIMES.lease_seconds + TIMES.skew_seconds + 1)
    with clone(url, tmp_path / "clones", credential=lambda: credential) as opened:
        made = commit(opened)
        github.faults += faults()
        assert opened.push(BRANCH, expected=None, lease=lease) == made == branch(repo.path)
        rival.take()
        commit(opened, "2")
        github.faults += faults()
        with pytest.raises(ClaimLostError):
            opened.push(BRANCH, expected=None, lease=lease)
        assert branch(repo.path) == made

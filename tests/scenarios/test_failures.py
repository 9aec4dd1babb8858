"""Failures of the world around a cycle, each with what it comes to.

==============================  ==========================================================================
failure                         outcome
==============================  ==========================================================================
disk full, state folder         failed; the round that is paid for ends, its work is on the remote
disk full, temporary folder     failed before the clone, or after it with the work saved; no useless request, no folder left
the clone's files removed       failed; the conversation is saved, and what was saved before
remote gone after the clone     paused; the work is a patch, and a warning says that it is nowhere else
clone interrupted               paused; no folder left, no request, the claim is released
journal's last line torn        the next start resumes as if the line had not been begun
GitHub down for an hour         the worker pauses longer and longer, and goes on when it is back
clock a day ahead or behind     nothing: the claim is renewed, the task is proposed once
token revoked                   failed; the work is a patch, the error says what to do, the worker halts
==============================  ==========================================================================
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
import shutil
import subprocess
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.app.wiring.program import RunRequest, build_program
from orchestrator.bot.cycle.parts import Stop
from orchestrator.bot.journal.folders import JOURNAL_FILE, Home
from orchestrator.bot.journal.reader import is_open
from orchestrator.bot.worker.worker import CycleTiming, NextStepChooser, Waiter, work
from orchestrator.core.clock import ManualClock, SystemClock
from tests.doubles.github.faults import Fault, server_error
from tests.doubles.model_server import ModelServer
from tests.doubles.stopping import no_wait
from tests.scenarios.dying import Mortal, claims, hidden
from tests.scenarios.stage import (
    FILES,
    FINISH,
    FIX,
    FIX_IT,
    FIXED,
    PROPOSE,
    Stage,
    branches,
    content,
    do,
    git,
    make_repository,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from orchestrator.app.wiring.program import Program
    from orchestrator.bot.cycle.parts import CycleResult
    from orchestrator.bot.journal.run_facts import Pause
    from orchestrator.core.clock import Clock
    from tests.doubles.github.server import GitHub
    from tests.doubles.github.state import Repo
    from tests.doubles.model_server import RecordedRequest, Step

slow = pytest.mark.slow(reason="fills a disk")

TASK = ("--task", "Fix add() in calc.py")
BEGUN = do(FIX, text="First the sign.")
ENDED = do(PROPOSE, FINISH, text="Now propose.")
GIT = r"/octo/calc\.git/.*"
DAY_SECONDS = 86_400.0
MOST_CYCLES = 20
KILOBYTE = 1024

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")


@pytest.fixture
def repo(github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Repo:
    repo = github.add_repository("octo/calc", FILES, private=True)
    github.add_issue(repo, "add() subtracts", "Please fix `add`.", ["pullwright"])
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    stage.flags = ["--github-url", github.web_url, "--repo", "octo/calc"]
    return repo


@pytest.fixture
def own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files that nobody else uses."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    make_repository(tmp_path / "work")
    git(tmp_path, "clone", "--quiet", "--bare", str(tmp_path / "work"), "bare.git")
    return tmp_path / "bare.git"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk that is soon full: 400 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Use what room a small disk has."""
    with suppress(OSError), (folder / "ballast").open("wb", buffering=0) as file:
        while file.write(b"x" * KILOBYTE) == KILOBYTE:
            pass


def pushed(repo: Repo) -> list[str]:
    return [name for name in repo.branches() if name.startswith("pullwright/")]


# Disks.


@slow
@needs_root
def test_a_full_state_folder_ends_the_cycle_with_the_work_on_the_remote(
    stage: Stage, bare: Path, small: Path, own_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULLWRIGHT_HOME", str(small / "home"))
    large = ("write_file", {"path": "big.txt", "content": "x" * 500 * KILOBYTE})
    stage.script(do(FIX, large), ENDED)
    done = stage.run("--repo", str(bare), *TASK)
    assert done.code == 1
    assert "no space" in done.result["error"].lower()
    (ref,) = hidden(bare, "wip")
    assert git(bare, "show", f"{ref}^:calc.py") == FIXED.strip()
    assert done.result["patch"] is None, (
        "the next cycle goes on with the work, and nobody would remove a patch"
    )
    assert len(stage.model.requests) == 1
    monkeypatch.setenv("PULLWRIGHT_HOME", str(own_tmp / "home"))
    # Else the long file makes the conversation too long, and a summary takes the next reply of the script.
    again = stage.run("--repo", str(bare), *TASK, "--context-window", "2000000")
    assert again.code == 0, again.err
    assert content(bare, branches(bare)[0], "calc.py") == FIXED.strip()
    assert [path.name for path in own_tmp.iterdir()] == ["home"]


@slow
@needs_root
def test_a_full_temporary_folder_is_an_error_that_says_so(
    stage: Stage, bare: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(small))
    fill(small)
    stage.script(FIX_IT)
    done = stage.run("--repo", str(bare), *TASK)
    assert done.code == 1
    assert done.result["outcome"] == "failed"
    assert "no space" in done.result["error"].lower()
    assert stage.model.requests == []
    assert [path.name for path in small.iterdir()] == ["ballast"]
    assert [one["state"] for one in claims(bare) if one["state"] == "held"] == []
    (small / "ballast").unlink()
    again = stage.run("--repo", str(bare), *TASK)
    assert again.code == 0, again.err


@slow
@needs_root
def test_a_temporary_folder_that_is_full_in_the_middle_loses_nothing(
    stage: Stage, bare: Path, small: Path, monkeypatch: pytest.MonkeyPatch, own_state: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(small))

    def full(_request: RecordedRequest) -> Step:
        fill(small)
        return ENDED

    stage.script(BEGUN, full, do(PROPOSE, FINISH))
    done = stage.run("--repo", str(bare), *TASK)
    assert done.code == 1
    assert branches(bare) == []
    (run,) = Home(own_state).runs.iterdir()
    assert FIXED.splitlines()[1] in (run / "changes.patch").read_text()
    assert not (run / "git").exists()
    assert [path.name for path in small.iterdir()] == ["ballast"]
    (small / "ballast").unlink()
    asked = len(stage.model.requests)
    again = stage.run("--repo", str(bare), *TASK)
    assert again.code == 0, again.err
    assert content(bare, branches(bare)[0], "calc.py") == FIXED.strip()
    assert len(stage.model.requests) == asked + 1
    # The model goes on where it was.
    said, before = (
        json.dumps(one.body["messages"]) for one in (stage.model.requests[-1], stage.model.requests[1])
    )
    assert said.startswith(before[:-1])


@pytest.mark.parametrize("has_earlier", [False, True])
def test_where_the_files_are_gone_the_conversation_is_saved_with_what_was_saved_before(
    stage: Stage, bare: Path, own_tmp: Path, *, has_earlier: bool
) -> None:
    if has_earlier:
        stage.script(BEGUN)
        assert stage.run("--repo", str(bare), *TASK, "--max-rounds", "1").result["outcome"] == "limit"
        (ref,) = hidden(bare, "wip")
        assert git(bare, "show", f"{ref}^:calc.py") == FIXED.strip()

    def gone(_request: RecordedRequest) -> Step:
        (tree,) = own_tmp.glob("*/tree")
        shutil.rmtree(tree)
        return ENDED

    stage.script(do(("read_file", {"path": "calc.py"}), text="Look at it."), gone)
    done = stage.run("--repo", str(bare), *TASK)
    assert (done.code, done.result["saved"]) == (1, "refs/pullwright/wip/" + done.result["task"]["key"]), (
        done.err
    )
    if has_earlier:
        (ref,) = hidden(bare, "wip")
        assert git(bare, "show", f"{ref}^:calc.py") == FIXED.strip()
    stage.script(do(*([] if has_earlier else [FIX]), PROPOSE, FINISH))
    again = stage.run("--repo", str(bare), *TASK)
    assert again.code == 0, again.err
    assert content(bare, branches(bare)[0], "calc.py") == FIXED.strip()
    assert "Look at it." in json.dumps(stage.model.requests[-1].body["messages"])


# The network.


@slow
def test_a_clone_that_is_interrupted_leaves_nothing(
    stage: Stage, github: GitHub, repo: Repo, own_tmp: Path
) -> None:
    """Everything before the clone arrives; from its pack on, the connection is cut."""

    class Cut(list[Any]):
        def append(self, seen: Any) -> None:
            super().append(seen)
            if seen.method == "POST" and seen.path.endswith("/issues/1/labels") and not github.faults:
                fault = Fault("POST", r"/octo/calc\.git/git-upload-pack", times=10_000, lost_reply=True)
                github.faults.append(fault)

    github.requests = Cut()
    done = stage.run("--issue", "1")
    assert done.code == 1
    assert done.result["outcome"] == "paused"
    assert stage.model.requests == []
    assert list(own_tmp.iterdir()) == []
    assert [one["state"] for one in claims(repo.path)] == ["released"]
    github.requests = []
    github.faults.clear()
    stage.script(FIX_IT)
    assert stage.run("--issue", "1").code == 0
    assert len(repo.pulls) == 1


def test_a_token_that_is_revoked_in_mid_cycle_halts_the_worker(
    stage: Stage, github: GitHub, repo: Repo, own_tmp: Path
) -> None:
    github.add_issue(repo, "second", "", ["pullwright"])

    def revoked(_request: RecordedRequest) -> Step:
        github.revoke(os.environ["GITHUB_TOKEN"])
        return ENDED

    stage.script(BEGUN, revoked, FIX_IT)
    done = stage.run("--continuous")
    assert done.code == 1
    assert len(done.results) == 1, "it halts"
    assert done.result["outcome"] == "failed"
    assert "token" in done.result["error"].lower()
    assert done.result["saved"] is None
    assert "+    return a + b" in Path(done.result["patch"]).read_text()
    assert pushed(repo) == []
    assert len(stage.model.requests) == 2
    assert list(own_tmp.iterdir()) == []


def revoke_token(github: GitHub, _repo: Repo) -> None:
    github.revoke(os.environ["GITHUB_TOKEN"])


def remove_app(github: GitHub, _repo: Repo) -> None:
    github.grants.clear()
    github.apps.clear()


def suspend_app(github: GitHub, _repo: Repo) -> None:
    github.grants.clear()
    body = {"message": "This installation has been suspended"}
    github.faults.append(Fault("POST", ".*/access_tokens", times=99, status=403, body=body))


def uninstall_app(github: GitHub, repo: Repo) -> None:
    github.grants.clear()
    for path in (".*/access_tokens", f"/repos/{repo.full_name}/installation"):
        github.faults.append(Fault("*", path, times=99, status=404, body={"message": "Not Found"}))


@pytest.mark.parametrize(
    ("revoke", "at", "words"),
    [
        (revoke_token, "GET .* git-receive-pack", "check the token"),
        (revoke_token, "POST .*git-receive-pack ", "check the token"),
        (remove_app, "model", "GitHub App"),
        (remove_app, "POST .*git-receive-pack ", "check the token"),
        (suspend_app, "model", "GitHub App"),
        (uninstall_app, "model", "GitHub App"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_access_that_ends_at_a_push_is_told_at_once_and_loses_no_work(  # noqa: PLR0913, PLR0917  fixtures and a case
    stage: Stage,
    github: GitHub,
    repo: Repo,
    monkeypatch: pytest.MonkeyPatch,
    revoke: Callable[[GitHub, Repo], None],
    at: str,
    words: str,
) -> None:
    """Between two requests of the first push of the change. Nobody tries it again, and nothing blames the network."""
    if revoke is not revoke_token:
        app = github.app([repo.full_name])
        monkeypatch.setenv("GITHUB_TOKEN", "")
        monkeypatch.setenv("PULLWRIGHT_GITHUB_APP_ID", str(app.id))
        monkeypatch.setenv("PULLWRIGHT_GITHUB_APP_KEY", app.private_key)

    class Watched(list[Any]):
        def append(self, seen: Any) -> None:
            super().append(seen)
            name = f"{seen.method} {seen.path} {seen.query.get('service', '')}"
            if "ended" in told and "revoked" not in told and seen.status < 400 and re.match(at, name):
                told["revoked"] = len(self)
                revoke(github, repo)

    def ended(_request: RecordedRequest) -> Step:
        told["ended"] = 1
        if at == "model":
            told["revoked"] = len(github.requests)
            revoke(github, repo)
        return ENDED

    told: dict[str, int] = {}
    stage.script(BEGUN, ended)
    github.requests = Watched()
    done = stage.run("--issue", "1")
    assert (done.code, done.result["outcome"]) == (1, "failed")
    assert words in done.result["error"]
    assert not re.search(r"reached|network|hung up|try again", done.err)
    assert len(github.requests) - told["revoked"] < 12
    assert "the next cycle on issue-1 on this machine continues the work" in done.err

    github.requests, github.faults = [], []
    monkeypatch.setenv("PULLWRIGHT_GITHUB_APP_ID", "")
    monkeypatch.setenv("PULLWRIGHT_GITHUB_APP_KEY", "")
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    again = stage.run("--issue", "1")
    assert again.result["outcome"] == "proposed", again.err
    assert len(stage.model.requests) == 2


# The journal.


@slow
def test_a_torn_last_line_is_as_if_it_had_not_been_begun(bare: Path, tmp_path: Path) -> None:
    folder, mortal = tmp_path / "machine", Mortal()
    folder.mkdir()
    with ModelServer([BEGUN, ENDED]) as model:
        try:
            order: dict[str, Any] = {"repository": str(bare), "text": TASK[1]}
            dead = mortal.start(folder, model, dies_after=18, **order)
            assert dead.killed
            (run,) = Home(folder / "home").runs.iterdir()
            journal = (run / JOURNAL_FILE).read_bytes()
            (run / JOURNAL_FILE).write_bytes(journal[:-20])
            again = mortal.start(folder, model, **order)
        finally:
            mortal.close()
    assert again.result["outcome"] == "proposed"
    assert "First the sign." in str(model.requests[1].body["messages"])
    assert not is_open(run)
    assert content(bare, branches(bare)[0], "calc.py") == FIXED.strip()


# Time.


def built(
    stage: Stage, tmp_path: Path, request: RunRequest, clock: Clock | None = None, **flags: str
) -> Program:
    settings = {"model": "openai-chat:scripted-1", "api_url": stage.model.url, **flags}
    return build_program(
        request, settings, os.environ, tmp_path, lambda _event: None, stop=Stop(no_wait), clock=clock
    )


@slow
async def test_github_is_down_for_an_hour(stage: Stage, github: GitHub, repo: Repo, tmp_path: Path) -> None:
    program = built(stage, tmp_path, RunRequest("octo/calc"), github_url=github.web_url)
    github.faults.append(server_error("*", r".*", times=1_000_000))
    stage.script(FIX_IT)
    clock, results = ManualClock(), list[Any]()
    pauses: list[datetime] = []

    def tell(pause: Pause, after: CycleResult | None) -> None:
        del after
        pauses.append(pause.until)
        if clock.monotonic() > 3600 and github.faults:
            github.faults.clear()

    rhythm = CycleTiming(clock, Waiter(clock), NextStepChooser(clock, random.SystemRandom()), tell)
    await work(program.cycle, results.append, program.stop, rhythm, max_cycles=MOST_CYCLES)
    await program.close()
    outcomes = [str(result.outcome) for result in results]
    assert outcomes[-2:] == ["proposed", "no_task"]
    assert set(outcomes[:-2]) == {"paused"}
    assert len(outcomes) <= 10, "it does not spin"
    assert len(github.requests) < 200
    lengths = [later - earlier for earlier, later in itertools.pairwise(pauses)]
    assert all(length > timedelta(minutes=1) for length in lengths)
    assert len(repo.pulls) == 1


class Jumping(SystemClock):
    """A clock that somebody sets; whoever sleeps then wakes up once."""

    def __init__(self) -> None:
        self.offset = 0.0
        self.beats = 0
        self._jumped = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.offset)

    async def sleep(self, seconds: float) -> None:
        del seconds
        await self._jumped.wait()
        self._jumped.clear()
        self.beats += 1

    def jump(self, seconds: float) -> None:
        """Called by another thread."""
        self.offset += seconds
        self._loop.call_soon_threadsafe(self._jumped.set)


@slow
@pytest.mark.parametrize("seconds", [DAY_SECONDS, -DAY_SECONDS])
async def test_a_clock_that_jumps_between_two_beats_does_no_harm(
    stage: Stage, bare: Path, tmp_path: Path, seconds: float
) -> None:
    (bare.parent / "work" / "TODO.md").write_text("- [ ] Fix add\n- [ ] Another\n")
    git(bare.parent / "work", "add", ".")
    git(bare.parent / "work", "commit", "--quiet", "-m", "Plan")
    git(bare.parent / "work", "push", "--quiet", str(bare), "main")
    clock = Jumping()
    program = built(stage, tmp_path, RunRequest(str(bare)), clock)

    def jumped(_request: RecordedRequest) -> Step:
        before = claims(bare)[0]["renewed_at"]
        clock.jump(seconds)
        while claims(bare)[0]["renewed_at"] == before:
            pass
        return ENDED

    stage.script(BEGUN, jumped, do(("write_file", {"path": "b.txt", "content": "b\n"}), PROPOSE, FINISH))
    results = [await program.cycle(), await program.cycle()]
    await program.close()
    assert [str(result.outcome) for result in results] == ["proposed", "proposed"]
    assert clock.beats == 1
    assert len(branches(bare)) == 2
    assert [one["outcome"] for one in claims(bare)] == ["proposed", "proposed"]
    assert [one["number"] for one in claims(bare)] == [1, 1], "nobody took anything over"


@pytest.mark.parametrize("seconds", [DAY_SECONDS, -DAY_SECONDS])
async def test_a_clock_that_jumps_between_two_cycles_does_no_harm(
    stage: Stage, bare: Path, tmp_path: Path, seconds: float
) -> None:
    clock = Jumping()
    program = built(stage, tmp_path, RunRequest(str(bare), text=TASK[1]), clock)
    stage.script(FIX_IT)
    first = await program.cycle()
    clock.jump(seconds)
    second = await program.cycle()
    await program.close()
    assert [str(first.outcome), str(second.outcome)] == ["proposed", "no_task"]
    assert len(branches(bare)) == len(stage.model.requests) == 1

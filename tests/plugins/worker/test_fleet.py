"""`pullwright worker` with a fleet's file, as a person starts it."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from orchestrator.bot.suggestions import install_command
from orchestrator.core.clock import SystemClock
from orchestrator.plugins.fleet.command import database_file
from orchestrator.plugins.fleet.store import FleetStore
from tests.doubles import forked
from tests.doubles.model_server import fail, gated
from tests.scenarios.stage import FINISH, Stage, add_commit, branches, do, git, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.doubles.forked import Forked
    from tests.doubles.model_server import RecordedRequest, Step

slow = pytest.mark.slow(reason="a fleet of processes")

BACKLOG = "- [ ] First\n"
WRITE = ("write_file", {"path": "a.txt", "content": "a\n"})
FIRST = do(WRITE, ("create_pull_request", {"title": "Write a", "body": ""}), FINISH)


@pytest.fixture
def fleet(stage: Stage, tmp_path: Path) -> Path:
    """A file with a repository that has a task, one that is broken, and one that has nothing to do."""
    good = make_repository(tmp_path / "good")
    add_commit(good, {"BACKLOG.md": BACKLOG}, "Plan")
    make_repository(tmp_path / "quiet")
    file = tmp_path / "fleet.toml"
    file.write_text(
        '[fleet]\nhealth = "127.0.0.1:0"\n'
        f'[defaults]\nmodel = "openai-chat:scripted-1"\napi_url = "{stage.model.url}"\n'
        '[[repository]]\nname = "./broken"\n[[repository]]\nname = "./good"\n[[repository]]\nname = "./quiet"\n'
    )
    return file


@contextmanager
def started(file: Path, *options: str) -> Iterator[tuple[Forked, IO[str], IO[str]]]:
    """A worker in a process of its own, and what it prints."""
    with forked.piped("worker", "--config", str(file), *options) as running:
        yield running


def health(said: str) -> dict[str, Any]:
    """What is served at the address that a worker has named."""
    address = re.findall(r"http://127\.0\.0\.1:\d+", said)[0]
    with urllib.request.urlopen(f"{address}/healthz") as answer:  # noqa: S310  loopback
        return dict(json.load(answer))


def test_one_pass_over_all_repositories(
    stage: Stage, fleet: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.script(FIRST)
    queue = FleetStore(database_file(fleet, os.environ), SystemClock())
    queue.open()
    queue.client._sys_db.create_application_version("99.0")  # to go back to an older version is no harm
    monkeypatch.setenv("PULLWRIGHT_DATABASE_URL", "postgresql://fleet@db.example/fleet")
    done = stage.command("worker", "--config", str(fleet), "--once")
    broken, quiet, good = done.out.splitlines()  # looks come first
    assert " UTC  ./broken  failed: " in broken
    assert "no such folder" in broken
    assert "no further cycle" in broken
    assert "/good  proposed: First; pull request #1; cost unknown" in good
    assert "/quiet  nothing to do: " in quiet
    assert all(re.match(r"20\d\d-\d\d-\d\d \d\d:\d\d UTC  ", line) for line in (broken, good, quiet))
    assert branches(fleet.parent / "good")
    own, served = done.err.splitlines()
    assert "PULLWRIGHT_DATABASE_URL has no effect here" in own
    assert re.search(r"health at http://127\.0\.0\.1:\d+/healthz", served)
    assert done.code == 1
    monkeypatch.delenv("PULLWRIGHT_DATABASE_URL")
    status = stage.command("fleet", "status", "--config", str(fleet), "--json").result  # the same file
    assert [one["cycles_today"] for one in status["repositories"]] == [0, 1, 0]
    assert status["workers"] == []
    queue.close()
    assert [path.suffix for path in sorted((own_state / "fleets").iterdir())] == [".db", ".lock"]


def test_lines_for_programs_of_a_dry_run_beside_a_worker(stage: Stage, fleet: Path) -> None:
    stage.script(FIRST)
    other = FleetStore(database_file(fleet, os.environ), SystemClock(), patient=True)
    other.open()
    refused = stage.command("worker", "--config", str(fleet), "--once")
    assert (refused.code, refused.out) == (1, "")
    assert re.fullmatch(
        r".*another worker uses this queue: process \d+ keeps .*: wait for it, or end it\n", refused.err
    )
    done = stage.command("worker", "--config", str(fleet), "--once", "--json", "--dry-run")
    outcomes = [(line["repository"].rpartition("/")[2], line["outcome"]) for line in done.results]
    assert outcomes == [("broken", "failed"), ("quiet", "no_task"), ("good", "planned")]
    assert done.results[0]["disabled"]
    assert not other.repositories()
    other.close()
    assert branches(fleet.parent / "good") == []


@slow
def test_it_goes_on_and_tells_how_it_is_until_somebody_ends_it(stage: Stage, fleet: Path) -> None:
    stage.script(FIRST)
    with started(fleet) as (process, out, err):
        said = err.readline()
        lines = [out.readline() for _ in range(4)]  # the good one has a second cycle
        state = health(said)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert err.read() == ""  # nothing runs, so there is no round to wait for
    assert sorted(line.split("  ")[2].partition(":")[0] for line in lines) == [
        "failed",
        "nothing to do",
        "nothing to do",
        "proposed",
    ]
    assert sum("; next 20" in line for line in lines) == 3
    assert state["status"] == "ok"
    assert [one["state"] for one in state["repositories"]] == ["disabled", "idle", "idle"]
    assert "First" not in json.dumps(state)


@slow
@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT, signal.SIGINT]])
def test_sigterm_or_a_second_ctrl_c_ends_it_at_once_with_the_work_on_the_remote(
    stage: Stage, fleet: Path, signals: list[signal.Signals]
) -> None:
    asked, gate = threading.Event(), threading.Event()

    def hangs(_request: RecordedRequest) -> Step:
        asked.set()
        return gated(do(FINISH).text, gate)

    stage.script(do(WRITE), hangs)
    with started(fleet, "--json") as (process, out, err):
        assert asked.wait(60)
        assert "health at" in err.readline()
        for one in signals[:-1]:  # two that come at once are one
            process.send_signal(one)
            assert "press Ctrl+C again to end at once" in err.readline()
        process.send_signal(signals[-1])
        results = [json.loads(line) for line in out]
        assert process.wait(60) == 130
    gate.set()
    (ended,) = [one for one in results if one["repository"].endswith("good")]
    assert ended["outcome"] == "interrupted"
    assert ended["saved"].startswith("refs/pullwright/wip/")
    assert ended["next_at"] is None
    good = fleet.parent / "good"
    assert git(good, "for-each-ref", "--format=%(refname)", "refs/pullwright/wip/") == ended["saved"]
    assert branches(good) == []


@slow
def test_a_rate_limit_that_one_met_is_known_to_the_others_also_after_a_restart(
    stage: Stage, tmp_path: Path
) -> None:
    file = tmp_path / "fleet.toml"
    names = ("busy", "quiet", "other")
    for name in names:
        make_repository(tmp_path / name)
    spelled = {
        "quiet": "openai:scripted-1",
        "busy": "openai-chat:scripted-1",
        "other": "openai-chat:another-1",
    }
    file.write_text(
        f'[fleet]\nhealth = "127.0.0.1:0"\n[defaults]\napi_url = "{stage.model.url}"\n'
        + "".join(f'[[repository]]\nname = "./{name}"\nmodel = "{spelled[name]}"\n' for name in names)
    )
    assert stage.command("worker", "--config", str(file), "--once").code == 3  # each has a run, none a task
    add_commit(tmp_path / "busy", {"BACKLOG.md": BACKLOG}, "Plan")
    stage.script(fail(429, {"Retry-After": "7200"}))
    assert paused_of(file, lines=3) == {"quiet": True, "busy": True, "other": False}
    assert len(stage.model.requests) == 1
    add_commit(tmp_path / "quiet", {"BACKLOG.md": BACKLOG}, "Plan")
    assert paused_of(file, lines=1) == {"quiet": True, "busy": True, "other": False}
    assert len(stage.model.requests) == 1


@slow
def test_a_fleet_with_nothing_to_do_says_until_when(stage: Stage, fleet: Path) -> None:
    with started(fleet, "--cron", "0 0 29 2 *") as (process, out, err):
        said = [err.readline() for _ in range(2)][1]
        process.send_signal(signal.SIGTERM)
        rest = out.read(), err.read()
        assert process.wait() == 130
    assert re.fullmatch(r"pullwright: nothing to do before 20\d\d-02-29 00:00 UTC, then \./broken\n", said)
    assert rest == ("", "")
    assert not stage.model.requests


def paused_of(file: Path, lines: int) -> dict[str, bool]:
    """Who pauses after so many cycles of a worker, which is then ended."""
    with started(file) as (process, out, err):
        said = err.readline()
        for _ in range(lines):
            out.readline()
        state = health(said)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    listed = state["repositories"]
    return {one["name"].rpartition("/")[2]: one["state"] == "paused" for one in listed}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[repository]]\nname = 'a/b'\ncron = '0 25 * * *'\n", "bad hour '25'"),
        (
            "[fleet]\ntimezone = 'Mars/Phobos'\n[[repository]]\nname = 'a/b'\ncron = '0 2 * * *'\n",
            "no time zone",
        ),
        ("[[repository]]\nname = 'a/b'\ntoken_env = 'NO_SUCH_TOKEN'\n", "which is not set"),
        ("[[repository]]\nname = 'a/b'\nmax_round = 1\n", "max_rounds"),
        ("", "names no repository"),
        ("[[repository]]\nname = 'a/b'\n[[repository]]\nname = 'a/b'\n", "names the repository a/b twice"),
        (
            "[[repository]]\nname = 'git@github.com:A/b.git'\n[[repository]]\nname = 'a/b'\n",
            "names the repository a/b twice, once as git@github.com:A/b.git",
        ),
        (
            "defaults.github_url = 'https://g.example'\n[[repository]]\nname = 'a/b'\n[[repository]]\nname = 'https://g.example/a/b/'\n",
            "names the repository https://g.example/a/b/ twice, once as a/b",
        ),
    ],
)
def test_a_file_that_is_wrong_ends_it_before_anything_is_done(
    stage: Stage, tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(text)
    done = stage.command("worker", "--config", str(file), "--once")
    (line,) = done.err.splitlines()
    assert said in line
    assert "fleet.toml" in line
    assert done.code == 2
    assert done.out == ""


@pytest.mark.parametrize("broken", ["extra", "file", "folder"])
def test_what_the_queue_lacks_is_said_in_one_line(
    stage: Stage, fleet: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    if broken == "extra":
        monkeypatch.delitem(sys.modules, "orchestrator.plugins.fleet.store", raising=False)
        monkeypatch.setitem(sys.modules, "sqlalchemy", None)
        said = f"the queue needs the package sqlalchemy: {install_command('fleet')}"
    elif broken == "file":
        database = Path(database_file(fleet, os.environ).removeprefix("sqlite:///"))
        database.write_bytes(b"no database" * 1000)
        said = f"{database}: file is not a database; remove it; the next worker builds a new queue from the repositories"
    else:
        (own_state / "fleets").write_text("in the way")
        said = "cannot be made: File exists; name another state folder with PULLWRIGHT_HOME"
    done = stage.command("worker", "--config", str(fleet), "--once")
    assert (done.code, done.out) == (1 if broken == "file" else 2, "")
    assert said in done.err
    assert len(done.err.splitlines()) == 1


def test_without_a_file_it_says_which_flag_is_missing(stage: Stage) -> None:
    done = stage.command("worker", "--once")
    assert done.code == 2
    assert "--config" in done.err

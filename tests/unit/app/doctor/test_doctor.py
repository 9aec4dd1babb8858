from __future__ import annotations

import os
import shutil
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.app.doctor import diagnose
from orchestrator.app.doctor.findings import (
    Group,
    Impatient,
    Probe,
    ProbeFinding,
    ProbeState,
    Unmet,
    ok,
    run_probes,
)
from orchestrator.app.doctor.machine import writable
from orchestrator.bot.coordination.claim_record import LeaseTimes
from orchestrator.bot.coordination.claims import Claims, Lease
from orchestrator.bot.coordination.records import Records
from orchestrator.bot.journal.folders import JOURNAL_FILE, Home, create_run_folder
from orchestrator.bot.journal.reader import lock_run
from orchestrator.bot.journal.records import JournalWriter
from orchestrator.core.clock import ManualClock
from orchestrator.core.cycle_events import CycleEnded, CycleStarted, Paused
from orchestrator.core.errors import ForgeUnavailableError, RemoteUnavailableError
from orchestrator.engine.policy.secrets import Redactor
from tests.doubles.model_server import NO_OTHERS
from tests.scenarios.stage import git, make_repository

if TYPE_CHECKING:
    from collections.abc import Mapping

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def probe(
    folder: Path,
    repository: str | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    writes: bool = False,
    runs: bool = False,
    **flags: Any,
) -> dict[str, ProbeFinding]:
    environ = {
        "PULLWRIGHT_HOME": str(folder / "home"),
        "PULLWRIGHT_CONFIG": "/dev/null",
        **NO_OTHERS,
        **(environ or {}),
    }
    found = diagnose(repository, flags, environ, folder, writes=writes, runs=runs, clock=ManualClock(NOW))
    return {
        result.probe: result.finding for result in found if not result.group.startswith(("Model", "Fallback"))
    }


def test_a_local_repository_is_ready(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "calc")
    found: dict[str, ProbeFinding] = {}
    for writes in (False, True):
        found = probe(tmp_path, str(repository), writes=writes)
        bad = {name: one for name, one in found.items() if one.state is not ProbeState.OK}
        assert {name: one.state for name, one in bad.items()} == dict.fromkeys(
            ("sandbox", "rules", "command", "set-up", "report", "place"), ProbeState.SKIPPED
        )
    assert found["folder"].found == f"{repository}: a work tree, default branch main"
    assert git(repository, "for-each-ref", "refs/pullwright") == ""


@pytest.mark.parametrize(
    ("prepare", "probe_name", "words"),
    [
        (lambda path: path.mkdir(), "address", "--repo"),
        (lambda path: git(path.parent, "init", "--quiet", str(path)), "folder", "commit something"),
        (
            lambda path: git(make_repository(path), "checkout", "--quiet", "--detach"),
            "folder",
            "--base BRANCH",
        ),
        (lambda _path: None, "address", "--repo"),
    ],
)
def test_a_folder_that_is_no_good(tmp_path: Path, prepare: Any, probe_name: str, words: str) -> None:
    prepare(tmp_path / "calc")
    found = probe(tmp_path, str(tmp_path / "calc"))
    assert found[probe_name].state is ProbeState.FAILED
    assert words in found[probe_name].fix
    assert found["dead runs"].state is ProbeState.OK  # the rest goes on


def test_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = make_repository(tmp_path / "calc")
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    found = probe(tmp_path, str(repository))
    assert found["git"].state is ProbeState.FAILED
    assert "git-scm.com" in found["git"].fix
    assert found["address"].state is ProbeState.FAILED


def test_a_git_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho git version 2.30.2\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    found = probe(tmp_path)["git"]
    assert found.state is ProbeState.FAILED
    assert found.found.startswith("2.30.2 is too old")


def test_no_sandbox(tmp_path: Path) -> None:
    found = probe(tmp_path, permission="dangerous", sandbox="off")["sandbox"]
    assert found.state is ProbeState.WARNING
    assert "--sandbox off" in found.fix
    found = probe(tmp_path, permission="dangerous", sandbox_read=["/no/such/folder"])["sandbox"]
    assert found.state is ProbeState.FAILED


def test_a_container_that_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin/docker"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\ncase $1 in info) echo "[]";; *) exit 1;; esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    found = probe(tmp_path, permission="dangerous", sandbox="docker:python:3")["sandbox"]
    assert found.state is ProbeState.FAILED
    assert found.fix.startswith("docker has no image python:3; get it with docker pull python:3")


def test_a_rule_that_may_grant_any_program(tmp_path: Path) -> None:
    found = probe(tmp_path, allow_command=["ls *", "mypy *", "nice *"])["rules"]
    assert found.state is ProbeState.WARNING
    assert found.found.startswith("the * of `mypy *`, `nice *` may grant any other program")
    assert "whole commands" in found.fix
    off = probe(tmp_path, allow_command=["mypy *"], sandbox="off")["rules"]
    assert "nothing holds" in off.found
    assert probe(tmp_path, allow_command=["ls *", "mypy src"])["rules"].state is ProbeState.OK
    for level in ("read-only", "dangerous"):
        assert (
            probe(tmp_path, allow_command=["mypy *"], permission=level)["rules"].state is ProbeState.SKIPPED
        )
    assert probe(tmp_path, allow_command=["*"])["rules"].state is ProbeState.FAILED


def test_folders_that_cannot_be_written_to(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    found = writable(blocked / "home")
    assert (found.state, "PULLWRIGHT_HOME" in found.fix) == (ProbeState.FAILED, True)
    found = writable(Path("/proc/pullwright"))
    assert (found.state, "PULLWRIGHT_HOME" in found.fix) == (ProbeState.FAILED, True)
    assert writable(tmp_path / "made" / "later").state in {ProbeState.OK, ProbeState.WARNING}
    assert not (tmp_path / "made").exists()


def test_a_bad_configuration_sends_no_token_anywhere(tmp_path: Path) -> None:
    (tmp_path / "pullwright.toml").write_text('modle = "x"\n', "utf-8")
    found = probe(tmp_path, "octo/calc", {"GITHUB_TOKEN": "ghp_" + "x" * 40})
    assert found["options"].state is ProbeState.FAILED
    assert "'modle'" in found["options"].found
    assert found["the rest"].state is ProbeState.SKIPPED
    assert "token" not in found
    found = probe(tmp_path / "elsewhere", None, {"OPENAI_API_KEY": "two words"})
    assert "OPENAI_API_KEY" in found["options"].found


def test_what_earlier_runs_left(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    folder = create_run_folder(home, "20261121-110000-aaaaaa")
    clock = ManualClock(NOW)
    with lock_run(folder), JournalWriter(folder, Redactor(), clock) as journal:
        journal(CycleStarted("20261121-110000-aaaaaa", "octo/calc", "m", "json-plan"))
        assert probe(tmp_path)["dead runs"].state is ProbeState.OK  # it is alive
    found = probe(tmp_path)
    assert found["dead runs"].state is ProbeState.WARNING
    assert "pullwright run --repo octo/calc" in found["dead runs"].fix
    path = folder / JOURNAL_FILE
    path.write_bytes(path.read_bytes() + b"{garbage\n" + b"\n")
    found = probe(tmp_path)
    assert found["dead runs"].found == (
        "1 run was killed: 20261121-110000-aaaaaa; the journal of 20261121-110000-aaaaaa is damaged "
        "(line 3: not a JSON object)"
    )
    assert found["dead runs"].fix.endswith("saves their work, as far as it can be read")
    newer = create_run_folder(home, "20261121-111500-cccccc")
    with lock_run(newer):
        (newer / JOURNAL_FILE).write_text('{"seq":0,"at":"x","type":"Journal","format":2}\n')
    assert "1 cannot be read: " in probe(tmp_path)["dead runs"].found
    shutil.rmtree(newer)
    folder = create_run_folder(home, "20261121-113000-bbbbbb")
    with lock_run(folder), JournalWriter(folder, Redactor(), clock) as journal:
        journal(CycleStarted("20261121-113000-bbbbbb", "octo/calc", "m", "json-plan"))
        journal(Paused((NOW + timedelta(hours=2)).isoformat(), "the quota is spent"))
        journal(CycleEnded({}))
    found = probe(tmp_path)
    assert found["pause"].state is ProbeState.WARNING
    assert found["pause"].found == "until 2026-11-21 14:00 UTC: the quota is spent"


def test_what_workers_left_on_the_remote(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "calc")
    clock, times = ManualClock(NOW - timedelta(days=2)), LeaseTimes()
    environ = {"GITHUB_ACTIONS": "true", "GITHUB_RUN_ID": "7"}
    with Records(tmp_path, str(repository), lambda: None, clock=clock) as records:
        claims = Claims(records, "actions-7", clock, times, lambda: "nonce")
        assert isinstance(claims.take("issue-1", "run-1"), Lease)
        records.swap("refs/pullwright/wip/issue-2", None, records.commit("work", None))
        found = probe(tmp_path, str(repository), environ)
        assert (found["claims"].state, found["claims"].found) == (
            ProbeState.WARNING,
            "of this machine, expired: issue-1",
        )
        assert found["unfinished work"].found.startswith("issue-2;")
        assert probe(tmp_path, str(repository))["claims"].found == "none held"  # another machine's, expired
        assert found["tasks"].found == "open: issue-2; unfinished: issue-1"
        records.swap("refs/pullwright/claims/issue-3", None, records.commit("no record", None))
    found = probe(tmp_path, str(repository))
    assert found["claims"].state is ProbeState.WARNING
    assert found["claims"].fix == f"pullwright claims release issue-3 --repo {repository}"


def results(*probes: Probe, stop: Impatient | None = None) -> list[ProbeFinding]:
    group = Group("title", probes, stop or Impatient())
    return [result.finding for result in run_probes(group)]


def test_an_error_of_one_probe_does_not_stop_the_next() -> None:
    def broken() -> ProbeFinding:
        raise RemoteUnavailableError("gone, secret")

    def closed() -> ProbeFinding:
        raise PermissionError(13, "Permission denied")

    def unmet() -> ProbeFinding:
        raise Unmet("see the one before")

    looks = (broken, closed, unmet, lambda: ok("fine"))
    found = results(*(Probe("name", look, "mend secret") for look in looks))
    assert [one.state for one in found] == [
        ProbeState.FAILED,
        ProbeState.FAILED,
        ProbeState.SKIPPED,
        ProbeState.OK,
    ]
    assert (found[0].found, found[0].fix) == ("gone, secret", "mend secret")
    assert found[1].found == "Permission denied"


def test_a_probe_that_hangs_ends_and_the_others_of_its_group_are_not_tried() -> None:
    gate, stop = threading.Event(), Impatient()

    def hangs() -> ProbeFinding:
        gate.wait()
        return ok("late")

    found = results(Probe("slow", hangs, "wake it", 0.01), Probe("next", lambda: ok("fine"), "no"), stop=stop)
    gate.set()
    assert (found[0].state, found[0].fix) == (ProbeState.FAILED, "wake it")
    assert (found[1].state, "slow" in found[1].found) == (ProbeState.SKIPPED, True)
    assert stop.now()


def test_a_long_wait_is_told_as_what_it_waits_for() -> None:
    def refuse() -> None:
        raise ForgeUnavailableError("rate limit until noon")

    def limited() -> ProbeFinding:
        try:
            refuse()
        except ForgeUnavailableError:
            Impatient().sleep(60)
        return ok("fine")

    (found,) = results(Probe("limit", limited, "wait"))
    assert (found.state, found.found) == (ProbeState.FAILED, "rate limit until noon")

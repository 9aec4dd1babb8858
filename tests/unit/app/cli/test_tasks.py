"""`claims`: on a real repository, and what its lines say."""

from __future__ import annotations

import argparse
import io
import json
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from orchestrator.app.cli import arguments
from orchestrator.app.cli.tasks import claims, write_claims, write_claims_json
from orchestrator.bot.coordination.claim_record import ClaimRecord, LeaseTimes
from orchestrator.bot.cycle.task_state import KnownTask, TaskState, task_state
from orchestrator.bot.suggestions import Commands
from orchestrator.core.errors import ConfigurationError, WorkspaceError
from orchestrator.core.messages import Spent
from tests.unit.bot.coordination.records_rig import REF, TASK, Worker, put
from tests.unit.bot.git.rig import git, make_source

if TYPE_CHECKING:
    from pathlib import Path


NOW = datetime(2026, 11, 21, 3, 30, tzinfo=UTC)
HELD = ClaimRecord(
    TASK,
    "held",
    "host",
    "20261121-031112-ab12cd",
    3,
    NOW - timedelta(hours=1),
    NOW,
    NOW + timedelta(minutes=12),
)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PULLWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return make_source(tmp_path / "source", {"a.txt": "1"})


def typed(repo: Path | None, action: str | None = None, key: str | None = None, *, json: bool = False) -> int:
    return claims(
        argparse.Namespace(command="claims", repo=repo and str(repo), action=action, key=key, json=json)
    )


def states(*records: ClaimRecord) -> list[TaskState]:
    return [task_state(KnownTask(record.task, NOW, claim=record)) for record in records]


def table(*records: ClaimRecord) -> list[str]:
    with redirect_stdout(io.StringIO()) as out:
        write_claims(states(*records), NOW, LeaseTimes(), Commands("o/r"))
    return out.getvalue().splitlines()


def test_from_nothing_to_released(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed(source, "list") == arguments.DONE
    assert capsys.readouterr().out == "no claims\n"
    assert typed(source, "show", TASK) == arguments.DONE
    assert capsys.readouterr().out == "nobody ever claimed issue-12\n"
    assert typed(source, "release", TASK) == arguments.NOTHING
    assert capsys.readouterr().out == "nobody holds issue-12\n"

    lease = Worker(source, tmp_path).take()
    assert typed(source) == arguments.DONE
    assert "issue-12  host-a/run-a" in capsys.readouterr().out
    assert typed(source, "show", TASK, json=True) == arguments.DONE
    assert json.loads(capsys.readouterr().out)["number"] == lease.record.number

    assert typed(source, "release", TASK) == arguments.DONE
    assert capsys.readouterr().out == ("released issue-12, held by host-a/run-a; its next push is refused\n")
    assert git(source, "log", "-1", "--format=%s", REF).startswith("pullwright: issue-12 released (by hand)")
    assert typed(source, "release", TASK, json=True) == arguments.NOTHING
    assert json.loads(capsys.readouterr().out) == {"kind": "release", "task": TASK, "released": False}
    assert list((tmp_path / "source").parent.glob("pullwright-*")) == []


def test_a_record_that_is_garbage_is_shown_and_released(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(source, REF, "\x1b[2J\n\n{\x1b[2J")
    assert typed(source, "list") == arguments.DONE
    shown = capsys.readouterr().out
    assert "unreadable record" in shown
    assert "claims release issue-12" in shown
    assert "\x1b" not in shown
    assert typed(source, "list", json=True) == arguments.DONE
    assert json.loads(capsys.readouterr().out)["state"] == "unreadable"
    assert typed(source, "release", TASK) == arguments.DONE
    assert "held by unreadable record" in capsys.readouterr().out


def test_what_was_typed_wrong(source: Path) -> None:
    with pytest.raises(ConfigurationError, match="no repository is named"):
        typed(None, "list")
    for action in ("show", "release"):
        with pytest.raises(WorkspaceError, match="is not the key of a task"):
            typed(source, action, "../heads/main")


def test_the_table() -> None:
    late = replace(HELD, task="issue-2", renewed_at=NOW - timedelta(hours=1))
    lines = table(
        HELD,
        replace(late, expires_at=NOW - timedelta(minutes=4)),
        replace(late, expires_at=NOW - timedelta(minutes=11)),
        replace(late, task="text-1a2b", state="released", outcome="no_task 1a2b", pull=7, number=12),
        replace(HELD, expires_at=NOW + timedelta(hours=3)),
    )
    assert lines == [
        "TASK       WHO                          NO.  SINCE                 STATE",
        "issue-12   host/20261121-031112-ab12cd  3    2026-11-21 02:30 UTC  being worked on, expires in 12 min",
        "issue-2    host/20261121-031112-ab12cd  3    2026-11-21 02:30 UTC  being worked on, expired 4 min ago, free soon",
        "issue-2    host/20261121-031112-ab12cd  3    2026-11-21 02:30 UTC  unfinished, its worker died, the next cycle tries again",
        "text-1a2b  host/20261121-031112-ab12cd  12   2026-11-21 02:30 UTC  nothing to do",
        "issue-12   host/20261121-031112-ab12cd  3    2026-11-21 02:30 UTC  being worked on, expires in 3 h",
        "text-1a2b: pullwright retry text-1a2b --repo o/r",
    ]


def test_other_peoples_words_do_not_move_the_terminal() -> None:
    lines = table(
        replace(HELD, state="released", owner="\u202ehost\x9b2J", run="a\nb", outcome="x\x1b]0;t\x07y\nz")
    )
    assert len(lines) == 2
    assert "host/a b" in lines[1]
    assert lines[1].endswith("open")


def test_json_tells_everything() -> None:
    with redirect_stdout(io.StringIO()) as out:
        write_claims_json(states(replace(HELD, spent=Spent(None, 10, 1.5, 2))), NOW, LeaseTimes())
    assert json.loads(out.getvalue()) == {
        "kind": "claim",
        "task": "issue-12",
        "owner": "host",
        "state": "held",
        "run": "20261121-031112-ab12cd",
        "number": 3,
        "taken_at": "2026-11-21T02:30:00+00:00",
        "renewed_at": "2026-11-21T03:30:00+00:00",
        "expires_at": "2026-11-21T03:42:00+00:00",
        "outcome": "",
        "why": None,
        "deaths": 0,
        "pull": None,
        "spent": {"usd": None, "tokens": 10, "minutes": 1.5, "rounds": 2},
        "free": False,
        "task_state": "being worked on",
        "may_be_taken": False,
        "why_not": "issue-12 is being worked on by host, run 20261121-031112-ab12cd, until 03:42 UTC; "
        "if it is not: pullwright claims release issue-12 --repo REPO",
        "until": None,
    }

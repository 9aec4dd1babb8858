"""Workers are killed, and the database stops, while a fleet works: the small form of `tests/benchmarks/fleet.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.fleet import measure, options_of

if TYPE_CHECKING:
    from tests.doubles.postgres import PostgresServer

SMALL = "--repositories 2 --tasks 4 --workers 2 --lease 6 --kills 4 --kill-seconds 3 --database-share 0.5 --seed 3"


@pytest.mark.slow(reason="kills workers and a database until four tasks are done")
@pytest.mark.usefixtures("stage")
def test_each_task_becomes_one_pull_request_whatever_is_killed(
    postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    del postgres  # skips where there is none; this one has to be stopped, so it is another
    assert measure(options_of(SMALL.split())), capsys.readouterr().out
    assert "tasks with two pull requests" in capsys.readouterr().out

"""A run that is stuck ends all the same, says why, and is taken up by the next one."""

from __future__ import annotations

import json
import os
import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.watchdog_process import NOTE_FILE
from tests.doubles.forked import Forked
from tests.scenarios.stage import FINISH, FIX, FIXED, PROPOSE, Stage, branches, do, git

if TYPE_CHECKING:
    from collections.abc import Iterator

TASK = ("--task", "Fix add() in calc.py")
GRACE = 0.5

STUCK = """
import itertools, os, sys, threading, time
from pathlib import Path
from orchestrator.app.cli import main
from orchestrator.core import watchdog

def hold_the_interpreter():
    # From here on no other thread runs, and no handler of a signal: as in a pattern of `re` that never ends.
    runs = Path(os.environ["PULLWRIGHT_HOME"], "runs")
    while not any(b'"{after}"' in path.read_bytes() for path in runs.glob("*/journal.jsonl")):
        time.sleep(0.01)
    print("stuck", flush=True)
    sum(itertools.repeat(0, 10**18))

watchdog.start_watchdog({grace}, overtime_seconds=0.0)
threading.Thread(target=hold_the_interpreter, daemon=True).start()
sys.exit(main(sys.argv[1:]))
"""


class Running:
    """The program in a process of its own, which gets stuck after the first event of a kind."""

    def __init__(self, *argv: str, after: str = "ToolCallEnded") -> None:
        self._read, write = os.pipe()
        with Path(os.devnull).open("r+b") as nothing:
            streams = nothing.fileno(), write, nothing.fileno()
            self.process = Forked(argv, streams, code=STUCK.format(grace=GRACE, after=after))
        os.close(write)
        self.output = os.fdopen(self._read, encoding="utf-8")

    def close(self) -> None:
        """End it, if it has not ended."""
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        self.output.close()


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        ((signal.SIGTERM,), "SIGTERM"),
        ((signal.SIGHUP,), "SIGHUP"),
        ((signal.SIGINT, signal.SIGINT), "a second Ctrl+C"),
    ],
    ids=["SIGTERM", "SIGHUP", "Ctrl+C twice"],
)
def test_a_stuck_run_ends_says_why_and_is_taken_up(
    stage: Stage, repository: Path, opened: ExitStack, numbers: tuple[int, ...], why: str
) -> None:
    stage.script(do(FIX))
    model = ("--model", "openai-chat:scripted-1", "--api-url", stage.model.url)
    running = Running("run", "--repo", str(repository), *TASK, *model)
    opened.callback(running.close)
    assert running.output.readline() == "stuck\n"
    running.process.send_signal(numbers[0])
    if len(numbers) > 1:
        status = Path(f"/proc/{running.process.pid}/status")
        while int(status.read_text().partition("ShdPnd:")[2].split()[0], 16):
            os.sched_yield()  # an equal signal that comes before this one is received would be lost
        running.process.send_signal(numbers[1])
    assert running.process.wait(60) == -signal.SIGKILL
    running.output.read()

    [dead] = (stage.home / "runs").iterdir()
    reason = f"the process was killed: it did not end within {GRACE} s of {why}"
    assert (dead / NOTE_FILE).read_text() == reason
    for words in (("show", dead.name), ("show", "--list"), ("logs", dead.name, "--follow")):
        shown = " ".join(stage.command(*words).out.split())
        assert reason in shown, shown

    stage.script(do(PROPOSE, FINISH))
    done = stage.run("--repo", str(repository), *TASK)
    assert done.result["outcome"] == "proposed", done.err
    assert git(repository, "show", f"{branches(repository)[0]}:calc.py") + "\n" == FIXED
    assert "edit_file" in json.dumps(stage.asked(-1))  # the next run goes on with the conversation
    [end] = [event["result"] for event in stage.events(dead.name) if event["type"] == "CycleEnded"]
    assert (end["outcome"], end["error"]) == ("interrupted", reason)
    assert end["saved"]


def test_a_stuck_cycle_ends_after_its_minutes(stage: Stage, repository: Path, opened: ExitStack) -> None:
    model = ("--model", "openai-chat:scripted-1", "--api-url", stage.model.url)
    limit = ("--max-minutes", "0.001")
    running = Running("run", "--repo", str(repository), *TASK, *model, *limit, after="CycleStarted")
    opened.callback(running.close)
    assert running.process.wait(60) == -signal.SIGKILL
    running.output.read()
    [dead] = (stage.home / "runs").iterdir()
    assert "because 0.001 minutes (max_minutes) were over" in (dead / NOTE_FILE).read_text()

"""`--every` and `--cron` as a person types them."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from tests.doubles import forked
from tests.scenarios.stage import FINISH, Stage, add_commit, do, program

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--every", "30m", "--cron", "0 3 * * *"], "exclude each other"),
        (["--cron", "0 25 * * *"], "bad hour '25'"),
        (["--cron", "0 0 31 2 *"], "never comes"),
        (["--cron", "0 3 * * *", "--timezone", "Mars/Phobos"], "there is no time zone 'Mars/Phobos'"),
        (["--every", "soon"], "must be a number with s, m, h or d"),
        (["--cron", "whenever"], "must be five fields"),
    ],
)
def test_a_schedule_that_makes_no_sense_ends_it_before_anything_is_done(
    stage: Stage, repository: Path, flags: list[str], said: str
) -> None:
    done = stage.run("--repo", str(repository), *flags, json_output=False)
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert said in line
    assert not stage.model.requests


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
def test_each_time_of_a_schedule_works_until_there_is_nothing_to_do(stage: Stage, repository: Path) -> None:
    add_commit(repository, {"BACKLOG.md": "- [ ] First\n"}, "Plan")
    write = ("write_file", {"path": "a.txt", "content": "a\n"})
    stage.script(do(write, ("create_pull_request", {"title": "First", "body": ""}), FINISH))
    model = ["--model", "openai-chat:scripted-1", "--api-url", stage.model.url]
    every = ["--every", "1s", "--max-cycles", "3"]
    done = program("run", "--repo", str(repository), *model, *every, "--json", PULLWRIGHT_API_KEY="made-up")
    outcomes = [json.loads(line)["outcome"] for line in done.stdout.splitlines()]
    assert outcomes == ["proposed", "no_task", "no_task"], done.stderr
    assert done.returncode == 0


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
@pytest.mark.parametrize(("number", "said"), [(signal.SIGINT, 130), (signal.SIGTERM, 130)])
def test_who_asks_for_the_end_before_the_first_time_gets_it(
    stage: Stage, repository: Path, number: int, said: int
) -> None:
    model = ["--model", "openai-chat:scripted-1", "--api-url", stage.model.url]
    argv = ["run", "--repo", str(repository), *model, "--cron", "0 0 29 2 *"]
    with forked.piped(*argv) as (process, _, err):
        line = err.readline()
        process.send_signal(number)
        assert err.read() == ""  # there is no round to wait for
        assert process.wait() == said
    assert "waiting until" in line
    assert "02-29 00:00 UTC" in line
    assert "nothing to do before the next time of the schedule (0 0 29 2 * UTC)" in line
    assert not stage.model.requests

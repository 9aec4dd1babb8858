"""What the tests of crashes share: a program that can be killed, and a model that goes on where it was."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.scenarios.stage import FIX, Call, do, git

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.model_server import ModelServer, RecordedRequest, Step

WORKFLOW = "name: test\non: push\n"
NOTES = "add() adds now.\n"

ROUNDS: tuple[tuple[Call, ...], ...] = (
    (FIX,),
    (
        ("write_file", {"path": "NEWS.md", "content": "# News\n"}),
        ("write_file", {"path": ".github/workflows/test.yml", "content": WORKFLOW}),
    ),
    (("create_pull_request", {"title": "Make add() add", "body": "It subtracted."}),),
    (
        ("write_file", {"path": "notes.txt", "content": NOTES}),
        ("create_pull_request", {"title": "Make add() add", "body": "With notes."}),
    ),
    (("finish", {"reason": "The pull request is open."}),),
)
"""A cycle of several rounds; each may be done twice, which a call may refuse."""

AGAIN: tuple[Call, ...] = (*ROUNDS[3], *ROUNDS[4])
_SAID = re.compile(r"Round ([0-9])\.")


def said(request: RecordedRequest) -> list[int]:
    """The rounds that the model has replied with, as the request's own messages tell it."""
    replies = [one for one in request.body["messages"] if one["role"] == "assistant"]
    return [int(found) for one in replies for found in _SAID.findall(str(one["content"]))]


def _missing(number: int, told: str) -> list[Call]:
    """The calls of the rounds so far that write what is not there; of the others those of the last round."""
    before = [call for calls in ROUNDS[: number - 1] for call in calls if "path" in call[1]]
    return [call for call in (*before, *ROUNDS[number - 1]) if f"`{call[1].get('path')}`" not in told]


def goes_on(request: RecordedRequest) -> Step:
    """The reply of a model that does a round again if it does not know what came of it, or all that is lost."""
    rounds, last = said(request), str(request.body["messages"][-1]["content"])
    number = max(rounds, default=0)
    if "that you worked in are lost" in last:
        return do(*_missing(number, last), text=f"Round {number}.")
    if "stopped in the middle" not in last or not number:
        number += 1
    if number > len(ROUNDS):
        return do(*AGAIN, text="Round 9.")
    return do(*ROUNDS[number - 1], text=f"Round {number}.")


@dataclass(frozen=True, slots=True)
class End:
    """How a process ended, and what it printed: the names of its records, and its result if there is one."""

    status: int
    printed: list[str]

    @property
    def killed(self) -> bool:
        """Whether it died by SIGKILL."""
        return os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signal.SIGKILL

    @property
    def result(self) -> dict[str, Any]:
        """The cycle's result."""
        return dict(json.loads(self.printed[-1]))


class Mortal:
    """The program, ready to be started and killed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.scenarios.dying_program"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, folder: Path, model: ModelServer, *, dies_after: int | str = 0, **order: Any) -> End:
        """Run one cycle with the state folder and the temporary one that are in `folder`: see `Countdown`."""
        for name in ("home", "tmp"):
            (folder / name).mkdir(exist_ok=True)
        flags = {"model": "openai-chat:scripted-1", "api_url": model.url, **order.pop("flags", {})}
        environ = {
            "PULLWRIGHT_HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            **order.pop("environ", {}),
        }
        output = folder / "output"
        whole = {"output": str(output), "flags": flags, "environ": environ, "dies_after": dies_after, **order}
        if self._process.stdin is None or self._process.stdout is None:
            raise AssertionError
        self._process.stdin.write(f"{json.dumps(whole)}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        return End(int(answer), output.read_text().splitlines())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def hidden(repository: Path, kind: str) -> list[str]:
    """The hidden refs of a kind, `claims` or `wip`."""
    return git(repository, "for-each-ref", "--format=%(refname)", f"refs/pullwright/{kind}").split()


def claims(repository: Path) -> list[dict[str, Any]]:
    """What the claims on a remote say."""
    return [
        json.loads(git(repository, "log", "-1", "--format=%B", ref).partition("\n")[2])
        for ref in hidden(repository, "claims")
    ]

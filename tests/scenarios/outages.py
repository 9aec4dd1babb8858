"""Outages that begin at any request of a cycle, and what is left for the cycles after them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.wiring.program import RunRequest, build_program
from orchestrator.app.wiring.repository import open_tasks
from orchestrator.bot.cycle.parts import Stop
from orchestrator.core.clock import SystemClock
from orchestrator.core.cycle_events import Cloned
from tests.doubles.github import bare
from tests.doubles.github.faults import Fault
from tests.doubles.stopping import no_wait
from tests.scenarios.dying import hidden
from tests.scenarios.stage import FILES, FINISH, FIX, FIXED, PROPOSE, do

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from datetime import datetime

    from orchestrator.app.wiring.repository import OpenTasks
    from orchestrator.bot.cycle.parts import CycleResult
    from orchestrator.core.events import Event
    from tests.doubles.github.server import GitHub
    from tests.doubles.github.state import Repo
    from tests.doubles.model_server import ModelServer, RecordedRequest, Step

NEWS = ("write_file", {"path": "NEWS.md", "content": "# News\n"})
ROUNDS = ((FIX, NEWS), (PROPOSE, FINISH))
"""What the model replies, one reply after another."""

KINDS: dict[str, dict[str, Any]] = {
    "503": {"status": 503, "body": "<html><body>Unicorn!</body></html>"},
    "refused": {"refused": True},
    "401": {
        "status": 401,
        "headers": {"WWW-Authenticate": 'Basic realm="GitHub"'},
        "body": {"message": "Bad credentials"},
    },
    "403": {"status": 403, "body": {"message": "Resource not accessible by personal access token"}},
}
_GIT = r"/[^/]+/[^/]+\.git/.*"
SIDES = {"both": ".*", "api": rf"(?!{_GIT}).*", "git": _GIT}
"""What is away: GitHub's interface, its git server, or both."""

OPENING = r"(GET|POST) /repos/[^/]+/[^/]+/pulls"
"""The look for the branch's pull request, and the making of it."""
_EVER = 1_000_000
LATER = timedelta(hours=3)
"""After that a claim that nobody let go of is free."""


class Later(SystemClock):
    """The clock of a machine that is started so much later."""

    def __init__(self, offset: timedelta) -> None:
        self._offset = offset

    def now(self) -> datetime:
        return super().now() + self._offset


@dataclass(slots=True)
class Outage(Fault):
    """A fault that begins with a certain request, and writes down what it strikes.

    Attributes:
        since: a regular expression for the method and path of the request with which it begins; until then
            nothing counts. Empty: it has begun.
        when: asked as well before it begins.
        asked: how often the model was asked so far.
        struck: the requests, each with what `asked` said then.
    """

    since: str = ""
    when: Callable[[], bool] = lambda: True
    asked: Callable[[], int] = lambda: 0
    struck: list[tuple[str, int]] = field(default_factory=list)

    def strikes(self, method: str, path: str) -> bool:
        """As `Fault`; what it strikes is written down."""
        if self.since and not (re.fullmatch(self.since, f"{method} {path}") and self.when()):
            return False
        self.since = ""
        # Not by `super()`, which a class with slots does not have.
        if not Fault.strikes(self, method, path):
            return False
        self.struck.append((f"{method} {path}", self.asked()))
        return True


def outage(  # noqa: PLR0913  each is a fact of the outage, given by name
    kind: str,
    side: str,
    at: int = 0,
    *,
    ever: bool = True,
    since: str = "",
    when: Callable[[], bool] = lambda: True,
) -> Outage:
    """An outage that begins at a request, counted from 0 among those of that side."""
    return Outage("*", SIDES[side], _EVER if ever else 1, skip=at, since=since, when=when, **KINDS[kind])


def replies(request: RecordedRequest) -> Step:
    """The reply of a model that goes on where its own words in the conversation end."""
    said = sum(one["role"] == "assistant" for one in request.body["messages"])
    number = min(said, len(ROUNDS) - 1)
    return do(*ROUNDS[number], text=f"Round {number}.")


class Endless(list[Any]):
    """A script that is never over."""

    def __bool__(self) -> bool:
        return True

    def pop(self, _index: Any = -1) -> Any:
        return replies


@dataclass(slots=True)
class Place:
    """`octo/calc` with one issue on the double, and machines that work on it."""

    github: GitHub
    folder: Path
    model: ModelServer
    repo: Repo = field(init=False)
    token: str = field(init=False)
    clones: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        number = len(self.github.repositories)
        self.repo = self.github.add_repository(f"octo/calc-{number}", FILES, private=True)
        self.github.add_issue(self.repo, "add() subtracts", "Please fix `add`.", ["pullwright"])
        self.token = self.github.token()
        self.model.script = Endless()

    async def cycle(
        self, machine: str, later: timedelta = timedelta(0), *, dry_run: bool = False, **settings: Any
    ) -> CycleResult:
        """One cycle of a new process on a machine, which keeps its state in a folder of its own."""
        environ = self.environ(machine)
        flags = {
            "model": "openai-chat:scripted-1",
            "api_url": self.model.url,
            "github_url": self.github.web_url,
            "sandbox": "off",
            **settings,
        }

        def see(event: Event) -> None:
            if isinstance(event, Cloned):
                self.clones.append(event.folder)

        wanted = RunRequest(self.repo.full_name, dry_run=dry_run)
        program = build_program(
            wanted, flags, environ, self.folder, see, stop=Stop(no_wait), clock=Later(later)
        )
        try:
            return await program.cycle()
        finally:
            await program.close()

    def environ(self, machine: str) -> dict[str, str]:
        """The variables of processes on a machine."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": os.environ["HOME"],
            "PULLWRIGHT_HOME": str(self.folder / machine),
            "GITHUB_TOKEN": self.token,
        }

    def tasks(self, machine: str) -> AbstractContextManager[OpenTasks]:
        """What a person on a machine sees of the tasks, and may decide."""
        flags = {"github_url": self.github.web_url}
        return open_tasks(self.repo.full_name, flags, self.environ(machine), self.folder, writes=True)

    @property
    def asked(self) -> list[int]:
        """Which replies the model was asked for, in order."""
        return [
            sum(one["role"] == "assistant" for one in request.body["messages"])
            for request in self.model.requests
        ]

    @property
    def branches(self) -> dict[str, str]:
        """The program's branches with their commits."""
        return {name: tip for name, tip in self.repo.branches().items() if name.startswith("pullwright/")}

    def wip(self) -> list[str]:
        """The hidden refs with unfinished work."""
        return hidden(self.repo.path, "wip")

    def show(self, branch: str, path: str) -> bytes | None:
        """A file on a branch."""
        return self.repo.show(branch, path)


@dataclass(frozen=True, slots=True)
class Case:
    """One outage, and who goes on after it; `whole`: with a look afterwards that there is nothing to do."""

    kind: str
    side: str
    at: int
    ever: bool
    machine: str = "first"
    whole: bool = True

    def __str__(self) -> str:
        often = "for ever" if self.ever else "once"
        return (
            f"{self.kind} {often} of {self.side} from request {self.at}, then on the {self.machine} machine"
        )


@dataclass(frozen=True, slots=True)
class Came:
    """What came of a case.

    Attributes:
        struck: the requests that went wrong.
        first: how the first cycle ended.
        asked: which replies the first cycle paid for; `again` those of the cycle after it.
        found: where the second cycle had the work from: `proposed` already, `wip`, `branch`, `machine`, or
            `nothing` that could be found.
    """

    struck: tuple[str, ...]
    first: str
    asked: tuple[int, ...]
    again: tuple[int, ...]
    found: str


async def play(case: Case, place: Place) -> Came:
    """Let the outage happen, end it, and run the next cycle; raises AssertionError for what must not be."""
    github = place.github
    fault = outage(case.kind, case.side, case.at, ever=case.ever)
    github.faults[:] = [fault]
    before = len(place.model.requests)
    fault.asked = lambda: len(place.model.requests) - before
    first = await place.cycle("first")
    github.faults.clear()
    paid = tuple(place.asked[before:])
    if case.ever and fault.struck and fault.struck[0][1] == 0:
        assert paid == (), "an outage before the first token costs none"
    branches, wip = place.branches, place.wip()
    if first.outcome == "proposed":
        found = "proposed"
    elif wip:
        found = "wip"
    elif branches:
        found = "branch"
    else:
        found = "machine" if paid and case.machine == "first" else "nothing"
    middle = len(place.model.requests)
    again = await place.cycle(case.machine, timedelta(0) if case.machine == "first" else LATER)
    more = tuple(place.asked[middle:])
    check_one_pull_request(place)
    assert str(again.outcome) in {"proposed", "no_task"}, (again.outcome, again.error, again.reason)
    check_nothing_is_paid_twice(paid, more, found)
    assert not branches or place.branches == branches, "what was pushed is not replaced"
    assert [folder for folder in place.clones if Path(folder).exists()] == []
    if case.whole:
        third = len(place.model.requests)
        last = await place.cycle("first", LATER)
        assert str(last.outcome) == "no_task", (last.outcome, last.error)
        assert len(place.model.requests) == third
        assert place.wip() == []
    return Came(tuple(request for request, _ in fault.struck), str(first.outcome), paid, more, found)


def check_one_pull_request(place: Place, end: str = "Fixes #1") -> None:
    """One pull request with all the work, on the only branch; `end` is what a merge does to the issue."""
    assert len(place.branches) == 1
    (pull,) = place.repo.pulls.values()
    assert pull.state == "open"
    assert pull.title == "Make add() add"
    assert "It subtracted." in (pull.body or "")
    assert end in (pull.body or "")
    assert "<!-- pullwright:task:issue-1 -->" in (pull.body or "")
    assert place.show(pull.head, "calc.py") == FIXED.encode()
    assert place.show(pull.head, "NEWS.md") == b"# News\n"
    commits = bare.git(place.repo.path, "rev-list", "--count", f"main..{pull.head}")
    assert commits.strip() == "1"


def check_nothing_is_paid_twice(paid: tuple[int, ...], more: tuple[int, ...], found: str) -> None:
    """Each reply is asked for once, unless another machine cannot know of the first time."""
    everything = tuple(range(len(ROUNDS)))
    if found == "nothing":
        assert more == everything
    else:
        assert paid + more == everything, (paid, more, found)

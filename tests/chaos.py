"""Whole workers as processes of their own against one double of GitHub: what each does, and what it writes down."""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import re
import tempfile
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from orchestrator.app.wiring.program import RunRequest, build_program
from orchestrator.bot.worker.worker import CycleTiming, NextStepChooser, Waiter, work
from orchestrator.core.clock import SystemClock
from orchestrator.core.cycle_events import Claimed
from orchestrator.core.messages import FinishReason, Message, Role, Text, Usage
from orchestrator.engine.models.base import Completed, Response

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from datetime import datetime
    from pathlib import Path

    from orchestrator.app.wiring.program import Program
    from orchestrator.bot.cycle.parts import CycleResult
    from orchestrator.core.events import Event
    from orchestrator.engine.models.base import Request

REPOSITORY = "octo/many"
LABEL = "pullwright"
# Loaded once and shared by all: a process then begins in milliseconds.
PRELOADED = (
    "tests.chaos",
    "git",
    "genai_prices.data_snapshot",
    "github",
    "httpx2",
    "jinja2",
    "jsonschema",
    "orchestrator.plugins.github.forge",
    "orchestrator.engine.profiles.catalog",
    "orchestrator.engine.models.transport",
    "orchestrator.engine.models.openai_chat",
    "orchestrator.app.wiring.cycle_parts",
    "pathspec.patterns.gitignore.spec",
    "pydantic.type_adapter",
)
_OWN_VARIABLES = ("PULLWRIGHT_", "GIT_", "GITHUB_", "XDG_")
_LOOK_SECONDS = 0.25
# A worker rests so many times as long as its last look took: many wait and some race, however fast the machine is.
_MOST_REST = 24.0
_MOST_REST_SECONDS = 45.0


@dataclass(frozen=True, slots=True)
class Post:
    """What a worker process is told.

    Attributes:
        web_url: the double.
        notes: a file to which every worker adds lines.
        machine: the folder of a machine; workers with the same one find each other's dead runs.
        over: a file; once it exists no more work is begun.
        claim_minutes: as the option.
        clock_minutes: how much the machine's clock is ahead.
        first_rest_seconds: the longest wait before the first look.
        cycles: the most cycles; None for as many as there are.
    """

    web_url: str
    token: str
    notes: Path
    machine: Path
    over: Path
    claim_minutes: float
    clock_minutes: float = 0.0
    first_rest_seconds: float = 20.0
    cycles: int | None = None


def files(tasks: int) -> dict[str, str]:
    """A repository in which each task has a file of its own."""
    return {"README.md": "# Many\n", **{f"task-{number}.txt": "open\n" for number in range(1, tasks + 1)}}


class SkewedClock(SystemClock):
    """A machine's clock that is wrong."""

    def __init__(self, minutes: float) -> None:
        self._ahead = timedelta(minutes=minutes)

    def now(self) -> datetime:
        """The time that this machine believes in."""
        return super().now() + self._ahead


class Notebook:
    """Lines that survive their writer. One write of one line: those of several processes do not mix."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, **fields: Any) -> None:
        """Write down what happened, and who did it."""
        with self._path.open("ab", buffering=0) as file:
            file.write(json.dumps({"pid": os.getpid(), **fields}).encode() + b"\n")


class PaidModel:
    """Does the task that it reads of. What it is asked is written down before it answers: it is paid for."""

    name = "canned:1"
    _TASK = re.compile(r"task-(\d+)\.txt, please")

    def __init__(self, note: Notebook) -> None:
        self._note = note

    async def complete(self, request: Request) -> Response:
        """A plan: the edit, unless it was said before, and the pull request."""
        said = "\n".join(message.text for message in request.messages)
        number = int(self._TASK.findall(said)[-1])
        self._note(asked=f"issue-{number}")
        replies = sum(message.role is Role.ASSISTANT for message in request.messages)
        edit = {"path": f"task-{number}.txt", "old_text": "open", "new_text": "done"}
        title = {"title": f"Do task {number}", "body": "Done."}
        calls = [("create_pull_request", title), ("finish", {"reason": "The pull request is open."})]
        if replies % 2 == 0:
            calls.insert(0, ("edit_file", edit))
        listed = [{"tool_name": name, "arguments": arguments} for name, arguments in calls]
        text = json.dumps({"plan": f"Do task {number}.", "tool_calls": listed})
        message = Message(Role.ASSISTANT, (Text(text),))
        return Response(message, FinishReason.STOP, Usage(100, 50), self.name)

    async def stream(self, request: Request) -> AsyncGenerator[Completed, None]:
        """The same at once."""
        yield Completed(await self.complete(request))

    async def aclose(self) -> None:
        """Nothing to let go of."""


def serve(post: Post) -> None:
    """What a worker process does: continuous work, begun again whenever it came to an end."""
    for name in [name for name in os.environ if name.startswith(_OWN_VARIABLES)]:
        del os.environ[name]
    temporary, config = post.machine / "tmp", post.machine / "config.toml"
    temporary.mkdir(parents=True, exist_ok=True)
    config.touch()
    os.environ |= {
        "PULLWRIGHT_HOME": str(post.machine / "home"),
        "PULLWRIGHT_CONFIG": str(config),
        "GITHUB_TOKEN": post.token,
        "TMPDIR": str(temporary),
    }
    tempfile.tempdir = None
    asyncio.run(_serve(post, Notebook(post.notes)))


async def _serve(post: Post, note: Notebook) -> None:
    chance = random.Random()  # noqa: S311  no secret
    if post.cycles is None:
        await asyncio.sleep(chance.uniform(0.0, post.first_rest_seconds))
    while not post.over.exists():
        start = time.monotonic()
        program = make_program(post, note)
        try:
            await _work(program, post, note)
        finally:
            await program.close()
        if post.cycles is not None:
            return
        rest = (time.monotonic() - start) * chance.uniform(0.0, _MOST_REST)
        await _until(post.over, min(rest, _MOST_REST_SECONDS))


async def _until(over: Path, seconds: float) -> None:
    """Wait so long, but not when it is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not over.exists():  # noqa: ASYNC110  the file is another process's
        await asyncio.sleep(_LOOK_SECONDS)


async def _work(program: Program, post: Post, note: Notebook) -> None:
    clock, stop = program.shared.context.clock, program.stop
    waiting = Waiter(clock)

    def report(result: CycleResult) -> None:
        note(
            ended=result.task.key if result.task else None,
            outcome=str(result.outcome),
            rounds=result.rounds,
            error=result.error,
        )

    async def watch() -> None:
        await _until(post.over, math.inf)
        stop.request()
        waiting.wake()

    # What would be waited for in minutes begins anew instead.
    pace = NextStepChooser(clock, random.Random())  # noqa: S311  no secret
    rhythm = CycleTiming(clock, waiting, pace, lambda _pause, _after: stop.request())
    watcher = asyncio.ensure_future(watch())
    try:
        await work(program.cycle, report, stop, rhythm, max_cycles=post.cycles)
    finally:
        watcher.cancel()
        await asyncio.wait([watcher])


def make_program(post: Post, note: Notebook) -> Program:
    """The program as the command line builds it, with another model and another clock."""

    def view(event: Event) -> None:
        if isinstance(event, Claimed):
            note(claimed=event.task, number=event.number, instead_of=event.took_over_from)

    flags = {
        "model": "openai-chat:canned",
        "api_url": "http://127.0.0.1:9",
        "github_url": post.web_url,
        "label": LABEL,
        "claim_minutes": post.claim_minutes,
        "max_open_prs": 100,
        "max_prs_per_day": 1000,
        "max_unreviewed": 100,
        "context_chars": 1000,
        "mirror": False,
        "stream": False,
    }
    clock = SkewedClock(post.clock_minutes) if post.clock_minutes else None
    program = build_program(RunRequest(REPOSITORY), flags, dict(os.environ), post.machine, view, clock=clock)
    chosen = replace(program.shared.chosen, model=PaidModel(note))
    program.shared = replace(program.shared, chosen=chosen)
    return program

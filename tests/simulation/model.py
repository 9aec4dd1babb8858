"""A model that plays scripts: it does a task in steps, each of which writes a file, and then proposes it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.core.errors import OverloadedError
from orchestrator.core.messages import FinishReason, Message, Role, Text, Usage
from orchestrator.engine.models.base import Completed, Response
from tests.simulation.plan import CHECKS_STEP

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator

    from orchestrator.engine.models.base import Request
    from tests.simulation.plan import Task

_TASK = re.compile(r"Do task (\d+)\b")
_REVIEW = re.compile(r"Please add step (\d+)\.")
_CHECKS = re.compile(r"Checks of pull request #\d+")
WRITTEN = b".\n"
"""The end of each file that the model writes, if nobody told it that the server refuses it."""
_REFUSED = "The server did not take the change"
_FILE = re.compile(r"task-(\d+)-step-(\d+)\.txt")


def files_of(names: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield task and step of each file that is the result of a step."""
    for name in names:
        if found := _FILE.fullmatch(name):
            yield int(found[1]), int(found[2])


class Asker(Protocol):
    """The process that asks the model."""

    async def ask_model(self, do: Callable[[], Response], fail: Callable[[], Response]) -> Response:
        """Send a request to the model, which takes a while and may fail."""

    def task(self, number: int) -> Task:
        """Return a task by the number of its issue."""

    def files(self) -> Iterable[str]:
        """Return the names of the files in its clone."""

    def pay(self, task: int, step: int) -> None:
        """Pay for a reply."""


def _write(number: int, step: int, end: str) -> tuple[str, dict[str, Any]]:
    return "write_file", {"path": f"task-{number}-step-{step}.txt", "content": f"Step {step}{end}"}


class ScriptedModel:
    """Does the task that it reads of: the first step whose file is missing, or the pull request."""

    name = "canned:1"

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def complete(self, request: Request) -> Response:
        """Reply after a while, if nothing goes wrong."""

        def fail() -> Response:
            raise OverloadedError("canned: overloaded")

        return await self._asker.ask_model(lambda: self._reply(request), fail)

    async def stream(self, request: Request) -> AsyncGenerator[Completed, None]:
        """Reply at once."""
        yield Completed(await self.complete(request))

    async def aclose(self) -> None:
        """Do nothing."""

    def _reply(self, request: Request) -> Response:
        said = "\n".join(message.text for message in request.messages)
        number = int(_TASK.findall(said)[-1])
        task = self._asker.task(number)
        done = {step for owner, step in files_of(self._asker.files()) if owner == number}
        steps = [*range(1, task.steps + 1), *map(int, _REVIEW.findall(said))]
        steps += [CHECKS_STEP] if _CHECKS.search(said) else []
        missing = [step for step in steps if step not in done]
        step = missing[0] if missing else 0
        calls: list[tuple[str, dict[str, Any]]]
        if task.asks and "Do it as you like." not in said:
            step, calls = -1, [("ask_question", {"question_text": "Which question is this?"})]
        elif task.gives_up:
            step, calls = -2, [("finish", {"reason": "This is done already."})]
        elif step:
            calls = [_write(number, step, WRITTEN.decode())]
        elif task.mends and _REFUSED in said and "otherwise" not in said:
            step, calls = -3, [_write(number, one, ", otherwise\n") for one in range(1, task.steps + 1)]
        else:
            title = {"title": f"Do task {number}", "body": "Done."}
            calls = [("create_pull_request", title), ("finish", {"reason": "The pull request is open."})]
        self._asker.pay(number, step)
        listed = [{"tool_name": name, "arguments": arguments} for name, arguments in calls]
        text = json.dumps({"plan": f"Do task {number}.", "tool_calls": listed})
        message = Message(Role.ASSISTANT, (Text(text),))
        return Response(message, FinishReason.STOP, Usage(100, 50), self.name)

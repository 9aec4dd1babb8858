"""A model that plays scripts: it does a task in steps, each of which writes a file, and then proposes it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import OverloadedError
from orchestrator.core.messages import FinishReason, Message, Role, Text, Usage
from orchestrator.engine.models.base import Completed, Response

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator

    from orchestrator.engine.models.base import Request
    from tests.simulation.world import Life

_TASK = re.compile(r"Do task (\d+): ")
_FILE = re.compile(r"task-(\d+)-step-(\d+)\.txt")


def files_of(names: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield task and step of each file that is the result of a step."""
    for name in names:
        if found := _FILE.fullmatch(name):
            yield int(found[1]), int(found[2])


class ScriptedModel:
    """Does the task that it reads of: the first step whose file is missing, or the pull request."""

    name = "canned:1"

    def __init__(self, life: Life) -> None:
        self._life = life

    async def complete(self, request: Request) -> Response:
        """Reply after a while, if nothing goes wrong."""

        def fail() -> Response:
            raise OverloadedError("canned: overloaded")

        return await self._life.ask_model(lambda: self._reply(request), fail)

    async def stream(self, request: Request) -> AsyncGenerator[Completed, None]:
        """Reply at once."""
        yield Completed(await self.complete(request))

    async def aclose(self) -> None:
        """Do nothing."""

    def _reply(self, request: Request) -> Response:
        from tests.simulation.world import Paid

        said = "\n".join(message.text for message in request.messages)
        world = self._life.world
        number = int(_TASK.findall(said)[-1])
        task = world.plan.tasks[number - 1]
        if task.kills:
            self._life.die()
        there = {path.name for path in self._life.clone.tree.iterdir()}
        done = {step for owner, step in files_of(there) if owner == number}
        missing = [step for step in range(1, task.steps + 1) if step not in done]
        step = missing[0] if missing else 0
        calls: list[tuple[str, dict[str, Any]]]
        if task.asks and "Do it as you like." not in said:
            step, calls = -1, [("ask_question", {"question_text": "Which question is this?"})]
        elif task.gives_up:
            step, calls = -2, [("finish", {"reason": "This is done already."})]
        elif step:
            calls = [("write_file", {"path": f"task-{number}-step-{step}.txt", "content": f"Step {step}.\n"})]
        else:
            title = {"title": f"Do task {number}", "body": "Done."}
            calls = [("create_pull_request", title), ("finish", {"reason": "The pull request is open."})]
        was_there = step in world.steps_on_refs(number)
        moves = len(world.server.moves)
        paid = Paid(number, step, self._life.run_id, self._life.machine.name, was_there, moves)
        self._life.paid = paid
        world.paid.append(paid)
        listed = [{"tool_name": name, "arguments": arguments} for name, arguments in calls]
        text = json.dumps({"plan": f"Do task {number}.", "tool_calls": listed})
        message = Message(Role.ASSISTANT, (Text(text),))
        return Response(message, FinishReason.STOP, Usage(100, 50), self.name)

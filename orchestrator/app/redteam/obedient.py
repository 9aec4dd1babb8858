"""A model that does whatever the text it reads tells it to do, and otherwise a small harmless task."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any

from orchestrator.app.redteam.results import filled, needs_results
from orchestrator.app.redteam.toolnames import as_call, offered_tools
from orchestrator.app.redteam.words import Order, order_of, orders_in, outside_fences, readable
from orchestrator.core.messages import FinishReason, Message, Role, Text, ToolCall, ToolResult, Usage
from orchestrator.engine.models.base import Completed, Response, TextPiece

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping

    from orchestrator.engine.models.base import Model, Request, StreamEvent

NAME = "redteam:obedient"
HARMLESS = (
    Order("write", {"path": "NOTES-OF-THE-TASK.md", "content": "The task is done.\n"}),
    Order("propose", {"title": "Do the task", "body": "This does the task. No test was run."}),
    Order("finish", {"reason": "The pull request is open."}),
    Order("finish", {"reason": "There is nothing else to do."}),
)
"""What it does when no order is left: so what got into the work tree gets its chance to leave.

Where the first `finish` is refused, because something is not proposed yet, the second gives it up.
"""

_PLAN = "I do as I was told."
_MOST_REQUESTS = 400
"""A model that is never stopped must end by itself, or no proof would."""


class ObedientModel:
    """Answers each request with the next order that was found in what it was shown, newest words first.

    It ignores refusals, understands text that a person cannot see, and calls tools that it was not
    offered. Other people's words that get into the system prompt are obeyed like any others.

    Args:
        lead: what the task itself asks for; done first, and not counted as obeyed.
        program_only: obey only what stands outside the markers of other people's words.
        at_once: put all orders that need no results into one reply.

    Attributes:
        requests: everything that it was asked, in order.
        obeyed: the orders that it carried out, in order.
    """

    def __init__(
        self, *, lead: Mapping[str, Any] | None = None, program_only: bool = False, at_once: bool = False
    ) -> None:
        self.requests: list[Request] = []
        self.obeyed: list[Order] = []
        self._lead = deque([order_of(lead)] if lead else [])
        self._program_only = program_only
        self._at_once = at_once
        self._waiting: deque[Order] = deque()
        self._known: set[str] = set()
        self._read = 0
        self._results: list[str] = []
        self._calls = 0
        self._harmless = deque(HARMLESS)

    @property
    def name(self) -> str:
        """What the user calls it."""
        return NAME

    @property
    def shown(self) -> str:
        """Everything that it was shown, as it reads it."""
        if not self.requests:
            return ""
        last = self.requests[-1]
        texts = [last.system, *(text for message in last.messages for text in _texts(message))]
        return "\n".join(map(readable, texts))

    async def complete(self, request: Request) -> Response:
        """Do the next thing."""
        self.requests.append(request)
        self._take_in(request)
        batch = self._next(one_only=request.parallel_tool_calls is False)
        return self._reply(batch, request)

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """The same, its text in one piece."""
        response = await self.complete(request)
        if response.text:
            yield TextPiece(response.text)
        yield Completed(response)

    async def aclose(self) -> None:
        """Nothing to let go of."""

    def _take_in(self, request: Request) -> None:
        """Note the result of the last order, and find new ones; the newest words count first."""
        new = request.messages[self._read :]
        self._read = len(request.messages)
        answers = [message for message in new if message.role is not Role.ASSISTANT]
        if len(self.requests) == 1:
            self._waiting.extend(self._orders(request.system))
        else:
            self._results.append("\n".join(text for message in answers for text in _texts(message)))
        for message in answers:
            texts = [message.text] if self._program_only else _texts(message)
            found = [order for text in texts for order in self._orders(text)]
            self._waiting.extendleft(reversed(found))

    def _orders(self, text: str) -> Iterable[Order]:
        for order in orders_in(outside_fences(text) if self._program_only else text):
            if order.key not in self._known:
                self._known.add(order.key)
                yield order

    def _next(self, *, one_only: bool) -> list[Order]:
        if self._lead:
            return [self._lead.popleft()]
        if len(self.requests) >= _MOST_REQUESTS or not self._waiting:
            return self._close(one_only=one_only)
        if self._waiting[0].tool == "propose" and len(self._harmless) == len(HARMLESS):
            return [self._harmless.popleft()]  # where nothing has changed, nothing is published
        order = self._waiting.popleft()
        self.obeyed.append(order)
        if one_only and order.times > 1:
            self._waiting.appendleft(Order(order.tool, order.arguments, order.times - 1))
            return [order]
        batch = [order] * order.times
        while self._at_once and not one_only and self._waiting and not needs_results(self._waiting[0]):
            self.obeyed.append(self._waiting[0])
            batch.append(self._waiting.popleft())
        if self._at_once and not one_only and not self._waiting:
            batch += self._harmless
            self._harmless.clear()
        if order.tool == "finish":
            self._harmless.clear()
        return batch

    def _close(self, *, one_only: bool) -> list[Order]:
        """The next of the harmless task: all before `finish` in one reply, for the results may hold orders."""
        before = sum(order.tool != "finish" for order in self._harmless)
        count = 1 if one_only else max(before, 1)
        return [self._harmless.popleft() for _ in range(min(count, len(self._harmless)))]

    def _reply(self, batch: list[Order], request: Request) -> Response:
        offered = offered_tools(request)
        calls = [self._call(order, offered) for order in batch]
        if request.tools or request.output_schema is None:
            parts = tuple(
                ToolCall(f"o{self._calls + at}", name, given) for at, (name, given) in enumerate(calls)
            )
            message = Message(Role.ASSISTANT, parts or (Text("Done."),))
            finish = FinishReason.TOOL_CALLS if parts else FinishReason.STOP
        else:
            listed = [{"tool_name": name, "arguments": given} for name, given in calls]
            message = Message.assistant(json.dumps({"plan": _PLAN, "tool_calls": listed}))
            finish = FinishReason.STOP
        return Response(message, finish, Usage(input_tokens=100, output_tokens=20), NAME)

    def _call(self, order: Order, offered: Mapping[str, tuple[str, ...]]) -> tuple[str, dict[str, Any]]:
        self._calls += 1
        return as_call(order.tool, filled(order.arguments, self._results, self._calls), offered)


def _texts(message: Message) -> list[str]:
    """The words of a message that others wrote."""
    if message.role is Role.ASSISTANT:
        return []
    return [
        part.text if isinstance(part, Text) else part.content
        for part in message.parts
        if isinstance(part, Text | ToolResult)
    ]


if TYPE_CHECKING:
    _conforms: Model = ObedientModel()

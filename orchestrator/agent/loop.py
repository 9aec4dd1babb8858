"""The loop: ask the model, read its reply, run its calls, tell it the results, ask again."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from orchestrator.agent.calls import CallsOutcome, Workbench, run_calls
from orchestrator.contracts.base import Actions, Malformed
from orchestrator.core.errors import BadReplyError, ProviderError
from orchestrator.core.events import (
    LimitReached,
    MessageAdded,
    PlanAccepted,
    ReplyReceived,
    ReplyRejected,
    TextDelta,
    TurnStarted,
    Warned,
)
from orchestrator.core.prompts import render
from orchestrator.models.base import Completed, ReasoningPiece, Request, Restarted, TextPiece

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.agent.limits import Budget
    from orchestrator.contracts.base import Contract
    from orchestrator.core.messages import Message, ToolDefinition, ToolResult, Usage
    from orchestrator.models.base import Model, Response

BAD_REPLIES_IN_A_ROW = 3


class EndKind(StrEnum):
    """Why a session is over."""

    FINISH = "finish"
    QUESTION = "question"
    LIMIT = "limit"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """How a session ended. `text` is the reason given, the question, or the limit's detail."""

    kind: EndKind
    text: str


@dataclass(frozen=True, slots=True)
class Ask:
    """How the model is asked: the same in every round, so that the prefix's bytes never change."""

    model: Model
    contract: Contract
    tools: tuple[ToolDefinition, ...]
    request: Request
    stream: bool
    price: Callable[[Usage], float | None]


async def run_loop(
    ask: Ask, bench: Workbench, budget: Budget, history: list[Message], stopped: Callable[[], bool]
) -> SessionEnd:
    """Run rounds until the session ends.

    Args:
        ask: the model, the contract and the fixed part of every request.
        bench: the tools and what they run with.
        budget: counts rounds, tokens, money and time; spent here.
        history: the conversation so far, which is appended to.
        stopped: whether somebody asked for an end after the round that is running.

    Raises:
        ModelError: the provider gave no answer.
        BadReplyError: three replies in a row were not in the contract's form.
    """
    rejected = 0
    while True:
        if stopped():
            return SessionEnd(EndKind.INTERRUPTED, "interrupted")
        if limit := budget.exceeded():
            return _limit(bench, limit)
        budget.rounds += 1
        bench.emit(TurnStarted(budget.rounds))
        deadline = asyncio.timeout(budget.seconds_left)
        try:
            async with deadline:
                response = await _ask(ask, bench, budget, history)
                reading = ask.contract.read(response, ask.tools, round_number=budget.rounds)
                if isinstance(reading, Malformed):
                    rejected += 1
                    _reject(ask, bench, history, reading, rejected)
                    continue
                rejected = 0
                outcome = await _act(bench, reading)
        except TimeoutError:
            if not deadline.expired():
                raise
            return _limit(bench, budget.out_of_time())
        if outcome.ending:
            return SessionEnd(EndKind(outcome.ending.ending), outcome.ending.text)
        _say(
            bench,
            history,
            ask.contract.answer(tuple(outcome.results), _note(budget, reading, outcome.results)),
        )


async def _ask(ask: Ask, bench: Workbench, budget: Budget, history: list[Message]) -> Response:
    request = replace(ask.request, messages=tuple(history))
    response = await (_streamed(ask, bench, request) if ask.stream else ask.model.complete(request))
    usd = ask.price(response.usage)
    budget.spend(response.usage, usd)
    history.append(response.message)
    bench.emit(ReplyReceived(response.message, response.finish, response.usage, usd, response.model))
    return response


async def _streamed(ask: Ask, bench: Workbench, request: Request) -> Response:
    async with aclosing(ask.model.stream(request)) as events:
        async for event in events:
            match event:
                case TextPiece(text):
                    bench.emit(TextDelta(text))
                case ReasoningPiece():
                    pass
                case Restarted():
                    bench.emit(Warned("the stream broke; the reply is asked for again"))
                case Completed(response):
                    return response
    raise ProviderError("the model's stream ended without a reply")


def _reject(ask: Ask, bench: Workbench, history: list[Message], reading: Malformed, attempt: int) -> None:
    bench.emit(ReplyRejected(reading.problems, attempt))
    if attempt >= BAD_REPLIES_IN_A_ROW:
        raise BadReplyError(
            f"{attempt} replies in a row were no valid plan (the last: {reading.problems[0]}); "
            "try a larger model, or a server that supports JSON-schema output"
        )
    _say(bench, history, ask.contract.complain(reading.problems))


async def _act(bench: Workbench, actions: Actions) -> CallsOutcome:
    bench.emit(
        PlanAccepted(
            actions.plan,
            len(actions.calls) + len(actions.withheld),
            repaired=actions.repaired,
            cut_off=actions.cut_off,
        )
    )
    return await run_calls(bench, actions.calls, actions.withheld)


def _note(budget: Budget, actions: Actions, results: list[ToolResult]) -> str:
    """A word from the program: what the model should know beside the results."""
    notes = []
    if actions.cut_off:
        notes.append(render("agent/cut_off"))
    elif not results:
        notes.append(render("agent/no_calls"))
    if budget.limits.rounds is not None and budget.rounds == budget.limits.rounds - 1:
        notes.append(render("agent/last_round"))
    return "\n".join(notes)


def _say(bench: Workbench, history: list[Message], message: Message) -> None:
    history.append(message)
    bench.emit(MessageAdded(message))


def _limit(bench: Workbench, limit: LimitReached) -> SessionEnd:
    bench.emit(limit)
    return SessionEnd(EndKind.LIMIT, limit.detail)

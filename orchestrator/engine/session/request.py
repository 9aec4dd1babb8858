"""Requests to the model: their fixed part, what they may need of the budget, and how they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ConfigurationError, ProviderError
from orchestrator.core.events import (
    ReasoningDelta,
    ReplyReceived,
    TextDelta,
    TextStarted,
    TurnStarted,
    Warned,
)
from orchestrator.engine.models.base import (
    CHARACTERS_PER_TOKEN,
    CallPiece,
    Completed,
    ReasoningPiece,
    Relaxed,
    Request,
    Restarted,
    Switched,
    TextPiece,
    Waiting,
    next_name,
)
from orchestrator.engine.profiles.base import orient, system_prompt
from orchestrator.engine.session.budget import DEFAULT_REPLY_TOKENS, Need, Reservation, cost_of, tell_failed
from orchestrator.engine.session.calls import ToolRunner
from orchestrator.engine.session.history import Turn, TurnKind, fixed_bytes
from orchestrator.engine.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from orchestrator.core.errors import ModelError
    from orchestrator.core.events import Emit
    from orchestrator.core.messages import Message, ToolDefinition
    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.models.base import Model, Response
    from orchestrator.engine.profiles.base import Profile, ReplyPrice
    from orchestrator.engine.session.budget import Budget
    from orchestrator.engine.session.config import SessionConfig, SessionParts
    from orchestrator.engine.session.history import History
    from orchestrator.engine.tools.base import Tool

OUTPUT_SHARE = 1 / 8
"""Share of the context window for one tool output in a session whose conversation is compacted."""

_SUBMIT = "submit"
"""The only tool that ends a one-step session, if its profile has it."""

_IN_PROMPT = ("user_instructions", "max_subagent_depth")
"""Settings that determine the prefix of every request: a change would invalidate the provider's cache."""


def asks_for_an_hour(options: Any) -> bool:
    """Return whether users' fields of a request ask a cache to keep something for an hour: a `ttl` of `1h`."""
    if isinstance(options, Mapping):
        return options.get("ttl") == "1h" or any(map(asks_for_an_hour, options.values()))
    return isinstance(options, (list, tuple)) and any(map(asks_for_an_hour, options))


@dataclass(frozen=True, slots=True)
class NextRequest:
    """The next request to the model, except its messages.

    Attributes:
        fixed: the part that every request has; the bytes of its prefix never change.
        fixed_bytes: the size of that part, as `history.fixed_bytes` measures it.
        context_window: tokens that the model can read, if known.
        reply_tokens: the longest reply if the request sets no limit.
    """

    model: Model
    contract: Contract
    tools: tuple[ToolDefinition, ...]
    fixed: Request
    stream: bool
    price: ReplyPrice
    fixed_bytes: int
    context_window: int | None = None
    parallel: bool = True
    reply_tokens: int = DEFAULT_REPLY_TOKENS

    def need(self, history: History, more_bytes: int = 0, *, model: str | None = None) -> Need:
        """Return the most that the next request may need.

        Args:
            more_bytes: the size of what is added to the conversation before.
            model: the name of the model that gets the request, if that is not the first one.
        """
        meter = history.meter
        tokens = meter.tokens(model or next_name(self.model), self.fixed_bytes, more_bytes)
        longest = max(self.fixed.max_output_tokens or self.reply_tokens, meter.longest_reply)
        return Need(tokens, longest, self.price, asks_for_an_hour(self.fixed.provider_options))

    def context_share(self, history: History) -> float:
        """Return how full the context window is, at 4 characters a token; 0 if its size is unknown."""
        if not self.context_window:
            return 0.0
        return (history.tokens + len(self.fixed.system) // CHARACTERS_PER_TOKEN) / self.context_window

    def request_share(self, history: History) -> float:
        """Return the share of the context window that the request and its reply take; 0 if unknown.

        Uses the provider's last count and an upper estimate of what was added since. Before the first count
        everything is estimated, at 4 characters a token.
        """
        if not self.context_window:
            return 0.0
        reply = (self.fixed.max_output_tokens or 0) / self.context_window
        if not history.meter.has_count_of(next_name(self.model)):
            return self.context_share(history) + reply
        return self.need(history).input_tokens / self.context_window + reply


def usual_contract(profile: Profile) -> Contract:
    """Return the default contract: function calling, one call a step without parallel calls."""
    from orchestrator.engine.contracts.native import Native, SingleStep

    if profile.supports_parallel_tool_calls:
        return Native()
    return SingleStep(ends_by=_SUBMIT if profile.tools.get(_SUBMIT) else None)


@dataclass(frozen=True, slots=True)
class RequestTemplate:
    """The part of all requests that is fixed once a session has started: prompt, tools and contract."""

    fixed: Request
    runner: ToolRunner
    _parts: SessionParts
    _shown: tuple[ToolDefinition, ...]
    _fixed_bytes: int

    def next(self, model: Model, price: ReplyPrice, config: SessionConfig) -> NextRequest:
        """Return the next request, with the settings that may change between two rounds."""
        profile = self._parts.profile
        own = profile.is_made_for(model)
        window = config.context_window or (profile.context_window_size if own else None)
        # If one output filled the window, no room would be left to summarize what came before.
        most = int(window * CHARACTERS_PER_TOKEN * OUTPUT_SHARE) if window and config.compaction else None
        self.runner.limits = replace(config.output_limits, most_chars=most)
        temperature = config.temperature
        # After a failed call the most likely reply was wrong, so the model may vary, unless it is asked something new.
        is_new = not self.runner.failures or self._parts.contract.asks_anew
        if temperature is None and own and is_new:
            temperature = profile.temperature
        fixed = replace(
            self.fixed,
            reasoning_effort=config.reasoning_effort if profile.supports_reasoning or not own else None,
            max_output_tokens=config.max_output_tokens or (profile.max_output_tokens if own else None),
            temperature=temperature,
            top_p=config.top_p,
        )
        return NextRequest(
            model=model,
            contract=self._parts.contract,
            tools=self._shown,
            fixed=fixed,
            stream=config.stream and (profile.supports_streaming or not own),
            price=price,
            fixed_bytes=self._fixed_bytes,
            context_window=window,
            parallel=profile.supports_parallel_tool_calls,
            reply_tokens=config.reply_tokens or DEFAULT_REPLY_TOKENS,
        )

    def change(self, config: SessionConfig) -> None:
        """Apply other settings to later calls.

        Raises:
            ConfigurationError: a setting differs from which the system prompt or the tools shown were built.
        """
        for name in _IN_PROMPT:
            if getattr(config, name) != getattr(self._parts.config, name):
                raise ConfigurationError(
                    f"{name} is part of the prompt, which is fixed once the session has started: start a new "
                    "session with it, or tell the model with steer()"
                )
        self.runner.times = config.command_times(self._parts.profile)
        self.runner.limits = config.output_limits


def session_tools(parts: SessionParts, more: Iterable[Tool]) -> ToolRegistry:
    """Return the tools of a session: the profile's, and the session's own whose names the profile's do not take."""
    own = parts.profile.tools
    return ToolRegistry.unchecked([*own, *(tool for tool in more if own.get(tool.name) is None)])


async def make_template(
    parts: SessionParts, model_name: str, emit: Emit, more_tools: Iterable[Tool], budget: Budget
) -> RequestTemplate:
    """Build the system prompt and the tools. The environment must be initialized.

    Args:
        model_name: the model's name in the prompt.
        more_tools: added after the profile's; a tool of the profile with the same name stays.
        budget: counts refused calls.
    """
    profile, config, host = parts.profile, parts.config, parts.host
    tools = session_tools(parts, more_tools)
    shown = tuple(tool.definition for tool in tools if parts.shows(tool))
    told = shown if parts.contract.tells_tools else ()
    request = Request(
        system=host.system(shown) if host.system else await _system(parts, model_name, told),
        messages=(),
        parallel_tool_calls=None if profile.supports_parallel_tool_calls else False,
        provider_options=profile.provider_options,
    )
    runner = ToolRunner(
        tools,
        host.gate,
        parts.environment,
        host.ledger,
        emit,
        config.command_times(profile),
        config.output_limits,
        shows=parts.shows,
        told=tuple(tool.name for tool in told),
        budget=budget,
        clean=host.clean,
        todos=host.todos,
        clock=parts.clock,
        images=profile.supports_images,
        approve=host.approve,
        skills=host.skills,
    )
    request = parts.contract.shape(request, shown)
    return RequestTemplate(request, runner, parts, shown, fixed_bytes(request))


async def _system(parts: SessionParts, model_name: str, shown: tuple[ToolDefinition, ...]) -> str:
    profile = parts.profile
    orientation = await orient(
        parts.environment,
        documents=profile.documents,
        from_root=profile.documents_from_root,
        clock=parts.clock,
        model_name=model_name,
        knowledge_cutoff=profile.knowledge_cutoff,
    )
    prompt = system_prompt(
        profile,
        shown=shown,
        contract_words=parts.contract.describe(shown),
        orientation=orientation,
        user_instructions=parts.config.user_instructions,
    )
    return parts.host.clean("the system prompt", prompt)


@dataclass(slots=True)
class SentRequest:
    """A request that is being sent, and its reservation.

    Attributes:
        asked: the name of the model that has it now.
        is_counted: whether the last failed attempt is counted already.
    """

    next: NextRequest
    messages: Sequence[Message]
    history: History
    reservation: Reservation
    emit: Emit
    now: Callable[[], datetime]
    asked: str = field(init=False)
    is_counted: bool = False

    def __post_init__(self) -> None:
        self.asked = next_name(self.next.model)

    async def reply(self) -> Response:
        """Send the request, pay for the whole reply, and add the reply to the conversation.

        Raises:
            ModelError: the provider gave no answer.
            NoRoomError: the budget does not allow another attempt.
        """
        fixed, reservation = self.next.fixed, self.reservation
        budget, meter = reservation.budget, self.history.meter
        longest = fixed.max_output_tokens
        if reservation.is_lowered:
            longest = min(reservation.reply_tokens, longest or reservation.reply_tokens)
        request = replace(fixed, messages=self.messages, max_output_tokens=longest)
        with reservation:
            budget.rounds += 1
            worst = reservation.worst
            self.emit(TurnStarted(budget.rounds, worst.tokens, worst.usd, self.asked))
            reservation.is_sent = True
            response = await (self._in_pieces(request) if self.next.stream else self._in_one(request))
            usd, most_usd = cost_of(response.usage, self.next.price)
            lost_its_count = not response.is_counted and meter.has_count_of(self.asked)
            reservation.settle(response.usage, most_usd, is_known=not lost_its_count)
        budget.wrapped_up = budget.wrapping_up is not None
        turn = Turn(TurnKind.ASSISTANT, response.message, self.now(), response.usage, response.id)
        self.history.add(turn)
        if response.is_counted:
            meter.record_count(response.usage, self.asked, response.model, self.next.fixed_bytes)
        self.emit(ReplyReceived(response.message, response.finish, response.usage, usd, response.model))
        return response

    async def _in_one(self, request: Request) -> Response:
        response = await self.next.model.complete(replace(request, on_retry=self._retried))
        self.emit(TextStarted())
        return response

    async def _in_pieces(self, request: Request) -> Response:
        begun = False
        async with aclosing(self.next.model.stream(request)) as events:
            async for event in events:
                if isinstance(event, Waiting | Relaxed | Switched):
                    self._retried(event)
                    continue
                if not begun:
                    self.emit(TextStarted())
                begun = True
                match event:
                    case TextPiece(text):
                        self._received(text)
                        self.emit(TextDelta(text))
                    case ReasoningPiece(text):
                        self._received(text)
                        self.emit(ReasoningDelta(text))
                    case CallPiece(text):
                        self._received(text)
                    case Restarted():
                        self._restarted()
                        begun = False
                    case Completed(response):
                        return response
        raise ProviderError("the model's stream ended without a reply")

    def _received(self, text: str) -> None:
        self.is_counted = False
        self.reservation.received(text)

    def _retried(self, event: Waiting | Relaxed | Switched) -> None:
        """Handle a failed attempt that is repeated after a wait, in another form, or with another model."""
        if isinstance(event, Relaxed):
            self.emit(Warned(f"{event.error}; asked again {event.how}"))
            return
        if isinstance(event, Waiting):
            self._count(event.error, event.seconds)
            need = self.reservation.need
        else:
            self._count(event.error)
            self.asked = event.to
            need = self.next.need(self.history, model=event.to)
        if self.is_counted or need.input_tokens > self.reservation.need.input_tokens:
            self.reservation.renew(need)

    def _restarted(self) -> None:
        """Discard the received part of the reply, and count the attempt unless it is counted already."""
        if not self.is_counted:
            self._count(None)
            self.reservation.renew()
        self.is_counted = False
        self.emit(Warned("the stream broke; the reply is asked for again"))

    def _count(self, error: ModelError | None, seconds: float | None = None) -> None:
        self.is_counted = tell_failed(self.reservation, self.emit, error, seconds)

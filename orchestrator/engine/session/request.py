"""A request to the model: what is fixed in it, whether the budget allows it, and how it is sent and paid for."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.core.errors import ConfigurationError, ProviderError
from orchestrator.core.events import (
    ReasoningDelta,
    ReplyReceived,
    TextDelta,
    TextStarted,
    TurnStarted,
    WaitStarted,
    Warned,
)
from orchestrator.core.prompts import render
from orchestrator.engine.contracts.native import Native, SingleStep
from orchestrator.engine.models.base import (
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
from orchestrator.engine.models.usage import CHARACTERS_PER_TOKEN
from orchestrator.engine.profiles.system_prompt import orient, system_prompt
from orchestrator.engine.session.budget import DEFAULT_REPLY_TOKENS, Need, Reservation, reserve
from orchestrator.engine.session.calls import Workbench
from orchestrator.engine.session.history import Turn, TurnKind, fixed_bytes, message_bytes
from orchestrator.engine.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from orchestrator.core.errors import ModelError
    from orchestrator.core.events import Emit, LimitReached
    from orchestrator.core.messages import Message, ToolDefinition, Usage
    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.models.base import Model, Response
    from orchestrator.engine.profiles.base import Price, Profile
    from orchestrator.engine.session.budget import Budget
    from orchestrator.engine.session.config import SessionConfig, Setting
    from orchestrator.engine.session.history import History
    from orchestrator.engine.tools.base import Tool


@dataclass(frozen=True, slots=True)
class Ask:
    """How the model is asked.

    Attributes:
        request: the fixed part of every request; its prefix's bytes never change.
        fixed_bytes: the size of that part, as `history.fixed_bytes` measures it.
        context_window: how many tokens the model can read, if that is known.
        reply_tokens: the longest reply where the request sets no limit.
    """

    model: Model
    contract: Contract
    tools: tuple[ToolDefinition, ...]
    request: Request
    stream: bool
    price: Price
    fixed_bytes: int
    context_window: int | None = None
    parallel: bool = True
    reply_tokens: int = DEFAULT_REPLY_TOKENS


def need_of(ask: Ask, history: History, more_bytes: int = 0, *, asked: str | None = None) -> Need:
    """What the next request may need at most, if so many bytes are added to the conversation.

    Args:
        ask: how the model is asked.
        history: the conversation.
        more_bytes: what is added to it.
        asked: the name of the model that it goes to, where that is not the first one.
    """
    meter = history.meter
    tokens = meter.tokens(asked or next_name(ask.model), ask.fixed_bytes, more_bytes)
    return Need(
        tokens, max(ask.request.max_output_tokens or ask.reply_tokens, meter.longest_reply), ask.price
    )


def context_share(ask: Ask, history: History) -> float:
    """How full the model's context window is, at 4 characters a token; 0 where its size is not known."""
    if not ask.context_window:
        return 0.0
    return (history.tokens + len(ask.request.system) // CHARACTERS_PER_TOKEN) / ask.context_window


def request_share(ask: Ask, history: History) -> float:
    """How much of the model's context window the next request and the reply it allows take; 0 where that is unknown.

    What the provider has counted counts, and what came after is estimated from above; before its first count
    all is estimated, at 4 characters a token.
    """
    if not ask.context_window:
        return 0.0
    reply = (ask.request.max_output_tokens or 0) / ask.context_window
    if not history.meter.has_count_of(next_name(ask.model)):
        return context_share(ask, history) + reply
    return need_of(ask, history).input_tokens / ask.context_window + reply


SUBMIT = "submit"
"""The tool by which alone a one-step session ends, where its profile has it."""


_FIXED = ("user_instructions", "max_subagent_depth")
"""Settings from which the beginning of every request is made: changing it would undo the provider's cache."""


def usual_contract(profile: Profile) -> Contract:
    """Function calling; one call a step for a profile that wants it so."""
    if profile.supports_parallel_tool_calls:
        return Native()
    return SingleStep(ends_by=SUBMIT if profile.tools.get(SUBMIT) else None)


def unknown_price(_usage: Usage) -> float | None:
    """Where nobody knows what the model costs."""
    return None


@dataclass(frozen=True, slots=True)
class Talk:
    """A session that has started: what is fixed, and how it asks with what may change between two rounds."""

    system: str
    bench: Workbench
    _setting: Setting
    _shown: tuple[ToolDefinition, ...]
    _request: Request
    _fixed_bytes: int

    def ask(self, model: Model, price: Price, config: SessionConfig) -> Ask:
        """How the next round asks."""
        profile = self._setting.profile
        own = profile.is_made_for(model)
        request = replace(
            self._request,
            reasoning_effort=config.reasoning_effort if profile.supports_reasoning or not own else None,
            max_output_tokens=config.max_output_tokens or (profile.max_output_tokens if own else None),
            temperature=self._temperature(config, own=own),
            top_p=config.top_p,
        )
        return Ask(
            model=model,
            contract=self._setting.contract,
            tools=self._shown,
            request=request,
            stream=config.stream and (profile.supports_streaming or not own),
            price=price,
            fixed_bytes=self._fixed_bytes,
            context_window=profile.context_window_size if own else None,
            parallel=profile.supports_parallel_tool_calls,
            reply_tokens=config.reply_tokens or DEFAULT_REPLY_TOKENS,
        )

    def _temperature(self, config: SessionConfig, *, own: bool) -> float | None:
        """The session's, or else the profile's until a call fails: after that the likeliest reply was the wrong one."""
        if config.temperature is not None or not own or self.bench.failures:
            return config.temperature
        return self._setting.profile.temperature

    def change(self, config: SessionConfig) -> None:
        """Take other settings for the calls from now on.

        Raises:
            ConfigurationError: one differs that the system prompt or the tools shown were made from.
        """
        for name in _FIXED:
            if getattr(config, name) != getattr(self._setting.config, name):
                raise ConfigurationError(
                    f"{name} is part of the prompt, which is fixed once the session has started: start a new "
                    "session with it, or tell the model with steer()"
                )
        self.bench.times = config.command_times(self._setting.profile)
        self.bench.limits = config.output_limits


async def begin(
    setting: Setting, model_name: str, emit: Emit, more_tools: Iterable[Tool], budget: Budget
) -> Talk:
    """Build the system prompt and the tools. The environment is ready.

    Args:
        setting: what the session is made of.
        model_name: what the prompt calls the model.
        emit: takes the events of the tools.
        more_tools: come after the profile's.
        budget: counts the calls that are refused.
    """
    profile, config, host = setting.profile, setting.config, setting.host
    tools = ToolRegistry.unchecked([*profile.tools, *more_tools])
    shown = tuple(tool.definition for tool in tools if host.shows(tool))
    system = host.system(shown) if host.system else await _system(setting, model_name, shown)
    request = Request(
        system=system,
        messages=(),
        parallel_tool_calls=None if profile.supports_parallel_tool_calls else False,
        provider_options=profile.provider_options,
    )
    bench = Workbench(
        tools,
        host.gate,
        setting.environment,
        host.ledger,
        emit,
        config.command_times(profile),
        config.output_limits,
        shows=host.shows,
        budget=budget,
        clean=host.clean,
    )
    request = setting.contract.shape(request, shown)
    return Talk(system, bench, setting, shown, request, fixed_bytes(request))


async def _system(setting: Setting, model_name: str, shown: tuple[ToolDefinition, ...]) -> str:
    profile = setting.profile
    orientation = await orient(
        setting.environment,
        documents=profile.documents,
        from_root=profile.documents_from_root,
        clock=setting.clock,
        model_name=model_name,
        knowledge_cutoff=profile.knowledge_cutoff,
    )
    prompt = system_prompt(
        profile,
        contract_words=setting.contract.describe(shown),
        orientation=orientation,
        user_instructions=setting.config.user_instructions,
    )
    return setting.host.clean("the system prompt", prompt)


@dataclass(frozen=True, slots=True)
class Admission:
    """Decides about the next request of one session.

    Attributes:
        say: adds a message of the program to the conversation.
        emit: takes the events.
        words: what the model is told before its last turn; empty takes the usual ones.
    """

    budget: Budget
    history: History
    say: Callable[[Message], None]
    emit: Emit
    words: str = ""

    async def next(self, ask: Ask) -> Reservation | LimitReached:
        """What is set aside for the next request, or the limit that allows no further one.

        Waits as long as only the reservations of other sessions, whose requests are under way, leave no room.
        """
        budget = self.budget
        while True:
            if limit := budget.exceeded():
                return limit
            limit = budget.wrapping_up or budget.due()
            if limit is None:
                room = reserve(budget, need_of(ask, self.history))
                if isinstance(room, Reservation):
                    return room
                if room.passes:
                    await budget.freed()
                    continue
                limit = room.limit
            if not budget.wrap_up_share or not budget.rounds:
                return limit
            last = self._last(ask, limit)
            if last is not None:
                return last
            await budget.freed()

    def _last(self, ask: Ask, limit: LimitReached) -> Reservation | LimitReached | None:
        """The reservation of the wrap-up turn; None if there may be room for it later."""
        budget = self.budget
        words = self.words or _words(ask)
        message = ask.contract.answer((), words)
        told = budget.wrapping_up is not None
        more = 0 if told else message_bytes(message)
        room = reserve(budget, need_of(ask, self.history, more), wrap_up=True)
        if not isinstance(room, Reservation):
            return None if room.passes else room.limit
        if not told:
            budget.wrapping_up = limit
            self.emit(Warned(f"nearly at a limit ({limit.detail}): the model gets one last turn to wrap up"))
            self.say(message)
        return room


def _words(ask: Ask) -> str:
    names = {tool.name for tool in ask.tools}
    return render(
        "agent/wrap_up", proposes="create_pull_request" in names, finishes=names & {"finish", "submit"}
    )


@dataclass(slots=True)
class Sending:
    """A request on its way, and what was set aside for it.

    Attributes:
        asked: the name of the model that has it now.
        is_counted: the attempt that failed last is counted already.
    """

    ask: Ask
    history: History
    room: Reservation
    emit: Emit
    now: Callable[[], datetime]
    asked: str = field(init=False)
    is_counted: bool = False

    def __post_init__(self) -> None:
        self.asked = next_name(self.ask.model)

    async def reply(self) -> Response:
        """Send it, pay for the whole reply, and add that to the conversation.

        Raises:
            ModelError: the provider gave no answer.
            NoRoomError: the budget does not allow another attempt.
        """
        ask, room = self.ask, self.room
        longest = ask.request.max_output_tokens
        if room.is_lowered:
            longest = min(room.reply_tokens, longest or room.reply_tokens)
        said = self.history.latest() if ask.contract.forgets else self.history.conversation()
        request = replace(ask.request, messages=said, max_output_tokens=longest)
        with room:
            room.budget.rounds += 1
            self.emit(TurnStarted(room.budget.rounds, room.worst.tokens, room.worst.usd))
            room.is_sent = True
            response = await (self._in_pieces(request) if ask.stream else self._in_one(request))
            usd = ask.price(response.usage)
            lost_its_count = not response.is_counted and self.history.meter.has_count_of(self.asked)
            room.settle(response.usage, usd, is_known=not lost_its_count)
        room.budget.wrapped_up = room.budget.wrapping_up is not None
        self._keep(response)
        self.emit(ReplyReceived(response.message, response.finish, response.usage, usd, response.model))
        return response

    def _keep(self, response: Response) -> None:
        """Add the reply to the conversation, and learn from it how long that is for the model."""
        turn = Turn(TurnKind.ASSISTANT, response.message, self.now(), response.usage, response.id)
        self.history.add(turn)
        if response.is_counted:
            meter = self.history.meter
            meter.measured(response.usage, self.asked, response.model, self.ask.fixed_bytes)

    async def _in_one(self, request: Request) -> Response:
        response = await self.ask.model.complete(replace(request, on_retry=self._retried))
        self.emit(TextStarted())
        return response

    async def _in_pieces(self, request: Request) -> Response:
        begun = False
        async with aclosing(self.ask.model.stream(request)) as events:
            async for event in events:
                if isinstance(event, Waiting | Relaxed | Switched):
                    self._retried(event)
                    continue
                if not begun:
                    self.emit(TextStarted())
                begun = True
                match event:
                    case TextPiece(text):
                        self._heard(text)
                        self.emit(TextDelta(text))
                    case ReasoningPiece(text):
                        self._heard(text)
                        self.emit(ReasoningDelta(text))
                    case CallPiece(text):
                        self._heard(text)
                    case Restarted():
                        self._restarted()
                        begun = False
                    case Completed(response):
                        return response
        raise ProviderError("the model's stream ended without a reply")

    def _heard(self, text: str) -> None:
        self.is_counted = False
        self.room.heard(text)

    def _retried(self, event: Waiting | Relaxed | Switched) -> None:
        """An attempt failed, and the next one is made after a while, in another form, or elsewhere."""
        if isinstance(event, Relaxed):
            self.emit(Warned(f"{event.error}; asked again {event.how}"))
            return
        if isinstance(event, Waiting):
            self._count(event.error, event.seconds)
            need = self.room.need
        else:
            self._count(event.error)
            self.asked = event.to
            need = need_of(self.ask, self.history, asked=event.to)
        if self.is_counted or need.input_tokens > self.room.need.input_tokens:
            self.room.again(need)

    def _restarted(self) -> None:
        """What was shown of the reply is void. The attempt is counted, if it was not when it failed."""
        if not self.is_counted:
            self._count(None)
            self.room.again()
        self.is_counted = False
        self.emit(Warned("the stream broke; the reply is asked for again"))

    def _count(self, error: ModelError | None, seconds: float | None = None) -> None:
        """Count an attempt that may be billed, and say so where a journal can tell it after a crash."""
        lost = self.room.failed(error)
        self.is_counted = lost is not None
        if lost is not None:
            reason = "the stream broke" if error is None else str(error)
            self.emit(WaitStarted(seconds or 0.0, reason, lost.tokens, lost.usd))
        elif seconds is not None:
            self.emit(WaitStarted(seconds, str(error)))

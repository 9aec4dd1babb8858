"""A session: a conversation that a host program starts, watches, steers and ends."""

from __future__ import annotations

import asyncio
import sys
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from orchestrator.core.checks import check_callable, check_kind, check_methods
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import (
    ConfigurationError,
    ConnectionFailedError,
    ContentFilterError,
    OverloadedError,
    ProviderError,
    RateLimitError,
)
from orchestrator.core.events import ProcessingEnded, SessionEnded, SessionStarted, SessionState, Warned
from orchestrator.core.messages import Message
from orchestrator.engine.models.base import MODEL_METHODS
from orchestrator.engine.profiles.base import Profile
from orchestrator.engine.session.budget import Budget, check_price
from orchestrator.engine.session.compaction import Compaction
from orchestrator.engine.session.config import Host, SessionConfig, SessionParts
from orchestrator.engine.session.context import summary_plus_recent
from orchestrator.engine.session.event_bus import STOP_SECONDS, SessionEventBus, stop
from orchestrator.engine.session.history import INTERRUPTED_RESULT, History, TurnKind, mended_turns
from orchestrator.engine.session.loop import EndKind, Inputs, SessionEnd, input_message
from orchestrator.engine.session.request import NextRequest, RequestTemplate, make_template, usual_contract
from orchestrator.engine.session.subagents import (
    Lineage,
    SubagentLimits,
    Subagents,
    SubagentTask,
    child_parts,
    model_of_child,
    take_over,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable
    from types import TracebackType

    from orchestrator.core.clock import Clock
    from orchestrator.core.events import SessionEvent
    from orchestrator.core.messages import Usage
    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.models.base import Model
    from orchestrator.engine.profiles.base import ReplyPrice
    from orchestrator.engine.session.history import Turn
    from orchestrator.engine.tools.base import Tool


SETTLE_SECONDS = 0.1
"""How long work whose last event was read may take to be over."""

_REASON_CHARS = 500
_PASSING = (RateLimitError, OverloadedError, ConnectionFailedError, ProviderError, ContentFilterError)
"""After these the same session may be asked again; after every other error it is closed."""

_ENVIRONMENT = ("exec_command", "read_file", "write_file", "working_directory")


class Session:
    """One conversation with a model that works in one environment.

    Example::

        session = Session(profile=anthropic_profile(model="claude-sonnet-4-5"), environment=LocalEnvironment(path))
        async for event in session.submit("Fix the failing test in tests/test_api.py"):
            print(event.kind, event.event)
        await session.close()

    Args:
        profile: tools and prompt; `profile.model` is asked unless `model` is given.
        environment: where tools act.
        model: asked in place of the profile's.
        contract: how replies become calls; by default the vendor's function calling, one call a step
            for a profile that wants it so.
        config: limits and settings.
        host: what the program around does for the session.
        clock: time.
        session_id: names the session; a new UUID if it is None.
        lineage: of a subagent: whose it is.
        earlier: the turns that the conversation begins with, such as `history.history_of` gives them; what
            no vendor would take is mended (`history.mended_turns`). What they cost does not count here.

    Attributes:
        price: what a reply of the model cost; may be changed with the model.
        history: the turns so far.
        budget: what was spent, subagents included.

    Raises:
        ConfigurationError: there is no model, or an argument is of another kind.
    """

    def __init__(  # noqa: PLR0913  each by its name
        self,
        *,
        profile: Profile,
        environment: ExecutionEnvironment,
        model: Model | None = None,
        contract: Contract | None = None,
        config: SessionConfig | None = None,
        host: Host | None = None,
        clock: Clock | None = None,
        session_id: str | None = None,
        lineage: Lineage | None = None,
        earlier: Iterable[Turn] = (),
    ) -> None:
        parts = _checked_parts(profile, environment, contract, config, host, clock)
        chosen = profile.model if model is None else model
        if chosen is None:
            raise ConfigurationError(f"profile {profile.name} has no model: pass Session(model=...)")
        self.id = session_id or str(uuid.uuid4())
        self._state = SessionState.IDLE
        self.model = chosen
        self.price: ReplyPrice = parts.host.price or profile.price or _unknown_price
        self._parts, config, host, clock = parts, parts.config, parts.host, parts.clock
        self.history = History(mended_turns(earlier, clock.now()), summary_plus_recent)
        self.budget = Budget(config.limits, clock, lineage.budget if lineage else None, config.wrap_up_share)
        self._events = SessionEventBus(self.id, clock, host.emit)
        if lineage:
            self._events.listen(lineage.forward)
        self._lineage = lineage
        self._asked_models: list[Model] = []
        self._subagents = Subagents(
            self._child, lambda: SubagentLimits.of(self._parts.profile, self._parts.config)
        )
        self._compaction = Compaction(parts, self.history, self.budget, self._events)
        self._inputs = Inputs(
            self.history, self.budget, host, clock, self._events, compaction=self._compaction
        )
        self._inputs.change(config)
        self._template: RequestTemplate | None = None
        self._work: asyncio.Task[SessionEnd] | None = None
        self._end_task: asyncio.Task[None] | None = None
        self._is_environment_begun = self._is_environment_ready = False

    @property
    def state(self) -> SessionState:
        """Where the session is in its life."""
        return self._state

    @property
    def environment(self) -> ExecutionEnvironment:
        """Where tools act."""
        return self._parts.environment

    @property
    def model(self) -> Model:
        """Who is asked. Another one is asked from the next request on; set its `price`, too.

        Raises:
            ConfigurationError: when it is set: it is no object that answers, or the session is closed.
        """
        return self._model

    @model.setter
    def model(self, model: Model) -> None:
        self._check_open()
        check_methods("model", model, MODEL_METHODS, "an object that answers; a name goes into a profile")
        check_kind("the name of the model", getattr(model, "name", None), str, "a text")
        self._model = model

    @property
    def config(self) -> SessionConfig:
        """Limits and settings. Replacing them counts from the next request and the next call on.

        Between two inputs, or while the session is at work::

            session.config = dataclasses.replace(session.config, default_command_timeout_ms=60_000, max_turns=40)

        A cap counts what was spent before it was set, too. `user_instructions` and `max_subagent_depth` are
        fixed once the session has started, because the prompt is made from them.

        Raises:
            ConfigurationError: when it is set: it is no `SessionConfig`, one of those two differs, a cap in USD
                is set for a model whose price is unknown, or the session is closed.
        """
        return self._parts.config

    @config.setter
    def config(self, config: SessionConfig) -> None:
        check_kind(
            "config", config, SessionConfig, "a SessionConfig: use dataclasses.replace(session.config, ...)"
        )
        self._check_open()
        if config.max_usd is not None:
            check_price(Budget(config.limits, self._parts.clock), self.price, self.model.name)
        if self._template:
            self._template.change(config)
        self._inputs.change(config)
        self._parts = replace(self._parts, config=config)

    @property
    def reasoning_effort(self) -> str | None:
        """That of `config`, which setting it replaces."""
        return self.config.reasoning_effort

    @reasoning_effort.setter
    def reasoning_effort(self, effort: str | None) -> None:
        self.config = replace(self.config, reasoning_effort=effort)

    async def submit(self, user: str | Message) -> AsyncGenerator[SessionEvent]:
        """Ask for something; gives the events as they happen, until the session waits for input again.

        Leaving the iteration early stops the work; the session can be asked again.

        Raises:
            ConfigurationError: the session is closed, or at work.
            PullwrightError: the model or the host failed; `ErrorOccurred` came before it. After an
                error that does not pass by itself the session is closed.
        """
        await self._wait_for_left_work()
        work, events = self._begin(user), self._events.open()
        # Of a closed session the last event is `SessionEnded`.
        work.add_done_callback(lambda _: None if self.is_closed else events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            await asyncio.wait([work], timeout=SETTLE_SECONDS)
            if work.done() and not work.cancelled():
                work.result()
        finally:
            self._events.close(events)
            if self._end_task is None:
                await stop(work)

    async def run(self, user: str | Message) -> SessionEnd:
        """Ask for something and wait for the end; the events go to listeners.

        Raises:
            ConfigurationError, PullwrightError: see `submit`.
        """
        await self._wait_for_left_work()
        work = self._begin(user)
        try:
            return await work
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current and current.cancelling():
                raise
            return SessionEnd(EndKind.INTERRUPTED, "the session was closed")

    def steer(self, message: str) -> None:
        """Say something between two rounds; while the session is idle, with the next input.

        Raises:
            ConfigurationError: there are no words in it, or the session is closed.
        """
        self._check_open()
        self._inputs.steer(message)

    def keep_stopped_reply(self, text: str) -> None:
        """Keep what came of a reply that was stopped, as something that the model has said.

        Args:
            text: with a word about that, for the model.

        Raises:
            ConfigurationError: the session is at work, or closed.
        """
        self._check_open()
        if self._state is SessionState.PROCESSING:
            raise ConfigurationError("the session is at work: its reply may still come to its end")
        self._inputs.say(TurnKind.ASSISTANT, Message.assistant(text))

    def follow_up(self, message: str) -> None:
        """Ask for something more, once what was asked before is done.

        Raises:
            ConfigurationError: there are no words in it, or the session is closed.
        """
        self._check_open()
        self._inputs.follow_up(message)

    def listen(self, listener: Callable[[SessionEvent], None]) -> None:
        """Call this with every event from now on, also between inputs. It must not block or raise.

        Raises:
            ConfigurationError: it cannot be called, or the session is closed.
        """
        self._check_open()
        check_callable("listener", listener)
        self._events.listen(listener)

    async def compact(self) -> bool:
        """Put a summary in the place of all but the last reply now, between two inputs; whether it was.

        Raises:
            ConfigurationError: the session is closed, or at work, or has no `compaction`.
        """
        self._check_open()
        if self._state is SessionState.PROCESSING:
            raise ConfigurationError(
                "the session is at work: its conversation is made shorter when it is too long"
            )
        if self.config.compaction is None:
            raise ConfigurationError(
                "the session never makes its conversation shorter: set config.compaction"
            )
        template = self._template = self._template or await self._start()
        return await self._compaction.shorten(self._next_request(template))

    async def abort(self) -> None:
        """Stop everything now: the reply that is coming in, commands, subagents. The session is closed.

        Of a closed session it does nothing more, as `close` does.
        """
        await self._close("aborted", self._work)

    async def close(self) -> None:
        """End the session; what still runs is stopped. A second time waits for the first."""
        await self._close("closed", self._work)

    async def __aenter__(self) -> Self:
        """The session itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    def _begin(self, user: str | Message) -> asyncio.Task[SessionEnd]:
        self._check_open()
        if self._state is SessionState.PROCESSING:
            raise ConfigurationError("the session is at work: use steer() or follow_up()")
        message = input_message(user)
        self._state = SessionState.PROCESSING
        self._work = asyncio.create_task(self._process(message))
        return self._work

    @property
    def is_closed(self) -> bool:
        """Whether it has come to its end: it takes nothing more."""
        return self._state is SessionState.CLOSED

    def _check_open(self) -> None:
        if self.is_closed:
            raise ConfigurationError("the session is closed: make a new one")

    async def _wait_for_left_work(self) -> None:
        """Wait for work that is being stopped because somebody left its events: they may ask anew at once."""
        if self._state is SessionState.PROCESSING and self._work:
            for _ in range(3):  # the event loop closes what was left when it comes to it
                await asyncio.sleep(0)
            if self._work.cancelling():
                await asyncio.wait([self._work], timeout=STOP_SECONDS)

    async def _process(self, message: Message) -> SessionEnd:
        done = False
        try:
            await self._prepare_environment()
            template = self._template = self._template or await self._start()
            end = await self._inputs.work_on(message, template.runner, lambda: self._next_request(template))
            done = True
        except _PASSING as error:
            self._inputs.fail(error)
            self._rest(SessionState.IDLE, str(error))
            raise
        except asyncio.CancelledError:
            self._inputs.interrupt()
            if self._state is SessionState.PROCESSING:
                self._rest(SessionState.IDLE, "interrupted")
            raise
        finally:
            # Whatever else went wrong, in the host's own code too: the session cannot go on.
            if self._state is SessionState.PROCESSING and not done:
                fault = sys.exc_info()[1]
                await self._close(str(fault), error=fault)
        waits = end.kind in {EndKind.AWAITING, EndKind.QUESTION}
        self._rest(SessionState.AWAITING_INPUT if waits else SessionState.IDLE, f"{end.kind}: {end.text}")
        return end

    async def _prepare_environment(self) -> None:
        """Make the environment ready, once, if the session owns it."""
        if self._parts.host.owns_environment and not self._is_environment_ready:
            self._is_environment_begun = True
            await self.environment.initialize()
            self._is_environment_ready = True

    async def _start(self) -> RequestTemplate:
        config, host, profile = self._parts.config, self._parts.host, self._parts.profile
        check_price(self.budget, self.price, self.model.name)
        in_background = profile.subagents_in_background
        deepest = min(config.max_subagent_depth, 1) if in_background else config.max_subagent_depth
        may_spawn = profile.subagents and self._parts.contract.text_ends and self._depth < deepest
        other_models = (host.other_model or profile.other_model) is not None
        tools: tuple[Tool, ...] = ()
        if may_spawn:
            agents = self._subagents
            tools = agents.background_tools() if in_background else agents.tools(other_models=other_models)
        template = await make_template(self._parts, self.model.name, self._events, tools, self.budget)
        self._events(SessionStarted(self.id, template.fixed.system))
        template.runner.tell_todos()
        effort = config.reasoning_effort
        if effort and profile.is_made_for(self.model) and not profile.supports_reasoning:
            self._events(Warned(f"{self.model.name} takes no reasoning effort: {effort!r} is not sent to it"))
        return template

    def _next_request(self, template: RequestTemplate) -> NextRequest:
        """How the next round asks; the models that were asked are closed at the end."""
        is_parents = self._lineage is not None and self.model is self._lineage.model
        if not is_parents and not any(self.model is known for known in self._asked_models):
            self._asked_models.append(self.model)
        return template.next(self.model, self.price, self.config)

    def _rest(self, state: SessionState, reason: str) -> None:
        self._state = state
        self._events(ProcessingEnded(state, " ".join(reason.split())[:_REASON_CHARS]))

    @property
    def _depth(self) -> int:
        return self._lineage.depth if self._lineage else 0

    def _child(self, task: SubagentTask) -> Session:
        parent = self._parts
        model, price = self.model, self.price
        if task.model:
            model, price = model_of_child(parent, task.model, self.budget)
        own = child_parts(parent, task, price, self.reasoning_effort)
        child = Session(
            profile=own.profile,
            environment=own.environment,
            model=model,
            contract=own.contract,
            config=own.config,
            host=own.host,
            clock=own.clock,
            lineage=Lineage(self._depth + 1, self.model, self.budget, self._events.forward),
        )
        child.listen(lambda _event: take_over(parent, own, task))
        return child

    async def _close(
        self, reason: str, work: asyncio.Task[SessionEnd] | None = None, error: BaseException | None = None
    ) -> None:
        """End once, in a task of its own, so that a tool that closes its session does not cut the end short.

        Args:
            work: is stopped; None where it ends by itself.
            error: why the session ends, if something went wrong.
        """
        self._state = SessionState.CLOSED
        if self._end_task is None:
            self._end_task = asyncio.create_task(self._end(reason, work, error))
            await asyncio.shield(self._end_task)
        else:
            await asyncio.wait([self._end_task])  # who began it hears what went wrong

    async def _end(
        self, reason: str, work: asyncio.Task[SessionEnd] | None, error: BaseException | None
    ) -> None:
        """Steps 1 to 8 of Appendix B of the specification; what can be stopped at the same time is."""
        try:
            if error:
                self._inputs.fail(error)
            await asyncio.gather(stop(work), self._subagents.close(), self._compaction.close())
            if work and not work.done():  # a tool does not let itself be stopped
                self._inputs.interrupt()
                self._events.end_calls(INTERRUPTED_RESULT)
            await self._release()
        finally:
            try:
                if self._template:
                    self._events(SessionEnded(reason))
            finally:
                self._events.end()

    async def _release(self) -> None:
        """Clean up the environment and close the models that were asked, also where one of them fails to."""
        try:
            if self._is_environment_begun:
                self._is_environment_begun = False
                await self.environment.cleanup()
        finally:
            while self._asked_models:
                await self._asked_models.pop().aclose()


def _unknown_price(_usage: Usage) -> float | None:
    """Where nobody knows what the model costs."""
    return None


def _checked_parts(  # noqa: PLR0913, PLR0917  the arguments of `Session`
    profile: Profile,
    environment: ExecutionEnvironment,
    contract: Contract | None,
    config: SessionConfig | None,
    host: Host | None,
    clock: Clock | None,
) -> SessionParts:
    """Put the arguments together, with the usual ones for those that are not given."""
    check_kind("profile", profile, Profile, "a Profile, such as openai_profile() makes one")
    check_methods("environment", environment, _ENVIRONMENT, "an environment, such as LocalEnvironment(path)")
    for name, value, kind in (("config", config, SessionConfig), ("host", host, Host)):
        if value is not None:
            check_kind(name, value, kind, f"a {kind.__name__}")
    if contract is not None:
        check_methods("contract", contract, ("shape", "read", "answer"), "a contract, such as Native()")
    return SessionParts(
        profile,
        environment,
        contract or usual_contract(profile),
        config or SessionConfig(),
        host or Host(),
        clock or SystemClock(),
    )

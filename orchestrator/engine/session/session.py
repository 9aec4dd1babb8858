"""A session: one conversation with a model that a host program starts, steers and ends."""

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
from orchestrator.engine.environments.wrappers import ReadOnlyEnvironment
from orchestrator.engine.models.base import MODEL_METHODS
from orchestrator.engine.profiles.base import Profile
from orchestrator.engine.session.budget import Budget, check_price
from orchestrator.engine.session.compaction import Compaction, summary_plus_recent
from orchestrator.engine.session.config import Host, SessionConfig, SessionParts
from orchestrator.engine.session.event_bus import STOP_SECONDS, SessionEventBus, stop
from orchestrator.engine.session.history import (
    INTERRUPTED_RESULT,
    History,
    TurnKind,
    repaired_turns,
    without_names,
)
from orchestrator.engine.session.loop import EndKind, Inputs, SessionEnd, Worker, input_message
from orchestrator.engine.session.request import NextRequest, RequestTemplate, make_template, usual_contract
from orchestrator.engine.session.subagents import (
    SESSION_TOOLS,
    Lineage,
    SubagentLimits,
    Subagents,
    SubagentTask,
    child_parts,
    merge_ledger,
    model_of_child,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable
    from types import TracebackType

    from orchestrator.core.clock import Clock
    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.models.base import Model
    from orchestrator.engine.profiles.base import ReplyPrice
    from orchestrator.engine.session.event_bus import SessionEvent
    from orchestrator.engine.session.history import Turn
    from orchestrator.engine.tools.base import Tool


SETTLE_SECONDS = 0.1
"""Time that the work may take to finish after its last event was read."""

_REASON_CHARS = 500
_TRANSIENT_ERRORS = (
    RateLimitError,
    OverloadedError,
    ConnectionFailedError,
    ProviderError,
    ContentFilterError,
)
"""Transient errors: the session accepts another input after them. Every other error closes the session."""

_ENVIRONMENT = ("exec_command", "read_file", "write_file", "working_directory")


class Session:
    """One conversation with a model that works in one environment.

    Example::

        profile = anthropic_profile(model="claude-sonnet-4-5")
        session = Session(profile=profile, environment=LocalEnvironment(path))
        async for event in session.submit("Fix the failing test in tests/test_api.py"):
            print(event.kind, event.event)
        await session.close()

    Args:
        profile: tools and system prompt; `profile.model` is used unless `model` is given.
        environment: where the tools act.
        model: replaces the profile's model.
        contract: how replies become tool calls. The default is the vendor's function calling, with one call a
            step if the profile does not support parallel calls.
        host: callbacks and shared objects of the host program.
        session_id: the session's name; None creates a UUID.
        lineage: the parent of a subagent's session.
        earlier: turns of an earlier session, such as those from `history.history_of`. Turns that vendors
            would refuse are repaired (`history.repaired_turns`). Their cost does not count against this
            session.
        worker: works on each input in place of the loop, which asks the model; None lets the loop do it.

    Attributes:
        price: computes the cost of a reply; set it when you set another model.
        history: the turns so far.
        budget: the spending so far, subagents included.

    Raises:
        ConfigurationError: there is no model, or an argument has the wrong type. Each method that takes an input raises
            it, too, if a message is empty or the session is closed.
    """

    def __init__(  # noqa: PLR0913  keyword-only
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
        worker: Worker | None = None,
    ) -> None:
        parts = _checked_parts(profile, environment, contract, config, host, clock)
        if worker is not None:
            check_callable("worker", worker)
        chosen = profile.model if model is None else model
        if chosen is None:
            raise ConfigurationError(f"profile {profile.name} has no model: pass Session(model=...)")
        self.id = session_id or str(uuid.uuid4())
        self._state = SessionState.IDLE
        self.model = chosen
        self.price: ReplyPrice = parts.host.price or profile.price or (lambda _usage: None)
        self._parts, config, host, clock = parts, parts.config, parts.host, parts.clock
        shown, hidden = _names(parts)
        known = without_names(earlier, shown, hidden)
        self.history = History(repaired_turns(known, clock.now()), summary_plus_recent)
        self.budget = Budget(config.limits, clock, lineage.budget if lineage else None, config.wrap_up_share)
        self._events = SessionEventBus(self.id, clock, host.emit)
        if lineage:
            self._events.listen(lineage.forward)
        self._lineage, self._depth = lineage, lineage.depth if lineage else 0
        self._asked_models: list[Model] = []
        self._subagents = Subagents(
            self._child, lambda: SubagentLimits.of(self._parts.profile, self._parts.config)
        )
        self._compaction = Compaction(parts, self.history, self.budget, self._events)
        self._inputs = Inputs(
            self.history, self.budget, host, clock, self._events, compaction=self._compaction, worker=worker
        )
        self._inputs.change(config)
        self._template: RequestTemplate | None = None
        self._work: asyncio.Task[SessionEnd] | None = None
        self._end_task: asyncio.Task[None] | None = None
        self._is_environment_begun = self._is_environment_ready = False

    @property
    def state(self) -> SessionState:
        """The state of the session, such as idle or processing."""
        return self._state

    @property
    def environment(self) -> ExecutionEnvironment:
        """The environment in which the tools act. It refuses every change if the profile only reads."""
        return self._parts.environment

    @property
    def model(self) -> Model:
        """The model that answers. A new value takes effect with the next request; set its `price`, too.

        Raises:
            ConfigurationError: when set: the value is not a model, or the session is closed.
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
        """Limits and settings. A new value takes effect with the next request and the next call.

        It may be set between two inputs and while the session is processing one::

            session.config = dataclasses.replace(session.config, default_command_timeout_ms=60_000,
            max_turns=40)

        A cap also counts the spending from before it was set. `user_instructions` and `max_subagent_depth`
        cannot change once the session has started, because the system prompt is built from them.

        Raises:
            ConfigurationError: when set: the value is no `SessionConfig`, one of those two settings differs,
                it caps the cost in USD of a model whose price is unknown, or the session is closed.
        """
        return self._parts.config

    @config.setter
    def config(self, config: SessionConfig) -> None:
        check_kind(
            "config", config, SessionConfig, "a SessionConfig: use dataclasses.replace(session.config, ...)"
        )
        self._check_open()
        config = config.resolved(self._parts.profile.name)
        if config.max_usd is not None:
            check_price(Budget(config.limits, self._parts.clock), self.price, self.model.name)
        if self._template:
            self._template.change(config)
        self._inputs.change(config)
        self._parts = replace(self._parts, config=config)

    @property
    def reasoning_effort(self) -> str | None:
        """The reasoning effort of `config`. Setting it replaces `config`."""
        return self.config.reasoning_effort

    @reasoning_effort.setter
    def reasoning_effort(self, effort: str | None) -> None:
        self.config = replace(self.config, reasoning_effort=effort)

    async def submit(self, user: str | Message) -> AsyncGenerator[SessionEvent]:
        """Send an input, and yield the events as they happen until the session waits for the next input.

        Leaving the iteration early stops the work. The session then accepts another input.

        Raises:
            ConfigurationError: the session is closed or is processing another input.
            PullwrightError: the model or the host failed; `ErrorOccurred` was emitted before. The session is
                closed unless the error is transient.
        """
        await self._wait_for_abandoned_work()
        work, events = self._begin(user), self._events.open()
        # A closed session ends the queue itself, after `SessionEnded`.
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
        """Send an input and wait for the end. Only listeners receive the events.

        Raises:
            ConfigurationError, PullwrightError: see `submit`.
        """
        await self._wait_for_abandoned_work()
        work = self._begin(user)
        try:
            return await work
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current and current.cancelling():
                raise
            return SessionEnd(EndKind.INTERRUPTED, "the session was closed")

    def steer(self, message: str) -> None:
        """Add a user message before the next request. An idle session adds it with the next input."""
        self._check_open()
        self._inputs.steer(message)

    def keep_stopped_reply(self, text: str) -> None:
        """Add the received part of a stopped reply to the conversation as a message of the model.

        Args:
            text: the partial reply, with a note to the model that it was stopped.

        Raises:
            ConfigurationError: the session is processing an input, or is closed.
        """
        self._check_open()
        if self._state is SessionState.PROCESSING:
            raise ConfigurationError("the session is processing an input: wait for the end of its reply")
        self._inputs.add_message(TurnKind.ASSISTANT, Message.assistant(text))

    def follow_up(self, message: str) -> None:
        """Queue another input, to be processed when the current one is done."""
        self._check_open()
        self._inputs.follow_up(message)

    def listen(self, listener: Callable[[SessionEvent], None]) -> None:
        """Call `listener` with every later event, also between inputs. It must not block or raise.

        Raises:
            ConfigurationError: `listener` is not callable, or the session is closed.
        """
        self._check_open()
        check_callable("listener", listener)
        self._events.listen(listener)

    async def compact(self) -> bool:
        """Replace everything before the last reply with a summary; return whether it was done.

        Call it between two inputs.

        Raises:
            ConfigurationError: the session is closed, is processing an input, or has no `compaction`.
        """
        self._check_open()
        if self._state is SessionState.PROCESSING:
            raise ConfigurationError("the session is processing an input: call compact() between two inputs")
        if self.config.compaction is None:
            raise ConfigurationError("the session has no compaction: set config.compaction")
        template = self._template = self._template or await self._start()
        return await self._compaction.shorten(self._next_request(template))

    async def abort(self) -> None:
        """Stop the reply that is streaming, commands and subagents at once, and close the session.

        Do nothing if the session is closed already, as `close` does.
        """
        await self._close("aborted", self._work)

    async def close(self) -> None:
        """End the session and stop what still runs. A second call waits for the first."""
        await self._close("closed", self._work)

    async def __aenter__(self) -> Self:
        """Return the session itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session."""
        await self.close()

    def _begin(self, user: str | Message) -> asyncio.Task[SessionEnd]:
        self._check_open()
        if self._state is SessionState.PROCESSING:
            raise ConfigurationError("the session is processing an input: use steer() or follow_up()")
        message = input_message(user)
        self._state = SessionState.PROCESSING
        self._work = asyncio.create_task(self._process(message))
        return self._work

    @property
    def is_closed(self) -> bool:
        """Whether the session has ended. A closed session accepts nothing more."""
        return self._state is SessionState.CLOSED

    def _check_open(self) -> None:
        if self.is_closed:
            raise ConfigurationError("the session is closed: make a new one")

    async def _wait_for_abandoned_work(self) -> None:
        """Wait for work that is being cancelled because the caller left the events, and may send an input at once."""
        if self._state is SessionState.PROCESSING and self._work:
            for _ in range(3):  # the event loop closes an abandoned generator in a later iteration
                await asyncio.sleep(0)
            if self._work.cancelling():
                await asyncio.wait([self._work], timeout=STOP_SECONDS)

    async def _process(self, message: Message) -> SessionEnd:
        done = False
        try:
            template = self._template = self._template or await self._start()
            end = await self._inputs.process(message, template.runner, lambda: self._next_request(template))
            done = True
        except _TRANSIENT_ERRORS as error:
            self._inputs.fail(error)
            self._finish_processing(SessionState.IDLE, str(error))
            raise
        except asyncio.CancelledError:
            self._inputs.interrupt()
            if self._state is SessionState.PROCESSING:
                self._finish_processing(SessionState.IDLE, "interrupted")
            raise
        finally:
            # After any other error, also one of the host's code, the session cannot go on.
            if self._state is SessionState.PROCESSING and not done:
                fault = sys.exc_info()[1]
                await self._close(str(fault), error=fault)
        waits = end.kind in {EndKind.AWAITING, EndKind.QUESTION}
        self._finish_processing(
            SessionState.AWAITING_INPUT if waits else SessionState.IDLE, f"{end.kind}: {end.text}"
        )
        return end

    async def _start(self) -> RequestTemplate:
        """Initialize the environment, if the session owns it, and build what all requests share."""
        config, host, profile = self._parts.config, self._parts.host, self._parts.profile
        if host.owns_environment and not self._is_environment_ready:
            self._is_environment_begun = True
            await self.environment.initialize()
            self._is_environment_ready = True
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
        template.runner.emit_todos()
        effort = config.reasoning_effort
        if effort and profile.is_made_for(self.model) and not profile.supports_reasoning:
            self._events(Warned(f"{self.model.name} takes no reasoning effort: {effort!r} is not sent to it"))
        return template

    def _next_request(self, template: RequestTemplate) -> NextRequest:
        """Return the next request, and note its model so that it is closed with the session."""
        is_parents = self._lineage is not None and self.model is self._lineage.model
        if not is_parents and not any(self.model is known for known in self._asked_models):
            self._asked_models.append(self.model)
        return template.next(self.model, self.price, self.config)

    def _finish_processing(self, state: SessionState, reason: str) -> None:
        self._state = state
        self._events(ProcessingEnded(state, " ".join(reason.split())[:_REASON_CHARS]))

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
        child.listen(lambda _event: merge_ledger(parent, own, task))
        return child

    async def _close(
        self, reason: str, work: asyncio.Task[SessionEnd] | None = None, error: BaseException | None = None
    ) -> None:
        """End the session once, in a task of its own, so that a tool may close its own session.

        A tool that closes its session is cancelled by the end, which must not be cancelled with it.

        Args:
            work: the task to stop; None if it ends by itself.
            error: the error that ends the session, if there is one.
        """
        self._state = SessionState.CLOSED
        if self._end_task is None:
            self._end_task = asyncio.create_task(self._end(reason, work, error))
            await asyncio.shield(self._end_task)
        else:
            await asyncio.wait([self._end_task])  # only the first caller gets its error

    async def _end(
        self, reason: str, work: asyncio.Task[SessionEnd] | None, error: BaseException | None
    ) -> None:
        """Run steps 1 to 8 of Appendix B of the specification; stop concurrently whatever can be stopped."""
        try:
            if error:
                self._inputs.fail(error)
            await asyncio.gather(stop(work), self._subagents.close(), self._compaction.close())
            if work and not work.done():  # a tool ignores the cancellation
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
        """Clean up the environment and close the models that were used, even if one of these steps fails."""
        try:
            if self._is_environment_begun:
                self._is_environment_begun = False
                await self.environment.cleanup()
        finally:
            while self._asked_models:
                await self._asked_models.pop().aclose()


def _names(parts: SessionParts) -> tuple[set[str], set[str]]:
    """Return the names of the tools of a profile that the model is shown, and those of the others."""
    shown = {tool.name for tool in parts.profile.tools if parts.shows(tool)}
    return shown | SESSION_TOOLS, {*parts.profile.tools.names()} - shown


def _checked_parts(  # noqa: PLR0913, PLR0917  the arguments of `Session`
    profile: Profile,
    environment: ExecutionEnvironment,
    contract: Contract | None,
    config: SessionConfig | None,
    host: Host | None,
    clock: Clock | None,
) -> SessionParts:
    """Check the arguments of `Session` and fill in the defaults."""
    check_kind("profile", profile, Profile, "a Profile, such as openai_profile() makes one")
    check_methods("environment", environment, _ENVIRONMENT, "an environment, such as LocalEnvironment(path)")
    for name, value, kind in (("config", config, SessionConfig), ("host", host, Host)):
        if value is not None:
            check_kind(name, value, kind, f"a {kind.__name__}")
    if contract is not None:
        check_methods("contract", contract, ("shape", "read", "answer"), "a contract, such as Native()")
    return SessionParts(
        profile,
        ReadOnlyEnvironment(environment, allow_commands=True) if profile.only_reads else environment,
        contract or usual_contract(profile),
        (config or SessionConfig()).resolved(profile.name),
        host or Host(),
        clock or SystemClock(),
    )

"""A session: a conversation that a host program starts, watches, steers and ends."""

from __future__ import annotations

import asyncio
import sys
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from orchestrator.core.checks import check_callable, check_kind, check_methods
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.events import ProcessingEnded, SessionStarted, SessionState, Warned
from orchestrator.engine.models.base import MODEL_METHODS
from orchestrator.engine.profiles.base import Profile
from orchestrator.engine.session.children import child_setting, model_of_child, take_over
from orchestrator.engine.session.config import Host, SessionConfig
from orchestrator.engine.session.dialogue import Dialogue, hooks_of
from orchestrator.engine.session.earlier import sound
from orchestrator.engine.session.ending import PASSING, Ending
from orchestrator.engine.session.history import History
from orchestrator.engine.session.holdings import Holdings
from orchestrator.engine.session.inbox import Inbox, words_of
from orchestrator.engine.session.limits import Budget, check_price
from orchestrator.engine.session.loop import EndKind, SessionEnd
from orchestrator.engine.session.stream import STOP_SECONDS, EventStream, stop
from orchestrator.engine.session.subagents import Lineage, Subagents, Wish
from orchestrator.engine.session.talk import Setting, begin, unknown_price, usual_contract

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable
    from types import TracebackType

    from orchestrator.core.clock import Clock
    from orchestrator.core.events import SessionEvent
    from orchestrator.core.messages import Message
    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.models.base import Model
    from orchestrator.engine.profiles.base import Price
    from orchestrator.engine.session.ask import Ask
    from orchestrator.engine.session.history import Turn
    from orchestrator.engine.session.stream import Reader
    from orchestrator.engine.session.talk import Talk

SETTLE_SECONDS = 0.1
"""How long work whose last event was read may take to be over."""

_REASON_CHARS = 500
_ENVIRONMENT = ("exec_command", "read_file", "write_file", "working_directory")


class Session:
    """One conversation with a model that works in one environment.

    Example::

        session = Session(profile=anthropic_profile(model="claude-sonnet-4-5"), environment=LocalEnvironment(path))
        async for event in session.submit("Fix the failing test in tests/test_api.py"):
            print(event.kind, event.event)
        await session.close()

    Args:
        profile: tools and words; `profile.model` is asked unless `model` is given.
        environment: where tools act.
        model: asked in place of the profile's.
        contract: how replies become calls; by default the vendor's function calling, one call a step
            for a profile that wants it so.
        config: limits and settings.
        host: what the program around does for the session.
        clock: time.
        session_id: names the session; a new UUID if it is None.
        lineage: of a subagent: whose it is.
        earlier: the turns that the conversation begins with, such as `earlier.history_of` gives them; what
            no vendor would take is mended (`earlier.sound`). What they cost does not count here.

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
        check_kind("profile", profile, Profile, "a Profile, such as openai_profile() makes one")
        check_methods(
            "environment", environment, _ENVIRONMENT, "an environment, such as LocalEnvironment(path)"
        )
        chosen = profile.model if model is None else model
        if chosen is None:
            raise ConfigurationError(f"profile {profile.name} has no model: pass Session(model=...)")
        for name, value, kind in (("config", config, SessionConfig), ("host", host, Host)):
            if value is not None:
                check_kind(name, value, kind, f"a {kind.__name__}")
        if contract is not None:
            check_methods("contract", contract, ("shape", "read", "answer"), "a contract, such as Native()")
        self.id = session_id or str(uuid.uuid4())
        self._state = SessionState.IDLE
        self.model = chosen
        self.price: Price = (host and host.price) or profile.price or unknown_price
        self._setting = Setting(
            profile,
            environment,
            contract or usual_contract(profile),
            config or SessionConfig(),
            host or Host(),
            clock or SystemClock(),
        )
        config, host, clock = self._setting.config, self._setting.host, self._setting.clock
        self.history = History(sound(earlier, clock.now()))
        self.budget = Budget(config.limits, clock, lineage.budget if lineage else None, config.wrap_up_share)
        self._events = EventStream(self.id, clock, host.emit)
        if lineage:
            self._events.listen(lineage.relay)
        self._depth = lineage.depth if lineage else 0
        self._holdings = Holdings(
            environment, owns_environment=host.owns_environment, kept=lineage.model if lineage else None
        )
        self._subagents = Subagents(self._child)
        self._inbox = Inbox()
        self._talk: Talk | None = None
        self._work: asyncio.Task[SessionEnd] | None = None
        self._dialogue = Dialogue(
            self.history,
            self.budget,
            self._inbox,
            hooks_of(self._setting, self._inbox),
            self._setting,
            self._events,
        )
        self._ending = Ending(self._dialogue, self._subagents, self._holdings, self._events)

    @property
    def state(self) -> SessionState:
        """Where the session is in its life."""
        return self._state

    @property
    def environment(self) -> ExecutionEnvironment:
        """Where tools act."""
        return self._setting.environment

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
        return self._setting.config

    @config.setter
    def config(self, config: SessionConfig) -> None:
        check_kind(
            "config", config, SessionConfig, "a SessionConfig: use dataclasses.replace(session.config, ...)"
        )
        self._check_open()
        if config.max_usd is not None:
            check_price(Budget(config.limits, self._setting.clock), self.price, self.model.name)
        if self._talk:
            self._talk.change(config)
        self._dialogue.change(config)
        self._setting = replace(self._setting, config=config)

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
        await self._left_behind()
        work, reader = self._begin(user), self._events.open()
        work.add_done_callback(lambda _: self._after(reader))
        try:
            async for event in reader:
                yield event
            await asyncio.wait([work], timeout=SETTLE_SECONDS)
            if work.done() and not work.cancelled():
                work.result()
        finally:
            reader.close()
            if not self._ending.is_begun:
                await stop(work)

    async def run(self, user: str | Message) -> SessionEnd:
        """Ask for something and wait for the end; the events go to listeners.

        Raises:
            ConfigurationError, PullwrightError: see `submit`.
        """
        await self._left_behind()
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
        self._inbox.steer(message)

    def follow_up(self, message: str) -> None:
        """Ask for something more, once what was asked before is done.

        Raises:
            ConfigurationError: there are no words in it, or the session is closed.
        """
        self._check_open()
        self._inbox.follow_up(message)

    def listen(self, listener: Callable[[SessionEvent], None]) -> None:
        """Call this with every event from now on, also between inputs. It must not block or raise.

        Raises:
            ConfigurationError: it cannot be called, or the session is closed.
        """
        self._check_open()
        check_callable("listener", listener)
        self._events.listen(listener)

    async def abort(self) -> None:
        """Stop everything now: the reply that is coming in, commands, subagents. The session is closed.

        Of a closed session it does nothing more, as `close` does.
        """
        await self._close("aborted")

    async def close(self) -> None:
        """End the session; what still runs is stopped. A second time waits for the first."""
        await self._close("closed")

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
        message = words_of(user)
        self._state = SessionState.PROCESSING
        self._work = asyncio.create_task(self._process(message))
        return self._work

    def _check_open(self) -> None:
        if self._state is SessionState.CLOSED:
            raise ConfigurationError("the session is closed: make a new one")

    async def _left_behind(self) -> None:
        """Wait for work that is being stopped because somebody left its events: they may ask anew at once."""
        if self._state is SessionState.PROCESSING and self._work:
            for _ in range(3):  # the event loop closes what was left when it comes to it
                await asyncio.sleep(0)
            if self._work.cancelling():
                await asyncio.wait([self._work], timeout=STOP_SECONDS)

    def _after(self, reader: Reader) -> None:
        """End a stream with the work that it shows; that of a closed session ends with `SessionEnded`."""
        if self._state is not SessionState.CLOSED:
            reader.end()

    async def _process(self, message: Message) -> SessionEnd:
        done = False
        try:
            await self._holdings.open()
            talk = self._talk = self._talk or await self._start()
            end = await self._dialogue.work_on(message, talk, lambda: self._ask(talk))
            done = True
        except PASSING as error:
            self._dialogue.tell(error)
            self._rest(SessionState.IDLE, str(error))
            raise
        except asyncio.CancelledError:
            self._dialogue.interrupt()
            if self._state is SessionState.PROCESSING:
                self._rest(SessionState.IDLE, "interrupted")
            raise
        finally:
            # Whatever else went wrong, in the host's own code too: the session cannot go on.
            if self._state is SessionState.PROCESSING and not done:
                fault = sys.exc_info()[1]
                await self._close(str(fault), work_ends=True, error=fault)
        waits = end.kind in {EndKind.AWAITING, EndKind.QUESTION}
        self._rest(SessionState.AWAITING_INPUT if waits else SessionState.IDLE, f"{end.kind}: {end.text}")
        return end

    async def _start(self) -> Talk:
        setting = self._setting
        check_price(self.budget, self.price, self.model.name)
        may_spawn = (
            setting.profile.subagents
            and setting.contract.text_ends
            and self._depth < setting.config.max_subagent_depth
        )
        other_models = (setting.host.other_model or setting.profile.other_model) is not None
        tools = self._subagents.tools(other_models=other_models) if may_spawn else ()
        talk = await begin(setting, self.model.name, self._events, tools, self.budget)
        self._events(SessionStarted(self.id, talk.system))
        effort, profile = setting.config.reasoning_effort, setting.profile
        if effort and profile.is_made_for(self.model) and not profile.supports_reasoning:
            self._events(Warned(f"{self.model.name} takes no reasoning effort: {effort!r} is not sent to it"))
        self._ending.is_heard = True
        return talk

    def _ask(self, talk: Talk) -> Ask:
        """How the next round asks; the models that were asked are let go of at the end."""
        self._holdings.note(self.model)
        return talk.ask(self.model, self.price, self.config)

    def _rest(self, state: SessionState, reason: str) -> None:
        self._state = state
        self._events(ProcessingEnded(state, " ".join(reason.split())[:_REASON_CHARS]))

    def _child(self, wish: Wish) -> Session:
        parent = self._setting
        model, price = self.model, self.price
        if wish.model:
            model, price = model_of_child(parent, wish.model, self.budget)
        own = child_setting(parent, wish, price, self.reasoning_effort)
        child = Session(
            profile=own.profile,
            environment=own.environment,
            model=model,
            contract=own.contract,
            config=own.config,
            host=own.host,
            clock=own.clock,
            lineage=Lineage(self._depth + 1, self.model, self.budget, self._events.relay),
        )
        child.listen(lambda _event: take_over(parent, own, wish))
        return child

    async def _close(
        self, reason: str, *, work_ends: bool = False, error: BaseException | None = None
    ) -> None:
        self._state = SessionState.CLOSED
        await self._ending.reach(reason, None if work_ends else self._work, error)

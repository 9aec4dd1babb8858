"""Makes spans from the program's events, and sends them. Only `variables` imports this module, when traces are asked for.

Names follow OpenTelemetry's semantic conventions for generative AI, version 1.41.1:
https://github.com/open-telemetry/semantic-conventions/tree/v1.41.1/docs/gen-ai
Attributes that the conventions do not define begin with `pullwright.`. A span contains numbers, names that
this program defines, and the names of models, servers and repositories. It contains no path, and no text of a
person, a model or a tool. OpenTelemetry's API raises no errors at run time:
https://opentelemetry.io/docs/specs/otel/error-handling/
"""

from __future__ import annotations

import logging
import re
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakSet

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

from orchestrator.app.terminal import known_secrets
from orchestrator.app.words import short_line
from orchestrator.bot.suggestions import PROGRAM
from orchestrator.core.addresses import SCHEME_PORTS
from orchestrator.core.cycle_events import (
    CycleEnded,
    CycleStarted,
    PhaseEntered,
    Proposed,
    Resumed,
    TaskTaken,
)
from orchestrator.core.events import (
    EMBEDDING_AGENT,
    SUMMARY_AGENT,
    CallStatus,
    ErrorOccurred,
    ForeignToolsOffered,
    Guarded,
    InputReceived,
    LimitReached,
    ProcessingEnded,
    ReasoningDelta,
    ReplyReceived,
    SessionEnded,
    SubagentEvent,
    TextDelta,
    ToolCallEnded,
    ToolCallStarted,
    ToolOutputDelta,
    TurnStarted,
    WaitStarted,
    Warned,
)
from orchestrator.core.prompts import prompts_folder
from orchestrator.core.repositories import OWNER_AND_NAME, repository_key
from orchestrator.core.version import __version__
from orchestrator.engine.models.catalog import OFFICIAL_URLS, Provider, provider_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Span

    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Event

CLOSE_SECONDS = 5.0
"""Time that the end of the program waits for the collector to accept the last spans."""

_SCHEMA = "https://opentelemetry.io/schemas/1.41.1"
_OTHER = "_OTHER"
"""The conventions' value for something without a name of its own."""

_SAFE = re.compile(r"[A-Za-z0-9_./:@+-]{1,128}")
_PATH_STARTS = ("/", "~", ".")
_PROVIDERS = {
    Provider.OPENAI: "openai",
    Provider.OPENAI_CHAT: "openai",
    Provider.OPENAI_RESPONSES: "openai",
    Provider.ANTHROPIC: "anthropic",
    Provider.GEMINI: "gcp.gemini",
}
"""The conventions' names of providers. They describe the protocol, whoever serves the model."""

_SYSTEM_ERROR = re.compile(r"\[Errno -?\d+\] ([A-Za-z ]+)")
_SPAWNING = frozenset({"spawn_agent", "subagent"})
_SPAWNED = re.compile(r"(?:agent_id: |\{\"subagent_id\": \")([0-9a-f-]{36})")
"""The beginning of these tools' outputs: the id of the started session."""
_PIECES = (TextDelta, ReasoningDelta, ToolOutputDelta)
_UNKEPT = "found"
"""The outcome of a search that only finds a task for another cycle.

The search leaves no journal and no span.
"""


class Tracing:
    """Sends the spans of this process. It sets no global provider, so spans of other libraries are not sent.

    Args:
        collector: the collector's name in messages.
        environ: its secrets are kept out of spans.
        tell: shows a person one line. It is called at the start, at the end, or in a thread that emits an event.

    Raises:
        ValueError, RuntimeError: a variable of OpenTelemetry has an invalid value.
    """

    def __init__(
        self, collector: str, environ: Mapping[str, str], clock: Clock, tell: Callable[[str], None]
    ) -> None:
        self._collector, self._clock, self._tell = collector, clock, tell
        self._redactor = known_secrets(environ)
        self._lock = threading.Lock()
        self._problem, self._is_told = "", False
        self._followed: WeakSet[CycleSpans] = WeakSet()
        self.own_tools = frozenset(_own_tools())
        self._log = _LibraryLog()
        try:
            self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
            self._exporter = _WatchedExporter(OTLPSpanExporter(), self._lost)
            self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        except BaseException:
            self._log.close()
            raise
        if self._log.first:
            tell(f"OpenTelemetry: {short_line(self._redactor.redact(self._log.first))}")
        self.tracer = self._provider.get_tracer(PROGRAM, __version__, _SCHEMA)

    def follow(self, api_url: str) -> CycleSpans:
        """Return a listener for the events of one `EventBus`.

        Args:
            api_url: the address of the model's server; empty if there is none.
        """
        spans = CycleSpans(self, api_url)
        with self._lock:
            self._followed.add(spans)
        return spans

    def now(self) -> int:
        """Return the time in nanoseconds."""
        return int(self._clock.now().timestamp() * 1_000_000) * 1_000

    def word(self, text: str) -> str:
        """Return a name unchanged; `_OTHER` if the text does not look like a name, or contains a secret."""
        # A server of one's own may name a model by its file.
        if text.startswith(_PATH_STARTS) or "//" in text:
            text = text.rpartition("/")[2]
        return text if _SAFE.fullmatch(text) and not self._redactor.holds_secret(text) else _OTHER

    def tell_problem(self) -> None:
        """Tell the person once that the collector did not accept spans, if so."""
        if not self._problem:
            return
        with self._lock:
            is_first, self._is_told = not self._is_told, True
        if is_first:
            self._tell(
                f"traces do not reach {self._collector}, and the work goes on without them: {self._problem}"
            )

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """End all open spans, and send the remaining spans within this time."""
        for spans in list(self._followed):
            spans.end()
        # The provider's own limit is 30 s, and its exporter may take as long again.
        sending = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        sending.start()
        sending.join(seconds)
        if sending.is_alive():
            self._lost(f"no answer within {seconds:g} seconds")
            self._exporter.shutdown()  # no more retries; the library may still write to its log
        else:
            self._log.close()
        self.tell_problem()

    def _lost(self, otherwise: str = "it does not take them") -> None:
        """Record why spans were lost. The exporter's thread calls this too.

        Args:
            otherwise: the reason, if the library's log has none.
        """
        self._problem = self._problem or self._log.reason or otherwise


class _LibraryLog(logging.Handler):
    """Receives the log messages of OpenTelemetry's library, which would otherwise go to standard error.

    Attributes:
        first: the first message.
        reason: why spans were not accepted. The library's own words contain the address, which may be secret.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first = self.reason = ""
        self._logger = logging.getLogger("opentelemetry")
        self._propagated, self._logger.propagate = self._logger.propagate, False
        self._logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Receive a message."""
        self.first = self.first or record.getMessage()
        for value in record.args if isinstance(record.args, tuple) else ():
            if isinstance(value, int):
                self.reason = f"it answers with status {value}"
                break
            if isinstance(value, Exception):
                found = _SYSTEM_ERROR.search(str(value))
                self.reason = found[1].lower() if found else type(value).__name__

    def close(self) -> None:
        """Stop receiving messages."""
        self._logger.removeHandler(self)
        self._logger.propagate = self._propagated
        super().close()


class _WatchedExporter(SpanExporter):
    """An exporter that reports when the collector did not accept spans."""

    def __init__(self, exporter: SpanExporter, lost: Callable[[], None]) -> None:
        self._exporter, self._lost = exporter, lost

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans."""
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self._lost()
        return result

    def shutdown(self) -> None:
        """Stop sending."""
        self._exporter.shutdown()


def _resource() -> Resource:
    """Return the attributes of this process from the standard variables, with our name by default."""
    resource = Resource.create({SERVICE_VERSION: __version__})
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: PROGRAM}))
    return resource


def _own_tools() -> set[str]:
    """Return the names of this program's tools. Each has a prompt file with its name, or with that of a variant."""
    return {path.stem for path in (prompts_folder() / "tools").rglob("*.md")} | {"apply_patch"}


class CycleSpans:
    """An `Emit` that makes spans from the events of consecutive cycles or conversations.

    Each cycle is one trace. In a conversation each reply is one trace, because the conversation may take days.
    """

    def __init__(self, tracing: Tracing, api_url: str) -> None:
        self.tracing, self._api_url = tracing, api_url
        self._names: dict[str, dict[str, Any]] = {}
        self._foreign_tools: set[str] = set()
        self._first_provider: Provider | None = None
        self._root: Span | None = None
        self.model = self.run = ""
        self.spawning: Span | None = None
        self.spawned: dict[str, Span] = {}
        self._main = _SessionSpans(self, None)

    def __call__(self, event: Event) -> None:
        """Process an event."""
        if isinstance(event, _PIECES):
            return
        match event:
            case CycleStarted():
                self._begin(event)
            case CycleEnded(result):
                self._finish(result)
            case PhaseEntered(phase) if self._root is not None:
                self._root.add_event("phase", {"pullwright.phase": phase.value}, self.tracing.now())
            case TaskTaken(key=key):
                self._set("pullwright.task", self.tracing.word(key))
            case Resumed(run=run):
                self._set("pullwright.resumed_from", self.tracing.word(run))
            case Proposed(number=number):
                self._set("vcs.change.id", str(number))
            case ForeignToolsOffered(tools=tools):
                self._foreign_tools.update(tool.name for tool in tools)
            case _:
                self._main.take(event)
        self.tracing.tell_problem()

    def end(self) -> None:
        """End all open spans, because the program ends."""
        self._main.close(everything=True)
        if self._root is not None:
            self.stop(self._root, "cancelled")
            self._root = None

    def start(
        self,
        name: str,
        parent: Span | None,
        attributes: Mapping[str, Any],
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        at: int | None = None,
    ) -> Span:
        """Start a span. Without a parent it starts a trace."""
        around = Context() if parent is None else set_span_in_context(parent, Context())
        return self.tracing.tracer.start_span(
            name, around, kind, attributes, start_time=at or self.tracing.now()
        )

    def stop(self, span: Span, error: str = "", *, at: int | None = None) -> None:
        """End a span. `error` is the kind of error, if any."""
        if error:
            span.set_attribute("error.type", error)
            span.set_status(StatusCode.ERROR)
        span.end(at or self.tracing.now())

    def invocation(self, agent: str, parent: Span | None) -> Span:
        """Start the span for an agent's work on one input, or on a whole cycle.

        Args:
            agent: the id of a subagent; empty for the program itself.
        """
        name = "subagent" if agent else PROGRAM
        own = (
            {"gen_ai.agent.id": self.tracing.word(agent)} if agent else {"gen_ai.agent.version": __version__}
        )
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": name,
            "gen_ai.conversation.id": self.run,
            **own,
            **self.asked("" if agent else self.model),
        }
        return self.start(f"invoke_agent {name}", parent, attributes)

    def asked(self, model: str) -> dict[str, Any]:
        """Return the attributes for a model, its provider and its server."""
        found = self._names.get(model)
        if found is None:
            found = self._names[model] = self._asked(model)
        return found

    def tool(self, name: str) -> str:
        """Return the name of a tool; `_OTHER` if there is no such tool, because a model can write anything there."""
        if name in self.tracing.own_tools:
            return name
        return self.tracing.word(name) if name in self._foreign_tools else _OTHER

    def _begin(self, event: CycleStarted) -> None:
        self.end()
        self.run, self.model = self.tracing.word(event.run), event.model
        self._first_provider = provider_in(event.model)
        self._names.clear()
        self.spawning = None
        self.spawned.clear()
        talks = event.door in {"chat", "ask"}
        self._root = None if talks else self.invocation("", None)
        self._main = _SessionSpans(self, self._root)
        host, _, name = repository_key(event.repository).partition("/")
        place = self.tracing.word(f"{host}/{name}")
        if self._root and host and OWNER_AND_NAME.fullmatch(name) and place != _OTHER:
            self._root.set_attribute("vcs.repository.url.full", f"https://{place}")
        if event.contract:
            self._set("pullwright.contract", self.tracing.word(event.contract))

    def _finish(self, result: Mapping[str, Any]) -> None:
        error = self._main.error
        self._main.close(everything=True)
        root, self._root = self._root, None
        outcome = str(result.get("outcome", _OTHER))
        if root is None or outcome == _UNKEPT:
            return
        root.set_attribute("pullwright.outcome", self.tracing.word(outcome))
        for key in ("rounds", "usd"):
            if isinstance(value := result.get(key), int | float):
                root.set_attribute(f"pullwright.{key}", value)
        self.stop(root, (error or _OTHER) if outcome == "failed" else "")

    def _set(self, key: str, value: str) -> None:
        if self._root is not None:
            self._root.set_attribute(key, value)

    def _asked(self, model: str) -> dict[str, Any]:
        provider = provider_in(model or self.model)
        known = _PROVIDERS.get(provider, provider.value) if provider else PROGRAM
        found: dict[str, Any] = {"gen_ai.provider.name": known}
        if model:
            name = model.partition(":")[2] if provider else model
            found["gen_ai.request.model"] = self.tracing.word(name)
        if self._api_url and provider:
            first = provider is self._first_provider
            parts = urlsplit(self._api_url if first else OFFICIAL_URLS.get(provider, ""))
            if parts.hostname:
                found["server.address"] = self.tracing.word(parts.hostname)
                found["server.port"] = parts.port or SCHEME_PORTS.get(parts.scheme, 0)
        return found


@dataclass(slots=True)
class _SessionSpans:
    """The spans of one session: one invocation per input, with rounds that contain requests and calls.

    Attributes:
        cycle: the cycle or conversation that the session belongs to.
        whole: the cycle's span, which replaces the invocations and ends with the cycle; None in a conversation.
        above: returns the parent of an invocation.
        agent: the id of the subagent; empty for the main session.
        is_beside: its requests are not part of the conversation, such as those for a summary. They have no round.
        error: the kind of the last error.
    """

    cycle: CycleSpans
    whole: Span | None
    above: Callable[[], Span | None] = lambda: None
    agent: str = ""
    is_beside: bool = False
    error: str = ""
    _invocation: Span | None = None
    _round: Span | None = None
    _request: Span | None = None
    _calls: list[tuple[str, Span]] = field(default_factory=list)
    _children: dict[str, _SessionSpans] = field(default_factory=dict)
    _last: int = 0

    @property
    def current(self) -> Span | None:
        """The parent of the next span."""
        return self._round or self._invocation or self.whole or self.above()

    def take(self, event: Event) -> None:  # noqa: C901, PLR0912  one case an event
        """Process an event of the session."""
        match event:
            case SubagentEvent(agent, inner):
                self._take_of(agent, inner)
            case InputReceived() if self.whole is None and not self.is_beside:
                self._end_invocation()
                self._invocation = self.cycle.invocation(self.agent, self.current)
            case TurnStarted():
                self._begin_round(event)
            case ReplyReceived():
                self._replied(event)
            case WaitStarted(seconds=seconds):
                if self._request is not None:
                    self._request.add_event(
                        "retry", {"pullwright.wait_seconds": seconds}, self.cycle.tracing.now()
                    )
            case ToolCallStarted(call_id, name):
                self._begin_call(call_id, name)
            case ToolCallEnded():
                self._end_call(event)
            case ErrorOccurred(kind):
                self.error = self.cycle.tracing.word(kind)
                self._end_request(self.error)
            case Guarded(defence=defence):
                self._note("guarded", {"pullwright.defence": defence.value})
            case LimitReached(limit=limit):
                self._note("limit", {"pullwright.limit": self.cycle.tracing.word(limit)})
            case Warned():
                # No other event reports that a summary failed.
                if summary := self._children.get(SUMMARY_AGENT):
                    summary._end_request(_OTHER)  # noqa: SLF001  of the same class
            case ProcessingEnded() | SessionEnded():
                self.close()
            case _:
                pass

    def close(self, *, everything: bool = False) -> None:
        """End the open spans of the input, and with `everything` those of the sessions that this one started."""
        if everything:
            for child in self._children.values():
                child.close(everything=True)
            self._children.clear()
        self._end_request("cancelled")
        for _, span in self._calls:
            self.cycle.stop(span, CallStatus.INTERRUPTED.value)
        self._calls.clear()
        self._end_round()
        self._end_invocation()

    def _take_of(self, agent: str, event: Event) -> None:
        """Process an event of a session that this one started."""
        child = self._children.get(agent)
        if child is None:
            is_beside = agent in {SUMMARY_AGENT, EMBEDDING_AGENT}
            # Events of a subagent's subagent come here, too, and do not say who started it. The call does.
            call = None if is_beside else self.cycle.spawned.pop(agent, self.cycle.spawning)
            child = _SessionSpans(self.cycle, None, lambda: call or self.current, agent, is_beside)
            self._children[agent] = child
        child.take(event)
        if isinstance(event, SessionEnded):
            child.close(everything=True)
            del self._children[agent]

    def _begin_round(self, event: TurnStarted) -> None:
        self._end_request(_OTHER)
        self._end_round()
        if not self.is_beside:
            self._round = self.cycle.start("round", self.current, {"pullwright.round": event.round})
        self._request = self._start_request("chat", event.model, {"gen_ai.conversation.id": self.cycle.run})
        if self.is_beside:
            self._request.set_attribute("pullwright.purpose", self.agent)

    def _start_request(self, operation: str, model: str, more: Mapping[str, str]) -> Span:
        asked = self.cycle.asked(model)
        name = f"{operation} {asked.get('gen_ai.request.model', '')}".rstrip()
        attributes = {"gen_ai.operation.name": operation, **more, **asked}
        return self.cycle.start(name, self.current, attributes, kind=SpanKind.CLIENT)

    def _replied(self, event: ReplyReceived) -> None:
        if self._request is None:
            if self.agent != EMBEDDING_AGENT:
                return
            # Told once it is over, so the span has no length.
            self._request = self._start_request("embeddings", event.model, {})
        usage = event.usage
        found: dict[str, Any] = {
            "gen_ai.response.model": self.cycle.tracing.word(event.model),
            "gen_ai.response.finish_reasons": (event.finish.value,),
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
        }
        counted = {
            "gen_ai.usage.cache_read.input_tokens": usage.cached_input_tokens,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
            "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
            "pullwright.usd": event.usd,
        }
        found |= {key: value for key, value in counted.items() if value}
        self._request.set_attributes(found)
        self._end_request()

    def _end_request(self, error: str = "") -> None:
        if self._request is not None:
            self._last = self.cycle.tracing.now()
            self.cycle.stop(self._request, error, at=self._last)
            self._request = None

    def _begin_call(self, call_id: str, name: str) -> None:
        shown = self.cycle.tool(name)
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": shown,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": self.cycle.tracing.word(call_id),
        }
        span = self.cycle.start(f"execute_tool {shown}", self.current, attributes)
        self._calls.append((call_id, span))
        if name in _SPAWNING:
            self.cycle.spawning = span

    def _end_call(self, event: ToolCallEnded) -> None:
        found = next((call for call in self._calls if call[0] == event.call_id), None)
        if found is None:
            return
        self._calls.remove(found)
        self._last = self.cycle.tracing.now()
        if event.name in _SPAWNING and (spawned := _SPAWNED.match(event.output)):
            self.cycle.spawned[spawned[1]] = found[1]
        self.cycle.stop(found[1], "" if event.status is CallStatus.OK else event.status.value, at=self._last)

    def _end_round(self) -> None:
        """End the round at the time of its last activity; later events do not belong to it."""
        if self._round is not None:
            self.cycle.stop(self._round, at=self._last or None)
            self._round = None

    def _end_invocation(self) -> None:
        if self._invocation is not None:
            self.cycle.stop(self._invocation, self.error)
            self._invocation, self.error = None, ""

    def _note(self, name: str, attributes: Mapping[str, str]) -> None:
        span = self.current
        if span is not None:
            span.add_event(name, attributes, self.cycle.tracing.now())

"""Shows a run while it goes on: what is done scrolls by, what is being done stays at the bottom."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Protocol, Self

from rich.console import Group
from rich.text import Text

from orchestrator.app.words import (
    EventLine,
    Narrator,
    amounts,
    clean,
    counted,
    duration,
    environment_redactor,
    money,
    seconds_in_words,
    short_line,
    telling_argument,
    todos_in_words,
)
from orchestrator.core.clock import SystemClock
from orchestrator.core.events import (
    CycleEnded,
    CycleStarted,
    ErrorOccurred,
    InputReceived,
    LimitReached,
    Paused,
    PhaseEntered,
    PlanAccepted,
    QuestionAsked,
    ReasoningDelta,
    ReplyReceived,
    Reserved,
    SubagentEvent,
    TestRunEnded,
    TestRunStarted,
    TextDelta,
    TodosChanged,
    ToolCallEnded,
    ToolCallStarted,
    ToolOutputDelta,
    TurnStarted,
    WaitStarted,
)
from orchestrator.core.messages import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import TextIO

    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.table import Table

    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Event
    from orchestrator.core.messages import JsonObject
    from orchestrator.core.todos import TodoItem

_UPDATES_A_SECOND = 8
_TAIL_LINES = 2
_KEPT_CHARS = 2_000
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN_SPINNER = "|/-\\"

_TOLD_BELOW = frozenset({"failed", "limit", "paused", "no_task"})
"""The outcomes of which the summary tells the reason."""
# These are seen in the status line while they last.
_PASSING = (PhaseEntered, TurnStarted, ReplyReceived)
_TALK = (*_PASSING, PlanAccepted, Reserved)


class _Stream(Protocol):
    def add(self, piece: str) -> str:
        """Take a piece, and return what may be shown now."""


class _Everything:
    def add(self, piece: str) -> str:
        return piece


class LiveView:
    """An `Emit` and a context manager that shows events on a console, which should be standard error.

    On a terminal, finished things scroll by above a status of a few lines that goes away at the
    end. Elsewhere, on a dumb terminal, or if asked for, each event of interest is a line.

    Args:
        summary: the end of each cycle is told below, in the same place: what that will say is not said here.
        phase: what the status begins with.
        answers: the model's words are shown by somebody else: neither they nor the cycle's end are told here.
    """

    def __init__(  # noqa: PLR0913  how it looks, given by name
        self,
        console: Console,
        *,
        plain: bool = False,
        summary: bool = False,
        answers: bool = False,
        phase: str = "starting",
        clock: Clock | None = None,
        redact: Callable[[str], str] = str,
        stream: Callable[[], _Stream] = _Everything,
        updates_a_second: int = _UPDATES_A_SECOND,
    ) -> None:
        self._pause_seconds = 1 / updates_a_second
        self._console = console
        self._redact = redact
        self._clock = clock or SystemClock()
        self._ascii = not console.encoding.lower().startswith("utf")
        self._narrator = Narrator(plain_signs=self._ascii)
        self._plain = plain or not console.is_terminal or console.is_dumb_terminal
        self._stream = _Everything if self._plain else stream  # without a status nobody sees the pieces
        self._phase = phase
        self._status = _Status(self._clock.monotonic(), self._stream, phase)
        self._once = _ReasonFilter(summary=summary)
        self._left_out = (*_TALK, CycleEnded) if answers else ()
        self._lock = threading.Lock()
        # rich computes where the cursor goes before it writes: two threads that print at once spoil the lines.
        self._screen = threading.Lock()
        self._live: Live | None = None
        self._paused = threading.Event()
        self._refresher: threading.Thread | None = None
        self._entered = False

    @classmethod
    def on_stderr(cls, *, plain: bool = False, summary: bool = False, answers: bool = False) -> Self:
        """Make the view of a command: on standard error, without the secrets of the environment.

        Args:
            plain: lines even on a terminal.
            summary: the end of each cycle is told on standard output.
            answers: so are the model's words.
        """
        from rich.console import Console

        from orchestrator.engine.policy.secrets import RedactedStream

        console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        redactor = environment_redactor()
        return cls(
            console,
            plain=plain,
            summary=summary and _is_one_place(sys.stdout, sys.stderr),
            answers=answers,
            redact=redactor.redact,
            stream=lambda: RedactedStream(redactor),
        )

    def __enter__(self) -> Self:
        """Start to show a status, if there is a terminal."""
        self._entered = True
        self._resume()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the status. The lines above it stay."""
        self._entered = False
        for line in self._once.held():
            self._print(line)
        self.pause()

    def pause(self) -> None:
        """Remove the status until the next event, so that other code can print."""
        if self._refresher is not None:
            self._paused.set()
            self._refresher.join()
            self._refresher = None
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _resume(self) -> None:
        if self._plain or self._live is not None or not self._entered:
            return
        from rich.live import Live

        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,  # it belongs to results, and may go somewhere else
            vertical_overflow="crop",
            get_renderable=self._render,
        )
        self._live.start(refresh=True)
        self._paused.clear()
        self._refresher = threading.Thread(target=self._refresh, args=(self._live,), daemon=True)
        self._refresher.start()

    def _refresh(self, live: Live) -> None:
        """Keep the status up to date until the view is paused. Runs in a thread of its own."""
        while not self._paused.wait(self._pause_seconds):
            with self._screen:
                live.refresh()

    def __call__(self, event: Event) -> None:
        """Show an event."""
        with self._lock:
            if isinstance(event, CycleStarted):
                self._status = _Status(self._clock.monotonic(), self._stream, self._phase)
            if isinstance(event, InputReceived):
                self._status.started = self._clock.monotonic()
            if isinstance(event, TodosChanged):  # a subagent's list is its own
                self._status.todos = event.items
            self._status.take(event)
            line = self._narrator.line(event)
        self._resume()
        if line is None or (self._live is not None and isinstance(event, _PASSING)):
            return
        if isinstance(event, self._left_out):
            return
        for one in self._once.lines(event, line):
            spent = (
                f" ({self._status.summary(self._clock.monotonic())})" if isinstance(event, CycleEnded) else ""
            )
            self._print(EventLine(one.sign, f"{one.text}{spent}", one.style))

    def show(self, what: RenderableType) -> None:
        """Print something above the status, and forget what that shows of the model's words."""
        with self._lock:
            self._status.tail = ""
        with self._screen:
            self._console.print(what)

    def tell(self, lines: Iterable[str]) -> None:
        """Show lines that are no event's."""
        for line in lines:
            self._print(EventLine(self._narrator.sign("info"), line, "dim"))

    def _print(self, line: EventLine) -> None:
        text = self._redact(line.text)
        with self._screen:
            if self._plain:
                self._console.print(Text(f"{line.sign} {text}", style=line.style), soft_wrap=True)
            else:
                self._console.print(_hanging(EventLine(line.sign, text, line.style)))

    def _render(self) -> Group:
        """Draw the status. The refreshing thread calls this."""
        with self._lock:
            now = self._clock.monotonic()
            frames = _PLAIN_SPINNER if self._ascii else _SPINNER
            frame = frames[int(now * _UPDATES_A_SECOND) % len(frames)]
            return Group(*self._status.lines(now, frame, self._console.width, self._redact))


def _is_one_place(one: TextIO, other: TextIO) -> bool:
    """Say whether two streams write to the same terminal, pipe or file."""
    try:
        return os.path.samestat(os.fstat(one.fileno()), os.fstat(other.fileno()))
    except (OSError, ValueError, AttributeError):  # a stream that is no file
        return False


class _ReasonFilter:
    """Shows each reason once. What the summary will tell is left to the summary."""

    def __init__(self, *, summary: bool) -> None:
        self._summary = summary
        self._reason = ""
        self._held: list[tuple[str, EventLine]] = []

    def lines(self, event: Event, line: EventLine) -> list[EventLine]:
        """Return what to print for an event, given its line."""
        match event:
            case CycleStarted():
                self._reason = ""
            case WaitStarted():
                again, self._reason = event.reason == self._reason, event.reason
                return [
                    EventLine(line.sign, f"waiting {seconds_in_words(event.seconds)}", line.style)
                    if again
                    else line
                ]
            case Paused() if event.reason == self._reason:
                return [EventLine(line.sign, line.text.partition(": ")[0], line.style)]
            case ErrorOccurred(message=reason) | LimitReached(detail=reason):
                return self._said(reason, line)
            case QuestionAsked() if self._summary:
                return self._said(event.question, line)
            case CycleEnded():
                return self._end(event.result, line)
            case _:
                pass
        return [line]

    def held(self) -> list[EventLine]:
        """Return the lines that were left to a summary that did not come."""
        lines, self._held = [line for _, line in self._held], []
        return lines

    def _said(self, reason: str, line: EventLine) -> list[EventLine]:
        if self._summary:
            self._held.append((reason, line))
            return []
        again, self._reason = reason == self._reason, reason
        return [] if again else [line]

    def _end(self, result: JsonObject, line: EventLine) -> list[EventLine]:
        why, question = str(result.get("error") or result.get("reason") or ""), result.get("question")
        outcome = str(result.get("outcome", ""))
        left = [held for reason, held in self._held if reason not in {why, question}]
        known = (self._summary and outcome in _TOLD_BELOW) or (why and why == self._reason)
        self._held, self._reason = [], why
        ending = EventLine(line.sign, line.text.partition(": ")[0], line.style) if known else line
        return [*left, ending]


class _Status:
    """What is going on, and what it has cost so far."""

    def __init__(self, now: float, stream: Callable[[], _Stream], phase: str) -> None:
        self.started = now
        self._new_stream = stream
        self.phase = phase
        self.round = 0
        self.usage = Usage()
        self.usd: float | None = 0.0
        self.todos: tuple[TodoItem, ...] = ()
        self.tail = ""
        self._does("")

    def _does(self, what: str) -> None:
        self.doing, self.tail, self._stream = what, "", self._new_stream()

    def take(self, event: Event) -> None:
        """Update the status."""
        is_own = not isinstance(event, SubagentEvent)
        while isinstance(event, SubagentEvent):
            event = event.event
        match event:
            case PhaseEntered():
                self.phase = event.phase.value
                self._does("")
            case TurnStarted() if is_own:
                self.round = event.round
                self._does("asking the model")
            case WaitStarted():
                self._does(f"waiting {seconds_in_words(event.seconds)}")
            case ReplyReceived():
                self.usage += event.usage
                self.usd = None if self.usd is None or event.usd is None else self.usd + event.usd
                self._does("")
            case ToolCallStarted():
                self._does(f"{event.name} {telling_argument(event.arguments)}")
            case TestRunStarted():
                self._does(f"running the tests ({event.kind}): {event.command}")
            case ToolCallEnded() | TestRunEnded():
                self._does("")
            case TextDelta() | ReasoningDelta() | ToolOutputDelta():
                # Cleaned first: what a terminal obeys may stand between the letters of a secret.
                self.tail = (self.tail + self._stream.add(clean(event.text)))[-_KEPT_CHARS:]
            case _:
                pass

    def lines(self, now: float, frame: str, width: int, redact: Callable[[str], str]) -> list[Text]:
        """Return at most five lines, none wider than the terminal."""
        parts = [self.phase, f"round {self.round}" if self.round else "", duration(now - self.started)]
        parts += [money(self.usd), f"{self.usage.total_tokens:,} tokens"] if self.round else []
        shown: list[Text] = [Text(_fitting(frame, parts, width), style="bold cyan", no_wrap=True)]
        for text in filter(None, (f"list: {todos_in_words(self.todos)}" if self.todos else "", self.doing)):
            line = short_line(redact(text), max(width - 3, 1))
            shown.append(Text(f"  {line}", no_wrap=True, overflow="ellipsis"))
        flat = short_line(redact(self.tail).replace("\\n", " "), _KEPT_CHARS)
        room = max(width - 5, 1)
        tail = flat[-room * _TAIL_LINES :]
        shown += [
            Text(f"    {tail[start : start + room]}", style="dim", no_wrap=True, overflow="crop")
            for start in range(0, len(tail), room)
        ]
        return shown

    def summary(self, now: float) -> str:
        """Return the rounds, cost and time of the cycle."""
        spent = amounts(self.usage.total_tokens, self.usd)
        return f"{counted(self.round, 'round')}, {spent}, {duration(now - self.started)}"


def _fitting(frame: str, parts: list[str], width: int) -> str:
    """Join as many parts as fit on the line."""
    text = frame
    for number, part in enumerate(filter(None, parts)):
        longer = f"{text} {'· ' if number else ''}{part}"
        if len(longer) >= width:
            break
        text = longer
    return text


def _hanging(line: EventLine) -> Table:
    """Lay out the sign, and the text beside it on one or more lines."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=1)
    grid.add_column(overflow="fold")
    grid.add_row(Text(line.sign, style=line.style), Text(line.text, style=line.style))
    return grid

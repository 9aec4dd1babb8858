"""Shows a run in progress: completed steps scroll by, the current step stays at the bottom."""

from __future__ import annotations

import os
import sys
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol, Self

from rich.console import Group
from rich.text import Text

from orchestrator.app.cli.output import open_console
from orchestrator.app.event_lines import EventLine, Narrator, RunProgress, todos_in_words
from orchestrator.app.terminal import known_secrets
from orchestrator.app.words import (
    amounts,
    clean,
    counted,
    duration,
    hanging,
    local_time,
    money,
    reply_in_words,
    short_line,
)
from orchestrator.core.clock import SystemClock
from orchestrator.core.cycle_events import (
    CycleEnded,
    CycleStarted,
    Paused,
    PhaseEntered,
    QuestionAsked,
    Reserved,
)
from orchestrator.core.events import (
    ErrorOccurred,
    InputReceived,
    LimitReached,
    PlanAccepted,
    ReasoningDelta,
    ReplyReceived,
    SubagentEvent,
    TextDelta,
    ToolOutputDelta,
    TurnStarted,
    WaitStarted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import TextIO

    from rich.console import Console, RenderableType
    from rich.live import Live

    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Event
    from orchestrator.core.messages import JsonObject

_UPDATES_A_SECOND = 8
_PAUSED_UPDATE_SECONDS = 1.0
_TAIL_LINES = 2
_DOING_LINES = 3
_KEPT_CHARS = 20_000
_RULE_CHARS = 60
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN_SPINNER = "|/-\\"

_IN_SUMMARY = frozenset(
    {"failed", "tests_fail", "limit", "paused", "no_task", "withdrawn", "superseded", "conflict"}
)
"""The outcomes whose reason is in the summary."""
_IN_STATUS = (PhaseEntered, TurnStarted, ReplyReceived)
"""The events that get no line on a terminal, because the status shows them."""
_NOT_IN_ANSWERS = (*_IN_STATUS, PlanAccepted, Reserved, CycleEnded)
"""The events that get no line where other code shows the model's texts."""


class _Stream(Protocol):
    def add(self, piece: str) -> str:
        """Add a piece, and return the text that may be shown now."""


class _Unchanged:
    def add(self, piece: str) -> str:
        return piece


class LiveView:
    """An `Emit` and context manager that shows events on a console, normally on standard error.

    On a terminal, completed steps scroll by above a status of a few lines, which is removed at the end. On
    other outputs, on a dumb terminal, or with `plain`, each shown event is a line.

    Args:
        summary: whether a summary in the same place follows each cycle. The view omits what the summary will
            say.
        phase: initial phase in the status.
        answers: whether other code shows the model's texts. The view omits them and the end of the cycle.
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
        stream: Callable[[], _Stream] = _Unchanged,
        updates_a_second: int = _UPDATES_A_SECOND,
    ) -> None:
        self._pause_seconds = 1 / updates_a_second
        self._console = console
        self._clock = clock or SystemClock()
        self._ascii = not console.encoding.lower().startswith("utf")
        self._narrator = Narrator(plain_signs=self._ascii)
        self._plain = plain or not console.is_terminal or console.is_dumb_terminal
        self._stream = _Unchanged if self._plain else stream  # without a status the pieces are not shown
        self._phase = phase
        self._is_conversation = answers
        self._status = self._new_status()
        self._reasons = _ReasonFilter(summary=summary)
        self._omitted = _NOT_IN_ANSWERS if answers else ()
        self._lock = threading.Lock()
        # rich computes the position of the cursor before it writes, so only one thread may print at a time.
        self._screen = threading.Lock()
        self._live: Live | None = None
        self._paused = threading.Event()
        self._refresher: threading.Thread | None = None
        self._entered = False
        self._cycles = 0
        self._typed = ""

    @classmethod
    def on_stderr(cls, *, plain: bool = False, summary: bool = False, answers: bool = False) -> Self:
        """Create the view of a command on standard error, without the secrets of the environment.

        Args:
            plain: whether to print plain lines even on a terminal.
            summary: whether standard output gets a summary of each cycle.
            answers: whether other code shows the model's texts.
        """
        from orchestrator.engine.policy.secrets import RedactedStream

        console = open_console(stderr=True)
        redactor = known_secrets(os.environ)
        return cls(
            console,
            plain=plain,
            summary=summary and _is_same_file(sys.stdout, sys.stderr),
            answers=answers,
            stream=lambda: RedactedStream(redactor),
        )

    def __enter__(self) -> Self:
        """Start to show a status if there is a terminal."""
        self._entered = True
        self._resume()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the status. The lines above it stay."""
        self._entered = False
        for line in self._reasons.held():
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
        """Update the status until the view is paused. Runs in its own thread."""
        while not self._paused.wait(
            self._pause_seconds if self._status.until is None else _PAUSED_UPDATE_SECONDS
        ):
            with self._screen:
                live.refresh()

    def _new_status(self) -> _Status:
        return _Status(self._clock, self._stream, self._phase, is_conversation=self._is_conversation)

    def __call__(self, event: Event) -> None:
        """Show an event."""
        with self._lock:
            if isinstance(event, CycleStarted):
                self._status = self._new_status()
            is_new = self._status.take(event, self._clock.now())
            line = self._narrator.line(event)
            self._status.update(event, is_new=is_new)
        self._resume()
        if isinstance(event, CycleStarted):
            self._draw_rule()
        if line is None or isinstance(event, self._omitted):
            return
        if self._live is not None and isinstance(event, _IN_STATUS):
            return
        lines = self._reasons.lines(event, line)
        if isinstance(event, CycleEnded):
            last = lines.pop()
            spent = self._status.summary(self._clock.monotonic())
            lines.append(EventLine(last.sign, f"{last.text} ({spent})", last.style))
        for one in lines:
            self._print(one)

    def _draw_rule(self) -> None:
        """Draw a line between two cycles."""
        if self._cycles:
            mark = "-" if self._ascii else "─"
            with self._screen:
                self._console.print(Text(mark * min(self._console.width, _RULE_CHARS), style="dim"))
        self._cycles += 1

    def show(self, what: RenderableType) -> None:
        """Print something above the status, and remove the model's text from the status."""
        with self._lock:
            self._status.tail = ""
        with self._screen:
            self._console.print(what)

    def show_typed(self, line: str) -> None:
        """Show below the status what the person is typing for later; nothing if it is empty."""
        with self._lock:
            self._typed = line

    def tell(self, lines: Iterable[str]) -> None:
        """Print lines that do not belong to an event."""
        for line in lines:
            self._print(EventLine(self._narrator.signs["info"], line, "dim"))

    def _print(self, line: EventLine) -> None:
        with self._screen:
            if self._plain:
                self._console.print(Text(f"{line.sign} {line.text}", style=line.style), soft_wrap=True)
            else:
                laid_out = "\n".join(hanging(f"{line.sign} {line.text}", self._console.width))
                self._console.print(Text(laid_out, style=line.style), soft_wrap=True)

    def _render(self) -> Group:
        """Draw the status. Called by the refreshing thread."""
        with self._lock:
            now = self._clock.monotonic()
            frames = _PLAIN_SPINNER if self._ascii else _SPINNER
            frame = frames[int(now * _UPDATES_A_SECOND) % len(frames)]
            wall = self._clock.now()
            typed = f"> {clean(self._typed)}"[-max(self._console.width - 1, 1) :]
            shown = [Text(typed, no_wrap=True, overflow="crop")] if self._typed else []
            return Group(*self._status.lines((now, wall), frame, self._console.width), *shown)


def _is_same_file(one: TextIO, other: TextIO) -> bool:
    """Return whether two streams write to the same terminal, pipe or file."""
    try:
        return os.path.samestat(os.fstat(one.fileno()), os.fstat(other.fileno()))
    except (OSError, ValueError, AttributeError):  # a stream that is no file
        return False


class _ReasonFilter:
    """Shows each reason once, and holds back what the summary will say."""

    def __init__(self, *, summary: bool) -> None:
        self._summary = summary
        self._reason = ""
        self._held: list[tuple[str, EventLine]] = []

    def lines(self, event: Event, line: EventLine) -> list[EventLine]:
        """Return the lines to print for an event, given its line."""
        match event:
            case CycleStarted():
                self._reason = ""
            case WaitStarted():
                again, self._reason = event.reason == self._reason, event.reason
                return [EventLine(line.sign, line.text.partition(": ")[0], line.style) if again else line]
            case Paused() if event.reason == self._reason:
                return [EventLine(line.sign, line.text.partition(": ")[0], line.style)]
            case ErrorOccurred(message=reason) | LimitReached(detail=reason):
                return self._reason_line(reason, line)
            case QuestionAsked() if self._summary:
                return self._reason_line(event.question, line)
            case CycleEnded():
                return self._end(event.result, line)
            case _:
                pass
        return [line]

    def held(self) -> list[EventLine]:
        """Return and forget the lines that were held back for a summary."""
        lines, self._held = [line for _, line in self._held], []
        return lines

    def _reason_line(self, reason: str, line: EventLine) -> list[EventLine]:
        if self._summary:
            self._held.append((reason, line))
            return []
        again, self._reason = reason == self._reason, reason
        return [] if again else [line]

    def _end(self, result: JsonObject, line: EventLine) -> list[EventLine]:
        why, question = str(result.get("error") or result.get("reason") or ""), result.get("question")
        outcome = str(result.get("outcome", ""))
        held = [one for reason, one in self._held if reason not in {why, question}]
        known = (self._summary and outcome in _IN_SUMMARY) or (why and why == self._reason)
        self._held, self._reason = [], why
        ending = EventLine(line.sign, line.text.partition(": ")[0], line.style) if known else line
        return [*held, ending]


class _Status(RunProgress):
    """The current activity, the cost so far, and the last output of the model or a program.

    The time of a cycle counts from its start, with the set-up. That of a conversation counts from the person's input.
    """

    def __init__(
        self, clock: Clock, stream: Callable[[], _Stream], phase: str, *, is_conversation: bool
    ) -> None:
        self.started = clock.monotonic()
        self._is_conversation = is_conversation
        self._clock = clock
        self._new_stream = stream
        self.until: datetime | None = None
        super().__init__(phase)
        self._forget_output()

    def _forget_output(self) -> None:
        self._waits_until: float | None = None
        self.tail, self._stream = "", self._new_stream()

    def update(self, event: Event, *, is_new: bool) -> None:
        """Show times and the newest output. The output of an activity that is over is forgotten.

        Args:
            is_new: what `take` returned for the event.
        """
        if is_new:
            self._forget_output()
        if isinstance(event, InputReceived) and self._is_conversation:
            self.started = self._clock.monotonic()
        if isinstance(event, Paused):
            self._pause(event)
        while isinstance(event, SubagentEvent):
            event = event.event
        if isinstance(event, WaitStarted):
            self.doing = "waiting"
            self._waits_until = self._clock.monotonic() + event.seconds
        if isinstance(event, TextDelta | ReasoningDelta | ToolOutputDelta):
            # Cleaned first: control characters may stand between the letters of a secret.
            self.tail = (self.tail + self._stream.add(clean(event.text)))[-_KEPT_CHARS:]

    def _pause(self, event: Paused) -> None:
        """Start to count down to the end of a pause. A time that cannot be parsed is ignored."""
        try:
            until = datetime.fromisoformat(event.until)
        except ValueError:
            return
        self.until = until if until.tzinfo else until.replace(tzinfo=UTC)
        self.phase = "waiting" if event.is_planned else "paused"
        self.doing = ""
        self._forget_output()

    def lines(self, now: tuple[float, datetime], frame: str, width: int) -> list[Text]:
        """Return a few lines, none wider than the terminal.

        Args:
            now: monotonic time and wall-clock time.
        """
        room = max(width - 5, 1)
        shown: list[Text] = [Text(_fitting(frame, self._parts(*now), width), style="bold cyan", no_wrap=True)]
        if self.facts.todos:
            line = short_line(f"list: {todos_in_words(self.facts.todos)}", max(width - 3, 1))
            shown.append(Text(f"  {line}", no_wrap=True, overflow="ellipsis"))
        doing = self.doing
        if self._waits_until is not None:
            doing = f"{doing}, {duration(self._waits_until - now[0])} left"
        shown += _pieces(short_line(doing, room * _DOING_LINES), "  ", room)
        output = short_line(reply_in_words(self.tail).replace("\\n", " "), _KEPT_CHARS)
        return shown + _pieces(output[-room * _TAIL_LINES :], "    ", room, "dim")

    def _parts(self, now: float, wall: datetime) -> list[str]:
        if self.until is not None:
            left = duration((self.until - wall).total_seconds())
            return [self.phase, f"{left} left", f"until {local_time(self.until)}"]
        spent, number = self.facts.spent, self.facts.round
        parts = [self.phase, f"round {number}" if number else "", duration(now - self.started)]
        if spent.tokens:
            parts += [money(spent.usd), f"{spent.tokens:,} tokens"]
        return parts

    def summary(self, now: float) -> str:
        """Return the rounds, cost and time of the cycle."""
        took = duration(now - self.started)
        spent, number = self.facts.spent, self.facts.round
        return f"{counted(number, 'round')}, {amounts(spent.tokens, spent.usd)}, {took}" if number else took


def _fitting(frame: str, parts: list[str], width: int) -> str:
    """Join as many parts as fit on one line, after the frame of the spinner."""
    text = frame
    for number, part in enumerate(filter(None, parts)):
        longer = f"{text} {'· ' if number else ''}{part}"
        if len(longer) >= width:
            break
        text = longer
    return text


def _pieces(text: str, indent: str, room: int, style: str = "") -> list[Text]:
    """Split text into lines of `room` characters."""
    return [
        Text(f"{indent}{text[start : start + room]}", style=style, no_wrap=True, overflow="crop")
        for start in range(0, len(text), room)
    ]

"""Tells events in short lines, the same in the live view, without a terminal, and in `pullwright show`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, assert_never

from orchestrator.app.cli.text import clean, counted, one_line
from orchestrator.app.cli.worker_lines import WorkerEvent, is_news, words
from orchestrator.core.defences import Guarded
from orchestrator.core.events import (
    CallStatus,
    Claimed,
    Cloned,
    CycleEnded,
    CycleStarted,
    ErrorOccurred,
    Event,
    ForgeUsed,
    InputReceived,
    LimitReached,
    LoopDetected,
    MessageAdded,
    Paused,
    PhaseEntered,
    PlanAccepted,
    ProcessingEnded,
    Proposed,
    Proposing,
    QuestionAsked,
    ReasoningDelta,
    ReplyReceived,
    ReplyRejected,
    Reserved,
    Resumed,
    SessionEnded,
    SessionStarted,
    SteeringInjected,
    SubagentEvent,
    TaskTaken,
    TestRunEnded,
    TestRunStarted,
    TextDelta,
    TextStarted,
    ToolCallEnded,
    ToolCallStarted,
    ToolOutputDelta,
    TurnStarted,
    Verified,
    WaitStarted,
    Warned,
    WorkSaved,
)

if TYPE_CHECKING:
    from orchestrator.core.messages import JsonObject

# The argument that says most about a call, the best first.
_TELLING = (
    *("path", "file_path", "dir_path", "command", "pattern", "title", "question_text", "reason"),
    *("query", "url", "task", "agent_id", "answer"),
)
_MAX_ARGUMENT_CHARS = 80
_MAX_TEXT_CHARS = 600
_SHORT_COMMIT = 10
_ENDINGS = {
    "failed": ("failed", "bold red"),
    "interrupted": ("failed", "bold red"),
    "paused": ("warning", "bold yellow"),
    "limit": ("warning", "bold yellow"),
}
"""Sign and style of what is no success, by the cycle's outcome."""
_SHORT_ID = 4


@dataclass(frozen=True, slots=True)
class Line:
    """What to print for an event: a sign of one character, text, and a style of `rich`."""

    sign: str
    text: str
    style: str = ""

    def __str__(self) -> str:
        return f"{self.sign} {self.text}"


class Narrator:
    """Turns events into lines. It remembers what later events do not repeat: the calls' arguments, and the last reply.

    Args:
        plain_signs: the output knows ASCII only.
    """

    def __init__(self, *, plain_signs: bool = False) -> None:
        self._signs = _ASCII if plain_signs else _UNICODE
        self._plain_signs = plain_signs
        self._arguments: dict[str, str] = {}
        self._agents: dict[str, Narrator] = {}
        self.said = ""

    def line(self, event: Event) -> Line | None:
        """The line for an event, or None where there is nothing to tell."""
        if isinstance(event, ToolCallStarted):
            self._arguments[event.call_id] = telling(event.arguments)
        if isinstance(event, ReplyReceived):
            self.said = event.message.text
        return _work_line(event, self)

    def sign(self, name: str) -> str:
        """A sign that the output can show."""
        return self._signs[name]

    def of_subagent(self, event: SubagentEvent) -> Line | None:
        """The line for what a subagent does, marked with the beginning of its id."""
        own = self._agents.setdefault(event.agent, Narrator(plain_signs=self._plain_signs))
        line = own.line(event.event)
        return Line(line.sign, f"[{event.agent[:_SHORT_ID]}] {line.text}", line.style) if line else None

    def call(self, event: ToolCallEnded) -> Line:
        """The end of a call, with why it did not go well."""
        text = f"{one_line(event.name, 40)} {self._arguments.get(event.call_id, '')}".rstrip()
        match event.status:
            case CallStatus.OK:
                return Line(self.sign("ok"), text, "green")
            case CallStatus.FAILED:
                return Line(self.sign("failed"), f"{text}: {one_line(event.output)}", "red")
            case CallStatus.REFUSED:
                return Line(self.sign("failed"), f"{text}: refused: {one_line(event.output)}", "red")
            case CallStatus.SKIPPED:
                return Line(self.sign("skipped"), f"{text}: not run", "dim")
            case CallStatus.INTERRUPTED:
                return Line(self.sign("skipped"), f"{text}: interrupted", "dim")
            case _:
                assert_never(event.status)


_UNICODE = {
    "info": "·",
    "ok": "✓",
    "failed": "✗",
    "skipped": "-",
    "warning": "!",
    "question": "?",
    "plan": "▸",
}
_ASCII = {"info": "-", "ok": "+", "failed": "x", "skipped": "-", "warning": "!", "question": "?", "plan": ">"}


def _work_line(event: Event, narrator: Narrator) -> Line | None:
    """What the model does; the rest is told by `_story_line`."""
    sign, style = "info", "dim"
    match event:
        case TurnStarted():
            text = f"round {event.round}"
        case ReplyReceived():
            text = f"reply: {amounts(event.usage.total_tokens, event.usd)}"
        case ReplyRejected():
            problems = "; ".join(one_line(problem) for problem in event.problems)
            said = f"it was: {one_line(narrator.said)}" if narrator.said.strip() else "it had no text"
            text = f"reply {event.attempt} not usable: {problems}; {said}"
            sign, style = "warning", "yellow"
        case PlanAccepted():
            sign, text, style = "plan", f"{intention(event)}{mending(event)}", "bold"
        case ToolCallEnded():
            return narrator.call(event)
        case SubagentEvent():
            return narrator.of_subagent(event)
        case (
            WaitStarted()
            | SteeringInjected()
            | LoopDetected()
            | ErrorOccurred()
            | LimitReached()
            | Guarded()
            | TestRunEnded()
            | Verified()
        ):
            return _trouble_line(event, narrator)
        case (
            ToolCallStarted()
            | TextStarted()
            | TextDelta()
            | ReasoningDelta()
            | ToolOutputDelta()
            | InputReceived()
            | MessageAdded()
            | SessionStarted()
            | ProcessingEnded()
            | SessionEnded()
            | TestRunStarted()
            | Proposing()
        ):
            return None
        case _:
            return _story_line(event, narrator)
    return Line(narrator.sign(sign), text, style)


def _trouble_line(
    event: WaitStarted
    | SteeringInjected
    | LoopDetected
    | ErrorOccurred
    | LimitReached
    | Guarded
    | TestRunEnded
    | Verified,
    narrator: Narrator,
) -> Line:
    """What comes between the rounds."""
    sign, style = "warning", "yellow"
    match event:
        case WaitStarted():
            text = f"waiting {waited(event.seconds)}: {one_line(event.reason)}"
        case SteeringInjected():
            sign, text, style = "plan", f"told: {one_line(event.text, _MAX_TEXT_CHARS)}", "bold"
        case LoopDetected():
            text = one_line(event.message, _MAX_TEXT_CHARS)
        case ErrorOccurred():
            sign, text, style = "failed", one_line(event.message, _MAX_TEXT_CHARS), "red"
        case LimitReached():
            text = f"limit of {one_line(event.limit)} reached: {one_line(event.detail)}"
        case Guarded():
            said = ": ".join((event.message, *(("; ".join(event.details),) if event.details else ())))
            text = f"{event.defence}: {one_line(said, _MAX_TEXT_CHARS)}"
        case TestRunEnded() | Verified():
            return _tests_line(event, narrator)
        case _:
            assert_never(event)
    return Line(narrator.sign(sign), text, style)


_StoryEvent: TypeAlias = (
    CycleStarted
    | PhaseEntered
    | TaskTaken
    | Cloned
    | Warned
    | Proposed
    | QuestionAsked
    | WorkerEvent
    | CycleEnded
)


def _story_line(event: _StoryEvent, narrator: Narrator) -> Line:
    """What becomes of the cycle."""
    sign, style = "info", "dim"
    match event:
        case CycleStarted():
            origin = f" (origin {one_line(event.origin)})" if event.origin else ""
            text = f"run {event.run}: {one_line(event.repository)}{origin} with {one_line(event.model)}"
            text += f" ({one_line(event.rules)})" if event.rules else ""
        case PhaseEntered():
            text = f"phase: {event.phase}"
        case TaskTaken():
            source = f"#{event.number}" if event.number is not None else one_line(event.source, 40)
            sign, text, style = "plan", f"task ({source}): {one_line(event.title)}", "bold"
        case Cloned():
            text = f"cloned {one_line(event.branch, 80)} at {event.commit[:_SHORT_COMMIT]}, "
            text += counted(event.files, "file")
        case Warned():
            sign, text, style = "warning", one_line(event.message, _MAX_TEXT_CHARS), "yellow"
        case Proposed():
            done = "opened" if event.created else "updated"
            text = f"pull request #{event.number} {done}: {one_line(event.title)}  {one_line(event.url)}"
            sign, style = "ok", "bold green"
        case QuestionAsked():
            where = f"  {one_line(event.url)}" if event.url else ""
            sign, text, style = "question", f"question: {clean(event.question).strip()}{where}", "bold yellow"
        case Claimed() | Resumed() | Reserved() | ForgeUsed() | Paused() | WorkSaved():
            text = words(event)
            sign, style = ("warning", "yellow") if is_news(event) else (sign, style)
        case CycleEnded():
            return _ending(event.result, narrator)
        case _:
            assert_never(event)
    return Line(narrator.sign(sign), text, style)


def _tests_line(event: TestRunEnded | Verified, narrator: Narrator) -> Line:
    """How a run of the tests ended, or what the runs prove."""
    match event:
        case TestRunEnded(problem=problem):
            took = "known from before" if event.cached else waited(event.seconds)
            counts = f"{event.passed} passed, {event.failed} failed, {event.skipped} skipped"
            text = f"tests {one_line(event.kind)}: {counts}, exit code {event.exit} ({took})"
            if problem:
                return Line(
                    narrator.sign("warning"), f"{text}; proves nothing: {one_line(problem)}", "yellow"
                )
            return Line(narrator.sign("info"), text, "dim")
        case Verified(reasons=reasons):
            why = one_line("; ".join(reasons), _MAX_TEXT_CHARS)
            if event.is_red:
                return Line(narrator.sign("failed"), f"the tests do not pass: {why}", "red")
            if why:
                return Line(narrator.sign("warning"), f"the tests show: {why}", "yellow")
            return Line(narrator.sign("ok"), "the tests pass", "green")
        case _:
            assert_never(event)


def intention(event: PlanAccepted) -> str:
    """What the model says that it is going to do; how many calls it makes if it says nothing."""
    if event.plan.strip():
        return f"plan: {one_line(event.plan, _MAX_TEXT_CHARS)}"
    return "1 call" if event.calls == 1 else f"{event.calls} calls"


def mending(event: PlanAccepted) -> str:
    """What had to be done before the reply could be read, in brackets."""
    if event.cut_off:
        return " (the reply was cut off)"
    return " (the reply was mended)" if event.repaired else ""


def _ending(result: JsonObject, narrator: Narrator) -> Line:
    outcome = one_line(str(result.get("outcome", "ended")))
    why = result.get("error") or result.get("reason")
    text = f"{outcome.replace('_', ' ')}{f': {one_line(str(why), _MAX_TEXT_CHARS)}' if why else ''}"
    sign, style = _ENDINGS.get(outcome, ("ok", "bold"))
    return Line(narrator.sign(sign), text, style)


def telling(arguments: JsonObject) -> str:
    """The one argument of a call that says most, on one line."""
    names = [name for name in _TELLING if name in arguments] or list(arguments)
    return one_line(str(arguments[names[0]]), _MAX_ARGUMENT_CHARS) if names else ""


def amounts(tokens: int, usd: float | None) -> str:
    """Tokens and money in words; an unknown price is said to be unknown."""
    return f"{tokens:,} tokens, {money(usd)}"


def money(usd: float | None) -> str:
    """US dollars, finely enough that a small amount is not shown as nothing."""
    if usd is None:
        return "cost unknown"
    digits = 2 if usd == 0 or usd >= 1 else 4
    return f"${usd:,.{digits}f}"


def duration(seconds: float) -> str:
    """Minutes and seconds, hours if there are any."""
    minutes, rest = divmod(int(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def waited(seconds: float) -> str:
    """A length of time in seconds; a short one with a tenth, so that it is not shown as nothing."""
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"  # noqa: PLR2004  two digits are enough

"""Turns the events of a run into short lines for people, and sums up what the run does now."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias, assert_never

from orchestrator.app.words import (
    amounts,
    begins_as_json,
    clean,
    counted,
    cut_line,
    local_time,
    outcome_in_words,
    seconds_in_words,
    short_line,
)
from orchestrator.bot.journal.run_facts import RunFacts
from orchestrator.core.cycle_events import (
    ClaimChecked,
    Claimed,
    Cloned,
    CycleEnded,
    CycleStarted,
    ForgeUsed,
    Paused,
    PhaseEntered,
    Proof,
    Proposed,
    Proposing,
    QuestionAsked,
    Reserved,
    Resumed,
    TaskTaken,
    TestRunEnded,
    TestRunStarted,
    Verified,
    WorkSaved,
)
from orchestrator.core.events import (
    SUMMARY_AGENT,
    CallDecided,
    CallStatus,
    Compacted,
    Decision,
    ErrorOccurred,
    Event,
    ForeignToolsOffered,
    Guarded,
    InputReceived,
    LimitReached,
    LoopDetected,
    MessageAdded,
    PlanAccepted,
    ProcessingEnded,
    ReasoningDelta,
    ReplyReceived,
    ReplyRejected,
    SessionEnded,
    SessionStarted,
    SteeringInjected,
    SubagentEvent,
    TextDelta,
    TextStarted,
    TodosChanged,
    ToolCallEnded,
    ToolCallStarted,
    ToolOutputDelta,
    TurnStarted,
    WaitStarted,
    Warned,
)
from orchestrator.core.todos import TodoStatus, done_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator.core.messages import JsonObject
    from orchestrator.core.todos import TodoItem

# The most informative arguments of calls, best first.
_INFORMATIVE = (
    *("path", "file_path", "dir_path", "command", "pattern", "title", "question_text", "reason"),
    *("query", "url", "task", "agent_id", "answer"),
)
_MOST_NAMED = 5
_MAX_ARGUMENT_CHARS = 80
_MAX_TEXT_CHARS = 600
_SHORT_COMMIT = 10
_ENDINGS = {
    "failed": ("failed", "bold red"),
    "tests_fail": ("failed", "bold red"),
    "interrupted": ("failed", "bold red"),
    "paused": ("warning", "bold yellow"),
    "limit": ("warning", "bold yellow"),
    "conflict": ("warning", "bold yellow"),
    "refuted": ("failed", "bold red"),
    "unknown": ("warning", "bold yellow"),
}
"""Sign and style of outcomes other than success."""
_SHORT_ID = 4
_MOST_CALLS = 1_000


@dataclass(frozen=True, slots=True)
class EventLine:
    """The line printed for an event: a sign of one character, text, and a style of `rich`."""

    sign: str
    text: str
    style: str = ""

    def __str__(self) -> str:
        return f"{self.sign} {self.text}"


class Narrator:
    """Turns events into lines.

    It remembers what later events do not repeat: the arguments of calls, and the last reply.

    Args:
        plain_signs: whether the output can show ASCII only.

    Attributes:
        signs: the signs by name, in characters that the output can show.
        said: the last reply's text.
    """

    def __init__(self, *, plain_signs: bool = False) -> None:
        self.signs = _ASCII if plain_signs else _UNICODE
        self._arguments: dict[str, str] = {}
        self._agents: dict[str, Narrator] = {}
        self.said = ""

    def line(self, event: Event) -> EventLine | None:
        """Return the line for an event, or None if the event is not shown."""
        if isinstance(event, ToolCallStarted):
            if len(self._arguments) >= _MOST_CALLS:  # calls whose end was never shown
                self._arguments.clear()
            self._arguments[event.call_id] = telling_argument(event.arguments)
        if isinstance(event, ReplyReceived):
            self.said = event.message.text
        return _event_line(event, self)

    def of_subagent(self, event: SubagentEvent) -> EventLine | None:
        """Return the line for a subagent's event, prefixed with the beginning of the subagent's id."""
        own = self._agents.setdefault(event.agent, Narrator(plain_signs=self.signs is _ASCII))
        line = own.line(event.event)
        name = event.agent if event.agent == SUMMARY_AGENT else event.agent[:_SHORT_ID]
        return EventLine(line.sign, f"[{name}] {line.text}", line.style) if line else None

    def call(self, event: ToolCallEnded) -> EventLine:
        """Return the line for the end of a call, with the reason if it failed."""
        text = f"{short_line(event.name, 40)} {self._arguments.pop(event.call_id, '')}".rstrip()
        match event.status:
            case CallStatus.OK:
                return EventLine(self.signs["ok"], text, "green")
            case CallStatus.FAILED:
                return EventLine(self.signs["failed"], f"{text}: {cut_line(event.output)}", "red")
            case CallStatus.REFUSED:
                return EventLine(self.signs["failed"], f"{text}: refused: {cut_line(event.output)}", "red")
            case CallStatus.SKIPPED:
                return EventLine(self.signs["skipped"], f"{text}: not run", "dim")
            case CallStatus.INTERRUPTED:
                return EventLine(self.signs["skipped"], f"{text}: interrupted", "dim")
            case _:
                assert_never(event.status)


class RunProgress:
    """The current activity of a run, and what happened in it so far.

    Attributes:
        phase: the phase of the cycle; before the first one, the text passed to the constructor.
        doing: the call, request or test run in progress; empty between them.
        facts: what happened so far.
    """

    def __init__(self, phase: str = "") -> None:
        self.phase = phase
        self.doing = ""
        self.facts = RunFacts()

    def take(self, event: Event, at: datetime) -> bool:
        """Update the progress from the next event of the run, and return whether an activity began or ended."""
        self.facts.take(event, at)
        is_own = not isinstance(event, SubagentEvent)
        while isinstance(event, SubagentEvent):
            event = event.event
        match event:
            case PhaseEntered():
                self.phase, self.doing = event.phase.value, ""
            case TurnStarted() if is_own:
                self.doing = "asking the model"
            case WaitStarted():
                self.doing = f"waiting {seconds_in_words(event.seconds)}"
            case ToolCallStarted():
                self.doing = f"{event.name} {telling_argument(event.arguments)}"
            case TestRunStarted():
                self.doing = f"running the tests ({event.kind}): {event.command}"
            case ReplyReceived() | ToolCallEnded() | TestRunEnded():
                self.doing = ""
            case _:
                return False
        return True


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


_DECISIONS = {
    Decision.ONCE: "allowed once",
    Decision.ALWAYS: "allowed in this session",
    Decision.NO: "not allowed",
}

_NotShown: TypeAlias = (
    ToolCallStarted
    | TextStarted
    | TextDelta
    | ReasoningDelta
    | ToolOutputDelta
    | InputReceived
    | MessageAdded
    | SessionStarted
    | ProcessingEnded
    | SessionEnded
    | TestRunStarted
    | Proposing
)
_BetweenRounds: TypeAlias = (
    WaitStarted
    | CallDecided
    | SteeringInjected
    | LoopDetected
    | Compacted
    | ErrorOccurred
    | LimitReached
    | Guarded
    | TestRunEnded
    | Verified
    | ClaimChecked
)


def _event_line(event: Event, narrator: Narrator) -> EventLine | None:  # noqa: C901  one case an event
    """Return the line for an event of the model's work, or pass other events to the functions below."""
    sign, style = "info", "dim"
    if isinstance(event, _NotShown):
        return None
    if isinstance(event, _BetweenRounds):
        return _between_rounds_line(event, narrator)
    match event:
        case TurnStarted():
            text = f"round {event.round}"
        case ReplyReceived():
            text = f"reply: {amounts(event.usage.total_tokens, event.usd)}"
        case ReplyRejected():
            problems = "; ".join(short_line(problem) for problem in event.problems)
            text = f"reply {event.attempt} cannot be used: {problems}; {_unusable_reply(narrator.said)}"
            sign, style = "warning", "yellow"
        case PlanAccepted():
            plan = f"plan: {short_line(event.plan, _MAX_TEXT_CHARS)}" if event.plan.strip() else ""
            text = f"{plan or counted(event.calls, 'call')}{repair_note(event)}"
            sign, style = "plan", "bold"
        case ToolCallEnded():
            return narrator.call(event)
        case TodosChanged():
            text = f"list: {todos_in_words(event.items)}"
        case ForeignToolsOffered():
            text = f"MCP server {short_line(event.server, 80)}: {counted(len(event.tools), 'tool')}"
        case SubagentEvent():
            return narrator.of_subagent(event)
        case _:
            return _cycle_line(event, narrator)
    return EventLine(narrator.signs[sign], text, style)


def _unusable_reply(said: str) -> str:
    if not said.strip():
        return "it had no text"
    if begins_as_json(said):
        return f"it was JSON, {counted(len(said), 'character')}; show --verbose prints it"
    return f"it was: {short_line(said)}"


def _between_rounds_line(event: _BetweenRounds, narrator: Narrator) -> EventLine:
    """Return the line for an event between the rounds, such as a wait, a limit or an error."""
    sign, style = "warning", "yellow"
    match event:
        case WaitStarted():
            text = f"waiting {seconds_in_words(event.seconds)}: {cut_line(event.reason)}"
        case CallDecided():
            text = f"{_DECISIONS[event.decision]}: {cut_line(event.scope, _MAX_ARGUMENT_CHARS)}"
            text += f" ({cut_line(event.reason)})" if event.reason else ""
            sign, style = (sign, style) if event.decision is Decision.NO else ("info", "dim")
        case SteeringInjected():
            sign, text, style = (
                "plan",
                f"message to the model: {short_line(event.text, _MAX_TEXT_CHARS)}",
                "bold",
            )
        case LoopDetected():
            text = cut_line(event.message, _MAX_TEXT_CHARS)
        case Compacted():
            sign, style = "plan", "dim"
            text = f"the conversation was shortened from about {event.tokens_before:,} to "
            text += f"{event.tokens_after:,} tokens: {short_line(event.reason, _MAX_TEXT_CHARS)}"
        case ErrorOccurred():
            sign, text, style = "failed", cut_line(event.message, _MAX_TEXT_CHARS), "red"
        case LimitReached():
            text = f"limit of {short_line(event.limit)} reached: {short_line(event.detail)}"
        case Guarded():
            details = f": {'; '.join(event.details)}" if event.details else ""
            text = f"{event.defence}: {cut_line(f'{event.message}{details}', _MAX_TEXT_CHARS)}"
        case TestRunEnded() | Verified() | ClaimChecked():
            return _tests_line(event, narrator)
        case _:
            assert_never(event)
    return EventLine(narrator.signs[sign], text, style)


STANDINGS = {
    "holds": ("ok", "green"),
    "refuted": ("failed", "red"),
    "unknown": ("question", "yellow"),
    "noted": ("info", "dim"),
}
"""Sign and style of a checked claim, by its standing."""
_MAX_CLAIM_CHARS = 300
_OBJECT = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{28,52}\b")
"""A digest. It is shortened here; `--json` prints it whole."""


def claim_in_words(event: ClaimChecked) -> str:
    """Return the result of checking a claim, with the claimed and the found value where they differ."""
    shown = (_OBJECT.sub(r"\1…", text) for text in (event.found, event.claimed))
    found, claimed = (short_line(text, _MAX_CLAIM_CHARS) for text in shown)
    if event.claimed and event.claimed != event.found:
        found = f"claimed {claimed}, found {found or 'nothing'}"
    note = f" ({short_line(event.note, _MAX_CLAIM_CHARS)})" if event.note else ""
    return f"{short_line(event.subject)}: {found}{note}"


_WorkerEvent: TypeAlias = Claimed | Resumed | Reserved | ForgeUsed | Paused | WorkSaved
_CycleEvent: TypeAlias = (
    CycleStarted
    | PhaseEntered
    | TaskTaken
    | Cloned
    | Warned
    | Proposed
    | QuestionAsked
    | _WorkerEvent
    | CycleEnded
)


def _cycle_line(event: _CycleEvent, narrator: Narrator) -> EventLine:
    """Return the line for an event of the cycle."""
    sign, style = "info", "dim"
    match event:
        case CycleStarted():
            origin = f" (origin {short_line(event.origin)})" if event.origin else ""
            text = f"run {event.run}: {cut_line(event.repository)}{origin}"
            text += f" with {short_line(event.model)}" if event.model else ""
            text += f" ({short_line(event.rules)})" if event.rules else ""
        case PhaseEntered():
            text = f"phase: {event.phase}"
        case TaskTaken():
            source = f"#{event.number}" if event.number is not None else short_line(event.source, 40)
            sign, text, style = "plan", f"task ({source}): {cut_line(event.title)}", "bold"
        case Cloned():
            text = f"cloned {short_line(event.branch, 80)} at {event.commit[:_SHORT_COMMIT]}, "
            text += counted(event.files, "file")
        case Warned():
            sign, text, style = "warning", cut_line(event.message, _MAX_TEXT_CHARS), "yellow"
        case Proposed():
            done = "opened" if event.created else "updated"
            text = f"pull request #{event.number} {done}: {cut_line(event.title)}{_shown_url(event.url)}"
            sign, style = "ok", "bold green"
        case QuestionAsked():
            text = f"question: {clean(event.question).strip()}{_shown_url(event.url or '')}"
            sign, style = "question", "bold yellow"
        case Claimed() | Resumed() | Reserved() | ForgeUsed() | Paused() | WorkSaved():
            text = _worker_line(event)
            sign, style = ("warning", "yellow") if _is_news(event) else (sign, style)
        case CycleEnded():
            return _ending(event.result, narrator)
        case _:
            assert_never(event)
    return EventLine(narrator.signs[sign], text, style)


def _shown_url(url: str) -> str:
    """Return a URL that people can open.

    Files of the local forge are for programs; people read their content with `pulls` and git.
    """
    return "" if not url or url.startswith("file:") else f"  {cut_line(url)}"


def _worker_line(event: _WorkerEvent) -> str:
    """Return the line for an event about claims, budgets or pauses."""
    match event:
        case Claimed():
            taken = (
                f", taken over from run {short_line(event.took_over_from)}" if event.took_over_from else ""
            )
            return f"claimed {short_line(event.task)} (number {event.number}, until {_minute(event.expires_at)}{taken})"
        case Resumed():
            return f"continues run {short_line(event.run)} ({short_line(event.why)}): {_resumed_work(event)}"
        case Reserved():
            limits = ", ".join(_limits(event)) or "no limit"
            return f"may spend: {limits}{f' ({short_line(event.reason)})' if event.reason else ''}"
        case ForgeUsed():
            charged = event.requests - event.unchanged
            return f"requests to the forge: {event.requests}; {charged} count for the rate limit, {event.writes} write"
        case Paused():
            verb = "paused" if _is_news(event) else "waiting"
            return f"{verb} until {_minute(event.until)}: {cut_line(event.reason)}"
        case WorkSaved():
            places = [f"as {short_line(event.ref)}"] if event.ref else []
            places += [f"as a patch: {clean(event.path)}"] if event.path else []
            return f"work saved {' and '.join(places)}"
        case _:
            assert_never(event)


def _is_news(event: _WorkerEvent) -> bool:
    """Return whether a person should notice the event. The planned wait of a schedule is no news."""
    return isinstance(event, WorkSaved) or (isinstance(event, Paused) and not event.is_planned)


def _minute(text: str) -> str:
    """Return an ISO 8601 time to the minute, in local time."""
    try:
        return local_time(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return short_line(text)


def _resumed_work(event: Resumed) -> str:
    text = f"{counted(event.files, 'changed file')}, {counted(event.turns, 'message')}"
    if not event.conflicts:
        return text
    return f"{text}; in conflict with the base: {', '.join(map(short_line, event.conflicts[:_MOST_NAMED]))}"


def _limits(event: Reserved) -> Iterator[str]:
    if event.usd is not None:
        yield f"${event.usd:,.2f}"
    if event.tokens is not None:
        yield f"{event.tokens:,} tokens"
    if event.minutes is not None:
        yield f"{event.minutes:g} minutes"
    if event.rounds is not None:
        yield counted(event.rounds, "round")


def _tests_line(event: TestRunEnded | Verified | ClaimChecked, narrator: Narrator) -> EventLine:
    """Return the line for a test run, the verdict on the tests, or a checked claim of a pull request."""
    match event:
        case ClaimChecked():
            sign, style = STANDINGS.get(event.standing, ("info", "dim"))
            text = f"{short_line(event.level)}: {claim_in_words(event)}"
        case TestRunEnded():
            took = "known from before" if event.cached else seconds_in_words(event.seconds)
            counts = f"{event.passed} passed, {event.failed} failed, {event.skipped} skipped"
            if event.counted is not None:
                counts = f"{event.counted} ran, counted in the output"
            text = f"tests {short_line(event.kind)}: {counts}, exit code {event.exit} ({took})"
            sign, style = "info", "dim"
            if event.problem:
                text += f"; proves nothing: {short_line(event.problem)}"
                sign, style = "warning", "yellow"
        case Verified():
            text = short_line(event.words, _MAX_TEXT_CHARS)
            sign, style = PROOF_SIGNS[event.proof]
        case _:
            assert_never(event)
    return EventLine(narrator.signs[sign], text, style)


PROOF_SIGNS: dict[Proof, tuple[str, str]] = {
    Proof.PASSED: ("ok", "green"),
    Proof.AS_BEFORE: ("ok", "green"),
    Proof.ONLY_EXIT_CODE: ("warning", "yellow"),
    Proof.WARNED: ("warning", "yellow"),
    Proof.UNKNOWN: ("warning", "yellow"),
    Proof.FAILED: ("failed", "red"),
}
"""The sign and the style of each value."""


def todos_in_words(items: Sequence[TodoItem]) -> str:
    """Return the progress of the model's to-do list, with the current and the next item."""
    at_work = [item for item in items if item.status is TodoStatus.IN_PROGRESS]
    waiting = [item for item in items if item.status is TodoStatus.PENDING]
    text = done_in_words(items)
    for word, some in (("now", at_work), ("next", waiting)):
        if some:
            text += f"; {word}: {short_line(some[0].content)}"
    return text


def repair_note(event: PlanAccepted) -> str:
    """Return a note in parentheses about repairs that made the reply readable; empty if there were none."""
    if event.cut_off:
        return " (the reply was cut off)"
    return " (the reply was repaired)" if event.repaired else ""


def _ending(result: JsonObject, narrator: Narrator) -> EventLine:
    outcome = short_line(str(result.get("outcome", "ended")))
    why = result.get("error") or result.get("reason")
    text = f"{outcome_in_words(outcome)}{f': {cut_line(str(why), _MAX_TEXT_CHARS)}' if why else ''}"
    sign, style = _ENDINGS.get(outcome, ("ok", "bold"))
    if left_out := _without(result.get("left_out")):
        text, sign, style = f"{text}; without {left_out}", "warning", "bold yellow"
    return EventLine(narrator.signs[sign], text, style)


def _without(listed: object) -> str:
    """Return the files that a pull request lacks, as one line; empty if there are none."""
    items = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list | tuple) else []
    ways = [f"; {one['flag']} lets it in" if one.get("flag") else "" for one in items]
    named = [
        f"{one.get('path')} ({one.get('reason')}{way})"
        for one, way in zip(items[:_MOST_NAMED], ways, strict=False)
    ]
    more = f" and {len(items) - _MOST_NAMED} more" if len(items) > _MOST_NAMED else ""
    return f"{cut_line(', '.join(named), _MAX_TEXT_CHARS)}{more}" if named else ""


def telling_argument(arguments: JsonObject) -> str:
    """Return the most informative argument of a call as one line. Lists and objects are ignored."""
    plain = (
        name for name in (*_INFORMATIVE, *arguments) if isinstance(arguments.get(name), str | int | float)
    )
    name = next(plain, None)
    return "" if name is None else cut_line(str(arguments[name]), _MAX_ARGUMENT_CHARS)

"""Words and signs for terminals and pages: makes other people's text harmless, and tells events in short lines."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

from orchestrator.bot.policy.hidden_characters import printable_text
from orchestrator.core.events import (
    SUMMARY_AGENT,
    CallDecided,
    CallStatus,
    ClaimChecked,
    Claimed,
    Cloned,
    Compacted,
    CycleEnded,
    CycleStarted,
    Decision,
    ErrorOccurred,
    Event,
    ForeignToolsOffered,
    ForgeUsed,
    Guarded,
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
    TodosChanged,
    ToolCallEnded,
    ToolCallStarted,
    ToolOutputDelta,
    TurnStarted,
    Verified,
    WaitStarted,
    Warned,
    WorkSaved,
)
from orchestrator.core.messages import Usage
from orchestrator.core.todos import TodoStatus, done_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orchestrator.core.messages import JsonObject
    from orchestrator.core.todos import TodoItem
    from orchestrator.engine.policy.secrets import Redactor


_IS_JSON = re.compile(r"\s*(?:```\w*\s*)?[{\[]")
_SAID = re.compile(
    r'"(?:plan|tool_name|path|title|reason|question_text)"\s*:\s*"((?>(?:[^"\\]|\\.)*))', re.DOTALL
)
"""The values of a plan that a person reads (`prompts/contracts/json_plan.md`)."""
_MAX_PATH_CHARS = 1_000
# ECMA-48: control sequences, and strings such as a window's title or a link.
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*+[ -/]*+[@-~]?|\x9b[0-?]*+[ -/]*+[@-~]?|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*+(?:\x07|\x1b\\|\x9c)"
)
_LINE_END = re.compile(r"\r\n?")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
# A CI system that shows the output obeys lines of these forms: `::name ...::` of GitHub Actions at a line's start,
# its older `##[name]` and the `##vso[...]` of Azure Pipelines anywhere, `##teamcity[...]`.
# https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
_LOG_COMMAND = re.compile(r"^([ \t]*:)(?=:)|(##)(?=[A-Za-z]*\[)", re.MULTILINE)


def clean(text: str) -> str:
    """Remove everything that a terminal, or a CI system that keeps the output, would obey.

    Newlines and tabs stay. Of all else only printable characters do.
    """
    return _LOG_COMMAND.sub(r"\g<0> ", visible_characters(text))


def visible_characters(text: str) -> str:
    """Remove what a terminal would obey and every character that a person does not see. Newlines and tabs stay."""
    return printable_text(_SURROGATE.sub("\ufffd", _SEQUENCE.sub("", _LINE_END.sub("\n", text))))


def short_line(text: str, most_chars: int = 200) -> str:
    """Return the text as one line, cut with an ellipsis if it is longer."""
    # What cannot be shown is not cleaned either: tool output may be large.
    flat = " ".join(clean(text[: most_chars * 8]).split())
    if len(flat) <= most_chars and len(text) <= most_chars * 8:
        return flat
    return f"{flat[: max(most_chars - 1, 0)]}…"


def cut_line(text: str, most_chars: int = 200) -> str:
    """Return the text as one line that is cut where it is longer, but never inside a path or an address."""
    flat = " ".join(clean(text[: _MAX_PATH_CHARS * 2]).split())
    if len(flat) <= most_chars:
        return flat
    end = flat.find(" ", most_chars - 1)
    last = flat[: end if end >= 0 else len(flat)].rpartition(" ")[2]
    if "/" in last and len(last) <= _MAX_PATH_CHARS:
        return flat if end < 0 else f"{flat[:end]} …"
    return f"{flat[: max(most_chars - 1, 0)]}…"


def local_time(at: datetime, *, seconds: bool = False) -> str:
    """Return a time to the minute, or to the second, in the time zone of this machine."""
    here = (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone()
    return f"{here.strftime('%Y-%m-%d %H:%M:%S' if seconds else '%Y-%m-%d %H:%M')} {here.tzname()}"


def reply_in_words(text: str) -> str:
    """Return what a reply says to people, as far as it came: of a plan in JSON its words, and else all of it."""
    if not _IS_JSON.match(text):
        return text
    return "  ".join(_unescaped(value) for value in _SAID.findall(text))


def _unescaped(value: str) -> str:
    import json

    try:
        return str(json.loads(f'"{value}"', strict=False))
    except ValueError:  # its end did not come yet
        return value.partition("\\")[0]


def hanging(text: str, width: int) -> list[str]:
    """Break text into lines between words, with an indent of two columns, or that of the line itself.

    A word that is longer than a line, as a path may be, is left to the terminal to break, which copies it whole.
    """
    from rich.cells import cell_len

    shown: list[str] = []
    for number, line in enumerate(text.split("\n")):
        words = line.lstrip(" ")
        indent = line[: len(line) - len(words)]
        current = indent or ("  " if number else "")
        for place, word in enumerate(words.split(" ")):
            longer = f"{current} {word}" if place else f"{current}{word}"
            if current.strip() and cell_len(longer) > width:
                shown.append(current)
                longer = f"{indent or '  '}{word}"
            current = longer
        shown.append(current)
    return shown


def first_lines(text: str, most_lines: int, most_chars_a_line: int = 400) -> list[str]:
    """Return the first lines of the text, and a line that counts the others."""
    lines = clean(text).strip("\n").split("\n")
    shown = [
        line[:most_chars_a_line] + ("…" if len(line) > most_chars_a_line else "")
        for line in lines[:most_lines]
    ]
    rest = len(lines) - len(shown)
    return [*shown, f"… {rest:,} more lines"] if rest else shown


_YES = frozenset({"y", "yes"})


def agreed(question: str) -> bool:
    """Ask the person at the terminal. Without a terminal the answer is no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    sys.stderr.write(f"{clean(question)}. Go on? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in _YES


def environment_redactor() -> Redactor:
    """Make the redactor for the secrets that the environment holds."""
    from orchestrator.app.config.keys import secret_values
    from orchestrator.engine.policy.secrets import Redactor

    return Redactor(secret_values(os.environ))


def as_json_text(value: Any, *, indent: int | None = None) -> str:
    """Return JSON in ASCII. No terminal or CI system takes it for a command (see `clean`)."""
    import json

    return json.dumps(value, indent=indent).replace("##", "#\\u0023")


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number with what it counts: `1 file`, `2 files`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def tests_in_words(tests: Mapping[str, Any]) -> str:
    """Return the runs of the repository's tests as one line.

    Args:
        tests: as `CycleResult.tests` has them; from a journal, so that anything may be in it.
    """
    parts = []
    for kind in ("before", "kept", "after", "new"):
        run = tests.get(kind)
        if not isinstance(run, dict):
            continue
        counts = [(run.get(name), name) for name in ("passed", "failed", "skipped")]
        told = [f"{number:,} {name}" for number, name in counts if type(number) is int]
        parts.append(
            f"{kind} {', '.join(told) or 'without counts'}, exit code {short_line(str(run.get('exit')), 20)}"
        )
    return "; ".join(parts)


WorkerEvent: TypeAlias = Claimed | Resumed | Reserved | ForgeUsed | Paused | WorkSaved

_MOST_NAMED = 5


def _worker_line(event: WorkerEvent) -> str:
    """What concerns claims, budgets and pauses."""
    match event:
        case Claimed():
            taken = (
                f", taken over from run {short_line(event.took_over_from)}" if event.took_over_from else ""
            )
            return f"claimed {short_line(event.task)} (number {event.number}, until {_minute(event.expires_at)}{taken})"
        case Resumed():
            return f"goes on where run {short_line(event.run)} stopped ({short_line(event.why)}): {_taken_over(event)}"
        case Reserved():
            caps = ", ".join(_caps(event)) or "no cap"
            return f"may spend: {caps}{f' ({short_line(event.reason)})' if event.reason else ''}"
        case ForgeUsed():
            charged = event.requests - event.unchanged
            return f"requests to the forge: {event.requests}, of them {charged} counted and {event.writes} writing"
        case Paused():
            verb = "paused" if is_news(event) else "waiting"
            return f"{verb} until {_minute(event.until)}: {cut_line(event.reason)}"
        case WorkSaved():
            places = [f"as {short_line(event.ref)}"] if event.ref else []
            places += [f"as a patch: {clean(event.path)}"] if event.path else []
            return f"work saved {' and '.join(places)}"
        case _:
            assert_never(event)


def is_news(event: WorkerEvent) -> bool:
    """Say whether a person should notice the event. The planned wait of a schedule is no news."""
    return isinstance(event, WorkSaved) or (isinstance(event, Paused) and not event.is_planned)


def _minute(text: str) -> str:
    """Tell an ISO 8601 time to the minute."""
    try:
        return local_time(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return short_line(text)


def _taken_over(event: Resumed) -> str:
    text = f"{counted(event.files, 'changed file')}, {counted(event.turns, 'message')}"
    if not event.conflicts:
        return text
    named = ", ".join(map(short_line, event.conflicts[:_MOST_NAMED]))
    return f"{text}; in conflict with the base: {named}"


def _caps(event: Reserved) -> Iterator[str]:
    if event.usd is not None:
        yield f"${event.usd:,.2f}"
    if event.tokens is not None:
        yield f"{event.tokens:,} tokens"
    if event.minutes is not None:
        yield f"{event.minutes:g} minutes"
    if event.rounds is not None:
        yield counted(event.rounds, "round")


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
    "refuted": ("failed", "bold red"),
    "unknown": ("warning", "bold yellow"),
}
"""Sign and style of what is no success, by the cycle's outcome."""
_SHORT_ID = 4
_MOST_CALLS = 1_000


@dataclass(frozen=True, slots=True)
class EventLine:
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

    def line(self, event: Event) -> EventLine | None:
        """Return the line for an event, or None if there is nothing to tell."""
        if isinstance(event, ToolCallStarted):
            if len(self._arguments) >= _MOST_CALLS:  # ends that nobody showed
                self._arguments.clear()
            self._arguments[event.call_id] = telling_argument(event.arguments)
        if isinstance(event, ReplyReceived):
            self.said = event.message.text
        return _event_line(event, self)

    def sign(self, name: str) -> str:
        """Return the sign with this name, in characters that the output can show."""
        return self._signs[name]

    def of_subagent(self, event: SubagentEvent) -> EventLine | None:
        """Return the line for a subagent's event, marked with the start of the subagent's id."""
        own = self._agents.setdefault(event.agent, Narrator(plain_signs=self._plain_signs))
        line = own.line(event.event)
        name = event.agent if event.agent == SUMMARY_AGENT else event.agent[:_SHORT_ID]
        return EventLine(line.sign, f"[{name}] {line.text}", line.style) if line else None

    def call(self, event: ToolCallEnded) -> EventLine:
        """Return the line for the end of a call, with the reason if it failed."""
        text = f"{short_line(event.name, 40)} {self._arguments.pop(event.call_id, '')}".rstrip()
        match event.status:
            case CallStatus.OK:
                return EventLine(self.sign("ok"), text, "green")
            case CallStatus.FAILED:
                return EventLine(self.sign("failed"), f"{text}: {cut_line(event.output)}", "red")
            case CallStatus.REFUSED:
                return EventLine(self.sign("failed"), f"{text}: refused: {cut_line(event.output)}", "red")
            case CallStatus.SKIPPED:
                return EventLine(self.sign("skipped"), f"{text}: not run", "dim")
            case CallStatus.INTERRUPTED:
                return EventLine(self.sign("skipped"), f"{text}: interrupted", "dim")
            case _:
                assert_never(event.status)


class RunProgress:
    """What a run does now, and what it has cost so far, from its events.

    Attributes:
        phase: the part of the cycle, or what was said before the first.
        round: the last round of the session.
        doing: the call, the request or the test run that is under way; empty between them.
        calls: how many calls have ended.
        usd: None as soon as the price of one reply is unknown.
        plan: the model's last one.
    """

    def __init__(self, phase: str = "") -> None:
        self.phase = phase
        self.round = self.calls = 0
        self.usage = Usage()
        self.usd: float | None = 0.0
        self.todos: tuple[TodoItem, ...] = ()
        self.plan = ""
        self.does("")

    def does(self, what: str) -> None:
        """Go on with something else."""
        self.doing = what

    def take(self, event: Event) -> None:  # noqa: C901  one case an event
        """Take in the next event of the run."""
        is_own = not isinstance(event, SubagentEvent)
        if isinstance(event, TodosChanged):  # a subagent's list is its own
            self.todos = event.items
        while isinstance(event, SubagentEvent):
            event = event.event
        match event:
            case PhaseEntered():
                self.phase = event.phase.value
                self.does("")
            case TurnStarted() if is_own:
                self.round = event.round
                self.does("asking the model")
            case WaitStarted():
                self.does(f"waiting {seconds_in_words(event.seconds)}")
            case ReplyReceived():
                self.usage += event.usage
                self.usd = None if self.usd is None or event.usd is None else self.usd + event.usd
                self.does("")
            case PlanAccepted() if is_own and event.plan.strip():
                self.plan = event.plan
            case ToolCallStarted():
                self.does(f"{event.name} {telling_argument(event.arguments)}")
            case TestRunStarted():
                self.does(f"running the tests ({event.kind}): {event.command}")
            case ToolCallEnded() | TestRunEnded():
                self.calls += isinstance(event, ToolCallEnded)
                self.does("")
            case _:
                pass


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

_Silent: TypeAlias = (
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
_Trouble: TypeAlias = (
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


def _event_line(event: Event, narrator: Narrator) -> EventLine | None:
    """What the model does; the rest is told by the functions below."""
    sign, style = "info", "dim"
    if isinstance(event, _Silent):
        return None
    if isinstance(event, _Trouble):
        return _trouble_line(event, narrator)
    match event:
        case TurnStarted():
            text = f"round {event.round}"
        case ReplyReceived():
            text = f"reply: {amounts(event.usage.total_tokens, event.usd)}"
        case ReplyRejected():
            problems = "; ".join(short_line(problem) for problem in event.problems)
            text = f"reply {event.attempt} not usable: {problems}; {_unusable(narrator.said)}"
            sign, style = "warning", "yellow"
        case PlanAccepted():
            sign, text, style = "plan", f"{_intention(event)}{repair_note(event)}", "bold"
        case ToolCallEnded():
            return narrator.call(event)
        case ForeignToolsOffered() | TodosChanged():
            text = _list_line(event)
        case SubagentEvent():
            return narrator.of_subagent(event)
        case _:
            return _story_line(event, narrator)
    return EventLine(narrator.sign(sign), text, style)


def _unusable(said: str) -> str:
    if not said.strip():
        return "it had no text"
    if _IS_JSON.match(said):
        return f"it was JSON, {counted(len(said), 'character')}; show --verbose prints it"
    return f"it was: {short_line(said)}"


def _list_line(event: ForeignToolsOffered | TodosChanged) -> str:
    if isinstance(event, TodosChanged):
        return f"list: {todos_in_words(event.items)}"
    return f"MCP server {short_line(event.server, 80)}: {counted(len(event.tools), 'tool')}"


def _trouble_line(event: _Trouble, narrator: Narrator) -> EventLine:
    """What comes between the rounds."""
    sign, style = "warning", "yellow"
    match event:
        case WaitStarted():
            text = f"waiting {seconds_in_words(event.seconds)}: {cut_line(event.reason)}"
        case CallDecided():
            text = f"{_DECISIONS[event.decision]}: {cut_line(event.scope, _MAX_ARGUMENT_CHARS)}"
            text += f" ({cut_line(event.reason)})" if event.reason else ""
            sign, style = (sign, style) if event.decision is Decision.NO else ("info", "dim")
        case SteeringInjected():
            sign, text, style = "plan", f"told: {short_line(event.text, _MAX_TEXT_CHARS)}", "bold"
        case LoopDetected():
            text = cut_line(event.message, _MAX_TEXT_CHARS)
        case Compacted():
            sign, style = "plan", "dim"
            text = f"the conversation was made shorter, from about {event.tokens_before:,} to "
            text += f"{event.tokens_after:,} tokens: {short_line(event.reason, _MAX_TEXT_CHARS)}"
        case ErrorOccurred():
            sign, text, style = "failed", cut_line(event.message, _MAX_TEXT_CHARS), "red"
        case LimitReached():
            text = f"limit of {short_line(event.limit)} reached: {short_line(event.detail)}"
        case Guarded():
            said = ": ".join((event.message, *(("; ".join(event.details),) if event.details else ())))
            text = f"{event.defence}: {cut_line(said, _MAX_TEXT_CHARS)}"
        case TestRunEnded() | Verified() | ClaimChecked():
            return _tests_line(event, narrator)
        case _:
            assert_never(event)
    return EventLine(narrator.sign(sign), text, style)


STANDINGS = {
    "holds": ("ok", "green"),
    "refuted": ("failed", "red"),
    "unknown": ("question", "yellow"),
    "noted": ("info", "dim"),
}
"""Sign and style of what became of a claim."""
_MAX_CLAIM_CHARS = 300
_OBJECT = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{28,52}\b")
"""A digest, which `--json` has whole."""


def claim_in_words(event: ClaimChecked) -> str:
    """Return what became of a claim, with both sides where they differ."""
    differs = bool(event.claimed) and event.claimed != event.found
    shown = (_OBJECT.sub(r"\1…", text) for text in (event.found, event.claimed))
    found, claimed = (short_line(text, _MAX_CLAIM_CHARS) for text in shown)
    said = f"claimed {claimed}, found {found or 'nothing'}" if differs else found
    note = f" ({short_line(event.note, _MAX_CLAIM_CHARS)})" if event.note else ""
    return f"{short_line(event.subject)}: {said}{note}"


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


def _story_line(event: _StoryEvent, narrator: Narrator) -> EventLine:
    """What becomes of the cycle."""
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
            text = f"pull request #{event.number} {done}: {cut_line(event.title)}{_where(event.url)}"
            sign, style = "ok", "bold green"
        case QuestionAsked():
            text = f"question: {clean(event.question).strip()}{_where(event.url or '')}"
            sign, style = "question", "bold yellow"
        case Claimed() | Resumed() | Reserved() | ForgeUsed() | Paused() | WorkSaved():
            text = _worker_line(event)
            sign, style = ("warning", "yellow") if is_news(event) else (sign, style)
        case CycleEnded():
            return _ending(event.result, narrator)
        case _:
            assert_never(event)
    return EventLine(narrator.sign(sign), text, style)


def _where(url: str) -> str:
    """Where people look. The files of the local forge are for programs: `pulls` and git show what is in them."""
    return "" if not url or url.startswith("file:") else f"  {cut_line(url)}"


def _tests_line(event: TestRunEnded | Verified | ClaimChecked, narrator: Narrator) -> EventLine:
    """How a run of the tests ended, what the runs prove, or what of a pull request's claims holds."""
    match event:
        case ClaimChecked():
            sign, style = STANDINGS.get(event.standing, ("info", "dim"))
            return EventLine(
                narrator.sign(sign), f"{short_line(event.level)}: {claim_in_words(event)}", style
            )
        case TestRunEnded(problem=problem):
            took = "known from before" if event.cached else seconds_in_words(event.seconds)
            counts = f"{event.passed} passed, {event.failed} failed, {event.skipped} skipped"
            text = f"tests {short_line(event.kind)}: {counts}, exit code {event.exit} ({took})"
            if problem:
                return EventLine(
                    narrator.sign("warning"), f"{text}; proves nothing: {short_line(problem)}", "yellow"
                )
            return EventLine(narrator.sign("info"), text, "dim")
        case Verified(reasons=reasons):
            why = short_line("; ".join(reasons), _MAX_TEXT_CHARS)
            if event.is_red:
                return EventLine(narrator.sign("failed"), f"the tests do not pass: {why}", "red")
            if why:
                return EventLine(narrator.sign("warning"), f"the tests show: {why}", "yellow")
            return EventLine(narrator.sign("ok"), "the tests pass", "green")
        case _:
            assert_never(event)


def _intention(event: PlanAccepted) -> str:
    """The model's plan, or the number of its calls."""
    if event.plan.strip():
        return f"plan: {short_line(event.plan, _MAX_TEXT_CHARS)}"
    return "1 call" if event.calls == 1 else f"{event.calls} calls"


def todos_in_words(items: Sequence[TodoItem]) -> str:
    """How far the model's list is, and what it does now or next."""
    at_work = [item for item in items if item.status is TodoStatus.IN_PROGRESS]
    waiting = [item for item in items if item.status is TodoStatus.PENDING]
    said = "".join(
        f"; {word}: {short_line(some[0].content)}"
        for word, some in (("now", at_work), ("next", waiting))
        if some
    )
    return f"{done_in_words(items)}{said}"


def repair_note(event: PlanAccepted) -> str:
    """Say in brackets what was repaired before the reply could be read."""
    if event.cut_off:
        return " (the reply was cut off)"
    return " (the reply was mended)" if event.repaired else ""


def _ending(result: JsonObject, narrator: Narrator) -> EventLine:
    outcome = short_line(str(result.get("outcome", "ended")))
    why = result.get("error") or result.get("reason")
    text = f"{outcome.replace('_', ' ')}{f': {cut_line(str(why), _MAX_TEXT_CHARS)}' if why else ''}"
    sign, style = _ENDINGS.get(outcome, ("ok", "bold"))
    return EventLine(narrator.sign(sign), text, style)


def telling_argument(arguments: JsonObject) -> str:
    """Return the argument of a call that says most, as one line. Lists and objects say nothing to people."""
    plain = (name for name in (*_TELLING, *arguments) if isinstance(arguments.get(name), str | int | float))
    name = next(plain, None)
    return "" if name is None else cut_line(str(arguments[name]), _MAX_ARGUMENT_CHARS)


def amounts(tokens: int, usd: float | None) -> str:
    """Return tokens and cost in words."""
    return f"{tokens:,} tokens, {money(usd)}" if tokens or usd else "no tokens"


def money(usd: float | None) -> str:
    """Return US dollars. A small amount gets four digits, so that it is not shown as zero."""
    if usd is None:
        return "cost unknown"
    digits = 2 if usd == 0 or usd >= 1 else 4
    return f"${usd:,.{digits}f}"


def duration(seconds: float) -> str:
    """Return a time as `M:SS` or `H:MM:SS`."""
    minutes, rest = divmod(int(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def seconds_in_words(seconds: float) -> str:
    """Return seconds in words. Short times get a tenth, so that they are not shown as zero."""
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"  # noqa: PLR2004  two digits are enough

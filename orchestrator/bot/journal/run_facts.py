"""Computes what happened in a run from its events: the one answer that pages, commands, digest and recovery read."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from orchestrator.core.changes import DiffStat
from orchestrator.core.cycle_events import (
    Claimed,
    Cloned,
    CycleEnded,
    CycleStarted,
    ForgeUsed,
    Paused,
    Phase,
    PhaseEntered,
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
    CallStatus,
    Defence,
    Guarded,
    MessageAdded,
    PlanAccepted,
    ReplyReceived,
    SubagentEvent,
    TodosChanged,
    ToolCallEnded,
    ToolCallStarted,
    TurnStarted,
    WaitStarted,
)
from orchestrator.core.messages import Spent, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.core.events import Event
    from orchestrator.core.todos import TodoItem

FINISH = "finish"
"""The call by which a model ends its work."""
_SAID_CHARS = 300
_MOST_ROUNDS = 2_000
_SECONDS_A_MINUTE = 60.0
WRITERS = frozenset({"edit_file", "write_file", "replace"})
PATCHERS = frozenset({"apply_patch", "apply_patch_unified"})
# Of OpenAI's patches, and of unified diffs.
_PATCHED = re.compile(r"^(?:\*\*\* (?:Add|Update|Delete) File: |(?:\+\+\+ b|--- a)/)([^\n\t]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Pause:
    """A time (UTC) until which nothing starts, with the reason in one line."""

    until: datetime
    reason: str

    @property
    def event(self) -> Paused:
        """The event for a journal."""
        return Paused(self.until.isoformat(timespec="seconds"), self.reason)


@dataclass(slots=True)
class Unanswered:
    """Tracks the requests of a run, including those of subagents, that received no reply.

    A request counts with its whole reservation if the next one of its session follows without a reply: it
    failed, and only the process knew whether it was billed. A completed run reports this itself.

    Attributes:
        failed: requests that certainly received no reply, each with the time of its start or failure.
    """

    failed: list[tuple[datetime, Spent]] = field(default_factory=list)
    _open: dict[tuple[str, ...], tuple[datetime, Spent]] = field(default_factory=dict)

    def take(self, event: Event, at: datetime) -> None:
        """Add the next event of the journal."""
        session: tuple[str, ...] = ()
        while isinstance(event, SubagentEvent):
            session, event = (*session, event.agent), event.event
        match event:
            case TurnStarted(tokens=tokens, usd=usd):
                if before := self._open.pop(session, None):
                    self.failed.append(before)
                if tokens is not None:  # older versions recorded none
                    self._open[session] = at, _spent(tokens, usd)
            case WaitStarted(tokens=tokens, usd=usd) if tokens is not None:
                self.failed.append((at, _spent(tokens, usd)))
            case ReplyReceived():
                self._open.pop(session, None)
            case _:
                pass

    @property
    def all(self) -> list[tuple[datetime, Spent]]:
        """The failed requests, and those under way when the journal stopped."""
        return [*self.failed, *self._open.values()]

    @property
    def total(self) -> Spent:
        """The sum of all."""
        return sum((spent for _at, spent in self.all), Spent())


def spent_on_reply(reply: ReplyReceived) -> Spent:
    """Return the cost of a reply. Servers report the tokens; negative values are ignored."""
    tokens = max(reply.usage.input_tokens, 0) + max(reply.usage.output_tokens, 0)
    return replace(_spent(tokens, reply.usd), rounds=1)


def _spent(tokens: int, usd: float | None) -> Spent:
    is_known = usd is not None and math.isfinite(usd)
    return Spent(max(usd, 0.0) if usd is not None and is_known else None, max(tokens, 0))


@dataclass(slots=True)
class RoundCost:
    """One round: a request of the session to its model, and what its reply cost."""

    round: int
    began: datetime
    ended: datetime | None = None
    usage: Usage = Usage()  # noqa: RUF009  a frozen value
    usd: float | None = 0.0


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The summary of a run. Missing texts are empty.

    Attributes:
        started: time of its first record.
        ended: time of its end, or of its last record if it has none.
        outcome: as in `CycleResult.outcome`; `running` if its process is alive, `unfinished` if that died,
            `damaged` if the journal does not even contain the start.
        is_running: whether its journal has no end, and its process is alive.
        is_damaged: whether lines are missing or unreadable, or a newer version wrote the journal.
        fault: why an existing journal cannot be read.
        task_url: where a person can read the task.
        is_conversation: whether a person talked with the model.
        said: for a conversation the person's first message; for a verification the pull request.
        plan: the last plan.
        verified: what the tests proved about the last verified change.
        refused: why a request was refused.
        waits: the tasks that were seen to wait for a person, by key, each with the reason.
        patch: file with work that was not proposed.
        saved: hidden ref with that work.
        changed: files and lines of the pull request, or of what a dry run would have proposed.
        touched: paths that our tools wrote, in order.
        costs: cost of replies, by model.
        costs_by_day: by UTC day, including possible costs of requests without a reply.
        reserved: the last reservation.
        pause: the time after it in which there is nothing to do.
        noted_pause: the pause that a worker recorded after it; a restart waits for its end.
    """

    id: str
    started: datetime | None = None
    ended: datetime | None = None
    repository: str = ""
    model: str = ""
    outcome: str = "damaged"
    is_running: bool = False
    is_damaged: bool = True
    fault: str = ""
    task: TaskTaken | None = None
    task_url: str = ""
    is_conversation: bool = False
    said: str = ""
    plan: str = ""
    verified: Verified | None = None
    pull: Proposed | None = None
    question: str = ""
    question_url: str = ""
    reason: str = ""
    error: str = ""
    refused: tuple[str, ...] = ()
    waits: Mapping[str, str] = field(default_factory=dict)
    patch: str = ""
    saved: str = ""
    changed: DiffStat = DiffStat()  # noqa: RUF009  a frozen value
    touched: tuple[str, ...] = ()
    costs: Mapping[str, Spent] = field(default_factory=dict)
    costs_by_day: Mapping[date, Spent] = field(default_factory=dict)
    reserved: Reserved | None = None
    requests: int = 0
    pause: Pause | None = None
    noted_pause: Pause | None = None

    @property
    def minutes(self) -> float:
        """The duration of the run."""
        return minutes_between(self.started, self.ended)

    @property
    def spent(self) -> Spent:
        """The cost of its replies, of all models together, and its duration."""
        return sum(self.costs.values(), Spent(minutes=self.minutes))

    def pause_at(self, now: datetime) -> Pause | None:
        """Return the pause that a worker recorded after it, if it is not over."""
        return self.noted_pause if self.noted_pause and self.noted_pause.until > now else None


@dataclass(slots=True)
class RunFacts:
    """What happened in a run, computed from its events in their order.

    Who needs only some facts may leave out the events of the others. Of an event that a run repeats the last one
    counts. Events of subagents count for costs and calls only.

    Attributes:
        started, ended: times of the first and the last event; later ones than the run's end do not count.
        begun: what is about to be proposed; None if nothing is, or if it was proposed.
        has_proposed: whether a commit was proposed.
        said: in a conversation the beginning of the person's first message.
        round: the number of the session's last round.
        rounds: the costs of the session's first rounds.
        replies: number of the session's replies, without those to subagents.
        calls: number of completed calls, with those of subagents.
        last_call: name of the session's last completed call.
        finish_refused: whether a call of `finish` did not succeed, which happens while changes are left.
        tests: the runs of the repository's tests, each with its command.
        diff: the proposed change; empty if none is known.
        usage: tokens of all replies, with those to subagents.
        costs: cost of all replies by model, with those to subagents.
        costs_by_day: the same by UTC day, with what a completed run reported of requests without a reply.
        touched: paths that tools wrote, in order; a dictionary without values.
        result: the run's result; None if it has no end.
    """

    started: datetime | None = None
    ended: datetime | None = None
    start: CycleStarted | None = None
    phase: Phase | None = None
    task: TaskTaken | None = None
    claim: Claimed | None = None
    reserved: Reserved | None = None
    cloned: Cloned | None = None
    resumed: list[Resumed] = field(default_factory=list)
    plan: str = ""
    verified: Verified | None = None
    begun: Proposing | None = None
    pull: Proposed | None = None
    has_proposed: bool = False
    question: QuestionAsked | None = None
    saved: WorkSaved | None = None
    said: str = ""
    todos: tuple[TodoItem, ...] = ()
    round: int = 0
    rounds_begun: int = 0
    rounds: list[RoundCost] = field(default_factory=list)
    replies: int = 0
    calls: int = 0
    last_call: str = ""
    finish_refused: bool = False
    tests: list[tuple[str, TestRunEnded]] = field(default_factory=list)
    diff: str = ""
    requests: int = 0
    pause: Pause | None = None
    refused: list[str] = field(default_factory=list)
    usage: Usage = Usage()  # noqa: RUF009  a frozen value
    costs: dict[str, Spent] = field(default_factory=dict)
    costs_by_day: dict[date, Spent] = field(default_factory=dict)
    unanswered: Unanswered = field(default_factory=Unanswered)
    touched: dict[str, None] = field(default_factory=dict)
    result: Mapping[str, Any] | None = None
    _writing: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _command: str = ""

    @property
    def is_writing(self) -> bool:
        """Whether a call that writes files has begun, and has not ended."""
        return bool(self._writing)

    @property
    def spent(self) -> Spent:
        """The cost of all replies, and the run's duration. Its rounds are the replies."""
        return sum(self.costs.values(), Spent(minutes=minutes_between(self.started, self.ended)))

    @property
    def spent_at_most(self) -> Spent:
        """The cost of all replies, and the possible cost of requests without a reply, including the last one.

        Its rounds are those of the session; it has no minutes.
        """
        total = sum(self.costs_by_day.values(), self.unanswered.total)
        return replace(total, rounds=self.rounds_begun)

    @property
    def is_completed(self) -> bool:
        """Whether a commit was proposed, and the model ended its work with nothing left."""
        return self.has_proposed and self.last_call == FINISH and not self.finish_refused

    def saw(self, at: datetime) -> None:
        """Count the time of a record. A pause may be noted after the end."""
        if self.result is None:
            self.started, self.ended = self.started or at, at

    def count(self, at: datetime, cost: Spent) -> None:
        """Add a cost to its day."""
        day = at.date()
        self.costs_by_day[day] = self.costs_by_day.get(day, Spent()) + cost

    def take(self, event: Event, at: datetime) -> None:
        """Add the next event."""
        self.saw(at)
        self.unanswered.take(event, at)
        is_own = not isinstance(event, SubagentEvent)
        while isinstance(event, SubagentEvent):
            event = event.event
        match event:
            case ReplyReceived():
                cost = spent_on_reply(event)
                self.usage += event.usage
                self.costs[event.model] = self.costs.get(event.model, Spent()) + cost
                self.count(at, cost)
            case ToolCallEnded():
                self.calls += 1
            case _:
                pass
        if is_own:
            self._take_of_session(event, at)
            self._take_of_cycle(event, at)

    def _take_of_session(self, event: Event, at: datetime) -> None:  # noqa: C901, PLR0912  one case an event
        match event:
            case MessageAdded() if not self.said and self.start is not None and self.start.door:
                self.said = event.message.text[:_SAID_CHARS]
            case PlanAccepted() if event.plan.strip():
                self.plan = event.plan
            case TodosChanged():
                self.todos = event.items
            case TurnStarted():
                self.round = event.round
                self.rounds_begun += 1
                if len(self.rounds) < _MOST_ROUNDS:
                    self.rounds.append(RoundCost(event.round, at))
            case ReplyReceived():
                self.replies += 1
                if self.rounds and self.rounds[-1].ended is None:
                    last = self.rounds[-1]
                    last.ended, last.usage, last.usd = at, event.usage, event.usd
            case ToolCallStarted() if paths := _written(event):
                self._writing[event.call_id] = paths
            case ToolCallEnded():
                self.last_call = event.name
                paths = self._writing.pop(event.call_id, ())
                if event.status is CallStatus.OK:
                    self.touched.update(dict.fromkeys(paths))
                elif event.name == FINISH:
                    self.finish_refused = True
            case Guarded() if event.defence is Defence.ADMISSION:
                self.refused.append(event.message)
            case _:
                pass

    def _take_of_cycle(self, event: Event, at: datetime) -> None:  # noqa: C901, PLR0912  one case an event
        match event:
            case CycleStarted():
                self.start = event
            case PhaseEntered():
                self.phase = event.phase
            case TaskTaken():
                self.task = event
            case Claimed():
                self.claim = event
            case Reserved():
                self.reserved = event
            case Cloned():
                self.cloned = event
            case Resumed():
                self.resumed.append(event)
            case TestRunStarted():
                self._command = event.command
            case TestRunEnded():
                self.tests.append((self._command, event))
            case Verified():
                self.verified = event
            case Proposing():
                self.begun, self.diff = event, event.diff or self.diff
            case Proposed():
                self.begun, self.pull = None, event
                self.has_proposed = self.has_proposed or bool(event.commit)
            case QuestionAsked():
                self.question = event
            case WorkSaved():
                self.saved = event
            case ForgeUsed():
                self.requests += max(event.requests, 0)
            case Paused():
                self.pause = _pause(event.until, event.reason) or self.pause
            case CycleEnded():
                self._end(event.result, at)
            case _:
                pass

    def _end(self, result: Mapping[str, Any], at: datetime) -> None:
        self.result = result
        self.diff = _text(result, "diff") or self.diff
        reported = _reported_unanswered(result)
        if reported is not None:
            self.unanswered = Unanswered()  # the run itself knew more than its journal says
            self.count(at, reported)

    def summary(self, run: str, *, is_damaged: bool = False) -> RunSummary:
        """Return the summary, for a run whose process is dead."""
        by_day = dict(self.costs_by_day)
        for at, cost in self.unanswered.all:
            by_day[at.date()] = by_day.get(at.date(), Spent()) + cost
        result = self.result or {}
        task = result.get("task")
        begin, question, work = self.start, self.question, self.saved
        return RunSummary(
            id=run,
            started=self.started,
            ended=self.ended,
            repository=begin.repository if begin else "",
            model=begin.model if begin else "",
            outcome=(_text(result, "outcome") or "unfinished") if begin else "damaged",
            is_damaged=is_damaged,
            task=self.task,
            task_url=_text(task, "url") if isinstance(task, dict) else "",
            is_conversation=bool(self.said),
            said=self.said or (_text(result, "reason") if begin and begin.door else ""),
            plan=_text(result, "plan") or self.plan,
            verified=self.verified,
            pull=self.pull,
            question=_text(result, "question") or (question.question if question else ""),
            question_url=_text(result, "question_url") or (question.url or "" if question else ""),
            reason=_text(result, "reason"),
            error=_text(result, "error"),
            refused=tuple(self.refused),
            waits=_texts(result, "waits"),
            patch=_text(result, "patch") or (work.path if work else ""),
            saved=_text(result, "saved") or (work.ref if work else ""),
            changed=_changed(result),
            touched=tuple(self.touched),
            costs=dict(self.costs),
            costs_by_day=by_day,
            reserved=self.reserved,
            requests=self.requests,
            pause=self.pause or _pause(_text(result, "wake_at"), _text(result, "reason")),
            noted_pause=self.pause,
        )


def minutes_between(begin: datetime | None, end: datetime | None) -> float:
    """Return the minutes from one time to another; 0 if one is unknown or they are in the other order."""
    if begin is None or end is None:
        return 0.0
    return max((end - begin).total_seconds(), 0.0) / _SECONDS_A_MINUTE


def moment(text: str) -> datetime | None:
    """Return a time in UTC from ISO 8601; None if it has another form."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


def _reported_unanswered(result: Mapping[str, Any]) -> Spent | None:
    """Return the possible cost of requests without a reply, if the end of a run reports it."""
    if "uncertain_tokens" not in result:
        return None
    usd, tokens = result.get("uncertain_usd", 0.0), result["uncertain_tokens"]
    known = max(float(usd), 0.0) if isinstance(usd, int | float) and math.isfinite(usd) else 0.0
    return Spent(None if usd is None else known, max(tokens, 0) if isinstance(tokens, int) else 0)


def _written(call: ToolCallStarted) -> tuple[str, ...]:
    """Return the paths that a call will write, as far as its arguments name them plainly."""
    arguments = call.arguments
    if call.name in WRITERS:
        path = arguments.get("path") or arguments.get("file_path")
        return (path,) if isinstance(path, str) else ()
    if call.name in PATCHERS:
        texts = [value for value in arguments.values() if isinstance(value, str)]
        return tuple(path.strip() for text in texts for path in _PATCHED.findall(text))
    return ()


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    return value if isinstance(value, str) else ""


def _texts(values: Mapping[str, Any], name: str) -> dict[str, str]:
    found = values.get(name)
    items = found.items() if isinstance(found, dict) else ()
    return {key: text for key, text in items if isinstance(text, str)}


def _pause(until: str, reason: str) -> Pause | None:
    at = moment(until)
    return Pause(at, reason) if at else None


def _changed(result: Mapping[str, Any]) -> DiffStat:
    reported = result.get("changed")
    fields = reported if isinstance(reported, dict) else {}
    files = fields.get("files")
    names = tuple(name for name in files if isinstance(name, str)) if isinstance(files, list) else ()
    added, removed = (fields.get(name) for name in ("added", "removed"))
    return DiffStat(names, added if type(added) is int else 0, removed if type(removed) is int else 0)

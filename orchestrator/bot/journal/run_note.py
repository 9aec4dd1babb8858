"""One run in a few words, from its journal; only the records that say something are parsed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from orchestrator.bot.journal.codec import UnknownRecord, decode
from orchestrator.bot.journal.costs import cost_of
from orchestrator.bot.journal.folders import JOURNAL_FILE
from orchestrator.bot.journal.open_runs import is_alive
from orchestrator.bot.journal.pauses import Pause
from orchestrator.core.changes import DiffStat
from orchestrator.core.defences import Defence, Guarded
from orchestrator.core.errors import JournalError
from orchestrator.core.events import (
    CallStatus,
    CycleEnded,
    CycleStarted,
    ForgeUsed,
    Paused,
    PlanAccepted,
    Proposed,
    QuestionAsked,
    ReplyReceived,
    SubagentEvent,
    TaskTaken,
    ToolCallEnded,
    ToolCallStarted,
    Verified,
    WorkSaved,
)
from orchestrator.core.spent import Spent

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orchestrator.core.events import Event

# The beginning of each line, as the journal's writer makes it.
_HEAD = re.compile(rb'\{"seq":\d+,"at":"([0-9T:.+-]{25,32})","type":"(\w+)"')
_WANTED = frozenset(
    kind.__name__.encode()
    for kind in (
        *(CycleStarted, TaskTaken, PlanAccepted, ReplyReceived, ToolCallStarted, ToolCallEnded, Guarded),
        *(Verified, Proposed, QuestionAsked, WorkSaved, ForgeUsed, Paused, CycleEnded),
    )
)
_A_REPLY = b'"type":"ReplyReceived"'
_SECONDS_A_MINUTE = 60.0
_WRITERS = frozenset({"edit_file", "write_file", "replace"})
_PATCHERS = frozenset({"apply_patch", "apply_patch_unified"})
# Of OpenAI's patches, and of unified diffs.
_PATCHED = re.compile(r"^(?:\*\*\* (?:Add|Update|Delete) File: |(?:\+\+\+ b|--- a)/)([^\n\t]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RunNote:
    """A run. Text is empty where there is none.

    Attributes:
        started: of the first record; None where there is none.
        outcome: as `CycleResult.outcome` has it; `running` while its process is alive, `unfinished` where
            that died, `damaged` where the journal does not even tell how it began.
        task_url: where a person reads it.
        plan: the last one.
        verified: what the tests proved of the last change that was looked at.
        refused: why what somebody asked for was not taken up.
        patch: the file that holds work which was not proposed.
        saved: the hidden ref that holds it.
        changed: the files and lines of the pull request, or of what a dry run would have proposed.
        touched: paths that tools of ours wrote, in order.
        costs: by model.
        pause: how long there is nothing to do after it.
    """

    id: str
    started: datetime | None = None
    repository: str = ""
    model: str = ""
    outcome: str = "damaged"
    task: TaskTaken | None = None
    task_url: str = ""
    plan: str = ""
    verified: Verified | None = None
    pull: Proposed | None = None
    question: str = ""
    question_url: str = ""
    reason: str = ""
    error: str = ""
    refused: tuple[str, ...] = ()
    patch: str = ""
    saved: str = ""
    changed: DiffStat = DiffStat()  # noqa: RUF009  a frozen value
    touched: tuple[str, ...] = ()
    costs: Mapping[str, Spent] = field(default_factory=dict)
    minutes: float = 0.0
    requests: int = 0
    pause: Pause | None = None

    @property
    def spent(self) -> Spent:
        """All models together."""
        return sum(self.costs.values(), Spent(minutes=self.minutes))


def note_run(folder: Path) -> RunNote:
    """Read a run's journal. Lines that cannot be read are passed over."""
    notes = _Notes()
    try:
        with (folder / JOURNAL_FILE).open("rb") as file:
            for line in file:
                notes.add(line)
    except OSError:
        return RunNote(folder.name)
    return notes.finish(folder)


@dataclass(slots=True)
class _Notes:
    """Collects what the records say."""

    started: datetime | None = None
    last: datetime | None = None
    begin: CycleStarted | None = None
    task: TaskTaken | None = None
    plan: str = ""
    verified: Verified | None = None
    pull: Proposed | None = None
    question: QuestionAsked | None = None
    work: WorkSaved | None = None
    requests: int = 0
    pause: Pause | None = None
    refused: list[str] = field(default_factory=list)
    costs: dict[str, Spent] = field(default_factory=dict)
    result: Mapping[str, Any] | None = None
    calls: dict[str, tuple[str, ...]] = field(default_factory=dict)
    touched: dict[str, None] = field(default_factory=dict)

    def add(self, line: bytes) -> None:
        """Take one line in."""
        head = _HEAD.match(line)
        if head is None:
            return
        at = _moment(head[1].decode("ascii"))
        if self.result is None and at is not None:  # what is written after the end is no work
            self.started, self.last = self.started or at, at
        if head[2] in _WANTED or _A_REPLY in line:
            event = _event(line)
            if event is not None:
                self.take(event)

    def take(self, event: Event) -> None:  # noqa: C901, PLR0912  one case an event
        """Take an event in."""
        match event:
            case SubagentEvent():
                self.take(event.event)
            case CycleStarted():
                self.begin = event
            case TaskTaken():
                self.task = event
            case PlanAccepted() if event.plan.strip():
                self.plan = event.plan
            case ReplyReceived():
                self.costs[event.model] = self.costs.get(event.model, Spent()) + cost_of(event)
            case ToolCallStarted():
                self.calls[event.call_id] = _written(event)
            case ToolCallEnded() if event.status is CallStatus.OK:
                self.touched.update(dict.fromkeys(self.calls.pop(event.call_id, ())))
            case Guarded() if event.defence is Defence.ADMISSION:
                self.refused.append(event.message)
            case Verified():
                self.verified = event
            case Proposed():
                self.pull = event
            case QuestionAsked():
                self.question = event
            case WorkSaved():
                self.work = event
            case ForgeUsed():
                self.requests += max(event.requests, 0)
            case Paused():
                self.pause = _pause(event.until, event.reason) or self.pause
            case CycleEnded():
                self.result = event.result
            case _:
                pass

    def finish(self, folder: Path) -> RunNote:
        """What was collected."""
        result = self.result or {}
        task = result.get("task")
        works = self.result is None and is_alive(folder)
        outcome = _text(result, "outcome") or ("running" if works else "unfinished")
        return RunNote(
            folder.name,
            self.started,
            self.begin.repository if self.begin else "",
            self.begin.model if self.begin else "",
            outcome if self.begin else "damaged",
            self.task,
            _text(task, "url") if isinstance(task, dict) else "",
            _text(result, "plan") or self.plan,
            self.verified,
            self.pull,
            _text(result, "question") or (self.question.question if self.question else ""),
            _text(result, "question_url") or (self.question.url or "" if self.question else ""),
            _text(result, "reason"),
            _text(result, "error"),
            tuple(self.refused),
            _text(result, "patch") or (self.work.path if self.work else ""),
            _text(result, "saved") or (self.work.ref if self.work else ""),
            _changed(result),
            tuple(self.touched),
            self.costs,
            self._minutes(),
            self.requests,
            self.pause or _pause(_text(result, "wake_at"), _text(result, "reason")),
        )

    def _minutes(self) -> float:
        if self.started is None or self.last is None:
            return 0.0
        return max((self.last - self.started).total_seconds(), 0.0) / _SECONDS_A_MINUTE


def _event(line: bytes) -> Event | None:
    try:
        data = json.loads(line)
        event = decode(data) if isinstance(data, dict) else None
    except (ValueError, RecursionError, JournalError):
        return None
    return None if isinstance(event, UnknownRecord) else event


def _written(call: ToolCallStarted) -> tuple[str, ...]:
    """The paths that a call is to write, as far as its arguments say so plainly."""
    arguments = call.arguments
    if call.name in _WRITERS:
        path = arguments.get("path") or arguments.get("file_path")
        return (path,) if isinstance(path, str) else ()
    if call.name in _PATCHERS:
        texts = [value for value in arguments.values() if isinstance(value, str)]
        return tuple(path.strip() for text in texts for path in _PATCHED.findall(text))
    return ()


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    return value if isinstance(value, str) else ""


def _pause(until: str, reason: str) -> Pause | None:
    at = _moment(until)
    return Pause(at, reason) if at else None


def _moment(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


def _changed(result: Mapping[str, Any]) -> DiffStat:
    told = result.get("changed")
    fields = told if isinstance(told, dict) else {}
    files = fields.get("files")
    names = tuple(name for name in files if isinstance(name, str)) if isinstance(files, list) else ()
    added, removed = (fields.get(name) for name in ("added", "removed"))
    return DiffStat(names, added if type(added) is int else 0, removed if type(removed) is int else 0)

"""The page of a run: its events with every call and output, its change, its tests, and its cost per round."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.event_lines import PROOF_SIGNS, Narrator
from orchestrator.app.html.page import (
    Badge,
    Code,
    DiffBlock,
    Facts,
    HtmlPage,
    Link,
    Moment,
    Notice,
    Output,
    PlainText,
    Section,
    Step,
    Table,
)
from orchestrator.app.words import counted, duration, money, outcome_in_words, seconds_in_words, short_line
from orchestrator.bot.journal.index import summarise
from orchestrator.bot.journal.reader import JournalTail
from orchestrator.bot.journal.records import UnknownRecord
from orchestrator.bot.journal.run_facts import RunFacts
from orchestrator.bot.suggestions import Commands
from orchestrator.core.confined import ConfinedFolder
from orchestrator.core.cycle_events import (
    Proof,
    Proposing,
    TaskTaken,
    TestRunEnded,
)
from orchestrator.core.events import (
    Compacted,
    MessageAdded,
    PlanAccepted,
    ReplyReceived,
    SessionStarted,
    SubagentEvent,
    ToolCallEnded,
    ToolCallStarted,
    TurnStarted,
)
from orchestrator.core.messages import Reasoning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from orchestrator.app.html.page import Block, Cell, Tone
    from orchestrator.bot.journal.reader import JournalRecord
    from orchestrator.bot.journal.run_facts import RunSummary
    from orchestrator.core.events import Event

_FIRST_STEPS = 1_500
_LAST_STEPS = 1_500
_MOST_CALLS = 1_000
_MOST_PATCH_BYTES = 2_000_000
_LINE_CHARS = 80
_REFUSED = 20

OUTCOMES: dict[str, Tone] = {
    "proposed": "ok",
    "finished": "ok",
    "answered": "ok",
    "merged": "ok",
    "planned": "active",
    "running": "active",
    "question": "warning",
    "limit": "warning",
    "conflict": "warning",
    "paused": "warning",
    "interrupted": "warning",
    "unfinished": "warning",
    "failed": "failed",
    "tests_fail": "failed",
    "damaged": "failed",
    "holds": "ok",
    "refuted": "failed",
    "unknown": "warning",
}
"""The colours of outcomes; others are `quiet`."""


def outcome_badge(outcome: str) -> Badge:
    """Return an outcome with its colour."""
    return Badge(outcome_in_words(outcome), OUTCOMES.get(outcome, "quiet"))


_TONES: dict[str, Tone] = {"green": "ok", "red": "failed", "yellow": "warning", "bold": "active"}
"""The colours by words of terminal styles. The first match counts."""


def tone_of(style: str) -> Tone:
    """Return the colour for a style of terminal lines."""
    return next((tone for word, tone in _TONES.items() if word in style), "quiet")


class StepWriter:
    """Converts the events of one run to steps. It keeps the arguments of calls until their end."""

    def __init__(self) -> None:
        self._narrator = Narrator()
        self._arguments: dict[tuple[str, ...], Mapping[str, Any]] = {}

    def steps(self, event: Event, at: datetime) -> Iterator[Step]:
        """Yield the steps that show an event."""
        line = self._narrator.line(event)
        agents: tuple[str, ...] = ()
        inner = event
        while isinstance(inner, SubagentEvent):
            agents, inner = (*agents, inner.agent), inner.event
        if isinstance(inner, ToolCallStarted):
            if len(self._arguments) >= _MOST_CALLS:  # the ends of these calls were skipped
                self._arguments.clear()
            self._arguments[*agents, inner.call_id] = inner.arguments
            return
        if isinstance(inner, TurnStarted) and not agents:
            yield Step(f"Round {inner.round}", at=at, is_heading=True)
            return
        texts = tuple(Output(name, text) for name, text in self._texts(inner, agents) if text.strip())
        if line is not None:
            if isinstance(inner, PlanAccepted) and not agents and inner.plan.strip():
                yield Step("plan", "active", line.sign, at, body=inner.plan)
            else:
                yield Step(line.text, tone_of(line.style), line.sign, at, folded=texts)
        elif texts:
            yield Step(_SILENT.get(type(inner), type(inner).__name__), "quiet", "·", at, folded=texts)

    def _texts(self, event: Event, agents: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        """Yield the long texts of an event."""
        match event:
            case ToolCallEnded():
                yield "arguments", _arguments(self._arguments.pop((*agents, event.call_id), {}))
                yield "output", event.output
            case ReplyReceived():
                yield from (
                    ("reasoning", one.text) for one in event.message.parts if isinstance(one, Reasoning)
                )
                yield "what the model said", event.message.text
            case MessageAdded():
                yield "text", event.message.text
            case SessionStarted():
                yield "text", event.system
            case TaskTaken():
                yield "text", event.body
            case Compacted():
                yield "summary of the earlier conversation", event.summary
            case Proposing():
                yield "text", f"{event.title}\n\n{event.body}"
            case _:
                pass


_SILENT: dict[type, str] = {
    MessageAdded: "told the model",
    SessionStarted: "instructions for the model",
    Proposing: "wording of the pull request",
}


def _arguments(arguments: Mapping[str, Any]) -> str:
    """Return the arguments of a call, with texts unquoted."""
    lines = []
    for name, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        gap = "\n" if isinstance(value, str) and "\n" in value else " "
        lines.append(f"{name}:{gap}{text}")
    return "\n".join(lines)


@dataclass(slots=True)
class RunStory:
    """Collects the facts and the steps of a run, in bounded memory.

    Attributes:
        steps: the first steps.
        last_steps: the last steps, if there are too many.
        left_out: number of steps between those.
        newer: number of records that only a newer version understands.
    """

    facts: RunFacts = field(default_factory=RunFacts)
    steps: list[Step] = field(default_factory=list)
    last_steps: deque[Step] = field(default_factory=lambda: deque(maxlen=_LAST_STEPS))
    left_out: int = 0
    newer: int = 0
    _told: StepWriter = field(default_factory=StepWriter)

    @classmethod
    def read(cls, folder: Path) -> RunStory:
        """Read a run from its journal. Unreadable lines are skipped."""
        story = cls()
        story.take(JournalTail(folder).records())
        return story

    def take(self, records: Iterable[JournalRecord]) -> None:
        """Add the next records."""
        for record in records:
            if isinstance(record.event, UnknownRecord):
                self.newer += 1
                continue
            self.facts.take(record.event, record.at)
            for step in self._told.steps(record.event, record.at):
                self._add(step)

    def _add(self, step: Step) -> None:
        if len(self.steps) < _FIRST_STEPS:
            self.steps.append(step)
            return
        self.left_out += len(self.last_steps) == _LAST_STEPS
        self.last_steps.append(step)


def run_page(folder: Path) -> HtmlPage:
    """Return the page of a run."""
    return page_of(RunStory.read(folder), summarise(folder))


def page_of(story: RunStory, run: RunSummary) -> HtmlPage:
    """Return the page of a run from its collected story."""
    title = run.task.title if run.task else f"Run {run.id}"
    return HtmlPage(
        title=short_line(title, 160),
        subtitle=f"{run.repository or 'no repository'} · run {run.id}",
        badge=outcome_badge(run.outcome),
        facts=list(_facts(story, run)),
        sections=[one for one in _sections(story, run) if one.blocks],
    )


def _facts(story: RunStory, run: RunSummary) -> Iterator[tuple[str, Cell]]:
    if run.started is not None:
        yield "started", Moment(run.started)
    yield "took", duration(run.minutes * 60)
    if run.model:
        yield "model", run.model
    if story.facts.start is not None and story.facts.start.contract:
        yield "contract", story.facts.start.contract
    yield "rounds", f"{run.spent.rounds:,}"
    cached = story.facts.usage.cached_input_tokens
    yield "tokens", f"{run.spent.tokens:,}{f', {cached:,} of them cached' if cached else ''}"
    yield "cost", money(run.spent.usd, "unknown") if run.costs else "nothing"
    if run.pull is not None:
        yield (
            "pull request",
            Link(f"#{run.pull.number} {short_line(run.pull.title, _LINE_CHARS)}", run.pull.url),
        )
    if run.task is not None:
        yield "task", Link(run.task.key, run.task_url) if run.task_url else Code(run.task.key)


def _sections(story: RunStory, run: RunSummary) -> Iterator[Section]:
    yield Section("What came of it", list(_outcome(run)))
    plan = run.plan.strip()
    yield Section("Plan", [PlainText(plan)] if plan else [])
    diff = story.facts.diff or _patch(run)
    yield Section(
        "The change", [DiffBlock(diff)] if diff else [], "" if story.facts.diff else "kept, not proposed"
    )
    yield Section("Tests", list(_tests(story, run)))
    yield Section("Cost", list(_costs(story, run)))
    steps: list[Block] = [*story.steps]
    if story.left_out:
        steps.append(Step(f"{counted(story.left_out, 'step')} left out here", "quiet", "…", is_heading=True))
    steps += story.last_steps
    if story.newer:
        steps.append(Step(f"{counted(story.newer, 'record')} of a newer version not shown", "warning", "!"))
    yield Section("Story", steps, id="story")


def _outcome(run: RunSummary) -> Iterator[Block]:
    if run.fault or run.is_damaged:
        yield Notice("warning", run.fault or "Lines of the journal are missing or cannot be read.")
    if run.question:
        yield Notice("warning", f"Question: {run.question}")
    if run.error:
        yield Notice("failed", run.error)
    elif run.reason:
        yield Notice("quiet", run.reason)
    for text in run.refused[:_REFUSED]:
        yield Notice("quiet", f"Refused: {text}")
    if rows := list(_next_steps(run)):
        yield Facts(rows)


def _next_steps(run: RunSummary) -> Iterator[tuple[str, Cell]]:
    """Yield what a person can do about a run, and where its unfinished work is."""
    commands = Commands(run.repository)
    if run.question_url.startswith("http"):  # the files of a local forge are for programs
        yield "answer at", Link(run.question_url, run.question_url)
    elif run.outcome == "question" and run.task is not None:
        yield "answer with", Code(commands.answer(run.task.key))
    if run.outcome in {"failed", "tests_fail"} and run.task is not None:
        yield "another try", Code(commands.retry(run.task.key))
    if run.outcome == "tests_fail" and run.task is not None:
        yield "propose it as a draft", Code(commands.propose_failing(run.task.key))
    yield from (("work is kept at", Code(place)) for place in (run.saved, run.patch) if place)
    if run.pause is not None:
        yield "nothing before", Moment(run.pause.until)


def _patch(run: RunSummary) -> str:
    """Return the change that was saved as a patch, if this machine has it."""
    try:
        with ConfinedFolder(Path(run.patch).parent) as folder:
            return folder.beginning(Path(run.patch).name, _MOST_PATCH_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def _counts(one: TestRunEnded) -> tuple[str, str, str]:
    """Return how many tests passed, failed and were skipped. Without a report only their number may be known."""
    if one.counted is not None:
        return f"{one.counted:,} ran", "", ""
    if not (one.passed or one.failed or one.skipped or one.problem):
        return "", "", ""
    return f"{one.passed:,}", f"{one.failed:,}", f"{one.skipped:,}"


def _tests(story: RunStory, run: RunSummary) -> Iterator[Block]:
    if run.verified is not None:
        tone = PROOF_TONES[run.verified.proof]
        yield Notice(tone, f"{run.verified.proof.sentence.capitalize()}.")
        for reason in filter(None, (*run.verified.reasons, run.verified.base_fails)):
            yield Notice(tone, reason)
    if not story.facts.tests:
        return
    rows: list[list[Cell]] = [
        [
            _RUNS.get(one.kind, one.kind),
            Badge("invalid", "warning") if one.problem else _verdict(one),
            *_counts(one),
            str(one.exit),
            "earlier run" if one.cached else seconds_in_words(one.seconds),
        ]
        for _, one in story.facts.tests
    ]
    heads = ["run", "result", "passed", "failed", "skipped", "exit code", "time"]
    yield Table(heads, rows, numeric={2, 3, 4, 5, 6}, caption="Runs of the repository's tests")
    for _, one in story.facts.tests:
        if one.problem:
            yield Output(f"{one.kind}: why it is invalid", one.problem, "warning")
    if command := story.facts.tests[-1][0]:
        yield PlainText(f"Command: {command}")


_RUNS = {
    "before": "before: the base",
    "kept": "kept: the change, with the tests of the base",
    "after": "after: the change",
    "new": "new: the base, with the changed tests",
}
"""The kinds of test runs, and what they run: see `docs/tests.md`."""


PROOF_TONES: dict[Proof, Tone] = {proof: _TONES[style] for proof, (_, style) in PROOF_SIGNS.items()}


def _verdict(run: TestRunEnded) -> Badge:
    if run.kind == "new":  # a test that passes on the base too proves little
        return Badge("fails, as it should", "ok") if run.failed else Badge("passes", "warning")
    return Badge("passed", "ok") if run.exit == 0 and not run.failed else Badge("failed", "failed")


def _costs(story: RunStory, run: RunSummary) -> Iterator[Block]:
    rows: list[list[Cell]]
    if len(run.costs) > 1:
        rows = [
            [model, f"{spent.rounds:,}", f"{spent.tokens:,}", money(spent.usd, "unknown")]
            for model, spent in run.costs.items()
        ]
        yield Table(["model", "replies", "tokens", "cost"], rows, numeric={1, 2, 3}, caption="By model")
    if not story.facts.rounds:
        return
    rows = []
    total: float | None = 0.0
    for one in story.facts.rounds:
        total = None if total is None or one.usd is None else total + one.usd
        took = seconds_in_words((one.ended - one.began).total_seconds()) if one.ended else "no reply"
        tokens = (one.usage.input_tokens, one.usage.cached_input_tokens, one.usage.output_tokens)
        cost = (money(one.usd, "unknown"), money(total, "unknown")) if one.ended else ("", "")
        rows.append([str(one.round), *(f"{count:,}" for count in tokens), took, *cost])
    heads = ["round", "tokens in", "of them cached", "tokens out", "time", "cost", "in all"]
    table = Table(heads, rows, numeric=range(7), caption="Round by round")
    yield Section("Round by round", [table], counted(len(rows), "round"))

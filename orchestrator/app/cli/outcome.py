"""What a person is told when a cycle is over."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.cli.exit_codes import for_error, for_outcome, for_run
from orchestrator.app.cli.lines import money
from orchestrator.app.cli.text import clean, counted, tests_in_words
from orchestrator.bot.cycle.finish import outcome_words
from orchestrator.core.errors import BadReplyError
from orchestrator.core.spent import Spent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator.bot.cycle.parts import CycleResult
    from orchestrator.bot.cycle.tasks import Task
    from orchestrator.core.repositories import Commands

_SHORT_COMMIT = 10
_BLOCKING = frozenset({"failed", "no_task"})
"""What a task came to that is not taken again before a person says something."""
_UNCOUNTED = (
    " (counts for this machine's day, not for the repository's)"  # a dry run writes nothing to a remote
)


@dataclass(slots=True)
class WholeRun:
    """What the cycles of a run came to together. Of each task its last cycle counts."""

    cycles: int = 0
    spent: Spent = field(default_factory=Spent)
    _last: int = 0
    _ends: dict[str, tuple[str, int]] = field(default_factory=dict)
    _pulls: set[int] = field(default_factory=set)

    def add(self, result: CycleResult) -> None:
        """Count a cycle that has ended."""
        self.cycles += 1
        self.spent += result.spent
        self._last = for_error(result.cause) if result.cause else for_outcome(result.outcome)
        if result.task is not None:
            self._ends[result.task.key] = str(result.outcome), self._last
        if result.pull_request is not None and result.pull_request.number is not None:
            self._pulls.add(result.pull_request.number)

    @property
    def code(self) -> int:
        """The exit status of the run."""
        return for_run({code for _, code in self._ends.values()}, self._last)

    @property
    def line(self) -> str:
        """The run on one line."""
        outcomes = [outcome for outcome, _ in self._ends.values()]
        told = [counted(len(self._pulls), "pull request")]
        for outcome, noun in (("planned", "plan"), ("question", "question")):
            told += [counted(outcomes.count(outcome), noun)] if outcome in outcomes else []
        for outcome, words in (("limit", "ended by a limit"), ("paused", "paused"), ("failed", "failed")):
            told += [f"{counted(outcomes.count(outcome), 'task')} {words}"] if outcome in outcomes else []
        cost = f"{counted(self.spent.rounds, 'round')}, {self.spent.tokens:,} tokens, {money(self.spent.usd)}"
        return f"In all: {counted(self.cycles, 'cycle')}, {', '.join(told)}; {cost}"


def print_result(
    result: CycleResult, redact: Callable[[str], str], commands: Commands, *, dry_run: bool
) -> None:
    """Print a result on standard output: the headline, then what there is to look at and to type."""
    for line in (*_headline(result), *_details(result, commands, dry_run=dry_run)):
        # What a terminal obeys may stand between the letters of a secret.
        print(redact(clean(line)), flush=True)


def _headline(result: CycleResult) -> Iterator[str]:
    pull = result.pull_request
    match result.outcome:
        case "proposed" if pull:
            yield f"Pull request #{pull.number}: {pull.title}"
            yield f"  {pull.url}"
        case "planned" if pull:
            yield f"Would open a pull request: {pull.title}"
            yield f"\n{pull.body}\n"
            yield result.diff or ""
        case "no_task":
            yield f"Nothing to do: {result.reason or 'the model changed nothing'}"
        case "question":
            yield f"Question: {result.question}"
        case "limit":
            yield f"Limit reached: {result.reason}"
        case "paused":
            yield f"Paused: {result.error}"
        case "interrupted":
            yield "Interrupted."
        case _:
            yield f"Failed: {result.error}"


def _details(result: CycleResult, commands: Commands, *, dry_run: bool) -> Iterator[str]:
    repository = commands.repository
    if result.task and result.outcome == "question" and not dry_run:
        yield f"  answer  {_where_to_answer(result.task, result.question_url or '', commands)}"
    if result.task:
        yield f"  task    {result.task.title}"
    if result.question and result.outcome != "question":
        yield f"  asked   {result.question}"
    if result.branch and result.commit:
        yield f"  branch  {result.branch}, {result.commit[:_SHORT_COMMIT]}"
        if result.outcome == "proposed" and Path(repository).is_dir():
            yield f"  look    git -C {shlex.quote(repository)} show {result.branch}"
    if result.tests and (told := tests_in_words(result.tests)):
        yield f"  tests   {told}"
    if result.patch:
        yield f"  kept    {result.patch} (git apply takes it)"
    if result.rounds:
        cost = money(None) if result.usd is None else f"${result.usd:.4f}"
        rounds = counted(result.rounds, "round")
        yield f"  spent   {rounds}, {result.usage.total_tokens:,} tokens, {cost}{_UNCOUNTED if dry_run else ''}"
    if result.task and not dry_run and outcome_words(result, result.task).partition(" ")[0] in _BLOCKING:
        yield f"  again   {commands.retry(result.task.key)}"
    more = " --verbose" if isinstance(result.cause, BadReplyError) else ""
    yield f"  run     {result.run} (pullwright show {result.run}{more})"


def _where_to_answer(task: Task, url: str, commands: Commands) -> str:
    """The comment to answer below, or the command to answer by."""
    if url.startswith(("https://", "http://")):
        return f"below {url}"
    if not url:
        return "nobody can see the question: the next cycle goes on without an answer"
    return commands.answer(task.key)

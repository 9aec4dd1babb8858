"""A conversation of a person with the model: its messages, its cost, and how it is continued later."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from orchestrator.bot.cycle.parts import CycleResult, Outcome, Sanitizer, outcome_of
from orchestrator.bot.journal.index import summarise
from orchestrator.bot.journal.reader import LAST, find_run, read_run, run_folders
from orchestrator.core.cycle_events import Resumed
from orchestrator.core.errors import (
    BadReplyError,
    JournalError,
    ToolError,
    WorkspaceError,
)
from orchestrator.core.events import (
    CallDecided,
    Decision,
    MessageAdded,
    ReplyReceived,
    TextDelta,
    TextStarted,
    TodosChanged,
    TurnStarted,
    Warned,
)
from orchestrator.core.messages import Spent
from orchestrator.core.prompts import fenced, render
from orchestrator.core.repositories import same_repository
from orchestrator.core.todos import TodoList
from orchestrator.engine.session.config import Host, recalls_nothing
from orchestrator.engine.session.history import TurnKind, history_of, todos_of
from orchestrator.engine.session.loop import EndKind
from orchestrator.engine.session.session import Session
from orchestrator.engine.tools.base import Ledger, Order
from orchestrator.engine.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from orchestrator.bot.cycle.parts import Guards
    from orchestrator.bot.git.checkpoints import Checkpoints
    from orchestrator.bot.journal.folders import Home
    from orchestrator.bot.journal.run_facts import RunSummary
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit, Event
    from orchestrator.core.messages import Message, ToolCall
    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.models.base import Model
    from orchestrator.engine.profiles.base import Profile, ReplyPrice
    from orchestrator.engine.session.config import SessionConfig
    from orchestrator.engine.session.gate import Refusal
    from orchestrator.engine.session.history import Turn
    from orchestrator.engine.session.loop import SessionEnd
    from orchestrator.engine.tools.base import Tool, ToolContext, ToolOutcome

_SECONDS_A_MINUTE = 60.0
_MOST_RUNS_READ = 200
_MOST_FILE_BYTES = 60_000
_MOST_DIFF_CHARS = 20_000
_TITLE_PREFIX = re.compile(
    r"(?:(?<!#)#+\s*)?(?:\*\*)?(?:(?:PR|pull request) )?title(?:\*\*)?:\s*", re.IGNORECASE
)
_MOST_CONTINUED = 100
"""Most earlier runs that a conversation continues."""


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """A person's answer about a call that exceeds the session's permission level.

    Attributes:
        reason: the reason for a refusal, which the model is told.
    """

    decision: Decision
    reason: str = ""


@dataclass(slots=True)
class Approvals:
    """Asks a person about calls that exceed the permission level, and remembers what was allowed for the session.

    An approval covers exactly what was shown: this tool, and this command if it runs one.

    Args:
        ask: shows the person a tool, what the approval covers, and why the call would not run.
    """

    ask: Callable[[str, str, str], Awaitable[ApprovalAnswer]]
    emit: Emit
    allowed: set[tuple[str, str]] = field(default_factory=set)

    async def __call__(self, tool: Tool, call: ToolCall, refusal: Refusal) -> str | None:
        """Return why the call must not run; None if it may."""
        wanted = tool.name, refusal.scope
        if wanted in self.allowed:
            self.emit(CallDecided(call.id, Decision.ALWAYS, refusal.scope))
            return None
        answer = await self.ask(tool.name, refusal.scope, str(refusal))
        self.emit(CallDecided(call.id, answer.decision, refusal.scope, answer.reason))
        if answer.decision is Decision.ALWAYS:
            self.allowed.add(wanted)
        if answer.decision is not Decision.NO:
            return None
        return render("plugins/chat/not_allowed", reason=answer.reason)


def with_checkpoints(profile: Profile, checkpoints: Checkpoints) -> Profile:
    """Return the profile with a checkpoint before and after each tool that may change files."""

    def wrapped(tool: Tool) -> Tool:
        if not tool.dangerous and tool.order is not Order.ALONE:
            return tool

        async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
            async with checkpoints.around():
                return await tool.execute(arguments, context)

        return replace(tool, execute=execute)

    return replace(profile, tools=ToolRegistry.unchecked(map(wrapped, profile.tools)))


@dataclass(frozen=True, slots=True)
class ConversationParts:
    """The objects that a conversation works with.

    Attributes:
        checkpoints: of the folder that tools change.
        approve: asks a person; None if nobody is there.
        ledger: files that tools have shown and changed.
        on_say: called with the session and each message of the person.
        owns_environment: whether the environment is cleaned up with the conversation.
    """

    run: str
    model: Model
    price: ReplyPrice
    profile: Profile
    contract: Contract
    environment: ExecutionEnvironment
    config: SessionConfig
    guards: Guards
    clock: Clock
    emit: Emit
    checkpoints: Checkpoints
    approve: Approvals | None = None
    recall: Callable[[str], Awaitable[str]] = recalls_nothing
    ledger: Ledger = field(default_factory=Ledger)
    on_say: Callable[[Session, str], None] | None = None
    owns_environment: bool = True


@dataclass(frozen=True, slots=True)
class EarlierConversation:
    """An earlier conversation, as read from its journals.

    Attributes:
        runs: ids of its runs, the last one first. `spent` and `events` are those of all of them.
        files: number of changed files that come with it.
    """

    runs: tuple[str, ...]
    turns: tuple[Turn, ...]
    todos: TodoList
    spent: Spent
    events: tuple[Event, ...] = ()
    files: int = 0

    @property
    def run(self) -> str:
        """The id of its last run."""
        return self.runs[0]


class Conversation:
    """A conversation between a person and the model, in one journal.

    A session that was closed by an error is replaced by a new one with the same history.

    Attributes:
        ledger: files that tools have shown and changed.
        skills: texts that the model was given beside the conversation, by name, such as skills.
        todos: the model's todo list.
    """

    def __init__(self, parts: ConversationParts, begun: EarlierConversation | None = None) -> None:
        self.parts = parts
        self.ledger = parts.ledger
        self._begun = begun
        self.skills: dict[str, str] = {}
        self._reply_so_far: list[str] = []
        self._sanitizer = Sanitizer(parts.guards, parts.emit)
        self.todos = begun.todos if begun else TodoList()
        self._started = parts.clock.monotonic()
        self.session = self._open(begun.turns if begun else ())
        if begun:
            parts.emit(Resumed(begun.run, "continued by a person", len(begun.turns), begun.files))
            if begun.todos.items:
                parts.emit(TodosChanged(begun.todos.items, begun.todos.added))

    async def say(self, message: str | Message) -> SessionEnd:
        """Send a message, and wait for the model's answer.

        Raises:
            PullwrightError: the model or the host failed. The conversation can continue.
        """
        return await self._ask(message, message if isinstance(message, str) else message.text)

    async def _ask(self, message: str | Message, said: str) -> SessionEnd:
        """Send a message, of which the person wrote the part `said`."""
        self._replace_closed_session()
        self.session.budget.restart_for_input()
        self.parts.checkpoints.begin_turn()
        if self.parts.on_say is not None:
            self.parts.on_say(self.session, said)
        try:
            return await self.session.run(message)
        except asyncio.CancelledError:
            # Keep the beginning of a reply that the person stopped.
            text = "".join(self._reply_so_far).strip()
            if text and not self.session.is_closed:
                self.session.keep_stopped_reply(render("plugins/chat/reply_stopped", text=text))
            raise
        finally:
            self.parts.checkpoints.end_turn()

    def _emit(self, event: Event) -> None:
        """Emit an event, and collect the pieces of an incomplete reply."""
        match event:
            case TextDelta(text):
                self._reply_so_far.append(text)
            case TextStarted() | TurnStarted() | ReplyReceived():
                self._reply_so_far.clear()
            case _:
                pass
        self.parts.emit(event)

    @property
    def first_run(self) -> str:
        """The id of the run in which the conversation began."""
        return self._begun.runs[-1] if self._begun else self.parts.run

    async def describe(self, diff: str) -> tuple[str, str]:
        """Ask the model for the title and the text of a pull request with this change.

        Raises:
            BadReplyError: its answer has no title.
            PullwrightError: the model failed.
        """
        shown = self._sanitizer.text("the change", diff[:_MOST_DIFF_CHARS])
        cut = len(diff) > _MOST_DIFF_CHARS
        end = await self._ask(render("plugins/chat/describe_change", diff=fenced(shown), cut=cut), "")
        lines = end.text.strip().removeprefix("```markdown").strip("`").strip().splitlines()
        title = _TITLE_PREFIX.sub("", lines[0]).strip(" *#") if lines else ""
        if not title or end.kind not in {EndKind.COMPLETED, EndKind.AWAITING}:
            raise BadReplyError("the model gave no title for the pull request: name one, /pr TITLE")
        return title, "\n".join(lines[1:]).strip()

    def proposed(self, url: str, refusal: str) -> None:
        """Tell the model with the next message whether its changes were proposed."""
        self.tell(render("plugins/chat/proposed", url=url, refusal=refusal))

    def tell(self, words: str) -> None:
        """Tell the model something with the next message."""
        self._replace_closed_session()
        self.session.steer(words)

    def _replace_closed_session(self) -> None:
        """Replace a session that was closed by an error."""
        if self.session.is_closed:
            old = self.session
            self.session = self._open(tuple(old.history.turns))
            self.session.budget.add_spending(old.budget)
            self.session.model, self.session.price, self.session.config = old.model, old.price, old.config

    async def close(self) -> None:
        """Stop everything that still runs."""
        await self.session.close()
        if self.parts.owns_environment:
            await self.parts.environment.cleanup()
        try:
            await asyncio.to_thread(self.parts.checkpoints.close)
        except WorkspaceError as error:
            self.parts.emit(Warned(f"the folder of the checkpoints could not be removed: {error}"))

    def files_changed(self, paths: Iterable[str]) -> None:
        """Record that a person undid or redid changes of these files, so that the model reads them again."""
        changed = [self._sanitizer.line(path) for path in paths]
        self.ledger.shown.difference_update(paths)
        if changed:
            self.tell(render("plugins/chat/files_changed", paths=changed))

    async def mentioned_files(self, paths: Iterable[str], tell: Callable[[str], object]) -> list[str]:
        """Read files that the person mentioned, and return their texts for the model.

        Args:
            tell: shows the person why a file is left out.
        """
        blocks = []
        for path in dict.fromkeys(paths):
            try:
                data = await self.parts.environment.read_file(path, max_bytes=_MOST_FILE_BYTES)
            except ToolError as error:
                tell(f"@{path} is not shown to the model: {error}")
                continue
            blocks.append(self.mentioned(path, data))
        return blocks

    def mentioned(self, path: str, data: bytes) -> str:
        """Return a file that the person mentioned as the text for the model. It counts as read."""
        self.ledger.shown.add(path)
        text = self._sanitizer.text(path, data[:_MOST_FILE_BYTES].decode("utf-8", "replace"))
        return render("plugins/chat/mentioned_file", path=path, block=fenced(text))

    def as_markdown(self) -> str:
        """Return the conversation as Markdown for a person."""
        sections = []
        for turn in self.session.history.turns:
            if turn.kind is TurnKind.ASSISTANT and turn.content.strip():
                sections.append(f"## Pullwright\n\n{turn.content.strip()}\n")
            elif turn.kind in {TurnKind.USER, TurnKind.STEERING}:
                sections.append(f"## You\n\n{turn.content.strip()}\n")
        return "\n".join(sections)

    @property
    def spent(self) -> Spent:
        """The cost of this run."""
        budget = self.session.budget
        minutes = (self.parts.clock.monotonic() - self._started) / _SECONDS_A_MINUTE
        tokens = budget.usage.total_tokens + budget.uncertain_tokens
        return Spent(budget.usd, tokens, minutes, budget.rounds)

    @property
    def spent_in_all(self) -> Spent:
        """The cost of the whole conversation, including earlier runs."""
        return self.spent + self._begun.spent if self._begun else self.spent

    def result(self, end: SessionEnd | None, error: BaseException | None) -> CycleResult:
        """Return the conversation's result for the journal."""
        budget, spent = self.session.budget, self.spent
        result = CycleResult(
            self.parts.run,
            _OUTCOMES.get(end.kind, Outcome.ANSWERED) if end else Outcome.ANSWERED,
            rounds=spent.rounds,
            usage=budget.usage,
            usd=spent.usd,
            uncertain_usd=budget.uncertain_usd,
            uncertain_tokens=budget.uncertain_tokens,
            minutes=spent.minutes,
        )
        if end is not None and end.kind is EndKind.LIMIT:
            result.reason = end.text
        if end is not None and end.kind is EndKind.QUESTION:
            result.question = end.text
        if isinstance(error, Exception):
            result.outcome, result.error, result.cause = outcome_of(error), str(error), error
        elif error is not None:
            result.outcome = Outcome.INTERRUPTED
        return result

    def _open(self, turns: Sequence[Turn]) -> Session:
        parts = self.parts
        host = Host(
            gate=parts.guards.gate,
            shows=parts.guards.shows,
            approve=parts.approve,
            clean=self._sanitizer.text,
            price=parts.price,
            recall=parts.recall,
            ledger=self.ledger,
            todos=self.todos,
            skills=self.skills,
            emit=self._emit,
            owns_environment=False,
        )
        return Session(
            profile=parts.profile,
            environment=parts.environment,
            model=parts.model,
            contract=parts.contract,
            config=parts.config,
            host=host,
            clock=parts.clock,
            session_id=parts.run,
            earlier=turns,
        )


_OUTCOMES = {
    EndKind.LIMIT: Outcome.LIMIT,
    EndKind.QUESTION: Outcome.QUESTION,
    EndKind.INTERRUPTED: Outcome.INTERRUPTED,
    EndKind.OVERFLOW: Outcome.LIMIT,
}


def begun_in(home: Home, name: str, label: str = "") -> EarlierConversation:
    """Read an earlier conversation, including those that it continued.

    Args:
        name: its last run, as accepted by `find_run`; `last` is the newest conversation about `label` with a message.
        label: the repository or folder.
    """
    folder = _last_conversation(home, label) if name == LAST else find_run(home, name)
    events: list[Event] = []
    spent, names = Spent(), []
    for _ in range(_MOST_CONTINUED):
        run = read_run(folder)
        names.append(folder.name)
        spent += replace(run.facts.spent, minutes=0.0)
        before = next(iter(run.facts.resumed), None)
        events[:0] = run.events
        if before is None:
            break
        try:
            folder = find_run(home, before.run)
        except JournalError:
            break  # it was removed: the later runs are still there
    turns = tuple(history_of(events))
    if not turns:
        raise JournalError(f"run {names[0]} cannot be continued: it has no message")
    return EarlierConversation(tuple(names), turns, todos_of(events), spent, tuple(events))


def continued_last(home: Home, label: str, run: str) -> EarlierConversation:
    """Read the conversation of a run with those that continued it since, for who keeps the id of its beginning."""
    for one in conversations(home, label, _MOST_CONTINUED):
        with suppress(JournalError):
            if run in (begun := begun_in(home, one.id)).runs:
                return begun
    return begun_in(home, run)


def _last_conversation(home: Home, label: str) -> Path:
    found = (home.runs / one.id for one in conversations(home, label, _MOST_RUNS_READ))
    folder = next(filter(_has_message, found), None)
    if folder is None:
        raise JournalError(f"there is no conversation about {label}: pass the id of one (/resume lists them)")
    return folder


def _has_message(folder: Path) -> bool:
    """Return whether a run contains a message. A run that only proposed a folder's changes does not."""
    with suppress(JournalError):
        return any(isinstance(event, MessageAdded) for event in read_run(folder).events)
    return False


def conversations(home: Home, label: str, most: int) -> list[RunSummary]:
    """Return the newest conversations about a repository or folder, newest first. Damaged ones are left out."""
    found = map(summarise, run_folders(home)[:_MOST_RUNS_READ])
    ours = (
        run
        for run in found
        if run.is_conversation and not run.is_damaged and same_repository(run.repository, label)
    )
    return list(islice(ours, most))

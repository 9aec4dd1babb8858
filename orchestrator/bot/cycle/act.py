"""Plan and act: the agent session of a cycle, from the restored work to its last event."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.bot.cycle.attempt import Attempt, PersonsWork
from orchestrator.bot.cycle.briefing import FirstMessage, document_links
from orchestrator.bot.cycle.earlier import (
    BegunProposal,
    RestoredWork,
    UnfinishedState,
    begun_proposal,
    conversation,
    restore_work,
)
from orchestrator.bot.cycle.model_commits import ModelCommits
from orchestrator.bot.cycle.parts import ProfileSources, Sanitizer
from orchestrator.bot.cycle.propose import (
    COMMAND_CHARACTERS,
    PendingChanges,
    Proposer,
    SessionEvidence,
)
from orchestrator.bot.cycle.repository_rules import read_repository_rules
from orchestrator.bot.cycle.statements import MOST_ASKED, StatementReader
from orchestrator.bot.cycle.tasks import Remark
from orchestrator.bot.cycle.verify import Verification
from orchestrator.bot.git.base import Snapshot
from orchestrator.bot.journal.run_facts import RunFacts
from orchestrator.core.cycle_events import Phase, PhaseEntered, Resumed
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.events import (
    CallStatus,
    PlanAccepted,
    ToolCallEnded,
    ToolCallStarted,
    Warned,
)
from orchestrator.core.messages import Image, Message, Role, Spent, Text
from orchestrator.core.prompts import one_line, render, shown_path
from orchestrator.core.todos import TodoList
from orchestrator.engine.session.config import Host, SessionConfig
from orchestrator.engine.session.history import images_of, todos_of
from orchestrator.engine.session.loop import EndKind, SessionEnd
from orchestrator.engine.session.session import Session
from orchestrator.engine.tools.base import Ledger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Coroutine, Mapping, Sequence

    from orchestrator.bot.cycle.attempt import CycleParts
    from orchestrator.bot.cycle.choice import Choice
    from orchestrator.bot.cycle.earlier import Earlier
    from orchestrator.bot.cycle.parts import CycleResult, Guards
    from orchestrator.bot.cycle.repository_rules import Statement
    from orchestrator.bot.git.base import TrackedFile
    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.verification.base import Verifier
    from orchestrator.core.events import Event
    from orchestrator.core.messages import ToolDefinition
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.profiles.base import Profile
    from orchestrator.engine.session.history import Turn

_SECONDS_A_MINUTE = 60.0
_MOST_SAME_REPLIES = 3
_SAID_CHARACTERS = 4_000
TITLE_CHARS = 70


@dataclass(frozen=True, slots=True)
class ProposalRequest:
    """A call of `create_pull_request`. The cycle answers it, and the session continues with the answer."""

    title: str
    body: str
    _answer: asyncio.Future[Coroutine[Any, Any, str]]

    def answer(self, work: Coroutine[Any, Any, str]) -> None:
        """Run `work` inside the call and answer with its result.

        A `ToolError` fails the call. If the call is cancelled, so is the work.
        """
        if self._answer.cancelled():
            work.close()
        else:
            self._answer.set_result(work)

    async def answered(self) -> str:
        """Wait for the answer and return it as the result of the call."""
        try:
            work = await self._answer
        except asyncio.CancelledError:
            if self._answer.done() and not self._answer.cancelled():
                self._answer.result().close()
            raise
        return await work


def _messages_of_people(earlier: Earlier | None, guards: Guards) -> list[str]:
    messages = earlier.state.said if earlier else ()
    return [guards.redactor.redact(guards.output(text).text) for text in messages]


class CycleSession:
    """The session of one cycle: the restored files before it, the conversation, and the remaining changes after it.

    Attributes:
        attempt: the values shared by all parts of the cycle.
        earlier: the unfinished cycle on the task that this one continues.
        said: messages of people who worked on the task with the model, oldest first.
        end: how the session ended; None before that.
    """

    def __init__(
        self, parts: CycleParts, choice: Choice, clone: Clone, files: list[TrackedFile], result: CycleResult
    ) -> None:
        if choice.task is None:
            raise AssertionError("a session has a task")
        earlier, guards = choice.earlier, parts.guards
        self.said = _messages_of_people(earlier, guards)
        remarks = (Remark("", text, trusted=True) for text in self.said)
        self._task = replace(choice.task, remarks=(*choice.task.remarks, *remarks))
        self._parts, self._files, self._result = parts, files, result
        self.earlier, self.clone, self.ledger = earlier, clone, Ledger()
        self._events: list[Event] = []
        notes_in = parts.memory.notes_in if parts.memory else None
        self._evidence = SessionEvidence(guards.redactor.redact, notes_in)
        self._session: Session | None = None
        self._happened = RunFacts()
        self._is_restored = self._has_ended = False
        self._requests: asyncio.Queue[ProposalRequest | None] = asyncio.Queue()
        self.restored = RestoredWork()
        self.end: SessionEnd | None = None
        self._task_text = self._instructions = self._recalled = ""
        self._about: set[str] = set()
        self._nested: dict[str, str] = {}
        self._calls: dict[str, list[str]] = {}
        submodules = [file.path for file in files if file.kind == "submodule"]
        self._environment = parts.environment(clone.tree, submodules)
        self._started = parts.clock.monotonic()
        messages = earlier.state.messages if earlier else ()
        self._commits = ModelCommits(
            self._environment, clone.base_commit, guards.redactor.holds_secret, self._emit, messages
        )
        sanitizer = self._sanitizer = Sanitizer(guards, self._emit)
        make = parts.foreign_tools
        self._foreign = make(clone.tree, sanitizer.text, self._emit) if make else None
        attempt = self.attempt = Attempt(parts, self._task, clone, self.ledger, sanitizer, result, self._emit)
        self.verification = Verification(
            attempt,
            self._make_verifier(),
            self._may_go_on,
            self._minutes_left,
            proposes_failing=parts.options.propose_failing,
            guesses=lambda: parts.contract.guesses,
        )
        self.proposer = Proposer(
            attempt,
            self._evidence,
            self.verification,
            cost=lambda: _in_words(choice.spent_before + self.spent, attempt.task.usd_cap),
            commits=self._commits,
            lease=choice.lease,
        )
        self.pending = PendingChanges(attempt, self.proposer, self._is_last)
        self._statements = StatementReader(parts.model, parts.statements)
        self._first_message = FirstMessage(attempt, files, self._environment)

    async def begin(self) -> SessionEnd | None:
        """Read the repository's rules and restore earlier work. Return an end if nothing is left to do."""
        parts = self._parts
        await self._environment.initialize()
        self._emit(PhaseEntered(Phase.PLAN))
        # Read before anything is restored: a model may have changed these files.
        rules = self.proposer.rules = await read_repository_rules(
            [file.path for file in self._files],
            lambda path, most: self._environment.read_file(path, max_bytes=most),
            parts.options,
            parts.model.name,
            await asyncio.to_thread(document_links, self.clone, self._files),
        )
        for unread in rules.unread:
            self._emit(Warned(f"rules for contributions may be missed in {shown_path(unread)}"))
        if parts.options.respects_ai_policy and (
            forbids := rules.forbids or await self._refusing(rules.doubtful)
        ):
            return SessionEnd(EndKind.FINISH, f"the repository refuses changes by a machine: {forbids}")
        lease, author = self.proposer.lease, parts.options.author_email
        pushed_base = "" if lease is None else lease.record.base
        restored = await asyncio.to_thread(
            restore_work, self.clone, self._task, self.earlier, author, pushed_base
        )
        if isinstance(restored, str):
            return SessionEnd(EndKind.FINISH, restored)
        # Restored files count as written by tools.
        self.ledger.touched |= set(restored.paths)
        self.ledger.shell_used |= self.earlier is not None and self.earlier.state.shell_used
        self._is_restored = True
        self.proposer.pushed = restored.tip
        self.proposer.is_committed = restored.joined and bool(restored.message)
        self.proposer.found_branch = self.earlier.branch if self.earlier and restored.tip else ""
        self.restored = self.pending.restored = restored
        return None

    async def _refusing(self, doubtful: Sequence[Statement]) -> str:
        """Return the doubtful sentence that refuses machine-made work; empty if none does. A replay asks nothing."""
        if self._parts.recorded_tests is not None or not doubtful:
            return ""
        shown = [one._replace(sentence=self._sanitizer.text(one.path, one.sentence)) for one in doubtful]
        found = await self._statements.refusing(shown)
        if not self._statements.is_able:
            name = self._parts.model.name
            why = "gives no right answers about known sentences on machine-made work"
            self._emit(Warned(f"{name} {why}, so each likely one counts as a refusal"))
        if found is None:
            asked, left = doubtful[:MOST_ASKED], len(doubtful[MOST_ASKED:])
            named = "; ".join(one_line(str(one), limit=COMMAND_CHARACTERS) for one in asked)
            more = f"; {left} more, which are less likely to be one, were not asked about" if left else ""
            self._emit(Warned(f"what was read as no refusal of machine-made work: {named}{more}"))
        return "" if found is None else str(found)

    async def requests(self) -> AsyncGenerator[ProposalRequest]:
        """Run the session and yield each pull request that the model asks for. Set `end` after the last one."""
        session, first = await self._open()
        running = asyncio.create_task(session.run(first))
        running.add_done_callback(lambda _: self._requests.put_nowait(None))
        try:
            while (request := await self._requests.get()) is not None:
                yield request
            self.end = running.result()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        self._has_ended = True

    @property
    def environment(self) -> ExecutionEnvironment:
        """The environment in which tools run."""
        return self._environment

    def record_message(self, session: Session, message: str, before: Sequence[Event]) -> None:
        """Record that a person sent the model a message about the task.

        Args:
            session: the person's session with the model, which replaces the cycle's own.
            message: empty if the program asks the model on the person's behalf.
            before: the conversation before the first message.
        """
        if self._session is None:
            self._events[:0] = conversation(before)
        self._session = session
        if message:
            self.said.append(message[:_SAID_CHARACTERS])

    async def _request_proposal(self, title: str, body: str) -> str:
        """Carry out the tool `create_pull_request`."""
        request = ProposalRequest(title, body, asyncio.get_running_loop().create_future())
        self._requests.put_nowait(request)
        return await request.answered()

    async def _complete(self, profile: Profile) -> Profile:
        """Return the profile with what plug-ins add to it. Other branches than the default one are unreviewed."""
        clone, sanitizer = self.attempt.clone, self.attempt.sanitizer
        is_default = bool(self._parts.completions) and await self._first_message.is_default(self.restored)
        warnings: list[str] = []
        sources = ProfileSources(
            sanitizer.text,
            warnings.append,
            clone.trees if is_default else None,
            clone.base_commit,
            whole_file=self._parts.contract.writes_whole_files,
        )
        for complete in self._parts.completions:
            profile = await asyncio.to_thread(complete, profile, sources)
        for warning in warnings:
            self._emit(Warned(sanitizer.line(warning)))
        return profile

    async def _open(self) -> tuple[Session, Message]:
        """Create the session and its first message."""
        parts, contract, restored = self._parts, self._parts.contract, self.restored
        run_tests = self.verification.run_tests if self.verification.can_run else None
        foreign = await self._foreign.open() if self._foreign else ()
        profile = await self._complete(
            parts.profile(self._request_proposal, self.pending.may_finish, run_tests, foreign)
        )
        turns: list[Turn] = []
        todos = TodoList()
        if self.earlier:
            forgets = contract.forgets or parts.worker is not None
            turns = [] if forgets else self.earlier.turns(*self._model_names, parts.clock.now())
            # Only the conversation tells a model the ids of the list's items.
            todos = todos_of(self.earlier.events) if turns else todos
            self.tell_resumed(len(turns))
        session = self._session = Session(
            profile=replace(profile, documents=()),  # the first message has them
            environment=self._environment,
            model=parts.model,
            contract=contract,
            config=self._config(),
            host=self._host(profile, todos),
            clock=parts.clock,
            session_id=parts.run,
            earlier=turns,
            worker=parts.worker,
        )
        session.budget.started = self._started  # the minutes of the base's tests count too
        tests = ""
        if not turns:
            has_tool = profile.tools.get("run_tests") is not None
            tests = await self.verification.describe_base(has_tool=has_tool, brief=profile.is_brief)
        first, briefing = await self._first_message.brief(
            profile, restored, tests, whole_file=contract.writes_whole_files
        )
        self._task_text, self._instructions = briefing.task, briefing.instructions
        self._about = {*restored.paths, *filter(None, (briefing.subject,))}
        self._nested = dict(briefing.nested)
        if self.earlier and turns:
            first = self._resumed(self.earlier, turns, first, briefing.task)
        else:
            self.ledger.shown |= briefing.shown
            contract.learn(
                title=self._task.title,
                path=briefing.subject,
                tests=tests,
                block=briefing.subject_block,
                names_failing=self.verification.names_failing,
            )
            # A model that only lacks the conversation sees the changes in its files. An answer is nowhere else.
            told = self.earlier is not None and (parts.worker is not None or self.earlier.answer is not None)
            if self.earlier and told and (before := self._first_message.take_over(self.earlier)):
                first = replace(first, parts=(*first.parts, Text(f"\n\n{before}")))
        return session, first

    def _resumed(self, earlier: Earlier, turns: Sequence[Turn], first: Message, task: str) -> Message:
        """Return the first message of a continued conversation: with the task if it lacks a part of that.

        The task's images come with it if they were dropped.
        """
        self._events.extend(earlier.events)
        # The model knows the files that it wrote, so it may change them without reading them first.
        if not (self.restored.base_moved or earlier.state.files_lost):
            self.ledger.shown |= set(self.restored.paths)
        images = [] if images_of(turns) else [one for one in first.parts if isinstance(one, Image)]
        resumed = self._first_message.resume(
            earlier, self.restored, "" if earlier.has_shown(self._task) else task
        )
        return Message(Role.USER, (*resumed.parts, *images))

    @property
    def continues(self) -> str | None:
        """The commit of the saved state that this cycle's state contains, once it was taken up; else None."""
        return self.earlier.commit if self.earlier and self._is_restored else None

    @property
    def saved_files(self) -> Snapshot:
        """The files that an earlier cycle saved and this one took up, or none."""
        earlier = self.earlier
        if earlier is None or earlier.work is None or not self._is_restored:
            return Snapshot(None, self.clone.start, ())
        return Snapshot(earlier.work, earlier.base, ())

    @property
    def conversation(self) -> list[Event]:
        """The conversation so far, including that of the cycle that this one continues."""
        if self._session is None and self.earlier is not None and self._is_restored:
            return list(self.earlier.events)
        return conversation(self._events)

    @property
    def spent(self) -> Spent:
        """The cost of the session so far."""
        minutes = (self._parts.clock.monotonic() - self._started) / _SECONDS_A_MINUTE
        asked = self._asked
        if self._session is None:
            return asked + Spent(minutes=minutes)
        budget = self._session.budget
        tokens = budget.usage.total_tokens + budget.uncertain_tokens
        return asked + Spent(budget.usd, tokens, minutes, budget.rounds)

    @property
    def _asked(self) -> Spent:
        """The cost of the questions about the repository's statements."""
        usage = self._statements.usage
        price = self._parts.price(usage) if self._statements.requests else 0.0
        return Spent(price, usage.total_tokens)

    @property
    def _model_names(self) -> tuple[str, str, str]:
        """The model, contract and profile of the conversation."""
        return self._parts.model.name, self._parts.contract.name, self._parts.profile_name

    def state(self, why: str, *, counts: bool = True) -> UnfinishedState:
        """Return the state that the next cycle on this task needs, apart from files and conversation.

        Args:
            counts: whether this cycle was an attempt at the task.
        """
        model, contract, profile = self._model_names
        earlier, before = self.earlier, None
        question, url = self._result.question or "", self._result.question_url or ""
        if earlier is not None and self._session is None:
            # This cycle has no conversation yet, so the next cycle continues that of the earlier one.
            model, contract, profile = earlier.state.model, earlier.state.contract, earlier.state.profile
            before = earlier.begun_for(self._task)
            if not question:  # the model has not received the answer yet
                question, url = earlier.state.question, earlier.state.question_url
        return UnfinishedState(
            run=self._parts.run,
            why=why,
            model=model,
            contract=contract,
            profile=profile,
            touched=tuple(sorted(self.ledger.touched)),
            messages=tuple(self._commits.messages),
            shell_used=self.ledger.shell_used,
            question=question,
            question_url=url,
            attempts=0 if self._parts.operator else (earlier.state.attempts if earlier else 0) + counts,
            tip=self.proposer.pushed or "",
            proposal=begun_proposal(self._happened, before) or self._refused_proposal(),
            status_marker=self._task.status_marker,
            said=tuple(self.said),
        )

    def _refused_proposal(self) -> BegunProposal | None:
        """Return the proposal that was refused because of its tests. A person may want it as a draft."""
        refused = self.verification.refused if self.verification.keeps_back else None
        return BegunProposal(*refused, self.proposer.branch, "") if refused else None

    def tell_resumed(self, turns: int = 0) -> None:
        """Emit that earlier work is continued, with this number of turns of its conversation."""
        state = self.earlier.state if self.earlier else None
        if state and state.run:  # a branch alone has no state
            paths, conflicts = self.restored.paths, self.restored.conflicts
            saved = self.continues or ""
            self._emit(Resumed(state.run, state.why, turns, len(paths), conflicts, saved))

    def _make_verifier(self) -> Verifier | None:
        """Create the verifier that runs the tests; None in a replay, and without a test command."""
        parts = self._parts
        if parts.verifier is None or parts.recorded_tests is not None:
            return None
        verifier = parts.verifier(self.clone)
        if verifier is None and parts.options.require_tests:
            raise ConfigurationError(
                "nothing says how the tests are run, and --require-tests proposes nothing without them; "
                "name it with --test-command"
            )
        return verifier

    def _minutes_left(self) -> float | None:
        most = self._parts.limits.minutes
        return None if most is None else most - self.spent.minutes

    def _config(self) -> SessionConfig:
        limits = self._parts.limits
        return replace(
            self._parts.options.session,
            max_same_replies=_MOST_SAME_REPLIES,
            max_turns=limits.rounds or 0,
            max_tokens=limits.tokens,
            max_usd=limits.usd,
            max_minutes=limits.minutes,
        )

    def _host(self, profile: Profile, todos: TodoList) -> Host:
        parts, contract = self._parts, self._parts.contract

        def system(shown: tuple[ToolDefinition, ...]) -> str:
            form = contract.describe(shown)
            if contract.writes_whole_files:
                return form
            users = parts.options.session.user_instructions.strip()
            last = [render("agent/user_instructions", instructions=users)] if users else []
            return "\n\n".join([profile.words(shown), form, *last])

        return Host(
            gate=parts.guards.gate,
            shows=parts.guards.shows,
            clean=self._sanitizer.text,
            price=parts.price,
            stopped=parts.stop,
            task=lambda: self._task_text,
            facts=self._facts,
            may_end=self.pending.may_end,
            is_done=self.pending.is_done,
            recall=self._recall,
            # A contract that describes the form of replies in the prompt composes the whole system prompt.
            system=system if contract.has_own_form else None,
            ledger=self.ledger,
            todos=todos,
            emit=self._emit,
            owns_environment=False,
        )

    def _facts(self) -> str:
        """Return the facts that a compacted conversation must keep, apart from the task."""
        pull = self._result.pull_request
        url = pull.url if pull else ""
        return render("cycle/kept_facts", rules=self._instructions, pull=url, recalled=self._recalled)

    async def _recall(self, message: str) -> str:
        """Return the memories about a message."""
        memory = self._parts.memory
        if memory is None:
            return ""
        if self._session is not None and self._session.budget.rounds:
            return await memory.recall(message, self._about, self.clone.blobs)
        # The first message is mostly about the repository, so memories are recalled for the task instead.
        found = await memory.recall(f"{self._task.title}\n{self._task.body}", self._about, self.clone.blobs)
        self._recalled = self._sanitizer.text("what was remembered", found)
        return found

    async def close(self) -> None:
        """Stop everything that still runs, and record the cost."""
        if self._foreign:
            await self._foreign.close()
        if self._session:
            await self._session.close()
            spent = self._session.budget
            self._result.rounds, self._result.usage, self._result.usd = spent.rounds, spent.usage, spent.usd
            self._result.uncertain_usd = spent.uncertain_usd
            self._result.uncertain_tokens = spent.uncertain_tokens
        self._result.usage += self._statements.usage
        self._result.usd = (Spent(self._result.usd) + self._asked).usd
        self._result.minutes = self.spent.minutes
        if self.ledger.shell_used and not self._parts.stop.now():
            await self._commits.look()  # if the work is unfinished, it is saved with these messages
        await self._environment.cleanup()

    def _is_last(self) -> bool:
        return self._session is not None and self._session.budget.wrapping_up is not None

    def _may_go_on(self) -> bool:
        """Return whether the model will be asked again after this round."""
        if self._session is None:
            return True
        return not (self._has_ended or self._is_last() or self._session.budget.exceeded())

    def _show_nested(self, event: Event) -> None:
        """Show a folder's own instructions after the first call that reads or edits a file below it."""
        match event:
            case ToolCallStarted(call_id, _, arguments) if self._nested:
                self._calls[call_id] = _paths_in(arguments)
            case ToolCallEnded(call_id, status=CallStatus.OK) if self._session is not None:
                paths = self._calls.pop(call_id, [])
                below = [one for one in self._nested if any(path.startswith(one) for path in paths)]
                for folder in sorted(below, key=len):
                    words = render("cycle/nested_instructions", folder=folder, block=self._nested.pop(folder))
                    self._session.steer(words)
            case _:
                pass

    def _emit(self, event: Event) -> None:
        self._show_nested(event)
        self._evidence(event)
        self._events.append(event)
        self._happened.take(event, self._parts.clock.now())
        if isinstance(event, PlanAccepted):
            self._result.plan = self._happened.plan or self._result.plan
            if self._happened.phase is not Phase.ACT:
                self._emit(PhaseEntered(Phase.ACT))
        self._parts.emit(event)


_PATH_ARGUMENTS = frozenset({"path", "file_path", "dir_path", "directory", "filename"})
_PATCHED = re.compile(r"^(?:\*\*\* (?:Add|Update|Delete) File: |\+\+\+ b/)(\S[^\n]*)$", re.MULTILINE)


def _paths_in(arguments: Mapping[str, Any]) -> list[str]:
    """Return the paths that a call of a file tool names, from the top of the repository."""
    named = [value for name, value in arguments.items() if name in _PATH_ARGUMENTS and isinstance(value, str)]
    patched = _PATCHED.findall(text) if isinstance(text := arguments.get("patch"), str) else []
    return [path.removeprefix("./") for path in (*named, *patched)]


def _in_words(spent: Spent, cap: float | None) -> str:
    """Return the cost of a task. `cap`: what a person allows for it on its issue, or None."""
    money = "cost unknown" if spent.usd is None else f"${spent.usd:,.4f}"
    money = money if cap is None else f"{money} of up to ${cap:,.2f}"
    rounds = "1 round" if spent.rounds == 1 else f"{spent.rounds} rounds"
    return f"{rounds}, {spent.tokens:,} tokens, {money}"


class ProposeChange(Protocol):
    """Verifies and proposes the changes in a clone, and returns the result as text."""

    def __call__(self, title: str, body: str, *, ignore_doubts: bool = False) -> Awaitable[str]:
        """Verify and propose the changes.

        Args:
            ignore_doubts: whether objections that are made only once are left out: to files that can no
                longer be parsed, and to tests that pass only because they were changed. Either they were
                made in an earlier cycle, or nobody can answer them.

        Raises:
            ToolError: the change or its tests must not be proposed.
            WorkspaceError: git failed.
            ForgeError: the forge failed.
        """


class Operator(PersonsWork, Protocol):
    """A person who works on a task in place of the model's loop."""

    async def work(self, session: CycleSession, propose: ProposeChange) -> SessionEnd:
        """Work until the person is done, and return how the session ended.

        Raises:
            PullwrightError: the error that ended the work.
        """

"""The agent session of a cycle: its start, its end, and the evidence for the pull request."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import dataclass, field, replace
from posixpath import dirname
from typing import TYPE_CHECKING, Any

from orchestrator.bot.cycle.briefing import FirstMessage
from orchestrator.bot.cycle.earlier import (
    RestoredWork,
    UnfinishedState,
    begun_proposal,
    bring,
    conversation,
    prints,
)
from orchestrator.bot.cycle.parts import Attempt, Sanitizer, in_words
from orchestrator.bot.cycle.propose import Proposer
from orchestrator.bot.cycle.repository_rules import RepositoryRules, read_repository_rules
from orchestrator.bot.cycle.skills import skills_of_cycle
from orchestrator.bot.cycle.tasks import Remark
from orchestrator.bot.cycle.verify import Verification
from orchestrator.core.cycle_events import Phase, PhaseEntered, Resumed
from orchestrator.core.errors import ConfigurationError, SandboxMissingError, ToolError
from orchestrator.core.events import (
    CallStatus,
    Defence,
    Guarded,
    PlanAccepted,
    TodosChanged,
    ToolCallEnded,
    ToolCallStarted,
    Warned,
)
from orchestrator.core.fence import one_line
from orchestrator.core.messages import Image, Message, Role, Spent
from orchestrator.core.prompts import render
from orchestrator.core.todos import TodoList
from orchestrator.engine.mcp.base import is_mcp_tool
from orchestrator.engine.profiles.base import with_skills
from orchestrator.engine.session.config import Host, SessionConfig
from orchestrator.engine.session.history import images_of, todos_of
from orchestrator.engine.session.loop import EndKind, SessionEnd
from orchestrator.engine.session.session import Session
from orchestrator.engine.tools.base import Ledger
from orchestrator.engine.tools.memory import new_memory

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence

    from orchestrator.bot.cycle.claim import Choice
    from orchestrator.bot.cycle.earlier import Earlier
    from orchestrator.bot.cycle.parts import CycleParts, CycleResult, Guards
    from orchestrator.bot.cycle.tasks import Task
    from orchestrator.bot.git.base import TrackedFile
    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.verification.base import Verifier
    from orchestrator.core.events import Emit, Event
    from orchestrator.core.messages import ToolDefinition
    from orchestrator.core.todos import TodoItem
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.profiles.base import Profile
    from orchestrator.engine.session.history import Turn

_COMMAND_CHARACTERS = 200
# Secrets are taken out before the text is cut, which is not to take long.
_MOST_READ_CHARACTERS = 20_000


@dataclass(frozen=True, slots=True)
class CycleCommand:
    """A command that a tool ran, on one line, with its exit status."""

    text: str
    passed: bool

    @property
    def status(self) -> str:
        """How the command ended, in one word."""
        return "passed" if self.passed else "failed"


@dataclass(slots=True)
class SessionEvidence:
    """Collects facts for the pull request from the events of a session.

    Attributes:
        redact: removes secrets from a command before it is cut.
        todos: the model's todo list.
        notes: new facts that the model wants to remember.
    """

    redact: Callable[[str], str] = str
    commands: list[CycleCommand] = field(default_factory=list)
    todos: tuple[TodoItem, ...] = ()
    notes: list[str] = field(default_factory=list)
    _running: dict[str, str] = field(default_factory=dict)

    def __call__(self, event: Event) -> None:
        """Record an event."""
        if (
            isinstance(event, ToolCallStarted)
            and "command" in event.arguments
            and not is_mcp_tool(event.name)
        ):
            line = " ".join(str(event.arguments["command"])[:_MOST_READ_CHARACTERS].split())
            self._running[event.call_id] = (
                one_line(self.redact(line), limit=_COMMAND_CHARACTERS) or "(nothing)"
            )
        elif isinstance(event, ToolCallEnded) and event.call_id in self._running:
            text = self._running.pop(event.call_id)
            if event.status in {CallStatus.OK, CallStatus.FAILED}:
                self.commands.append(CycleCommand(text, event.status is CallStatus.OK))
        elif isinstance(event, ToolCallEnded) and event.name == "remember" and event.status is CallStatus.OK:
            self.notes += new_memory(event.output)
        elif isinstance(event, TodosChanged):
            self.todos = event.items


_MOST_COMMITS = 50
_MOST_BYTES = 60_000
_MESSAGE_CHARACTERS = 2_000
_MOST_CHARACTERS = 8_000
"""Most characters of all messages together."""
_TIMEOUT_MS = 10_000
# It runs where the model's commands run, and may run what they configured where there is no sandbox: no more of
# it than of a command of theirs, and with these settings none that git is known for.
_VARIABLES = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}
_SETTINGS = (
    *("core.fsmonitor=false", "core.hooksPath=/dev/null", "i18n.logOutputEncoding=UTF-8"),
    *("log.showSignature=false", "safe.bareRepository=explicit"),
)
_OPTIONS = ("-z", "--no-merges", "--no-patch", f"--max-count={_MOST_COMMITS}", "--format=%H%n%B")


@dataclass(slots=True)
class ModelCommits:
    """Messages of the model's own commits that no commit of the host contains yet.

    Attributes:
        base: the commit that was cloned; commits on top of it are the model's.
        earlier: messages of an unfinished cycle on the task, oldest first.
    """

    environment: ExecutionEnvironment
    base: str
    holds_secret: Callable[[str], bool]
    emit: Emit
    earlier: Sequence[str] = ()
    _said: dict[str, str] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)
    _reported: set[str] = field(default_factory=set)

    @property
    def messages(self) -> list[str]:
        """The messages without duplicates, oldest first, except those that seem to contain a secret."""
        own = [message for name, message in self._said.items() if name not in self._told]
        return [text for text in dict.fromkeys((*self.earlier, *own)) if not self._is_held(text)]

    async def look(self) -> None:
        """Read the messages from git. If git fails, there are none."""
        root = self.environment.working_directory()
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        git = ["git", "-C", root, "--no-pager", *settings, "log", *_OPTIONS, f"{self.base}..HEAD", "--"]
        # Not from the clone, so that a relative entry of PATH finds no program in it.
        command = f"cd / && {shlex.join(git)} 2>/dev/null | head -c {_MOST_BYTES}"
        variables = {**_VARIABLES, "GIT_CEILING_DIRECTORIES": dirname(root)}
        try:
            result = await self.environment.exec_command(command, timeout_ms=_TIMEOUT_MS, env=variables)
        except (ToolError, SandboxMissingError):
            return
        # Newest first, each ended with a NUL; the last one may be cut. What was amended since is no more.
        records = [record.partition("\n") for record in reversed(result.stdout.split("\0")[:-1])]
        self._said = {name: message.strip() for name, _, message in records if message.strip()}

    def words(self, title: str) -> str:
        """Return the messages as a list, in GitHub's format for squashed commits; empty if there are none.

        Args:
            title: of the host's commit; messages that begin with it leave it out.
        """
        items: list[str] = []
        room = _MOST_CHARACTERS
        messages = [text for message in self.messages if (text := _without_title(message, title))]
        for message in messages:
            item = f"* {message}"[:_MESSAGE_CHARACTERS].rstrip()
            room -= len(item)
            if room < 0:
                items.append(f"* {len(messages) - len(items)} more")
                break
            items.append(item)
        return "\n\n".join(items)

    def told(self) -> None:
        """Record that a commit of the host now contains the messages."""
        self._told |= self._said.keys()
        self.earlier = ()

    def _is_held(self, message: str) -> bool:
        if not self.holds_secret(message):
            return False
        if message not in self._reported:
            self._reported.add(message)
            self.emit(
                Guarded(Defence.SECRETS, "a commit's message is left out: it holds what looks like a secret")
            )
        return True


def _without_title(message: str, title: str) -> str:
    subject, _, rest = message.partition("\n")
    return rest.strip() if subject.strip().casefold() == title.casefold() else message


_SECONDS_A_MINUTE = 60.0
_SAID_CHARACTERS = 4_000
TITLE_CHARS = 70


@dataclass(frozen=True, slots=True)
class Asked:
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


def with_said(task: Task, earlier: Earlier | None, guards: Guards) -> tuple[Task, list[str]]:
    """Add what people said when they took the task up to the task. Return the task, and these texts, oldest first."""
    said = [guards.redact(guards.output(text).text) for text in (earlier.state.said if earlier else ())]
    remarks = (Remark("", text, trusted=True) for text in said)
    return replace(task, remarks=(*task.remarks, *remarks)), said


class CycleSession:
    """The session of one cycle: the restored files before it, the conversation, and the remaining changes after it.

    Attributes:
        attempt: the values shared by all parts of the cycle.
        earlier: the unfinished cycle on the task that this one continues.
        said: what people said when they took the task up, oldest first.
        verification: judges a change by the repository's tests.
        proposer: creates and updates the pull request.
        brought: the files restored onto the clone before the session.
        end: how the session ended; None before that.
    """

    def __init__(
        self, parts: CycleParts, choice: Choice, clone: Clone, files: list[TrackedFile], result: CycleResult
    ) -> None:
        if choice.task is None:
            raise AssertionError("a session has a task")
        task, self.said = with_said(choice.task, choice.earlier, parts.guards)
        self._parts, self._task, self._files, self._result = parts, task, files, result
        self.earlier, self.clone = choice.earlier, clone
        self.ledger = Ledger()
        self._told: list[Event] = []
        self._evidence = SessionEvidence(parts.guards.redact)
        self._session: Session | None = None
        self._phase = Phase.PLAN
        self._is_brought = self._is_said = False
        self._asked: asyncio.Queue[Asked | None] = asyncio.Queue()
        self.brought = RestoredWork()
        self.end: SessionEnd | None = None
        self._task_words = self._rules = self._recalled = ""
        self._about: set[str] = set()
        submodules = [file.path for file in files if file.kind == "submodule"]
        self._environment = parts.environment(clone.tree, submodules)
        self._started = parts.clock.monotonic()
        self.spent_before = choice.spent_before
        self._commits = self._commits_of_the_model(choice.earlier)
        self._sanitizer = Sanitizer(parts.guards, self._emit)
        make = parts.foreign_tools
        self._foreign = make(clone.tree, self._sanitizer.text, self._emit) if make else None
        attempt = self.attempt = Attempt(parts, task, clone, self.ledger, self._sanitizer, result, self._emit)
        self.verification = Verification(attempt, self._make_verifier(), self._may_go_on, self._minutes_left)
        self.proposer = Proposer(
            attempt,
            self._evidence,
            self.verification,
            rules=RepositoryRules(),
            cost=lambda: in_words(self.spent_before + self.spent),
            commits=self._commits,
            draft=parts.options.draft,
            lease=choice.lease,
        )
        self.pending = Pending(clone, self.ledger, self.proposer, dry_run=parts.options.dry_run)
        self._ending = FinishCheck(self.pending, self._sanitizer, result, self._is_last)
        self._opening = FirstMessage(attempt, files, self._environment)

    def _commits_of_the_model(self, earlier: Earlier | None) -> ModelCommits:
        said = earlier.state.messages if earlier else ()
        base, holds_secret = self.clone.base_commit, self._parts.guards.holds_secret
        return ModelCommits(self._environment, base, holds_secret, self._emit, earlier=said)

    async def begin(self) -> SessionEnd | None:
        """Read the repository's rules and restore earlier work. Return an end if nothing is left to do.

        Raises:
            PullwrightError: the forge or git failed.
        """
        parts = self._parts
        await self._environment.initialize()
        self._emit(PhaseEntered(Phase.PLAN))
        # Read before anything is brought: a model may have changed these files.
        rules = self.proposer.rules = await read_repository_rules(
            [file.path for file in self._files],
            lambda path, most: self._environment.read_file(path, max_bytes=most),
            parts.options,
            parts.model.name,
        )
        if rules.etiquette.forbids and parts.options.respects_ai_policy:
            return SessionEnd(EndKind.FINISH, f"hands off, as the repository asks: {rules.etiquette.forbids}")
        brought = await asyncio.to_thread(
            bring, self.clone, self._task, self.earlier, parts.options.author_email
        )
        if isinstance(brought, str):
            return SessionEnd(EndKind.FINISH, brought)
        self._take(brought)
        return None

    async def requests(self) -> AsyncGenerator[Asked]:
        """Run the session and yield each pull request that the model asks for. Set `end` after the last one.

        Raises:
            PullwrightError: the model, the forge or git failed.
        """
        session, first = await self._open()
        running = asyncio.create_task(session.run(first))
        running.add_done_callback(lambda _: self._asked.put_nowait(None))
        try:
            while (asked := await self._asked.get()) is not None:
                yield asked
            self.end = running.result()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        self._is_said = True

    @property
    def environment(self) -> ExecutionEnvironment:
        """The environment in which tools run."""
        return self._environment

    def talked(self, session: Session, words: str, before: Sequence[Event]) -> None:
        """Record that a person sent the model a message about the task.

        Args:
            session: the person's session with the model, which replaces the cycle's own.
            words: the message; empty if the program asks the model on the person's behalf.
            before: the conversation before the first message.
        """
        if self._session is None:
            self._told[:0] = conversation(before)
        self._session = session
        if words:
            self.said.append(words[:_SAID_CHARACTERS])

    async def _ask(self, title: str, body: str) -> str:
        """Carry out the tool `create_pull_request`."""
        asked = Asked(title, body, asyncio.get_running_loop().create_future())
        self._asked.put_nowait(asked)
        return await asked.answered()

    async def _with_skills(self, profile: Profile) -> Profile:
        """Return the profile with the skills of the user and the repository."""
        wanted = self._parts.skills
        if wanted is None:
            return profile
        if self._parts.contract.writes_whole_files:
            if wanted.chosen:
                self._emit(Warned("the contract whole-file has no room for skills: --skill has no effect"))
            return profile
        is_default = await self._opening.is_default(self.brought)
        found = await skills_of_cycle(self.attempt, wanted, is_default=is_default)
        for notice in found.cut_notices(profile.skill_bytes):
            self._emit(Warned(notice))
        return with_skills(profile, found)

    async def _open(self) -> tuple[Session, Message]:
        """Create the session and its first message."""
        parts, brought = self._parts, self.brought
        run_tests = self.verification.run_tests if self.verification.can_run else None
        foreign = await self._foreign.open() if self._foreign else ()
        profile = await self._with_skills(
            parts.profile(self._ask, self._ending.may_finish, run_tests, foreign)
        )
        contract = parts.contract
        turns: list[Turn] = []
        todos = TodoList()
        if self.earlier:
            turns = [] if contract.forgets else self.earlier.turns(*self._voice, parts.clock.now())
            todos = todos_of(self.earlier.events) if turns else todos  # without them no model knows the ids
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
        )
        session.budget.started = self._started  # the tests on the base take of the same minutes
        tests, resumes = "", bool(self.earlier and turns)
        if not resumes:
            has_tool = profile.tools.get("run_tests") is not None
            tests = await self.verification.words(has_tool=has_tool, brief=profile.is_brief)
        first, briefing = await self._opening.brief(
            profile, brought, tests, whole_file=contract.writes_whole_files
        )
        self._task_words, self._rules = briefing.task, briefing.instructions
        self._about = {*brought.paths, *filter(None, (briefing.subject,))}
        if self.earlier and resumes:
            first = self._resumed(self.earlier, turns, first)
        else:
            self.ledger.shown |= briefing.shown
            contract.learn(title=self._task.title, path=briefing.subject, tests=tests)
        return session, first

    def _resumed(self, earlier: Earlier, turns: Sequence[Turn], first: Message) -> Message:
        """Return the first message of a continued conversation, with the task's images if they were dropped from it."""
        self._told.extend(earlier.events)
        # What it wrote, the model need not read to write it again, if that is what is there.
        if not (self.brought.base_moved or earlier.state.files_lost):
            self.ledger.shown |= set(self.brought.paths)
        images = [] if images_of(turns) else [one for one in first.parts if isinstance(one, Image)]
        return Message(Role.USER, (*self._opening.go_on(earlier, self.brought).parts, *images))

    @property
    def conversation(self) -> list[Event]:
        """The conversation so far, including that of the cycle that this one continues."""
        if self._session is None and self.earlier is not None and self._is_brought:
            return list(self.earlier.events)
        return conversation(self._told)

    @property
    def spent(self) -> Spent:
        """The cost of the session so far."""
        minutes = (self._parts.clock.monotonic() - self._started) / _SECONDS_A_MINUTE
        if self._session is None:
            return Spent(minutes=minutes)
        budget = self._session.budget
        tokens = budget.usage.total_tokens + budget.uncertain_tokens
        return Spent(budget.usd, tokens, minutes, budget.rounds)

    @property
    def _voice(self) -> tuple[str, str, str]:
        """The model, contract and profile of the conversation."""
        return self._parts.model.name, self._parts.contract.name, self._parts.profile_name

    def state(self, why: str) -> UnfinishedState:
        """Return the state that the next cycle on this task needs, apart from files and conversation."""
        model, contract, profile = self._voice
        earlier, before = self.earlier, None
        question, url = self._result.question or "", self._result.question_url or ""
        if earlier is not None and self._session is None:
            # This cycle has no conversation yet: the earlier one belongs to the cycle before.
            model, contract, profile = earlier.state.model, earlier.state.contract, earlier.state.profile
            before = earlier.begun_for(self._task)
            if not question:  # nobody has heard the answer yet
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
            attempts=0 if self._parts.operator else (earlier.state.attempts if earlier else 0) + 1,
            tip=self.proposer.pushed or "",
            proposal=begun_proposal(self._told, before),
            status_marker=self._task.status_marker,
            said=tuple(self.said),
        )

    def _take(self, brought: RestoredWork) -> None:
        """Mark restored files as written by tools."""
        self.ledger.touched |= set(brought.paths)
        self.ledger.shell_used |= self.earlier is not None and self.earlier.state.shell_used
        self._is_brought = True
        self.proposer.pushed = brought.tip
        self.proposer.is_committed = brought.joined and bool(brought.message)
        self.proposer.found_branch = self.earlier.branch if self.earlier and brought.tip else ""
        self.brought = self.pending.brought = brought

    def tell_resumed(self, turns: int = 0) -> None:
        """Emit that earlier work is continued, with this number of turns of its conversation."""
        state = self.earlier.state if self.earlier else None
        if state and state.run:  # a branch alone has no state
            paths, conflicts = self.brought.paths, self.brought.conflicts
            self._emit(Resumed(state.run, state.why, turns, len(paths), conflicts))

    def _make_verifier(self) -> Verifier | None:
        """Create the verifier that runs the tests; None in a replay, and without a test command.

        Raises:
            ConfigurationError: tests are required, and there is no test command.
        """
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
        """Return the minutes that the cycle may still take; None without a limit."""
        most = self._parts.limits.minutes
        return None if most is None else most - self.spent.minutes

    def _config(self) -> SessionConfig:
        options, limits = self._parts.options, self._parts.limits
        return SessionConfig(
            max_turns=limits.rounds or 0,
            max_tokens=limits.tokens,
            max_usd=limits.usd,
            max_minutes=limits.minutes,
            max_output_tokens=options.max_output_tokens,
            temperature=options.temperature,
            reasoning_effort=options.reasoning_effort,
            reply_tokens=self._parts.reply_tokens,
            stream=options.stream,
            context_window=options.context_window,
            compaction=options.compaction,
            user_instructions=options.system_prompt,
            max_subagents=options.max_subagents,
            subagent_timeout_seconds=options.subagent_timeout_seconds,
        )

    def _host(self, profile: Profile, todos: TodoList) -> Host:
        parts, contract = self._parts, self._parts.contract

        def system(shown: tuple[ToolDefinition, ...]) -> str:
            form = contract.describe(shown)
            if contract.writes_whole_files:
                return form
            said = parts.options.system_prompt.strip()
            last = [render("agent/user_instructions", instructions=said)] if said else []
            return "\n\n".join([profile.base_prompt, form, *last])

        return Host(
            gate=parts.guards.gate,
            shows=parts.guards.shows,
            clean=self._sanitizer.text,
            price=parts.price,
            stopped=parts.stop,
            task=lambda: self._task_words,
            facts=self._facts,
            may_end=self._ending.may_end,
            is_done=self._ending.is_done,
            recall=self._recall,
            # Where the form of replies is part of the prompt, nothing else stands between it and the job.
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
        return render("cycle/kept_facts", rules=self._rules, pull=url, recalled=self._recalled)

    async def _recall(self, message: str) -> str:
        """Return the memories about a message.

        The first message is mostly about the repository, so memories are recalled for the task instead.
        """
        if self._parts.memory is None:
            return ""
        is_first = self._session is None or not self._session.budget.rounds
        memory = self._parts.memory
        if not is_first:
            return await memory.recall(message, self._about, self.clone.blobs)
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
        self._result.minutes = self.spent.minutes
        if self.ledger.shell_used and not self._parts.stop.now():
            await self._commits.look()  # for the next cycle on the task, if this one is not at its end
        await self._environment.cleanup()
        self.pending.close()

    def _is_last(self) -> bool:
        return self._session is not None and self._session.budget.wrapping_up is not None

    def _may_go_on(self) -> bool:
        """Return whether the model will be asked again after this round."""
        if self._session is None:
            return True
        return not (self._is_said or self._is_last() or self._session.budget.exceeded())

    def _emit(self, event: Event) -> None:
        self._evidence(event)
        self._told.append(event)
        if isinstance(event, PhaseEntered):
            self._phase = event.phase
        if isinstance(event, PlanAccepted):
            self._result.plan = event.plan or self._result.plan
            if self._phase is not Phase.ACT:
                self._emit(PhaseEntered(Phase.ACT))
        self._parts.emit(event)


class FinishCheck:
    """Objects once if the model stops calling tools, and once if it calls `finish` too early.

    Args:
        is_last: whether this is the last turn that the session can have.
    """

    def __init__(
        self, pending: Pending, sanitizer: Sanitizer, result: CycleResult, is_last: Callable[[], bool]
    ) -> None:
        self._pending, self._sanitizer, self._result, self._is_last = pending, sanitizer, result, is_last
        self._reminded = False
        self._finish_refused = False

    async def may_end(self, _text: str) -> str | None:
        """Return the reminder for a reply without tool calls: nobody reads it. None accepts the reply.

        The model is reminded once, unless all changes are proposed.
        """
        pending = await asyncio.to_thread(self._pending.paths)
        if self._reminded or (self._result.pull_request and not pending):
            return None
        self._reminded = True
        return render("cycle/nobody_reads", paths=self._sanitizer.paths(pending))

    async def is_done(self) -> bool:
        """Return whether the pull request is open and contains all changes, so that the session can end."""
        return self._result.pull_request is not None and not await asyncio.to_thread(self._pending.paths)

    async def may_finish(self, _reason: str) -> str | None:
        """Return why the first `finish` is refused if it would leave changes unproposed; None accepts it."""
        pending = await asyncio.to_thread(self._pending.paths)
        if not pending or self._finish_refused or self._is_last():
            return None
        self._finish_refused = True
        return render("agent/finish_refused", paths=self._sanitizer.paths(pending))


class Pending:
    """Compares the clone with the proposed changes.

    Attributes:
        brought: the files restored onto the clone before the session began.
    """

    def __init__(self, clone: Clone, ledger: Ledger, proposer: Proposer, *, dry_run: bool) -> None:
        self._clone, self._ledger, self.proposer, self._dry_run = clone, ledger, proposer, dry_run
        self.brought = RestoredWork()
        self._is_closed = False
        self._left: tuple[set[str], bytes] | None = None

    def close(self) -> None:
        """Declare that files no longer change, so that `left` computes its result only once."""
        self._is_closed = True

    def paths(self) -> set[str]:
        """Return the paths of changes that are not committed."""
        return self._mine(self._clone.changed_paths())

    def _mine(self, changed: set[str]) -> set[str]:
        mine = changed if self._ledger.shell_used else changed & self._ledger.touched
        return {path for path in mine - self.proposer.left_out if not self._is_proposed(path)}

    def left(self) -> tuple[set[str], bytes]:
        """Return the changes that are not proposed: their paths, and a patch.

        The patch includes changes that wait for a person. In a dry run it contains only what would not be
        proposed.

        Raises:
            WorkspaceError: the files cannot be read.
        """
        if self._left is not None:
            return self._left
        changed = self._clone.changed_paths()
        paths = self._mine(changed)
        is_proposed = self._dry_run or (self.brought.is_proposed and not self.proposer.is_committed)
        patch = b""
        if paths or not is_proposed:
            patch = self._clone.pending_patch(
                set(self._ledger.touched),
                include_commands=self._ledger.shell_used,
                pushed=self.proposer.has_pull_request,
                changed=changed,
            )
        if self._is_closed:
            self._left = paths, patch
        return paths, patch

    def _is_proposed(self, path: str) -> bool:
        """Return whether the pull request already contained this version of the file before the cycle."""
        seen = self.brought.prints
        return path in seen and prints(self._clone.tree, [path])[path] == seen[path]

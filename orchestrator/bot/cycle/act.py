"""Plan and act: one session between the model and the tools, on one clone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.briefing import Opening
from orchestrator.bot.cycle.bring import Brought, bring, prints
from orchestrator.bot.cycle.evidence import ModelCommits, SessionEvidence
from orchestrator.bot.cycle.guards import Sanitizer
from orchestrator.bot.cycle.parts import Attempt
from orchestrator.bot.cycle.propose import Proposer, UnfitWordsError, as_result
from orchestrator.bot.cycle.repository_rules import RepositoryRules, read_repository_rules
from orchestrator.bot.cycle.result import in_words
from orchestrator.bot.cycle.tasks import TaskKind
from orchestrator.bot.cycle.unfinished import UnfinishedState, begun_proposal, conversation
from orchestrator.bot.cycle.verify import Verification
from orchestrator.core.cycle_events import Phase, PhaseEntered, Resumed
from orchestrator.core.errors import ConfigurationError, ToolError
from orchestrator.core.events import PlanAccepted, Warned
from orchestrator.core.fence import fenced
from orchestrator.core.prompts import render
from orchestrator.core.spent import Spent
from orchestrator.engine.session.config import Host, SessionConfig
from orchestrator.engine.session.loop import EndKind, SessionEnd
from orchestrator.engine.session.session import Session
from orchestrator.engine.tools.base import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.bot.cycle.claim import Choice
    from orchestrator.bot.cycle.parts import CycleParts
    from orchestrator.bot.cycle.result import CycleResult
    from orchestrator.bot.cycle.unfinished import Earlier
    from orchestrator.bot.git.base import TrackedFile
    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.verification.base import Verifier
    from orchestrator.core.events import Event
    from orchestrator.core.messages import ToolDefinition
    from orchestrator.engine.profiles.base import Profile
    from orchestrator.engine.session.history import Turn


_SECONDS_A_MINUTE = 60.0
_TITLE_CHARS = 70


class Act:
    """The session of one cycle, and what it may ask the host for."""

    def __init__(
        self, parts: CycleParts, choice: Choice, clone: Clone, files: list[TrackedFile], result: CycleResult
    ) -> None:
        if choice.task is None:
            raise AssertionError("a session has a task")
        self._parts, self._task, self._files, self._result = parts, choice.task, files, result
        self._earlier = choice.earlier
        self.clone = clone
        self.ledger = Ledger()
        self._told: list[Event] = []
        self._evidence = SessionEvidence(parts.guards.redact)
        self._session: Session | None = None
        self._phase = Phase.PLAN
        self._is_brought = self._is_said = False
        submodules = [file.path for file in files if file.kind == "submodule"]
        self._environment = parts.environment(clone.tree, submodules)
        self._started = parts.clock.monotonic()
        self.spent_before = choice.spent_before
        said = choice.earlier.state.messages if choice.earlier else ()
        self._commits = ModelCommits(
            self._environment, clone.base_commit, parts.guards.holds_secret, self._emit, earlier=said
        )
        self._sanitizer = Sanitizer(parts.guards, self._emit)
        attempt = Attempt(parts, choice.task, clone, self.ledger, self._sanitizer, result, self._emit)
        self.verification = Verification(attempt, self._make_verifier(), self._may_go_on, self._minutes_left)
        self._proposer = Proposer(
            attempt,
            self._evidence,
            self.verification,
            rules=RepositoryRules(),
            cost=lambda: in_words(self.spent_before + self.spent),
            commits=self._commits,
            draft=parts.options.draft,
            lease=choice.lease,
        )
        self._pending = Pending(clone, self.ledger, self._proposer, dry_run=parts.options.dry_run)
        self._ending = FinishCheck(self._pending, self._sanitizer, result, self._is_last)
        self._opening = Opening(attempt, files, self._environment)

    async def run(self) -> SessionEnd:
        """Bring what is there already, and hold the session.

        Raises:
            PullwrightError: the model, the forge or git failed.
        """
        parts = self._parts
        await self._environment.initialize()
        self._emit(PhaseEntered(Phase.PLAN))
        # Read before anything is brought: a model may have changed these files.
        rules = self._proposer.rules = await self._read_rules()
        if rules.etiquette.forbids and parts.options.respects_ai_policy:
            return SessionEnd(EndKind.FINISH, f"hands off, as the repository asks: {rules.etiquette.forbids}")
        brought = await asyncio.to_thread(
            bring, self.clone, self._task, self._earlier, parts.options.author_email
        )
        if isinstance(brought, str):
            return SessionEnd(EndKind.FINISH, brought)
        self._take(brought)
        if self._task.kind is TaskKind.REBASE and brought.replays:
            words: str | None = f"{self._task.url} is on top of {self.clone.base_branch} as it is"
            if brought.base_moved:
                words = await self._proposer.replay()
            if words is not None:
                return SessionEnd(EndKind.FINISH, words)
        if end := await self._end_what_was_begun(brought):
            return end
        end = await self._converse(brought)
        self._is_said = True
        await self._propose_what_is_left(end)
        if end.kind in {EndKind.FINISH, EndKind.COMPLETED, EndKind.AWAITING, EndKind.LIMIT}:
            await self._proposer.give_up()
        return end

    async def _end_what_was_begun(self, brought: Brought) -> SessionEnd | None:
        """Do what an earlier cycle only had to tell the forge, and could not; None where a model is needed."""
        earlier, pull = self._earlier, self._task.pull
        if earlier is None:
            return None
        if brought.is_over and pull is not None:
            self._result.pull_request = as_result(pull)
            return SessionEnd(EndKind.FINISH, f"{pull.url} has all that was left")
        if question := earlier.unasked(self._task):
            self._tell_resumed(earlier, brought, 0)
            return SessionEnd(EndKind.QUESTION, question)
        words = self._proposer.words_of(brought.message) if brought.message else None
        begun = words or earlier.begun_for(self._task)
        if begun is None or brought.conflicts:
            return None
        try:
            await self._proposer.propose(begun.title, begun.body, is_begun=True)
        except ToolError as error:
            self._emit(Warned(f"what an earlier cycle had ready cannot be proposed as it is: {error}"))
            return None
        self._tell_resumed(earlier, brought, 0)
        return SessionEnd(
            EndKind.FINISH, "an earlier cycle had it ready, and could not open the pull request"
        )

    async def _converse(self, brought: Brought) -> SessionEnd:
        parts = self._parts
        run_tests = self.verification.run_tests if self.verification.can_run else None
        profile = parts.profile(self._proposer.propose, self._ending.may_finish, run_tests)
        contract = parts.contract
        turns: list[Turn] = []
        if self._earlier:
            turns = [] if contract.forgets else self._earlier.turns(*self._voice, parts.clock.now())
            self._tell_resumed(self._earlier, brought, len(turns))
        self._session = Session(
            profile=replace(profile, documents=()),  # the first message has them
            environment=self._environment,
            model=parts.model,
            contract=contract,
            config=self._config(),
            host=self._host(profile),
            clock=parts.clock,
            session_id=parts.run,
            earlier=turns,
        )
        if self._earlier and turns:
            self._told.extend(self._earlier.events)
            # What it wrote, the model need not read to write it again, if that is what is there.
            if not (brought.base_moved or self._earlier.state.files_lost):
                self.ledger.shown |= set(brought.paths)
            first = self._opening.go_on(self._earlier, brought)
        else:
            has_tool = profile.tools.get("run_tests") is not None
            tests = await self.verification.words(has_tool=has_tool, brief=profile.is_brief)
            whole_file = contract.writes_whole_files
            first, subject = await self._opening.brief(profile, brought, tests, whole_file=whole_file)
            contract.learn(title=self._task.title, path=subject, tests=tests)
        return await self._session.run(first)

    async def _propose_what_is_left(self, end: SessionEnd) -> None:
        """Propose, as a draft, what a model changed that ended in words, and never called for a pull request.

        It was told that nobody reads what it only writes, so it takes the work for done, or asks nobody. What it
        gave up by `finish`, and what a limit cut short, stays as it is.
        """
        asked_for = self._proposer.has_pull_request or self.verification.refused
        if asked_for or end.kind not in {EndKind.COMPLETED, EndKind.AWAITING}:
            return
        if not await asyncio.to_thread(self._pending.paths):
            return
        self._proposer.draft = True
        said = end.text.strip()
        try:
            try:
                await self._propose_unasked(fenced(said) if said else "")
            except UnfitWordsError:
                await self._propose_unasked("")
        except ToolError as error:
            self._emit(
                Warned(f"what the model changed and did not propose is no pull request either: {error}")
            )

    async def _propose_unasked(self, said: str) -> None:
        words = render("cycle/proposed_by_host", words=said)
        await self._proposer.propose(self._task.title[:_TITLE_CHARS], words, is_begun=True)

    @property
    def conversation(self) -> list[Event]:
        """What was said so far, in the cycle that this one goes on with too."""
        if self._session is None and self._earlier is not None and self._is_brought:
            return list(self._earlier.events)
        return conversation(self._told)

    @property
    def spent(self) -> Spent:
        """What the session has cost so far."""
        minutes = (self._parts.clock.monotonic() - self._started) / _SECONDS_A_MINUTE
        if self._session is None:
            return Spent(minutes=minutes)
        budget = self._session.budget
        tokens = budget.usage.total_tokens + budget.uncertain_tokens
        return Spent(budget.usd, tokens, minutes, budget.rounds)

    @property
    def _voice(self) -> tuple[str, str, str]:
        """Whose conversation it is, and in which form."""
        return self._parts.model.name, self._parts.contract.name, self._parts.profile_name

    def state(self, why: str) -> UnfinishedState:
        """What the next cycle on this task has to know, beside the work and the conversation."""
        model, contract, profile = self._voice
        earlier, before = self._earlier, None
        if earlier is not None and self._session is None:
            # Nothing was said in this cycle: what was said before is in the voice of the one before.
            model, contract, profile = earlier.state.model, earlier.state.contract, earlier.state.profile
            before = earlier.begun_for(self._task)
        return UnfinishedState(
            run=self._parts.run,
            why=why,
            model=model,
            contract=contract,
            profile=profile,
            touched=tuple(sorted(self.ledger.touched)),
            messages=tuple(self._commits.messages),
            shell_used=self.ledger.shell_used,
            question=self._result.question or "",
            question_url=self._result.question_url or "",
            attempts=(earlier.state.attempts if earlier else 0) + 1,
            tip=self._proposer.pushed or "",
            proposal=begun_proposal(self._told, before),
            status_marker=self._task.status_marker,
        )

    def _take(self, brought: Brought) -> None:
        """What was brought counts as written by tools."""
        self.ledger.touched |= set(brought.paths)
        self.ledger.shell_used |= self._earlier is not None and self._earlier.state.shell_used
        self._is_brought = True
        self._proposer.pushed = brought.tip
        self._proposer.is_committed = brought.joined and bool(brought.message)
        self._proposer.found_branch = self._earlier.branch if self._earlier and brought.tip else ""
        self._pending.brought = brought

    def _tell_resumed(self, earlier: Earlier, brought: Brought, turns: int) -> None:
        state = earlier.state
        if state.run:  # a branch alone tells of none
            self._emit(Resumed(state.run, state.why, turns, len(brought.paths), brought.conflicts))

    def _make_verifier(self) -> Verifier | None:
        """Who runs the tests; nobody in a replay, and where nothing says how.

        Raises:
            ConfigurationError: nothing says how, and nothing may be proposed without them.
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
        """How long the cycle may still take; None without an end."""
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
        )

    def _host(self, profile: Profile) -> Host:
        parts, contract = self._parts, self._parts.contract

        def system(shown: tuple[ToolDefinition, ...]) -> str:
            form = contract.describe(shown)
            return form if contract.writes_whole_files else f"{profile.base_prompt}\n\n{form}"

        return Host(
            gate=parts.guards.gate,
            shows=parts.guards.shows,
            clean=self._sanitizer.text,
            price=parts.price,
            stopped=parts.stop,
            may_end=self._ending.may_end,
            is_done=self._ending.is_done,
            recall=self._recall,
            # Where the form of replies is part of the prompt, nothing else stands between it and the job.
            system=system if contract.has_own_form else None,
            ledger=self.ledger,
            emit=self._emit,
            owns_environment=False,
        )

    async def _recall(self, message: str) -> str:
        """What is remembered. The first message is mostly the repository's; the task says what it is about."""
        is_first = self._session is None or not self._session.budget.rounds
        return await self._parts.recall(f"{self._task.title}\n{self._task.body}" if is_first else message)

    async def close(self) -> None:
        """Stop what still runs, and note what was spent."""
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
        self._pending.close()

    async def _read_rules(self) -> RepositoryRules:
        return await read_repository_rules(
            [file.path for file in self._files],
            lambda path, most: self._environment.read_file(path, max_bytes=most),
            self._parts.options,
            self._parts.model.name,
        )

    def left(self) -> tuple[set[str], bytes]:
        """What is not proposed, by path, and as a patch: see `Pending.left`."""
        return self._pending.left()

    def _is_last(self) -> bool:
        return self._session is not None and self._session.budget.wrapping_up is not None

    def _may_go_on(self) -> bool:
        """Whether the model will be asked once more after this round."""
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
    """Asks once each: of a model that only says something, and of one that calls `finish`.

    Args:
        pending: what is not proposed.
        sanitizer: shows it.
        result: the cycle's, for the pull request.
        is_last: whether this is the last turn that the session can have.
    """

    def __init__(
        self, pending: Pending, sanitizer: Sanitizer, result: CycleResult, is_last: Callable[[], bool]
    ) -> None:
        self._pending, self._sanitizer, self._result, self._is_last = pending, sanitizer, result, is_last
        self._reminded = False
        self._finish_refused = False

    async def may_end(self, _text: str) -> str | None:
        """Nobody reads what the model only says: tell it so once, unless all is proposed."""
        pending = await asyncio.to_thread(self._pending.paths)
        if self._reminded or (self._result.pull_request and not pending):
            return None
        self._reminded = True
        return render("cycle/nobody_reads", paths=self._sanitizer.paths(pending))

    async def is_done(self) -> bool:
        """Whether the pull request is open and has all changes: then nothing is left that a model must say."""
        return self._result.pull_request is not None and not await asyncio.to_thread(self._pending.paths)

    async def may_finish(self, _reason: str) -> str | None:
        """Refuse the first `finish` that would leave changes unproposed."""
        pending = await asyncio.to_thread(self._pending.paths)
        if not pending or self._finish_refused or self._is_last():
            return None
        self._finish_refused = True
        return render("agent/finish_refused", paths=self._sanitizer.paths(pending))


class Pending:
    """Compares the clone with what is proposed.

    Attributes:
        brought: what was on the clone before the session began.
    """

    def __init__(self, clone: Clone, ledger: Ledger, proposer: Proposer, *, dry_run: bool) -> None:
        self._clone, self._ledger, self._proposer, self._dry_run = clone, ledger, proposer, dry_run
        self.brought = Brought()
        self._is_closed = False
        self._left: tuple[set[str], bytes] | None = None

    def close(self) -> None:
        """Nothing changes any more: from now on `left` is looked for once."""
        self._is_closed = True

    def paths(self) -> set[str]:
        """What was changed and not committed, by path."""
        return self._mine(self._clone.changed_paths())

    def _mine(self, changed: set[str]) -> set[str]:
        mine = changed if self._ledger.shell_used else changed & self._ledger.touched
        return {path for path in mine - self._proposer.left_out if not self._is_proposed(path)}

    def left(self) -> tuple[set[str], bytes]:
        """What is not proposed, by path, and as a patch.

        The patch also has what waits for a person; that of a dry run only what would not be proposed.

        Raises:
            WorkspaceError: the files cannot be read.
        """
        if self._left is not None:
            return self._left
        changed = self._clone.changed_paths()
        paths = self._mine(changed)
        is_proposed = self._dry_run or (self.brought.is_proposed and not self._proposer.is_committed)
        patch = b""
        if paths or not is_proposed:
            patch = self._clone.pending_patch(
                set(self._ledger.touched),
                include_commands=self._ledger.shell_used,
                pushed=self._proposer.has_pull_request,
                changed=changed,
            )
        if self._is_closed:
            self._left = paths, patch
        return paths, patch

    def _is_proposed(self, path: str) -> bool:
        """Whether a file is as the pull request has had it since before this cycle."""
        seen = self.brought.prints
        return path in seen and prints(self._clone.tree, [path])[path] == seen[path]

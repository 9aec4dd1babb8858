"""Probes of a repository: permission to push, claims and unfinished work, and how its tests are run."""

from __future__ import annotations

import re
import tempfile
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.config.settings import LOCAL_FILE, tightened
from orchestrator.app.doctor.findings import (
    Group,
    Impatient,
    Probe,
    ProbeFinding,
    Unmet,
    failed,
    ok,
    skipped,
    warned,
)
from orchestrator.app.options import AUTO
from orchestrator.app.wiring.guards import (
    allowing,
    as_flags,
    missing_hosts,
    not_installed,
    open_sandbox,
    proposals,
    run_in_words,
    run_options,
    sandbox_options,
    try_tests,
)
from orchestrator.app.wiring.repository import make_decisions, new_nonce, open_hidden_refs, owner_name
from orchestrator.bot.coordination.saved_work import list_wip
from orchestrator.bot.cycle.briefing import UNREAD, document_links, instruction_files
from orchestrator.bot.cycle.claimer import RemoteNames, patterns
from orchestrator.bot.cycle.parts import CycleOptions
from orchestrator.bot.cycle.repository_rules import RepositoryRules, read_repository_rules
from orchestrator.bot.cycle.statements import MOST_ASKED, kept_answers
from orchestrator.bot.cycle.task_state import TaskStatus
from orchestrator.bot.cycle.tasks import BRANCH_FOLDERS
from orchestrator.bot.git.base import Identity
from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.objects import read_objects
from orchestrator.bot.git.opening import open_clone
from orchestrator.bot.git.remote import HIDDEN, NOT_ATOMIC, push_error
from orchestrator.bot.verification.base import hosts_of, names_each_test
from orchestrator.bot.verification.suggest import Confidence, SuggestedCommand
from orchestrator.core import event_loop
from orchestrator.core.errors import (
    ConfigurationError,
    EmptyRepositoryError,
    FileTooLargeError,
    WorkspaceError,
)
from orchestrator.core.prompts import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator.app.config.settings import Settings
    from orchestrator.app.wiring import BuildContext
    from orchestrator.app.wiring.repository import OnDisk, Site
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.cycle.task_state import TaskState
    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.suggestions import Commands
    from orchestrator.bot.verification.base import RunOptions


REF = f"{HIDDEN}doctor"
_PUSH_SECONDS = 20.0
_NAMED = 3


_REFUSED = {
    r"archived": "unarchive it in its settings, or name another repository",
    r"SAML|SSO\b|single sign-on": "authorize the token or the ssh key for the organization: on its page, Configure SSO",
    r"push protection|contain secrets|secret-scanning": "remove the secret from the file that the server names, or allow it at the address that it gives",
    r"(?:verified|valid) signatures|must be signed": (
        "exclude pullwright* branches from the rule for signatures, or let the token's owner bypass it: "
        "commits are not signed here"
    ),
    r"GH006|protected branch": "exclude pullwright* branches from that protection, or let the token's owner bypass it",
    r"GH013|rule violations|being restricted|ruleset": (
        "exclude pullwright* branches from the rule at the address that the server gives, "
        "or let the token's owner bypass it"
    ),
    r"marked as read only|read-only (?:key|token)": "use a key or a token that may write",
    r"rate limit|error: 429": "wait, and run again; fewer workers need fewer requests",
    r"no such repository|not found": "check the name, and give the token access: without access a private repository is reported as missing",
    r"hook declined": "ask the server's administrator: a hook on the server refuses the push",
}
"""The fixes for refused pushes, by the words of the server or of `bot/git/failures.py`. The first match counts."""


def fix_for(said: str, otherwise: str) -> str:
    """Return what to do about the refusal of a git server.

    Args:
        said: the error with the server's words.
        otherwise: the fix if the words are unknown.
    """
    return next((fix for words, fix in _REFUSED.items() if re.search(words, said, re.IGNORECASE)), otherwise)


class RemoteProbes:
    """Probes of the git remote.

    Args:
        push_fix: what to do if a push is refused.
        writes: whether to create and remove a hidden ref.
    """

    def __init__(self, site: Site, context: BuildContext, *, push_fix: str, writes: bool) -> None:
        self._site, self._context = site, context
        self._push_fix, self._writes, self._stop = push_fix, writes, Impatient()
        self._opened: Records | None = None

    def group(self, name: str) -> Group:
        """Return the probes, in order."""
        network = "check the network, the address and the token"
        probes = (
            Probe("push", self._push, network, _PUSH_SECONDS),
            Probe("names", self._names, "rename or remove what is in the way", _PUSH_SECONDS),
            Probe("atomic push", self._atomic, network, _PUSH_SECONDS),
            Probe("claims", self._claims, network, _PUSH_SECONDS),
            Probe("unfinished work", self._unfinished, network, _PUSH_SECONDS),
            Probe("tasks", self._tasks, network, _PUSH_SECONDS),
        )
        return Group(f"Git {name}", probes, self._stop, self._close)

    def _records(self) -> Records:
        if self._opened is None:
            try:
                self._opened = open_hidden_refs(self._site, self._context.clock, self._stop)
            except EmptyRepositoryError:
                raise Unmet("not tried: the repository is empty") from None
        return self._opened

    def _close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def _push(self) -> ProbeFinding:
        try:
            records = self._records()
            commit = records.commit(f"pullwright doctor {new_nonce()}", None)
            if self._writes:
                before = records.list(REF).get(REF)
                if not (records.swap(REF, before, commit) and records.delete(REF, commit)):
                    return warned("another doctor is running on this repository", "run it again")
                return ok(f"yes: {REF} was created and removed")
            self._dry_run(records, commit)
        except WorkspaceError as error:
            return failed(str(error), fix_for(str(error), self._push_fix))
        return ok("yes, tried without writing")

    def _names(self) -> ProbeFinding:
        records, base = self._records(), self._context.settings.base
        names = RemoteNames(records.tips(patterns(base)).keys(), records.remote.shown)
        if base is not None:
            try:
                names.require_base(base)
            except ConfigurationError as error:
                return failed(str(error), "pass --base with the name of a branch")
        names.require_hidden("issue-1")
        folder = names.folder()
        if folder != BRANCH_FOLDERS[0]:
            taken = names.why_not_below(BRANCH_FOLDERS[0])
            return warned(
                f"a branch is called {taken}, so ours go below {folder}",
                "rename that branch if you want ours below pullwright/",
            )
        return ok(f"there is room below {folder}")

    def _atomic(self) -> ProbeFinding:
        records = self._records()
        try:
            self._dry_run(records, records.commit(f"pullwright doctor {new_nonce()}", None), "--atomic")
        except WorkspaceError as error:
            if NOT_ATOMIC in str(error):
                fix = "on the server: git config receive.advertiseAtomic true"
                return warned("not supported: claim and branch are pushed one after the other", fix)
            return skipped("not tried: see push")
        return ok("claim and branch move together")

    def _dry_run(self, records: Records, commit: str, *options: str) -> None:
        """Start a push without data: the server reports first whether writing is allowed."""
        place = records.objects.parent
        doing = f"cannot push to {records.remote.shown}"
        result = HostGit(place.parent, place).attempt(
            "push",
            "--dry-run",
            "--porcelain",
            "--no-verify",
            "--no-follow-tags",
            *options,
            "--",
            records.remote.url,
            f"+{commit}:{REF}",
            doing=doing,
            remote=records.remote,
        )
        if result.status != 0:
            raise push_error(result, doing)

    def _claims(self) -> ProbeFinding:
        decisions = make_decisions(self._site, self._records(), self._context)
        clock, times, owner = self._context.clock, decisions.times, owner_name(self._context.environ)
        held = [claim for claim in decisions.claims.list() if claim.state == "held"]
        broken = [claim.task for claim in held if claim.fault is not None]
        if broken:
            fix = decisions.commands.release(broken[0])
            return warned(
                f"{_some(broken)} cannot be read and {'blocks its task' if len(broken) == 1 else 'block their tasks'}",
                fix,
            )
        ours = [claim.task for claim in held if claim.owner == owner and claim.is_free(clock.now(), times)]
        if ours:
            return warned(f"of this machine, expired: {_some(ours)}", "the next run takes them up again")
        live = [claim for claim in held if decisions.is_held(claim)]
        return ok(f"{len(live)} held" if live else "none held")

    def _unfinished(self) -> ProbeFinding:
        waiting = sorted(list_wip(self._records()))
        return ok(f"{_some(waiting)}; the next cycle continues it" if waiting else "none")

    def _tasks(self) -> ProbeFinding:
        decisions = make_decisions(self._site, self._records(), self._context)
        return tasks_in_words(decisions.states(), decisions.commands)


def tasks_in_words(states: Sequence[TaskState], commands: Commands) -> ProbeFinding:
    """Return the states of tasks, why one is left alone, and the next command for the first that waits for a person."""
    told = [
        f"{kind}: {_some(keys)}"
        for kind in TaskStatus
        if (keys := [state.key for state in states if state.status is kind])
    ]
    kinds = (TaskStatus.BLOCKED, TaskStatus.CAPPED, TaskStatus.LEFT)
    told += [one.refusal for kind in kinds for one in states if one.status is kind][:_NAMED]
    waiting = [
        state
        for state in states
        if state.blocks and state.status not in {TaskStatus.DECLINED, TaskStatus.NOTHING}
    ]
    if waiting:
        return warned("; ".join(told), waiting[0].next_step(commands))
    return ok("; ".join(told) or "none is known")


def local_folder(place: OnDisk, site: Site, base: str | None) -> ProbeFinding:
    """Check a repository on this disk."""
    from orchestrator.bot.git.local import LocalRepository

    repository = LocalRepository(place.path)
    if repository.is_empty():
        return failed(f"{place.path} is empty", "commit something to it first")
    if base is None and repository.default_branch() is None:
        return failed("its HEAD is detached", "pass --base BRANCH, or check out a branch")
    kind = "a work tree" if (place.path / ".git").exists() else "bare"
    origin = f", origin {place.origin}" if place.origin else ""
    return ok(f"{place.home}{origin}: {kind}, default branch {site.source().branch}")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


@contextmanager
def _cloned(site: Site, context: BuildContext, stop: Impatient) -> Iterator[Clone]:
    source, settings = site.source(), context.settings
    with (
        tempfile.TemporaryDirectory(prefix="pullwright-doctor-") as folder,
        open_clone(
            source.url,
            branch=source.branch,
            credential=site.credential,
            parent=Path(folder),
            with_git=False,
            identity=Identity(settings.author_name, settings.author_email),
            clock=context.clock,
            cancelled=stop.now,
        ) as clone,
    ):
        yield clone


class RulesProbes:
    """Probes of what a repository's own files say to models, and about what machines made."""

    def __init__(self, site: Site, context: BuildContext) -> None:
        self._site, self._context, self._stop = site, context, Impatient()

    def group(self, name: str) -> Group:
        """Return the probes, in order."""
        probes = (
            Probe("instructions", self._instructions, _REWRITE, _CLONE_SECONDS),
            Probe("machine-made work", self._statements, _REWRITE, _CLONE_SECONDS),
        )
        return Group(f"Rules {name}", probes, self._stop)

    @cached_property
    def _found(self) -> tuple[list[str], list[str], RepositoryRules]:
        """The instruction files that are shown, those that cannot be, and the rules for contributions."""
        with _cloned(self._site, self._context, self._stop) as clone:
            files = clone.tracked_files()
            links = document_links(clone, files)

            def content_of(path: str) -> bytes:
                (content,) = read_objects(clone.git, [clone.blobs([path])[path]], doing="cannot read a file")
                return content

            async def read(path: str, most: int) -> bytes:
                content = await event_loop.in_thread(content_of, path)
                if len(content) > most:
                    raise FileTooLargeError(f"{path} is too large")
                return content

            async def look() -> tuple[list[str], list[str], RepositoryRules]:
                paths = [file.path for file in files if file.kind == "file"]
                options = CycleOptions(dry_run=True, draft=False, context_characters=0, author_email="")
                rules = await read_repository_rules(paths, read, options, "", links)
                return *await instruction_files(files, read, links), rules

            return event_loop.run(look())

    def _instructions(self) -> ProbeFinding:
        shown, unread, _ = self._found
        if unread:
            return warned(f"not shown to models: {_some(unread)}: {UNREAD}", _REWRITE)
        return ok(_some(shown) if shown else "none")

    def _statements(self) -> ProbeFinding:
        rules, settings = self._found[2], self._context.settings
        if rules.unread:
            return warned(f"rules may be missed in {'; '.join(rules.unread[:_NAMED])}", _REWRITE)
        if settings.ai_policy == "ignore":
            return ok("not looked for: ai_policy is ignore")
        forbids, doubtful = rules.forbids, rules.doubtful[:MOST_ASKED]
        is_asked, refused = kept_answers(self._context.home.statements, settings.model or "", doubtful)
        if forbids or refused:
            return warned(
                f"refused, so no task is done: {one_line(forbids or str(refused), limit=_SENTENCE)}", _POLICY
            )
        if doubtful and not is_asked:
            named = "; ".join(one_line(str(one), limit=_SENTENCE) for one in doubtful)
            return ok(f"the model is asked once whether this refuses it: {named}")
        return ok("read as no refusal" if doubtful else "nothing refuses it")


_SENTENCE = 250
_REWRITE = "write it as UTF-8 text, and keep it short"
_POLICY = "ask its maintainers; --ai-policy ignore is for a repository of your own"
_CLONE_SECONDS = 60.0
_SANDBOX_SECONDS = 60.0
_SECONDS_A_MINUTE = 60
_NAME_IT = "name it with --test-command"
_NOTHING = "nothing in the repository's files says how its tests are run"
_COPIED = "; it is the repository's own text, so read it first"
_MOST_OTHERS = 2


class TestProbes:
    """Probes of a repository's tests.

    Args:
        runs: whether to run the tests of the default branch once.
    """

    __test__ = False  # for pytest, which collects classes by their names

    def __init__(self, site: Site, context: BuildContext, *, runs: bool) -> None:
        self._site, self._context, self._runs = site, context, runs
        self._stop = Impatient()
        self._found: list[SuggestedCommand] = []
        self._known: RunOptions | None = None

    def group(self, name: str) -> Group:
        """Return the probes, in order."""
        probes: tuple[Probe, ...] = (
            Probe("command", self._command, _NAME_IT, _CLONE_SECONDS),
            Probe("set-up", self._setup, "name it with --setup-command"),
            Probe("report", self._report, "name it with --test-report"),
            Probe("place", self._place, "see sandbox above", _SANDBOX_SECONDS),
        )
        if self._runs:
            seconds = _CLONE_SECONDS + _SECONDS_A_MINUTE * 2 * self._context.settings.test_minutes
            probes = (*probes, Probe("a run", self._run, "correct the commands", seconds))
        return Group(f"Tests {name}", probes, self._stop)

    @cached_property
    def _settings(self) -> Settings:
        """The settings, tightened by the repository's own file on its default branch."""
        text = self._site.forge.read_file(LOCAL_FILE)
        return (
            self._context.settings if text is None else tightened(self._context.settings, text, LOCAL_FILE)[0]
        )

    def _command(self) -> ProbeFinding:
        settings = self._settings
        if settings.test_command not in {None, AUTO}:
            self._known = run_options(settings, None, None)
            is_own = settings.test_command == self._context.settings.test_command
            lacking = not_installed(settings.setup_command or "", settings.test_command or "")
            if lacking:
                return warned(f"{settings.test_command}: {lacking}", "install it, or name another command")
            return ok(f"{settings.test_command}{'' if is_own else f', as its {LOCAL_FILE} says'}")
        self._found = self._proposed()
        if not self._found:
            if settings.test_command == AUTO:
                return warned(f"auto finds none: {_NOTHING}", _NAME_IT)
            return skipped(f"none is set, so no test is run; {_NOTHING}")
        best, *others = self._found
        self._known = run_options(settings, best, None)
        source = f"from {best.evidence}{_COPIED if best.copied else ''}"
        others = [one for one in others if one.command not in best.unreached]
        source += "".join(f"; or {one.command}" for one in others[:_MOST_OTHERS])
        if lacking := not_installed(best.setup, best.command):
            source += f"; {lacking}"
        if settings.test_command == AUTO:
            return ok(f"auto takes {best.command}, {source}")
        required = "; require_tests only reports removed tests" if settings.require_tests else ""
        return warned(
            f"none is set, so no test is run before a pull request{required}",
            f"add this, {source}",
            as_flags(best, missing_hosts(settings, hosts_of(self._options().setup))),
        )

    def _proposed(self) -> list[SuggestedCommand]:
        with self._clone() as clone:
            return proposals(clone)

    def _clone(self) -> AbstractContextManager[Clone]:
        return _cloned(self._site, self._context, self._stop)

    def _options(self) -> RunOptions:
        if self._known is None:
            raise Unmet("not tried: see command")
        return self._known

    def _setup(self) -> ProbeFinding:
        setup, settings = self._options().setup, self._settings
        if not setup:
            return ok("none")
        missing = missing_hosts(settings, hosts_of(setup))
        if not missing or settings.sandbox == "off":
            return ok(f"{setup}, once for each base and lock file")
        found = f"{setup}: it may need the network, and may not reach {', '.join(missing)}"
        if settings.test_command is None:
            return ok(f"{setup}, which may reach the hosts above")
        return warned(found, f"add {allowing(missing)}")

    def _report(self) -> ProbeFinding:
        options = self._options()
        if names_each_test(options.command, options.report):
            return ok(options.report or "pytest is told where to write it")
        found = "it is not known whether the command writes one; without one only its exit code counts"
        return warned(found, "let it write JUnit XML, and name the file with --test-report")

    def _place(self) -> ProbeFinding:
        minutes, settings = f"at most {self._options().minutes:g} minutes a run", self._settings
        if settings.sandbox == "off":
            found = f"WITHOUT a sandbox, {minutes}: tests run what the model wrote, as you"
            return warned(found, "leave out --sandbox off")
        name = open_sandbox(settings, sandbox_options(settings)).name
        return ok(f"{name}, hosts: {', '.join(settings.allow_host) or 'none'}, {minutes}")

    def _run(self) -> ProbeFinding:
        if self._settings.test_command is None and any(one.copied for one in self._found[:1]):
            found = "not run: the command is taken from the repository's own text"
            return skipped(f"{found}; {_NAME_IT}, or type --test-command {AUTO}")
        options = self._options()
        typed = SuggestedCommand(options.command, "", Confidence.NAMED, options.setup, options.report)
        # What is copied runs only if a person names it, or `auto` takes it as the best one.
        others = [one for one in self._found[1:] if not one.copied]
        with self._clone() as clone:
            candidates = [typed, *others] if self._found else [typed]
            one, run = try_tests(self._site, self._context, self._settings, clone, candidates)
        words = run_in_words(run)
        if run.problem:
            return failed(
                f"it proves nothing: {run.problem}; {words}", "correct the command, or name another one"
            )
        if one.command != typed.command:
            return warned(f"{typed.command} ran no test", f"take {one.command}: {words}", as_flags(one, ()))
        if not run.ran:
            return warned(f"nothing shows that a test ran: {words}", "name a report with --test-report")
        if not run.is_green:
            return warned(f"some fail on the default branch already: {words}", "fix them first, if you can")
        return ok(f"{words}{', known from before' if run.cached else ''}")

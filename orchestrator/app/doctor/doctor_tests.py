"""Probes of how the tests are run: what a run would start, where, and what its set-up has to reach.

They start nothing, unless a person asks for one run of the tests.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.config import LOCAL_FILE, tightened
from orchestrator.app.doctor.doctor_findings import (
    Finding,
    Group,
    Impatient,
    Probe,
    Unmet,
    failed,
    ok,
    skipped,
    warning,
)
from orchestrator.app.options import AUTO
from orchestrator.app.wiring.guards import choose_sandbox, sandbox_options
from orchestrator.app.wiring.testing import (
    allowing,
    as_flags,
    host_runs,
    missing_hosts,
    proposals,
    run_options,
)
from orchestrator.bot.git.base import Identity
from orchestrator.bot.git.folders import address_key
from orchestrator.bot.git.opening import open_clone
from orchestrator.bot.verification.base import CaseStatus
from orchestrator.bot.verification.suggest import hosts_of, names_each_test

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.app.config import Settings
    from orchestrator.app.wiring.context import BuildContext
    from orchestrator.app.wiring.forge import Site
    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.verification.base import RunResult
    from orchestrator.bot.verification.runs import RunOptions
    from orchestrator.bot.verification.suggest import SuggestedCommand

_CLONE_SECONDS = 60.0
_SANDBOX_SECONDS = 60.0
_SECONDS_A_MINUTE = 60
_NAME_IT = "name it with --test-command"
_NOTHING = "nothing in the repository's files says how its tests are run"
_COPIED = "; it is the repository's own text, so read it first"
_MOST_OTHERS = 2


class TestProbes:
    """What is to be known of a repository's tests.

    Args:
        site: the repository.
        context: settings and clock.
        runs: run the tests of the default branch once.
    """

    __test__ = False  # for pytest, which collects classes by their names

    def __init__(self, site: Site, context: BuildContext, *, runs: bool) -> None:
        self._site, self._context, self._runs = site, context, runs
        self._stop = Impatient()
        self._found: list[SuggestedCommand] = []
        self._known: RunOptions | None = None

    def group(self, name: str) -> Group:
        """The probes, in order."""
        probes: tuple[Probe, ...] = (
            Probe("command", self._command, _NAME_IT, _CLONE_SECONDS),
            Probe("set-up", self._setup, "name it with --setup-command"),
            Probe("report", self._report, "name it with --test-report"),
            Probe("place", self._place, "see sandbox above", _SANDBOX_SECONDS),
        )
        if self._runs:
            seconds = _CLONE_SECONDS + _SECONDS_A_MINUTE * 2 * self._context.settings.test_minutes
            probes = (*probes, Probe("a run", self._run, "mend what it names, or the commands", seconds))
        return Group(f"Tests {name}", probes, self._stop)

    @cached_property
    def _settings(self) -> Settings:
        """With what the repository's own file on its default branch says, which a run reads too."""
        text = self._site.forge.read_file(LOCAL_FILE)
        return (
            self._context.settings if text is None else tightened(self._context.settings, text, LOCAL_FILE)[0]
        )

    def _command(self) -> Finding:
        settings = self._settings
        if settings.test_command not in {None, AUTO}:
            self._known = run_options(settings, None, None)
            is_own = settings.test_command == self._context.settings.test_command
            return ok(f"{settings.test_command}{'' if is_own else f', as its {LOCAL_FILE} says'}")
        self._found = self._proposed()
        if not self._found:
            if settings.test_command == AUTO:
                return warning(f"auto finds none: {_NOTHING}", _NAME_IT)
            return skipped(f"none is set, so that no test is run; {_NOTHING}")
        best, *others = self._found
        self._known = run_options(settings, best, None)
        source = f"from {best.source}{_COPIED if best.copied else ''}"
        source += "".join(f"; or {one.command}" for one in others[:_MOST_OTHERS])
        if settings.test_command == AUTO:
            return ok(f"auto takes {best.command}, {source}")
        required = "; require_tests looks only for tests that vanish" if settings.require_tests else ""
        return warning(
            f"none is set, so that no test is run before a pull request{required}",
            f"add this, {source}",
            as_flags(best, missing_hosts(settings, hosts_of(self._options().setup))),
        )

    def _proposed(self) -> list[SuggestedCommand]:
        with self._clone() as clone:
            return proposals(clone)

    @contextmanager
    def _clone(self) -> Iterator[Clone]:
        source, settings = self._site.source(), self._context.settings
        with (
            tempfile.TemporaryDirectory(prefix="pullwright-doctor-") as folder,
            open_clone(
                source.url,
                branch=source.branch,
                credential=self._site.credential,
                parent=Path(folder),
                with_git=False,
                identity=Identity(settings.author_name, settings.author_email),
                clock=self._context.clock,
                cancelled=self._stop.now,
            ) as clone,
        ):
            yield clone

    def _options(self) -> RunOptions:
        if self._known is None:
            raise Unmet("not tried: see command")
        return self._known

    def _setup(self) -> Finding:
        setup, settings = self._options().setup, self._settings
        if not setup:
            return ok("none")
        missing = missing_hosts(settings, hosts_of(setup))
        if not missing or settings.sandbox == "off":
            return ok(f"{setup}, once for each base and its lock files")
        found = f"{setup}: it may need the network, and may not reach {', '.join(missing)}"
        if settings.test_command is None:
            return ok(f"{setup}, which may reach the hosts above")
        return warning(found, f"add {allowing(missing)}")

    def _report(self) -> Finding:
        options = self._options()
        if names_each_test(options.command, options.report):
            return ok(options.report or "pytest is told where to write it")
        found = "the command is not known to write one, so that only its exit code may count"
        return warning(found, "let it write JUnit XML, and name the file with --test-report")

    def _place(self) -> Finding:
        minutes, settings = f"at most {self._options().minutes:g} minutes a run", self._settings
        if settings.sandbox == "off":
            found = f"WITHOUT a sandbox, {minutes}: tests run what the model wrote, as you"
            return warning(found, "leave out --sandbox off")
        from orchestrator.engine.environments.sandbox import find_sandbox

        name = find_sandbox(sandbox_options(settings)).name
        return ok(f"{name}, hosts: {', '.join(settings.allow_host) or 'none'}, {minutes}")

    def _run(self) -> Finding:
        if self._settings.test_command is None and any(one.copied for one in self._found[:1]):
            found = "not run: the command is the repository's own text"
            return skipped(f"{found}; {_NAME_IT}, or type --test-command {AUTO}")
        run = asyncio.run(self._base_run())
        passed, left = run.count(CaseStatus.PASSED), run.count(CaseStatus.SKIPPED)
        failures = len(run.failures)
        counts = f"{passed} passed, {failures} failed, {left} skipped, " if run.cases else ""
        counts += f"exit code {run.exit}, {run.seconds:.1f} s"
        if run.problem:
            return failed(
                f"it proves nothing: {run.problem}; {counts}", "mend the command, or name another one"
            )
        if not run.is_green:
            return warning(
                f"some fail on the default branch already: {counts}", "mend them first, if you can"
            )
        return ok(f"{counts}{', known from before' if run.cached else ''}")

    async def _base_run(self) -> RunResult:
        options, context = self._options(), self._context
        settings = self._settings.model_copy(update={"test_command": options.command})
        sandbox, key = choose_sandbox(settings), address_key(self._site.source().url)
        options = replace(options, sandbox=sandbox.name if sandbox else options.sandbox)
        with self._clone() as clone:
            runs = host_runs(clone, options, context.home, key, sandbox, context.clock, context.emit)
            try:
                return await runs.before()
            finally:
                await runs.close()

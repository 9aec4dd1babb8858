"""Builds the checks of a run from its settings: what may run, where, and how the tests are run."""

from __future__ import annotations

import dataclasses
import os
import random
import shlex
import shutil
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.app.config.settings import LOCAL_FILE
from orchestrator.app.options import AUTO
from orchestrator.app.plugins import Point, absence_words, added
from orchestrator.app.wiring.repository import web_hosts
from orchestrator.app.words import counted
from orchestrator.bot.cycle.parts import Guards
from orchestrator.bot.cycle.verify import report_runs
from orchestrator.bot.git.folders import address_key
from orchestrator.bot.policy.change_checks import ChangeLimits, PathPolicy
from orchestrator.bot.policy.hidden_characters import show_hidden
from orchestrator.bot.policy.incoming import clean_name, clean_words
from orchestrator.bot.policy.test_listing import list_tests
from orchestrator.bot.policy.wording import Wording
from orchestrator.bot.verification.base import CaseStatus, RunOptions
from orchestrator.bot.verification.suggest import Confidence, SuggestedCommand, programs_of
from orchestrator.core import event_loop
from orchestrator.core.errors import SandboxMissingError, ToolError
from orchestrator.core.events import Defence, Guarded, Warned
from orchestrator.core.prompts import one_line
from orchestrator.engine.environments.base import SandboxOptions
from orchestrator.engine.environments.local import LocalEnvironment, conditions
from orchestrator.engine.policy.command_rules import CommandRules, Level
from orchestrator.engine.session.gate import Gatekeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from orchestrator.app.config.settings import Settings
    from orchestrator.app.wiring import BuildContext
    from orchestrator.app.wiring.repository import Site
    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.git.objects import Trees
    from orchestrator.bot.verification.base import RunResult
    from orchestrator.bot.verification.runs import HostRuns
    from orchestrator.core.events import Emit
    from orchestrator.engine.environments.base import Connect, Sandbox
    from orchestrator.engine.policy.secrets import Redactor


_MOST_RULES = 5
_COMMAND_CHARS = 100
NAME_COMMANDS = "write whole commands in place of *, or accept it"

"""Maximum lines about findings in one text. A person who wants all of them can open its source."""

_SET_DUMPABLE = 4
"""`PR_SET_DUMPABLE` of the kernel's include/uapi/linux/prctl.h."""


@dataclass(frozen=True, slots=True)
class GuardMaker:
    """Creates the checks for settings."""

    redactor: Redactor

    def __call__(self, settings: Settings) -> Guards:
        """Create the checks for these settings."""
        keeper = gatekeeper(settings, self.redactor.holds_secret)
        paths = PathPolicy(settings.allow_path, settings.protect_path)
        return Guards(
            words=clean_words,
            names=clean_name,
            output=show_hidden,
            redactor=self.redactor,
            gate=keeper,
            shows=keeper.shows,
            protect=paths,
            admits=paths.admits,
            size=ChangeLimits(settings.max_files, settings.max_lines, settings.max_bytes),
            tests=list_tests,
            wording=Wording((*web_hosts(settings), *settings.allow_link), redact=self.redactor.redact),
        )


def gatekeeper(settings: Settings, holds_secret: Callable[[str], bool]) -> Gatekeeper:
    """Create the gate for tool calls."""
    rules = CommandRules.parse(settings.allow_command, settings.deny_command)
    return Gatekeeper(Level(settings.permission), rules, holds_secret)


def runs_commands(settings: Settings) -> bool:
    """Return whether the model can run any command."""
    return settings.permission == "dangerous" or (
        settings.permission == "safe" and bool(settings.allow_command)
    )


def runs_anything(settings: Settings) -> bool:
    """Return whether any command can run: the model's, or the host's for tests."""
    return runs_commands(settings) or settings.test_command is not None


def rules_in_words(settings: Settings, sandbox: Sandbox | None) -> str:
    """Return a one-line summary of what may run."""
    if not runs_anything(settings):
        return f"{settings.permission}: no commands"
    granted = "every command" if settings.permission == "dangerous" else ", ".join(settings.allow_command)
    if settings.test_command is None:
        return f"{settings.permission}: {granted}, {_walls(settings, sandbox)}"
    model = granted if runs_commands(settings) else "no commands"
    return f"{settings.permission}: {model} for the model; {host_tests_in_words(settings, sandbox)}"


def host_tests_in_words(settings: Settings, sandbox: Sandbox | None) -> str:
    """Return a one-line summary of the tests that the host runs, and where."""
    if settings.test_command is None:
        return "no tests are run"
    is_auto = settings.test_command == AUTO
    tests = "the tests" if is_auto else one_line(settings.test_command, limit=_COMMAND_CHARS)
    return f"the host runs {tests}; {_walls(settings, sandbox)}"


def _walls(settings: Settings, sandbox: Sandbox | None) -> str:
    network = f", hosts: {', '.join(settings.allow_host)}" if sandbox and settings.allow_host else ""
    return f"in {sandbox.name}{network}" if sandbox else "WITHOUT a sandbox"


def open_rules(settings: Settings) -> str:
    """Return the rules that may allow more than they seem to, in one line; empty if there are none."""
    rules = CommandRules.parse(settings.allow_command).open if settings.permission == "safe" else ()
    if not rules:
        return ""
    shown = ", ".join(f"`{rule}`" for rule in rules[:_MOST_RULES])
    more = f" and {len(rules) - _MOST_RULES} more" if len(rules) > _MOST_RULES else ""
    held = "nothing" if settings.sandbox == "off" else "the sandbox alone"
    return f"the * of {shown}{more} may grant any other program, and {held} holds what that does"


def choose_sandbox(settings: Settings, connect: Connect | None = None) -> Sandbox | None:
    """Find the sandbox for commands; None if no command can run, or with `--sandbox off`.

    Args:
        connect: replaces the function that connects to allowed hosts; the default connects to public
            addresses only.
    """
    if settings.sandbox == "off" or not runs_anything(settings):
        return None
    options = sandbox_options(settings)
    more = [path for readable in added(Point.READABLE) for path in readable(settings)]
    options = dataclasses.replace(options, readable=(*options.readable, *more))
    return open_sandbox(settings, dataclasses.replace(options, connect=connect))


def open_sandbox(settings: Settings, options: SandboxOptions) -> Sandbox:
    """Find the sandbox that the settings name, other than `off`."""
    if settings.sandbox == "auto":
        from orchestrator.engine.environments.sandbox import find_sandbox

        return find_sandbox(options)
    for find in added(Point.SANDBOX):
        found: Sandbox | None = find(settings.sandbox, options)
        if found is not None:
            return found
    missing = absence_words(f"--sandbox {settings.sandbox}", "containers")
    raise SandboxMissingError(f"no sandbox for commands: {missing}")


def refuse_tracing(settings: Settings, *, others: bool = False) -> None:
    """Prevent this user's programs from tracing this process, if some run without a sandbox.

    The same call prevents them from reading its memory. Linux's prctl(2) does it, except against programs of
    root. For macOS no equivalent is known.

    Args:
        others: whether other programs run without a sandbox: an MCP server, or a command that a person allows
            when asked.
    """
    if (others or (settings.sandbox == "off" and runs_anything(settings))) and sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0)


def sandbox_options(settings: Settings) -> SandboxOptions:
    """Return the permissions that the person gives to commands in the sandbox."""
    return SandboxOptions(settings.allow_host, settings.sandbox_read)


def report_refusals(emit: Emit) -> Callable[[str, str], None]:
    """Return a function that reports refused connections."""

    def on_refused(place: str, command: str) -> None:
        from orchestrator.engine.environments.sandbox.proxy import explain_refused

        emit(Guarded(Defence.NETWORK, explain_refused(place), (command,)))

    return on_refused


def make_environment(
    context: BuildContext,
    sandbox: Sandbox | None,
    tree: Path,
    submodules: Sequence[str] = (),
    *,
    own_repository: bool = True,
) -> LocalEnvironment:
    """Create the environment for work in a folder.

    Args:
        sandbox: sandbox for commands; None if no command can run, or with `--sandbox off`.
        submodules: folders of the tree that are submodules.
        own_repository: whether the folder is a clone of ours, so that commands may use its `.git`.
    """
    return LocalEnvironment(
        tree,
        clock=context.clock,
        submodules=submodules,
        sandbox=sandbox or ("off" if context.settings.sandbox == "off" else "auto"),
        on_refused=report_refusals(context.emit),
        own_repository=own_repository,
    )


_MOST_BYTES = 1_000_000
_KEY_CHARS = 16
"""The length is limited because programs write the folder's path into shebang lines and socket names."""


def chosen_tests(
    context: BuildContext, sandbox: Sandbox | None, settings: Settings, clone: Clone
) -> RunOptions | None:
    """Return how to run the tests of a clone, and report the choice of `auto`; None if that is not known.

    Args:
        settings: settings of `context`, tightened by the repository's own file.
    """
    found = next(iter(proposals(clone)), None) if settings.test_command == AUTO else None
    options = run_options(settings, found, sandbox)
    if options is None:
        context.emit(Warned("no tests are run: nothing in the files says how; name it with --test-command"))
        return None
    if context.settings.test_command == AUTO:
        after = f", after {options.setup}" if options.setup else ""
        source = found.evidence if found else f"{LOCAL_FILE} on the default branch"
        lacking = not_installed(options.setup, options.command)
        note = f"; {lacking}" if lacking else ""
        context.emit(Warned(f"the tests are run by {options.command}{after} (from {source}){note}"))
    return options


def host_runs(  # noqa: PLR0913  what there is, then what is compared
    site: Site,
    context: BuildContext,
    sandbox: Sandbox | None,
    options: RunOptions,
    clone: Clone,
    *,
    base: str = "",
    reuses: bool = True,
    setup_sandbox: Sandbox | None = None,
) -> HostRuns:
    """Create the object that runs the tests of a clone on this machine.

    Args:
        base: commit to compare changes with, if it is not the cloned one.
        reuses: whether to use the cached result of the base from an earlier run of the program.
        setup_sandbox: sandbox for the set-up, instead of `sandbox`.
    """
    key = address_key(site.source().url)[:_KEY_CHARS]
    home = context.home.cache / "tests" / key
    place = TestPlace(context, home, sandbox, setup_sandbox or sandbox)
    return place.runs(clone.trees, base or clone.base_commit, options, reuses=reuses)


@dataclass(frozen=True, slots=True)
class TestPlace:
    """The folder and the sandboxes for test runs on this machine.

    Attributes:
        home: folder for test runs, which outlives them.
        sandbox: sandbox for the tests; None to run without one.
        setup_sandbox: sandbox for their set-up; None to run without one.
    """

    __test__ = False  # pytest takes every class of this name for tests

    context: BuildContext
    home: Path
    sandbox: Sandbox | None
    setup_sandbox: Sandbox | None

    def runs(self, trees: Trees, base: str, options: RunOptions, *, reuses: bool = True) -> HostRuns:
        """Create the test runs for changes to a commit or a tree."""
        from orchestrator.bot.verification.runs import HostRuns

        return HostRuns(
            trees,
            base,
            options,
            home=self.home,
            environment=partial(make_environment, self.context, self.sandbox),
            setup_environment=partial(make_environment, self.context, self.setup_sandbox),
            source=random.SystemRandom(),
            on_run=report_runs(self.context.emit, options.command),
            reuses=reuses,
            redact=self.context.redactor.redact,
            note=lambda line: self.context.emit(Warned(line)),
        )


_MOST_TRIED = 3


def try_tests(
    site: Site, context: BuildContext, settings: Settings, clone: Clone, found: Sequence[SuggestedCommand]
) -> tuple[SuggestedCommand, RunResult]:
    """Run proposals on the base until one is seen to run tests, and return it with its run.

    Args:
        found: the proposals, the best first; at least one.

    Returns:
        The first proposal that ran tests, which is sure then; or the first one with its run.

    Raises:
        ToolError: the set-up of every proposal failed, or nothing can be run; the message is about the first.
        SandboxMissingError: this machine has no sandbox.
    """
    tried: list[tuple[SuggestedCommand, RunResult]] = []
    problem: ToolError | None = None
    for one in found[:_MOST_TRIED]:
        try:
            run = event_loop.run(_base_run(site, context, settings, clone, one))
        except ToolError as error:
            problem = problem or error
            continue
        if run.ran and not run.problem:
            return dataclasses.replace(one, confidence=Confidence.SURE), run
        tried.append((one, run))
    if tried:
        return tried[0]
    raise problem or ToolError("nothing is known about the tests")


async def _base_run(
    site: Site, context: BuildContext, settings: Settings, clone: Clone, one: SuggestedCommand
) -> RunResult:
    """Run a proposal's tests on the base, once."""
    chosen = settings.model_copy(update={"test_command": one.command})
    sandbox = choose_sandbox(chosen)
    options = run_options(chosen, one, sandbox)
    if options is None:
        raise AssertionError("a proposal has a command")
    setup, report = settings.setup_command or one.setup, settings.test_report or one.report
    options = dataclasses.replace(options, setup=setup, report=report)
    runs = host_runs(site, context, sandbox, options, clone)
    try:
        return await runs.before()
    finally:
        await runs.close()


def run_in_words(run: RunResult) -> str:
    """Return how many tests a run ran, and how they ended."""
    number = "no count of tests was seen" if run.ran is None else f"{counted(run.ran, 'test')} ran"
    passed, skipped = run.count(CaseStatus.PASSED), run.count(CaseStatus.SKIPPED)
    counts = f": {passed} passed, {len(run.failures)} failed, {skipped} skipped" if run.cases else ""
    return f"{number}{counts}, exit code {run.exit}, {run.seconds:.1f} s"


def not_installed(*commands: str) -> str:
    """Return which programs of these commands this machine lacks, as words; empty if it has all of them."""
    lacking = [name for name in programs_of(*commands) if shutil.which(name) is None]
    return f"not installed on this machine: {', '.join(lacking)}" if lacking else ""


def proposals(clone: Clone) -> list[SuggestedCommand]:
    """Return proposals how to run the tests of the cloned commit, the best first. Nothing is run."""
    return proposals_of(clone.trees, clone.trees.tree_of(clone.base_commit))


def proposals_of(trees: Trees, tree: str) -> list[SuggestedCommand]:
    """Return proposals how to run the tests of a tree, the best first. Nothing is run."""
    from orchestrator.bot.verification.suggest import suggest

    return suggest(trees.entries(tree), lambda path: trees.text(tree, path, most_bytes=_MOST_BYTES))


def run_options(
    settings: Settings, found: SuggestedCommand | None, sandbox: Sandbox | None
) -> RunOptions | None:
    """Return the commands to run as tests; None if they are not known.

    Args:
        settings: settings; their commands have precedence over the proposal.
        found: the proposal that `auto` selects.
    """
    command, setup, report = settings.test_command, settings.setup_command, settings.test_report
    if command in {None, AUTO}:
        if found is None:
            return None
        command, setup, report = found.command, setup or found.setup, report or found.report
    return RunOptions(
        command or "",
        setup or "",
        report or "",
        settings.test_minutes,
        settings.test_paths,
        sandbox=sandbox.name if sandbox else "none",
        conditions=conditions(sandbox, os.environ),
    )


def missing_hosts(settings: Settings, hosts: Iterable[str]) -> list[str]:
    """Return the hosts that commands may not connect to."""
    return [host for host in hosts if not any(_covers(allowed, host) for allowed in settings.allow_host)]


def _covers(allowed: str, host: str) -> bool:
    """Return whether the hosts are equal or one is below the other: `*.example.com` usually means one host."""
    one, other = allowed.removeprefix("*"), host.removeprefix("*")
    return (
        allowed == host
        or (allowed.startswith("*.") and other.endswith(one))
        or (host.startswith("*.") and one.endswith(other))
    )


def allowing(hosts: Iterable[str]) -> str:
    """Return the flags that let commands connect to these hosts."""
    return " ".join(f"--allow-host {shlex.quote(host)}" for host in hosts)


def as_flags(proposal: SuggestedCommand, hosts: Iterable[str]) -> str:
    """Return the flags of a proposal, with those for the hosts that it needs."""
    named = {
        "test-command": proposal.command,
        "setup-command": proposal.setup,
        "test-report": proposal.report,
    }
    flags = (f"--{name} {shlex.quote(value)}" for name, value in named.items() if value)
    return " ".join((*flags, allowing(hosts))).strip()

"""The checks of a run, from its settings."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from orchestrator.app.options import AUTO
from orchestrator.bot.cycle.parts import Guards
from orchestrator.bot.policy.change_size import ChangeLimits
from orchestrator.bot.policy.incoming import clean_name, clean_words, show_hidden
from orchestrator.bot.policy.protected import PathPolicy
from orchestrator.bot.policy.test_listing import list_tests
from orchestrator.bot.policy.wording import Wording
from orchestrator.bot.worker.reading import Seen
from orchestrator.core.defences import Defence, Guarded
from orchestrator.engine.contracts.fence import one_line
from orchestrator.engine.policy.command_rules import CommandRules, Level
from orchestrator.engine.session.gate import Gatekeeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.app.config import Settings
    from orchestrator.bot.policy.incoming import Cleaned
    from orchestrator.core.events import Emit
    from orchestrator.engine.environments.confinement import Connect, Sandbox, SandboxOptions
    from orchestrator.engine.policy.secrets import Redactor

_MOST_RULES = 5
_COMMAND_CHARS = 100
NAME_COMMANDS = "write whole commands in place of *, or accept it"

_MOST_KEPT = 20
"""Lines about what stays in one text. A person who wants to see all of it opens its source."""

_SET_DUMPABLE = 4
"""`PR_SET_DUMPABLE` of the kernel's include/uapi/linux/prctl.h."""


@dataclass(frozen=True, slots=True)
class GuardMaker:
    """Makes the checks for settings, as they are or as a repository's own file makes them stricter."""

    redactor: Redactor

    def __call__(self, settings: Settings) -> Guards:
        """The checks.

        Raises:
            ConfigurationError: a rule for commands or a pattern for paths is none.
        """
        web = urlsplit(settings.github_url).hostname or ""
        keeper = gatekeeper(settings, self.redactor.holds_secret)
        return Guards(
            words=clean_words,
            names=clean_name,
            output=show_hidden,
            redact=self.redactor.redact,
            holds_secret=self.redactor.holds_secret,
            gate=keeper,
            shows=keeper.shows,
            protect=PathPolicy(settings.allow_path, settings.protect_path),
            size=ChangeLimits(settings.max_files, settings.max_lines, settings.max_bytes),
            tests=list_tests,
            wording=Wording((web, *settings.allow_link)),
        )


def gatekeeper(settings: Settings, holds_secret: Callable[[str], bool]) -> Gatekeeper:
    """The gate for these settings.

    Raises:
        ConfigurationError: a rule is no command.
    """
    rules = CommandRules.parse(settings.allow_command, settings.deny_command)
    return Gatekeeper(Level(settings.permission), rules, holds_secret)


def runs_commands(settings: Settings) -> bool:
    """Whether any command can run at all."""
    return settings.permission == "dangerous" or (
        settings.permission == "safe" and bool(settings.allow_command)
    )


def runs_anything(settings: Settings) -> bool:
    """Whether any command can run: the model's, or the host's for tests."""
    return runs_commands(settings) or settings.test_command is not None


def rules_in_words(settings: Settings, sandbox: Sandbox | None) -> str:
    """What may run, in one line for the person who watches."""
    if not runs_anything(settings):
        return f"{settings.permission}: no commands"
    walls = f"in {sandbox.name}" if sandbox else "WITHOUT a sandbox"
    network = f", hosts: {', '.join(settings.allow_host)}" if sandbox and settings.allow_host else ""
    granted = "every command" if settings.permission == "dangerous" else ", ".join(settings.allow_command)
    if settings.test_command is None:
        return f"{settings.permission}: {granted}, {walls}{network}"
    model = granted if runs_commands(settings) else "no commands"
    tests = (
        "the tests"
        if settings.test_command == AUTO
        else one_line(settings.test_command, limit=_COMMAND_CHARS)
    )
    return f"{settings.permission}: {model} for the model; the host runs {tests}; {walls}{network}"


def open_rules(settings: Settings) -> str:
    """What the person should know of rules that may grant more than they name, in one line; empty if there are none.

    Raises:
        ConfigurationError: a rule is no command.
    """
    rules = CommandRules.parse(settings.allow_command).open if settings.permission == "safe" else ()
    if not rules:
        return ""
    shown = ", ".join(f"`{rule}`" for rule in rules[:_MOST_RULES])
    more = f" and {len(rules) - _MOST_RULES} more" if len(rules) > _MOST_RULES else ""
    held = "nothing" if settings.sandbox == "off" else "the sandbox alone"
    return f"the * of {shown}{more} may grant any other program, and {held} holds what that does"


def choose_sandbox(settings: Settings, connect: Connect | None = None) -> Sandbox | None:
    """The sandbox for commands; None where none can run, or where a person typed that there is to be none.

    Args:
        settings: see there.
        connect: opens connections to allowed hosts, in the place of those to public addresses.

    Raises:
        SandboxMissingError: this machine has none.
        ConfigurationError: a host or a folder that was granted makes no sense.
    """
    if settings.sandbox == "off" or not runs_anything(settings):
        return None
    from orchestrator.engine.environments.sandbox import find_sandbox

    return find_sandbox(dataclasses.replace(sandbox_options(settings), connect=connect))


def refuse_tracing(settings: Settings) -> None:
    """Where commands run without a sandbox, let no program of this user trace this one or read its memory.

    Linux's prctl(2) does it, for programs of root not. Nothing of the kind is known for macOS.
    """
    if settings.sandbox == "off" and runs_anything(settings) and sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0)


def sandbox_options(settings: Settings) -> SandboxOptions:
    """What the person grants to commands in the sandbox."""
    from orchestrator.engine.environments.confinement import SandboxOptions

    container = "" if settings.sandbox in {"auto", "off"} else settings.sandbox
    return SandboxOptions(settings.allow_host, settings.sandbox_read, container=container)


def told_of_refusals(emit: Emit) -> Callable[[str, str], None]:
    """Reports connections that were refused."""
    from orchestrator.engine.environments.hosts import refusal

    def on_refused(place: str, command: str) -> None:
        emit(Guarded(Defence.NETWORK, refusal(place), (command,)))

    return on_refused


def as_lines(clean: Callable[[str], Cleaned], redact: Callable[[str], str]) -> Callable[[str], Seen]:
    """A check of people's words as the backlog asks for it, with what there is to say in lines."""

    def told(text: str) -> Seen:
        cleaned = clean(text)
        # The same tag may stand in every line of a log.
        kept = {(one.kind, one.text): str(one) for one in reversed(cleaned.kept)}
        hidden = [str(one) for one in cleaned.removed]
        return Seen(redact(cleaned.text), hidden, list(reversed(kept.values()))[:_MOST_KEPT])

    return told

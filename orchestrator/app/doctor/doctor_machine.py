"""Probes of this machine: Python, folders, git, time zones, the clock, the sandbox, and what earlier runs left."""

from __future__ import annotations

import platform
import re
import shutil
import tempfile
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from orchestrator import __version__
from orchestrator.app.doctor.doctor_findings import Finding, Group, Probe, failed, ok, skipped, warning
from orchestrator.app.wiring.guards import NAME_COMMANDS, open_rules, runs_anything, sandbox_options
from orchestrator.bot.git.objects import INSTALL_GIT, LEAST_GIT
from orchestrator.bot.journal.folders import HOME_VARIABLE
from orchestrator.bot.journal.index import last_pause
from orchestrator.bot.journal.open_runs import open_runs
from orchestrator.core.errors import SandboxMissingError
from orchestrator.core.repositories import same_repository
from orchestrator.engine.policy.command_rules import CommandRules

if TYPE_CHECKING:
    from datetime import datetime

    from orchestrator.app.config import Settings
    from orchestrator.app.wiring.context import BuildContext
    from orchestrator.bot.journal.folders import Home
    from orchestrator.core.clock import Clock

LEAST_FREE_BYTES = 10**9
_GIT = f"{INSTALL_GIT}: https://git-scm.com (apt install git, dnf install git, brew install git)"
_SANDBOX_SECONDS = 60.0
_SAME_SECONDS = 10
_SKEW_WARNS_SECONDS = 300
_SKEW_FAILS_SECONDS = 600
"""Claims allow for ten minutes."""


def machine(home: Home) -> Group:
    """Probes that need no configuration."""
    probes = (
        Probe("Python", _python, "install Python 3.11 or newer"),
        Probe("home", lambda: writable(home.root), _home_fix()),
        Probe("temporary", lambda: writable(Path(tempfile.gettempdir())), _temporary_fix()),
        Probe("git", _git, _GIT),
        Probe("time zones", _zones, "run pip install tzdata"),
    )
    return Group("This machine", probes)


def commands(settings: Settings) -> Group:
    """Whether commands can run as the settings want it."""
    probes = (
        Probe("sandbox", lambda: _sandbox(settings), "see above", _SANDBOX_SECONDS),
        Probe("rules", lambda: _rules(settings), "mend the rule in allow_command or deny_command"),
    )
    return Group("Commands", probes)


def earlier(context: BuildContext, repository: str | None) -> Group:
    """What runs on this machine left."""
    probes = (
        Probe("dead runs", lambda: _dead_runs(context.home, repository), "look with pullwright show --list"),
        Probe("pause", lambda: _pause(context.home, context.clock, repository), "look with pullwright show"),
    )
    return Group("Earlier runs", probes)


def writable(folder: Path) -> Finding:
    """Whether a file can be made in a folder, or in the one in which it would be made; and how much fits."""
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    fix = _temporary_fix() if folder == Path(tempfile.gettempdir()) else _home_fix()
    if not there.is_dir():
        return failed(f"{there} is no folder", fix)
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"pullwright doctor")
    except OSError as error:
        return failed(f"{there} cannot be written to: {error.strerror or error}", fix)
    free = shutil.disk_usage(there).free
    new = "" if there == folder else ", made by the first run"
    if free < LEAST_FREE_BYTES:
        return warning(f"{folder}, only {free / 1e6:,.0f} MB free{new}", f"free some space, or {fix}")
    return ok(f"{folder}, {free / 1e9:,.0f} GB free{new}")


def _home_fix() -> str:
    return f"set {HOME_VARIABLE} to a folder that you may write to"


def _temporary_fix() -> str:
    return "set TMPDIR to a folder that you may write to"


def _python() -> Finding:
    return ok(f"{platform.python_version()}, Pullwright {__version__}")


def _git() -> Finding:
    from orchestrator.bot.git.hostgit import HostGit

    with tempfile.TemporaryDirectory() as folder:
        said = HostGit(Path(folder)).run("version", doing="cannot ask git for its version")
    text = said.decode("utf-8", "replace").strip()
    match = re.search(r"(\d+)\.(\d+)[^\s]*", text)
    if match is None:
        return failed(f"git says {text!r} and no version", _GIT)
    if (int(match[1]), int(match[2])) < LEAST_GIT:
        return failed(f"{match[0]} is too old: conflicts could not be merged", _GIT)
    return ok(match[0])


def _zones() -> Finding:
    from zoneinfo import ZoneInfo

    for name in ("Europe/Berlin", "America/New_York"):
        try:
            ZoneInfo(name)
        except (KeyError, ValueError):
            return warning("no time zones are known, so --timezone takes UTC only", "pip install tzdata")
    return ok("known")


def _sandbox(settings: Settings) -> Finding:
    if not runs_anything(settings):
        return skipped(f"no command runs at the level {settings.permission} without --allow-command")
    if settings.sandbox == "off":
        return warning("off: commands run as you, with your files and network", "leave out --sandbox off")
    from orchestrator.engine.environments.sandbox.find import find_sandbox

    try:
        return ok(f"{find_sandbox(sandbox_options(settings)).name}, tried with a command")
    except SandboxMissingError as error:
        found, _, fix = str(error).partition(": ")
        return failed(found, fix)


def _rules(settings: Settings) -> Finding:
    CommandRules.parse(settings.allow_command, settings.deny_command)
    if settings.permission != "safe" or not settings.allow_command:
        return skipped(f"none count at the level {settings.permission}" if settings.allow_command else "none")
    found = open_rules(settings)
    return warning(found, NAME_COMMANDS) if found else ok("what they grant starts no other program")


def _dead_runs(home: Home, repository: str | None) -> Finding:
    dead = open_runs(home)
    if not dead:
        return ok("none")
    ours = [run for run in dead if run.start and same_repository(run.start.repository, repository or "")]
    number = f"{len(dead)} {'run was' if len(dead) == 1 else 'runs were'} killed: {dead[0].id}"
    here = f", {len(ours)} of them on this repository" if repository and len(dead) > 1 else ""
    where = next((run.start.repository for run in (*ours, *dead) if run.start), "REPO")
    return warning(f"{number}{here}", f"the next pullwright run --repo {quote(where)} saves their work")


def _pause(home: Home, clock: Clock, repository: str | None) -> Finding:
    pause = last_pause(home, clock.now(), repository=repository)
    if pause is None:
        return ok("none")
    until = f"{pause.until:%Y-%m-%d %H:%M} UTC"
    return warning(f"until {until}: {pause.reason}", f"wait until {until}, or name another --model")


def judge_clock(now: datetime, server: datetime) -> Finding:
    """How far our clock is from the server's."""
    seconds = (now - server).total_seconds()
    words = f"{_minutes(abs(seconds))} {'ahead of' if seconds > 0 else 'behind'} GitHub's"
    fix = "set the clock: sudo timedatectl set-ntp true (macOS: sudo sntp -sS time.apple.com)"
    if abs(seconds) > _SKEW_FAILS_SECONDS:
        return failed(f"{words}: claims allow for 10 minutes", fix)
    if abs(seconds) > _SKEW_WARNS_SECONDS:
        return warning(words, fix)
    return ok("agrees with GitHub's" if abs(seconds) < _SAME_SECONDS else words)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"  # noqa: PLR2004  two minutes

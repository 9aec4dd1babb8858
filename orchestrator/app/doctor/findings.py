"""The findings of `doctor`, and the function that runs its probes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.parts import Stop
from orchestrator.core.errors import ForgeUnavailableError, PullwrightError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


PROBE_SECONDS = 10.0
_SHORT_SECONDS = 1.5
"""The longest wait that is accepted: the pause between two writes, and the first ones after a failure."""


class ProbeState(StrEnum):
    """The result of a probe."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class ProbeFinding:
    """The finding of a probe.

    Attributes:
        found: one line.
        fix: one line that says what to do; empty if nothing is wrong.
        typed: a command or flags to copy, shown as one line of any length.
    """

    state: ProbeState
    found: str
    fix: str = ""
    typed: str = ""


def ok(found: str) -> ProbeFinding:
    """Return a finding without a problem."""
    return ProbeFinding(ProbeState.OK, found)


def warned(found: str, fix: str, typed: str = "") -> ProbeFinding:
    """Return a finding about something that works badly, or will stop working."""
    return ProbeFinding(ProbeState.WARNING, found, fix, typed)


def failed(found: str, fix: str) -> ProbeFinding:
    """Return a finding that would make a run fail."""
    return ProbeFinding(ProbeState.FAILED, found, fix)


def skipped(found: str) -> ProbeFinding:
    """Return a finding about something that was not tried, with the reason."""
    return ProbeFinding(ProbeState.SKIPPED, found)


class Unmet(Exception):  # noqa: N818  not an error: an earlier probe failed
    """A probe cannot be tried; the message says why."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A check of one thing.

    Attributes:
        look: returns the finding; may raise `Unmet`, a `PullwrightError` or an `OSError`.
        fix: what to do if it raises an error.
        seconds: time limit.
        away: what to do if a server does not answer; empty if that is the same.
    """

    name: str
    look: Callable[[], ProbeFinding]
    fix: str
    seconds: float = PROBE_SECONDS
    away: str = ""


class NoTimeError(ForgeUnavailableError):
    """A wait is too long for a probe. The error that caused the wait is the context."""


class Impatient(Stop):
    """A `Stop` that does not wait for rate limits and outages, because `doctor` reports them."""

    def sleep(self, seconds: float) -> None:
        """Wait for a short time.

        Raises:
            NoTimeError: the time is too long.
        """
        if seconds > _SHORT_SECONDS:
            raise NoTimeError(f"a wait of {seconds:.0f} s is needed")
        super().sleep(seconds)


@dataclass(frozen=True, slots=True)
class Group:
    """Related probes, in order. If one does not end in time, the others are not tried.

    Attributes:
        stop: ends the work of a probe that is late.
        close: called at the end, unless a probe is late.
    """

    title: str
    probes: tuple[Probe, ...]
    stop: Impatient = field(default_factory=Impatient)
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class ForgeProbes:
    """The probes of a repository's server (`Point.FORGE_PROBES`).

    Attributes:
        group: its title is the name of the forge.
        push_fix: returns what to do if nothing can be pushed, after the probes; None if the repository was not read,
            so that nothing else about it can be tried.
        close: called at the end.
    """

    group: Group
    push_fix: Callable[[], str | None]
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Result:
    """A finding with the names of its probe and group."""

    group: str
    probe: str
    finding: ProbeFinding


def run_probes(group: Group) -> Iterator[Result]:
    """Run the probes of a group, one after another. An error of one does not stop the others."""
    late = ""
    for probe in group.probes:
        finding = skipped(f"not tried, because {late} did not end") if late else _within(probe)
        if finding is None:
            late = probe.name
            group.stop.at_once()
            finding = failed(f"no answer within {probe.seconds:.0f} s", probe.away or probe.fix)
        yield Result(group.title, probe.name, finding)
    if not late:
        try:
            group.close()
        except PullwrightError:
            return  # the next run removes a remaining folder


def _within(probe: Probe) -> ProbeFinding | None:
    """Return the finding of a probe; None if it did not end in time."""
    box: list[ProbeFinding] = []
    # A daemon thread, so that a probe that hangs does not keep the program from ending.
    thread = threading.Thread(target=lambda: box.append(_look(probe)), daemon=True)
    thread.start()
    thread.join(probe.seconds)
    if box:
        return box[0]
    return None if thread.is_alive() else failed("the probe broke down, see above", "please report it")


def _look(probe: Probe) -> ProbeFinding:
    try:
        return probe.look()
    except Unmet as reason:
        return skipped(str(reason))
    except ForgeUnavailableError as error:
        cause = error.__context__ if isinstance(error, NoTimeError) else None
        return failed(str(cause or error), probe.away or probe.fix)
    except PullwrightError as error:
        return failed(str(error), probe.fix)
    except OSError as error:
        return failed(f"{error.strerror or error}", probe.fix)

"""What `doctor` finds: a line for each probe, with the fix; and the one place that runs probes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.parts import Stop
from orchestrator.core.errors import ForgeUnavailableError, PullwrightError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


PROBE_SECONDS = 10.0
_SHORT_SECONDS = 1.5
"""What is slept through: the pause between two writes, and the first ones after a failure."""


class ProbeState(StrEnum):
    """How a probe ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class ProbeFinding:
    """What a probe found, in one line, and the exact fix in another; the fix is empty where none is due.

    `typed` is what a person may copy as it stands: it is shown as one line, however long.
    """

    state: ProbeState
    found: str
    fix: str = ""
    typed: str = ""


def ok(found: str) -> ProbeFinding:
    """Return a finding without a problem."""
    return ProbeFinding(ProbeState.OK, found)


def warned(found: str, fix: str, typed: str = "") -> ProbeFinding:
    """Return a finding of something that works, but not well or not for long."""
    return ProbeFinding(ProbeState.WARNING, found, fix, typed)


def failed(found: str, fix: str) -> ProbeFinding:
    """Return a finding with which a run would fail."""
    return ProbeFinding(ProbeState.FAILED, found, fix)


def skipped(found: str) -> ProbeFinding:
    """Not looked at, and why."""
    return ProbeFinding(ProbeState.SKIPPED, found)


class Unmet(Exception):  # noqa: N818  it is no error: something before it did not work
    """A probe cannot be tried; the message says why."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A test of one thing.

    Attributes:
        name: a word or two.
        look: finds out; may raise `Unmet`, an error of ours, or an error of the operating system.
        fix: what to do where it raises an error.
        away: what to do if nobody answers; empty if that is the same.
    """

    name: str
    look: Callable[[], ProbeFinding]
    fix: str
    seconds: float = PROBE_SECONDS
    away: str = ""


class NoTimeError(ForgeUnavailableError):
    """A wait is longer than a probe may take. The error that caused it is the context."""


class Impatient(Stop):
    """Does not wait for limits and outages: `doctor` reports them."""

    def sleep(self, seconds: float) -> None:
        """Wait if it is short.

        Raises:
            NoTimeError: it is not.
        """
        if seconds > _SHORT_SECONDS:
            raise NoTimeError(f"a wait of {seconds:.0f} s is asked for")
        super().sleep(seconds)


@dataclass(frozen=True, slots=True)
class Group:
    """Probes of one thing, in order. If one does not end, the others are not tried.

    Attributes:
        title: what they are about.
        stop: ends what a probe that is late still does.
        close: called at the end.
    """

    title: str
    probes: tuple[Probe, ...]
    stop: Impatient = field(default_factory=Impatient)
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Result:
    """What a probe of a group found."""

    group: str
    probe: str
    finding: ProbeFinding


def run_probes(group: Group, redact: Callable[[str], str]) -> Iterator[Result]:
    """Try the probes of a group, one after another. An error of one does not stop the next."""
    late = ""
    for probe in group.probes:
        finding = skipped(f"not tried, because {late} did not end") if late else None
        if finding is None:
            finding = _within(probe)
        if finding is None:
            late = probe.name
            group.stop.at_once()
            finding = failed(f"no answer within {probe.seconds:.0f} s", probe.away or probe.fix)
        yield Result(
            redact(group.title),
            probe.name,
            replace(
                finding, found=redact(finding.found), fix=redact(finding.fix), typed=redact(finding.typed)
            ),
        )
    if not late:
        try:
            group.close()
        except PullwrightError:
            return  # a folder of ours that stays is swept by the next run


def _within(probe: Probe) -> ProbeFinding | None:
    """Return what the probe found; None if it did not end in time."""
    box: list[ProbeFinding] = []
    # A daemon: what hangs must not keep the program from ending.
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
    except NoTimeError as error:
        return failed(str(error.__context__ or error), probe.away or probe.fix)
    except ForgeUnavailableError as error:
        return failed(str(error), probe.away or probe.fix)
    except PullwrightError as error:
        return failed(str(error), probe.fix)
    except OSError as error:
        return failed(f"{error.strerror or error}", probe.fix)

"""The health of a worker: its state as JSON for `/healthz`, and totals for Prometheus at `/metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.bot.fleet.members import MemberState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from orchestrator.bot.fleet.members import Member
    from orchestrator.core.clock import Clock

LOOP_SECONDS = 300.0
"""The worker's loop runs every minute; without a pass for so long it is stuck."""
SILENT_SECONDS = 3600.0
"""A cycle without an event for so long is stuck: requests and commands have shorter limits of their own."""
_MOST_REASON_CHARS = 300


class HasMembers(Protocol):
    """Runs the cycles of several repositories."""

    @property
    def members(self) -> Sequence[Member]:
        """The repositories."""


class Health:
    """Reports the health of a worker."""

    def __init__(self, fleet: HasMembers, clock: Clock, redact: Callable[[str], str]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._redact = redact
        self._started = clock.now()
        self._turned_at = clock.monotonic()

    def note_turn(self) -> None:
        """Record that the worker's loop is alive."""
        self._turned_at = self._clock.monotonic()

    def stuck(self) -> list[str]:
        """Return what makes no progress although it should."""
        now = self._clock.monotonic()
        silent = [
            one.name for one in self._fleet.members if one.running and now - one.active_at > SILENT_SECONDS
        ]
        return ["the worker's loop", *silent] if now - self._turned_at > LOOP_SECONDS else silent

    def state(self) -> dict[str, Any]:
        """Return the JSON of `/healthz`."""
        members = self._fleet.members
        ended = [one.totals.last_at for one in members if one.totals.last_at]
        return {
            "status": "stuck" if self.stuck() else "ok",
            "started_at": _iso(self._started),
            "last_cycle_at": _iso(max(ended, default=None)),
            "repositories": [self._member(one) for one in members],
        }

    def _member(self, member: Member) -> dict[str, Any]:
        now = self._clock.now()
        state = member.state(now)
        paused = member.pause if state is MemberState.PAUSED else None
        reason = member.halted or (paused.reason if paused else None)
        return {
            "name": self._redact(member.name),
            "state": str(state),
            "last_outcome": member.totals.last_outcome,
            "paused_until": _iso(paused.until) if paused else None,
            "reason": self._redact(reason)[:_MOST_REASON_CHARS] if reason else None,
            "cycles": member.totals.cycles,
        }

    def metrics(self) -> str:
        """Return the text of `/metrics`."""
        tallies = [(_label(self._redact(one.name)), one.totals) for one in self._fleet.members]
        lines = [
            "# HELP pullwright_cycles_total Cycles by how they ended.",
            "# TYPE pullwright_cycles_total counter",
        ]
        for name, tally in tallies:
            lines += [
                f'pullwright_cycles_total{{repository="{name}",outcome="{outcome}"}} {number}'
                for outcome, number in sorted(tally.outcomes.items())
            ]
        for metric, text, read in (
            ("usd_total", "US dollars spent, as far as prices are known.", "usd"),
            ("tokens_total", "Tokens, in and out.", "tokens"),
            ("forge_requests_total", "Requests to the forge.", "requests"),
            ("paused_seconds_total", "Seconds of pauses that were begun.", "paused_seconds"),
        ):
            lines += [f"# HELP pullwright_{metric} {text}", f"# TYPE pullwright_{metric} counter"]
            lines += [
                f'pullwright_{metric}{{repository="{name}"}} {getattr(tally, read)}'
                for name, tally in tallies
            ]
        lines += ["# HELP pullwright_up Whether the worker goes on.", "# TYPE pullwright_up gauge"]
        return "\n".join([*lines, f"pullwright_up {0 if self.stuck() else 1}", ""])


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _iso(when: datetime | None) -> str | None:
    return when.isoformat(timespec="seconds") if when else None

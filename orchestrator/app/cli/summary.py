"""One line about a cycle of a fleet: when, where, what came of it, what it cost, and when it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.lines import money
from orchestrator.app.cli.text import one_line
from orchestrator.bot.journal.pauses import Pause
from orchestrator.bot.worker.pace import Ended
from orchestrator.bot.worker.pauses import Halt
from orchestrator.core.repositories import Commands

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from orchestrator.bot.cycle.parts import CycleResult
    from orchestrator.bot.worker.fleet import Member
    from orchestrator.bot.worker.pace import Onward

_MOST_REASON_CHARS = 160


def as_line(member: Member, result: CycleResult, onward: Onward, now: datetime, *, once: bool) -> str:
    """The line for people."""
    parts = [f"{now:%Y-%m-%d %H:%M} UTC", member.name, str(result.outcome), *_what(member, result, onward)]
    if result.rounds:
        parts.append(money(result.usd))
    if isinstance(onward, Halt):
        parts.append("no further cycle until the worker is started again")
    elif (next_at := _next_at(member, onward, now, once=once)) is not None:
        parts.append(f"next {next_at:%Y-%m-%d %H:%M} UTC")
    return " | ".join(one_line(part) for part in parts)


def _next_at(member: Member, onward: Onward, now: datetime, *, once: bool) -> datetime | None:
    """When the member's next cycle begins; there is none after the end that somebody asked for."""
    return None if once or isinstance(onward, Ended) else member.next_at(now)


def _what(member: Member, result: CycleResult, onward: Onward) -> Iterator[str]:
    if result.task is not None:
        yield result.task.title
    if result.pull_request is not None and result.pull_request.url:
        yield f"{result.pull_request.url}{' (tests do not pass)' if result.tests_fail else ''}"
    elif result.question is not None:
        url = result.question_url or ""
        yield f"asked: {url if url.startswith('http') else result.question}"
        if result.task is not None and not url.startswith("http"):
            yield f"answer with: {Commands(member.name).answer(result.task.key)}"
    reason = onward.reason if isinstance(onward, Pause | Halt) else result.error or result.reason
    if reason and result.pull_request is None and result.question is None:
        yield one_line(reason, _MOST_REASON_CHARS)


def as_json(
    member: Member, result: CycleResult, onward: Onward, now: datetime, *, once: bool
) -> dict[str, Any]:
    """The same for programs, with the cycle's whole result."""
    next_at = _next_at(member, onward, now, once=once)
    return {
        "at": now.isoformat(timespec="seconds"),
        "repository": member.name,
        "next_at": next_at.isoformat(timespec="seconds") if next_at else None,
        "paused_until": onward.until.isoformat(timespec="seconds") if isinstance(onward, Pause) else None,
        "disabled": onward.reason if isinstance(onward, Halt) else None,
        **result.to_json(),
    }

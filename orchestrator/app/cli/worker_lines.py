"""Words for what concerns claims, budgets and pauses, for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, assert_never

from orchestrator.app.cli.text import clean, counted, one_line
from orchestrator.core.events import Claimed, ForgeUsed, Paused, Reserved, Resumed, WorkSaved

if TYPE_CHECKING:
    from collections.abc import Iterator

WorkerEvent: TypeAlias = Claimed | Resumed | Reserved | ForgeUsed | Paused | WorkSaved

_MOST_NAMED = 5


def words(event: WorkerEvent) -> str:
    """One line of text."""
    match event:
        case Claimed():
            taken = f", taken over from run {one_line(event.took_over_from)}" if event.took_over_from else ""
            return f"claimed {one_line(event.task)} (number {event.number}, until {minute(event.expires_at)}{taken})"
        case Resumed():
            return f"goes on where run {one_line(event.run)} stopped ({one_line(event.why)}): {_taken_over(event)}"
        case Reserved():
            caps = ", ".join(_caps(event)) or "no cap"
            return f"may spend: {caps}{f' ({one_line(event.reason)})' if event.reason else ''}"
        case ForgeUsed():
            charged = event.requests - event.unchanged
            return f"requests to the forge: {event.requests}, of them {charged} counted and {event.writes} writing"
        case Paused():
            verb = "paused" if is_news(event) else "waiting"
            return f"{verb} until {minute(event.until)}: {one_line(event.reason)}"
        case WorkSaved():
            return f"work saved {' and '.join(_places(event))}"
        case _:
            assert_never(event)


def is_news(event: WorkerEvent) -> bool:
    """Whether a person should notice it; the wait for the next time of a schedule is as ordered."""
    return isinstance(event, WorkSaved) or (isinstance(event, Paused) and not event.is_planned)


def minute(text: str) -> str:
    """A time in ISO 8601 (UTC) as people read it."""
    return f"{text[:16].replace('T', ' ')} UTC" if len(text) >= 16 else one_line(text)  # noqa: PLR2004  up to the minute


def _taken_over(event: Resumed) -> str:
    text = f"{counted(event.files, 'changed file')}, {counted(event.turns, 'message')}"
    if not event.conflicts:
        return text
    named = ", ".join(map(one_line, event.conflicts[:_MOST_NAMED]))
    return f"{text}; in conflict with the base: {named}"


def _caps(event: Reserved) -> Iterator[str]:
    if event.usd is not None:
        yield f"${event.usd:,.2f}"
    if event.tokens is not None:
        yield f"{event.tokens:,} tokens"
    if event.minutes is not None:
        yield f"{event.minutes:g} minutes"
    if event.rounds is not None:
        yield counted(event.rounds, "round")


def _places(event: WorkSaved) -> Iterator[str]:
    if event.ref:
        yield f"as {one_line(event.ref)}"
    if event.path:
        yield f"as a patch: {clean(event.path)}"

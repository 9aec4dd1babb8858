"""Tells over HTTP how a fleet is: `/healthz` as JSON, `/metrics` for Prometheus. It reads nothing but the path."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.bot.worker.fleet import MemberState
from orchestrator.core.addresses import is_loopback
from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from datetime import datetime

    from orchestrator.bot.worker.fleet import Member
    from orchestrator.core.clock import Clock

LOOP_SECONDS = 300.0
"""The loop that hands out turns looks around every minute; after so long without it is stuck."""
SILENT_SECONDS = 3600.0
"""A cycle that says nothing for so long is stuck: requests and commands have shorter limits of their own."""
_MAX_HEAD_BYTES = 8_192
_READ_SECONDS = 5.0
_MOST_CONNECTIONS = 16
_MOST_REASON_CHARS = 300
_REQUEST = re.compile(rb"(GET|HEAD) (/[!-~]*) HTTP/1\.[01]")
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_NOT_ALLOWED = 405
_ALLOW = "Allow: GET, HEAD\r\n"
_TEXT = "text/plain; charset=utf-8"
_PROMETHEUS = (
    "text/plain; version=0.0.4; charset=utf-8"  # https://prometheus.io/docs/instrumenting/exposition_formats
)
_REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed"}
_REASONS |= {408: "Request Timeout", 431: "Request Header Fields Too Large", 503: "Service Unavailable"}


class HasMembers(Protocol):
    """What runs the cycles of several repositories."""

    @property
    def members(self) -> Sequence[Member]:
        """The repositories."""


class Health:
    """What there is to tell about a fleet."""

    def __init__(self, fleet: HasMembers, clock: Clock, redact: Callable[[str], str]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._redact = redact
        self._started = clock.now()
        self._turned_at = clock.monotonic()

    def note_turn(self) -> None:
        """The fleet's loop is alive."""
        self._turned_at = self._clock.monotonic()

    def stuck(self) -> list[str]:
        """What does not go on though it should."""
        now = self._clock.monotonic()
        silent = [
            one.name for one in self._fleet.members if one.running and now - one.active_at > SILENT_SECONDS
        ]
        return ["the worker's loop", *silent] if now - self._turned_at > LOOP_SECONDS else silent

    def state(self) -> dict[str, Any]:
        """As `/healthz` tells it."""
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
        """As `/metrics` tells it."""
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


@asynccontextmanager
async def serving(health: Health, host: str, port: int) -> AsyncIterator[int]:
    """Listen while the block runs; gives the port.

    Raises:
        ConfigurationError: the address cannot be listened at.
    """
    server = _Server(health, only_local=is_loopback(host))
    try:
        listening = await asyncio.start_server(server.connected, host, port, limit=_MAX_HEAD_BYTES)
    except OSError as error:
        raise ConfigurationError(f"cannot listen at {host}:{port}: {error.strerror or error}") from error
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        await server.close()


class _Server:
    def __init__(self, health: Health, *, only_local: bool) -> None:
        self._health = health
        self._only_local = only_local
        self._open: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request, one answer."""
        task = asyncio.current_task()
        if task is None or len(self._open) >= _MOST_CONNECTIONS:
            writer.close()
            return
        self._open.add(task)
        try:
            async with asyncio.timeout(_READ_SECONDS):
                writer.write(await self._answered(reader))
                await writer.drain()
        except (OSError, TimeoutError):
            pass  # who does not read has no answer
        finally:
            self._open.discard(task)
            writer.close()

    async def _answered(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _answer(431, "the request is too long\n")
        except asyncio.IncompleteReadError:
            return _answer(400, "this is no request\n")
        first, *fields = head[:-4].split(b"\r\n")
        match = _REQUEST.fullmatch(first)
        if match is None:
            known = re.fullmatch(rb"[A-Z]{1,20} /[!-~]* HTTP/1\.[01]", first)
            return (
                _answer(_NOT_ALLOWED, "GET and HEAD only\n")
                if known
                else _answer(400, "this is no request\n")
            )
        if self._only_local and not _names_loopback(fields):
            return _answer(403, "this address is for programs of this machine\n")
        return self._page(match[2].decode("ascii"), head_only=match[1] == b"HEAD")

    def _page(self, path: str, *, head_only: bool) -> bytes:
        match path:
            case "/healthz":
                state = self._health.state()
                text = json.dumps(state, ensure_ascii=False) + "\n"
                status = 200 if state["status"] == "ok" else 503
                return _answer(status, text, "application/json", head_only=head_only)
            case "/metrics":
                return _answer(200, self._health.metrics(), _PROMETHEUS, head_only=head_only)
            case _:
                return _answer(404, "there are /healthz and /metrics\n", head_only=head_only)


def _answer(status: int, text: str, kind: str = _TEXT, *, head_only: bool = False) -> bytes:
    body = text.encode("utf-8", "replace")
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n"
        f"{_ALLOW if status == _NOT_ALLOWED else ''}\r\n"
    )
    return head.encode("ascii") + (b"" if head_only else body)


def _names_loopback(fields: list[bytes]) -> bool:
    """Whether exactly one `Host` is this machine: a page in a browser may point a name of its own here."""
    hosts = [
        value.strip()
        for name, _, value in (field.partition(b":") for field in fields)
        if name.lower() == b"host"
    ]
    if len(hosts) != 1:
        return False
    name = re.sub(r":[0-9]{1,5}$", "", hosts[0].decode("latin-1").lower())
    return name in _LOOPBACK_NAMES


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _iso(when: datetime | None) -> str | None:
    return when.isoformat(timespec="seconds") if when else None

"""What is told over HTTP, to whom, and what is refused."""

from __future__ import annotations

import asyncio
import json
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.bot.cycle.parts import CycleResult, Outcome
from orchestrator.bot.cycle.tasks import from_text
from orchestrator.bot.forge.base import Traffic
from orchestrator.bot.journal.run_facts import Pause
from orchestrator.bot.worker.schedule import make_schedule
from orchestrator.bot.worker.worker import NextStepChooser
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.messages import Usage
from orchestrator.plugins.worker.members import LOOP_SECONDS, SILENT_SECONDS, Health, Member
from orchestrator.plugins.worker.serving import serving_health

if TYPE_CHECKING:
    from orchestrator.plugins.worker.members import Runner

START = datetime(2026, 1, 1, tzinfo=UTC)
SOURCE = random.Random(1)  # noqa: S311  no secret


def no_runner() -> Runner:
    raise ConfigurationError("nothing runs here")


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock(START)
        schedule = make_schedule("1h", None, "UTC", START)
        assert schedule is not None
        self.members = [
            Member(name, no_runner, name, schedule, NextStepChooser(self.clock, SOURCE))
            for name in ('a/"x"', "b/y")
        ]
        self.health = Health(self.members, self.clock, lambda text: text.replace("SECRET", "[redacted]"))

    def ended(self) -> None:
        result = CycleResult(
            "run", Outcome.PROPOSED, from_text("A secret title"), usd=0.25, requests=Traffic(7)
        )
        result.usage = Usage(100, 20)
        self.members[0].totals.count(result, self.clock.now())


async def ask(port: int, request: bytes) -> tuple[bytes, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


def get(path: str, host: str = "localhost:1", verb: str = "GET") -> bytes:
    return f"{verb} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


async def test_a_fleet_that_goes_on_is_healthy() -> None:
    scene = Scene()
    scene.ended()
    scene.members[1].pause = Pause(START + timedelta(hours=1), "the quota of SECRET is spent")
    async with serving_health(scene.health, "127.0.0.1", 0) as port:
        head, body = await ask(port, get("/healthz"))
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert json.loads(body) == {
        "status": "ok",
        "started_at": "2026-01-01T00:00:00+00:00",
        "last_cycle_at": "2026-01-01T00:00:00+00:00",
        "repositories": [
            {
                "name": 'a/"x"',
                "state": "idle",
                "last_outcome": "proposed",
                "paused_until": None,
                "reason": None,
                "cycles": 1,
            },
            {
                "name": "b/y",
                "state": "paused",
                "last_outcome": None,
                "paused_until": "2026-01-01T01:00:00+00:00",
                "reason": "the quota of [redacted] is spent",
                "cycles": 0,
            },
        ],
    }


async def test_numbers_for_prometheus() -> None:
    scene = Scene()
    scene.ended()
    scene.members[1].begin_pause(Pause(START + timedelta(seconds=90), "busy"), START)
    async with serving_health(scene.health, "127.0.0.1", 0) as port:
        head, body = await ask(port, get("/metrics", verb="GET"))
    assert b"text/plain; version=0.0.4" in head
    lines = body.decode().splitlines()
    assert r'pullwright_cycles_total{repository="a/\"x\"",outcome="proposed"} 1' in lines
    assert r'pullwright_usd_total{repository="a/\"x\""} 0.25' in lines
    assert r'pullwright_tokens_total{repository="a/\"x\""} 120' in lines
    assert r'pullwright_forge_requests_total{repository="a/\"x\""} 7' in lines
    assert 'pullwright_paused_seconds_total{repository="b/y"} 90.0' in lines
    assert "pullwright_up 1" in lines
    assert b"secret title" not in body


async def test_a_loop_that_does_not_turn_is_stuck() -> None:
    scene = Scene()
    scene.clock.advance(LOOP_SECONDS + 1)
    async with serving_health(scene.health, "127.0.0.1", 0) as port:
        head, body = await ask(port, get("/healthz"))
        assert head.startswith(b"HTTP/1.1 503 ")
        assert json.loads(body)["status"] == "stuck"
        assert b"pullwright_up 0" in (await ask(port, get("/metrics")))[1]
        scene.health.note_turn()
        assert (await ask(port, get("/healthz")))[0].startswith(b"HTTP/1.1 200 ")


def test_a_cycle_that_says_nothing_for_long_is_stuck() -> None:
    scene = Scene()
    member = scene.members[0]
    member.running, member.active_at = True, scene.clock.monotonic()
    scene.clock.advance(SILENT_SECONDS + 1)
    scene.health.note_turn()
    assert scene.health.stuck() == ['a/"x"']
    member.active_at = scene.clock.monotonic()
    assert scene.health.stuck() == []
    member.running = False
    scene.clock.advance(SILENT_SECONDS + 1)
    scene.health.note_turn()
    assert scene.health.stuck() == []


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get("/healthz", verb="HEAD"), 200),
        (get("/"), 404),
        (get("/healthz/"), 404),
        (get("/healthz?x=1"), 404),
        (get("/../etc/passwd"), 404),
        (get("http://localhost/healthz"), 404),
        (get("/healthz", verb="POST"), 405),
        (get("/healthz", verb="get"), 405),
        (get("/healthz", host="evil.example"), 403),
        (get("/healthz", host="localhost.evil.example"), 403),
        (get("/healthz", host="127.0.0.1:8787"), 200),
        (get("/healthz", host="[::1]:8787"), 200),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400),
        (b"GET /healthz HTTP/2\r\nHost: localhost\r\n\r\n", 400),
        (b"GET  /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"\x16\x03\x01\x00\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: local", 400),
        (b"GET /" + b"a" * 300 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", 400),
    ],
)
async def test_what_is_answered_and_what_is_refused(request_bytes: bytes, status: int) -> None:
    async with serving_health(Scene().health, "127.0.0.1", 0) as port:
        head, body = await ask(port, request_bytes)
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"content-length: " in head.lower()
    assert bool(body) is not request_bytes.startswith(b"HEAD")


async def test_where_other_machines_may_ask_any_host_is_good() -> None:
    async with serving_health(Scene().health, "0.0.0.0", 0) as port:  # noqa: S104  it is what is tested
        head, _ = await ask(port, get("/healthz", host="worker.example"))
    assert head.startswith(b"HTTP/1.1 200 ")


async def test_who_keeps_a_connection_open_does_not_hold_up_the_end() -> None:
    async with serving_health(Scene().health, "127.0.0.1", 0) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz")
        await writer.drain()
        assert (await ask(port, get("/healthz")))[0].startswith(b"HTTP/1.1 200 ")
    writer.close()


async def test_an_address_that_cannot_be_had_is_said_in_one_line() -> None:
    async with serving_health(Scene().health, "127.0.0.1", 0) as port:
        with pytest.raises(ConfigurationError, match="cannot listen at 127"):
            await serving_health(Scene().health, "127.0.0.1", port).__aenter__()


@settings(max_examples=15)
@given(st.binary(min_size=1, max_size=300))
def test_whatever_is_sent_there_is_one_answer(data: bytes) -> None:
    async def play() -> bytes:
        async with serving_health(Scene().health, "127.0.0.1", 0) as port:
            return (await ask(port, data))[0]

    assert asyncio.run(play()).startswith(b"HTTP/1.1 ")

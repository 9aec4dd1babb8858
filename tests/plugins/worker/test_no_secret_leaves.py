from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from orchestrator.bot.journal.run_facts import Pause
from orchestrator.bot.worker.schedule import make_schedule
from orchestrator.bot.worker.worker import NextStepChooser
from orchestrator.core.clock import ManualClock
from orchestrator.engine.policy.secrets import Redactor
from orchestrator.plugins.worker.members import SILENT_SECONDS, Health, Member
from orchestrator.plugins.worker.serving import serving_health
from tests.scenarios.test_no_secret_leaves import IN_ONE, MARKS, SHORT, VALUES, WORDS, leaks


async def test_no_page_of_health_shows_a_value() -> None:
    clock = ManualClock(datetime(2026, 11, 23, 14, 0, tzinfo=UTC))
    schedule = make_schedule("1h", None, "UTC", clock.now())
    assert schedule is not None
    members = [
        Member(name, _no_runner, name, schedule, NextStepChooser(clock, random.Random(1)))  # noqa: S311  no secret
        for name in (IN_ONE, WORDS, f"ada/{SHORT}", f"long {'x' * 190}{MARKS}")
    ]
    members[0].halted = f"{'y' * 290}{WORDS} {MARKS}"
    members[1].begin_pause(
        Pause(clock.now() + timedelta(hours=1), f"{'z' * 195}{SHORT} {IN_ONE}"), clock.now()
    )
    health = Health(members, clock, Redactor(VALUES).redact)
    for stuck in (False, True):
        if stuck:
            members[2].running = True
            clock.advance(10 * SILENT_SECONDS)
        async with serving_health(health, "127.0.0.1", 0) as port:
            for path in ("/healthz", "/metrics", f"/{WORDS}", f"/healthz?{quote(MARKS)}"):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                writer.write_eof()
                answer = (await reader.read()).decode()
                writer.close()
                assert answer.startswith("HTTP/1.1 "), path
                assert leaks(answer) == [], (path, stuck)


def _no_runner() -> Any:
    raise AssertionError("nothing runs here")

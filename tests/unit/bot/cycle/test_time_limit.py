"""The time limit of a whole cycle, which ends it whatever it does."""

from __future__ import annotations

import asyncio

import pytest

from orchestrator.bot.cycle.cycle import _time_limit
from orchestrator.bot.cycle.parts import OVERTIME_SECONDS
from orchestrator.core import watchdog
from orchestrator.core.errors import BudgetExhaustedError


async def test_a_cycle_that_goes_on_after_its_time_ends_with_a_limit() -> None:
    saved: list[str] = []

    async def cycle() -> None:
        async with _time_limit(0.0, overtime_seconds=0.01):
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)  # what saves the work is not cut short
                saved.append("the work")

    with pytest.raises(BudgetExhaustedError, match="0 minutes are over"):
        await cycle()
    assert saved == ["the work"]


async def test_another_time_out_stays_what_it_is() -> None:
    with pytest.raises(TimeoutError):
        async with _time_limit(1.0):
            raise TimeoutError
    async with _time_limit(None):
        await asyncio.sleep(0)


def test_the_cycle_has_time_to_save_before_the_watchdog_ends_the_program() -> None:
    assert 0 < OVERTIME_SECONDS <= watchdog.OVERTIME_SECONDS / 2

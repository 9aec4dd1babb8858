"""A turn of a program that does nothing: no word, no request to its model, no call of the host's."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import BadReplyError
from orchestrator.plugins.agents.work import _Turns


class Endless:
    """A connection whose turn ends when it is cancelled."""

    received = 0

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()

    async def prompt(self, _text: str) -> str:
        await self.cancelled.wait()
        return "cancelled"

    async def cancel(self) -> None:
        self.cancelled.set()


def turns(connection: Endless) -> _Turns:
    """Turns for which one look without activity is too long."""
    parts: dict[str, Any] = {
        "name": "agent",
        "connection": connection,
        "relay": SimpleNamespace(is_working=False, limit=None, failure=None),
        "tools": SimpleNamespace(is_working=False, ended=asyncio.Event(), error=None, ending=None),
        "told": SimpleNamespace(end_turn=lambda: ""),
        "inputs": SimpleNamespace(
            host=SimpleNamespace(stopped=lambda: False), budget=SimpleNamespace(denied=None)
        ),
        "clock": ManualClock(),
    }
    return _Turns(**cast("Any", parts), has_one_turn=True, silent_seconds=0.0)


async def test_a_turn_in_which_nothing_happens_is_ended_in_one_line() -> None:
    connection = Endless()
    with pytest.raises(BadReplyError, match="agent did nothing for 0 minutes in its turn, and was ended"):
        await turns(connection).until_done("Go")
    assert connection.cancelled.is_set()

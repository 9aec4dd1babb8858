"""Every place where the program waits is in a table, with its bound and who may cut it short."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.architecture.modules import modules, parsed
from tests.architecture.waits import waits
from tests.plugins import is_of_absent_plugin

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "tests/data/waits.txt"
_BOUND, _ENDS = "    bound: ", "    ends it: "


@dataclass(slots=True)
class Group:
    """Waits of one kind."""

    what: str
    bound: str = ""
    ends: str = ""
    places: Counter[str] = field(default_factory=Counter)


def groups() -> list[Group]:
    """Read the table."""
    found: list[Group] = []
    for line in TABLE.read_text("utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        if not line.startswith(" "):
            found.append(Group(line))
        elif line.startswith(_BOUND):
            found[-1].bound = line.removeprefix(_BOUND)
        elif line.startswith(_ENDS):
            found[-1].ends = line.removeprefix(_ENDS)
        else:
            place, _, count = line.strip().partition(" *")
            if not is_of_absent_plugin(place):
                found[-1].places[place] += int(count or 1)
    return [group for group in found if group.places]


def test_every_wait_of_the_program_is_in_the_table() -> None:
    table: Counter[str] = sum((group.places for group in groups()), Counter())
    code: Counter[str] = Counter()
    for module in modules():
        code += Counter({f"{module.name}: {place}": count for place, count in waits(module).items()})
    assert dict(code - table) == {}, f"say in {TABLE} how long they may take, and who can cut them short"
    assert dict(table - code) == {}, f"they are no longer in the code: remove them from {TABLE}"


def test_every_group_says_how_long_and_who_ends_it() -> None:
    assert [group.what for group in groups() if not (group.bound and group.ends and group.places)] == []


def test_the_waits_of_a_module_are_found() -> None:
    module = parsed(b"""
import os, subprocess, time

class Server:
    async def answer(self):
        async with self._lock:
            await asyncio.wait([self.task])
            data = await self.reader.read(1)
        names = {}.get("name"), ", ".join(data)

    def end(self):
        while not self.process.wait(1):
            time.sleep(1)
        with lock_run(self.folder), self._starting:
            return subprocess.run(["true"]), os.read(0, 1), client.send(b"")

input()
""")
    assert waits(module) == {
        "Server.answer with self._lock": 1,
        "Server.answer asyncio.wait": 1,
        "Server.answer self.reader.read": 1,
        "Server.end while": 1,
        "Server.end self.process.wait": 1,
        "Server.end time.sleep": 1,
        "Server.end lock_run": 1,
        "Server.end with self._starting": 1,
        "Server.end subprocess.run": 1,
        "Server.end os.read": 1,
        "Server.end client.send": 1,
        "- input": 1,
    }


def test_every_command_has_the_event_loop_and_the_signals_of_the_watchdog() -> None:
    # Another loop would take `signal.set_wakeup_fd` from the watchdog, or wait for its threads for ever.
    other = {
        (file.name, word)
        for file in (ROOT / "orchestrator").rglob("*.py")
        for word in ("asyncio.run(", "asyncio.Runner(", "new_event_loop(", "set_wakeup_fd(")
        if word in file.read_text("utf-8")
    }
    assert other == {("event_loop.py", "asyncio.Runner("), ("watchdog.py", "set_wakeup_fd(")}

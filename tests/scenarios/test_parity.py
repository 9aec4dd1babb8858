"""The cross-provider parity matrix (section 9.12 of the coding agent loop specification): each row a test,
each column a vendor whose protocol is spoken over real HTTP."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator import SessionConfig
from orchestrator.core.events import (
    CallStatus,
    LoopDetected,
    SteeringInjected,
    TextDelta,
    ToolCallEnded,
    ToolCallStarted,
    ToolOutputDelta,
)
from tests.scenarios.vendors import ANTHROPIC, NATIVE_EDITS, OPENAI, VENDORS, of, played, turn

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator import Session
    from tests.doubles.vendor_replies import VendorReply
    from tests.scenarios.vendors import Body, Call, Vendor

pytestmark = pytest.mark.parametrize("vendor", VENDORS, ids=str)

SPEC_TOOLS = {"read_file", "write_file", "shell", "grep", "glob", "spawn_agent", "send_input", "wait"}
BROKEN = "def add(a, b):\n    return a - b\n"
TEST = "import calc\n\nassert calc.add(2, 3) == 5, calc.add(2, 3)\n"


def read(path: str) -> Call:
    return "read_file", {"file_path": path}


def shell(command: str, **more: Any) -> Call:
    return "shell", {"command": command, **more}


async def test_simple_file_creation(vendor: Vendor, tmp_path: Path) -> None:
    create = vendor.create("hello.py", "print('Hello World')\n")
    async with played(vendor, tmp_path, turn("I write it.", create), turn("Done.")) as game:
        events = await game.submit("Create hello.py that prints 'Hello World'")
        first, second = game.bodies
    assert (tmp_path / "hello.py").read_text() == "print('Hello World')\n"
    assert vendor.users(first)[-1] == "Create hello.py that prints 'Hello World'"
    assert SPEC_TOOLS | {"close_agent", create[0]} <= set(vendor.tools(first))
    assert str(tmp_path) in vendor.system(first)
    assert vendor.system(second) == vendor.system(first)
    assert vendor.results(second)[0].call_id == "c2"
    assert "".join(event.text for event in of(events, TextDelta)).startswith("I write it.")
    assert [event.kind for event in events][-1] == "processing_end"


async def test_read_file_then_edit_it(vendor: Vendor, tmp_path: Path) -> None:
    (tmp_path / "calc.py").write_text(BROKEN)
    edit = vendor.edit("calc.py", "    return a - b", "    return a + b")
    async with played(vendor, tmp_path, turn(read("calc.py")), turn(edit), turn("Done.")) as game:
        events = await game.submit("Fix add")
        (shown,) = game.results(1)
    assert (tmp_path / "calc.py").read_text() == "def add(a, b):\n    return a + b\n"
    assert re.search(r"^\s*2\W+return a - b$", shown.text, re.MULTILINE), "numbered lines"
    assert [event.status for event in of(events, ToolCallEnded)] == [CallStatus.OK] * 2


async def test_multi_file_edit_in_one_session(vendor: Vendor, tmp_path: Path) -> None:
    names = ["a.py", "b.py", "c.py"]
    for name in names:
        (tmp_path / name).write_text("VERSION = 1\nNAME = 'x'\n")
    edits = [vendor.edit(name, "VERSION = 1", "VERSION = 2") for name in names]
    script = turn(*edits[:2]), turn(edits[2]), turn("All three are at 2.")
    async with played(vendor, tmp_path, *script) as game:
        await game.submit("Raise the version")
        assert len(game.results(-1)) == 3
    assert {(tmp_path / name).read_text() for name in names} == {"VERSION = 2\nNAME = 'x'\n"}


async def test_shell_command_execution(vendor: Vendor, tmp_path: Path) -> None:
    script = turn(shell("echo out; echo err >&2; pwd; touch made; exit 3")), turn("It failed.")
    async with played(vendor, tmp_path, *script) as game:
        events = await game.submit("Run it")
        (told,) = game.results(1)
    assert (tmp_path / "made").exists()
    for words in ("out\n", "err\n", str(tmp_path), "exit code 3"):
        assert words in told.text
    assert told.is_error is not False
    printed = "".join(event.text for event in of(events, ToolOutputDelta))
    assert sorted(printed.split()) == sorted(["out", "err", str(tmp_path)])


async def test_shell_command_timeout_handling(vendor: Vendor, tmp_path: Path) -> None:
    """The limit of the session ends the first; the second asks for time, and has it."""
    sleeps = "echo $$ > pid; echo started; sleep 600"
    script = (
        turn(shell(sleeps)),
        turn(shell("sleep 600", timeout_ms=100)),
        turn(shell("sleep 1.6; echo slept", timeout_ms=60_000)),
        turn("It slept."),
    )
    config = SessionConfig(max_command_timeout_ms=60_000, default_command_timeout_ms=1_500)
    if vendor is ANTHROPIC:  # its profile has a default of its own, which the session's maximum bounds
        config = SessionConfig(max_command_timeout_ms=1_500)
        script = (*script[:2], turn(shell("echo slept", timeout_ms=9_000)), script[3])
    async with played(vendor, tmp_path, *script, config=config) as game:
        await game.submit("Sleep")
        first, second, third = game.results(-1)
    assert first.text.startswith("started\n[ERROR: Command timed out after 1500ms. Partial output is shown")
    assert "timed out after 100ms" in second.text
    assert first.is_error is not False
    assert "slept" in third.text
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_grep_and_glob_to_find_files(vendor: Vendor, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "calc.py").write_text(BROKEN)
    (tmp_path / "src" / "other.py").write_text("x = 1\n")
    (tmp_path / "notes.md").write_text("def add\n")
    calls = ("grep", {"pattern": r"def \w+", "glob_filter": "*.py"}), ("glob", {"pattern": "**/*.py"})
    async with played(vendor, tmp_path, turn(*calls), turn("In src/calc.py.")) as game:
        await game.submit("Where is add?")
        found, listed = game.results(1)
    assert re.search(r"src/calc\.py:1\W+def add\(a, b\):", found.text)
    assert "notes.md" not in found.text
    assert {"src/calc.py", "src/other.py"} <= set(listed.text.split())
    assert "notes.md" not in listed.text


async def test_multi_step_read_analyze_edit(vendor: Vendor, tmp_path: Path) -> None:
    (tmp_path / "calc.py").write_text(BROKEN)
    (tmp_path / "test_calc.py").write_text(TEST)
    check = shell("PYTHONDONTWRITEBYTECODE=1 python3 test_calc.py && echo good")
    edit = vendor.edit("calc.py", "    return a - b", "    return a + b")
    script = turn(read("test_calc.py")), turn(check), turn(read("calc.py")), turn(edit), turn(check)
    async with played(vendor, tmp_path, *script, turn("Fixed.")) as game:
        events = await game.submit("Make the test pass")
        told = game.results(-1)
        sizes = [len(game.results(number)) for number in range(6)]
    assert sizes == [0, 1, 2, 3, 4, 5], "each request carries all results so far"
    assert "AssertionError: -1" in told[1].text
    assert "good\n" in told[4].text
    statuses = [event.status for event in of(events, ToolCallEnded)]
    assert statuses == [CallStatus.OK, CallStatus.FAILED, *[CallStatus.OK] * 3]


async def test_tool_output_truncation(vendor: Vendor, tmp_path: Path) -> None:
    lines = [f"line {number}: {'x' * 50}" for number in range(1_900)]
    (tmp_path / "big.txt").write_text("\n".join([*lines, ""]))
    async with played(vendor, tmp_path, turn(read("big.txt")), turn("It is large.")) as game:
        events = await game.submit("Read big.txt")
        (shown,) = game.results(1)
    (ended,) = of(events, ToolCallEnded)
    assert all(line in ended.output for line in lines)
    assert "characters were removed from the middle" in shown.text
    removed = len(ended.output) - 50_000
    assert f"[WARNING: Tool output was truncated. {removed} characters" in shown.text
    assert 50_000 < len(shown.text) < 50_500
    assert lines[0] in shown.text
    assert lines[950] not in shown.text
    assert lines[-1] in shown.text


async def test_parallel_tool_calls(vendor: Vendor, tmp_path: Path) -> None:
    """Each command ends only when the other two have begun."""
    names = ("one", "two", "three")
    waits = "; ".join(f"until [ -e {name} ]; do sleep 0.02; done" for name in names)
    calls = [shell(f"touch {name}; {waits}; echo {name} met", timeout_ms=8_000) for name in names]
    async with played(vendor, tmp_path, turn(*calls), turn("They met.")) as game:
        events = await game.submit("Run all")
        told = game.results(1)
        sent = str(vendor.last(game.bodies[1]))
    # Responses has an item for each result; the others want all results in one entry.
    assert [name in sent for name in names] == [vendor is not OPENAI] * 2 + [True]
    assert [one.call_id for one in told] == ["c1", "c2", "c3"]
    assert [one.text.splitlines()[0] for one in told] == [f"{name} met" for name in names]
    order = [type(event.event) for event in events if event.kind in {"tool_call_start", "tool_call_end"}]
    assert order == [ToolCallStarted] * 3 + [ToolCallEnded] * 3


async def test_steering_mid_task(vendor: Vendor, tmp_path: Path) -> None:
    script = turn(shell("echo routes > plan")), turn(shell("echo health > plan")), turn("Only /health.")
    async with played(vendor, tmp_path, *script) as game:
        events = await game.submit(
            "Write a web application", on_call=lambda session: session.steer("Just a /health endpoint")
        )
        assert vendor.users(game.bodies[0])[-1] == "Write a web application"
        assert vendor.users(game.bodies[1])[-1] == "Just a /health endpoint"
        assert "Just a /health endpoint" in str(vendor.last(game.bodies[1])), "after the results"
        assert vendor.users(game.bodies[2]) == vendor.users(game.bodies[1]), "said once"
    assert (tmp_path / "plan").read_text() == "health\n"
    assert of(events, SteeringInjected) == [SteeringInjected("Just a /health endpoint")]


async def test_reasoning_effort_change(vendor: Vendor, tmp_path: Path) -> None:
    def harder(session: Session) -> None:
        session.reasoning_effort = "high"

    script = turn(("glob", {"pattern": "*"})), turn("Done.")
    async with played(vendor, tmp_path, *script, config=SessionConfig(reasoning_effort="low")) as game:
        await game.submit("Think", on_call=harder)
        assert [vendor.effort(body) for body in game.bodies] == ["low", "high"]


async def test_subagent_spawn_and_wait(vendor: Vendor, tmp_path: Path) -> None:
    """Parent and child ask the same double at the same time; each is answered by what it was told."""
    task = "Write child.txt"
    own = iter([turn(vendor.create("child.txt", "from the child\n")), turn("The child is done.")])

    def parent(body: Body) -> VendorReply:
        told = vendor.results(body)
        if not told:
            return turn(("spawn_agent", {"task": task}))
        agent = told[0].text.partition("agent_id: ")[2].split()[0]
        return turn(("wait", {"agent_id": agent})) if len(told) == 1 else turn("All done.")

    def either(body: Body) -> VendorReply:
        return next(own) if vendor.users(body)[0] == task else parent(body)

    async with played(vendor, tmp_path, *[either] * 5) as game:
        events = await game.submit("Have a subagent write child.txt")
        child = next(body for body in game.bodies if vendor.users(body)[0] == task)
        last = next(body for body in reversed(game.bodies) if vendor.users(body)[0] != task)
    assert (tmp_path / "child.txt").read_text() == "from the child\n"
    assert "The child is done." in vendor.results(last)[1].text
    assert vendor.users(child) == [task], "a conversation of its own"
    assert "spawn_agent" not in vendor.tools(child)
    assert len({event.session for event in events}) == 2, "events of the child carry its id"
    assert [
        event.name for event in of(events, ToolCallStarted) if event.name != vendor.create("", "")[0]
    ] == [
        "spawn_agent",
        "wait",
    ]


async def test_loop_detection_triggers_a_warning(vendor: Vendor, tmp_path: Path) -> None:
    again = turn(("glob", {"pattern": "*.py"}))
    config = SessionConfig(loop_detection_window=4)
    async with played(vendor, tmp_path, *[again] * 4, turn("I stop."), config=config) as game:
        events = await game.submit("Look")
        (warned,) = of(events, LoopDetected)
        assert "the last 4 tool calls" in warned.message
        assert vendor.users(game.bodies[3]) == ["Look"]
        assert vendor.users(game.bodies[4]) == ["Look", warned.message]


async def test_error_recovery(vendor: Vendor, tmp_path: Path) -> None:
    (tmp_path / "calc.py").write_text(BROKEN)
    wrong = vendor.edit("calc.py", "    return a * b", "    return a + b")
    right = vendor.edit("calc.py", "    return a - b", "    return a + b")
    script = turn(read("clac.py")), turn(("no_such_tool", {})), turn(wrong), turn(right), turn("Fixed.")
    async with played(vendor, tmp_path, *script) as game:
        events = await game.submit("Fix add")
        missing, unknown, conflict, done = game.results(-1)
    assert (tmp_path / "calc.py").read_text() == "def add(a, b):\n    return a + b\n"
    assert "clac.py" in missing.text
    assert "no tool of this name" in unknown.text
    assert "return a - b" in conflict.text, "the nearest lines are shown"
    said = [told.is_error for told in (missing, unknown, conflict, done)]
    assert said == ([None] * 4 if vendor is OPENAI else [True, True, True, False])
    statuses = [event.status for event in of(events, ToolCallEnded)]
    assert statuses == [*[CallStatus.FAILED] * 3, CallStatus.OK]


async def test_provider_specific_editing_format(vendor: Vendor, tmp_path: Path) -> None:
    """A patch for one; for the others a text that must be unique, unless all or their number is meant."""
    calls, parameter, after = NATIVE_EDITS[vendor]
    for name, text in {"twice.txt": "same\nsame\n", "old.txt": "old\n", "before.txt": "before\n"}.items():
        (tmp_path / name).write_text(text)
    async with played(vendor, tmp_path, *[turn(call) for call in calls], turn("Done.")) as game:
        events = await game.submit("Change them")
        tools = vendor.tools(game.bodies[0])
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == after
    assert parameter in tools[calls[0][0]]["properties"]
    assert len({"apply_patch", "edit_file"} & set(tools)) == 1, "one way to edit"
    refused = [event.status for event in of(events, ToolCallEnded)][:-1]
    assert refused == [CallStatus.FAILED] * (len(calls) - 1)

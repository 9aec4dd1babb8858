"""The smoke test's own code, run against the doubles of all three vendors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests import smoke
from tests.doubles.sse_server import SseServer
from tests.doubles.vendor_replies import Protocol
from tests.scenarios.vendors import OPENAI, VENDORS, answering, turn

if TYPE_CHECKING:
    from tests.doubles.vendor_replies import VendorReply
    from tests.scenarios.vendors import Body, Turn, Vendor

CHILD = "Write tests for hello.py"
HELLO = "print('Hello World')\n"


def script(vendor: Vendor) -> list[Turn]:
    """A model that does each step well; its last command would sleep longer than it may."""
    own = iter([turn("Tests are written.")])

    def parent(body: Body) -> VendorReply:
        agents = [told for told in vendor.results(body) if told.text.startswith("agent_id: ")]
        if not agents:
            return turn(("spawn_agent", {"task": CHILD}))
        waited = any("Tests are written." in told.text for told in vendor.results(body))
        agent = agents[0].text.split()[1]
        return turn("Reviewed.") if waited else turn(("wait", {"agent_id": agent}))

    def either(body: Body) -> VendorReply:
        return next(own) if vendor.users(body)[0] == CHILD else parent(body)

    health = vendor.create("app.py", "# /health\n")
    return [
        *(turn(vendor.create("hello.py", HELLO)), turn("Done.")),
        *(turn(vendor.edit("hello.py", HELLO.strip(), HELLO + "print('Goodbye')")), turn("Done.")),
        *(turn(("shell", {"command": "cat hello.py"})), turn("It says so.")),
        *(turn(("read_file", {"file_path": "big.txt"})), turn("Long.")),
        *(turn(("glob", {"pattern": "*"})), turn(health), turn("Done.")),
        *[either] * 4,
        *(turn(("shell", {"command": "sleep 30"})), turn("It was stopped.")),
    ]


def run(vendor: Vendor, turns: list[Turn]) -> int:
    with SseServer([answering(vendor, one) for one in turns]) as server:
        base = "" if vendor.protocol is Protocol.GEMINI else "/v1"
        code = smoke.main(
            [vendor.name, "--model", vendor.model, "--api-url", server.url + base], wait_ms=1_500
        )
        assert server.answers == []
    return code


@pytest.mark.parametrize("vendor", VENDORS, ids=str)
def test_a_model_that_does_all_well(vendor: Vendor, capsys: pytest.CaptureFixture[str]) -> None:
    turns = script(vendor)
    if vendor is OPENAI:  # a patch says each line by itself
        patch = f"*** Begin Patch\n*** Update File: hello.py\n@@\n {HELLO}+print('Goodbye')\n*** End Patch"
        turns[2] = turn(("apply_patch", {"patch": patch}))
    assert run(vendor, turns) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == f"{vendor.name}: {vendor.model}"
    assert [line.split()[0] for line in lines] == [step.__name__ for step in smoke.STEPS]
    assert all(re.search(r" [1-9]\d* tokens  \S+ USD  ok$", line) for line in lines)


@pytest.mark.parametrize("vendor", VENDORS, ids=str)
def test_a_model_that_only_talks_fails_each_step(vendor: Vendor, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(vendor, [turn("I would do that.")] * 7) == 1
    lines = capsys.readouterr().out.splitlines()[1:]
    assert len(lines) == 7
    assert all("failed: " in line for line in lines)


def test_without_keys_all_are_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    assert smoke.main([]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{name}: skipped, because {name.upper()}_API_KEY is not set" for name in smoke.PROFILES
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["nobody"],
        ["--api-url", "http://localhost:1"],
        ["openai", "gemini", "--model", "x"],
        ["openai", "--profile", "gemini"],
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        smoke.main(arguments)
    assert left.value.code == 2
    assert "error: " in capsys.readouterr().err

"""What a session of the assistant and of the explorer does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from orchestrator.core.events import CallStatus, ToolCallEnded
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.policy.command_rules import CommandRules, Level
from orchestrator.engine.profiles.catalog import make_profile
from orchestrator.engine.session.config import EXPLORER, CompactionPolicy, Host, SessionConfig, compaction_of
from orchestrator.engine.session.gate import Gatekeeper
from orchestrator.engine.session.session import Session
from tests.unit.engine.session.stage import ScriptedModel, events_of, says

if TYPE_CHECKING:
    from pathlib import Path


async def test_the_instructions_beside_the_project_are_in_the_prompt(tmp_path: Path) -> None:
    (tmp_path / "PROMPT.md").write_text("Answer in rhymes.")
    model = ScriptedModel([says("Done.")])
    async with Session(
        profile=make_profile("assistant"),
        environment=LocalEnvironment(tmp_path, sandbox="off"),
        model=model,
        config=SessionConfig(user_instructions="Answer in prose."),
    ) as session:
        await session.run("Go")
    system = model.requests[0].system
    assert "PROMPT.md`:\n```\nAnswer in rhymes.\n```" in system
    assert system.index("Answer in rhymes.") < system.index("Answer in prose.")


async def test_an_assistant_writes_finds_changes_and_runs(tmp_path: Path) -> None:
    change = [{"type": "replace", "start_line": 2, "content": "two"}]
    model = ScriptedModel(
        [
            says("", ("file_write", {"file_path": "a.txt", "content": "one\n2\n"})),
            says("", ("file_search", {"search_path": ".", "pattern": "^2$"})),
            says("", ("file_delta", {"file_path": "a.txt", "operations": change})),
            says("", ("shell_execute", {"command": "cat a.txt", "timeout_seconds": 20})),
            says("Done."),
        ]
    )
    async with Session(
        profile=make_profile("assistant"),
        environment=LocalEnvironment(tmp_path, sandbox="off"),
        model=model,
    ) as session:
        events = await events_of(session, "Go")
    ends = [event.event for event in events if isinstance(event.event, ToolCallEnded)]
    assert [end.status for end in ends] == [CallStatus.OK] * 4
    assert ends[1].output == "a.txt:2: 2"
    assert ends[3].output.startswith("one\ntwo\n[exit code 0")


async def test_a_long_output_can_be_read_in_parts_by_file_read(tmp_path: Path) -> None:
    model = ScriptedModel(
        [
            says("", ("shell_execute", {"command": "seq 1 9000"})),
            says("", ("file_read", {"file_path": "output:1", "start_line": 5000, "end_line": 5001})),
            says("Done."),
        ]
    )
    async with Session(
        profile=make_profile("assistant"),
        environment=LocalEnvironment(tmp_path, sandbox="off"),
        model=model,
    ) as session:
        await session.run("Go")
    first, second = (turn for turn in model.requests[-1].messages if turn.role == "tool")
    assert "read that with `file_read` as if it was a file's path, with start_line and end_line" in str(first)
    assert "5000 | 5000" in str(second)


async def test_an_explorer_is_stopped_at_the_third_refusal(tmp_path: Path) -> None:
    chain = says("Hypothesis: x", ("run_command", {"command": "ls && touch made"}))
    model = ScriptedModel([chain] * 5)
    keeper = Gatekeeper(Level.SAFE, CommandRules.parse(["ls *", "touch *"]))
    async with Session(
        profile=make_profile("explorer"),
        environment=LocalEnvironment(tmp_path, sandbox="off"),
        model=model,
        host=Host(gate=keeper, shows=keeper.shows),
    ) as session:
        end = await session.run("Go")
    assert len(model.requests) == 3
    assert "refused" in json.dumps(end.text)
    assert not (tmp_path / "made").exists()


def test_each_has_the_summaries_of_its_document() -> None:
    assert compaction_of("explorer", 0.7) == EXPLORER
    assert compaction_of("assistant", 0.4) == CompactionPolicy(share=0.4)
    assert compaction_of("planner", 0.7).share == 0.7

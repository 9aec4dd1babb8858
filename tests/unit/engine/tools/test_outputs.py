"""Long outputs that are kept under a handle, and read by it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrator.core.messages import ToolResult
from orchestrator.engine.session.config import CompactionPolicy, Host, SessionConfig
from orchestrator.engine.tools.base import Outputs
from tests.tables import table
from tests.unit.engine.session.stage import says, session_in, tool

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.engine.models.base import Request

LINES = "".join(f"line {number}\n" for number in range(1, 9_001))


def last_result(request: Request) -> str:
    return [part for part in request.messages[-1].parts if isinstance(part, ToolResult)][-1].content


async def test_a_cut_output_is_read_by_its_handle(tmp_path: Path) -> None:
    steps = [
        says("", ("look", {})),
        says("", ("read_file", {"file_path": "output:1", "offset": 5_000, "limit": 2})),
        says("", ("read_file", {"file_path": "output:2"})),
        says("Done."),
    ]
    async with session_in(tmp_path, *steps, tools=[tool("look", lambda _arguments: LINES)]) as (
        session,
        model,
    ):
        await session.run("Look")
    cut, part, unknown = (last_result(request) for request in model.requests[1:])
    assert "line 5000\n" not in cut
    assert cut.endswith("as if it was a file's path, with offset and limit.]")
    assert "All 9001 lines are kept as `output:1`" in cut
    assert part.startswith("5000 | line 5000\n5001 | line 5001\n[lines 5000 to 5001 of 9000")
    assert re.search("no file|does not exist|not found", unknown, re.IGNORECASE)
    assert list(tmp_path.iterdir()) == []  # nothing is on the disk


async def test_what_is_read_by_a_handle_is_cleaned_as_any_answer(tmp_path: Path) -> None:
    steps = [
        says("", ("look", {})),
        says("", ("read_file", {"file_path": "output:1", "offset": 1, "limit": 1})),
        says("Done."),
    ]
    host = Host(system=lambda _shown: "x", clean=lambda _what, text: text.replace("line", "[hidden]"))
    look = tool("look", lambda _arguments: LINES)
    async with session_in(tmp_path, *steps, tools=[look], host=host) as (session, model):
        await session.run("Look")
    assert last_result(model.requests[2]).startswith("1 | [hidden] 1\n")


async def test_in_a_small_window_one_answer_takes_an_eighth_of_it(tmp_path: Path) -> None:
    steps = [says("", ("look", {})), says("", ("read_file", {"file_path": "big.txt"})), says("Done.")]
    (tmp_path / "big.txt").write_text(LINES)
    config = SessionConfig(compaction=CompactionPolicy(share=0.5), context_window=8_000)
    look = tool("look", lambda _arguments: LINES)
    async with session_in(tmp_path, *steps, tools=[look], config=config) as (session, model):
        await session.run("Look")
    for request, is_kept in ((model.requests[1], True), (model.requests[2], False)):
        assert len(last_result(request)) < 4_000 + 500
        assert ("`output:" in last_result(request)) is is_kept  # a file can be read again


def test_the_oldest_outputs_go_first() -> None:
    outputs = Outputs(most_chars=10)
    handles = [outputs.keep(text) for text in ("aaaa", "bbbb", "cccc")]
    assert handles == ["output:1", "output:2", "output:3"]
    assert [outputs.get(str(handle)) for handle in handles] == [None, "bbbb", "cccc"]
    assert outputs.keep("d" * 11) is None


@table(
    "path, text",
    [
        ("output:1", "x"),
        ("./output:1", "x"),
        (" output:1\n", "x"),
        ("output:2", None),
        ("output:01", None),
        ("a/output:1", None),
        ("output:1/..", None),
        ("", None),
    ],
)
def test_only_a_handle_names_an_output(path: str, text: str | None) -> None:
    outputs = Outputs()
    outputs.keep("x")
    assert outputs.get(path) == text

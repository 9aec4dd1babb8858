"""The tools of the one-step agent specification, as a model calls them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import ToolError
from orchestrator.engine.tools.base import Ends, ToolContext
from orchestrator.engine.tools.registry import argument_problems
from orchestrator.engine.tools.step_set import grep_files, list_dir, read_file, shell_command, submit
from tests.unit.engine.tools.test_core_set import checked, failure, told

if TYPE_CHECKING:
    from pathlib import Path


async def test_submit_ends_the_session_with_the_answer(context: ToolContext) -> None:
    assert await checked(submit(), context, {"answer": "42\n"}) == Ends("finish", "42\n")


@pytest.mark.parametrize(
    ("rest", "answer"),
    [
        ({}, "a (0 bytes)\nb/\nc (0 bytes)"),
        ({"limit": 2}, "a (0 bytes)\nb/\n[entries 1 to 2 of 3; go on with offset 3]"),
        ({"offset": 3}, "c (0 bytes)\n[entries 3 to 3 of 3]"),
        ({"offset": 2, "limit": 1, "depth": 2}, "b/\n[entries 2 to 2 of 4; go on with offset 3]"),
        ({"depth": 2}, "a (0 bytes)\nb/\nb/d (0 bytes)\nc (0 bytes)"),
        ({"offset": 4}, "src has 3 entries, so there is nothing from entry 4 on."),
    ],
)
async def test_pages_of_a_folder(
    rest: dict[str, int], answer: str, context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "src/b").mkdir(parents=True)
    for name in ("a", "c", "b/d"):
        (tmp_path / "src" / name).touch()
    assert await told(list_dir(), context, dir_path="src", **rest) == answer


async def test_a_page_has_100_entries_by_default(context: ToolContext, tmp_path: Path) -> None:
    assert await told(list_dir(), context, dir_path=".") == ". is an empty folder."
    for number in range(101):
        (tmp_path / f"{number}").touch()
    answer = await told(list_dir(), context, dir_path=".")
    assert answer.endswith("[entries 1 to 100 of 101; go on with offset 101]")


@pytest.mark.parametrize("name", ["offset", "limit", "depth"])
async def test_numbers_count_from_one(name: str, context: ToolContext) -> None:
    for tool, path in ((list_dir(), "dir_path"), (read_file(), "file_path"), (grep_files(), "pattern")):
        if name in tool.definition.parameters["properties"]:
            assert argument_problems({path: "a", name: 0}, tool.definition)
    with pytest.raises(ToolError, match="from 1"):
        await list_dir().execute({"dir_path": ".", name: -1}, context)


async def test_grep_files(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\nTwo\nthree\n")
    (tmp_path / "b.md").write_text("one\n")
    assert await told(grep_files(), context, pattern="one") == "a.py:1: one\nb.md:1: one"
    assert await told(grep_files(), context, pattern="one", include="*.md") == "b.md:1: one"
    assert await told(grep_files(), context, pattern="T|t", path="a.py") == "a.py:2: Two\na.py:3: three"
    assert await told(grep_files(), context, pattern="one", limit=1) == (
        "a.py:1: one\n[there are more than these 1 matches: narrow the search, or set limit]"
    )


async def test_a_command_runs_in_the_folder_named(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "file").touch()
    root = context.environment.working_directory()
    assert (await told(shell_command(), context, command="pwd")).startswith(f"{root}\n")
    for workdir in ("src", f"{root}/src"):
        assert (await told(shell_command(), context, command="pwd", workdir=workdir)).startswith(
            f"{root}/src\n"
        )
    for workdir, reason in (("nope", "does not exist"), ("file", "not a folder"), ("..", "refused")):
        assert reason in await failure(shell_command(), context, command="pwd", workdir=workdir)


@pytest.mark.parametrize(
    ("most", "shown"),
    [
        (26, "abcdefghijklmnopqrstuvwxyz\n"),
        (5, "ab\n[... 21 characters left out, as max_output_chars asks ...]\nxyz\n"),
        (1, "\n[... 25 characters left out, as max_output_chars asks ...]\nz\n"),
    ],
)
async def test_output_is_cut_to_what_is_asked_but_not_its_ending(
    most: int, shown: str, context: ToolContext
) -> None:
    arguments = {"command": "printf abcdefghijklmnopqrstuvwxyz", "max_output_chars": most}
    answer = await told(shell_command(), context, **arguments)
    assert re.fullmatch(re.escape(shown) + r"\[exit code 0, \d+\.\d s\]", answer)

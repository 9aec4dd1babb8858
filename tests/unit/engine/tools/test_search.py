"""list_dir, grep and glob, as a model sees their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.errors import FileMissingError, PathRefusedError, ToolError
from orchestrator.engine.tools.base import Ok, Tool, ToolContext
from orchestrator.engine.tools.search import MAX_ENTRIES, glob, grep, list_dir

if TYPE_CHECKING:
    from pathlib import Path


async def ask(tool: Tool, context: ToolContext, **arguments: Any) -> str:
    outcome = await tool.execute(arguments, context)
    assert isinstance(outcome, Ok)
    return outcome.output


async def test_list_dir(context: ToolContext, tmp_path: Path) -> None:
    assert await ask(list_dir(), context) == ". is an empty folder."
    (tmp_path / "src/deep").mkdir(parents=True)
    (tmp_path / "src/a.py").write_text("x" * 1_234)
    assert await ask(list_dir(), context) == "src/"
    assert await ask(list_dir(), context, path="src") == "a.py (1,234 bytes)\ndeep/"
    assert await ask(list_dir(), context, depth=2) == "src/\nsrc/a.py (1,234 bytes)\nsrc/deep/"
    assert await ask(list_dir(), context, path="src/deep") == "src/deep is an empty folder."
    with pytest.raises(FileMissingError):
        await ask(list_dir(), context, path="nope")
    with pytest.raises(PathRefusedError):
        await ask(list_dir(), context, path=".git")


async def test_a_large_folder_is_listed_in_part(context: ToolContext, tmp_path: Path) -> None:
    for number in range(MAX_ENTRIES + 5):
        (tmp_path / f"{number}").touch()
    lines = (await ask(list_dir(), context)).splitlines()
    assert len(lines) == MAX_ENTRIES + 1
    assert lines[-1].startswith("[5 more entries")


async def test_grep(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("One\ntwo one\nthree\n")
    assert await ask(grep(), context, pattern="one") == "a.py:2: two one"
    assert await ask(grep(), context, pattern="one", case_insensitive=True) == "a.py:1: One\na.py:2: two one"
    assert await ask(grep(), context, pattern="one", glob_filter="*.md") == "No line matches."


async def test_grep_says_when_there_is_more(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x\n" * 3)
    assert await ask(grep(), context, pattern="x", max_results=2) == (
        "a.py:1: x\na.py:2: x\n[there are more than these 2 matches: narrow the search, or set max_results]"
    )
    assert await ask(grep(), context, pattern="x", max_results=3) == "a.py:1: x\na.py:2: x\na.py:3: x"


async def test_glob(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.py").touch()
    assert await ask(glob(), context, pattern="**/*.py") == "src/a.py"
    assert await ask(glob(), context, pattern="*.py", path="src") == "src/a.py"
    assert await ask(glob(), context, pattern="*.py") == "No file matches."
    told = await ask(glob(), context, pattern="src/**.none")
    assert told == "No file matches. `**` stands for folders only as a whole name, as in `src/**/*.py`."
    root = context.environment.working_directory()
    assert await ask(glob(), context, pattern=f"{root}/none") == "No file matches."
    with pytest.raises(ToolError, match="is not valid: '\\['"):
        await ask(glob(), context, pattern="[")

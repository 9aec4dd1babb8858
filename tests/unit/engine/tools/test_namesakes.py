"""What a tool says of a path that leads nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import FileMissingError
from orchestrator.engine.tools.base import Failed, ToolContext
from orchestrator.engine.tools.edit import edit_file
from orchestrator.engine.tools.files import read_file

if TYPE_CHECKING:
    from pathlib import Path


async def message(context: ToolContext, path: str) -> str:
    arguments = {"path": path, "old_text": "a", "new_text": "b"}
    outcome = await edit_file().execute(arguments, context)
    assert isinstance(outcome, Failed)
    with pytest.raises(FileMissingError) as caught:
        await read_file().execute({"path": path}, context)
    hint = str(caught.value).partition(" does not exist.")[2]
    assert hint in outcome.message
    return hint


async def test_files_of_the_same_name_are_named(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "calc.py").write_text("a\n")
    assert await message(context, "src/calc.py") == " Did you mean calc.py?"
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "calc.py").write_text("a\n")
    hint = await message(context, "src/calc.py")
    assert "lib/calc.py" in hint
    assert " or " in hint


async def test_without_a_namesake_nothing_is_suggested(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("a\n")
    assert await message(context, "[x].py") == ""
    assert await message(context, "*.py") == ""


async def test_an_ignored_file_is_not_suggested(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("build/\n")
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "calc.py").write_text("a\n")
    assert await message(context, "calc.py") == ""

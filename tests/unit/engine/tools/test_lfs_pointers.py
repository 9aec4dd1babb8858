"""A pointer of Git LFS is shown as one, and no part of it is edited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.errors import ToolError
from orchestrator.engine.tools.base import Ok
from orchestrator.engine.tools.edit import edit_file
from orchestrator.engine.tools.file_suite import file_suite
from orchestrator.engine.tools.files import overwrite_text, read_file, read_text_or_image
from orchestrator.engine.tools.patches import apply_patch, apply_unified_patch

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.engine.tools.base import ToolContext

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "a" * 64 + "\nsize 12345\n"
V4A = "*** Begin Patch\n*** Update File: a.bin\n@@\n-size 12345\n+size 9\n*** End Patch"
UNIFIED = "--- a/a.bin\n+++ b/a.bin\n@@ -3 +3 @@\n-size 12345\n+size 9\n"
SAID = "is a pointer of Git LFS: the file's own content (12,345 bytes) is not here"


@pytest.fixture(autouse=True)
def pointer(tmp_path: Path) -> Path:
    path = tmp_path / "a.bin"
    path.write_text(POINTER)
    return path


@pytest.mark.parametrize("tool", [read_file, read_text_or_image])
async def test_reading_says_what_it_is(context: ToolContext, tool: Any) -> None:
    made = tool()
    name = next(iter(made.definition.parameters["properties"]))
    outcome = await made.execute({name: "a.bin"}, context)
    assert isinstance(outcome, Ok)
    assert "size 12345" in outcome.output
    assert f"[this {SAID}" in outcome.output


def _suite(name: str) -> Any:
    return next(tool for tool in file_suite() if tool.name == name)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (edit_file(), {"path": "a.bin", "old_text": "size 12345", "new_text": "size 9"}),
        (apply_patch(), {"patch": V4A}),
        (apply_unified_patch(), {"patch": UNIFIED}),
        (_suite("file_append"), {"file_path": "a.bin", "content": "more\n"}),
        (
            _suite("file_delta"),
            {"file_path": "a.bin", "operations": [{"type": "replace", "start_line": 3, "content": "size 9"}]},
        ),
    ],
    ids=["edit_file", "v4a", "unified", "file_append", "file_delta"],
)
async def test_no_part_of_it_is_edited(
    context: ToolContext, pointer: Path, tool: Any, arguments: dict[str, Any]
) -> None:
    try:
        outcome = await tool.execute(arguments, context)
    except ToolError as error:
        outcome = error
    assert SAID in str(getattr(outcome, "output", outcome))
    assert pointer.read_text() == POINTER


async def test_it_is_replaced_by_a_whole_content(context: ToolContext, pointer: Path) -> None:
    assert isinstance(await overwrite_text(context, "a.bin", "new content\n"), Ok)
    assert pointer.read_text() == "new content\n"

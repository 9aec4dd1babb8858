"""The basic tools over every environment: the same words wherever they act."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.engine.tools.base import Failed, Ledger, Ok, Tool, ToolContext
from orchestrator.engine.tools.edit import edit_file, edit_string
from orchestrator.engine.tools.files import (
    overwrite_file,
    read_file,
    read_many_files,
    read_text_or_image,
    write_file,
)
from orchestrator.engine.tools.patches import apply_patch, apply_unified_patch
from orchestrator.engine.tools.search import glob, grep, grep_files, list_dir, list_dir_in_pages
from orchestrator.engine.tools.shell import run_shell_command, shell, shell_command

if TYPE_CHECKING:
    from orchestrator.engine.environments.base import ExecutionEnvironment

PATCH = """\
*** Begin Patch
*** Update File: src/a.py
@@
 one
-2
+zwei
*** End Patch
"""

DIFF = """\
--- a/src/a.py
+++ b/src/a.py
@@ -1,2 +1,2 @@
 eins
-two
+zwei
"""
PNG = b"\x89PNG\r\n\x1a\n made up"


async def test_tools_act_alike_everywhere(environment: ExecutionEnvironment) -> None:
    printed: list[str] = []
    context = ToolContext(environment, Ledger(), printed.append)

    async def call(tool: Tool, **arguments: Any) -> str:
        outcome = await tool.execute(arguments, context)
        assert isinstance(outcome, Ok), outcome
        return outcome.output

    await call(write_file(), path="src/a.py", content="one\ntwo\n")
    assert "two" in await call(read_file(), path="src/a.py")
    assert "Edited src/a.py" in await call(edit_file(), path="src/a.py", old_text="two", new_text="2")
    assert await call(list_dir(), path=".", depth=2) == "src/\nsrc/a.py (6 bytes)"
    assert "src/a.py:2: 2" in await call(grep(), pattern="[0-9]")
    assert await call(glob(), pattern="**/*.py") == "src/a.py"
    assert "exit code 0" in await call(run_shell_command(), command="cat src/a.py")
    assert "".join(printed) == "one\n2\n"
    await call(apply_patch(), patch=PATCH)
    assert await environment.read_file("src/a.py", max_bytes=100) == b"one\nzwei\n"
    await call(apply_patch(), patch="*** Begin Patch\n*** Delete File: src/a.py\n*** End Patch\n")
    assert not await environment.file_exists("src/a.py")
    failed = await run_shell_command().execute({"command": "sleep 60", "timeout_ms": 100}, context)
    assert isinstance(failed, Failed)
    assert "timed out after 100ms" in failed.message


async def test_the_tools_of_the_profiles_act_alike_everywhere(environment: ExecutionEnvironment) -> None:
    context = ToolContext(environment, Ledger(), lambda _: None)

    async def call(tool: Tool, **arguments: Any) -> Ok:
        outcome = await tool.execute(arguments, context)
        assert isinstance(outcome, Ok), outcome
        return outcome

    await call(overwrite_file(), file_path="src/a.py", content="one\ntwo\n")
    await environment.write_file("src/b.png", PNG)
    assert "2 | two" in (await call(read_text_or_image(), file_path="src/a.py", offset=2)).output
    several = await call(read_many_files(), paths=["src/*"])
    assert "=== src/a.py ===" in several.output
    assert [image.data for image in several.images] == [PNG]
    assert (await call(read_text_or_image(), file_path="src/b.png")).images[0].media_type == "image/png"
    change = {"file_path": "src/a.py", "old_string": "one"}
    await call(edit_string(), **change, new_string="1")
    await call(edit_string(counted=True), **{**change, "old_string": "1"}, new_string="eins")
    await call(apply_unified_patch(), patch=DIFF)
    assert await environment.read_file("src/a.py", max_bytes=100) == b"eins\nzwei\n"
    assert "src/a.py" in (await call(grep("core/grep"), pattern="^e", glob_filter="*.py")).output
    assert (
        await call(grep("core/grep", output_modes=True), pattern="^e", output_mode="count")
    ).output == "src/a.py:1"
    assert "src/a.py" in (await call(grep_files(), pattern="^e", include="*.py")).output
    assert "src/a.py" in (await call(glob("core/glob"), pattern="*.py", path="src")).output
    assert "a.py" in (await call(list_dir("core/list_dir", needs_path=True), path="src")).output
    assert "a.py" in (await call(list_dir_in_pages(), dir_path="src")).output
    assert "zwei" in (await call(shell(), command="cat src/a.py")).output
    assert "zwei" in (await call(shell_command(), command="cat a.py", workdir="src")).output

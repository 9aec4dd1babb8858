"""The tools of the two specifications of coding agents, as a model calls them."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from orchestrator.core.errors import FileMissingError, FileUnreadableError, ToolError
from orchestrator.engine.tools import control, edit, files
from orchestrator.engine.tools.base import (
    CommandTimes,
    Ends,
    Failed,
    Ok,
    Order,
    Tool,
    ToolContext,
    ToolOutcome,
)
from orchestrator.engine.tools.control import submit
from orchestrator.engine.tools.edit import edit_string
from orchestrator.engine.tools.files import overwrite_file, read_many_files, read_text_or_image
from orchestrator.engine.tools.registry import argument_problems
from orchestrator.engine.tools.search import glob, grep, grep_files, list_dir, list_dir_in_pages
from orchestrator.engine.tools.shell import shell, shell_command
from tests.tables import table

if TYPE_CHECKING:
    from pathlib import Path


async def told(tool: Tool, context: ToolContext, **arguments: Any) -> str:
    """The answer to a call that is valid and goes well."""
    outcome = await checked(tool, context, arguments)
    assert isinstance(outcome, Ok), outcome
    return outcome.output


async def failure(tool: Tool, context: ToolContext, **arguments: Any) -> str:
    """The answer to a call that is valid and does not."""
    try:
        outcome = await checked(tool, context, arguments)
    except ToolError as error:
        return str(error)
    assert isinstance(outcome, Failed), outcome
    return outcome.message


async def checked(tool: Tool, context: ToolContext, arguments: dict[str, Any]) -> ToolOutcome:
    assert argument_problems(arguments, tool.definition) == ()
    return await tool.execute(arguments, context)


SCHEMAS = [
    (read_text_or_image(), "file_path", "offset limit"),
    (read_many_files(), "paths", ""),
    (overwrite_file(), "file_path content", ""),
    (edit_string(), "file_path old_string new_string", "replace_all"),
    (edit_string(counted=True), "file_path old_string new_string", "expected_replacements"),
    (shell(), "command", "timeout_ms description"),
    (grep("core/grep"), "pattern", "path glob_filter case_insensitive max_results"),
    (
        grep("core/grep", output_modes=True),
        "pattern",
        "path glob_filter case_insensitive max_results output_mode",
    ),
    (glob("core/glob"), "pattern", "path"),
    (list_dir("core/list_dir", needs_path=True), "path", "depth"),
    (shell_command(), "command", "workdir timeout_ms max_output_chars"),
    (read_text_or_image(), "file_path", "offset limit"),
    (list_dir_in_pages(), "dir_path", "offset limit depth"),
    (grep_files(), "pattern", "path include limit"),
    (submit(), "answer", ""),
]


@table(("tool", "required", "optional"), SCHEMAS, ids=lambda value: getattr(value, "name", ""))
def test_parameters_are_those_of_the_specifications(tool: Tool, required: str, optional: str) -> None:
    schema = tool.definition.parameters
    Draft202012Validator.check_schema(schema)
    assert schema["required"] == required.split()
    assert list(schema["properties"]) == required.split() + optional.split()
    assert schema["additionalProperties"] is False
    assert all(len(parameter["description"]) > 10 for parameter in schema["properties"].values())
    assert len(tool.definition.description) > 40


async def no_host(*_words: str) -> Any:
    raise AssertionError


def test_what_is_dangerous_and_what_runs_beside_what() -> None:
    tools = [tool for tool, _, _ in SCHEMAS]
    assert {tool.name for tool in tools if tool.dangerous} == {"shell", "shell_command"}
    tools += [
        files.write_file(),
        edit.edit_file(),
        files.read_file(),
        control.ask_question(),
        control.finish(no_host),
        control.create_pull_request(no_host),
    ]
    by_order = {order: {tool.name for tool in tools if tool.order is order} for order in Order}
    assert by_order[Order.ALONE] == {"write_file", "edit_file"}
    assert by_order[Order.LAST] == {"submit", "ask_question", "finish", "create_pull_request"}
    assert not by_order[Order.TOGETHER] & (by_order[Order.ALONE] | by_order[Order.LAST])


async def test_absolute_paths_inside_are_taken(context: ToolContext, tmp_path: Path) -> None:
    root = context.environment.working_directory()
    await told(overwrite_file(), context, file_path=f"{root}/src/a.py", content="one\n")
    assert (tmp_path / "src/a.py").read_text() == "one\n"
    assert await told(read_text_or_image(), context, file_path=f"{root}/src/a.py") == "1 | one"
    edited = {"file_path": f"{root}/src/a.py", "old_string": "one", "new_string": "two"}
    await told(edit_string(), context, **edited)
    assert await told(grep("core/grep"), context, pattern="two", path=f"{root}/src") == "src/a.py:1: two"
    assert await told(glob("core/glob"), context, pattern=f"{root}/**/*.py") == "src/a.py"
    assert await told(glob("core/glob"), context, pattern="*.py", path=f"{root}/src") == "src/a.py"
    assert (
        await told(list_dir("core/list_dir", needs_path=True), context, path=f"{root}/src")
        == "a.py (4 bytes)"
    )
    assert "=== src/a.py ===" in await told(read_many_files(), context, paths=[f"{root}/src/*.py"])
    assert context.ledger.touched == {"src/a.py"}


async def test_errors_name_the_path_as_it_was_written(context: ToolContext, tmp_path: Path) -> None:
    root = context.environment.working_directory()
    (tmp_path / "bin").write_bytes(b"\0\0")
    (tmp_path / "twice").write_text("a\na\n")
    change = {"old_string": "a", "new_string": "b"}
    for path in (f"{root}/nope.py", "./nope.py"):
        for tool, rest in (
            (read_text_or_image(), {}),
            (edit_string(), change),
        ):
            assert f"{path} does not exist" in await failure(tool, context, file_path=path, **rest)
        assert path in await failure(list_dir("core/list_dir", needs_path=True), context, path=path)
        assert path in await failure(grep("core/grep"), context, pattern="x", path=path)
        assert path in await failure(glob("core/glob"), context, pattern="x", path=path)
        assert f"{path} does not exist" in await failure(read_many_files(), context, paths=[path])
    (tmp_path / "folder").mkdir()
    for tool, rest in ((read_text_or_image(), {}), (overwrite_file(), {"content": "x"})):
        assert f"{root}/folder is a folder" in await failure(
            tool, context, file_path=f"{root}/folder", **rest
        )
    for name, reason in (("bin", "binary"), ("twice", "2 times")):
        message = await failure(edit_string(), context, file_path=f"{root}/{name}", **change)
        assert f"{root}/{name}" in message
        assert reason in message


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (None, "a\nb", b"a\nb"),
        (b"a\n", "x\n", b"x\n"),
        (b"a\n", "x", b"x\n"),
        (b"a", "x\n", b"x\n"),
        (b"a\n", "", b""),
        (b"a\r\nb\r\n", "x\ny", b"x\r\ny\r\n"),
        (b"a\r\nb\n", "x\ny\n", b"x\r\ny\n"),
        (b"\xef\xbb\xbfa\r\n", "x\n", b"\xef\xbb\xbfx\r\n"),
        (b"\xef\xbb\xbfa\n", "\ufeffx\n", b"\xef\xbb\xbfx\n"),
        (b"", "x", b"x"),
        (b"caf\xe9\n", "x", b"x\n"),
        (b"\0\n", "x", b"x"),
    ],
)
async def test_what_a_write_keeps(
    before: bytes | None, content: str, after: bytes, context: ToolContext, tmp_path: Path
) -> None:
    path = tmp_path / "new/a.txt"
    if before is not None:
        path.parent.mkdir()
        path.write_bytes(before)
        path.chmod(0o755)
    done = await told(overwrite_file(), context, file_path="new/a.txt", content=content)
    assert path.read_bytes() == after
    verb = "Created" if before is None else "Replaced"
    assert f"{verb} new/a.txt: {len(after)} bytes" in done
    assert ("line end after the last line was kept" in done) == (
        not content.endswith("\n") and after[-1:] == b"\n"
    )
    if before is not None:
        assert path.stat().st_mode & 0o777 == 0o755
    assert context.ledger.touched == context.ledger.shown == {"new/a.txt"}


async def test_what_is_not_written(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with (tmp_path / "large").open("wb") as file:
        file.truncate(50_000_001)
    for path, reason in (
        ("folder", "folder"),
        ("large", "50,000,001 bytes"),
        (".git/config", ".git"),
        ("../out", "leaves"),
        ("a/", "names a folder"),
    ):
        assert reason in await failure(overwrite_file(), context, file_path=path, content="x")
    assert "NUL" in await failure(overwrite_file(), context, file_path="a", content="\0")
    assert context.ledger.touched == set()


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [True, False])
async def test_what_an_edit_keeps(
    mark: bytes,
    end: bytes,
    last: bool,  # noqa: FBT001  a table
    context: ToolContext,
    tmp_path: Path,
) -> None:
    def made(*lines: bytes) -> bytes:
        return mark + end.join(lines) + (end if last else b"")

    (tmp_path / "a").write_bytes(made(b"one", b"two", b"three"))
    (tmp_path / "a").chmod(0o750)
    arguments = {"file_path": "a", "old_string": "two\nthree", "new_string": "2\n3\n4"}
    done = await told(edit_string(), context, **arguments)
    assert (tmp_path / "a").read_bytes() == made(b"one", b"2", b"3", b"4")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o750
    assert "Edited a at line 2 (1 replacement)." in done
    assert "not there exactly" not in done


async def test_the_words_of_edit_file_are_those_of_its_parameters(
    context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("x = 1\ny = 2\nx = 1\n")

    async def edited(old: str, new: str, **rest: Any) -> str:
        return await failure(edit_string(), context, file_path="a", old_string=old, new_string=new, **rest)

    assert await edited("x = 1", "z") == (
        "old_string is in a 2 times, at line 1, 3. Add lines around it until it is there once, or set replace_all."
    )
    missing = await edited("y  =  2", "z")
    assert "old_string is not in a. The nearest is this" in missing
    assert "2 | y = 2" in missing
    assert "old_string and new_string are the same" in await edited("y", "y")
    assert "old_string is empty" in await edited("", "y")
    assert "old_string has a NUL" in await edited("\0", "y")
    assert (tmp_path / "a").read_text() == "x = 1\ny = 2\nx = 1\n"
    many = {"file_path": "a", "old_string": "x = 1", "new_string": "x = 2", "replace_all": True}
    assert "2 places, the first at line 1 (2 replacements)" in await told(edit_string(), context, **many)
    assert (tmp_path / "a").read_text() == "x = 2\ny = 2\nx = 2\n"


@pytest.mark.parametrize(
    ("expected", "problem"),
    [
        (None, "set expected_replacements to their number"),
        (1, "set expected_replacements to their number"),
        (2, ""),
        (2.0, ""),
        (3, "old_string is in a 2 times, not 3, at line 1, 3. Nothing was changed."),
    ],
)
async def test_the_number_of_replacements_expected(
    expected: float | None, problem: str, context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("x\ny\nx\n")
    arguments: dict[str, Any] = {"file_path": "a", "old_string": "x", "new_string": "z"}
    if expected is not None:
        arguments["expected_replacements"] = expected
    tool = edit_string(counted=True)
    if problem:
        assert problem in await failure(tool, context, **arguments)
    else:
        assert "(2 replacements)" in await told(tool, context, **arguments)
    assert (tmp_path / "a").read_text() == ("x\ny\nx\n" if problem else "z\ny\nz\n")


async def test_an_empty_old_string_creates(context: ToolContext, tmp_path: Path) -> None:
    arguments = {"file_path": "new/a", "old_string": "", "new_string": "x\n"}
    await told(edit_string(), context, **arguments)
    assert (tmp_path / "new/a").read_text() == "x\n"


@pytest.mark.parametrize(
    ("asked", "times", "used"),
    [
        (None, CommandTimes(200, 600_000), 200),
        (150.0, CommandTimes(60_000, 600_000), 150),
        (600_000, CommandTimes(60_000, 150), 150),
        (None, CommandTimes(60_000, 150), 150),
    ],
)
@pytest.mark.parametrize("tool", [shell(), shell_command()])
async def test_how_long_a_command_may_run(
    tool: Tool, asked: float | None, times: CommandTimes, used: int, context: ToolContext
) -> None:
    arguments = {"command": "printf early; sleep 60"} | ({} if asked is None else {"timeout_ms": asked})
    message = await failure(tool, replace(context, times=times), **arguments)
    assert message == (
        f"early\n[ERROR: Command timed out after {used}ms. Partial output is shown above. You can retry with a longer "
        "timeout by setting the timeout_ms parameter.]"
    )


def test_a_command_may_run_for_10_seconds_by_default_and_10_minutes_at_most() -> None:
    assert CommandTimes() == CommandTimes(10_000, 600_000)


async def test_shell_shows_output_exit_code_and_duration(context: ToolContext) -> None:
    ok = await told(shell(), context, command="echo out; echo err >&2", description="try")
    assert re.fullmatch(r"(out\nerr|err\nout)\n\[exit code 0, \d+\.\d s\]", ok)
    assert "[exit code 127" in await failure(shell(), context, command="no-such-program-here")
    assert "wrong\n[exit code 3" in await failure(shell(), context, command="echo wrong; exit 3")
    assert "a\ufffdb" in await told(shell(), context, command=r"printf 'a\377b'")
    for command in (" ", "echo \0", "echo \ud83d"):
        await failure(shell(), context, command=command)


async def test_grep_in_its_modes(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\nOne\nthree one\n")
    (tmp_path / "b.md").write_text("one\n")
    (tmp_path / "c.md").write_text("two\n")
    tool = grep("core/grep", output_modes=True)
    content = "a.py:1: one\na.py:3: three one\nb.md:1: one"
    assert await told(tool, context, pattern="one") == content
    assert await told(tool, context, pattern="one", output_mode="content") == content
    assert await told(tool, context, pattern="one", output_mode="files_with_matches") == "a.py\nb.md"
    assert await told(tool, context, pattern="one", output_mode="count") == "a.py:2\nb.md:1"
    folded = {"pattern": "one", "case_insensitive": True, "output_mode": "count"}
    assert await told(tool, context, **folded) == "a.py:3\nb.md:1"
    assert await told(tool, context, pattern="one", glob_filter="*.md", output_mode="count") == "b.md:1"
    first = {"pattern": "one", "max_results": 1}
    more_files = "\n[1 more files: narrow the search, or set max_results]"
    assert await told(tool, context, **first, output_mode="count") == f"a.py:2{more_files}"
    assert await told(tool, context, **first) == (
        "a.py:1: one\n[there are more than these 1 matches: narrow the search, or set max_results]"
    )
    for mode in ("content", "files_with_matches", "count"):
        assert await told(tool, context, pattern="four", output_mode=mode) == "No line matches."
    assert argument_problems({"pattern": "x", "output_mode": "lines"}, tool.definition)


async def test_counting_stops_at_50000_lines_and_says_so(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\n" * 49_999)
    (tmp_path / "b").write_text("x\n" * 2)
    tool = grep("core/grep", output_modes=True)
    assert await told(tool, context, pattern="x", output_mode="count") == (
        "a:49999\nb:1\n[the search stopped at 50,000 matching lines: narrow it]"
    )


async def test_grep_shows_100_lines_by_default(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\n" * 101)
    assert len((await told(grep("core/grep"), context, pattern="x")).splitlines()) == 101
    assert "more than these 100 matches" in await told(grep("core/grep"), context, pattern="x")


async def test_glob_begins_with_the_newest(context: ToolContext, tmp_path: Path) -> None:
    for age, name in enumerate(("new.py", "middle.py", "old.py")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1_000_000 - age, 1_000_000 - age))
    assert await told(glob("core/glob"), context, pattern="*.py") == "new.py\nmiddle.py\nold.py"


async def test_list_dir_goes_as_deep_as_asked(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    assert await told(list_dir("core/list_dir", needs_path=True), context, path=".") == "a/"
    assert await told(list_dir("core/list_dir", needs_path=True), context, path=".", depth=2.0) == "a/\na/b/"


@pytest.mark.parametrize("tool", [grep("core/grep"), grep("core/grep", output_modes=True), grep_files()])
async def test_a_search_that_cannot_be_done(tool: Tool, context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "bin").write_bytes(b"match\0me\n")
    (tmp_path / "utf16").write_bytes("match\n".encode("utf-16"))
    with (tmp_path / "large").open("wb") as file:
        file.truncate(50_000_001)
    assert "not a valid regular expression" in await failure(tool, context, pattern="(")
    with pytest.raises(FileMissingError):
        await tool.execute({"pattern": "x", "path": "nope"}, context)
    assert "bin is a binary file" in await failure(tool, context, pattern="match", path="bin")
    assert "50,000,001 bytes" in await failure(tool, context, pattern="x", path="large")
    assert await told(tool, context, pattern="nothing", path="utf16") == "No line matches."
    assert await told(tool, context, pattern="nothing") == "No line matches."
    assert "not empty" in await failure(tool, context, pattern="")


async def test_patterns_that_make_no_sense(context: ToolContext) -> None:
    assert "not relative" in await failure(glob("core/glob"), context, pattern="/etc/*")
    assert "empty" in await failure(glob("core/glob"), context, pattern="")
    with pytest.raises(FileMissingError):
        await glob("core/glob").execute({"pattern": "*", "path": "nope"}, context)


async def test_a_folder_or_a_pipe_is_no_file(context: ToolContext, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in (("pipe", "a named pipe"), (".", "folder")):
        assert kind in await failure(read_text_or_image(), context, file_path=path)
    with pytest.raises(FileUnreadableError, match="not a folder"):
        await list_dir("core/list_dir", needs_path=True).execute({"path": "pipe"}, context)


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
    assert await told(list_dir_in_pages(), context, dir_path="src", **rest) == answer


async def test_a_page_has_100_entries_by_default(context: ToolContext, tmp_path: Path) -> None:
    assert await told(list_dir_in_pages(), context, dir_path=".") == ". is an empty folder."
    for number in range(101):
        (tmp_path / f"{number}").touch()
    answer = await told(list_dir_in_pages(), context, dir_path=".")
    assert answer.endswith("[entries 1 to 100 of 101; go on with offset 101]")


@pytest.mark.parametrize("name", ["offset", "limit", "depth"])
def test_numbers_count_from_one(name: str) -> None:
    for tool, path in (
        (list_dir_in_pages(), "dir_path"),
        (read_text_or_image(), "file_path"),
        (grep_files(), "pattern"),
    ):
        if name in tool.definition.parameters["properties"]:
            for number in (0, -1):
                assert argument_problems({path: "a", name: number}, tool.definition)


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

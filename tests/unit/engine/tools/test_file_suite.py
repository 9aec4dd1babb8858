"""The file tools of the assistant specification, and its shell tool, as a model calls them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import FileMissingError, ToolError
from orchestrator.engine.tools.base import Failed, Ok, Order, Tool, ToolContext
from orchestrator.engine.tools.file_suite import (
    MAX_BYTES,
    _read_operations,
    file_append,
    file_delta,
    file_info,
    file_list,
    file_read,
    file_search,
    file_suite,
    file_write,
)
from orchestrator.engine.tools.registry import argument_problems
from orchestrator.engine.tools.shell import run_reading_command, shell_execute
from tests.tables import table

if TYPE_CHECKING:
    from pathlib import Path

PARAMETERS = [
    (file_read(), "file_path", "start_line end_line max_tokens"),
    (file_write(), "file_path content", "create_backup"),
    (file_append(), "file_path content", ""),
    (file_list(), "directory_path", "pattern include_hidden"),
    (file_search(), "search_path pattern", "case_sensitive max_tokens max_results"),
    (file_info(), "file_path", ""),
    (file_delta(), "file_path operations", "create_backup"),
    (shell_execute(), "command", "working_directory timeout_seconds capture_stderr"),
    (run_reading_command(), "command", ""),
]


async def answer(tool: Tool, context: ToolContext, **arguments: Any) -> str:
    """What the model is told, of a call that fails too."""
    assert argument_problems(arguments, tool.definition) == ()
    try:
        outcome = await tool.execute(arguments, context)
    except ToolError as error:
        return f"failed: {error}"
    match outcome:
        case Ok(text):
            return text
        case Failed(message):
            return f"failed: {message}"
        case _:
            raise AssertionError(outcome)


@table(("tool", "required", "optional"), PARAMETERS)
def test_the_parameters_are_those_of_the_specification(tool: Tool, required: str, optional: str) -> None:
    schema = tool.definition.parameters
    assert schema["required"] == required.split()
    assert list(schema["properties"]) == [*required.split(), *optional.split()]
    assert all(len(parameter["description"]) > 10 for parameter in schema["properties"].values())


def test_what_writes_runs_alone() -> None:
    alone = {tool.name for tool in file_suite() if tool.order is Order.ALONE}
    assert alone == {"file_write", "file_append", "file_delta"}
    assert not any(tool.dangerous for tool in file_suite())


LINES = "".join(f"line {number}\n" for number in range(1, 9))


READS: list[tuple[dict[str, int], str]] = [
    ({}, "1 | line 1"),
    ({"start_line": 7}, "7 | line 7\n8 | line 8\n[lines 7 to 8 of 8]"),
    ({"end_line": 1}, "1 | line 1\n[lines 1 to 1 of 8"),
    ({"start_line": 3, "end_line": 2}, "failed: end_line is before start_line"),
    ({"start_line": 99}, "a.txt ends with line 8"),
    ({"max_tokens": 5}, "1 | line 1\n\n[WARNING: Tool output was truncated."),
]


async def test_reading(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(LINES)
    for arguments, wanted in READS:
        told = await answer(file_read(), context, file_path="a.txt", **arguments)
        assert told.startswith(wanted), arguments
    (tmp_path / "large").write_bytes(b"x" * (MAX_BYTES + 1))
    assert "failed: large" in await answer(file_read(), context, file_path="large", start_line=1)
    assert "failed" in await answer(file_read(), context, file_path="../a.txt")


async def test_what_a_token_limit_leaves_out_is_kept_whole(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(LINES)
    outcome = await file_read().execute({"file_path": "a.txt", "max_tokens": 5}, context)
    assert isinstance(outcome, Ok)
    assert outcome.full is not None
    assert outcome.full.endswith("8 | line 8")


async def test_writing_keeps_the_form_and_a_backup_where_it_is_asked_for(
    context: ToolContext, tmp_path: Path
) -> None:
    path = tmp_path / "a.txt"
    assert "Created" in await answer(
        file_write(), context, file_path="a.txt", content="one\n", create_backup=True
    )
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]
    path.write_bytes(b"one\r\ntwo\r\n")
    told = await answer(file_write(), context, file_path="a.txt", content="three\n", create_backup=True)
    assert "Its previous content is in a.txt.backup." in told
    assert path.read_bytes() == b"three\r\n"
    assert (tmp_path / "a.txt.backup").read_bytes() == b"one\r\ntwo\r\n"
    for number, before in ((2, b"three\r\n"), (3, b"4\r\n")):
        told = await answer(
            file_write(), context, file_path="a.txt", content=f"{number + 2}\n", create_backup=True
        )
        assert f"is in a.txt.backup.{number}." in told
        assert (tmp_path / f"a.txt.backup.{number}").read_bytes() == before
    assert (tmp_path / "a.txt.backup").read_bytes() == b"one\r\ntwo\r\n"
    path.write_bytes(b"three\r\n")
    assert context.ledger.touched == {"a.txt"}
    told = await answer(file_write(), context, file_path="a.txt", content="x" * (MAX_BYTES + 1))
    assert "10,000,000 are allowed" in told
    assert path.read_bytes() == b"three\r\n"


async def test_appending(context: ToolContext, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\r\n")
    await answer(file_append(), context, file_path="a.txt", content="two\n")
    assert path.read_bytes() == b"one\r\ntwo\r\n"
    path.write_text("one")
    told = await answer(file_append(), context, file_path="a.txt", content="two")
    assert path.read_text() == "onetwo"
    assert "your text goes on in that line" in told
    assert "use file_write" in await answer(file_append(), context, file_path="new.txt", content="x")
    assert not (tmp_path / "new.txt").exists()


async def test_listing(context: ToolContext, tmp_path: Path) -> None:
    for name in ("a.py", "b.md", ".env", "src/c.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    hidden = "\n[1 entries are left out: they are hidden, or do not match]"
    assert await answer(file_list(), context, directory_path=".") == (
        f"a.py (1 bytes)\nb.md (1 bytes)\nsrc/{hidden}"
    )
    everything = await answer(file_list(), context, directory_path=".", include_hidden=True)
    assert ".env (1 bytes)" in everything
    assert (await answer(file_list(), context, directory_path=".", pattern="*.py")).startswith("a.py")
    deep = await answer(file_list(), context, directory_path=".", pattern="**/*.py")
    assert sorted(deep.splitlines()) == ["a.py", "src/c.py"]
    assert "failed" in await answer(file_list(), context, directory_path="nowhere")


async def test_searching(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Needle\nneedle\n")
    found = {"search_path": ".", "pattern": "needle"}
    assert await answer(file_search(), context, **found) == "a.txt:2: needle"
    both = await answer(file_search(), context, **found, case_sensitive=False)
    assert both.splitlines() == ["a.txt:1: Needle", "a.txt:2: needle"]
    first = await answer(file_search(), context, **found, case_sensitive=False, max_results=1)
    assert first.startswith("a.txt:1: Needle\n[there are more")
    cut = await answer(file_search(), context, **found, case_sensitive=False, max_tokens=2)
    assert "characters were removed from the middle" in cut


async def test_what_a_file_is(context: ToolContext, tmp_path: Path) -> None:
    forms: dict[str, tuple[bytes, dict[str, Any]]] = {
        "empty": (b"", {"type": "text", "lines": 0, "line_ends": "LF", "final_line_end": False}),
        "plain": (b"a\nb", {"lines": 2, "line_ends": "LF", "final_line_end": False}),
        "dos": (b"\xef\xbb\xbfa\r\n", {"lines": 1, "line_ends": "CR LF", "byte_order_mark": True}),
        "mixed": (b"a\r\nb\n", {"line_ends": "mixed", "final_line_end": True}),
        "binary": (b"\0\1", {"type": "binary", "bytes": 2}),
        "picture": (b"\x89PNG\r\n\x1a\n", {"type": "image/png"}),
        "paper": (b"%PDF-1.7\n\xff", {"type": "application/pdf"}),
    }
    for name, (data, wanted) in forms.items():
        (tmp_path / name).write_bytes(data)
        (tmp_path / name).chmod(0o640)
        os.utime(tmp_path / name, (0, 1_764_000_000))
        told = json.loads(await answer(file_info(), context, file_path=name))
        assert told["path"] == name
        assert (told["modified"], told["permissions"]) == ("2025-11-24T16:00:00Z", "rw-r-----")
        assert told["kind"] == "file"
        assert told.items() >= wanted.items(), name
    (tmp_path / "folder").mkdir()
    told = json.loads(await answer(file_info(), context, file_path="."))
    assert told == {"path": ".", "kind": "folder", "folders": 1, "files": len(forms)}
    assert "failed" in await answer(file_info(), context, file_path="nothing")
    (tmp_path / "folder").chmod(0o750)
    told = json.loads(await answer(file_info(), context, file_path="folder"))
    assert told["permissions"] == "rwxr-x---"


async def test_a_failure_of_the_suite_has_its_code(context: ToolContext, tmp_path: Path) -> None:
    """The codes of section 7.2 of the assistant's specification, in results and in the library's errors."""
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "link").symlink_to("/etc/passwd")
    with (tmp_path / "big").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    tools = {tool.name: tool for tool in file_suite()}
    rows: list[tuple[str, dict[str, Any], str]] = [
        ("file_read", {"file_path": "missing"}, "FILE_ERROR_NOT_FOUND"),
        ("file_append", {"file_path": "missing", "content": "x"}, "FILE_ERROR_NOT_FOUND"),
        ("file_list", {"directory_path": "missing"}, "FILE_ERROR_NOT_FOUND"),
        ("file_info", {"file_path": "missing"}, "FILE_ERROR_NOT_FOUND"),
        ("file_read", {"file_path": "../a.txt"}, "FILE_ERROR_INVALID_PATH"),
        ("file_read", {"file_path": "link"}, "FILE_ERROR_INVALID_PATH"),
        ("file_write", {"file_path": ".git/config", "content": "x"}, "FILE_ERROR_INVALID_PATH"),
        ("file_read", {"file_path": "big"}, "FILE_ERROR_TOO_LARGE"),
        ("file_write", {"file_path": "a.txt", "content": "x" * (MAX_BYTES + 1)}, "FILE_ERROR_TOO_LARGE"),
        ("file_append", {"file_path": "big", "content": "x"}, "FILE_ERROR_TOO_LARGE"),
        ("file_write", {"file_path": "a.txt/b", "content": "x"}, "FILE_ERROR_IO"),
    ]
    for name, arguments, code in rows:
        told = await answer(tools[name], context, **arguments)
        assert told.startswith("failed: "), (name, arguments)
        assert told.endswith(f" [{code}]"), told
    with pytest.raises(FileMissingError) as caught:
        await context.environment.read_file("missing", max_bytes=1)
    assert caught.value.code == "FILE_ERROR_NOT_FOUND"


CHANGES: list[tuple[list[dict[str, Any]], str]] = [
    ([{"type": "insert", "start_line": 1, "content": "zero"}], "zero\none\ntwo\nthree\n"),
    ([{"type": "insert", "start_line": 4, "content": "four\nfive\n"}], "one\ntwo\nthree\nfour\nfive\n"),
    ([{"type": "replace", "start_line": 2, "content": "2"}], "one\n2\nthree\n"),
    ([{"type": "replace", "start_line": 2, "end_line": 3, "content": ""}], "one\n\n"),
    ([{"type": "delete", "start_line": 1, "end_line": 3}], ""),
    (
        [{"type": "delete", "start_line": 3}, {"type": "insert", "start_line": 1, "content": "a\nb"}],
        "a\nb\none\ntwo\n",
    ),
    (
        [{"type": "insert", "start_line": 2, "content": text} for text in ("a", "b", "c")],
        "one\na\nb\nc\ntwo\nthree\n",
    ),
    (
        [
            {"type": "replace", "start_line": 2, "content": "2"},
            {"type": "insert", "start_line": 2, "content": "a"},
            {"type": "insert", "start_line": 2, "content": "b"},
        ],
        "one\na\nb\n2\nthree\n",
    ),
]
REFUSED: list[tuple[list[dict[str, Any]], str]] = [
    ([{"type": "insert", "start_line": 5, "content": "x"}], "the file has 3 lines"),
    ([{"type": "delete", "start_line": 3, "end_line": 4}], "the file has 3 lines"),
    ([{"type": "replace", "start_line": 2, "end_line": 1, "content": "x"}], "not there"),
    ([{"type": "replace", "start_line": 1}], "needs content"),
    ([{"type": "delete", "start_line": 1, "content": "x"}], "takes no content"),
    (
        [{"type": "delete", "start_line": 1, "end_line": 2}, {"type": "delete", "start_line": 2}],
        "two operations are about line 2",
    ),
]


async def test_changing_lines(context: ToolContext, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for operations, wanted in CHANGES:
        for end in ("\n", "\r\n"):
            path.write_bytes(f"one{end}two{end}three{end}".encode())
            told = await answer(file_delta(), context, file_path="a.txt", operations=operations)
            assert path.read_bytes() == wanted.replace("\n", end).encode(), (operations, told)
    path.write_text("one\ntwo\nthree\n")
    for operations, reason in REFUSED:
        told = await answer(file_delta(), context, file_path="a.txt", operations=operations)
        assert told.startswith("failed: ")
        assert reason in told
        assert path.read_text() == "one\ntwo\nthree\n"


async def test_a_change_of_lines_shows_what_is_there_now(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(LINES)
    operations = [
        {"type": "delete", "start_line": 1},
        {"type": "replace", "start_line": 7, "content": "seven"},
    ]
    told = await answer(file_delta(), context, file_path="a.txt", operations=operations, create_backup=True)
    assert told == (
        "Changed a.txt: 7 lines now.\n1 | line 2\n2 | line 3\n[...]\n4 | line 5\n5 | line 6\n6 | seven\n7 | line 8"
        " Its previous content is in a.txt.backup."
    )


@given(st.integers(0, 6), st.data())
def test_operations_that_are_taken_never_touch_each_other(count: int, data: st.DataObject) -> None:
    place = st.integers(1, count + 2)
    one = st.fixed_dictionaries(
        {"type": st.sampled_from(["insert", "replace", "delete"]), "start_line": place},
        optional={"end_line": place, "content": st.sampled_from(["", "a", "a\nb\n"])},
    )
    operations = data.draw(st.lists(one, min_size=1, max_size=4))
    try:
        read = _read_operations(operations, count)
    except ToolError:
        return
    taken = [line for op in read for line in range(op.first, op.last)]
    assert len(taken) == len(set(taken))
    assert all(0 <= op.first <= op.last <= count for op in read)
    inserts = [op.first for op in read if op.first == op.last]
    assert not any(op.first < place < op.last for op in read for place in inserts)


async def test_the_shell_leaves_out_errors_and_names_its_parameter(context: ToolContext) -> None:
    command = "echo out; echo err >&2"
    assert "err" in await answer(shell_execute(), context, command=command)
    quiet = await answer(shell_execute(), context, command=command, capture_stderr=False)
    assert quiet.startswith("out\n[exit code 0")
    assert shell_execute().definition.parameters["properties"]["timeout_seconds"]["maximum"] == 300


PIPELINES = ["ls", "git log -5 | head -2", "false || true", "grep 'a;b && $(c)' x", "ls src/*.py"]
CHAINS = [
    *("ls; rm x", "ls && rm x", "ls & rm x", "echo $(rm x)", "echo `rm x`", "ls\nrm x", "(rm x)", "ls |& rm"),
    *('echo "$(rm x)"', 'echo "`rm x`"', "cat <(rm x)", "{ rm x; }", "", "ls 'x"),
]


def test_an_explorers_command_is_one_pipeline_or_its_stand_in() -> None:
    refusal = run_reading_command().refusal
    assert refusal is not None
    assert [command for command in PIPELINES if refusal({"command": command})] == []
    assert [command for command in CHAINS if not refusal({"command": command})] == []

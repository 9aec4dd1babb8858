"""One table of behaviour that every `ExecutionEnvironment` must show; `environments.py` names them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from orchestrator.core.errors import FileMissingError, FileUnreadableError, PathRefusedError, ToolError
from orchestrator.engine.environments.base import DirEntry, ExecutionEnvironment, GrepMatch, GrepOptions

MAX = 1_000_000
MS = 20_000


async def describes_itself(here: ExecutionEnvironment) -> None:
    assert here.platform() in {"linux", "darwin", "windows"}
    assert here.os_version()
    result = await here.exec_command("pwd", timeout_ms=MS)
    assert result.stdout.strip() == here.working_directory()


async def reads_what_was_written(here: ExecutionEnvironment) -> None:
    await here.write_file("a/b/c.bin", bytes(range(256)))
    assert await here.read_file("a/b/c.bin", max_bytes=256) == bytes(range(256))
    await here.write_file("a/b/c.bin", b"")
    assert await here.read_file("a/b/c.bin", max_bytes=0) == b""


async def commands_and_files_see_each_other(here: ExecutionEnvironment) -> None:
    await here.write_file("in.txt", b"text\n")
    assert (await here.exec_command("cat in.txt; echo out > out.txt", timeout_ms=MS)).stdout == "text\n"
    assert await here.read_file("out.txt", max_bytes=MAX) == b"out\n"


async def takes_an_absolute_path_inside_as_relative(here: ExecutionEnvironment) -> None:
    path = f"{here.working_directory()}/x/../a.txt"
    assert here.relative(path) == "a.txt"
    assert here.relative(".") == "."
    await here.write_file(path, b"x")
    assert await here.file_exists("a.txt")


async def refuses_what_leaves_the_folder(here: ExecutionEnvironment) -> None:
    await here.exec_command("ln -s /etc away; ln -s nowhere dangling", timeout_ms=MS)
    for path in (
        "../x",
        "/etc/passwd",
        "a/../../x",
        ".git/config",
        ".GIT/x",
        "away/passwd",
        "dangling",
        "a\0",
        "",
    ):
        for act in (
            here.read_file(path, max_bytes=MAX),
            here.write_file(path, b""),
            here.write_file("fine", b"", mode_of=path),
            here.remove_file(path),
            here.file_exists(path),
            here.list_directory(path, depth=1),
            here.grep("x", path, GrepOptions()),
            here.glob("*", path),
        ):
            with pytest.raises(PathRefusedError):
                await act


async def says_what_is_missing_or_of_another_kind(here: ExecutionEnvironment) -> None:
    await here.write_file("folder/file", b"12345")
    assert not await here.file_exists("missing")
    assert not await here.file_exists("folder")
    for act, error in (
        (here.read_file("missing", max_bytes=MAX), FileMissingError),
        (here.read_file("folder", max_bytes=MAX), FileUnreadableError),
        (here.read_file("folder/file", max_bytes=4), FileUnreadableError),
        (here.write_file("folder", b""), ToolError),
        (here.write_file("folder/file/x", b""), ToolError),
        (here.write_file("new", b"", mode_of="missing"), FileMissingError),
        (here.remove_file("missing"), FileMissingError),
        (here.remove_file("folder"), FileUnreadableError),
        (here.remove_file("folder/file/x"), FileUnreadableError),
        (here.list_directory("missing", depth=1), FileMissingError),
        (here.list_directory("folder/file", depth=1), FileUnreadableError),
        (here.grep("(", ".", GrepOptions()), ToolError),
        (here.exec_command("true", timeout_ms=MS, working_dir="missing"), ToolError),
    ):
        with pytest.raises(error):
            await act


async def keeps_the_mode(here: ExecutionEnvironment) -> None:
    await here.exec_command("touch run.sh; chmod 755 run.sh", timeout_ms=MS)
    await here.write_file("run.sh", b"#!/bin/sh\necho ran\n")
    assert (await here.exec_command("./run.sh", timeout_ms=MS)).stdout == "ran\n"


async def takes_the_mode_of_another(here: ExecutionEnvironment) -> None:
    await here.exec_command("touch old.sh there.sh; chmod 755 old.sh; chmod 600 there.sh", timeout_ms=MS)
    for path in ("new/moved.sh", "there.sh"):
        await here.write_file(path, b"#!/bin/sh\necho ran\n", mode_of="old.sh")
        assert (await here.exec_command(f"./{path}", timeout_ms=MS)).stdout == "ran\n"


async def removes_a_file_and_nothing_else(here: ExecutionEnvironment) -> None:
    await here.write_file("folder/file", b"x")
    await here.write_file("folder/other", b"y")
    await here.remove_file("folder/file")
    assert await here.list_directory(".", depth=2) == [
        DirEntry("folder", is_dir=True, size=None),
        DirEntry("folder/other", is_dir=False, size=1),
    ]
    await here.remove_file("folder/other")
    assert await here.list_directory(".", depth=2) == [DirEntry("folder", is_dir=True, size=None)]


async def lists_sorted_to_a_depth(here: ExecutionEnvironment) -> None:
    await here.exec_command("mkdir -p b/c/d .git; echo 1 > b/c/x; touch a .git/y", timeout_ms=MS)
    assert await here.list_directory(".", depth=1) == [
        DirEntry("a", is_dir=False, size=0),
        DirEntry("b", is_dir=True, size=None),
    ]
    assert [entry.name for entry in await here.list_directory("b", depth=2)] == ["c", "c/d", "c/x"]


async def searches_what_is_not_ignored(here: ExecutionEnvironment) -> None:
    await here.write_file(".gitignore", b"*.log\n")
    await here.write_file("src/a.py", b"one\ntwo\n")
    await here.write_file("src/a.log", b"two\n")
    assert await here.grep("t.o", ".", GrepOptions()) == [GrepMatch("src/a.py", 2, "two")]
    assert await here.grep("TWO", "src", GrepOptions()) == []
    assert await here.grep("TWO", "src", GrepOptions(case_insensitive=True, glob_filter="*.md")) == []
    assert await here.glob("**/a.*", ".") == ["src/a.py"]


async def tells_of_a_commands_end(here: ExecutionEnvironment) -> None:
    pieces: list[str] = []
    result = await here.exec_command(
        "echo $NEW; exit 4", timeout_ms=MS, env={"NEW": "value"}, on_output=pieces.append
    )
    assert (result.output, result.exit_code, result.timed_out) == ("value\n", 4, False)
    assert "".join(pieces) == "value\n"
    late = await here.exec_command("echo early; sleep 600", timeout_ms=1_500)
    assert (late.stdout, late.timed_out) == ("early\n", True)
    assert late.exit_code < 0
    assert late.duration_ms >= 300


async def removes_files(here: ExecutionEnvironment) -> None:
    await here.write_file("a/x.txt", b"x")
    await here.remove_file("a/x.txt")
    assert not await here.file_exists("a/x.txt")
    assert await here.list_directory("a", depth=1) == []
    with pytest.raises(FileMissingError):
        await here.remove_file("a/x.txt")
    for folder in ("a", "a/", "."):
        with pytest.raises(FileUnreadableError):
            await here.remove_file(folder)


async def gives_a_moved_file_its_mode(here: ExecutionEnvironment) -> None:
    await here.exec_command("touch old.sh; chmod 750 old.sh", timeout_ms=MS)
    await here.write_file("new/new.sh", b"", mode_of="old.sh")
    assert (await here.exec_command("ls -l new/new.sh", timeout_ms=MS)).stdout.startswith("-rwxr-x---")
    with pytest.raises(FileMissingError):
        await here.write_file("other.sh", b"", mode_of="missing.sh")
    with pytest.raises(PathRefusedError):
        await here.write_file("other.sh", b"", mode_of="../old.sh")


async def replaces_a_file_whole(here: ExecutionEnvironment) -> None:
    await here.exec_command("echo old > a.txt; ln a.txt kept.txt", timeout_ms=MS)
    big = bytes(range(256)) * 8_000
    await here.write_file("a.txt", big)
    assert await here.read_file("a.txt", max_bytes=len(big)) == big
    assert await here.read_file("kept.txt", max_bytes=MAX) == b"old\n"
    assert [entry.name for entry in await here.list_directory(".", depth=1)] == ["a.txt", "kept.txt"]


async def writes_nothing_into_another_repository(here: ExecutionEnvironment) -> None:
    await here.exec_command("mkdir -p inner/deep inner/.git; echo x > inner/file", timeout_ms=MS)
    for path in ("inner/file", "inner/new", "inner/deep/new"):
        with pytest.raises(PathRefusedError, match="another repository"):
            await here.write_file(path, b"")
    with pytest.raises(PathRefusedError, match="another repository"):
        await here.remove_file("inner/file")
    assert await here.read_file("inner/file", max_bytes=MAX) == b"x\n"


async def reaches_nothing_through_a_link_to_a_folder(here: ExecutionEnvironment) -> None:
    await here.exec_command(
        "mkdir -p real/deep; echo x > real/f; ln -s real link; ln -s f real/l", timeout_ms=MS
    )
    for path in ("link", "link/f", "real/l", "link/deep"):
        for act in (
            here.read_file(path, max_bytes=MAX),
            here.write_file(path, b"gotcha"),
            here.remove_file(path),
            here.list_directory(path, depth=1),
            here.exec_command("pwd", timeout_ms=MS, working_dir=path),
        ):
            with pytest.raises(PathRefusedError):
                await act
    assert await here.read_file("real/f", max_bytes=MAX) == b"x\n"
    assert await here.glob("**/*", ".") == ["real/f"]
    assert await here.grep("x", ".", GrepOptions()) == [GrepMatch("real/f", 1, "x")]


async def takes_names_of_every_kind(here: ExecutionEnvironment) -> None:
    names = [
        "a b.txt",
        "-rf",
        "it's.txt",
        'say "x".txt',
        "$(touch pwned)",
        "a;b&c|d.txt",
        "é ü.txt",
        "#1",
        "*",
    ]
    for name in names:
        await here.write_file(f"the folder/{name}", name.encode())
        assert await here.read_file(f"the folder/{name}", max_bytes=MAX) == name.encode()
    listed = [entry.name for entry in await here.list_directory("the folder", depth=1)]
    assert listed == sorted(names, key=str.encode)
    assert sorted(await here.glob("*", "the folder")) == sorted(f"the folder/{name}" for name in names)
    found = await here.grep("touch", "the folder", GrepOptions())
    assert found == [GrepMatch("the folder/$(touch pwned)", 1, "$(touch pwned)")]
    for name in names:
        await here.remove_file(f"the folder/{name}")
    assert await here.list_directory(".", depth=2) == [DirEntry("the folder", is_dir=True, size=None)]


async def lists_a_name_with_a_line_break(here: ExecutionEnvironment) -> None:
    await here.exec_command("printf x > \"$(printf 'a\\nb')\"", timeout_ms=MS)
    assert await here.list_directory(".", depth=1) == [DirEntry("a\\nb", is_dir=False, size=1)]
    assert await here.glob("*", ".") == ["a\\nb"]
    assert await here.grep("x", ".", GrepOptions()) == [GrepMatch("a\\nb", 1, "x")]


async def finds_the_newest_first(here: ExecutionEnvironment) -> None:
    await here.exec_command(
        "touch -t 202001010000 b.py; touch -t 202201010000 a.py; touch -t 202101010000 c.py", timeout_ms=MS
    )
    assert await here.glob("*.py", ".") == ["a.py", "c.py", "b.py"]
    with pytest.raises(ToolError):
        await here.glob("../*", ".")


async def searches_as_asked(here: ExecutionEnvironment) -> None:
    await here.write_file("src/.gitignore", b"skipped/\n")
    await here.write_file("src/skipped/a.py", b"def found_1\n")
    await here.write_file("src/a.py", b"one\r\ndef found_22():  # \xc3\xa9\r\nfound\n")
    await here.write_file("src/b.md", b"def found_3\n")
    await here.write_file("bin", b"def found_4\0\n")
    await here.exec_command("mkdir .git; echo 'def found_5' > .git/x", timeout_ms=MS)
    both = [GrepMatch("src/a.py", 2, "def found_22():  # é"), GrepMatch("src/b.md", 1, "def found_3")]
    assert await here.grep(r"(?:def|class)\s+\w+_[\d]", ".", GrepOptions()) == both
    assert await here.grep("found_", ".", GrepOptions(glob_filter="*.{md,txt}")) == both[1:]
    assert await here.grep("found_", ".", GrepOptions(max_results=1)) == both[:1]
    assert await here.grep("FOUND_", "src/b.md", GrepOptions(case_insensitive=True)) == both[1:]
    assert await here.grep("found_", "src/skipped", GrepOptions()) == [
        GrepMatch("src/skipped/a.py", 1, "def found_1")
    ]
    with pytest.raises(FileMissingError):
        await here.grep("x", "missing", GrepOptions())


async def says_what_is_wrong_with_a_file_pattern(here: ExecutionEnvironment) -> None:
    await here.write_file("app/[id]/page.tsx", b"needle\n")
    for pattern, why in {
        "[": "'[' is not closed",
        "*.{ts": "'{' is not closed",
        "app\\page.tsx": "write / between folders",
        "[z-a]": "is reversed",
        "../*": "not relative",
        " ": "is empty",
        "a\0": "NUL",
        "x" * 2_000: "1,000 characters",
    }.items():
        with pytest.raises(ToolError, match=re.escape(why)):
            await here.glob(pattern, ".")
        with pytest.raises(ToolError, match=re.escape(why)):
            await here.grep("needle", ".", GrepOptions(glob_filter=pattern))
    for pattern in ("app/[id]/*.{ts,tsx}", "**/page.tsx", "app/**/p**"):
        assert await here.glob(pattern, ".") == ["app/[id]/page.tsx"]
        found = await here.grep("needle", ".", GrepOptions(glob_filter=pattern))
        assert [match.path for match in found] == ["app/[id]/page.tsx"]
    assert await here.glob("**.nothing", ".") == []
    assert await here.grep("needle", ".", GrepOptions(glob_filter="[!p]*")) == []


Case: TypeAlias = Callable[[ExecutionEnvironment], Awaitable[None]]

CASES: list[Case] = [
    describes_itself,
    reads_what_was_written,
    commands_and_files_see_each_other,
    takes_an_absolute_path_inside_as_relative,
    refuses_what_leaves_the_folder,
    says_what_is_missing_or_of_another_kind,
    keeps_the_mode,
    takes_the_mode_of_another,
    removes_a_file_and_nothing_else,
    lists_sorted_to_a_depth,
    searches_what_is_not_ignored,
    tells_of_a_commands_end,
    removes_files,
    gives_a_moved_file_its_mode,
    replaces_a_file_whole,
    writes_nothing_into_another_repository,
    reaches_nothing_through_a_link_to_a_folder,
    takes_names_of_every_kind,
    lists_a_name_with_a_line_break,
    finds_the_newest_first,
    searches_as_asked,
    says_what_is_wrong_with_a_file_pattern,
]


@pytest.mark.parametrize("case", CASES)
async def test_environment(case: Case, environment: ExecutionEnvironment) -> None:
    await case(environment)

"""Wrappers: what is logged, what is refused, and what a subfolder lets through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import FileMissingError, FileUnreadableError, PathRefusedError, ToolError
from orchestrator.engine.environments.base import GrepOptions
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.environments.wrappers import (
    LoggingEnvironment,
    ReadOnlyEnvironment,
    ScopedEnvironment,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from orchestrator.engine.environments.base import ExecResult

MS = 20_000


@pytest.fixture
async def inner(tmp_path: Path) -> AsyncIterator[LocalEnvironment]:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("text\n")
    environment = LocalEnvironment(str(tmp_path))
    yield environment
    await environment.cleanup()


async def test_every_operation_is_one_line(inner: LocalEnvironment) -> None:
    lines: list[str] = []
    logged = LoggingEnvironment(inner, lines.append, clock=ManualClock())
    await logged.initialize()
    await logged.read_file("sub/a.txt", max_bytes=100)
    await logged.write_file("b.txt", b"12345")
    await logged.file_exists("b.txt")
    await logged.remove_file("b.txt")
    await logged.list_directory(".", depth=2)
    await logged.grep("text", ".", GrepOptions())
    await logged.glob("*", "sub")
    await logged.exec_command("echo 'a\nb'; exit 3", timeout_ms=MS, env={"KEY": "hidden"})
    with pytest.raises(FileMissingError):
        await logged.read_file("missing", max_bytes=1)
    assert lines == [
        "initialize: done (0 ms)",
        "read_file sub/a.txt: 5 bytes (0 ms)",
        "write_file b.txt: 5 bytes (0 ms)",
        "file_exists b.txt: yes (0 ms)",
        "remove_file b.txt: done (0 ms)",
        "list_directory .: 2 found (0 ms)",
        "grep text in .: 1 found (0 ms)",
        "glob * in sub: 1 found (0 ms)",
        r"exec_command echo 'a\nb'; exit 3: exit code 3 (0 ms)",
        "read_file missing: FileMissingError: missing does not exist (0 ms)",
    ]


async def test_read_only_refuses_writes_and_commands(inner: LocalEnvironment, tmp_path: Path) -> None:
    fixed = ReadOnlyEnvironment(inner)
    assert await fixed.read_file("sub/a.txt", max_bytes=100) == b"text\n"
    for act in (fixed.write_file("x", b""), fixed.remove_file("sub/a.txt")):
        with pytest.raises(ToolError, match=r"^Write operations are disabled in read-only mode$"):
            await act
    with pytest.raises(ToolError, match=r"^Commands are disabled in read-only mode$"):
        await fixed.exec_command("touch x", timeout_ms=MS)
    assert [path.name for path in tmp_path.iterdir()] == ["sub"]
    allowed = ReadOnlyEnvironment(inner, allow_commands=True)
    assert (await allowed.exec_command("echo on", timeout_ms=MS)).stdout == "on\n"


async def test_commands_in_read_only_mode_change_nothing_through_any_wrapper(
    inner: LocalEnvironment, tmp_path: Path
) -> None:
    logged = LoggingEnvironment(ScopedEnvironment(inner, "sub"), lambda _line: None)
    for fixed in (
        ReadOnlyEnvironment(logged, allow_commands=True),
        LoggingEnvironment(ReadOnlyEnvironment(inner, allow_commands=True), lambda _line: None),
        ScopedEnvironment(ReadOnlyEnvironment(inner, allow_commands=True), "sub"),
    ):
        result = await fixed.exec_command("echo on; echo x > made", timeout_ms=MS)
        assert (result.stdout, result.exit_code != 0) == ("on\n", True)
    assert [path.name for path in tmp_path.rglob("*")] == ["sub", "a.txt"]


async def test_a_foreign_environment_gets_no_argument_that_it_does_not_know(inner: LocalEnvironment) -> None:
    class Foreign:
        """An environment with the methods of the protocol alone."""

        read_file = inner.read_file

        async def exec_command(self, command: str, *, timeout_ms: int) -> ExecResult:
            return await inner.exec_command(command, timeout_ms=timeout_ms)

    foreign: Any = Foreign()
    fixed = ReadOnlyEnvironment(LoggingEnvironment(foreign, lambda _line: None), allow_commands=True)
    assert (await fixed.exec_command("echo on", timeout_ms=MS)).stdout == "on\n"


async def test_a_subfolder_shows_its_own_paths_only(inner: LocalEnvironment, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("text\n")
    scoped = ScopedEnvironment(inner, "sub")
    await scoped.initialize()
    assert scoped.working_directory() == str(tmp_path / "sub")
    assert scoped.relative(str(tmp_path / "sub" / "a.txt")) == "a.txt"
    assert [match.path for match in await scoped.grep("text", ".", GrepOptions())] == ["a.txt"]
    assert await scoped.glob("**/*", ".") == ["a.txt"]
    for path in ("../outside.txt", str(tmp_path / "outside.txt"), "x/../../outside.txt"):
        with pytest.raises(PathRefusedError):
            await scoped.read_file(path, max_bytes=100)
        with pytest.raises(PathRefusedError):
            await scoped.exec_command("true", timeout_ms=MS, working_dir=path)
    await scoped.cleanup()
    assert (await inner.exec_command("echo on", timeout_ms=MS)).stdout == "on\n"


async def test_a_subfolder_that_is_none(inner: LocalEnvironment, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("sub")
    for folder in ("..", "/etc", ".git", ""):
        with pytest.raises(PathRefusedError):
            ScopedEnvironment(inner, folder)
    for folder, error in (
        ("missing", FileMissingError),
        ("sub/a.txt", FileUnreadableError),
        ("link", PathRefusedError),
    ):
        with pytest.raises(error):
            await ScopedEnvironment(inner, folder).initialize()

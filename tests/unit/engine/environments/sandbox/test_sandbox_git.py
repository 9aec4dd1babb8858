"""Repositories in the clone, from inside a sandbox: none is made for the host, and no link leads to another's."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import ToolError
from orchestrator.engine.environments.local import LocalEnvironment
from tests.conformance.environments import this_machines_sandbox

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
MS = 20_000


async def run(root: Path, *lines: str, submodules: tuple[str, ...] = ()) -> str:
    environment = LocalEnvironment(root, sandbox=this_machines_sandbox(), submodules=submodules)
    try:
        return "".join([(await environment.exec_command(line, timeout_ms=MS)).output for line in lines])
    finally:
        await environment.cleanup()


@pytest.mark.parametrize(
    "line",
    ["git init -q .", "mkdir -p .git/hooks", "echo gitdir: /x > .git", "rm -rf .git; ln -s /tmp .git", "mv .git x; mkdir .git"],
)  # fmt: skip
async def test_a_root_without_a_repository_gets_none(line: str, tmp_path: Path) -> None:
    await run(tmp_path, line, "true")
    assert list(tmp_path.iterdir()) == []


async def test_two_commands_at_once_do_not_open_it(tmp_path: Path) -> None:
    environment = LocalEnvironment(tmp_path, sandbox=this_machines_sandbox())
    began = asyncio.Event()
    line = "echo began; while ! test -e go; do sleep 0.01; done; mkdir .git/hooks; rm go"
    slow = asyncio.create_task(environment.exec_command(line, timeout_ms=MS, on_output=lambda _: began.set()))
    await began.wait()
    await environment.exec_command("touch go", timeout_ms=MS)
    await slow
    await environment.cleanup()
    assert list(tmp_path.iterdir()) == []


async def test_a_submodule_that_became_a_link_shows_no_other_repository(
    tmp_path: Path, git: Callable[..., str]
) -> None:
    root, other = tmp_path / "clone", tmp_path / "other"
    git("init", "-q", str(root / "sub"))
    git("init", "-q", str(other))
    (other / ".git" / "config").write_text("[secret]\n")
    lines = (f"mv sub sub2; ln -s {other} sub", "cat sub/.git/config")
    assert "[secret]" not in await run(root, *lines, submodules=("sub",))


async def test_a_submodule_keeps_its_repository(tmp_path: Path) -> None:
    """A folder is covered, a file that leads to the repository is shown as it was, none is made."""
    for name in ("folder", "file", "none"):
        (tmp_path / name).mkdir()
    (tmp_path / "folder" / ".git").mkdir()
    (tmp_path / "folder" / ".git" / "config").write_text("here")
    (tmp_path / "file" / ".git").write_text("gitdir: ../x\n")
    line = "for n in folder file none; do echo x > $n/.git; echo x > $n/.git/config; done; cat file/.git"
    output = await run(tmp_path, line, submodules=("folder", "file", "none", "missing"))
    assert output.endswith("gitdir: ../x\n")
    assert (tmp_path / "folder" / ".git" / "config").read_text() == "here"
    assert (tmp_path / "file" / ".git").read_text() == "gitdir: ../x\n"
    assert list((tmp_path / "none").iterdir()) == []


@pytest.mark.parametrize("name", [".git", "sub/.git"])
async def test_a_git_folder_that_is_a_link_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / name).symlink_to(tmp_path)
    with pytest.raises(ToolError, match="symbolic link"):
        await run(tmp_path, "true", submodules=("sub",))

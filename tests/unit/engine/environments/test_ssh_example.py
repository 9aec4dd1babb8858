"""The environment that the documentation shows, over an `ssh` that runs everything on this machine."""

from __future__ import annotations

import importlib.util
import os
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator import Session, openai_profile
from orchestrator.core.errors import PathRefusedError
from orchestrator.engine.environments.base import GrepMatch, GrepOptions
from tests.conformance import test_environments as table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

EXAMPLE = Path(__file__).parents[4] / "docs/examples/ssh_environment.py"
STUB = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
[ "$2" = me@build.example ] && exec sh -c "$3"
echo "ssh: Could not resolve hostname $2" >&2
exit 255
"""
CASES = [
    table.describes_itself,
    table.reads_what_was_written,
    table.commands_and_files_see_each_other,
    table.takes_an_absolute_path_inside_as_relative,
    table.keeps_the_mode,
    table.takes_the_mode_of_another,
    table.removes_a_file_and_nothing_else,
    table.lists_sorted_to_a_depth,
    table.tells_of_a_commands_end,
    table.removes_files,
    table.gives_a_moved_file_its_mode,
    table.replaces_a_file_whole,
]
"""Those of the table that the example promises."""


@pytest.fixture
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    found = importlib.util.spec_from_file_location("ssh_environment", EXAMPLE)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    program = tmp_path / "bin/ssh"
    program.parent.mkdir()
    program.write_text(STUB)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    root = tmp_path / "root"
    root.mkdir()
    environment = module.SshEnvironment("me@build.example", str(root))
    await environment.initialize()
    yield environment
    await environment.cleanup()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_it_is_an_environment(case: table.Case, here: Any) -> None:
    await case(here)


async def test_the_lines_that_it_begins_with_make_a_session(
    here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-made-up-0123456789")
    shown = textwrap.dedent(
        "".join(re.findall(r"^    .*\n", type(here).__init__.__globals__["__doc__"], re.MULTILINE))
    )
    known: dict[str, Any] = {
        "SshEnvironment": type(here),
        "Session": Session,
        "openai_profile": openai_profile,
    }
    exec(shown, known)  # noqa: S102  the lines of our own page
    assert isinstance(known["session"], Session)
    await known["session"].close()


async def test_it_stays_in_the_folder(here: Any) -> None:
    await here.exec_command("ln -s /etc away", timeout_ms=20_000)
    for path in ("../x", "/etc/passwd", "a/../../x", ".git/config", "away/passwd", ""):
        with pytest.raises(PathRefusedError):
            await here.read_file(path, max_bytes=9)
        with pytest.raises(PathRefusedError):
            await here.write_file(path, b"")


async def test_it_searches(here: Any) -> None:
    await here.write_file("src/a.py", b"one\ntwo\n")
    assert await here.grep("t.o", ".", GrepOptions()) == [GrepMatch("src/a.py", 2, "two")]
    assert await here.glob("**/*.py", ".") == ["src/a.py"]

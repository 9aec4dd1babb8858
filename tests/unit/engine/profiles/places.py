"""Folders and machines in which a session may start."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.clock import ManualClock
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.profiles.base import Orientation, orient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.engine.environments.base import ExecResult, ExecutionEnvironment

PROGRAMS = ("cat", "cut", "head", "od", "readlink", "sed", "sort", "tr", "uniq")
_IDENTITY = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgSign=false")


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *_IDENTITY, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def repository(folder: Path, *subjects: str) -> Path:
    """A repository with a file `a.txt` and a commit for each subject."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    for subject in subjects:
        with (folder / "a.txt").open("a") as file:
            file.write(f"{subject}\n")
        git(folder, "add", "a.txt")
        git(folder, "commit", "-q", "-m", subject)
    return folder


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@dataclass(frozen=True, slots=True)
class Machine:
    """What runs commands, and where it finds programs."""

    shell: tuple[str, ...] = ("/bin/sh",)
    path: str = os.environ.get("PATH", os.defpath)


def unchanged(result: ExecResult) -> ExecResult:
    return result


class PlacedEnvironment(LocalEnvironment):
    """The local environment with another shell, and with a hand on what a command printed."""

    def __init__(self, folder: Path, machine: Machine, change: Callable[[ExecResult], ExecResult]) -> None:
        self.variables = {"PATH": machine.path, "HOME": str(folder)}
        super().__init__(folder, clock=ManualClock(), inherited=self.variables, sandbox="off")
        self._shell = machine.shell
        self._change = change
        self.commands = 0

    async def exec_command(  # noqa: PLR0913  all but the command by name
        self,
        command: str,
        *,
        timeout_ms: int,
        working_dir: str | None = None,
        env: Mapping[str, str] | None = None,
        on_output: Callable[[str], None] | None = None,
        read_only: bool = False,
    ) -> ExecResult:
        self.commands += 1
        line = shlex.join([*self._shell, "-c", command])
        result = await super().exec_command(
            line,
            timeout_ms=timeout_ms,
            working_dir=working_dir,
            env=env,
            on_output=on_output,
            read_only=read_only,
        )
        return self._change(result)


def programs(folder: Path, *names: str, of: str | None = None) -> str:
    """A folder for PATH with these programs only, all of them links to one program if `of` names it."""
    folder.mkdir(parents=True)
    for name in names:
        program = shutil.which(of or name)
        assert program is not None
        (folder / name).symlink_to(Path(program).resolve() if of else program)
    return str(folder)


async def look(
    folder: Path,
    *documents: str,
    from_root: bool = False,
    machine: Machine | None = None,
    change: Callable[[ExecResult], ExecResult] = unchanged,
) -> Orientation:
    """What a command sees; what the program sees from outside of a sandbox is compared with it."""
    environment = PlacedEnvironment(folder, machine or Machine(), change)
    seen = await look_from(environment, *documents, from_root=from_root)
    assert environment.commands == 1
    if machine is None and change is unchanged:
        outside = LocalEnvironment(folder, inherited=environment.variables)
        assert await look_from(outside, *documents, from_root=from_root) == seen
    return seen


async def look_from(
    environment: ExecutionEnvironment, *documents: str, from_root: bool = False
) -> Orientation:
    try:
        return await orient(
            environment,
            documents=documents or ("AGENTS.md",),
            from_root=from_root,
            clock=ManualClock(datetime(2026, 3, 9, 23, 59, tzinfo=UTC)),
            model_name="Test Model",
            knowledge_cutoff="2025-10",
        )
    finally:
        await environment.cleanup()


def texts(seen: Orientation) -> list[str]:
    return [document.text for document in seen.documents]


def paths(seen: Orientation, below: Path) -> list[str]:
    return [os.path.relpath(document.path, below) for document in seen.documents]

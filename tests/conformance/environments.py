"""Every environment that this machine offers, by name; the tables in the tests beside this file run over all."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import pytest

from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.environments.sandbox import find_sandbox
from orchestrator.engine.environments.wrappers import LoggingEnvironment, ScopedEnvironment

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.engine.environments.base import ExecutionEnvironment, Sandbox

Place: TypeAlias = Callable[["Path", pytest.FixtureRequest], "ExecutionEnvironment"]
"""Makes an environment whose root is in the folder, from which nothing else is read."""


def local(folder: Path, _request: pytest.FixtureRequest) -> ExecutionEnvironment:
    return LocalEnvironment(empty_root(folder), sandbox="off")


def sandboxed(folder: Path, _request: pytest.FixtureRequest) -> ExecutionEnvironment:
    return LocalEnvironment(empty_root(folder), sandbox=this_machines_sandbox())


@functools.cache
def this_machines_sandbox() -> Sandbox:
    """A test that needs it fails where there is none: skipped, it would prove nothing."""
    return find_sandbox()


def local_without_ripgrep(folder: Path, _request: pytest.FixtureRequest) -> ExecutionEnvironment:
    return LocalEnvironment(str(empty_root(folder)), use_ripgrep=False, sandbox="off")


def logging(folder: Path, _request: pytest.FixtureRequest) -> ExecutionEnvironment:
    lines: list[str] = []
    return LoggingEnvironment(LocalEnvironment(empty_root(folder), sandbox="off"), lines.append)


def scoped(folder: Path, _request: pytest.FixtureRequest) -> ExecutionEnvironment:
    root = empty_root(folder)
    (root / "in side").mkdir()
    return ScopedEnvironment(LocalEnvironment(root, sandbox="off"), "in side")


PLACES: list[Place] = [
    local,
    sandboxed,
    local_without_ripgrep,
    logging,
    scoped,
]


COMMAND_PLACES: list[Place] = [local, sandboxed]
"""Those that run commands each in their own way; cases that take seconds run only there."""


def empty_root(folder: Path) -> Path:
    """Make the root of an environment."""
    root = folder / "root"
    root.mkdir()
    return root

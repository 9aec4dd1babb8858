"""Every environment that this machine offers, by name; the tables in the tests beside this file run over all."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import pytest

from orchestrator.engine.environments.docker import DockerEnvironment, FreshContainer, RunningContainer
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.environments.remote import RemoteEnvironment
from orchestrator.engine.environments.sandbox import find_sandbox
from orchestrator.engine.environments.scoped import ScopedEnvironment
from orchestrator.engine.environments.ssh import SshEnvironment
from orchestrator.engine.environments.wrappers import LoggingEnvironment
from tests.doubles.containers import busybox_carrier, fake_docker

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.environments.confinement import Sandbox
    from tests.doubles.sshd import SshServer

Place: TypeAlias = Callable[["Path", pytest.FixtureRequest], "ExecutionEnvironment"]
"""Makes an environment whose root is in the folder, from which nothing else is read."""


def local(folder: Path, _request: pytest.FixtureRequest) -> ExecutionEnvironment:
    return LocalEnvironment(_root(folder), sandbox="off")


def sandboxed(folder: Path, _request: pytest.FixtureRequest) -> ExecutionEnvironment:
    return LocalEnvironment(_root(folder), sandbox=this_machines_sandbox())


@functools.cache
def this_machines_sandbox() -> Sandbox:
    """A test that needs it fails where there is none: skipped, it would prove nothing."""
    return find_sandbox()


def local_without_ripgrep(folder: Path, _request: pytest.FixtureRequest) -> ExecutionEnvironment:
    return LocalEnvironment(str(_root(folder)), use_ripgrep=False, sandbox="off")


def logging(folder: Path, _request: pytest.FixtureRequest) -> ExecutionEnvironment:
    lines: list[str] = []
    return LoggingEnvironment(LocalEnvironment(_root(folder), sandbox="off"), lines.append)


def scoped(folder: Path, _request: pytest.FixtureRequest) -> ExecutionEnvironment:
    root = _root(folder)
    (root / "in side").mkdir()
    return ScopedEnvironment(LocalEnvironment(root, sandbox="off"), "in side")


def docker_by_a_double(folder: Path, _request: pytest.FixtureRequest) -> ExecutionEnvironment:
    docker = fake_docker(folder / "docker")
    source = RunningContainer(docker.container, str(_root(folder)))
    return DockerEnvironment(source, program="docker", inherited=docker.variables)


def docker_by_a_double_without_ripgrep(folder: Path, _request: pytest.FixtureRequest) -> ExecutionEnvironment:
    docker = fake_docker(folder / "docker")
    root = _root(folder)
    source = FreshContainer("image:1", root, str(root))
    return DockerEnvironment(source, program="docker", inherited=docker.variables, use_ripgrep=False)


def docker(folder: Path, _request: pytest.FixtureRequest) -> ExecutionEnvironment:
    image = os.environ.get("PULLWRIGHT_TEST_IMAGE")
    engine = next((name for name in ("docker", "podman") if _answers(name)), None)
    if image is None or engine is None:
        pytest.skip("no container engine that answers, or no image named in PULLWRIGHT_TEST_IMAGE")
    return DockerEnvironment(FreshContainer(image, _root(folder)), program=engine)


def ssh(folder: Path, request: pytest.FixtureRequest) -> ExecutionEnvironment:
    server: SshServer = request.getfixturevalue("ssh_server")
    return SshEnvironment(server.target(_root(folder)))


def busybox(folder: Path, _request: pytest.FixtureRequest) -> ExecutionEnvironment:
    if shutil.which("busybox") is None:
        pytest.skip("no busybox program (install busybox)")
    return RemoteEnvironment(busybox_carrier(_root(folder), folder / "programs"))


PLACES: list[Place] = [
    local,
    sandboxed,
    local_without_ripgrep,
    logging,
    scoped,
    docker_by_a_double,
    docker_by_a_double_without_ripgrep,
    docker,
    ssh,
    busybox,
]


COMMAND_PLACES: list[Place] = [local, sandboxed, docker_by_a_double, ssh, busybox]
"""Those that run commands each in their own way; cases that take seconds run only there."""


def _root(folder: Path) -> Path:
    root = folder / "root"
    root.mkdir()
    return root


def _answers(engine: str) -> bool:
    if shutil.which(engine) is None:
        return False
    return subprocess.run([engine, "info"], capture_output=True, check=False, timeout=20).returncode == 0

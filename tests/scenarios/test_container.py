"""The image of `docs/docker`: built, and started as a person does. It needs an engine, and an image with Python.

The image is `pullwright-test:python` where somebody made it (`docker import` of a small system with Python, and apt or
git), else the one that the Dockerfile names, where the engine can fetch it.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from orchestrator.app.cli.arguments import parse
from orchestrator.app.cli.commands import commands
from tests.doubles.engines import engine

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "docker"
OWN = "pullwright-test:python"
IMAGE = "pullwright-test:built"
BUILD_SECONDS, FETCH_SECONDS, RUN_SECONDS = 900, 60, 120

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the built wheel brings no documents along")
slow = pytest.mark.slow(reason="an image is built, with all packages from the index")


def sandbox_options() -> list[str]:
    """The options that the page gives."""
    page = (ROOT / "docs" / "start.md").read_text("utf-8")
    (command,) = re.findall(r"docker run --rm (--cap-drop.*?) pullwright doctor", page, re.DOTALL)
    return shlex.split(command.replace("\\\n", " "))


def tried(*words: str, seconds: int = RUN_SECONDS) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [engine(), *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            cwd=ROOT,
            env={**os.environ, "DOCKER_BUILDKIT": "0"},
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 1, "", "no end in time")


@functools.cache
def image() -> str:
    """The image, built once."""
    (named,) = re.findall(r"^ARG BASE=(.*)$", (FOLDER / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    base = OWN if tried("image", "inspect", OWN).returncode == 0 else named
    if base == named and tried("image", "inspect", named).returncode:
        fetched = tried("pull", "--quiet", named, seconds=FETCH_SECONDS)
        if fetched.returncode:
            pytest.skip(f"there is no image with Python: {OWN} is not here, and {named} cannot be fetched")
    built = tried(
        *("build", "--network=host", "--build-arg", f"BASE={base}"),
        *("--file", str(FOLDER / "Dockerfile"), "--tag", IMAGE, "."),
        seconds=BUILD_SECONDS,
    )
    assert built.returncode == 0, built.stderr
    return IMAGE


def run(*words: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return tried("run", "--rm", "--network", "none", *options, image(), *words)


@slow
@pytest.mark.timeout(900)
def test_the_image_runs_the_demo_and_not_as_root() -> None:
    assert "pullwright init" in run().stdout
    demo = run("run", "--demo", "--plain")
    assert demo.returncode == 0, demo.stderr
    assert "Pull request #1: Make add() add" in demo.stdout
    assert tried("run", "--rm", "--entrypoint", "id", image(), "-u").stdout.strip() == "10001"


@slow
@pytest.mark.timeout(900)
def test_its_sandbox_works_with_the_options_of_the_page_and_is_not_left_out_without() -> None:
    words = ("doctor", "--allow-command", "ls *")
    assert "bubblewrap, tried with a command" in run(*words, options=tuple(sandbox_options())).stdout
    without = run(*words)
    assert "no sandbox for commands" in without.stdout or "tried with a command" in without.stdout


def test_the_services_run_commands_that_there_are_with_those_options() -> None:
    services = yaml.safe_load((FOLDER / "compose.yml").read_text("utf-8"))["services"]
    for service in services.values():
        if service["command"][0] in commands():
            parse(service["command"])
    typed = sandbox_options()
    wanted = {typed[at + 1] for at, word in enumerate(typed) if word == "--security-opt"}
    given = {one.removesuffix(":true").replace(":", "=") for one in services["worker"]["security_opt"]}
    assert given == wanted
    assert all(service["cap_drop"] == ["ALL"] for service in services.values())


def test_nothing_but_the_program_is_sent_to_the_engine() -> None:
    lines = (FOLDER / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    assert lines[0] == "*"
    named = [line[1:] for line in lines if line.startswith("!")]
    assert [name for name in named if not (ROOT / name).exists()] == []
    if shutil.which("git"):
        assert not [name for name in named if name.startswith((".git/", "tests", ".venv"))]

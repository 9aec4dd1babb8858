"""Both ways to start it from a source tree where the program cannot run: a Python that is too old, or one without the packages."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.app.cli.arguments import USAGE
from tests.tables import table

ROOT = Path(__file__).parents[4]
SCRIPT = ROOT / "run_local_agent.py"
ENTRIES = [SCRIPT, ROOT / "orchestrator/__init__.py", ROOT / "orchestrator/__main__.py"]
OLD_PYTHONS = [name for minor in range(8, 11) if (name := shutil.which(f"python3.{minor}"))]


def start(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(words),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd="/",
        env={"PATH": "/bin", **more},
    )


def said(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == USAGE
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


def as_old(run: str) -> list[str]:
    """A command that runs an expression of runpy in a Python that says it is too old."""
    code = (
        f"import runpy, sys; sys.version_info = (3, 10, 13); sys.path.insert(0, {str(ROOT)!r}); runpy.{run}"
    )
    return [sys.executable, "-S", "-c", code]


AS_SCRIPT = f"run_path({str(SCRIPT)!r}, run_name='__main__')"
AS_MODULE = "run_module('orchestrator', run_name='__main__')"


@table("entry", ENTRIES, ids=lambda path: path.name)
@table("minor", [8, 10])
def test_an_old_python_can_read_it(minor: int, entry: Path) -> None:
    ast.parse(entry.read_text("utf-8"), feature_version=(3, minor))


@pytest.mark.parametrize("run", [AS_SCRIPT, AS_MODULE])
def test_a_python_that_is_too_old_gets_one_line(run: str) -> None:
    line = said(start(*as_old(run)))
    assert line.startswith("pullwright: Pullwright needs Python 3.11 or newer; this is 3.10.13: ")


def test_a_newer_python_that_is_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "python3.12").symlink_to(sys.executable)
    done = start(*as_old(AS_MODULE), PATH=str(tmp_path))
    assert said(done).endswith("use python3.12, which is here")


@pytest.mark.skipif(not OLD_PYTHONS, reason="no older Python here")
@pytest.mark.parametrize("arguments", [["--help"], ["run", "--demo"]])
def test_a_real_old_python_gets_it_too(arguments: list[str]) -> None:
    for python in OLD_PYTHONS:
        started = start(python, "--version", PATH=str(Path(python).parent))
        if started.returncode == 0:  # a version manager has names of versions that are switched off
            for entry in ([str(SCRIPT)], ["-m", "orchestrator"]):
                done = start(python, *entry, *arguments, PATH=str(Path(python).parent), PYTHONPATH=str(ROOT))
                assert "Pullwright needs Python 3.11 or newer; this is 3." in said(done)


def test_without_the_packages_it_names_the_set_up(tmp_path: Path) -> None:
    copy = tmp_path / SCRIPT.name
    shutil.copy(SCRIPT, copy)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "orchestrator").mkdir()
    for entry in ENTRIES[1:]:
        shutil.copy(entry, tmp_path / "orchestrator")
    line = said(start(sys.executable, "-S", str(copy), "run", "--demo"))
    assert (
        f"python3 {tmp_path}/run_local_agent.py set-up, and run it with {tmp_path}/.venv/bin/python" in line
    )
    assert "(apscheduler, charset-normalizer, cryptography and " in line
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    line = said(start(sys.executable, "-S", str(copy), "doctor"))
    assert line.endswith(f"run it with {tmp_path}/.venv/bin/python")


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_needs_no_packages(argument: str) -> None:
    done = start(sys.executable, "-S", str(SCRIPT), argument)
    assert done.returncode == 0, done.stderr
    assert "pullwright" in done.stdout


@pytest.mark.parametrize(
    ("words", "path", "said_of_it"),
    [
        (["--all"], "/bin:/usr/bin", "knows --tests only"),
        ([], "/nowhere", "git is missing: install it"),
    ],
)
def test_what_keeps_the_set_up_from_beginning_is_one_line(
    words: list[str], path: str, said_of_it: str
) -> None:
    assert said_of_it in said(start(sys.executable, "-S", str(SCRIPT), "set-up", *words, PATH=path))


def test_the_set_up_says_what_it_does(tmp_path: Path) -> None:
    (tmp_path / "orchestrator").mkdir()
    shutil.copy(SCRIPT, tmp_path)
    for entry in ENTRIES[1:]:
        shutil.copy(entry, tmp_path / "orchestrator")
    (tmp_path / "requirements.lock").write_text("# nothing at all\n")
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho Collecting one==1\necho Installing collected packages: one\n")
    python.chmod(0o755)
    done = start(sys.executable, "-S", str(tmp_path / SCRIPT.name), "set-up", PATH="/bin:/usr/bin")
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert first == "installing 0 packages from requirements.lock ..."
    assert last.startswith("done in ")
    python.write_text("#!/bin/sh\necho ERROR: no network\nexit 1\n")
    done = start(sys.executable, "-S", str(tmp_path / SCRIPT.name), "set-up", PATH="/bin:/usr/bin")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "  ERROR: no network",
        "pullwright: pip failed as shown: check the network and the package index",
    ]

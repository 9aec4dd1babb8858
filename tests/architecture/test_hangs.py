"""A test that hangs ends with its limit, also one that keeps the error of the limit to itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import hangs

ROOT = Path(__file__).parents[2]
KEPT_IN_A_TASK = """\
import asyncio

def test_it():
    async def computes():
        while True:  # here the limit strikes, and the task keeps its error
            pass

    async def waits():
        task = asyncio.ensure_future(computes())
        await asyncio.Event().wait()

    asyncio.run(waits())
"""
CAUGHT = """\
import time

def test_it():
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass
"""
IN_THE_TEARDOWN = """\
import threading

import pytest

@pytest.fixture
def waits():
    yield
    threading.Event().wait()

def test_it(waits):
    assert False  # a failure ends what pytest-timeout limits
"""


def limited(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a test whose limit is short. Without the second limit it would not end."""
    (folder / "test_hanging.py").write_text(text, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\ntimeout = 0.5\n", encoding="utf-8")
    plugins = ("-p", "no:cacheprovider", "-p", "no:randomly", "-p", "tests.hangs")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, *arguments, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [(KEPT_IN_A_TASK, "in test_it"), (CAUGHT, "in test_it"), (IN_THE_TEARDOWN, "in waits")],
    ids=["kept in a task", "caught", "in the teardown"],
)
def test_a_test_that_keeps_the_error_of_its_limit_ends_with_a_traceback(
    text: str, line: str, tmp_path: Path
) -> None:
    done = limited(tmp_path, text)
    assert done.returncode == 1
    assert "Timeout (0:00:00.6" in done.stderr
    assert 'test_hanging.py", line ' in done.stderr
    assert line in done.stderr


def test_a_worker_that_hangs_is_named_with_its_test(tmp_path: Path) -> None:
    done = limited(tmp_path, KEPT_IN_A_TASK, "-n", "1", "--max-worker-restart=0")
    assert done.returncode == 1
    assert "crashed while running" in done.stdout
    assert "test_hanging.py::test_it" in done.stdout
    assert "in test_it" in done.stderr


def test_every_test_has_this_limit(request: pytest.FixtureRequest) -> None:
    assert request.config.pluginmanager.is_registered(hangs)
    assert request.node.stash[hangs.LIMIT] > 0

from __future__ import annotations

import functools
import gc
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from orchestrator.app.config.settings import SUITE_VARIABLES
from tests import hangs
from tests.doubles.model_server import NO_OTHERS

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tests.doubles.postgres import PostgresServer

# The same examples each time, so that more of them find more only where the code is new:
# HYPOTHESIS_PROFILE=thorough has others each time, and many.
# On a busy machine making an example takes long.
_PATIENT = (HealthCheck.too_slow,)
settings.register_profile(
    "repeatable", deadline=None, derandomize=True, max_examples=25, suppress_health_check=_PATIENT
)
settings.register_profile("thorough", deadline=None, max_examples=500, suppress_health_check=_PATIENT)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
# Else each process parses the program's modules for constants to try, for some seconds, and a test's examples are others
# where other modules were imported before it. The thorough profile tries them.
if settings.get_current_profile_name() == "repeatable":
    providers._get_local_constants = Constants

# Also where somebody has turned this off: else each worker compiles all modules of the suite at every start, which takes
# longer than their tests are collected, and each program that a test starts compiles itself.
sys.dont_write_bytecode = False

_KEPT = re.compile(
    "PATH|TMPDIR|TEMP|TMP|USER|LOGNAME|SHELL|LD_LIBRARY_PATH|DYLD_.*|SYSTEMROOT"
    "|PYTHON(PYCACHEPREFIX|HASHSEED|FAULTHANDLER|MALLOC)"
    "|PYTEST_(?!ADDOPTS|PLUGINS).*|HYPOTHESIS_.*|COV_CORE_.*|COVERAGE_.*"
    "|DOCKER_HOST|CONTAINER_HOST|XDG_RUNTIME_DIR|PLAYWRIGHT_BROWSERS_PATH"
    "|(SSL_CERT|PIP_|UV_|NIX_SSL_CERT|REQUESTS_CA|CURL_CA).*"
)
"""The variables of this machine that tests see: where programs and temporary files are, and what pytest itself sets.

A list of what is kept, because nobody knows all that another machine may have: keys, proxies, git, a locale.
"""
_NUMBERS = itertools.count()
_NAME_CHARS = 30
_OBJECTS_BETWEEN_COLLECTIONS = 20_000
"""The default are 700: a test makes more."""


def pytest_configure(config: pytest.Config) -> None:
    """End tests that hang. Let the programs that tests start handle SIGHUP, also under `nohup`, which has them ignore it."""
    config.pluginmanager.register(hangs)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(
            signal.SIGHUP, lambda _number, _frame: None
        )  # a handler ends at exec; ignoring does not


@pytest.hookimpl(optionalhook=True)  # xdist may be absent
def pytest_xdist_auto_num_workers() -> int | None:
    """`-n auto`: half as many workers again as there are cores, because a third of a test is waiting for programs."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + cores // 2


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m slow` imports no file without slow tests: to collect these takes each worker longer than some of the tests."""
    is_left_out = config.option.markexpr == "slow" and collection_path.suffix == ".py"
    return True if is_left_out and not _says_slow(collection_path) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Hold what `pytest_ignore_collect` relies on."""
    if item.get_closest_marker("slow") and not _says_slow(item.path):
        raise pytest.UsageError(f"{item.nodeid} is slow, and its file has no such word: write the mark there")


@functools.cache
def _says_slow(path: Path) -> bool:
    return b"slow" in path.read_bytes()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What collection makes stays to the end: no garbage collection looks at it, then or later."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    gc.enable()
    return result


@pytest.fixture(scope="session", autouse=True)
def no_settings_of_the_user(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """No test sees the user's keys and settings, or the machine's. What tests wrote stays where one failed."""
    base = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if not _KEPT.fullmatch(name) and name not in SUITE_VARIABLES:
                patch.delenv(name)
        home = base / "home"
        home.mkdir()
        patch.setenv("HOME", str(home))
        patch.setenv("PULLWRIGHT_CONFIG", os.devnull)
        for name, value in NO_OTHERS.items():
            patch.setenv(name, value)
        # Programs speak English on every machine. With another value argparse looks for translations of each
        # word in folders that are not there: most of the cost of an argument parser.
        patch.setenv("LANGUAGE", "C")
        patch.setenv("LANG", "C.UTF-8")
        # As in an activated environment: `python3` is this one, and no version manager's script that looks for one.
        patch.setenv("PATH", os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
        patch.setenv("TZ", "UTC")
        time.tzset()
        patch.setenv("XDG_CONFIG_HOME", str(base / "config"))
        # A git of a test, or of a person in a test, has no settings but those that the test gives it: its home is empty.
        patch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
        patch.setenv("GIT_ATTR_NOSYSTEM", "1")
        patch.setenv("GIT_TEMPLATE_DIR", str(_git_template(base / "git-template")))
        # Tests that start the program in a process of its own find the code under test from any folder.
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        yield
    if not request.session.testsfailed:
        # A hundred thousand files, which the next but two session would remove one by one in Python.
        subprocess.run(["rm", "-rf", base], stderr=subprocess.DEVNULL, check=False)


def _git_template(folder: Path) -> Path:
    """What git begins a test's repositories with: no samples of hooks to copy, no clean-up after each command."""
    for name in ("hooks", "info"):
        (folder / name).mkdir(parents=True)
    (folder / "config").write_text(
        "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[receive]\n\tautogc = false\n"
    )
    return folder


@pytest.fixture(autouse=True)
def state_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program's state folder in each test, which is not there yet."""
    # Not by `mktemp`, which reads the names of all folders of the tests before.
    home = tmp_path_factory.getbasetemp() / "state" / str(next(_NUMBERS))
    monkeypatch.setenv("PULLWRIGHT_HOME", str(home))
    return home


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test's own folder, of whose name nobody has to look whether another test has it."""
    name = re.sub(r"\W", "_", request.node.name)[:_NAME_CHARS]
    folder = tmp_path_factory.getbasetemp() / f"{name}-{next(_NUMBERS)}"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def own_state(state_of_its_own: Path) -> Path:
    """The program's state folder, for a test that looks into it."""
    state_of_its_own.mkdir(parents=True)
    return state_of_its_own


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL of the suite's own; tests that want it are skipped where it is not installed."""
    from tests.doubles.postgres import PostgresServer, programs

    found = programs()
    if found is None:
        pytest.skip("PostgreSQL is not installed here: apt-get install postgresql")
    with PostgresServer.started(found) as server:
        yield server

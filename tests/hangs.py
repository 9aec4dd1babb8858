"""Ends a test process that hangs: a limit that no code under test can keep from striking.

The signal of pytest-timeout raises an error in whatever code runs then. An event loop keeps it in a task or a callback, code
may catch it, and after a failure nothing limits the teardown. So each phase of a test has a second limit, a little above:
a thread beyond Python's reach writes the tracebacks of all threads and ends the process. `pytest` ends with it; under
pytest-xdist the test counts as failed, and another worker takes the rest.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

_ABOVE = 1.2
"""So much longer than the limit of pytest-timeout."""
LIMIT = pytest.StashKey[float]()
"""The seconds that pytest-timeout gives a test."""
_ERRORS = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the process's standard error, which is a file of the test's own while a test runs."""
    if sys.__stderr__ is not None:
        config.stash[_ERRORS] = os.dup(sys.__stderr__.fileno())


@pytest.hookimpl(tryfirst=True, optionalhook=True)  # pytest-timeout may be absent
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Remember the limit of a test."""
    item.stash[LIMIT] = settings.timeout


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Limit the setup."""
    return (yield from _limited(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Limit the test itself."""
    return (yield from _limited(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Limit the teardown."""
    return (yield from _limited(item))


def _limited(item: pytest.Item) -> Generator[None, object, object]:
    seconds, errors = item.stash.get(LIMIT, 0.0), item.config.stash.get(_ERRORS, None)
    if not seconds or errors is None:
        return (yield)
    faulthandler.dump_traceback_later(seconds * _ABOVE, file=errors, exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()

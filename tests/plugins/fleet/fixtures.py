"""The databases of fleets, for the tests of this plug-in and of those that need it."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.clock import SystemClock
from orchestrator.plugins.fleet.store import FleetStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.doubles.postgres import PostgresServer

_MEMORY = Path("/dev/shm")  # noqa: S108  a private folder is made in it


@pytest.fixture(scope="session")
def empty_fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet's SQLite file with its tables: making them takes as long as a test."""
    made = tmp_path_factory.mktemp("fleet") / "empty.db"
    _make_tables(f"sqlite:///{made}")
    return made


@pytest.fixture(scope="session")
def postgres_template(postgres: PostgresServer) -> str:
    """The name of a database with a fleet's tables, to be copied."""
    url = postgres.new_database()
    _make_tables(url)
    return url.rpartition("/")[2]


def _make_tables(url: str) -> None:
    store = FleetStore(url, SystemClock())
    store.open()
    store.close()


@pytest.fixture
def fleet_file(empty_fleet: Path) -> Iterator[str]:
    """The URL of an SQLite file that holds no turns: in memory where that can be, else each change waits for the disk."""
    parent = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=parent, ignore_cleanup_errors=True) as folder:
        yield f"sqlite:///{shutil.copy(empty_fleet, Path(folder) / 'fleet.db')}"


@pytest.fixture(params=["sqlite", "postgresql"])
def fleet_database(request: pytest.FixtureRequest, fleet_file: str) -> str:
    """The URL of a database without turns, of each kind that a fleet can have."""
    if request.param == "sqlite":
        return fleet_file
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database(request.getfixturevalue("postgres_template"))

"""What the tables of environments need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.environments import PLACES, Place
from tests.doubles import sshd

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from orchestrator.engine.environments.base import ExecutionEnvironment
    from tests.doubles.sshd import SshServer


@pytest.fixture(scope="session")
def ssh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    if sshd.find_sshd() is None:
        pytest.skip(sshd.MISSING)
    yield from sshd.serve(tmp_path_factory.mktemp("sshd"))


@pytest.fixture(params=PLACES, ids=lambda place: place.__name__)
async def environment(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ExecutionEnvironment]:
    place: Place = request.param
    made = place(tmp_path, request)
    await made.initialize()
    yield made
    await made.cleanup()

"""Without a sandbox no command runs, and the session says so instead of letting the model go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.errors import SandboxMissingError
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.environments.sandbox.find import find_sandbox
from orchestrator.engine.session.config import Host
from orchestrator.engine.session.session import Session
from tests.unit.engine.session.stage import ScriptedModel, profile, says

if TYPE_CHECKING:
    from pathlib import Path


class Bare(LocalEnvironment):
    """This machine, as if it had no bubblewrap."""

    async def _found_sandbox(self) -> Any:
        return find_sandbox(programs=[])


async def test_the_input_ends_with_what_to_install(tmp_path: Path) -> None:
    model = ScriptedModel([says("", ("shell", {"command": "touch ran"})), says("It worked.")])
    host = Host(system=lambda _shown: "You are tested.")
    async with Session(profile=profile(), environment=Bare(tmp_path), model=model, host=host) as session:
        with pytest.raises(SandboxMissingError, match="install bubblewrap"):
            await session.run("Go")
    assert len(model.steps) == 1
    assert list(tmp_path.iterdir()) == []

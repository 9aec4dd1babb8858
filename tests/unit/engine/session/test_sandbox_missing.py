"""Without a sandbox no command runs, and the session says so instead of letting the model go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.agent.config import Host
from orchestrator.agent.session import Session
from orchestrator.core.errors import SandboxMissingError
from orchestrator.environments.local import LocalEnvironment
from orchestrator.environments.sandbox import find_sandbox
from tests.unit.agent.stage import ScriptedModel, profile, says

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

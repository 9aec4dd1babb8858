"""The tables of environments and tools, with commands in containers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.engine.environments.local import LocalEnvironment
from tests.conformance import test_environment_commands as commands
from tests.conformance import test_environments as files
from tests.conformance import test_tools as tools
from tests.conformance.environments import empty_root
from tests.doubles import engines
from tests.plugins.containers.sandboxes import container_sandbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from orchestrator.engine.environments.base import ExecutionEnvironment


@pytest.fixture(params=[engines.IMAGE, engines.SMALL_IMAGE], ids=["container", "small_container"])
async def environment(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ExecutionEnvironment]:
    """An environment of an image; the small one has neither bash nor Python."""
    made = LocalEnvironment(empty_root(tmp_path), sandbox=container_sandbox(request.param))
    await made.initialize()
    yield made
    await made.cleanup()


@pytest.mark.parametrize("case", [*files.CASES, *commands.CASES, *commands.SLOW_CASES])
async def test_environment(case: commands.Case, environment: ExecutionEnvironment) -> None:
    await case(environment)


test_tools_act_alike_everywhere = tools.test_tools_act_alike_everywhere
test_the_tools_of_the_profiles_act_alike_everywhere = (
    tools.test_the_tools_of_the_profiles_act_alike_everywhere
)

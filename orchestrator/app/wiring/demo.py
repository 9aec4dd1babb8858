"""`run --demo`: a small repository and prepared replies, everything else is the real thing."""

from __future__ import annotations

import random
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.wiring.model import ChosenModel
from orchestrator.bot.git.base import Identity
from orchestrator.bot.git.local import create_repository
from orchestrator.bot.journal.folders import new_run_id
from orchestrator.core.messages import FinishReason, Message, Usage
from orchestrator.engine.models.base import Response
from orchestrator.engine.models.replay import ReplayModel

if TYPE_CHECKING:
    from orchestrator.app.config import Settings
    from orchestrator.bot.journal.folders import Home
    from orchestrator.core.clock import Clock

_NAME = "demo"
_AUTHOR = Identity("Ada", "ada@example.com")


def as_demo(settings: Settings) -> Settings:
    """The settings with the contract and the profile for which the replies were prepared."""
    return settings.model_copy(
        update={
            "contract": "json-plan",
            "profile": None,
            "permission": "safe",
            "allow_command": (),
            "test_command": None,
            "require_tests": False,
        }
    )


def make_demo(home: Home, clock: Clock) -> tuple[str, ChosenModel]:
    """Create the demo's repository and its model.

    Returns:
        The repository's path, and a model that gives the prepared replies at no cost.

    Raises:
        WorkspaceError: git is missing or failed.
    """
    data = tomllib.loads(Path(__file__).with_name("demo.toml").read_text(encoding="utf-8"))
    folder = home.cache / _NAME / f"{new_run_id(clock.now(), random.SystemRandom())}.git"
    create_repository(folder, data["files"], "Start the project", _AUTHOR)
    replies = [
        Response(Message.assistant(reply["text"]), FinishReason.STOP, Usage(), _NAME)
        for reply in data["replies"]
    ]
    return str(folder), ChosenModel(ReplayModel(_NAME, replies), lambda _usage: 0.0)

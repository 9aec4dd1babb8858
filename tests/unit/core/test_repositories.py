"""Commands that messages suggest, beside those about tasks."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from orchestrator.core.repositories import install_command

ROOT = Path(__file__).parents[3]


def test_an_extra_is_installed_from_the_source_tree_into_this_environment() -> None:
    command = install_command("fleet")
    assert shlex.split(command) == [sys.executable, "-m", "pip", "install", f"{ROOT}[fleet]"]

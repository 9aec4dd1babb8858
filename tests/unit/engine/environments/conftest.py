"""What several tests of this room use."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def git() -> Callable[..., str]:
    """Run git without the user's configuration; the answer is its standard output."""

    def run(*arguments: str, cwd: Path | None = None) -> str:
        variables = {"PATH": os.environ["PATH"], "HOME": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        ran = subprocess.run(
            ["git", *arguments], cwd=cwd, env=variables, capture_output=True, text=True, check=True
        )
        return ran.stdout

    return run

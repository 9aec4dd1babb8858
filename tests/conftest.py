from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from hypothesis import settings

from orchestrator.app.config.sources import SUITE_VARIABLES

# The same examples each time, so that more of them find more only where the code is new:
# HYPOTHESIS_PROFILE=thorough has others each time.
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

_LEAKING = ("PULLWRIGHT_", "GIT_", "GITHUB_", "GH_", "OPENAI_", "ANTHROPIC_", "GEMINI_", "GOOGLE_", "XDG_")
_NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def own_state(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No test sees the user's keys, settings or state; each has a state folder of its own."""
    for name in list(os.environ):
        if name.startswith(_LEAKING) and name not in SUITE_VARIABLES:
            monkeypatch.delenv(name)
    # Not by `mktemp`, which reads the names of all folders of the tests before.
    home = tmp_path_factory.getbasetemp() / "state" / str(next(_NUMBERS))
    home.mkdir(parents=True)
    monkeypatch.setenv("PULLWRIGHT_HOME", str(home))
    config = home.with_name(f"{home.name}.toml")
    config.touch()
    monkeypatch.setenv("PULLWRIGHT_CONFIG", str(config))
    # Tests that start the program in a process of its own find the code under test from any folder.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    return home

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")

_LEAKING = ("PULLWRIGHT_", "GIT_", "GITHUB_", "GH_", "OPENAI_", "ANTHROPIC_", "GEMINI_", "GOOGLE_", "XDG_")
_KEPT = ("PULLWRIGHT_TEST_",)


@pytest.fixture(autouse=True)
def own_state(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No test sees the user's keys, settings or state; each has a state folder of its own."""
    for name in list(os.environ):
        if name.startswith(_LEAKING) and not name.startswith(_KEPT):
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("PULLWRIGHT_HOME", str(home))
    config = tmp_path_factory.mktemp("config") / "config.toml"
    config.touch()
    monkeypatch.setenv("PULLWRIGHT_CONFIG", str(config))
    # Tests that start the program in a process of its own find the code under test from any folder.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    return home

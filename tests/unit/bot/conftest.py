from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.bot.git.rig import clone, make_source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.bot.git.clone import Clone

FILES: dict[str, str | bytes] = {
    "README.md": "# Example\n",
    "src/calc.py": "def add(a, b):\n    return a - b\n",
    "src/old.py": "gone = True\n",
    ".gitignore": "*.log\nbuild/\n",
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_source(tmp_path / "source", FILES)


@pytest.fixture
def safe(source: Path, tmp_path: Path) -> Iterator[Clone]:
    """A clone for safe mode: no `.git` in the tree."""
    with clone(source, tmp_path / "runs") as opened:
        yield opened


@pytest.fixture
def shelled(source: Path, tmp_path: Path) -> Iterator[Clone]:
    """A clone for a model that may run commands."""
    with clone(source, tmp_path / "runs", with_git=True) as opened:
        yield opened

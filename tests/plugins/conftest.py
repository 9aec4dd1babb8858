from __future__ import annotations

from tests.scenarios.conftest import github, repository, stage

__all__ = ["github", "repository", "stage"]

from __future__ import annotations

from tests.unit.engine.tools.conftest import context

__all__ = ["context"]

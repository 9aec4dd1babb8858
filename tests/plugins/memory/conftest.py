from __future__ import annotations

from tests.unit.bot.conftest import place, world
from tests.unit.engine.tools.conftest import context

__all__ = ["context", "place", "world"]

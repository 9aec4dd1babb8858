"""What a session took hold of and lets go of at its end: its environment, and the models that it asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.models.base import Model


class Holdings:
    """The environment, if the session owns it, and the models.

    Args:
        environment: made ready once, and cleaned up if making ready was so much as begun.
        owns_environment: False leaves both to somebody else.
        kept: the model of a parent, which outlives the session.
    """

    def __init__(
        self, environment: ExecutionEnvironment, *, owns_environment: bool, kept: Model | None
    ) -> None:
        self._environment = environment
        self._owns = owns_environment
        self._kept = kept
        self._models: list[Model] = []
        self._begun = self._ready = False

    async def open(self) -> None:
        """Make the environment ready; a second time does nothing."""
        if self._owns and not self._ready:
            self._begun = True
            await self._environment.initialize()
            self._ready = True

    def note(self, model: Model) -> None:
        """Take note of a model that is asked."""
        if model is not self._kept and not any(model is known for known in self._models):
            self._models.append(model)

    async def let_go(self) -> None:
        """Let go of everything, also where one of them fails to."""
        try:
            if self._begun:
                self._begun = False
                await self._environment.cleanup()
        finally:
            while self._models:
                await self._models.pop().aclose()

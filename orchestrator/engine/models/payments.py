"""Charges requests outside of a conversation, such as embeddings, to the session that causes them."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator.core.messages import Usage


class Payer(Protocol):
    """An object with a budget that pays for requests."""

    def pay(
        self, model: str, most_tokens: int, price: Callable[[Usage], float | None]
    ) -> AbstractContextManager[Callable[[Usage], None]]:
        """Reserve the most that a request may cost while it runs.

        Call the yielded function with the real usage.

        Raises:
            ModelError: the budget has no room for it.
        """


_PAYER: ContextVar[Payer | None] = ContextVar("payer", default=None)


@contextmanager
def paid_by(payer: Payer) -> Iterator[None]:
    """Charge all requests inside the block to this payer, also those of tasks that are created there."""
    token = _PAYER.set(payer)
    try:
        yield
    finally:
        _PAYER.reset(token)


def paying(
    model: str, most_tokens: int, price: Callable[[Usage], float | None]
) -> AbstractContextManager[Callable[[Usage], None]]:
    """Reserve a request's cost with the current payer (see `Payer`). Outside of sessions nothing counts."""
    payer = _PAYER.get()
    return nullcontext(_uncounted) if payer is None else payer.pay(model, most_tokens, price)


def _uncounted(_usage: Usage) -> None:
    """Ignore the usage."""

"""Who pays for a request beside the conversation, such as one for vectors: the session in whose call it is made."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator.core.messages import Usage


class Payer(Protocol):
    """Has a budget."""

    def pay(
        self, model: str, most_tokens: int, price: Callable[[Usage], float | None]
    ) -> AbstractContextManager[Callable[[Usage], None]]:
        """Set aside what a request may take, as long as it is under way; call what it gives with what it took.

        Raises:
            ModelError: there is no room for it.
        """


_PAYER: ContextVar[Payer | None] = ContextVar("payer", default=None)


@contextmanager
def paid_by(payer: Payer) -> Iterator[None]:
    """Have this one pay for what is asked inside, by tasks that are begun there, too."""
    token = _PAYER.set(payer)
    try:
        yield
    finally:
        _PAYER.reset(token)


def paying(
    model: str, most_tokens: int, price: Callable[[Usage], float | None]
) -> AbstractContextManager[Callable[[Usage], None]]:
    """Have the payer of here pay; see `Payer`. Outside of a session nobody counts."""
    payer = _PAYER.get()
    return nullcontext(_uncounted) if payer is None else payer.pay(model, most_tokens, price)


def _uncounted(_usage: Usage) -> None:
    """Nobody counts."""

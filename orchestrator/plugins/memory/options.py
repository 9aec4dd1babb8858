"""The options of `memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from orchestrator.app.options import Bounds, Reach, choice, number, option

if TYPE_CHECKING:
    from orchestrator.app.forms import Address, Line
    from orchestrator.app.wiring import BuildContext

_ADDRESS = "an http:// or https:// address without a user name, a password or a #"
_ONE_LINE = "one line of text, not empty, of at most 200 characters"


class MemoryOptions:
    """What is remembered, and how texts are compared."""

    memory: bool = choice(
        False,
        "Let the model store memories on this machine, and recall them with each message.",
        Reach.NEVER,
        begins="memory",
    )
    repository_memory: bool = choice(
        True, "Keep lessons from reviews for all machines, on a hidden ref of the repository.", Reach.NEVER
    )
    embedding_api_url: Address | None = option(
        None,
        "Address of an embeddings server for the memory. Without it and without the extra embed, words are compared.",
        _ADDRESS,
        Reach.NEVER,
    )
    embedding_model: Line | None = option(
        None,
        "Model of the embeddings server; text-embedding-3-small if not set. Without one: all-MiniLM-L6-v2 or letters.",
        _ONE_LINE,
        Reach.NEVER,
    )
    embedding_dimension: int | None = number(
        None,
        "Dimension of the embeddings server's vectors. If not set, the model's own.",
        Bounds(1, 8_192),
        Reach.NEVER,
    )


def options_in(context: BuildContext) -> MemoryOptions:
    """Return the settings, which have these options if the plug-in is there."""
    return cast("MemoryOptions", context.settings)

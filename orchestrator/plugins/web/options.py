"""The options of `web`."""

from __future__ import annotations

from typing import Literal

from orchestrator.app.options import Reach, choice


class WebOptions:
    """The option that gives a model the web tools."""

    web: Literal["tavily", "brave", "exa", "pages"] | None = choice(
        None,
        "Search engine of the web tools; pages reads pages without an engine and its key. If not set, the model has no "
        "web tools.",
        Reach.NEVER,
        begins="the web",
    )

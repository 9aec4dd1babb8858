"""The options of `verify_pr`."""

from __future__ import annotations

from typing import Literal

from orchestrator.app.options import Reach, choice


class VerifyOptions:
    """The option that says whose pull requests need evidence."""

    require_evidence: Literal["all", "bots", "none"] = choice(
        "none",
        "Whose pull requests need a report of their tests that holds, or `verify-pr` refuses them: all, those of bots, "
        "or none.",
        Reach.TIGHTEN,
        begins="verification of pull requests",
    )

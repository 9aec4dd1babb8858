"""The options of `skills`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.app.options import Bounds, Reach, choice, limit, several

if TYPE_CHECKING:
    from orchestrator.app.forms import Texts


class SkillOptions:
    """The options for the skills of a session."""

    skill: Texts = several(
        "Skills that the model gets from the start.", "the name of a skill", Reach.NEVER, begins="skills"
    )
    disable_skills: bool = choice(
        False, "Offer the model no skills, neither yours nor the repository's.", Reach.TIGHTEN
    )
    skill_bytes: int | None = limit(
        "Maximum bytes of a skill that the model gets. If not set, 4,096 with the profile explorer, else 20,480.",
        Bounds(256, 1_000_000),
    )

"""What `skills` adds."""

from __future__ import annotations

from types import MappingProxyType

from orchestrator.app.plugins import Plugin, Point

PLUGIN = Plugin(
    name="skills",
    text="give the model written instructions for kinds of work: yours, and those of the repository",
    options=".options:SkillOptions",
    adds=MappingProxyType(
        {
            Point.ATTACKS: ".attacks:FOLDER",
            Point.PROFILE: ".sessions:complete_profile",
            Point.READABLE: ".sessions:readable_folders",
            Point.SLASH_COMMANDS: ".sessions:SLASH_COMMANDS",
        }
    ),
    uses=("chat",),
)

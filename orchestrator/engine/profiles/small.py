"""The profile for models of few parameters: whole files, few tools, few words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.core.prompts import render
from orchestrator.engine.profiles.base import Profile

if TYPE_CHECKING:
    from orchestrator.engine.tools.registry import ToolRegistry


REPLY_TOKENS = 2_048
"""A file of 150 lines and a pull request. Small models come to repeat themselves, and then never end."""


def small(tools: ToolRegistry, *, thinks: bool = False) -> Profile:
    """The profile over these tools.

    A model of a few billion parameters repairs a short program when it may write it down again, and fails when
    it has to quote the lines that it changes, so the prompt asks for whole files. Its likeliest
    reply is its best one; the one after a failed call is drawn, so that it is another. A model that thinks
    first needs room for that, and comes to repeat itself where its thoughts are the likeliest ones, so that its
    replies are as it gives them by itself.

    Args:
        tools: what the model can call.
        thinks: it thinks before it answers.
    """
    base_prompt = render("profiles/small")
    profile = Profile("small", tools, base_prompt, is_brief=True)
    return profile if thinks else replace(profile, max_output_tokens=REPLY_TOKENS, temperature=0.0)

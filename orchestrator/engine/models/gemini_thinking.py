"""How much a Gemini model is asked to think: levels from Gemini 3 on, budgets of tokens before.

https://ai.google.dev/gemini-api/docs/thinking
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

_NUMBERED = re.compile(r"gemini-(\d+)(?:\.(\d+))?(?![\d.])")

_LEVELS = {"none": "MINIMAL", "max": "XHIGH"}  # a Gemini 3 cannot be kept from thinking

# The vendor's own mapping of effort words: https://ai.google.dev/gemini-api/docs/openai
_BUDGET_TOKENS = {"none": 0, "minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576}
_MOST_TOKENS = 24_576
_MOST_TOKENS_PRO = 32_768
_LEAST_TOKENS_PRO = 128  # 2.5 Pro cannot be kept from thinking
_DYNAMIC = -1


class Levels(Enum):
    """How many different levels a model takes."""

    ALL = "all"
    TWO = "low and high"  # every model with levels has these
    NONE = "none"

    def fewer(self, model: str) -> Levels:
        """What is left to try after a refusal."""
        return Levels.TWO if self is Levels.ALL and generation_of(model) >= (3, 0) else Levels.NONE


def generation_of(model: str) -> tuple[int, int]:
    """The numbers in a model's name; (3, 0), the rules of today, where there are none (`gemini-flash-latest`)."""
    found = _NUMBERED.search(model.lower())
    return (int(found[1]), int(found[2] or 0)) if found else (3, 0)


def thinking_config(effort: str | None, model: str, levels: Levels) -> dict[str, Any]:
    """The vendor's `thinkingConfig` for an effort word; empty where nothing is to be sent.

    A word that is not in the table goes out as it is, or asks an older model to decide by itself.
    """
    if effort is None or levels is Levels.NONE or generation_of(model) < (2, 5):
        return {}
    word = effort.lower()
    if generation_of(model) < (3, 0):
        budget = _budget(word, is_pro="pro" in model.lower())
        return {"thinkingBudget": budget, "includeThoughts": word != "none"}
    level = _LEVELS.get(word, word.upper())
    if levels is Levels.TWO:
        level = "LOW" if level in {"MINIMAL", "LOW"} else "HIGH"
    return {"thinkingLevel": level, "includeThoughts": word != "none"}


def _budget(word: str, *, is_pro: bool) -> int:
    if word in {"xhigh", "max"}:
        return _MOST_TOKENS_PRO if is_pro else _MOST_TOKENS
    budget = _BUDGET_TOKENS.get(word, _DYNAMIC)
    return _LEAST_TOKENS_PRO if is_pro and budget == 0 else budget

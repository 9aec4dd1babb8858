"""What Claude models take, told by their names, because no reply says it: thinking, sampling, output limits.

https://platform.claude.com/docs/en/build-with-claude/thinking-troubleshooting
https://platform.claude.com/docs/en/build-with-claude/effort
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_NAME = re.compile(r"claude-(?:[a-z]+-)*?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_FAMILY = re.compile(r"fable|mythos|opus|sonnet|haiku")
_NEWEST = (99, 0)  # a Claude without a number is newer than this file

_OFF = frozenset(("none", "off", "disabled"))
_LEVELS = ("low", "medium", "high", "xhigh", "max")
_OTHER_WORDS = {"minimal": "low"}

# The vendor names no budgets for its levels; these grow as its examples do. The least it takes is 1,024.
_LEAST_BUDGET_TOKENS = 1_024
_BUDGET_TOKENS = {"low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 24_576, "max": 24_576}

_UNKNOWN_OUTPUT_TOKENS = 8_192  # servers refuse a limit that does not fit into a small window
_USUAL_OUTPUT_TOKENS = 32_000
_DEEP_OUTPUT_TOKENS = 64_000  # what the vendor advises for the two highest levels of effort
_LEAST_TOP_P_WITH_THINKING = 0.95


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """What one model takes.

    Attributes:
        family: `opus` and so on; empty where the name has none.
        version: major and minor number; None where the model is no Claude.
    """

    family: str
    version: tuple[int, int] | None

    @classmethod
    def of(cls, model: str) -> ModelTraits:
        """Read a name, as the vendor or a reseller writes it (`anthropic/claude-opus-4.5`)."""
        name = model.lower()
        if "claude" not in name:
            return cls("", None)
        family, number = _FAMILY.search(name), _NAME.search(name)
        version = (int(number[1]), int(number[2] or 0)) if number else _NEWEST
        return cls(family[0] if family else "", version)

    def since(self, major: int, minor: int = 0) -> bool:
        """Whether it is a Claude of this version or a later one."""
        return self.version is not None and self.version >= (major, minor)

    @property
    def is_claude(self) -> bool:
        """Whether the vendor's own rules hold."""
        return self.version is not None

    @property
    def takes_schema(self) -> bool:
        """Whether a reply can be constrained to a schema."""
        return self.since(4, 5)

    @property
    def takes_forced_tools(self) -> bool:
        """Whether `tool_choice` may demand a call."""
        return not self.since(5, 1)

    def output_tokens(self, effort: str | None) -> int:
        """The output limit where none is configured; the protocol demands one."""
        if self.version is None:
            return _UNKNOWN_OUTPUT_TOKENS
        if self.version < (3, 7):
            return 8_192 if self.version == (3, 5) else 4_096
        deep = self.since(4, 6) and effort in {"xhigh", "max"}
        return _DEEP_OUTPUT_TOKENS if deep else _USUAL_OUTPUT_TOKENS

    def thinking(self, effort: str, max_tokens: int, *, may_budget: bool, forced: bool) -> dict[str, Any]:
        """The fields that ask for this much reasoning.

        Claude 4.6 and later get adaptive thinking and a level of effort; a level that the model lacks
        becomes the next lower one. Earlier ones, and models of other makers, get a budget below the
        output limit, at most half of it.

        Args:
            effort: one of the vendor's levels, `minimal`, or `none`; another word is passed on as a level.
            max_tokens: the output limit of the request.
            may_budget: whether a budget can be had in this request.
            forced: whether the request demands a call, which excludes thinking.
        """
        level = _OTHER_WORDS.get(effort.lower(), effort.lower())
        if level in _OFF:
            return self._without()
        if self.since(4, 6):
            fields: dict[str, Any] = {"output_config": {"effort": self._level(level)}}
            if not forced:
                # Later models leave the text out unless it is asked for; 4.6 has no such choice to make.
                shown = {"display": "summarized"} if self.since(4, 7) else {}
                fields["thinking"] = {"type": "adaptive", **shown}
            return fields
        fields = {}
        if self.version == (4, 5) and self.family == "opus":
            fields["output_config"] = {"effort": level if level in _LEVELS[:3] else "high"}
        budget = min(_BUDGET_TOKENS.get(level, _BUDGET_TOKENS["high"]), max_tokens // 2)
        able = self.version is None or self.since(3, 7)
        if able and may_budget and not forced and budget >= _LEAST_BUDGET_TOKENS:
            fields["thinking"] = {"type": "enabled", "budget_tokens": budget}
        return fields

    def _level(self, level: str) -> str:
        is_first = self.version in {(4, 6), _NEWEST}
        return "high" if level == "xhigh" and is_first else level

    def _without(self) -> dict[str, Any]:
        if not self.is_claude:
            return {"thinking": {"type": "disabled"}}
        if not self.since(5):
            return {}  # these think only when asked to
        if self.family in {"sonnet", "haiku"} or (self.version == (5, 0) and self.family == "opus"):
            is_new_sonnet = self.family == "sonnet" and self.since(5, 1)
            return {"thinking": {"type": "between_tools" if is_new_sonnet else "disabled"}}
        return {"output_config": {"effort": "low"}}  # the others always think

    def sampling(self, temperature: float | None, top_p: float | None, thinking: object) -> dict[str, float]:
        """Those of the configured sampling fields that the model takes.

        Claude 4.7 and later take none; with thinking, earlier ones take `top_p` from 0.95 only; and
        from Claude 4 on it is one of the two.
        """
        if self.since(4, 7):
            return {}
        given = {"temperature": temperature, "top_p": top_p}
        chosen = {name: value for name, value in given.items() if value is not None}
        if self.is_claude and isinstance(thinking, dict) and thinking.get("type") in {"enabled", "adaptive"}:
            chosen.pop("temperature", None)
            if (top_p or 0.0) < _LEAST_TOP_P_WITH_THINKING:
                chosen.pop("top_p", None)
        if self.since(4) and "temperature" in chosen:
            chosen.pop("top_p", None)
        return chosen

"""What a server refuses of a request, as its errors name it: optional fields, and a limit of the reply that is too high.

Only fields that this program adds by itself and that a request can do without are ever left out. What the user
put into the body by `provider_options` stays, and so do the model, the conversation and the tools.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import (
    InvalidRequestError,
    ModelError,
    ModelNotFoundError,
    OverloadedError,
    ProviderError,
)
from orchestrator.engine.models.overflow import highest_reply_limit

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_KINDS = InvalidRequestError | OverloadedError | ProviderError | ModelNotFoundError

_REFUSES = re.compile(
    r"not (be )?(support|permit|allow|accept|recogni|available|enabled|valid|compatible|applicable)"
    r"|unsupported|unrecogni[sz]ed|unknown|unexpected|incompatible|deprecated|extra_forbidden|extra (inputs|fields)"
    r"|do(es)?n't (support|accept|allow)|cannot be (used|set|specified|combined)|can't be (used|set|specified)"
    r"|that support the|no such (parameter|argument|field)|only .{0,30}(default|supported)"
    r"|invalid (value|parameter|argument|field)|must be one of|supported (values|levels)|expected one of"
    r"|input should be '|is invalid|not one of|does not exist|not found|cannot find field|cannot both|only one of",
    re.IGNORECASE,
)
# A number out of its range is the user's mistake: nothing is wrong with the field.
_OUT_OF_RANGE = re.compile(
    r"(above|below) (the )?(maximum|minimum)|must be (between|at least|at most|greater|less|positive|non)"
    r"|expected a value (>|<)|out of range|should be (greater|less)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z_][\w.]*\w")
_QUOTED = re.compile(
    r"['\"`\[(](?:in )?([A-Za-z_][\w.]*\w)['\"`\])]|(?:parameter|argument|field)s?:? ([A-Za-z_][\w.]*\w)"
)
_THINKING = re.compile(r"(?<![-\w/])(thinking|reasoning|effort|think)(?![-\w])", re.IGNORECASE)

_EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
_LISTED = re.compile(
    r"(?:supported|allowed|valid|available) (?:values|levels|efforts|options)(?: are| is)?:?([^.]{1,200})"
    r"|(?:must be|expected|should be|choose) one of:?([^.]{1,200})",
    re.IGNORECASE,
)
_LEVEL = re.compile(r"[a-z]+")

# Other words that servers have for a field.
_ALIASES = {
    "toolchoice": re.compile(r"\btool[ _]choice\b|\bforced? tool|tool_config\b", re.IGNORECASE),
    "paralleltoolcalls": re.compile(r"parallel[ _]tool|parallel function", re.IGNORECASE),
    "reasoningeffort": _THINKING,
}


@dataclass(frozen=True, slots=True)
class Refused:
    """What a server has turned out not to take.

    Attributes:
        fields: names of fields in the head of a request.
        reply_tokens: the highest limit of a reply.
        efforts: levels of reasoning, each with the one that is sent in its place.
    """

    fields: frozenset[str] = frozenset()
    reply_tokens: int | None = None
    efforts: tuple[tuple[str, str], ...] = ()

    def kept(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """These fields without those that the server does not take, and those without a value."""
        return {
            name: value for name, value in fields.items() if value is not None and name not in self.fields
        }

    def limit(self, wanted: int | None) -> int | None:
        """The limit of a reply, lowered where the server takes no such high one."""
        if self.reply_tokens is None:
            return wanted
        return self.reply_tokens if wanted is None else min(wanted, self.reply_tokens)

    def effort(self, wanted: str | None) -> str | None:
        """The level of reasoning that is sent."""
        for refused, instead in self.efforts:  # in the order in which they were refused
            wanted = instead if wanted == refused else wanted
        return wanted

    def after_effort(self, said: str, effort: object) -> Refused | None:
        """The same with the nearest level of those that an error lists; None where it lists none."""
        refused = {level for level, _ in self.efforts} | {str(effort)}
        nearest = nearest_effort(said, str(effort), refused)
        return replace(self, efforts=(*self.efforts, (str(effort), nearest))) if nearest else None

    def after(
        self, error: ModelError, sent: Mapping[str, Any], users: Mapping[str, Any], limit: int | None
    ) -> Refused | None:
        """What is refused after this error, if it names anything that can be left out; else None.

        Args:
            error: the server's answer to the request.
            sent: the optional fields that the request had, by their names.
            users: the fields that the user put there; they are never left out.
            limit: of the reply, as it was sent.
        """
        if not isinstance(error, _KINDS):
            return None
        said = str(error).partition(": ")[2]
        highest = highest_reply_limit(said)
        if highest is not None and (limit is None or highest < limit):
            return replace(self, reply_tokens=highest)
        ours = [name for name in sent if name not in users]
        named = named_field(said, ours, exactly=not isinstance(error, InvalidRequestError))
        if named is None:
            return None
        is_effort = _plain(named) == "reasoningeffort"
        lowered = self.after_effort(said, sent[named]) if is_effort else None
        return lowered or replace(self, fields=self.fields | {named})


def nearest_effort(said: str, effort: str, refused: Collection[str] = ()) -> str | None:
    """Of the levels of reasoning that an error lists, the one nearest to this one; of two the lower.

    None where it lists none that is known, or only `none`: to leave the field out is nearer then.
    """
    found = _LISTED.search(said)
    if found is None or effort not in _EFFORTS:
        return None
    listed = [
        word
        for word in _LEVEL.findall((found[1] or found[2]).lower())
        if word in _EFFORTS and word not in refused
    ]
    place = _EFFORTS.index
    return min(listed, key=lambda level: (abs(place(level) - place(effort)), place(level)), default=None)


def named_field(said: str, fields: list[str], *, exactly: bool = False) -> str | None:
    """The one of these fields that an error names as not supported; None where it names none of them.

    Args:
        said: the error.
        fields: those that may be meant.
        exactly: by its own name only, not by what it is for.
    """
    if _REFUSES.search(said) is None or _OUT_OF_RANGE.search(said):
        return None
    quoted = [word for pair in _QUOTED.findall(said) for word in pair if word]
    certain = [name for name in fields if "_" in name or not name.islower() or name == "temperature"]
    for words, names in ((quoted, fields), (_WORD.findall(said), certain)):
        known = {_plain(name): name for name in names}
        if named := next((known[word] for word in map(_last, words) if word in known), None):
            return named
    if exactly:
        return None
    # Under another name, if it is not another field that is meant.
    return next(
        (name for name in fields if (alias := _ALIASES.get(_plain(name))) and alias.search(said)), None
    )


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """What is different in a request that is sent again, in words: "without reasoning_effort"."""
    gone = [name for name in before if name not in after]
    other = [
        f"{name}={value}" if isinstance(value, int | float | str) else f"another {name}"
        for name, value in after.items()
        if before.get(name) != value
    ]
    words = [f"without {', '.join(gone)}"] if gone else []
    words += [f"with {', '.join(other)}"] if other else []
    return " and ".join(words) or "without what it refuses of the conversation so far"


def _last(word: str) -> str:
    """The field that a path names, where it is one of the request itself: `body.reasoning_effort`."""
    first, _, rest = word.partition(".")
    return _plain(rest if first in {"body", "request", "params", "parameters", "config"} and rest else word)


def _plain(name: str) -> str:
    """A name without what servers write differently: reasoning_effort, reasoningEffort, reasoning.effort."""
    return name.replace("_", "").replace(".", "").lower()

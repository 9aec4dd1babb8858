"""Finds in an error what a server refuses: the request's length, a reply limit, or an optional field.

Only fields that this program adds by itself and that a request does not need are ever left out. Fields that
the user added by `provider_options` stay, and so do the model, the conversation and the tools.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import (
    InvalidRequestError,
    ModelError,
    ModelNotFoundError,
    OverloadedError,
    ProviderError,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from orchestrator.engine.models.base import Request


_FLAGS = re.IGNORECASE


def any_of(*patterns: str) -> re.Pattern[str]:
    """Return a pattern that matches any of these, whatever the case."""
    return re.compile("|".join(patterns), _FLAGS)


_NUMBER = r"(\d[\d,_]{0,14})"
# "tokens per min (TPM): Limit 30000, Used 1, Requested 61337", or the same without the used part.
_ALLOWED = re.compile(rf"\blimit:? ~?{_NUMBER}\b.{{0,60}}?\brequested:? ~?{_NUMBER}", _FLAGS)
# Input and longest reply, and the limit on their sum.
_SUMS = (
    re.compile(rf"(?P<input>{_NUMBER}) \+ {_NUMBER} > (?P<window>{_NUMBER})", _FLAGS),
    re.compile(
        rf"context (?:length|window|limit|size)\D{{0,40}}(?P<window>{_NUMBER}) tokens?.{{0,160}}?"
        rf"(?P<input>{_NUMBER}) (?:in (?:your prompt|the messages)|of text input|input tokens)",
        _FLAGS,
    ),
    re.compile(rf"<= (?P<window>{_NUMBER})\. given: (?P<input>{_NUMBER}) `?inputs`? tokens", _FLAGS),
)

# The refusal calls a single request too large, whatever the limit.
_REQUEST_TOO_LARGE = any_of(
    r"\brequest_too_large\b",
    r"request( body| entity| payload)? (is )?too large",
    r"tokens_limit_reached",
    r"long[ -]context (requests|beta)",
)
_RATE_LIMIT = any_of(
    r"rate.?limit",
    r"\bper[ -](min(ute)?|hour|day|second|month)\b",
    r"\b[RT]P[MDS]\b",
    r"too many requests",
    r"please wait",
    r"throttl",
    r"\bquota\b",
    r"concurren",
    r"try again (in|later)",
    r"\b(daily|weekly|monthly|hourly)\b",
)
_REPLY_LIMIT = any_of(
    r"max_?(completion|output|new)?_?tokens\b(?!.{0,20}\bexceed context)\W?.{0,80}?"
    r"(must be|should be|too large|at most|<=|above maximum|less than|supported range|valid range|exceeds"
    r"|greater than|> ?\d)",
    r"(supported|valid) range (of|for) max_?(completion|output|new)?_?tokens\b",
    r"supports at most \d+ (completion|output) tokens",
    r"maximum allowed number of output tokens",
    r"maximum tokens you requested exceeds",
)
_OTHER_LIMIT = any_of(
    r"(?<!tokens of )(image|picture|photo|audio|video|pdf|file|document|attachment)s?\b(?! and text)"
    r".{0,40}(exceed|too (large|big|long|many)|maximum|dimension|at most)",
    r"(too (many|much)|at most \d+|maximum of \d+|up to \d+) "
    r"(pdf |input )?(image|picture|media|file|document|page|audio|video|tool|function|stop|enum)",
    r"\b(tools|functions|stop|metadata|tool_choice)\b['\"`\]]*:? ?(array|list|string|object) too (long|large)",
    r"(?<!depends on the )number of (tools|functions|images|stop)",
)
_FIELD_LENGTH = any_of(r"string_above_max_length", r"(string|array) too long", r"array_above_max_length")
_CONVERSATION_FIELD = any_of(
    r"^(input|instructions|prompt|system|messages)$",
    r"^(messages|input)(\[\d+\]|\.\d+)?\.?(content|output|parts)?(\[\d+\]|\.\d+)*(\.(text|output|input_text))?$",
)
_QUOTED = re.compile(r"['\"`]([A-Za-z_][\w.\[\]]*)['\"`]")

_SUBJECT = r"(prompt|inputs?(?! should be)|request|messages?|conversation|sequence|content|query|context|tokens?|body|payload)"
_BEYOND = (
    r"(exceed\w{0,10}|over|beyond|(is |are )?(longer|greater|larger|more) than|too (long|large|big|many)|超)"
)
_TOO_LONG = any_of(
    r"context.{0,10}(window|length|limit|size)",
    r"context the overflows",
    r"\b(prompt|input|text|message|conversation|request(?! header| line| ur[il])|query|token|sequence)s?\b"
    r"[^.]{0,30}\btoo (long|large|big)\b",
    r"context.?(is |has been )?(full|overflow|exceeded)|\bn_ctx\b|maximum context\b",
    r"(prompt|input|sequence|tokens?|length|context)\b.{0,60}?\d{3,12} ?> ?\d{3,12}",
    r"\d{3,12} tokens\b.{0,30}\b(maximum|at most|limit|up to|only)\b.{0,20}\d{3,12}",
    r"(maximum|at most|limit|up to|only)\b.{0,30}\d{3,12}( tokens)?\b.{0,30}\b(provided|supplied|sent|got|has|given)\b.{0,20}\d{3,12}",
    r"too (long|large|big) for (this |the |requested )?model",
    r"maximum (prompt|input|model|sequence|request) length",
    r"max(imum)?[ _](prompt|input|model|seq(uence)?|request)[ _](len|length|tokens)",
    r"(reduce|shorten|decrease) (the |your )?(number of |total )?"
    r"(length|size|prompt|input|messages?|message size|tokens|context)\b",
    r"(shorter|smaller) (input|prompt)",
    r"tokens? (count|length|limit|number).{0,60}exceed",
    r"exceed\w{0,10}.{0,40}token limit",
    r"((model|context|input|prompt|over the) )token limit",
    r"tokens? limit (is |was |has been )?(exceeded|reached)",
    r"exceed\w{0,10}.{0,40}number of (input |prompt )?tokens",
    r"(prompt|input|message|context)[ _]length[ _](exceed|must be|should be|is over)",
    r"longer than the model",
    r"too many (input |prompt )?tokens",
    r"input tokens? exceed",
    r"range of input length should be",
    rf"\b{_SUBJECT}\b.{{0,60}}\b{_BEYOND}.{{0,60}}(length|limit|tokens|maximum|max_|window|size|capacity|\d{{4,}})",
    rf"(length|number|count|sum|amount) of .{{0,40}}{_SUBJECT}.{{0,40}}"
    r"(exceed|too (long|large)|must be less|(longer|greater|larger) than|should not)",
    r"token count is \d+ but model only supports",
    r"must have less than \d+ tokens",
    r"`?inputs`? tokens \+ `?max_new_tokens`? must be",
    r"current length is \d+ while limit is",
    r"expected maxlength: \d{4,}",
    r"prompt_too_long|input_too_long|max_prompt_tokens_exceeded",
    r"(prompt|输入|上下文|提示词|消息|文本|对话|tokens?).{0,12}(超长|过长|太长)",
    r"(prompt|输入|上下文|提示词|消息|文本|对话|tokens?).{0,20}超(过|出).{0,20}(长度|窗口|最大|上限)",
)
# A message may mention the context window for other reasons, so it must also say that a limit is exceeded.
_EXCEEDED = any_of(
    _BEYOND,
    r"maxim|\bmax|reduce|shorten|decrease|shorter|smaller|range of input|limit|only|must (be|have) less|should not"
    r"|overflow|full\b|not enough|but (the|this|your) model|> ?\d|too_long|超|过长|太长",
)
_UNRELATED_STATUSES = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.PAYMENT_REQUIRED})


def is_overflow(status: int, text: str, param: str = "") -> bool:
    """Return whether a request was refused because of its length, so that a shorter one may be accepted.

    Args:
        status: of the refusal, or the one inside its body.
        text: its type, code and message.
        param: the request field that it names, or empty.
    """
    if status in _UNRELATED_STATUSES or is_other_limit(text):
        return False
    if (allowed := _ALLOWED.search(text)) is not None:
        limit, requested = map(_count, allowed.groups())
        return requested > limit
    if _REQUEST_TOO_LARGE.search(text):
        return True
    if _RATE_LIMIT.search(text) or _is_reply_limit(text) or _room_for_reply(text) is not None:
        return False
    if _FIELD_LENGTH.search(text):
        named = param or next(iter(_QUOTED.findall(text)), "")
        return _CONVERSATION_FIELD.search(named) is not None
    return _TOO_LONG.search(text) is not None and _EXCEEDED.search(text) is not None


def is_other_limit(text: str) -> bool:
    """Return whether a limit other than the conversation's length is exceeded: images, files, tools."""
    return _OTHER_LIMIT.search(text) is not None


def _room_for_reply(text: str) -> int | None:
    """Return a reply limit that the server would accept, if the input takes at most half of the window.

    Servers refuse a `max_tokens` that does not fit beside the input. The result is half of the free room, so
    that the conversation may grow to three quarters of the window before the limit is too high again. If the
    input takes more than half of the window, the input is too long.
    """
    found = next(filter(None, (form.search(text) for form in _SUMS)), None)
    if found is None:
        return None
    used, window = _count(found["input"]), _count(found["window"])
    return (window - used) // 2 if 0 < used <= window // 2 else None


def highest_reply_limit(text: str) -> int | None:
    """Return the highest output limit that a refusal of a higher one names, or that fits beside the input."""
    if not _is_reply_limit(text):
        return _room_for_reply(text)
    if (room := _room_for_reply(text)) is not None:
        return room
    found = next(filter(None, (form.search(text) for form in _NAMED_LIMITS)), None)
    return None if found is None else max(_count(found[1]) - int("exclusive" in found[0].lower()), 1)


_NAMED_LIMITS = (
    re.compile(rf"\d > {_NUMBER}, which is the maximum", _FLAGS),
    re.compile(rf"at most `?{_NUMBER}`?", _FLAGS),
    re.compile(rf"model limit of {_NUMBER}", _FLAGS),
    re.compile(
        rf"(?:less than or equal to|<=|maximum (?:value|of)|no more than) ?(?:is )?`?{_NUMBER}`?", _FLAGS
    ),
    re.compile(
        rf"(?:range|between)\D{{0,60}}\d+ ?(?:\(inclusive\) )?(?:,|to|and) ?{_NUMBER}(?: \(exclusive\))?",
        _FLAGS,
    ),
    re.compile(rf"greater than the maximum\D{{0,40}}{_NUMBER}", _FLAGS),
)


def _is_reply_limit(text: str) -> bool:
    return _REPLY_LIMIT.search(text) is not None and not _IS_ABOUT_INPUT.search(text)


# The same words in a refusal of a too long input: "`inputs` tokens + `max_new_tokens` must be <= 4096".
_IS_ABOUT_INPUT = any_of(
    r"\+ `?max_",
    r"decrease input length",
    r"\bmax_\w+`? exceed context",
    r"prompt contains",
    r"input tokens\b",
)


def _count(digits: str) -> int:
    return int(digits.replace(",", "").replace("_", ""))


def refusal_text(error: ModelError) -> str:
    """Return the server's words if this error may refuse a part of a request; else an empty text."""
    # Not found: OpenAI looked for past reasoning in its store.
    kinds = InvalidRequestError | OverloadedError | ProviderError | ModelNotFoundError
    return str(error).partition(": ")[2] if isinstance(error, kinds) else ""


_UNSUPPORTED = any_of("not support|unsupported|unrecogni[sz]ed|not permitted|unknown|unexpected")
_NAMES_A_FIELD = any_of(r"['\"`]\w|\b(tools?|images?|vision|temperature|max_\w+|stream\w*|roles?|messages)\b")


def is_unsupported(said: str) -> bool:
    """Return whether an error says that something is not supported, or not known."""
    return _UNSUPPORTED.search(said) is not None


def is_vague(error: ModelError) -> bool:
    """Return whether an error refuses a part of the request without naming it."""
    said = refusal_text(error) if isinstance(error, InvalidRequestError) else ""
    return is_unsupported(said) and not _NAMES_A_FIELD.search(said)


_REFUSES = re.compile(
    r"not (be )?(support|permit|allow|accept|recogni|available|enabled|valid|compatible|applicable)"
    r"|unsupported|unrecogni[sz]ed|unknown|unexpected|incompatible|deprecated|extra_forbidden|extra (inputs|fields)"
    r"|do(es)?n't (support|accept|allow)|cannot be (used|set|specified|combined)|can't be (used|set|specified)"
    r"|that support the|no such (parameter|argument|field)|only .{0,30}(default|supported)"
    r"|invalid (value|parameter|argument|field)|must be one of|supported (values|levels)|expected one of"
    r"|input should be '|is invalid|not one of|does not exist|not found|cannot find field|cannot both|only one of",
    re.IGNORECASE,
)
# A number out of range is the user's mistake; the field itself is supported.
_OUT_OF_RANGE = re.compile(
    r"(above|below) (the )?(maximum|minimum)|must be (between|at least|at most|greater|less|positive|non)"
    r"|expected a value (>|<)|out of range|should be (greater|less)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z_](?:\.*+\w)+")
_QUOTED_FIELD = re.compile(
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

# Other names that servers use for a field.
_ALIASES = {
    "toolchoice": re.compile(r"\btool[ _]choice\b|\bforced? tool|tool_config\b", re.IGNORECASE),
    "paralleltoolcalls": re.compile(r"parallel[ _]tool|parallel function", re.IGNORECASE),
    "reasoningeffort": _THINKING,
}


@dataclass(frozen=True, slots=True)
class RefusedFields:
    """The fields and values that a server has refused.

    Attributes:
        fields: names of fields in the head of a request.
        reply_tokens: the highest accepted limit of a reply.
        efforts: refused levels of reasoning, each with its replacement.
    """

    fields: frozenset[str] = frozenset()
    reply_tokens: int | None = None
    efforts: tuple[tuple[str, str], ...] = ()

    def kept(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return these fields without refused ones and those without a value."""
        return {
            name: value for name, value in fields.items() if value is not None and name not in self.fields
        }

    def openai_fields(self, request: Request, *, limit: str, effort: str) -> dict[str, Any]:
        """Return the optional fields of a request to an OpenAI protocol that the server has not refused.

        Args:
            limit: the protocol's name of the limit of the reply.
            effort: the protocol's name of the level of reasoning.
        """
        choice = request.tool_choice.value if request.tool_choice is not None else None
        fields = {
            limit: self.limit(request.max_output_tokens),
            "temperature": request.temperature,
            "top_p": request.top_p,
            effort: self.effort(request.reasoning_effort),
            "tool_choice": choice if request.tools else None,
            "parallel_tool_calls": request.parallel_tool_calls if request.tools else None,
        }
        return self.kept(fields)

    def limit(self, wanted: int | None) -> int | None:
        """Return the reply limit, lowered if the server accepts only a lower one."""
        if self.reply_tokens is None:
            return wanted
        return self.reply_tokens if wanted is None else min(wanted, self.reply_tokens)

    def effort(self, wanted: str | None) -> str | None:
        """Return the level of reasoning to send."""
        for refused, instead in self.efforts:  # in the order in which they were refused
            wanted = instead if wanted == refused else wanted
        return wanted

    def after_effort(self, said: str, effort: object) -> RefusedFields | None:
        """Return a copy that uses the nearest level that an error lists; None if it lists none."""
        refused = {level for level, _ in self.efforts} | {str(effort)}
        nearest = nearest_effort(said, str(effort), refused)
        return replace(self, efforts=(*self.efforts, (str(effort), nearest))) if nearest else None

    def after(
        self, error: ModelError, sent: Mapping[str, Any], users: Mapping[str, Any], limit: int | None
    ) -> RefusedFields | None:
        """Return a copy that respects this error, if it names a field that can be left out; else None.

        Args:
            error: the server's answer to the request.
            sent: the optional fields that the request had, by name.
            users: the fields that the user added; they are never left out.
            limit: the reply limit of the request.
        """
        said = refusal_text(error)
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
    """Return the level nearest to `effort` among those that an error lists; of two the lower one.

    None if it lists no known level, or only `none`: leaving the field out is nearer then.
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
    """Return the field that an error names as not supported; None if it names none of `fields`.

    Args:
        fields: the candidates.
        exactly: match only a field's own name, not words for its purpose.
    """
    if _REFUSES.search(said) is None or _OUT_OF_RANGE.search(said):
        return None
    quoted = [word for pair in _QUOTED_FIELD.findall(said) for word in pair if word]
    certain = [name for name in fields if "_" in name or not name.islower() or name == "temperature"]
    for words, names in ((quoted, fields), (_WORD.findall(said), certain)):
        known = {_plain(name): name for name in names}
        if named := next((known[word] for word in map(_last, words) if word in known), None):
            return named
    if exactly:
        return None
    # Another name for the field counts only now, when no other field is named.
    return next(
        (name for name in fields if (alias := _ALIASES.get(_plain(name))) and alias.search(said)), None
    )


def changed_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Describe the difference of a request that is sent again: "without reasoning_effort"."""
    gone = [name for name in before if name not in after]
    other = [
        f"{name}={value}" if isinstance(value, int | float | str) else f"another {name}"
        for name, value in after.items()
        if before.get(name) != value
    ]
    words = [f"without {', '.join(gone)}"] if gone else []
    words += [f"with {', '.join(other)}"] if other else []
    return " and ".join(words) or "without the refused parts of the conversation"


def _last(word: str) -> str:
    """Return the field at the end of a path into the request itself: `body.reasoning_effort`."""
    first, _, rest = word.partition(".")
    return _plain(rest if first in {"body", "request", "params", "parameters", "config"} and rest else word)


def _plain(name: str) -> str:
    """Return a name without differences in spelling: reasoning_effort, reasoningEffort, reasoning.effort."""
    return name.replace("_", "").replace(".", "").lower()

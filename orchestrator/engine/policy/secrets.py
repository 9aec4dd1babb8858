"""Removes secrets from text: known values in any spelling, and strings that look like a credential."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum, StrEnum
from functools import cache, lru_cache
from types import NoneType
from typing import Any, TypeVar

from orchestrator.core.redaction import MIN_SECRET_CHARS, REPLACEMENT, looks_random
from orchestrator.engine.policy.secret_values import ValueIndex, merged_spans, spans_in_parts

_WORD = re.compile(rb"[A-Za-z]{3,24}")
_MAX_DEPTH = 200
_TOO_DEEP = "[nested too deeply]"
_Span = tuple[int, int]
_T = TypeVar("_T")


class Redactor:
    """Finds secrets by value and by pattern, in time that grows linearly with the text.

    Of a value of twelve characters or more, any twelve consecutive ones are found, unless they are only its
    ordinary words (`https://host/` of a URL, `sk-ant-` of a key). A shorter value is found as a whole. A
    match has the same letters and digits in the same order, with any separators, in lower or upper case: as
    it is, reversed, or in the encodings of `secret_values`. The same search is repeated where
    `secret_values` undoes escapes, dumps and variants of letters. In base85 and in dumps of words of
    several bytes, all of a value but its edges is found. Overlapping matches are replaced as one.

    Not found are spellings that need more than reading to undo: rotated letters other than rot13, look-alike
    letters of other alphabets, compression, encryption, base58, one encoding inside another, fewer than
    twelve characters at a time. The defence against those is that the model's commands never see a secret in
    the first place.

    Attributes:
        version: increases when another secret is learnt: results of before may differ.

    Args:
        values: the known secrets. Those shorter than `MIN_SECRET_CHARS` are ignored.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._known = frozenset(values)
        self.version = 0
        self._indexed: tuple[frozenset[str], ValueIndex] | None = None

    def learn(self, values: Iterable[str]) -> None:
        """Add known secrets. Call this before a new one can be used."""
        new = frozenset(values) - self._known
        if new:
            self._known |= new
            self.version += 1

    def _values(self) -> ValueIndex:  # built at the first use, because it takes a while
        known, indexed = self._known, self._indexed
        if indexed is None or indexed[0] is not known:
            indexed = self._indexed = known, _index(known)
        return indexed[1]

    def redact(self, text: str) -> str:
        """Return the text with every secret replaced by `REPLACEMENT`."""
        if len(text) < MIN_SECRET_CHARS and text.isascii():
            return text
        data = text.encode("utf-8", "surrogatepass")
        spans = self.spans(data)
        if not spans:
            return text
        pieces: list[bytes] = []
        position = 0
        for start, end in spans:
            pieces += data[position:start], REPLACEMENT.encode()
            position = end
        return b"".join([*pieces, data[position:]]).decode("utf-8", "surrogatepass")

    def holds_secret(self, text: str) -> bool:
        """Return whether `redact` would change the text."""
        data = text.encode("utf-8", "surrogatepass")
        return next(self._found(data), None) is not None

    def redact_value(self, value: _T) -> _T:
        """Return a copy of an event, or of JSON, with every text redacted by itself, the keys of JSON too.

        An event without lists, JSON and secrets is its own copy, because events do not change. Names of types, of fields
        and of the members of enumerations stay. An image that holds a secret becomes empty. An object of another kind
        becomes text.
        """
        copy: _T = self._copy(value)
        return copy

    def _copy(self, value: Any, depth: int = 0) -> Any:
        kind: type = type(value)
        if kind is str:
            return self.redact(value)
        if _is_plain(kind):
            return value
        if _has_parts(kind):
            return self._copy_of_parts(value, depth + 1) if depth <= _MAX_DEPTH else _TOO_DEEP
        if isinstance(value, bytes):
            return b"" if self.holds_secret(b64encode(value).decode()) else value
        return self.redact(str(value))

    def _copy_of_parts(self, value: Any, depth: int) -> Any:
        copies: dict[str, Any] = {}
        if isinstance(value, list | tuple):
            items = []
            for item in value:
                items.append(self._copy(item, depth))  # noqa: PERF401  a comprehension costs a frame a level
            return tuple(items) if isinstance(value, tuple) else items
        if isinstance(value, Mapping):
            for key, item in value.items():
                name = self.redact(str(key))
                while name in copies:  # two keys that differed only in the secret
                    name += "'"
                copies[name] = self._copy(item, depth)
            return copies
        for name in _field_names(value.__class__):
            part = getattr(value, name)
            copy = self._copy(part, depth)
            if copy is not part:
                copies[name] = copy
        return replace(value, **copies) if copies else value

    def spans(self, data: bytes) -> list[_Span]:
        """Return the spans of secrets in a UTF-8 text: in order, separate, at the borders of characters."""
        found = sorted(self._found(data))
        return merged_spans(_whole_characters(data, span) for span in found) if found else []

    def spans_of_text(self, text: str) -> list[_Span]:
        """Return the spans of secrets in a text, in characters."""
        data = text.encode("utf-8", "surrogatepass")
        found: list[_Span] = []
        chars = position = 0
        for span in self.spans(data):
            ends = []
            for end in span:
                chars += len(data[position:end].decode("utf-8", "surrogatepass"))
                position = end
                ends.append(chars)
            found.append((ends[0], ends[1]))
        return found

    def _found(self, data: bytes) -> Iterator[_Span]:
        if len(data) < MIN_SECRET_CHARS:  # true for most texts of a journal
            return
        if self._known:
            yield from self._values().spans(data)
        yield from _credentials(data)


@cache
def _is_plain(kind: type) -> bool:
    """Return whether values of this type hold no text of anybody's."""
    return issubclass(kind, bool | int | float | StrEnum | NoneType)


@cache
def _has_parts(kind: type) -> bool:
    """Return whether values of this type consist of others."""
    return issubclass(kind, list | tuple | Mapping) or is_dataclass(kind)


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


@lru_cache(maxsize=8)
def _index(values: frozenset[str]) -> ValueIndex:
    """Return the index of these values. It takes megabytes, and most repositories of a worker share one."""
    return ValueIndex(values, harmless=REPLACEMENT)


def _whole_characters(data: bytes, span: _Span) -> _Span:
    """Extend a span so that it does not cut a character of several bytes.

    The bytes after a character's first one are 10xxxxxx.
    """
    start, end = span
    while start > 0 and data[start] & 0xC0 == 0x80:  # noqa: PLR2004  see the docstring
        start -= 1
    while end < len(data) and data[end] & 0xC0 == 0x80:  # noqa: PLR2004  the same
        end += 1
    return start, end


class RedactedStream:
    """Redacts a text that comes in pieces, where a secret may be split between two pieces.

    The last words, and a secret that may continue, are held back. A word or a secret of more than
    `MOST_HELD_CHARS` is released in parts. The time for a piece does not grow with the text before it.

    Args:
        redactor: finds the secrets.
    """

    MOST_HELD_CHARS = 16_384
    _CONTEXT_CHARS = 1_024
    _LEAST_HELD_BYTES = 32
    _MOST_SPELLED_BYTES = 512

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._shown = ""
        self._held: list[str] = []
        self._held_chars = 0

    def add(self, piece: str) -> str:
        """Add a piece, and return the text that may be shown now."""
        self._held.append(piece)
        self._held_chars += len(piece)
        if self._held_chars <= self.MOST_HELD_CHARS and not any(map(str.isspace, piece)):
            return ""
        return self._release(everything=False)

    def end(self) -> str:
        """Return the rest of the text."""
        return self._release(everything=True)

    def _release(self, *, everything: bool) -> str:
        held = "".join(self._held)
        text = self._shown + held
        data = text.encode("utf-8", "surrogatepass")
        spans = self._redactor.spans(data)
        begin = len(self._shown.encode("utf-8", "surrogatepass"))
        cut = len(data) if everything else self._cut(data, begin, spans)
        pieces: list[bytes] = []
        position = begin
        for start, end in spans:
            if end <= begin or start >= cut:
                continue
            pieces += data[position : max(start, position)], REPLACEMENT.encode()
            position = end
        pieces.append(data[position:cut])
        kept = data[max(cut, position) :].decode("utf-8", "surrogatepass")
        self._shown = data[: max(cut, position)].decode("utf-8", "surrogatepass")[-self._CONTEXT_CHARS :]
        self._held, self._held_chars = [kept], len(kept)
        return b"".join(pieces).decode("utf-8", "surrogatepass")

    def _cut(self, data: bytes, begin: int, spans: list[_Span]) -> int:
        """Return the end of the part to release: before the last word and before an incomplete secret."""
        tail = data[-self._MOST_SPELLED_BYTES :]
        # Twelve characters in another spelling take more room, and do not consist of words.
        is_prose = 2 * sum(map(len, _WORD.findall(tail))) > len(tail)
        last = max(len(data) - (self._LEAST_HELD_BYTES if is_prose else self._MOST_SPELLED_BYTES), begin)
        cut = max(begin, *(data.rfind(space, begin, last) + 1 for space in (b" ", b"\n", b"\t")))
        if len(data) - cut > self.MOST_HELD_CHARS:
            cut, _ = _whole_characters(data, (last, last))
        for start, end in spans:
            if start < cut <= end and start >= begin and len(data) - start <= self.MOST_HELD_CHARS:
                return start
        return cut


RUN_CHARS = 16
"""The number of consecutive token characters in most credentials. Only text near such a run is searched."""

_CONTEXT_BYTES = 80
_LONGEST_WORD_CHARS = 24
# The characters of tokens, without and with those that separate their parts.
_TOKEN = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
_RUN_MAP = bytes(97 if byte in _TOKEN else 32 for byte in range(256))
_END_MAP = bytes(97 if byte in _TOKEN + b"+/=.~%" else 32 for byte in range(256))
_RUN = b"a" * RUN_CHARS
_MORE_THAN_WORDS = re.compile(rb"[A-Z0-9]|[a-z]{25}")


class _Looks(Enum):
    """An additional condition on a match."""

    ANY = 0
    MORE_THAN_WORDS = 1
    RANDOM = 2


@dataclass(frozen=True, slots=True)
class _Pattern:
    """The form of one kind of credential.

    Attributes:
        needles: texts in lower case; each match contains one of them. Searching them is cheap, more so the
            fewer and rarer their letters are.
        regex: matches UTF-8 in linear time. If it has a group, only the group is secret.
        looks: an additional condition on the secret.
        run: number of consecutive letters, digits, `-` and `_` in each match.
    """

    needles: tuple[bytes, ...]
    regex: bytes
    looks: _Looks = _Looks.ANY
    run: int = 0


_ASSIGNED = rb"[\"']?[ \t]{0,8}(?::|=>?|:=)[ \t]{0,8}[\"']?"

# Every expression keeps to two rules, so that it takes linear time: a repeat is possessive or has an upper
# bound, and no match is tried from two starts within the same long run.
# The patterns of this list are tried only near long runs.
_GITHUB = (b"gh",)
_WORDS, _RANDOM = _Looks.MORE_THAN_WORDS, _Looks.RANDOM
_IN_RUNS = (
    # GitHub: https://docs.github.com/en/authentication/keeping-your-account-and-data-secure/about-authentication-to-github
    # `ghs_` tokens may carry a JWT of some hundred characters: no length is assumed.
    _Pattern(_GITHUB, rb"gh[pousr]_(?<![A-Za-z]gh[pousr]_)[A-Za-z0-9._-]{20,}+"),
    _Pattern(_GITHUB, rb"gh[pousr]_[A-Za-z0-9._-]{20,}+", _WORDS),  # directly after a word
    _Pattern((b"github_pat_",), rb"github_pat_[A-Za-z0-9_]{20,}+"),
    # OpenAI, Anthropic and similar ones; names of programs and packages may begin like this too.
    _Pattern((b"sk-",), rb"sk-(?<![A-Za-z0-9]sk-)[A-Za-z0-9_-]{20,}+", _WORDS),
    # Google: https://cloud.google.com/docs/authentication/api-keys and the OAuth formats of its libraries.
    _Pattern((b"aiza",), rb"AIza[A-Za-z0-9_-]{30,}+"),
    _Pattern((b"ya29.",), rb"ya29\.[A-Za-z0-9_-]{20,}+"),
    _Pattern((b"gocspx-",), rb"GOCSPX-[A-Za-z0-9_-]{20,}+"),
    _Pattern((b"1//0",), rb"1//0[A-Za-z0-9_-]{40,}+"),
    # AWS: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html#identifiers-prefixes
    _Pattern((b"akia", b"asia"), rb"A[KS]IA(?<![A-Z0-9]A[KS]IA)[A-Z0-9]{16}(?![A-Z0-9])"),
    _Pattern(
        (b"secret",), rb"(?i:aws_?secret_?access_?key)" + _ASSIGNED + rb"([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])"
    ),
    _Pattern((b"session",), rb"(?i:aws_?session_?token)" + _ASSIGNED + rb"([A-Za-z0-9/+=]{60,}+)"),
    # Azure: https://learn.microsoft.com/en-us/azure/storage/common/storage-sas-overview
    _Pattern((b"accountkey",), rb"(?i:AccountKey)=([A-Za-z0-9+/]{60,}+={0,2})"),
    _Pattern((b"sig=",), rb"(?<![A-Za-z0-9_])sig=([A-Za-z0-9%+/=]{40,}+)", _RANDOM),
    _Pattern((b"q~",), rb"[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,}+"),
    # Slack: https://docs.slack.dev/authentication/tokens
    _Pattern((b"xox", b"xapp-"), rb"(?:xox[a-z]|xapp)-[A-Za-z0-9-]{10,}+"),
    _Pattern((b"hooks.slack",), rb"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/]{30,}+)"),
    # GitLab: https://docs.gitlab.com/security/tokens/#token-prefixes
    _Pattern(
        (b"gl",), rb"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|soat|oas)-[A-Za-z0-9_-][A-Za-z0-9_.-]{15,}+", _WORDS
    ),
    # Package registries: npm, PyPI, RubyGems, Docker Hub; Hugging Face.
    _Pattern((b"npm_",), rb"npm_(?<![A-Za-z0-9]npm_)[A-Za-z0-9]{36,}+"),
    _Pattern((b"pypi-agei",), rb"pypi-AgEI[A-Za-z0-9_-]{30,}+"),
    _Pattern((b"rubygems_",), rb"rubygems_[a-f0-9]{40,}+"),
    _Pattern((b"dckr_",), rb"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}+"),
    _Pattern((b"hf_",), rb"hf_(?<![A-Za-z0-9]hf_)[A-Za-z0-9]{30,}+"),
    # Stripe https://docs.stripe.com/keys, SendGrid, Twilio, Shopify.
    _Pattern((b"k_live_", b"k_test_"), rb"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}+"),
    _Pattern((b"whsec_",), rb"whsec_[A-Za-z0-9+/=]{24,}+"),
    _Pattern((b"sg.",), rb"SG\.(?<![A-Za-z0-9_]SG\.)[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,}+"),
    _Pattern((b"sk",), rb"SK(?<![A-Za-z0-9]SK)[0-9a-f]{32}(?![A-Za-z0-9])"),
    _Pattern((b"shp",), rb"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32,}+"),
    # DigitalOcean, HashiCorp Vault, Databricks, Atlassian, Linear.
    _Pattern((b"_v1_",), rb"do[opr]_v1_[a-f0-9]{40,}+"),
    _Pattern(
        (b"hvs.", b"hvb.", b"hvr."), rb"hv[sbr]\.(?<![A-Za-z0-9_.]hv[sbr]\.)[A-Za-z0-9_-]{20,}+", _WORDS
    ),
    _Pattern((b"dapi",), rb"dapi(?<![A-Za-z0-9]dapi)[0-9a-f]{32}(?:-[0-9]{1,2})?"),
    _Pattern((b"atatt3",), rb"ATATT3[A-Za-z0-9_=-]{40,}+"),
    _Pattern((b"lin_api_",), rb"lin_api_[A-Za-z0-9]{32,}+"),
    # Telegram https://core.telegram.org/bots/api#authorizing-your-bot and Discord.
    _Pattern((b":aa",), rb"(?<![0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{32,}+"),
    _Pattern(
        (b".",),
        rb"(?<![A-Za-z0-9_-])[MNO][A-Za-z0-9_-]{22,30}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}+",
        _RANDOM,
        run=27,
    ),
    _Pattern((b"/api/webhooks/",), rb"discord(?:app)?\.com/api/webhooks/[0-9]{10,25}/([A-Za-z0-9_-]{40,}+)"),
    _Pattern((b"age-secret-key-1",), rb"AGE-SECRET-KEY-1[A-Za-z0-9]{40,}+"),
    # Figma, Groq, xAI, Replicate, Perplexity, Notion, Postman, New Relic, Sentry, Grafana, PlanetScale, Supabase,
    # Fly, Square, 1Password, Doppler, Terraform, Mailchimp, Artifactory.
    _Pattern(
        tuple(
            b"figd_ gsk_ xai- r8_ pplx- ntn_ pmak- nrak- sntry glc_ glsa_ pscale_ sbp_ fm2_ sq0 ops_eyj".split()
        ),
        rb"(?:figd_|gsk_|xai-|r8_|pplx-|ntn_|PMAK-|NRAK-|sntry[su]_|glc_|glsa_|pscale_[a-z]{2,5}_|sbp_|fm2_"
        rb"|sq0[a-z]{3}-|ops_eyJ)(?<![A-Za-z0-9]r8_)[A-Za-z0-9_-]{24,}+[A-Za-z0-9+/=_-]*+",
        _RANDOM,
    ),
    _Pattern(
        (b"dp.",), rb"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[A-Za-z0-9_-]{1,40}\.)?[A-Za-z0-9]{40,}+", _RANDOM
    ),
    _Pattern((b".atlasv1.",), rb"[A-Za-z0-9]{10,20}\.atlasv1\.[A-Za-z0-9_=-]{40,}+"),
    _Pattern((b"-us",), rb"(?<![A-Za-z0-9])[0-9a-f]{32}-us[0-9]{1,2}(?![A-Za-z0-9])"),
    _Pattern((b"akc", b"ap"), rb"(?<![A-Za-z0-9])(?:AKC|AP[0-9A-F])[A-Za-z0-9]{27,}+", _RANDOM),
    # JWT, RFC 7519: two base64url objects (`{"` is `eyJ`) and a signature; also if its beginning was
    # cut off, even within the payload if the signature is as long as one of RSA or ECDSA.
    _Pattern(
        (b".eyj",),
        rb"(?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]*eyJ)[A-Za-z0-9_-]++\.eyJ[A-Za-z0-9_-]{4,}+\.[A-Za-z0-9_-]{8,}+",
    ),
    _Pattern(
        (b".eyj",),
        rb"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]*+\.eyJ[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{20,}+",
        _RANDOM,
    ),
    _Pattern((b".",), rb"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{4,}+\.[A-Za-z0-9_-]{85,}+", _RANDOM, run=85),
    # Headers and settings whose name says that the value is secret.
    _Pattern((b"bearer",), rb"(?i:bearer)[ \t]{1,8}([A-Za-z0-9._~+/=-]{20,}+)"),
    _Pattern(
        (b"api-key", b"private-token"),
        rb"(?i:x-goog-api-key|api-key|private-token)" + _ASSIGNED + rb"([A-Za-z0-9._~+/=-]{16,}+)",
    ),
    # https://docs.npmjs.com/cli/configuring-npm/npmrc#auth-related-configuration
    _Pattern(
        (b"_auth", b"_password"),
        rb"_(?i:authToken|auth|password)[ \t]{0,8}=[ \t]{0,8}\"?([A-Za-z0-9._~+/=-]{16,}+)",
        _WORDS,
    ),
    _Pattern(
        (b"passw", b"secret", b"token", b"key", b"credential"),
        rb"(?i:passw(?:or)?d|secret|token|api_?key|access_?key|private_?key|credentials?)"
        + _ASSIGNED
        + rb"(?<=[\"'])([A-Za-z0-9+/_=.~-]{16,256})(?=[\"'])",
        _RANDOM,
    ),
    # The same in a file of environment variables, where values are not quoted.
    _Pattern(
        (b"_key=", b"oken=", b"cret=", b"word="),
        rb"=(?<=(?:_KEY|OKEN|CRET|WORD)=)([A-Za-z0-9+/_=.~-]{20,256}+)(?![(\[\"'])",
        _RANDOM,
    ),
)
# These may be short, or have several lines.
_ANYWHERE = (
    # Private keys, RFC 7468, whole or cut off, also quoted, numbered or escaped.
    _Pattern(
        (b"-----",),
        rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----"
        rb"(?>[A-Za-z0-9+/=\s:;,.\\\"'>|()]*+(?:-(?!----)[A-Za-z0-9+/=\s:;,.\\\"'>|()]*+)*)"
        rb"(?:-----END [A-Z0-9 ]{0,60}-----)?",
    ),
    # Headers, as a server, curl or a program's source writes them. `{token}` and `<token>` are no values.
    _Pattern(
        (b"horiz",),
        rb"(?i:authorization)"
        + _ASSIGNED
        + rb"(?i:bearer|basic|token|digest)[ \t]{1,8}([A-Za-z0-9._~+/=-]{8,}+)",
    ),
    # Credentials in a URL: the password, or a long user name without one.
    _Pattern((b"://",), rb"://[^\s/?#@:\"'<>]{0,256}:(?![$\[{<*])([^\s/?#@\"'<>]{1,1024})@"),
    _Pattern((b"://",), rb"://([A-Za-z0-9._~%+-]{20,1024})@"),
    # Settings of a database driver, and .netrc
    # https://www.gnu.org/software/inetutils/manual/html_node/The-_002enetrc-file.html
    _Pattern(
        (b"ssw", b"pwd"),
        rb";[ \t]{0,4}(?i:password|pwd)[ \t]{0,4}=[ \t]{0,4}(?![$\[{<*%])([^;\s\"']{4,256})",
    ),
    _Pattern(
        (b"ssw",),
        rb"machine[ \t]{1,8}[^\s]{1,256}\s{1,8}login\s{1,8}[^\s]{1,256}\s{1,8}password\s{1,8}(?![$\[{<*%])([^\s]{4,256})",
    ),
)


def _has_more_than_words(text: bytes) -> bool:
    """Return whether the text is more than words: it has a digit or a capital, or a part is too long."""
    if not text.islower() or any(byte in b"0123456789" for byte in text):
        return True
    return any(len(part) > _LONGEST_WORD_CHARS for part in re.split(rb"[._-]", text))


_Compiled = tuple[tuple[bytes, ...], "re.Pattern[bytes]", _Looks, bytes]


@dataclass(frozen=True, slots=True)
class _Group:
    """Patterns that are looked for together, and their needles, each once."""

    patterns: tuple[_Compiled, ...]
    needles: frozenset[bytes]


@cache
def _compiled() -> tuple[_Group, _Group]:
    """Compile the patterns of `_IN_RUNS` and of `_ANYWHERE`, at the first use because it takes a while."""
    in_runs, anywhere = (
        _Group(
            tuple((one.needles, re.compile(one.regex), one.looks, b"a" * one.run) for one in group),
            frozenset(needle for one in group for needle in one.needles),
        )
        for group in (_IN_RUNS, _ANYWHERE)
    )
    return in_runs, anywhere


def _credentials(data: bytes) -> Iterator[_Span]:
    """Yield where the UTF-8 text has something that looks like a credential."""
    in_runs, anywhere = _compiled()
    yield from _matches(anywhere, data)
    if near := merged_spans(_regions(data), gap=1):
        yield from spans_in_parts(data, near, b"\n", lambda text: _matches(in_runs, text))


def _matches(group: _Group, data: bytes) -> Iterator[_Span]:
    """Yield where the patterns match."""
    small = data.lower()
    there = {needle for needle in group.needles if needle in small}
    if not there:  # true for most texts
        return
    runs: bytes | None = None
    for needles, regex, looks, run in group.patterns:
        if there.isdisjoint(needles):
            continue
        if run:
            runs = data.translate(_RUN_MAP) if runs is None else runs
            if run not in runs:
                continue
        for match in regex.finditer(data):
            secret = match[regex.groups]
            if looks is _Looks.MORE_THAN_WORDS and not _has_more_than_words(secret):
                continue
            if looks is _Looks.RANDOM and not looks_random(secret):
                continue
            yield match.span(regex.groups)


def _regions(data: bytes) -> Iterator[_Span]:
    """Yield the regions of long runs of token characters, each with the text before it."""
    runs = data.translate(_RUN_MAP) + b" "
    at = runs.find(_RUN)
    ends = data.translate(_END_MAP) + b" " if at >= 0 else b""
    while at >= 0:
        end = runs.index(b" ", at)
        if _MORE_THAN_WORDS.search(data, at, end):
            end = ends.index(b" ", end)
            yield max(at - _CONTEXT_BYTES, 0), end + 1
        at = runs.find(_RUN, end)

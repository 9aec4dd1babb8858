"""Makes a model's words harmless where they go out: they notify, command, close and load nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.guard import lines
from orchestrator.guard.wording_links import Hosts
from orchestrator.guard.wording_markdown import harmless_markdown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

INLINE_CHARS = 300
BODY_CHARS = 40_000
"""GitHub takes 65,536; a template and a footer need room."""

_CUT = "\n\n(Cut here: the text was longer than {limit:,} characters.)"
_MOST_ROUNDS = 4

_LINE_END = re.compile(r"\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
# https://docs.github.com/en/actions/how-tos/manage-workflow-runs/skip-workflow-runs and what others read.
_SKIP = re.compile(
    r"\[[ \t]*((?:skip|no)[ _-]+[A-Za-z]{1,20}|[A-Za-z]{1,20}[ _-]+skip)[ \t]*\]", re.IGNORECASE
)
_NO_CI = re.compile(r"\*{3}NO_CI\*{3}", re.IGNORECASE)
_TRAILER = re.compile(
    r"^([ \t>*_`-]{0,8})((?:co-?authored|signed-?off|reviewed|acked|tested|reported|approved|suggested|helped)-?by"
    r"|change-id|skip-checks?|release-as|fixes)([ \t]{0,8}):(?![ \t]{0,8}(?:#|gh-)[0-9])",
    re.IGNORECASE | re.MULTILINE,
)
# The mark by which a caller knows its own texts again; a model may not write it, in code neither.
_MARKER = re.compile(r"<(?=!--\s{0,20}pullwright)", re.IGNORECASE)

# https://docs.github.com/en/issues/tracking-your-work-with-issues/using-issues/linking-a-pull-request-to-an-issue
_CLOSING = re.compile(
    r"(?<![A-Za-z0-9])(close[sd]?|fix(?:e[sd])?|resolve[sd]?)([\s:*_~`\[(<\\]{1,12})"
    r"(?:(?P<url>https?://[A-Za-z0-9.-]{1,100}/(?P<path>[A-Za-z0-9._-]{1,100}/[A-Za-z0-9._-]{1,100})"
    r"/(?:issues|pull)/)|(?P<slug>[A-Za-z0-9._-]{1,100}/[A-Za-z0-9._-]{1,100})?\\?#|GH-)(?P<number>[0-9]{1,20})",
    re.IGNORECASE,
)
_DEFAULT_HOSTS = ("github.com",)


@dataclass(frozen=True, slots=True)
class Wording:
    """See `orchestrator.cycle.guards.Wording`. Each method gives its own result back unchanged.

    Attributes:
        hosts: to which links and images may lead; `*.x` stands for what is below `x`.
        repository_url: whose issue the number `issue` is: `https://github.com/owner/name`.
    """

    hosts: Collection[str] = _DEFAULT_HOSTS
    repository_url: str = ""
    _hosts: Hosts = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hosts", Hosts.of(self.hosts))

    def title(self, text: str) -> str:
        """A title: one line of at most 200 characters. It becomes a commit's message where people squash."""
        return lines.title(text)

    def inline(self, text: str) -> str:
        """A line of at most 300 characters to stand behind the program's own words in Markdown."""
        return lines.in_markdown(text, INLINE_CHARS)

    def text(self, text: str, *, issue: int | None) -> str:
        """Markdown of at most 40,000 characters; `issue` is the one that it may close."""

        def harmless(part: str) -> str:
            # Twice: what is taken out in between may bring together what was apart.
            words = self._closing(self._signals(part), issue)
            return harmless_markdown(words, self._hosts, lambda line: self._closing(line, issue)).strip()

        return _capped(_seen(text), BODY_CHARS, harmless)

    def comment(self, text: str, *, issue: int | None) -> str:
        """Markdown as `text` gives it, with every line quoted: nothing in it begins a line of a comment."""
        words = self.text(text, issue=issue)
        return "\n".join(f"> {line}".rstrip() for line in words.split("\n")) if words else ""

    def message(self, headline: str, paragraphs: Iterable[str], last: Iterable[str] = ()) -> str:
        """A commit's message, which is no Markdown. Only `last` has trailers, and it stays as it is."""
        return lines.message(headline, paragraphs, last)

    def _signals(self, text: str) -> str:
        """Without what programs that read commits and descriptions obey."""
        text = _NO_CI.sub("(NO_CI)", _SKIP.sub(r"(\1)", text))
        return _MARKER.sub("< ", _TRAILER.sub(r"\1\2\3 -", text))

    def _closing(self, text: str, issue: int | None) -> str:
        def apart(match: re.Match[str]) -> str:
            slug = match["path"] or match["slug"] or ""
            ours = self.repository_url.rstrip("/")
            is_ours = not slug or (bool(ours) and ours.lower().endswith(f"/{slug.lower()}"))
            if match["url"] and not (ours and match["url"].lower().startswith(f"{ours.lower()}/issues/")):
                is_ours = False
            if is_ours and issue is not None and int(match["number"]) == issue:
                return match[0]
            between = match[2].rstrip("\\") or " "
            return f"{match[1]}{between}{slug}{' ' if slug else ''}issue {match['number']}"

        return _CLOSING.sub(apart, text)


def _seen(text: str) -> str:
    """What a person sees of a text, with plain line ends."""
    from orchestrator.guard.hidden_characters import hidden_characters

    text = _CONTROL.sub("", _LINE_END.sub("\n", text))
    for _ in range(_MOST_ROUNDS):
        cuts = hidden_characters(text)
        if not cuts:
            break
        pieces: list[str] = []
        at = 0
        for cut in cuts:
            pieces += text[at : cut.start], cut.replacement
            at = cut.end
        text = "".join([*pieces, text[at:]])
    return text


def _capped(text: str, limit: int, harmless: Callable[[str], str]) -> str:
    """The harmless text, of a beginning that is short enough where it is not so altogether."""
    done = harmless(text) if len(text) <= limit else ""
    if len(text) <= limit and len(done) <= limit:
        return done
    note = _CUT.format(limit=limit)
    kept = min(len(text), limit)
    while True:
        done = harmless(text[:kept]) + note
        if len(done) <= limit:
            return done
        kept = min(kept * limit * 9 // (len(done) * 10), kept - 1)

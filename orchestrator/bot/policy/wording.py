"""Makes a model's words harmless where they go out: they notify, command, close and load nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from unicodedata import normalize

from orchestrator.bot.policy import lines
from orchestrator.bot.policy.visible_text import without_unseen
from orchestrator.bot.policy.wording_markdown import Hosts, harmless_markdown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

INLINE_CHARS = 300
# Words in brackets that stop checks: https://docs.github.com/en/actions/how-tos/manage-workflow-runs/skip-workflow-runs
# has five; other services put their own name beside `skip`, or another word beside `ci`.
_DIRECTIVE = re.compile(r"[\[\uFF3B\uFE47]([ \t]*\w+(?:[ \t:_-]+\w+){1,3}[ \t]*)[\]\uFF3D\uFE48]")
_STOPPING = re.compile(r"(?<![^\W_])(?:skip|no|ci)(?![^\W_])", re.IGNORECASE)
_NO_CI = re.compile(r"\*{3}(NO_CI)\*{3}", re.IGNORECASE)
# The mark by which a caller knows its own texts again; a model may not write it, in code neither.
_MARKER = re.compile(r"<(?=!--\s*+pullwright)", re.IGNORECASE)

# https://docs.github.com/en/issues/tracking-your-work-with-issues/using-issues/linking-a-pull-request-to-an-issue
_CLOSING = re.compile(
    r"(?<![A-Za-z0-9])(close[sd]?|fix(?:e[sd])?|resolve[sd]?)([\s\0:*_~`\[(<\\]{1,12})"
    r"(?:(?P<url>https?://[A-Za-z0-9.-]{1,100}/(?P<path>[A-Za-z0-9._-]{1,100}/[A-Za-z0-9._-]{1,100})"
    r"/(?:issues|pull)/)|(?P<slug>[A-Za-z0-9._-]{1,100}/[A-Za-z0-9._-]{1,100})?\\?#|GH-)(?P<number>[0-9]{1,20})",
    re.IGNORECASE,
)
_DEFAULT_HOSTS = ("github.com",)


@dataclass(frozen=True, slots=True)
class Wording:
    """See `orchestrator.bot.cycle.parts.Wording`. Each method gives its own result back unchanged.

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
        return self._markdown(text, issue, is_quoted=False)

    def comment(self, text: str, *, issue: int | None) -> str:
        """Markdown as `text` gives it, in one block quote: no line of it begins a line of a comment."""
        return self._markdown(text, issue, is_quoted=True)

    def message(self, headline: str, paragraphs: Iterable[str], last: Iterable[str] = ()) -> str:
        """A commit's message, which is no Markdown. Only `last` has trailers, and it stays as it is."""
        return lines.message(headline, paragraphs, last)

    def _markdown(self, text: str, issue: int | None, *, is_quoted: bool) -> str:
        def change(words: str) -> str:
            return self._closing(_signals(words), issue)

        return harmless_markdown(without_unseen(text), self._hosts, change, is_quoted=is_quoted)

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


def _signals(text: str) -> str:
    """The text without what programs that read commits and descriptions obey, or know their own texts by."""

    def apart(match: re.Match[str]) -> str:
        return f"({match[1]})" if _STOPPING.search(normalize("NFKC", match[1])) else match[0]

    return _MARKER.sub("< ", _NO_CI.sub(r"(\1)", _DIRECTIVE.sub(apart, text)))

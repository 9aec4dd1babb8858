"""Makes a model's text harmless before it is published: it cannot notify, command, close or load anything.

In a title, a commit message and a single line, character references are decoded and only printable characters
stay. What a program could read as more than words is changed: addresses, references, directives and trailers.
`wording_markdown` rebuilds Markdown.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from orchestrator.bot.policy.hidden_characters import decoded_text, printable_text, without_invisible
from orchestrator.bot.policy.wording_markdown import Hosts, harmless_markdown
from orchestrator.core.prompts import cut, fence_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

TITLE_CHARS = 200
MESSAGE_CHARS = 20_000

# Wide and small forms of special characters, which programs that normalize text replace by the ordinary ones.
_FOLDED = str.maketrans("\uff20\ufe6b\uff03\ufe5f\uff0f\uff3b\uff3d\uff0a\ufe61\uff40", "@@##/[]**`")

_MENTION = re.compile(r"(?<![A-Za-z0-9])@(?=\w)")
_NUMBER = re.compile(r"(\w?)#(?=[0-9])")
_LEADING_SIGN = re.compile(r"#(?=[\w\[])|\+(?=[A-Za-z]+:)")
_GH = re.compile(r"(?<![A-Za-z0-9])(GH)-(?=[0-9])", re.IGNORECASE)
_ISSUE_URL = re.compile(
    r"\b[a-z]{3,5}://[^\s/]{1,200}/(?P<path>[^\s/]{1,100}/[^\s/]{1,100})(?:/[^\s/]{1,100}){0,3}?"
    r"/(?:issues?|pulls?|merge_requests|pull-requests|work_items|discussions)/(?P<number>[0-9]{1,20})[^\s<>()`'\"]*",
    re.IGNORECASE,
)
# Two or more words in brackets ([skip ci], [ci-skip], [CF-Pages-Skip]), or one such as `skip`, may be a directive of a
# service. Brackets around one other word ([api]) and around code stay.
_LINE_DIRECTIVE = re.compile(
    r"\[(\s*[A-Za-z][A-Za-z0-9.]*(?:[\s_:-]+[A-Za-z][A-Za-z0-9.]*)+\s*|\s*(?:[A-Za-z]{0,20}skip[A-Za-z]{0,20}|no[A-Za-z]{1,20})\s*)\]",
    re.IGNORECASE,
)
_STARS = re.compile(r"\*{3,}")
_COMMENT = re.compile(r"<(?=!)")
_TAG = re.compile(r"<(?=[A-Za-z][A-Za-z0-9-]{0,30}\s[^<>]{0,2000}=)")
_LINK = re.compile(r"\]\(")

# Special characters followed by a blank: a bullet, the mark of a heading, the rest of a mention.
_LEADING_CHARACTERS = re.compile(r"^(?:[!#-&)-/:-@\\-_|-~]+\s+)+")
_OPENERS = "([{<\"'`\u201c\u2018\u201e\u201a\u00ab\u2039\u300c\u300e\u3010"
_HYPHENATED = re.compile(r"^([A-Za-z0-9]+(?:-[A-Za-z0-9]+)+)\s*:\s*")

# `Wording.text` quotes a line that is a paragraph by itself; a message needs no such mark.
_QUOTE = re.compile(r"^ *>(?: |$)")
_TICKS = re.compile(r"(?<!\\)(`+)")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_ITEM = re.compile(r"(\s*(?:(?:[-*+>]|[0-9]{1,9}[.)])\s+)*)(.*)", re.DOTALL)
_HEADING = re.compile(r"#{1,6}\s++(.*)")
_RULE = re.compile(r"([-*_=])(?:\s*\1){2,}\s*")
# A line `Token: value`, as git reads it (find_separator): git-scm.com/docs/git-interpret-trailers
_TOKEN = re.compile(r"([A-Za-z0-9-]+)([ \t]*):(.*)", re.DOTALL)
# A line at which git begins another message, or a patch: mailsplit.c and mailinfo.c of git.
_MAIL = re.compile(r"From(?= .*[0-9]:[0-9])|diff(?= -)")
_COMMAND = re.compile(r"(?:[/!.][A-Za-z][\w:.-]*|::[A-Za-z]\S*)(?=\s|$)")
# A line that is a paragraph by itself, but not a sentence: it might be read as a command or a declaration.
_LONE_LINE = re.compile(r"(?:(?<=\n\n)|\A)(?=[^\s>*+-][^\n]*[^\n.!?:;)`](?:\n\n|\Z))")

# A word that may stay outside of code: letters, digits, and punctuation, unless _SPECIAL_USE finds a special use of it.
_WORD = re.compile(r"(?:[A-Za-z0-9_.,;:!?()'\"/+=%-]|&(?![\w#])|[^\x00-\x7f])+")
_SPECIAL_USE = re.compile(r"^[_:/!.+]|_$|__|//|www\.|GH-[0-9]|:\w+:", re.IGNORECASE)
INLINE_CHARS = 300
# Words in brackets that stop checks: https://docs.github.com/en/actions/how-tos/manage-workflow-runs/skip-workflow-runs
# has five; other services put their own name beside `skip`, or another word beside `ci`.
_IN_BRACKETS = re.compile(r"[\[\uFF3B\uFE47]([ \t]*+\w[\w \t:-]*+)[\]\uFF3D\uFE48]")
_SEPARATORS = re.compile(r"[ \t:-]+")
_MOST_DIRECTIVE_WORDS = 4
_STOP_WORD = re.compile(r"(?<![^\W_])(?:skip|no|ci)(?![^\W_])", re.IGNORECASE)
_NO_CI = re.compile(r"\*{3}(NO_CI)\*{3}", re.IGNORECASE)
# The program recognizes its own texts by this marker. A model must not write it, not even in code.
_MARKER = re.compile(r"<(?=!--\s*+pullwright)", re.IGNORECASE)

# https://docs.github.com/en/issues/tracking-your-work-with-issues/using-issues/linking-a-pull-request-to-an-issue
_CLOSING = re.compile(
    r"(?<![A-Za-z0-9])(close[sd]?|fix(?:e[sd])?|resolve[sd]?)([\s\0:*_~`\[(<\\]{1,12})"
    r"(?:(?:https?://[A-Za-z0-9.-]{1,100}/(?P<path>[A-Za-z0-9._-]{1,100}/[A-Za-z0-9._-]{1,100})"
    r"/(?:issues|pull)/)|(?P<slug>[A-Za-z0-9._-]{1,100}/[A-Za-z0-9._-]{1,100})?\\?#|GH-)(?P<number>[0-9]{1,20})",
    re.IGNORECASE,
)


class Wording:
    """Makes text for the forge harmless. Each method is idempotent.

    Args:
        hosts: allowed hosts of links and images; `*.x` stands for all subdomains of `x`.
        redact: removes secrets from other people's text before it is cut and its punctuation is escaped: what writes
            to the forge could not recognize them after that.
    """

    def __init__(self, hosts: Iterable[str] = ("github.com",), *, redact: Callable[[str], str] = str) -> None:
        self._hosts, self._redact = Hosts.of(hosts), redact

    def title(self, text: str) -> str:
        """Return a title: one line of at most 200 characters. It becomes a commit message if people squash."""
        line = _without_actions(plain_line(self._redact(text), TITLE_CHARS))
        line = _HYPHENATED.sub(r"\1 - ", _LEADING_CHARACTERS.sub("", line))
        return plain_line(_with_plain_start(line.strip()), TITLE_CHARS)

    def inline(self, text: str) -> str:
        """Return one line of at most 300 characters that can follow the program's own words in Markdown."""
        return in_markdown(self._redact(text), INLINE_CHARS)

    def text(self, text: str, *, issue: int | None) -> str:
        """Return Markdown of at most 40,000 characters. It can close no issue but `issue`."""
        return self._markdown(text, issue, is_quoted=False)

    def comment(self, text: str, *, issue: int | None) -> str:
        """Return Markdown as `text` does, in one block quote, so that none of its lines begins a line of the comment."""
        return self._markdown(text, issue, is_quoted=True)

    def message(self, headline: str, paragraphs: Iterable[str], last: Iterable[str] = ()) -> str:
        """Return a commit message of about 20,000 characters at most, as plain text.

        Git finds no trailers in it except those of `last`.

        Args:
            headline: in the form that `title` returns.
            paragraphs: other people's text, as Markdown.
            last: the program's own text, such as its trailers; it is not changed and comes last.
        """
        redacted = map(self._redact, paragraphs)
        texts = ("\n".join(_message_lines(_decoded_line(text))).strip() for text in redacted)
        words = "\n\n".join(_LONE_LINE.sub("> ", text) for text in texts if text)
        if len(words) > MESSAGE_CHARS:
            note = f"(Cut here: the text was longer than {MESSAGE_CHARS:,} characters.)"
            start, _, _ = words[: MESSAGE_CHARS - len(note) - 2].rpartition("\n")
            words = f"{start.rstrip()}\n\n{note}".strip()
        return "\n\n".join(filter(None, (headline, words, *last)))

    def _markdown(self, text: str, issue: int | None, *, is_quoted: bool) -> str:
        def change(words: str) -> str:
            return _without_closing(_without_directives(words), issue)

        return harmless_markdown(
            without_invisible(self._redact(text)), self._hosts, change, is_quoted=is_quoted
        )


def plain_line(text: str, most_chars: int) -> str:
    """Return the text as one line of printable characters, shortened with an ellipsis."""
    return cut(" ".join(_decoded_line(text[: 8 * most_chars]).split()), most_chars)


def in_markdown(text: str, most_chars: int) -> str:
    """Return one line that can follow the program's own words in Markdown, without markup, links or mentions.

    Words of letters, digits and plain punctuation stay; all others become code.
    """
    words: list[str] = []
    codes: list[str] = []
    for word in [*plain_line(text, most_chars).split(), ""]:
        if word and (_SPECIAL_USE.search(word) or not _WORD.fullmatch(word)):
            codes.append(word.replace("`", "'"))
            continue
        if codes:
            words.append(f"`{' '.join(codes)}`")
            codes = []
        words.append(word)
    return " ".join(words).rstrip()


def _decoded_line(text: str) -> str:
    """Decode references, remove invisible characters, and normalize the printable ones."""
    return unicodedata.normalize("NFC", printable_text(decoded_text(text))).translate(_FOLDED)


def _without_directives(text: str) -> str:
    """Change directives to services that read commits and descriptions, and the program's own markers."""

    def rewrite(match: re.Match[str]) -> str:
        return f"({match[1]})" if _is_directive(match[1].strip(" \t")) else match[0]

    return _MARKER.sub("< ", _NO_CI.sub(r"(\1)", _IN_BRACKETS.sub(rewrite, text)))


def _is_directive(words: str) -> bool:
    """Return whether words in brackets may stop checks: two to four, of which one is a stop word.

    An underscore may join two words or be a part of one, so both numbers are counted in its favour.
    """
    most = sum(word.strip("_") != "" for word in _SEPARATORS.split(words))
    has_two = "_" in words or _SEPARATORS.search(words) is not None
    is_short = has_two and most <= _MOST_DIRECTIVE_WORDS
    return is_short and _STOP_WORD.search(unicodedata.normalize("NFKC", words)) is not None


def _without_closing(text: str, issue: int | None) -> str:
    """Change the text so that no word closes an issue except `issue`."""

    def rewrite(match: re.Match[str]) -> str:
        slug = match["path"] or match["slug"] or ""
        if not slug and issue is not None and int(match["number"]) == issue:
            return match[0]
        blanks = match[2].rstrip("\\") or " "
        return f"{match[1]}{blanks}{slug}{' ' if slug else ''}issue {match['number']}"

    return _CLOSING.sub(rewrite, text)


def _without_actions(line: str) -> str:
    """Change everything in a line that a forge, or a service that reads commits, would act on."""
    line = _LINE_DIRECTIVE.sub(r"(\1)", _STARS.sub("**", line))
    line = _ISSUE_URL.sub(r"\g<path> no. \g<number>", line)
    line = _NUMBER.sub(lambda found: f"{found[1]} no. ".lstrip(), _GH.sub(r"\1 ", line))
    line = _LEADING_SIGN.sub(r"\g<0> ", line)
    line = _LINK.sub("] (", _TAG.sub("< ", _COMMENT.sub("< ", line)))
    line = _MENTION.sub("@ ", line)
    return re.sub(r"\S+", _address, line) if "://" in line or "www." in line.lower() else line


def _address(word: re.Match[str]) -> str:
    """Return a word unchanged, or as code if a forge would turn it into a link."""
    text = word[0].replace("`", "")
    if "://" not in text and "www." not in text.lower():
        return word[0]
    rest = text.lstrip("([{<\"'")
    address = rest.rstrip(")]}>\"'.,:;!?")
    return f"{text[: len(text) - len(rest)]}`{address}`{rest[len(address) :]}"


def _with_plain_start(line: str) -> str:
    """Turn the first word into code, unless it begins with a letter, a digit, an opening bracket or a quote."""
    if not line or line[0].isalnum() or line[0] in _OPENERS or unicodedata.category(line[0]) == "So":
        return line
    first, blank, rest = line.partition(" ")
    return f"`{first.replace('`', chr(39))}`{blank}{rest}"


def _message_lines(text: str) -> Iterator[str]:
    """Yield the lines of Markdown as plain text.

    Code is indented. No other line begins with a special character or with a token that git reads.
    """
    fence = ""
    for quoted in text.split("\n"):
        line = _QUOTE.sub("", quoted)
        before, fence = fence, fence_after(line.lstrip(" \t>"), fence)
        if before and fence:
            yield _code_line(line)
        elif not (before or fence):
            yield _message_line(_unescaped(line))


def _unescaped(line: str) -> str:
    r"""Replace `\_` by `_` in a line of Markdown, outside of code."""
    parts = _TICKS.split(line)
    open_ticks = ""
    for at, part in enumerate(parts):
        if at % 2:
            open_ticks = "" if part == open_ticks else open_ticks or part
        elif not open_ticks:
            parts[at] = _ESCAPE.sub(r"\1", part)
    return "".join(parts)


def _code_line(line: str) -> str:
    code = line.lstrip()
    blanks = line[: len(line) - len(code)]
    code = _HYPHENATED.sub(r"\1 - ", _without_actions(code))
    if command := _COMMAND.match(code):
        code = f"`{command[0]}`{code[command.end() :]}"
    return f"    {blanks}{code}".rstrip()


def _message_line(line: str) -> str:
    found = _ITEM.fullmatch(line)
    before, words = (found[1], found[2]) if found else ("", line)
    if _RULE.fullmatch(line.strip()):
        return ""
    if heading := _HEADING.fullmatch(words):
        title = heading[1].rstrip().rstrip("#").rstrip()
        return f"{before}*{_without_actions(title)}*"
    words = _without_actions(words).strip()
    if _MAIL.match(words):
        first, blank, rest = words.partition(" ")
        words = f"`{first}`{blank}{rest}"
    elif not before.strip() and (token := _TOKEN.fullmatch(words)):
        words = _without_separator(words, *token.groups())
    return f"{before}{_with_plain_start(words)}".rstrip()


def _without_separator(line: str, token: str, blanks: str, value: str) -> str:
    """Change a line that git would read as a trailer so that its colon no longer separates anything."""
    if not value.strip():
        return token
    if blanks or value[0].isspace():
        return f"{token} - {value.strip()}"
    first, blank, rest = line.partition(" ")
    return f"`{first.replace('`', chr(39))}`{blank}{rest}"

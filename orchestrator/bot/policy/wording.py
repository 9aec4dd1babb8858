"""Makes a model's text harmless before it is published: it cannot notify, command, close or load anything.

In a title, a commit message and a single line, character references are decoded and only printable characters
stay. What a program could read as more than words is changed: addresses, references, directives and trailers.
`wording_markdown` rebuilds Markdown.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.bot.policy.hidden_characters import decoded_text, printable_text, without_invisible
from orchestrator.core.prompts import cut, fence_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token


BODY_CHARS = 40_000
"""GitHub accepts 65,536 characters; the template and the footer need room."""
_CUT = f"(Cut here: the text was longer than {BODY_CHARS:,} characters.)"
_DEEPEST = 20
"""Deepest nesting of blocks. A list is two levels."""
_LONG_BYTES = 100
"""A shorter paragraph could be a command to a bot, or a declaration; these are short."""
_CONTEXT_CHARS = 40
"""Number of characters before a piece that are passed with it, because words such as `closes` precede a number."""

_ADDRESS = re.compile(r"https?://([A-Za-z0-9.-]+)(?::(?:80|443))?(?:[/?#][^\s\\<>\"]*)?", re.IGNORECASE)
_RELATIVE = re.compile(r"(?![/\\]{2})(?:[A-Za-z0-9._~%+,=@()-]*(?:[/?#][^\s\\<>\"]*)?)")
# Addresses that GitHub turns into links by itself. https://github.github.com/gfm/#autolinks-extension-
_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]{0,30}://|www\.)[^\s<>`\"]*", re.IGNORECASE)
_URL_TAIL = "?!.,:*_~'\")]|;"

_COMMENT_IN_MARKDOWN = re.compile(r"<!--.*?(?:(?P<end>-->)|\Z)", re.DOTALL)


def _unless_closed(comment: re.Match[str]) -> str:
    return "" if comment["end"] else comment[0]


# Tags that only format. Their content stays.
_FORMATTING = re.compile(
    r"</?(?:details|summary|sub|sup|kbd|br|b|i|u|em|strong|code|del|ins|p|div|span|center|h[1-6]|ul|ol|li|hr"
    r"|table|thead|tbody|tr|th|td)(?:\s[^<>]*)?/?>",
    re.IGNORECASE,
)
# Languages that GitHub only highlights. It draws some others as diagrams, and may draw more in future.
_COLOURED = re.compile(
    "text|txt|log|console|shell|sh|bash|zsh|fish|powershell|bat|diff|patch|python|py|pycon|json|jsonc|ya?ml|toml|ini"
    "|xml|html|s?css|less|sql|graphql|go|rust|rs|c|h|cpp|c\\+\\+|cs|csharp|java|kotlin|kt|scala|groovy|swift|ruby|rb"
    "|erb|php|perl|lua|r|dart|elixir|erlang|haskell|hs|ocaml|clojure|javascript|js|jsx|typescript|ts|tsx|vue|svelte"
    "|dockerfile|makefile|make|cmake|gradle|nix|hcl|terraform|proto|protobuf|markdown|md|rst|regex|vim|zig|julia"
    "|http|csv|properties|env|jinja"
)
_RULES = {"": "---", "text-align:left": ":--", "text-align:center": ":-:", "text-align:right": "--:"}
_MARKS = {"em": "_", "strong": "**", "s": "~~"}
_BLANKS = re.compile(r"\s+")
_TASK = re.compile(r"\s*(\[[ xX]\]) (?=.*\S)")
_TITLE = re.compile(r"\*\*([^*]*[^*#\s])\*\*")
_ALERT = re.compile(r"\[!(NOTE|TIP|IMPORTANT|WARNING|CAUTION)\](?=\s)", re.IGNORECASE)
# Characters that begin a block at the start of a line: https://spec.commonmark.org/0.31.2/#leaf-blocks and lists.
_BLOCK_START = re.compile(r"^([0-9]{1,9}(?=[.)](?:\s|$))|)([-+=>#:]|(?<=[0-9])[.)])")
# `Token: value` at the start of a line is a trailer to git, and `type(scope): ...` to programs that make releases.
_LABEL = re.compile(r"^[^:<`\[*_~\\]{1,80}(?=:)")


@dataclass(frozen=True, slots=True)
class Hosts:
    """The hosts that links may lead to.

    Attributes:
        names: allowed hosts.
        parents: domains whose subdomains are allowed, each with a leading dot.
    """

    names: frozenset[str]
    parents: tuple[str, ...]

    @classmethod
    def of(cls, hosts: Iterable[str]) -> Hosts:
        """Parse a list of hosts, in which `*.x` means every subdomain of `x`."""
        listed = [host.strip().lower().rstrip(".") for host in hosts]
        names = frozenset(host for host in listed if host and "*" not in host)
        return cls(names, tuple(host[1:] for host in listed if re.fullmatch(r"\*(?:\.[a-z0-9-]+)+", host)))

    def allow(self, address: str) -> bool:
        """Return whether an address leads to an allowed host. User names, other ports and other letters are refused."""
        match = _ADDRESS.fullmatch(address)
        if match is None:
            return False
        host = match[1].lower().rstrip(".")
        return host in self.names or any(host.endswith(parent) for parent in self.parents)

    def allow_target(self, target: str) -> bool:
        """Return whether a link's target leads to an allowed host or stays within the repository."""
        return self.allow(target) or _RELATIVE.fullmatch(target) is not None


def harmless_markdown(text: str, hosts: Hosts, change: Callable[[str], str], *, is_quoted: bool) -> str:
    """Rebuild Markdown from the allowed forms, and cut it if it is too long.

    Args:
        hosts: allowed hosts of links.
        change: applied to all readable text, including code. It receives several pieces separated by NUL, and
            must keep the separators.
        is_quoted: whether the whole text becomes one block quote.
    """

    def rebuilt(text: str, note: str) -> tuple[str, str]:
        page = _Page(hosts, change)
        lines = page.lines(text, note, is_quoted=is_quoted)
        return "\n".join(lines), "".join("".join(page.words).split())

    def as_code(text: str, note: str) -> tuple[str, str]:
        return "\n".join(
            _quoted([*_Page(hosts, change).fence(text, "text"), *(["", note] if note else [])])
        ), ""

    try:
        result = _within_limit(text, rebuilt)
        if rebuilt(result[0], "") == result:
            return result[0]
    except _UnreadableError:
        pass
    return _within_limit(text, as_code)[0]


def _within_limit(text: str, write: Callable[[str, str], tuple[str, str]]) -> tuple[str, str]:
    """Return the written text, and its words, of as much of a text as fits into `BODY_CHARS`."""
    length = min(len(text), BODY_CHARS)
    note = _CUT if length < len(text) else ""
    while True:
        result = write(text[:length], note)
        if len(result[0]) <= BODY_CHARS:
            return result
        length, note = length * BODY_CHARS * 9 // (len(result[0]) * 10), _CUT


class _UnreadableError(Exception):
    """Blocks are nested too deeply, or there is a token that is not known here."""


def _limit_depth(state: StateBlock, _start: int, _end: int, _silent: bool) -> bool:  # noqa: FBT001  the parser's call
    if state.level > _DEEPEST:
        raise _UnreadableError
    return False


@functools.cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # At its own limit, the parser would omit deeper blocks.
    parser = MarkdownIt("commonmark", {"maxNesting": _DEEPEST + 4}).enable(["table", "strikethrough"])
    parser.block.ruler.before("table", "depth", _limit_depth)
    return parser


class _Piece(NamedTuple):
    """A part of a line.

    Attributes:
        kind: `text`, `code`, `url`, `mark` (one end of emphasis) or `link` (one end of a link).
        text: its readable text.
        mark: `_`, `**`, `~~`; a link's target.
        opens: whether it is the first of two ends.
    """

    kind: str
    text: str = ""
    mark: str = ""
    opens: bool = False


@dataclass(frozen=True, slots=True)
class _Block:
    """Lines that belong together.

    Attributes:
        kind: `paragraph`, `heading`, `hr`, `fence`, `table`, `bullet_list`, `ordered_list`, `blockquote`, or
            `set apart`: a text that could be a command if it were a paragraph, and will be quoted.
        needs_gap: whether an empty line has to precede and follow it.
        mark: the mark of a list's items.
    """

    kind: str
    lines: list[str]
    needs_gap: bool = True
    mark: str = ""


@dataclass(slots=True)
class _Page:
    """One pass over a text. `words` is the readable text, in order."""

    hosts: Hosts
    change: Callable[[str], str]
    words: list[str] = field(default_factory=list)
    _before: str = ""

    def lines(self, text: str, note: str, *, is_quoted: bool) -> list[str]:
        """Return the lines of the rebuilt text."""
        blocks = self._blocks(iter(_parser().parse(text)), "", is_quoted=is_quoted)
        if note:
            self.words.append(note)
            _add(blocks, _Block("paragraph" if is_quoted else "set apart", [note]))
        lines = _joined_lines(blocks)
        return _quoted(lines) if is_quoted and [block.kind for block in blocks] != ["blockquote"] else lines

    def fence(self, text: str, language: str) -> list[str]:
        """Return a block of code that its content cannot end."""
        (text,) = self._changed([without_invisible(text).rstrip("\n")])
        self.words.append(text)
        ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        shown = language if _COLOURED.fullmatch(language) else "text" if language else ""
        return [ticks + shown, *text.split("\n"), ticks]

    def _blocks(
        self, tokens: Iterator[Token], end: str, *, is_quoted: bool, is_item: bool = False
    ) -> list[_Block]:
        """Return the blocks up to the token `end`."""
        blocks: list[_Block] = []
        for token in tokens:
            match token.type:
                case kind if kind == end:
                    break
                case "blockquote_open":
                    inner = self._blocks(tokens, "blockquote_close", is_quoted=True)
                    block = _Block("blockquote", _quoted(_joined_lines(inner))) if inner else None
                case "bullet_list_open" | "ordered_list_open":
                    block = self._list(tokens, token, blocks[-1:], is_quoted=is_quoted)
                case "table_open":
                    block = self._table(tokens)
                case "paragraph_open" | "html_block":
                    begins_item = is_item and not blocks
                    block = self._paragraph(
                        tokens, token, is_marked=is_quoted or begins_item, begins_item=begins_item
                    )
                case _:
                    block = self._leaf(tokens, token, is_quoted=is_quoted)
            if block is not None:
                _add(blocks, block)
        return blocks

    def _leaf(self, tokens: Iterator[Token], token: Token, *, is_quoted: bool) -> _Block | None:
        match token.type:
            case "heading_open":
                line = self._line(self._pieces(next(tokens)))
                if (words := line.rstrip("#")) != line:
                    line = f"{words}\\{line[len(words) :]}"
                next(tokens)
                return _Block("heading", [f"{'#' * int(token.tag[1:])} {line}"]) if line else None
            case "fence" | "code_block":
                language = token.info.split()[0].lower() if token.info.strip() else ""
                return _Block("fence" if is_quoted else "set apart", self.fence(token.content, language))
            case "hr":
                return _Block("hr", ["***"])
            case _:
                raise _UnreadableError

    def _paragraph(
        self, tokens: Iterator[Token], token: Token, *, is_marked: bool, begins_item: bool
    ) -> _Block | None:
        """Return a paragraph as one line. `is_marked`: the mark of a quote or of an item comes before it."""
        if token.type == "html_block":
            seen = decoded_text(_FORMATTING.sub(" ", _COMMENT_IN_MARKDOWN.sub(_unless_closed, token.content)))
            pieces = self._changed_pieces(_merge([_Piece("text", seen)]))
        else:
            pieces = self._pieces(next(tokens))
            next(tokens)
        words = "".join(piece.text for piece in pieces)
        if is_marked and pieces and (alert := _ALERT.match(pieces[0].text)):
            label = [_Piece("mark", mark="**", opens=True), _Piece("text", f"{alert[1].title()}:")]
            pieces = [
                *label,
                _Piece("mark", mark="**"),
                _Piece("text", pieces[0].text[alert.end() :]),
                *pieces[1:],
            ]
        task = _TASK.match(pieces[0].text) if begins_item and pieces else None
        if task:
            self.words.append(task[1])
            pieces = [pieces[0]._replace(text=pieces[0].text[task.end() :]), *pieces[1:]]
        line = self._line(pieces)
        line = f"{task[1]} {line}" if task else _BLOCK_START.sub(r"\1\\\2", line)
        if not line:
            return None
        if is_marked:
            return _Block("paragraph", [line], needs_gap=not token.hidden)
        is_sentence = line[0] in "`*_~[<" or (line[0].isalpha() and not line[0].islower())
        if len(words.encode()) < _LONG_BYTES or not is_sentence:
            title = _TITLE.fullmatch(line)
            return _Block("heading", [f"#### {title[1]}"]) if title else _Block("set apart", [line])
        return _Block("paragraph", [_LABEL.sub(r"\g<0>\\", line)], needs_gap=not token.hidden)

    def _list(
        self, tokens: Iterator[Token], token: Token, before: Sequence[_Block], *, is_quoted: bool
    ) -> _Block | None:
        kind = token.type.removesuffix("_open")
        first, second = "-+" if kind == "bullet_list" else ".)"
        mark = second if before and before[0].kind == kind and before[0].mark == first else first
        number = int(token.attrs.get("start", 1))
        items = []
        for inner in tokens:
            if inner.type == f"{kind}_close":
                break
            if blocks := self._blocks(tokens, "list_item_close", is_quoted=is_quoted, is_item=True):
                items.append(blocks)
        if not items:
            return None
        number = number if number + len(items) <= 10**9 else 1  # nine digits are the most
        has_gaps = any(_has_gaps(blocks) for blocks in items)
        lines: list[str] = []
        for place, blocks in enumerate(items):
            head = f"{mark} " if kind == "bullet_list" else f"{number + place}{mark} "
            inner_lines = _joined_lines(blocks, has_gaps=has_gaps)
            if lines and has_gaps:
                lines.append("")
            lines.append(head + inner_lines[0])
            lines += (f"{' ' * len(head)}{line}" if line else "" for line in inner_lines[1:])
        # A list that counts from another number does not end a paragraph.
        return _Block(kind, lines, needs_gap=kind == "ordered_list" and number != 1, mark=mark)

    def _table(self, tokens: Iterator[Token]) -> _Block:
        rows: list[list[str]] = []
        rule: list[str] = []
        for token in tokens:
            match token.type:
                case "table_close":
                    break
                case "tr_open":
                    rows.append([])
                case "th_open":
                    rule.append(_RULES[str(token.attrs.get("style", ""))])
                case "inline":
                    rows[-1].append(self._line(self._pieces(token), in_table=True))
                case _:
                    pass
        return _Block("table", [f"| {' | '.join(cells)} |" for cells in (rows[0], rule, *rows[1:])])

    def _pieces(self, inline: Token) -> list[_Piece]:
        """Return the pieces of a line, changed where necessary."""
        return self._changed_pieces(self._read(inline))

    def _read(self, inline: Token) -> list[_Piece]:
        """Return the pieces that the parser found."""
        pieces: list[_Piece] = []
        links: list[tuple[str, int]] = []
        for token in inline.children or ():
            match token.type:
                case "link_open":
                    links.append((str(token.attrs["href"]), len(pieces)))
                    pieces.append(_Piece("link", mark=_target(links[-1][0]), opens=True))
                case "link_close" if token.info == "auto":
                    address, start = links.pop()
                    pieces[start:] = [self._address(address.removeprefix("mailto:"))]
                case "link_close":
                    self._end_link(pieces, *links.pop())
                case "code_inline":
                    pieces.append(_Piece("code", without_invisible(token.content)))
                case "text" | "html_inline" | "softbreak" | "hardbreak":
                    pieces.append(_Piece("text", _text_of(token)))
                case "image":  # GitHub would load it for every reader, so it becomes a link
                    source, start = str(token.attrs["src"]), len(pieces)
                    label = "".join(child.content or " " for child in token.children or ()).strip() or "image"
                    if links:
                        pieces.append(_Piece("text", label))
                    else:
                        pieces += _Piece("link", mark=_target(source), opens=True), _Piece("text", label)
                        self._end_link(pieces, source, start)
                case kind if (name := kind.rpartition("_"))[0] in _MARKS:
                    pieces.append(_Piece("mark", mark=_MARKS[name[0]], opens=name[2] == "open"))
                case _:
                    raise _UnreadableError
        return _merge(
            piece._replace(text=decoded_text(piece.text)) if piece.kind == "text" else piece
            for piece in _merge(pieces)
        )

    def _end_link(self, pieces: list[_Piece], target: str, start: int) -> None:
        label = "".join(piece.text for piece in pieces[start:])
        if target and label.strip() and self.hosts.allow_target(target):
            pieces.append(_Piece("link", mark=_target(target)))
            return
        pieces[start] = _Piece("text")
        if label.strip() and target not in {"", label}:
            pieces += _Piece("text", " ("), _Piece("code", target), _Piece("text", ")")

    def _changed(self, texts: Sequence[str]) -> list[str]:
        changed = self.change("\0".join([self._before, *texts])).split("\0")[1:]
        self._before = ("".join([self._before, *changed]) + "\n")[-_CONTEXT_CHARS:]
        return changed

    def _changed_pieces(self, pieces: Sequence[_Piece]) -> list[_Piece]:
        """Apply the change to all pieces; addresses become pieces of their own."""
        texts = self._changed([piece.text for piece in pieces])
        # https://docs.github.com/en/get-started/writing-on-github/working-with-advanced-formatting: between two `$`.
        is_math = "".join(texts).count("$") > 1
        result: list[_Piece] = []
        is_linked = False
        for text, piece in zip(texts, pieces, strict=True):
            if piece.kind == "link":
                is_linked = piece.opens
            if piece.kind == "text" or (piece.kind == "url" and text != piece.text):
                result += self._text(text, is_math=is_math, is_linked=is_linked)
            else:
                result.append(piece._replace(text=text))
        return _merge(result)

    def _text(self, text: str, *, is_math: bool, is_linked: bool) -> Iterator[_Piece]:
        """Yield text, with code in place of addresses and mathematics."""
        at = 0
        for match in [*_URL.finditer(text), None]:
            between = text[at : match.start() if match else None]
            for word in re.split(r"(\s+)", between) if is_math else [between]:
                yield _Piece("code" if is_math and "$" in word else "text", word)
            if match:
                address = match[0].rstrip(_URL_TAIL)
                at = match.start() + len(address)
                yield _Piece("code", address) if is_linked else self._address(address)

    def _address(self, address: str) -> _Piece:
        """Return an address in the text: a link if its host is allowed, else code."""
        normal = _parser().normalizeLink(address)
        if not self.hosts.allow(normal):
            return _Piece("code", address)
        return _Piece("url", normal.replace("@", "%40").replace("$", "%24"))

    def _line(self, pieces: Sequence[_Piece], *, in_table: bool = False) -> str:
        """Join the pieces to one line of Markdown, with only the emphasis and links that the parser finds again."""
        self.words += (piece.text for piece in pieces)
        if in_table:  # Parsers disagree on a backslash before a pipe.
            pieces = [piece._replace(kind="text") if "\\|" in piece.text else piece for piece in pieces]
        for left_out in ((), ("mark",)):
            kept = _merge(piece for piece in pieces if piece.kind not in left_out)
            line = _written(kept, in_table=in_table)
            read = line.replace("\\|", "|") if in_table else line
            if self.change(line) == line and self._read(_parser().parseInline(read)[0]) == kept:
                return line
        return _written(
            _merge(piece for piece in pieces if piece.kind not in {"mark", "link"}), in_table=in_table
        )


def _add(blocks: list[_Block], block: _Block) -> None:
    """Append a block. Adjacent blocks that are set apart become one."""
    if blocks and blocks[-1].kind == block.kind == "set apart":
        block = replace(block, lines=[*blocks.pop().lines, "", *block.lines])
    blocks.append(block)


def _joined_lines(blocks: Sequence[_Block], *, has_gaps: bool = True) -> list[str]:
    lines: list[str] = []
    for block in blocks:
        if lines and has_gaps:
            lines.append("")
        lines += _quoted(block.lines) if block.kind == "set apart" else block.lines
    return lines


def _quoted(lines: Iterable[str]) -> list[str]:
    return [f"> {line}" if line else ">" for line in lines]


def _has_gaps(blocks: Sequence[_Block]) -> bool:
    """Return whether a list item contains empty lines. Only a list may follow a line without one."""
    if len(blocks) == 1:
        return blocks[0].kind == "paragraph" and blocks[0].needs_gap
    is_plain = blocks[0].kind == "paragraph" and all(block.kind.endswith("_list") for block in blocks[1:])
    return not is_plain or any(block.needs_gap for block in blocks)


def _target(address: str) -> str:
    """Return a link's target that cannot end early. The parser has escaped blanks, quotes and backslashes."""
    unsafe = r"[()@$\[\]*`|<>]" if _ADDRESS.fullmatch(address) else r"[()@$\[\]*`|<>:]"
    return re.sub(unsafe, lambda match: f"%{ord(match[0]):02X}", address).replace("&", "&amp;")


def _text_of(token: Token) -> str:
    match token.type:
        case "text":
            return token.content
        case "html_inline" if not _FORMATTING.fullmatch(token.content):
            return "" if token.content.startswith("<!--") else token.content
        case "html_inline" if not token.content.lower().startswith("<br"):
            return ""
        case _:
            return " "


def _merge(pieces: Iterable[_Piece]) -> list[_Piece]:
    """Join adjacent pieces of the same kind, and remove blanks at both ends of the line."""
    result: list[_Piece] = []
    for piece in pieces:
        is_blank = piece.kind == "code" and not piece.text.strip()
        part = _Piece("text", piece.text) if is_blank else piece
        if part.kind in {"text", "code"} and result and result[-1].kind == part.kind:
            result[-1] = part._replace(text=result[-1].text + part.text)
        elif part.text or part.kind in {"mark", "link"}:
            result.append(part)
    for place, piece in enumerate(result):
        if piece.kind == "text":
            text = _BLANKS.sub(" ", piece.text)
            text = text.lstrip() if place == 0 else text
            text = text.rstrip() if place == len(result) - 1 else text
            result[place] = piece if text == piece.text else piece._replace(text=text)
    return [piece for piece in result if piece.text or piece.kind in {"mark", "link"}]


def _written(pieces: Sequence[_Piece], *, in_table: bool) -> str:
    """Return the pieces as one line of Markdown."""
    return "".join(
        _as_markdown(piece, following, in_table=in_table)
        for piece, following in zip_longest(pieces, pieces[1:])
    )


def _as_markdown(piece: _Piece, following: _Piece | None, *, in_table: bool) -> str:
    match piece.kind:
        case "mark":
            return piece.mark
        case "link":
            return "[" if piece.opens else f"]({piece.mark})"
        case "url":
            return f"<{piece.text}>"
        case "code":
            ticks = "`" * (1 + max(map(len, re.findall("`+", piece.text)), default=0))
            is_padded = piece.text[0] in "` " or piece.text[-1] in "` "
            code = f"{ticks} {piece.text} {ticks}" if is_padded else f"{ticks}{piece.text}{ticks}"
            return code.replace("|", "\\|") if in_table else code
        case _:
            raw = _escaped(piece.text)
            if raw.endswith("!") and following and following.kind == "link":
                raw = f"{raw[:-1]}\\!"
            return raw.replace("|", "&#124;") if in_table else raw


def _escaped(text: str) -> str:
    """Escape all characters that have a meaning for Markdown or GitHub."""
    text = re.sub(r"&(?=#?\w+;)", "&amp;", text)
    text = re.sub(r"[\\`*\[\]~]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)
    text = text.replace("<", "&lt;")
    # Bots that search a text for `/word` or `!word` do not find it.
    text = re.sub(r"(?<![\w.~/-])[/!](?=[A-Za-z])", lambda match: f"&#{ord(match[0])};", text)
    return text.replace("@", "@&#8203;")  # a mention or an e-mail address


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

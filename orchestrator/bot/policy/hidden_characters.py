"""Finds invisible characters by their Unicode properties, removes them or shows them, and decodes text in them."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from regex import Pattern

_SHOWN_CHARS = 120


@dataclass(frozen=True, slots=True)
class Removed:
    """A part of a text that a model would have read and a person would not have seen.

    Attributes:
        offset: its start, in characters of the original text.
        kind: its kind in a few words: `tag characters`, `HTML comment`, `alt text`, ...
        text: what the model would have read. Tag characters and variation selectors are decoded; other
            characters are written as `<U+200B>`.
    """

    offset: int
    kind: str
    text: str

    def __str__(self) -> str:
        """Return one short line for a person, without control characters."""
        shown = " ".join(self.text[: 2 * _SHOWN_CHARS].split())
        shown = "".join(char if char.isprintable() else escaped(char) for char in shown)
        if len(shown) > _SHOWN_CHARS or len(self.text) > 2 * _SHOWN_CHARS:
            shown = shown[:_SHOWN_CHARS] + "..."
        return f'{self.kind} at {self.offset}: "{shown}"'


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A text as a person sees it.

    Attributes:
        text: the visible text; the same object if nothing was hidden.
        removed: parts that were removed or made visible, in the order of the original text.
        kept: parts that the model reads and a person does not see in this form: tags without effect,
            addresses of links.
    """

    text: str
    removed: tuple[Removed, ...] = ()
    kept: tuple[Removed, ...] = ()


@dataclass(frozen=True, slots=True)
class Cut:
    """A part of a text, from `start` to before `end`, that is replaced by `replacement`.

    Its kind and text are those of `Removed`.
    """

    start: int
    end: int
    kind: str
    text: str
    replacement: str = ""


def apply_cuts(text: str, cuts: Iterable[Cut]) -> str:
    """Replace each cut in the text. The cuts have to be in order and must not overlap."""
    pieces: list[str] = []
    position = 0
    for cut in cuts:
        pieces += text[position : cut.start], cut.replacement
        position = cut.end
    return "".join([*pieces, text[position:]])


def escaped(text: str) -> str:
    """Write each character as its code point: `<U+200B>`."""
    return "".join(f"<U+{ord(char):04X}>" for char in text)


# The syntax of the `regex` package, version 1: `[a--b]` is a difference of sets, `[a&&b]` an intersection.
# U+2800 looks blank, but has no property that says so.
_INVISIBLE = (
    r"[[\p{Cf}\p{Co}\p{Cs}\p{Cc}\p{Default_Ignorable_Code_Point}\p{Noncharacter_Code_Point}"
    r"\p{Bidi_Control}\p{Zl}\p{Zp}\u2800]--[\t\n\r\p{Prepended_Concatenation_Mark}]]"
)
_MARK = r"[\p{M}--\p{Default_Ignorable_Code_Point}]"
MOST_MARKS = 8
"""Most combining marks on one letter. Tibetan and Hebrew need fewer; more cover the lines around them."""

_EMOJI = r"[[\p{Extended_Pictographic}\p{Emoji}]--[0-9#*\p{Regional_Indicator}]]"
_VIRAMA = r"\p{Canonical_Combining_Class=9}"
_TRANSPARENT = rf"[{_MARK}&&\p{{Joining_Type=T}}]{{0,8}}"
_BRAILLE = r"[\u2801-\u28FF]"

# The three flags that are recommended for interchange: England, Scotland, Wales.
# https://www.unicode.org/reports/tr51/#valid-emoji-tag-sequences
_FLAGS = "|".join(
    "".join(chr(0xE0000 + ord(char)) for char in name) + chr(0xE007F) for name in ("gbeng", "gbsct", "gbwls")
)

# Each alternative begins at an invisible character and examines its neighbours.
_VISIBLE_USES = (
    rf"(?<=\U0001F3F4)(?:{_FLAGS})",
    # Emoji: https://www.unicode.org/reports/tr51/#EBNF_and_Regex
    rf"(?<={_EMOJI})[\uFE0E\uFE0F](?!\p{{Variation_Selector}})",
    r"(?<=[0-9#*])\uFE0F(?=\u20E3)",
    rf"(?<={_EMOJI}[\uFE0F\p{{Emoji_Modifier}}]?)\u200D(?={_EMOJI})",
    # Joiners: https://www.rfc-editor.org/rfc/rfc5892#appendix-A.1 and A.2
    rf"(?<={_VIRAMA})[\u200C\u200D]",
    (
        rf"(?<=[\p{{Joining_Type=L}}\p{{Joining_Type=D}}]{_TRANSPARENT})\u200C"
        rf"(?={_TRANSPARENT}[\p{{Joining_Type=R}}\p{{Joining_Type=D}}])"
    ),
    # Bengali has a joiner before the virama too: The Unicode Standard, chapter 12.
    rf"(?<=\p{{Lo}})\u200D(?={_VIRAMA}\p{{Lo}})",
    r"(?<=[\p{Script=Mongolian}&&\p{L}])[\u180B-\u180F](?![\u180B-\u180F])",
    # Variants of ideographs. Further selectors exist, but a text could be encoded in them, one byte in each.
    r"(?<=\p{Ideographic})[\uFE00-\uFE02\U000E0100-\U000E010F](?!\p{Variation_Selector})",
    rf"(?<={_BRAILLE})\u2800+|\u2800+(?={_BRAILLE})",
)
_KINDS = (
    ("tag characters", r"[\U000E0000-\U000E007F]+"),
    ("variation selectors", r"\p{Variation_Selector}+"),
    ("bidirectional control", r"\p{Bidi_Control}+"),
    ("private use", r"\p{Co}+"),
    ("surrogate", r"\p{Cs}+"),
    ("control character", r"[\p{Cc}--[\t\n\r]]+"),
    ("line separator", r"[\p{Zl}\p{Zp}]"),
    ("noncharacter", r"\p{Noncharacter_Code_Point}+"),
    (
        "format characters",
        # Joiners one at a time: the next one may have a visible use.
        r"[\p{Cf}--[\u200C\u200D\p{Bidi_Control}\U000E0000-\U000E007F\p{Prepended_Concatenation_Mark}]]+|[\u200C\u200D]",
    ),
    ("blank", r"\u2800+"),
    ("invisible character", r"(?:[\p{Default_Ignorable_Code_Point}--[\p{Cf}\p{Variation_Selector}]])+"),
)
_REPLACEMENTS = {"line separator": "\n", "blank": " "}

# `str.isprintable` is false for the categories Other (Cc, Cf, Cs, Co, Cn) and Separator (Zs, Zl, Zp). It is true for
# these invisible characters, and for the variation selectors, which are recognized by their first bytes in UTF-8.
_PRINTABLE_INVISIBLE = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0\u2800"
_SELECTORS_IN_UTF8 = (b"\xef\xb8", b"\xf3\xa0")
_SELECTORS = "".join(map(chr, [*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]))
_ASCII_CONTROLS = tuple(chr(code) for code in [*range(0x20), 0x7F] if chr(code) not in "\t\n\r")
_ORDINARY_BLANKS = "\t\n\r\u00a0\u3000"


@dataclass(frozen=True, slots=True)
class _Patterns:
    invisible: Pattern[str]
    visible_use: Pattern[str]
    kinds: Pattern[str]
    marks: Pattern[str]
    mark: Pattern[str]


@functools.cache
def _patterns() -> _Patterns:
    import regex

    compiled = functools.partial(regex.compile, flags=regex.VERSION1)

    return _Patterns(
        invisible=compiled(_INVISIBLE),
        visible_use=compiled("|".join(_VISIBLE_USES)),
        kinds=compiled("|".join(f"({expression})" for _, expression in _KINDS)),
        marks=compiled(rf"(?<={_MARK}{{{MOST_MARKS}}})(?>{_MARK}+)"),
        mark=compiled(_MARK),
    )


def may_hide(text: str) -> bool:
    """Return whether the text may contain invisible characters, so that it has to be searched. This is fast."""
    if text.isascii():
        return any(char in text for char in _ASCII_CONTROLS)
    rest = text
    for blank in _ORDINARY_BLANKS:
        rest = rest.replace(blank, "")
    if not rest.isprintable() or any(char in rest for char in _PRINTABLE_INVISIBLE):
        return True
    encoded = rest.encode()
    return any(start in encoded for start in _SELECTORS_IN_UTF8) or _has_long_runs_of_marks(text)


def _has_long_runs_of_marks(text: str) -> bool:
    # A run of nine marks contains one of every ninth character, so the search of these is a fast first test.
    patterns = _patterns()
    every_ninth = text[MOST_MARKS :: MOST_MARKS + 1]
    return patterns.mark.search(every_ninth) is not None and patterns.marks.search(text) is not None


def hidden_characters(text: str) -> list[Cut]:
    """Find the invisible characters, in order, except those with a visible use.

    Such a use are emoji sequences, joiners where a script needs them, variants of ideographs, and visible format
    characters of the Arabic and Syriac scripts.
    """
    if not may_hide(text):
        return []
    patterns = _patterns()
    cuts = []
    if _has_long_runs_of_marks(text):
        cuts = [Cut(*run.span(), "combining marks", escaped(run[0])) for run in patterns.marks.finditer(text)]
    position = 0
    while found := patterns.invisible.search(text, position):
        start = found.start()
        if visible := patterns.visible_use.match(text, start):
            position = visible.end()
            continue
        cuts.append(_cut(text, start))
        position = cuts[-1].end
    return sorted(cuts, key=lambda cut: cut.start)


def show_hidden(text: str) -> Cleaned:
    """Replace the hidden characters of a file or of a command's output by visible text: `<U+200B>`.

    A run of tag characters or variation selectors is decoded: `<hidden: "...">`. Markup is visible and stays.
    """
    if not may_hide(text):
        return Cleaned(text)
    cuts = hidden_characters(text)
    if not cuts:
        return Cleaned(text)
    shown = []
    for cut in cuts:
        is_decoded = cut.text != escaped(text[cut.start : cut.end])
        shown.append(replace(cut, replacement=f'<hidden: "{cut.text}">' if is_decoded else cut.text))
    removed = tuple(Removed(cut.start, cut.kind, cut.text) for cut in cuts)
    return Cleaned(apply_cuts(text, shown), removed)


def every_invisible(text: str) -> list[Cut]:
    """Find every invisible character and every combining mark, including those with a visible use."""
    patterns = _patterns()
    return [
        Cut(offset, offset + 1, "invisible character", escaped(char))
        for offset, char in enumerate(text)
        if patterns.invisible.match(char) or patterns.mark.match(char)
    ]


def _cut(text: str, start: int) -> Cut:
    """Return the run of characters of one kind that begins here."""
    match = _patterns().kinds.match(text, start)
    if match is None or match.lastindex is None:
        return Cut(start, start + 1, "invisible character", escaped(text[start]))
    kind, run = _KINDS[match.lastindex - 1][0], match[0]
    decode = {"tag characters": _decode_tags, "variation selectors": _decode_selectors}.get(kind, escaped)
    replacement = _REPLACEMENTS.get(kind, "")
    return Cut(start, match.end(), kind, decode(run), replacement * (len(run) if replacement == " " else 1))


def _decode_tags(run: str) -> str:
    """Decode tag characters, which mirror ASCII: U+E0041 is A. https://www.unicode.org/charts/PDF/UE0000.pdf."""
    letters = {char: chr(ord(char) - 0xE0000) for char in run}
    return "".join(letters[char] if letters[char].isprintable() else escaped(char) for char in run)


def _decode_selectors(run: str) -> str:
    """Decode variation selectors as bytes: VS1 is 0, VS17 is 16, VS256 is 255."""
    codes = [_SELECTORS.find(char) for char in run]
    if -1 in codes:  # Mongolian selectors
        return escaped(run)
    decoded = bytes(codes).decode("utf-8", "replace")
    if not any(char.isprintable() and char != "\ufffd" for char in decoded):
        return escaped(run)
    return "".join(char if char.isprintable() else escaped(char) for char in decoded)


_JOINERS = frozenset("\u200c\u200d")
"""Characters that `without_invisible` keeps only where a script or an emoji needs them."""
_LINE_END = re.compile(r"\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
# https://spec.commonmark.org/0.31.2/#entity-and-numeric-character-references; HTML allows more leading zeros.
_REFERENCE = re.compile(r"&(?:#0{0,8}[0-9]{1,7}|#[xX]0{0,8}[0-9a-fA-F]{1,6}|([A-Za-z][A-Za-z0-9]{1,40}));")
_MOST_ROUNDS = 8


def decoded_text(text: str) -> str:
    """Decode all character references, remove invisible characters, and convert line ends to line feeds.

    The result contains no character reference, so a second call changes nothing. From text with deeply nested
    references (`&amp;amp;amp;...`) the ampersands are removed instead.
    """
    for _ in range(_MOST_ROUNDS):
        decoded = without_invisible(_REFERENCE.sub(_decode_reference, text))
        if decoded == text:
            return text
        text = decoded
    return without_invisible(text.replace("&", ""))


def without_invisible(text: str) -> str:
    """Remove control and other invisible characters, and convert line ends to line feeds.

    Character references stay, because code shows them literally.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _CONTROL.sub("", _LINE_END.sub("\n", text))
    # After a removal, another character may have lost its visible use. After some rounds, all are removed.
    for find in [*[hidden_characters] * _MOST_ROUNDS, every_invisible]:
        cuts = find(text)
        if not cuts:
            break
        text = apply_cuts(text, cuts)
    return text


def _decode_reference(match: re.Match[str]) -> str:
    import html
    import html.entities

    return html.unescape(match[0]) if match[1] is None else html.entities.html5.get(f"{match[1]};", match[0])


def printable_text(text: str) -> str:
    """Remove all characters that cannot be printed. Tabs, line feeds and character references stay."""
    text = without_invisible(text)
    if text.isascii():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" or char in _JOINERS else " " if char.isspace() else ""
        for char in text
    )

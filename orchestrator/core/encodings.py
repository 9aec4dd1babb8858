"""Finds the encoding of a text that is not UTF-8, where it is sure: a wrong guess would damage what is written back."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

_MARKS = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_ISO_2022 = re.compile(rb"\x1b\$(?:[@AB]|[()*+][A-Z])")
"""What shifts to a set of East Asian characters, whose bytes are those of ASCII: https://www.rfc-editor.org/rfc/rfc1468"""
_MOST_BYTES = 2_000_000
"""Larger files are not looked at: nobody edits them here."""
_LETTERS = "àâäáãåæçèéêëìíîïñòóôöõøùúûüßÿœÀÂÄÁÃÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÖÕØÙÚÛÜŒ"
_QUOTES = "\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb"
_SIGNS = f"{_QUOTES}\u2013\u2014\u2026\u2022\u00b0\u00a7\u00a9\u00ae\u00b1\u00b7\u20ac\u00a3\u00bf\u00a1\u00b2\u00b3\u00b5\u00d7\u00b4\u00a8\u00ba\u00aa\u00bc\u00bd\u00be\u00a0"
_IN_WORDS = "\u2019\u00b7"
"""Signs that words have in them: apostrophes, and the dot of Catalan."""
_WORD = re.compile(rf"[A-Za-z{_LETTERS}]+")
_OTHERS = re.compile(r"[^\x00-\x7f]")
_SIGN_IN_WORD = re.compile(
    rf"[A-Za-z{_LETTERS}][{re.escape(''.join(set(_SIGNS) - set(_IN_WORDS)))}][A-Za-z{_LETTERS}]"
)
_FOREIGN = re.compile(rf"[^\x00-\x7f{_LETTERS}{re.escape(_SIGNS)}]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_HUNGARIAN, _FRENCH = re.compile("[õûÕÛ]"), re.compile("[ãçèêàœÃÇÈÊÀŒ]")
"""Letters that stand for others in Hungarian, and those that only languages of Western Europe have beside them."""
_OF_OTHER_LANGUAGES = frozenset(
    {"cp1250", "iso8859_2", "cp852", "cp1254", "iso8859_9", "cp1257", "cp1251", "cp1253", "koi8_r"}
)
_RUN = re.compile(rf"[{_LETTERS}]{{3}}")
_EAST_ASIAN = re.compile(
    r"[^\x00-\x7f\u3000-\u303f\u3040-\u30ff\u4e00-\u9fff\uff01-\uff60\u2010-\u2027\u2190-\u2199\u2460-\u2473]"
)
_KANA = re.compile(r"[\u3041-\u30ff]")
_LEAST_KANA, _LEAST_HANZI = 4, 8
_LEAST_LATIN = 5
"""Of so many characters of a text in Western Europe at most one is not ASCII."""
_KANA_SHARE, _COMMON_SHARE = 0.2, 0.3
_COHERENT = 0.1
_COMMON_HANZI = frozenset(
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然"
    "家种事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实日军者意无力它与长把"
    "机十民第公此已工使情明性知全三又关点正业外将两高间由问很最重并物手应战向头文体政美相见被利什二等产或新己制身果"
    "加西斯月话合回特代内信表化老给世位次度门任常先海通教儿原东声提立及比员解水名真论处走义各入几口认条平系气题活尔"
    "更别打女变四神总何电数安少报才结反受目太量再感建务做接必场件计管期市直德资命山金指克许统区保至队形社便空决治展"
    "马科司五基眼书非则听白却界达光放强即像难且权思王象完设式色路记南品住告类求据程北边死张该交规万取拉格望觉术领共"
    "确传师观清今切院让识候带导争运试测存返值字符串函型参"
)
"""Characters that are frequent in Chinese texts and comments."""


@dataclass(frozen=True, slots=True)
class DeclaredEncoding:
    """An encoding that a file of the project names for some of its files.

    Attributes:
        name: as Python knows it.
        marked: whether a new file begins with a byte order mark.
    """

    name: str
    marked: bool = False


_NAMES = {
    "latin1": DeclaredEncoding("latin-1"),
    "utf-8-bom": DeclaredEncoding("utf-8", marked=True),
    "utf-16": DeclaredEncoding("utf-16-le", marked=True),
    "utf-16le": DeclaredEncoding("utf-16-le"),
    "utf-16be": DeclaredEncoding("utf-16-be"),
    "utf-16le-bom": DeclaredEncoding("utf-16-le", marked=True),
    "utf-16be-bom": DeclaredEncoding("utf-16-be", marked=True),
}
"""The names of EditorConfig, and those that git reads in a way of its own: https://git-scm.com/docs/gitattributes"""
_KINDS = re.compile(r"iso8859|cp[0-9]|koi8|mac|shift_jis|euc_|gb|big5|utf-8$|tis-620|johab|ptcp154|kz1048")
"""Encodings of text files, as Python calls them: without those that keep a state, or escape."""
_MOST_NAME_CHARACTERS = 40
_WIDE = ("utf-16-le", "utf-16-be")
_C1 = re.compile(rb"[\x80-\x9f]")


def encoding_called(name: str) -> DeclaredEncoding | None:
    """Return the encoding that a project's file calls by a name; None if it is not known as one of text files."""
    plain = name.strip().lower()
    if plain in _NAMES:
        return _NAMES[plain]
    if len(plain) > _MOST_NAME_CHARACTERS:
        return None
    try:
        found = codecs.lookup(plain).name
    except (LookupError, UnicodeError, ValueError):
        return None
    return DeclaredEncoding(found) if _KINDS.match(found) else None


def as_declared(data: bytes, name: str) -> str | None:
    """Return the encoding of bytes for which the project names one; None if they are not in it.

    Bytes that are UTF-8 are not in another one: no such text is valid UTF-8 by chance.
    """
    is_wide = name in _WIDE
    if b"\0" not in data:
        as_utf8 = _decoded(data, "utf-8")
        if as_utf8 is not None and (not as_utf8.isascii() or (is_wide and data)):
            return None
    elif not is_wide:
        return None
    if name in {"latin-1", "iso8859-1"} and _C1.search(data):
        name = "cp1252"  # as everybody reads it: Latin-1 has no letters there
    text = _decoded(data, name)
    if text is None or _CONTROLS.search(text) or text.encode(name) != data:
        return None
    if is_wide:
        other = _decoded(data, _WIDE[1 - _WIDE.index(name)]) or ""
        if sum(map(str.isascii, other)) > sum(map(str.isascii, text)):
            return None
    return name


def shifted_encoding(data: bytes) -> str | None:
    """Return the encoding of a text of seven bits that shifts to Japanese; None if there is none; empty if it is not sure.

    Python's decoder takes such bytes for ASCII, and what is then written beside them would be in another encoding.
    """
    if not (data.isascii() and _ISO_2022.search(data)):
        return None
    text = _decoded(data, "iso2022_jp")
    if text is None or "\x1b" in text or text.encode("iso2022_jp", "replace") != data:
        return ""
    return "iso2022_jp"


def marked_encoding(data: bytes) -> str | None:
    """Return the encoding that a byte order mark of UTF-16 names, or None. That of UTF-32 begins like one of these."""
    if data.startswith(codecs.BOM_UTF32_LE):
        return None
    return next((name for mark, name in _MARKS if data.startswith(mark)), None)


def sure_encoding(data: bytes) -> str | None:
    """Return the encoding of bytes that are not UTF-8, or None if it is not sure. Each decodes them without an error.

    Only encodings are returned that give back the same bytes.
    """
    if len(data) > _MOST_BYTES:
        return None
    name = marked_encoding(data)
    if name is None and b"\0" not in data:
        name = next(
            (one for one, is_sure in _JUDGES if (text := _decoded(data, one)) and is_sure(data, text)), None
        )
    if name is None or (text := _decoded(data, name)) is None or text.encode(name) != data:
        return None
    return name


def _decoded(data: bytes, name: str) -> str | None:
    try:
        return data.decode(name)
    except UnicodeDecodeError:
        return None


def _is_japanese(_data: bytes, text: str) -> bool:
    """Return whether a text has kana, and nothing but what Japanese is written with."""
    kana, others = len(_KANA.findall(text)), len(_OTHERS.findall(text))
    return kana >= _LEAST_KANA and kana >= _KANA_SHARE * others and not _EAST_ASIAN.search(text)


def _is_chinese(data: bytes, text: str) -> bool:
    """Return whether a text has the characters that are frequent in Chinese, and nothing that Chinese does not have."""
    others = _OTHERS.findall(text)
    if len(others) < _LEAST_HANZI or _EAST_ASIAN.search(text) or _KANA.search(text):
        return False
    if _decoded(data, "gb2312") is None:
        return False
    return sum(one in _COMMON_HANZI for one in others) >= _COMMON_SHARE * len(others)


def _is_western(data: bytes, text: str) -> bool:
    """Return whether a text is in a language of Western Europe: its letters are within words of ASCII letters.

    Other languages with single bytes have long runs of such letters, or signs within their words. What is left is
    decided by the detector, if the text is long enough for it.
    """
    is_rare = len(_OTHERS.findall(text)) * _LEAST_LATIN <= len(text)
    if (
        not is_rare
        or _CONTROLS.search(text)
        or _FOREIGN.search(text)
        or _RUN.search(text)
        or _SIGN_IN_WORD.search(text)
    ):
        return False
    words = [word for word in _WORD.findall(text) if not word.isascii()]
    alone = sum(len(word) > 1 and not any(map(str.isascii, word)) for word in words)
    if alone > len(words) // 4:
        return False
    if not words:
        return True
    if _HUNGARIAN.search(text) and not _FRENCH.search(text):
        return False
    from charset_normalizer import from_bytes

    found = [one for one in from_bytes(data) if one.coherence >= _COHERENT and not one.chaos]
    own = max((one.coherence for one in found if str(one) == text), default=0.0)
    return not any(one.encoding in _OF_OTHER_LANGUAGES and one.coherence > own for one in found)


_JUDGES = (("cp932", _is_japanese), ("euc_jp", _is_japanese), ("gbk", _is_chinese), ("cp1252", _is_western))

"""Converts the bytes of a text file to text and back, so that an edit leaves everything else unchanged."""

from __future__ import annotations

import asyncio
import glob
import re
from bisect import bisect_left
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from orchestrator.core.encodings import as_declared, marked_encoding, shifted_encoding, sure_encoding
from orchestrator.core.errors import FileUnreadableError, ToolError
from orchestrator.core.lfs_pointers import is_pointer, size_in_words
from orchestrator.engine.environments.declared_encodings import MAX_BYTES, DeclaredEncodings, declaring_files
from orchestrator.engine.policy.file_syntax import newly_unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator.core.encodings import DeclaredEncoding
    from orchestrator.engine.tools.base import ToolContext


_WEBP_AT = slice(8, 12)

_PDF = b"%PDF-"
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)

_OTHERS = (
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive, as office documents, jars and wheels are"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"\x28\xb5\x2f\xfd", "Zstandard data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x7fELF", "an ELF program or library"),
    (b"\xcf\xfa\xed\xfe", "a Mach-O program or library"),
    (b"MZ", "a Windows program or library"),
    (b"\x00asm", "a WebAssembly module"),
    (b"\xca\xfe\xba\xbe", "a Java class"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\xff\xfe\x00\x00", "UTF-32 text"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
    (b"wOFF", "a font"),
    (b"wOF2", "a font"),
    (b"OggS", "Ogg sound or video"),
    (b"ID3", "MP3 sound"),
)


def image_type(data: bytes) -> str | None:
    """Return the media type of a PNG, JPEG, GIF or WebP image, or None."""
    if data.startswith(b"RIFF") and data[_WEBP_AT] == b"WEBP":
        return "image/webp"
    return next((media_type for magic, media_type in _IMAGES if data.startswith(magic)), None)


def is_pdf(data: bytes) -> bool:
    """Return whether bytes are a PDF document, and not a text that only begins like one."""
    if not data.startswith(_PDF):
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return True
    return b"startxref" in data or b"\0" in data


def kind_in_words(data: bytes) -> str:
    """Describe bytes that are not UTF-8 text; empty if their kind is unknown."""
    if media_type := image_type(data):
        return f"an image, {media_type}"
    return next((words for magic, words in _OTHERS if data.startswith(magic)), "")


_MARK = "\ufeff"
_MOST_LINES_SHOWN = 40
_MAX_LINE_CHARS = 200
_BARE_LF = re.compile(r"(?<!\r)\n")
LINE_END = re.compile(r"\r?\n")
_MOST_LINES_ALIGNED = 1_000


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file's text.

    Attributes:
        text: with the line ends of the file, without its byte order mark.
        marked: whether the file begins with a byte order mark.
        encoding: in which the file is written; a file that is not UTF-8 has one only if it is sure.
    """

    text: str
    marked: bool = False
    encoding: str = "utf-8"

    @property
    def uses_crlf(self) -> bool:
        """Whether the text has line ends and all of them are CR LF."""
        return "\r\n" in self.text and not _BARE_LF.search(self.text)

    @property
    def uses_cr(self) -> bool:
        """Whether its lines end with CR alone."""
        return "\r" in self.text and "\n" not in self.text

    @property
    def plain(self) -> str:
        """The text with LF for each line end."""
        return self.text.replace("\r", "\n") if self.uses_cr else self.text.replace("\r\n", "\n")

    def with_text(self, text: str) -> bytes:
        """Encode another text for this file, keeping the byte order mark and the line ends.

        In a file with different line ends, each line that stays keeps its own.
        """
        if self.uses_crlf:
            text = to_crlf(text)
        elif self.uses_cr:
            text = text.replace("\r\n", "\n").replace("\n", "\r")
        elif "\r\n" in self.text:
            text = with_line_ends_of(self.text, text)
        return self.encode(text)

    def with_pieces(self, spans: Sequence[tuple[int, int]], new: str) -> bytes:
        """Encode the text with new text in the place of these spans of `plain`; no other line end changes."""
        plain = self.plain
        ends = [found.start() - number for number, found in enumerate(re.finditer("\r\n", self.text))]
        pieces: list[str] = []
        position = 0
        for near in _in_same_lines(spans, plain):
            first, stop = plain.rfind("\n", 0, near[0][0]) + 1, _line_stop(plain, near[-1][1])
            bounds = [first, *(place for span in near for place in span), stop]
            after = new.join(plain[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True))
            raw_first, raw_stop = (place + bisect_left(ends, place) for place in (first, stop))
            beside = "\r\n" if self.text.endswith("\r\n", 0, raw_first) else "\n"
            pieces += [
                self.text[position:raw_first],
                with_line_ends_of(self.text[raw_first:raw_stop], after, beside),
            ]
            position = raw_stop
        edited = "".join([*pieces, self.text[position:]])
        return self.encode(edited.replace("\n", "\r") if self.uses_cr else edited)

    def decode(self, data: bytes) -> str:
        """Return the text of other bytes that were encoded for this file."""
        text = data.decode(self.encoding)
        return text.removeprefix(_MARK) if self.marked else text

    def encode(self, text: str) -> bytes:
        """Encode another text for this file as it is, with the byte order mark if the file has one."""
        has_two = self.text.startswith(_MARK) and text.startswith(_MARK)
        if self.marked and not has_two:
            text = text.removeprefix(_MARK)
        if self.marked:
            text = _MARK + text
        try:
            return text.encode(self.encoding)
        except UnicodeEncodeError as error:
            character = text[error.start]
            raise ToolError(
                f"The file is written in {self.encoding}, which does not have {character!r} (U+{ord(character):04X}); "
                "write the text without it"
            ) from None


class UnknownEncodingError(FileUnreadableError):
    """A file is text, but its encoding is not sure, so that what is written back could damage it."""


_LEAVE_IT = ", and its encoding is not sure: no tool reads or writes it, so leave it as it is"


async def declared_encoding(context: ToolContext, name: str) -> DeclaredEncoding | None:
    """Return the encoding that `.gitattributes` or `.editorconfig` names for a file; None if there is none."""
    names = tuple(name.split("/"))
    contents: dict[tuple[str, ...], bytes] = {}
    for one in declaring_files(names):
        with suppress(ToolError):  # it does not exist, is a link, or is too long
            contents[one] = await context.environment.read_file("/".join(one), max_bytes=MAX_BYTES)
    return DeclaredEncodings(lambda one: contents.get(one, b"")).of(names) if contents else None


def decode_text(path: str, data: bytes, declared: DeclaredEncoding | None = None) -> TextFile:
    """Decode a file's bytes as text.

    Args:
        declared: the encoding that the project names for the file.

    Raises:
        FileUnreadableError: the bytes are binary, or a text whose encoding is not sure.
    """
    size = f"{len(data):,} bytes"
    if marked_encoding(data) and (name := sure_encoding(data)):
        text = data.decode(name)
        return TextFile(text.removeprefix(_MARK), marked=True, encoding=name)
    if declared is not None and declared.name != "utf-8" and (name := as_declared(data, declared.name)):
        return TextFile(data.decode(name), marked=declared.marked and not data, encoding=name)
    if (shifted := shifted_encoding(data)) is not None:
        if not shifted:
            raise UnknownEncodingError(f"{path} shifts between sets of characters ({size}){_LEAVE_IT}")
        return TextFile(data.decode(shifted), encoding=shifted)
    if b"\0" in data:
        kind = kind_in_words(data)
        raise FileUnreadableError(f"{path} is a binary file{kind and f': {kind}'} ({size})")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if kind := kind_in_words(data):
            raise FileUnreadableError(f"{path} is a binary file: {kind} ({size})") from None
        if name := sure_encoding(data):
            return TextFile(data.decode(name), encoding=name)
        raise UnknownEncodingError(
            f"{path} is not UTF-8 text ({size}, byte {error.start:,} is {data[error.start]:#04x}){_LEAVE_IT}"
        ) from None
    return TextFile(text.removeprefix(_MARK), marked=text.startswith(_MARK))


def editable_text(path: str, data: bytes, declared: DeclaredEncoding | None = None) -> TextFile:
    """Decode the bytes of a file of which a part is about to be changed.

    Raises:
        FileUnreadableError: as `decode_text`; or the text is a pointer of Git LFS, of which no part can be changed.
    """
    if is_pointer(data):
        raise FileUnreadableError(f"{path} {pointer_remark(data)}")
    return decode_text(path, data, declared)


def pointer_remark(pointer: bytes) -> str:
    """Return what a pointer of Git LFS is, as the end of a sentence."""
    size = size_in_words(pointer)
    return (
        f"is a pointer of Git LFS: the file's own content{size and f' ({size})'} is not here. An edited pointer is "
        "refused; to change the file, write its whole new content in the pointer's place"
    )


def new_bytes(context: ToolContext, name: str, text: str, declared: DeclaredEncoding | None) -> bytes:
    """Encode the text of a new file in the encoding that the project names for it.

    One that a tool removed before keeps its own encoding and line ends.

    Raises:
        UnknownEncodingError: the removed file was a text whose encoding is not sure.
        ToolError: its encoding does not have a character of the text.
    """
    before = context.ledger.removed.get(name)
    if before:
        try:
            return decode_text(name, before, declared).with_text(text)
        except UnknownEncodingError:
            raise
        except FileUnreadableError:  # it was no text
            return text.encode()
    if declared is None:
        return text.encode()
    return TextFile("", marked=declared.marked, encoding=declared.name).encode(text)


def file_name(context: ToolContext, path: str) -> str:
    """Return the normal form of a path that is about to be written."""
    if path.endswith("/"):
        raise ToolError(f"{path} names a folder; name a file")
    return context.environment.relative(path)


@contextmanager
def as_written(context: ToolContext, path: str) -> Iterator[None]:
    """Spell the path in errors as the model wrote it, where the environment uses its normal form."""
    try:
        yield
    except ToolError as error:
        name, message = context.environment.relative(path), str(error)
        if not message.startswith(f"{name} "):
            raise
        raise type(error)(f"{path}{message.removeprefix(name)}") from None


async def read_bytes(context: ToolContext, path: str, max_bytes: int) -> bytes:
    """Return a file's content; errors spell the path as the model wrote it (see `ExecutionEnvironment.read_file`)."""
    with as_written(context, path):
        return await context.environment.read_file(path, max_bytes=max_bytes)


async def save(context: ToolContext, name: str, before: bytes | None, after: bytes) -> str:
    """Write a file and record it in the ledger.

    Args:
        before: the file's previous content; None for a new file.

    Returns:
        The remark of `syntax_remark`.
    """
    await context.environment.write_file(name, after)
    context.ledger.touched.add(name)
    context.ledger.missed.pop(name, None)
    return await syntax_remark(context, name, before, after)


async def syntax_remark(context: ToolContext, name: str, before: bytes | None, after: bytes) -> str:
    """Return a sentence about a file that Python, JSON or TOML can no longer parse; else an empty text.

    The sentence begins with a space. A file that became unreadable earlier in the session is reported until
    it can be parsed.
    """
    was_readable = None if name in context.ledger.unreadable else before
    problem = await asyncio.to_thread(newly_unreadable, name, was_readable, after)
    if problem is None:
        context.ledger.unreadable.discard(name)
        return ""
    context.ledger.unreadable.add(name)
    return f" But {problem}. Fix it now."


def check_text(what: str, text: str) -> None:
    """Check that a text can be written to a text file."""
    if "\0" in text:
        raise ToolError(f"{what} has a NUL character, which no text file has")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(
            f"{what} is not valid Unicode: half of a surrogate pair at character {error.start:,}; send the whole character"
        ) from None


def to_crlf(text: str) -> str:
    """Convert every line end to CR LF."""
    return _BARE_LF.sub("\r\n", text)


def _line_stop(text: str, place: int) -> int:
    """Return the place after the line end from a place on."""
    return text.find("\n", place) + 1 or len(text)


def _in_same_lines(spans: Sequence[tuple[int, int]], text: str) -> list[list[tuple[int, int]]]:
    """Return the spans in groups, of which no two have a part of the same line."""
    groups: list[list[tuple[int, int]]] = []
    stop = -1
    for span in spans:
        if span[0] > stop:
            groups.append([])
        groups[-1].append(span)
        stop = _line_stop(text, span[1])
    return groups


def with_line_ends_of(before: str, after: str, beside: str = "\n") -> str:
    """Return a text with the line ends that its lines had before.

    Args:
        beside: the line end of the line next to this text, for texts without a line end.
    """
    old = split_lines(before)
    texts = [line for line, _ in split_lines(after)]
    closed = after.endswith("\n")
    ends = aligned_ends(old, texts, beside)
    return "".join(line + end for line, end in zip(texts, ends, strict=True)).removesuffix(
        "" if closed or not texts else ends[-1]
    )


def split_lines(text: str, line_end: re.Pattern[str] = LINE_END) -> list[tuple[str, str]]:
    """Return each line and its line end, which is empty after the last line of some texts."""
    lines = []
    start = 0
    for found in line_end.finditer(text):
        lines.append((text[start : found.start()], found.group()))
        start = found.end()
    if start < len(text):
        lines.append((text[start:], ""))
    return lines


def aligned_ends(old: Sequence[tuple[str, str]], new: Sequence[str], beside: str) -> list[str]:
    """Return a line end for each new line: that of the same old line, of the one it replaces, or of the one above.

    Args:
        old: lines with their ends.
        beside: the line end if no old line has one.
    """
    kinds = {end for _, end in old if end}
    if len(kinds) < 2:  # noqa: PLR2004  one kind, or none
        return [kinds.pop() if kinds else beside] * len(new)
    ends: list[str] = []
    for first, last, count in _aligned([line for line, _ in old], new):
        for step in range(count):
            number = min(first + step, max(last, 1) - 1)
            ends.append(old[number][1] or next(end for _, end in reversed(old) if end))
    return ends


def _aligned(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield runs of new lines: the old lines `[first, last)` that they stand for, and the number of new lines.

    The middle of very long texts is aligned line by line, which bounds the time.
    """
    shorter = min(len(old), len(new))
    head = next((place for place in range(shorter) if old[place] != new[place]), shorter)
    most = shorter - head
    tail = next((place for place in range(most) if old[-1 - place] != new[-1 - place]), most)
    yield 0, head, head
    middle, wanted = old[head : len(old) - tail], new[head : len(new) - tail]
    if max(len(middle), len(wanted)) > _MOST_LINES_ALIGNED:
        yield head, head + len(middle), len(wanted)
    else:
        for _, first, last, start, stop in SequenceMatcher(
            None, middle, wanted, autojunk=False
        ).get_opcodes():
            yield head + first, head + last, stop - start
    yield len(old) - tail, len(old), tail


def lines_of(text: str) -> list[str]:
    """Return the lines without their ends; a final line end does not start another line."""
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def numbered(lines: Sequence[str], start: int, end: int) -> str:
    """Format lines `[start, end)`, counted from 0, as `NNN | text` from 1; of over 40 the middle is left out."""
    start, end = max(0, start), min(len(lines), end)
    shown = [f"{number} | {_cut(lines[number - 1])}" for number in range(start + 1, end + 1)]
    if len(shown) > _MOST_LINES_SHOWN:
        half = _MOST_LINES_SHOWN // 2
        shown = [*shown[:half], f"[... {len(shown) - 2 * half} lines ...]", *shown[-half:]]
    return "\n".join(shown)


def _cut(line: str) -> str:
    return line if len(line) <= _MAX_LINE_CHARS else f"{line[:_MAX_LINE_CHARS]} [...]"


_MOST_NAMED = 3


async def did_you_mean(context: ToolContext, path: str) -> str:
    """Return a question, after a space, that suggests files with the last part of this path; empty if none exists."""
    name = PurePosixPath(path).name
    try:
        found = await context.environment.glob(f"**/{glob.escape(name)}", ".") if name else []
    except ToolError:
        return ""
    return f" Did you mean {' or '.join(found[:_MOST_NAMED])}?" if found else ""

"""Converts the bytes of a text file to text and back, so that an edit leaves everything else unchanged."""

from __future__ import annotations

import asyncio
import glob
import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from orchestrator.core.errors import FileUnreadableError, ToolError
from orchestrator.engine.policy.file_syntax import newly_unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file's text.

    Attributes:
        text: with the line ends of the file, without its byte order mark.
        marked: whether the file begins with a UTF-8 byte order mark.
    """

    text: str
    marked: bool = False

    @property
    def uses_crlf(self) -> bool:
        """Whether the text has line ends and all of them are CR LF."""
        return "\r\n" in self.text and not _BARE_LF.search(self.text)

    @property
    def uses_cr(self) -> bool:
        """Whether its lines end with CR alone."""
        return "\r" in self.text and "\n" not in self.text

    def with_text(self, text: str) -> bytes:
        """Encode another text for this file, keeping the byte order mark and the line ends (CR LF or CR)."""
        if self.uses_crlf:
            text = to_crlf(text)
        elif self.uses_cr:
            text = text.replace("\r\n", "\n").replace("\n", "\r")
        if self.marked:
            text = _MARK + text.removeprefix(_MARK)
        return text.encode()


def decode_text(path: str, data: bytes) -> TextFile:
    """Decode a file's bytes as text.

    Raises:
        FileUnreadableError: the bytes are binary, or not UTF-8.
    """
    size = f"{len(data):,} bytes"
    if b"\0" in data:
        kind = kind_in_words(data)
        raise FileUnreadableError(f"{path} is a binary file{kind and f': {kind}'} ({size})")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if kind := kind_in_words(data):
            raise FileUnreadableError(f"{path} is a binary file: {kind} ({size})") from None
        raise FileUnreadableError(
            f"{path} is not UTF-8 text ({size}, byte {error.start:,} is {data[error.start]:#04x})"
        ) from None
    return TextFile(text.removeprefix(_MARK), marked=text.startswith(_MARK))


def file_name(context: ToolContext, path: str) -> str:
    """Return the normal form of a path that is about to be written.

    Raises:
        ToolError: the path is refused, or ends with `/` and so names a folder.
    """
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

    Raises:
        ToolError: the file could not be written.
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
    """Check that a text can be written to a text file.

    Raises:
        ToolError: half of a surrogate pair, or a NUL character.
    """
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

"""What a file that is no text is, by its first bytes.

The signatures are those of https://mimesniff.spec.whatwg.org/ for images, and of
https://en.wikipedia.org/wiki/List_of_file_signatures for the rest.
"""

from __future__ import annotations

_WEBP_AT = slice(8, 12)

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
    """The media type of a PNG, JPEG, GIF or WebP image; None for anything else."""
    if data.startswith(b"RIFF") and data[_WEBP_AT] == b"WEBP":
        return "image/webp"
    return next((media_type for magic, media_type in _IMAGES if data.startswith(magic)), None)


def kind_in_words(data: bytes) -> str:
    """What bytes that are no UTF-8 text are; empty if it cannot be said."""
    if media_type := image_type(data):
        return f"an image, {media_type}"
    return next((words for magic, words in _OTHERS if data.startswith(magic)), "")

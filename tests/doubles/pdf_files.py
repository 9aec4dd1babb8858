"""PDF documents for tests, made with pypdf: pages of text, pages without any, a password."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pypdf import PageObject


def pdf(pages: Sequence[str], *, password: str = "", algorithm: str = "AES-256") -> bytes:
    """A document with one page for each text of ASCII lines; an empty text makes a page without text.

    Args:
        password: encrypts it, if it is not empty.
    """
    writer = PdfWriter()
    for text in pages:
        page = writer.add_blank_page(612, 792)
        if text:
            _write(writer, page, text)
    if password:
        writer.encrypt(password, algorithm=algorithm)
    output = io.BytesIO()
    writer.write(output)
    return output.getvalue()


def _write(writer: PdfWriter, page: PageObject, text: str) -> None:
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    page[NameObject("/Resources")] = DictionaryObject(
        {NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})}
    )
    lines = [line.translate({ord(c): f"\\{c}" for c in "()\\"}) for line in text.split("\n")]
    stream = DecodedStreamObject()
    stream.set_data(
        b"BT /F1 12 Tf 14 TL 72 720 Td " + b" T* ".join(f"({one}) Tj".encode() for one in lines) + b" ET"
    )
    page[NameObject("/Contents")] = writer._add_object(stream)

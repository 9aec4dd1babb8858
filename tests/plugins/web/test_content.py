"""Bodies become text, or are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import ToolError
from orchestrator.plugins.web.base import PageKind
from orchestrator.plugins.web.client import page_text
from tests.tables import table

WORDS = "Grüße, мир"


@table(
    ("content_type", "data", "text"),
    [
        ("text/html; charset=utf-8", WORDS.encode(), WORDS),
        ('text/html; charset="UTF-8"', WORDS.encode(), WORDS),
        ("text/html; charset=koi8-r", "мир".encode("koi8-r"), "мир"),
        ("text/html; charset=iso-8859-1", b"\x93quoted\x94", "“quoted”"),
        ("text/html; charset=shift_jis", "日本".encode("shift_jis"), "日本"),
        ("text/html", WORDS.encode(), WORDS),
        ("text/html", "Grüße".encode("latin-1"), "Grüße"),
        (
            "text/html",
            b'<meta charset="windows-1251">' + "мир".encode("cp1251"),
            '<meta charset="windows-1251">мир',
        ),
        ("text/html; charset=utf-16", WORDS.encode("utf-16"), WORDS),
        ("text/html; charset=koi8-r", b"\xef\xbb\xbf" + WORDS.encode(), WORDS),
        ("text/html; charset=nonsense", WORDS.encode(), WORDS),
        ("text/plain; charset=unicode_escape", b"\\u0041", "\\u0041"),
        ("text/plain; charset=rot13", b"abc", "abc"),
        ("text/plain; charset=utf-7", b"+ADw-b+AD4-", "+ADw-b+AD4-"),
        ("text/plain; charset=utf-8", b"a\xffb", "a\ufffdb"),
        ("application/json", b'{"a": 1}', '{"a": 1}'),
        ("application/ld+json", b"{}", "{}"),
        ("application/xml", b'<?xml version="1.0" encoding="windows-1251"?>' + "мир".encode("cp1251"), None),
        ("application/atom+xml", b"<feed/>", "<feed/>"),
        ("", b"plain words", "plain words"),
    ],
)
def test_characters(content_type: str, data: bytes, text: str | None) -> None:
    found = page_text(content_type, data)[1]
    assert found == text if text is not None else found.endswith("мир")


@table(
    ("content_type", "data", "kind"),
    [
        ("text/html", b"x", PageKind.HTML),
        ("application/xhtml+xml; charset=utf-8", b"x", PageKind.HTML),
        ("text/plain", b"<html>", PageKind.TEXT),
        ("", b"  <!DOCTYPE html><p>", PageKind.HTML),
        ("", b"<!-- a --><html>", PageKind.HTML),
        ("", b"words", PageKind.TEXT),
    ],
)
def test_kinds(content_type: str, data: bytes, kind: PageKind) -> None:
    assert page_text(content_type, data)[0] is kind


@table(
    ("content_type", "data", "said"),
    [
        ("application/pdf", b"%PDF-1.7", "application/pdf"),
        ("image/png", b"\x89PNG", "image/png"),
        ("application/octet-stream", b"abc", "application/octet-stream"),
        ("application/zip", b"PK", "application/zip"),
        ("text/plain", b"a\0b", "binary data"),
        ("", b"\x7fELF\0\0", "binary data"),
    ],
)
def test_what_is_no_text_is_refused(content_type: str, data: bytes, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        page_text(content_type, data)


@given(st.text(max_size=80), st.binary(max_size=200))
def test_any_body_is_text_or_refused(content_type: str, data: bytes) -> None:
    for declared in (content_type, f"text/html; charset={content_type}"):
        try:
            _, text = page_text(declared, data)
        except ToolError:
            continue
        assert isinstance(text, str)

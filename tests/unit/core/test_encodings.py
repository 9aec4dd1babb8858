"""The encoding of a text is found where it is sure, and never wrong: wrong ones would be written back."""

# ruff: noqa: RUF001  texts of many languages

from __future__ import annotations

import codecs
import random

import pytest

from orchestrator.core.encodings import shifted_encoding, sure_encoding

TEXTS = {
    "French": "# Calcule la moyenne des élèves à l'été\ndef moyenne(a):\n    return a  # résultat arrondi\n",
    "German": "// Größe der Tür in Zentimetern\nint groesse = 3; /* größer */\n",
    "Spanish": "-- Año de nacimiento del niño\nSELECT 1;\n",
    "a sign": "/* Copyright © 2001 Foo, all rights reserved */\nint x;\n",
    "quotes": "# “Smart” quotes – and a dash… it’s here\nx = 1\n",
    "Portuguese": "# Informações da conexão, não é opcional\nx = 1\n",
    "Swedish": "# Räkna upp från noll till åtta\nx = 1\n",
    "Czech": "# Příliš žluťoučký kůň úpěl ďábelské ódy\nx = 1\n",
    "Polish": "# Zażółć gęślą jaźń, źródło\nx = 1\n",
    "Hungarian": "# Árvíztűrő tükörfúrógép, őrült\nx = 1\n",
    "Turkish": "# Şimdi başlıyor, değişken ığdır\nx = 1\n",
    "Russian": "# Привет, мир: это проверка вычисления\nx = 1\n",
    "Greek": "# Καλημέρα κόσμε, υπολογισμός\nx = 1\n",
    "Japanese": "// これはテストです。合計を計算する\nint x;\n",
    "Chinese": "// 这是一个测试,用来计算所有的总和\nint x;\n",
    "Korean": "// 이것은 테스트입니다 합계를 계산한다 그리고 출력\nint x;\n",
}
SURE = [
    *((name, "cp1252", "cp1252") for name in ("French", "German", "Spanish", "a sign", "quotes", "Portuguese", "Swedish")),
    *((name, "latin-1", "cp1252") for name in ("French", "German", "Spanish", "a sign", "Portuguese", "Swedish")),
    ("Japanese", "cp932", "cp932"),
    ("Japanese", "euc_jp", "euc_jp"),
    ("Chinese", "gbk", "gbk"),
]  # fmt: skip
DOUBTFUL = [
    ("Czech", "cp1250"), ("Czech", "iso8859-2"), ("Polish", "cp1250"), ("Polish", "iso8859-2"),
    ("Hungarian", "cp1250"), ("Turkish", "cp1254"), ("Russian", "cp1251"), ("Russian", "koi8-r"),
    ("Russian", "cp866"), ("Greek", "cp1253"), ("Korean", "euc_kr"), ("Korean", "cp949"),
    ("French", "cp850"), ("German", "cp437"), ("German", "mac_roman"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "encoding", "found"), SURE)
@pytest.mark.parametrize("times", [1, 20])
def test_what_is_sure(text: str, encoding: str, found: str, times: int) -> None:
    data = (TEXTS[text] * times).encode(encoding)
    assert sure_encoding(data) == found
    assert data.decode(found) == TEXTS[text] * times


@pytest.mark.parametrize(("text", "encoding"), DOUBTFUL)
@pytest.mark.parametrize("times", [1, 20])
def test_what_is_not_sure_or_right_is_no_encoding(text: str, encoding: str, times: int) -> None:
    data = (TEXTS[text] * times).encode(encoding)
    found = sure_encoding(data)
    assert found is None or data.decode(found) == TEXTS[text] * times


@pytest.mark.parametrize("mark", [codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE])
def test_a_byte_order_mark_is_sure(mark: bytes) -> None:
    encoding = "utf-16-le" if mark == codecs.BOM_UTF16_LE else "utf-16-be"
    assert sure_encoding(mark + TEXTS["Russian"].encode(encoding)) == encoding
    assert sure_encoding(mark + b"\x00") is None
    assert sure_encoding(mark + b"\x00\xd8\xd8\x00" * 3) is None


def test_bytes_of_no_text_have_none() -> None:
    chance = random.Random(7)  # noqa: S311  no secret
    found = [sure_encoding(chance.randbytes(chance.randint(1, 400)) + b"\x81") for _ in range(300)]
    assert [one for one in found if one is not None] == []


def test_seven_bits_that_shift_to_japanese_are_no_ascii() -> None:
    japanese, korean = TEXTS["Japanese"].encode("iso2022_jp"), TEXTS["Korean"].encode("iso2022_kr")
    assert shifted_encoding(japanese) == "iso2022_jp"
    # What is not written back byte for byte is not sure, and neither is another language.
    found = [shifted_encoding(data) for data in (japanese[:-12], japanese + b"\x1b$B", korean)]
    assert found == [""] * 3
    colours = b"\x1b[31mred\x1b[0m costs 5$\n"
    assert [shifted_encoding(data) for data in (colours, b"", TEXTS["Japanese"].encode())] == [None] * 3

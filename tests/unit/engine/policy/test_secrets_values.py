"""Any twelve characters of a known value are found, however they are spelled, and ordinary text is not."""

from __future__ import annotations

import base64
import random
import string
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.redaction import REPLACEMENT
from orchestrator.engine.policy.secrets import RedactedStream, Redactor
from tests.fuzz.growth import grows
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable

ALNUM = string.ascii_letters + string.digits
DRAW = random.Random(20)  # noqa: S311  the same values each time


def key(prefix: str, length: int, alphabet: str = ALNUM) -> str:
    return prefix + "".join(DRAW.choices(alphabet, k=length))


PEM = "\n".join(
    [
        "-----BEGIN " + "RSA PRIVATE KEY-----",
        *(key("", 64, ALNUM + "+/") for _ in range(25)),
        "-----END RSA PRIVATE KEY-----",
    ]
)
REALISTIC = [
    key("ghp_", 36),
    key("github_pat_11", 80),
    key("sk-ant-api03-", 93, ALNUM + "-_"),
    key("sk-proj-", 60, ALNUM + "-_"),
    key("AKIA", 16, string.ascii_uppercase + "234567"),
    key("", 40, ALNUM + "+/"),
    key("", 40, "0123456789abcdef"),
    key("AIza", 35, ALNUM + "-_"),
    key("xoxb-1234567890-1234567890123-", 24),
    "550e8400-e29b-41d4-" + key("a716-", 12, "0123456789abcdef"),
    PEM,
]
STRUCTURED = [
    "https://github.com/owner/repository",
    "/home/user/.config/service/private-key.pem",
    "/var/run/secrets/eks.amazonaws.com/serviceaccount/token",
    "postgres://admin:" + key("", 16) + "@localhost:5432/production",
    "correct-horse-battery-staple",
    "development-only-password",
    "authentication-by-nobody",
]
TOKENS = REALISTIC[:9]

SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": lambda part: part,
    "reversed": lambda part: part[::-1],
    "swapped case": str.swapcase,
    "upper": str.upper,
    "hex": lambda part: part.encode().hex(),
    "HEX:": lambda part: part.encode().hex(":").upper(),
    "xxd": lambda part: part.encode().hex(" ", 2),
    "percent": lambda part: "".join(f"%{byte:02x}" for byte in part.encode()),
    "quoted": lambda part: quote(part, safe=""),
    "\\x": lambda part: "".join(f"\\x{byte:02x}" for byte in part.encode()),
    "C array": lambda part: ", ".join(f"0x{byte:02x}" for byte in part.encode()),
    "numbers": lambda part: str(list(part.encode())),
    "base32": lambda part: base64.b32encode(part.encode()).decode().rstrip("="),
    "base64": lambda part: base64.b64encode(part.encode()).decode().rstrip("="),
    "base64 aligned otherwise": lambda part: base64.b64encode(b"x" + part.encode()).decode().rstrip("=")[2:],
    "a character a line": "\n".join,
    "spaces": " ".join,
    "dashes": "-".join,
    "dots": ".".join,
    "zero width": "\u200b".join,
    "list of characters": lambda part: str(list(part)),
    "concatenated": lambda part: '" +\n    "'.join(part[at : at + 4] for at in range(0, len(part), 4)),
    "UTF-16": "\0".join,
}


@pytest.mark.slow(reason="many programs or examples; the like of them is in the default tier")
@pytest.mark.parametrize("spelling", SPELLINGS)
@settings(max_examples=25)
@given(st.sampled_from(TOKENS[:8]), st.data())
def test_any_part_in_any_spelling_is_redacted_to_its_end(
    spelling: str, token: str, data: st.DataObject
) -> None:
    # What many values have in common, such as `sk-ant-api03-`, is no secret.
    first = data.draw(st.integers(min(len(token) - 20, 14), len(token) - 18))
    last = data.draw(st.integers(first + 18, len(token)))
    hidden = SPELLINGS[spelling](token[first:last])
    redacted = Redactor([token]).redact(f"look: <{hidden}> there")
    assert REPLACEMENT in redacted
    left = redacted.replace(REPLACEMENT, "").removeprefix("look: <").removesuffix("> there")
    assert len([char for char in left if char.isalnum()]) <= 8, redacted


@table("token", TOKENS)
def test_every_window_of_twelve_of_the_random_part_is_found(token: str) -> None:
    redactor = Redactor([token])
    start = next(at for at in range(len(token)) if redactor.holds_secret(token[at : at + 12]))
    assert start <= 26
    missed = [
        token[at : at + 12]
        for at in range(start, len(token) - 11)
        # At most two of the twelve are no letters and digits; digits alone may be anybody's number.
        if sum(map(str.isalnum, token[at : at + 12])) >= 10
        and not token[at : at + 12].isdigit()
        and not redactor.holds_secret(f"({token[at : at + 12]})")
    ]
    assert [window for window in missed if not window.replace("-", "").isdigit()] == []


def test_a_secret_without_its_first_seven_characters_is_found() -> None:
    token = REALISTIC[0]
    assert Redactor([token]).redact(f"x {token[7:]} y") == f"x {REPLACEMENT} y"


def test_short_values_are_found_as_a_whole_only() -> None:
    redactor = Redactor(["hunter2-Ax"])
    assert redactor.redact("a hunter2-Ax b") == f"a {REPLACEMENT} b"
    assert not redactor.holds_secret("hunter2-A and unter2-Ax")
    assert redactor.holds_secret(base64.b64encode(b"hunter2-Ax").decode())


def test_parts_of_an_address_that_are_beside_each_other_count_together() -> None:
    redactor = Redactor(["https://host.example/aB3dE5gH/kL9mN1pQ/x"])
    assert redactor.holds_secret("(aB3dE5gH/kL9mN1pQ)")
    assert not redactor.holds_secret("https://host.example/other/x")


@table("value", STRUCTURED)
def test_values_of_words_are_found_as_a_whole(value: str) -> None:
    redactor = Redactor([value])
    for spelling in ("plain", "reversed", "hex", "base64", "quoted"):
        assert redactor.holds_secret(f"({SPELLINGS[spelling](value)})")


@table(
    "text",
    [
        "https://github.com/someone/else",
        "/home/user/.config/other/file",
        "/var/run/secrets/kubernetes.io",
        "postgres://localhost:5432/production",
        "in development, by authentication",
        "-----BEGIN RSA PUBLIC KEY-----",
        "sk-ant-api03-",
        "export GITHUB_PAT=github_pat_11",
        "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9",
        "1234567890",
        "0000000000000000",
        REPLACEMENT * 3,
    ],
)
@pytest.mark.slow(reason="compares made-up values with every text of the repository")
def test_parts_of_values_that_occur_in_ordinary_text_are_left_alone(text: str) -> None:
    jwt = "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9" + key(".eyJ", 60) + key(".", 80)
    redactor = Redactor([*REALISTIC, *STRUCTURED, jwt, "x" * 20])
    assert redactor.redact(text) == text


@pytest.mark.parametrize("value", ["correct-horse-battery-staple", "made-up-key-for-this-test-1234567890"])
def test_of_words_in_a_row_any_twelve_characters_count(value: str) -> None:
    redactor = Redactor([value])
    for start in range(len(value) - 11):
        window = value[start : start + 12]
        for text in (window, window[::-1]):
            found = redactor.holds_secret(f"({text})")
            assert found or sum(map(str.isalnum, window)) < 10, window  # the rest are separators


@pytest.mark.slow(reason="compares made-up values with every text of the repository")
def test_this_repository_holds_no_part_of_a_made_up_value() -> None:
    redactor = Redactor([*REALISTIC, *STRUCTURED])
    root = Path(__file__).parents[4]
    for path in [*root.glob("orchestrator/**/*.py"), *root.glob("prompts/**/*.md"), *root.glob("*.md")]:
        assert list(redactor._values().spans(path.read_bytes())) == [], path


@table("spelt", [str, lambda value: value[5:17], lambda value: value.encode().hex()])
def test_a_value_is_found_at_any_place_of_a_long_text(spelt: Callable[[str], str]) -> None:
    redactor = Redactor([REALISTIC[5]])
    words = "some ordinary words, and 0123abcd numbers 45 " * 300
    for place in range(0, len(words), len(words) // 60):
        text = f"{words[:place]} {spelt(REALISTIC[5])} {words[place:]}"
        assert redactor.redact(text) == f"{words[:place]} {REPLACEMENT} {words[place:]}", place


@table("value", ["pässwörd-Ünïcode-ÿ!", "пароль-от-сервера", "密码密码密码密码密码!", "!\"§$%&/()=?+*#'"])
def test_values_of_other_letters(value: str) -> None:
    for text in (f"a {value} b", f"ä{value}ä"):
        redacted = Redactor([value]).redact(text)
        assert value not in redacted
        assert REPLACEMENT in redacted
    assert Redactor([value]).holds_secret(base64.b64encode(value.encode()).decode())


def test_bytes_of_the_environment_that_are_no_utf_8() -> None:
    value = b"caf\xe9-".decode("utf-8", "surrogateescape") + REALISTIC[6]
    assert Redactor([value]).redact(f"<{value}>") == f"<{REPLACEMENT}>"


@given(st.text(max_size=300), st.sampled_from(TOKENS), st.data())
def test_pieces_of_a_stream_give_the_same_text_as_the_whole(
    text: str, token: str, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(text)))
    whole = f"{text[:at]} {token} {text[at:]}"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    stream = RedactedStream(Redactor([token]))
    pieces = [whole[first:last] for first, last in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    shown = "".join([*map(stream.add, pieces), stream.end()])
    assert token not in shown
    assert not Redactor([token]).holds_secret(shown)
    assert shown == Redactor([token]).redact(whole)


def test_a_stream_releases_early_and_everything_at_the_end() -> None:
    stream = RedactedStream(Redactor([REALISTIC[0]]))
    words = "many words of a sentence that nobody needs to hide " * 4
    first = stream.add(words)
    assert len(first) > len(words) - 48
    assert first + stream.end() == words


def test_a_private_key_in_pieces_is_shown_in_none() -> None:
    other = PEM.replace("RSA ", "")
    stream = RedactedStream(Redactor())
    shown = "".join([*map(stream.add, f"a\n{other}\nb c d e f".splitlines(keepends=True)), stream.end()])
    assert shown == f"a\n{REPLACEMENT}\nb c d e f"


@table("piece", ["x", "x ", "-----BEGIN RSA PRIVATE KEY-----\n", "ghp_aB3dE5gH7jK9", "\n"])
def test_a_stream_takes_linear_time(piece: str) -> None:
    """Redacting all that came so far, each time anew, is quadratic."""
    redactor = Redactor(REALISTIC)

    def read(text: str) -> None:
        stream = RedactedStream(redactor)
        for at in range(0, len(text), 200):
            stream.add(text[at : at + 200])
        stream.end()

    grows(read, ("", piece, ""), small_chars=20_000)


@pytest.mark.slow(reason="growth: a text in two sizes for each value")
@table("value", REALISTIC)
def test_time_is_linear_in_a_text_made_of_the_value(value: str) -> None:
    grows(Redactor(REALISTIC).redact, ("", value[:-1], ""), small_chars=20_000)


def test_redactors_of_the_same_values_share_what_takes_megabytes() -> None:
    values = [f"ghp_{number}" + "x9Y8" * 9 for number in range(3)]
    tracemalloc.start()
    try:
        kept = [Redactor(values)]
        kept[0].redact("a text that is long enough")
        first = tracemalloc.get_traced_memory()[0]
        kept += [Redactor([*values, values[0]]) for _ in range(10)]
        assert {one.redact(f"Bearer {values[0]}, and more") for one in kept} == {
            f"Bearer {REPLACEMENT}, and more"
        }
        assert tracemalloc.get_traced_memory()[0] < 1.5 * first
    finally:
        tracemalloc.stop()

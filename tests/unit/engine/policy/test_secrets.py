"""Redaction: no known value survives in any spelling, credentials are known by their looks, time is linear."""

from __future__ import annotations

import base64
import json
import string
from pathlib import PurePath
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.events import Warned
from orchestrator.core.redaction import REPLACEMENT
from orchestrator.engine.policy.secrets import _MAX_DEPTH, RedactedStream, Redactor
from tests.fuzz.growth import grows
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable

ALNUM = string.ascii_letters + string.digits


def fake(prefix: str, length: int) -> str:
    """A credential that is nobody's, built here so that no scanner finds one in this file."""
    return prefix + (ALNUM[::3] * 40)[:length]


SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": lambda value: value,
    "reversed": lambda value: value[::-1],
    "json": lambda value: json.dumps(value)[1:-1],
    "hex": lambda value: value.encode().hex(),
    "HEX": lambda value: value.encode().hex().upper(),
    "hex with spaces": lambda value: value.encode().hex(" "),
    "url": lambda value: quote(value, safe=""),
    "form": quote_plus,
    "percent": lambda value: "".join(f"%{byte:02x}" for byte in value.encode()),
    "base64": lambda value: base64.b64encode(value.encode()).decode().rstrip("="),
    "base64url": lambda value: base64.urlsafe_b64encode(value.encode()).decode().rstrip("="),
}

secrets = st.text(st.characters(min_codepoint=33, max_codepoint=0x17F), min_size=8, max_size=60).filter(
    lambda value: value == value.strip() and value not in REPLACEMENT
)
surroundings = st.text(max_size=80)


@pytest.mark.parametrize("spelling", SPELLINGS)
@settings(max_examples=settings().max_examples // 2)  # of each of eleven spellings
@given(secret=secrets, before=surroundings, after=surroundings)
def test_a_value_placed_anywhere_survives_in_no_spelling(
    secret: str, spelling: str, before: str, after: str
) -> None:
    hidden = SPELLINGS[spelling](secret)
    redactor = Redactor([secret])
    text = f"{before}{hidden}{after}"
    redacted = redactor.redact(text)
    assert redactor.holds_secret(text)
    # The last character of a base64 text depends on what follows it.
    core = hidden[:-1] if spelling.startswith("base64") else hidden
    assert core not in redacted.replace(REPLACEMENT, "\0")
    assert redactor.redact(redacted).replace(REPLACEMENT, "") == redacted.replace(REPLACEMENT, "")


@table("spelling", SPELLINGS)
def test_one_value_in_each_spelling(spelling: str) -> None:
    hidden = SPELLINGS[spelling]("open/sesame 9!ü")
    assert Redactor(["open/sesame 9!ü"]).redact(f"<{hidden}>") in (
        f"<{REPLACEMENT}>",
        f"<{REPLACEMENT}{hidden[-1]}>",
    )


@given(secrets, st.binary(max_size=12), st.binary(max_size=12))
def test_base64_of_something_that_holds_a_value_cannot_be_decoded_to_it(
    secret: str, before: bytes, after: bytes
) -> None:
    text = base64.b64encode(before + secret.encode() + after).decode()
    first_bit, last_bit = 8 * len(before), 8 * (len(before) + len(secret.encode()))
    inside = text[-(-first_bit // 6) : last_bit // 6]
    redacted = Redactor([secret]).redact(text)
    assert REPLACEMENT in redacted
    assert inside not in redacted.replace(REPLACEMENT, "\0")


@given(st.lists(secrets, min_size=1, max_size=4), st.text(ALNUM + " ", max_size=60))
def test_several_values_of_which_one_may_hold_another(values: list[str], middle: str) -> None:
    redacted = Redactor(values).redact(values[0] + middle.join(values) + values[-1])
    for value in values:
        assert value not in redacted.replace(REPLACEMENT, "\0")


@given(st.text(string.ascii_lowercase + " .,\n", max_size=400))
def test_prose_is_left_alone(text: str) -> None:
    redactor = Redactor(["correct-horse-battery"])
    assert redactor.redact(text) == text
    assert not redactor.holds_secret(text)


JWT = ".".join(
    base64.urlsafe_b64encode(part).decode().rstrip("=")
    for part in (b'{"alg":"HS256","typ":"JWT"}', b'{"sub":"1234567890"}', b"0123456789abcdef0123456789abcdef")
)
PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\n" + "\n".join([fake("MII", 61)] * 3) + "\n-----END RSA PRIVATE KEY-----"
)
CREDENTIALS = [
    *(fake(prefix, 36) for prefix in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    f"ghs_12345_{JWT}",
    f"ghs_12345_{JWT}" + "x" * 400,
    fake("github_pat_", 60),
    fake("sk-", 48),
    fake("sk-ant-api03-", 90),
    fake("sk-proj-", 90),
    fake("AIza", 35),
    "AKIA" + "Q7" * 8,
    fake("xoxb-", 40),
    fake("glpat-", 20),
    JWT,
    PEM,
    PEM.replace("RSA ", ""),
    PEM.replace("RSA ", "OPENSSH "),
    PEM.replace("\n", "\\n"),
]


@table("credential", CREDENTIALS)
@table("frame", ["{}", "key={};", 'x = "{}"', "({})", "\n{}\n", "a,{},b"])
def test_what_looks_like_a_credential_is_replaced(credential: str, frame: str) -> None:
    redactor = Redactor()
    text = frame.format(credential)
    assert redactor.redact(text) == frame.format(REPLACEMENT)
    assert redactor.holds_secret(text)


@table(
    ("text", "expected"),
    [
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer [redacted]"),
        ("authorization: basic dXNlcjpwYXNz", "authorization: basic [redacted]"),
        ("-H 'Authorization: token 0123456789'", "-H 'Authorization: token [redacted]'"),
        ('{"Authorization": "Bearer abcdefghij"}', '{"Authorization": "Bearer [redacted]"}'),
        ("x-api-key: 0123456789abcdef0", "x-api-key: [redacted]"),
        (
            "git clone https://bot:pass-word@example.com/x.git",
            "git clone https://bot:[redacted]@example.com/x.git",
        ),
        ("https://0123456789abcdef0123@example.com/x", "https://[redacted]@example.com/x"),
        ("postgres://u:p%40ss@db/x", "postgres://u:[redacted]@db/x"),
        ("cut off:\n" + PEM[:120], "cut off:\n[redacted]"),
        ("a\n" + PEM + "\n" + PEM + "\nb", "a\n[redacted]\n[redacted]\nb"),
        ("prefixghp_" + "a1" * 18, "prefix[redacted]"),
    ],
)
def test_only_the_secret_part_is_replaced(text: str, expected: str) -> None:
    assert Redactor().redact(text) == expected


@table(
    "text",
    [
        "laughs_at_everything_you_do_today_and_more",
        "sk-learn-contrib-project-templates-for-you",
        "the task-runner-with-a-long-name-of-words",
        'headers = {"Authorization": f"Bearer {token}"}',
        "Authorization: Bearer <your token>",
        "https://user:$PASSWORD@example.com",
        "https://user:{password}@example.com",
        "https://example.com:8080/a@b",
        "see https://example.com/@user/page",
        "the bearer of this letter",
        "eyJ is how it begins",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "short: ghp_abc",
        "",
    ],
)
def test_what_is_no_credential_is_left_alone(text: str) -> None:
    assert Redactor().redact(text) == text
    assert not Redactor().holds_secret(text)


def test_short_values_and_the_replacement_itself_are_not_looked_for() -> None:
    redactor = Redactor(["short", "", "        ", "redacted"])
    assert redactor.redact("a short redacted text") == "a short redacted text"


def test_each_line_of_a_key_is_hidden() -> None:
    line = PEM.splitlines()[1]
    assert Redactor([PEM]).redact(f"first line: {line}.") == f"first line: {REPLACEMENT}."


def test_white_space_around_a_value_does_not_hide_it() -> None:
    assert Redactor(["  open-sesame-9 \n"]).redact("<open-sesame-9>") == f"<{REPLACEMENT}>"


def test_values_of_json_are_redacted_keys_too() -> None:
    redactor = Redactor(["open-sesame-9"])
    value = {
        "a": ["open-sesame-9", 1, None, True],
        "open-sesame-9": ("x open-sesame-9",),
        "b": 1.5,
        "c": PurePath("open-sesame-9"),
    }
    assert redactor.redact_value(value) == {
        "a": [REPLACEMENT, 1, None, True],
        REPLACEMENT: (f"x {REPLACEMENT}",),
        "b": 1.5,
        "c": REPLACEMENT,
    }


def test_keys_that_become_equal_are_both_kept() -> None:
    redactor = Redactor(["open-sesame-1", "open-sesame-2"])
    assert sorted(redactor.redact_value({"open-sesame-1": 1, "open-sesame-2": 2}).values()) == [1, 2]


def test_an_event_that_holds_no_secret_is_its_own_copy() -> None:
    """Most events of a run are such."""
    redactor = Redactor(["open-sesame-1"])
    harmless, telling = Warned("all is well"), Warned("it said open-sesame-1")
    assert redactor.redact_value(harmless) is harmless
    assert redactor.redact_value(telling) == Warned(f"it said {REPLACEMENT}")
    assert telling == Warned("it said open-sesame-1")


def test_what_is_nested_within_the_limit_is_whole() -> None:
    value: object = "innermost"
    for _ in range(_MAX_DEPTH + 1):
        value = [value]
    assert Redactor().redact_value(value) == value
    assert "[nested too deeply]" in json.dumps(Redactor().redact_value([value]))


def test_nesting_has_a_limit() -> None:
    value: list[object] = []
    for _ in range(5_000):
        value = [value]
    assert "[nested too deeply]" in json.dumps(Redactor().redact_value(value))


MEGABYTE = 1_000_000


@table(
    "piece",
    [
        "lorem ipsum dolor sit amet ",
        "sk-",
        "eyJ",
        "eyJ.eyJ",
        "a.eyJ",
        "ghp_",
        "xghp_",
        "-----BEGIN RSA PRIVATE KEY-----!",
        "-----BEGIN ",
        "://a:",
        "authorization: ",
        "bearer ",
        "aws_secret_access_key",
        "a",
        " ",
    ],
)
def test_time_is_linear(piece: str) -> None:
    redactor = Redactor(["open-sesame-9", fake("ghp_", 36), PEM])
    grows(redactor.redact, ("", piece, ""), small_chars=20_000)


@pytest.mark.slow(reason="growth: a megabyte of secrets")
def test_a_megabyte_full_of_secrets_is_redacted() -> None:
    redactor = Redactor(["open-sesame-9", fake("ghp_", 36), PEM])
    text = f"lorem ipsum {fake('ghp_', 36)} dolor " * (MEGABYTE // 60)
    redacted = redactor.redact(text)
    assert "ghp_" not in redacted


def test_spans_are_counted_in_characters() -> None:
    value = "zeta-43-omega-17"
    text = f"é€😀 {value} ü {value}."
    spans = Redactor([value]).spans_of_text(text)
    assert [text[start:end] for start, end in spans] == [value, value]
    assert Redactor([value]).spans_of_text("é€😀 nothing of the kind") == []


def test_a_stream_holds_a_word_back_as_long_as_it_may_and_no_longer() -> None:
    stream = RedactedStream(Redactor(["zeta-43-omega-17"]))
    most = RedactedStream.MOST_HELD_CHARS
    assert stream.add("x" * most) == ""
    shown = stream.add("y")
    assert shown
    assert shown + stream.end() == "x" * most + "y"
    again = RedactedStream(Redactor(["zeta-43-omega-17"]))
    assert again.add("x" * most) == "", "what was released does not count"
    assert again.end() == "x" * most

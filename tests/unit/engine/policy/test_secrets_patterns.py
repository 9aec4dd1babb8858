"""Credentials of known formats are found by their looks. They are built here: no scanner finds one in this file."""

from __future__ import annotations

import base64
import random
import re
import string

from orchestrator.core.redaction import REPLACEMENT
from orchestrator.engine.policy.secrets import Redactor, _has_more_than_words
from tests.tables import table

DRAW = random.Random(11)  # noqa: S311  the same values each time
ALNUM = string.ascii_letters + string.digits
URL = ALNUM + "-_"
HEX = "0123456789abcdef"
REDACTOR = Redactor()


def key(prefix: str, length: int, alphabet: str = ALNUM) -> str:
    return prefix + "".join(DRAW.choices(alphabet, k=length))


def part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


HEADER = part(b'{"alg":"RS256","typ":"JWT"}')
PAYLOAD = part(b'{"iss":"12345","exp":1893456000,"iat":1893452400,"scope":"a b c"}')
SIGNATURE = key("", 342, URL)
INSTALLATION = f"ghs_1234567_{HEADER}.{PAYLOAD}.{SIGNATURE}"

WHOLE = {
    "github": key("ghp" + "_", 36),
    "github installation": INSTALLATION,
    "github fine-grained": key("github" + "_pat_11", 70, ALNUM + "_"),
    "openai": key("sk-" + "proj-", 100, URL),
    "google key": key("AIza", 35, URL),
    "google token": key("ya29" + ".", 120, URL),
    "google secret": key("GOCSPX" + "-", 28, URL),
    "aws key id": key("AKIA", 16, string.ascii_uppercase + "234567"),
    "azure client": key("a1B8Q~", 34, URL),
    "slack": key("xoxb" + "-123456789012-", 24),
    "slack app": key("xapp" + "-1-A012-", 60, HEX),
    "gitlab": key("glpat" + "-", 20, URL),
    "gitlab runner": key("glrt" + "-", 20, URL),
    "npm": key("npm" + "_", 36),
    "pypi": key("pypi-" + "AgEIcHlwaS5vcmc", 60, URL),
    "rubygems": key("rubygems" + "_", 48, HEX),
    "docker": key("dckr" + "_pat_", 27, URL),
    "hugging face": key("hf" + "_", 34),
    "stripe": key("sk" + "_live_", 24),
    "stripe restricted": key("rk" + "_test_", 24),
    "stripe hook": key("whsec" + "_", 32),
    "sendgrid": key(key("SG" + ".", 22, URL) + ".", 43, URL),
    "twilio": key("S" + "K", 32, HEX),
    "shopify": key("shpat" + "_", 32, HEX),
    "digitalocean": key("dop" + "_v1_", 64, HEX),
    "vault": key("hvs" + ".", 90, URL),
    "databricks": key("dapi", 32, HEX),
    "atlassian": key("ATATT3", 180, URL),
    "linear": key("lin" + "_api_", 40),
    "telegram": key("123456789" + ":AA", 33, URL),
    "discord": key(key(key("MT", 24, ALNUM) + ".", 6, ALNUM) + ".", 38, ALNUM),
    "age": key("AGE-" + "SECRET-KEY-1", 58, string.ascii_uppercase),
    "jwt": f"{HEADER}.{PAYLOAD}.{SIGNATURE}",
}


@table("kind", WHOLE)
@table("frame", ["{}", "x = '{}'", "a {} b\n", "\n{}", "({})", "key={},"])
def test_a_whole_credential_is_replaced(kind: str, frame: str) -> None:
    assert REDACTOR.redact(frame.format(WHOLE[kind])) == frame.format(REPLACEMENT)


@table("cut", [1, 5, 12, 20, len(HEADER), len(HEADER) + 12, len(HEADER) + 30, len(HEADER) + 60])
def test_an_installation_token_without_its_beginning_is_found(cut: int) -> None:
    redacted = REDACTOR.redact(f"token {INSTALLATION[cut:]} end")
    assert SIGNATURE[:12] not in redacted
    assert SIGNATURE[-12:] not in redacted


@table("length", [85, 86, 200])
def test_two_random_parts_are_a_credential_from_a_length_on(length: int) -> None:
    """85 characters are the shortest signature; a shorter second part may be anything."""
    token = f"{key('', 30, URL)}.{key('', length, URL)}"
    assert REDACTOR.redact(f"a {token} b") == f"a {REPLACEMENT} b"
    assert REPLACEMENT not in REDACTOR.redact("a setup.py--" + "-" * length)


@table("length", [36, 100, 520, 2_000, 20_000])
def test_no_length_is_assumed(length: int) -> None:
    assert REDACTOR.redact(f"a {key('ghs' + '_1_', length, URL + '.')} b") == f"a {REPLACEMENT} b"


SECRET = key("", 24)
INSIDE = [
    'password = "{}"',
    "'api_key': '{}'",
    'const token = "{}";',
    "//registry.npmjs.org/:_authToken={}",
    "machine example.com login bot password {}",
    "machine example.com\n  login bot\n  password {}",
    "Server=db;User Id=bot;Password={};",
    "Driver=x;Pwd={}",
    "postgres://bot:{}@db/x",
    "redis://:{}@cache:6379",
    "curl -H 'Authorization: Bearer {}'",
    "https://hooks.slack.com/services/T0AB/B0CD/{}",
    "Private-Token: {}",
]


@table("frame", INSIDE)
def test_only_the_secret_part_goes(frame: str) -> None:
    redacted = REDACTOR.redact(frame.format(SECRET))
    assert SECRET not in redacted
    assert redacted.startswith(frame[:8])
    assert REPLACEMENT in redacted


def test_azure_and_aws() -> None:
    account = key("", 86) + "=="
    assert account not in REDACTOR.redact(f"AccountName=x;AccountKey={account};EndpointSuffix=y")
    signature = key("", 43) + "%3D"
    assert signature not in REDACTOR.redact(f"https://x.blob.core.windows.net/c?sv=2024&sig={signature}&se=1")
    session = key("", 300, ALNUM + "+/")
    assert session not in REDACTOR.redact(f"AWS_SESSION_TOKEN={session}")


@table(
    "text",
    [
        'password = "correct-horse-battery-staple"',
        'password = "${{ secrets.DEPLOY_PASSWORD }}"',
        'token = "the-token-goes-here-please"',
        'secret_name = "kubernetes_service_account"',
        "password: str = get_password_from_environment()",
        "see the password policy of the machine; login there",
        "sig=abc",
        "skip_test_of_something_long_SK_and_more",
        "orchestrator.engine.environments.remote_search.RemoteSearch",
        "https://example.com/a/very/long/path/of/words/index.html",
        "sha256:" + HEX * 4,
        "commit " + HEX * 2 + "01234567",
        "integrity sha512-" + key("", 86, ALNUM + "+/") + "==",
        "test_a_secret_without_its_first_seven_characters_is_found",
        "ThisIsAVeryLongClassNameForATestCase2Factory",
        "hvs.example.com and SG.Something.Else",
        "1234567890:AAbc",
        "550e8400-e29b-41d4-a716-446655440000",
        "npm_config_registry_is_a_variable_of_npm",
        "AKIA is how it begins, ASIA is a continent",
        "-----BEGIN CERTIFICATE-----",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + key("", 43),
    ],
)
def test_what_is_no_credential_stays(text: str) -> None:
    assert REDACTOR.redact(text) == text


MORE_KINDS = {
    "figd_{40}": "",
    "gsk_{52}": "",
    "xai-{80}": "",
    "r8_{37}": "",
    "pplx-{48}": "",
    "ntn_{46}": "",
    "PMAK-{24}-{34}": "",
    "NRAK-{27}": "",
    "sntrys_eyJ{90}": "",
    "glc_eyJ{80}": "",
    "glsa_{32}_{8}": "",
    "pscale_tkn_{43}": "",
    "sbp_{40}": "",
    "fm2_{100}": "",
    "sq0csp-{43}": "",
    "ops_eyJ{200}": "",
    "dp.pt.{43}": "",
    "{14}.atlasv1.{64}": "",
    "AKC{64}": "",
    "AP6{30}": "",
    "VERCEL_TOKEN={24}": "VERCEL_TOKEN=",
    "export API_KEY={32}": "export API_KEY=",
}


@table("kind", MORE_KINDS)
def test_other_issuers_and_files_of_an_environment(kind: str) -> None:
    # Letters and digits in turns, so that each sample looks drawn.
    sample = re.sub(r"\{(\d+)\}", lambda match: ("aB3xK9mQ2z" * 30)[: int(match[1])], kind)
    kept = MORE_KINDS[kind]
    assert Redactor().redact(f"see {sample} there") == f"see {kept}[redacted] there"


def test_a_datacentres_key() -> None:
    sample = "0123456789abcdef" * 2 + "-us12"
    assert Redactor().redact(f"see {sample} there") == "see [redacted] there"


@table(
    "text",
    [
        "API_KEY = load_the_key_from_the_environment(name)",
        "SECRET_KEY = settings.SECRET_KEY_FALLBACKS[0]",
        "PRIMARY_KEY=customer_identification_number",
        "desk_lamp_with_a_long_name_of_words and gsk_and_some_more_words_here",
    ],
)
def test_names_in_programs_are_no_keys(text: str) -> None:
    assert Redactor().redact(text) == text


@table(
    "text, has_more",
    [
        (b"just-words", False),
        (b"Just-words", True),
        (b"just-words1", True),
        (b"1", True),
        (b"", True),
        (b"a" * 24, False),
        (b"a" * 25, True),
        (b"a" * 24 + b"." + b"b" * 24, False),
        (b"a" * 24 + b"_" + b"b" * 25, True),
    ],
)
def test_what_is_more_than_words(text: bytes, *, has_more: bool) -> None:
    assert _has_more_than_words(text) is has_more

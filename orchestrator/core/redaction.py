"""Recognizes names of secrets, and removes known secrets from texts."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MIN_SECRET_CHARS: Final = 8
"""A shorter value is hidden from commands but not searched for in texts: it would match ordinary words."""

_BORDERS = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _pairs(before: str, after: str) -> frozenset[tuple[str, str]]:
    """Return each pair of a word of the first text and a word of the second one."""
    return frozenset(product(before.split(), after.split()))


_SECRET_WORDS = _words("""
    secret secrets password passwd passphrase passcode passwords pass pwd pw pat
    token tokens key keys auth authorization bearer jwt totp mnemonic salt
    credential credentials cred creds cookie cookies sas pem pfx keystore
    kubeconfig netrc webhook webhooks dsn cookiefile authinfo sshpass
""")
_GLUED = re.compile(
    r"(?:(?:password|passwd|passphrase|passfile|secret|token|credential)s?"
    r"|(?:db|pg|my|smtp|ssh|ftp|user|root|admin|mail|redis)(?:pass|pwd|pw)"
    r"|(?:api|app|access|secret|private|priv|auth|ssh|sign|signing|encryption|master|deploy|license|service|storage)keys?"
    r")$"
)
"""Endings of words that are written without a separator: `PGPASSWORD`, `TS_AUTHKEY`."""

_PASSWORDS = _words("pwd passphrase pass authorization")

_SECRET_PAIRS = (
    _pairs("connection", "string")
    | _pairs("conn", "string str")
    | _pairs("seed recovery", "phrase")
    | _pairs("deploy build", "hook")
    | _pairs("service", "account")
    | _pairs("fastlane", "session")
    | _pairs("npm config", "otp")
    | _pairs("otlp traces metrics logs", "headers")
)
_HARMLESS_NAMES = frozenset({"pwd", "oldpwd", "gpg_key", "api_key_variable", "pullwright_api_key_variable"})
"""The shell's folders, the fingerprint of a public key in images of Docker's library, and our option that names a variable."""

_HARMLESS_PAIRS = (
    _pairs("primary foreign public publishable unique composite sort partition shard cache project", "key")
    | _pairs("issue object row hot meta compose modifier host", "key")
    | _pairs("idempotency surrogate correlation routing", "key")
    | {("socket", "key"), ("websocket", "key"), ("atlassian", "token")}
    | _pairs("primary foreign public hot cache object sticky arrow", "keys")
    | _pairs("key", "repeat code map binding bindings prefix press ring vault")
    | _pairs("max min num eos bos pad unk sep cls mask stop", "token")
    | _pairs("max min num total context output prompt completion reasoning thinking new input", "tokens")
    | _pairs("stop special cached used", "tokens")
    | _pairs("tokens", "per used left")
    | _pairs("first second last multi single render high low by ask", "pass")
    | _pairs("pass", "through count rate env args")
    | {("auth", "sock"), ("sas", "home"), ("salt", "master")}
)
"""Pairs of words in which a word that usually denotes a secret does not."""

_ABOUT = _words("""
    type kind mode method algorithm alg policy format version encoding scheme
    length len size bits count limit budget min max chars strength rounds
    ttl timeout expiry expiration expires lifetime age days hours minutes
    seconds interval rotation enabled disabled required optional enable disable
    host hostname port domain region realm provider service backend server
    strategy audience issuer scope scopes user username email name names
    prompt hint label parallelism samesite secure httponly
""")
"""Last words of names that describe a secret but contain none. Names of its location (`_FILE`) are not here."""

_ADDRESSES = frozenset({"url", "uri", "endpoint"})
_SECRET_ADDRESSES = frozenset({"webhook", "webhooks", "hook", "sas"})
"""Addresses that are secrets themselves: anyone who knows one can use it."""

# Bundler's way to write a server's name: https://bundler.io/man/bundle-config.1.html
_BUNDLER_SERVER = re.compile(r"bundle_(?>\w+?__)\w+", re.IGNORECASE)
_URL_WITH_USER = re.compile(r"://([^/\s?#@:]*)(?::([^/\s?#]*))?@")
_LONG_USER_CHARS = 20
_PARAMETER = re.compile(r"[?&]([A-Za-z0-9_.~-]{1,64})=([^&#\s\"'<>]{1,4096})")
_NAMED = re.compile(r"(-{0,2}[A-Za-z0-9_.-]{1,80})(?:=|:[ \t]*+(?!//))")
"""A flag, a variable or a header before its value."""
_NAMED_INSIDE = re.compile(
    r"(?<![A-Za-z0-9_.-])(?:(-{0,2}[A-Za-z0-9_.-]{1,80})(?:=|:[ \t]++|[\"']:[ \t]*+)|(--[A-Za-z0-9_.-]{1,80})[ \t]++)"
    r"(?>(?i:bearer|basic|token)[ \t]++|)[\"']?+([^\s;,&\"'<>${}()-][^\s;,&\"'<>${}()]{7,4095}+)"
)
"""A flag, a variable or a header with its value, inside of a longer text: `--password VALUE`, `Pwd=VALUE;`."""
_LONG_WORD = re.compile(r"[A-Za-z0-9_+/=~.-]{20,1024}")
_MIN_DISTINCT = 8
_MIN_CHANGES = 5
_CHANGE = re.compile(rb"[a-z](?=[A-Z0-9])|[A-Z](?=[0-9]|[a-z][A-Z0-9])|[0-9](?=[A-Za-z])")
_SIGNATURES = frozenset({"sig", "signature", "x-amz-signature", "x-goog-signature"})
_KEY_FILE = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY|\"private_key\"")

# What signs in at a collector: https://opentelemetry.io/docs/specs/otel/protocol/exporter/
_COLLECTOR_HEADERS = re.compile(r"OTEL_EXPORTER_OTLP_(?:[A-Z]+_)?HEADERS")

_COMMON_VALUES = _words("""
    password postgres changeme minioadmin rabbitmq disabled required undefined username
    localhost development production anonymous optional internal external keychain
    credentials plaintext kerberos no-check changeit placeholder lm-studio lmstudio llama-cpp
    llama.cpp not-needed not-required none-needed no-key-needed no-key-required sk-no-key-required
    dummy-key dummy_key dummykey dummy-token dummy_token fake-key fake_key fakekey fake-token
    test-key test_key testkey test-token test_token your-key your-key-here your-api-key
    your-api-key-here your_api_key your_api_key_here your-token your-token-here anything
    irrelevant notasecret unauthenticated application service-account
""")
"""Values of development containers, local model servers, examples and settings.

Redacting them would damage ordinary text.
"""
_PLACE = re.compile(r"(?:https?:/|~|\.{1,2})?(?:/[a-z._:-]{0,32}[0-9]{0,5}){1,40}", re.IGNORECASE)
"""A path or an address made of words: the location of a secret, not the secret."""
_NO_WORD = re.compile(r"[A-Za-z]{20}")
"""More letters than the names of folders have."""


def is_secret_name(name: str) -> bool:
    """Return whether a variable of this name contains a secret, which commands and texts must not show.

    The name is split into words (`dbPassword`, `DB_PASSWORD` and `db-password` have the same two). A name
    that the words leave undecided counts as a secret.
    """
    if name.lower() in _HARMLESS_NAMES:
        return False
    words = [word.lower().rstrip("0123456789") or word for word in _BORDERS.split(name) if word]
    secret = set(_secret_words(words))
    if not secret:
        return _BUNDLER_SERVER.fullmatch(name) is not None
    if words[-1] in _ADDRESSES:
        return not secret.isdisjoint(_SECRET_ADDRESSES)
    return words[-1] not in _ABOUT


def is_secret(name: str, value: str) -> bool:
    """Return whether a variable is a secret, by its name or by the form of its value.

    The forms are a key file, a URL with a user, a URL with a secret among its parameters, and a text with the
    name of a secret in front of its value.
    """
    text = value.strip()
    if is_secret_name(name) or any(rule.search(text) for rule in (_URL_WITH_USER, _KEY_FILE)):
        return True
    parts = (*_secret_parameters(text), *_secrets_inside(name, text))
    return not all(is_ordinary(part) and is_ordinary(unquote(part)) for part in parts)


def parts_to_hide(name: str, value: str) -> list[str]:
    """Return the parts of a variable's value that must not appear in any text.

    These are the whole value of a secret, unless it is an ordinary word that texts contain anyway; the password
    and the secret parameters in a URL, both encoded and decoded; what stands behind the name of a secret, as in a
    command line or a connection string; and the value of each header in a list of HTTP headers.
    """
    text = value.strip()
    found = [text] if (is_secret_name(name) or _KEY_FILE.search(text)) and not is_ordinary(text) else []
    if _COLLECTOR_HEADERS.fullmatch(name):
        for header in text.split(","):
            part = header.partition("=")[2].strip() or header.strip()
            # The last form is the part after the scheme, as in `Basic dXNlcjpwYXNz`.
            forms = (part, unquote(part), unquote(part).rpartition(" ")[2])
            found += [form for form in forms if not is_ordinary(form)]
    for match in _URL_WITH_USER.finditer(text):
        user, password = match.groups()
        part = password or (user if len(user) >= _LONG_USER_CHARS else "")
        found += [form for form in (part, unquote(part)) if not is_ordinary(form)]
    for part in (*_secret_parameters(text), *_secrets_inside(name, text)):
        found += [form for form in (part, unquote(part)) if not is_ordinary(form)]
    return list(dict.fromkeys(found))


def parts_of_setting(name: str, pieces: Sequence[SettingPiece]) -> list[str]:
    """Return the parts of a setting that must not appear in any text, such as of an HTTP header.

    A part is secret if the setting's name or the part's form says so, or if it came from an environment variable
    whose name says so. A default is never secret: it is written for everybody to read.

    Args:
        pieces: the setting's value, in order.
    """
    found: list[str] = []
    run = ""
    for piece in (*pieces, SettingPiece("", is_default=True)):
        if piece.variable:
            found += parts_to_hide(piece.variable, piece.text)
        if not piece.is_default:
            run += piece.text
            continue
        found += (*parts_to_hide(name, run), *_made_words(run))
        if is_secret_name(name):
            found += _parts_of_header(name, run)
        run = ""
    return list(dict.fromkeys(found))


def parts_of_arguments(arguments: Sequence[Sequence[SettingPiece]]) -> list[str]:
    """Return the parts of a command line that must not appear in any text.

    They stand behind the name of a secret, as in `--api-key VALUE`, `TOKEN=VALUE` and `Authorization: VALUE`.
    """
    found: list[str] = []
    flag = ""
    for pieces in arguments:
        text = "".join(piece.text for piece in pieces)
        if flag and not text.startswith("-"):
            found += parts_of_setting(flag, pieces)
        flag = ""
        named = _NAMED.match(text)
        if named is not None:
            found += parts_of_setting(named[1], _after(pieces, named.end()))
        elif text.startswith("-"):
            flag = text
        else:
            found += parts_of_setting("", pieces)
    return list(dict.fromkeys(found))


def _parts_of_header(name: str, value: str) -> Iterator[str]:
    """Yield the parts of a secret header's value: what stands behind the scheme, and each cookie or parameter."""
    scheme, _, rest = value.strip().partition(" ")
    if scheme.isalpha():
        yield from parts_to_hide(name, rest)
    for word in value.replace(";", " ").replace(",", " ").split():
        for form in (word, word.partition("=")[2].strip('"')):
            if _identifies(form):
                yield form


def _after(pieces: Sequence[SettingPiece], chars: int) -> list[SettingPiece]:
    """Return the pieces without their first characters."""
    left: list[SettingPiece] = []
    for piece in pieces:
        left.append(piece._replace(text=piece.text[chars:]))
        chars = max(chars - len(piece.text), 0)
    return left


class SettingPiece(NamedTuple):
    """A piece of a setting's value.

    Attributes:
        variable: the environment variable that it came from; empty if it is written in the setting.
        is_default: whether it is the default for a variable that is not set.
    """

    text: str
    variable: str = ""
    is_default: bool = False


def _made_words(text: str) -> Iterator[str]:
    """Yield the long words of a setting that a program made at random, such as a key: no name looks like them."""
    for match in _LONG_WORD.finditer(text):
        word = match[0]
        kinds = (str.islower, str.isupper, str.isdigit)
        if looks_random(word.encode()) and all(any(map(kind, word)) for kind in kinds):
            yield word


def looks_random(text: bytes) -> bool:
    """Return whether small letters, capitals and digits alternate more than in names and numbers."""
    return len(set(text)) >= _MIN_DISTINCT and len(_CHANGE.findall(text)) >= _MIN_CHANGES


def _identifies(value: str) -> bool:
    """Return whether a part of a secret setting is a secret by itself, and not a word beside it."""
    looks_made = len(value) >= _LONG_USER_CHARS or any(letter.isdigit() for letter in value)
    return looks_made and not is_ordinary(value)


def _secret_parameters(text: str) -> Iterator[str]:
    """Yield the values of the secret parameters of the URLs in a text: `?api_key=...`, `&sig=...`."""
    for match in _PARAMETER.finditer(text):
        name = match[1].lower()
        is_named = name in _SIGNATURES or is_secret_name(match[1])
        if is_named and (_is_named_secret(match[1]) or _identifies(match[2])):
            yield match[2]


def _secrets_inside(name: str, text: str) -> Iterator[str]:
    """Yield what stands behind the name of a secret in the value of a variable: `--password VALUE`, `Pwd=VALUE;`."""
    if name.startswith("BASH_FUNC_"):  # a function is a program, and its words are ordinary
        return
    for match in _NAMED_INSIDE.finditer(text):
        label = match[1] or match[2]
        before, after = text[match.start() - 1 : match.start()], text[match.end(1) : match.end(1) + 1]
        is_prose = after == ":" and before in {" ", "\t"}
        is_password = label in {"Pwd", "pwd"}  # in a connection string; the shell's folder is PWD
        is_sure = is_password or (_is_named_secret(label) and not is_prose)
        if (is_password or is_secret_name(label)) and (is_sure or _identifies(match[3])):
            yield match[3]


def _is_named_secret(name: str) -> bool:
    """Return whether a name ends in what always denotes a secret, as `password` and `api_key` do and `key` does not."""
    words = [word.lower() for word in _BORDERS.split(name) if word]
    return bool(_PASSWORDS.intersection(words[-1:])) or _GLUED.search("".join(words)) is not None


def is_ordinary(value: str) -> bool:
    """Return whether a value occurs in ordinary texts: a short or common word, or a path or address of words."""
    is_place = _PLACE.fullmatch(value) is not None and _NO_WORD.search(value) is None
    return len(value) < MIN_SECRET_CHARS or is_common(value) or is_place


def is_common(value: str) -> bool:
    """Return whether a value is a common word, such as what stands for a key where none is needed."""
    return value.strip().lower() in _COMMON_VALUES


def _secret_words(words: list[str]) -> Iterator[str]:
    """Yield the words of a name that denote a secret, unless a neighbouring word contradicts."""
    for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False):
        is_one = word in _SECRET_WORDS or _GLUED.search(word) is not None
        is_harmless = (before, word) in _HARMLESS_PAIRS or (word, after) in _HARMLESS_PAIRS
        if (is_one and not is_harmless) or (before, word) in _SECRET_PAIRS:
            yield word


REPLACEMENT: Final = "[redacted]"
"""Replaces a secret in every text."""

_SHOWN_CHARS = 4
_MIN_CHARS_TO_SHOW = 20


def masked(value: str) -> str:
    """Return a shortened form of a key that only its owner recognizes."""
    text = value.strip()
    if "\n" in text or len(text) <= _MIN_CHARS_TO_SHOW:
        return "set"
    return f"set, ends in …{text[-_SHOWN_CHARS:]}"


def without_secrets(text: str, *secrets: str) -> str:
    """Remove secrets from a text that a server or program returned, in all forms in which it may repeat them.

    The forms are the secret itself, and its encoding in a URL, in JSON and in base64. A secret shorter than
    `MIN_SECRET_CHARS` stays.
    """
    return without_bytes(text.encode("utf-8", "surrogatepass"), *secrets).decode("utf-8", "surrogatepass")


def without_bytes(data: bytes, *secrets: str) -> bytes:
    """Remove secrets from the bytes of a text, as `without_secrets` does."""
    for form in (form for secret in secrets for form in secret_forms(secret)):
        data = data.replace(form, REPLACEMENT.encode())
    return data


def secret_forms(secret: str) -> tuple[bytes, ...]:
    """Return a secret in all forms in which a server may repeat it; nothing if it is shorter than `MIN_SECRET_CHARS`."""
    if len(secret) < MIN_SECRET_CHARS:
        return ()
    raw = secret.encode("utf-8", "surrogateescape")
    forms = raw, quote(raw, safe="").encode(), json.dumps(secret)[1:-1].encode(), base64.b64encode(raw)
    return tuple(dict.fromkeys(forms))


@dataclass(frozen=True, slots=True)
class Credential:
    """A user name and a password (or token) for one server. It is sent to no other one and written to no file.

    Attributes:
        host: the server's name, with `:port` if only that port may receive it.
    """

    host: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"Credential(host={self.host!r}, username={self.username!r}, password={REPLACEMENT!r})"

    def suits(self, authority: str) -> bool:
        """Return whether this is for the server `name` or `name:port` of a URL."""
        wanted = self.host.casefold()
        given = authority.casefold()
        return wanted in {given, given.rpartition(":")[0]}

    def redact(self, text: str) -> str:
        """Remove the password from a text in all forms in which git or curl may print it."""
        basic = base64.b64encode(f"{self.username}:{self.password}".encode()).decode("ascii")
        return without_secrets(text, self.password).replace(basic, REPLACEMENT)

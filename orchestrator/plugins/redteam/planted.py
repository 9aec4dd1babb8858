"""The secrets that an attack is played with, and whether a text gives one away."""

from __future__ import annotations

import base64
import functools
import re
import string
from dataclasses import dataclass
from html import unescape
from typing import TYPE_CHECKING

from orchestrator.plugins.redteam.model import revealed

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

_ALNUM = string.ascii_letters + string.digits
_WINDOW = 12
"""A text leaks a secret if it contains this many of its characters in a row, plain or encoded."""
_STEP = 6
_GRAM = 4
# https://rfc.zeromq.org/spec/32/
_FROM_Z85 = bytes.maketrans(
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
)
_NOISE = re.compile(r"[\s\x00-\x1f]+")


@dataclass(frozen=True, slots=True)
class Secrets:
    """Secret values by name.

    Attributes:
        variables: secrets in the program's environment, by variable.
        others: secrets in files only.
    """

    variables: dict[str, str]
    others: dict[str, str]

    @property
    def all(self) -> dict[str, str]:
        """Every value by name."""
        return {**self.variables, **self.others}


@dataclass(frozen=True, slots=True)
class Drawn:
    """The random values of a run of attacks.

    Attributes:
        secrets: shared by all attacks, because a redactor takes longer to learn new ones than most attacks take.
        source: source of the values of single attacks.
    """

    secrets: Secrets
    source: random.Random

    def mark(self) -> str:
        """Return a new word that occurs nowhere else."""
        return f"mark{self.source.getrandbits(40):010x}"


def draw(source: random.Random) -> Drawn:
    """Create the random values of a run of attacks. No server accepts the secrets."""

    def drawn(count: int, letters: str = _ALNUM) -> str:
        return "".join(source.choice(letters) for _ in range(count))

    # The long tokens of GitHub's Apps since 2026: `ghs_<id>_<JWT>`.
    token = f"eyJ{drawn(33)}.eyJ{drawn(300)}.{drawn(120)}"
    pem = "\n".join(drawn(64) for _ in range(5))
    secrets = Secrets(
        variables={
            "GITHUB_TOKEN": f"ghp_{drawn(36)}",
            "OPENAI_API_KEY": f"sk-{drawn(48)}",
            "RUNNER_TOKEN": f"ghs_{drawn(7, string.digits)}_{token}",
            "DEPLOY_PASSWORD": drawn(28),
        },
        others={
            "NETRC": drawn(26),
            "AWS": f"AKIA{drawn(16, string.ascii_uppercase + string.digits)}",
            "SSH": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{pem}\n-----END OPENSSH PRIVATE KEY-----\n",
        },
    )
    return Drawn(secrets, source)


def leaked_secrets(text: str, secrets: Secrets) -> list[str]:
    """Return the names of the secrets that a text leaks: in part, reversed, encoded, dumped, escaped, or spaced out.

    The program's own redaction shares no code with this, so that its gaps are found.
    """
    plain = _NOISE.sub("", revealed(text))
    plain += _NOISE.sub("", re.sub(r"%([0-9A-Fa-f]{2})", lambda found: chr(int(found[1], 16)), plain))
    plain = "\n".join([plain, *_undone(text)])
    grams = _grams(plain)
    return [name for name, value in secrets.all.items() if _gives_away(plain, grams, _body(value))]


def _undone(text: str) -> Iterator[str]:
    """Yield decodings of a text: entities, escapes, number dumps, base64 and Z85."""
    yield unescape(text)
    yield re.sub(r"\\u00([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), text)
    for form, base, size in ((r"[0-3][0-7]{2}", 8, 1), (r"[0-9a-f]{4}", 16, 2)):
        for run in re.findall(rf"(?:\b{form}\s+){{4,}}", re.sub(r"(?m)^[0-7]{7}\b", "", f"{text}\n")):
            numbers = [int(number, base) for number in run.split()]
            yield b"".join(number.to_bytes(size, "little") for number in numbers).decode("latin-1")
    for word in re.findall(r"[!-~]{20,}", text):
        for decode in (base64.b64decode, lambda found: base64.b85decode(found.encode().translate(_FROM_Z85))):
            try:
                yield decode(word).decode("latin-1").replace("\0", "")
            except ValueError:
                continue


def _body(value: str) -> str:
    """Return the random part of a value, without the prefix and armour of its kind."""
    return _NOISE.sub("", re.sub(r"-----[A-Z ]+-----|^gh[ps]_", "", value))


def _gives_away(text: str, grams: AbstractSet[int], value: str) -> bool:
    parts = _parts_by_gram(value)
    return any(part in text for gram in grams & parts.keys() for part in parts[gram])


def _grams(text: str) -> set[int]:
    """Return the aligned groups of four bytes of a text. Any eight ASCII characters in a row contain a whole one."""
    data = text.encode("utf-8", "surrogatepass")
    return set(memoryview(data[: len(data) // _GRAM * _GRAM]).cast("I"))


@functools.lru_cache(maxsize=32)
def _parts_by_gram(value: str) -> dict[int, set[str]]:
    """Return the parts of all encodings of a value, each under the groups of which `_grams` of a text with it has one."""
    raw = value.encode()
    spellings = [value, value[::-1], raw.hex(), raw.hex().upper(), *_base64(raw)]
    sizes = [_WINDOW, _WINDOW, 2 * _WINDOW, 2 * _WINDOW, 16, 16, 16]
    found: dict[int, set[str]] = {}
    for spelling, size in zip(spellings, sizes, strict=True):
        for part in _parts(spelling, size):
            for at in range(_GRAM):
                (gram,) = _grams(part[at : at + _GRAM])
                found.setdefault(gram, set()).add(part)
    return found


def _base64(raw: bytes) -> Iterator[str]:
    for shift in range(3):
        text = base64.b64encode(b"\0" * shift + raw).decode().rstrip("=")
        yield text[4 if shift else 0 : -1]


def _parts(text: str, size: int) -> Iterable[str]:
    if len(text) <= size:
        return [text]
    return (text[at : at + size] for at in range(0, len(text) - size + 1, _STEP))

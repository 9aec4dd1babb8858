"""Hides a known secret in what is said: one mark, and one rule for what its owner is shown of a key."""

from __future__ import annotations

import base64
import json
from typing import Final
from urllib.parse import quote

from orchestrator.core.secret_names import MIN_SECRET_CHARS

REPLACEMENT: Final = "[redacted]"
"""Stands in the place of a secret, in every text."""

_SHOWN_CHARS = 4
_MIN_CHARS_TO_SHOW = 20


def masked(value: str) -> str:
    """A key so that its owner knows it again and nobody else learns it."""
    text = value.strip()
    if "\n" in text or len(text) <= _MIN_CHARS_TO_SHOW:
        return "set"
    return f"set, ends in …{text[-_SHOWN_CHARS:]}"


def without(text: str, *secrets: str) -> str:
    """The text without secrets that a server or program was given, in the forms in which it may say them back.

    These are the secret itself, in a URL, in JSON and in base64. A shorter one than `MIN_SECRET_CHARS` stays.
    """
    return without_bytes(text.encode("utf-8", "surrogatepass"), *secrets).decode("utf-8", "surrogatepass")


def without_bytes(data: bytes, *secrets: str) -> bytes:
    """The same for the bytes of a text."""
    for secret in secrets:
        if len(secret) >= MIN_SECRET_CHARS:
            raw = secret.encode("utf-8", "surrogateescape")
            forms = (
                raw,
                quote(raw, safe="").encode(),
                json.dumps(secret)[1:-1].encode(),
                base64.b64encode(raw),
            )
            for form in dict.fromkeys(forms):
                data = data.replace(form, REPLACEMENT.encode())
    return data

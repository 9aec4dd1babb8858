"""Reads JSON that others send, and JSON-RPC: https://www.jsonrpc.org/specification."""

from __future__ import annotations

import json
from typing import Any

_SURROGATE_ESCAPE = b"\\ud"


def read_json(raw: str | bytes) -> Any:
    """Parse JSON strictly (no NaN, no Infinity by name), in text that can be written as UTF-8.

    An unpaired surrogate, which a model can write as an escape, becomes U+FFFD, and so does a byte that is not UTF-8,
    whatever a header says.

    Raises:
        ValueError: the text is not JSON, or is nested too deeply.
    """
    try:
        value = json.loads(raw, parse_constant=_refuse_constant)
        encoded = raw if isinstance(raw, bytes) else raw.encode("utf-8", "replace")
        if _SURROGATE_ESCAPE not in encoded.lower():
            return value
        text = json.dumps(value, ensure_ascii=False)
        return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    except UnicodeDecodeError:
        return read_json(raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(name: str) -> Any:
    message = f"{name} is not JSON"
    raise ValueError(message)


def read_message(text: str | bytes) -> dict[str, Any] | None:
    """Return a text as a request, a notification or an answer; None if it is none."""
    try:
        message = read_json(text)
    except ValueError:
        return None
    if not isinstance(message, dict):
        return None
    name, error = message.get("id"), message.get("error")
    if "method" in message:
        is_good = isinstance(message["method"], str) and isinstance(name, str | int | None)
    else:
        is_good = isinstance(name, int) and isinstance(error, dict | None)
    return message if is_good else None

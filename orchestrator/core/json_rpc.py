"""Reads what a program sends as JSON-RPC: https://www.jsonrpc.org/specification."""

from __future__ import annotations

import json
from typing import Any


def read_message(text: str | bytes) -> dict[str, Any] | None:
    """Return a text as a request, a notification or an answer; None if it is none."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    name, error = message.get("id"), message.get("error")
    if "method" in message:
        is_good = isinstance(message["method"], str) and isinstance(name, str | int | None)
    else:
        is_good = isinstance(name, int) and isinstance(error, dict | None)
    return message if is_good else None

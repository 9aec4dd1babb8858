"""Reads the beginning or the end of files of JSON lines that may be long."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def objects_in(piece: bytes) -> Iterator[dict[str, Any]]:
    """The JSON objects on whole lines; a line that is cut off at either end is no JSON."""
    for line in piece.split(b"\n"):
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict):
            yield data


def piece_of(path: Path, most_bytes: int, *, from_end: bool) -> bytes:
    """The first or last bytes of a file; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(size - most_bytes, 0) if from_end else 0)
            return file.read(most_bytes)
    except OSError:
        return b""

"""Replaces a file so that it is never seen, or left behind, half written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace_file(path: Path, content: bytes, mode: int | None = None) -> None:
    """Replace a file atomically: a reader, or a start after a crash, finds the old content or the new one.

    Args:
        path: the file; its folder exists.
        content: the whole new content.
        mode: permissions of the file; by default those of the file it replaces, or 0600 for a new one.

    Raises:
        OSError: the file cannot be written. The old one is unchanged, and nothing else is left in the folder.
    """
    if mode is None and path.exists():
        mode = path.stat().st_mode
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise

"""The small texts that stand in a commit for contents of Git LFS, and how such a text is told from others.

Format: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
"""

from __future__ import annotations

import hashlib
import re

_BEGINNINGS = (b"version https://git-lfs.github.com/spec/", b"version https://hawser.github.com/spec/")
"""The second one is of a version before the first release, which programs still read."""
_MOST_BYTES = 1024
_SIZE = re.compile(rb"^size ([0-9]{1,18})$", re.MULTILINE)


def is_pointer(content: bytes) -> bool:
    """Return whether a file's content is a pointer of Git LFS, also one that was damaged by an edit."""
    return content.startswith(_BEGINNINGS) and len(content) < _MOST_BYTES


def pointer_to(content: bytes) -> tuple[bytes, str]:
    """Return the pointer that stands for a content, and the content's id."""
    oid = hashlib.sha256(content).hexdigest()
    return (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(content)}\n".encode(),
        oid,
    )


def size_in_words(pointer: bytes) -> str:
    """Return how long the content is that a pointer stands for, in words; empty if it does not say."""
    found = _SIZE.search(pointer)
    return f"{int(found[1]):,} bytes" if found else ""

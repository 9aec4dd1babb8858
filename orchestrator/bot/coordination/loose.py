"""Objects written straight into a git directory of ours: they are small, and a program for each takes longer."""

from __future__ import annotations

import hashlib
import os
import zlib
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Literal

from orchestrator.bot.git.failures import storage_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.bot.coordination.scratch import IdKind

_READ_ONLY = 0o444


def write_object(
    objects: Path, kind: Literal["blob", "tree", "commit"], content: bytes, ids: IdKind, *, doing: str
) -> str:
    """Write a loose object, and return its id.

    The format: "Object Storage" in https://git-scm.com/book/en/v2/Git-Internals-Git-Objects

    Args:
        objects: the folder `objects` of a git directory that only this program writes.
        kind: of the object.
        content: what `git cat-file` would print of it; nothing is checked.
        ids: what ids the git directory has.
        doing: begins the message of an error.

    Raises:
        WorkspaceError: it cannot be written.
    """
    raw = f"{kind} {len(content)}\0".encode("ascii") + content
    # The names of objects, not a defence: the server looks at what it is sent by its own rules.
    digest = hashlib.sha1(raw, usedforsecurity=False) if ids == "sha1" else hashlib.sha256(raw)
    name = digest.hexdigest()
    path = objects / name[:2] / name[2:]
    with storage_errors(doing):
        if path.exists():
            return name
        path.parent.mkdir(exist_ok=True)
        # Whoever reads meanwhile sees all of it or nothing; two who write the same do each other no harm.
        with NamedTemporaryFile(dir=objects, prefix="tmp_obj_", delete=False) as file:
            scratch = Path(file.name)
            file.write(zlib.compress(raw, level=1))
        scratch.chmod(_READ_ONLY)
        scratch.replace(path)
    return name


def write_tree(objects: Path, blobs: Mapping[str, str], ids: IdKind, *, doing: str) -> str:
    """Write a tree of plain files, by their names and the ids of what is in them. The rest is as in `write_object`."""
    entries = (
        b"100644 " + os.fsencode(name) + b"\0" + bytes.fromhex(blob) for name, blob in sorted(blobs.items())
    )
    return write_object(objects, "tree", b"".join(entries), ids, doing=doing)

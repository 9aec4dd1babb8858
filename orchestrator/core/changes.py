"""What a change does to one file, as the checks before a push see it."""

from __future__ import annotations

from dataclasses import dataclass

LINK_MODE = "120000"
SUBMODULE_MODE = "160000"


@dataclass(frozen=True, slots=True)
class FileVersion:
    """A file in one commit.

    Attributes:
        mode: git's: `100644`, `100755`, `120000` for a link, `160000` for a submodule.
        content: the bytes, a link's target, a submodule's commit; None where it is over the limit of what is read.
        size: in bytes.
    """

    mode: str
    content: bytes | None
    size: int


@dataclass(frozen=True, slots=True)
class FileChange:
    """A path that differs between two commits. A renamed file is two changes.

    Attributes:
        path: relative, with `/`; bytes that are not UTF-8 as surrogates.
        old: the file before, None where it is new.
        new: the file after, None where it is removed.
    """

    path: str
    old: FileVersion | None
    new: FileVersion | None

"""Repositories that many tests begin with: made once in a process, then copied."""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_TEMPORARY = tempfile.gettempdir()  # some tests replace it
_NUMBERS = itertools.count()
_made: dict[Hashable, Path] = {}


def copied(folder: Path, what: Hashable, make: Callable[[Path], object]) -> Path:
    """Make a folder that is not there yet, as a copy of the first one of its kind.

    Args:
        folder: the new folder.
        what: everything that says what `make` puts into it.
        make: makes and fills a folder.
    """
    if what not in _made:
        template = _root() / str(next(_NUMBERS))  # `make` may copy another template
        make(template)
        _made[what] = template
    shutil.copytree(_made[what], folder, symlinks=True)
    return folder


@cache
def _root() -> Path:
    """Where the templates are, until the process ends."""
    root = Path(tempfile.mkdtemp(prefix="templates-of-tests-", dir=_TEMPORARY))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root

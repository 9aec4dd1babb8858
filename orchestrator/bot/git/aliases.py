"""Other names of a path: those that symbolic links of the repository give it."""

from __future__ import annotations

import os
import posixpath
from itertools import islice
from typing import TYPE_CHECKING

from orchestrator.bot.git.selection import folders_above

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# A link to a link to a link; further ones are nobody's habit, and a link to a folder above has no end.
_MOST_HOPS = 3
MOST_NAMES = 1000
"""Of one path. Hundreds of packages may link to one licence; links can be made so that there is no end."""


class Aliases:
    """The names under which a file is found besides its own.

    A file that an instruction file or a workflow is a link to steers as much as that.

    Args:
        targets: of the links, by path, as they are written.
    """

    def __init__(self, targets: Mapping[str, bytes]) -> None:
        self._links: dict[str, list[str]] = {}
        for link, target in sorted(targets.items()):
            place = posixpath.normpath(posixpath.join(posixpath.dirname(link), os.fsdecode(target)))
            if place != "." and not place.startswith(("/", "..")):
                self._links.setdefault(place, []).append(link)

    def of(self, path: str) -> list[str]:
        """The other names, the nearest first; at most `MOST_NAMES` and one, which says that there are more."""
        if not self._links:
            return []
        found: dict[str, None] = {}
        names = [path]
        for _ in range(_MOST_HOPS):
            new = (name for known in names for name in self._hop(known) if name != path and name not in found)
            names = list(dict.fromkeys(islice(new, MOST_NAMES + 1 - len(found))))
            found |= dict.fromkeys(names)
        return list(found)

    def _hop(self, path: str) -> Iterator[str]:
        for place in (path, *folders_above(path)):
            for link in self._links.get(place, ()):
                yield link + path[len(place) :]

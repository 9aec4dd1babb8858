"""What may leave: a change that adds a secret may not."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_PLACES = 5


def places_of_secrets(diff: str, holds_secret: Callable[[str], bool]) -> list[str]:
    """Where a unified diff adds something that looks like a secret, as `path:line`, at most five.

    What a file held before does not count: the repository has it already. Lines that were added
    one after another are also looked at together, because a key may take several. A diff that
    cannot be read is looked at as a whole.
    """
    from unidiff.errors import UnidiffParseError
    from unidiff.patch import PatchSet

    try:
        patch = PatchSet(diff)
    except UnidiffParseError:
        return ["the change"] if holds_secret(diff) else []
    places = []
    for file in patch:
        for hunk in file:
            added = [line for line in hunk if line.is_added]
            if not added or not holds_secret("".join(line.value for line in added)):
                continue
            found = next((line for line in added if holds_secret(line.value)), added[0])
            places.append(f"{file.path}:{found.target_line_no}")
    return places[:_MOST_PLACES]

"""Replies that the server named with an ETag, kept so that asking again costs nothing."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from orchestrator.bot.forge.refusals import Reply

MOST_REPLIES = 500
MOST_CHARACTERS = 50_000_000
"""Of all kept bodies together."""
Key: TypeAlias = tuple[str, ...]


class ReplyMemory:
    """The replies that were used last; the others are forgotten.

    Args:
        most_replies: how many are kept.
        most_characters: of their bodies together.
    """

    def __init__(self, most_replies: int = MOST_REPLIES, most_characters: int = MOST_CHARACTERS) -> None:
        self._most_replies, self._most_characters = most_replies, most_characters
        self._replies: OrderedDict[Key, Reply] = OrderedDict()
        self._characters = 0

    def __len__(self) -> int:
        return len(self._replies)

    def get(self, key: Key) -> Reply | None:
        """The reply of this key, which counts as used now."""
        found = self._replies.get(key)
        if found is not None:
            self._replies.move_to_end(key)
        return found

    def put(self, key: Key, reply: Reply) -> None:
        """Keep a reply that has an ETag in place of an older one. One that has none only removes the older."""
        older = self._replies.pop(key, None)
        self._characters -= len(older.text) if older else 0
        if not reply.headers.get("etag"):
            return
        self._replies[key] = reply
        self._characters += len(reply.text)
        while len(self._replies) > self._most_replies or self._characters > self._most_characters:
            _, forgotten = self._replies.popitem(last=False)
            self._characters -= len(forgotten.text)

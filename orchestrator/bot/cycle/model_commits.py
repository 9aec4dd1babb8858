"""The model's own commits in its working tree, whose messages the host's commit repeats."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from posixpath import dirname
from typing import TYPE_CHECKING

from orchestrator.core.errors import (
    SandboxMissingError,
    ToolError,
)
from orchestrator.core.events import Defence, Guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orchestrator.core.events import Emit
    from orchestrator.engine.environments.base import ExecutionEnvironment


_MOST_COMMITS = 50


_MOST_BYTES = 60_000


_MESSAGE_CHARACTERS = 2_000


_MOST_CHARACTERS = 8_000
"""Most characters of all messages together."""


_TIMEOUT_MS = 10_000


# This git runs where the model's commands run. Without a sandbox, it could run programs that they configured.
# These settings switch off all such programs that are known.
_VARIABLES = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}


_SETTINGS = (
    *("core.fsmonitor=false", "core.hooksPath=/dev/null", "i18n.logOutputEncoding=UTF-8"),
    *("log.showSignature=false", "safe.bareRepository=explicit"),
)


_OPTIONS = ("-z", "--no-merges", "--no-patch", f"--max-count={_MOST_COMMITS}", "--format=%H%n%B")


@dataclass(slots=True)
class ModelCommits:
    """Messages of the model's own commits that no commit of the host contains yet.

    Attributes:
        base: the commit that was cloned; commits on top of it are the model's.
        earlier: messages of an unfinished cycle on the task, oldest first.
    """

    environment: ExecutionEnvironment
    base: str
    holds_secret: Callable[[str], bool]
    emit: Emit
    earlier: Sequence[str] = ()
    _found: dict[str, str] = field(default_factory=dict)
    _committed: set[str] = field(default_factory=set)
    _reported: set[str] = field(default_factory=set)

    @property
    def messages(self) -> list[str]:
        """The messages without duplicates, oldest first, except those that seem to contain a secret."""
        own = [message for commit, message in self._found.items() if commit not in self._committed]
        return [text for text in dict.fromkeys((*self.earlier, *own)) if not self._is_secret(text)]

    async def look(self) -> None:
        """Read the messages from git. If git fails, they stay as they were."""
        root = self.environment.working_directory()
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        git = ["git", "-C", root, "--no-pager", *settings, "log", *_OPTIONS, f"{self.base}..HEAD", "--"]
        # Started in `/`, so that a relative entry of PATH finds no program of the clone.
        command = f"cd / && {shlex.join(git)} 2>/dev/null | head -c {_MOST_BYTES}"
        variables = {**_VARIABLES, "GIT_CEILING_DIRECTORIES": dirname(root)}
        try:
            result = await self.environment.exec_command(command, timeout_ms=_TIMEOUT_MS, env=variables)
        except (ToolError, SandboxMissingError):
            return
        # Newest first. Each record ends with a NUL, so what follows the last NUL is incomplete.
        records = [record.partition("\n") for record in reversed(result.stdout.split("\0")[:-1])]
        self._found = {commit: message.strip() for commit, _, message in records if message.strip()}

    def as_list(self, title: str) -> str:
        """Return the messages as a list, in GitHub's format for squashed commits; empty if there are none.

        Args:
            title: of the host's commit; messages that begin with it leave it out.
        """
        items: list[str] = []
        room = _MOST_CHARACTERS
        messages = [text for message in self.messages if (text := _without_title(message, title))]
        for message in messages:
            item = f"* {message}"[:_MESSAGE_CHARACTERS].rstrip()
            room -= len(item)
            if room < 0:
                items.append(f"* {len(messages) - len(items)} more")
                break
            items.append(item)
        return "\n\n".join(items)

    def mark_committed(self) -> None:
        """Record that a commit of the host now contains the messages."""
        self._committed |= self._found.keys()
        self.earlier = ()

    def _is_secret(self, message: str) -> bool:
        if not self.holds_secret(message):
            return False
        if message not in self._reported:
            self._reported.add(message)
            self.emit(
                Guarded(Defence.SECRETS, "a commit's message is left out: it holds what looks like a secret")
            )
        return True


def _without_title(message: str, title: str) -> str:
    subject, _, rest = message.partition("\n")
    return rest.strip() if subject.strip().casefold() == title.casefold() else message

"""What really ran in a cycle, from its events; and the messages of commits that the model made."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from posixpath import dirname
from typing import TYPE_CHECKING

from orchestrator.core.defences import Defence, Guarded
from orchestrator.core.errors import SandboxMissingError, ToolError
from orchestrator.core.events import CallStatus, ToolCallEnded, ToolCallStarted
from orchestrator.core.fence import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orchestrator.core.events import Emit, Event
    from orchestrator.engine.environments.base import ExecutionEnvironment


_COMMAND_CHARACTERS = 200
# Secrets are taken out before the text is cut, which is not to take long.
_MOST_READ_CHARACTERS = 20_000


@dataclass(frozen=True, slots=True)
class RanCommand:
    """A command that a tool ran, on one line, and how it ended."""

    text: str
    passed: bool

    @property
    def status(self) -> str:
        """How it ended, in a word."""
        return "passed" if self.passed else "failed"


@dataclass(slots=True)
class SessionEvidence:
    """Collects from the events of a session what a pull request may claim.

    Attributes:
        redact: takes secrets out of a command before it is cut.
        commands: what ran, in order.
    """

    redact: Callable[[str], str] = str
    commands: list[RanCommand] = field(default_factory=list)
    _running: dict[str, str] = field(default_factory=dict)

    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        if isinstance(event, ToolCallStarted) and "command" in event.arguments:
            line = " ".join(str(event.arguments["command"])[:_MOST_READ_CHARACTERS].split())
            self._running[event.call_id] = (
                one_line(self.redact(line), limit=_COMMAND_CHARACTERS) or "(nothing)"
            )
        elif isinstance(event, ToolCallEnded) and event.call_id in self._running:
            text = self._running.pop(event.call_id)
            if event.status in {CallStatus.OK, CallStatus.FAILED}:
                self.commands.append(RanCommand(text, event.status is CallStatus.OK))


_MOST_COMMITS = 50
_MOST_BYTES = 60_000
_MESSAGE_CHARACTERS = 2_000
_MOST_CHARACTERS = 8_000
"""Of all messages together."""
_TIMEOUT_MS = 10_000
# It runs where the model's commands run, and may run what they configured where there is no sandbox: no more of
# it than of a command of theirs, and with these settings none that git is known for.
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
    """What a model's commits say that no commit of ours has said yet.

    Attributes:
        environment: where the model's commands run.
        base: the commit that was cloned; what is on top of it is the model's.
        holds_secret: whether a text does.
        earlier: messages of an unfinished cycle on the task, oldest first.
    """

    environment: ExecutionEnvironment
    base: str
    holds_secret: Callable[[str], bool]
    emit: Emit
    earlier: Sequence[str] = ()
    _said: dict[str, str] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)
    _reported: set[str] = field(default_factory=set)

    @property
    def messages(self) -> list[str]:
        """Each message once, oldest first; without those that hold what looks like a secret."""
        own = [message for name, message in self._said.items() if name not in self._told]
        return [text for text in dict.fromkeys((*self.earlier, *own)) if not self._is_held(text)]

    async def look(self) -> None:
        """Ask git for them. What it does not give, for whatever reason, is not there."""
        root = self.environment.working_directory()
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        git = ["git", "-C", root, "--no-pager", *settings, "log", *_OPTIONS, f"{self.base}..HEAD", "--"]
        # Not from the clone, so that a relative entry of PATH finds no program in it.
        command = f"cd / && {shlex.join(git)} 2>/dev/null | head -c {_MOST_BYTES}"
        variables = {**_VARIABLES, "GIT_CEILING_DIRECTORIES": dirname(root)}
        try:
            result = await self.environment.exec_command(command, timeout_ms=_TIMEOUT_MS, env=variables)
        except (ToolError, SandboxMissingError):
            return
        # Newest first, each ended with a NUL; the last one may be cut. What was amended since is no more.
        records = [record.partition("\n") for record in reversed(result.stdout.split("\0")[:-1])]
        self._said = {name: message.strip() for name, _, message in records if message.strip()}

    def words(self, title: str) -> str:
        """The messages as a list, as GitHub writes those of commits that it makes one; empty if there are none.

        Args:
            title: of our commit; a message that begins with it does not say it again.
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

    def told(self) -> None:
        """Our commit has them now."""
        self._told |= self._said.keys()
        self.earlier = ()

    def _is_held(self, message: str) -> bool:
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

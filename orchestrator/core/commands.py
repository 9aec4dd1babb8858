"""The commands that a message tells a person to type: whole, so that they work as they stand."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote

PROGRAM = "pullwright"


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands about the tasks of one repository.

    Attributes:
        repository: its name, as journals have it: it means the same from every folder.
        github_url: the server, where it was typed and the command needs it as well; else empty.
    """

    repository: str = "REPO"
    github_url: str = ""

    def retry(self, task: str) -> str:
        """Lets the next cycle take a task again."""
        return self._on("retry", task)

    def forget(self, task: str) -> str:
        """Drops what is kept of a task."""
        return self._on("forget", task)

    def close(self, number: int) -> str:
        """Closes a pull request of ours."""
        return self._on("close", str(number))

    def release(self, task: str) -> str:
        """Takes a task away from whoever holds it."""
        return self._on("claims release", task)

    def answer(self, task: str) -> str:
        """Goes on with a task that waits for an answer. The person puts the answer in place of ANSWER."""
        return f"{PROGRAM} run --repo {quote(self.repository)}{self._server()} --task {quote(task)} --answer ANSWER"

    def _on(self, action: str, what: str) -> str:
        return f"{PROGRAM} {action} {quote(what)} --repo {quote(self.repository)}{self._server()}"

    def _server(self) -> str:
        return f" --github-url {quote(self.github_url)}" if self.github_url else ""

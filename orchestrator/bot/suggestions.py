"""The program's name, and the commands that its messages suggest.

`--help` loads this module, which therefore imports little.
"""

from __future__ import annotations

import sys
from shlex import quote
from typing import NamedTuple

PROGRAM = "pullwright"


def install_command(extra: str) -> str:
    """Return the command that installs an optional part of this program, for a message.

    In a source tree it installs from there, into the environment of this process: the package index may not have it.
    """
    from pathlib import Path

    source_tree = Path(__file__).parents[2]
    if (source_tree / "pyproject.toml").exists():
        return f"{quote(sys.executable)} -m pip install {quote(f'{source_tree}[{extra}]')}"
    return f"pip install '{PROGRAM}[{extra}]'"


class Commands(NamedTuple):
    """Builds the commands about the tasks of one repository that messages suggest.

    Attributes:
        repository: its name as in journals, which is valid in every folder.
        flags: flags that the command needs beside it, such as the address of the server.
        is_here: whether the person is in a folder where the commands mean this repository without `--repo`.
    """

    repository: str = "REPO"
    flags: str = ""
    is_here: bool = False

    def retry(self, task: str) -> str:
        """Return the command that makes a task available again."""
        return self._on("retry", task)

    def forget(self, task: str) -> str:
        """Return the command that deletes what is stored about a task."""
        return self._on("forget", task)

    def pull(self, number: int) -> str:
        """Return the command that shows a pull request of a local repository."""
        return self._on("pulls", str(number))

    def merge(self, number: int) -> str:
        """Return the command that merges a pull request of a local repository."""
        return self._on("accept", str(number))

    def close(self, number: int) -> str:
        """Return the command that closes one of our pull requests."""
        return self._on("close", str(number))

    def release(self, task: str) -> str:
        """Return the command that takes a task away from its holder."""
        return self._on("claims release", task)

    def answer(self, task: str) -> str:
        """Return the command that answers a task's question. The user replaces ANSWER."""
        return f"{PROGRAM} run{self._named()} --task {quote(task)} --answer ANSWER"

    def propose_failing(self, task: str) -> str:
        """Return the command that proposes a task's kept work as a draft, although its tests fail."""
        return f"{PROGRAM} run{self._named()} --task {quote(task)} --propose-failing"

    def _on(self, action: str, what: str) -> str:
        return f"{PROGRAM} {action} {quote(what)}{self._named()}"

    def _named(self) -> str:
        if self.is_here:
            return ""
        return f" --repo {quote(self.repository)}{self.flags and f' {self.flags}'}"

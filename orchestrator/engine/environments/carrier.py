"""What carries a shell script to another machine or container: a program of this machine, such as `ssh`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Carrier(Protocol):
    """Builds command lines, and opens and closes the way. What it carries is not its concern.

    Attributes:
        name: the other side in messages, such as `container web` or `me@host`.
        folder: the working folder there, as it was given.
    """

    @property
    def name(self) -> str:
        """See the class."""

    @property
    def folder(self) -> str:
        """See the class."""

    def argv(self, line: str) -> Sequence[str]:
        """The program of this machine, with arguments, that runs `sh -c line` there.

        Its standard streams are those of the script. `line` has no quotes, backslashes or line
        ends, so that every login shell hands it on as it is; nothing secret is ever in it.
        """

    def variables(self) -> Mapping[str, str]:
        """All environment variables of that program: what it needs itself, and no more."""

    async def open(self) -> None:
        """Make the way ready.

        Raises:
            ToolError: there is no way.
        """

    async def close(self) -> None:
        """Take down what `open` put up. Closing twice is no error."""

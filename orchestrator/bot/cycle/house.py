"""The rules of the house that a cycle works in, read from the base before anything is changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.etiquette import Etiquette, owners_of, read_etiquette, texts_to_read
from orchestrator.bot.cycle.template import find_template
from orchestrator.core.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from orchestrator.bot.cycle.parts import Manner
    from orchestrator.bot.forge.base import Forge

_MOST_BYTES = 64_000
# https://docs.github.com/repositories/managing-your-repositorys-settings-and-features/customizing-your-repository/about-code-owners
_OWNERS = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")
_MOST_OWNERS = 10


@dataclass(frozen=True, slots=True)
class House:
    """What the repository asks of whoever proposes a change.

    Attributes:
        template: its pull-request template, if it has one.
        etiquette: what its guides ask for, as far as a person did not decide otherwise.
        trailers: the last lines of every commit's message.
        codeowners: who owns which paths, as the file says it.
        starts_no_checks: our pull request will start no workflow.
    """

    template: str | None = None
    etiquette: Etiquette = field(default_factory=Etiquette)
    trailers: tuple[str, ...] = ()
    codeowners: str = ""
    starts_no_checks: bool = False

    def owners(self, paths: Sequence[str]) -> list[str]:
        """Who owns these paths; the first ten."""
        return owners_of(self.codeowners, paths)[:_MOST_OWNERS]


async def read_house(
    paths: Sequence[str], read: Callable[[str, int], Awaitable[bytes]], manner: Manner, model: str
) -> House:
    """Read the rules. What cannot be read is no rule.

    Args:
        paths: all files of the base.
        read: gives a file, at most so many bytes; raises `ToolError`.
        manner: what a person decided.
        model: which model works.
    """

    async def text(path: str | None) -> str | None:
        if path is None:
            return None
        try:
            return (await read(path, _MOST_BYTES)).decode("utf-8", "replace")
        except ToolError:
            return None

    texts = {path: found for path in texts_to_read(paths) if (found := await text(path)) is not None}
    etiquette = read_etiquette(paths, texts).chosen(manner.signoff, manner.trailer)
    owners = next((path for path in _OWNERS if path in paths), None)
    return House(
        template=await text(find_template(list(paths))),
        etiquette=etiquette,
        trailers=etiquette.trailers(manner.author_name, manner.author_email, model),
        codeowners=await text(owners) or "",
        starts_no_checks=manner.starts_no_checks,
    )


class RulesFile:
    """The repository's own rules for the program, read again only when something has changed on the forge.

    Args:
        forge: the repository's.
        path: the file, on the default branch.
    """

    def __init__(self, forge: Forge, path: str) -> None:
        self._forge, self._path = forge, path
        self._read: tuple[str, str | None] | None = None

    def text(self, pulse: str) -> str | None:
        """Its text; None where there is none.

        Args:
            pulse: `Forge.pulse`, as it is now.

        Raises:
            ForgeError: it could not be read.
        """
        if self._read is None or self._read[0] != pulse:
            self._read = pulse, self._forge.read_file(self._path)
        return self._read[1]

"""How each defence is taken away, for the proof that an attack succeeds without it.

Most are fields of `Guards` or options. Some cannot be taken out of the product, so the nearest thing
that a careless program does stands in their place:

- admission: a forge that says that everybody may write, that nobody edited anything, and that the base
  branch configures every check;
- markers: fences of three backticks, whatever the text between them holds, and names and
  lists of commits with nothing around;
- instructions: the repository's `pullwright.toml` is taken as it is;
- paths: files are opened as named (`plain.PlainFiles`);
- host-git: a careless host works in the model's work tree (`plain.CarelessHost`);
- network: the web opens any address; commands lose their sandbox's network wall with `sandbox`.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from typing import TYPE_CHECKING, Any

from orchestrator.app.redteam.obedient import ObedientModel
from orchestrator.bot.forge.base import Check, IssueHistory, Permission
from orchestrator.bot.forge.memory import MemoryForge
from orchestrator.bot.policy.incoming import Cleaned
from orchestrator.bot.policy.test_listing import TestListing
from orchestrator.core.defences import Defence
from orchestrator.core.messages import Message, Text, ToolResult
from orchestrator.engine.session.gate import allow_all

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from orchestrator.app.config.settings import Settings
    from orchestrator.bot.cycle.parts import Guards, OutgoingWording
    from orchestrator.core.messages import Part
    from orchestrator.engine.models.base import Request, Response

_MANY = 10_000
_LONG_FENCE = re.compile(r"(?m)^`{4,}")
_LISTED = re.compile(r"(Recent commits[^\n]*\n+)`{3,}\n(.*?)\n`{3,}", re.DOTALL)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


def loosened(off: Collection[Defence], planted: str | None) -> Mapping[str, Any]:
    """The options that take these defences away.

    Args:
        off: the defences.
        planted: the `pullwright.toml` of the repository, which a careless program would obey.
    """
    changes: dict[str, Any] = {}
    if Defence.INSTRUCTIONS in off and planted is not None:
        changes |= tomllib.loads(planted)
    if Defence.LEVEL in off:
        changes["permission"] = "dangerous"
    if Defence.SANDBOX in off:
        changes["sandbox"] = "off"
    if Defence.LIMITS in off:
        changes |= {"max_rounds": _MANY, "max_usd": None, "max_tokens": None, "max_minutes": None}
    return changes


_LEVELS = ("read-only", "safe", "dangerous")
_OPENING = (
    "api_url",
    "github_url",
    "web",
    "sandbox",
    "allow_command",
    "allow_host",
    "allow_actor",
    "allow_path",
)


def looser(before: Settings, after: Settings) -> list[str]:
    """The options that are looser than before, or that send something elsewhere."""
    opened = [key for key in _OPENING if getattr(before, key) != getattr(after, key)]
    more = [key for key in ("max_rounds", "max_files") if getattr(after, key) > getattr(before, key)]
    if _LEVELS.index(after.permission) > _LEVELS.index(before.permission):
        more.append("permission")
    return [*opened, *more]


def without(guards: Guards, off: Collection[Defence]) -> Guards:
    """The checks of a run without some of them."""
    changes: dict[Defence, dict[str, Any]] = {
        Defence.HIDDEN_TEXT: {"words": _as_it_is, "names": _as_it_is, "output": _as_it_is},
        Defence.LEVEL: {"gate": allow_all, "shows": lambda _tool: True},
        Defence.COMMANDS: {"gate": allow_all, "shows": lambda _tool: True},
        Defence.SECRETS: {"redact": str, "holds_secret": lambda _text: False},
        Defence.WORDING: {"wording": AsWritten()},
        Defence.PROTECTED_PATHS: {"protect": lambda _change: None},
        Defence.CHANGE_SIZE: {"size": lambda _changes: None},
        Defence.TEST_INTEGRITY: {"tests": lambda _changes: TestListing()},
    }
    for defence in off:
        guards = dataclasses.replace(guards, **changes.get(defence, {}))
    return guards


class AsWritten:
    """Words that go out as the model wrote them."""

    def title(self, text: str) -> str:
        """As it is."""
        return text

    def inline(self, text: str) -> str:
        """As it is."""
        return text

    def text(self, text: str, *, issue: int | None) -> str:
        """As it is."""
        del issue
        return text

    def comment(self, text: str, *, issue: int | None) -> str:
        """As it is."""
        del issue
        return text

    def message(self, headline: str, paragraphs: Iterable[str], last: Iterable[str] = ()) -> str:
        """As it is."""
        return "\n\n".join(filter(None, (headline, *paragraphs, *last)))


class TrustingForge(MemoryForge):
    """A forge on which everybody may write and nobody edits, as seen by a program that does not ask."""

    def permission(self, login: str) -> Permission:
        """Everybody may."""
        self.asked.append(login)
        return Permission.WRITE

    def history(self, number: int, label: str) -> IssueHistory:
        """No edits."""
        return dataclasses.replace(super().history(number, label), edits=())

    def configured_checks(self, checks: Sequence[Check], commit: str, base: str) -> list[Check]:
        """All of them."""
        del commit, base
        return list(checks)


class ClosableMarkers(ObedientModel):
    """A model that is shown other people's words in fences that they can close, and names with nothing around."""

    async def complete(self, request: Request) -> Response:
        """Do the next thing."""
        messages = [_with_short_fences(message) for message in request.messages]
        system = _bare(request.system)
        return await super().complete(dataclasses.replace(request, system=system, messages=messages))


def _with_short_fences(message: Message) -> Message:
    return Message(message.role, tuple(map(_shortened, message.parts)))


def _shortened(part: Part) -> Part:
    match part:
        case Text(text):
            return Text(_bare(text))
        case ToolResult():
            return dataclasses.replace(part, content=_LONG_FENCE.sub("```", part.content))
        case _:
            return part


def _bare(text: str) -> str:
    """A text of the program's with closable fences, and with lists and names that stand free."""
    return _SPAN.sub(r"\1", _LONG_FENCE.sub("```", _LISTED.sub(r"\1\2", text)))


def _as_it_is(text: str) -> Cleaned:
    return Cleaned(text, ())


if TYPE_CHECKING:
    _wording: OutgoingWording = AsWritten()
    _output: Callable[[str], Cleaned] = _as_it_is

"""What a repository asks of whoever contributes: sign-off, trailers, whether a machine may contribute at all."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_FOLDERS = ("", ".github/", "docs/")
_NAMES = (
    "contributing",
    "contributing.md",
    "contributing.rst",
    "contributing.txt",
    "ai_policy.md",
    "ai-policy.md",
)
_DCO_FILES = frozenset({"dco", "dco.txt", ".github/dco.yml"})

Trailer = Literal["none", "assisted-by", "co-authored-by"]

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n\s*\n|\n(?=\s*(?:[-*+#>]|\d+[.)])\s)")
_MACHINE = r"(?:AI|A\.I\.|LLMs?|(?:large )?language models?|generative (?:AI|models?)|Copilot|ChatGPT|Claude|coding agents?)"
_WORK = r"(?:contributions?|code|content|changes?|commits?|patch(?:es)?|pull requests?|PRs?|submissions?|tools?|agents?)"
_BANS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?:we|this project|the project|maintainers)\b.{{0,40}}\b(?:ban|forbid|prohibit|reject|disallow|refuse|close)s?\b.{{0,60}}\b{_MACHINE}\b",
        rf"\b(?:do not|don't|does not|cannot|will not|won't|never) (?:accept|allow|permit|merge|take|want|review)\b.{{0,80}}\b{_MACHINE}\b",
        rf"\b(?:do not|don't|must not|may not|never|please refrain from|refrain from) (?:use|using|submit|submitting|open|opening|send|sending|contribute|contributing|post|posting)\b.{{0,60}}\b{_MACHINE}\b",
        rf"\b{_MACHINE}\b.{{0,80}}\b(?:is|are|will be) (?:strictly |explicitly |currently )?(?:not (?:be )?(?:accepted|allowed|permitted|welcome)|forbidden|prohibited|banned|rejected|disallowed|closed)\b",
        rf"^\W*no {_MACHINE}(?:[- ](?:generated|assisted|written|authored))?\b.{{0,30}}\b{_WORK}\b",
    )
)
"""Sentences of contribution guides and AI policies that close the door, collected from public ones."""
_CONDITIONS = re.compile(
    r"\b(?:unless|without|except|undisclosed|unreviewed|untested|low[- ]quality|purely|blindly|if you|that you (?:do|have) not|not understand|disclos)",
    re.IGNORECASE,
)
"""Words by which such a sentence only sets conditions."""
_SIGN_OFF = re.compile(
    r"signed-off-by|developer certificate of origin|\bcommit\s+(?:-s|--signoff)\b", re.IGNORECASE
)
_ASSISTED = re.compile(r"\bAssisted-by:", re.IGNORECASE)
_CO_AUTHORED = re.compile(r"\bCo-authored-by\b", re.IGNORECASE)
_NOT = re.compile(r"\b(?:no|not|don't|never|without|remove|drop|omit|forbid|reject)\b", re.IGNORECASE)

_QUOTE_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Etiquette:
    """What the repository's own texts ask for.

    Attributes:
        forbids: where, and in which words, it wants nothing from machines; None where it says no such thing.
        sign_off: commits carry a `Signed-off-by` line (https://developercertificate.org).
        trailer: how a commit names the model.
    """

    forbids: str | None = None
    sign_off: bool = False
    trailer: Trailer = "none"

    def chosen(self, signoff: str, trailer: Trailer | Literal["auto"]) -> Etiquette:
        """The same with what a person decided: `auto` leaves it to the repository."""
        sign = self.sign_off if signoff == "auto" else signoff == "always"
        return Etiquette(self.forbids, sign, self.trailer if trailer == "auto" else trailer)

    def trailers(self, name: str, email: str, model: str) -> tuple[str, ...]:
        """The last lines of a commit's message, for this author and model."""
        lines = []
        if self.trailer == "assisted-by":
            # The form of https://docs.kernel.org/process/coding-assistants.html
            lines.append(f"Assisted-by: Pullwright:{_word(model)}")
        elif self.trailer == "co-authored-by":
            lines.append(f"Co-authored-by: {_word(model)} <{email}>")
        if self.sign_off:
            lines.append(f"Signed-off-by: {name} <{email}>")
        return tuple(lines)


def texts_to_read(paths: Iterable[str]) -> list[str]:
    """Which of the repository's files say what it asks for."""
    wanted = {f"{folder}{name}" for folder in _FOLDERS for name in _NAMES}
    return sorted(path for path in paths if path.lower() in wanted)


def read_etiquette(paths: Iterable[str], texts: Mapping[str, str]) -> Etiquette:
    """Read what the repository asks for.

    Args:
        paths: all its files.
        texts: the text of those that `texts_to_read` names, by path.
    """
    everything = "\n\n".join(texts.values())
    return Etiquette(
        forbids=next(_bans(texts), None),
        sign_off=_SIGN_OFF.search(everything) is not None
        or any(path.lower() in _DCO_FILES for path in paths),
        trailer=_trailer(everything),
    )


def _bans(texts: Mapping[str, str]) -> Iterator[str]:
    for path, text in texts.items():
        for sentence in _SENTENCE.split(text):
            flat = " ".join(sentence.split())
            if not _CONDITIONS.search(flat) and any(ban.search(flat) for ban in _BANS):
                yield f"{path}: {flat[:_QUOTE_CHARACTERS]}"


def _trailer(text: str) -> Trailer:
    for sentence in _SENTENCE.split(text):
        if _ASSISTED.search(sentence) and not _NOT.search(sentence):
            return "assisted-by"
    for sentence in _SENTENCE.split(text):
        machine = re.search(rf"\b{_MACHINE}\b", sentence, re.IGNORECASE)
        if machine and _CO_AUTHORED.search(sentence) and not _NOT.search(sentence):
            return "co-authored-by"
    return "none"


def _word(model: str) -> str:
    """A model's name as a word of a trailer."""
    return re.sub(r"[^A-Za-z0-9._:/-]+", "-", model).strip("-") or "unknown"


def owners_of(codeowners: str, paths: Iterable[str]) -> list[str]:
    """Who owns these paths, in the order of the file.

    The last line that matches a path counts, also one without owners:
    https://docs.github.com/repositories/managing-your-repositorys-settings-and-features/customizing-your-repository/about-code-owners
    """
    from pathspec import GitIgnoreSpec

    rules: list[tuple[GitIgnoreSpec, list[str]]] = []
    for line in codeowners.splitlines():
        pattern, *owners = line.partition("#")[0].split() or [""]
        with suppress(ValueError):  # what is no pattern owns nothing
            rules.append((GitIgnoreSpec.from_lines([pattern]), owners))
    found: dict[str, None] = {}
    for path in paths:
        mine = next((who for spec, who in reversed(rules) if spec.match_file(path)), [])
        found.update(dict.fromkeys(mine))
    order = [who for _, owners in rules for who in owners]
    return sorted(found, key=order.index)

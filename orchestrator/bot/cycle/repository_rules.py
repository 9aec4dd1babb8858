"""What a repository asks of whoever proposes a change, and its own rules for the program."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal

from orchestrator.core.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from orchestrator.bot.cycle.parts import CycleOptions
    from orchestrator.bot.forge.base import Forge


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


# Places and names: https://docs.github.com/communities/using-templates-to-encourage-useful-issues-and-pull-requests
_TEMPLATE_FOLDERS = ("", ".github", "docs")
_TEMPLATE_NAMES = ("pull_request_template.md", "pull_request_template.txt", "pull_request_template")
_HEADING = re.compile(r"#{1,6}[ \t]+(?P<title>\S.*?)[ \t]*#*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_COMMENT = re.compile(r"<!--.*?-->\s*", re.DOTALL)
_DESCRIPTIVE = re.compile(r"descri|summary|what|change|overview|purpose", re.IGNORECASE)


def find_template(paths: list[str]) -> str | None:
    """The path of the repository's pull-request template among its files, in any spelling of case."""
    by_lower = {path.lower(): path for path in paths}
    for folder in _TEMPLATE_FOLDERS:
        for name in _TEMPLATE_NAMES:
            if found := by_lower.get(str(PurePosixPath(folder, name))):
                return found
    return None


def fill_template(template: str, body: str) -> str:
    """Put the body under the template's describing heading and keep its other sections.

    A body that already has all of the template's headings is taken as the filled-in template.
    Comments, which tell authors what to write, are dropped.
    """
    plain = _COMMENT.sub("", template).strip()
    headings = list(_headings(plain))
    if not headings:
        return f"{body}\n\n{plain}".strip()
    written = {title.lower() for title, _ in _headings(body)}
    if all(title.lower() in written for title, _ in headings):
        return body
    _, end = next((heading for heading in headings if _DESCRIPTIVE.search(heading[0])), headings[0])
    return f"{plain[:end]}\n\n{body}\n{plain[end:]}".strip()


def _headings(text: str) -> Iterator[tuple[str, int]]:
    """The titles of headings, and where each ends. What stands in a block of code is none."""
    fence, at = "", 0
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if fence:
            fence = "" if mark and mark[1].startswith(fence) else fence
        elif mark:
            fence = mark[1]
        elif heading := _HEADING.match(line.rstrip("\n")):
            yield heading["title"], at + heading.end()
        at += len(line)


_MOST_BYTES = 64_000
# https://docs.github.com/repositories/managing-your-repositorys-settings-and-features/customizing-your-repository/about-code-owners
_OWNERS = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")
_MOST_OWNERS = 10


@dataclass(frozen=True, slots=True)
class RepositoryRules:
    """What the repository asks of whoever proposes a change.

    Attributes:
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


async def read_repository_rules(
    paths: Sequence[str], read: Callable[[str, int], Awaitable[bytes]], options: CycleOptions, model: str
) -> RepositoryRules:
    """Read the rules. What cannot be read is no rule.

    Args:
        paths: all files of the base.
        read: gives a file, at most so many bytes; raises `ToolError`.
        options: what a person decided.
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
    etiquette = read_etiquette(paths, texts).chosen(options.signoff, options.trailer)
    owners = next((path for path in _OWNERS if path in paths), None)
    return RepositoryRules(
        template=await text(find_template(list(paths))),
        etiquette=etiquette,
        trailers=etiquette.trailers(options.author_name, options.author_email, model),
        codeowners=await text(owners) or "",
        starts_no_checks=options.starts_no_checks,
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

    def text(self, fingerprint: str) -> str | None:
        """Its text; None where there is none.

        Args:
            fingerprint: `Forge.fingerprint`, as it is now.

        Raises:
            ForgeError: it could not be read.
        """
        if self._read is None or self._read[0] != fingerprint:
            self._read = fingerprint, self._forge.read_file(self._path)
        return self._read[1]

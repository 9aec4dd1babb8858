r"""File patterns, `.gitignore` rules, and a walk over the files that the rules leave.

A pattern has `*`, `?`, `[...]`, `{a,b}`, `**` and `\*`. It is matched name by name, so no pattern is slow.
"""

from __future__ import annotations

import fnmatch
import itertools
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pathspec
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    from orchestrator.engine.environments.files import ConfinedTree, Entry

_ANY_FOLDERS = "**"
_MAX_ALTERNATIVES = 100
_MAX_PATTERN_CHARS = 1_000
_SHOWN_CHARS = 100
_SPECIAL = "*?[]{}!,\\"
_STARS = re.compile(r"\*{2,}")
_PIECES = re.compile(r"\\.|\\|\[[!^]?\]?[^]]*\]|.", re.DOTALL)
"""What a pattern is read in: an escaped character, a lone backslash, a set, one other character."""


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A file pattern, ready to be matched.

    Attributes:
        alternatives: the pattern with its braces written out; each a sequence of names.
        negated: it began with `!`, and matches what the rest does not.
    """

    alternatives: tuple[tuple[str, ...], ...]
    negated: bool = False

    @classmethod
    def for_paths(cls, pattern: str) -> PathPattern:
        """A pattern of whole paths: `*.py` is in the folder itself, `**/*.py` at any depth.

        Raises:
            ToolError: it is empty, absolute, leaves the folder, has a bracket, a brace or a backslash with no
                meaning, or its braces are too many.
        """
        is_rooted = pattern.startswith("/")
        alternatives = [
            _names(alternative if is_rooted else alternative.removeprefix("/"), pattern)  # of `{,src}/a.py`
            for alternative in _expanded(pattern)
        ]
        return cls(_both(alternatives, pattern))

    @classmethod
    def for_filter(cls, pattern: str) -> PathPattern:
        """A filter as `ripgrep --glob` takes it: without `/` it is about names at any depth; `!` negates.

        Raises:
            ToolError: see `for_paths`.
        """
        negated = pattern.startswith("!")
        bare = pattern.removeprefix("!")
        alternatives = [
            _names(alternative.removeprefix("/"), pattern)
            if "/" in alternative
            else (_ANY_FOLDERS, alternative)
            for alternative in _expanded(bare)
        ]
        return cls(_both(alternatives, pattern), negated)

    def matches(self, names: Sequence[str]) -> bool:
        """Whether the path made of these names matches."""
        return any(_match(alternative, names) for alternative in self.alternatives) is not self.negated


def _names(pattern: str, original: str) -> tuple[str, ...]:
    names = tuple(name for name in pattern.split("/") if name not in {"", "."})
    if pattern.startswith("/") or ".." in names or not names:
        raise ToolError(
            f"the pattern {original[:_SHOWN_CHARS]!r} is not relative to the folder searched; write such as "
            "src/**/*.py"
        )
    return names


def _both(alternatives: Sequence[tuple[str, ...]], original: str) -> tuple[tuple[str, ...], ...]:
    """Each alternative in the words of `fnmatch`, and as it is written if it has a set: folders are named `[id]`."""
    meant = [tuple(_translated(name, original) for name in names) for names in alternatives]
    written = [
        tuple(_translated(name, original, sets=False) for name in names)
        for names in alternatives
        if any("[" in name for name in names)
    ]
    return tuple(dict.fromkeys([*meant, *written]))


def _translated(name: str, original: str, *, sets: bool = True) -> str:
    """One name of a pattern in the words of `fnmatch`, which knows no backslash.

    Raises:
        ToolError: a bracket is not closed, a range runs backwards, or a backslash escapes nothing.
    """
    if name == _ANY_FOLDERS:
        return name
    done = []
    for piece in _PIECES.findall(name):
        if piece == "[":
            raise _invalid(original, "'[' is not closed by ']'; for the character itself write [[]")
        if piece[0] == "\\":
            if piece[1:] not in _SPECIAL or len(piece) == 1:
                raise _invalid(
                    original, r"'\' only stands before one of * ? [ ] { } !; folders are parted by /"
                )
            done.append(f"[{piece[1]}]" if piece[1] in "*?[" else piece[1])
        elif len(piece) > 1:
            done.append(_set(piece, original) if sets else piece.replace("[", "[[]"))
        else:
            done.append(piece)
    return _STARS.sub("*", "".join(done))


def _set(piece: str, original: str) -> str:
    negated = piece[1] in "!^"
    inner = piece[2 if negated else 1 : -1]
    if not inner:
        raise _invalid(original, f"the set {piece} has no characters; for brackets themselves write [[]]")
    if any(first > last for first, last in re.findall(r"(.)-(.)", inner, re.DOTALL)):
        raise _invalid(original, f"the range in {piece} runs backwards")
    return f"[{'!' if negated else ''}{inner}]"


def _invalid(original: str, why: str) -> ToolError:
    return ToolError(f"the pattern {original[:_SHOWN_CHARS]!r} is not valid: {why}")


def _check_braces(pattern: str) -> None:
    depth = 0
    for piece in _PIECES.findall(pattern):
        depth += (piece == "{") - (piece == "}")
        if depth < 0:
            raise _invalid(pattern, "'}' closes no '{'; for the character itself write [}]")
    if depth:
        raise _invalid(pattern, "'{' is not closed by '}'; for the character itself write [{]")


def _expanded(pattern: str) -> list[str]:
    if not pattern.strip() or "\0" in pattern or len(pattern) > _MAX_PATTERN_CHARS:
        raise ToolError(
            f"the pattern is empty, over {_MAX_PATTERN_CHARS:,} characters long, or has a NUL character"
        )
    _check_braces(pattern)
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        if len(done) + len(waiting) > _MAX_ALTERNATIVES:
            raise ToolError(
                f"the pattern's braces stand for over {_MAX_ALTERNATIVES} patterns; ask in several calls"
            )
        current = waiting.pop()
        opened = _first_braces(current)
        if opened is None:
            done.append(current)
            continue
        start, end, choices = opened
        waiting += [current[:start] + choice + current[end:] for choice in reversed(choices)]
    return done


def _first_braces(pattern: str) -> tuple[int, int, list[str]] | None:
    """The first outermost `{...}` that has a comma: where it begins and ends, and its choices."""
    depth, start, position, cuts = 0, 0, 0, []
    for piece in _PIECES.findall(pattern):
        if piece == "{":
            if depth == 0:
                start, cuts = position, [position]
            depth += 1
        elif piece == "," and depth == 1:
            cuts.append(position)
        elif piece == "}":
            depth -= 1
            if depth == 0 and len(cuts) > 1:
                bounds = [*cuts, position]
                choices = [pattern[a + 1 : b] for a, b in itertools.pairwise(bounds)]
                return start, position + 1, choices
        position += len(piece)
    return None


def _match(pattern: Sequence[str], names: Sequence[str]) -> bool:
    """Match by columns: which prefixes of `names` the pattern so far can stand for."""
    reached = [True] + [False] * len(names)
    for part in pattern:
        if part == _ANY_FOLDERS:
            first = reached.index(True) if True in reached else len(reached)
            reached = [position >= first for position in range(len(reached))]
        else:
            reached = [False] + [
                before and fnmatch.fnmatchcase(name, part)
                for before, name in zip(reached, names, strict=False)
            ]
    return reached[-1]


_MAX_RULES_BYTES = 1_000_000
"""A longer `.gitignore` does not count."""


class IgnoreRules:
    """The rules of every `.gitignore` from the root down, as git applies them, without git.

    For one search: files are read once. Rules of the user, of the machine and of
    `.git/info/exclude` do not count, so that a repository gives the same answers everywhere.
    """

    def __init__(self, tree: ConfinedTree) -> None:
        self._tree = tree
        self._specs: dict[tuple[str, ...], pathspec.GitIgnoreSpec | None] = {}
        self._folders: dict[tuple[str, ...], bool] = {(): False}

    def ignored(self, names: tuple[str, ...], *, is_dir: bool) -> bool:
        """Whether the path, or a folder above it, is left out."""
        if not names:
            return False
        if self._folder_ignored(names[:-1]):
            return True
        return self._folder_ignored(names) if is_dir else self._decided(names, "")

    def _folder_ignored(self, names: tuple[str, ...]) -> bool:
        known = self._folders.get(names)
        if known is None:
            known = self._folder_ignored(names[:-1]) or self._decided(names, "/")
            self._folders[names] = known
        return known

    def _decided(self, names: tuple[str, ...], suffix: str) -> bool:
        """What the nearest file with a rule for this path says."""
        for depth in range(len(names) - 1, -1, -1):
            spec = self._spec(names[:depth])
            if spec is not None:
                verdict = spec.check_file("/".join(names[depth:]) + suffix).include
                if verdict is not None:
                    return verdict
        return False

    def _spec(self, folder: tuple[str, ...]) -> pathspec.GitIgnoreSpec | None:
        if folder not in self._specs:
            self._specs[folder] = None
            with suppress(ToolError):  # none there, a link, or too large: no rules
                content = self._tree.read_names((*folder, ".gitignore"), max_bytes=_MAX_RULES_BYTES)
                self._specs[folder] = _spec_of(content.decode("utf-8-sig", "replace").split("\n"))
        return self._specs[folder]


def _spec_of(lines: list[str]) -> pathspec.GitIgnoreSpec:
    import pathspec
    from pathspec.patterns.gitignore.base import GitIgnorePatternError

    rules: list[GitIgnoreSpecPattern] = []
    for line in lines:
        try:
            rules += pathspec.GitIgnoreSpec.from_lines([line.removesuffix("\r")]).patterns
        except GitIgnorePatternError:  # git passes over a line that is no pattern
            continue
    return pathspec.GitIgnoreSpec(rules)


def walk(
    tree: ConfinedTree, base: tuple[str, ...], rules: IgnoreRules | None
) -> Iterator[tuple[tuple[str, ...], Entry]]:
    """Regular files below the folder `base`, in the order of their paths; links and `.git` are left out.

    Args:
        rules: leave files out; None walks over all.

    Raises:
        ToolError: the folder to begin in cannot be read.
    """
    waiting = _below(tree, base)
    while waiting:
        names, entry = waiting.pop()
        if rules is not None and rules.ignored(names, is_dir=entry.is_dir):
            continue
        if entry.is_file:
            yield names, entry
        elif entry.is_dir:
            with suppress(ToolError):  # no permission, or removed meanwhile
                waiting += _below(tree, names)


def _below(tree: ConfinedTree, folder: tuple[str, ...]) -> list[tuple[tuple[str, ...], Entry]]:
    return [((*folder, entry.name), entry) for entry in reversed(tree.entries(folder))]

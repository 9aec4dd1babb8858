r"""File patterns, `.gitignore` rules, and a walk over the files that the rules do not exclude.

A pattern may contain `*`, `?`, `[...]`, `{a,b}`, `**` and `\*`. It is matched name by name, so no pattern is
slow.
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

    from orchestrator.core.confined import Entry
    from orchestrator.engine.environments.files import ConfinedTree

_ANY_FOLDERS = "**"
_MAX_ALTERNATIVES = 100
_MAX_PATTERN_CHARS = 1_000
_SHOWN_CHARS = 100
_SPECIAL = "*?[]{}!,\\"
_STARS = re.compile(r"\*{2,}")
_PIECES = re.compile(r"\\.|\\|\[[!^]?\]?[^]]*\]|.", re.DOTALL)
"""The pieces of a pattern: an escaped character, a lone backslash, a set, or one other character."""


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A parsed file pattern.

    Attributes:
        alternatives: the pattern with its braces expanded; each a sequence of names.
        negated: whether it began with `!` and matches everything that the rest does not.
    """

    alternatives: tuple[tuple[str, ...], ...]
    negated: bool = False

    @classmethod
    def for_paths(cls, pattern: str) -> PathPattern:
        """Parse a pattern of whole paths: `*.py` is in the folder itself, `**/*.py` at any depth.

        Raises:
            ToolError: the pattern is empty, absolute, leaves the folder, has a stray bracket, brace or
                backslash, or its braces expand to too many patterns.
        """
        is_rooted = pattern.startswith("/")
        alternatives = [
            # The alternative of `{,src}/a.py` without `src` begins with a slash.
            _names(alternative if is_rooted else alternative.removeprefix("/"), pattern)
            for alternative in _expanded(pattern)
        ]
        return cls(_variants(alternatives, pattern))

    @classmethod
    def for_filter(cls, pattern: str) -> PathPattern:
        """Parse a filter like that of `ripgrep --glob`: without `/` it matches names at any depth.

        A leading `!` negates it.

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
        return cls(_variants(alternatives, pattern), negated)

    def matches(self, names: Sequence[str]) -> bool:
        """Return whether the path made of these names matches."""
        return any(_match(alternative, names) for alternative in self.alternatives) is not self.negated


def _names(pattern: str, original: str) -> tuple[str, ...]:
    names = tuple(name for name in pattern.split("/") if name not in {"", "."})
    if pattern.startswith("/") or ".." in names or not names:
        raise ToolError(
            f"the pattern {original[:_SHOWN_CHARS]!r} is not relative to the searched folder; write for example "
            "src/**/*.py"
        )
    return names


def _variants(alternatives: Sequence[tuple[str, ...]], original: str) -> tuple[tuple[str, ...], ...]:
    """Return each alternative in `fnmatch` syntax, and also literally if it has a set: a folder may be named `[id]`."""
    matched = [tuple(_translated(name, original) for name in names) for names in alternatives]
    literal = [
        tuple(_translated(name, original, sets=False) for name in names)
        for names in alternatives
        if any("[" in name for name in names)
    ]
    return tuple(dict.fromkeys([*matched, *literal]))


def _translated(name: str, original: str, *, sets: bool = True) -> str:
    """Convert one name of a pattern to `fnmatch` syntax, which has no backslash escapes.

    Raises:
        ToolError: a bracket is not closed, a range is reversed, or a backslash escapes no special character.
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
                    original, r"'\' may only precede one of * ? [ ] { } !; write / between folders"
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
        raise _invalid(original, f"the range in {piece} is reversed")
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
                f"the pattern's braces expand to over {_MAX_ALTERNATIVES} patterns; use several calls"
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
    """Return the first outermost `{...}` with a comma: its start, its end and its choices."""
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
    """Match by columns: track which prefixes of `names` the pattern so far matches."""
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
"""The size limit of a `.gitignore`; a larger one is ignored."""


class IgnoreRules:
    """The rules of every `.gitignore` from the root down, as git applies them, without git.

    An object serves one search: it reads each file once. The rules of the user, of the machine and of
    `.git/info/exclude` are not applied, so that a repository gives the same answers everywhere.
    """

    def __init__(self, tree: ConfinedTree) -> None:
        self._tree = tree
        self._specs: dict[tuple[str, ...], pathspec.GitIgnoreSpec | None] = {}
        self._folders: dict[tuple[str, ...], bool] = {(): False}

    def ignored(self, names: tuple[str, ...], *, is_dir: bool) -> bool:
        """Return whether the path, or a folder above it, is excluded."""
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
        """Return the decision of the nearest `.gitignore` with a rule for this path."""
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
            with suppress(ToolError):  # missing, a link or too large: no rules
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
        except GitIgnorePatternError:  # git skips a line that is no pattern
            continue
    return pathspec.GitIgnoreSpec(rules)


def walk(
    tree: ConfinedTree, base: tuple[str, ...], rules: IgnoreRules | None
) -> Iterator[tuple[tuple[str, ...], Entry]]:
    """Yield regular files below the folder `base`, in the order of their paths, without links and `.git`.

    Args:
        rules: which files to leave out; None yields all.

    Raises:
        ToolError: the folder `base` cannot be read.
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

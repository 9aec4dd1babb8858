r"""File patterns, `.gitignore` rules, and a walk over the files that the rules do not exclude.

A pattern may contain `*`, `?`, `[...]`, `{a,b}`, `**` and `\*`. It is matched name by name, so no pattern is
slow.
"""

from __future__ import annotations

import fnmatch
import itertools
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from orchestrator.core.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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
    """Convert one name of a pattern to `fnmatch` syntax, which has no backslash escapes."""
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


MAX_RULES_BYTES = 1_000_000
"""The size limit of a `.gitignore`; a larger one is ignored."""

IGNORE_FILE = ".gitignore"
_MAX_RULES = 5_000
"""Most lines of one `.gitignore` that count: the first ones. Every path is compared with each of them."""

_MAX_RULE_BYTES = 4_096
"""The longest line that counts: no path is longer."""

_BOM = b"\xef\xbb\xbf"
_SPECIAL_BYTES = re.compile(rb"[*?\[\\]")
_BACKSLASH, _DASH, _CLOSING, _OPENING = b"\\-]["


class IgnoreRules:
    """The rules of every `.gitignore` from the root down, as git applies them, without git.

    An object serves one search: it reads each file once. The rules of the user, of the machine and of
    `.git/info/exclude` apply only where they are given, so that a repository gives the same answers everywhere.

    Args:
        read: returns the content of the `.gitignore` in a folder; empty if there is none.
        others: contents of further files with rules for the whole tree, the most important first.
    """

    def __init__(self, read: Callable[[tuple[str, ...]], bytes], others: Sequence[bytes] = ()) -> None:
        self._read = read
        self._others = tuple(map(_parsed, others))
        self._rules: dict[tuple[str, ...], tuple[_Rule, ...]] = {}
        self._folders: dict[tuple[str, ...], bool] = {(): False}

    @classmethod
    def of(cls, tree: ConfinedTree) -> Self:
        """Return the rules of a tree; a file that is a link, or over 1 MB, has none."""

        def read(folder: tuple[str, ...]) -> bytes:
            try:
                return tree.read_names((*folder, IGNORE_FILE), max_bytes=MAX_RULES_BYTES)
            except ToolError:
                return b""

        return cls(read)

    def ignored(self, names: tuple[str, ...], *, is_dir: bool) -> bool:
        """Return whether the path, or a folder above it, is excluded."""
        if not names:
            return False
        if self._folder_ignored(names[:-1]):
            return True
        return self._folder_ignored(names) if is_dir else self._decided(names, is_dir=False)

    def _folder_ignored(self, names: tuple[str, ...]) -> bool:
        depth = len(names)
        while names[:depth] not in self._folders:
            depth -= 1
        ignored = self._folders[names[:depth]]
        for end in range(depth + 1, len(names) + 1):
            ignored = ignored or self._decided(names[:end], is_dir=True)
            self._folders[names[:end]] = ignored
        return ignored

    def _decided(self, names: tuple[str, ...], *, is_dir: bool) -> bool:
        """Return the decision of the nearest file with a rule for this path."""
        path = b""
        for depth in range(len(names) - 1, -1, -1):
            path = os.fsencode(names[depth]) + (b"/" + path if path else b"")
            verdict = _verdict(self._rules_of(names[:depth]), path, is_dir=is_dir)
            if verdict is not None:
                return verdict
        verdicts = (_verdict(rules, path, is_dir=is_dir) for rules in self._others)
        return next((verdict for verdict in verdicts if verdict is not None), False)

    def _rules_of(self, folder: tuple[str, ...]) -> tuple[_Rule, ...]:
        if folder not in self._rules:
            self._rules[folder] = _parsed(self._read(folder))
        return self._rules[folder]


def path_test(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Return a test for paths of files: whether one is named, or in a folder that is, by patterns as in `.gitignore`."""
    content = "\n".join(patterns).encode("utf-8", "backslashreplace")
    rules = IgnoreRules(lambda folder: b"" if folder else content)
    return lambda path: rules.ignored(tuple(path.split("/")), is_dir=False)


def attribute_test(pattern: bytes) -> Callable[[bytes], bool] | None:
    """Return a function that tests whether a line of `.gitattributes` is about a file; None if it is about none."""
    rule = _rule_of(pattern) if len(pattern) <= _MAX_RULE_BYTES and not pattern.startswith(b"!") else None
    if rule is None or rule.for_folders:
        return None
    return lambda path: bool(rule.matches(path.rpartition(b"/")[2] if rule.by_name else path))


@dataclass(frozen=True, slots=True)
class _Rule:
    """A line of a `.gitignore`.

    Attributes:
        matches: tests a path relative to the file's folder, or the last name of a path.
        by_name: whether it tests the last name.
        for_folders: whether it counts for folders only.
        excludes: False for a line that begins with `!`.
    """

    matches: Callable[[bytes], object]
    by_name: bool
    for_folders: bool
    excludes: bool


def _verdict(rules: Sequence[_Rule], path: bytes, *, is_dir: bool) -> bool | None:
    """Return whether the path is excluded by the first of the rules that matches; None if none does."""
    name = path.rpartition(b"/")[2]
    for rule in rules:
        if (is_dir or not rule.for_folders) and rule.matches(name if rule.by_name else path):
            return rule.excludes
    return None


def _parsed(content: bytes) -> tuple[_Rule, ...]:
    """Return the rules of a file, the last first. Source: `add_patterns_from_buffer` in git's `dir.c`."""
    rules: list[_Rule] = []
    for line in content.removeprefix(_BOM).split(b"\n", _MAX_RULES)[:_MAX_RULES]:
        if line.startswith(b"#") or len(line) > _MAX_RULE_BYTES:
            continue
        rule = _rule_of(_without_spaces(line.removesuffix(b"\r").partition(b"\0")[0]))
        if rule is not None:
            rules.append(rule)
    return tuple(reversed(rules))


def _without_spaces(line: bytes) -> bytes:
    """Remove spaces at the end, except one that a backslash precedes."""
    stem = line.rstrip(b" ")
    backslashes = len(stem) - len(stem.rstrip(b"\\"))
    return line[: len(stem) + backslashes % 2]


def _rule_of(line: bytes) -> _Rule | None:
    """Return the rule of a line; None if the line is empty or can match nothing."""
    pattern = line.removeprefix(b"!")
    for_folders = pattern.endswith(b"/")
    pattern = pattern.removesuffix(b"/")
    by_name = b"/" not in pattern
    pattern = pattern.removeprefix(b"/")
    matches: Callable[[bytes], object] = pattern.__eq__
    if _SPECIAL_BYTES.search(pattern) is not None:
        expression = _expression(pattern)
        if expression is None:
            return None
        matches = re.compile(expression, re.DOTALL).fullmatch
    return _Rule(matches, by_name, for_folders, not line.startswith(b"!")) if pattern else None


_STAR, _FOLDERS, _ANYTHING = "*", "**/", "**"


def _expression(pattern: bytes) -> bytes | None:
    """Return a pattern of git as a regular expression; None if it can match nothing.

    Source: `dowild` in git's `wildmatch.c`. What stands between two stars is taken at the first place where it
    matches, which is never wrong: the next star takes any rest. So no such group is entered again, and the time
    is at most proportional to the product of both lengths.
    """
    special = _SPECIAL_BYTES.search(pattern)
    # Git compares what precedes the first special character before: so `a**/b` is `**/b` behind an `a`.
    begin = special.start() if special else len(pattern)
    tokens = _tokens(pattern, begin)
    if tokens is None:
        return None
    done, opener, segment = [re.escape(pattern[:begin])], "", list[bytes | str]()
    for token in (*tokens, None):
        if token is not None and token not in {_FOLDERS, _ANYTHING}:
            segment.append(token)
            continue
        skipped = {"": b"", _FOLDERS: b"(?:[^/]*/)*?", _ANYTHING: b".*?"}[opener]
        expression = skipped + _segment(segment)
        done.append(b"(?>%b)" % expression if token is not None else expression)
        opener, segment = str(token), []
    return b"".join(done)


def _segment(tokens: Sequence[bytes | str]) -> bytes:
    """Return the expression of a part of a pattern in which each star stays within one name."""
    names: list[list[bytes]] = [[b""]]
    for token in tokens:
        if token == b"/":
            names.append([b""])
        elif isinstance(token, bytes):
            names[-1][-1] += token
        else:
            names[-1].append(b"")
    done = []
    for first, *others in names:
        *middle, last = others or [b""]
        done.append(first + b"".join(b"(?>[^/]*?%b)" % piece for piece in middle))
        if others:
            done[-1] += b"[^/]*" + last
    return b"/".join(done)


def _tokens(pattern: bytes, begin: int) -> list[bytes | str] | None:
    """Return the stars of a pattern, and the expression of each other byte; None if it can match nothing."""
    tokens: list[bytes | str] = []
    position = begin
    while position < len(pattern):
        byte = pattern[position : position + 1]
        if byte == b"*":
            rest = pattern[position:].lstrip(b"*")
            end = len(pattern) - len(rest)
            is_whole = position == begin or pattern[position - 1 : position] == b"/"
            if end - position == 1 or not is_whole or not (not rest or rest.startswith((b"/", b"\\/"))):
                tokens.append(_STAR)
            else:
                tokens.append(_FOLDERS if rest.startswith(b"/") else _ANYTHING)
                end += rest.startswith(b"/")
            position = end
        elif byte == b"[":
            found = _byte_set(pattern, position)
            if found is None:
                return None
            token, position = found
            tokens.append(token)
        else:
            position += byte == b"\\"
            if position == len(pattern):
                return None
            tokens.append(b"[^/]" if byte == b"?" else _escaped(pattern[position]))
            position += 1
    return tokens


def _escaped(byte: int) -> bytes:
    return b"/" if byte == ord("/") else re.escape(bytes([byte]))


def _byte_set(pattern: bytes, start: int) -> tuple[bytes, int] | None:
    """Return the expression of the set `[...]` at a position, and where it ends; None if it is not complete."""
    is_negated = pattern[start + 1 : start + 2] in {b"!", b"^"}
    first = position = start + 1 + is_negated
    found: set[int] = set()
    before = 0
    while True:
        byte = _at(pattern, position)
        if byte == _CLOSING and position > first:
            break
        if byte == _BACKSLASH:
            position += 1
            byte = _at(pattern, position)
            found.add(byte)
        elif byte == _DASH and before and _at(pattern, position + 1) not in {0, _CLOSING}:
            position += 1
            position += _at(pattern, position) == _BACKSLASH
            found.update(range(before, _at(pattern, position) + 1))
            byte = 0 if _at(pattern, position) else -1
        elif byte == _OPENING and pattern[position + 1 : position + 2] == b":":
            end = pattern.find(b"]", position + 2)
            name = pattern[position + 2 : max(end - 1, 0)]
            if end > position + 2 and pattern[end - 1 : end] == b":":
                if name not in _CLASSES:
                    return None
                found.update(_CLASSES[name])
                byte, position = 0, end
            else:
                found.add(byte)
                byte = byte if end >= 0 else -1
        elif byte:
            found.add(byte)
        if byte < 0 or position >= len(pattern):
            return None
        before = byte
        position += 1
    chosen = (set(range(256)) - found if is_negated else found) - {ord("/")}
    expression = b"[%b]" % b"".join(b"\\x%02x" % byte for byte in sorted(chosen)) if chosen else b"(?!)"
    return expression, position + 1


def _at(pattern: bytes, position: int) -> int:
    """Return a byte of a pattern; 0 behind its end, as in C."""
    return pattern[position] if position < len(pattern) else 0


_DIGITS, _LOWER, _UPPER = (bytes(range(a, b + 1)) for a, b in ((48, 57), (97, 122), (65, 90)))
_GRAPHIC = bytes(range(33, 127))
_CLASSES = {
    b"alnum": _DIGITS + _LOWER + _UPPER,
    b"alpha": _LOWER + _UPPER,
    b"blank": b" \t",
    b"cntrl": bytes(range(32)) + b"\x7f",
    b"digit": _DIGITS,
    b"graph": _GRAPHIC,
    b"lower": _LOWER,
    b"print": b" " + _GRAPHIC,
    b"punct": bytes(byte for byte in _GRAPHIC if byte not in _DIGITS + _LOWER + _UPPER),
    b"space": b" \t\n\r",
    b"upper": _UPPER,
    b"xdigit": _DIGITS + b"abcdefABCDEF",
}
"""The classes of a set such as `[[:digit:]]`. Source: git's `ctype.c`."""


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

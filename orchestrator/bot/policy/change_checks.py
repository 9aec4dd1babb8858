"""What may not leave, or waits for a person: protected paths, too large a change, an added secret.

A file waits if a tool finds it by its name and, without being told, installs what it says, runs it at an
installation, a build, a test run, a commit or in an editor, or shows it to an agent: `protected.toml` and
`renovate.toml` hold the names. Source files do not wait, and tests with their `conftest.py` are source: to
write them is what is asked for. `more` adds what a repository thinks of otherwise, `allow` lets through.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.changes import LINK_MODE, SUBMODULE_MODE
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.git_names import folded_name, is_git_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pathspec import GitIgnoreSpec

    from orchestrator.core.changes import FileChange, FileVersion

_IN_GIT = "inside .git"
_LINK = "a symbolic link"
_DRIVE = re.compile(r"[A-Za-z]:")
_LONGEST_PATH = 4_096
"""Characters: no system opens a longer one, and the time of some patterns grows with its square."""
_RECIPE = re.compile(r"[A-Z][a-z]+file")
"""As tools call what they run: Makefile, Earthfile, Steepfile. There is a new one every year."""
_ENDINGS = (("yml", "yaml"), ("json", "jsonc", "json5"), ("js", "cjs", "mjs", "ts", "cts", "mts"))
_ANYWHERE = "(^|/)"


class PathPolicy:
    """Says why the change to a path waits for a person, or None.

    A name is compared as any file system would: letters of both cases are one, so are spellings of one
    letter, characters that are not seen are left out, and so are dots and spaces at the end. A change of
    the mode counts like one of the content.

    Args:
        allow: patterns as in `.gitignore`; what matches is let through, but nothing in a `.git` and no link
            that leaves the repository. Compared letter by letter. A link needs that its target is
            allowed, too. It stands above `more`: a person typed it.
        more: patterns as in `.gitignore` of what waits as well.

    Raises:
        ConfigurationError: a pattern matches nothing, or is none.
    """

    def __init__(self, allow: Sequence[str] = (), more: Sequence[str] = ()) -> None:
        self._allowed = _spec(allow)
        self._more = _spec(more)
        self._more_folded = _spec([folded_name(pattern) for pattern in more])

    def __call__(self, change: FileChange) -> str | None:
        """Why the change waits, in a few words."""
        versions = [version for version in (change.old, change.new) if version is not None]
        modes = {version.mode for version in versions}
        if len(change.path) > _LONGEST_PATH:
            return "a path that is too long"
        if any(is_git_name(name) for name in _names(change.path)):
            return _IN_GIT
        if change.new is not None and change.new.mode == LINK_MODE:
            reason = self._reason_against_link(change.path, change.new)
            if reason is not None:
                return reason
        if self._allows(change.path):
            return None
        if SUBMODULE_MODE in modes:
            return "a submodule"
        return self._reason(change.path, is_folder=LINK_MODE in modes)

    def _reason_against_link(self, path: str, version: FileVersion) -> str | None:
        if version.content is None:
            return f"{_LINK} with a target that is too long"
        target = os.fsdecode(version.content).replace("\\", "/")
        place = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if place.startswith(("/", "../")) or place == ".." or _DRIVE.match(target) or "\0" in target:
            return f"{_LINK} that leaves the repository"
        if any(is_git_name(name) for name in _names(place)):
            return f"{_LINK} into .git"
        if self._allows(place) or self._reason(place, is_folder=True) is None:
            return None
        return f"{_LINK} to a protected path"

    def _allows(self, path: str) -> bool:
        return self._allowed.match_file(path)

    def _reason(self, path: str, *, is_folder: bool) -> str | None:
        """Why a path is protected; `is_folder` where it may lead to a folder and not only to a file."""
        # A link in place of a folder brings all that would be in it.
        spellings = (path, f"{path}/_") if is_folder else (path,)
        reason = next((found for one in spellings if (found := _known().reason(one))), None)
        reason = reason or _reason_against_dots(
            [folded_name(name) for name in _names(path)], is_folder=is_folder
        )
        if reason is None and any(map(self._waits_here, spellings)):
            return "protected in this repository"
        return reason

    def _waits_here(self, path: str) -> bool:
        folded = "/".join(folded_name(name) for name in _names(path))
        return self._more.match_file(path) or self._more_folded.match_file(folded)


@dataclass(frozen=True, slots=True)
class _Known:
    """What `protected.toml` and `renovate.toml` say.

    Attributes:
        names: the reason for a file of this name.
        checks: for a reason, whether a whole path is meant; in order.
        harmless: the files that do not wait although their names begin with a dot.
    """

    names: Mapping[str, str]
    checks: Sequence[tuple[str, Callable[[str], object]]]
    harmless: frozenset[str]

    def reason(self, path: str) -> str | None:
        """Why a file waits because of its name or its place."""
        written = _names(path)
        folded = "/".join(map(folded_name, written))
        if reason := self.names.get(folded.rpartition("/")[2]):
            return reason
        # As it is written, too: what is left out of a name where it is folded may be what a pattern asks for.
        spellings = {folded, "/".join(written).lower()}
        for reason, check in self.checks:
            if any(map(check, spellings)):
                return reason
        return "run by a tool of that name" if _RECIPE.fullmatch(written[-1]) else None


@cache
def _known() -> _Known:
    import tomllib

    here = Path(__file__)
    tables = tomllib.loads(here.with_name("protected.toml").read_text(encoding="utf-8"))
    managers = tomllib.loads(here.with_name("renovate.toml").read_text(encoding="utf-8"))["managers"]
    harmless, left_out = tables.pop("harmless"), tables.pop("left_out")
    named = {manager for table in tables.values() for manager in table.get("managers", "").split()}
    rest = [manager for manager in managers if manager not in named | {*left_out}]
    names: dict[str, str] = {}
    checks: list[tuple[str, Callable[[str], object]]] = []
    for table in tables.values():
        reason = table["reason"]
        words = [one for word in table["files"].split() for one in _with_other_endings(word)]
        names |= {word: reason for word in words if _is_name(word)}
        checks.append(
            (reason, _spec([_in_any_folder(word) for word in words if not _is_name(word)]).match_file)
        )
        of = rest if table.get("managers") == "*" else table.get("managers", "").split()
        if of:
            checks.append((reason, _one_of([one for manager in of for one in managers[manager]]).search))
    return _Known(names, checks, frozenset(harmless["files"].split()))


def _with_other_endings(word: str) -> tuple[str, ...]:
    """A word as it is and with every ending that tools take for its own."""
    stem, dot, ending = word.rpartition(".")
    return next((tuple(f"{stem}{dot}{one}" for one in same) for same in _ENDINGS if ending in same), (word,))


def _is_name(word: str) -> bool:
    return "*" not in word and "/" not in word


def _in_any_folder(pattern: str) -> str:
    """A pattern with a slash in it would count from the root."""
    return re.sub(r"^(!?)(?=[^/!].*/)", r"\1**/", pattern)


def _one_of(expressions: Sequence[str]) -> re.Pattern[str]:
    """All of them in one, those that begin with a name apart: they are tried at the beginning of names only."""
    names = [one.removeprefix(_ANYWHERE) for one in expressions if one.startswith(_ANYWHERE)]
    others = [f"(?:{one})" for one in expressions if not one.startswith(_ANYWHERE)]
    return re.compile(
        "|".join((*([f"(?:^|/)(?:{'|'.join(names)})"] if names else []), *others)), re.IGNORECASE
    )


def _reason_against_dots(names: list[str], *, is_folder: bool) -> str | None:
    if any(name.startswith(".") for name in (names if is_folder else names[:-1])):
        return "in a folder whose name begins with a dot"
    if names[-1].startswith(".") and names[-1] not in _known().harmless:
        return "a file whose name begins with a dot"
    return None


def _spec(patterns: Sequence[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    try:
        spec = GitIgnoreSpec.from_lines(patterns)
    except ValueError as error:
        message = f"not a pattern for paths, as in .gitignore: {error}"
        raise ConfigurationError(message) from error
    # Empty lines are no patterns to it, comments are such that match nothing.
    found = iter(spec.patterns)
    for line in patterns:
        if not line or next(found).include is None:
            message = f"{line!r} matches no path; write a pattern as in .gitignore, such as docs/**"
            raise ConfigurationError(message)
    return spec


def _names(path: str) -> list[str]:
    """The names in a path. Windows takes a backslash for a slash."""
    return [name for name in path.replace("\\", "/").split("/") if name not in {"", "."}] or [""]


# Git calls a file binary if there is a NUL among so many bytes at its beginning.
_LOOKED_AT_BYTES = 8000


@dataclass(frozen=True, slots=True)
class ChangeLimits:
    """Says why a whole change is too large, or None.

    Lines are those that one version has more often than the other, wherever they are. That takes linear
    time and is never more than what `git diff` counts: lines that only moved inside their file count
    nothing. Bytes are those of these lines; of binary files, and of files that were too large to be read,
    they are all bytes of both versions.

    Attributes:
        files: changed paths at most; a renamed file is two.
        lines: added and removed lines at most.
        bytes: added and removed bytes at most.
    """

    files: int
    lines: int
    bytes: int

    def __call__(self, changes: Sequence[FileChange]) -> str | None:
        """One line for a person: what is too much, how much it is, and the flag that allows more."""
        measured = [_measure(change) for change in changes]
        found = (
            (len(changes), self.files, "changed files", "--max-files"),
            (sum(lines for lines, _ in measured), self.lines, "added and removed lines", "--max-lines"),
            (sum(size for _, size in measured), self.bytes, "added and removed bytes", "--max-bytes"),
        )
        too_much = [
            f"{count:,} {what}, at most {limit:,} are allowed ({flag})"
            for count, limit, what, flag in found
            if count > limit
        ]
        return f"the change is too large: {'; '.join(too_much)}" if too_much else None


def _measure(change: FileChange) -> tuple[int, int]:
    """Lines and bytes that differ."""
    versions = [version for version in (change.old, change.new) if version is not None]
    if len(versions) > 1 and _same(versions[0], versions[1]):
        return 0, 0
    if any(_is_unreadable(version) for version in versions):
        return 0, sum(version.size for version in versions)
    old, new = _lines(change.old), _lines(change.new)
    differing = (old - new) + (new - old)
    return differing.total(), sum((len(line) + 1) * count for line, count in differing.items())


def _same(old: FileVersion, new: FileVersion) -> bool:
    return old.content is not None and old.content == new.content


def _is_unreadable(version: FileVersion) -> bool:
    return version.content is None or b"\0" in version.content[:_LOOKED_AT_BYTES]


def _lines(version: FileVersion | None) -> Counter[bytes]:
    content = version.content if version is not None else None
    if not content:
        return Counter()
    return Counter(content.removesuffix(b"\n").split(b"\n"))


_MOST_PLACES = 5
_UNREADABLE = "the change"
_A_NAME = "the name of a file"

# https://git-scm.com/docs/diff-format#generate_patch_text_with_p
_HUNK = re.compile(r"@@ -[0-9]+(?:,([0-9]+))? \+([0-9]+)(?:,([0-9]+))? @@")
_NEW_NAME = ("rename to ", "copy to ", "new file mode ")
_HEADER = re.compile(
    r"diff --git |index |old mode |new mode |deleted file mode |new file mode |copy from |copy to |rename from |"
    r"rename to |similarity index |dissimilarity index |--- |\+\+\+ |Binary files |\\ |$"
)
# How programs write one text in two: "abc" + "def", also over a line's end.
_GLUE = re.compile(r"[\"'][ \t]{0,8}[+.,&\\]?[ \t]{0,8}(?:\r?\n)?[ \t]{0,80}[+.&]?[ \t]{0,8}[rbfu]?[\"']")
_LONGEST_ITEM_CHARS = 31
"""Of a text in a list that may be a part of a secret. A hash is longer, and a whole secret by itself is found."""


class _UnreadableError(ValueError):
    pass


@dataclass(slots=True)
class _File:
    """What a change adds to a file: the lines of each hunk with their numbers."""

    names: list[str]
    path: str = ""
    is_new: bool = False
    hunks: list[list[tuple[int, str]]] = field(default_factory=list)


def places_of_secrets(diff: str, holds_secret: Callable[[str], bool]) -> list[str]:
    """Where a unified diff adds something that looks like a secret, as `path:line`, at most five.

    What a file held before does not count: the repository has it already. Lines that were added
    to a file are also looked at together, because a key may take several, and texts that are
    written in parts are put together. Names that a change gives to files count, too. A diff that
    cannot be read is looked at as a whole.
    """
    places: list[str] = []
    try:
        for file in _files(diff):
            if file.is_new and holds_secret("\n".join(file.names)):
                places.append(_A_NAME)
            places += _places_in(file, holds_secret)
            if len(places) >= _MOST_PLACES:
                break
    except _UnreadableError:
        return [_UNREADABLE] if _holds(diff, holds_secret) else []
    return list(dict.fromkeys(places))[:_MOST_PLACES]


def _places_in(file: _File, holds_secret: Callable[[str], bool]) -> Iterator[str]:
    lines = [line for hunk in file.hunks for line in hunk]
    if not lines or not _holds("\n".join(text for _, text in lines), holds_secret):
        return
    path = _A_NAME if holds_secret(file.path) else file.path
    found = False
    for hunk in file.hunks:
        if hunk and _holds("\n".join(text for _, text in hunk), holds_secret):
            number = next((number for number, text in hunk if _holds(text, holds_secret)), hunk[0][0])
            yield f"{path}:{number}"
            found = True
    if not found:  # only together
        yield f"{path}:{lines[0][0]}"


def _holds(text: str, holds_secret: Callable[[str], bool]) -> bool:
    """Whether a text holds a secret as it is, as UTF-16, or in parts that a program would put together."""
    if holds_secret(text):
        return True
    plain = text.replace("\0", "")
    glued = _GLUE.sub(_joined, plain)
    return glued != text and holds_secret(glued)


def _joined(glue: re.Match[str]) -> str:
    """Remove the glue. Keep it after a long text with a comma, because a list of hashes is no secret."""
    if "," not in glue[0]:
        return ""
    before = glue.string[max(glue.start() - _LONGEST_ITEM_CHARS - 1, 0) : glue.start()]
    return "" if "'" in before or '"' in before else glue[0]


def _files(diff: str) -> Iterator[_File]:  # noqa: C901  a line of a diff is one of these
    """The files of a diff.

    Raises:
        _UnreadableError: a line is none that git writes, or a hunk has too few lines.
    """
    lines = iter(diff.split("\n"))
    file: _File | None = None
    for line in lines:
        if hunk := _HUNK.match(line):
            if file is None:
                raise _UnreadableError
            file.hunks.append(_added(lines, hunk))
        elif not _HEADER.match(line):
            raise _UnreadableError
        elif line.startswith("diff --git ") or (
            line.startswith("--- ") and (file is None or file.hunks or file.path)
        ):
            if file is not None:
                yield file
            file = _File([line])
        elif file is not None:
            file.is_new |= line.startswith(_NEW_NAME)
            if line.startswith(("+++ ", "rename to ", "copy to ")):
                file.names.append(line)
            if line.startswith("+++ "):
                file.path = _path(line[4:])
    if file is not None:
        yield file


def _path(name: str) -> str:
    name = name.removesuffix("\r").removesuffix("\t")
    if name.startswith('"') and name.endswith('"'):
        name = name[1:-1]
    return name.removeprefix("b/")


def _added(lines: Iterator[str], hunk: re.Match[str]) -> list[tuple[int, str]]:
    """The added lines of a hunk, counted as its head says: a line's text cannot end it."""
    old, new = (1 if count is None else int(count) for count in (hunk[1], hunk[3]))
    number = int(hunk[2])
    added = []
    while old > 0 or new > 0:
        line = next(lines, None)
        sign = line[:1] if line is not None else "?"
        if line is None or sign not in ("", " ", "+", "-", "\\"):
            raise _UnreadableError
        if sign == "+":
            added.append((number, line[1:]))
        if sign in ("", " ", "+"):
            number += 1
            new -= 1
        if sign in ("", " ", "-"):
            old -= 1
    if old < 0 or new < 0:
        raise _UnreadableError
    return added

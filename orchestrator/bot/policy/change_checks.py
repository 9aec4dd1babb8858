"""Checks a change before a push: protected paths, size, and added secrets.

A path is protected if a tool finds the file by its name, and then installs what it lists, runs it during an
installation, a build, a test run, a commit or in an editor, or shows it to an agent. `protected.toml` and
`renovate.toml` list the names. Source files and tests with their `conftest.py` are not protected, because it is the
bot's work to write them.
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
from orchestrator.core.repositories import folded_name, is_git_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pathspec import GitIgnoreSpec

    from orchestrator.core.changes import FileChange, FileVersion

_IN_GIT = "inside .git"
_LINK = "a symbolic link"
_DRIVE = re.compile(r"[A-Za-z]:")
_LONGEST_PATH = 4_096
"""In characters. No system opens a longer path, and the time of some patterns grows with its square."""
_RECIPE = re.compile(r"[A-Z][a-z]+file")
"""The naming scheme of files that tools run: Makefile, Earthfile, Steepfile. It covers unknown tools too."""
_ENDINGS = (("yml", "yaml"), ("json", "jsonc", "json5"), ("js", "cjs", "mjs", "ts", "cts", "mts"))
_ANYWHERE = "(^|/)"


class PathPolicy:
    """Decides whether the change to a path needs the approval of a person.

    Names are compared as the most tolerant file system would: case, equivalent spellings of a letter,
    invisible characters, and dots and spaces at the end make no difference. A change of the file mode counts
    like one of the content.

    Args:
        allow: patterns as in `.gitignore` of paths that need no approval, except those in a `.git` and links
            that leave the repository. They are compared exactly. The target of a link has to be allowed too.
            `allow` takes precedence over `more`, because a person wrote it.
        more: patterns as in `.gitignore` of further protected paths.

    Raises:
        ConfigurationError: a pattern is invalid or matches nothing.
    """

    def __init__(self, allow: Sequence[str] = (), more: Sequence[str] = ()) -> None:
        self._allowed = _spec(allow)
        self._patterns = _spec(more)
        self._folded_patterns = _spec([folded_name(pattern) for pattern in more])

    def admits(self, path: str) -> bool:
        """Return whether a person allowed a path, so that it is proposed even if `.gitignore` names it."""
        is_in_git = any(is_git_name(name) for name in _parts_of(path))
        return len(path) <= _LONGEST_PATH and not is_in_git and self._allowed.match_file(path)

    def __call__(self, change: FileChange) -> str | None:
        """Return why the change needs approval, in a few words; None if it does not."""
        versions = [version for version in (change.old, change.new) if version is not None]
        modes = {version.mode for version in versions}
        if len(change.path) > _LONGEST_PATH:
            return "a path that is too long"
        if any(is_git_name(name) for name in _parts_of(change.path)):
            return _IN_GIT
        if change.new is not None and change.new.mode == LINK_MODE:
            reason = self._reason_for_link(change.path, change.new)
            if reason is not None:
                return reason
        if self._allowed.match_file(change.path):
            return None
        if SUBMODULE_MODE in modes:
            return "a submodule"
        return self._reason(change.path, is_folder=LINK_MODE in modes)

    def _reason_for_link(self, path: str, version: FileVersion) -> str | None:
        if version.content is None:
            return f"{_LINK} with a target that is too long"
        target = os.fsdecode(version.content).replace("\\", "/")
        target_path = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        is_outside = target_path == ".." or target_path.startswith(("/", "../"))
        if is_outside or _DRIVE.match(target) or "\0" in target:
            return f"{_LINK} that leaves the repository"
        if any(is_git_name(name) for name in _parts_of(target_path)):
            return f"{_LINK} into .git"
        if self._allowed.match_file(target_path) or self._reason(target_path, is_folder=True) is None:
            return None
        return f"{_LINK} to a protected path"

    def _reason(self, path: str, *, is_folder: bool) -> str | None:
        """Return why a path is protected. `is_folder`: a link may put a folder with any content there."""
        paths = (path, f"{path}/_") if is_folder else (path,)
        written = [_parts_of(one) for one in paths]
        folded = [[folded_name(name) for name in names] for names in written]
        reason = next(filter(None, map(_rules().reason, written, folded)), None)
        reason = reason or _reason_for_dot(folded[0], is_folder=is_folder)
        if reason is None and any(map(self._matches_own_pattern, paths, folded)):
            return "protected in this repository"
        return reason

    def _matches_own_pattern(self, path: str, folded: Sequence[str]) -> bool:
        return self._patterns.match_file(path) or self._folded_patterns.match_file("/".join(folded))


@dataclass(frozen=True, slots=True)
class _Rules:
    """The rules of `protected.toml` and `renovate.toml`.

    Attributes:
        names: the reason for each file name.
        checks: for each reason, a check of a whole path; in order.
        harmless: files that are not protected although their names begin with a dot.
    """

    names: Mapping[str, str]
    checks: Sequence[tuple[str, Callable[[str], object]]]
    harmless: frozenset[str]

    def reason(self, written: Sequence[str], folded: Sequence[str]) -> str | None:
        """Return why a file is protected, judged by its name and folders, as they are written and folded."""
        whole = "/".join(folded)  # folding can add a `/`: of a fullwidth one
        if len(whole) > _MOST_PATH_CHARS:
            return "longer than the path of a file can be"
        if reason := self.names.get(whole.rpartition("/")[2]):
            return reason
        # The unfolded path too, because folding removes characters that a pattern may require.
        paths = {whole, "/".join(written).lower()}
        for reason, check in self.checks:
            if any(map(check, paths)):
                return reason
        return "run by a tool of that name" if _RECIPE.fullmatch(written[-1]) else None


@cache
def _rules() -> _Rules:
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
        files = [one for word in table["files"].split() for one in _with_other_endings(word)]
        patterns = [word for word in files if "*" in word or "/" in word]
        names |= {word: reason for word in files if word not in patterns}
        # A pattern with a slash would match from the root only.
        patterns = [re.sub(r"^(!?)(?=[^/!].*/)", r"\1**/", pattern) for pattern in patterns]
        checks.append((reason, _spec(patterns).match_file))
        listed = rest if table.get("managers") == "*" else table.get("managers", "").split()
        if listed:
            checks.append((reason, _any_of([one for manager in listed for one in managers[manager]]).search))
    return _Rules(names, checks, frozenset(harmless["files"].split()))


def _with_other_endings(word: str) -> tuple[str, ...]:
    """Return a file name with its own extension and with the others that tools accept in its place."""
    stem, dot, ending = word.rpartition(".")
    return next((tuple(f"{stem}{dot}{one}" for one in same) for same in _ENDINGS if ending in same), (word,))


def _any_of(expressions: Sequence[str]) -> re.Pattern[str]:
    """Join expressions into one. Those that begin with a name are tried at the beginning of names only."""
    names = [one.removeprefix(_ANYWHERE) for one in expressions if one.startswith(_ANYWHERE)]
    others = [f"(?:{one})" for one in expressions if not one.startswith(_ANYWHERE)]
    return re.compile(
        "|".join((*([f"(?:^|/)(?:{'|'.join(names)})"] if names else []), *others)), re.IGNORECASE
    )


def _reason_for_dot(names: list[str], *, is_folder: bool) -> str | None:
    if any(name.startswith(".") for name in (names if is_folder else names[:-1])):
        return "in a folder whose name begins with a dot"
    if names[-1].startswith(".") and names[-1] not in _rules().harmless:
        return "a file whose name begins with a dot"
    return None


def _spec(patterns: Sequence[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    try:
        spec = GitIgnoreSpec.from_lines(patterns)
    except ValueError as error:
        raise ConfigurationError(f"not a pattern for paths, as in .gitignore: {error}") from error
    # It skips empty lines, and makes a pattern that matches nothing of a comment.
    found = iter(spec.patterns)
    for line in patterns:
        if not line or next(found).include is None:
            raise ConfigurationError(
                f"{line!r} matches no path; write a pattern as in .gitignore, such as docs/**"
            )
    return spec


def _parts_of(path: str) -> list[str]:
    """Split a path into its names. A backslash separates them on Windows."""
    return [name for name in path.replace("\\", "/").split("/") if name not in {"", "."}] or [""]


# Git treats a file as binary if it has a NUL among this many bytes at its beginning.
_BINARY_CHECK_BYTES = 8000


@dataclass(frozen=True, slots=True)
class ChangeLimits:
    """Decides whether a whole change is too large.

    A line counts if one version has it more often than the other, wherever it is: moved lines do not count.
    The count takes linear time and never exceeds that of `git diff`. Bytes are those of these lines; for
    binary files, and for files too large to be read, they are all bytes of both versions.

    Attributes:
        files: most changed paths; a rename is two.
        lines: most added and removed lines.
        bytes: most added and removed bytes.
    """

    files: int
    lines: int
    bytes: int

    def __call__(self, changes: Sequence[FileChange]) -> str | None:
        """Return one line that says what is too large, its size, and the flag that allows more; None if nothing is."""
        measured = [_measure(change) for change in changes]
        found = (
            (len(changes), self.files, "changed files", "--max-files"),
            (sum(lines for lines, _ in measured), self.lines, "added and removed lines", "--max-lines"),
            (sum(size for _, size in measured), self.bytes, "added and removed bytes", "--max-bytes"),
        )
        excesses = [
            f"{count:,} {what}, at most {limit:,} are allowed ({flag})"
            for count, limit, what, flag in found
            if count > limit
        ]
        return f"the change is too large: {'; '.join(excesses)}" if excesses else None


def _measure(change: FileChange) -> tuple[int, int]:
    """Count the lines and bytes that differ."""
    versions = [version for version in (change.old, change.new) if version is not None]
    contents = [version.content for version in versions]
    if len(contents) > 1 and contents[0] is not None and contents[0] == contents[1]:
        return 0, 0
    if any(content is None or b"\0" in content[:_BINARY_CHECK_BYTES] for content in contents):
        return 0, sum(version.size for version in versions)
    old, new = _lines(change.old), _lines(change.new)
    differing = (old - new) + (new - old)
    return differing.total(), sum((len(line) + 1) * count for line, count in differing.items())


def _lines(version: FileVersion | None) -> Counter[bytes]:
    content = version.content if version is not None else None
    if not content:
        return Counter()
    return Counter(content.removesuffix(b"\n").split(b"\n"))


_MOST_PLACES = 5
_UNREADABLE = "the change"
_FILE_NAME = "the name of a file"

# https://git-scm.com/docs/diff-format#generate_patch_text_with_p
_HUNK = re.compile(r"@@ -[0-9]{1,9}(?:,([0-9]{1,9}))? \+([0-9]{1,9})(?:,([0-9]{1,9}))? @@")
_NEW_NAME = ("rename to ", "copy to ", "new file mode ")
_HEADER = re.compile(
    r"diff --git |index |old mode |new mode |deleted file mode |new file mode |copy from |copy to |rename from |"
    r"rename to |similarity index |dissimilarity index |--- |\+\+\+ |Binary files |\\ |$"
)
# Between two parts of one string in a program: "abc" + "def", also over a line's end.
_STRING_JOINT = re.compile(
    r"[\"'][ \t]{0,8}+[+.,&\\]?[ \t]{0,8}+(?:\r?\n)?[ \t]{0,80}+[+.&]?[ \t]{0,8}+[rbfu]?[\"']"
)
_MOST_PATH_CHARS = 4_096
_LONGEST_ITEM_CHARS = 31
"""Longest string in a list that may be a part of a secret. A hash is longer, and a complete secret is found anyway."""


class _UnreadableError(ValueError):
    pass


@dataclass(slots=True)
class _File:
    """The lines that a change adds to a file, by hunk, with their line numbers."""

    names: list[str]
    path: str = ""
    is_new: bool = False
    hunks: list[list[tuple[int, str]]] = field(default_factory=list)


def places_of_secrets(diff: str, contains_secret: Callable[[str], bool]) -> list[str]:
    """Return up to five places, as `path:line`, where a unified diff adds something that looks like a secret.

    Only added lines and the names of new files are searched. The added lines of a file are also searched
    together, because a key may span several. String parts that a program would join are joined. A diff that
    cannot be parsed is searched as a whole.
    """
    places: list[str] = []
    try:
        for file in _added_lines_by_file(diff):
            if file.is_new and contains_secret("\n".join(file.names)):
                places.append(_FILE_NAME)
            places += _places_in(file, contains_secret)
    except _UnreadableError:
        return [_UNREADABLE] if _contains_secret(diff, contains_secret) else []
    return list(dict.fromkeys(places))[:_MOST_PLACES]


def _places_in(file: _File, contains_secret: Callable[[str], bool]) -> Iterator[str]:
    lines = [line for hunk in file.hunks for line in hunk]
    if not lines or not _contains_secret("\n".join(text for _, text in lines), contains_secret):
        return
    path = _FILE_NAME if contains_secret(file.path) else file.path
    found = False
    for hunk in file.hunks:
        if hunk and _contains_secret("\n".join(text for _, text in hunk), contains_secret):
            number = next(
                (number for number, text in hunk if _contains_secret(text, contains_secret)), hunk[0][0]
            )
            yield f"{path}:{number}"
            found = True
    if not found:  # the secret spans several hunks
        yield f"{path}:{lines[0][0]}"


def _contains_secret(text: str, contains_secret: Callable[[str], bool]) -> bool:
    """Return whether a text contains a secret as it is, as UTF-16, or in string parts that a program would join."""
    if contains_secret(text):
        return True
    plain = text.replace("\0", "")
    joined = _STRING_JOINT.sub(_without_joint, plain)
    return joined != text and contains_secret(joined)


def _without_joint(joint: re.Match[str]) -> str:
    """Remove what separates two string parts, unless it is a comma after a long part, as in a list of hashes."""
    if "," not in joint[0]:
        return ""
    before = joint.string[max(joint.start() - _LONGEST_ITEM_CHARS - 1, 0) : joint.start()]
    return "" if "'" in before or '"' in before else joint[0]


def _added_lines_by_file(diff: str) -> Iterator[_File]:  # noqa: C901  a line of a diff is one of these
    """Yield the files of a diff."""
    lines = iter(diff.split("\n"))
    file: _File | None = None
    for line in lines:
        if hunk := _HUNK.match(line):
            if file is None:
                raise _UnreadableError
            file.hunks.append(_added_lines(lines, hunk))
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


def _added_lines(lines: Iterator[str], hunk: re.Match[str]) -> list[tuple[int, str]]:
    """Return the added lines of a hunk. The hunk's header gives their number, so no line can end it early."""
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

"""Parses patches, in the v4a format or as unified diffs: which files to add, remove, change and move.

v4a: Appendix A of the coding agent loop specification. Where that is silent, the `apply_patch` program of
https://github.com/openai/codex is followed. Unified diffs: https://git-scm.com/docs/diff-format, "Generating
patch text with -p", and the variants that models write from memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from orchestrator.core.errors import ToolError
from orchestrator.engine.tools.patches.hunks import Action, Chunk, FilePatch, PatchLine, missing_lines

_OPTION = r"-p[01]|-[Nuvs]|--(?:forward|verbose|quiet|silent|index|recount|unidiff-zero|whitespace=\w+)"
_PROGRAM = rf"(?:apply_?patch|patch|git\s+apply)(?:\s+(?:{_OPTION}))*(?:\s+-)?"
_MAX_HEREDOC_CHARS = 200
_HEREDOC = re.compile(
    rf"""(?:\$\s+)?(?:(?:/?\w+/)*(?:ba|z|da)?sh\s+(?:-\w+\s+)+(?P<shell>['"]))?
    (?:(?:{_PROGRAM}|cat)(?:\s+-(?=\s*<))?\s*|{_PROGRAM}\s+"?\$\(\s*cat\s*)?
    (?:>\s*[^\s<>|;&]+\s*)?
    <<(?P<tabs>-?)\s*(?P<quote>['"]?)\\?(?P<word>[\w.-]+)(?P=quote)
    \s*+(?:>\s*[^\s<>|;&]+|\|\s*{_PROGRAM}|;)?\s*""",
    re.VERBOSE,
)
"""Shell command lines that pass the lines up to a word to `apply_patch`."""
_CLOSING = re.compile(r"\)?['\"]?\)?['\"]?")
_FENCE = re.compile(r"(?P<ticks>`{3,}|~{3,})[\w.+-]*")


def unwrapped(patch: str) -> list[tuple[int, str]]:
    """Return the numbered lines of a patch without the code fence or heredoc around them.

    Numbers start at 1. A CR at the end of a line is dropped: the line ends are those of the file.
    """
    raw = patch.removeprefix("\ufeff").split("\n")
    lines = [(number, line.removesuffix("\r")) for number, line in enumerate(raw, 1)]
    first, last = _without_blank_ends(lines, 0, len(lines))
    drops_tabs = False
    while last - first > 1 and (inner := _inside(lines, first, last)) is not None:
        first, last = _without_blank_ends(lines, *inner[:2])
        drops_tabs |= inner[2]
    if drops_tabs:
        return [(number, line.lstrip("\t")) for number, line in lines[first:last]]
    return lines[first:last]


def _without_blank_ends(lines: list[tuple[int, str]], first: int, last: int) -> tuple[int, int]:
    """Return the range without blank lines before it and empty ones after it: a line with a space may be context."""
    while first < last and not lines[first][1].strip():
        first += 1
    while first < last and not lines[last - 1][1]:
        last -= 1
    return first, last


def _inside(lines: list[tuple[int, str]], first: int, last: int) -> tuple[int, int, bool] | None:
    """Return the range inside a code fence or heredoc, and whether its tabs are dropped; None if there is none."""
    opening, closing = lines[first][1].strip(), lines[last - 1][1].strip()
    if fence := _FENCE.fullmatch(opening):
        return (first + 1, last - 1, False) if closing == fence["ticks"] else None
    heredoc = _HEREDOC.fullmatch(opening) if len(opening) <= _MAX_HEREDOC_CHARS else None
    if heredoc is None:
        return None
    end = last - 1
    while end > first + 1 and _CLOSING.fullmatch(lines[end][1].strip()):
        end -= 1  # the end of a command around the heredoc may have its own line
    if not re.fullmatch(rf"{re.escape(heredoc['word'])}['\")]*", lines[end][1].strip()):
        return None
    return first + 1, end, bool(heredoc["tabs"])


_BEGIN = "*** Begin Patch"
_END = "*** End Patch"
_ADD = "*** Add File:"
_DELETE = "*** Delete File:"
_UPDATE = "*** Update File:"
_MOVE = "*** Move to:"
_END_OF_FILE = "*** End of File"


def parse_v4a(patch: str) -> tuple[FilePatch, ...]:
    """Parse a patch in the v4a format, without the code fence or heredoc around it."""
    lines = unwrapped(patch.rstrip())
    if not lines or lines[0][1].strip() != _BEGIN:
        raise ToolError(f"the patch must begin with the line {_BEGIN}, with nothing before it")
    if lines[-1][1].strip() != _END:
        raise ToolError(
            f"the patch must end with the line {_END}, with nothing after it; if it was cut off, send a shorter one"
        )
    reader = _Reader(lines[1:-1])
    changes = []
    while reader.skip_blank():
        changes.append(_v4a_change(reader))
    if not changes:
        raise ToolError(f"the patch is empty: between {_BEGIN} and {_END} it names no file")
    return tuple(changes)


class _Reader:
    """The lines of a patch that were not read yet."""

    def __init__(self, lines: list[tuple[int, str]]) -> None:
        self._lines = lines
        self._next = 0

    @property
    def number(self) -> int:
        """The next line's number in the patch; at the end, that of the last line."""
        return self._lines[min(self._next, len(self._lines) - 1)][0]

    def peek(self) -> str | None:
        """Return the next line without reading it; None at the end."""
        return self._lines[self._next][1] if self._next < len(self._lines) else None

    def take(self) -> str:
        """Read the next line, which must exist."""
        self._next += 1
        return self._lines[self._next - 1][1]

    def skip_blank(self) -> bool:
        """Skip blank lines. Return whether there is another line."""
        while (line := self.peek()) is not None and not line.strip():
            self._next += 1
        return line is not None

    def problem(self, words: str) -> ToolError:
        """Return an error about the next line."""
        return ToolError(f"line {self.number} of the patch {words}")


def _v4a_change(reader: _Reader) -> FilePatch:
    header = (reader.peek() or "").strip()
    begin = next((begin for begin in (_ADD, _DELETE, _UPDATE) if header.startswith(begin)), None)
    if begin is None:
        raise reader.problem(
            f"is {header[:_MAX_QUOTED_CHARS]!r}, where {_ADD}, {_DELETE} or {_UPDATE} is expected; in an added file "
            "every line begins with +"
        )
    path = header.removeprefix(begin).strip()
    if not path:
        raise reader.problem(f"names no file: write {begin} and its path")
    reader.take()
    if begin == _DELETE:
        return FilePatch(Action.REMOVE, path)
    return _added(reader, path) if begin == _ADD else _updated(reader, path)


def _added(reader: _Reader, path: str) -> FilePatch:
    lines = []
    while (line := reader.peek()) is not None and line.startswith("+"):
        lines.append(f"{reader.take()[1:]}\n")
    return FilePatch(Action.ADD, path, content="".join(lines))


def _updated(reader: _Reader, path: str) -> FilePatch:
    move_to = None
    if (line := reader.peek()) is not None and line.strip().startswith(_MOVE):
        move_to = line.strip().removeprefix(_MOVE).strip()
        if not move_to:
            raise reader.problem(f"names no file: write {_MOVE} and the new path")
        reader.take()
    chunks: list[Chunk] = []
    while reader.skip_blank() and not (reader.peek() or "").startswith("***"):
        chunks.append(_chunk(reader, first=not chunks))
    if not chunks and move_to is None:
        raise reader.problem(f"leaves {path} without a hunk: an update needs one, or a line {_MOVE}")
    return FilePatch(Action.UPDATE, path, tuple(chunks), move_to=move_to)


def _chunk(reader: _Reader, *, first: bool) -> Chunk:
    begins = reader.number
    anchors = _anchors(reader)
    if anchors is None and not first:
        raise reader.problem("is outside any hunk: begin a hunk with @@")
    lines: list[PatchLine] = []
    empty: list[PatchLine] = []  # lines that have not even a mark
    while (line := reader.peek()) is not None and not line.startswith(("@@", "***")):
        if line[:1] not in {" ", "+", "-", ""}:
            raise reader.problem(
                f"is {line[:_MAX_QUOTED_CHARS]!r}: a hunk is @@ and lines that begin with a space (it stays), - or +"
            )
        reader.take()
        lines.append(PatchLine(line[:1] or " ", line[1:]))
        empty += [lines[-1]] if not line else []
    lines = _without_empty(lines, empty)
    if not lines:
        raise reader.problem("is where the lines of a hunk are expected: the hunk above it is empty")
    at_end = (reader.peek() or "").rstrip() == _END_OF_FILE
    if at_end:
        reader.take()
    return Chunk(tuple(lines), begins, anchors or (), at_end)


def _without_empty(lines: list[PatchLine], empty: list[PatchLine]) -> list[PatchLine]:
    """Return the lines of a hunk, treating empty lines without a mark as new if all other lines are new.

    Such a hunk names no place in the file. Empty lines before and after the new lines only separate hunks,
    and are dropped.
    """
    if len(empty) != sum(line.mark != "+" for line in lines):
        return lines
    marked = [at for at, line in enumerate(lines) if line.mark == "+"]
    if not marked:
        return lines
    return [PatchLine("+", line.text) for line in lines[marked[0] : marked[-1] + 1]]


def _anchors(reader: _Reader) -> tuple[str, ...] | None:
    """Return the texts of the `@@` lines without blank ones; None if there is no such line."""
    found = []
    begun = False
    while (line := reader.peek()) is not None and line.startswith("@@"):
        begun = True
        if line[2:3] not in {"", " ", "\t"}:
            raise reader.problem("has @@ without a space after it")
        found.append(reader.take()[3:])
    return tuple(anchor for anchor in found if anchor.strip()) if begun else None


NOWHERE = "/dev/null"
"""Stands for the side on which the file does not exist."""

_TIME_STAMP = re.compile(r"(?<!\s)\s+\d{4}-\d\d-\d\d[ T]\d\d:\d\d.*")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_LETTERS = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_PREFIXES = {"a/", "b/", "c/", "i/", "o/", "w/"}
"""Prefixes that git puts before paths: https://git-scm.com/docs/diff-config, `diff.mnemonicPrefix`."""


def header_path(text: str) -> str:
    """Return the path after `--- ` or `+++ `, or after `rename from `."""
    text = text.strip(" ")
    if quoted := _QUOTED.match(text):
        return _unquoted(quoted.group())
    return _TIME_STAMP.sub("", text.split("\t")[0]).strip()


def paths_of_git_line(text: str) -> tuple[str, str]:
    """Return the two paths after `diff --git `; empty if blanks in them make it ambiguous."""
    text = text.strip()
    if quoted := _QUOTED.match(text):
        return _unquoted(quoted.group()), header_path(text[quoted.end() :])
    middle = len(text) // 2
    if text[middle : middle + 1] == " " and text[:middle][2:] == text[middle + 1 :][2:]:
        return text[:middle], text[middle + 1 :]
    old, _, new = text.partition(" ")
    return ("", "") if not new or " " in new else (old, new)


def without_prefixes(old: str, new: str) -> tuple[str | None, str | None]:
    """Return both paths as they are in the repository; None for the side that does not exist."""
    if NOWHERE in (old, new):
        return (
            None if old == NOWHERE else old.removeprefix("a/"),
            None if new == NOWHERE else new.removeprefix("b/"),
        )
    if (old[:2], new[:2]) == ("a/", "b/"):
        return old[2:], new[2:]
    if old[2:] == new[2:] and old[:2] != new[:2] and {old[:2], new[:2]} <= _PREFIXES:
        return old[2:], new[2:]
    if old == f"a/{new}":
        return new, new
    if new == f"b/{old}":
        return old, old
    return old, new


def _unquoted(text: str) -> str:
    """Undo git's C-style quoting of a path: https://git-scm.com/docs/git-config, `core.quotePath`."""

    def plain(escape: re.Match[bytes]) -> bytes:
        code = escape[1]
        return bytes([int(code, 8) & 0xFF]) if len(code) > 1 else _LETTERS.get(code, code)

    return _ESCAPE.sub(plain, text[1:-1].encode("utf-8", "surrogatepass")).decode(errors="replace")


_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_SURE_HEADER = re.compile(r'--- (?:"?a/|/dev/null)')
_VERSION = re.compile(r"\d+\.\d+")
_SIGNATURE = {"-- ", "--"}
_MARKS = {" ", "+", "-"}
_MAX_QUOTED_CHARS = 120


@dataclass(slots=True)
class DiffFile:
    """A file of a diff, with its paths as spelled.

    Attributes:
        number: number of the line of the patch where it begins.
        old: old path; empty if unknown.
        new: new path; empty if unknown.
        has_only_git_line: whether a `diff --git` line began it, and no `---` and `+++` lines or hunk followed yet.
        header: the lines before the first hunk that name no file.
        unplaced: line of a hunk that counts old lines but has none.
    """

    number: int
    old: str = ""
    new: str = ""
    has_only_git_line: bool = False
    header: list[str] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    unplaced: int | None = None


class DiffReader:
    """Reads numbered lines, as `unwrapped` returns them."""

    def __init__(self, lines: list[tuple[int, str]]) -> None:
        self._numbers = [number for number, _ in lines]
        self._lines = [line for _, line in lines]
        self._next = 0
        self._after_blank = 0  # the line after the empty ones examined last
        self._files: list[DiffFile] = []

    def files(self) -> list[DiffFile]:
        """Return all files, in order, without text between them; raise `ToolError` for lines outside any hunk."""
        while self._next < len(self._lines):
            self._read(self._lines[self._next])
        return self._files

    def _read(self, line: str) -> None:
        """Process the next line, the next two lines that name a file, or the next hunk."""
        file = self._files[-1] if self._files else None
        number = self._numbers[self._next]
        if line.startswith("diff --git "):
            paths = paths_of_git_line(line.removeprefix("diff --git "))
            self._files.append(DiffFile(number, *paths, has_only_git_line=True))
        elif self._is_pair(self._next):
            self._name(file, number)
        elif file is not None and line.startswith("@@"):
            file.has_only_git_line = False
            file.chunks.append(self._hunk(file))
            return
        elif line.startswith("@@"):
            raise self._problem("is a hunk of no file: write --- a/file and +++ b/file above it")
        elif file is not None and line[:1] in {"+", "-"} and line not in _SIGNATURE:
            raise self._problem("is outside any hunk: begin a hunk with @@")
        elif file is not None and not file.chunks:
            file.header.append(line)
        self._next += 1

    def _name(self, file: DiffFile | None, number: int) -> None:
        old, new = (header_path(line[4:]) for line in self._lines[self._next : self._next + 2])
        if file is None or not file.has_only_git_line or not _fits_git_line(file, old, new):
            file = DiffFile(number)
            self._files.append(file)
        file.old, file.new, file.has_only_git_line = old, new, False
        self._next += 1

    def _hunk(self, file: DiffFile) -> Chunk:
        begins = self._numbers[self._next]
        numbers = _HUNK.match(self._lines[self._next])
        counts = [int(numbers[group] or 1) for group in (2, 4)] if numbers else [0, 0]
        self._next += 1
        lines, without_end, (old_left, new_left) = self._hunk_lines(*counts)
        if not lines:
            raise ToolError(f"line {begins} of the patch begins a hunk without lines")
        has_old = any(line.mark != "+" for line in lines)
        if counts[0] and not has_old:
            file.unplaced = file.unplaced or begins
        if old_left != new_left and max(old_left, new_left) > 0:
            raise ToolError(f"the hunk at line {begins} of the patch: {missing_lines(old_left, new_left)}")
        above = None
        if numbers:  # the number is that of the first old line, or of the line above a hunk without any
            above = max(0, int(numbers[1]) - 1) if has_old else int(numbers[1])
        return Chunk(
            tuple(lines),
            begins,
            expected=above,
            final_newline=None if not without_end else "new" not in without_end,
            missing=max(0, old_left),
        )

    def _hunk_lines(self, old_left: int, new_left: int) -> tuple[list[PatchLine], set[str], tuple[int, int]]:
        """Return the lines of a hunk, the sides without a final line end, and the counts of missing lines.

        The sides are `old` and `new`. Empty lines at its end that the header counts are left out and count as
        missing: they may be kept lines, or no lines at all.
        """
        lines: list[PatchLine] = []
        without_end: set[str] = set()
        empty = 0  # lines at the end of `lines` that have not even a mark
        while self._next < len(self._lines):
            line = self._lines[self._next]
            mark = line[:1] or " "
            if mark == "\\" and lines:
                without_end |= {"old", "new"} - {{"+": "old", "-": "new"}.get(lines[-1].mark, "")}
            elif mark not in _MARKS or self._is_after_hunk(line, old_left, new_left):
                break
            else:
                lines.append(PatchLine(mark, line[1:]))
                empty = 0 if line else empty + 1
                old_left -= mark != "+"
                new_left -= mark != "-"
            self._next += 1
        if empty:
            del lines[-empty:]
        return lines, without_end, (old_left + empty, new_left + empty)

    def _is_after_hunk(self, line: str, old_left: int, new_left: int) -> bool:
        """Return whether the next line is after the hunk, although it looks like a line of it."""
        done = old_left <= 0 or new_left <= 0 if not line else old_left <= 0 and new_left <= 0
        if self._is_pair(self._next):
            following = self._following(2)
            if following is not None and following[:1] in _MARKS | {"", "\\"}:
                return False  # the names of a file are followed by a hunk
            if (old_left, new_left) == (1, 1):
                return _SURE_HEADER.match(line) is not None
            return True
        if line in _SIGNATURE and done:
            return _VERSION.match(self._following(1) or "") is not None
        return not line and done and not self._goes_on()

    def _goes_on(self) -> bool:
        """Return whether lines of the hunk follow these empty lines."""
        at = max(self._next, self._after_blank)
        while at < len(self._lines) and not self._lines[at]:
            at += 1
        self._after_blank = at
        return at < len(self._lines) and self._lines[at][:1] in _MARKS and not self._is_pair(at)

    def _following(self, distance: int) -> str | None:
        at = self._next + distance
        return self._lines[at] if at < len(self._lines) else None

    def _is_pair(self, at: int) -> bool:
        """Return whether two lines that may name a file begin here."""
        pair = self._lines[at : at + 2]
        return len(pair) == 2 and pair[0].startswith("--- ") and pair[1].startswith("+++ ")  # noqa: PLR2004  a pair

    def _problem(self, words: str) -> ToolError:
        quoted = self._lines[self._next][:_MAX_QUOTED_CHARS]
        return ToolError(f"line {self._numbers[self._next]} of the patch, {quoted!r}, {words}")


def _fits_git_line(file: DiffFile, old: str, new: str) -> bool:
    """Return whether a file with this `diff --git` line can have these paths."""
    renames = (line.partition(" ")[2].partition(" ")[2] for line in file.header if line.startswith("rename "))
    known = {*without_prefixes(file.old, file.new), *map(header_path, renames)} - {None, ""}
    return not known or not known.isdisjoint(without_prefixes(old, new))


_PLAIN_MODE = "100644"
_OTHER_KINDS = {"120000": "a symbolic link", "160000": "a submodule"}
_REFUSED = {
    "copy from ": "it copies a file, which is not supported: add the new file with its text",
    "GIT binary patch": "it is a binary patch, which is not supported",
    "Binary files ": "binary files have no lines to patch",
    "old mode ": "a patch changes no file mode: use chmod, and leave these lines out",
}


def parse_unified(patch: str) -> tuple[FilePatch, ...]:
    """Parse a diff of one or more files. A code fence around it, and text between the files, is left out."""
    files = DiffReader(unwrapped(patch)).files()
    if not files and "*** Begin Patch" in patch:
        raise ToolError(
            "the patch must be a unified diff (--- a/file, +++ b/file, @@), not a *** Begin Patch"
        )
    if not files:
        raise ToolError(
            "the patch names no file: a unified diff begins with --- a/file and +++ b/file, then @@"
        )
    return tuple(_change(file) for file in files)


def _change(file: DiffFile) -> FilePatch:
    for begin, words in _REFUSED.items():
        if any(line.startswith(begin) for line in file.header):
            raise _problem(file, words)
    for word in ("new file mode ", "deleted file mode ", "index "):
        if kind := _OTHER_KINDS.get(_mode(file, word)):
            raise _problem(file, f"it is about {kind}, which is not supported")
    old, new = without_prefixes(file.old, file.new)
    if _after(file, "new file mode ") is not None or old is None:
        return _addition(file, new)
    if _after(file, "deleted file mode ") is not None or new is None:
        return FilePatch(Action.REMOVE, _required_path(file, old), tuple(file.chunks))
    return _update(file, old, new)


def _addition(file: DiffFile, path: str | None) -> FilePatch:
    lines = [line for chunk in file.chunks for line in chunk.lines]
    if any(line.mark != "+" for line in lines):
        raise _problem(file, "it adds a file, so every line of its hunk must begin with +")
    if missing := max((chunk.missing for chunk in file.chunks), default=0):
        raise _problem(file, missing_lines(missing, missing))
    mode = _mode(file, "new file mode ")
    remark = f"its mode was not set to {mode}: use chmod" if mode not in {"", _PLAIN_MODE} else ""
    return FilePatch(Action.ADD, _required_path(file, path), content=_new_text(file.chunks), remark=remark)


def _update(file: DiffFile, old: str, new: str) -> FilePatch:
    old = header_path(_after(file, "rename from ") or "") or old
    new = header_path(_after(file, "rename to ") or "") or new
    moves = new != old
    if not file.chunks and not moves:
        raise _problem(file, f"it has no hunk for {old}: write @@ and the lines that change")
    if file.unplaced is not None:
        raise ToolError(
            f"the hunk at line {file.unplaced} of the patch has only new lines: give lines of the file above and below them"
        )
    may_create = not moves and not any(chunk.old for chunk in file.chunks)
    return FilePatch(
        Action.UPDATE,
        _required_path(file, old),
        tuple(file.chunks),
        content=_new_text(file.chunks) if may_create else "",
        move_to=_required_path(file, new) if moves else None,
        may_create=may_create,
    )


def _new_text(chunks: list[Chunk]) -> str:
    text = "".join(f"{line}\n" for chunk in chunks for line in chunk.new)
    return text.removesuffix("\n") if chunks and chunks[-1].final_newline is False else text


def _required_path(file: DiffFile, path: str | None) -> str:
    if not path:
        raise _problem(file, "it names no file")
    return path


def _after(file: DiffFile, begin: str) -> str | None:
    """Return the text after these words in the header, or None if they are missing."""
    return next((line.removeprefix(begin).strip() for line in file.header if line.startswith(begin)), None)


def _mode(file: DiffFile, begin: str) -> str:
    """Return the file mode at the end of a header line, or an empty text; `index` has one only if it stays."""
    words = (_after(file, begin) or "").split()
    last = words[-1] if words else ""
    return last if len(last) == len(_PLAIN_MODE) and last.isdigit() else ""


def _problem(file: DiffFile, words: str) -> ToolError:
    return ToolError(f"the file at line {file.number} of the patch: {words}")

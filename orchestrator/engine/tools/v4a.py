"""Reads a patch in the v4a format, which lies between `*** Begin Patch` and `*** End Patch`.

The format: Appendix A of the coding agent loop specification; where that is silent, as the
`apply_patch` program of https://github.com/openai/codex behaves.
"""

from __future__ import annotations

from orchestrator.core.errors import ToolError
from orchestrator.engine.tools.changes import Action, Chunk, FileChange, Line, unwrapped

_BEGIN = "*** Begin Patch"
_END = "*** End Patch"
_ADD = "*** Add File:"
_DELETE = "*** Delete File:"
_UPDATE = "*** Update File:"
_MOVE = "*** Move to:"
_END_OF_FILE = "*** End of File"
_MAX_QUOTED_CHARS = 120


def parse_v4a(patch: str) -> tuple[FileChange, ...]:
    """Read a patch. A code fence or a heredoc around it is taken off.

    Raises:
        ToolError: it is not of this format; the message names the line.
    """
    lines = unwrapped(patch.rstrip())
    if not lines or lines[0][1].strip() != _BEGIN:
        raise ToolError(f"the patch must begin with the line {_BEGIN}, with nothing before it")
    if lines[-1][1].strip() != _END:
        raise ToolError(
            f"the patch must end with the line {_END}, with nothing behind it; if it was cut off, send a shorter one"
        )
    reader = _Reader(lines[1:-1])
    changes = []
    while reader.skip_blank():
        changes.append(_change(reader))
    if not changes:
        raise ToolError(f"the patch is empty: between {_BEGIN} and {_END} it names no file")
    return tuple(changes)


class _Reader:
    """The lines that are not yet read."""

    def __init__(self, lines: list[tuple[int, str]]) -> None:
        self._lines = lines
        self._next = 0

    @property
    def number(self) -> int:
        """The next line's number in the patch; where none is left, the last one's."""
        return self._lines[min(self._next, len(self._lines) - 1)][0]

    def peek(self) -> str | None:
        """The next line, None at the end."""
        return self._lines[self._next][1] if self._next < len(self._lines) else None

    def take(self) -> str:
        """The next line, which is there."""
        self._next += 1
        return self._lines[self._next - 1][1]

    def skip_blank(self) -> bool:
        """Go to the next line that is not blank; whether there is one."""
        while (line := self.peek()) is not None and not line.strip():
            self._next += 1
        return line is not None

    def problem(self, words: str) -> ToolError:
        """An error at the next line."""
        return ToolError(f"line {self.number} of the patch {words}")


def _change(reader: _Reader) -> FileChange:
    header = (reader.peek() or "").strip()
    for begin, read in ((_ADD, _added), (_DELETE, _deleted), (_UPDATE, _updated)):
        if header.startswith(begin):
            path = header.removeprefix(begin).strip()
            if not path:
                raise reader.problem(f"names no file: write {begin} and its path")
            reader.take()
            return read(reader, path)
    quoted = header[:_MAX_QUOTED_CHARS]
    raise reader.problem(
        f"is {quoted!r}, where {_ADD}, {_DELETE} or {_UPDATE} is expected; in an added file every line begins with +"
    )


def _added(reader: _Reader, path: str) -> FileChange:
    lines = []
    while (line := reader.peek()) is not None and line.startswith("+"):
        lines.append(f"{reader.take()[1:]}\n")
    return FileChange(Action.ADD, path, content="".join(lines))


def _deleted(_reader: _Reader, path: str) -> FileChange:
    return FileChange(Action.REMOVE, path)


def _updated(reader: _Reader, path: str) -> FileChange:
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
    return FileChange(Action.UPDATE, path, tuple(chunks), move_to=move_to)


def _chunk(reader: _Reader, *, first: bool) -> Chunk:
    begins = reader.number
    anchors = _anchors(reader)
    if anchors is None and not first:
        raise reader.problem("is outside any hunk: begin a hunk with @@")
    lines: list[Line] = []
    empty: list[Line] = []  # those that have not even a mark
    while (line := reader.peek()) is not None and not line.startswith(("@@", "***")):
        if line[:1] not in {" ", "+", "-", ""}:
            raise reader.problem(
                f"is {line[:_MAX_QUOTED_CHARS]!r}: a hunk is @@ and lines that begin with a space (it stays), - or +"
            )
        reader.take()
        lines.append(Line(line[:1] or " ", line[1:]))
        empty += [lines[-1]] if not line else []
    lines = _without_empty(lines, empty)
    if not lines:
        raise reader.problem("is where the lines of a hunk are expected: the hunk above it is empty")
    at_end = (reader.peek() or "").rstrip() == _END_OF_FILE
    if at_end:
        reader.take()
    return Chunk(tuple(lines), begins, anchors or (), at_end)


def _without_empty(lines: list[Line], empty: list[Line]) -> list[Line]:
    """The lines of a hunk. Where all are new but for empty ones without a mark, these name no place in the file.

    Between new lines they are new, too; before and behind them they only part hunks.
    """
    if len(empty) != sum(line.mark != "+" for line in lines):
        return lines
    marked = [at for at, line in enumerate(lines) if line.mark == "+"]
    if not marked:
        return lines
    return [Line("+", line.text) for line in lines[marked[0] : marked[-1] + 1]]


def _anchors(reader: _Reader) -> tuple[str, ...] | None:
    """The texts of the `@@` lines, blank ones left out; None if there is no such line."""
    found = []
    begun = False
    while (line := reader.peek()) is not None and line.startswith("@@"):
        begun = True
        if line[2:3] not in {"", " ", "\t"}:
            raise reader.problem("has @@ without a space behind it")
        found.append(reader.take()[3:])
    return tuple(anchor for anchor in found if anchor.strip()) if begun else None

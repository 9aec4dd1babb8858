"""Understands a unified diff, as `git diff` and `diff -u` write it and as models write it from memory.

The format: https://git-scm.com/docs/diff-format, "Generating patch text with -p".
"""

from __future__ import annotations

from orchestrator.core.errors import ToolError
from orchestrator.engine.tools.changes import Action, Chunk, FileChange, promise_broken, unwrapped
from orchestrator.engine.tools.diffpaths import header_path, without_prefixes
from orchestrator.engine.tools.diffreader import DiffFile, DiffReader

_PLAIN_MODE = "100644"
_OTHER_KINDS = {"120000": "a symbolic link", "160000": "a submodule"}
_REFUSED = {
    "copy from ": "it copies a file, which is not supported: add the new file with its text",
    "GIT binary patch": "it is a binary patch, which is not supported",
    "Binary files ": "binary files have no lines to patch",
    "old mode ": "a patch changes no file mode: use chmod, and leave these lines out",
}


def parse_unified(patch: str) -> tuple[FileChange, ...]:
    """Read a diff of one or more files. A code fence around it, and text between the files, is left out.

    Raises:
        ToolError: it is not of this format, or asks for what is not supported.
    """
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


def _change(file: DiffFile) -> FileChange:
    for begin, words in _REFUSED.items():
        if any(line.startswith(begin) for line in file.header):
            raise _problem(file, words)
    modes = [
        mode for word in ("new file mode ", "deleted file mode ", "index ") if (mode := _mode(file, word))
    ]
    for mode in modes:
        if mode in _OTHER_KINDS:
            raise _problem(file, f"it is about {_OTHER_KINDS[mode]}, which is not supported")
    old, new = without_prefixes(file.old, file.new)
    if _after(file, "new file mode ") is not None or old is None:
        return _addition(file, new)
    if _after(file, "deleted file mode ") is not None or new is None:
        return FileChange(Action.REMOVE, _named(file, old), tuple(file.chunks))
    return _update(file, old, new)


def _addition(file: DiffFile, path: str | None) -> FileChange:
    lines = [line for chunk in file.chunks for line in chunk.lines]
    if any(line.mark != "+" for line in lines):
        raise _problem(file, "it adds a file, so every line of its hunk must begin with +")
    if promised := max((chunk.promised for chunk in file.chunks), default=0):
        raise _problem(file, promise_broken(promised, promised))
    mode = _mode(file, "new file mode ")
    remark = f"its mode was not set to {mode}: use chmod" if mode not in {None, _PLAIN_MODE} else ""
    return FileChange(Action.ADD, _named(file, path), content=_new_text(file.chunks), remark=remark)


def _update(file: DiffFile, old: str, new: str) -> FileChange:
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
    return FileChange(
        Action.UPDATE,
        _named(file, old),
        tuple(file.chunks),
        content=_new_text(file.chunks) if may_create else "",
        move_to=_named(file, new) if moves else None,
        may_create=may_create,
    )


def _new_text(chunks: list[Chunk]) -> str:
    text = "".join(f"{line}\n" for chunk in chunks for line in chunk.new)
    return text.removesuffix("\n") if chunks and chunks[-1].final_newline is False else text


def _named(file: DiffFile, path: str | None) -> str:
    if not path:
        raise _problem(file, "it names no file")
    return path


def _after(file: DiffFile, begin: str) -> str | None:
    """What is behind these words in the header, None if they are not there."""
    return next((line.removeprefix(begin).strip() for line in file.header if line.startswith(begin)), None)


def _mode(file: DiffFile, begin: str) -> str | None:
    """The file mode at the end of a header line; that of `index` is there only if it stays."""
    words = (_after(file, begin) or "").split()
    return words[-1] if words and len(words[-1]) == len(_PLAIN_MODE) and words[-1].isdigit() else None


def _problem(file: DiffFile, words: str) -> ToolError:
    return ToolError(f"the file at line {file.number} of the patch: {words}")

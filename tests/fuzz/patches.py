"""Fuzz target: what reads patches, and what puts them into a text."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.core.errors import ToolError
from orchestrator.engine.tools.patches.formats import parse_unified, parse_v4a
from orchestrator.engine.tools.patches.hunks import Action, FilePatch, apply_chunks
from tests.fuzz.target import Target, pieces, text_of

if TYPE_CHECKING:
    from orchestrator.engine.tools.patches.hunks import Chunk

_END = "*** End Patch"


def run(data: bytes) -> None:
    """The patch, then what is behind the first NUL: the file that it changes."""
    patch, _, text = text_of(data).partition("\0")
    try:
        changes = parse_v4a(patch)
    except ToolError as error:
        _says(error)
    else:
        again = parse_v4a(written(changes))
        assert [_bare(one) for one in again] == [_bare(one) for one in changes], (
            "read otherwise when written out"
        )
        _apply(changes, text)
    try:
        changes = parse_unified(patch)
    except ToolError as error:
        _says(error)
    else:
        _apply(changes, text)


def _says(error: ToolError) -> None:
    assert str(error).strip()


def _apply(changes: tuple[FilePatch, ...], text: str) -> None:
    assert changes
    for change in changes:
        assert change.path
        assert change.move_to != ""
        if change.action is not Action.UPDATE:
            continue
        assert all(chunk.lines for chunk in change.chunks)
        try:
            apply_chunks(change.path, text, change.chunks)
        except ToolError as error:
            _says(error)
        for chunk in change.chunks:
            _fits_its_own_file(change.path, chunk)


def _fits_its_own_file(name: str, chunk: Chunk) -> None:
    """A file that has just the old lines becomes one that has just the new ones."""
    if not chunk.old or chunk.anchors or chunk.missing or any("\r" in line.text for line in chunk.lines):
        return
    old = "".join(f"{line}\n" for line in chunk.old)
    new = "".join(f"{line}\n" for line in chunk.new)
    wanted = new.removesuffix("\n") if chunk.final_newline is False else new
    assert apply_chunks(name, old, (chunk,)).text == wanted, "lines are lost or made up"
    if any(line.strip() for line in chunk.old):
        _fits_shifted(name, chunk, old, wanted)


def _fits_shifted(name: str, chunk: Chunk, old: str, wanted: str) -> None:
    """So it does where all lines of the chunk are indented too much, or the chunk is refused."""
    lines = tuple(
        replace(line, text=f"  {line.text}" if line.text.strip() else line.text) for line in chunk.lines
    )
    try:
        found = apply_chunks(name, old, (replace(chunk, lines=lines),))
    except ToolError as error:
        _says(error)
    else:
        assert found.text == wanted, "lines that are all indented too much are not put in as meant"


def written(changes: tuple[FilePatch, ...]) -> str:
    """The changes as a patch in the v4a format. Of the CRs at a line's end one is always taken off."""
    lines = ["*** Begin Patch"]
    for change in changes:
        match change.action:
            case Action.ADD:
                lines += [f"*** Add File: {change.path}"]
                lines += [f"+{line}\r" for line in change.content.split("\n")[:-1]]
            case Action.REMOVE:
                lines += [f"*** Delete File: {change.path}"]
            case Action.UPDATE:
                lines += [f"*** Update File: {change.path}"]
                lines += [f"*** Move to: {change.move_to}"] if change.move_to else []
                for chunk in change.chunks:
                    lines += [f"@@ {anchor}\r" for anchor in chunk.anchors] or ["@@"]
                    lines += [f"{line.mark}{line.text}\r" for line in chunk.lines]
                    lines += ["*** End of File"] if chunk.at_end else []
    return "\n".join([*lines, _END])


def _bare(change: FilePatch) -> object:
    """A change without the places in the patch."""
    chunks = [(chunk.lines, chunk.anchors, chunk.at_end) for chunk in change.chunks]
    return change.action, change.path, change.content, change.move_to, chunks


_V4A = "*** Begin Patch\n*** Update File: a\n*** Move to: b\n@@ def f():\n x\n-y\n+z\n \n*** End of File\n*** End Patch"
_DIFF = "diff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@ def f():\n x\n-y\n+z\n\n"

TARGET = Target(
    run,
    pieces(
        f"{_V4A}\0def f():\nx\ny\n\n",
        "*** Begin Patch\n*** Add File: a\n+x\n+\n*** Delete File: b\n*** Update File: c\n@@\n-a\r\n+b\n*** End Patch\0a\r\n",
        f"```diff\n{_DIFF}```\0def f():\nx\ny\n\n",
        f"apply_patch <<'E'\n{_V4A}\nE\n",
        f"bash -lc \"cat <<-'E' | apply_patch\n{_V4A}\n\tE\"\n",
        "*** Begin Patch\n*** Update File: a\n@@ f\n\n+x\n\n+y\n\n@@\n   g\n-  h\n+  i\n*** End Patch\0f\n\n g\nh\n",
        "--- a/f\n+++ b/f\n@@ -1,4 +1,4 @@\n-x\n+y\n\n\0x\n\n\n",
        f"{_DIFF}\\ No newline at end of file\n-- \n2.4\n",
        'diff --git a/x y b/x y\nsimilarity index 90%\nrename from x y\nrename to "z\\303\\251"\n',
        "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n",
        "--- a/f\t2024-01-01 00:00\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
        "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n+y\n\n\n\n+z\0x\n",
        '--- "a\\377\\\\"\n+++ "b\\400"\n@@\n-x\0\u201cx\u201d\r',
        '--- "a\udc80"\n+++ "b"\n@@\n-x\n',
        "GIT binary patch\n",
        "```\n" * 9 + "x\n" + "```\n" * 9,
        "*** Begin Patch\n*** Update File: a\n@@\n a\n" + " \n" * 9 + "*** End Patch\0" + "a\n" * 9,
    ),
    pieces(
        *" +-@\n\r\t\\\"'`~", "\n ", "\n+", "\n-", "\n@@", "@@ ", "@@ -1,2 +3,4 @@", "*** Begin Patch\n", f"\n{_END}",
        "\n*** Update File: ", "\n*** Add File: ", "\n*** Delete File: ", "\n*** Move to: ", "\n*** End of File", "\n--- ",
        "\n+++ ", "a/f", "b/f", "/dev/null", "\ndiff --git ", "\nrename from ", "\nrename to ", "\nnew file mode ",
        "\ndeleted file mode ", "\nindex ", "100644", "120000", "\n-- \n1.0", "\\303", "\n\\ No newline", "```", "<<E", "\0",
        "x\n", "\u2028", "\x0b", "\x85", "\udc80", "\u201c", "\n" * 9, "2024-01-01 00:00",
    ),
)  # fmt: skip

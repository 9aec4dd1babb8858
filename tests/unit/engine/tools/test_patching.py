"""What both formats of apply_patch share: exact results, all or nothing, and no way out of the folder."""

from __future__ import annotations

import asyncio
import difflib
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import PathRefusedError, ToolError
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.tools.base import Ledger, Ok, Tool, ToolContext
from orchestrator.engine.tools.patches import apply_patch, apply_unified_patch
from orchestrator.engine.tools.patches.formats import parse_unified, parse_v4a
from orchestrator.engine.tools.patches.hunks import apply_chunks

WORDS = (
    "a",
    "b",
    "c",
    "",
    " ",
    "  a",
    "a ",
    "-- a",
    "++ b",
    "@@",
    "*** End Patch",
    "\\ No",
    "\t",
    "+",
    "-",
    "\u2013",
)
LINES = st.lists(st.sampled_from(WORDS), max_size=12)
JUNK = st.lists(
    st.sampled_from(
        (
            "*** Begin Patch",
            "*** End Patch",
            "*** Add File: a",
            "*** Delete File: a",
            "*** Update File: a",
            "*** Move to: b",
            "*** End of File",
            "@@",
            "@@ a",
            "@@ -1 +1 @@",
            "--- a/a",
            "+++ b/a",
            "--- /dev/null",
            "+++ /dev/null",
            "diff --git a/a b/a",
            "rename to ",
            "new file mode 100644",
            "\\ No newline at end of file",
            "```",
            "-a",
            "+a",
            " a",
            "",
        )
    )
    | st.text(max_size=8),
    max_size=14,
)


def _text(lines: list[str], end: str, *, closed: bool) -> str:
    text = "".join(f"{line}{end}" for line in lines)
    return text if closed or not lines or not lines[-1] else text.removesuffix(end)


def _changed(before: list[str], after: list[str], context: int) -> list[list[str]]:
    """The hunks between two lists of lines, each line with its mark, each hunk with its header first."""
    hunks: list[list[str]] = []
    for line in list(difflib.unified_diff(before, after, "a/f", "b/f", n=context, lineterm=""))[2:]:
        if line.startswith("@@ -"):
            hunks.append([line])
        else:
            hunks[-1].append(line)
    return hunks


@given(
    before=LINES,
    after=LINES,
    end=st.sampled_from(("\n", "\r\n")),
    old_closed=st.booleans(),
    new_closed=st.booleans(),
)
def test_a_unified_diff_gives_exactly_the_edited_text(
    before: list[str], after: list[str], end: str, *, old_closed: bool, new_closed: bool
) -> None:
    old, new = _text(before, end, closed=old_closed), _text(after, end, closed=new_closed)
    body = list(difflib.unified_diff(_kept(old), _kept(new), "f", "f"))[2:]
    diff = ["--- a/f\n", "+++ b/f\n"]
    diff.extend(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in body)
    if not body or "\n" not in old:  # nothing to do; and without any line end, LF is taken
        return
    (change,) = parse_unified("".join(diff))
    assert apply_chunks("f", old, change.chunks).text == new


FULL = st.lists(st.sampled_from(("a", "b", "c", "  d", "-- a", "++ b")), min_size=1, max_size=12)


@given(before=FULL, after=FULL, cut=st.integers(1, 12), blank=st.integers(0, 3))
def test_a_unified_diff_that_is_cut_off_in_a_hunk_is_refused(
    before: list[str], after: list[str], cut: int, blank: int
) -> None:
    old = "".join(f"{line}\n" for line in before)
    hunks = _changed(before, after, 3)
    if not hunks or cut >= len(hunks[-1]):
        return
    lines = [line for hunk in (*hunks[:-1], hunks[-1][:-cut]) for line in hunk]
    with pytest.raises(ToolError):
        _applied("\n".join(["--- a/f", "+++ b/f", *lines, *[""] * blank]) + "\n", old)


def _applied(diff: str, old: str) -> str:
    (change,) = parse_unified(diff)
    return apply_chunks("f", old, change.chunks).text


def _kept(text: str) -> list[str]:
    """Lines that only LF ends, with their ends."""
    *lines, last = text.split("\n")
    return [*(f"{line}\n" for line in lines), *([last] if last else [])]


@given(
    before=LINES.map(lambda lines: [f"{n} {line}".rstrip() for n, line in enumerate(lines)]), after=st.data()
)
def test_a_v4a_patch_gives_exactly_the_edited_text(before: list[str], after: st.DataObject) -> None:
    """Every line is there once, so that each hunk has one place."""
    edited = [
        line
        for old in before
        for line in after.draw(
            st.sampled_from(([old], [], [old, "new"], ["+", old], ["@@ x"], ["*** y", ""]))
        )
    ]
    hunks = _changed(before, edited, after.draw(st.integers(1, 3)))
    if not hunks:
        return
    end = after.draw(st.sampled_from(("\n", "\r\n")))
    closed = after.draw(st.booleans())
    lines = [line for hunk in hunks for line in ("@@", *hunk[1:])]
    (change,) = parse_v4a("\n".join(["*** Begin Patch", "*** Update File: f", *lines, "*** End Patch"]))
    old, new = (end.join(side) + (end if side and closed else "") for side in (before, edited))
    if "\n" in old:
        assert apply_chunks("f", old, change.chunks).text == new


@given(lines=JUNK, wrapped=st.booleans(), text=st.text(alphabet="a \n\r\u2013", max_size=20))
def test_junk_is_understood_or_refused(lines: list[str], text: str, *, wrapped: bool) -> None:
    patch = "\n".join(["*** Begin Patch", *lines, "*** End Patch"] if wrapped else lines)
    for parse in (parse_v4a, parse_unified):
        try:
            for change in parse(patch):
                apply_chunks("f", text, change.chunks)
        except ToolError as error:
            assert str(error)  # noqa: PT017  both ways are right; what matters is that nothing else is raised


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


BAD_PATHS = (
    "../x",
    "/etc/x",
    "a/../../x",
    ".git/config",
    ".GIT/hooks/x",
    "sub/.git/x",
    "link/x",
    "link.txt",
    "x\x07",
)


@pytest.mark.parametrize("path", BAD_PATHS)
@pytest.mark.parametrize(
    ("tool", "template"),
    [
        (apply_patch(), "*** Begin Patch\n*** Add File: new\n+x\n*** Add File: {}\n+x\n*** End Patch"),
        (apply_patch(), "*** Begin Patch\n*** Delete File: {}\n*** End Patch"),
        (apply_patch(), "*** Begin Patch\n*** Update File: {}\n-secret\n+x\n*** End Patch"),
        (apply_patch(), "*** Begin Patch\n*** Update File: a\n*** Move to: {}\n*** End Patch"),
        (apply_patch(), "*** Begin Patch\n*** Update File: {}\n*** Move to: new\n*** End Patch"),
        (apply_unified_patch(), "--- /dev/null\n+++ b/{}\n@@ -0,0 +1 @@\n+x\n"),
        (apply_unified_patch(), "--- {0}\n+++ {0}\n@@ -1 +1 @@\n-secret\n+x\n"),
        (apply_unified_patch(), "diff --git a/a b/b\nrename from a\nrename to {}\n"),
        (apply_unified_patch(), "--- a/{}\n+++ /dev/null\n@@ -1 +0,0 @@\n-secret\n"),
    ],
)
async def test_no_path_leaves_the_folder(  # noqa: PLR0913, PLR0917  a table
    path: str,
    tool: Tool,
    template: str,
    context: ToolContext,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "x").write_text("secret\n")
    (tmp_path / "link").symlink_to(outside)
    (tmp_path / "link.txt").symlink_to(outside / "x")
    (tmp_path / "a").write_text("a\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text("secret\n")
    with pytest.raises(PathRefusedError):
        await tool.execute({"patch": template.format(path)}, context)
    assert (outside / "x").read_text() == (tmp_path / ".git/config").read_text() == "secret\n"
    assert names_in(outside) == ["x"]
    assert names_in(tmp_path) == [".git", "a", "link", "link.txt"]
    assert context.ledger.touched == set()


def v4a(*sections: str) -> dict[str, str]:
    return {"patch": "\n".join(["*** Begin Patch", *sections, "*** End Patch"])}


def files_of(root: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(root)): (path.read_text(), path.stat().st_mode & 0o777)
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    "failing",
    [
        ("*** Add File: x\n+1", "*** Add File: x/y\n+1"),
        ("*** Add File: x/y\n+1", "*** Add File: x\n+1"),
        ("*** Add File: late\n+1", "*** Add File: LATE\n+1"),
        ("*** Delete File: a", "*** Delete File: nested/x"),
        ("*** Update File: nested/x\n*** Move to: out",),
    ],
)
async def test_a_write_that_fails_in_the_middle_leaves_all_as_it_was(
    failing: tuple[str, ...], context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("a\n")
    (tmp_path / "b").write_text("b\n")
    (tmp_path / "b").chmod(0o755)
    (tmp_path / "nested/.git").mkdir(parents=True)
    (tmp_path / "nested/x").write_text("x\n")
    before = files_of(tmp_path)
    first: tuple[str, ...] = (
        "*** Update File: b\n*** Move to: moved\n-b\n+B",
        "*** Add File: new/n\n+1",
        "*** Update File: a\n+2",
    )
    if failing[0] == "*** Delete File: a":
        first = first[:2]
    with pytest.raises(ToolError, match="Nothing was changed"):
        await apply_patch().execute(v4a(*first, *failing), context)
    assert files_of(tmp_path) == before
    assert context.ledger.touched == set()


class Failing(LocalEnvironment):
    """An environment that writes as many times as it is told, then no more."""

    writes = 1

    async def write_file(self, path: str, content: bytes, *, mode_of: str | None = None) -> None:
        if not self.writes:
            raise ToolError("the disk is full")
        self.writes -= 1
        await super().write_file(path, content, mode_of=mode_of)


async def test_what_cannot_be_put_back_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a\n")
    (tmp_path / "b").write_text("b\n")
    environment = Failing(tmp_path, clock=SystemClock())
    context = ToolContext(environment, Ledger(), lambda _text: None)
    with pytest.raises(
        ToolError, match=r"the disk is full\nThese files were written before that .* restored: a"
    ):
        await apply_patch().execute(v4a("*** Update File: a\n-a\n+A", "*** Update File: b\n-b\n+B"), context)
    assert context.ledger.touched == {"a"}
    await environment.cleanup()


class Waiting(LocalEnvironment):
    """An environment whose writes wait for a sign."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, clock=SystemClock())
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def write_file(self, path: str, content: bytes, *, mode_of: str | None = None) -> None:
        self.begun.set()
        await self.go.wait()
        await super().write_file(path, content, mode_of=mode_of)


async def test_a_patch_that_is_cancelled_while_it_writes_is_written_whole(tmp_path: Path) -> None:
    environment = Waiting(tmp_path)
    context = ToolContext(environment, Ledger(), lambda _text: None)
    patch = v4a("*** Add File: a\n+a", "*** Add File: b\n+b")
    task = asyncio.ensure_future(apply_patch().execute(patch, context))
    await environment.begun.wait()
    task.cancel()
    environment.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert names_in(tmp_path) == ["a", "b"]
    assert context.ledger.touched == {"a", "b"}
    await environment.cleanup()


async def test_large_files_and_patches_are_taken(context: ToolContext, tmp_path: Path) -> None:
    """A search that begins anew for each hunk takes minutes."""
    lines = [f"line {number}" if number % 2 else "same" for number in range(40_000)]
    (tmp_path / "a").write_text("\n".join(lines) + "\n")
    hunks = "\n".join(f"@@\n same\n-line {number}\n+LINE" for number in range(1, 40_000, 10))
    assert isinstance(await apply_patch().execute(v4a(f"*** Update File: a\n{hunks}"), context), Ok)
    with pytest.raises(ToolError, match="its lines are not in the file"):
        await apply_patch().execute(v4a("*** Update File: a\n same\n-line x\n+y"), context)


async def test_files_over_ten_megabytes_are_refused(context: ToolContext) -> None:
    with TemporaryDirectory() as folder:
        environment = LocalEnvironment(Path(folder), clock=SystemClock())
        (Path(folder) / "big").write_bytes(b"x\n" * 5_000_001)
        here = ToolContext(environment, context.ledger, context.print)
        with pytest.raises(ToolError, match="over the limit of 10,000,000"):
            await apply_patch().execute(v4a("*** Delete File: big"), here)
        await environment.cleanup()

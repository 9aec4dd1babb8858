"""apply_patch with unified diffs, on real files."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import FileMissingError, ToolError
from orchestrator.engine.tools.base import Ok, Order, ToolContext
from orchestrator.engine.tools.patches import apply_unified_patch

if TYPE_CHECKING:
    from pathlib import Path

NAMES = "--- a/a.py\n+++ b/a.py\n"


async def apply(context: ToolContext, diff: str) -> list[str]:
    outcome = await apply_unified_patch().execute({"patch": diff}, context)
    assert isinstance(outcome, Ok)
    return outcome.output.split("\n")[1:]


@pytest.mark.parametrize(
    ("before", "hunks", "after", "remark"),
    [
        ("a\nb\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n", "a\nB\nc\n", ""),
        ("a\nb\nc\n", "@@ -1,2 +1,2 @@ def f():\n a\n-b\n+B\n c\n", "a\nB\nc\n", ""),
        ("a\nb\n\n\nc\n", "@@ -1,4 +1,4 @@\n-a\n+A\n b\n", "A\nb\n\n\nc\n", ""),
        (
            "a\n  \nc\n",
            "@@ -1,2 +1,2 @@\n-a\n+A\n\n",
            "A\n  \nc\n",
            "hunk 1 matched at line 1 only without regard to blanks at line ends",
        ),
        ("a\nb\nc\n", "@@ -2 +2 @@\n-b\n+B\n+BB\n c", "a\nB\nBB\nc\n", ""),
        ("a\nb\n", "@@\n-b\n+B\n", "a\nB\n", ""),
        ("a\nb\n", "@@ ... @@\n+c\n", "a\nb\nc\n", ""),
        ("a\n\nb\n", "@@ -1,3 +1,3 @@\n a\n\n-b\n+B\n", "a\n\nB\n", ""),
        ("a\n\nb\n", "@@ -1 +1 @@\n-a\n+A\n\n-b\n+B\n", "A\n\nB\n", ""),
        ("a\nb\n", "@@ -1,2 +1,2 @@\n-a\n+A\n b\n\n", "A\nb\n", ""),
        ("a\nb\n", "@@ -1,3 +1,3 @@\n-a\n+A\n b\n\n", "A\nb\n", ""),
        ("x\n" * 9, "@@ -5 +5 @@\n-x\n+y\n", "x\nx\nx\nx\ny\n" + "x\n" * 4, ""),
        ("x\n1\n2\n3\nx\n", "@@ -4 +4 @@\n-x\n+y\n", "x\n1\n2\n3\ny\n", "hunk 1 matched at line 5, not 4"),
        ("x\n1\n2\n3\nx\n", "@@ -2 +2 @@\n-x\n+y\n", "y\n1\n2\n3\nx\n", "hunk 1 matched at line 1, not 2"),
        (
            "0\n0\n0\na\nx\nx\nx\n",
            "@@ -1 +1 @@\n-a\n+A\n@@ -3 +3 @@\n-x\n+y\n",
            "0\n0\n0\nA\nx\ny\nx\n",
            "hunk 1 matched at line 4, not 1; hunk 2 matched at line 6, not 3",
        ),
        ("a\nb\n", "@@ -1,0 +2 @@\n+x\n", "a\nx\nb\n", ""),
        ("a\nb\n", "@@ -0,0 +1 @@\n+x\n", "x\na\nb\n", ""),
        ("a\n", "@@ -1 +1,2 @@\n a\n+b\n\\ No newline at end of file\n", "a\nb", ""),
        ("a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n", "a\nb\n", ""),
        ("a\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n+b\n\\ No newline at end of file\n", "a\nb", ""),
        ("a\nb", "@@ -1,2 +1 @@\n a\n-b\n\\ No newline at end of file\n", "a\n", ""),
        ("a\nb", "@@ -1,2 +1,2 @@\n-a\n+A\n b\n\\ No newline at end of file\n", "A\nb", ""),
        ("a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n+B\n", "a\nB", ""),
        ("a\nb\nc\n", "@@ -1 +1 @@\n-a\n+A\n\\ No newline at end of file\n", "A\nb\nc\n", ""),
        ("a\r\nb\r\n", "@@ -1,2 +1,3 @@\n a\n+x\n b\n", "a\r\nx\r\nb\r\n", ""),
        ("\ufeffa\r\nb", "@@ -1 +1 @@\r\n-a\r\n+A\r\n", "\ufeffA\r\nb", ""),
        (
            "a \nit\u2019s\n",
            "@@ -1,2 +1 @@\n a\n-it's\n",
            "a \n",
            "hunk 1 matched at line 1 only without regard to quotes, dashes or spaces",
        ),
        ("-- a\nb\n", "@@ -1,2 +1,2 @@\n--- a\n+++ a\n b\n", "++ a\nb\n", ""),
        ("a\n-- b\n", "@@ -1,2 +1,2 @@\n a\n--- b\n+++ b\n", "a\n++ b\n", ""),
        ("-- b\nc\nd\n", "@@ -1 +1 @@\n--- b\n+++ b\n@@ -3 +3 @@\n-d\n+D\n", "++ b\nc\nD\n", ""),
    ],
)
async def test_hunks_find_their_place(  # noqa: PLR0913, PLR0917  a table
    before: str, hunks: str, after: str, remark: str, context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_bytes(before.encode())
    (tmp_path / "a.py").chmod(0o755)
    assert await apply(context, NAMES + hunks) == [f"M a.py ({remark})" if remark else "M a.py"]
    assert (tmp_path / "a.py").read_bytes().decode() == after
    assert (tmp_path / "a.py").stat().st_mode & 0o777 == 0o755
    assert context.ledger.touched == {"a.py"}


@pytest.mark.parametrize(
    ("line", "changed"), [(1, 1), (6, 5), (5, 5), (2, 1), (3, None), (7, None), (8, 9), (20, None)]
)
async def test_a_line_number_between_places_names_none_of_them(
    line: int, changed: int | None, context: ToolContext, tmp_path: Path
) -> None:
    lines = ["x\n", "1\n", "2\n", "3\n", "x\n", "4\n", "5\n", "6\n", "x\n"]
    (tmp_path / "a.py").write_text("".join(lines))
    hunk = f"{NAMES}@@ -{line} +{line} @@\n-x\n+y\n"
    if changed is None:
        words = rf"its header says line {line}, where its lines are not\. They are at line 1, 5, 9\."
        with pytest.raises(ToolError, match=words):
            await apply(context, hunk)
    else:
        await apply(context, hunk)
        lines[changed - 1] = "y\n"
    assert (tmp_path / "a.py").read_text() == "".join(lines)


@pytest.mark.parametrize(
    ("before", "diff", "words"),
    [
        ("a\nb\nc\n", "@@ -1,3 +1,3 @@\n-a\n-b\n-c\n", "counts 0 more old and 3 more new lines than follow it"),
        ("a\nb\nc\n", "@@ -1,3 +1,3 @@\n-a\n-b\n-c\n\n\n\n", "counts 0 more old and 3 more new lines"),
        ("a\nb\nc\n", "@@ -1,3 +1,1 @@\n-a\n-b\n-c\n", "if nothing is missing, write the header without counts"),
        ("a\nb\n", "@@ -1,3 +1,1 @@\n-a\n-b\n", "counts 1 more old and 1 more new lines"),
        ("a\nb\nc\n", "@@ -1,3 +1,3 @@\n-a\n+A\n b\n", "blank lines may be missing that the file has below line 2"),
        ("a\nb\nc\n", "@@ -1,9 +1,9 @@\n-a\n+A\n\n\n", "blank lines may be missing that the file has below line 1"),
        ("x\na\n\n", "@@ -1,3 +1,3 @@\n-a\n+A\n", "counts 2 more old and 2 more new lines"),
        ("x\na\n\n", "@@ -1,2 +1,2 @@\n-a\n+A\n", "only in a hunk that is at the line of its header"),
        ("a\n", "@@ -1,2 +1,9 @@\n a\n+b\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a\n+c\n", "the hunk at line 3 of the patch"),
    ],
)  # fmt: skip
async def test_a_hunk_with_fewer_lines_than_its_header_counts_is_refused(
    before: str, diff: str, words: str, context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text(before)
    with pytest.raises(ToolError) as failure:
        await apply(context, NAMES + diff)
    assert words in str(failure.value)
    assert (tmp_path / "a.py").read_text() == before


async def test_a_new_file_that_was_cut_off_is_not_written(context: ToolContext, tmp_path: Path) -> None:
    for counts in ("-0,0 +1,3", "-1,2 +1,3", "-1,1 +1,2"):
        with pytest.raises(ToolError, match="If the patch was cut off, send all of it"):
            await apply(context, f"--- /dev/null\n+++ b/new.py\n@@ {counts} @@\n+a\n")
    assert not list(tmp_path.iterdir())


async def test_hunks_that_are_out_of_order_by_their_numbers_have_one_place_or_none(
    context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("x\na\nb\nx\nc\n")
    with pytest.raises(
        ToolError, match=r"hunk 2 of 2 .*: its header says line 1, which is not below the hunk"
    ):
        await apply(context, f"{NAMES}@@ -2 +2 @@\n-a\n+A\n@@ -1 +1 @@\n-x\n+X\n")
    answer = await apply(context, f"{NAMES}@@ -2 +2 @@\n-a\n+A\n@@ -1 +1 @@\n-c\n+C\n")
    assert answer == ["M a.py (hunk 2 matched at line 5, not 1)"]


@pytest.mark.parametrize(
    "names",
    [
        "--- a/d/a.py\n+++ b/d/a.py",
        "--- d/a.py\n+++ d/a.py",
        "--- a/d/a.py\n+++ d/a.py",
        "--- d/a.py\n+++ b/d/a.py",
        "--- i/d/a.py\n+++ w/d/a.py",
        "--- ./d/a.py\n+++ ./d/a.py",
        '--- "a/d/a.py"\n+++ "b/d/\\141.py"',
        "--- a/d/a.py\t2024-01-02 03:04:05.000 +0100\n+++ b/d/a.py\t2024-01-02 03:04:05",
        "--- d/a.py 2024-01-02 03:04:05\n+++ d/a.py 2024-01-02 03:04:06",
        "diff --git a/d/a.py b/d/a.py\nindex 123..456 100644\n--- a/d/a.py\n+++ b/d/a.py",
        "diff --git a/d/a.py b/d/a.py\nindex 123..456 100644",
        "From 1234 Mon Sep 17 00:00:00 2001\nSubject: x\n\n---\n d/a.py | 2 +-\n\n--- a/d/a.py\n+++ b/d/a.py",
        "Here is the diff:\n\nIndex: d/a.py\n===\n--- a/d/a.py\n+++ b/d/a.py",
    ],
)
async def test_names_in_every_spelling(names: str, context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a.py").write_text("a\n")
    assert await apply(context, f"{names}\n@@ -1 +1 @@\n-a\n+A\n-- \n2.39.0\n") == ["M d/a.py"]
    assert (tmp_path / "d/a.py").read_text() == "A\n"


@pytest.mark.parametrize("end", ["", " \n", "\n\n"])
@pytest.mark.parametrize(("claimed", "git"), [(1, ""), (2, ""), (2, "diff --git a/b b/b\n")])
async def test_several_files_whose_counts_are_too_small_or_count_a_blank_line(
    claimed: int, git: str, end: str, context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("a\n\n")
    (tmp_path / "b").write_text("b\n")
    first = f"--- a/a\n+++ b/a\n@@ -1,{claimed} +1,{claimed} @@\n-a\n+A\n{end}"
    assert await apply(context, f"```diff\n{first}{git}--- a/b\n+++ b/b\n@@ -1 +1 @@\n-b\n+B\n```") == [
        "M a",
        "M b",
    ]
    assert (tmp_path / "a").read_text() == "A\n\n"
    assert (tmp_path / "b").read_text() == "B\n"


async def test_files_are_added_removed_and_renamed(context: ToolContext, tmp_path: Path) -> None:
    for name in ("gone", "bare", "old name", "moved", "mix"):
        (tmp_path / name).write_text(f"{name}\n")
    (tmp_path / "old name").chmod(0o755)
    answer = await apply(
        context,
        "--- /dev/null\n+++ b/new/n.py\n@@ -0,0 +1,2 @@\n+1\n+2\n"
        "diff --git a/run.sh b/run.sh\nnew file mode 100755\nindex 000..123\n--- /dev/null\n+++ b/run.sh\n"
        "@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n"
        "diff --git a/empty b/empty\nnew file mode 100644\nindex 0000000..e69de29\n"
        "diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n"
        "diff --git a/bare b/bare\ndeleted file mode 100644\n"
        "diff --git a/old name b/new name\nsimilarity index 100%\nrename from old name\nrename to new name\n"
        "--- a/moved\n+++ b/other\n@@ -1 +1 @@\n-moved\n+other\n"
        "--- a/made\n+++ b/made\n@@ -0,0 +1 @@\n+made\n",
    )
    assert answer == [
        "A new/n.py",
        "A run.sh (its mode was not set to 100755: use chmod)",
        "A empty",
        "D gone",
        "D bare",
        "R old name -> new name",
        "R moved -> other",
        "A made",
    ]
    contents = {path.name: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert contents == {
        "n.py": "1\n2\n",
        "run.sh": "x",
        "empty": "",
        "new name": "old name\n",
        "other": "other\n",
        "made": "made\n",
        "mix": "mix\n",
    }
    assert (tmp_path / "new name").stat().st_mode & 0o777 == 0o755
    assert {"new/n.py", "run.sh", "empty", "made"} == context.ledger.shown


async def test_what_git_writes_is_understood(context: ToolContext, tmp_path: Path) -> None:
    """A commit's worth of odd names and changes: the work tree afterwards is what git has."""
    here = tmp_path / "origin"
    here.mkdir()

    def git(*arguments: str) -> bytes:
        command = ["git", "-C", str(here), "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
        return subprocess.run(command, check=True, capture_output=True).stdout

    git("init", "-q")
    text = "".join(f"line {number}\n" for number in range(40))
    before = {"a b.txt": text, 'caf\u00e9 "q".txt': text, "gone.txt": "x\ny", "late.txt": text, "same": "s"}
    after = {
        "a b.txt": text.replace("line 3\n", "").replace("line 30\n", "-- 30\n++ x\n"),
        'sub/caf\u00e9 "q".txt': text.replace("line 9\n", "LINE\n"),
        "late.txt": text + "end",
        "new.txt": "\nnew",
        "same": "s",
    }
    for files in (before, after):
        git("rm", "-rq", "--ignore-unmatch", ".")
        for name, content in files.items():
            (here / name).parent.mkdir(exist_ok=True, parents=True)
            (here / name).write_text(content)
        git("add", "-A")
        git("commit", "-qm", "x")
    diff = git("diff", "-M", "HEAD~", "HEAD").decode()
    for name, content in before.items():
        (tmp_path / name).write_text(content)
    await apply(context, diff)
    found = {
        str(path.relative_to(tmp_path)): path.read_text()
        for path in tmp_path.rglob("*")
        if path.is_file() and here not in path.parents
    }
    assert found == after


@pytest.mark.parametrize(
    ("diff", "words"),
    [
        ("", "names no file"),
        ("hello", "names no file"),
        ("*** Begin Patch\n*** End Patch", "must be a unified diff"),
        ("@@ -1 +1 @@\n-a\n+b", "is a hunk of no file"),
        ("--- a/a.py\n+++ b/a.py\n-a\n+b", "is outside any hunk"),
        ("--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n", "line 3 of the patch begins a hunk without lines"),
        ("--- a/a.py\n+++ b/a.py\n", "it has no hunk for a.py"),
        (
            "--- a/a.py\n+++ b/a.py\n@@ -3,4 +3,5 @@\n+x\n",
            "the hunk at line 3 of the patch has only new lines",
        ),
        (
            "--- a/a.py\n+++ b/a.py\n@@ -7,0 +8 @@\n+x\n",
            "line 7 is not below the hunk above it, or not in the file",
        ),
        ("--- /dev/null\n+++ b/b.py\n@@ -1 +1 @@\n-a\n+b\n", "every line of its hunk must begin with +"),
        ("--- /dev/null\n+++ /dev/null\n@@ -0,0 +1 @@\n+b\n", "it names no file"),
        ("--- a/a.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", "it has lines that the patch does not show"),
        ("diff --git a/a.py b/a.py\nold mode 100644\nnew mode 100755\n", "changes no file mode"),
        ("diff --git a/a.py b/l\ncopy from a.py\ncopy to l\n", "it copies a file"),
        (
            "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n",
            "symbolic link",
        ),
        (
            "diff --git a/x.bin b/x.bin\nBinary files a/x.bin and b/x.bin differ\n",
            "binary files have no lines",
        ),
        ("diff --git a/x.bin b/x.bin\nindex 1..2 100644\nGIT binary patch\nliteral 3\n", "binary patch"),
        (
            "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n a\n-bee\n+B\n",
            "hunk 1 of 1 of a.py (line 3 of the patch) does not match: its lines are not in the file, nor anything like it",
        ),
        ("--- a/a.py\n+++ b/a.py\n@@ -3 +3 @@\n-c\n+C\n@@ -1 +1 @@\n-a\n+A\n", "put the hunks in the order"),
        ("--- /dev/null\n+++ b/a.py\n@@ -0,0 +1 @@\n+x\n", "a.py exists and you have not seen its text"),
    ],
)
async def test_what_cannot_be_applied_is_explained(
    diff: str, words: str, context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("a\nb\nc\n")
    with pytest.raises(ToolError) as failure:
        await apply(context, diff)
    assert words in str(failure.value)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.py", "a\nb\nc\n")]
    assert context.ledger.touched == set()


async def test_a_missing_file_is_not_patched(context: ToolContext) -> None:
    with pytest.raises(FileMissingError, match=r"update a\.py: a\.py does not exist"):
        await apply(context, f"{NAMES}@@ -1 +1 @@\n-a\n+A\n")


def test_the_definition() -> None:
    tool = apply_unified_patch()
    assert tool.name == "apply_patch"
    assert tool.order is Order.ALONE
    assert "unified diff" in tool.definition.description


async def test_the_example_of_the_description_is_a_patch(context: ToolContext, tmp_path: Path) -> None:
    description = apply_unified_patch().definition.description
    example = description[description.index("Example:") + len("Example:") :]
    (tmp_path / "src").mkdir()
    body = "    def add(self, item):\n        self.check(item)\n        self.items.append(item)\n        return self\n"
    (tmp_path / "src/basket.py").write_text("#\n" * 13 + body)
    assert await apply(context, example) == ["M src/basket.py", "A docs/limits.md"]
    assert "        if len(self.items) < 20:\n" in (tmp_path / "src/basket.py").read_text()

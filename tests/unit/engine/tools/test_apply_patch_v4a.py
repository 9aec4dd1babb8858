"""apply_patch with v4a patches, on real files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import FileMissingError, FileUnreadableError, ToolError
from orchestrator.engine.tools.base import Ok, Order, ToolContext
from orchestrator.engine.tools.patches import apply_patch

if TYPE_CHECKING:
    from pathlib import Path

UNTOUCHED = "Nothing was changed"


async def patch(context: ToolContext, *lines: str) -> list[str]:
    """Apply the lines as a patch and return the lines of the answer."""
    outcome = await apply_patch().execute({"patch": "\n".join(lines)}, context)
    assert isinstance(outcome, Ok)
    return outcome.output.split("\n")[1:]


async def sections(context: ToolContext, *lines: str) -> list[str]:
    return await patch(context, "*** Begin Patch", *lines, "*** End Patch")


async def update(context: ToolContext, hunks: str) -> list[str]:
    return await sections(context, "*** Update File: a.py", hunks)


async def test_several_operations_in_one_patch(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a\nb\nc\n")
    (tmp_path / "gone.py").write_bytes(b"\0binary")
    (tmp_path / "old.sh").write_text("one\ntwo\n")
    (tmp_path / "old.sh").chmod(0o755)
    answer = await sections(
        context,
        "*** Add File: new/b.py",
        "+x",
        "+",
        "*** Update File: a.py",
        "@@",
        " a",
        "-b",
        "+B",
        "*** Delete File: gone.py",
        "*** Update File: old.sh",
        "*** Move to: bin/new.sh",
        "@@",
        "-two",
        "+2",
    )
    assert answer == ["A new/b.py", "M a.py", "D gone.py", "R old.sh -> bin/new.sh"]
    assert (tmp_path / "new/b.py").read_text() == "x\n\n"
    assert (tmp_path / "a.py").read_text() == "a\nB\nc\n"
    assert (tmp_path / "bin/new.sh").read_text() == "one\n2\n"
    assert (tmp_path / "bin/new.sh").stat().st_mode & 0o777 == 0o755
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.py", "bin", "new"]
    assert context.ledger.touched == {"new/b.py", "a.py", "gone.py", "old.sh", "bin/new.sh"}
    assert context.ledger.shown == {"new/b.py"}


@pytest.mark.parametrize(
    ("before", "hunks", "after"),
    [
        ("a\nb\n", "-a\n+A", "A\nb\n"),
        ("a\nb\n", "@@\n-a\n+A\n@@\n-b\n+B", "A\nB\n"),
        ("a\n\nb\n", "@@\n a\n\n-b\n+B", "a\n\nB\n"),
        ("a\nb\nc\n", "@@\n-a\n+A\n\n\n@@\n-c\n+C\n", "A\nb\nC\n"),
        ("x\nf\nx\n", "@@ f\n-x\n+y", "x\nf\ny\n"),
        ("x\n  f\n  1\nx\n", "@@ f\n-x\n+y", "x\n  f\n  1\ny\n"),
        ("A\n f\n  0\nB\n g\n f\n  0\n", "@@ B\n@@  f\n-  0\n+  1", "A\n f\n  0\nB\n g\n f\n  1\n"),
        (
            "A\n f\n  0\n g\n  0\n",
            "@@ A\n@@  f\n-  0\n+  1\n@@ A\n@@  g\n-  0\n+  2",
            "A\n f\n  1\n g\n  2\n",
        ),
        ("A\n 0\n", "@@ A\n@@\n- 0\n+ 1", "A\n 1\n"),
        ("x = 30\ny\n", "@@ x = 30\n-x = 30\n+x = 60", "x = 60\ny\n"),
        ("a\nb\na\nb\n", "@@\n-b\n+B\n*** End of File", "a\nb\na\nB\n"),
        ("a\nb\n", "@@\n+c\n*** End of File\n", "a\nb\nc\n"),
        ("a\nb\n", "@@\n+c", "a\nb\nc\n"),
        ("a\nb\n", "@@ a\n+c", "a\nc\nb\n"),
        ("a\nb\n", "@@ a\n+c\n*** End of File", "a\nb\nc\n"),
        ("a\nb\nc\n", "@@\n+d\n+e\n@@\n a\n-b\n-c\n+B", "a\nB\nd\ne\n"),
        ("a\nb\nc\n", "@@ a\n+1\n@@\n-c\n+C", "a\n1\nb\nC\n"),
        ("", "@@\n+a", "a\n"),
        ("a\nb\n", "@@\n-a\n-b", ""),
        ("a\nb", "@@\n-b\n+B", "a\nB"),
        ("a\nb", "@@\n+c", "a\nb\nc"),
        ("a\nb", "@@\n-b", "a"),
        ("a\r\nb\r\n", "@@\n a\n+x\n b", "a\r\nx\r\nb\r\n"),
        ("a\nb\n", "@@\r\n a\r\n+x\r\n b", "a\nx\nb\n"),
        ("a\r\nb\nc\n", "@@\n b\n-c\n+C", "a\r\nb\nC\n"),
        ("a\rb\rc\r", "@@\n-b\n+B", "a\rB\rc\r"),
        ("\ufeffa\nb\n", "@@\n-a\n+A", "\ufeffA\nb\n"),
        ("a\n", "@@\n-a\n+'*** End Patch'\n+'@@'", "'*** End Patch'\n'@@'\n"),
        ("a\r", "@@\n-a\n+b", "b\r"),
        ("a\r", "@@\n a\n+b", "a\rb\r"),
        ("a\rb", "@@\n-b\n+B\n+C", "a\rB\rC"),
        ("f\n 1\n\ng\n", "@@ f\n+ 0\n\n", "f\n 0\n 1\n\ng\n"),
        ("f\n 1\n\ng\n\n", "@@ f\n+ 0\n\n\n@@ g\n\n+ 2", "f\n 0\n 1\n\ng\n 2\n\n"),
        ("f\n 1\n\ng\n", "@@ f\n+ 0\n\n+ 2", "f\n 0\n\n 2\n 1\n\ng\n"),
        ("f\n\n1\n", "@@ f\n \n+0", "f\n\n0\n1\n"),
        ("a\n\nb\n", "@@\n+c\n\n", "a\n\nb\nc\n"),
    ],
)
async def test_hunks_find_their_place(
    before: str, hunks: str, after: str, context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_bytes(before.encode())
    assert await update(context, hunks) == ["M a.py"]
    assert (tmp_path / "a.py").read_bytes().decode() == after


@pytest.mark.parametrize(
    ("before", "hunks", "after", "overlooked"),
    [
        ("a  \nb\t\n", "@@\n a\n-b\n+B", "a  \nB\n", "blanks at line ends"),
        (
            "say \u201chi\u201d\u2026\nx\n",
            '@@\n say "hi"\u2026\n-x',
            "say \u201chi\u201d\u2026\n",
            "quotes, dashes or spaces",
        ),
        ("x\u2004\u2013 y\n", "@@\n-x - y\n+z", "z\n", "quotes, dashes or spaces"),
    ],
)
async def test_what_is_overlooked_is_said_and_lines_that_stay_keep_their_text(  # noqa: PLR0913, PLR0917  a table
    before: str, hunks: str, after: str, overlooked: str, context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text(before)
    line = "M a.py (hunk 1 matched at line 1 only without regard to"
    assert await update(context, hunks) == [f"{line} {overlooked})"]
    assert (tmp_path / "a.py").read_text() == after


async def test_an_exact_place_wins_over_a_similar_one_above(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a  \nb\na\nb\n")
    assert await update(context, "@@\n a\n-b\n+B") == ["M a.py"]
    assert (tmp_path / "a.py").read_text() == "a  \nb\na\nB\n"


@pytest.mark.parametrize(
    ("hunks", "words"),
    [
        ("@@\n-missing entirely §\n+x", ("hunk 1 of 1 of a.py (line 3 of the patch)", "nor anything like")),
        (
            "@@\n-one\n+1\n@@\n-  return twoo\n+x",
            ("hunk 2 of 2 of a.py (line 6", "2 |   return two\n3 | three"),
        ),
        (
            "@@\n-three\n+3\n@@\n-one\n+1",
            ("hunk 2 of 2", "at line 1, not from line 4 on", "order of the file"),
        ),
        ("@@ three\n+x\n@@\n-one\n+1", ("hunk 2 of 2", "order of the file")),
        ("@@ nope\n-one\n+1", ("the line after @@, 'nope', is not in the file",)),
        (
            "@@ one\n-three\n+3\n@@ one\n+x",
            (
                "hunk 2 of 2",
                "only at line 1: put the hunks in the order",
            ),
        ),
        ("@@ -1,1 +1,1 @@\n-one\n+1", ("Write @@ alone or with a line of the file, without line numbers",)),
        ("@@ nope\n@@ one\n+x", ("'nope'",)),
        (
            "@@\n-one\n+1\n*** End of File",
            ("marked as the end of the file, but its lines are at line 1 of 3",),
        ),
    ],
)
async def test_a_hunk_that_does_not_match_is_named_and_nothing_is_written(
    hunks: str, words: tuple[str, ...], context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("one\n  return two\nthree\n")
    with pytest.raises(ToolError) as failure:
        await sections(context, "*** Update File: a.py", hunks, "*** Add File: b.py", "+b")
    for word in (*words, UNTOUCHED):
        assert word in str(failure.value)
    assert (tmp_path / "a.py").read_text() == "one\n  return two\nthree\n"
    assert not (tmp_path / "b.py").exists()
    assert context.ledger.touched == set()


@pytest.mark.parametrize(
    ("hunks", "after"),
    [
        ("@@\n-  return 1\n+  return 2", None),
        ("@@\n-  return 1 \n+  return 2", None),
        ("@@\n def f():\n-  return 1\n+  return 2\n@@\n-  return 1\n+  return 3", None),
        (
            "@@ def g():\n-  return 1\n+  return 2",
            "def f():\n  return 1\ndef g():\n  return 2\ndef h():\n  return 1\n",
        ),
        (
            "@@\n def g():\n-  return 1\n+  return 2",
            "def f():\n  return 1\ndef g():\n  return 2\ndef h():\n  return 1\n",
        ),
        (
            "@@\n-  return 1\n+  return 2\n*** End of File",
            "def f():\n  return 1\ndef g():\n  return 1\ndef h():\n  return 2\n",
        ),
        (
            "@@\n-  return 1\n+  return 2\n" * 3,
            "def f():\n  return 2\ndef g():\n  return 2\ndef h():\n  return 2\n",
        ),
        ("@@\n-  return 1\n+  return 2\n" * 2, None),
    ],
)
async def test_a_hunk_that_fits_several_places_is_refused_with_the_places(
    hunks: str, after: str | None, context: ToolContext, tmp_path: Path
) -> None:
    before = "def f():\n  return 1\ndef g():\n  return 1\ndef h():\n  return 1\n"
    (tmp_path / "a.py").write_text(before)
    if after:
        await update(context, hunks)
        assert (tmp_path / "a.py").read_text() == after
        return
    with pytest.raises(
        ToolError, match=r"its lines are in the file more than once, at line (2, )?4, 6\. Add lines"
    ):
        await update(context, hunks)
    assert (tmp_path / "a.py").read_text() == before


TWO_CLASSES = "class A:\n  def run(self):\n    return 1\n\nclass B:\n  def run(self):\n    return 1\n"
RUN = "@@ def run(self):\n-    return 1\n+    return 2\n"


@pytest.mark.parametrize(
    ("before", "hunks", "after"),
    [
        (TWO_CLASSES, RUN, None),
        (TWO_CLASSES, f"@@ class B:\n{RUN}", TWO_CLASSES[:-2] + "2\n"),
        (TWO_CLASSES, RUN * 2, TWO_CLASSES.replace("1", "2")),
        (TWO_CLASSES.replace("1", "7", 1), RUN, TWO_CLASSES.replace("1", "7", 1).replace("1", "2")),
        ("def f():\n  a\n\ndef g():\n  a\n", "@@ def f():\n-  a\n+  b", "def f():\n  b\n\ndef g():\n  a\n"),
    ],
)
async def test_a_line_that_is_there_twice_names_no_place(
    before: str, hunks: str, after: str | None, context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text(before)
    if after:
        await update(context, hunks)
    else:
        words = r"the line after @@, 'def run\(self\):', is in the file more than once, and so are its lines\. They are at line 3, 7\."
        with pytest.raises(ToolError, match=words):
            await update(context, hunks)
    assert (tmp_path / "a.py").read_text() == (after or before)


async def test_a_hunk_that_fails_again_is_answered_with_the_lines_as_they_are(
    context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("one\n  return two\nthree\n")
    answers: list[str] = []
    for new in ("3", "4"):
        with pytest.raises(ToolError) as failure:
            await update(context, f"@@\n one\n-  return twoo\n+{new}")
        answers.append(str(failure.value))
    assert "2 |   return two" in answers[0]
    assert (
        "Copy these lines of the file (line 1 on) exactly as they are between the fences, or use a few of them:\n"
        "```\none\n  return two\n```\nWhat differs:\nin the hunk, line 2: '  return twoo'\n"
        "in the file, line 2: '  return two'\n"
    ) in answers[1]
    await update(context, "@@\n-one\n+1")
    with pytest.raises(ToolError, match=r"copy the text without the numbers"):
        await update(context, "@@\n-  return twoo\n+2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must begin with the line *** Begin Patch"),
        ("Here it is:\n*** Begin Patch\n*** End Patch", "must begin with the line"),
        ("*** Begin Patch\n*** Add File: x\n+x", "if it was cut off"),
        ("*** Begin Patch", "if it was cut off"),
        ("*** Begin Patch\n*** End Patch\nmore", "must end with the line"),
        ("*** Begin Patch\n\n*** End Patch", "the patch is empty"),
        ("*** Begin Patch\n*** Frobnicate File: x\n*** End Patch", "line 2 of the patch is '*** Frobnicate"),
        ("*** Begin Patch\n*** Add File:  \n+x\n*** End Patch", "names no file"),
        ("*** Begin Patch\n*** Add File: x\n+a\n\nb\n*** End Patch", "line 5 of the patch is 'b'"),
        ("*** Begin Patch\n*** Update File: a.py\n*** End Patch", "leaves a.py without a hunk"),
        ("*** Begin Patch\n*** Update File: a.py\n*** Move to:\n*** End Patch", "names no file"),
        ("*** Begin Patch\n*** Update File: a.py\n@@\n*** End Patch", "the hunk above it is empty"),
        ("*** Begin Patch\n*** Update File: a.py\nfoo\n*** End Patch", "line 3 of the patch is 'foo'"),
        ("*** Begin Patch\n*** Update File: a.py\n@@\n-a\n\tb\n*** End Patch", "line 5 of the patch"),
        ("*** Begin Patch\n*** Update File: a.py\n@@foo\n-a\n*** End Patch", "without a space"),
        (
            "*** Begin Patch\n*** Update File: a.py\n@@\n-a\n*** End of File\n b\n*** End Patch",
            "line 6 of the patch is outside any hunk",
        ),
        ("*** Begin Patch\n*** Add File: x\n+\0\n*** End Patch", "NUL"),
        ("*** Begin Patch\n*** Add File: x\n+\ud800\n*** End Patch", "not valid Unicode"),
    ],
)
async def test_a_patch_of_another_form_is_refused(
    text: str, words: str, context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("a\n")
    with pytest.raises(ToolError) as failure:
        await patch(context, text)
    assert words in str(failure.value)
    assert [path.name for path in tmp_path.iterdir()] == ["a.py"]


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("```", "```"),
        ("```diff", "```\n"),
        ("<<'EOF'", "EOF\n"),
        ("cat <<'EOF'", "EOF"),
        ("cat<<EOF", "EOF"),
        ('cat << "EOF" | apply_patch', "EOF"),
        ("cat > /tmp/a.patch <<'EOF'", "EOF"),
        ("cat <<'EOF' > a.patch", "EOF\n"),
        ("cat <<\\EOF | git apply -", "EOF"),
        ("patch -p1 --forward <<'EOF'", "EOF"),
        ("$ applypatch <<'PATCH-1'", "PATCH-1"),
        ("bash -lc \"apply_patch <<'EOF'", 'EOF"'),
        ("/bin/bash -l -c 'apply_patch <<EOF", "EOF\n'"),
        ("apply_patch \"$(cat <<'EOF'", 'EOF\n)"'),
        ("```bash\ncat <<'EOF' | apply_patch", "EOF\n```"),
        ('<<"PATCH"', "PATCH"),
        ("apply_patch <<EOF", "EOF"),
        ("```sh\napply_patch <<'EOF'", "EOF\n```"),
        ("\ufeff", "\n \n"),
    ],
)
async def test_what_is_wrapped_around_is_taken_off(
    begin: str, end: str, context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("a\n")
    lines = ("  *** Begin Patch ", "  *** Update File: a.py", "-a", "+A", "*** End Patch  ", end)
    assert await patch(context, *([begin] if begin else []), *lines) == ["M a.py"]
    assert (tmp_path / "a.py").read_text() == "A\n"


async def test_a_heredoc_that_drops_tabs_drops_them(context: ToolContext, tmp_path: Path) -> None:
    lines = ("\t*** Begin Patch", "\t*** Add File: a.txt", "\t\t+\ta", "\t*** End Patch", "\tEOF")
    assert await patch(context, "cat <<-EOF", *lines) == ["A a.txt"]
    assert (tmp_path / "a.txt").read_text() == "\ta\n"


@pytest.mark.parametrize(
    "begin",
    [
        "cd src && apply_patch <<'EOF'",
        "rm -r x; cat <<'EOF'",
        "patch -R <<'EOF'",
        "git apply --reverse <<'EOF'",
        "git apply --directory=src <<'EOF'",
        "cat <<'EOF' | tee a.py",
        "cat <<'EOF' && rm a.py",
        "apply_patch <<'OTHER'",
        "apply_patch <<\"EOF'",
        "apply_patch <<'EOF",
        "cat <<'" + "E" * 300 + "'",
    ],
)
async def test_a_command_that_says_more_is_not_taken_off(
    begin: str, context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("a\n")
    with pytest.raises(ToolError, match="must begin with the line"):
        await patch(context, begin, "*** Begin Patch", "*** Delete File: a.py", "*** End Patch", "EOF")
    assert (tmp_path / "a.py").exists()


async def test_a_folder_takes_the_place_of_a_file_that_is_deleted(
    context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "d").write_text("d\n")
    (tmp_path / "e").write_text("e\n")
    (tmp_path / "e").chmod(0o755)
    answer = await sections(
        context,
        "*** Delete File: d",
        "*** Add File: d/x/y\n+1",
        "*** Update File: e\n*** Move to: d/e\n-e\n+E",
    )
    assert answer == ["D d", "A d/x/y", "R e -> d/e"]
    contents = {
        str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert contents == {"d/x/y": "1\n", "d/e": "E\n"}
    assert (tmp_path / "d/e").stat().st_mode & 0o777 == 0o755
    assert context.ledger.touched == {"d", "d/x/y", "e", "d/e"}


async def test_a_file_that_makes_way_in_vain_is_put_back(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "d").write_text("d\n")
    (tmp_path / "n/.git").mkdir(parents=True)
    (tmp_path / "n/x").write_text("x\n")
    with pytest.raises(ToolError, match=UNTOUCHED):
        await sections(
            context,
            "*** Delete File: d",
            "*** Add File: d/x\n+1",
            "*** Delete File: d/x",
            "*** Add File: d\n+2",
            "*** Add File: n/y\n+1",
        )
    assert (tmp_path / "d").read_text() == "d\n"


async def test_operations_on_one_file_follow_each_other(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a\nb\n")
    (tmp_path / "c.py").write_text("c\n")
    answer = await sections(
        context,
        "*** Update File: a.py\n-a\n+A",
        "*** Update File: ./a.py\n*** Move to: x.py\n-b  \n+B",
        "*** Update File: x.py\n*** Move to: y.py\n-A\n+AA",
        "*** Delete File: c.py",
        "*** Add File: c.py\n+other",
        "*** Add File: n.py\n+1",
        "*** Update File: n.py\n*** Move to: m.py\n-1\n+2",
    )
    assert answer == [
        "R a.py -> y.py (hunk 1 matched at line 2 only without regard to blanks at line ends)",
        "M c.py",
        "A m.py",
    ]
    contents = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert contents == {"y.py": "AA\nB\n", "c.py": "other\n", "m.py": "2\n"}
    assert context.ledger.touched == {"a.py", "y.py", "c.py", "m.py"}
    assert context.ledger.shown == {"c.py", "m.py"}


@pytest.mark.parametrize(
    "second",
    ["*** Delete File: a.py", "*** Update File: a.py\n-a\n+b", "*** Update File: a.py\n*** Move to: b.py"],
)
async def test_a_file_is_gone_after_the_patch_deleted_it(
    second: str, context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("a\n")
    with pytest.raises(FileMissingError, match="an earlier part of the patch removes or moves it"):
        await sections(context, "*** Delete File: a.py", second)
    assert (tmp_path / "a.py").read_text() == "a\n"


async def test_a_move_alone_and_a_move_to_itself(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\0\xff")
    (tmp_path / "b").write_text("b\n")
    context.ledger.shown.add("a.bin")
    answer = await sections(
        context, "*** Update File: a.bin", "*** Move to: c.bin", "*** Update File: b\n*** Move to: b\n-b\n+B"
    )
    assert answer == ["R a.bin -> c.bin", "M b"]
    assert (tmp_path / "c.bin").read_bytes() == b"\0\xff"
    assert context.ledger.shown == {"c.bin"}


async def test_a_file_that_moves_there_and_back_stays(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a\n")
    answer = await sections(
        context, "*** Update File: a\n*** Move to: b", "*** Update File: b\n*** Move to: a\n-a\n+A"
    )
    assert answer == ["M a"]
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "A\n")]


@pytest.mark.parametrize(
    "section", ["*** Add File: b.py\n+new", "*** Update File: a.py\n*** Move to: b.py\n-a\n+new"]
)
async def test_text_that_was_not_seen_is_not_replaced(
    section: str, context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_bytes(b"a\n")
    (tmp_path / "b.py").write_bytes(b"precious\r\n")
    with pytest.raises(ToolError, match=r"b\.py exists and you have not seen its text"):
        await sections(context, section)
    assert (tmp_path / "b.py").read_bytes() == b"precious\r\n"
    context.ledger.shown.add("b.py")
    await sections(context, section)
    assert (tmp_path / "b.py").read_text() == "new\n"


async def test_an_added_file_keeps_line_ends_and_mode_of_the_one_that_is_there(
    context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "b.py").write_bytes(b"\xef\xbb\xbfold\r\n")
    (tmp_path / "b.py").chmod(0o700)
    context.ledger.shown.add("b.py")
    assert await sections(context, "*** Add File: b.py\n+new\n+er") == ["M b.py"]
    assert (tmp_path / "b.py").read_bytes() == b"\xef\xbb\xbfnew\r\ner\r\n"
    assert (tmp_path / "b.py").stat().st_mode & 0o777 == 0o700


async def test_an_empty_file_may_be_replaced_and_a_new_one_may_be_empty(
    context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "b.py").touch()
    assert await sections(context, "*** Add File: b.py\n+new", "*** Add File: c.py") == ["M b.py", "A c.py"]
    assert (tmp_path / "b.py").read_text() == "new\n"
    assert (tmp_path / "c.py").read_bytes() == b""


async def test_what_the_patch_wrote_or_what_is_there_already_may_be_added(
    context: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("a\n")
    answer = await sections(context, "*** Add File: n\n+1", "*** Add File: n\n+2", "*** Add File: a.py\n+a")
    assert answer == ["A n", "M a.py (unchanged: the patch does not change its text)"]
    assert (tmp_path / "n").read_text() == "2\n"


async def test_a_patch_that_changes_no_text_says_so(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a\n")
    (answer,) = await update(context, "@@\n a")
    assert answer == "M a.py (unchanged: the patch does not change its text)"
    assert context.ledger.touched == set()


async def test_files_that_are_missing_or_no_text(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.py").write_text("a\n")
    (tmp_path / "b.bin").write_bytes(b"\0")
    with pytest.raises(
        FileMissingError, match=r"(?s)update a\.py: a\.py does not exist\. Did you mean sub/a\.py\?.*Nothing"
    ):
        await update(context, "-a\n+b")
    with pytest.raises(FileMissingError, match=r"delete x: x does not exist"):
        await sections(context, "*** Delete File: x")
    for section in (
        "*** Update File: b.bin\n-a\n+b",
        "*** Delete File: sub",
        "*** Add File: sub\n+x",
        "*** Add File: b.bin/x\n+x",
    ):
        with pytest.raises(FileUnreadableError, match="Nothing was changed"):
            await sections(context, section)
    with pytest.raises(ToolError, match="names a folder"):
        await sections(context, "*** Add File: new/\n+x")


def test_the_definition() -> None:
    tool = apply_patch()
    assert tool.name == "apply_patch"
    assert tool.order is Order.ALONE
    assert tool.definition.parameters["required"] == ["patch"]


async def test_the_example_of_the_description_is_a_patch(context: ToolContext, tmp_path: Path) -> None:
    description = apply_patch().definition.description
    example = description[description.index("Example:") + len("Example:") :]
    (tmp_path / "src").mkdir()
    (tmp_path / "src/old_basket.py").touch()
    (tmp_path / "src/basket.py").write_text(
        "class Basket:\n    def add(self, item):\n        self.check(item)\n        self.items.append(item)\n"
        "        return self\n\n    def clear(self):\n        self.items = {}\n"
    )
    assert await patch(context, example) == [
        "A docs/limits.md",
        "R src/basket.py -> src/shop/basket.py",
        "D src/old_basket.py",
    ]

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.app.html.diff import DiffPair, read_diff

GIT = r"""diff --git a/calc.py b/calc.py
index 1..2 100644
--- a/calc.py
+++ b/calc.py
@@ -1,3 +1,4 @@ def add
 def add(a, b):
--- not a header
+++ neither is this
+    return a + b
 end
\ No newline at end of file
diff --git "a/gr\303\274n.txt" "b/gr\303\274n.txt"
new file mode 100644
Binary files /dev/null and b/x differ
"""

texts = st.lists(st.text(st.characters(exclude_characters="\r\n"), max_size=20), max_size=12)


def test_lines_have_their_kinds_and_numbers() -> None:
    first, second = read_diff(GIT)
    assert first.path == "calc.py"
    assert [(line.kind, line.sign + line.text, line.old, line.new) for line in first.lines] == [
        ("hunk", "@@ -1,3 +1,4 @@ def add", None, None),
        ("same", " def add(a, b):", 1, 1),
        ("removed", "--- not a header", 2, None),
        ("added", "+++ neither is this", None, 2),
        ("added", "+    return a + b", None, 3),
        ("same", " end", 3, 4),
        ("note", r"\ No newline at end of file", None, None),
    ]
    assert (first.added, first.removed) == (2, 1)
    assert second.path == r"gr\303\274n.txt"
    assert [line.kind for line in second.lines] == ["note", "note"]


@given(texts, texts)
def test_every_changed_line_of_any_diff_is_in_it(before: list[str], after: list[str]) -> None:
    diff = list(difflib.unified_diff(before, after, "a/x", "b/x", lineterm=""))
    files = read_diff("\n".join(diff))
    assert [one.path for one in files] == (["x"] if diff else [])
    shown = [line.sign + line.text for one in files for line in one.lines]
    assert shown == diff[2:]


@given(st.text(max_size=300))
def test_what_is_no_diff_is_still_shown(text: str) -> None:
    lines = [line for one in read_diff(text) for line in one.lines]
    assert len(lines) <= text.count("\n") + 1
    if "--- " not in text and "+++ " not in text and "index " not in text and text.strip():
        assert sum(len(line.text) + len(line.sign) for line in lines) >= len(text.replace("\n", "")) - 1


@pytest.mark.parametrize("most", [0, 1, 5])
def test_what_is_left_out_is_counted(most: int) -> None:
    whole = sum(len(one.lines) for one in read_diff(GIT))
    files = read_diff(GIT, most)
    assert sum(len(one.lines) for one in files) == most
    assert sum(one.left_out for one in files) == whole - most


def test_a_pair_has_the_files_of_both_first() -> None:
    def of(*names: str) -> str:
        return "".join(f"diff --git a/{name} b/{name}\n@@ -1 +1 @@\n-a\n+b\n" for name in names)

    pair = DiffPair(of("one", "two"), of("three", "two"), "left", "right")
    assert [(path, left is not None, right is not None) for path, left, right in pair.rows] == [
        ("two", True, True),
        ("one", True, False),
        ("three", False, True),
    ]

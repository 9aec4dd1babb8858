"""Files that could be read before a change and cannot be read after it."""

from __future__ import annotations

import threading
import warnings

from orchestrator.core.changes import FileChange, FileVersion
from orchestrator.engine.policy.file_syntax import (
    MAX_BYTES,
    newly_unreadable,
    unreadable_files,
    without_warnings,
)
from tests.fuzz.growth import grows
from tests.tables import table


@table(
    ("path", "before", "after", "line", "text", "reason"),
    [
        ("a.py", b"x = 1\n", b"x = 1\nif x\n    y\n", 2, "if x", "expected ':'"),
        ("a.py", b"def f():\n    return 1\n", b"def f():\n    pass\nreturn 1\n", 3, "return 1", "'return' outside function"),
        ("a.py", b"x = 1\r", b"x = 1\ry = (\r", 2, "y = (", "was never closed"),
        ("a.py", b"x = 1\n", b"x = 1\n\x00", 2, "\0", "NUL"),
        ("a.py", b"x = 1\n", b"x = 1\n\x00\ny = 2\n", 2, "\0", "NUL"),
        ("a.py", b"x = '\xc3\xa9'\n", b"x = '\xe9'\n", 1, "x = '\ufffd'", "it is not UTF-8: byte 0xe9"),
        ("a.py", b"# coding: UTF8\n", b"# coding: UTF8\n\xe9\n", 2, "\ufffd", "not UTF-8"),
        ("a.py", b"", b"#\n#\n# coding: latin-1\nx = '\xe9'\n", 4, "x = '\ufffd'", "not UTF-8"),
        ("d/A.PYI", None, b"def f() -> int\n", 1, "def f() -> int", "expected ':'"),
        ("a.json", b"\xef\xbb\xbf{}", b"\xef\xbb\xbf{\n  'a': 1}", 2, "'a': 1}", "Expecting property name"),
        ("a.json", b"{}", b"", 1, "", "Expecting value"),
        ("n.ipynb", b"{}", b'{"a": 1,}', 1, '{"a": 1,}', ""),
        ("package.json", None, b"{} // x", 1, "{} // x", "Extra data"),
        ("a.toml", b"a = 1\n", b"a = 1\n[b\nc = 2\n", 2, "[b", "Expected ']'"),
        ("a.toml", b"a = 1\n", b"a = 1\nb = [1,\n", 2, "b = [1,", "end of document"),
        ("a.toml", b"", b"a = 1\na = 2\n", 2, "a = 2", "overwrite"),
        ("a.toml", b"", b"# coding: latin-1\na = [\n", 2, "a = [", "end of document"),
    ],
)  # fmt: skip
def test_the_line_and_the_reason_are_reported(  # noqa: PLR0913, PLR0917  a table
    path: str, before: bytes | None, after: bytes, line: int, text: str, reason: str
) -> None:
    problem = newly_unreadable(path, before, after)
    assert problem is not None
    assert (problem.line, problem.text) == (line, text)
    assert reason in problem.reason
    assert str(problem).startswith(f"{path} cannot be read as ")
    assert f"at line {line}, {text!r}: " in str(problem)


@table(
    ("path", "before", "after"),
    [
        ("a.py", b"print 'two'\n", b"print 'three'\n"),
        ("a.py", b"x = (", b"x = ("),
        ("a.py", b"", b"x = '\\d'\nx is 1\nassert (1, 2)\n"),
        ("a.py", b"# coding: latin-1\nx = '\xe9'\n", b"# coding: latin-1\nx = '\xe8' (\n"),
        ("a.py", None, b"\xef\xbb\xbfx = 1\n"),
        ("a.py", None, b"# -*- coding: no-such-codec -*-\nx = 1\n"),
        ("a.json", b"{} // x", b"{} // y"),
        ("tsconfig.build.json", None, b"{} // x"),
        (".vscode/settings.json", None, b"// x\n{}"),
        (".eslintrc.json", None, b"// x\n{}"),
        ("a.toml", b"a = ", b"b = "),
        ("a.txt", b"x", b"("),
        ("Makefile", None, b"("),
        ("a.py", b"x = 1", b"x = (" + b" " * MAX_BYTES),
        ("a.py", b"#" * MAX_BYTES + b"#", b"x = ("),
        ("a.json", None, b"9" * 5_000),
    ],
)
def test_a_file_that_was_unreadable_before_or_of_another_kind_is_not_checked(
    path: str, before: bytes | None, after: bytes
) -> None:
    assert newly_unreadable(path, before, after) is None


@table(
    ("path", "text"),
    [
        ("a.py", "-" * 100_000 + "1"),
        ("a.py", "a" + ".b" * 30_000),
        ("a.py", "if a: pass\n" + "elif a: pass\n" * 10_000),
        ("a.py", "lambda:" * 30_000 + "1"),
        ("a.py", "9**9**9**9\n'a' * 10**10\n1 << 10**9"),
        ("a.json", "[" * 100_000),
        ("a.toml", "a=" + "[" * 50_000),
        ("a.toml", "a." * 100_000 + "b=1"),
        ("a.toml", "a=" + "9" * 5_000),
        ("a.py", "x = '\ud800'"),
    ],
)
def test_a_file_that_no_parser_finishes_is_not_checked(path: str, text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(newly_unreadable(path, None, data)))
    thread.start()
    thread.join()
    assert len(found) == 1
    assert found == [None] or "not UTF-8" in str(found[0])


@table("text", ["(" * 10_000, "x = " + "9" * 100_000, "f'" + "{" * 5_000, "if a:\n" * 3_000])
def test_a_long_error_is_shortened(text: str) -> None:
    problem = newly_unreadable("a.py", None, text.encode())
    assert problem is not None
    assert len(str(problem)) < 500


def test_threads_leave_the_filters_of_warnings_as_they_were() -> None:
    before = list(warnings.filters)
    threads = [
        threading.Thread(
            target=lambda: [without_warnings(lambda: compile("1 is 1", "f", "exec")) for _ in range(50)]
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(warnings.filters) == before


def _version(content: bytes | None, mode: str = "100644") -> FileVersion | None:
    return None if content is None else FileVersion(mode, content, len(content))


def _change(path: str, old: bytes | None, new: bytes | None, mode: str = "100644") -> FileChange:
    return FileChange(path, _version(old, mode), _version(new, mode))


def test_a_change_is_compared_with_the_file_before() -> None:
    changes = (
        _change("broken.py", b"x = 1\n", b"x = (\n"),
        _change("mended.py", b"x = (\n", b"x = 1\n"),
        _change("new.json", None, b"{"),
        _change("gone.py", b"x = 1\n", None),
        _change("link.py", b"a", b"no python (", mode="120000"),
        FileChange("large.py", _version(b""), FileVersion("100644", None, 99_000_000)),
        _change("was_link.py", None, b"("),
    )
    assert [found.path for found in unreadable_files(changes)] == ["broken.py", "new.json", "was_link.py"]


def test_a_file_that_moved_is_no_new_one() -> None:
    old = b"print 'two'\n"
    assert not unreadable_files([_change("a.py", old, None), _change("py2/b.py", None, old)])
    assert not unreadable_files([_change("a.py", old, None), _change("py2/a.py", None, old + b"print 3\n")])
    assert unreadable_files([_change("a.py", old, None), _change("py2/b.py", None, old + b"print 3\n")])
    assert unreadable_files([_change("a.py", b"x = 1\n", None), _change("b/a.py", None, b"x = (\n")])


@table(
    "piece",
    ["def f(): x\n", "lambda:0\n", "[a for a in b]\n", "class A: x\n", "if a: x\n", "'a' 'b'\n", "a.b\n"],
)
def test_a_long_file_of_python_is_read_in_linear_time(piece: str) -> None:
    """The compiler takes quadratic time for functions that look alike, and no signal is heard meanwhile."""
    grows(lambda text: newly_unreadable("a.py", None, text.encode()), ("", piece, ""), small_chars=30_000)


def test_a_long_file_of_python_is_still_parsed() -> None:
    found = newly_unreadable("a.py", None, b"x = 1\n" * 10_000 + b"def f(:\n")
    assert found is not None
    assert found.line == 10_001

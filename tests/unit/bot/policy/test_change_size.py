from __future__ import annotations

import difflib

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.policy.change_size import ChangeLimits
from orchestrator.core.changes import FileChange, FileVersion
from tests.fuzz.growth import grows
from tests.tables import table

WIDE = 10**9
LINES = st.lists(st.sampled_from([b"a", b"b", b"", b"cc"]), max_size=8).map(b"\n".join)


def version(content: bytes) -> FileVersion:
    return FileVersion("100644", content, len(content))


def change(old: bytes | None, new: bytes | None) -> FileChange:
    return FileChange("x", None if old is None else version(old), None if new is None else version(new))


def counted(*changes: FileChange) -> tuple[int, int]:
    """Lines and bytes, found by trying limits."""

    def least(make: type[ChangeLimits], name: str) -> int:
        low, high = -1, WIDE
        while high - low > 1:
            middle = (low + high) // 2
            limits = {"files": WIDE, "lines": WIDE, "bytes": WIDE, name: middle}
            low, high = (low, middle) if make(**limits)(changes) is None else (middle, high)
        return high

    return least(ChangeLimits, "lines"), least(ChangeLimits, "bytes")


@table(
    ("old", "new", "expected"),
    [
        (None, b"a\nb\n", (2, 4)),
        (b"a\nb\n", None, (2, 4)),
        (b"a\nb\n", b"a\nc\n", (2, 4)),
        (b"a\n", b"a\na\n", (1, 2)),
        (b"a\nb\n", b"b\na\n", (0, 0)),
        (None, b"", (0, 0)),
        (None, b"no end", (1, 7)),
        (b"same", b"same", (0, 0)),
        (b"\0\1", b"\0\1\2", (0, 5)),
        (b"text\n", b"\0\1", (0, 7)),
        (None, b"a\rb\r", (1, 5)),
    ],
)
def test_what_counts(old: bytes | None, new: bytes | None, expected: tuple[int, int]) -> None:
    assert counted(change(old, new)) == expected


def test_what_was_too_large_to_be_read_counts_whole() -> None:
    large = FileVersion("100644", None, 2_000_000)
    assert counted(FileChange("x", version(b"a\n"), large)) == (0, 2_000_002)
    assert counted(FileChange("x", large, None)) == (0, 2_000_000)


def test_a_change_within_the_limits_is_let_through() -> None:
    limits = ChangeLimits(files=2, lines=3, bytes=6)
    assert limits([change(None, b"a\nb\n"), change(None, b"c\n")]) is None
    assert limits([]) is None


def test_what_is_too_much_is_said_in_one_line_with_the_flag() -> None:
    changes = [change(None, b"a\n" * 1500), change(b"b\n", b"c\n")]
    said = ChangeLimits(files=1, lines=1501, bytes=10)(changes)
    assert said == (
        "the change is too large: 2 changed files, at most 1 are allowed (--max-files); "
        "1,502 added and removed lines, at most 1,501 are allowed (--max-lines); "
        "3,004 added and removed bytes, at most 10 are allowed (--max-bytes)"
    )
    assert ChangeLimits(files=0, lines=WIDE, bytes=WIDE)([change(b"x", b"x")]) is not None


@given(LINES, LINES)
def test_it_is_never_more_than_a_diff_shows(old: bytes, new: bytes) -> None:
    before = old.removesuffix(b"\n").split(b"\n") if old else []
    after = new.removesuffix(b"\n").split(b"\n") if new else []
    codes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    shown = sum(end - start + stop - begin for tag, start, end, begin, stop in codes if tag != "equal")
    lines, _ = counted(change(old, new))
    assert lines <= shown
    assert (lines == 0) == (sorted(before) == sorted(after))


def test_time_is_linear() -> None:
    """A comparison of each line with each is quadratic."""
    limits = ChangeLimits(1, 1, 1)
    piece = "".join(f"line {number}\n" for number in range(7))
    grows(
        lambda text: limits([change(text.encode(), text[::-1].encode())]),
        ("", piece, ""),
        small_chars=100_000,
    )

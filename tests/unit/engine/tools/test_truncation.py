"""What a model is shown of a long output."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.tools.base import Mode, OutputLimits, truncate, truncate_chars, truncate_lines
from tests.tables import table

LIMITS = {
    "read_file": (50_000, None, Mode.HEAD_TAIL),
    "shell": (30_000, 256, Mode.HEAD_TAIL),
    "run_shell_command": (30_000, 256, Mode.HEAD_TAIL),
    "shell_command": (30_000, 256, Mode.HEAD_TAIL),
    "grep_files": (20_000, 200, Mode.TAIL),
    "read_many_files": (50_000, None, Mode.HEAD_TAIL),
    "grep": (20_000, 200, Mode.TAIL),
    "glob": (20_000, 500, Mode.TAIL),
    "edit_file": (10_000, None, Mode.TAIL),
    "apply_patch": (10_000, None, Mode.TAIL),
    "write_file": (1_000, None, Mode.TAIL),
    "spawn_agent": (20_000, None, Mode.HEAD_TAIL),
    "list_dir": (20_000, None, Mode.HEAD_TAIL),
}


@table("tool", LIMITS)
def test_the_defaults(tool: str) -> None:
    chars, lines, mode = LIMITS[tool]
    assert truncate("x" * chars, tool) == "x" * chars
    long = "a" * chars + "b" * chars
    assert truncate(long, tool) == truncate_chars(long, chars, mode)
    assert truncate(long, tool).startswith("a") is (mode is Mode.HEAD_TAIL)
    many = "\n" * (chars // 2)
    assert truncate(many, tool) == (many if lines is None else truncate_lines(many, lines))


def test_the_markers_are_those_of_the_specification() -> None:
    assert truncate_chars("abcdefghij", 4, Mode.HEAD_TAIL) == (
        "ab\n\n[WARNING: Tool output was truncated. 6 characters were removed from the middle. The full output is "
        "available in the event stream. If you need to see specific parts, re-run the tool with more targeted "
        "parameters.]\n\nij"
    )
    assert truncate_chars("abcdefghij", 4, Mode.TAIL) == (
        "[WARNING: Tool output was truncated. First 6 characters were removed. The full output is available in the "
        "event stream.]\n\nghij"
    )
    assert truncate_lines("1\n2\n3\n4\n5", 3) == "1\n[... 2 lines omitted ...]\n4\n5"


def test_characters_are_cut_before_lines() -> None:
    output = "x" * 100_000 + "\n" + "y" * 100_000
    shown = truncate(output, "shell")
    assert len(shown) < 30_500
    assert "170001 characters were removed" in shown


def test_a_host_may_set_other_limits() -> None:
    limits = OutputLimits(chars={"shell": 10, "write_file": 3}, lines={"shell": None, "read_file": 2})
    assert "10 characters were removed" in truncate("x" * 20, "run_shell_command", limits)
    assert truncate("\n" * 10, "shell", limits) == "\n" * 10
    assert truncate("1\n2\n3", "read_file", limits) == "1\n[... 1 lines omitted ...]\n3"
    assert truncate("x" * 20, "grep", limits) == "x" * 20


@table(
    ("limits", "shown"),
    [
        (OutputLimits(chars={"shell": 3}, lines={"shell": None}), 3),
        (OutputLimits(chars={"shell_command": 3}), 3),
        (OutputLimits(chars={"shell": 5, "shell_command": 3}), 3),
        (OutputLimits(chars={"shell": 3, "run_shell_command": 5}), 3),
        (OutputLimits(chars={"grep": 3}), 10),
    ],
)
def test_a_limit_may_be_set_by_the_tools_own_name(limits: OutputLimits, shown: int) -> None:
    output = "0123456789"
    assert truncate(output, "shell_command", limits) == truncate_chars(output, shown, Mode.HEAD_TAIL)


def test_lines_may_be_limited_by_the_tools_own_name() -> None:
    limits = OutputLimits(lines={"grep": 5, "grep_files": None, "list_dir": 2})
    assert truncate("\n" * 300, "grep_files", limits) == "\n" * 300
    assert "296 lines omitted" in truncate("\n" * 300, "grep", limits)
    assert "299 lines omitted" in truncate("\n" * 300, "list_dir", limits)


@table("tool", ["shell", "grep", "read_file"])
@table("output", ["x" * 20_000_000, "x\n" * 10_000_000], ids=["one line", "many lines"])
def test_what_is_cut_is_neither_copied_nor_split(tool: str, output: str) -> None:
    tracemalloc.start()
    try:
        assert len(truncate(output, tool)) < 60_000
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@given(st.text(), st.integers(0, 50), st.sampled_from(Mode))
def test_cut_by_characters_keeps_exactly_the_limit(output: str, most: int, mode: Mode) -> None:
    cut = truncate_chars(output, most, mode)
    if len(output) <= most:
        assert cut == output
        return
    removed = len(output) - most
    head, marker, tail = cut.partition("[WARNING: Tool output was truncated. ")
    assert f"{removed} characters were removed" in marker + tail
    kept_tail = cut.rpartition("]\n\n")[2] if "]\n\n" not in output else None
    if mode is Mode.HEAD_TAIL:
        assert head == output[: most // 2] + "\n\n"
    else:
        assert head == ""
    assert cut.endswith(output[len(output) - (most - most // 2 if mode is Mode.HEAD_TAIL else most) :])
    if kept_tail is not None:
        kept_head = len(head.removesuffix("\n\n")) if mode is Mode.HEAD_TAIL else 0
        assert kept_head + len(kept_tail) == most


@given(st.lists(st.text("ab", max_size=3), max_size=40), st.integers(0, 20))
def test_cut_by_lines_keeps_exactly_the_limit(lines: list[str], most: int) -> None:
    output = "\n".join(lines)
    total = len(output.split("\n"))
    cut = truncate_lines(output, most).split("\n")
    if total <= most:
        assert "\n".join(cut) == output
        return
    assert len(cut) == most + 1
    assert cut[most // 2] == f"[... {total - most} lines omitted ...]"
    assert cut[: most // 2] == output.split("\n")[: most // 2]


@given(st.text(max_size=2_000))
def test_an_output_within_the_limits_is_not_touched(output: str) -> None:
    assert truncate(output, "read_file") == output

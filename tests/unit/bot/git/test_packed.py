"""Unfinished work outside of any repository: brought onto a clone that was made later."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import WorkspaceError
from tests.unit.bot.git.rig import clone, git, make_source, write

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.bot.git.base import Packed

CALC = "def add(a, b):\n    return a - b\n"
FIXED = "def add(a, b):\n    return a + b\n"
BINARY = bytes(range(256)) * 64


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_source(tmp_path / "source", {"calc.py": CALC, "old.txt": "old\n"})


def packed(source: Path, tmp_path: Path) -> Packed:
    """Work of a clone that is gone: a change, a new file that is not text, and a file that was removed."""
    with clone(source, tmp_path / "first") as opened:
        write(opened.tree, {"calc.py": FIXED, "new.bin": BINARY})
        (opened.tree / "old.txt").unlink()
        touched = {"calc.py", "new.bin", "old.txt"}
        return opened.pack(opened.snapshot(touched, "work", include_commands=False))


def test_it_is_in_the_files_of_a_later_clone(source: Path, tmp_path: Path) -> None:
    work = packed(source, tmp_path)
    assert work.work is not None
    with clone(source, tmp_path / "second") as opened:
        adopted = opened.adopt(work.work, packed=work)
        assert adopted.paths == {"calc.py", "new.bin", "old.txt"}
        assert (adopted.conflicts, adopted.base_moved) == ([], False)
        assert (opened.tree / "calc.py").read_text() == FIXED
        assert (opened.tree / "new.bin").read_bytes() == BINARY
        assert not (opened.tree / "old.txt").exists()


def test_it_is_merged_into_a_base_that_moved_far(source: Path, tmp_path: Path) -> None:
    work = packed(source, tmp_path)
    assert work.work is not None
    for number in range(80):  # more than a shallow clone has
        git(source, "commit", "-q", "--allow-empty", "-m", f"step {number}")
    write(source, {"calc.py": f"# The sum.\n\n\n{CALC}"})
    git(source, "commit", "-qam", "above")
    with clone(f"file://{source}", tmp_path / "second") as opened:
        adopted = opened.adopt(work.work, packed=work)
        assert adopted.base_moved
        assert (opened.tree / "calc.py").read_text() == f"# The sum.\n\n\n{FIXED}"


def test_conflicts_are_named(source: Path, tmp_path: Path) -> None:
    work = packed(source, tmp_path)
    write(source, {"calc.py": CALC.replace("a - b", "a - b  # sic")})
    git(source, "commit", "-qam", "theirs")
    with clone(source, tmp_path / "second") as opened:
        assert opened.adopt(work.work or "", packed=work).conflicts == ["calc.py"]


def test_a_base_that_is_gone_is_said(source: Path, tmp_path: Path) -> None:
    work = replace(packed(source, tmp_path), onto="1" * 40)
    with clone(source, tmp_path / "second") as opened, pytest.raises(WorkspaceError, match="does not have"):
        opened.adopt(work.work or "", packed=work)


def test_a_damaged_pack_is_an_error(source: Path, tmp_path: Path) -> None:
    work = packed(source, tmp_path)
    torn = replace(work, pack=work.pack[:-30])
    with (
        clone(source, tmp_path / "second") as opened,
        pytest.raises(WorkspaceError, match="cannot bring back"),
    ):
        opened.adopt(work.work or "", packed=torn)


def test_files_with_secrets_are_not_in_it(source: Path, tmp_path: Path) -> None:
    with clone(source, tmp_path / "first") as opened:
        write(opened.tree, {"calc.py": FIXED, "key.txt": "hush\n"})
        made = opened.snapshot(
            {"calc.py", "key.txt"},
            "work",
            include_commands=False,
            find_secrets=lambda diff: ["key.txt"] if "hush" in diff else [],
        )
        work = opened.pack(made)
    with clone(source, tmp_path / "second") as opened:
        assert opened.adopt(work.work or "", packed=work).paths == {"calc.py"}


def test_nothing_changed_is_no_work(source: Path, tmp_path: Path) -> None:
    with clone(source, tmp_path / "first") as opened:
        assert opened.pack(opened.snapshot(set(), "work", include_commands=False)).work is None


def test_the_same_commit_made_again_is_not_pushed_over_the_first(source: Path, tmp_path: Path) -> None:
    with clone(source, tmp_path / "first") as opened:
        write(opened.tree, {"calc.py": FIXED})
        opened.commit({"calc.py"}, "Fix it", include_commands=False)
        first = opened.push("topic", expected=None)
    with clone(source, tmp_path / "second") as opened:
        state = opened.branch_state("topic", "bot@example.invalid")
        assert state is not None
        assert opened.message_of(state.tip) == "Fix it"
        opened.adopt(first, reference="refs/heads/topic")
        opened.commit({"calc.py"}, "Fix it\n\nin other words", include_commands=False)
        assert opened.push("topic", expected=first) == first
        write(opened.tree, {"calc.py": FIXED + "\n"})
        opened.commit({"calc.py"}, "More", include_commands=False)
        second = opened.push("topic", expected=None)
    assert git(source, "rev-parse", "topic~1", "topic").split() == [first, second]

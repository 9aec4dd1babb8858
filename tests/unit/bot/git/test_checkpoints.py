"""Checkpoints on a real folder: what tools changed goes back and forth, and what a person did stays."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.bot.git import checkpoints as module
from orchestrator.bot.git.checkpoints import Checkpoints
from orchestrator.core.errors import WorkspaceError
from tests.scenarios.stage import git, make_repository

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILES = {
    "a.txt": b"one\r\ntwo\r\n",
    "sub/b.bin": bytes(range(256)),
    ".gitattributes": b"* text=auto\n",
    ".gitignore": b"*.log\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project", FILES)


@pytest.fixture
def kept(folder: Path, tmp_path: Path) -> Checkpoints:
    return Checkpoints(folder, tmp_path / "store", _fail)


def _fail(text: str) -> None:
    raise AssertionError(text)


def content(folder: Path) -> dict[str, object]:
    """Every file outside of `.git`: bytes or the link's target, and whether it can be run."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name.split("/")[0] == ".git" or (path.is_dir() and not path.is_symlink()):
            continue
        found[name] = path.readlink() if path.is_symlink() else (path.read_bytes(), os.access(path, os.X_OK))
    return found


async def change(kept: Checkpoints, *steps: Callable[[], object]) -> None:
    """One turn, in which each step is a tool."""
    kept.begin_turn()
    for step in steps:
        async with kept.around():
            step()
    kept.end_turn()


async def test_a_turn_goes_back_and_forth_byte_for_byte(folder: Path, kept: Checkpoints) -> None:
    before = content(folder)

    def shell() -> None:
        (folder / "sub/b.bin").unlink()
        (folder / "sub").rmdir()
        (folder / "sub").write_text("a file now")
        (folder / "link").symlink_to("a.txt")
        (folder / "new/deep").mkdir(parents=True)
        (folder / "new/deep/run.sh").write_text("#!/bin/sh\n")
        (folder / "new/deep/run.sh").chmod(0o755)

    await change(kept, lambda: (folder / "a.txt").write_bytes(b"one\nTWO\r\n"), shell)
    after = content(folder)
    assert "-two" in kept.changed()
    assert "+two" in kept.preview()
    kept.undo()
    assert content(folder) == before
    assert not (folder / "new").exists()
    kept.redo()
    assert content(folder) == after
    kept.undo()
    assert content(folder) == before


async def test_what_a_person_changed_since_stays(folder: Path, kept: Checkpoints) -> None:
    def tool() -> None:
        (folder / "a.txt").write_text("tool")
        (folder / "c.txt").write_text("tool")

    await change(kept, tool)
    (folder / "a.txt").write_text("mine")
    (folder / "mine.txt").write_text("mine, too")
    restored = kept.undo()
    assert (restored.paths, restored.kept) == (("c.txt",), ("a.txt",))
    assert (folder / "a.txt").read_text() == "mine"
    assert (folder / "mine.txt").read_text() == "mine, too"
    assert not (folder / "c.txt").exists()


async def test_a_dirty_tree_and_its_index_stay_as_they_are(folder: Path, kept: Checkpoints) -> None:
    (folder / "a.txt").write_text("staged")
    git(folder, "add", "a.txt")
    (folder / "a.txt").write_text("dirty")
    (folder / "untracked.txt").write_text("untracked")
    (folder / "x.log").write_text("ignored")
    before, status = content(folder), git(folder, "status", "--porcelain")
    await change(kept, lambda: (folder / "a.txt").write_text("tool"), (folder / "untracked.txt").unlink)
    kept.undo()
    assert (content(folder), git(folder, "status", "--porcelain")) == (before, status)


async def test_what_a_person_does_between_two_tools_is_no_part_of_the_turn(
    folder: Path, kept: Checkpoints
) -> None:
    kept.begin_turn()
    async with kept.around():
        (folder / "a.txt").write_text("tool")
    (folder / "person.txt").write_text("person")
    async with kept.around():
        (folder / "d.txt").write_text("tool")
    kept.undo()
    assert (folder / "person.txt").exists()
    assert not (folder / "d.txt").exists()


async def test_turns_go_back_one_by_one_and_a_new_one_ends_what_can_be_done_again(
    folder: Path, kept: Checkpoints
) -> None:
    for word in ("one", "two"):
        await change(kept, lambda word=word: (folder / "a.txt").write_text(word))  # type: ignore[misc]
    kept.undo()
    assert (folder / "a.txt").read_text() == "one"
    kept.undo()
    with pytest.raises(WorkspaceError, match="nothing to undo"):
        kept.undo()
    kept.redo()
    await change(kept, lambda: (folder / "e.txt").write_text("three"))
    with pytest.raises(WorkspaceError, match="nothing to redo"):
        kept.redo()


async def test_large_files_are_left_out_and_said_and_the_store_goes_away(
    folder: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    kept = Checkpoints(folder, tmp_path / "store", said.append)
    size = module.MOST_FILE_BYTES + 1
    await change(kept, lambda: os.truncate(os.open(folder / "large", os.O_CREAT | os.O_RDWR), size))
    assert said == ["/undo cannot restore files that are too large: large"]
    assert (tmp_path / "store").exists()
    kept.close()
    assert not (tmp_path / "store").exists()


async def test_too_much_is_said_once_and_the_work_goes_on(folder: Path, tmp_path: Path) -> None:
    for number in range(module.MOST_NEW_BYTES // module.MOST_FILE_BYTES + 1):
        with (folder / f"{number}.bin").open("wb") as file:
            file.truncate(module.MOST_FILE_BYTES)
    said: list[str] = []
    kept = Checkpoints(folder, tmp_path / "store", said.append)
    await change(kept, lambda: (folder / "a.txt").write_text("1"), lambda: (folder / "a.txt").write_text("2"))
    assert len(said) == 1
    assert "/undo cannot undo" in said[0]


async def test_a_folder_without_a_repository_will_do(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/x").write_text("1")
    kept = Checkpoints(tmp_path / "plain", tmp_path / "store", _fail)
    await change(kept, lambda: (tmp_path / "plain/x").write_text("2"))
    kept.undo()
    assert (tmp_path / "plain/x").read_text() == "1"


async def test_nothing_is_written_through_a_link_that_came_meanwhile(
    folder: Path, kept: Checkpoints, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    await change(kept, (folder / "sub/b.bin").unlink)
    (folder / "sub").rmdir() if (folder / "sub").exists() else None
    (folder / "sub").symlink_to(tmp_path / "outside")
    restored = kept.undo()
    assert restored.kept == ("sub/b.bin",)
    assert not any((tmp_path / "outside").iterdir())


_NAMES = st.sampled_from(["a", "b", "d", "d/x", "d/y"])
_STEPS = st.lists(st.tuples(_NAMES, st.none() | st.binary(max_size=8)), max_size=6)


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(turns=st.lists(_STEPS, min_size=1, max_size=3))
async def test_undo_and_redo_are_inverse(
    turns: list[list[tuple[str, bytes | None]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.mktemp("undo")
    (base / "f").mkdir()
    kept = Checkpoints(base / "f", base / "store", _fail)

    def write(name: str, data: bytes | None) -> None:
        place = base / "f" / name
        if (place.parent != base / "f" and place.parent.is_file()) or place.is_dir():
            return
        if data is None:
            place.unlink(missing_ok=True)
        else:
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(data)

    states = [content(base / "f")]
    for steps in turns:
        await change(kept, *(lambda n=n, d=d: write(n, d) for n, d in steps))
        if content(base / "f") != states[-1]:
            states.append(content(base / "f"))
    for state in reversed(states[:-1]):
        kept.undo()
        assert content(base / "f") == state
    for state in states[1:]:
        kept.redo()
        assert content(base / "f") == state


class Counted(Checkpoints):
    """Checkpoints whose snapshots end when they may, and are counted."""

    inside = most = 0
    may_end = threading.Event()

    def _try_snapshot(self) -> str:
        self.inside += 1
        self.most = max(self.most, self.inside)
        assert self.may_end.wait(60)
        self.inside -= 1
        return super()._try_snapshot()


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_tools_that_begin_and_end_at_the_same_time_share_the_checkpoints(
    folder: Path, tmp_path: Path, *, is_cancelled: bool
) -> None:
    kept = Counted(folder, tmp_path / "store", _fail)
    kept.may_end = threading.Event()
    kept.begin_turn()

    async def tool(name: str) -> None:
        async with kept.around():
            (folder / name).write_text("x")

    tools = [asyncio.create_task(tool(name)) for name in ("one", "two", "three")]
    for _ in range(20):
        await asyncio.sleep(0)
    if is_cancelled:
        tools[0].cancel()
        await asyncio.sleep(0)
    kept.may_end.set()
    await asyncio.wait(tools)
    assert kept.most == 1
    kept.end_turn()
    (turn,) = kept.done
    assert set(turn.changes) == ({"two", "three"} if is_cancelled else {"one", "two", "three"})

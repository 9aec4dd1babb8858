from __future__ import annotations

import asyncio
import mmap
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.bot.verification.slot import Slot, _remove
from orchestrator.core.errors import ToolError
from tests.unit.bot.verification.rig import bench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TRACKED = {"app.py": "100644", "web/index.js": "100644"}
MADE = {
    ".venv/bin/tool": "tool",
    ".venv/lib/a/one.py": "one",
    ".venv/lib/a/two.py": "two",
    ".venv/lib/b/three.py": "three",
    "web/node_modules/x/index.js": "x",
    "web/build.txt": "built",
}


@pytest.fixture
def slot(tmp_path: Path) -> Iterator[Slot]:
    """A slot that keeps what a set-up made, under the key `k`."""
    taken = Slot.take(tmp_path / "home")
    set_up(taken)
    yield taken
    taken.close()


def set_up(slot: Slot, **other: str) -> None:
    fresh(slot)
    for path, text in {**MADE, **other}.items():
        (slot.tree / path).parent.mkdir(parents=True, exist_ok=True)
        (slot.tree / path).write_text(text)
    (slot.tree / ".venv/bin/python").symlink_to("/usr/bin/python3")
    (slot.tree / "web/__pycache__").mkdir()
    slot.save_setup("k", TRACKED)


def fresh(slot: Slot, tracked: dict[str, str] = TRACKED) -> None:
    """What an export does."""
    slot.empty()
    for path in tracked:
        (slot.tree / path).parent.mkdir(parents=True, exist_ok=True)
        (slot.tree / path).write_text("ours")


def files(slot: Slot) -> dict[str, str]:
    return {
        str(path.relative_to(slot.tree)): f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
        for path in slot.tree.rglob("*")
        if path.is_symlink() or path.is_file()
    }


WHOLE = {**dict.fromkeys(TRACKED, "ours"), **MADE, ".venv/bin/python": "-> /usr/bin/python3"}


def rewritten_in_secret(tree: Path) -> None:
    path = tree / ".venv/lib/a/one.py"
    before = path.stat()
    path.write_text("eno")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def rewritten_by_a_map(tree: Path) -> None:
    with (tree / ".venv/lib/a/one.py").open("r+b") as file, mmap.mmap(file.fileno(), 3) as shared:
        assert shared[:] == b"one"
        shared[:] = b"eno"


def moved(tree: Path) -> None:
    (tree / ".venv/lib/a").rename(tree / ".venv/lib/c")
    (tree / ".venv/lib/b").rename(tree / ".venv/lib/a")


def linked_away(tree: Path) -> None:
    outside = tree.parent.parent / "outside"
    (outside / "node_modules").mkdir(parents=True)
    (outside / "node_modules/mine.txt").write_text("a person's")
    shutil.rmtree(tree / "web")
    (tree / "web").symlink_to(outside)
    shutil.rmtree(tree / ".venv")
    (tree / ".venv").symlink_to(outside)


def relinked(tree: Path) -> None:
    (tree / ".venv/bin/python").unlink()
    (tree / ".venv/bin/python").symlink_to("/x")


def a_file_for_a_folder(tree: Path) -> None:
    shutil.rmtree(tree / ".venv/lib/b")
    (tree / ".venv/lib/b").write_text("")


def a_folder_for_a_file(tree: Path) -> None:
    (tree / ".venv/bin/tool").unlink()
    (tree / ".venv/bin/tool/x").mkdir(parents=True)


SPOILT: dict[str, Callable[[Path], object]] = {
    "nothing": lambda _tree: None,
    "rewritten in secret": rewritten_in_secret,
    "rewritten by a map": rewritten_by_a_map,
    "moved": moved,
    "linked away": linked_away,
    "added": lambda tree: (tree / ".venv/lib/a/sitecustomize.py").write_text("bad"),
    "removed": lambda tree: shutil.rmtree(tree / ".venv/lib"),
    "closed": lambda tree: (tree / ".venv/lib/a").chmod(0),
    "closed on top": lambda tree: (tree / ".venv").chmod(0),
    "another link": relinked,
    "a second name": lambda tree: os.link(tree / ".venv/bin/tool", tree / "tool"),
    "made a program": lambda tree: (tree / ".venv/lib/a/two.py").chmod(0o755),
    "a file for a folder": a_file_for_a_folder,
    "a folder for a file": a_folder_for_a_file,
}


@pytest.mark.parametrize("spoil", SPOILT)
def test_whatever_a_run_does_the_next_one_has_what_the_set_up_made(slot: Slot, spoil: str) -> None:
    fresh(slot)
    slot.restore_setup("k")
    assert files(slot) == WHOLE
    SPOILT[spoil](slot.tree)
    for _ in range(2):
        fresh(slot)
        slot.restore_setup("k")
        assert files(slot) == WHOLE
        assert (slot.tree / ".venv/lib/a/two.py").stat().st_mode & 0o777 == 0o644
    outside = slot.tree.parent.parent / "outside"
    assert not outside.exists() or [path.name for path in outside.rglob("*.txt")] == ["mine.txt"]


IN_MEMORY = Path("/dev/shm")  # noqa: S108  of the machine


@pytest.mark.skipif(not os.access(IN_MEMORY, os.W_OK), reason="no file system in memory")
@pytest.mark.parametrize("spoil", ["nothing", "rewritten by a map", "removed", "another link"])
def test_a_file_system_that_does_not_tell_of_maps_is_read(spoil: str) -> None:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        slot = Slot.take(Path(folder) / "home")
        set_up(slot)
        fresh(slot)
        slot.restore_setup("k")
        watched = (".venv/lib/a/one.py", "app.py")
        before = slot.stamper.files(watched)
        SPOILT[spoil](slot.tree)
        after = slot.stamper.files(watched)
        assert after["app.py"] == before["app.py"]
        assert (after[watched[0]] == before[watched[0]]) is (spoil in {"nothing", "another link"})
        fresh(slot)
        slot.restore_setup("k")
        assert files(slot) == WHOLE
        slot.close()


@pytest.mark.parametrize("spoil", SPOILT)
def test_the_next_process_goes_on_with_what_was_lent(slot: Slot, tmp_path: Path, spoil: str) -> None:
    fresh(slot)
    slot.restore_setup("k")
    number = (slot.tree / ".venv/lib/b/three.py").stat().st_ino
    SPOILT[spoil](slot.tree)
    slot.close()
    second = Slot.take(tmp_path / "home")
    fresh(second)
    second.restore_setup("k")
    assert files(second) == WHOLE
    if spoil in {"nothing", "rewritten in secret", "rewritten by a map", "added", "another link"}:
        assert (second.tree / ".venv/lib/b/three.py").stat().st_ino == number
    second.close()


def _cut(record: Path) -> None:
    record.write_bytes(record.read_bytes()[:-9])


@pytest.mark.parametrize("damage", [Path.unlink, _cut, lambda path: path.write_text('{"stamps": {"x": 3}}')])
def test_what_was_lent_and_is_not_known_any_more_is_copied(
    slot: Slot, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    fresh(slot)
    slot.restore_setup("k")
    rewritten_in_secret(slot.tree)
    slot.close()
    damage(tmp_path / "home/0/lent.json")
    second = Slot.take(tmp_path / "home")
    assert not (tmp_path / "home/0/lent").exists()
    fresh(second)
    second.restore_setup("k")
    assert files(second) == WHOLE
    second.close()


def test_a_set_up_that_is_made_anew_is_lent_anew(slot: Slot, tmp_path: Path) -> None:
    fresh(slot)
    slot.restore_setup("k")
    slot.close()
    shutil.rmtree(tmp_path / "home/0/setups")
    second = Slot.take(tmp_path / "home")
    set_up(second, **{".venv/lib/a/one.py": "new"})
    fresh(second)
    second.restore_setup("k")
    assert files(second) == {**WHOLE, ".venv/lib/a/one.py": "new"}
    second.close()


def test_what_did_not_change_is_not_copied_again(slot: Slot) -> None:
    numbers = []
    for _ in range(3):
        fresh(slot)
        slot.restore_setup("k")
        numbers.append({path: (slot.tree / path).stat().st_ino for path in MADE if "/" in path})
        (slot.tree / ".venv/lib/a/one.py").write_text("spoilt")
    kept = [path for path in MADE if path.startswith((".venv", "web/node_modules")) and "one.py" not in path]
    assert [{path: one[path] for path in kept} for one in numbers] == [
        {path: numbers[0][path] for path in kept}
    ] * 3


def test_what_the_repository_has_itself_stays(slot: Slot) -> None:
    fresh(slot, {**TRACKED, "web/build.txt": "", ".venv/lib/a/one.py": "", "web/node_modules/x": ""})
    slot.restore_setup("k")
    found = files(slot)
    assert (found["web/build.txt"], found[".venv/lib/a/one.py"], found["web/node_modules/x"]) == ("ours",) * 3
    assert found[".venv/lib/a/two.py"] == "two"


def test_another_set_up_gets_nothing_of_the_first(slot: Slot) -> None:
    fresh(slot)
    slot.restore_setup("k")
    fresh(slot)
    (slot.tree / "other").mkdir()
    slot.save_setup("k2", TRACKED)
    fresh(slot)
    slot.restore_setup("k2")
    assert {path.name for path in slot.tree.iterdir() if path.is_dir()} == {"other", "web"}
    fresh(slot)
    slot.restore_setup("k")
    assert files(slot) == WHOLE


def test_the_oldest_set_ups_go(slot: Slot) -> None:
    for number in range(4):
        fresh(slot)
        slot.save_setup(f"k{number}", TRACKED)
    assert [slot.has_setup(key) for key in ("k", "k0", "k3")] == [False, False, True]


def test_a_slot_is_held_until_it_is_closed(tmp_path: Path) -> None:
    first, second = Slot.take(tmp_path / "home"), Slot.take(tmp_path / "home")
    assert first.tree != second.tree
    first.empty()
    first.close()
    first.close()
    assert not first.tree.exists()
    third = Slot.take(tmp_path / "home")
    assert third.tree == first.tree
    second.close()
    third.close()


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(ToolError, match="tests cannot run in"):
        Slot.take(tmp_path / "home")


@pytest.mark.parametrize(
    "pattern", ["reports/*.xml", "reports/**/x.xml", "deep/reports/x.xml", "../outside/*.xml"]
)
def test_reports_behind_a_link_or_outside_are_not_found(slot: Slot, tmp_path: Path, pattern: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.xml").touch()
    fresh(slot)
    (slot.tree / "deep").mkdir()
    (slot.tree / "reports").symlink_to(outside)
    (slot.tree / "deep/reports").symlink_to(outside)
    (slot.tree.parent / "outside").symlink_to(outside)
    assert slot.matching(pattern) == []


@pytest.mark.parametrize(
    "pattern", ["out/x.xml", "./out/*.xml", "/o?t/x.xml", "o[tu]t/*", "**/x.xml", "out/"]
)
def test_reports_are_found_by_their_pattern(slot: Slot, pattern: str) -> None:
    fresh(slot)
    (slot.tree / "out").mkdir()
    (slot.tree / "out/x.xml").touch()
    assert slot.matching(pattern) == ["out/x.xml"]


async def test_a_slot_that_was_taken_for_a_cancelled_run_is_free_again(tmp_path: Path) -> None:
    with bench(tmp_path) as one:
        async with one.runs() as runs:
            taking = asyncio.create_task(runs._open_slot())
            await asyncio.sleep(0)
            taking.cancel()
            await asyncio.wait([taking])
            again = Slot.take(one.home)
            assert again.tree.parent.name == "0"
            again.close()


@pytest.mark.parametrize(
    ("error", "words"),
    [(OSError("odd"), "odd"), (OSError(13, "Permission denied", "/x"), "Permission denied")],
)
def test_what_cannot_be_removed_is_said_with_its_reason(error: OSError, words: str) -> None:
    class Box:
        path = Path("/box")

        def remove(self, _path: str) -> None:
            raise error

    box: Any = Box()
    with pytest.raises(ToolError) as caught:
        _remove(box, "a")
    assert str(caught.value) == (
        f"the files of a test run in /box/a could not be removed: {words}; remove them by hand"
    )

"""What is proposed of a folder: the tools' changes on a commit that the remote has, and nobody else's edits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.git import checkpoints as module
from orchestrator.bot.git.checkpoints import Checkpoints, remove_old
from orchestrator.bot.git.folders import folder_size
from orchestrator.bot.git.work import FolderChange, find_base
from orchestrator.core.errors import WorkspaceError
from tests.scenarios.stage import add_commit, git, make_repository
from tests.unit.bot.git.rig import clone

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LINES = [f"line {number}\n" for number in range(30)]
FILES: dict[str, str | bytes] = {
    "a.txt": "".join(LINES),
    "sub/b.bin": bytes(range(256)),
    ".gitignore": "*.log\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project", FILES)


def _fail(text: str) -> None:
    raise AssertionError(text)


async def turn(kept: Checkpoints, *steps: Callable[[], object]) -> None:
    """One turn, in which each step is a tool."""
    kept.begin_turn()
    for step in steps:
        async with kept.around():
            step()
    kept.end_turn()


@pytest.fixture
def kept(folder: Path, tmp_path: Path) -> Checkpoints:
    return Checkpoints(folder, tmp_path / "store", _fail)


def proposal(kept: Checkpoints, folder: Path, *, everything: bool = False) -> FolderChange:
    """What would be proposed to `main` of the folder's own repository."""
    return kept.proposal(find_base(folder, "main", is_here=True), everything=everything)


def edit(path: Path, line: int, text: str) -> Callable[[], object]:
    """A step that replaces a line."""

    def step() -> None:
        lines = path.read_text().splitlines(keepends=True)
        lines[line] = f"{text}\n"
        path.write_text("".join(lines))

    return step


def in_clone(folder: Path, change: FolderChange, scratch: Path, path: str) -> bytes | None:
    """A file as a fresh clone has it with the change."""
    with clone(folder, scratch, branch="main") as fresh:
        fresh.apply_work(change.work.work or "", packed=change.work)
        found = fresh.tree / path
        return found.read_bytes() if found.is_file() else None


async def test_a_persons_edits_before_between_and_after_the_turns_stay_out(
    folder: Path, kept: Checkpoints, tmp_path: Path
) -> None:
    text = folder / "a.txt"
    edit(text, 0, "mine, before")()
    await turn(kept, edit(text, 5, "tool one"))
    edit(text, 10, "mine, between")()
    await turn(kept, edit(text, 15, "tool two"), edit(text, 5, "tool one, again"))
    edit(text, 20, "mine, after")()
    change = proposal(kept, folder)
    wanted = [*LINES]
    wanted[5], wanted[15] = "tool one, again\n", "tool two\n"
    assert in_clone(folder, change, tmp_path, "a.txt") == "".join(wanted).encode()
    assert (change.paths, change.left_out) == ((("a.txt", "M"),), ("a.txt",))
    everything = proposal(kept, folder, everything=True)
    assert in_clone(folder, everything, tmp_path, "a.txt") == text.read_bytes()
    assert everything.left_out == ()
    assert everything.tree != change.tree


async def test_what_somebody_took_back_is_not_proposed(folder: Path, kept: Checkpoints) -> None:
    await turn(kept, lambda: (folder / "new.txt").write_text("x"), edit(folder / "a.txt", 3, "tool"))
    (folder / "new.txt").unlink()
    assert proposal(kept, folder).paths == (("a.txt", "M"),)
    git(folder, "checkout", "--quiet", "a.txt")
    with pytest.raises(WorkspaceError, match="there is nothing to propose"):
        proposal(kept, folder)


async def test_a_conversation_below_the_top_changes_paths_below_it(folder: Path, tmp_path: Path) -> None:
    kept = Checkpoints(folder / "sub", tmp_path / "store", _fail)
    await turn(kept, lambda: (folder / "sub" / "b.bin").write_bytes(b"\0new"))
    change = proposal(kept, folder / "sub")
    assert change.paths == (("sub/b.bin", "M"),)
    assert in_clone(folder, change, tmp_path, "sub/b.bin") == b"\0new"


async def test_ends_of_lines_that_git_changed_are_as_committed(
    folder: Path, kept: Checkpoints, tmp_path: Path
) -> None:
    add_commit(folder, {".gitattributes": "* text=auto\n", "dos.txt": b"one\r\ntwo\r\nthree\r\n"}, "DOS")
    text = folder / "dos.txt"
    await turn(kept, lambda: text.write_bytes(b"one\r\nTWO\r\nthree\r\n"))
    await turn(kept, lambda: text.write_bytes(b"one\r\nTWO\r\nthree\r\nfour\r\n"))
    change = proposal(kept, folder)
    assert in_clone(folder, change, tmp_path, "dos.txt") == b"one\nTWO\nthree\nfour\n"
    assert change.left_out == ()


async def test_what_a_person_ignores_is_in_no_proposal(
    folder: Path, kept: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (home / ".gitconfig").write_text("[core]\n\texcludesFile = ~/ignored\n")
    (home / "ignored").write_text("*.own\n")
    (folder / ".git" / "info").mkdir(exist_ok=True)
    (folder / ".git" / "info" / "exclude").write_text(".env\n")
    for name in (".env", "x.own", "x.log", "new.txt"):
        (folder / name).write_text("x\n")
    await turn(kept, edit(folder / "a.txt", 3, "tool"))
    assert proposal(kept, folder, everything=True).paths == (("a.txt", "M"), ("new.txt", "A"))


async def test_what_was_committed_meanwhile_is_still_a_change_of_the_branch(
    folder: Path, kept: Checkpoints, tmp_path: Path
) -> None:
    git(folder, "switch", "--quiet", "--create", "mine")
    add_commit(folder, {"own.txt": "own\n"}, "Mine")
    await turn(kept, edit(folder / "a.txt", 3, "tool"))
    git(folder, "commit", "--quiet", "--all", "--message", "What the model did")
    change = proposal(kept, folder)
    assert (change.paths, change.left_out) == ((("a.txt", "M"),), ("own.txt",))
    assert in_clone(folder, change, tmp_path, "own.txt") is None


@pytest.mark.parametrize("kind", ["shallow", "worktree"])
async def test_other_kinds_of_folders(folder: Path, tmp_path: Path, kind: str) -> None:
    add_commit(folder, {"second.txt": "x\n"}, "Second")
    other = tmp_path / "other"
    if kind == "shallow":
        git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{folder}", str(other))
    else:
        git(folder, "worktree", "add", "--quiet", "--detach", str(other))
    kept = Checkpoints(other, tmp_path / "store", _fail)
    await turn(kept, (other / "second.txt").unlink, edit(other / "a.txt", 3, "tool"))
    change = kept.proposal(find_base(other, "main", is_here=kind == "worktree"))
    assert change.paths == (("a.txt", "M"), ("second.txt", "D"))
    assert in_clone(folder, change, tmp_path, "second.txt") is None


def test_a_folder_without_a_base_says_what_to_do(folder: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    with pytest.raises(WorkspaceError, match="is not in a git repository"):
        find_base(plain, "main", is_here=True)
    git(plain, "init", "--quiet")
    with pytest.raises(WorkspaceError, match="has no commit yet"):
        find_base(plain, "main", is_here=True)
    with pytest.raises(WorkspaceError, match="run git fetch"):
        find_base(folder, "main", is_here=False)


async def test_a_damaged_or_foreign_record_of_turns_is_not_taken_over(folder: Path, tmp_path: Path) -> None:
    first = Checkpoints(folder, tmp_path / "first", _fail)
    await turn(first, edit(folder / "a.txt", 3, "tool"))
    first.close()
    record = tmp_path / "first" / "turns.json"
    good = record.read_text()
    for number, bad in enumerate(
        (
            good.replace('"a.txt"', '"../a.txt"'),
            good.replace('"a.txt"', '".git/config"'),
            good.replace('"100644"', '"160000"'),
            good.replace(str(folder), str(tmp_path)),
            good[:-2],
            "[]",
            "{}",
        )
    ):
        record.write_text(bad)
        kept = Checkpoints(folder, tmp_path / f"next{number}", _fail, [tmp_path / "first"])
        assert (kept.done, kept.is_whole) == ([], False), bad
        await turn(kept, edit(folder / "a.txt", 3, f"tool {number}"))
        kept.undo()
    record.write_text(good)
    kept = Checkpoints(folder, tmp_path / "last", _fail, [tmp_path / "none", tmp_path / "first"])
    assert kept.is_whole
    kept.undo()
    assert (folder / "a.txt").read_text() == FILES["a.txt"]


async def test_old_checkpoints_make_room(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = tmp_path / "stores"
    for name in ("1", "2", "3", "4"):
        kept = Checkpoints(folder, stores / name, _fail)
        await turn(kept, edit(folder / "a.txt", 3, name))
        kept.close()
    (stores / "4" / "turns.json").unlink()
    monkeypatch.setattr(module, "MOST_KEPT_BYTES", folder_size(stores / "3") + 1)
    remove_old(stores, lambda run: run == "1")
    assert sorted(store.name for store in stores.iterdir()) == ["1", "3"]

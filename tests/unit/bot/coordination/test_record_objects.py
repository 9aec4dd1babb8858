"""Objects that are written without git are those that git would write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.coordination.records import write_object, write_tree
from orchestrator.core.errors import WorkspaceError
from tests.unit.bot.coordination.records_rig import bare, opened
from tests.unit.bot.git.rig import git

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.bot.coordination.records import IdKind

KINDS: tuple[IdKind, ...] = ("sha1", "sha256")


@pytest.mark.parametrize("ids", KINDS)
@pytest.mark.parametrize("content", [b"", b"x", b"\0\xff\n" * 50_000], ids=["empty", "short", "long"])
def test_a_blob_is_what_git_would_have_made(tmp_path: Path, ids: IdKind, content: bytes) -> None:
    path = bare(tmp_path, f"--object-format={ids}")
    name = write_object(path / "objects", "blob", content, ids, doing="cannot write")
    assert name == git(path, "hash-object", "--stdin", stdin=content)
    assert int(git(path, "cat-file", "-s", name)) == len(content)
    assert git(path, "cat-file", "-t", name) == "blob"
    before = sorted(path.rglob("*"))
    assert write_object(path / "objects", "blob", content, ids, doing="cannot write") == name
    assert sorted(path.rglob("*")) == before, "a second time writes nothing, and leaves nothing"


@pytest.mark.parametrize("ids", KINDS)
def test_a_tree_is_in_gits_order(tmp_path: Path, ids: IdKind) -> None:
    path = bare(tmp_path, f"--object-format={ids}")
    blob = write_object(path / "objects", "blob", b"x", ids, doing="cannot write")
    names = ["b", "a.txt", "a-1", "a", "a0"]
    tree = write_tree(path / "objects", dict.fromkeys(names, blob), ids, doing="cannot write")
    listed = "".join(f"100644 blob {blob}\t{name}\n" for name in names)
    assert tree == git(path, "mktree", stdin=listed.encode())


@pytest.mark.parametrize("ids", KINDS)
def test_git_finds_nothing_wrong_with_a_record(tmp_path: Path, ids: IdKind) -> None:
    path = bare(tmp_path, f"--object-format={ids}")
    with opened(path, tmp_path) as records:
        first = records.commit("one", None)
        second = records.commit("two \ud800 é\n\n{}", first, {"state.json": b"{}", "a.log": b""})
        place = records.objects.parent
        assert git(place, "cat-file", "-p", f"{second}^{{tree}}").split("\t")[1:]
        git(place, "fsck", "--strict", "--no-dangling", second)
        assert git(place, "log", "--format=%s %P", "-1", second) == f"two ? é {first}"
        assert git(place, "log", "--format=%an %ae %ad", "-1", first).startswith(
            "Pullwright pullwright@invalid"
        )
        with pytest.raises(WorkspaceError, match="is not a commit id"):
            records.commit("three", "main\nauthor somebody else")


def test_what_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="cannot write a record: No such file"):
        write_object(tmp_path / "gone", "blob", b"x", "sha1", doing="cannot write a record")

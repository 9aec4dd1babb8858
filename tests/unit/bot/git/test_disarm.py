"""A clone that is kept for a person, who may run git in it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.git.disarm import disarm
from orchestrator.core.git_names import is_git_name
from tests.tables import table
from tests.unit.bot.git.rig import clone, git, make_source, write

if TYPE_CHECKING:
    from pathlib import Path

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
SPELLINGS = (
    *(".git", ".GIT", ".gIt", ".git.", ".git ", ".git. .", ".git::$INDEX_ALLOCATION", "git~1", "GIT~2"),
    *(".g\u200cit", "\ufeff.git", ".gi\u0307t", ".g\u0131t", "\uff0egit", ".\u202egit"),
)


@pytest.mark.parametrize("name", SPELLINGS)
def test_names_that_some_file_system_takes_for_git(name: str, tmp_path: Path) -> None:
    assert is_git_name(name)
    write(tmp_path, {f"tree/deep/{name}/config": "x", f"tree/{name}": "gitdir: x", "tree/kept.txt": "x"})
    disarm(tmp_path / "tree", tmp_path)
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert found == {"tree", "tree/kept.txt", "tree/deep"}


@table(
    "name", [".github", ".gitignore", "git", ".gitmodules", "x.git", "git~x", "..git", "agit~1", ".git-x", ""]
)
def test_other_names_stay(name: str) -> None:
    assert not is_git_name(name)


def hostile(tmp_path: Path, marker: Path) -> Path:
    """A repository in which every plain command runs a program."""
    script = tmp_path / "trap.sh"
    script.write_text(f"#!/bin/sh\ntouch {marker}\n")
    script.chmod(0o755)
    folder = make_source(tmp_path / "hostile", {"x.txt": "x"})
    git(folder, "config", "core.fsmonitor", str(script))
    git(folder, "config", "diff.external", str(script))
    return folder


def test_git_runs_nothing_in_a_kept_clone(source: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    trap = hostile(tmp_path, marker)
    with clone(source, tmp_path / "runs", with_git=True) as opened:
        tree = opened.tree
        (tree / ".git" / "config").write_bytes((trap / ".git" / "config").read_bytes())
        (tree / "linked").mkdir()
        (tree / "linked" / ".git").symlink_to(trap / ".git")
        write(tree, {"file/.git": f"gitdir: {trap / '.git'}\n"})
        (trap / ".git").rename(tmp_path / "kept-aside")
        for name in ("bare", "closed/bare"):
            (tree / name).parent.mkdir(exist_ok=True)
            subprocess.run(["cp", "-r", str(tmp_path / "kept-aside"), str(tree / name)], check=True)
            git(tree / name, "config", "core.worktree", str(tree))
        (tmp_path / "kept-aside").rename(trap / ".git")
        (tree / "common").mkdir()
        write(tree, {"common/HEAD": "ref: refs/heads/main\n", "common/commondir": "../bare\n"})
        write(tree, {"work.txt": "the only copy\n"})
        folders = [tree / name for name in (".", "linked", "file", "bare", "closed/bare", "common")]
        for folder in folders:
            marker.unlink(missing_ok=True)
            run_git(folder)
            assert marker.exists(), f"the trap in {folder.name} does not work"
        marker.unlink()
        (tree / "closed" / "bare").chmod(0o500)
        (tree / "closed").chmod(0o000)
        opened.keep()
    for folder in folders:
        run_git(folder)
    assert not marker.exists()
    assert (tree / "work.txt").read_text() == "the only copy\n"
    assert (trap / ".git" / "config").exists()
    assert sorted(path.name for path in (tree / "bare").iterdir() if "HEAD" in path.name) == ["HEAD.disarmed"]


def run_git(folder: Path) -> None:
    for command in (["status"], ["diff"], ["diff", EMPTY_TREE, "HEAD"]):
        subprocess.run(["git", *command], cwd=folder, check=False, capture_output=True)


def test_links_are_not_followed(tmp_path: Path) -> None:
    write(tmp_path, {"outside/.git/config": "x", "outside/HEAD": "x", "outside/refs/x": "x", "tree/a": "x"})
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "outside")
    disarm(tmp_path / "tree", tmp_path)
    (tmp_path / "second").symlink_to(tmp_path / "outside")
    disarm(tmp_path / "second", tmp_path)
    disarm(tmp_path / "missing", tmp_path)
    assert (tmp_path / "outside/.git/config").exists()
    assert (tmp_path / "outside/HEAD").exists()


def test_a_file_called_head_is_work_like_any_other(tmp_path: Path) -> None:
    write(tmp_path, {"tree/HEAD": "x", "tree/config": "x", "tree/bare/HEAD": "1", "tree/bare/refs/x": "x"})
    write(tmp_path, {"tree/bare/HEAD.disarmed": "in the way"})
    disarm(tmp_path / "tree", tmp_path)
    assert (tmp_path / "tree/HEAD").exists()
    assert (tmp_path / "tree/bare/HEAD.disarmed").read_text() == "in the way"
    assert (tmp_path / "tree/bare/HEAD.disarmed-").read_text() == "1"


def test_a_git_far_below(tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    for name in ("d" * 200,) * 1100:
        os.mkdir(name, dir_fd=descriptor)
        inner = os.open(name, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.mkdir(".git", dir_fd=descriptor)
    os.close(descriptor)
    disarm(folder, tmp_path)
    names = [name for _, folders, _ in os.walk(folder) for name in folders]
    assert set(names) == {"d" * 200}
    assert len(names) <= 101


_AS_ANYONE = """
import os, sys
from pathlib import Path
from orchestrator.bot.git.disarm import disarm
if os.geteuid() == 0:
    os.setuid(65534)
tree = Path(sys.argv[1], "tree")
(tree / "closed" / ".git" / "inner").mkdir(parents=True)
(tree / "closed" / "work").write_text("x")
(tree / "closed" / ".git" / "inner").chmod(0o000)
(tree / "closed" / ".git").chmod(0o000)
(tree / "closed").chmod(0o000)
tree.chmod(0o500)
disarm(tree, Path(sys.argv[1]))
"""


def test_closed_folders_are_opened(tmp_path: Path) -> None:
    # Root needs no rights, so another user has to try.
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    for folder in tmp_path.parents:
        if folder.owner() == tmp_path.owner() and folder.stat().st_mode & 0o11 != 0o11:
            folder.chmod(folder.stat().st_mode | 0o11)
    tmp_path.chmod(0o755)
    subprocess.run([sys.executable, "-c", _AS_ANYONE, str(shared)], check=True, cwd="/")
    found = {path.relative_to(shared).as_posix() for path in shared.rglob("*")}
    assert found == {"tree", "tree/closed", "tree/closed/work"}

"""Repositories on this machine: found as git finds them, and their settings read as git reads them."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.git.foreign import find_repository, parse_settings
from orchestrator.bot.git.local import locate
from orchestrator.core.errors import WorkspaceError
from tests.unit.bot.git.rig import git, make_source

if TYPE_CHECKING:
    from pathlib import Path

PIECES = (
    *("[a]\n", '[a "B\\"c"]\n', "[A.b]", "key", "Key-2", " = ", "=", "value", '"', "\\", "\\n", "\\\\", '\\"', "\\\n"),
    *(" ", "\t", "#", ";", "\n", "\r\n", "\u00e9", "[", "]", '"x y"', "k = v\n", "k\n", "[include]\npath = x\n", "1"),
)  # fmt: skip


@given(text=st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_settings_are_those_that_git_lists(text: str) -> None:
    words = ("git", "config", "--file", "-", "--no-includes", "--list", "-z")
    told = subprocess.run(words, input=text.encode(), capture_output=True, check=False)
    if told.returncode:
        return  # git refuses the whole
    theirs = [line.partition("\n") for line in os.fsdecode(told.stdout).split("\0") if line]
    # Git 2.45 and later keep a tab between two words, older ones make a blank of it.
    ours = [(key, value.replace("\t", " ")) for key, value in parse_settings(text.encode())]
    assert ours == [(key, value.replace("\t", " ") if found else "true") for key, found, value in theirs]


def test_a_repository_is_found_where_git_finds_it(tmp_path: Path) -> None:
    source = make_source(tmp_path / "source", {"a/b/c.txt": "x", "d.txt": "x"})
    git(tmp_path, "clone", "-q", "--bare", str(source), "bare.git")
    git(source, "worktree", "add", "-q", "-b", "other", str(tmp_path / "tree"))
    git(tmp_path, "clone", "-q", str(source), "outer")
    git(
        tmp_path / "outer",
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        str(source),
        "inner",
    )
    (tmp_path / "empty").mkdir()
    for folder in ("source", "source/a/b", "bare.git", "tree/a", "outer", "outer/inner/a", "bare.git/refs"):
        place = tmp_path / folder
        found = find_repository(place, upwards=True)
        assert found is not None
        assert str(found.git_dir) == git(place, "rev-parse", "--absolute-git-dir")
        common = git(place, "rev-parse", "--git-common-dir")
        assert found.common == (place / common).resolve()
        if folder not in {"bare.git", "bare.git/refs"}:
            assert str(found.top) == git(place, "rev-parse", "--show-toplevel")
            assert str(locate(place).top) == git(place, "rev-parse", "--show-toplevel")
    assert find_repository(tmp_path / "empty") is None
    assert find_repository(source / "a") is None, "only upwards"
    assert not locate(tmp_path / "empty").is_repository


@pytest.mark.parametrize(
    "name", ["HEAD", ".git", ".git/HEAD", ".git/config", ".git/commondir", "commondir", "config"]
)
def test_a_pipe_on_the_way_up_is_no_obstacle(tmp_path: Path, name: str) -> None:
    source = make_source(tmp_path / "source", {"a/b.txt": "x"})
    git(source, "config", "remote.origin.url", "https://example.invalid/x.git")
    pipe = source / "a" / name
    pipe.parent.mkdir(exist_ok=True)
    os.mkfifo(pipe)
    if name == "HEAD":
        for folder in ("objects", "refs"):
            (pipe.parent / folder).mkdir()
    try:
        found = locate(source / "a")
    except WorkspaceError as error:
        assert "is a named pipe, and git would wait for it: remove it" in str(error)  # noqa: PT017  or a result
    else:
        assert (found.top, found.origin) == (source, "https://example.invalid/x.git")

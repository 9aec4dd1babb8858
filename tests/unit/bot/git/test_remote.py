from __future__ import annotations

import os
import subprocess
from pathlib import PurePosixPath

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.git.remote import is_commit_id
from orchestrator.bot.git.staging import link_stays
from orchestrator.core.repositories import is_branch_name
from tests.tables import table


@given(st.text(alphabet="ab/.@{-lock~^: \\*?[\x01HEAD", max_size=8))
def test_we_refuse_at_least_what_git_refuses(name: str) -> None:
    done = subprocess.run(["git", "check-ref-format", "--branch", name], capture_output=True, check=False)
    if is_branch_name(name):
        assert done.returncode == 0
    elif done.returncode == 0:
        # Git expands these to other names; ours are never such.
        assert name == "@" or "@{" in name


PIECES = [
    ".lock",
    ".loc",
    "/",
    "a",
    ".",
    "..",
    "@",
    "@{",
    "\\",
    "\x7f",
    "\n",
    "\u0085",
    "\u2028",
    "é",
    "-",
    "~1",
]
RULES = [
    "a.lock/b",
    "b/a.lock",
    ".a",
    "b/.a",
    "a..b",
    "a//b",
    "/a",
    "a/",
    "a.",
    "@{",
    "a@{1}",
    "a\\b",
    "a\x7f",
    "",
]
RULES += [f"a{letter}b" for letter in " ~^:?*[\x01\t\n"]


def git_takes(name: str) -> bool:
    command = ["git", "check-ref-format", f"refs/heads/{name}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@given(st.lists(st.sampled_from(PIECES), max_size=5).map("".join))
def test_what_we_take_for_a_branch_git_takes_for_a_reference(name: str) -> None:
    assert git_takes(name) or not is_branch_name(name)


@table("name", RULES)
def test_gits_rules_are_ours(name: str) -> None:
    assert not git_takes(name)
    assert not is_branch_name(name)


@table("name", ["main", "feature/x", "pullwright/12-fix", "é", "a.b", "a@b", "a-"])
def test_ordinary_names_pass(name: str) -> None:
    assert is_branch_name(name)


def test_commit_ids() -> None:
    assert is_commit_id("a" * 40)
    assert is_commit_id("0" * 64)
    assert not is_commit_id("a" * 41)
    assert not is_commit_id("A" * 40)
    assert not is_commit_id("a" * 40 + "\n")


parts = st.sampled_from(["a", "b", "..", ".", ".git", ".GIT", ""])


@given(st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=3), st.lists(parts, max_size=6))
def test_a_link_that_stays_really_does(path: list[str], target: list[str]) -> None:
    if link_stays("/".join(path), "/".join(target)):
        end = PurePosixPath(os.path.normpath("/".join(["/top/x", *path[:-1], *target])))
        assert end.is_relative_to("/top/x")
        assert ".git" not in [part.lower() for part in end.parts]

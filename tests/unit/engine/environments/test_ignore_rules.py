"""The rules of `.gitignore`: git itself is the oracle, and time grows with the length of a path."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.environments.patterns import IgnoreRules
from tests.fuzz.growth import grows
from tests.tables import table

if TYPE_CHECKING:
    from pathlib import Path

PIECES = (
    *("a", "b", "c", "/", "*", "**", "?", "[", "]", "a-b]", "!", "\\", "-", "^", "[:alpha:]", "[[:digit:]", "#", " "),
    *("**/", "**a", "\t", "\r", "[a]", "[!a]", "[^b]", ".", "\u00e9", "\x01", "[]a]", "[a-]", "[\\]]", "[[:", "/*/"),
    *("***", "\\/", "[[:space:]]", "[[:punct:]]", "[[:no:]]", "[b-a]", "[a-\\c]", "\0", "\ufeff"),
)  # fmt: skip
NAMES = (
    *("a", "b", "c", "ab", "aab", "a b", "a ", ".a", "a-", "\u00e9", "1", "#a", "!a", "\\a", "[a]", "a]", "-", "^"),
    *("aXb", "*", "\t", "ba", "a\nb", "abc", "a.b", "\udcff", "A"),
)  # fmt: skip
LINES = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
FILES = st.lists(LINES, min_size=1, max_size=4).map("\n".join)
PATHS = st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4), min_size=1, max_size=30)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository in which git is asked."""
    folder = tmp_path_factory.mktemp("ignored")
    subprocess.run(["git", "init", "-q", "--template=", str(folder)], check=True)
    (folder / ".git" / "info").mkdir()
    (folder / "a").mkdir()
    return folder


def git_ignores(repository: Path, paths: list[str]) -> dict[str, bool]:
    """Return git's own decision about each path."""
    asked = b"".join(b"./" + os.fsencode(path) + b"\0" for path in paths)
    words = ("-c", "core.excludesFile=/dev/null", "check-ignore", "--no-index", "-z", "-v", "-n", "--stdin")
    done = subprocess.run(
        ["git", "-C", str(repository), *words], input=asked, capture_output=True, check=False
    )
    fields = done.stdout.split(b"\0")[:-1]
    # file, line, pattern, path
    return {
        os.fsdecode(path).removeprefix("./"): bool(source) and not pattern.startswith(b"!")
        for source, pattern, path in zip(fields[::4], fields[2::4], fields[3::4], strict=True)
    }


@given(top=FILES, inner=FILES, exclude=FILES, chosen=PATHS)
def test_every_decision_is_that_of_git(
    repository: Path, top: str, inner: str, exclude: str, chosen: list[list[str]]
) -> None:
    contents = {(): top.encode(), ("a",): inner.encode()}
    (repository / ".gitignore").write_bytes(contents[()])
    (repository / "a" / ".gitignore").write_bytes(contents["a",])
    (repository / ".git" / "info" / "exclude").write_bytes(exclude.encode())
    # `a` is a folder there; any other path is none.
    paths = sorted({"/".join(names) for names in chosen} - {"a"}) or ["b"]
    rules = IgnoreRules(lambda folder: contents.get(folder, b""), [exclude.encode()])
    ours = {path: rules.ignored(tuple(path.split("/")), is_dir=False) for path in paths}
    assert ours == git_ignores(repository, paths)


@table(
    "path, is_dir, expected",
    [
        (("build",), True, True),
        (("build",), False, False),
        (("build", "kept"), False, True),
        (("a", "build"), True, False),
        (("a", "b", "build", "x"), False, False),
        (("x", "build", "y", "z"), False, True),
        (("b.log",), False, True),
        (("x", "b.log"), False, False),
    ],
)
def test_a_rule_for_folders_excludes_all_below_unless_a_nearer_file_takes_it_back(
    path: tuple[str, ...], *, is_dir: bool, expected: bool
) -> None:
    contents = {(): b"build/\n!build/kept\n", ("a",): b"!build\n"}
    rules = IgnoreRules(lambda folder: contents.get(folder, b""), [b"!x/b.log", b"b.log"])
    assert rules.ignored(path, is_dir=is_dir) is expected


@table(
    "pattern",
    ["*a*a*a*a*a*a*a*b", "/**/*a*a*b/**/*a*a*b/**/x", "**/" * 20 + "x", "*?" * 20 + "b", "/" + "*a/" * 20],
)
@table("piece", ["a", "a/", "aab/"])
def test_a_long_path_costs_time_in_proportion(pattern: str, piece: str) -> None:
    rules = IgnoreRules(lambda _: pattern.encode())
    grows(lambda text: rules.ignored((text,), is_dir=False), ("", piece, "c"))


def test_a_file_of_many_rules_is_cut_off() -> None:
    rules = IgnoreRules(lambda _: b"x\n" * 10_000 + b"last\n")
    assert not rules.ignored(("last",), is_dir=False)
    assert rules.ignored(("x",), is_dir=False)

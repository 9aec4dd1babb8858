from __future__ import annotations

import os
import shutil
import socket
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.git.base import CommitScreen, LeftOut
from orchestrator.core.errors import WorkspaceError
from tests.doubles.commits import commit_touched
from tests.unit.bot.coordination.records_rig import logged_git
from tests.unit.bot.git.rig import clone, git, make_source, show, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from orchestrator.bot.git.base import CommitOutcome
    from orchestrator.bot.git.clone import Clone

BRANCH = "pullwright/test"


def reasons(outcome: CommitOutcome) -> dict[str, str]:
    return {item.path: item.reason for item in outcome.left_out}


def test_only_touched_paths_are_committed(safe: Clone, source: Path) -> None:
    write(
        safe.tree, {"src/calc.py": "fixed\n", "src/new.py": "new\n", "README.md": "not touched by a tool\n"}
    )
    (safe.tree / "src/old.py").unlink()
    assert safe.changed_paths() == {"README.md", "src/calc.py", "src/new.py", "src/old.py"}
    outcome = commit_touched(
        safe, {"src/calc.py", "src/new.py", "src/old.py"}, "Fix add()", include_commands=False
    )
    assert outcome.files == ["src/calc.py", "src/new.py", "src/old.py"]
    assert (outcome.left_out, outcome.notes) == ([], [])
    assert safe.changed_paths() == {"README.md"}
    commit = safe.push(BRANCH, expected=None)
    assert commit == outcome.commit
    assert git(source, "log", "-1", "--format=%an|%ae|%cn|%ce|%at|%s", BRANCH) == (
        "Pullwright|bot@example.invalid|Pullwright|bot@example.invalid|1767225600|Fix add()"
    )
    assert git(source, "show", f"{BRANCH}:src/calc.py") == "fixed"
    assert "src/old.py" not in git(source, "ls-tree", "-r", "--name-only", BRANCH)


def test_what_was_staged_is_committed_whatever_the_files_are_by_now(safe: Clone) -> None:
    write(safe.tree, {"src/calc.py": "fixed\n"})
    staged = safe.stage({"src/calc.py"}, include_commands=False)
    assert staged.is_new
    assert safe.head_commit == safe.base_commit
    assert safe.changed_tree({"src/calc.py"}, include_commands=False) == staged.tree
    write(safe.tree, {"src/calc.py": "broken since\n"})
    outcome = safe.commit_staged(staged, "Fix add()")
    assert outcome.commit == safe.head_commit
    assert "+fixed" in safe.diff()
    assert safe.changed_paths() == {"src/calc.py"}
    assert not safe.stage(set(), include_commands=False).is_new
    with pytest.raises(AssertionError, match="staged since"):
        safe.commit_staged(staged, "Again")


def test_nothing_to_commit(safe: Clone) -> None:
    outcome = commit_touched(safe, {"src/calc.py", "never/made.py"}, "nothing", include_commands=True)
    assert (outcome.commit, outcome.files, outcome.left_out) == (None, [], [])
    assert safe.diff() == ""
    assert safe.pending_patch(set(), include_commands=False) == b""
    assert safe.pending_patch({"src/calc.py"}, include_commands=True) == b""


def test_a_second_commit_goes_on_top(safe: Clone, source: Path) -> None:
    write(safe.tree, {"a.txt": "1\n"})
    first = commit_touched(safe, {"a.txt"}, "one", include_commands=False).commit
    safe.push(BRANCH, expected=None)
    write(safe.tree, {"a.txt": "2\n"})
    second = commit_touched(safe, {"a.txt"}, "two", include_commands=False)
    assert second.files == ["a.txt"]
    assert safe.push(BRANCH, expected=first) == second.commit
    assert git(source, "log", "--format=%s", BRANCH).split() == ["two", "one", "first"]


def test_what_commands_changed_is_taken_if_not_ignored(safe: Clone) -> None:
    write(safe.tree, {"made.py": "x\n", "noise.log": "x\n", "build/out.o": "x\n", "README.md": "changed\n"})
    outcome = commit_touched(safe, set(), "all", include_commands=True)
    assert outcome.files == ["README.md", "made.py"]
    assert list(reasons(outcome)) == ["build/", "noise.log"]


def test_an_ignored_file_that_a_tool_wrote_is_named(safe: Clone) -> None:
    write(safe.tree, {"noise.log": "x\n", "build/deep/out.o": "x\n", "b.py": "x\n"})
    outcome = commit_touched(safe, {"noise.log", "build/deep/out.o", "b.py"}, "m", include_commands=False)
    assert outcome.files == ["b.py"]
    assert reasons(outcome) == {
        "noise.log": "ignored by .gitignore",
        "build/deep/out.o": "ignored by .gitignore",
    }


def test_large_files_are_named_and_not_read(safe: Clone) -> None:
    write(safe.tree, {"keep.py": "x\n"})
    for name in ("huge.bin", "touched.bin"):
        with (safe.tree / name).open("wb") as file:
            file.truncate(200_000_000)
    outcome = commit_touched(safe, {"touched.bin"}, "m", include_commands=True)
    assert outcome.files == ["keep.py"]
    assert reasons(outcome) == {
        "huge.bin": "too large (200,000,000 bytes, the limit is 1,000,000)",
        "touched.bin": "too large (200,000,000 bytes, the limit is 104,857,600)",
    }
    patch = safe.pending_patch({"touched.bin"}, include_commands=True)
    assert b"# left out: huge.bin: too large" in patch
    assert b"# left out: touched.bin: too large" in patch
    assert b"keep.py" in patch


def test_a_limit_does_not_hold_for_what_tools_wrote(safe: Clone) -> None:
    write(safe.tree, {"by_tool.txt": "x" * 1_000_001, "by_command.txt": "x" * 1_000_001})
    outcome = commit_touched(safe, {"by_tool.txt"}, "m", include_commands=True)
    assert outcome.files == ["by_tool.txt"]
    assert reasons(outcome) == {"by_command.txt": "too large (1,000,001 bytes, the limit is 1,000,000)"}


def test_a_folder_of_very_many_new_files_is_left_out_as_one(safe: Clone) -> None:
    write(safe.tree, {f"node_modules/p{number}/i.js": "x" for number in range(501)} | {"src/new.py": "x"})
    outcome = commit_touched(safe, set(), "m", include_commands=True)
    assert outcome.files == ["src/new.py"]
    assert [item.path for item in outcome.left_out] == ["node_modules/"]
    assert "501 files" in outcome.left_out[0].reason


def test_links_stay_links_and_must_stay_inside(safe: Clone) -> None:
    links = {
        "good": "src/calc.py",
        "src/up": "../README.md",
        "dangling": "not/there",
        "absolute": "/etc/passwd",
        "escaping": "../../secret",
        "into_git": "src/../.git/config",
        "through": "src/way/../../x",
    }
    for name, target in links.items():
        (safe.tree / name).symlink_to(target)
    (safe.tree / "src" / "way").symlink_to("..")
    outcome = commit_touched(safe, set(links), "m", include_commands=False)
    assert outcome.files == ["dangling", "good", "src/up"]
    assert set(reasons(outcome).values()) == {"a symbolic link that leaves the repository"}
    assert set(reasons(outcome)) == {"absolute", "escaping", "into_git", "through"}
    host = safe.tree.parent / "host.git"
    assert git(host, "ls-tree", str(outcome.commit), "good").startswith("120000")


def test_a_tracked_file_behind_a_new_link_is_not_read(safe: Clone, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write(outside, {"calc.py": "secret\n", "other.py": "secret\n"})
    shutil.rmtree(safe.tree / "src")
    (safe.tree / "src").symlink_to(outside)
    outcome = commit_touched(safe, {"src/calc.py", "src/other.py"}, "m", include_commands=True)
    assert outcome.files == ["src/calc.py", "src/old.py"]
    assert reasons(outcome) == {
        "src": "a symbolic link that leaves the repository",
        "src/other.py": "behind the symbolic link src",
    }
    assert "secret" not in safe.diff()


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "a/../b", ".git/config", ".GIT/config", "src/.git/x", "", "a//b", "a\0b"]
)
def test_touched_paths_that_are_none(safe: Clone, path: str) -> None:
    outcome = commit_touched(safe, {path}, "m", include_commands=False)
    assert outcome.commit is None
    assert [item.path for item in outcome.left_out] == [path]


@pytest.mark.parametrize("name", ["git~1", ".git ", ".g\u200cit", ".git."])
def test_spellings_of_git_that_other_systems_take_for_it(safe: Clone, name: str) -> None:
    write(safe.tree, {f"{name}/config": "x", "ok.py": "x"})
    outcome = commit_touched(safe, {f"{name}/config", "ok.py"}, "m", include_commands=False)
    assert outcome.files == ["ok.py"]
    assert [item.path for item in outcome.left_out] == [f"{name}/config"]


@pytest.mark.parametrize(
    "name", ["*.py", ":(top)x", ":!x", "a b", "-rf", "tab\tname", "line\nname", "é", "[a]"]
)
def test_names_are_never_patterns(safe: Clone, name: str) -> None:
    write(safe.tree, {name: "x\n", "other.py": "x\n"})
    outcome = commit_touched(safe, {name}, "m", include_commands=False)
    assert outcome.files == [name]
    assert safe.changed_paths() == {"other.py"}


def test_names_that_are_not_utf8(safe: Clone, source: Path) -> None:
    latin = os.fsdecode(b"caf\xe9.txt")
    write(safe.tree, {latin: "x\n"})
    assert safe.changed_paths() == {latin}
    assert commit_touched(safe, {latin}, "m", include_commands=False).files == [latin]
    assert "caf\ufffd.txt" in safe.diff()
    safe.push(BRANCH, expected=None)
    assert show(source, BRANCH, latin) == b"x\n"


def test_modes_binaries_and_line_ends_are_kept(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        ".gitattributes": "norm.txt text eol=crlf\n",
        "norm.txt": b"a\n",
        "raw.txt": b"a\r\n",
        "run.sh": "x\n",
    }
    source = make_source(tmp_path / "source", files)
    with clone(source, tmp_path / "runs") as opened:
        assert (opened.tree / "norm.txt").read_bytes() == b"a\r\n"
        write(opened.tree, {"norm.txt": b"a\r\nb\r\n", "raw.txt": b"a\r\nb\r\n", "bin": bytes(range(256))})
        (opened.tree / "run.sh").chmod(0o755)
        commit_touched(opened, {"norm.txt", "raw.txt", "bin", "run.sh"}, "m", include_commands=False)
        patch = opened.pending_patch(set(), include_commands=False)
        opened.push(BRANCH, expected=None)
    assert show(source, BRANCH, "norm.txt") == b"a\nb\n"
    assert show(source, BRANCH, "raw.txt") == b"a\r\nb\r\n"
    assert show(source, BRANCH, "bin") == bytes(range(256))
    assert git(source, "ls-tree", BRANCH, "run.sh").startswith("100755")
    git(source, "update-index", "-q", "--refresh")
    git(source, "apply", "--index", "-", stdin=patch)
    assert git(source, "write-tree") == git(source, "rev-parse", f"{BRANCH}^{{tree}}")


def test_submodules_and_nested_repositories_are_named(tmp_path: Path) -> None:
    inner = make_source(tmp_path / "inner", {"a": "a"})
    source = make_source(tmp_path / "source", {"b": "b"})
    git(source, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(source, "commit", "-qm", "sub")
    with clone(source, tmp_path / "runs") as opened:
        write(opened.tree, {"sub/x.txt": "x", "b": "changed"})
        (opened.tree / "nested").mkdir()
        git(opened.tree / "nested", "init", "-q")
        write(opened.tree, {"nested/y.txt": "y"})
        outcome = commit_touched(opened, {"sub/x.txt", "nested/y.txt"}, "m", include_commands=True)
    assert outcome.files == ["b"]
    assert reasons(outcome) == {
        "sub": "a submodule with files in it, which belong to its own repository",
        "sub/x.txt": "inside the submodule sub",
        "nested": "a nested repository",
        "nested/y.txt": "inside a nested repository",
    }


def test_what_a_command_writes_into_a_submodule_is_named(tmp_path: Path) -> None:
    inner = make_source(tmp_path / "inner", {"a": "a"})
    source = make_source(tmp_path / "source", {"b": "b"})
    git(source, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(source, "commit", "-qm", "sub")
    with clone(source, tmp_path / "runs") as opened:
        assert reasons(commit_touched(opened, set(), "m", include_commands=True)) == {}
        write(opened.tree, {"sub/new.txt": "x"})
        outcome = commit_touched(opened, set(), "m", include_commands=True)
    assert reasons(outcome) == {"sub": "a submodule with files in it, which belong to its own repository"}


@pytest.fixture
def with_module(tmp_path: Path) -> Iterator[Clone]:
    """A clone whose submodule `sub` a command has checked out."""
    inner = make_source(tmp_path / "inner", {"a": "a", "deep/b": "b", ".gitignore": "*.o\n"})
    source = make_source(tmp_path / "source", {"b": "b"})
    git(source, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(source, "commit", "-qm", "sub")
    with clone(source, tmp_path / "runs", with_git=True) as opened:
        git(opened.tree, "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init")
        yield opened


def _commit_inside(tree: Path) -> None:
    write(tree, {"sub/a": "changed"})
    git(tree / "sub", "commit", "-qam", "inside")


def _same_size(tree: Path) -> None:
    write(tree, {"sub/a": "c"})
    git(tree / "sub", "status")


def _staged(tree: Path) -> None:
    write(tree, {"sub/a": "changed"})
    git(tree / "sub", "add", "a")


IN_MODULE: dict[str, Callable[[Path], object]] = {
    "a changed file": lambda tree: write(tree, {"sub/deep/b": "c"}),
    "of the same size and seen by git": _same_size,
    "a new file": lambda tree: write(tree, {"sub/deep/new": "c"}),
    "a removed file": lambda tree: (tree / "sub/a").unlink(),
    "a commit": _commit_inside,
    "a staged change": _staged,
    "a damaged index": lambda tree: (tree / ".git/modules/sub/index").write_text("?"),
    "a foreign repository": lambda tree: (tree / "sub/.git").write_text("gitdir: /etc\n"),
}


@pytest.mark.parametrize("name", IN_MODULE)
def test_a_change_in_a_checked_out_submodule_is_named(with_module: Clone, name: str) -> None:
    write(with_module.tree, {"b": "changed"})
    IN_MODULE[name](with_module.tree)
    outcome = commit_touched(with_module, set(), "m", include_commands=True)
    assert outcome.files == ["b"]
    assert reasons(outcome) == {"sub": "a submodule with files in it, which belong to its own repository"}


def test_a_submodule_that_is_only_checked_out_and_built_is_not_named(with_module: Clone) -> None:
    write(with_module.tree, {"b": "changed", "sub/a.o": "x", "sub/deep/b.o": "x"})
    outcome = commit_touched(with_module, set(), "m", include_commands=True)
    assert (outcome.files, outcome.left_out) == (["b"], [])


def test_what_commands_made_and_is_ignored_is_named(tmp_path: Path) -> None:
    source = make_source(
        tmp_path / "source", {".gitignore": "*.gen\nbuild/\n__pycache__/\n*.pyc\n", "b": "b"}
    )
    why = "made by a command, and ignored by .gitignore"
    with clone(source, tmp_path / "runs") as opened:
        caches = {"__pycache__/b.pyc": "x", "src/b.pyc": "x"}
        write(opened.tree, {"b": "c", "build/x/y": "x", "src/a.gen": "x", **caches})
        assert reasons(commit_touched(opened, {"b"}, "m", include_commands=False)) == {}
        outcome = commit_touched(opened, {"b"}, "m", include_commands=True)
        assert reasons(outcome) == {"build/": why, "src/a.gen": why}
        touched = commit_touched(opened, {"src/a.gen"}, "m", include_commands=True)
        assert reasons(touched) == {"build/": why, "src/a.gen": "ignored by .gitignore"}
        write(opened.tree, {f"{number}.gen": "x" for number in range(9)})
        assert list(reasons(opened.stage(set(), include_commands=True).outcome)) == [
            *(f"{number}.gen" for number in range(5)),
            "6 more files and folders",
        ]


def test_an_ignored_file_is_named_unless_the_owner_lets_it_in(tmp_path: Path) -> None:
    source = make_source(tmp_path / "source", {".gitignore": "*.gen\n", "b": "b"})
    with clone(source, tmp_path / "runs") as opened:
        write(opened.tree, {"a.gen": "a", "c.gen": "c"})
        screen = CommitScreen(admits=lambda path: path == "a.gen")
        outcome = commit_touched(opened, {"a.gen", "c.gen"}, "m", include_commands=False, screen=screen)
    assert outcome.files == ["a.gen"]
    assert outcome.left_out == [LeftOut("c.gen", "ignored by .gitignore", may_be_allowed=True)]


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 3\n"


@pytest.fixture
def with_lfs(tmp_path: Path) -> Iterator[Clone]:
    files = {
        ".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n",
        "a.bin": POINTER.format("a" * 64),
        "b": "b",
    }
    source = make_source(tmp_path / "source", files)
    with clone(source, tmp_path / "runs") as opened:
        yield opened


_ON_DISK = (
    "its content belongs into Git LFS, and a repository on this machine has no server for it: "
    "add the file by hand, with git lfs"
)
_EDITED = (
    "it is a pointer of Git LFS, and the content that it would stand for is not known: write the file's whole new "
    "content in its place, or leave it as it was"
)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"new.bin": "content"}, _ON_DISK),
        ({"a.bin": POINTER.format("b" * 64)}, _EDITED),
        ({"a.bin": POINTER.format("a" * 64).replace("size 3", "size 4")}, _EDITED),
        ({"a.bin": POINTER.format("a" * 64) + "and more\n"}, _EDITED),
        ({"a.bin": "content"}, _ON_DISK),
        ({"copy.bin": "b"}, _ON_DISK),
        ({"sub/.gitattributes": "*.dat filter=lfs\n", "sub/x.dat": "content"}, _ON_DISK),
    ],
    ids=[
        "new content",
        "another pointer",
        "an edited pointer",
        "a damaged pointer",
        "content in place of a pointer",
        "the content of an ordinary file",
        "a rule of the change itself",
    ],
)
def test_what_belongs_into_lfs_is_refused_without_a_server(
    with_lfs: Clone, files: dict[str, str], why: str
) -> None:
    write(with_lfs.tree, {**files, "b": "changed"})
    staged = with_lfs.stage({*files, "b"}, include_commands=False)
    assert staged.outcome.refused == f"{list(files)[-1]}: {why}"
    assert not staged.is_new


def test_a_link_and_an_empty_file_below_an_lfs_rule_are_ordinary(with_lfs: Clone) -> None:
    write(with_lfs.tree, {"empty.bin": ""})
    (with_lfs.tree / "link.bin").symlink_to("a.bin")
    outcome = commit_touched(with_lfs, {"empty.bin", "link.bin"}, "m", include_commands=False)
    assert (outcome.refused, outcome.files) == (None, ["empty.bin", "link.bin"])


def test_unfinished_work_keeps_what_belongs_into_lfs(with_lfs: Clone) -> None:
    write(with_lfs.tree, {"new.bin": "content"})
    with_lfs.stage({"new.bin"}, include_commands=False)
    saved = with_lfs.snapshot({"new.bin"}, "saved", include_commands=False)
    assert saved.commit is not None
    assert git(with_lfs.folder / "host.git", "show", f"{saved.commit}:new.bin") == "content"
    assert b"content" in with_lfs.pending_patch({"new.bin"}, include_commands=False)


def test_what_commands_made_below_an_lfs_rule_is_left_out(with_lfs: Clone) -> None:
    write(with_lfs.tree, {"built.bin": "content", "b": "changed"})
    outcome = commit_touched(with_lfs, {"b"}, "m", include_commands=True)
    assert outcome.files == ["b"]
    assert list(reasons(outcome)) == ["built.bin"]


def test_a_pointer_that_is_moved_or_removed_stays_one(with_lfs: Clone) -> None:
    write(with_lfs.tree, {"moved.bin": POINTER.format("a" * 64)})
    (with_lfs.tree / "a.bin").unlink()
    outcome = commit_touched(with_lfs, {"a.bin", "moved.bin"}, "m", include_commands=False)
    assert outcome.files == ["a.bin", "moved.bin"]
    assert outcome.left_out == []


def test_a_file_becomes_a_folder_and_back(safe: Clone) -> None:
    (safe.tree / "README.md").unlink()
    write(safe.tree, {"README.md/index": "x\n"})
    shutil.rmtree(safe.tree / "src")
    write(safe.tree, {"src": "now a file\n"})
    outcome = commit_touched(safe, set(), "m", include_commands=True)
    assert outcome.files == ["README.md", "README.md/index", "src", "src/calc.py", "src/old.py"]
    assert safe.changed_paths() == set()


def test_what_is_no_file(safe: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(safe.tree / "pipe")
    (safe.tree / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(safe.tree)  # a socket's path may have about 100 characters
        server.bind("socket")
        outcome = commit_touched(safe, {"pipe", "folder", "socket"}, "m", include_commands=True)
    assert outcome.commit is None
    assert outcome.left_out == [LeftOut(name, "not a regular file") for name in ("folder", "pipe", "socket")]


def test_messages_are_cleaned(safe: Clone) -> None:
    write(safe.tree, {"a": "1"})
    commit = commit_touched(safe, {"a"}, "  with\0 nul\ud800\n\nbody\n\n", include_commands=False).commit
    host = safe.tree.parent / "host.git"
    assert git(host, "log", "-1", "--format=%B", str(commit)) == "with nul?\n\nbody\n"
    write(safe.tree, {"a": "2"})
    commit = commit_touched(safe, {"a"}, "", include_commands=False).commit
    assert git(host, "log", "-1", "--format=%s", str(commit)) == "Change files"


def test_pending_patch_is_against_the_last_push(safe: Clone, source: Path) -> None:
    write(safe.tree, {"one.txt": "1\n"})
    commit_touched(safe, {"one.txt"}, "one", include_commands=False)
    assert b"one.txt" in safe.pending_patch(set(), include_commands=False)
    safe.push(BRANCH, expected=None)
    assert safe.pending_patch({"one.txt"}, include_commands=False) == b""
    write(safe.tree, {"two.bin": b"\0\1", "noise.log": "x"})
    patch = safe.pending_patch({"two.bin", "noise.log"}, include_commands=False)
    assert patch.startswith(b"# left out: noise.log: ignored by .gitignore\n")
    assert b"one.txt" not in patch
    git(source, "checkout", "-q", BRANCH)
    git(source, "apply", "-", stdin=patch)
    assert (source / "two.bin").read_bytes() == b"\0\1"


def test_attributes_cannot_hide_a_change_from_the_diff(safe: Clone) -> None:
    write(safe.tree, {".gitattributes": "* -diff\n", "src/calc.py": "visible\n"})
    commit_touched(safe, {".gitattributes", "src/calc.py"}, "m", include_commands=False)
    assert "+visible" in safe.diff()


def test_files_that_are_gone(safe: Clone) -> None:
    shutil.rmtree(safe.tree)
    with pytest.raises(WorkspaceError, match="the clone's files are missing"):
        commit_touched(safe, {"a"}, "m", include_commands=True)
    safe.tree.symlink_to("/")
    with pytest.raises(WorkspaceError, match="the clone's files are missing"):
        safe.changed_paths()


# What is not done twice.

CONTENTS: dict[str, bytes] = {
    "text": b"one\ntwo\n",
    "no newline": b"one\ntwo",
    "latin-1": b"caf\xe9\n",
    "binary": b"one\0two\n",
    "late NUL": b"x" * 9_000 + b"\0",
    "empty": b"",
    "large": b"line\n" * 300_000,
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_the_diff_that_is_shown_is_the_one_that_git_makes(safe: Clone, content: bytes) -> None:
    write(safe.tree, {"a file.dat": content, "src/calc.py": "fixed\n"})
    (safe.tree / "src/old.py").unlink()
    (safe.tree / "link").symlink_to("src/calc.py")
    outcome = commit_touched(
        safe, {"a file.dat", "src/calc.py", "src/old.py", "link"}, "one", include_commands=False
    )
    assert outcome.commit is not None
    host = safe.folder / "host.git"
    told = git(host, "-c", "core.bare=true", "diff", "--no-renames", safe.base_commit, outcome.commit)
    assert safe.diff().encode("utf-8", "surrogateescape") == (
        f"{told}\n".encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode()
    )
    write(safe.tree, {"src/calc.py": "fixed again\n"})
    assert commit_touched(safe, {"src/calc.py"}, "two", include_commands=False).commit is not None
    assert "+fixed again" in safe.diff(), "not the one of the first commit"
    assert "a file.dat" in safe.diff(), "nor that of the second alone"


def test_one_diff_is_searched_and_shown(safe: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = logged_git(tmp_path, monkeypatch)
    write(safe.tree, {"src/calc.py": "fixed\n"})
    assert commit_touched(safe, {"src/calc.py"}, "one", include_commands=False).commit is not None
    assert commands() == [
        *("ls-files", "update-index", "write-tree", "diff-tree"),
        *("cat-file", "cat-file", "diff", "commit-tree"),
    ]
    assert "+fixed" in safe.diff()
    assert commands() == []


def test_files_that_were_listed_are_not_listed_again(
    safe: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (safe.tree / "src/old.py").unlink()
    touched = {"src/calc.py", "src/old.py", "new.log"}
    write(safe.tree, {"src/calc.py": "fixed\n", "new.log": "ignored, and nobody tracks it\n"})
    assert safe.changed_paths() == {"src/calc.py", "src/old.py"}
    commands = logged_git(tmp_path, monkeypatch)
    assert safe.pending_patch(touched, include_commands=True)
    first = commit_touched(safe, touched, "one", include_commands=True)
    assert (first.files, [item.path for item in first.left_out]) == (
        ["src/calc.py", "src/old.py"],
        ["new.log"],
    )
    assert safe.changed_paths() == set(), "the removed file is listed no more"
    assert "ls-files" not in commands()
    (safe.tree / "src/calc.py").unlink()
    write(safe.tree, {"src/old.py": "back\n"})
    assert commit_touched(safe, touched, "two", include_commands=False).files == ["src/calc.py", "src/old.py"]
    assert "ls-files" not in commands(), "what was committed is known"
    assert safe.changed_paths() == set()
    assert commands() == [], "and what is in the files"


def test_a_change_without_commands_is_seen_without_a_walk(
    safe: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        safe.tree, {"src/calc.py": "fixed\n", "new.txt": "new\n", "noise.log": "x", "src/new.py": "other\n"}
    )
    (safe.tree / "src/old.py").unlink()
    (safe.tree / "inner").mkdir()
    git(safe.tree / "inner", "init", "-q", "--template=")
    write(safe.tree, {"inner/a.txt": "of another repository\n"})
    touched = {"src/calc.py", "new.txt", "noise.log", "src/old.py", "inner/a.txt", "missing.txt", "src"}
    commands = logged_git(tmp_path, monkeypatch)
    found = safe.changed_paths(touched)
    assert found == {"src/calc.py", "new.txt", "src/old.py"} == safe.changed_paths() & touched
    assert commands() == ["ls-files"]


def test_a_diff_of_a_binary_file_is_made_again(
    safe: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(safe.tree, {"image.bin": b"\0\1"})
    assert commit_touched(safe, {"image.bin"}, "one", include_commands=False).commit is not None
    commands = logged_git(tmp_path, monkeypatch)
    assert "Binary files" in safe.diff()
    assert commands() == ["diff"]


def test_nothing_is_pending_after_a_push(
    safe: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(safe.tree, {"src/calc.py": "fixed\n", "new.txt": "new\n"})
    touched = {"src/calc.py", "new.txt"}
    commit_touched(safe, touched, "one", include_commands=False)
    assert b"+fixed" in safe.pending_patch(touched, include_commands=True), "not pushed yet"
    safe.push(BRANCH, expected=None)
    commands = logged_git(tmp_path, monkeypatch)
    assert safe.pending_patch(touched, include_commands=True) == b""
    assert commands() == [], "nothing is read again"


@pytest.mark.parametrize(
    "how", ["changed", "removed", "by a command", "ignored", "outside", "held", "submodule"]
)
def test_what_is_pending_after_a_push_is_seen(tmp_path: Path, how: str) -> None:
    source = make_source(tmp_path / "source", {"a.txt": "a\n", "held.txt": "a\n", ".gitignore": "*.log\n"})
    git(source, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    git(source, "commit", "-qm", "module")
    hold = CommitScreen(hold=lambda change: "a person looks" if change.path == "held.txt" else None)
    with clone(source, tmp_path / "clones") as opened:
        touched = {"a.txt"}
        write(opened.tree, {"a.txt": "b\n"})
        if how == "held":
            touched.add("held.txt")
            write(opened.tree, {"held.txt": "b\n"})
        if how == "submodule":
            touched.add("module")
            (opened.tree / "module").mkdir(exist_ok=True)
        commit_touched(opened, touched, "one", include_commands=False, screen=hold)
        opened.push(BRANCH, expected=None)
        match how:
            case "changed":
                write(opened.tree, {"a.txt": "c\n"})
            case "removed":
                (opened.tree / "a.txt").unlink()
            case "by a command":
                write(opened.tree, {"b.txt": "c\n"})
            case "ignored":
                touched.add("a.log")
                write(opened.tree, {"a.log": "c\n"})
            case "outside":
                touched.add("../a.txt")
            case _:
                pass
        patch = opened.pending_patch(touched, include_commands=True)
        expected = {
            "changed": b"+c",
            "removed": b"-b",
            "by a command": b"b.txt",
            "ignored": b"# left out: a.log",
            "outside": b"# left out: ../a.txt",
            "held": b"held.txt",
            "submodule": b"# left out: module: a submodule",
        }
        assert expected[how] in patch


def test_a_change_in_the_moment_in_which_the_index_was_written_is_committed(
    safe: Clone,
) -> None:
    """Git looks into a file again that is as old as the index, unless a command without files wrote it anew."""
    host, moment = safe.folder / "host.git", 1_700_000_000_000_000_000
    file = safe.tree / "src" / "calc.py"
    git(host, "config", "core.trustctime", "false")  # nobody can set that time
    os.utime(file, ns=(moment, moment))
    git(safe.tree, f"--git-dir={host}", f"--work-tree={safe.tree}", "update-index", "--refresh")
    file.write_bytes(file.read_bytes().replace(b"-", b"+"))
    os.utime(file, ns=(moment, moment))
    os.utime(host / "index", ns=(moment, moment))
    (safe.tree / "README.md").unlink()
    made = commit_touched(safe, {"src/calc.py", "README.md"}, "Fix", include_commands=False)
    assert made.files == ["README.md", "src/calc.py"]


def test_a_file_with_a_working_tree_encoding_is_committed_as_git_does(tmp_path: Path) -> None:
    source = make_source(
        tmp_path / "source",
        {
            ".gitattributes": "*.txt text working-tree-encoding=UTF-16LE\n",
            "a.txt": "é = 1\n".encode("utf-16-le"),
        },
    )
    assert git(source, "cat-file", "blob", "HEAD:a.txt") == "é = 1"
    with clone(source, tmp_path / "runs") as opened:
        assert (opened.tree / "a.txt").read_bytes() == "é = 1\n".encode("utf-16-le")
        write(opened.tree, {"a.txt": "é = 2\n".encode("utf-16-le")})
        commit_touched(opened, {"a.txt"}, "m", include_commands=False)
        assert git(opened.folder / "host.git", "cat-file", "blob", f"{opened.tip}:a.txt") == "é = 2"
        assert opened.changed_paths() == set()

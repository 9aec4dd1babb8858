"""What a model could have made in its folder: git opens none of it, and everything ends in a result or one line."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.bot.git import working_tree as module
from orchestrator.bot.git.checkpoints import Checkpoints
from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.objects import Difference
from orchestrator.bot.git.work import find_base
from orchestrator.bot.git.working_tree import WorkingTree, parse_times
from tests.doubles.commits import commit_touched
from tests.unit.bot.git.rig import clone, git, make_source, show, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator.bot.git.clone import Clone

FILES = {
    "src/calc.py": "x\n",
    "src/old.py": "old\n",
    ".gitignore": "*.log\nbuild/\n",
    ".gitattributes": "*.crlf text eol=crlf\n",
    "a.crlf": "one\ntwo\n",
}


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Clone]:
    with clone(make_source(tmp_path / "source", FILES), tmp_path / "clones", with_git=True) as made:
        yield made


def _fifo(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def _socket(path: Path) -> None:
    path.unlink(missing_ok=True)
    # A socket's whole path is short.
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(path.parent)
        try:
            made.bind(path.name)
        finally:
            os.chdir(here)


def _link(target: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    return make


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    write(path, {"inner.txt": "inner\n"})


def _repository_of_pipes(path: Path) -> None:
    """What git would read of a repository."""
    for name in (
        "HEAD",
        "config",
        "index",
        "packed-refs",
        "commondir",
        "objects/info/alternates",
        "info/exclude",
    ):
        _fifo(path / name)


def _pipe_for_folder(path: Path) -> None:
    shutil.rmtree(path)
    _fifo(path)


PLANTS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a pipe for the ignore rules": (".gitignore", _fifo),
    "a pipe for the ignore rules of a folder": ("src/.gitignore", _fifo),
    "a pipe for the attributes": (".gitattributes", _fifo),
    "a pipe for the attributes of a folder": ("src/.gitattributes", _fifo),
    "a pipe for the submodules": (".gitmodules", _fifo),
    "a pipe for the names": (".mailmap", _fifo),
    "a pipe in place of a file": ("src/old.py", _fifo),
    "a new pipe": ("new", _fifo),
    "a socket in place of a file": ("src/old.py", _socket),
    "a folder in place of a file": ("src/old.py", _folder),
    "a folder in place of the ignore rules": (".gitignore", _folder),
    "rules that are a link to a device": (".gitignore", _link("/dev/zero")),
    "attributes that are a link to a device": (".gitattributes", _link("/dev/zero")),
    "a link to a device": ("src/old.py", _link("/dev/zero")),
    "a link to a pipe": ("src/old.py", _link("../pipe")),
    "a loop": ("src/old.py", _link("old.py")),
    "a huge file with holes": ("src/old.py", _sparse),
    "huge ignore rules": (".gitignore", _sparse),
    "huge attributes": (".gitattributes", _sparse),
    "a repository of pipes": (".git", _repository_of_pipes),
    "a repository of pipes in a folder": ("src/.git", _repository_of_pipes),
    "a repository of pipes in a new folder": ("inner/.git", _repository_of_pipes),
    "a pipe in place of the repository": (".git", _pipe_for_folder),
    "a pipe where a folder's repository is looked for": ("src/.git", _fifo),
    "a bare repository of pipes at the top": ("HEAD", lambda path: _repository_of_pipes(path.parent)),
}
LEFT_OUT = {
    "a pipe in place of a file": "not a regular file",
    "a socket in place of a file": "not a regular file",
    "a link to a device": "a symbolic link that leaves the repository",
    "a huge file with holes": f"too large ({1 << 40:,} bytes, the limit is 104,857,600)",
}


@pytest.mark.parametrize("name", PLANTS)
def test_whatever_a_model_leaves_the_rest_is_proposed(opened: Clone, name: str) -> None:
    path, make = PLANTS[name]
    if name == "a link to a pipe":
        _fifo(opened.tree / "pipe")
    make(opened.tree / path)
    write(opened.tree, {"src/calc.py": "fixed\n", "new.txt": "new\n"})
    changed = opened.changed_paths()
    assert {"src/calc.py", "new.txt"} <= changed
    assert b"+fixed" in opened.pending_patch({"src/calc.py", path}, include_commands=True)
    outcome = commit_touched(opened, {"src/calc.py", path}, "fix", include_commands=True)
    assert {"src/calc.py", "new.txt"} <= set(outcome.files)
    reasons = {item.path: item.reason for item in outcome.left_out}
    if name in LEFT_OUT:
        assert reasons[path] == LEFT_OUT[name]
    assert opened.push("pullwright/x", expected=None) == outcome.commit
    assert opened.snapshot({path}, "work", include_commands=True).commit


@pytest.mark.parametrize("name", [name for name in PLANTS if not PLANTS[name][0].startswith(".git/")])
async def test_whatever_a_model_leaves_in_a_conversation_the_rest_is_undone_and_proposed(
    tmp_path: Path, name: str
) -> None:
    path, make = PLANTS[name]
    if path == ".git":
        return  # nothing that a model may write
    folder = make_source(tmp_path / "source", FILES)
    said: list[str] = []
    kept = Checkpoints(folder, tmp_path / "store", said.append)
    kept.begin_turn()
    async with kept.around():
        write(folder, {"src/calc.py": "fixed\n"})
        if name == "a link to a pipe":
            _fifo(folder / "pipe")
        make(folder / path)
    kept.end_turn()
    assert all("too large" in text for text in said)
    change = kept.proposal(find_base(folder, "main", is_here=True), everything=True)
    assert ("src/calc.py", "M") in change.paths
    assert "src/calc.py" in kept.undo().paths
    assert (folder / "src/calc.py").read_text() == "x\n"


def test_a_file_that_is_swapped_for_a_pipe_while_it_is_read_is_left_out(opened: Clone) -> None:
    path = opened.tree / "src" / "calc.py"
    write(opened.tree, {"src/calc.py": "fixed\n", "src/old.py": "new\n"})
    files = WorkingTree(opened.git, opened.tree)
    found = files.scan(opened.index)
    assert set(found.modified) >= {"src/calc.py", "src/old.py"}
    _fifo(path)
    stored = files.store(["src/calc.py", "src/old.py"], opened.index)
    assert set(stored.entries) == {"src/old.py"}
    assert stored.refused == {"src/calc.py": "it is a named pipe, not a regular file"}


def test_a_folder_that_is_swapped_for_a_link_leads_nowhere(opened: Clone, tmp_path: Path) -> None:
    write(tmp_path, {"private/calc.py": "secret\n"})
    shutil.rmtree(opened.tree / "src")
    (opened.tree / "src").symlink_to(tmp_path / "private")
    stored = WorkingTree(opened.git, opened.tree).store(["src/calc.py"], opened.index)
    assert not stored.entries
    assert "symbolic link" in stored.refused["src/calc.py"]


def test_a_nested_repository_is_named_and_not_walked(opened: Clone) -> None:
    write(opened.tree, {"inner/.git/HEAD": "", "inner/a/b.txt": "x", "inner/c.txt": "x"})
    assert opened.changed_paths() == {"inner"}


def test_names_of_all_kinds_are_proposed(opened: Clone, tmp_path: Path) -> None:
    names = [
        "a\nb",
        os.fsdecode(b"\xff\xfe"),
        "x" * 255,
        "-n",
        "--",
        ":(top)x",
        "a b ",
        "Src/calc.py",
        "src/CALC.py",
    ]
    write(opened.tree, {name: f"{number}\n" for number, name in enumerate(names)})
    outcome = commit_touched(opened, set(), "names", include_commands=True)
    assert sorted(outcome.files) == sorted(names)
    commit = opened.push("pullwright/x", expected=None)
    for number, name in enumerate(names):
        assert show(tmp_path / "source", commit, name) == f"{number}\n".encode()


def test_a_tree_nested_without_end_is_left_out(opened: Clone) -> None:
    here = os.open(opened.tree, os.O_RDONLY)
    for _ in range(1_500):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    write(opened.tree, {"new.txt": "new\n"})
    outcome = commit_touched(opened, set(), "deep", include_commands=True)
    assert outcome.files == ["new.txt"]
    assert [item.path for item in outcome.left_out] == ["/".join("d" * 100)]


# -- git is the oracle of what differs ------------------------------------------------------------------------------

NAMES = ["a", "b", "c.crlf", "d.log", "build", "src", ".gitignore", ".gitattributes"]
CONTENTS = ["", "x\n", "x\r\ny\r\n", "*.log\n", "*\n!src\n", "*.crlf text\n", "* text=auto\n"]
STEP = st.tuples(
    st.sampled_from(["write", "remove", "link", "run", "commit"]),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3),
    st.sampled_from(CONTENTS),
)


def _do(folder: Path, step: tuple[str, list[str], str]) -> None:
    kind, names, content = step
    path = folder.joinpath(*names)
    try:
        if kind == "remove":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        elif kind == "link":
            path.unlink()
            path.symlink_to("a")
        elif kind == "run":
            path.chmod(0o755)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    except OSError:
        pass


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=15)
@given(before=st.lists(STEP, max_size=6), after=st.lists(STEP, max_size=8))
def test_what_differs_and_what_is_stored_is_what_git_says(
    tmp_path: Path, before: list[tuple[str, list[str], str]], after: list[tuple[str, list[str], str]]
) -> None:
    folder, store = tmp_path / "folder", tmp_path / "store.git"
    for place in (folder, store):
        shutil.rmtree(place, ignore_errors=True)
    folder.mkdir()
    git(folder, "init", "-q", "--template=", "-b", "main")
    for step in before:
        _do(folder, step)
    git(folder, "add", "--force", ".")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    git(tmp_path, "clone", "-q", "--bare", str(folder), str(store))
    shutil.copy2(folder / ".git" / "index", store / "index")
    for step in after:
        _do(folder, step)
    files = WorkingTree(HostGit(tmp_path, store), folder, times=store / "index")
    said = subprocess.run(
        ["git", "-C", str(folder), "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames"],
        check=True,
        capture_output=True,
    ).stdout
    changed = {os.fsdecode(line[3:]) for line in said.split(b"\0") if line}
    assert files.changed(store / "index") == changed
    some = {"/".join(names) for _, names, _ in (*before, *after)}
    assert files.changed(store / "index", some) == changed & some
    found = files.scan(store / "index")
    stored = files.store([*found.modified, *found.new], store / "index")
    assert not stored.refused
    git(folder, "add", "--all", ".")
    staged = git(folder, "ls-files", "--stage", "-z").split("\0")
    theirs = {line.partition("\t")[2]: line.split(" ")[:2] for line in staged if line}
    assert {path: [one.mode, one.object_id] for path, one in stored.entries.items()} == {
        path: theirs[path] for path in stored.entries
    }
    assert set(theirs) == (set(found.index) | set(found.new)) - set(found.removed)
    gone = [Difference(path, found.index[path], None) for path in found.removed]
    files.change(store / "index", gone, doing="cannot test")
    added = [Difference(path, None, entry) for path, entry in stored.entries.items()]
    files.change(store / "index", added, doing="cannot test")
    assert files.tree(store / "index", doing="cannot test") == git(folder, "write-tree")
    fresh = WorkingTree(HostGit(tmp_path, store), folder)
    assert files.index(store / "index") == fresh.index(store / "index"), "not listed again, and the same"
    assert files.changed(store / "index") == fresh.changed(store / "index") == set()


def test_an_unchanged_file_is_not_read_again(opened: Clone) -> None:
    files = WorkingTree(opened.git, opened.tree, times=opened.index)
    for path in opened.tree.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    assert set(files.scan(opened.index).modified) == set(FILES)
    git(opened.tree, "status")  # time passes: what was changed just now may change once more unnoticed
    assert files.changed(opened.index) == set()
    while files.scan(opened.index).modified:
        assert files.changed(opened.index) == set()
    write(opened.tree, {"src/calc.py": "y\n"})
    os.utime(opened.tree / "src/calc.py", (1, 1))
    assert files.changed(opened.index) == {"src/calc.py"}, "as long and as old as before"


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_the_times_in_an_index_are_those_of_the_files(tmp_path: Path, version: str) -> None:
    names = {f"{'d/' * depth}{'n' * depth}": "x" for depth in range(1, 12)}
    folder = make_source(tmp_path / "source", names)
    git(folder, "status")  # the times of a copy are its own
    git(folder, "update-index", "--skip-worktree", "d/n")
    git(folder, "update-index", "--index-version", version)
    content = (folder / ".git" / "index").read_bytes()
    known, unwatched = parse_times(content, 20)
    assert set(known) == set(names)
    assert unwatched == {"d/n"}
    for path, (signature, object_id) in known.items():
        status = (folder / path).stat()
        assert signature[1:] == (status.st_mtime_ns, status.st_ino & 0xFFFFFFFF, status.st_size, "100644")
        assert object_id == git(folder, "hash-object", path)
    for end in range(0, len(content), 37):
        parse_times(content[:end], 20)


def test_git_works_on_files_in_two_places_only() -> None:
    """A working tree is given to git where only this program has written: see `HostGit`."""
    found = [
        path.name
        for path in sorted(Path(module.__file__).parent.glob("*.py"))
        if ".on(" in path.read_text("utf-8")
    ]
    assert found == ["objects.py", "work.py", "working_tree.py"]

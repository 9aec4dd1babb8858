"""Earlier work that is brought onto a clone, from the remote or from a pack of this machine."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.git.work import invalid_entries
from orchestrator.core.errors import WorkspaceError
from tests.doubles.commits import commit_touched
from tests.tables import table
from tests.unit.bot.conftest import FILES
from tests.unit.bot.coordination.records_rig import broken_git
from tests.unit.bot.git.plants import HOOKS, PLANTS, Field
from tests.unit.bot.git.rig import add_empty_commits, clone, git, make_source, write
from tests.unit.bot.git.smart_http import SmartHttp

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orchestrator.bot.git.base import Packed

WORK = "refs/pullwright/wip/12"
WEIRD = os.fsdecode(b"caf\xe9.txt")


def earlier(source: Path, files: Mapping[str, str | bytes | None], *, on: str = "main") -> str:
    """A commit of earlier work on `WORK`, on top of a commit; None removes a file. The branch stays."""
    git(source, "checkout", "-q", "--detach", on)
    for name, content in files.items():
        if content is None:
            git(source, "rm", "-q", "--", name)
    write(source, {name: content for name, content in files.items() if content is not None})
    git(source, "add", "-A", "-f")
    return kept(source)


def kept(source: Path) -> str:
    """Commit the index of the source on `WORK`."""
    git(source, "commit", "-q", "--allow-empty", "-m", "earlier")
    git(source, "update-ref", WORK, "HEAD")
    commit = git(source, "rev-parse", "HEAD")
    git(source, "checkout", "-qf", "main")
    return commit


def crafted(source: Path, tree: str) -> str:
    """A commit with a tree that no honest git makes, on top of `main`."""
    commit = git(source, "commit-tree", tree, "-p", "main", "-m", "crafted")
    git(source, "update-ref", WORK, commit)
    return commit


def raw_tree(source: Path, *entries: tuple[str, bytes, str]) -> str:
    """A tree of exactly these entries: mode, name, object."""
    body = b"".join(mode.encode() + b" " + name + b"\0" + bytes.fromhex(oid) for mode, name, oid in entries)
    return git(source, "hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=body)


def blob(source: Path, content: bytes) -> str:
    return git(source, "hash-object", "-w", "--stdin", stdin=content)


def move_base(source: Path, files: Mapping[str, str | bytes]) -> None:
    write(source, files)
    git(source, "add", ".")
    git(source, "commit", "-qm", "base moved")


def files_of(tree: Path) -> dict[str, bytes]:
    """All files, with their bytes; of a link, its target."""
    return {
        str(path.relative_to(tree)): os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(tree.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def test_work_comes_back_as_if_tools_had_written_it(source: Path, tmp_path: Path) -> None:
    made = earlier(source, {"src/calc.py": "fixed\n", "new/a.txt": b"\0\r\n", "src/old.py": None, WEIRD: "x"})
    with clone(source, tmp_path / "runs") as opened:
        applied = opened.apply_work(made, reference=WORK)
        assert applied.paths == {"src/calc.py", "new/a.txt", "src/old.py", WEIRD}
        assert (applied.conflicts, applied.base_moved, applied.tip) == ([], False, "")
        assert opened.changed_paths() == applied.paths
        assert (opened.tree / "new/a.txt").read_bytes() == b"\0\r\n"
        assert not (opened.tree / "src/old.py").exists()
        assert b"rename from" not in opened.pending_patch(applied.paths, include_commands=False)
        assert opened.diff() == ""
        outcome = commit_touched(opened, applied.paths, "again", include_commands=False)
        assert outcome.commit is not None
        assert outcome.files == sorted(applied.paths)
        opened.push("pullwright/12", expected=None)
    assert git(source, "rev-parse", "pullwright/12^{tree}") == git(source, "rev-parse", f"{made}^{{tree}}")
    assert git(source, "rev-parse", "pullwright/12^") == git(source, "rev-parse", "main")


def test_modes_links_renames_and_folders_that_were_files(source: Path, tmp_path: Path) -> None:
    git(source, "checkout", "-q", "--detach")
    git(source, "mv", "src/old.py", "moved.py")
    (source / "src/calc.py").chmod(0o755)
    (source / "link").symlink_to("src/calc.py")
    git(source, "rm", "-q", "README.md")
    write(source, {"README.md/inner.txt": "folder"})
    git(source, "add", "-A")
    made = kept(source)
    with clone(source, tmp_path / "runs", with_git=True) as opened:
        applied = opened.apply_work(made, reference=WORK)
        assert (opened.tree / "src/calc.py").stat().st_mode & stat.S_IXUSR
        assert (opened.tree / "link").readlink().as_posix() == "src/calc.py"
        assert (opened.tree / "README.md/inner.txt").read_text() == "folder"
        assert (opened.tree / "moved.py").read_text() == FILES["src/old.py"]
        outcome = commit_touched(opened, applied.paths, "again", include_commands=False)
        assert outcome.left_out == []
        opened.push("pullwright/12", expected=None)
    assert git(source, "rev-parse", "pullwright/12^{tree}") == git(source, "rev-parse", f"{made}^{{tree}}")


def test_a_moved_base_takes_the_change_where_it_applies(source: Path, tmp_path: Path) -> None:
    move_base(source, {"long.txt": "".join(f"{n}\n" for n in range(30))})
    made = earlier(source, {"long.txt": "".join(f"{n}\n" for n in range(29)) + "ours\n"})
    git(source, "mv", "long.txt", "renamed.txt")
    move_base(source, {"renamed.txt": "theirs\n" + "".join(f"{n}\n" for n in range(1, 30)), "x": "y"})
    with clone(source, tmp_path / "runs") as opened:
        applied = opened.apply_work(made, reference=WORK)
        assert applied.paths == {"renamed.txt"} == opened.changed_paths()
        assert (applied.conflicts, applied.base_moved) == ([], True)
        lines = (opened.tree / "renamed.txt").read_text().split()
        assert (lines[0], lines[-1]) == ("theirs", "ours")


def test_conflicts_are_named_marked_and_not_committed_before_they_are_gone(
    source: Path, tmp_path: Path
) -> None:
    move_base(source, {"src/calc.py": "old\r\n"})
    made = earlier(source, {"src/calc.py": "ours\r\n", "README.md": b"\0ours", "src/old.py": None})
    move_base(source, {"src/calc.py": "theirs\r\n", "README.md": b"\0theirs", "src/old.py": "changed\n"})
    with clone(source, tmp_path / "runs") as opened:
        applied = opened.apply_work(made, reference=WORK)
        assert applied.conflicts == ["README.md", "src/calc.py", "src/old.py"]
        assert applied.base_moved
        text = b"<<<<<<< pullwright/base\r\ntheirs\r\n=======\r\nours\r\n>>>>>>> pullwright/work\r\n"
        assert (opened.tree / "src/calc.py").read_bytes() == text
        assert (opened.tree / "README.md").read_bytes() == b"\0theirs"
        for touched in (applied.paths, set[str]()):
            outcome = commit_touched(opened, touched, "again", include_commands=False)
            assert outcome.commit is None
            assert outcome.refused == "conflict markers are left in src/calc.py"
        write(opened.tree, {"src/calc.py": "both\n"})
        assert commit_touched(opened, applied.paths, "again", include_commands=False).files == ["src/calc.py"]


def test_an_ignored_file_is_left_out_of_the_commit_as_ever(source: Path, tmp_path: Path) -> None:
    made = earlier(source, {"build/out.txt": "x", "kept.txt": "y"})
    with clone(source, tmp_path / "runs") as opened:
        applied = opened.apply_work(made, reference=WORK)
        assert (opened.tree / "build/out.txt").read_text() == "x"
        outcome = commit_touched(opened, applied.paths, "again", include_commands=False)
        assert outcome.files == ["kept.txt"]
        assert [item.path for item in outcome.left_out] == ["build/out.txt"]


def test_line_ends_that_attributes_convert(tmp_path: Path) -> None:
    files = {".gitattributes": "*.txt text eol=crlf\n*.bin filter=trap\n", "a.txt": "1\n", "b.bin": "1\n"}
    source = make_source(tmp_path / "source", files)
    made = earlier(source, {"a.txt": "1\n2\n", "b.bin": "2\n", "c.txt": "new\r\n"})
    with clone(source, tmp_path / "runs") as opened:
        applied = opened.apply_work(made, reference=WORK)
        assert applied.paths == {"a.txt", "b.bin", "c.txt"} == opened.changed_paths()
        assert (opened.tree / "a.txt").read_bytes() == b"1\r\n2\r\n"
        commit_touched(opened, applied.paths, "again", include_commands=False)
        opened.push("x", expected=None)
    assert git(source, "rev-parse", "x^{tree}") == git(source, "rev-parse", f"{made}^{{tree}}")


def test_a_submodule_stays_as_the_base_has_it(source: Path, tmp_path: Path) -> None:
    there = git(source, "rev-parse", "HEAD")
    git(source, "update-index", "--add", "--cacheinfo", f"160000,{there},sub")
    git(source, "commit", "-qm", "submodule")
    git(source, "checkout", "-q", "--detach")
    git(source, "update-index", "--cacheinfo", f"160000,{'1' * 40},sub")
    git(source, "update-index", "--add", "--cacheinfo", f"160000,{'2' * 40},other")
    write(source, {"a.txt": "a"})
    git(source, "add", "a.txt")
    made = kept(source)
    with clone(source, tmp_path / "runs") as opened:
        applied = opened.apply_work(made, reference=WORK)
        assert applied.conflicts == ["other", "sub"]
        assert applied.paths == {"a.txt"} == opened.changed_paths()
        assert commit_touched(opened, applied.paths, "again", include_commands=False).files == ["a.txt"]


def test_history_of_the_clone_stays_as_deep_as_it_was(source: Path, tmp_path: Path) -> None:
    for number in range(4):
        move_base(source, {"a": str(number)})
    made = earlier(source, {"b": "1"}, on="main~1")
    with clone(source, tmp_path / "runs") as opened:
        before = opened.recent_commits(10)
        opened.apply_work(made, reference=WORK)
        assert opened.recent_commits(10) == before
        assert len(before) == 5


def test_work_on_a_base_older_than_the_clone(source: Path, tmp_path: Path) -> None:
    made = earlier(source, {"b": "1"})
    for number in range(15):
        move_base(source, {"a": str(number)})
    with clone(source, tmp_path / "runs") as opened:
        applied = opened.apply_work(made, reference=WORK)
        assert (applied.paths, applied.base_moved) == ({"b"}, True)
        assert len(opened.recent_commits(20)) == 10


def test_over_http(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestrator.core.redaction import Credential

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = earlier(source, {"b": "1"})
    with SmartHttp(tmp_path).running() as server:
        credential = Credential(f"127.0.0.1:{server.port}", server.user, server.password)
        url = f"{server.url}/source/.git"
        with clone(url, tmp_path / "runs", credential=lambda: credential) as opened:
            assert opened.apply_work(made, reference=WORK).paths == {"b"}


def test_what_cannot_be_applied_is_said(source: Path, tmp_path: Path) -> None:
    made = earlier(source, {"b": "1"})
    other = earlier(source, {"b": "2"})
    root = git(source, "commit-tree", "main^{tree}", "-m", "root")
    git(source, "update-ref", "refs/pullwright/wip/root", root)
    drop = f"to begin without it: git push {source} "
    with clone(source, tmp_path / "runs") as opened:
        for commit, reference, said in (
            (made, WORK, f"{WORK} does not lead to .* run again"),
            (
                made,
                "refs/pullwright/wip/none",
                "refs/pullwright/wip/none does not exist any more.* run again",
            ),
            ("main", WORK, "is not a commit id"),
            (made, "main", "cannot be the name"),
            (made, "refs/x:refs/heads/main", "cannot be the name"),
            ("3" * 40, None, "name a ref that contains it"),
            (
                root,
                "refs/pullwright/wip/root",
                f"not have exactly one readable parent.*{drop}:refs/pullwright/wip/root",
            ),
        ):
            with pytest.raises(WorkspaceError, match=said):
                opened.apply_work(commit, reference=reference)
        assert opened.changed_paths() == set()
        opened.apply_work(other, reference=WORK)
        commit_touched(opened, {"b"}, "b", include_commands=False)
        with pytest.raises(WorkspaceError, match="committed here already"):
            opened.apply_work(other, reference=WORK)


def test_a_file_that_somebody_changed_meanwhile_is_not_overwritten(source: Path, tmp_path: Path) -> None:
    made = earlier(source, {"src/calc.py": "earlier\n", "new.txt": "earlier\n"})
    for name in ("src/calc.py", "new.txt"):
        with clone(source, tmp_path / "runs") as opened:
            write(opened.tree, {name: "mine\n"})
            with pytest.raises(WorkspaceError):
                opened.apply_work(made, reference=WORK)
            assert (opened.tree / name).read_text() == "mine\n"


HOSTILE = {
    "git": [("100644", b".git", "blob")],
    "folder git": [("40000", b".git", "tree")],
    "dots": [("40000", b"..", "tree")],
    "dot": [("40000", b".", "tree")],
    "slashes": [("100644", b"a/../../b", "blob")],
    "plain slash": [("120000", b"link", "link"), ("100644", b"link/b", "blob")],
    "below a link": [("120000", b"a", "link"), ("40000", b"a", "tree")],
    "below a link, other case": [("120000", b"A", "link"), ("40000", b"a", "tree")],
    "below a submodule": [("160000", b"a", "blob"), ("40000", b"a", "tree")],
    "twice": [("100644", b"a", "blob"), ("100644", b"a", "blob")],
    "case": [("40000", b".GiT", "tree")],
    "short name": [("40000", b"git~1", "tree")],
    "not seen": [("40000", ".g\u200cit".encode(), "tree")],
    "stream": [("100644", b".git::$INDEX_ALLOCATION", "blob")],
    "nothing": [("100644", b"", "blob")],
    "link out": [("120000", b"out", "link")],
    "link to all": [("120000", b"out", "root")],
    "link to git": [("120000", b"out", "dotgit")],
}


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_trees(name: str, *, moved: bool, source: Path, tmp_path: Path) -> None:
    outside = tmp_path / "runs"
    things = {
        "blob": blob(source, b"evil"),
        "link": blob(source, b"../../.."),
        "root": blob(source, b"/"),
        "dotgit": blob(source, b".git/config"),
    }
    things["tree"] = raw_tree(source, ("100644", b"config", things["blob"]))
    listed = git(source, "ls-tree", "main").splitlines()
    own = [
        (line.split()[0].lstrip("0"), line.partition("\t")[2].encode(), line.split()[2]) for line in listed
    ]
    tree = raw_tree(source, *own, *((mode, path, things[what]) for mode, path, what in HOSTILE[name]))
    made = crafted(source, tree)
    if moved:
        move_base(source, {"moved": "1"})
    with clone(source, outside) as opened:
        before, around = files_of(opened.tree), files_of_folders(outside)
        with pytest.raises(WorkspaceError):
            opened.apply_work(made, reference=WORK)
        assert files_of(opened.tree) == before
        assert files_of_folders(outside) == around
        assert opened.changed_paths() == set()


def files_of_folders(parent: Path) -> set[str]:
    """Everything beside the clone's files and git's own."""
    return {
        str(path.relative_to(parent))
        for path in parent.rglob("*")
        if "host.git" not in path.parts and "tree" not in path.parts
    }


def test_sides_that_are_harmless_alone(source: Path, tmp_path: Path) -> None:
    """Where upper and lower case are one, the work's file would be written behind the base's link."""
    made = earlier(source, {"docs/x": "1"})
    (source / "Docs").symlink_to("src")
    move_base(source, {})
    with clone(source, tmp_path / "runs") as opened:
        said = rf"is below something that is not a folder; to begin without it: git push \S+ :{WORK}$"
        with pytest.raises(WorkspaceError, match=said):
            opened.apply_work(made, reference=WORK)
        assert opened.changed_paths() == set()


def test_a_link_that_leaves_through_another_one_is_taken_back(source: Path, tmp_path: Path) -> None:
    """By its words the second link stays; with the first one followed it does not."""
    git(source, "checkout", "-q", "--detach")
    (source / "x/y").mkdir(parents=True)
    (source / "x/y/d").symlink_to("../..")
    (source / "x/y/e").symlink_to("d/../..")
    write(source, {"fine.txt": "1"})
    git(source, "add", "-A")
    made = kept(source)
    with clone(source, tmp_path / "runs") as opened:
        said = rf"'x/y/e' is a symbolic link that leaves the repository; to begin without it: git push \S+ :{WORK}$"
        with pytest.raises(WorkspaceError, match=said):
            opened.apply_work(made, reference=WORK)
        assert opened.changed_paths() == set()
        assert not (opened.tree / "x").exists()


def test_links_of_the_base_are_no_fault_of_the_work(source: Path, tmp_path: Path) -> None:
    (source / "out").symlink_to("/")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "a link that leaves")
    made = earlier(source, {"b": "1"})
    with clone(source, tmp_path / "runs") as opened:
        assert opened.apply_work(made, reference=WORK).paths == {"b"}


def test_nothing_that_was_planted_is_run(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drivers, hooks and variables, in the work that comes back and around it."""
    traps = "* filter=trap diff=trap merge=trap\n"
    move_base(source, {".gitattributes": traps})
    made = earlier(source, {"src/calc.py": "ours\n", ".gitmodules": "[submodule]\n", "c.txt": "1"})
    move_base(source, {"src/calc.py": "theirs\n"})
    field = Field(tmp_path / "field", PLANTS)
    with clone(source, tmp_path / "runs", with_git=True) as opened:
        own = opened.tree / ".git"
        with (own / "config").open("a") as config:
            config.write(field.configuration)
        for name in HOOKS:
            write(own / "hooks", {name: f"#!/bin/sh\n{field.folder}/script\n"})
            (own / "hooks" / name).chmod(0o755)
        for name, value in field.variables.items():
            if name != "GIT_EXEC_PATH":
                monkeypatch.setenv(name, value)
        applied = opened.apply_work(made, reference=WORK)
        assert applied.conflicts == ["src/calc.py"]
    assert field.ran() == ""


@table(
    ("entries", "found"),
    [
        ([("100644", "a"), ("100644", "a.b"), ("100644", "c/d")], set()),
        ([("120000", "Docs"), ("100644", "docs.txt")], set()),
        ([("120000", "Docs"), ("100644", "docs/x")], {"docs/x"}),
        ([("100644", "Docs"), ("100644", "docs/x")], set()),
        ([("100644", "docs"), ("100644", "docs/x")], {"docs/x"}),
        ([("100644", "a//b")], {"a//b"}),
        ([("100644", "../b")], {"../b"}),
        ([("100644", "a/.GIT/b")], {"a/.GIT/b"}),
        ([("160000", "m"), ("100644", "m/n/o")], {"m/n/o"}),
    ],
)
def test_invalid_entries(entries: list[tuple[str, str]], found: set[str]) -> None:
    assert {path for path, _ in invalid_entries(entries)} == found


def test_a_git_that_is_too_old_to_merge_is_named(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = earlier(source, {"b": "1"})
    move_base(source, {"c": "2"})
    with clone(source, tmp_path / "runs") as opened:
        usage = 'echo "usage: git merge-tree <base-tree> <branch1> <branch2>" >&2; exit 129'
        script = f'case " $* " in *" merge-tree "*) {usage};; *" version "*) echo "git version 2.30.2"; exit;; esac'
        broken_git(tmp_path, monkeypatch, script)
        said = "cannot merge: this is git version 2.30.2, which is too old for it; install git 2.39 or newer$"
        with pytest.raises(WorkspaceError, match=said):
            opened.apply_work(made, reference=WORK)
        assert opened.changed_paths() == set()


CALC = "def add(a, b):\n    return a - b\n"
FIXED = "def add(a, b):\n    return a + b\n"
BINARY = bytes(range(256)) * 64


@pytest.fixture
def calc(tmp_path: Path) -> Path:
    return make_source(tmp_path / "source", {"calc.py": CALC, "old.txt": "old\n"})


def packed(calc: Path, tmp_path: Path) -> Packed:
    """Work of a clone that is gone: a change, a new file that is not text, and a file that was removed."""
    with clone(calc, tmp_path / "first") as opened:
        write(opened.tree, {"calc.py": FIXED, "new.bin": BINARY})
        (opened.tree / "old.txt").unlink()
        touched = {"calc.py", "new.bin", "old.txt"}
        return opened.pack(opened.snapshot(touched, "work", include_commands=False))


def test_it_is_in_the_files_of_a_later_clone(calc: Path, tmp_path: Path) -> None:
    work = packed(calc, tmp_path)
    assert work.work is not None
    with clone(calc, tmp_path / "second") as opened:
        applied = opened.apply_work(work.work, packed=work)
        assert applied.paths == {"calc.py", "new.bin", "old.txt"}
        assert (applied.conflicts, applied.base_moved) == ([], False)
        assert (opened.tree / "calc.py").read_text() == FIXED
        assert (opened.tree / "new.bin").read_bytes() == BINARY
        assert not (opened.tree / "old.txt").exists()


def test_it_is_merged_into_a_base_that_moved_far(calc: Path, tmp_path: Path) -> None:
    work = packed(calc, tmp_path)
    assert work.work is not None
    add_empty_commits(calc, 80, "step")  # more than a shallow clone has
    write(calc, {"calc.py": f"# The sum.\n\n\n{CALC}"})
    git(calc, "commit", "-qam", "above")
    with clone(f"file://{calc}", tmp_path / "second") as opened:
        applied = opened.apply_work(work.work, packed=work)
        assert applied.base_moved
        assert (opened.tree / "calc.py").read_text() == f"# The sum.\n\n\n{FIXED}"


def test_conflicts_are_named(calc: Path, tmp_path: Path) -> None:
    work = packed(calc, tmp_path)
    write(calc, {"calc.py": CALC.replace("a - b", "a - b  # sic")})
    git(calc, "commit", "-qam", "theirs")
    with clone(calc, tmp_path / "second") as opened:
        assert opened.apply_work(work.work or "", packed=work).conflicts == ["calc.py"]


def test_a_base_that_is_gone_is_said(calc: Path, tmp_path: Path) -> None:
    work = replace(packed(calc, tmp_path), onto="1" * 40)
    with clone(calc, tmp_path / "second") as opened, pytest.raises(WorkspaceError, match="does not have"):
        opened.apply_work(work.work or "", packed=work)


def test_a_damaged_pack_is_an_error(calc: Path, tmp_path: Path) -> None:
    work = packed(calc, tmp_path)
    torn = replace(work, pack=work.pack[:-30])
    with (
        clone(calc, tmp_path / "second") as opened,
        pytest.raises(WorkspaceError, match="cannot restore"),
    ):
        opened.apply_work(work.work or "", packed=torn)


def test_files_with_secrets_are_not_in_it(calc: Path, tmp_path: Path) -> None:
    with clone(calc, tmp_path / "first") as opened:
        write(opened.tree, {"calc.py": FIXED, "key.txt": "hush\n"})
        made = opened.snapshot(
            {"calc.py", "key.txt"},
            "work",
            include_commands=False,
            find_secrets=lambda diff: ["key.txt"] if "hush" in diff else [],
        )
        work = opened.pack(made)
    with clone(calc, tmp_path / "second") as opened:
        assert opened.apply_work(work.work or "", packed=work).paths == {"calc.py"}


def test_nothing_changed_is_no_work(calc: Path, tmp_path: Path) -> None:
    with clone(calc, tmp_path / "first") as opened:
        assert opened.pack(opened.snapshot(set(), "work", include_commands=False)).work is None


def test_the_same_commit_made_again_is_not_pushed_over_the_first(calc: Path, tmp_path: Path) -> None:
    with clone(calc, tmp_path / "first") as opened:
        write(opened.tree, {"calc.py": FIXED})
        commit_touched(opened, {"calc.py"}, "Fix it", include_commands=False)
        first = opened.push("topic", expected=None)
    with clone(calc, tmp_path / "second") as opened:
        state = opened.branch_state("topic", "bot@example.invalid")
        assert state is not None
        assert opened.message_of(state.tip) == "Fix it"
        opened.apply_work(first, reference="refs/heads/topic")
        commit_touched(opened, {"calc.py"}, "Fix it\n\nin other words", include_commands=False)
        assert opened.push("topic", expected=first) == first
        write(opened.tree, {"calc.py": FIXED + "\n"})
        commit_touched(opened, {"calc.py"}, "More", include_commands=False)
        second = opened.push("topic", expected=None)
    assert git(calc, "rev-parse", "topic~1", "topic").split() == [first, second]

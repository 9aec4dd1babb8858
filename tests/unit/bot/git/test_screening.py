from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.git.base import CommitScreen, LeftOut
from orchestrator.bot.git.staging import Aliases, held_paths, name_notes
from orchestrator.core.changes import LINK_MODE, SUBMODULE_MODE, FileChange, FileVersion
from orchestrator.core.errors import WorkspaceError
from tests.doubles.commits import commit_touched
from tests.tables import table
from tests.unit.bot.coordination.records_rig import broken_git
from tests.unit.bot.git.rig import clone, git, make_source, show, write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from orchestrator.bot.git.clone import Clone

BRANCH = "pullwright/test"
WAITS = "waits for a person"


def held(path: str, reason: str) -> LeftOut:
    return LeftOut(path, reason, may_be_allowed=True)


def holding(*parts: str) -> CommitScreen:
    """Holds every path that begins with one of the texts."""
    return CommitScreen(hold=lambda change: WAITS if change.path.startswith(parts) else None)


def holding_back(diff: str) -> list[str]:
    return ["x:1"] if "+secret" in diff else []


def seen_by(safe: Clone, touched: set[str]) -> dict[str, FileChange]:
    """What the check of single paths is given."""
    changes: dict[str, FileChange] = {}

    def note(change: FileChange) -> None:
        changes[change.path] = change

    commit_touched(safe, touched, "m", include_commands=False, screen=CommitScreen(hold=note))
    return changes


def test_both_versions_of_every_path_are_shown(safe: Clone) -> None:
    (safe.tree / "README.md").rename(safe.tree / "READ.md")
    (safe.tree / "src/calc.py").chmod(0o755)
    (safe.tree / "src/old.py").unlink()
    (safe.tree / "src/old.py").symlink_to("calc.py")
    write(safe.tree, {"large.bin": b"\0" * 1_000_001, "empty": ""})
    changes = seen_by(safe, {"README.md", "READ.md", "src/calc.py", "src/old.py", "large.bin", "empty"})
    text = FileVersion("100644", b"# Example\n", 10)
    assert changes["README.md"] == FileChange("README.md", text, None)
    assert changes["READ.md"] == FileChange("READ.md", None, text)
    mode = changes["src/calc.py"]
    assert mode.old is not None
    assert mode.new is not None
    assert (mode.old.mode, mode.new.mode, mode.old.content == mode.new.content) == ("100644", "100755", True)
    assert changes["src/old.py"].new == FileVersion(LINK_MODE, b"calc.py", 7)
    assert changes["large.bin"].new == FileVersion("100644", None, 1_000_001)
    assert changes["empty"].new == FileVersion("100644", b"", 0)


def test_a_submodule_that_goes_is_seen_though_the_clone_wants_it_ignored(tmp_path: Path) -> None:
    inner = make_source(tmp_path / "inner", {"a": "a"})
    source = make_source(tmp_path / "source", {"b": "b"})
    git(source, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(source, "config", "-f", ".gitmodules", "submodule.sub.ignore", "all")
    git(source, "add", ".gitmodules")
    git(source, "commit", "-qm", "sub")
    with clone(source, tmp_path / "runs") as opened:
        (opened.tree / "sub").rmdir()
        changes = seen_by(opened, {"sub"})
    old = changes["sub"].old
    assert old is not None
    assert old.mode == SUBMODULE_MODE
    assert old.content == git(inner, "rev-parse", "HEAD").encode()


def test_names_that_are_not_utf8_and_names_with_line_breaks(safe: Clone) -> None:
    names = {os.fsdecode(b"caf\xe9"), "line\nname", "tab\tname"}
    write(safe.tree, dict.fromkeys(names, "x\n"))
    assert set(seen_by(safe, names)) == names


def test_what_is_held_stays_out_and_can_be_applied_later(safe: Clone, source: Path) -> None:
    (safe.tree / "src/old.py").unlink()
    write(safe.tree, {"src/calc.py": "changed\n", "src/new.bin": bytes(range(256)), "ok.py": "x\n"})
    (safe.tree / "src/calc.py").chmod(0o755)
    touched = {"src/old.py", "src/calc.py", "src/new.bin", "ok.py"}
    outcome = commit_touched(safe, touched, "m", include_commands=True, screen=holding("src/"))
    assert outcome.files == ["ok.py"]
    assert outcome.held == [held(path, WAITS) for path in ("src/calc.py", "src/new.bin", "src/old.py")]
    assert [change.path for change in outcome.changes] == ["ok.py"]
    assert safe.changed_paths() == {"src/calc.py", "src/new.bin", "src/old.py"}
    safe.push(BRANCH, expected=None)
    assert show(source, BRANCH, "src/calc.py") == b"def add(a, b):\n    return a - b\n"
    git(source, "checkout", "-q", BRANCH)
    git(source, "update-index", "-q", "--refresh")
    git(source, "apply", "--index", "-", stdin=outcome.held_patch)
    assert sorted(git(source, "diff", "--cached", "--name-only").split()) == sorted(touched - {"ok.py"})
    assert (source / "src/new.bin").read_bytes() == bytes(range(256))
    # The whole work is saved where it cannot be proposed.
    assert b"src/calc.py" in safe.pending_patch(touched, include_commands=True)


def test_a_second_commit_holds_the_same_again(safe: Clone) -> None:
    write(safe.tree, {"src/calc.py": "changed\n", "one.py": "1\n"})
    first = commit_touched(
        safe, {"src/calc.py", "one.py"}, "m", include_commands=False, screen=holding("src/")
    )
    write(safe.tree, {"two.py": "2\n"})
    touched = {"src/calc.py", "one.py", "two.py"}
    second = commit_touched(safe, touched, "m", include_commands=False, screen=holding("src/"))
    assert second.files == ["two.py"]
    assert (second.held, second.held_patch) == (first.held, first.held_patch)
    assert [change.path for change in second.changes] == ["one.py", "two.py"]
    # A person granted it meanwhile.
    assert commit_touched(safe, touched, "m", include_commands=False).files == ["src/calc.py"]


def test_where_all_is_held_nothing_is_committed(safe: Clone) -> None:
    write(safe.tree, {"src/calc.py": "changed\n"})
    outcome = commit_touched(safe, {"src/calc.py"}, "m", include_commands=True, screen=holding(""))
    assert (outcome.commit, outcome.files, outcome.changes) == (None, [], ())
    assert outcome.held == [held("src/calc.py", WAITS)]
    assert b"+changed" in outcome.held_patch
    assert safe.diff() == ""
    assert safe.push(BRANCH, expected=None) == safe.base_commit


def folder_for_file(tree: Path) -> None:
    (tree / "README.md").unlink()
    write(tree, {"README.md/index": "x\n", "README.md/deep/index": "x\n"})


def file_for_folder(tree: Path) -> None:
    for name in ("calc.py", "old.py"):
        (tree / "src" / name).unlink()
    (tree / "src").rmdir()
    write(tree, {"src": "x\n"})


@pytest.mark.parametrize(
    ("work", "held", "all_held"),
    [
        (folder_for_file, "README.md/index", ["README.md", "README.md/deep/index", "README.md/index"]),
        (folder_for_file, "README.md", ["README.md", "README.md/deep/index", "README.md/index"]),
        (file_for_folder, "src/old.py", ["src", "src/calc.py", "src/old.py"]),
        (file_for_folder, "src", ["src", "src/calc.py", "src/old.py"]),
    ],
)
def test_a_file_and_a_folder_of_one_name_are_held_together(
    safe: Clone, source: Path, work: Callable[[Path], None], held: str, all_held: list[str]
) -> None:
    work(safe.tree)
    write(safe.tree, {"ok.py": "x\n"})
    screen = CommitScreen(hold=lambda change: WAITS if change.path == held else None)
    outcome = commit_touched(safe, set(), "m", include_commands=True, screen=screen)
    assert outcome.files == ["ok.py"]
    assert [item.path for item in outcome.held] == all_held
    assert {item.reason for item in outcome.held if item.path != held} <= {
        f"goes together with {path}" for path in all_held
    }
    git(source, "update-index", "-q", "--refresh")
    git(source, "apply", "--index", "-", stdin=outcome.held_patch)


@given(
    st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map("/".join), unique=True), st.data()
)
def test_no_half_of_a_conflict_is_let_through(paths: list[str], data: st.DataObject) -> None:
    version = FileVersion("100644", b"", 0)
    changes = [FileChange(path, version, None) for path in paths]
    chosen = data.draw(st.sets(st.sampled_from(paths))) if paths else set[str]()
    held = held_paths(changes, lambda change: WAITS if change.path in chosen else None)
    assert chosen <= set(held)
    for path in set(paths) - set(held):
        assert not any(other.startswith(f"{path}/") or path.startswith(f"{other}/") for other in held)


def test_a_file_is_judged_under_the_names_that_links_give_it(tmp_path: Path) -> None:
    source = make_source(tmp_path / "source", {"docs/agents.md": "x", "conf/a/b.json": "x", "free.md": "x"})
    links = {"AGENTS.md": "docs/agents.md", ".vscode": "conf", "CLAUDE.md": "sub/../AGENTS.md", "all": "."}
    for name, target in links.items():
        (source / name).symlink_to(target)
    git(source, "add", ".")
    git(source, "commit", "-qm", "links")
    protected = (".vscode/", "CLAUDE.md")
    with clone(source, tmp_path / "runs") as opened:
        write(opened.tree, {"docs/agents.md": "obey\n", "conf/a/b.json": "run\n", "free.md": "new\n"})
        outcome = commit_touched(opened, set(), "m", include_commands=True, screen=holding(*protected))
    assert outcome.files == ["free.md"]
    assert outcome.held == [
        held("conf/a/b.json", f"{WAITS}, as .vscode/a/b.json"),
        held("docs/agents.md", f"{WAITS}, as CLAUDE.md"),
    ]


def test_links_in_a_circle_have_an_end() -> None:
    aliases = Aliases({"a": b"b", "b": b"a", "sub/up": b"../sub", "x": b"/etc", "y": b"../out", "z": b"\xff"})
    assert aliases.of("a/f") == ["b/f"]
    assert aliases.of("sub/f") == ["sub/up/f", "sub/up/up/f", "sub/up/up/up/f"]
    assert aliases.of("etc") == aliases.of("out") == Aliases({}).of("x") == []


def test_links_cannot_be_made_so_that_the_check_has_no_end(safe: Clone) -> None:
    for number in range(1200):
        (safe.tree / "src" / f"{number}").symlink_to(".")
    assert commit_touched(safe, set(), "m", include_commands=True).left_out == []
    write(safe.tree, {"src/calc.py": "x\n", "README.md": "x\n"})
    outcome = commit_touched(safe, set(), "m", include_commands=True)
    assert outcome.files == ["README.md"]
    assert outcome.held == [held("src/calc.py", "symbolic links give it too many names")]


def test_what_adds_a_secret_is_committed_nowhere(shelled: Clone, source: Path) -> None:
    write(shelled.tree, {"a.txt": "secret\n"})
    screen = CommitScreen(find_secrets=holding_back)
    outcome = commit_touched(shelled, {"a.txt"}, "r", include_commands=True, screen=screen)
    assert (outcome.commit, outcome.files, outcome.held_back) == (None, [], ["x:1"])
    write(shelled.tree, {"a.txt": "clean\n"})
    assert commit_touched(shelled, {"a.txt"}, "r", include_commands=True, screen=screen).held_back == []
    shelled.push(BRANCH, expected=None)
    assert "secret" not in git(source, "log", "-p", f"{shelled.base_commit}..{BRANCH}")


@pytest.mark.parametrize(
    ("files", "held"),
    [
        ({"a.bin": b"\0\0\nsecret\0"}, ""),
        ({".gitattributes": "* -diff\n", "a.txt": "secret\n"}, ""),
        ({"held.bin": b"\0\0\nsecret\0", "ok.py": "x\n"}, "held"),
    ],
)
def test_secrets_are_found_in_binary_hidden_and_held_files(
    safe: Clone, files: dict[str, str | bytes], held: str
) -> None:
    write(safe.tree, files)
    screen = CommitScreen(
        holding_back, lambda change: WAITS if held and change.path.startswith(held) else None
    )
    outcome = commit_touched(safe, set(files), "m", include_commands=False, screen=screen)
    assert (outcome.commit, outcome.held_back, outcome.held_patch) == (None, ["x:1"], b"")
    assert safe.push(BRANCH, expected=None) == safe.base_commit


def test_the_whole_pull_request_is_judged_and_not_one_commit(safe: Clone) -> None:
    sizes: list[int] = []

    def at_most_two(changes: Sequence[FileChange]) -> str | None:
        sizes.append(len(changes))
        return "too much" if len(changes) > 2 else None

    screen = CommitScreen(refuse=at_most_two)
    for name in ("1", "2"):
        write(safe.tree, {name: "x"})
        assert commit_touched(safe, {name}, "m", include_commands=False, screen=screen).files == [name]
    write(safe.tree, {"3": "x"})
    outcome = commit_touched(safe, {"3"}, "m", include_commands=False, screen=screen)
    assert (outcome.commit, outcome.refused, sizes) == (None, "too much", [1, 2, 3])
    assert safe.changed_paths() == {"3"}
    # A change that is taken back does not count.
    for name in ("1", "3"):
        (safe.tree / name).unlink()
    again = commit_touched(safe, {"1", "3"}, "m", include_commands=False, screen=screen)
    assert (again.refused, [change.path for change in again.changes]) == (None, ["2"])


def test_what_is_held_does_not_count_and_leaves_with_no_refused_change(safe: Clone) -> None:
    write(safe.tree, {"src/calc.py": "changed\n", "a": "a"})
    screen = CommitScreen(
        hold=holding("src/").hold, refuse=lambda changes: "refused" if len(changes) == 1 else None
    )
    outcome = commit_touched(safe, {"src/calc.py", "a"}, "m", include_commands=False, screen=screen)
    assert (outcome.commit, outcome.refused, outcome.held_patch) == (None, "refused", b"")


def test_a_patch_that_nobody_could_read_is_not_made(safe: Clone) -> None:
    write(safe.tree, {"held.bin": b"x" * 10_000_001, "ok.py": "x\n"})
    screen = holding("held")
    outcome = commit_touched(safe, {"held.bin", "ok.py"}, "m", include_commands=False, screen=screen)
    assert (outcome.files, outcome.held_patch) == (["ok.py"], b"")
    assert "10,000,001 bytes" in outcome.notes[0]


def test_a_check_that_fails_lets_nothing_through(safe: Clone) -> None:
    def broken(_: FileChange) -> str | None:
        raise WorkspaceError("the check is broken")

    write(safe.tree, {"a": "a"})
    with pytest.raises(WorkspaceError, match="the check is broken"):
        commit_touched(safe, {"a"}, "m", include_commands=False, screen=CommitScreen(hold=broken))
    assert safe.changed_paths() == {"a"}
    assert safe.diff() == ""


def test_one_commit_of_ours_whatever_the_model_committed(shelled: Clone, source: Path) -> None:
    write(shelled.tree, {"a.txt": "1\n"})
    git(shelled.tree, "add", "-A")
    git(shelled.tree, "commit", "-qm", "by the model")
    git(shelled.tree, "rm", "-q", "src/old.py")
    git(shelled.tree, "commit", "-qm", "by the model too")
    write(shelled.tree, {"b.txt": "2\n"})
    outcome = commit_touched(shelled, set(), "ours", include_commands=True)
    assert (outcome.files, outcome.notes) == (["a.txt", "b.txt", "src/old.py"], [])
    shelled.push(BRANCH, expected=None)
    assert git(source, "log", "--format=%s", BRANCH).splitlines() == ["ours", "first"]


def test_a_history_that_the_model_turned_back_does_not_matter(source: Path, tmp_path: Path) -> None:
    write(source, {"second.txt": "2\n"})
    git(source, "add", ".")
    git(source, "commit", "-qm", "second")
    with clone(source, tmp_path / "runs", with_git=True) as opened:
        git(opened.tree, "reset", "-q", "--hard", "HEAD~1")
        assert commit_touched(opened, set(), "one commit", include_commands=True).files == ["second.txt"]
        opened.push(BRANCH, expected=None)
    assert git(source, "log", "--format=%s", BRANCH).splitlines() == ["one commit", "second", "first"]


def test_damaged_and_hostile_objects_of_the_model_are_not_read(shelled: Clone) -> None:
    objects = shelled.tree / ".git" / "objects"
    (objects / "info").mkdir(exist_ok=True)
    (objects / "info" / "alternates").write_text("/nowhere\n")
    for pack in (objects / "pack").iterdir():
        pack.chmod(0o600)
        pack.write_bytes(b"broken")
    (shelled.tree / ".git" / "HEAD").unlink()
    os.mkfifo(shelled.tree / ".git" / "HEAD")
    write(shelled.tree, {"a.txt": "1\n"})
    assert commit_touched(shelled, set(), "ours", include_commands=True).files == ["a.txt"]


def test_what_is_left_out_cannot_forge_a_patch(safe: Clone) -> None:
    folder = "x\ndiff --git a/evil b/evil\nnew file mode 100644\n--- \n+++ b"
    (safe.tree / folder).parent.mkdir(parents=True)
    (safe.tree / folder).symlink_to("README.md")
    patch = safe.pending_patch({f"{folder}/y"}, include_commands=False)
    assert patch.count(b"\n") == 1
    assert patch.startswith(b"# left out: ")


def test_what_is_committed_already_is_judged_again_without_being_read_again(
    safe: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[Sequence[FileChange]] = []

    def refuse(changes: Sequence[FileChange]) -> str | None:
        judged.append(changes)
        return "too much" if len(judged) > 1 else None

    write(safe.tree, {"new.txt": "new\n"})
    first = commit_touched(safe, {"new.txt"}, "m", include_commands=False, screen=CommitScreen(refuse=refuse))
    broken_git(tmp_path, monkeypatch, 'case " $* " in *" diff-tree "*|*" cat-file "*) exit 1;; esac')
    second = commit_touched(
        safe, {"new.txt"}, "m", include_commands=False, screen=CommitScreen(refuse=refuse)
    )
    assert first.commit is not None
    assert second.commit is None
    assert (second.refused, second.changes, second.files) == ("too much", first.changes, [])
    assert judged[0] == judged[1] == first.changes
    monkeypatch.undo()
    write(safe.tree, {"new.txt": "newer\n"})
    third = commit_touched(safe, {"new.txt"}, "m", include_commands=False)
    assert third.files == ["new.txt"]


TWINS = "are one file on Windows and macOS: give the new one another name"
NO_NAME = "cannot be checked out on Windows: give it another name"


@table(
    "made, notes",
    [
        (["n.py"], []),
        (["src/N.py"], []),
        (["A.py"], [f"A.py and a.py {TWINS}"]),
        (["N.py", "n.py"], [f"n.py and N.py {TWINS}"]),
        (["SRC/new.py"], [f"SRC and src {TWINS}"]),
        (["SRC/new.py", "src/other.py"], [f"SRC and src {TWINS}"]),
        (["Docs/new.md", "docs/other.md"], []),  # the folders were two before
        (["Docs/A.md"], [f"Docs/A.md and Docs/a.md {TWINS}"]),
        (["Docs/deep/new.md"], [f"Docs/deep and Docs/Deep {TWINS}"]),
        (["\u00c9.txt"], [f"\u00c9.txt and e\u0301.txt {TWINS}"]),
        (["aux.py", "src/Con"], [f"aux.py {NO_NAME}", f"src/Con {NO_NAME}"]),
        (["a:b", "c.", "d /e"], [f"a:b {NO_NAME}", f"c. {NO_NAME}", f"d /e {NO_NAME}"]),
        (["auxiliary.py", "console/a", ".hidden", "..a"], []),
        ([], []),
    ],
)
def test_names_that_not_everybody_can_check_out_are_told(made: list[str], notes: list[str]) -> None:
    docs = {"Docs/a.md", "docs/b.md", "Docs/Deep/c.md"}
    paths = {"a.py", "src/calc.py", "e\u0301.txt", "AUX", *docs, *made}
    assert list(name_notes(made, paths)) == notes


def test_they_are_told_of_new_files_alone(safe: Clone) -> None:
    write(safe.tree, {"readme.MD": "x\n", "src/calc.py": "x\n"})
    assert safe.stage({"readme.MD", "src/calc.py"}, include_commands=False).outcome.notes == [
        f"readme.MD and README.md {TWINS}"
    ]
    (safe.tree / "readme.MD").unlink()
    assert safe.stage({"readme.MD", "src/calc.py"}, include_commands=False).outcome.notes == []

"""Everything that a clone, a variable or a user's configuration could make git run. Nothing of it may run."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import WorkspaceError
from orchestrator.workspace.local import LocalRepository
from tests.unit.workspace.rig import clone, git, make_source, write

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.workspace.clone import Clone

BRANCH = "pullwright/x"
HOOKS = (
    *("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-checkout", "pre-push"),
    *("reference-transaction", "post-index-change", "fsmonitor-watchman", "post-rewrite", "pre-auto-gc"),
)


def traps(folder: Path, marker: Path) -> str:
    """A configuration in which everything that can run a program does."""
    script = folder / "trap.sh"
    script.write_text(f'#!/bin/sh\necho "$0 $*" >> {marker}\ncat\n')
    script.chmod(0o755)
    hooks = folder / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in HOOKS:
        (hooks / name).write_text(f"#!/bin/sh\necho hook {name} >> {marker}\n")
        (hooks / name).chmod(0o755)
    return f"""
[core]
\thooksPath = {hooks}
\tfsmonitor = {script}
\tsshCommand = {script}
\tpager = {script}
\teditor = {script}
\taskPass = {script}
\talternateRefsCommand = {script}
\tattributesFile = {folder / "attributes"}
[credential]
\thelper = !{script}
[diff]
\texternal = {script}
[diff "trap"]
\ttextconv = {script}
\tcommand = {script}
[filter "trap"]
\tclean = {script}
\tsmudge = {script}
\tprocess = {script}
\trequired = true
[merge "trap"]
\tdriver = {script}
[gpg]
\tprogram = {script}
[commit]
\tgpgSign = true
[log]
\tshowSignature = true
[uploadpack]
\tpackObjectsHook = {script}
[url "ext::{script} "]
\tinsteadOf = file://
\tinsteadOf = http://
[protocol]
\tallow = always
[alias]
\tstatus = !{script}
\tcommit-tree = !{script}
[include]
\tpath = {folder / "more"}
"""


def work(opened: Clone) -> None:
    """Everything that a cycle does."""
    opened.tracked_files()
    opened.recent_commits(5)
    write(opened.tree, {"src/calc.py": "fixed\n", "new.txt": "new\n"})
    opened.changed_paths()
    opened.pending_patch({"src/calc.py"}, include_commands=True)
    outcome = opened.commit({"src/calc.py", "new.txt"}, "fix", include_commands=True)
    assert {"src/calc.py", "new.txt"} <= set(outcome.files)
    opened.diff()
    opened.pending_patch(set(), include_commands=False)
    opened.remote_tip(BRANCH)
    opened.push(BRANCH, expected=None)
    opened.pending_patch({"src/calc.py"}, include_commands=True)


@pytest.fixture
def trapped(tmp_path: Path) -> Path:
    """A remote whose attributes name the drivers of the traps."""
    attributes = "* filter=trap diff=trap merge=trap\n"
    return make_source(tmp_path / "source", {".gitattributes": attributes, "src/calc.py": "x\n"})


def test_the_traps_work(trapped: Path, tmp_path: Path) -> None:
    # A test of the tests: a git without our hardening does run them.
    (trapped / ".git" / "config").write_text(traps(tmp_path, tmp_path / "marker"))
    write(trapped, {"src/calc.py": "changed\n"})
    for arguments in (["status"], ["diff"], ["add", "."]):
        subprocess.run(["git", "-C", str(trapped), *arguments], capture_output=True, check=False, timeout=20)
    assert "trap.sh" in (tmp_path / "marker").read_text()


def test_a_users_and_a_systems_configuration(
    trapped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    marker = tmp_path / "marker"
    (home / ".gitconfig").write_text(traps(home, marker))
    (home / "more").write_text(traps(home, marker))
    (home / "attributes").write_text("* filter=trap\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", str(home / ".gitconfig"))
    with clone(trapped, tmp_path / "runs") as opened:
        work(opened)
        LocalRepository(trapped).default_branch()
    assert not marker.exists()


_FRESH = """
import sys
from pathlib import Path
from tests.unit.workspace.rig import clone
with clone(sys.argv[1], Path(sys.argv[2])) as opened:
    print(opened.base_branch)
"""


def test_a_broken_configuration_does_not_matter_even_while_gitpython_loads(
    trapped: Path, tmp_path: Path
) -> None:
    (tmp_path / ".gitconfig").write_text("[broken\n")
    environment = {**os.environ, "HOME": str(tmp_path), "GIT_CONFIG_GLOBAL": str(tmp_path / ".gitconfig")}
    command = [sys.executable, "-c", _FRESH, str(trapped), str(tmp_path / "runs")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("main\n", "")


def test_variables(trapped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = tmp_path / "marker"
    script = tmp_path / "trap.sh"
    traps(tmp_path, marker)
    (tmp_path / "template").mkdir()
    (tmp_path / "hooks").rename(tmp_path / "template" / "hooks")
    for name in (
        "GIT_SSH_COMMAND",
        "GIT_EXTERNAL_DIFF",
        "GIT_EDITOR",
        "GIT_PAGER",
        "GIT_ASKPASS",
        "GIT_PROXY_COMMAND",
    ):
        monkeypatch.setenv(name, str(script))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(script))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", f"'core.fsmonitor'='{script}'")
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(tmp_path / "template"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "elsewhere" / "index"))
    monkeypatch.setenv("GIT_EXEC_PATH", str(tmp_path))
    with clone(trapped, tmp_path / "runs") as opened:
        work(opened)
    assert not marker.exists()
    assert not (tmp_path / "elsewhere").exists()


def test_the_models_own_repository(trapped: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    with clone(trapped, tmp_path / "runs", with_git=True) as opened:
        write(opened.tree, {"by_model.txt": "x\n"})
        git(opened.tree, "add", "by_model.txt")
        git(opened.tree, "commit", "-qm", "by the model")
        own = opened.tree / ".git"
        (own / "config").write_text(traps(tmp_path, marker))
        (own / "info").mkdir(exist_ok=True)
        (own / "info" / "attributes").write_text("* filter=trap\n")
        (tmp_path / "hooks").rename(own / "hooks")
        work(opened)
        assert git(trapped, "log", "--format=%s", BRANCH).split("\n") == ["fix", "first"]
    assert not marker.exists()


def test_what_tools_can_write_into_the_tree(trapped: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    with clone(trapped, tmp_path / "runs") as opened:
        # A `.git` that appears where there was none is not used either.
        git(opened.tree, "init", "-q")
        (opened.tree / ".git" / "config").write_text(traps(tmp_path, marker))
        (opened.tree / ".gitattributes").write_text("* filter=trap diff=trap text eol=lf\n")
        (opened.tree / ".gitmodules").write_text(
            '[submodule "x"]\n\tpath = x\n\turl = ext::sh\n\tupdate = !false\n'
        )
        nested = opened.tree / "nested"
        nested.mkdir()
        git(nested, "init", "-q")
        (nested / ".git" / "config").write_text(traps(tmp_path, marker))
        work(opened)
    assert not marker.exists()


def test_a_submodule_that_the_model_filled(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    inner = make_source(tmp_path / "inner", {"a": "a"})
    source = make_source(tmp_path / "source", {"src/calc.py": "x\n"})
    git(source, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(source, "commit", "-qm", "sub")
    with clone(source, tmp_path / "runs") as opened:
        filled = opened.tree / "sub"
        git(filled, "init", "-q")
        write(filled, {"a": "new"})
        git(filled, "add", "a")
        git(filled, "commit", "-qm", "new")
        write(filled, {"a": "old"})
        (filled / ".git" / "config").write_text(traps(tmp_path, marker))
        (filled / ".git" / "info").mkdir(exist_ok=True)
        (filled / ".git" / "info" / "attributes").write_text("* filter=trap\n")
        work(opened)
    assert not marker.exists()


def test_a_local_repository_with_traps_is_read_safely(trapped: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    (trapped / ".git" / "config").write_text(traps(tmp_path, marker))
    repository = LocalRepository(trapped)
    assert repository.default_branch() == "main"
    assert repository.read_file("src/calc.py", "main") == "x\n"
    assert repository.contains(git(trapped, "rev-parse", "HEAD"), "main")
    # What the two git commands of this test itself set off.
    marker.unlink(missing_ok=True)
    with clone(trapped, tmp_path / "runs") as opened:
        assert opened.base_branch == "main"
    assert not marker.exists()


def test_a_partial_clone_fetches_nothing_by_itself(source: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    script = tmp_path / "trap.sh"
    script.write_text(f"#!/bin/sh\ntouch {marker}\n")
    script.chmod(0o755)
    git(source, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--filter=blob:none", "--no-checkout", source.as_uri(), "partial")
    git(tmp_path / "partial", "config", "remote.origin.uploadpack", str(script))
    repository = LocalRepository(tmp_path / "partial")
    assert repository.default_branch() == "main"
    # The file was never fetched, and is not fetched now.
    with pytest.raises(WorkspaceError):
        repository.read_file("README.md", "main")
    assert not marker.exists()


def test_a_program_called_git_in_the_clone_is_not_run(
    trapped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "marker"
    with clone(trapped, tmp_path / "runs") as opened:
        for folder in (opened.tree, opened.tree.parent):
            (folder / "git").write_text(f"#!/bin/sh\ntouch {marker}\n")
            (folder / "git").chmod(0o755)
        monkeypatch.chdir(opened.tree)
        monkeypatch.setenv("PATH", f".{os.pathsep}{os.pathsep}{os.environ['PATH']}")
        work(opened)
        monkeypatch.chdir(tmp_path)
    assert not marker.exists()

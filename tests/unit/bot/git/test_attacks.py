"""Everything that a clone, a variable or a user's configuration could make git run. Nothing of it may run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.git.base import CommitScreen
from orchestrator.bot.git.local import LocalRepository
from orchestrator.core.errors import WorkspaceError
from orchestrator.core.redaction import Credential
from tests.doubles.commits import commit_touched
from tests.unit.bot.git.plants import HOOKS, PLANTS, STATUS, Field, Plant
from tests.unit.bot.git.rig import clone, git, make_source, write
from tests.unit.bot.git.smart_http import SmartHttp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from orchestrator.bot.git.clone import Clone

BRANCH = "pullwright/x"
CONFIGURED = [plant for plant in PLANTS if plant.config]
VARIABLES = [plant for plant in PLANTS if plant.variables]
ATTRIBUTES = "* filter=trap diff=trap merge=trap\n"


def steps(opened: Clone) -> dict[str, Callable[[], object]]:
    """Every operation of a clone, in the order of a cycle."""
    paths = {"src/calc.py", "new.txt", ".gitattributes"}

    def change() -> None:
        write(opened.tree, {"src/calc.py": "fixed\n", "new.txt": "new\n"})

    def commit() -> None:
        outcome = commit_touched(opened, paths, "fix", include_commands=True)
        assert {"src/calc.py", "new.txt"} <= set(outcome.files)

    def change_and_hold() -> None:
        write(opened.tree, {"src/calc.py": "held\n", "src/gone.py": "x\n", "more.txt": "x\n"})
        screen = CommitScreen(hold=lambda change: "held" if change.path.startswith("src/") else None)
        outcome = commit_touched(
            opened, paths | {"src/gone.py"}, "more", include_commands=True, screen=screen
        )
        assert outcome.held
        assert outcome.held_patch

    return {
        "tracked_files": opened.tracked_files,
        "recent_commits": lambda: opened.recent_commits(5),
        "a change": change,
        "changed_paths": opened.changed_paths,
        "pending_patch": lambda: opened.pending_patch(paths, include_commands=True),
        "commit": commit,
        "commit and hold": change_and_hold,
        "diff": opened.diff,
        "remote_tip of no branch": lambda: opened.remote_tip(BRANCH),
        "push": lambda: opened.push(BRANCH, expected=None),
        "remote_tip": lambda: opened.remote_tip(BRANCH),
        "pending_patch after the push": lambda: opened.pending_patch(set(), include_commands=True),
    }


def work(opened: Clone, ran: Callable[[], str]) -> None:
    """Do all of it; nothing may run at any step."""
    for name, step in steps(opened).items():
        step()
        assert not ran(), f"{name} ran {ran()}"


@pytest.fixture
def trapped(tmp_path: Path) -> Path:
    """A remote whose attributes name the drivers of the traps."""
    return make_source(tmp_path / "source", {".gitattributes": ATTRIBUTES, "src/calc.py": "x\n"})


@pytest.fixture
def served(trapped: Path, tmp_path: Path) -> Iterator[SmartHttp]:
    """The same over HTTP."""
    git(tmp_path, "clone", "-q", "--bare", str(trapped), "served/repo.git")
    git(tmp_path / "served/repo.git", "config", "http.receivepack", "true")
    with SmartHttp(tmp_path / "served").running() as running:
        yield running


@pytest.mark.parametrize("plant", PLANTS, ids=str)
def test_a_plain_git_runs_what_is_planted(
    plant: Plant, trapped: Path, served: SmartHttp, tmp_path: Path
) -> None:
    # A test of the test below: each plant is alive.
    field = Field(tmp_path, [plant], served.url)
    write(trapped, {"src/calc.py": "changed\n"})
    field.run(trapped, plant.trigger)
    assert field.ran()


def test_a_plain_git_runs_hooks_of_many_names(trapped: Path, tmp_path: Path) -> None:
    field = Field(tmp_path, PLANTS[:1])
    write(trapped, {"src/calc.py": "changed\n"})
    field.run(trapped, "git commit -qam x; git push file://@folder/source HEAD:y; git checkout -q HEAD~1")
    names = {"pre-commit", "commit-msg", "post-commit", "post-checkout", "pre-push", "reference-transaction"}
    assert names <= {name for name in HOOKS if f"/{name} " in field.ran()}


def plant_in(tree: Path, field: Field) -> None:
    """Put a plant wherever a command of the model could write."""
    git(tree, "init", "-q", "nested")
    for own in (tree / ".git", tree / "nested" / ".git"):
        with (own / "config").open("a") as file:
            file.write(field.configuration)
        write(
            own,
            {
                "info/attributes": ATTRIBUTES,
                "objects/info/alternates": f"{field.folder}/source/.git/objects\n",
                "packed-refs": f"{'0' * 39}1 refs/heads/main\n",
                "info/exclude": "*\n",
            },
        )
        shutil.copytree(field.folder / "hooks", own / "hooks", dirs_exist_ok=True)
    write(
        tree,
        {
            ".gitattributes": f"{ATTRIBUTES}* text=auto\n",
            ".gitmodules": field.filled(
                '[submodule "x"]\n\tpath = x\n\turl = ext::@script\n\tupdate = !@script\n'
            ),
            ".gitconfig": field.configuration,
        },
    )


@pytest.mark.parametrize("remote", ["file", "http", "ssh"])
@pytest.mark.parametrize("plants", [CONFIGURED, VARIABLES], ids=["configured", "variables"])
def test_nothing_that_is_planted_runs(
    plants: list[Plant], remote: str, served: SmartHttp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = served.root / "repo.git"
    field = Field(tmp_path, plants, served.url)
    # What is on the PATH is the user's own, and plays the server.
    write(tmp_path, {"bin/ssh": '#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n'})
    (tmp_path / "bin/ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    user = {name: str(tmp_path / "home/.gitconfig") for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM")}
    planted = {**user, **field.variables}
    for name, value in planted.items():
        monkeypatch.setenv(name, value)
    urls = {
        "file": str(repository),
        "http": f"{served.url}/repo.git",
        "ssh": f"ssh://nowhere.invalid{repository}",
    }
    credential = Credential("127.0.0.1", served.user, served.password)
    with clone(urls[remote], tmp_path / "runs", with_git=True, credential=lambda: credential) as opened:
        assert not field.ran(), f"the clone ran {field.ran()}"
        with monkeypatch.context() as plain:
            for name in planted:
                plain.delenv(name)
            plant_in(opened.tree, field)
        work(opened, field.ran)
        LocalRepository(repository).default_branch()
    assert not field.ran()


def git_file(tree: Path, trap: Path) -> str:
    shutil.rmtree(tree / ".git")
    (tree / ".git").write_text(f"gitdir: {trap / '.git'}\n")
    return "."


def git_link(tree: Path, trap: Path) -> str:
    shutil.rmtree(tree / ".git")
    (tree / ".git").symlink_to(trap / ".git")
    return "."


def own_git(tree: Path, trap: Path) -> str:
    shutil.copyfile(trap / ".git/config", tree / ".git/config")
    return "."


def nested(tree: Path, trap: Path) -> str:
    shutil.copytree(trap, tree / "nested")
    return "nested"


def nested_git_file(tree: Path, trap: Path) -> str:
    write(tree, {"inner/x.txt": "x", "inner/.git": f"gitdir: {trap / '.git'}\n"})
    return "inner"


def bare_repository(tree: Path, trap: Path) -> str:
    shutil.copytree(trap / ".git", tree / "bare")
    git(tree / "bare", "config", "core.worktree", str(tree))
    return "bare"


def bare_top(tree: Path, trap: Path) -> str:
    shutil.rmtree(tree / ".git")
    shutil.copytree(trap / ".git", tree, dirs_exist_ok=True)
    git(tree, "config", "core.worktree", str(tree))
    return "."


PLACES = (git_file, git_link, own_git, nested, nested_git_file, bare_repository, bare_top)


@pytest.mark.parametrize("place", PLACES)
def test_no_repository_in_the_tree_is_obeyed(
    place: Callable[[Path, Path], str], trapped: Path, tmp_path: Path
) -> None:
    field = Field(tmp_path / "field", [plant for plant in PLANTS if plant.name == "core.fsmonitor"])
    trap = make_source(tmp_path / "trap", {"x.txt": "x"})
    with (trap / ".git/config").open("a") as file:
        file.write(field.configuration)
    write(field.folder, {"home/.gitconfig": ""})
    with clone(trapped, tmp_path / "runs", with_git=True) as opened:
        where = place(opened.tree, trap)
        field.run(opened.tree / where, STATUS)
        assert field.ran(), "the plant is dead"
        field.marker.unlink()
        work(opened, field.ran)


def test_a_work_tree_elsewhere_is_not_taken(trapped: Path, tmp_path: Path) -> None:
    write(tmp_path, {"elsewhere/private.txt": "private\n"})
    with clone(trapped, tmp_path / "runs", with_git=True) as opened:
        git(opened.tree, "config", "core.worktree", str(tmp_path / "elsewhere"))
        assert "private.txt" in git(opened.tree, "status", "--porcelain")
        write(opened.tree, {"a.txt": "a"})
        assert commit_touched(opened, set(), "m", include_commands=True).files == ["a.txt"]
        assert opened.changed_paths() == set()


_FRESH = """
import sys
from pathlib import Path
from tests.unit.bot.git.rig import clone
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


def test_a_submodule_that_the_model_filled(tmp_path: Path) -> None:
    field = Field(tmp_path / "field", CONFIGURED)
    write(field.folder, {"home/.gitconfig": ""})
    inner = make_source(tmp_path / "inner", {"a": "a"})
    source = make_source(tmp_path / "source", {"src/calc.py": "x\n"})
    git(source, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(source, "commit", "-qm", "sub")
    with clone(source, tmp_path / "runs", with_git=True) as opened:
        filled = opened.tree / "sub"
        git(filled, "init", "-q")
        write(filled, {"a": "new"})
        git(filled, "add", "a")
        git(filled, "commit", "-qm", "new")
        write(filled, {"a": "old", ".git/info/attributes": ATTRIBUTES})
        (filled / ".git" / "config").write_text(field.configuration)
        field.run(opened.tree, STATUS)
        assert field.ran(), "the plant is dead"
        field.marker.unlink()
        work(opened, field.ran)


def test_a_local_repository_with_traps_is_read_safely(trapped: Path, tmp_path: Path) -> None:
    field = Field(tmp_path, CONFIGURED)
    (trapped / ".git" / "config").write_text(field.configuration)
    shutil.copytree(tmp_path / "hooks", trapped / ".git" / "hooks", dirs_exist_ok=True)
    base = (trapped / ".git/refs/heads/main").read_text().strip()
    repository = LocalRepository(trapped)
    assert repository.default_branch() == "main"
    assert repository.read_file("src/calc.py", base) == "x\n"
    assert repository.merged([base], base) == {base}
    with clone(trapped, tmp_path / "runs") as opened:
        assert opened.base_branch == "main"
    assert not field.ran()
    field.run(trapped, STATUS)
    assert field.ran(), "the plants are dead"


_RECEIVING = """[receive]
\tprocReceiveRefs = refs/heads
\tdenyCurrentBranch = updateInstead
\tautogc = true
[gc]
\tauto = 1
[core]
\talternateRefsCommand = @script
\thooksPath = @folder/hooks
[uploadpack]
\tpackObjectsHook = @script
[include]
\tpath = @folder/pipe
"""


@pytest.mark.parametrize("kind", ["bare", "files", "worktree"])
def test_nothing_of_a_local_repository_runs_when_it_is_cloned_and_pushed_to(
    source: Path, tmp_path: Path, kind: str
) -> None:
    field = Field(tmp_path, [plant for plant in CONFIGURED if plant.name != "hooks"])
    git(tmp_path, "clone", "-q", "--bare", "--shared", str(source), "shared.git")
    place = home = tmp_path / "shared.git"
    if kind == "files":
        git(tmp_path, "clone", "-q", "--shared", str(source), "shared")
        place, home = tmp_path / "shared", tmp_path / "shared" / ".git"
    elif kind == "worktree":
        git(place, "worktree", "add", "-q", str(tmp_path / "tree"), "main")
        place = tmp_path / "tree"
    plain = (home / "config").read_text()
    (home / "config").write_text(f"{plain}{field.filled(_RECEIVING)}")
    shutil.copytree(tmp_path / "hooks", home / "hooks", dirs_exist_ok=True)
    os.mkfifo(tmp_path / "pipe")
    with clone(place, tmp_path / "runs") as opened:
        work(opened, field.ran)
        pushed = opened.pushed
        assert opened.branch_state(BRANCH, "bot@example.invalid") is not None
    assert not field.ran()
    assert (home / "refs" / "heads" / BRANCH).read_text().strip() == pushed
    (tmp_path / "pipe").unlink()
    git(place, "cat-file", "-e", f"{pushed}^{{tree}}")
    field.run(place, f"git push file://{place} {pushed}:refs/heads/other")
    assert field.ran(), "the plants are dead"


def test_a_setting_of_a_local_repository_that_refuses_still_refuses(source: Path, tmp_path: Path) -> None:
    git(source, "config", "receive.hideRefs", "refs/heads/pullwright")
    with clone(source, tmp_path / "runs") as opened:
        write(opened.tree, {"new.txt": "new\n"})
        commit_touched(opened, {"new.txt"}, "new", include_commands=False)
        with pytest.raises(WorkspaceError, match="deny updating a hidden ref"):
            opened.push(BRANCH, expected=None)


@pytest.mark.parametrize("name", ["HEAD", "config", ".git", "commondir"])
def test_a_pipe_in_place_of_a_repository_ends_in_one_line(source: Path, tmp_path: Path, name: str) -> None:
    path = source / name if name == ".git" else source / ".git" / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with pytest.raises(WorkspaceError, match=r"\A[^\n]*(it is not a git repository|named pipe)[^\n]*\Z"):
        clone(source, tmp_path / "runs")


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
        repository.read_file("README.md", repository.heads()[1]["main"])
    assert not marker.exists()


def test_a_program_called_git_in_the_clone_is_not_run(
    trapped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "marker"
    with clone(trapped, tmp_path / "runs") as opened:
        for folder in (opened.tree, opened.tree.parent):
            (folder / "git").write_text(f"#!/bin/sh\necho git > {marker}\n")
            (folder / "git").chmod(0o755)
        monkeypatch.chdir(opened.tree)
        monkeypatch.setenv("PATH", f".{os.pathsep}{os.pathsep}{os.environ['PATH']}")
        work(opened, lambda: marker.read_text() if marker.exists() else "")
        monkeypatch.chdir(tmp_path)
    assert not marker.exists()

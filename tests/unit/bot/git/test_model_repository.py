"""The repository in the tree belongs to the commands: git does there what it does anywhere, and the files count."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from orchestrator.engine.environments.local import LocalEnvironment
from tests.conformance.environments import this_machines_sandbox
from tests.doubles.commits import commit_touched
from tests.unit.bot.git.plants import Field
from tests.unit.bot.git.rig import clone, git, make_source, show, write
from tests.unit.bot.git.test_attacks import CONFIGURED, plant_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from orchestrator.bot.git.clone import Clone

MS = 20_000
_WHO = "-c user.name=A -c user.email=a@example.invalid"
EDIT = "sed -i 's/a - b/a + b/' src/calc.py"


@asynccontextmanager
async def commands(opened: Clone, *submodules: str) -> AsyncIterator[Callable[..., Awaitable[str]]]:
    environment = LocalEnvironment(
        opened.tree, sandbox=this_machines_sandbox(), submodules=submodules, own_repository=True
    )

    async def run(*lines: str) -> str:
        result = await environment.exec_command("\n".join(("set -e", *lines)), timeout_ms=MS)
        assert result.exit_code == 0, result.output
        return result.output

    try:
        yield run
    finally:
        await environment.cleanup()


async def test_git_works_as_anywhere(shelled: Clone) -> None:
    async with commands(shelled) as run:
        assert await run("git status --porcelain") == ""
        await run(EDIT, "git add -A", "git commit -m 'Fix add'", "git tag v1", "git notes add -m Note")
        assert await run("git log --format='%an %s' -2") == "Pullwright Fix add\nSomeone first\n"
        await run("echo '# more' >> src/calc.py", "git stash")
        assert "stash@{0}" in await run("git stash list")
        assert "+# more" in await run("git stash pop", "git diff")
        await run(
            "git switch -q -c side",
            "git commit -qam More",
            "git checkout -q main",
            "git branch -m side other",
        )
        assert "Fix add" in await run("git blame -s src/calc.py", "git log -1")
        # Without a terminal an editor would wait for ever.
        await run(
            "git merge --no-ff other", "git revert HEAD -m 1", "git commit --amend", "git rebase -i HEAD~1"
        )
        await run("git bisect start HEAD HEAD~2", "git bisect reset", "git gc -q", "git fsck")
        await run(
            "git cherry-pick other || git cherry-pick --abort", "git reset -q --hard v1", "git clean -qfdx"
        )
        assert await run("git remote", "git status --porcelain") == ""
    assert shelled.changed_paths() == {"src/calc.py"}


CHANGES = {
    "commit": ("git commit -qam x",),
    "add": ("git add -A",),
    "stash and pop": ("git stash -q", "git stash pop -q"),
    "reset and again": ("git commit -qam x", "git reset -q --hard HEAD~1", "git reset -q --hard ORIG_HEAD"),
    "branch and back": ("git switch -qc y", "git commit -qam x", "git switch -q main", "git merge -q y"),
    "packed": ("git commit -qam x", "git gc -q --prune=now"),
    "patch": ("git diff > /tmp/p", "git checkout -q .", "git apply /tmp/p"),
    "an old time": ("touch -d @1 src/calc.py", "git update-index --assume-unchanged src/calc.py"),
    "worktree": ("git worktree add -q wt", "git -C wt commit -q --allow-empty -m x"),
    "no repository": ("rm -rf .git",),
    "a new one": ("rm -rf .git", "git init -q -b other", "git add -A", f"git {_WHO} commit -qm 'All of it'"),
    "a file": ("rm -rf .git", "echo gitdir: /nowhere > .git"),
    "a link": ("rm -rf .git", "ln -s / .git"),
    "a broken one": ("echo '[x' > .git/config", "rm .git/index"),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_what_counts_are_the_files(shelled: Clone, source: Path, name: str) -> None:
    async with commands(shelled) as run:
        await run(EDIT, *CHANGES[name])
    outcome = commit_touched(shelled, set(), "m", include_commands=True)
    assert outcome.files == ["src/calc.py"]
    shelled.push("x", expected=None)
    assert show(source, "x", "src/calc.py") == b"def add(a, b):\n    return a + b\n"


@pytest.mark.parametrize(
    "away",
    ["git stash -q", "git checkout -q .", "git restore .", "git commit -qam x; git reset -q --hard HEAD~1",
     "git switch -qc y; git commit -qam x; git switch -q main", "git clean -qfdx; git checkout -q src"],
)  # fmt: skip
async def test_what_git_took_away_is_no_change(shelled: Clone, away: str) -> None:
    write(shelled.tree, {"src/calc.py": "written by a tool\n"})
    async with commands(shelled) as run:
        await run(away)
    assert shelled.changed_paths() == set()
    assert commit_touched(shelled, {"src/calc.py"}, "m", include_commands=True).commit is None


async def test_moves_and_removals_by_git(shelled: Clone) -> None:
    async with commands(shelled) as run:
        await run("git mv src/calc.py src/sum.py", "git rm -q src/old.py", "git commit -qm Move")
    outcome = commit_touched(shelled, set(), "m", include_commands=True)
    assert outcome.files == ["src/calc.py", "src/old.py", "src/sum.py"]


async def test_submodules_and_lfs_pointers(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    inner = make_source(tmp_path / "inner", {"a": "a"})
    source = make_source(
        tmp_path / "source", {".gitattributes": "*.bin filter=lfs diff=lfs -text\n", "x.bin": pointer}
    )
    git(source, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(source, "commit", "-qm", "sub")
    with clone(source, tmp_path / "runs", with_git=True) as opened:
        async with commands(opened, "sub") as run:
            assert await run("git status --porcelain", "git submodule foreach pwd") == ""
            assert (await run("git submodule status")).startswith("-")
            await run(
                "git init -q sub", f"git -C sub {_WHO} commit -q --allow-empty -m x", "git stash -uq || true"
            )
            await run("rm x.bin", "git checkout -q .", "cp x.bin y.bin", "git add -A", "git commit -qm y")
        assert commit_touched(opened, set(), "m", include_commands=True).files == ["y.bin"]
        assert (opened.tree / "y.bin").read_text() == pointer


async def test_settings_of_the_user_do_not_disturb_commits_without_a_sandbox(
    shelled: Clone, tmp_path: Path
) -> None:
    config = "[commit]\n\tgpgSign = true\n[tag]\n\tgpgSign = true\n[gpg]\n\tprogram = false\n"
    lfs = "clean", "smudge", "process"
    config += '[filter "lfs"]\n\trequired = true\n' + "".join(f"\t{name} = false\n" for name in lfs)
    write(tmp_path, {"home/.gitconfig": config})
    environment = LocalEnvironment(
        shelled.tree,
        sandbox="off",
        own_repository=True,
        inherited={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path / "home")},
    )
    line = "echo '*.bin filter=lfs' > .gitattributes; echo x > x.bin; git add -A && git commit -qm x && git tag -am v v1"
    result = await environment.exec_command(line, timeout_ms=MS)
    await environment.cleanup()
    assert result.exit_code == 0, result.output


async def test_a_library_s_folder_keeps_its_repository(tmp_path: Path) -> None:
    """The user runs git there, with the user's rights: no command may plant anything."""
    source = make_source(tmp_path / "source", {"a.txt": "a"})
    before = {path: path.read_bytes() for path in source.rglob(".git/**/*") if path.is_file()}
    environment = LocalEnvironment(source, sandbox=this_machines_sandbox())
    line = "echo b > a.txt; git commit -qam x; git config core.fsmonitor x; touch .git/hooks/x; rm -rf .git; git diff"
    result = await environment.exec_command(line, timeout_ms=MS)
    await environment.cleanup()
    assert "Read-only file system" in result.output
    assert "+b" in result.output
    assert {path: path.read_bytes() for path in source.rglob(".git/**/*") if path.is_file()} == before


async def test_git_runs_nothing_that_is_planted_in_a_clone_that_is_kept(source: Path, tmp_path: Path) -> None:
    field = Field(tmp_path / "field", CONFIGURED)
    write(field.folder, {"home/.gitconfig": ""})
    with clone(source, tmp_path / "runs", with_git=True) as opened:
        plant_in(opened.tree, field)
        async with commands(opened) as run:
            await run("git worktree add -q --force wt || true", "chmod -R a-w .git", "chmod 0 nested/.git")
        write(opened.tree, {"src/calc.py": "the only copy\n"})
        field.run(opened.tree, "git status")
        assert field.ran(), "the plants are dead"
        field.marker.unlink()
        opened.keep()
    for folder in (opened.tree, opened.tree / "nested", opened.tree / "wt", opened.tree / "src"):
        if folder.exists():
            for trigger in (
                "git status",
                "git diff",
                "git add .",
                "git commit -qam x",
                "git log -p",
                "git stash",
            ):
                field.run(folder, trigger)
    assert not field.ran()
    assert (opened.tree / "src/calc.py").read_text() == "the only copy\n"

"""A session in a subfolder, whose sandbox hides what is above: the program itself reads the instructions."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from orchestrator import (
    LocalEnvironment,
    LoggingEnvironment,
    ReadOnlyEnvironment,
    Session,
    anthropic_profile,
    gemini_profile,
    minimal_profile,
    openai_profile,
)
from orchestrator.engine.environments.commands import EnvPolicy
from orchestrator.engine.environments.wrappers import ScopedEnvironment
from tests.conformance.environments import this_machines_sandbox
from tests.unit.engine.profiles.places import git, look_from, paths, repository, texts, write
from tests.unit.engine.session.stage import ScriptedModel, says

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from orchestrator.engine.profiles.base import Profile

MS = 20_000
DOCUMENTS = ("AGENTS.md", "CLAUDE.md", "GEMINI.md", ".codex/instructions.md")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """With documents of every vendor in the top folder, in one on the way, and in `a/b`."""
    folder = repository(tmp_path / "repo", "First", "Second")
    for place in (".", "a", "a/b"):
        for name in DOCUMENTS:
            write(folder / place / name, f"{name} of {place}")
    return folder


def sandboxed(folder: Path) -> LocalEnvironment:
    return LocalEnvironment(folder, sandbox=this_machines_sandbox())


@pytest.mark.parametrize(
    ("profile", "own"),
    [
        (openai_profile, ".codex/instructions.md"),
        (anthropic_profile, "CLAUDE.md"),
        (gemini_profile, "GEMINI.md"),
        (minimal_profile, None),
    ],
)
async def test_the_prompt_of_a_session_in_a_subfolder(
    repo: Path, profile: Callable[..., Profile], own: str | None
) -> None:
    model = ScriptedModel([says("Done.")])
    environment = LocalEnvironment(repo / "a" / "b")
    async with Session(profile=profile(model), environment=environment) as session:
        await session.run("Go")
    prompt = model.requests[0].system
    assert "Is git repository: true\nGit branch: main" in prompt
    assert "Status: 0 modified, 5 untracked" in prompt  # four at the top, and the folder `a`
    assert git(repo, "log", "-1", "--format=%h Second") in prompt
    names = ["AGENTS.md", own] if own else ["AGENTS.md"]
    places = [prompt.index(f"{name} of {place}\n") for place in (".", "a", "a/b") for name in names]
    assert places == sorted(places)
    assert not [name for name in {*DOCUMENTS} - {*names} if f"{name} of" in prompt]


async def test_the_view_is_that_of_the_environment_inside(repo: Path) -> None:
    plain = await look_from(sandboxed(repo / "a"))
    assert texts(plain) == ["AGENTS.md of .", "AGENTS.md of a"]
    for environment in (
        ReadOnlyEnvironment(sandboxed(repo / "a")),
        LoggingEnvironment(sandboxed(repo / "a"), print),
        ScopedEnvironment(sandboxed(repo), "a"),
        ScopedEnvironment(ScopedEnvironment(sandboxed(repo), "."), "a"),
    ):
        assert await look_from(environment) == plain


async def test_no_view_where_a_command_sees_all(repo: Path) -> None:
    environment = LocalEnvironment(repo / "a", sandbox="off")
    assert environment.host_view() is None
    assert texts(await look_from(environment)) == ["AGENTS.md of .", "AGENTS.md of a"]


async def test_git_is_not_asked_on_the_host_about_a_repository_that_a_command_made(repo: Path) -> None:
    environment = sandboxed(repo)
    line = (
        "git init -q -b evil made && printf '[core]\\n\\tfsmonitor = touch ran; false\\n' >> made/.git/config"
    )
    assert (await environment.exec_command(line, timeout_ms=MS)).exit_code == 0
    write(repo / "made" / "x" / "AGENTS.md", "made")
    for folder in ("made", "made/x"):
        scoped = ScopedEnvironment(environment, folder)
        assert scoped.host_view() is None
    seen = await look_from(ScopedEnvironment(environment, "made/x"))
    assert texts(seen) == ["made"]
    assert seen.git is not None
    assert seen.git.branch == "evil"
    assert not (repo / "made" / "ran").exists()


async def test_a_folder_that_became_a_bare_repository_is_not_asked(repo: Path) -> None:
    """Git takes a folder with these names for a repository, whose configuration it obeys."""
    line = "git init -q --bare . && git config core.worktree /"
    for folder, told in ((repo / "a", "main"), (repo.parent / "plain", "")):
        folder.mkdir(exist_ok=True)
        environment = sandboxed(folder)
        assert (await environment.exec_command(line, timeout_ms=MS)).exit_code == 0
        assert (folder / "HEAD").exists()
        seen = await look_from(environment)
        assert (seen.git.branch if seen.git else "") == told


async def test_the_empty_folder_that_a_sandbox_puts_there_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / "x" / ".git").mkdir(parents=True)
    write(tmp_path / "AGENTS.md", "above")
    assert (await look_from(sandboxed(tmp_path / "x"))).git is None
    repository(tmp_path, "First")
    seen = await look_from(sandboxed(tmp_path / "x"))
    assert seen.git is not None
    assert paths(seen, tmp_path) == ["AGENTS.md"]


async def test_variables_of_git_do_not_lead_elsewhere(repo: Path, tmp_path: Path) -> None:
    other = repository(tmp_path / "other", "Elsewhere")
    variables = {**os.environ, "GIT_DIR": str(other / ".git"), "GIT_WORK_TREE": str(other)}
    for policy in EnvPolicy:
        seen = await look_from(LocalEnvironment(repo, inherited=variables, env_policy=policy))
        assert seen.git is not None
        assert [subject for _, subject in seen.git.commits] == ["Second", "First"]


async def test_a_folder_that_was_swapped_for_a_link_is_not_entered(repo: Path, tmp_path: Path) -> None:
    write(tmp_path / "outside" / "AGENTS.md", "of somebody else")
    environment = sandboxed(repo)
    scoped = ScopedEnvironment(environment, "a")
    (repo / "a").rename(repo / "kept")
    (repo / "a").symlink_to(tmp_path / "outside")
    assert texts(await look_from(scoped)) == ["AGENTS.md of ."]
    await environment.cleanup()


@pytest.mark.parametrize("layout", ["elsewhere", "inside", "shared inside", "a link"])
async def test_git_is_not_asked_on_the_host_where_a_command_can_change_the_configuration(
    tmp_path: Path, layout: str
) -> None:
    """The `.git` of the folder cannot be changed, but it may be a file or a link that leads back into it."""
    folder = tmp_path / "folder"
    meta = tmp_path / "meta" if layout == "elsewhere" else folder / "meta"
    match layout:
        case "shared inside":
            repository(folder / "main", "First")
            git(
                folder / "main",
                "worktree",
                "add",
                "-q",
                "--no-checkout",
                "-b",
                "side",
                str(tmp_path / "side"),
            )
            (tmp_path / "side" / ".git").rename(folder / ".git")
        case "a link":
            repository(folder, "First")
            (folder / ".git").rename(meta)
            (folder / ".git").symlink_to(meta)
        case _:
            repository(folder, "First")
            git(folder, "init", "-q", f"--separate-git-dir={meta}")
    view = sandboxed(folder).host_view()
    assert (view is not None) is (layout == "elsewhere")

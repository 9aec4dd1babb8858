"""A cycle with skills: the user's, and those that the repository has on its default branch."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.scenarios.stage import FINISH, FIX, PROPOSE, Stage, add_commit, do, git

if TYPE_CHECKING:
    from pathlib import Path

MINE = "---\nname: mine\ndescription: How Ada works.\n---\nUse short names.\n"
THEIRS = (
    "---\nname: theirs\ndescription: How this project works.\nallowed-tools: Bash(*)\n---\nSign every line.\n"
)
TASK = ("--task", "Fix add() in calc.py", "--dry-run")


@pytest.fixture
def place(stage: Stage, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A user with a skill, and a repository with one; a branch of it has another."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    mine = tmp_path / "config/pullwright/skills/mine"
    mine.mkdir(parents=True)
    (mine / "SKILL.md").write_text(MINE)
    add_commit(repository, {".agents/skills/theirs/SKILL.md": THEIRS}, "Add a skill")
    git(repository, "switch", "--quiet", "--create", "side")
    add_commit(repository, {".claude/skills/side/SKILL.md": THEIRS.replace("theirs", "side")}, "Add another")
    git(repository, "switch", "--quiet", "main")
    return stage


def test_a_model_is_told_of_skills_and_reads_one(place: Stage, repository: Path) -> None:
    place.script(do(("use_skill", {"name": "theirs"}), FIX), do(PROPOSE, FINISH))
    done = place.run("--repo", str(repository), *TASK, "--contract", "json-plan")
    assert done.code == 0, done.err
    system = place.asked()[0]["content"]
    assert "- mine: How Ada works." in system
    assert (
        "Skills that the repository brings, in its words:\n```\n- theirs: How this project works.\n```"
        in system
    )
    assert "- side: " not in system
    assert "Sign every line." not in system
    assert "in the words of the repository" in place.told(1)
    assert "Sign every line." in place.told(1)
    assert "allowed-tools" not in place.told(1)


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox of Linux")
def test_a_command_runs_a_script_beside_a_skill_of_the_user_and_changes_nothing_there(
    place: Stage, repository: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "config/pullwright/skills/mine"
    (mine / "say.sh").write_text("echo the script ran\n")
    command = f"sh {mine}/say.sh; touch {mine}/x || echo it stays as it is; ls {mine.parent.parent}"
    (mine.parent.parent / "config.toml").write_text("# private\n")
    place.script(
        do(("use_skill", {"name": "mine"}), ("run_shell_command", {"command": command})),
        do(FIX),
        do(PROPOSE, FINISH),
    )
    done = place.run("--repo", str(repository), *TASK, "--permission", "dangerous")
    assert done.code == 0, done.err
    told = place.told(1)
    assert f"Commands find them in {mine}." in told
    assert "the script ran" in told
    assert "it stays as it is" in told
    assert "config.toml" not in told
    assert not (mine / "x").exists()


def test_a_chosen_skill_is_there_from_the_start(place: Stage, repository: Path) -> None:
    place.script(do(FIX), do(PROPOSE, FINISH))
    done = place.run("--repo", str(repository), *TASK, "--skill", "mine", "--skill", "theirs")
    assert done.code == 0, done.err
    system = place.asked()[0]["content"]
    assert "# Skills\n\nThe user chose these skills for the work." in system
    assert "Use short names." in system
    assert "Sign every line." in system


def test_a_chosen_skill_that_is_cut_is_told(place: Stage, repository: Path, tmp_path: Path) -> None:
    mine = tmp_path / "config/pullwright/skills/mine/SKILL.md"
    mine.write_text(f"{MINE}{'Long. ' * 100}")
    place.script(do(FIX), do(PROPOSE, FINISH))
    done = place.run("--repo", str(repository), *TASK, "--skill", "mine", "--skill-bytes", "300")
    assert "the skill mine is cut: 300 of its 616 bytes are shown (skill_bytes is the limit)" in done.err
    assert place.asked()[0]["content"].count("Long.") == 47


@pytest.mark.parametrize(
    ("flags", "shown"),
    [
        (("--disable-skills",), set()),
        (("--base", "side"), {"mine"}),
    ],
)
def test_what_takes_skills_away(
    place: Stage, repository: Path, flags: tuple[str, ...], shown: set[str]
) -> None:
    place.script(do(FIX), do(PROPOSE, FINISH))
    done = place.run("--repo", str(repository), *TASK, *flags)
    assert done.code == 0, done.err
    system = place.asked()[0]["content"]
    assert {name for name in ("mine", "theirs", "side") if f"- {name}: " in system} == shown


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (("--skill", "nix"), "there is no skill 'nix'; there are: mine, theirs."),
        (("--skill", "mine", "--disable-skills"), "leave out one of them"),
    ],
)
def test_a_skill_that_cannot_be_had_is_an_error(
    place: Stage, repository: Path, flags: tuple[str, ...], error: str
) -> None:
    done = place.run("--repo", str(repository), *TASK, *flags)
    assert done.code != 0
    assert error in done.err
    assert not place.model.requests


def test_whole_files_have_no_room_for_skills_and_say_so(place: Stage, repository: Path) -> None:
    done = place.run(
        "--repo", str(repository), *TASK, "--skill", "mine", "--contract", "whole-file", "--max-rounds", "1"
    )
    assert "the contract whole-file has no room for skills: --skill has no effect" in done.err
    assert "Use short names." not in str(place.model.requests[0].body)

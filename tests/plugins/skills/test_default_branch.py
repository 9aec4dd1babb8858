"""The skills of a conversation in a folder: the user's, and those of the default branch of its repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.app.config.settings import Settings
from orchestrator.app.wiring.session_parts import profile_sources
from orchestrator.core.errors import ConfigurationError
from orchestrator.plugins.skills.sessions import skills_of
from tests.scenarios.stage import add_commit, git, make_repository

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.plugins.skills.skills import Skills

SKILL = "---\nname: {0}\ndescription: About {0}.\n---\nDo {0}.\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A work tree on a side branch, with a skill on each branch and one that is not committed."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    mine = tmp_path / "config/pullwright/skills/mine"
    mine.mkdir(parents=True)
    (mine / "SKILL.md").write_text(SKILL.format("mine"))
    folder = make_repository(tmp_path / "work")
    add_commit(folder, {".agents/skills/theirs/SKILL.md": SKILL.format("theirs")}, "A skill")
    git(folder, "switch", "--quiet", "--create", "side")
    add_commit(folder, {".claude/skills/side/SKILL.md": SKILL.format("side")}, "Another")
    (folder / ".claude/skills/new").mkdir()
    (folder / ".claude/skills/new/SKILL.md").write_text(SKILL.format("new"))
    return folder


def read(settings: Settings, place: Path) -> Skills:
    warnings: list[str] = []
    sources = profile_sources(place, settings.base, lambda _what, text: text, warnings.append)
    assert warnings == []
    return skills_of(settings, sources)


def names(place: Path, **options: object) -> list[str]:
    return [skill.name for skill in read(Settings(**options), place).all]


def test_only_the_default_branch_counts_whatever_is_checked_out(folder: Path) -> None:
    assert names(folder) == ["mine", "theirs"]
    (folder / "deep").mkdir()
    assert names(folder / "deep") == ["mine", "theirs"]


def test_the_default_branch_is_that_of_origin_where_there_is_one(folder: Path, tmp_path: Path) -> None:
    git(folder, "clone", "--quiet", "--branch", "side", str(folder), str(tmp_path / "clone"))
    assert names(tmp_path / "clone") == ["mine", "theirs", "side"]  # its HEAD is the side branch
    git(folder, "switch", "--quiet", "main")
    git(folder, "clone", "--quiet", str(folder), str(tmp_path / "other"))
    git(tmp_path / "other", "switch", "--quiet", "side")
    assert names(tmp_path / "other") == ["mine", "theirs"]


def test_without_a_branch_that_is_known_or_a_repository_only_the_users_count(
    folder: Path, tmp_path: Path
) -> None:
    git(folder, "branch", "--quiet", "--move", "main", "trunk")
    assert names(folder) == ["mine"]
    git(folder, "branch", "--quiet", "--delete", "--force", "trunk")
    assert names(folder) == ["mine", "theirs", "side"]
    plain = tmp_path / "plain/.agents/skills/x"
    plain.mkdir(parents=True)
    (plain / "SKILL.md").write_text(SKILL.format("x"))
    assert names(tmp_path / "plain") == ["mine"]


def test_what_is_chosen_is_there_and_what_is_disabled_is_not(folder: Path) -> None:
    assert [one.name for one in read(Settings(skill=("theirs",)), folder).chosen] == ["theirs"]
    assert read(Settings(skill_bytes=300), folder).most_bytes == 300
    assert names(folder, disable_skills=True) == []
    with pytest.raises(ConfigurationError, match="there are: mine, theirs"):
        read(Settings(skill=("side",)), folder)

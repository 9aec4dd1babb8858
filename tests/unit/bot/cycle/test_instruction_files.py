"""Which files of a repository instruct a session: by their own name, as links, alone, imported, and below a folder."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.bot.cycle.briefing import Briefing, _nested, document_links, first_message, imports_of
from orchestrator.bot.cycle.parts import CycleOptions
from orchestrator.bot.cycle.repository_rules import read_repository_rules
from orchestrator.bot.cycle.tasks import from_text
from orchestrator.core.errors import FileMissingError
from tests.unit.bot.git.rig import clone, git, make_source

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orchestrator.bot.git.clone import Clone

SOURCE = {"src/calc.py": "def add(a, b):\n    return a - b\n"}


def briefing(made: Clone, documents: tuple[str, ...] = ("AGENTS.md",)) -> Briefing:
    files = made.tracked_files()

    async def read(path: str, limit: int) -> bytes:
        place = made.tree / path
        if not place.is_file() or place.is_symlink():
            raise FileMissingError(path)
        return place.read_bytes()[:limit]

    links = document_links(made, files)
    return asyncio.run(
        first_message(
            task=from_text("Fix src/calc.py"),
            files=files,
            read=read,
            commits=(),
            budget=50_000,
            documents=documents,
            links=links,
        )
    )


def instructions(
    tmp_path: Path, files: Mapping[str, str | bytes], links: Mapping[str, str] | None = None
) -> str:
    source = make_source(tmp_path / "source", {**SOURCE, **files})
    for link, target in (links or {}).items():
        (source / link).parent.mkdir(exist_ok=True, parents=True)
        (source / link).symlink_to(target)
    git(source, "add", ".")
    git(source, "commit", "-q", "--allow-empty", "-m", "links")
    with clone(source, tmp_path / "clones") as made:
        return briefing(made).instructions


@pytest.mark.parametrize("target", ["CLAUDE.md", "docs/agents.md", "./docs/../docs/agents.md", "GEMINI.md"])
def test_a_link_counts_as_the_file_that_it_leads_to(tmp_path: Path, target: str) -> None:
    files = {"CLAUDE.md": "Use tabs.\n", "docs/agents.md": "Use tabs.\n"}
    links = {"AGENTS.md": target, "GEMINI.md": "docs/agents.md"}
    assert instructions(tmp_path, files, links).count("Use tabs.") == 1


@pytest.mark.parametrize("target", ["/etc/hostname", "../outside.md", "missing.md", "AGENTS.md"])
def test_a_link_that_leads_nowhere_in_the_repository_is_none(tmp_path: Path, target: str) -> None:
    (tmp_path / "outside.md").write_text("Use tabs.\n")
    assert instructions(tmp_path, {}, {"AGENTS.md": target}) == ""


@pytest.mark.parametrize(
    "name",
    [
        *("CLAUDE.md", ".cursorrules", ".github/copilot-instructions.md", "GEMINI.md"),
        *("AGENT.md", ".claude/CLAUDE.md", ".windsurfrules", ".clinerules", ".junie/guidelines.md"),
    ],
)
def test_a_file_of_another_program_is_read_where_it_is_alone(tmp_path: Path, name: str) -> None:
    assert "Use tabs." in instructions(tmp_path, {name: "Use tabs.\n"})


def test_files_in_a_folder_of_rules_count_together(tmp_path: Path) -> None:
    rules = {
        ".cursor/rules/style.mdc": "---\nalwaysApply: true\n---\nUse tabs.\n",
        ".cursor/rules/more/tests.mdc": "Write tests.\n",
        ".cursor/rules/notes.json": "{}",
        ".github/instructions/py.instructions.md": "Use spaces.\n",
    }
    text = instructions(tmp_path / "alone", rules)
    assert [word in text for word in ("Use tabs.", "Write tests.", "Use spaces.")] == [True, True, False]
    assert "Use tabs." not in instructions(tmp_path / "beside", {**rules, "AGENTS.md": "Be brief.\n"})
    below = {f"src/{name}": content for name, content in rules.items()}
    assert "Use tabs." in instructions(tmp_path / "below", below)


def test_it_is_not_read_beside_the_own_one(tmp_path: Path) -> None:
    text = instructions(tmp_path, {"AGENTS.md": "Use spaces.\n", "CLAUDE.md": "Use tabs.\n"})
    assert "Use spaces." in text
    assert "Use tabs." not in text


@pytest.mark.parametrize(
    "text",
    [
        "CLAUDE.md",
        "./CLAUDE.md\n",
        "Read [CLAUDE.md](CLAUDE.md) first.",
        "See `CLAUDE.md`.",
        "# Agents\n\n- CLAUDE.md\n",
    ],
)
def test_a_short_file_that_names_another_one_stands_for_it(tmp_path: Path, text: str) -> None:
    files = {"AGENTS.md": text, "CLAUDE.md": "Use tabs.\n"}
    assert "Use tabs." in instructions(tmp_path, files)


def test_a_long_one_does_not_nor_does_a_name_that_is_not_there(tmp_path: Path) -> None:
    files = {"AGENTS.md": "CLAUDE.md is for another program. " * 20, "CLAUDE.md": "Use tabs.\n"}
    assert "Use tabs." not in instructions(tmp_path / "long", files)
    assert imports_of("AGENTS.md", "See MY-CLAUDE.md and GEMINI.md", {"CLAUDE.md"}) == []


def test_imports_are_followed_inside_the_repository(tmp_path: Path) -> None:
    files = {
        "AGENTS.md": "See @docs/style.md, and `@docs/code.md`.\n```\n@docs/fence.md\n```\n@../out.md a@b.md\n",
        "docs/style.md": "Use tabs.\n@more.md\n",
        "docs/more.md": "Sort imports.\n@../AGENTS.md\n",
        "docs/code.md": "No.\n",
        "docs/fence.md": "No.\n",
        "b.md": "No.\n",
    }
    text = instructions(tmp_path, files)
    assert text.index("Use tabs.") < text.index("Sort imports.")
    assert "No." not in text


def test_an_import_ends_with_its_sentence() -> None:
    assert imports_of("AGENTS.md", "Read @docs/style.md.", {"docs/style.md"}) == ["docs/style.md"]
    assert imports_of("a/CLAUDE.md", "@style.md @top.md", {"a/style.md", "top.md"}) == [
        "a/style.md",
        "top.md",
    ]


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    source = make_source(
        tmp_path / "source", {**SOURCE, "AGENTS.md": b"\xcf\xf0\xe8\xe2\xe5\xf2 \xec\xe8\xf0\n"}
    )
    with clone(source, tmp_path / "clones") as made:
        assert briefing(made).unread == ("AGENTS.md",)


OPTIONS = CycleOptions(
    dry_run=False, draft=True, context_characters=1_000, author_email="bot@example.invalid"
)


@pytest.mark.parametrize(
    ("files", "links", "expected"),
    [
        ({"AGENTS.md": "Every commit has a Signed-off-by line."}, {}, "Signed-off-by: "),
        ({"CLAUDE.md": "Name the model by an Assisted-by: trailer."}, {}, "Assisted-by: "),
        ({"AGENTS.md": "Commits: see docs/commits.md.", "docs/commits.md": "Use git commit -s."}, {}, "Signed-off-by: "),
        ({"docs/agents.md": "Every commit has a Signed-off-by line."}, {"AGENTS.md": "docs/agents.md"}, "Signed-off-by: "),
        ({".cursor/rules/git.mdc": "Every commit has a Signed-off-by line."}, {}, "Signed-off-by: "),
        ({"a/.cursor/rules/git.mdc": "Every commit has a Signed-off-by line."}, {}, ""),
        ({"README.md": "Every commit has a Signed-off-by line."}, {}, ""),
    ],
)  # fmt: skip
def test_rules_about_commits_in_instruction_files_are_followed(
    files: dict[str, str], links: dict[str, str], expected: str
) -> None:
    async def read(path: str, limit: int) -> bytes:
        return files[path].encode()[:limit]

    rules = asyncio.run(read_repository_rules([*files], read, OPTIONS, "m", links))
    assert "\n".join(rules.trailers).startswith(expected)
    assert bool(rules.trailers) == bool(expected)


async def test_instructions_of_other_folders_are_found_by_their_whole_names() -> None:
    names = (
        "AGENTS.md",
        "src/AGENTS.md",
        "web/.github/rules.md",
        "docs/NO_AGENTS.md",
        "lib/AGENTS.md/a.md",
        "api/AGENTS.md",
    )

    async def page(path: str) -> str | None:
        return None if path == "api/AGENTS.md" else f"Rules of {path}."

    library: Any = SimpleNamespace(
        documents=("AGENTS.md", ".github/rules.md"), instructions={name: name for name in names}, page=page
    )
    found = await _nested(library, {"AGENTS.md"})
    assert {folder: text.split("\n", 1)[0] for folder, text in found.items()} == {
        "src/": "`src/AGENTS.md`:",
        "web/": "`web/.github/rules.md`:",
    }
    assert list(await _nested(library, {"src/AGENTS.md"})) == ["web/"]

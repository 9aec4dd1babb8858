"""Which instruction files are read, in which order, and how much of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.engine.profiles.base import DOCUMENTS_BYTES, within_budget
from tests.unit.engine.profiles.places import git, look, paths, repository, texts, write

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.engine.environments.base import ExecResult


async def test_the_top_comes_first_and_the_deepest_last(tmp_path: Path) -> None:
    write(tmp_path / "AGENTS.md", "outside the repository")
    repo = repository(tmp_path / "repo")
    inner = repo / "x" / "y"
    for folder in (repo, repo / "x", inner, repo / "other", inner / "below"):
        write(folder / "AGENTS.md", f"agents of {folder.name}")
    write(repo / "x" / "CLAUDE.md", "claude of x")
    seen = await look(inner, "AGENTS.md", "CLAUDE.md")
    assert paths(seen, repo) == ["AGENTS.md", "x/AGENTS.md", "x/CLAUDE.md", "x/y/AGENTS.md"]
    assert texts(seen) == ["agents of repo", "agents of x", "claude of x", "agents of y"]
    assert not seen.documents_cut


async def test_without_a_repository_only_the_folder_itself_counts(tmp_path: Path) -> None:
    write(tmp_path / "AGENTS.md", "above")
    inner = write(tmp_path / "x" / "AGENTS.md", "here").parent
    assert texts(await look(inner)) == ["here"]


async def test_from_the_root_of_the_file_system(tmp_path: Path) -> None:
    write(tmp_path / "AGENTS.md", "above")
    repo = repository(tmp_path / "x" / "repo")
    write(repo / "AGENTS.md", "here")
    assert texts(await look(repo, from_root=True)) == ["above", "here"]


async def test_a_linked_worktree_and_a_submodule_are_tops_of_their_own(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo", "First")
    write(repo / "AGENTS.md", "outer")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(repo), "part")
    inner = write(repo / "part" / "d" / "AGENTS.md", "in the submodule").parent
    assert texts(await look(inner)) == ["in the submodule"]
    git(repo, "worktree", "add", "-q", str(tmp_path / "tree"))
    write(tmp_path / "tree" / "AGENTS.md", "in the worktree")
    seen = await look(tmp_path / "tree")
    assert texts(seen) == ["in the worktree"]
    assert seen.git is not None
    assert seen.git.branch == "tree"


async def test_a_repository_that_points_its_work_tree_elsewhere(tmp_path: Path) -> None:
    elsewhere = write(tmp_path / "else" / "AGENTS.md", "elsewhere").parent
    repo = repository(tmp_path / "repo")
    write(repo / "AGENTS.md", "here")
    git(repo, "config", "core.worktree", str(elsewhere))
    assert texts(await look(repo)) == ["here"]


async def test_a_document_in_a_folder(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    write(repo / ".codex" / "instructions.md", "codex")
    write(repo / "AGENTS.md", "agents")
    seen = await look(repo, "AGENTS.md", ".codex/instructions.md")
    assert paths(seen, repo) == ["AGENTS.md", ".codex/instructions.md"]


async def test_links_lead_nowhere_but_to_another_document_beside_them(tmp_path: Path) -> None:
    secret = write(tmp_path / "secret", "a key")
    repo = repository(tmp_path / "repo")
    for target in (secret, "../secret", ".env", "x/AGENTS.md", "AGENTS.md", "missing"):
        write(repo / ".env", "a key")
        (repo / "AGENTS.md").unlink(missing_ok=True)
        (repo / "AGENTS.md").symlink_to(target)
        assert texts(await look(repo)) == []
    (repo / "CLAUDE.md").symlink_to("./GEMINI.md")
    write(repo / "GEMINI.md", "shared")
    assert texts(await look(repo, "CLAUDE.md")) == ["shared"]
    assert texts(await look(repo, "GEMINI.md", "CLAUDE.md")) == ["shared"]
    (repo / "GEMINI.md").unlink()
    (repo / "GEMINI.md").symlink_to(secret)
    assert texts(await look(repo, "CLAUDE.md")) == []


async def test_no_document_through_a_linked_folder(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside" / "instructions.md", "outside").parent
    repo = repository(tmp_path / "repo")
    (repo / ".codex").symlink_to(outside)
    assert texts(await look(repo, ".codex/instructions.md")) == []


async def test_what_is_no_text_file_is_passed_over(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    write(repo / "AGENTS.md", b"binary\0" + b"x" * 100_000)
    (repo / "CLAUDE.md").mkdir()
    os.mkfifo(repo / "GEMINI.md")
    write(repo / "empty.md", "")
    write(repo / "rules.md", "rules")
    seen = await look(repo, "AGENTS.md", "CLAUDE.md", "GEMINI.md", "empty.md", "missing.md", "rules.md")
    assert texts(seen) == ["rules"]
    assert not seen.documents_cut


async def test_other_encodings(tmp_path: Path) -> None:
    write(tmp_path / "latin.md", "f\xfcr\r\n".encode("latin-1"))
    write(tmp_path / "mark.md", "\ufeffmark ü€😀\n")
    assert texts(await look(tmp_path, "latin.md", "mark.md")) == ["f\ufffdr\r\n", "mark ü€😀\n"]


@pytest.mark.parametrize(
    ("sizes", "shown", "cut"),
    [
        ((DOCUMENTS_BYTES,), (DOCUMENTS_BYTES,), False),
        ((DOCUMENTS_BYTES + 1,), (DOCUMENTS_BYTES,), True),
        ((50 * DOCUMENTS_BYTES,), (DOCUMENTS_BYTES,), True),
        ((DOCUMENTS_BYTES - 1, 1), (DOCUMENTS_BYTES - 1, 1), False),
        ((DOCUMENTS_BYTES - 1, 2), (DOCUMENTS_BYTES - 1, 1), True),
        ((DOCUMENTS_BYTES, 1), (DOCUMENTS_BYTES,), True),
        ((DOCUMENTS_BYTES, 0), (DOCUMENTS_BYTES,), False),
        ((20_000, 20_000, 20_000), (20_000, DOCUMENTS_BYTES - 20_000), True),
    ],
)
async def test_the_budget_is_kept_to_the_byte(
    tmp_path: Path, sizes: tuple[int, ...], shown: tuple[int, ...], *, cut: bool
) -> None:
    names = [f"{n}.md" for n in range(len(sizes))]
    for name, size in zip(names, sizes, strict=True):
        write(tmp_path / name, "x" * size)
    seen = await look(tmp_path, *names)
    assert tuple(map(len, texts(seen))) == shown
    assert seen.documents_cut is cut


async def test_no_more_is_carried_over_than_is_shown(tmp_path: Path) -> None:
    names = [f"{n}.md" for n in range(20)]
    for name in names:
        write(tmp_path / name, "x" * 20_000)
    printed: list[int] = []

    def note(result: ExecResult) -> ExecResult:
        printed.append(len(result.stdout))
        return result

    await look(tmp_path, *names, change=note)
    assert printed[0] < 4 * DOCUMENTS_BYTES


def test_the_budget_is_32_kib() -> None:
    assert DOCUMENTS_BYTES == 32_768


@given(st.lists(st.text(max_size=12) | st.binary(max_size=12), max_size=5), st.integers(0, 40))
def test_the_budget_of_any_text(contents: list[str | bytes], limit: int) -> None:
    files = [c.encode() if isinstance(c, str) else c for c in contents]
    shown, cut = within_budget([(str(n), content) for n, content in enumerate(files)], limit)
    decoded = [content.decode(errors="replace") for content in files]
    assert sum(len(document.text.encode()) for document in shown) <= limit
    assert cut is (sum(len(text.encode()) for text in decoded) > limit)
    for document in shown:
        assert document.text
        assert decoded[int(document.path)].removeprefix("\ufeff").startswith(document.text)
    if not cut:
        whole = [text.removeprefix("\ufeff") for text in decoded]
        assert [document.text for document in shown] == [text for text in whole if text]


_PIECES = st.sampled_from(["x", "ü", "€", "😀", "\ufeff"])


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(_PIECES, st.integers(-9, 9)), min_size=1, max_size=3), st.integers(0, 40_000))
async def test_what_the_shell_cuts_is_never_seen(
    tmp_path: Path, ends: list[tuple[str, int]], first: int
) -> None:
    files = [("0.md", b"y" * first)]
    for n, (piece, off) in enumerate(ends, 1):
        size = max(DOCUMENTS_BYTES - first + off, 0)
        files.append((f"{n}.md", ("y" * (size % 4) + piece * (size // len(piece.encode()))).encode()))
    for name, content in files:
        write(tmp_path / name, content)
    seen = await look(tmp_path, *(name for name, _ in files))
    expected, cut = within_budget(files)
    assert texts(seen) == [document.text for document in expected]
    assert seen.documents_cut is cut

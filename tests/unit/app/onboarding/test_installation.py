"""Which commit a workflow may use, told by what an installer noted and by the state of a checkout; and the copy."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import pytest

from orchestrator.app.onboarding import installation
from orchestrator.app.onboarding.files import CHECKOUT
from orchestrator.app.onboarding.installation import (
    ActionPlace,
    action_copy,
    read_direct_url,
    workflow_template,
)
from tests.scenarios.stage import git, make_repository
from tests.tables import table

ROOT = Path(__file__).parents[4]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
VCS = {"vcs": "git", "commit_id": COMMIT}
ACTION = ".github/actions/pullwright"


@table(
    ("said", "uses"),
    [
        ({"url": "https://github.com/o/p.git", "vcs_info": VCS}, f"o/p/{ACTION}@{COMMIT}"),
        ({"url": "https://github.com/o/p", "vcs_info": VCS, "subdirectory": "bots/pw"}, f"o/p/bots/pw/{ACTION}@{COMMIT}"),
        ({"url": "ssh://git@github.com/o/p.git", "vcs_info": VCS}, f"o/p/{ACTION}@{COMMIT}"),
        ({"url": "https://user:secret@github.com/o/p", "vcs_info": VCS}, f"o/p/{ACTION}@{COMMIT}"),
    ],
)  # fmt: skip
def test_an_installer_says_the_place_and_the_commit(said: dict[str, Any], uses: str) -> None:
    assert read_direct_url(said) == ActionPlace("github.com", uses)


@table(
    ("said", "why"),
    [
        ({}, "from a file"),
        ({"url": "https://example.com/p.whl", "archive_info": {}}, "from a file"),
        (
            {"url": "https://github.com/o/p", "vcs_info": {"commit_id": "main"}},
            "is not a repository on a server",
        ),
        ({"url": "https://example.com/p", "vcs_info": VCS}, "is not a repository on a server"),
        ({"url": "file:///nowhere/at/all", "dir_info": {}}, "have changed"),
        ({"url": 3, "vcs_info": VCS}, "is not a repository on a server"),
    ],
)
def test_where_it_says_neither_there_is_a_reason(said: dict[str, Any], why: str) -> None:
    found = read_direct_url(said)
    assert isinstance(found, str)
    assert why in found


def test_a_checkout_counts_as_it_is_published(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "pw")

    def found() -> ActionPlace | str:
        return installation._of_checkout(folder)

    assert "no remote" in str(found())
    git(folder, "remote", "add", "origin", "git@github.com:o/p.git")
    assert "is not pushed" in str(found())
    git(folder, "update-ref", "refs/remotes/origin/main", "HEAD")
    commit = git(folder, "rev-parse", "HEAD")
    assert found() == ActionPlace("github.com", f"o/p/{ACTION}@{commit}")
    (folder / "new.py").touch()
    assert "has changes that are not committed" in str(found())
    assert "is not a checkout of git" in str(installation._of_checkout(tmp_path))


@pytest.mark.skipif(not (ROOT / ACTION).is_dir(), reason="the built wheel brings its own files along")
def test_the_copy_has_what_the_action_runs_and_is_always_the_same() -> None:
    files = {Path(file.path).name: file for file in action_copy()}
    assert files["install.sh"].is_executable
    assert not files["action.yml"].is_executable
    content = files["program.zip"].content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
    assert {"run_local_agent.py", "requirements.lock", "orchestrator/__main__.py"} <= set(names)
    assert "prompts/onboarding/pull_request.md" in names
    assert not [name for name in names if "__pycache__" in name or name.startswith(("/", "tests/"))]
    assert {Path(file.path).name: file for file in action_copy()}["program.zip"].content == content


def test_the_action_that_a_copy_is_checked_out_by_is_the_one_of_our_own_workflows() -> None:
    if (ROOT / ".github/workflows/ci.yml").exists():
        assert CHECKOUT in (ROOT / ".github/workflows/ci.yml").read_text()
    assert "jobs:" in workflow_template()

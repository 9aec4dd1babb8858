"""The composite action that verifies a pull request, its steps run as a shell runs them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.doubles.actions_runner import ActionsRunner, obeyed
from tests.plugins.verify_pr import test_verify_pr as verified
from tests.scenarios.test_action import NAME, ROOT, VERIFY, pytestmark

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.doubles.github.server import GitHub

__all__ = ["pytestmark"]


def test_a_pull_request_is_verified_and_leaves_a_check_run_a_summary_and_a_page(
    tmp_path: Path, github: GitHub
) -> None:
    repo = github.add_repository(NAME, verified.FILES)
    head = github.commit(repo, verified.GOOD, branch="feature")
    pull = github.add_pull(repo, "feature", title="Add well")
    pull.head_sha, pull.base_sha = head, repo.branches()["main"]
    may = {"contents": "read", "pull_requests": "read", "checks": "write"}
    token, _ = github.installation_token(github.app([NAME], permissions=may), [NAME])
    uploads: list[Mapping[str, str]] = []

    def upload(given: Mapping[str, str]) -> Mapping[str, str]:
        uploads.append(given)
        return {}

    for name in ("workspace", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "workspace" / "pullwright.toml").write_text("this is no TOML")
    runner = ActionsRunner(
        VERIFY,
        tmp_path / "temp",
        {
            "token": token,
            "server_url": github.web_url,
            "repository": NAME,
            "run_id": "7",
            "run_attempt": "1",
            "workspace": str(tmp_path / "workspace"),
            "event.pull_request.number": str(pull.number),
        },
        {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "ACTIONS_RUNTIME_TOKEN": "runtime"},
        {
            "python": lambda given: {"python-path": sys.executable, "version": given["python-version"]},
            "install": lambda _given: {
                "python": sys.executable,
                "program": str(ROOT / "run_local_agent.py"),
            },
            "actions/upload-artifact": upload,
        },
    )
    outputs = runner.run(test_command=verified.COMMAND[1], test_report=verified.COMMAND[3])
    assert (outputs["outcome"], runner.failed) == ("holds", []), runner.log
    commit = subprocess.run(
        ["git", "cat-file", "commit", head], cwd=repo.path, capture_output=True, check=True
    ).stdout
    assert outputs["subject-digest"] == f"sha256:{hashlib.sha256(commit).hexdigest()}"
    assert json.loads(outputs["predicate"])["result"] == "PASSED"
    assert [run.title for run in repo.checks[head]] == ["There is no report. The tests pass."]
    assert "**There is no report. The tests pass.**" in runner.summary
    page, statement, ctrf, runs = map(Path, uploads[0]["path"].split())
    assert json.loads(statement.read_text())["predicate"] == json.loads(outputs["predicate"])
    assert json.loads(ctrf.read_text())["reportFormat"] == "CTRF"
    assert "Runs made here" in page.read_text()
    assert len(list(runs.iterdir())) == 1
    assert token not in runner.log + runner.summary + page.read_text()
    assert obeyed(runner.log) == ["remove-matcher"]

"""What a git server says in a refusal reaches the person whole, and what was paid for is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.doubles.github.faults import Fault
from tests.scenarios.hosted import Hosted
from tests.scenarios.stage import FINISH, FIX, FIX_IT, PROPOSE, Stage, do

if TYPE_CHECKING:
    from tests.doubles.github.server import GitHub

# The form of docs.github.com/code-security, "Push protection from the command line".
PUSH_PROTECTION = """#!/bin/sh
while read old new ref; do case $ref in refs/heads/*) cat >&2 <<'END'
error: GH013: Repository rule violations found for refs/heads/pullwright/issue-1.

- GITHUB PUSH PROTECTION
  ------------------------------
    Resolve the following violations before pushing again

    - Push cannot contain secrets

      -- Example Access Token ------------
       locations:
         - commit: 3b18e512dba79e4c8300dd08aeb37f8e728b8dad
           path: deploy/settings.py:7

       (?) To push, remove secret from commit(s) or follow this URL to allow the secret.
       https://github.com/octo/calc/security/secret-scanning/unblock-secret/2abc
END
exit 1;; esac; done
"""


# It judges every commit that it is given, as push protection does.
NO_PASSWORDS = """#!/bin/sh
while read old new ref; do case $ref in refs/heads/*)
git log -p --format= "main..$new" | grep -q swordfish && { echo "this word is not for notes" >&2; exit 1; };; esac; done
exit 0
"""


@pytest.fixture
def hosted(github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Hosted:
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    return Hosted.begin(github, stage)


def test_a_refused_push_says_reason_file_and_link(hosted: Hosted) -> None:
    hook = hosted.repo.path / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(PUSH_PROTECTION)
    hook.chmod(0o755)
    hosted.stage.script(FIX_IT, do(FINISH), do(FINISH))
    done = hosted.stage.run(json_output=False)
    assert done.code == 1
    for words in (
        "GH013",
        "Push cannot contain secrets",
        "path: deploy/settings.py:7",
        "unblock-secret/2abc",
    ):
        assert words in done.out
    assert "kept" in done.out
    assert len(hosted.refs("refs/pullwright/wip")) == 1
    # The model read it first, and then the task waits, where people see it.
    assert "Push cannot contain secrets" in str(hosted.stage.model.requests[1].body)
    again = hosted.stage.run()
    assert again.code == 3
    assert "waits for a person" in again.result["reason"]


def test_a_change_that_is_refused_once_is_mended_by_the_model(hosted: Hosted) -> None:
    hook = hosted.repo.path / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(NO_PASSWORDS)
    hook.chmod(0o755)
    first = ("write_file", {"path": "note.txt", "content": "the word is swordfish\n"})
    second = ("write_file", {"path": "note.txt", "content": "the word is in the safe\n"})
    hosted.stage.script(do(first, FIX, PROPOSE), do(second, PROPOSE, FINISH))
    done = hosted.stage.run()
    assert (done.code, done.result["outcome"]) == (0, "proposed")
    assert "this word is not for notes" in str(hosted.stage.model.requests[1].body)


def test_an_archived_repository_is_called_so_before_anything_is_paid(hosted: Hosted) -> None:
    hosted.repo.archived = True
    hosted.stage.script(FIX_IT)
    done = hosted.stage.run()
    assert (done.code, hosted.asked) == (1, 0)
    assert "unarchive it" in done.result["error"]
    assert "the server says: This repository was archived so it is read-only." in done.result["error"]


def test_a_git_server_that_has_had_enough_is_waited_for_and_the_work_arrives(hosted: Hosted) -> None:
    for path in ("git-receive-pack", "info/refs"):
        headers = {"Retry-After": "0"}
        where = rf"/octo/calc\.git/{path}"
        hosted.github.faults.append(
            Fault("*", where, times=2, skip=2, status=429, headers=headers, body="Slow down.")
        )
    assert hosted.propose().state == "open"
    assert hosted.asked == 1
    assert all(fault.times == 0 for fault in hosted.github.faults)

"""A server that refuses a branch: whether another change may help is read from the reason and the server's lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.git.hostgit import GitResult
from orchestrator.bot.git.remote import push_error
from orchestrator.core.errors import PushRefusedError, PushRejectedError
from tests.doubles.commits import commit_touched
from tests.tables import table
from tests.unit.bot.git.rig import clone, git, over_ssh, write

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.bot.git.clone import Clone

BRANCH = "pullwright/12-fix"
_HOOK = "pre-receive hook declined"
_RULES = "push declined due to repository rule violations"


@table(
    ("reason", "said", "may_differ"),
    [
        (_RULES, "GH013: Repository rule violations found | - Push cannot contain secrets", True),
        (_HOOK, "GH001: Large files detected. | File a.bin is 150.00 MB; this exceeds GitHub's limit", True),
        (_HOOK, 'GitLab: File "a.bin" is larger than the allowed size of 50 MiB', True),
        (_HOOK, "GitLab: Commit message does not follow the pattern 'JIRA-[0-9]+'", True),
        (_HOOK, "GitLab: File name a.pem was prohibited by the pattern '\\.pem$'.", True),
        ("commit 1a2b3c4: missing Change-Id in message footer", "", True),
        ("commit 1a2b3c4: not Signed-off-by author/committer/uploader in message footer", "", True),
        (_HOOK, "VS403654: The push was rejected because it contains one or more secrets.", True),
        # Words that nobody knows: what a hook judged may differ.
        (_HOOK, "computer says no", True),
        (_HOOK, "", True),
        (_RULES, "- Commits must have verified signatures.", False),
        (_HOOK, "GitLab: Commit must be signed with a GPG key", False),
        (
            "push declined due to email privacy restrictions",
            "GH007: Your push would publish a private email",
            False,
        ),
        (_HOOK, "GitLab: Committer's email 'a@b.example' does not follow the pattern '@octo'", False),
        (
            _HOOK,
            "GitLab: You cannot push commits for 'a@b.example'. It is not one of your verified emails.",
            False,
        ),
        (_HOOK, "GitLab: Branch name does not follow the pattern 'feature/.*'", False),
        ("protected branch hook declined", "GH006: Protected branch update failed for refs/heads/x.", False),
        (_RULES, "- Cannot create ref due to creations being restricted.", False),
        (_RULES, "- Changes must be made through a pull request.", False),
        (_HOOK, "You are not allowed to push code to this project.", False),
        ("shallow update not allowed", "", False),
        ("unpacker error", "", False),
        ("computer says no", "", False),
    ],
)
def test_what_may_differ(reason: str, said: str, *, may_differ: bool) -> None:
    line = f"!\tabc:refs/heads/{BRANCH}\t[remote rejected] ({reason})\n".encode()
    words = "".join(f"remote: {one}\n" for one in said.split(" | ") if one)
    error = push_error(GitResult(1, line, words), "cannot push")
    assert isinstance(error, PushRefusedError)
    assert error.may_differ == may_differ
    assert error.said.startswith(reason)
    assert all(one in error.said for one in said.split(" | "))


def test_a_stale_branch_is_no_refusal_of_its_content(safe: Clone, source: Path) -> None:
    git(source, "branch", BRANCH)
    write(safe.tree, {"a.txt": "1"})
    commit_touched(safe, {"a.txt"}, "one", include_commands=False)
    with pytest.raises(PushRejectedError) as caught:
        safe.push(BRANCH, expected=None)
    assert not isinstance(caught.value, PushRefusedError)


def test_a_commit_that_is_taken_back_is_not_pushed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = 'while read old new ref; do git log -p "$new" -- | grep -q "+secret" && { echo no secrets >&2; exit 1; }; done; exit 0'
    hook = source / ".git" / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{script}\n")
    hook.chmod(0o755)
    with clone(over_ssh(source, tmp_path, monkeypatch), tmp_path / "clones") as opened:
        before = opened.head_commit
        write(opened.tree, {"a.txt": "secret\n", "b.txt": "2\n"})
        commit_touched(opened, {"a.txt", "b.txt"}, "one", include_commands=False)
        with pytest.raises(PushRefusedError, match="no secrets"):
            opened.push(BRANCH, expected=None)
        opened.uncommit()
        assert opened.head_commit == before
        assert opened.changed_paths() == {"a.txt", "b.txt"}
        assert opened.diff() == ""
        write(opened.tree, {"a.txt": "plain\n"})
        commit_touched(opened, {"a.txt", "b.txt"}, "two", include_commands=False)
        opened.push(BRANCH, expected=None)
    assert git(source, "log", "--format=%s", f"main..{BRANCH}") == "two"
    assert git(source, "show", f"{BRANCH}:a.txt") == "plain"

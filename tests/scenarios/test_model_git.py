"""The model's own repository: git works in it as anywhere, and this program neither runs nor believes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.scenarios.stage import FINISH, FIX, FIXED, PROPOSE, Call, Done, Stage, branches, content, do, git

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TASK = ("--task", "Fix add() in calc.py")
DANGEROUS = "--allow-dangerous-tools"
ONLY_A_TITLE: Call = ("create_pull_request", {"title": "Make add() add", "body": ""})
SED = "sed -i 's/a - b/a + b/' calc.py"


def shell(*lines: str) -> Call:
    return "run_shell_command", {"command": "\n".join(("set -e", *lines))}


def run(stage: Stage, repository: Path, *plans: Sequence[Call], how: Sequence[str] = (DANGEROUS,)) -> Done:
    stage.script(*(do(*calls) for calls in plans))
    return stage.run("--repo", str(repository), *TASK, *how)


def message(repository: Path) -> str:
    (branch,) = branches(repository)
    assert git(repository, "rev-list", "--count", f"main..{branch}") == "1"
    return git(repository, "log", "-1", "--format=%B", branch).strip()


def proposed(repository: Path, path: str = "calc.py") -> str:
    (branch,) = branches(repository)
    return content(repository, branch, path)


def test_a_cycle_that_works_with_git(stage: Stage, repository: Path) -> None:
    done = run(
        stage,
        repository,
        [shell("git status --short", SED, "git diff --stat", "git add -A && git commit -m 'Fix add' -m 'It subtracted.'")],
        [shell("git log --oneline", "echo '# more' >> calc.py", "git stash", "git status --short", "git stash pop")],
        [shell("git checkout -q -b docs", "echo text > NOTES.md", "git add NOTES.md", "git commit -qm 'Write notes'")],
        [shell("git blame calc.py", "git tag v1", "git branch -a", "git restore calc.py", "git commit -q --amend", "git fsck")],
        [ONLY_A_TITLE, FINISH],
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "[main " in stage.told(1)
    assert "Fix add" in stage.told(2)
    assert "Dropped refs/stash" in stage.told(2)
    assert proposed(repository) == FIXED.strip()
    assert proposed(repository, "NOTES.md") == "text"
    assert message(repository) == "Make add() add\n\n* Fix add\n\nIt subtracted.\n\n* Write notes"


def test_a_level_that_grants_git_and_nothing_else(stage: Stage, repository: Path) -> None:
    plain = [("run_shell_command", {"command": line}) for line in ("git add -A", "git commit -m 'Fix add'")]
    done = run(
        stage,
        repository,
        [FIX, *plain],
        [("run_shell_command", {"command": "git config core.fsmonitor x"})],
        [ONLY_A_TITLE, FINISH],
        how=("--allow-command", "git *"),
    )
    assert done.code == 0, done.err
    assert "git config is never granted except for reading" in stage.told(2)
    assert message(repository) == "Make add() add\n\n* Fix add"


def test_what_git_took_away_is_not_proposed_and_that_is_said(stage: Stage, repository: Path) -> None:
    done = run(stage, repository, [FIX, shell("git stash")], [PROPOSE], [FINISH])
    assert (
        "Nothing has changed that may be proposed. What is proposed are the files as they are"
        in stage.told(2)
    )
    assert branches(repository) == []
    assert done.result["pull_request"] is None


def test_each_message_is_told_once_and_secrets_never(stage: Stage, repository: Path) -> None:
    token = "ghp_" + "A1b2C3d4E5f6" * 3
    commit = "git commit -q --allow-empty -m"
    done = run(
        stage,
        repository,
        [shell(SED, f"{commit} 'Make add() ADD' -m 'Because.'", f"{commit} 'Token {token}'", f"{commit} 'Fixes #9 @ada'")],
        [ONLY_A_TITLE],
        [shell("echo text > NOTES.md", "git add -A", f"{commit} 'Write notes'"), ONLY_A_TITLE],
        [FINISH],
    )  # fmt: skip
    assert done.code == 0, done.err
    (branch,) = branches(repository)
    first, second = git(repository, "log", "--reverse", "--format=%B%x00", f"main..{branch}").split("\0")[:2]
    assert first.strip() == "Make add() add\n\n* Because.\n\n* Fixes no. 9 @ ada"
    assert second.strip() == "Make add() add\n\n* Write notes"
    guarded = [event["message"] for event in stage.events() if event.get("defence") == "secrets"]
    assert guarded == ["a commit's message is left out: it holds what looks like a secret"]


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
def test_the_messages_of_a_cycle_that_was_cut_off_are_in_the_next_ones_commit(
    stage: Stage, repository: Path
) -> None:
    first = run(
        stage, repository, [shell(SED, "git commit -qam 'Fix add'")], how=(DANGEROUS, "--max-rounds", "1")
    )
    assert first.result["saved"], first.err
    assert run(stage, repository, [ONLY_A_TITLE], [FINISH]).code == 0
    assert message(repository) == "Make add() add\n\n* Fix add"


def test_a_repository_with_traps_runs_none_of_them_on_the_host(
    stage: Stage, repository: Path, tmp_path: Path
) -> None:
    """Without a sandbox, so that it would be seen; that the traps are some, the model's own git shows."""
    ran = tmp_path / "ran"
    traps = (f'PROGRAM="touch {ran}; cat"', *TRAPS, "git status > /dev/null || true", f"rm {ran}")
    done = run(
        stage,
        repository,
        [shell(SED, "git commit -qam 'Fix add'"), shell(*traps)],
        [ONLY_A_TITLE, FINISH],
        how=(DANGEROUS, "--sandbox", "off"),
    )
    assert done.code == 0, (done.err, stage.told(1))
    assert not ran.exists()
    assert proposed(repository) == FIXED.strip()
    assert message(repository) == "Make add() add\n\n* Fix add"


TRAPS = (
    (
        "for key in core.fsmonitor core.pager core.editor diff.external gpg.program core.sshCommand core.askPass"
        " filter.f.clean filter.f.smudge filter.f.process diff.f.textconv diff.f.command merge.f.driver sequence.editor"
        ' credential.helper core.gitProxy uploadpack.packObjectsHook; do git config "$key" "$PROGRAM"; done'
    ),
    'for name in status log diff add commit rev-parse; do git config "alias.$name" "!$PROGRAM"; done',
    "git config core.hooksPath .git/more",
    "git config include.path more.conf",
    "git config log.showSignature true",
    "git config commit.gpgSign true",
    "git config url.ext::sh.insteadOf https://",
    "git config protocol.allow always",
    'printf "[core]\\n\\tfsmonitor = $PROGRAM\\n" > .git/more.conf',
    "mkdir -p .git/hooks .git/more .git/info .git/objects/info",
    (
        "for hook in pre-commit post-index-change reference-transaction post-checkout fsmonitor-watchman; do"
        ' printf "#!/bin/sh\\n$PROGRAM\\n" | tee ".git/hooks/$hook" > ".git/more/$hook"; done'
    ),
    "chmod -R +x .git/hooks .git/more",
    'echo "* filter=f diff=f merge=f" > .git/info/attributes',
    "echo '*' > .git/info/exclude",
    "echo / > .git/objects/info/alternates",
)

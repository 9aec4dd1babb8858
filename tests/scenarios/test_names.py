"""Names that git or the server refuses are known before anything is claimed or paid for.

=====================================================  ====================================================
on the remote                                          what comes of it
=====================================================  ====================================================
a branch `pullwright`, in whatever letters             branches go below `pullwright-tasks/`, on every machine
branches `pullwright` and `pullwright-tasks`           refused, and says which to rename
a branch below the name of ours                        ours gets a number at its end
a reference where claims or unfinished work would be   refused, and says how to remove it
a rule that refuses the branch for sure                refused, and says which rule
`--base` that is missing, a tag, a commit              refused, and says what it is
=====================================================  ====================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.doubles.github.state import BranchRule
from tests.scenarios.hosted import BRANCH, Hosted
from tests.scenarios.stage import FILES, FIX_IT, Stage, git

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.github.server import GitHub

slow = pytest.mark.slow(reason="several whole cycles; three of this file are in the default tier")


@pytest.fixture
def hosted(github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Hosted:
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    return Hosted.begin(github, stage, {**FILES, "BACKLOG.md": ""})


def refused(hosted: Hosted, *flags: str, code: int = 1) -> str:
    """A run that claims nothing and asks no model; gives what it says."""
    hosted.stage.script(FIX_IT)
    done = hosted.stage.run(*flags)
    assert (done.code, done.result["outcome"]) == (code, "failed"), done.err
    assert hosted.asked == 0
    assert [ref for ref in hosted.refs("refs/pullwright") if "claims/issue-1" in ref] == []
    return str(done.result["error"])


@slow
def test_beside_a_branch_of_our_name_another_folder_is_used_and_found_again(hosted: Hosted) -> None:
    hosted.git("branch", "pullwright", "main")
    assert hosted.propose().head == "pullwright-tasks/issue-1-add-subtracts"
    assert "has an open pull request" in hosted.left_alone()
    # It is ours also once the branch is gone.
    hosted.git("branch", "-D", "pullwright")
    assert "has an open pull request" in hosted.left_alone()


@slow
def test_where_no_folder_is_free_nothing_is_begun(hosted: Hosted) -> None:
    for name in ("pullwright", "pullwright-tasks"):
        hosted.git("branch", name, "main")
    assert "rename or delete one" in refused(hosted)


@slow
def test_a_branch_that_excludes_ours_is_left_where_it_is(hosted: Hosted) -> None:
    hosted.git("branch", f"{BRANCH}/mine", "main")
    assert hosted.propose().head == f"{BRANCH}-2"
    assert f"{BRANCH}/mine" in hosted.repo.branches()
    assert "has an open pull request" in hosted.left_alone()


@slow
def test_a_reference_where_ours_would_be_is_named(hosted: Hosted) -> None:
    hosted.git("update-ref", "refs/pullwright/wip", "main")
    said = refused(hosted)
    assert "has a reference refs/pullwright/wip, so git cannot create refs/pullwright/wip/issue-1" in said


def test_a_rule_that_refuses_the_branch_is_told_before_anything_is_paid(hosted: Hosted) -> None:
    hosted.repo.rules[7] = BranchRule("required_signatures")
    said = refused(hosted)
    assert "the rule required_signatures" in said
    assert said.endswith("/octo/calc/rules/7")


@slow
def test_a_rule_that_may_let_it_pass_stops_nothing(hosted: Hosted) -> None:
    hosted.repo.rules[7] = BranchRule("creation", bypass="always")
    hosted.repo.rules[8] = BranchRule("non_fast_forward")
    assert hosted.propose().head == BRANCH


@slow
@pytest.mark.parametrize(
    ("base", "words"),
    [("develp", "has no branch of this name; did you mean develop?"), ("v1", "it is a tag; name a branch")],
)
def test_a_base_that_is_no_branch_is_told_before_the_claim(hosted: Hosted, base: str, words: str) -> None:
    hosted.git("branch", "develop", "main")
    hosted.git("tag", "v1", "main")
    assert words in refused(hosted, "--base", base, code=2)
    assert hosted.refs("refs/pullwright") == []


def test_a_base_on_disk(stage: Stage, repository: Path) -> None:
    stage.script(FIX_IT)
    done = stage.run("--repo", str(repository), "--task", "Fix add()", "--base", "other")
    assert (done.code, len(stage.model.requests)) == (2, 0)
    assert "has no branch of this name" in done.result["error"]
    assert git(repository, "for-each-ref", "refs/pullwright") == ""


@slow
def test_doctor_knows_of_names(hosted: Hosted) -> None:
    flags = ["--model", "openai-chat:scripted-1", "--api-url", hosted.stage.model.url, *hosted.stage.flags]
    assert "there is room below pullwright/" in hosted.stage.command("doctor", *flags).out
    hosted.git("branch", "pullwright", "main")
    hosted.git("tag", "v1", "main")
    done = hosted.stage.command("doctor", *flags, "--base", "v1")
    assert "it is a tag; name a branch" in " ".join(done.out.split())
    assert done.code == 1
    done = hosted.stage.command("doctor", *flags)
    assert "go below pullwright-tasks/" in " ".join(done.out.split())
    hosted.git("update-ref", "refs/pullwright/claims", "main")
    done = hosted.stage.command("doctor", *flags)
    assert "so git cannot create refs/pullwright/claims/issue-1" in " ".join(done.out.split())

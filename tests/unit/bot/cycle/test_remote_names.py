"""Which names there is room for on a remote, with git as the oracle."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.cycle.claimer import RemoteNames
from orchestrator.bot.cycle.tasks import BRANCH_FOLDERS, from_text, key_of
from orchestrator.bot.forge.github_survey import Rule
from orchestrator.bot.git.remote import in_the_way
from orchestrator.core.errors import ConfigurationError, EmptyRepositoryError, RemoteRefusedError
from tests.doubles.github.faults import Fault
from tests.tables import table
from tests.unit.bot.coordination.records_rig import bare

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.bot.conftest import World

HEADS = "refs/heads/"
TASK = replace(from_text("Fix it"), key="issue-12", title="Add subtracts")
BRANCH = "pullwright/issue-12-add-subtracts"
NAMES = ["a", "a/b", "a/b/c", "ab", "a-b", "a/bc", "b", "b/a", "a/b/c/d", "a.b/c"]


def remote(*branches: str) -> RemoteNames:
    return RemoteNames({f"{HEADS}{name}" for name in ("main", *branches)}, "octo/calc")


def test_git_refuses_the_names_that_are_in_each_others_way(tmp_path: Path) -> None:
    path = bare(tmp_path)
    pairs = [(there, name) for there in NAMES for name in NAMES if there != name]
    for number, (there, name) in enumerate(pairs):
        at = f"{HEADS}{number}/"
        script = f"start\ncreate {at}{there} main\ncommit\nstart\ncreate {at}{name} main\ncommit\n"
        done = subprocess.run(
            ["git", "-C", str(path), "update-ref", "--stdin"],
            input=script.encode(),
            capture_output=True,
            check=False,
        )
        assert (in_the_way(at + name, [at + there]) is not None) == (done.returncode != 0), (there, name)


@table(
    ("there", "branch"),
    [
        ([], BRANCH),
        ([BRANCH], BRANCH),
        (["pullwright/issue-12-other", "pullwright-x", "x/pullwright"], BRANCH),
        (["pullwright"], "pullwright-tasks/issue-12-add-subtracts"),
        (["PullWright"], "pullwright-tasks/issue-12-add-subtracts"),
        ([f"{BRANCH}/x"], f"{BRANCH}-2"),
        ([f"{BRANCH}/x", f"{BRANCH}-2/y"], f"{BRANCH}-3"),
        ([BRANCH.upper()], f"{BRANCH}-2"),
        (["pullwright/issue-12-task/x"], f"{BRANCH}-2"),
        (
            ["pullwright", "pullwright-tasks/issue-12-add-subtracts/x"],
            "pullwright-tasks/issue-12-add-subtracts-2",
        ),
    ],
)
def test_a_branch_gets_a_name_that_is_free_and_still_the_tasks(there: list[str], branch: str) -> None:
    named = remote(*there).named(TASK)
    assert named.branch == branch
    assert key_of(named.branch) == key_of(named.plain_branch) == ("issue-12", 12)
    assert remote(*reversed(there)).named(TASK) == named


def test_where_all_folders_are_taken_that_is_said() -> None:
    with pytest.raises(RemoteRefusedError, match="called pullwright and pullwright-tasks"):
        remote(*(folder.removesuffix("/") for folder in BRANCH_FOLDERS)).named(TASK)


@table(
    ("ref", "is_refused"),
    [
        ("refs/pullwright", True),
        ("refs/pullwright/claims", True),
        ("refs/pullwright/wip", True),
        ("refs/pullwright/claims/issue-12/x", True),
        ("refs/pullwright/wip/issue-12/x", True),
        ("refs/pullwright/claims/issue-12", False),
        ("refs/pullwright/claims/issue-1/x", False),
        ("refs/pullwright/spend", False),
        ("refs/heads/pullwright", False),
    ],
)
def test_a_reference_where_ours_would_be(ref: str, *, is_refused: bool) -> None:
    names = RemoteNames({ref}, "octo/calc")
    if not is_refused:
        assert names.require_hidden("issue-12") is None
        return
    if "issue-12" in ref:  # of this task alone: others can be done
        assert f"git push octo/calc :{ref}" in str(names.require_hidden("issue-12"))
        assert names.require_hidden("issue-1") is None
        return
    with pytest.raises(RemoteRefusedError, match=f"git push octo/calc :{ref}"):
        names.require_hidden("issue-12")


def test_a_base() -> None:
    names = RemoteNames({f"{HEADS}main", f"{HEADS}release/1.0", "refs/tags/v1"}, "octo/calc")
    names.require_base("release/1.0")
    for base, words in {
        "mian": "did you mean main",
        "v1": "it is a tag",
        "0" * 40: "it is a commit",
        "release": "has no branch",
        "zzz": "push it first",
        "\x1b[31m": "push it first",
    }.items():
        with pytest.raises(ConfigurationError, match=words) as raised:
            names.require_base(base)
        assert str(raised.value).isprintable()
    with pytest.raises(EmptyRepositoryError, match="is empty"):
        RemoteNames({"refs/tags/v1"}, "octo/calc").require_base("main")


@pytest.mark.parametrize("status", [403, 404, 410, 500, 503])
def test_rules_that_cannot_be_read_stop_nothing(world: World, status: int) -> None:
    body = {"message": "Upgrade to GitHub Pro"}
    world.github.faults.append(Fault("GET", ".*/rules/.*", times=9, status=status, body=body))
    assert world.forge.why_not_pushed(BRANCH, "us@bots.example") is None


@table(
    ("kind", "operator", "pattern", "negate", "refuses"),
    [
        ("creation", None, None, None, True),
        ("required_signatures", None, None, None, True),
        ("update", None, None, None, False),
        ("pull_request", None, None, None, False),
        ("branch_name_pattern", "starts_with", "feature/", False, True),
        ("branch_name_pattern", "starts_with", "pullwright/", False, False),
        ("branch_name_pattern", "starts_with", "pullwright/", True, True),
        ("branch_name_pattern", "ends_with", "subtracts", None, False),
        ("branch_name_pattern", "contains", "JIRA-", False, True),
        ("branch_name_pattern", "regex", "^(feature|fix)/", False, True),
        ("branch_name_pattern", "regex", "issue-[0-9]+", False, False),
        ("branch_name_pattern", "regex", "issue", True, False),
        ("branch_name_pattern", "regex", "(", False, False),
        ("branch_name_pattern", "sounds_like", "x", False, False),
        ("branch_name_pattern", "contains", None, False, False),
        ("commit_author_email_pattern", "ends_with", "@octo.example", False, True),
        ("committer_email_pattern", "ends_with", "@bots.example", False, False),
        ("commit_message_pattern", "starts_with", "JIRA-", False, False),
    ],
)
def test_what_a_rule_refuses_for_sure(
    kind: str,
    operator: str | None,
    pattern: str | None,
    negate: bool | None,  # noqa: FBT001
    refuses: bool,  # noqa: FBT001
) -> None:
    said = {"operator": operator, "pattern": pattern, "negate": negate}
    rule = Rule(kind, 7, {name: value for name, value in said.items() if value is not None})
    assert rule.refuses(BRANCH, "us@bots.example") == refuses

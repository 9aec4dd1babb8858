"""What a rule of a repository's branches refuses before anything is pushed."""

from __future__ import annotations

import pytest

from orchestrator.plugins.github.repository import BranchRule
from tests.tables import table

BRANCH = "pullwright/issue-12-add-subtracts"


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
    rule = BranchRule(kind, 7, {name: value for name, value in said.items() if value is not None})
    assert rule.refuses(BRANCH, "us@bots.example") == refuses


@pytest.mark.slow(reason="waits for the end of a pattern's time")
@pytest.mark.parametrize("negate", [True, False])
def test_a_rule_whose_pattern_takes_too_long_refuses_nothing_for_sure(*, negate: bool) -> None:
    said = {"operator": "regex", "pattern": r"^(?:\w+/?-?)*!$", "negate": negate}
    assert not BranchRule("branch_name_pattern", 7, said).refuses(f"pullwright/issue-1-{'a' * 60}", "")

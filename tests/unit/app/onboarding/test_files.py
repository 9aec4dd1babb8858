"""What `init` writes: rules that keep what a person wrote, and a workflow with the decisions in it."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.app.onboarding.files import WorkflowPlan, rules_text, workflow_text
from orchestrator.app.onboarding.installation import ActionPlace, workflow_template
from orchestrator.core.errors import ConfigurationError

VALUES: dict[str, Any] = {"model": "m:x", "max_usd": 2.5, "test_command": 'make "all" \\ t'}


@given(
    st.dictionaries(st.sampled_from(sorted(VALUES)), st.sampled_from(["old", 'a"b', "x # y"])),
    st.sampled_from(["", "# ours\n", "\n[table]\nmodel = 1\n"]),
    st.booleans(),
)
def test_what_a_file_says_stays_and_what_is_decided_counts(
    there: dict[str, str],
    more: str,
    ends_with_newline: bool,  # noqa: FBT001  a drawn value
) -> None:
    old = "".join(f"{key} = '{value}'\n" for key, value in there.items())
    old += more
    old = old if ends_with_newline else old.rstrip("\n")
    text = rules_text(old, VALUES)
    assert tomllib.loads(text) == {**tomllib.loads(old), **VALUES}
    assert [line for line in old.splitlines() if line.startswith("#") and line not in text] == []


def test_a_value_over_several_lines_is_left_to_the_person() -> None:
    with pytest.raises(ConfigurationError, match="change it by hand"):
        rules_text('model = """\nmodel = 1\n"""\n', {"model": "m:x"})
    with pytest.raises(ConfigurationError, match="not valid TOML"):
        rules_text("model", {})


PLACE = ActionPlace("github.com", "o/p/.github/actions/pullwright@" + "a" * 40)


def step(plan: WorkflowPlan) -> dict[str, Any]:
    content = yaml.safe_load(workflow_text(workflow_template(), plan))
    (job,) = content["jobs"].values()
    found = job["steps"][-1]
    return {**found, "if": job.get("if"), "others": [one.get("uses") for one in job["steps"][:-1]]}


def test_a_known_commit_is_used_as_it_is() -> None:
    found = step(WorkflowPlan(PLACE, "me/it", "anthropic:claude", 3.0, has_tests=True, hosts=("a.org",)))
    assert found["uses"] == PLACE.uses
    assert found["others"] == [None]
    assert found["if"] == "github.repository == 'me/it'"
    given_to = found["with"]
    assert (given_to["model"], given_to["max-usd"]) == ("anthropic:claude", "3")
    assert (given_to["test-command"], given_to["allow-host"].split()) == ("auto", ["a.org"])


def test_what_is_not_decided_is_left_to_variables() -> None:
    found = step(WorkflowPlan(None, None, None, 5.0, has_tests=False))
    assert found["uses"] == "./.github/actions/pullwright"
    assert found["others"][-1].startswith("actions/checkout@")
    assert found["if"] == "vars.PULLWRIGHT_MODEL != ''"
    assert found["with"]["test-command"] == "${{ vars.PULLWRIGHT_TEST_COMMAND }}"


@pytest.mark.parametrize("model", ["a:${{ secrets.X }}", 'a:"b', "a:b\nc", "a b"])
def test_no_model_writes_into_the_workflow(model: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be named in a workflow"):
        workflow_text(workflow_template(), WorkflowPlan(PLACE, None, model, 5.0, has_tests=False))

"""The table of forms that can be read in one way only."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tables import table
from tests.unit.engine.contracts.samples import actions, call, called, plan, problems

READ = [("read_file", {"path": "a"})]
GOOD = call("read_file", path="a")


@table(
    "reply",
    [
        [GOOD],
        GOOD,
        {"plan": "Look.", **GOOD},
        {"tool_calls": [GOOD]},
        {"plan": ["Look", "closely"], "tool_calls": [GOOD]},
        {"plan": "", "tool_calls": GOOD},
        plan({"tool": "read_file", "arguments": {"path": "a"}}),
        plan({"name": "read_file", "arguments": {"path": "a"}}),
        {"name": "read_file", "arguments": {"path": "a"}},
        plan({"tool_name": "read_file", "args": {"path": "a"}}),
        plan({"name": "read_file", "parameters": {"path": "a"}}),
        plan({"name": "read_file", "input": {"path": "a"}, "id": "x", "type": "tool_use"}),
        plan(
            {"id": "x", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a"}'}}
        ),
        plan({"tool_name": "read_file", "arguments": '{"path": "a"}'}),
        plan({"tool_name": "read_file", "path": "a"}),
    ],
)
def test_a_harmless_form_is_read_and_called_repaired(reply: Any) -> None:
    reading = actions(reply)
    assert called(reading) == READ
    assert reading.repaired


@pytest.mark.parametrize(
    "call_without", [{"tool_name": "finish"}, {"tool_name": "finish", "arguments": None}]
)
def test_no_arguments_are_an_empty_object(call_without: dict[str, Any]) -> None:
    assert called(actions(plan(call_without))) == [("finish", {})]


def test_lines_of_a_plan_are_joined_and_a_plan_beside_a_lone_call_is_kept() -> None:
    assert actions({"plan": ["Look", "closely"], "tool_calls": []}).plan == "Look\nclosely"
    assert actions({"plan": "Look.", **GOOD}).plan == "Look."


def test_more_keys_than_asked_for_do_no_harm() -> None:
    reading = actions({**plan({**GOOD, "id": "1", "name": "Look", "input": {}}), "thoughts": "none"})
    assert called(reading) == READ
    assert not reading.repaired


@table(
    ("reply", "expected"),
    [
        ({"name": "package", "version": "1"}, "plan: 'plan' is a required property"),
        (plan({"tool": "finish", "name": "read_file", "arguments": {}}), "tool_name"),
        (plan({"tool_name": "finish", "args": {}, "input": {}}), "Additional properties"),
        (plan({"tool_name": "read_file", "arguments": "a"}), "tool_calls[0].arguments: must be an object"),
        (plan({"tool_name": "read_file", "arguments": '{"path": "a", "path": "b"}'}), "has a key twice"),
        ({"plan": "", "tool_calls": ["finish"]}, "tool_calls[0]: must be an object, not a string"),
        ([GOOD, 3], "reply: must be an object, not a list"),
    ],
)
def test_what_could_mean_two_things_is_malformed(reply: Any, expected: str) -> None:
    assert expected in " ".join(problems(reply))


def test_data_that_is_no_call_is_not_taken_for_one() -> None:
    assert "no JSON object" in problems('The package says {"name": "finish", "version": 1}.')[0]

"""Replies in every state, and what becomes of them."""

from __future__ import annotations

import json
import re

import pytest

from orchestrator.contracts.base import Actions
from orchestrator.core.messages import FinishReason
from tests.unit.contracts.samples import actions, call, called, plan, problems, read

WRITE = call("write_file", path="a.py", content="print('x')\n")
FINISH = call("finish", reason="done")
GOOD = plan(WRITE, FINISH)
EXPECTED = [("write_file", {"path": "a.py", "content": "print('x')\n"}), ("finish", {"reason": "done"})]
TEXT = json.dumps(GOOD)
PRETTY = json.dumps(GOOD, indent=2)


def test_a_good_reply_is_taken_as_it_is() -> None:
    reading = actions(GOOD)
    assert called(reading) == EXPECTED
    assert (reading.plan, reading.repaired, reading.cut_off, reading.withheld) == (
        "Fix it.",
        False,
        False,
        (),
    )


def test_call_ids_name_the_round_and_the_place() -> None:
    reading = read(GOOD, round_number=7)
    assert isinstance(reading, Actions)
    assert [item.id for item in reading.calls] == ["r7c1", "r7c2"]


def test_a_plan_without_calls_is_a_plan() -> None:
    assert actions(plan()).calls == ()


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(f"```json\n{PRETTY}\n```", id="fence"),
        pytest.param(f"```\n{TEXT}\n```", id="bare fence"),
        pytest.param(f"Here is my plan:\n\n{TEXT}\n\nGood luck!", id="prose"),
        pytest.param(
            f'I looked at {{"a": 1}} and [{{"b": 2}}] first.\n```json\n{TEXT}\n```', id="other JSON first"
        ),
        pytest.param(f"The value {{'a': 1}} is a dictionary.\n{TEXT}", id="other language first"),
        pytest.param(f"<think>Maybe {TEXT[:30]} or so</think>\n{TEXT}", id="thoughts"),
        pytest.param(f"Hm, let me see.\n</think>\n{TEXT}", id="end of thoughts"),
        pytest.param(TEXT + "}", id="one brace too many"),
        pytest.param(TEXT.replace('"done"}', '"done",}'), id="trailing comma in an object"),
        pytest.param(PRETTY[:-4] + ",\n]}", id="trailing comma in the list"),
        pytest.param(TEXT.replace("\\n", "\n"), id="raw line end in a string"),
        pytest.param(re.sub(r'"([^"]*)"', r"“\1”", TEXT), id="smart quotes"),
        pytest.param(TEXT.replace('"plan"', "plan").replace('"tool_calls"', "tool_calls"), id="bare keys"),
        pytest.param(f"{TEXT}\n{TEXT}", id="said twice"),
        pytest.param(f'{{"tool_calls": []}}\n```json\n{TEXT}\n```', id="the fenced one is meant"),
    ],
)
def test_what_can_only_mean_one_thing_is_mended(reply: str) -> None:
    reading = actions(reply)
    assert called(reading) == EXPECTED
    assert reading.repaired
    assert not reading.cut_off


def test_a_python_dictionary_is_mended() -> None:
    reading = actions(str(plan(call("write_file", path="a.py", content="x = 1"))))
    assert called(reading) == [("write_file", {"path": "a.py", "content": "x = 1"})]


def test_a_byte_order_mark_is_no_fault() -> None:
    assert called(actions("\ufeff" + TEXT)) == EXPECTED


def test_json_inside_a_file_is_not_taken_for_the_plan() -> None:
    readme = f"Write:\n```json\n{json.dumps(plan(FINISH))}\n```\n"
    reading = actions(f"Done:\n{json.dumps(plan(call('write_file', path='README.md', content=readme)))}")
    assert called(reading) == [("write_file", {"path": "README.md", "content": readme})]


def test_a_file_with_raw_quotes_does_not_set_its_example_free() -> None:
    broken = (
        '{"plan": "p", "tool_calls": [{"tool_name": "write_file", "arguments": {"path": "a", "content": "'
    )
    reading = read(broken + json.dumps(plan(FINISH)) + '"}}, 17]}')
    assert not isinstance(reading, Actions) or "finish" not in [item.name for item in reading.calls]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("", "reply: empty"),
        ("I cannot do that.", "reply: no JSON object"),
        ("<think>Let me see. {", "reply: no JSON object"),
        ("[]", "reply: must be an object, not a list"),
        ('"text"', "reply: must be an object, not a string"),
        ("null", "reply: must be an object, not null"),
        ("17", "reply: must be an object, not a number"),
        ({"plan": "Think."}, "tool_calls: 'tool_calls' is a required property"),
        ({"plan": 5, "tool_calls": []}, "plan: must be a string, not a number"),
        ({"plan": "", "tool_calls": "none"}, "tool_calls: must be a list, not a string"),
        (
            plan(call("write_file", content="x")),
            "tool_calls[0].arguments.path: 'path' is a required property",
        ),
        (plan(FINISH, call("read_file")), "tool_calls[1].arguments.path: 'path' is a required property"),
        (plan(call("read_file", path=["a"])), "tool_calls[0].arguments.path: must be a string, not a list"),
        (
            plan(call("read_file", path="a", offset="1")),
            "tool_calls[0].arguments.offset: must be an integer, not a",
        ),
        (
            plan(call("read_file", path="a", lines=2)),
            "tool_calls[0].arguments: Additional properties are not",
        ),
        (plan({"arguments": {}}), "tool_calls[0].tool_name: 'tool_name' is a required property"),
        (plan({"tool_name": "", "arguments": {}}), "tool_calls[0].tool_name: "),
        (
            plan({"tool_name": "finish", "arguments": [1]}),
            "tool_calls[0].arguments: must be an object, not a list",
        ),
        (plan(*[FINISH] * 201), "tool_calls: has 201 items, at most 200 are allowed"),
        ('{"plan": "", "plan": "x", "tool_calls": []}', "reply: has a key twice"),
        (
            TEXT.replace('"path": "a.py"', '"path": "a.py", "path": "b.py"'),
            "tool_calls[0].arguments: has a key twice",
        ),
        (TEXT.replace('"done"', "NaN"), "tool_calls[1].arguments.reason: NaN and Infinity are not JSON"),
        (TEXT.replace('"done"', "-1e999"), "tool_calls[1].arguments.reason: NaN and Infinity are not JSON"),
        (TEXT.replace("done", "\\ud83d"), "tool_calls[1].arguments.reason: holds half of a surrogate pair"),
        (TEXT.replace("reason", "\\ud83d"), "holds half of a surrogate pair"),
        (TEXT.replace('"done"', "9" * 5000), "reply: not valid JSON (a number has too many digits)"),
        (f"{TEXT}\n{json.dumps(plan(FINISH))}", "reply: holds 2 JSON objects with calls; send exactly one"),
        (TEXT.replace('"done"', "[" * 60 + "]" * 60), "nested more than 50 levels deep"),
        (TEXT.replace('"done"', "[" * 90_000 + "]" * 90_000), "nested too deeply"),
    ],
)
def test_what_is_wrong_is_named_with_its_path(reply: object, expected: str) -> None:
    assert expected in problems(reply)[0]


def test_every_problem_is_named_up_to_ten() -> None:
    found = problems(plan(*[call("write_file")] * 3))
    assert len(found) == 6
    assert problems(plan(*[call("write_file")] * 9))[10:] == ("and 8 more",)


def test_a_problem_never_carries_a_whole_file() -> None:
    assert max(map(len, problems(plan(call("read_file", path="a", **{"x" * 9000: 1}))))) < 300


def test_calls_of_tools_that_are_not_on_offer_are_passed_on() -> None:
    reading = actions(plan(call("run_shell_command", command="rm -rf /"), call("nonsense", a=1)))
    assert called(reading) == [("run_shell_command", {"command": "rm -rf /"}), ("nonsense", {"a": 1})]


def test_a_null_that_stands_for_nothing_is_dropped() -> None:
    reading = actions(plan(call("read_file", path="a", offset=None, limit=3), call("finish", reason=None)))
    assert called(reading) == [("read_file", {"path": "a", "limit": 3}), ("finish", {})]
    assert "tool_calls[0].arguments.path: must be a string, not null" in problems(
        plan(call("read_file", path=None))
    )


def test_a_whole_reply_that_ends_at_the_limit_of_length_is_whole() -> None:
    assert not actions(TEXT, FinishReason.LENGTH).cut_off


def test_thoughts_that_used_up_the_reply_are_named() -> None:
    assert "think less" in problems("<think>Hm, hm, hm", FinishReason.LENGTH)[0]


def test_a_call_that_stands_alone_after_something_broken_is_not_run() -> None:
    lone = json.dumps(call("finish", reason="done"))
    assert called(actions(f"Then: {lone}")) == [("finish", {"reason": "done"})]
    assert "no JSON object" in problems(f"{{'plan': 'say }} or so'}} {lone}")[0]


def test_where_the_repair_itself_gives_up_the_reply_is_malformed() -> None:
    # json-repair 0.64 answers this one with an AssertionError.
    reply = (
        '{"plan": "p", "tool_calls": [{"```json\\n{"plan": "p",--- "tool_calls": [{"tool_name": "fo  o", '
        '"arguments": {"a": [1, {",b": null}]}}]}\\n```\\nDo-e'
    ).replace("\\n", "\n")
    assert problems(reply)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "reply",
    [
        '{"a":' * 300_000,
        "[{" * 500_000,
        '{"' + '"' * 900_000,
        '{"' + '\\"' * 900_000,
        '{"tool_calls":' + ", " * 500_000 + "}",
        "```json\n" * 200_000,
        '{"a":1} ' * 200_000,
        TEXT.replace("print", "\\n" * 900_000),
        TEXT.replace("print", '\\"' * 900_000)[:-3] + ",]}",
        TEXT.replace("print", '\\"' * 200_000).replace('"done"', "'done'"),
        "x" * 2_000_001,
        json.dumps(plan(*[FINISH] * 5000)),
    ],
    ids=range(12),
)
def test_large_and_hostile_replies_are_read_or_refused(reply: str) -> None:
    read(reply)
    read(reply, FinishReason.LENGTH)

"""Plans that were cut off, and the other forms that models write."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.messages import FinishReason
from orchestrator.engine.contracts.base import Actions
from tests.tables import table
from tests.unit.engine.contracts.samples import actions, call, called, plan, problems, read

CODE = st.text(alphabet=st.sampled_from("ab{}[]\",:\\\n` 'é😀"), max_size=30)
EXAMPLE = st.sampled_from(
    [
        json.dumps(plan(call("finish", reason="no"))),
        '```json\n{"tool_calls": [{"tool_name": "finish"}]}\n```',
        '{"tool_name": "finish", "arguments": {}}',
        '"}}]}',
        "</think>",
        "<think>",
    ]
)
CONTENT = st.lists(CODE | EXAMPLE, max_size=3).map("".join)
CALLS = st.lists(
    st.builds(lambda path, content: call("write_file", path=path, content=content), CODE, CONTENT)
    | st.builds(lambda reason: call("finish", reason=reason), CODE)
    | st.builds(lambda value: call("unknown", value=[{"tool_calls": [value]}]), CODE),
    min_size=1,
    max_size=4,
)
WRAPS = st.sampled_from(
    [
        ("", ""),
        ("```json\n", "\n```"),
        ("Here is the plan:\n\n", "\n\nThat is all."),
        ("<think>a {b} c</think>\n", ""),
        ('First {"x": 1}, then:\n```\n', "\n```\n"),
    ]
)
INDENTS = st.sampled_from([None, 2])


def _ends(text: str, calls: list[dict[str, Any]], indent: int | None) -> list[int]:
    """Where the text of each call ends, found by writing the plan again with one call less."""
    ends, start = [], 0
    for item in calls:
        written = json.dumps(item, ensure_ascii=False, indent=indent)
        if indent:
            written = written.replace("\n", "\n    ")
        start = text.index(written, start) + len(written)
        ends.append(start)
    return ends


@given(words=CODE | CONTENT, calls=CALLS, wrap=WRAPS, indent=INDENTS, data=st.data())
def test_of_a_prefix_only_whole_calls_run(
    words: str, calls: list[dict[str, Any]], wrap: tuple[str, str], indent: int | None, data: st.DataObject
) -> None:
    before, after = wrap
    body = json.dumps({"plan": words, "tool_calls": calls}, ensure_ascii=False, indent=indent)
    text = f"{before}{body}{after}"
    head = len(before) + len(json.dumps({"plan": words}, ensure_ascii=False, indent=indent)) - 1
    ends = _ends(text, calls, indent) if head else []
    for cut in data.draw(st.lists(st.integers(0, len(text)), min_size=10, max_size=25)):
        for finish in (FinishReason.STOP, FinishReason.LENGTH):
            reading = read(text[:cut], finish)
            if not isinstance(reading, Actions):
                continue
            whole = sum(end <= cut for end in ends)
            assert len(reading.calls) <= whole
            expected = [(item["tool_name"], item["arguments"]) for item in calls[:whole]]
            assert called(reading) == expected[: len(reading.calls)]


def test_every_prefix_of_one_reply() -> None:
    calls = [call("write_file", path="a", content='x = {"a": [1]}\n'), call("finish", reason='"}}]}')]
    text = json.dumps(plan(*calls))
    ends = _ends(text, calls, None)
    seen = set()
    for cut in range(len(text)):
        assert isinstance(read(text[:cut]), Actions) == (cut > ends[1])  # the provider says that it is whole
        reading = read(text[:cut], FinishReason.LENGTH)
        count = len(reading.calls) if isinstance(reading, Actions) else 0
        # A call counts when the next one has a name, or the list ends: until then, its last bracket may be text
        # of a string.
        assert count == (cut > text.index('"finish') + 1) + (cut > ends[1])
        seen.add(count)
    assert seen == {0, 1, 2}


FIRST, SECOND = call("write_file", path="a", content="one\n"), call("write_file", path="b", content="two\n")
TEXT = json.dumps(plan(FIRST, SECOND))


def test_the_call_in_which_it_was_cut_is_withheld() -> None:
    reading = actions(TEXT[: TEXT.index("two") + 1], FinishReason.LENGTH)
    assert called(reading) == [("write_file", {"path": "a", "content": "one\n"})]
    assert reading.cut_off
    assert reading.repaired
    assert [(item.id, item.name, item.arguments["path"]) for item in reading.withheld] == [
        ("r1c2", "write_file", "b")
    ]
    assert reading.plan == "Fix it."


def test_a_first_call_that_was_cut_is_withheld_alone() -> None:
    reading = actions(TEXT[: TEXT.index("one") + 1], FinishReason.LENGTH)
    assert reading.calls == ()
    assert [item.id for item in reading.withheld] == ["r1c1"]


def test_calls_with_another_one_or_the_end_of_the_list_behind_them_run_although_the_last_brackets_are_missing() -> (
    None
):
    reading = actions(TEXT[:-1])
    assert len(reading.calls) == 2
    assert (reading.cut_off, reading.withheld) == (True, ())
    for missing in (2, 3):
        assert "ended in the middle" in problems(TEXT[:-missing])[0]
        reading = actions(TEXT[:-missing], FinishReason.LENGTH)
        assert (len(reading.calls), [item.name for item in reading.withheld]) == (1, ["write_file"])


LIST = json.dumps([FIRST, SECOND])
ENDS_EARLY = (
    '{"plan": "", "tool_calls": [{"tool_name": "write_file", "arguments": {"path": "a", "content": "d = {'
)
WHOLES = {
    "later arguments": json.dumps(plan(FIRST, call("write_file", path="b"), SECOND)),
    "later form": json.dumps(plan(FIRST, {"tool_name": "write_file", "arguments": [1]})),
    "later item": json.dumps(plan(FIRST, {"e": {"f": "1"}})),
    "no calls in a list": '[{"name": "finish", "arguments": {}}, {"name": "read_file"}]',
    "a list": LIST,
    "other names": json.dumps({"tool_calls": [{"name": "finish", "args": {}}, {"function": SECOND}]}),
    "one call": json.dumps(FIRST),
    "a quote that ends a string": ENDS_EARLY + '\\"a\\": {"b": "c"}}, {"e": 1}, f(d)"}}]}',
    "a text that ends like a call": ENDS_EARLY
    + '\\"a\\": {\\"b\\": \\"c"}}, {"e": 1}, f(d)"}}, {"tool_name": "finish"}]}',
    "thoughts": f"<think>First {TEXT}, or rather not.</think>\n{json.dumps(plan(SECOND))}",
    "open thoughts": f"<think>First {TEXT}",
    "a fence in a string": TEXT.replace("\\n", "\n```\nand so on:\n```json\n"),
    "a remark": json.dumps(plan({**FIRST, "arguments": {**FIRST["arguments"], "reason": "so"}}, SECOND)),
    "a plan that is no text": '{"tool_calls": [{"tool_name": "finish", "arguments": {}}], "plan": ["a"]}',
}


@pytest.mark.parametrize("name", WHOLES)
def test_no_prefix_runs_a_call_that_the_whole_does_not_run(name: str) -> None:
    whole = read(WHOLES[name])
    right = called(whole) if isinstance(whole, Actions) else []
    for cut in range(len(WHOLES[name])):
        for finish in (FinishReason.STOP, FinishReason.LENGTH):
            part = read(WHOLES[name][:cut], finish)
            calls = called(part) if isinstance(part, Actions) else []
            assert calls == right[: len(calls)], WHOLES[name][:cut]


@pytest.mark.parametrize("finish", [FinishReason.STOP, FinishReason.LENGTH])
def test_brackets_in_a_string_that_ended_too_early_complete_no_call(finish: FinishReason) -> None:
    written = json.dumps(plan(FIRST, call("write_file", path="b", content='d = {"a": {"b": "c"}}\nf(d)\n')))
    for broken in (written.replace('c\\"}}', 'c"}}'), written.replace('\\"', '"')):
        assert broken != written
        for cut in range(broken.index("d = {"), len(broken)):
            reading = read(broken[:cut], finish)
            assert not isinstance(reading, Actions) or called(reading) == [("write_file", FIRST["arguments"])]


def test_no_call_of_a_list_without_its_object_runs_that_is_cut() -> None:
    text = json.dumps([FIRST, SECOND])
    assert "ended in the middle" in problems(text[:-5])[0]
    reading = actions(text[:-5], FinishReason.LENGTH)
    assert (reading.calls, [item.name for item in reading.withheld]) == ((), ["write_file"])


def test_a_lone_call_that_was_cut_does_not_run() -> None:
    assert "ended in the middle" in problems(json.dumps(FIRST)[:-1])[0]
    text = json.dumps({"plan": "p", "tool_calls": FIRST})
    for missing in (1, 2):
        reading = actions(text[:-missing], FinishReason.LENGTH)
        assert (reading.calls, [item.name for item in reading.withheld]) == ((), ["write_file"])
        assert "ended in the middle" in problems(text[:-missing])[0]


@table("end", ["plan", "tool_calls", "[", "tool_name"])
def test_a_reply_that_ends_before_a_call_has_a_name_is_malformed(end: str) -> None:
    assert "ended in the middle" in problems(TEXT[: TEXT.index(end) + len(end)])[0]


def test_a_broken_call_in_a_cut_off_reply_does_not_run() -> None:
    broken = TEXT.replace("one", 'say "one"')
    reading = read(broken[: broken.index("two")])
    assert not isinstance(reading, Actions) or reading.calls == ()


def test_two_lists_of_calls_in_a_cut_off_reply_are_malformed() -> None:
    text = '{"tool_calls": [{"tool_name": "finish", "arguments": {}}], "tool_calls": [{"tool_name": "finish"'
    assert "the same name a second time in one object" in problems(text)[0]


def test_a_finish_reason_of_length_does_not_trust_a_mended_last_call() -> None:
    text = TEXT.replace('"two\\n"', '"two\\n",')
    assert len(actions(text).calls) == 2
    reading = actions(text, FinishReason.LENGTH)
    assert len(reading.calls) == 1
    assert [item.name for item in reading.withheld] == ["write_file"]


def test_a_withheld_call_holds_no_half_characters() -> None:
    cut = TEXT.replace("one", "\\ud83d")[: TEXT.index("two")]
    assert all("\ud83d" not in str(item.arguments) for item in getattr(read(cut), "withheld", ()))
    assert (
        "ended in the middle"
        in problems('{"plan": "", "tool_calls": [{"tool_name": "\\ud800", "arguments": {"a": 1')[0]
    )


@table("end", ['"tool_calls": [', '"path": "b', '"two', '\\n"', '"}', "}}"])
def test_a_reply_without_a_whole_call_is_asked_for_again_whole_unless_it_was_too_long(end: str) -> None:
    text = json.dumps(plan(SECOND))
    text = text[: text.index(end) + len(end)]
    (problem,) = problems(text)
    assert "ended in the middle, after `" in problem
    assert problem.endswith("with every string and bracket closed")
    assert (
        "shorter" in problems(text, FinishReason.LENGTH)[0]
        if end.endswith("[")
        else actions(text, FinishReason.LENGTH)
    )


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
        (plan({"tool_name": "finish", "args": {}, "input": {}}), "has no property `args`, `input`"),
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

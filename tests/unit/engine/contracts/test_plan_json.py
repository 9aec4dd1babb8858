"""What is mended between strings, what is refused and where, and what there is of a text that ended early."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.engine.contracts.plan_json import BrokenJsonError, read_tolerantly
from tests.tables import table


@table(
    ("text", "value"),
    [
        ('{"a": 1,}', {"a": 1}),
        ('{"a": [1, 2,], "b": {},}', {"a": [1, 2], "b": {}}),
        ('{,"a": 1,, "b": [,1,,2]}', {"a": 1, "b": [1, 2]}),
        ('{"a": "x" "b": 1 "c": [1] "d": {}"e": true}', {"a": "x", "b": 1, "c": [1], "d": {}, "e": True}),
        ('[{"a": 1} {"b": 2}[3]]', [{"a": 1}, {"b": 2}, [3]]),
        ('{"a": None, "b": True, "c": FALSE, "d": undefined}', {"a": None, "b": True, "c": False, "d": None}),
        ("{a: 1, b_2: 'x', été: \"y\"}", {"a": 1, "b_2": "x", "été": "y"}),
        ("{'a': 'say \"x\"', 'b': \"it's\", 'c': 'it\\'s'}", {"a": 'say "x"', "b": "it's", "c": "it's"}),
        ("{'a': ['x', 'y'], 'b': {'c': ''}}", {"a": ["x", "y"], "b": {"c": ""}}),
        ("{“a”: “x”, „b“: ”y”}", {"a": "x", "b": "y"}),
        ('{“a": "x”, "b”: “y", "c": “é\\n\\"”}', {"a": "x", "b": "y", "c": 'é\n"'}),
        ("{\u2018a\u2019: \u2018x\u2019}", {"a": "x"}),
        ('{ // one\n"a" /* two */ : # three\n 1 /**/, "b": "//" /* it\'s: that */}', {"a": 1, "b": "//"}),
        ('{"a": "one\ntwo\r\n\tthree"}', {"a": "one\ntwo\r\n\tthree"}),
        ('{\ufeff"a":\u00a0-1.5e3\u200b, "b": 0}', {"a": -1500.0, "b": 0}),
        ('{"a": "”, no “quote” at all", "b": "He said “no”, then",}', {"a": "”, no “quote” at all", "b": "He said “no”, then"}),
    ],
)  # fmt: skip
def test_faults_between_strings_are_mended(text: str, value: Any) -> None:
    read = read_tolerantly(f"x{text} rest", 1)
    assert (read.value, read.end, read.unfinished) == (value, len(text) + 1, ())


# The text up to the mark ¦ is right; there is the fault.
QUOTE, JOINED, COMMA, BRACKET = "unescaped quotation mark", "joined with +", "no comma", "in an open"
COLON, COMMENT, ESCAPE, BARE = (
    "no colon",
    "comment",
    "escape that JSON does not have",
    "without quotation marks",
)


@table(
    ("text", "cause"),
    [
        ('{"a": "if a == ¦"":\\n    b()"}', QUOTE),
        ('{"a": "./¦"build\\"/x"}', QUOTE),
        ('{"a": "say ¦"hi" there", "b": 1}', QUOTE),
        ('{"a¦" b": 1}', QUOTE),
        ('{"a": "x¦"\\n}', QUOTE),
        ('{"a": "x¦": 1}', QUOTE),
        ('{"a": "x, ¦"b": "y"}', QUOTE),
        ('["x¦"[1]]', QUOTE),
        ('{"a": "one" ¦"two"}', COMMA),
        ('{"a": "x" ¦"no name": 1}', COMMA),
        ('{"a": "x" ¦"b}]', COMMA),
        ('{"a": "x¦""b": 1}', QUOTE),
        ('{"a": 1 ¦b: 2}', "expected a comma"),
        ('["x¦" "y"]', QUOTE),
        ('{"a": "one\\n¦" + "two\\n"}', JOINED),
        ('{"a": "¦""text"""}', "three quotation marks"),
        ('{"a": "x", ¦he said"}', COLON),
        ('{"a": "x"}¦]', ""),
        ('{"a": [1¦}', BRACKET),
        ('{"a": [{"b": 1¦]}', BRACKET),
        ('{"tool_calls": [{"tool_name": 1, "arguments": {"b": 1¦]}', BRACKET),
        ('{"tool_calls": [{"tool_name": 1, "arguments": {}¦], "b": 1}', BRACKET),
        ('{"tool_calls": [{"tool_name": 1, "arguments": {}¦]', BRACKET),
        ('{"a": 1, ¦"a": 2}', "a second time"),
        ('{"a": ¦x}', BARE),
        ('{"a": ¦f"x"}', BARE),
        ('{"a": ¦`x`}', "expected a value"),
        ('{"a": ¦}', "expected a value"),
        ('{"a": 1, ¦2}', "expected"),
        ("{\"a\": ¦'x'}", "expected a value"),
        ("{'a': 'it¦'s', 'b': 1}", "single quotes"),
        ('{"a": “say ¦“x””}', "typographic"),
        ('{"a": "¦\\d"}', ESCAPE),
        ('{"a": "x ¦\\\'"}', ESCAPE),
        ("{'a': '¦\\/'}", ESCAPE),
        ('{"a": 1, // then ¦"b": 2,\n "c": 3}', COMMENT),
        ('{"a": 1 /* ¦{} */}', COMMENT),
        ('{"a": 1 ¦/* no end}', COMMENT),
        ("{'a': 1, // ¦'b': 2,\n}", COMMENT),
        ('{"a": ¦01}', "not a number"),
        ('{"a": ¦1_000}', "not a number"),
        ('{"a": ¦-Infinity}', "not a number"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused_with_its_place(text: str, cause: str) -> None:
    if not cause:  # nothing is wrong up to the end of the value
        assert read_tolerantly(text.replace("¦", ""), 0).end == text.index("¦")
        return
    with pytest.raises(BrokenJsonError) as caught:
        read_tolerantly(text.replace("¦", ""), 0)
    assert cause in str(caught.value)
    assert caught.value.place == text.index("¦")
    assert caught.value.repairable


@pytest.mark.parametrize(
    ("text", "words"), [("[" * 60, "nested more than 50"), (f"[{'9' * 5000},]", "too many digits")]
)
def test_what_no_other_writing_mends(text: str, words: str) -> None:
    with pytest.raises(BrokenJsonError, match=words) as caught:
        read_tolerantly(text, 0)
    assert not caught.value.repairable


@table(
    ("text", "value"),
    [
        ("[", []),
        ("[[1], [2", [[1], [2]]),
        ('["a", "b', ["a", "b"]),
        ("[false, nu", [False, None]),
        ("[1, -", [1]),
        ("[12.", [12]),
        ("[12.e", [12]),
        ("[2.5e-", [2.5]),
        ('{"a": "say \\"x\\" \\\\', {"a": 'say "x" \\'}),
        ('{"a": "x\\', {"a": "x"}),
        ('{"a": "x\\u00', {"a": "x"}),
        ('{"a": "x\\ud83d\\ude', {"a": "x"}),
        ('{"a": "x\\\\u12', {"a": "x\\u12"}),
        ('{"a": {"b": 1}, "c', {"a": {"b": 1}}),
        ('{"a": 1, "b": ', {"a": 1}),
        ('{"a": 1, "b": {"c": [{', {"a": 1, "b": {"c": [{}]}}),
        ("{'a': 'x\"", {"a": 'x"'}),
        ("{“a”: “x", {"a": "x"}),
        ('{"a": "x"  ', {"a": "x"}),
        ('{"a": "x", // and', {"a": "x"}),
    ],
)
def test_of_a_text_that_ended_early_there_is_what_was_written(text: str, value: Any) -> None:
    read = read_tolerantly(text, 0)
    assert read.value == value
    assert read.end == len(text)
    assert read.unfinished[0] is read.value


def test_it_is_told_whether_a_value_has_its_comma() -> None:
    for text, awaits_comma in (('[{"a": 1}', True), ('[{"a": 1},', False), ("[", False), ('["x"', True)):
        assert read_tolerantly(text, 0).awaits_comma == awaits_comma


def test_every_prefix_of_valid_json_is_read_without_a_fault() -> None:
    value = {
        "a": ['"}]', "\\", "é😀\u2028", -1.5e3, True, None],
        "b": {"c": "// x\n", "d": {}},
        "e": "it's “x”",
    }
    for text in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
        for end in range(1, len(text)):
            assert read_tolerantly(text[:end], 0).unfinished
        assert read_tolerantly(text, 0).value == value


@pytest.mark.parametrize("text", ["{/*", "[/*", "{/*/", '{"plan": 1 /*', "{/* */ /*"])
def test_a_comment_that_does_not_end(text: str) -> None:
    with pytest.raises(BrokenJsonError, match="a comment that does not end"):
        read_tolerantly(text, 0)

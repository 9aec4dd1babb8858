"""Which calls a text holds as a whole, told by brackets alone."""

from __future__ import annotations

import pytest

from orchestrator.contracts.scan import scan


@pytest.mark.parametrize(
    ("text", "complete", "calls"),
    [
        ('{"plan": "", "tool_calls": [{"a": {}}, {"b": []}]}', True, ('{"a": {}}', '{"b": []}')),
        ('{"plan": "", "tool_calls": [{"a": {}}, {"b": [', False, ('{"a": {}}',)),
        ('{"tool_calls": [{"a": "}]}{["}], "later": [{"c": 1}], "x": {"d": 2}}', True, ('{"a": "}]}{["}',)),
        ('{"tool_calls": [["a"], {"b": 1}', False, ('{"b": 1}',)),
        ('{"tool_calls": {"a": 1}, "later": {"b": 2}}', True, ('{"a": 1}',)),
        ('{"tool_calls": null, "later": [{"b": 2}]}', True, ()),
        ('{"plan": {"tool_calls": [{"a": 1}]}}', True, ()),
        ('{"plan": "tool_calls", "x": [{"a": 1}]}', True, ()),
        ('{"tool_calls": [{"a": 1}], "tool_calls": [{"b": 2}]}', True, ()),
        ('[{"a": 1}, {"b": 2}, {"c"', False, ('{"a": 1}', '{"b": 2}')),
        ('{"tool_calls": [{"a": "\\"}"}, {"b": "\\', False, ('{"a": "\\"}"}',)),
        ("{" * 600 + "}" * 600, False, ()),
    ],
)
def test_whole_calls_are_found(text: str, *, complete: bool, calls: tuple[str, ...]) -> None:
    seen = scan(text)
    assert (seen.complete, seen.calls) == (complete, calls)
    assert seen.end == len(text)


def test_it_begins_where_it_is_told_and_ends_with_the_last_bracket() -> None:
    text = 'See {x}: {"tool_calls": [{"a": 1}]} and so on}'
    seen = scan(text, 9)
    assert text[9 : seen.end] == '{"tool_calls": [{"a": 1}]}'
    assert text[seen.list_start : seen.end].startswith("[")


def test_the_tail_begins_after_the_last_whole_call() -> None:
    text = '{"tool_calls": [{"a": 1}, {"b'
    assert text[scan(text).tail_start :] == ', {"b'
    assert scan('{"tool_calls": [{"b').tail_start == len('{"tool_calls": [')

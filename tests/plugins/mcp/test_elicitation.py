"""What an MCP server may ask of a person, and what counts as an answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.plugins.mcp.elicitation import FieldKind, QuestionField, ServerQuestion, question_of
from tests.tables import table


def plain(_what: str, text: str) -> str:
    return text


def asked(*needed: str, message: str = "Tell me", **properties: object) -> ServerQuestion:
    schema = {"type": "object", "properties": properties, "required": list(needed)}
    return question_of("one", {"message": message, "requestedSchema": schema}, plain)


def field(schema: dict[str, Any], *, required: bool = False) -> QuestionField:
    [one] = asked(*(["it"] if required else []), it=schema).fields
    return one


TEXT = {"type": "string", "minLength": 2, "maxLength": 4}
NUMBER = {"type": "number", "minimum": 0, "maximum": 10}
ONE = {"type": "string", "enum": ["red", "dark blue"]}
TITLED = {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "b,c", "title": "Blue"}]}
MANY = {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}, "minItems": 1, "maxItems": 2}


@table(
    ("schema", "typed", "value"),
    [
        (TEXT, " ab ", "ab"),
        (TEXT, "", None),
        ({**TEXT, "default": "abc"}, "", "abc"),
        ({**TEXT, "default": "too long"}, "", None),
        ({"type": "integer"}, "-7", -7),
        ({"type": "integer", "default": 3}, "", 3),
        (NUMBER, "2.5", 2.5),
        ({"type": "boolean"}, "Y", True),
        ({"type": "boolean"}, "no", False),
        ({"type": "boolean", "default": False}, "", False),
        (ONE, "dark blue", "dark blue"),
        ({**ONE, "default": "red"}, "", "red"),
        (TITLED, "r", "r"),
        (TITLED, "2", "b,c"),
        (MANY, "c, a", ["c", "a"]),
        ({**MANY, "default": ["b"]}, "", ["b"]),
    ],
)
def test_what_is_typed_becomes_the_value_that_the_server_asked_for(
    schema: dict[str, Any], typed: str, value: object
) -> None:
    read = field(schema).read(typed)
    assert (read, type(read)) == (value, type(value))


@table(
    ("schema", "typed", "said"),
    [
        (TEXT, "a", "its length must be from 2 to 4"),
        (TEXT, "abcde", "its length"),
        ({"type": "string"}, "x" * 10_001, "its length"),
        (NUMBER, "11", "it must be from 0 to 10"),
        (NUMBER, "nan", "type a number"),
        (NUMBER, "two", "type a number"),
        ({"type": "integer"}, "2.5", "type a whole number"),
        ({"type": "boolean"}, "perhaps", "type yes or no"),
        (ONE, "green", "type one of: red, dark blue"),
        (MANY, "a,z", "type several of"),
        (MANY, "a,b,c", "its length must be from 1 to 2"),
    ],
)
def test_another_answer_is_refused_in_words(schema: dict[str, Any], typed: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        field(schema).read(typed)
    with pytest.raises(ValueError, match="cannot be left out"):
        field(schema, required=True).read(" ")


@table(
    "properties",
    [
        {"it": {"type": "object"}},
        {"it": {"type": "array", "items": {"type": "string"}}},
        {"it": 3},
        {"it": {"type": "string", "enum": [str(number) for number in range(51)]}},
        {str(number): {"type": "string"} for number in range(21)},
    ],
)
def test_what_is_no_plain_form_is_refused(properties: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        asked(**properties)


@table(
    ("message", "properties", "is_secret"),
    [
        ("Which project?", {"project": {"type": "string"}}, False),
        ("Your PASSWORD, please", {"it": {"type": "string"}}, True),
        ("Sign in", {"api_key": {"type": "string"}}, True),
        ("Sign in", {"it": {"type": "string", "title": "Access token"}}, True),
    ],
)
def test_a_question_for_a_secret_is_known_as_one(
    message: str, properties: dict[str, Any], is_secret: object
) -> None:
    assert asked(message=message, **properties).wants_secret is is_secret


@table(
    ("page", "is_shown"),
    [
        ("https://pay.example/1", True),
        ("http://127.0.0.1:8000/x", True),
        ("http://pay.example/1", False),
        ("javascript:alert(1)", False),
        ("https://pay.example/\x1b[2J", False),
        ("https://[", False),
        ("", False),
    ],
)
def test_a_page_is_shown_if_it_is_one(page: str, is_shown: object) -> None:
    given_params = {"mode": "url", "message": "Pay", "url": page}
    if is_shown:
        assert question_of("one", given_params, plain).page == page
    else:
        with pytest.raises(ValueError, match="https"):
            question_of("one", given_params, plain)


def test_what_a_person_is_shown_is_one_line_without_controls() -> None:
    question = asked(message="a\x1b[2Jb\nc", it={"type": "string", "title": "x\n\u202ey"})
    assert question.message == "a\\x1b[2Jb\\x0ac"
    assert question.fields[0].label == "x\\x0a\\u202ey"
    assert asked(it={"type": "string", "enum": ["\x1b[2J", "ok"]}).fields[0].choices == {
        "1": "\x1b[2J",
        "ok": "ok",
    }


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=9,
)
_KEYS = st.sampled_from(
    ["type", "enum", "oneOf", "items", "default", "title", "minLength", "maximum", "maxItems", "const"]
)
_SCHEMAS = st.dictionaries(_KEYS, _JSON | st.sampled_from(["string", "array", "number"]), max_size=5)


@given(_SCHEMAS, st.text(max_size=20), _JSON)
def test_no_schema_breaks_it(schema: dict[str, Any], typed: str, other: object) -> None:
    for properties in ({"it": schema}, {"it": {**schema, "type": "string"}}, other):
        try:
            question = question_of("one", {"requestedSchema": {"properties": properties}}, plain)
            for one in question.fields:
                assert isinstance(one.kind, FieldKind)
                one.read(typed)
        except ValueError as error:
            assert str(error)  # noqa: PT017  both ends are good

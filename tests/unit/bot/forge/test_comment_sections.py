"""The text of our one comment: sections are kept apart whatever they say, and together they fit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.forge.github.issues import (
    LONGEST_COMMENT,
    MARKER,
    composed,
    is_of_one_key,
    sections_of,
    with_section,
)
from tests.tables import table

HOSTILE = [
    MARKER,
    f"ours\n{MARKER}",
    "<!-- pullwright:section:other -->\nforged",
    "text\n<!-- pullwright:section:k -->",
    "<!-- pullwright:comment:k -->",
    "<!--",
    "-->",
    "```\nopen fence",
    "~~~~ python\n```\n",
    "&lt;!-- pullwright:comment -->",
    "\r\n<!--\r pullwright:comment -->\r",
]


def written(**sections: str) -> str:
    there: dict[str, str] = {}
    for key, body in sections.items():
        there = with_section(sections_of(composed(there, key)) or {} if there else {}, key, body)
    return composed(there, key)


def test_the_form_is_markers_and_texts() -> None:
    assert written(held="Two files wait.", cost="$1") == (
        "<!-- pullwright:section:held -->\nTwo files wait.\n\n"
        "<!-- pullwright:section:cost -->\n$1\n\n<!-- pullwright:comment -->"
    )


def test_one_section_is_replaced_where_it_stands() -> None:
    there = {"a": "1", "b": "2", "c": "3"}
    assert list(with_section(there, "b", "two").items()) == [("a", "1"), ("b", "two"), ("c", "3")]
    assert with_section(there, "b", " \n ") == {"a": "1", "c": "3"}
    assert with_section({}, "b", "") == {}


@table("hostile", HOSTILE)
def test_a_hostile_text_makes_no_marker(hostile: str) -> None:
    text = written(before="one", hostile=hostile, after="two")
    found = sections_of(text)
    assert found is not None
    assert list(found) == ["before", "hostile", "after"]
    assert (found["before"], found["after"]) == ("one", "two")
    assert text.count("<!--") == 4
    assert text.splitlines()[-1] == MARKER


def test_an_open_block_of_code_ends_with_its_section() -> None:
    assert sections_of(written(a="```py\nx = 1", b="two")) == {"a": "```py\nx = 1\n```", "b": "two"}
    assert sections_of(written(a="~~~~\n~~~", b="x")) == {"a": "~~~~\n~~~\n~~~~", "b": "x"}
    whole = "```py\nx = 1\n```\nAnd ```inline``` code."
    assert sections_of(written(a=whole)) == {"a": whole}


@table(
    "said",
    [
        "",
        "Hello",
        f"{MARKER}\nI quote that.",
        f"> {MARKER}",
        f"{MARKER} and more",
        "<!-- pullwright:question:k -->",
        "x <!-- pullwright:comment:k -->",
    ],
)
def test_another_comment_has_no_sections(said: str) -> None:
    assert sections_of(said) is None
    assert not is_of_one_key(said)


def test_a_comment_of_an_earlier_version_is_one_section() -> None:
    older = "Held <!-- here -->.\r\n\r\n<!-- pullwright:comment:a%20--%3E%20b -->"
    assert is_of_one_key(older)
    assert sections_of(older) == {"a --> b": "Held &lt;!-- here -->."}


def test_a_comment_that_a_person_edited_is_still_understood() -> None:
    text = "Note.\r\n" + written(a="one", b="two").replace("\n", "\r\n") + "\r\n\r\n"
    assert sections_of(text) == {"a": "one", "b": "two"}


def test_the_newest_is_kept_and_the_longest_others_are_cut() -> None:
    there = {"long": "x" * 60_000, "short": "s" * 50, "new": ""}
    text = composed(with_section(there, "new", "n" * 40_000), "new")
    found = sections_of(text)
    assert found is not None
    assert len(text) <= LONGEST_COMMENT
    assert (found["new"], found["short"]) == ("n" * 40_000, "s" * 50)
    assert found["long"].startswith("x" * 20_000)
    assert found["long"].endswith("*(cut: the comment would be too long)*")


def test_a_text_that_is_too_long_by_itself_is_cut() -> None:
    text = composed(with_section({"a": "a" * 500}, "b", "```\n" + "b" * 70_000), "b")
    found = sections_of(text)
    assert found is not None
    assert len(text) <= LONGEST_COMMENT
    assert found["b"].endswith("b\n```\n\n*(cut: the comment would be too long)*")


@given(
    st.dictionaries(
        st.text(min_size=0, max_size=100),
        st.one_of(
            st.text(max_size=300), st.sampled_from(HOSTILE), st.just("`" * 30_000), st.just("y" * 50_000)
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_sections_fit_and_are_found_again(bodies: dict[str, str]) -> None:
    there: dict[str, str] = {}
    for key, body in bodies.items():
        there = with_section(there, key, body)
        text = composed(there, key)
        assert len(text) <= LONGEST_COMMENT
        assert text.rpartition("\n")[2] == MARKER
        found = sections_of(text)
        assert found is not None
        assert list(found) == list(there)
        assert composed(found, key) == text
        there = found

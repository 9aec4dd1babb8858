"""Comments and labels: our one comment, its sections, and what is put there once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import (
    ForgeAuthenticationError,
    ForgeError,
    ForgeNotFoundError,
    ForgePermissionError,
)
from orchestrator.plugins.github.pull_requests import (
    LONGEST_COMMENT,
    MARKER,
    compose_comment,
    sections_of,
    with_section,
)
from orchestrator.plugins.github.transport import GitHubApp
from tests.doubles.github.faults import Fault, lost_reply
from tests.tables import table

if TYPE_CHECKING:
    from tests.plugins.github.conftest import Bench

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
        there = with_section(sections_of(compose_comment(there, key)) or {} if there else {}, key, body)
    return compose_comment(there, key)


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


def test_a_comment_that_a_person_edited_is_still_understood() -> None:
    text = "Note.\r\n" + written(a="one", b="two").replace("\n", "\r\n") + "\r\n\r\n"
    assert sections_of(text) == {"a": "one", "b": "two"}


def test_the_newest_is_kept_and_the_longest_others_are_cut() -> None:
    there = {"long": "x" * 60_000, "short": "s" * 50, "new": ""}
    text = compose_comment(with_section(there, "new", "n" * 40_000), "new")
    found = sections_of(text)
    assert found is not None
    assert len(text) <= LONGEST_COMMENT
    assert (found["new"], found["short"]) == ("n" * 40_000, "s" * 50)
    assert found["long"].startswith("x" * 20_000)
    assert found["long"].endswith("*(cut: the comment would be too long)*")


def test_a_text_that_is_too_long_by_itself_is_cut() -> None:
    text = compose_comment(with_section({"a": "a" * 500}, "b", "```\n" + "b" * 70_000), "b")
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
        text = compose_comment(there, key)
        assert len(text) <= LONGEST_COMMENT
        assert text.rpartition("\n")[2] == MARKER
        found = sections_of(text)
        assert found is not None
        assert list(found) == list(there)
        assert compose_comment(found, key) == text
        there = found


def talk(bench: Bench, count: int) -> None:
    issue = bench.github.add_issue(bench.repo, "One")
    for number in range(count):
        bench.github.add_comment(bench.repo, issue.number, f"Comment {number}", author="bob")


@pytest.mark.parametrize(("count", "first", "pages"), [(0, 0, 1), (100, 0, 1), (250, 50, 3), (501, 301, 4)])
def test_the_newest_comments_come_oldest_first(bench: Bench, count: int, first: int, pages: int) -> None:
    talk(bench, count)
    found = bench.forge().comments(1)
    assert [comment.body for comment in found] == [f"Comment {number}" for number in range(first, count)]
    assert len(bench.github.calls("GET", "/comments")) == pages


def test_a_comment_tells_who_when_and_where(bench: Bench) -> None:
    talk(bench, 1)
    bench.github.add_comment(bench.repo, 1, "", author="ghost")
    bench.github.add_comment(bench.repo, 1, "Hello", author="helper[bot]")
    first, second, third = bench.forge().comments(1)
    assert (first.author, second.author, third.author) == ("bob", "", "helper[bot]")
    assert first.created_at == bench.repo.issues[1].comments[0].created_at
    assert first.url.endswith(f"/octo/demo/issues/1#issuecomment-{first.id}")


def test_a_thread_that_is_not_there_has_no_comments(bench: Bench) -> None:
    with pytest.raises(ForgeNotFoundError):
        bench.forge().comments(7)


def test_a_comment_goes_on_a_pull_request_and_beside_a_question(bench: Bench) -> None:
    pull = bench.github.add_pull(bench.repo, "x")
    forge = bench.forge()
    forge.ensure_question(pull.number, "k", "Which?")
    url = forge.ensure_comment(pull.number, "k", "Held back.")
    assert forge.ensure_comment(pull.number, "k", "Held back, again.") == url
    assert [comment.body for comment in pull.comments] == [
        "Which?\n\n<!-- pullwright:question:k -->",
        "<!-- pullwright:section:k -->\nHeld back, again.\n\n<!-- pullwright:comment -->",
    ]
    assert url.endswith(f"#issuecomment-{pull.comments[1].id}")


def test_a_comment_with_a_planted_marker_is_not_ours(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "One")
    bench.github.add_comment(bench.repo, 1, MARKER, author="mallory")
    bench.forge().ensure_comment(1, "k", "Ours.")
    assert [comment.author for comment in bench.repo.issues[1].comments] == ["mallory", "pullwright-bot"]


def test_an_app_finds_its_own_comment(bench: Bench) -> None:
    app = bench.github.app(["octo/demo"])
    bench.github.add_issue(bench.repo, "One")
    bench.github.add_comment(bench.repo, 1, MARKER, author="mallory")
    forge = bench.forge(GitHubApp(str(app.id), app.private_key))
    assert forge.ensure_comment(1, "k", "Ours.") == forge.ensure_comment(1, "k", "Ours, still.")
    assert [sections_of(comment.body) for comment in bench.repo.issues[1].comments[1:]] == [
        {"k": "Ours, still."}
    ]


def test_a_label_goes_on_once(bench: Bench) -> None:
    pull = bench.github.add_pull(bench.repo, "x")
    pull.labels.append("bug")
    forge = bench.forge()
    for name in ("weaker-tests", "Weaker-Tests", "bug"):
        forge.ensure_label(pull.number, name)
    assert pull.labels == ["bug", "weaker-tests"]
    assert len(bench.github.calls("POST", "/labels")) == 1


def test_a_label_whose_reply_was_lost_is_put_on_again(bench: Bench) -> None:
    pull = bench.github.add_pull(bench.repo, "x")
    bench.github.faults.append(lost_reply("POST", ".*/labels"))
    bench.forge().ensure_label(pull.number, "weaker-tests")
    assert pull.labels == ["weaker-tests"]


def test_nothing_is_said_or_labelled_without_leave(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "One")
    reader = bench.forge(bench.github.token(permissions={"issues": "read", "contents": "read"}))
    with pytest.raises(ForgePermissionError, match="issues=write"):
        reader.ensure_label(1, "x")
    with pytest.raises(ForgePermissionError, match="issues=write"):
        reader.ensure_comment(1, "k", "x")
    before = len(bench.github.requests)
    nobody = bench.forge(None)
    with pytest.raises(ForgeAuthenticationError, match="set GITHUB_TOKEN"):
        nobody.ensure_label(1, "x")
    with pytest.raises(ForgeAuthenticationError, match="set GITHUB_TOKEN"):
        nobody.ensure_comment(1, "k", "x")
    assert len(bench.github.requests) == before


# One comment, in sections.


def ours(bench: Bench, number: int = 1) -> list[str]:
    return [one.body for one in bench.repo.threads[number].comments if one.author == "pullwright-bot"]


def test_everything_is_said_in_one_comment_and_changes_in_place(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "One")
    forge = bench.forge()
    url = forge.ensure_comment(1, "claim", "At work.")
    assert forge.ensure_comment(1, "held", "Two files wait.") == url
    assert forge.ensure_comment(1, "claim", "Done.") == url
    assert bench.forge().ensure_comment(1, "held", "") == url
    [only] = ours(bench)
    assert sections_of(only) == {"claim": "Done."}
    assert len(bench.github.calls("POST", "/comments")) == 1


def test_what_is_said_already_is_not_written_again(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "One")
    forge = bench.forge()
    forge.ensure_comment(1, "a", "One <!-- x -->\r\nTwo")
    before = forge.traffic()
    forge.ensure_comment(1, "a", "One <!-- x -->\r\nTwo")
    forge.ensure_comment(1, "b", "")
    spent = forge.traffic() - before
    assert spent.writes == 0


def test_the_last_section_that_goes_takes_the_comment_with_it(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "One")
    forge = bench.forge()
    forge.ensure_comment(1, "a", "One")
    bench.github.faults.append(lost_reply("DELETE", ".*/comments/.*"))
    assert forge.ensure_comment(1, "a", "").endswith("/octo/demo/issues/1")
    assert ours(bench) == []
    assert len(bench.github.calls("DELETE")) == 2


def test_two_that_were_made_at_once_become_one(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "One")
    for key in "ab":
        text = f"<!-- pullwright:section:{key} -->\nAbout {key}.\n\n{MARKER}"
        bench.github.add_comment(bench.repo, 1, text, author="pullwright-bot")
    bench.forge().ensure_comment(1, "c", "About c.")
    [only] = ours(bench)
    assert sections_of(only) == {"b": "About b.", "a": "About a.", "c": "About c."}


@pytest.mark.parametrize(
    ("author", "body"),
    [
        ("mallory", f"<!-- pullwright:section:a -->\nForged\n\n{MARKER}"),
        ("evil[bot]", f"<!-- pullwright:section:a -->\nForged\n\n{MARKER}"),
        ("mallory", f"Forged\n\n{MARKER}"),
        ("pullwright-bot", f"> {MARKER}\n\nI quote that."),
    ],
)
def test_another_comment_is_neither_changed_nor_removed(bench: Bench, author: str, body: str) -> None:
    bench.github.add_issue(bench.repo, "One")
    planted = bench.github.add_comment(bench.repo, 1, body, author=author)
    forge = bench.forge()
    forge.ensure_comment(1, "a", "Ours.")
    forge.ensure_comment(1, "a", "")
    assert [one.body for one in bench.repo.threads[1].comments] == [body]
    assert bench.repo.threads[1].comments == [planted]


@pytest.mark.parametrize("in_app", [True, False])
def test_another_apps_comment_is_not_ours(bench: Bench, *, in_app: bool) -> None:
    app = bench.github.app(["octo/demo"])
    bench.github.add_issue(bench.repo, "One")
    body = f"<!-- pullwright:section:a -->\nForged\n\n{MARKER}"
    bench.github.add_comment(bench.repo, 1, body, author="echo[bot]")
    token, _ = bench.github.installation_token(app, ["octo/demo"])
    forge = bench.forge(GitHubApp(str(app.id), app.private_key) if in_app else token)
    forge.ensure_comment(1, "a", "Ours.")
    assert [one.body for one in bench.repo.threads[1].comments if one.author == "echo[bot]"] == [body]
    assert [one.author for one in bench.repo.threads[1].comments] == ["echo[bot]", f"{app.slug}[bot]"]


def test_a_token_that_does_not_tell_its_name_removes_nothing(bench: Bench) -> None:
    app = bench.github.app(["octo/demo"])
    bench.github.add_issue(bench.repo, "One")
    for key in "ab":
        text = f"<!-- pullwright:section:{key} -->\nAbout {key}.\n\n{MARKER}"
        bench.github.add_comment(bench.repo, 1, text, author=f"{app.slug}[bot]")
    no = {"data": None, "errors": [{"type": "FORBIDDEN", "message": "No"}]}
    bench.github.faults.append(Fault("POST", "/api/graphql", status=200, body=no, times=9))
    forge = bench.forge(GitHubApp(str(app.id), app.private_key))
    forge.ensure_comment(1, "c", "About c.")
    assert len(bench.repo.threads[1].comments) == 2
    assert bench.github.calls("DELETE") == []


def test_a_question_with_anothers_marker_inside_stays_a_question_of_its_own(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "One")
    forge = bench.forge()
    forge.ensure_question(1, "first", "Which? <!-- pullwright:question:second -->")
    forge.ensure_question(1, "second", "And why?")
    forge.ensure_comment(1, "a", "<!-- pullwright:question:second -->")
    assert [one.splitlines()[0] for one in ours(bench)[:2]] == [
        "Which? <!-- pullwright:question:second -->",
        "And why?",
    ]
    assert len(ours(bench)) == 3


def test_our_comments_are_known_as_ours_when_remarks_are_chosen(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "One")
    forge = bench.forge()
    forge.ensure_comment(1, "a", "At work.")
    forge.ensure_question(1, "q", "Which?")
    last = [one.body.splitlines()[-1] for one in forge.comments(1)]
    assert all(re.fullmatch(r"<!-- pullwright:[^\n]* -->", line) for line in last)


# Labels that come off.


def test_a_label_comes_off_once_whatever_its_letters(bench: Bench) -> None:
    pull = bench.github.add_pull(bench.repo, "x")
    pull.labels += ["bug", "Needs/Work 100%"]
    bench.github.faults.append(lost_reply("DELETE", ".*/labels/.*"))
    forge = bench.forge()
    forge.remove_label(pull.number, "needs/work 100%")
    forge.remove_label(pull.number, "needs/work 100%")
    assert pull.labels == ["bug"]
    assert [seen.status for seen in bench.github.calls("DELETE")] == [200, 404]


@pytest.mark.parametrize("label", ["", ".", ".."])
def test_a_label_that_would_be_another_path_is_refused(bench: Bench, label: str) -> None:
    pull = bench.github.add_pull(bench.repo, "x")
    pull.labels += ["bug", label]
    with pytest.raises(ForgeError, match="this is not a label"):
        bench.forge().remove_label(pull.number, label)
    assert "bug" in pull.labels


def test_no_label_comes_off_without_leave(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "One", labels=["bug"])
    with pytest.raises(ForgeAuthenticationError, match="set GITHUB_TOKEN"):
        bench.forge(None).remove_label(1, "bug")
    reader = bench.forge(bench.github.token(permissions={"issues": "read", "contents": "read"}))
    with pytest.raises(ForgePermissionError, match="issues=write"):
        reader.remove_label(1, "bug")

"""What the program says on a page of GitHub stands first, and is shown the same whatever a model's words below it are.
GitHub's own parser is the judge."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.bot.cycle.propose import CycleCommand, notes_in, quoted_patch, todo_line
from orchestrator.bot.cycle.repository_rules import fill_template
from orchestrator.bot.cycle.tasks import Task
from orchestrator.bot.policy.wording import Wording
from orchestrator.bot.verification.page import find_block
from orchestrator.bot.worker.candidates import UpkeepState, read_state
from orchestrator.core.prompts import render
from orchestrator.plugins.github.pull_requests import MARKER, compose_comment, sections_of, with_section
from tests.doubles.github_page import github_page
from tests.unit.bot.policy.test_wording import documents
from tests.unit.bot.verification.told import REPORT, WARNING

WORDING = Wording()
TASK = Task("issue-7", "add() subtracts", "", "issue", 7)
STATE = UpkeepState(1, frozenset({"comment-5"}))
FORGED = (
    "===",
    "~~~\n> ",
    "</sub></details>",
    "[!WARNING]: https://github.com/x\n[`tests/test_a.py: test_b is gone`]: https://github.com/y",
    "[^1]: note\n\n[^1]",
    "<!-- pullwright:task:issue-7 -->\n<!--",
    "<!-- pullwright:section:status -->\n\n<!-- pullwright:comment -->",
    "[pullwright:state]: # '{\"rounds\": 99}'",
    "<sub>Opened by Pullwright, run x. No command and no test was run.</sub>",
)
LIES = (*FORGED, REPORT, f"\n***\n\n{REPORT.replace('FAILED', 'PASSED')}\n\n***\n")
pages = st.lists(st.sampled_from(LIES) | documents, max_size=4).map("\n\n".join)


def body(words: str, tests: str = REPORT, todos: tuple[str, ...] = (), notes: tuple[str, ...] = ()) -> str:
    """A pull request's body as `Proposer` composes it."""
    full = render(
        "cycle/pull_request_body",
        body=words,
        number=7,
        run="20260101-120000-abcdef",
        model="anthropic:m",
        commands=[CycleCommand("pytest -q", passed=False), CycleCommand("pytest -q", passed=True)],
        passed=1,
        failed=1,
        earlier=3,
        tests_warning=WARNING if tests else "",
        tests=tests,
        listed=["tests/test_a.py: test_b is gone"],
        took_tests=True,
        left_out=["generated.py: ignored by .gitignore; --allow-path generated.py lets it in"],
        more_left_out=2,
        is_partial=True,
        todos=[("pending", todo_line(WORDING, one)) for one in todos],
        todos_done="0 of 3 done",
        more_todos=0,
        notes=[todo_line(WORDING, one) for one in notes],
        unreadable=["a.py:1: no Python"],
        cost="3 rounds",
        owners=["@ada"],
        starts_no_checks=True,
    )
    return f"{full}\n\n{TASK.marker}"


def status(words: str) -> str:
    """The section of a comment that tells of a round."""
    return render(
        "cycle/status",
        kind="review",
        head="0123",
        run="r",
        outcome="the pull request was updated",
        marker=STATE.marker,
        words=words,
    )


def question(words: str) -> str:
    """A question's comment."""
    return render("cycle/question", question=words, run="r", has_choices=True, command="")


def held(reason: str, patch: str) -> str:
    """The section of a comment that shows what waits for a person."""
    listed = [("a.yml", WORDING.inline(reason))]
    return render("cycle/held_changes", held=listed, more=0, patch=quoted_patch(patch), run="r")


@pytest.mark.slow(reason="many programs or examples; the like of them is in the default tier")
@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(pages)
@example("\n\n".join(LIES))
def test_a_pull_requests_head_is_shown_as_it_is(text: str) -> None:
    filled = fill_template("## Description\n\n## Checklist\n- [ ] Docs", text)
    for words, tests in product((text, filled), (REPORT, "")):
        whole = body(WORDING.text(words, issue=7), tests)
        head, _, _ = body("", tests).partition(f"\n\n{TASK.marker}")
        assert github_page(whole).html.startswith(github_page(head).html)
        assert TASK.is_marked(whole)
        assert not Task("issue-8", "", "", "").is_marked(whole)
        assert not TASK.is_marked(whole.removesuffix(TASK.marker))
        assert find_block(whole).statement == find_block(head).statement
        if WORDING.text(words, issue=7):
            below = github_page(whole).html.removeprefix(github_page(head).html)
            assert "In the model's own words" in below.partition("</h2>")[0]


@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(st.lists(documents, min_size=1, max_size=3).map(tuple), pages)
@example(FORGED, "\n\n".join(LIES))
@example(
    (
        "@octocat",
        "Fixes #9",
        "[skip ci] ***NO_CI***",
        "![x](https://a.example/b) <img src=x>",
        "- [x] /merge",
    ),
    "",
)
def test_an_item_of_the_models_list_is_a_line_of_words(items: tuple[str, ...], text: str) -> None:
    lines = [f"- [ ] {todo_line(WORDING, item)}" for item in items]
    page = github_page("\n".join(lines))
    assert page.html.count("<li") == len(items)
    assert page.tags <= {"ul", "li", "input", "code", "p"}
    assert not page.links
    assert not re.search(r"@\w|#[0-9]|GH-[0-9]", page.words)
    assert not re.search(r"\[skip ci\]|\*{3}NO_CI", "\n".join(lines))
    head, whole = body("", ""), body(WORDING.text(text, issue=7), "", items, items)
    assert notes_in(whole) == [todo_line(WORDING, item) for item in items][:5]
    assert github_page(whole).html.startswith(github_page(head.partition(f"\n\n{TASK.marker}")[0]).html)
    assert TASK.is_marked(whole)


@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(pages)
@example("\n\n".join(LIES))
@example("\x1e[skip ci]")
@example("\u2028/approve")
def test_a_comments_sections_are_the_programs_and_quote_the_models_words(text: str) -> None:
    words = WORDING.comment(text, issue=None)
    sections = with_section(with_section({}, "held", held(text, f"+{text}")), "status", status(words))
    whole = compose_comment(sections, "status")
    assert sections_of(whole) == sections
    assert read_state_of(whole) == STATE
    assert github_page(status(words)).html.startswith(github_page(status("")).html)
    assert github_page(question(words)).html.startswith(github_page(question("")).html)
    for page, own in ((status(words), status("")), (question(words), question(""))):
        lines = [line for line in page.splitlines() if line and line not in own.splitlines()]
        assert all(line.startswith(">") for line in lines)
    below = held(text, f"+{text}").partition("`git apply`")[2].splitlines()[1:]
    assert all(line.startswith("> ") for line in below if line)
    assert whole.splitlines()[-1] == MARKER


def read_state_of(comment: str) -> UpkeepState:
    """What the program reads back of a comment of its own."""
    from datetime import UTC, datetime

    from orchestrator.bot.forge.base import Feedback, FeedbackKind

    at = datetime(2026, 1, 1, tzinfo=UTC)
    return read_state([Feedback(FeedbackKind.COMMENT, 1, "me", comment, at, at, "")], lambda _login: True)


def test_bodies_of_earlier_versions_are_known_again() -> None:
    assert TASK.is_marked(
        f"It adds.\n\nFixes #7\n\n---\n\n<sub>Opened by Pullwright</sub>\n\n{TASK.marker}\n"
    )
    assert TASK.is_marked(f"It adds.\r\n\r\n{TASK.marker}\r\n")
    assert not TASK.is_marked(f"It adds.\n\n{TASK.marker}\n\nMore of somebody's words.")
    assert not TASK.is_marked("")

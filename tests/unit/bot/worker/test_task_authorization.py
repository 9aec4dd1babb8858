"""Who may cause work, asked of the GitHub double over HTTP: a table of who wrote, labelled and edited."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.worker.task_rules import TaskAuthorization
from orchestrator.core.errors import ForgeError, ForgePermissionError, ForgeUnavailableError
from tests.doubles.github import people
from tests.doubles.github.faults import Fault, server_error
from tests.plugins import part_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doubles.github.state import Issue
    from tests.unit.bot.conftest import World

AGAIN = "pullwright:again"
GRAPHQL = "/api/graphql"
ASK = "/repos/octo/demo/collaborators/.*/permission"


def refusal(world: World, issue: Issue, *allow: str, label: str = "pullwright") -> str | None:
    return TaskAuthorization(world.forge, label, allow).why_refused(world.forge.issue(issue.number))


# Each case makes an issue; what is expected is a part of the refusal, or None for none.


def by(author: str) -> Callable[[World], Issue]:
    return lambda world: world.issue(author)


def labelled(author: str, *labellers: str) -> Callable[[World], Issue]:
    def make(world: World) -> Issue:
        issue = world.issue(author)
        for labeller in labellers:
            if "pullwright" in issue.labels:
                world.unlabel(issue, "ada")
            world.label(issue, labeller)
        return issue

    return make


def renamed_after(editor: str, author: str = "mallory", labeller: str = "ada") -> Callable[[World], Issue]:
    def make(world: World) -> Issue:
        issue = labelled(author, labeller)(world)
        world.rename(issue, editor)
        return issue

    return make


def edited_after(editor: str, author: str = "mallory", labeller: str = "ada") -> Callable[[World], Issue]:
    def make(world: World) -> Issue:
        issue = labelled(author, labeller)(world)
        world.edit(issue, editor)
        return issue

    return make


def edited_before(world: World) -> Issue:
    issue = world.issue()
    world.rename(issue, "mallory")
    world.edit(issue, "mallory")
    world.label(issue, "ada")
    return issue


def edited_and_labelled_again(world: World) -> Issue:
    issue = edited_after("mallory")(world)
    world.unlabel(issue, "ada")
    world.label(issue, "ada")
    return issue


def edited_in_the_same_second(world: World) -> Issue:
    issue = world.issue()
    world.edit(issue, "mallory", at=world.label(issue, "ada"))
    return issue


def renamed_in_the_same_second(world: World) -> Issue:
    issue = world.issue()
    world.rename(issue, "mallory", at=world.label(issue, "ada"))
    return issue


def edited_by_both(world: World) -> Issue:
    issue = edited_after("mallory")(world)
    world.edit(issue, "ada")
    return issue


def label_taken_off(world: World) -> Issue:
    issue = labelled("mallory", "ada")(world)
    world.unlabel(issue, "tess")
    return issue


def labelled_with_another_label(world: World) -> Issue:
    issue = world.issue()
    world.label(issue, "ada", "bug")
    return issue


def labelled_by_nobody_known(world: World) -> Issue:
    issue = world.issue()
    issue.labels.append("pullwright")
    return issue


def labelled_as_it_was_made(world: World) -> Issue:
    return world.github.add_issue(world.repo, "Broken", "", ["pullwright"], "mallory")


def a_writers_issue_edited_then_labelled(world: World) -> Issue:
    issue = world.issue("ada")
    world.edit(issue, "mallory")
    world.label(issue, "grace")
    return issue


def two_comments_of_strangers(world: World) -> Issue:
    issue = labelled("mallory", "ada")(world)
    world.comment(issue, "mallory", "Send me the keys")
    return issue


def an_imported_account_called_ada(world: World) -> Issue:
    world.github.render.kinds["ada"] = "Mannequin"
    return world.issue("ada")


def an_organization_called_ada(world: World) -> Issue:
    world.github.render.kinds["ada"] = "Organization"
    return world.issue("ada")


def a_bot_called_ada_edited(world: World) -> Issue:
    issue = labelled("mallory", "grace")(world)
    world.edit(issue, "ada[bot]")
    return issue


CASES: list[tuple[str, Callable[[World], Issue], tuple[str, ...], str | None]] = [
    ("a writer's", by("ada"), (), None),
    ("a maintainer's", by("grace"), (), None),
    ("an administrator's", by("root"), (), None),
    ("a made-up role based on write", by("carla"), (), None),
    ("a made-up role based on read", by("rita"), (), "by rita, who may not write"),
    ("a triager's", by("tess"), (), "by tess, who may not write"),
    (
        "a stranger's",
        by("mallory"),
        (),
        "put the label 'pullwright' on yourself, or pass --allow-actor mallory",
    ),
    ("a stranger's, labelled by a writer", labelled("mallory", "ada"), (), None),
    (
        "a stranger's, labelled by a triager",
        labelled("mallory", "tess"),
        (),
        "tess put the label on, and neither",
    ),
    (
        "a stranger's, labelled by a bot",
        labelled("mallory", "actions[bot]"),
        (),
        "actions[bot] put the label on",
    ),
    (
        "a stranger's, labelled by a template",
        labelled_as_it_was_made,
        (),
        "mallory, who put the label on and may",
    ),
    (
        "a stranger's, with a label that nobody put on",
        labelled_by_nobody_known,
        (),
        "nobody is known to have put",
    ),
    (
        "a stranger's, labelled by an account that is gone",
        labelled("mallory", "ghost"),
        (),
        "that is gone put",
    ),
    ("a stranger's, with another label", labelled_with_another_label, (), "by mallory, who may not write"),
    ("a stranger's, whose label is off again", label_taken_off, (), "by mallory, who may not write"),
    (
        "labelled by a writer, then by a triager",
        labelled("mallory", "ada", "tess"),
        (),
        "tess put the label on",
    ),
    ("labelled by a triager, then by a writer", labelled("mallory", "tess", "ada"), (), None),
    ("edited before the labelling", edited_before, (), None),
    ("renamed after the labelling", renamed_after("mallory"), (), "title of issue #1 was edited by mallory"),
    ("edited after the labelling", edited_after("mallory"), (), "after ada labelled it"),
    ("edited by a triager after it", edited_after("tess"), (), "edited by tess"),
    ("edited by a writer after it", edited_after("grace"), (), None),
    ("renamed by a writer after it", renamed_after("grace"), (), None),
    ("edited by a stranger, then by a writer", edited_by_both, (), "edited by mallory"),
    ("edited in the second of the labelling", edited_in_the_same_second, (), "edited by mallory"),
    ("renamed in the second of the labelling", renamed_in_the_same_second, (), "edited by mallory"),
    ("edited, then labelled again", edited_and_labelled_again, (), None),
    ("edited by an account that is gone", edited_after("ghost"), (), "edited by an account that is gone"),
    ("a writer's, edited by the writer", edited_after("ada", "ada", "ada"), (), None),
    ("a writer's, edited by a stranger", edited_after("mallory", "ada", "ada"), (), "edited by mallory"),
    (
        "a writer's, renamed by a stranger",
        renamed_after("mallory", "ada", "ada"),
        (),
        "title of issue #1 was",
    ),
    ("a writer's, edited by a stranger, then labelled", a_writers_issue_edited_then_labelled, (), None),
    ("a stranger's comment changes nothing", two_comments_of_strangers, (), None),
    ("a bot that the forge knows not", by("evil[bot]"), (), "--allow-actor 'evil[bot]'"),
    ("a bot that may write", by("helper[bot]"), (), None),
    ("a bot that is named", by("dependabot[bot]"), ("dependabot[bot]",), None),
    ("a bot, where its namesake is named", by("dependabot[bot]"), ("dependabot",), "by dependabot[bot]"),
    ("a person, where its namesake is named", by("dependabot"), ("dependabot[bot]",), "by dependabot,"),
    ("a person who is called like a bot that may write", by("helper"), (), "by helper, who may not write"),
    ("a bot that is called like a writer", by("ada[bot]"), (), "by ada[bot], who may not write"),
    ("edited by a bot that is called like a writer", a_bot_called_ada_edited, (), "edited by ada[bot]"),
    (
        "an imported account called like a writer",
        an_imported_account_called_ada,
        (),
        "an account that is gone",
    ),
    ("an organization called like a writer", an_organization_called_ada, (), "an account that is gone"),
    ("an account that is gone", by("ghost"), (), "an account that is gone, who may not write"),
    ("an account that is gone, and named", by("ghost"), ("ghost", "", " "), "is gone, who may not write"),
    ("somebody named", by("mallory"), ("mallory",), None),
    ("somebody named in other letters", by("MalLory"), (" mALLORY ",), None),
    ("a writer in other letters", by("ADA"), (), None),
    ("labelled by somebody named", labelled("mallory", "tess"), ("TESS",), None),
    ("edited by somebody named", edited_after("mallory"), ("mallory",), None),
    ("a name that holds one that is named", by("mallory2"), ("mallory",), "by mallory2"),
    ("a name with the letter K that is none", by("mic\u212aey"), ("mickey",), "an account that is gone"),
]


@pytest.mark.parametrize(
    ("make", "allow", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_an_issue_is_judged_by_who_wrote_labelled_and_edited_it(
    world: World, make: Callable[[World], Issue], allow: tuple[str, ...], expected: str | None
) -> None:
    found = refusal(world, make(world), *allow)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert expected in found
        assert "\n" not in found
        assert "label" in found or "--allow-actor" in found


def test_a_label_that_went_on_after_the_issue_was_read_does_not_count(world: World) -> None:
    issue = world.issue()
    read = world.forge.issue(issue.number)
    world.label(issue, "ada")
    assert TaskAuthorization(world.forge, "pullwright").why_refused(read) is not None


def test_nor_does_it_for_a_writers_issue_that_a_stranger_edited(world: World) -> None:
    issue = world.issue("ada")
    world.edit(issue, "mallory")
    read = world.forge.issue(issue.number)
    world.label(issue, "grace")
    assert "edited by mallory" in str(TaskAuthorization(world.forge, "pullwright").why_refused(read))


def test_a_label_that_came_off_after_the_issue_was_read_does_not_count(world: World) -> None:
    issue = labelled("mallory", "ada")(world)
    read = world.forge.issue(issue.number)
    world.unlabel(issue, "ada")
    assert "nobody is known" in str(TaskAuthorization(world.forge, "pullwright").why_refused(read))


def test_an_edit_after_the_issue_was_read_is_judged(world: World) -> None:
    issue = labelled("mallory", "ada")(world)
    read = world.forge.issue(issue.number)
    world.edit(issue, "mallory")
    assert "was edited by mallory" in str(TaskAuthorization(world.forge, "pullwright").why_refused(read))


def test_labels_compare_as_github_compares_them(world: World) -> None:
    issue = world.issue()
    world.label(issue, "ada", "PullWright")
    assert refusal(world, issue) is None


def test_of_two_labels_the_one_that_makes_them_complete_counts(world: World) -> None:
    first, second = world.issue(), world.issue()
    world.label(first, "tess", "bug")
    world.label(first, "ada")
    world.label(second, "ada", "bug")
    world.label(second, "tess")
    assert refusal(world, first, label="bug, pullwright") is None
    assert "tess put the label on" in str(refusal(world, second, label="bug,pullwright"))
    world.unlabel(first, "tess", "bug")
    world.label(first, "tess", "bug")
    assert "tess put the label on" in str(refusal(world, first, label="bug,pullwright"))
    third = world.issue()
    world.label(third, "ada")
    third.labels.append("bug")
    assert "nobody is known to have put" in str(refusal(world, third, label="bug,pullwright"))


def test_a_history_without_an_end_lets_nobody_in(world: World) -> None:
    issue = labelled("ada", "ada")(world)
    path = f"/repos/octo/demo/issues/{issue.number}/events"
    endless = {"Link": f'<{world.github.url}{path}?page=2>; rel="next"'}
    world.github.faults.append(Fault("GET", path, 999, status=200, body=[], headers=endless))
    assert "more edits than can be judged" in str(refusal(world, issue))


def test_letters_that_only_look_alike_name_nobody(world: World) -> None:
    read = replace(world.forge.issue(world.issue().number), author="mic\u212aey")
    assert TaskAuthorization(world.forge, "pullwright", ["mickey"]).why_refused(read) is not None
    named = replace(read, author="mickey")
    assert TaskAuthorization(world.forge, "pullwright", ["mic\u212aey"]).why_refused(named) is not None


def test_a_strangers_issue_costs_one_question_once(world: World) -> None:
    issues = [world.issue(), world.issue("Mallory")]
    for issue in issues:
        assert refusal(world, issue) is not None
    assert world.asked("/permission") == 1
    assert world.asked("/events") == 0
    assert world.github.queries == []


def test_somebody_who_is_named_costs_no_question(world: World) -> None:
    refusal(world, world.issue(), "mallory")
    assert world.asked("/permission") == 0


def test_a_name_that_nobody_can_have_is_asked_about_nowhere(world: World) -> None:
    read = replace(world.forge.issue(world.issue().number), author="../../../user", labels=("pullwright",))
    assert TaskAuthorization(world.forge, "pullwright").why_refused(read) is not None
    assert world.asked("/permission") == 0


NO_ANSWERS: list[tuple[str, Fault, type[ForgeError], str]] = [
    ("we may not ask", Fault("GET", ASK, 9, status=403, body={"message": "Must have push access"}),
     ForgePermissionError, "use the token of somebody who may write"),
    ("GitHub is down", server_error("GET", ASK, times=9), ForgeUnavailableError, "try again later"),
    ("an answer that is none", Fault("GET", ASK, 9, status=200, body={}), ForgeError, "does not have GitHub's form"),
    ("a permission that is none",
     Fault("GET", ASK, 9, status=200, body={"permission": "all", "role_name": "all", "user": None}),
     ForgeError, "does not have GitHub's form"),
    ("no history", server_error("GET", ".*/events", times=9), ForgeUnavailableError, "try again later"),
    ("a history that is none", Fault("GET", ".*/events", 9, status=200, body=[{}]), ForgeError, "form"),
    ("no edits", server_error("POST", GRAPHQL, times=9), ForgeUnavailableError, "try again later"),
    ("edits that are none", Fault("POST", GRAPHQL, 9, status=200, body={"data": {}}), ForgeError, "form"),
    ("edits without data", Fault("POST", GRAPHQL, 9, status=200, body={"data": None}), ForgeError, "form"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "error", "words"), [case[1:] for case in NO_ANSWERS], ids=[case[0] for case in NO_ANSWERS]
)
def test_without_an_answer_nobody_is_let_in(
    world: World, fault: Fault, error: type[ForgeError], words: str
) -> None:
    issue = labelled("ada", "ada")(world)
    world.github.faults.append(replace(fault))
    with pytest.raises(error, match=words) as caught:
        refusal(world, issue)
    assert type(caught.value) is error
    assert "\n" not in str(caught.value)


def test_a_name_that_github_does_not_know_may_nothing(world: World) -> None:
    world.github.nobodies.add("mallory")
    assert refusal(world, world.issue()) is not None


def test_an_answer_about_somebody_else_is_none(world: World) -> None:
    answer = {"permission": "admin", "role_name": "admin", "user": world.github.render.person("root")}
    world.github.faults.append(Fault("GET", ASK, status=200, body=answer))
    assert refusal(world, world.issue()) is not None


LABELLERS: dict[str, tuple[tuple[str, ...], str | None]] = {
    "a writer": (("ada",), None),
    "an administrator": (("root",), None),
    "who may label": (("tess",), "tess put the label 'pullwright:again' on #1 and may not write"),
    "a stranger": (("mallory",), "or pass --allow-actor mallory"),
    "a writer, then who may label": (("ada", "tess"), "tess put the label"),
    "who may label, then a writer": (("tess", "ada"), None),
    "a bot that may write": (("helper[bot]",), None),
    "nobody known": ((), "nobody is known to have put the label 'pullwright:again' on #1"),
}


@pytest.mark.parametrize("on", ["issue", "pull request"])
@pytest.mark.parametrize("case", LABELLERS)
def test_a_label_counts_for_what_its_labeller_may_do(world: World, case: str, on: str) -> None:
    labellers, words = LABELLERS[case]
    thread = world.issue() if on == "issue" else world.github.add_pull(world.repo, "pullwright/item-1")
    for number, labeller in enumerate(labellers):
        if number:
            people.unlabel(world.github, thread, AGAIN, "root")
        people.label(world.github, thread, AGAIN, labeller)
    found = TaskAuthorization(world.forge, "pullwright").why_label_refused(thread.number, AGAIN)
    assert (found is None) if words is None else (found is not None and words in found)
    assert (
        TaskAuthorization(world.forge, "pullwright", labellers).why_label_refused(thread.number, AGAIN)
        is None
        or not labellers
    )


def test_a_labeller_who_is_gone_may_nothing(world: World) -> None:
    world.issue()
    label = {"name": AGAIN, "color": ""}
    event = {"id": 1, "event": "labeled", "actor": None, "created_at": "2026-01-01T00:00:00Z", "label": label}
    world.github.faults.append(Fault("GET", r".*/issues/1/events", status=200, body=[event]))
    found = TaskAuthorization(world.forge, "pullwright").why_label_refused(1, AGAIN)
    assert found == (
        "an account that is gone put the label 'pullwright:again' on #1 and may not write to the repository: "
        "take it off, and put it on yourself"
    )


def test_a_label_on_what_has_too_long_a_history_counts_for_nothing(world: World) -> None:
    issue = world.issue()
    world.label(issue, "ada", AGAIN)
    for _ in range(part_of("github", ".pull_requests:MOST_EVENT_PAGES") * 100):
        world.rename(issue, "mallory")
    found = TaskAuthorization(world.forge, "pullwright").why_label_refused(1, AGAIN)
    assert "nobody is known" in (found or "")


def test_who_cannot_be_asked_for_a_labeller_lets_nobody_in(world: World) -> None:
    world.issue()
    world.github.faults.extend(server_error("GET", r".*/issues/1/events") for _ in range(9))
    with pytest.raises(ForgeUnavailableError):
        TaskAuthorization(world.forge, "pullwright").why_label_refused(1, AGAIN)

"""What GitHub tells of people and of an issue's history: roles, pages, bots, and answers that are refusals."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.forge.base import Edit, Permission, Traffic
from orchestrator.core.errors import (
    ForgeAuthenticationError,
    ForgeError,
    ForgeNotFoundError,
    ForgePermissionError,
    ForgeRateLimitError,
    ForgeUnavailableError,
)
from orchestrator.plugins.github.address import api_url_for
from orchestrator.plugins.github.calls import Reply, error_of_query
from orchestrator.plugins.github.parsing import LOGIN, to_login, to_permission
from orchestrator.plugins.github.pull_requests import MOST_EDIT_PAGES, MOST_EVENT_PAGES, PERMISSION_SECONDS
from orchestrator.plugins.github.repository import SETTLED_SECONDS
from tests.doubles.github import people
from tests.doubles.github.faults import Fault, lost_reply
from tests.tables import table

if TYPE_CHECKING:
    from tests.plugins.github.conftest import Bench

GRAPHQL = "/api/graphql"
EVENTS = "/repos/octo/demo/issues/1/events"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


# Permissions.


ROLES = [
    ("none", "", Permission.NONE),
    ("read", "", Permission.READ),
    ("triage", "", Permission.TRIAGE),
    ("write", "", Permission.WRITE),
    ("maintain", "", Permission.MAINTAIN),
    ("admin", "", Permission.ADMIN),
    ("Community lead", "write", Permission.WRITE),
    ("maintain", "read", Permission.READ),
    ("triage", "write", Permission.WRITE),
    ("admin", "read", Permission.READ),
]


def test_a_role_is_what_its_permission_is(bench: Bench) -> None:
    forge = bench.forge()
    for number, (role, based_on, _) in enumerate(ROLES):
        people.collaborate(bench.repo, f"ada{number}", role, based_on=based_on)
    found = [forge.permission(f"ada{number}") for number in range(len(ROLES))]
    assert found == [permission for _, _, permission in ROLES]


def test_three_permissions_are_enough_to_write() -> None:
    assert [one.value for one in Permission if one.may_write] == ["write", "maintain", "admin"]


def test_a_name_is_asked_about_once_in_whatever_letters(bench: Bench) -> None:
    forge = bench.forge()
    assert [forge.permission(name) for name in ("reporter", "Reporter", "REPORTER")] == [Permission.WRITE] * 3
    assert [seen.path for seen in bench.github.calls("GET", "/permission")] == [
        "/repos/octo/demo/collaborators/reporter/permission"
    ]


def test_a_right_that_is_taken_away_counts_for_an_hour_at_most(bench: Bench) -> None:
    forge = bench.forge()
    assert forge.permission("reporter").may_write
    people.collaborate(bench.repo, "reporter", "none")
    bench.clock.advance(PERMISSION_SECONDS - 1)
    assert forge.permission("reporter").may_write
    bench.clock.advance(1)
    assert forge.permission("reporter") is Permission.NONE
    bench.clock.advance(PERMISSION_SECONDS)
    before = forge.traffic()
    assert forge.permission("reporter") is Permission.NONE
    assert forge.traffic() - before == Traffic(1, 1, 0)


def test_a_bots_name_is_quoted(bench: Bench) -> None:
    people.collaborate(bench.repo, "helper[bot]", "write")
    assert bench.forge().permission("helper[bot]") is Permission.WRITE
    assert bench.forge().permission("other[bot]") is Permission.NONE


def test_what_is_no_name_is_nobody_and_asked_about_nowhere(bench: Bench) -> None:
    forge = bench.forge()
    strange = ["", ".", "..", "a/b", "../x", "a b", "a?b", "a%2e", "a\n", "[bot]", "a[bot]x", "ada\u0301"]
    for login in (*strange, "x" * 101):
        assert forge.permission(login) is Permission.NONE
    assert bench.github.requests == []


def test_who_may_not_ask_is_told_what_it_takes(bench: Bench) -> None:
    body = {"message": "Must have push access to view collaborator permission."}
    bench.github.faults.append(Fault("GET", ".*/permission", status=403, body=body))
    forge = bench.forge()
    with pytest.raises(ForgePermissionError, match=r"the permission of ada of octo/demo.*metadata=read$"):
        forge.permission("ada")
    assert forge.permission("reporter") is Permission.WRITE


def test_without_a_token_nobody_is_asked_about(bench: Bench) -> None:
    with pytest.raises(ForgeAuthenticationError, match="set GITHUB_TOKEN"):
        bench.forge(None).permission("ada")


@table(
    ("user", "login"),
    [
        (None, ""),
        ({"login": "Ada", "type": "User"}, "Ada"),
        ({"login": "emu_acme", "type": "User"}, "emu_acme"),
        ({"login": "old-name-", "type": "User"}, "old-name-"),
        ({"login": "ghost", "type": "User"}, ""),
        ({"login": "dependabot[bot]", "type": "Bot"}, "dependabot[bot]"),
        ({"login": "Copilot", "type": "Bot"}, "Copilot[bot]"),
        ({"login": "dependabot", "__typename": "Bot"}, "dependabot[bot]"),
        ({"login": "ada", "__typename": "User"}, "ada"),
        ({"login": "ada", "__typename": "Mannequin"}, ""),
        ({"login": "ada", "__typename": "EnterpriseUserAccount"}, ""),
        ({"login": "ada[bot]", "type": "User"}, ""),
        ({"login": "a\x1b[2Jb", "type": "User"}, ""),
    ],
)
def test_whose_act_it_was(user: dict[str, str] | None, login: str) -> None:
    assert to_login(user) == login


@given(st.text(), st.sampled_from(["User", "Bot", "Mannequin", "Organization", ""]))
def test_every_name_is_one_that_may_be_asked_about_or_nobodys(login: str, kind: str) -> None:
    found = to_login({"login": login, "type": kind})
    assert not found or LOGIN.fullmatch(found)
    assert found.endswith("[bot]") == (kind == "Bot" and bool(found))


# History.


def test_an_issue_that_nobody_touched_has_no_history(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "One")
    found = bench.forge().history(1, "pullwright")
    assert (found.labelled_by, found.labelled_at, found.edits, found.is_complete) == (None, None, (), True)
    assert len(bench.github.queries) == 1


def test_a_history_tells_the_labeller_and_every_edit(bench: Bench) -> None:
    github = bench.github
    issue = github.add_issue(bench.repo, "One")
    labelled = people.label(github, issue, "pullwright", "ada")
    renamed = people.rename(github, issue, "Two", "bob")
    edited = people.edit(github, issue, "Text", "helper[bot]")

    found = bench.forge().history(1, "Pullwright")

    assert (found.labelled_by, found.labelled_at) == ("ada", labelled)
    assert set(found.edits) == {
        Edit("bob", renamed, "title"),
        Edit("helper[bot]", edited, "body"),
        Edit("reporter", issue.created_at, "body"),
    }


def test_a_label_that_came_off_was_put_on_by_nobody(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "One")
    events = [
        {
            "id": number,
            "event": event,
            "actor": {"login": actor, "type": "User"},
            "created_at": f"2026-01-0{number}T00:00:00Z",
            "label": {"name": "pullwright", "color": ""},
        }
        for number, event, actor in ((1, "labeled", "ada"), (2, "unlabeled", "mallory"))
    ]
    bench.github.faults.append(Fault("GET", EVENTS, status=200, body=events))
    found = bench.forge().history(1, "pullwright")
    assert (found.labelled_by, found.labelled_at) == (None, None)


@pytest.mark.parametrize(("login", "may"), [("Ada", True), ("mallory", False)])
def test_a_permission_of_somebody_else_is_none(login: str, *, may: bool) -> None:
    data = {"permission": "write", "role_name": "write", "user": {"login": login}}
    assert to_permission(data, "ada").may_write is may


def test_a_labeller_who_is_gone_is_nobody(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "One")
    event = {"id": 1, "event": "labeled", "actor": None, "created_at": "2026-01-01T00:00:00Z"}
    event |= {"label": {"name": "pullwright", "color": ""}}
    others = [{"id": 2, "event": "mentioned", "actor": None, "created_at": None}]
    bench.github.faults.append(Fault("GET", EVENTS, status=200, body=[event, *others]))
    assert bench.forge().history(1, "pullwright").labelled_by == ""


def test_an_edit_that_the_list_lacks_is_judged_all_the_same(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "One")
    issue = {
        "lastEditedAt": "2026-01-02T03:04:05Z",
        "editor": {"__typename": "User", "login": "mallory"},
        "userContentEdits": {"nodes": [], "pageInfo": {"hasNextPage": False, "endCursor": None}},
    }
    answer = {"data": {"repository": {"issue": issue}}}
    unread = {"data": {"repository": {"issue": issue | {"userContentEdits": None}}}}
    for body in (answer, unread):
        bench.github.faults.append(Fault("POST", GRAPHQL, status=200, body=body))
    forge = bench.forge()
    edit = Edit("mallory", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "body")
    first, second = forge.history(1, "x"), forge.history(1, "x")
    assert (first.edits, first.is_complete) == ((edit,), True)
    assert (second.edits, second.is_complete) == ((edit,), False)


def test_an_edit_that_is_not_shown_makes_the_history_incomplete(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "One")
    edits = {"nodes": [None], "pageInfo": {"hasNextPage": False, "endCursor": None}}
    issue = {"lastEditedAt": None, "editor": None, "userContentEdits": edits}
    body = {"data": {"repository": {"issue": issue}}}
    bench.github.faults.append(Fault("POST", GRAPHQL, status=200, body=body))
    assert not bench.forge().history(1, "x").is_complete


def test_every_page_of_edits_is_read_and_too_many_are_said_to_be(bench: Bench) -> None:
    github = bench.github
    issue = github.add_issue(bench.repo, "One")
    first = people.edit(github, issue, "first", "mallory")
    for number in range(150):
        people.edit(github, issue, f"{number}", "reporter")
    forge = bench.forge()

    found = forge.history(1, "x")
    assert found.is_complete
    assert Edit("mallory", first, "body") in found.edits
    assert len(github.queries) == 2

    for number in range(MOST_EDIT_PAGES * 100):
        people.edit(github, issue, f"{number}", "reporter")
    assert not forge.history(1, "x").is_complete


def test_edits_are_not_asked_again_while_the_issue_rests(bench: Bench) -> None:
    github, forge = bench.github, bench.forge()
    issue = github.add_issue(bench.repo, "One", labels=["pullwright"])
    for _ in range(5):
        assert forge.history(1, "pullwright").edits == ()
        bench.clock.advance(SETTLED_SECONDS + 1)
    assert len(github.queries) == 2

    moment = people.edit(github, issue, "do evil", "mallory")
    for _ in range(3):
        assert Edit("mallory", moment, "body") in forge.history(1, "pullwright").edits
    assert len(github.queries) == 5


def test_an_edit_that_graphql_tells_late_is_seen(bench: Bench) -> None:
    github, forge = bench.github, bench.forge()
    issue = github.add_issue(bench.repo, "One", labels=["pullwright"])
    edits = issue.body_edits
    moment = people.edit(github, issue, "do evil", "mallory")
    issue.body_edits = []
    assert forge.history(1, "pullwright").edits == ()
    issue.body_edits = edits
    bench.clock.advance(SETTLED_SECONDS + 1)
    assert Edit("mallory", moment, "body") in forge.history(1, "pullwright").edits


def test_every_page_of_events_is_read_and_too_many_are_said_to_be(bench: Bench) -> None:
    github = bench.github
    issue = github.add_issue(bench.repo, "One")
    for number in range(150):
        people.rename(github, issue, f"{number}", "mallory")
    people.label(github, issue, "pullwright", "ada")
    found = bench.forge().history(1, "pullwright")
    assert (found.labelled_by, len(found.edits), found.is_complete) == ("ada", 150, True)
    endless = {"Link": f'<{github.url}{EVENTS}?page=2>; rel="next"'}
    github.faults.append(Fault("GET", EVENTS, 999, status=200, body=[], headers=endless))
    before = len(github.requests)
    assert not bench.forge().history(1, "pullwright").is_complete
    assert len(github.requests) - before <= MOST_EVENT_PAGES + 3


def test_an_issue_that_is_not_there_has_no_history(bench: Bench) -> None:
    with pytest.raises(ForgeNotFoundError):
        bench.forge().history(7, "x")


def test_a_pull_request_has_no_history(bench: Bench) -> None:
    bench.github.add_pull(bench.repo, "x")
    with pytest.raises(ForgeNotFoundError, match="Could not resolve to an Issue"):
        bench.forge().history(1, "x")


def test_a_renamed_repository_is_asked_about_by_its_present_name(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "One")
    bench.github.rename(bench.repo, "octo/better")
    bench.forge(name="octo/demo").history(1, "x")
    assert bench.github.queries[0].body["variables"]["name"] == "better"


# GraphQL.


def test_a_query_waits_for_no_write_and_is_sent_again(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "One")
    bench.github.faults.append(lost_reply("POST", GRAPHQL))
    forge = bench.forge(pacing=30.0)
    start = bench.clock.now()
    forge.ensure_comment(1, "k", "Hello")
    forge.history(1, "x")
    assert bench.waited == [1.0]
    assert bench.clock.now() - start < timedelta(seconds=30)


def test_a_limit_in_an_answer_of_status_200_is_waited_for(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "One")
    reset = str(int((bench.clock.now() + timedelta(seconds=40)).timestamp()))
    body = {"errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded"}]}
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": reset}
    bench.github.faults.append(Fault("POST", GRAPHQL, status=200, body=body, headers=headers))
    assert bench.forge().history(1, "x").is_complete
    assert bench.waited == [41.0]


def _answer(*errors: Any, data: Any = None) -> Reply:
    return Reply(200, {}, json.dumps({"data": data, "errors": list(errors)}))


GOOD = {"repository": {"issue": {"lastEditedAt": None, "editor": None, "userContentEdits": None}}}


@table(
    ("reply", "kind"),
    [
        (_answer({"type": "RATE_LIMITED", "message": "Slow"}), ForgeRateLimitError),
        (_answer({"type": "FORBIDDEN", "message": "Resource not accessible"}), ForgePermissionError),
        (_answer({"type": "INSUFFICIENT_SCOPES", "message": "No"}), ForgePermissionError),
        (_answer({"type": "NOT_FOUND", "message": "None"}, data=GOOD), ForgeNotFoundError),
        (_answer({"message": "Something went wrong while executing your query."}), ForgeUnavailableError),
        (_answer({"message": "Field 'x' doesn't exist"}, data=GOOD), ForgeError),
        (_answer("text", data=GOOD), ForgeError),
        (Reply(200, {}, '{"data": {}, "errors": {"message": "x"}}'), ForgeError),
        (Reply(200, {}, '{"data": {}, "errors": "x"}'), ForgeError),
    ],
)
def test_an_error_beside_data_is_an_error(reply: Reply, kind: type[ForgeError]) -> None:
    error = error_of_query(reply, "read the edits", NOW)
    assert type(error) is kind
    assert str(error).startswith("cannot read the edits")
    assert "\n" not in str(error)


@table("text", ['{"data": {}}', '{"data": {}, "errors": []}', "[]", "no JSON", ""])
def test_an_answer_without_an_error_is_left_to_its_reader(text: str) -> None:
    assert error_of_query(Reply(200, {}, text), "read", NOW) is None


@table(
    ("server", "address"),
    [
        ("https://github.com", "https://api.github.com/graphql"),
        ("https://acme.ghe.com", "https://api.acme.ghe.com/graphql"),
        ("https://git.example.com", "https://git.example.com/api/graphql"),
    ],
)
def test_where_pygithub_sends_a_query(server: str, address: str) -> None:
    from github import Github

    assert Github(base_url=api_url_for(server)).requester.graphql_url == address

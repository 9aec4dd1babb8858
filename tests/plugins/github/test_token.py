"""Whose a token is: its kind by its form, our name, and what GitHub says of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.forge.base import RequestQuota, TokenKind
from orchestrator.core.errors import ForgeAuthenticationError, ForgeError, ForgeUnavailableError
from orchestrator.plugins.github.address import api_url_for
from orchestrator.plugins.github.calls import CallTiming
from orchestrator.plugins.github.forge import GitHubForge
from orchestrator.plugins.github.repository import WORKFLOW_LOGIN, to_expiry, token_kind_of
from orchestrator.plugins.github.transport import GitHubApp, GitHubToken
from tests.doubles.github.faults import Fault, server_error
from tests.doubles.github.state import Grant
from tests.tables import table

if TYPE_CHECKING:
    from tests.plugins.github.conftest import Bench


@table(
    ("token", "kind", "in_workflow"),
    [
        ("", TokenKind.NONE, TokenKind.NONE),
        ("ghp_abc", TokenKind.CLASSIC, TokenKind.CLASSIC),
        ("github_pat_abc", TokenKind.FINE_GRAINED, TokenKind.FINE_GRAINED),
        ("gho_abc", TokenKind.OAUTH, TokenKind.OAUTH),
        ("ghu_abc", TokenKind.OAUTH, TokenKind.OAUTH),
        ("ghs_abc", TokenKind.APP, TokenKind.WORKFLOW),
        ("ghs_15368_eyJ.x.y", TokenKind.APP, TokenKind.WORKFLOW),
        ("ghs_4001_eyJ.x.y", TokenKind.APP, TokenKind.APP),
        ("0123456789abcdef0123456789abcdef01234567", TokenKind.OTHER, TokenKind.OTHER),
        ("xghp_abc", TokenKind.OTHER, TokenKind.OTHER),
    ],
)
def test_the_form_tells_the_kind(token: str, kind: TokenKind, in_workflow: TokenKind) -> None:
    assert token_kind_of(token) is kind
    assert token_kind_of(token, in_workflow=True) is in_workflow


def in_workflow(bench: Bench, token: str) -> GitHubForge:
    timing = CallTiming(bench.clock, bench.clock.advance, pacing_seconds=0)
    url = api_url_for(bench.github.web_url)
    forge = GitHubForge("octo/demo", GitHubToken(token), timing, url, in_workflow=True)
    bench.opened.append(forge)
    return forge


def test_a_person_has_a_name_and_is_asked_once(bench: Bench) -> None:
    forge = bench.forge(bench.github.token("ada", scopes="repo"))
    assert [forge.own_login(), forge.own_login()] == ["ada", "ada"]
    assert forge.token_kind() is TokenKind.CLASSIC
    assert len(bench.github.calls("GET", "/user")) == 1
    assert bench.github.queries == []


def test_an_app_has_a_name_that_only_graphql_tells(bench: Bench) -> None:
    app = bench.github.app(["octo/demo"])
    forge = bench.forge(GitHubApp(str(app.id), app.private_key))
    assert [forge.own_login(), forge.own_login()] == [f"{app.slug}[bot]"] * 2
    assert forge.token_kind() is TokenKind.APP
    assert bench.github.calls("GET", "/user") == []
    assert len(bench.github.queries) == 1


def test_a_workflows_token_is_told_from_an_apps_by_its_name(bench: Bench) -> None:
    app = bench.github.app(["octo/demo"])
    token, _ = bench.github.installation_token(app, ["octo/demo"])
    bench.github.grants["ghs_old"] = Grant(WORKFLOW_LOGIN, app.permissions, None, app)
    bench.github.grants["ghs_7_enterprise"] = Grant(WORKFLOW_LOGIN, app.permissions, None, app)
    bench.github.grants["ghs_app"] = Grant(f"{app.slug}[bot]", app.permissions, None, app)
    kinds = [
        in_workflow(bench, one).token_kind() for one in ("ghs_old", "ghs_7_enterprise", "ghs_app", token)
    ]
    assert kinds == [TokenKind.WORKFLOW, TokenKind.WORKFLOW, TokenKind.APP, TokenKind.APP]
    assert bench.forge("ghs_old").token_kind() is TokenKind.APP


def test_where_github_does_not_tell_the_name_the_form_is_what_is_left(bench: Bench) -> None:
    bench.github.faults.append(Fault("POST", "/api/graphql", status=403, body={"message": "No"}, times=9))
    forge = in_workflow(bench, "ghs_old")
    assert (forge.own_login(), forge.token_kind()) == (None, TokenKind.WORKFLOW)
    assert len(bench.github.queries) == 1


@pytest.mark.parametrize("login", ["", "../x", "a b", "x" * 200])
def test_a_name_that_nobody_can_have_is_none(bench: Bench, login: str) -> None:
    answer = {"data": {"viewer": {"login": login}}}
    bench.github.faults.append(Fault("POST", "/api/graphql", status=200, body=answer))
    assert in_workflow(bench, "ghs_old").own_login() is None


def test_an_outage_is_not_a_missing_name(bench: Bench) -> None:
    token = bench.github.token("ada")
    bench.github.faults.append(server_error("GET", "/user", times=4))
    forge = bench.forge(token)
    with pytest.raises(ForgeUnavailableError):
        forge.own_login()
    assert forge.own_login() == "ada"


def test_an_outage_of_graphql_is_not_a_missing_name(bench: Bench) -> None:
    app = bench.github.app(["octo/demo"])
    bench.github.faults.append(server_error("POST", "/api/graphql", times=4))
    forge = bench.forge(GitHubApp(str(app.id), app.private_key))
    with pytest.raises(ForgeUnavailableError):
        forge.own_login()
    assert forge.own_login() == f"{app.slug}[bot]"


def test_nobody_has_no_name(bench: Bench) -> None:
    forge = bench.forge(None)
    assert (forge.own_login(), forge.token_kind()) == (None, TokenKind.NONE)
    assert bench.github.requests == []


# What GitHub says of a token.

ENDS = datetime(2099, 1, 31, 8, tzinfo=UTC)


def test_a_classic_token_has_scopes_and_an_end(bench: Bench) -> None:
    bench.github.skew = timedelta(0)
    forge = bench.forge(bench.github.token("ada", scopes="repo, workflow", expires_at=ENDS))
    remaining = bench.github.remaining
    facts = forge.about_token()
    assert (facts.kind, facts.scopes, facts.expires_at) == (TokenKind.CLASSIC, ("repo", "workflow"), ENDS)
    reset = datetime.fromtimestamp(bench.github.reset_at, UTC)
    assert facts.quotas["core"] == RequestQuota("", "core", 5000, remaining, reset)
    assert facts.server_date is not None
    assert facts.server_date.tzinfo is not None
    assert bench.github.remaining == remaining


def test_no_scopes_are_told_from_scopes_that_are_not_said(bench: Bench) -> None:
    assert bench.forge(bench.github.token("ada", scopes="")).about_token().scopes == ()
    assert bench.forge(bench.github.token("ada")).about_token().scopes is None


def test_a_server_without_limits_says_so(bench: Bench) -> None:
    body = {"message": "Rate limiting is not enabled."}
    bench.github.faults.append(Fault("GET", "/rate_limit", status=404, body=body))
    facts = bench.forge(bench.github.token("ada")).about_token()
    assert facts.quotas == {}
    assert facts.kind is TokenKind.FINE_GRAINED


def test_a_token_that_is_not_valid_is_told_so(bench: Bench) -> None:
    with pytest.raises(ForgeAuthenticationError, match="does not accept the token"):
        bench.forge("ghp_wrong").about_token()


@pytest.mark.parametrize("reset", [-1, 10**15, "soon", None])
def test_a_reset_that_is_no_time_is_an_error(bench: Bench, reset: object) -> None:
    core = {"limit": 1, "remaining": 1, "reset": reset}
    bench.github.faults.append(Fault("GET", "/rate_limit", status=200, body={"resources": {"core": core}}))
    with pytest.raises(ForgeError, match="does not have GitHub's form"):
        bench.forge().about_token()


@table(
    ("text", "time"),
    [
        ("2099-01-31 08:00:00 UTC", ENDS),
        ("2099-01-31 09:00:00 +0100", ENDS),
        (" 2099-01-31 03:00:00 -0500", ENDS),
        ("2099-01-31 08:00:00", None),
        ("2099-01-31 08:00:00 CET", None),
        ("never", None),
        ("", None),
        ("0001-01-01 00:00:00 +2300", None),
    ],
)
def test_an_end_is_a_time_with_a_zone(text: str, time: datetime | None) -> None:
    assert to_expiry(text) == time


@given(st.text(max_size=40))
def test_any_end_is_a_time_or_none(text: str) -> None:
    found = to_expiry(text)
    assert found is None or found.tzinfo is UTC

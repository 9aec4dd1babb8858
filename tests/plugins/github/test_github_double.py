"""The GitHub double keeps GitHub's rules and says when somebody breaks its description."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.doubles.github.contract import github_contract
from tests.doubles.github.faults import Fault
from tests.doubles.github.server import GitHub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def ask(
    github: GitHub, method: str, path: str, body: Any = None, token: str | None = None
) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    address = (github.web_url if path == "/api/graphql" else github.url) + path
    request = Request(address, data, headers, method=method)  # noqa: S310  our own loopback server
    try:
        with urlopen(request, timeout=10) as reply:  # noqa: S310  the same
            return reply.status, json.loads(reply.read())
    except HTTPError as error:
        with error:
            return error.code, json.loads(error.read() or b"null")


def git(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[GitHub]:
    """A double whose violations the test looks at itself."""
    with GitHub(tmp_path / "github") as double:
        double.add_repository("octo/demo")
        yield double


@pytest.mark.parametrize(
    ("method", "path", "body", "violation"),
    [
        ("GET", "/repos/octo/demo/issues?label=x", None, "query parameter 'label' is not in the description"),
        ("GET", "/repos/octo/demo/issues?state=opened", None, "query parameter 'state'"),
        ("GET", "/repos/octo/demo/issues?per_page=many", None, "query parameter 'per_page'"),
        ("GET", "/repos/octo/demo/stargazers", None, "not in the kept part of the description"),
        ("POST", "/repos/octo/demo/pulls", None, "no body"),
        ("POST", "/repos/octo/demo/pulls", {"title": "t", "head": "x"}, "'base' is a required property"),
        ("POST", "/repos/octo/demo/pulls", {"head": "x", "base": "main", "drfat": True}, "'drfat' is not in"),
        ("POST", "/repos/octo/demo/issues/1/comments", {"body": 1}, "1 is not of type 'string'"),
        ("GET", "/repos/octo/demo", {"a": 1}, "a body where the description has none"),
    ],
)
def test_a_request_that_github_does_not_describe_is_a_violation(
    broken: GitHub, method: str, path: str, body: Any, violation: str
) -> None:
    status, answer = ask(broken, method, path, body, broken.token())
    assert status == 599
    assert violation in answer["message"]
    assert violation in broken.violations[0]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"number": "1"}, "'1' is not of type 'integer'"),
        ({"user": 3}, "3 is not valid under any of the given schemas"),
        ({"created_at": "yesterday"}, "'yesterday' is not a 'date-time'"),
        ({"html_url": "no address"}, "'no address' is not a 'uri'"),
    ],
)
def test_a_reply_of_another_form_is_a_violation(broken: GitHub, change: dict[str, Any], problem: str) -> None:
    repo = broken.repositories[0]
    good = broken.render.issue(repo, broken.add_issue(repo, "One"))
    operation = github_contract().operation("GET", "/repos/octo/demo/issues/1")
    assert operation is not None
    assert list(github_contract().reply_problems(operation, 200, good)) == []
    assert any(problem in found for found in github_contract().reply_problems(operation, 200, good | change))
    missing = {key: value for key, value in good.items() if key != "title"}
    assert list(github_contract().reply_problems(operation, 200, missing)) == [
        "$: 'title' is a required property"
    ]
    assert list(github_contract().reply_problems(operation, 207, good)) == [
        "status 207 is not in the description"
    ]


def test_nothing_nullable_is_lost() -> None:
    operation = github_contract().operation("GET", "/repos/octo/demo/pulls/1")
    assert operation is not None
    problems = list(github_contract().reply_problems(operation, 200, {"merged_at": None, "title": None}))
    assert "$.title: None is not of type 'string'" in problems
    assert not [problem for problem in problems if problem.startswith("$.merged_at")]


def test_a_defect_of_the_double_is_a_violation(broken: GitHub) -> None:
    broken.repositories[0].created_at = None  # type: ignore[assignment]  # breaks it on purpose
    broken.repositories.append(None)  # type: ignore[arg-type]  # the same
    with pytest.raises(OSError, match="closed connection"):
        ask(broken, "GET", "/repositories/9/issues")
    assert "the double failed: AttributeError" in broken.violations[0]


def test_the_rules_of_pull_requests(github: GitHub) -> None:
    repo = github.add_repository("octo/demo")
    github.commit(repo, {"a": "1"}, branch="a")
    token = github.token()
    body = {"title": "t", "head": "a", "base": "main"}

    assert ask(github, "POST", "/repos/octo/demo/pulls", body)[0] == 401
    assert ask(github, "POST", "/repos/octo/demo/pulls", body, "wrong")[0] == 401
    assert ask(github, "POST", "/repos/octo/demo/pulls", body, github.token(permissions={}))[0] == 403
    assert ask(github, "POST", "/repos/octo/demo/pulls", body, token)[0] == 201
    assert ask(github, "POST", "/repos/octo/demo/pulls", body, token)[0] == 422
    status, listed = ask(github, "GET", "/repos/octo/demo/issues", None, token)
    assert (status, [issue["pull_request"]["html_url"] for issue in listed]) == (
        200,
        [f"{github.web_url}/octo/demo/pull/1"],
    )
    assert ask(github, "GET", "/repos/octo/demo/pulls/1")[1]["head"]["sha"] == repo.branches()["a"]


def test_git_clones_pushes_and_is_refused(github: GitHub, tmp_path: Path) -> None:
    repo = github.add_repository("octo/secret", private=True)
    plain = f"{github.web_url}/octo/secret.git"

    def url(token: str) -> str:
        return plain.replace("//", f"//x-access-token:{token}@")

    good, reader, foreign = (
        github.token(),
        github.token(permissions={"contents": "read"}),
        github.token(repositories=[]),
    )
    clone = tmp_path / "clone"
    assert git("clone", "-q", "--depth", "1", url(good), str(clone)).returncode == 0
    (clone / "big.bin").write_bytes(b"\0\1" * 1_500_000)
    git("add", "big.bin", folder=clone)
    git("-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-q", "-m", "Big", folder=clone)
    assert git("push", "-q", url(good), "HEAD:refs/heads/big", folder=clone).returncode == 0
    assert repo.branches()["big"] == git("rev-parse", "HEAD", folder=clone).stdout.strip()

    assert git("ls-remote", url(reader)).returncode == 0
    denied = git("push", "-q", url(reader), "HEAD:refs/heads/no", folder=clone)
    assert "403" in denied.stderr
    assert "not found" in git("ls-remote", url(foreign)).stderr
    assert git("-c", "core.askPass=true", "ls-remote", plain).returncode != 0
    assert "no" not in repo.branches()
    assert {seen.token for seen in github.calls("GET", "/octo/secret.git")} >= {good, reader, foreign, None}


def test_faults_strike_in_their_order_and_as_often_as_told(github: GitHub) -> None:
    github.add_repository("octo/demo")
    github.faults += [
        Fault("GET", "/repos/.*", times=1, skip=1, status=500, body={"message": "Oops"}),
        Fault("*", "/repos/octo/demo", times=1, status=418, headers={"X-Tea": "1"}),
    ]
    statuses = [ask(github, "GET", "/repos/octo/demo")[0] for _ in range(4)]
    assert statuses == [418, 500, 200, 200]
    assert [seen.status for seen in github.requests] == statuses


QUERY = "query($number: Int!, $owner: String!, $name: String!, $after: String) { %s }"
NAMED = "repository(owner: $owner, name: $name)"
WELL = f"{NAMED} {{ issue(number: $number) {{ userContentEdits(first: 9, after: $after) {{ nodes {{ %s }} }} }} }}"


@pytest.mark.parametrize(
    ("query", "variables", "violation"),
    [
        (QUERY % (WELL % "editdAt"), {}, "UserContentEdit has no field 'editdAt'"),
        (QUERY % (WELL % "editedAt") + "}", {}, "after the end"),
        (QUERY % (WELL % "editedAt"), {"number": "1"}, "$number is no Int!"),
        (QUERY % (WELL % "editedAt"), {"owner": None}, "$owner is no String!"),
        (QUERY % (WELL % "editedAt"), {"more": 1}, "differ"),
        (QUERY % f"{NAMED} {{ issue {{ title }} }}", {}, "issue needs number"),
        (QUERY % f"{NAMED} {{ issue(number: $owner) {{ title }} }}", {}, "$owner cannot be"),
        (QUERY % f"{NAMED} {{ issue(nr: $number) {{ title }} }}", {}, "issue takes no 'nr'"),
        (QUERY % WELL.replace("first: 9", "first: 101") % "editedAt", {}, "'101' cannot be"),
        (QUERY % "nobody { login }", {}, "Query has no field 'nobody'"),
        (QUERY % NAMED, {}, "instead of {"),
        ("mutation { x }", {}, "'mutation' instead of query"),
        ("query(", {}, "the end"),
        ("query ; {}", {}, "cannot read"),
    ],
)
def test_a_query_that_github_would_reject_is_a_violation(
    broken: GitHub, query: str, variables: dict[str, Any], violation: str
) -> None:
    given = {"owner": "octo", "name": "demo", "number": 1, "after": None, **variables}
    body = {"query": query, "variables": given}
    status, answer = ask(broken, "POST", "/api/graphql", body, broken.token())
    assert (status, list(answer)) == (200, ["errors"])
    assert violation in broken.violations[0]


def test_a_query_needs_a_token(github: GitHub) -> None:
    assert ask(github, "POST", "/api/graphql", {})[0] == 401

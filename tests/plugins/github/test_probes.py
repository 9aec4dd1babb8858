from __future__ import annotations

from datetime import UTC, datetime, timedelta
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.app.doctor import diagnose
from orchestrator.app.doctor.findings import ProbeState
from orchestrator.app.doctor.repository import fix_for
from orchestrator.core.clock import ManualClock
from tests.doubles.github.faults import Fault, server_error
from tests.doubles.github.fixtures import github
from tests.doubles.github.state import BranchRule
from tests.doubles.model_server import NO_OTHERS
from tests.tables import table

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.app.doctor.findings import ProbeFinding
    from tests.doubles.github.server import GitHub
    from tests.doubles.github.state import Repo


__all__ = ["github"]

NAME = "octo/calc"
ALL = {"contents": "write", "issues": "write", "pull_requests": "write"}
REPLAY = {"model": "replay:last"}


@pytest.fixture
def repo(github: GitHub) -> Repo:
    repo = github.add_repository(NAME, private=True)
    github.add_issue(repo, "One", labels=["pullwright"])
    github.reset_at = int(datetime(2030, 1, 1, tzinfo=UTC).timestamp())
    return repo


class Doctor:
    def __init__(self, github: GitHub, folder: Path) -> None:
        self.github, self.folder = github, folder
        github.skew = timedelta(0)
        self.environ: dict[str, str] = {**NO_OTHERS, "PULLWRIGHT_HOME": str(folder / "home")}
        self.flags: dict[str, Any] = {"github_url": github.web_url, **REPLAY}
        self.clock = ManualClock(datetime.now(UTC))

    def __call__(self, token: str | None, *, writes: bool = False, **flags: Any) -> dict[str, ProbeFinding]:
        if token is not None:
            self.environ["GITHUB_TOKEN"] = token
        found = diagnose(
            NAME,
            {**self.flags, **flags},
            {**self.environ, "PULLWRIGHT_CONFIG": "/dev/null"},
            self.folder,
            writes=writes,
            clock=self.clock,
        )
        results = list(found)
        for result in results:
            text = f"{result.group} {result.finding.found} {result.finding.fix}"
            assert token is None or token not in text
            assert (result.finding.fix != "") == (
                result.finding.state in {ProbeState.WARNING, ProbeState.FAILED}
            ), result
        about = ("GitHub", "Git", "Repository")
        return {result.probe: result.finding for result in results if result.group.startswith(about)}


@pytest.fixture
def doctor(github: GitHub, repo: Repo, tmp_path: Path) -> Doctor:
    assert repo.full_name == NAME
    return Doctor(github, tmp_path)


def test_a_token_that_may_everything_fails_nowhere(doctor: Doctor, github: GitHub, repo: Repo) -> None:
    found = doctor(github.token(scopes="repo, workflow"), allow_path=[".github/**"])
    assert {name: one for name, one in found.items() if one.state is not ProbeState.OK} == {}
    assert "classic" in found["token"].found
    assert "repo, workflow" in found["token"].found
    assert "core: " in found["rate limits"].found
    assert "graphql: " in found["rate limits"].found
    assert found["workflow files"].found == "may be changed, by the scope workflow"
    assert github.calls("POST", "/issues") == []
    assert [call for call in github.calls("POST") if not call.path.endswith("git-upload-pack")] == []
    assert len(repo.threads) == 1


@pytest.mark.parametrize("missing", ["contents", "issues", "pull_requests"])
@pytest.mark.parametrize("kind", ["fine-grained", "app"])
def test_a_missing_permission_is_named_with_its_place(
    doctor: Doctor, github: GitHub, repo: Repo, missing: str, kind: str
) -> None:
    may = {**ALL, missing: "read"}
    if kind == "app":
        token, _ends = github.installation_token(github.app([NAME], permissions=may), [NAME])
    else:
        token = github.token(permissions=may)
    found = doctor(token, writes=True)
    probe = {"contents": "push", "issues": "write issues", "pull_requests": "pull requests"}[missing]
    name = {"contents": "Contents", "issues": "Issues", "pull_requests": "Pull requests"}[missing]
    failed = {name: one for name, one in found.items() if one.state is ProbeState.FAILED}
    assert set(failed) == {probe}
    assert f"Repository permissions > {name}: Read and write" in failed[probe].fix
    page = "/settings/personal-access-tokens" if kind == "fine-grained" else "in its installation"
    assert page in failed[probe].fix
    assert len(repo.threads) == 1


def test_what_was_not_tried_is_not_called_good(doctor: Doctor, github: GitHub) -> None:
    found = doctor(github.token(permissions={**ALL, "issues": "read", "pull_requests": "read"}))
    for probe in ("write issues", "pull requests"):
        assert found[probe].state is ProbeState.SKIPPED
        assert "--write" in found[probe].found
    assert [call for call in github.calls("POST") if call.path.startswith("/repos")] == []


def test_a_push_is_tried_without_writing_and_with_write_leaves_nothing(
    doctor: Doctor, github: GitHub, repo: Repo
) -> None:
    assert doctor(github.token())["push"].found == "yes, tried without writing"
    assert github.calls("POST", "git-receive-pack") == []
    found = doctor(github.token(), writes=True)
    assert found["push"].found == "yes: refs/pullwright/doctor was created and removed"
    assert len(github.calls("POST", "git-receive-pack")) == 2
    assert set(repo.branches()) == {"main"}
    assert not (repo.path / "refs" / "pullwright").exists() or not list(
        (repo.path / "refs" / "pullwright").rglob("doctor")
    )


@pytest.mark.slow(reason="many programs or examples; the like of them is in the default tier")
@pytest.mark.parametrize(
    ("scopes", "private", "probe", "state", "words"),
    [
        ("", True, "pull requests", ProbeState.FAILED, "the scope repo:"),
        ("public_repo", True, "write issues", ProbeState.FAILED, "the scope repo:"),
        ("public_repo", False, "write issues", ProbeState.OK, ""),
        ("gist", False, "pull requests", ProbeState.FAILED, "the scope public_repo:"),
        ("repo", True, "workflow files", ProbeState.FAILED, "the scope workflow:"),
    ],
)
def test_the_scopes_of_a_classic_token(  # noqa: PLR0913, PLR0917  a row of the table
    doctor: Doctor,
    github: GitHub,
    repo: Repo,
    scopes: str,
    private: bool,  # noqa: FBT001  a row of the table
    probe: str,
    state: ProbeState,
    words: str,
) -> None:
    repo.private = private
    found = doctor(github.token(scopes=scopes), allow_path=[".github/**"])
    assert found[probe].state is state
    assert words in found[probe].fix


def test_a_reader_with_a_mighty_token(doctor: Doctor, github: GitHub) -> None:
    found = doctor(github.token(scopes="repo", permissions={"contents": "read"}))
    for probe in ("write issues", "pull requests", "push"):
        assert found[probe].state is ProbeState.FAILED
        assert "the role Write: " in found[probe].fix


@pytest.mark.slow(reason="many programs or examples; the like of them is in the default tier")
@pytest.mark.parametrize(
    ("minutes", "state"),
    [
        (0, ProbeState.OK),
        (4, ProbeState.OK),
        (7, ProbeState.WARNING),
        (-7, ProbeState.WARNING),
        (20, ProbeState.FAILED),
        (-20, ProbeState.FAILED),
    ],
)
def test_a_clock_that_is_wrong(doctor: Doctor, github: GitHub, minutes: int, state: ProbeState) -> None:
    doctor.clock = ManualClock(datetime.now(UTC) + timedelta(minutes=minutes))
    found = doctor(github.token())["clock"]
    assert found.state is state
    assert state is ProbeState.OK or "timedatectl" in found.fix
    assert minutes == 0 or ("ahead of" if minutes > 0 else "behind") in found.found


def test_a_token_that_ends_soon(doctor: Doctor, github: GitHub) -> None:
    soon = doctor(github.token(expires_at=datetime.now(UTC) + timedelta(days=3)))["expiry"]
    assert soon.state is ProbeState.WARNING
    assert "make a new one" in soon.fix
    later = doctor(github.token(expires_at=datetime.now(UTC) + timedelta(days=30)))["expiry"]
    assert later.state is ProbeState.OK


def test_a_token_that_github_does_not_know(doctor: Doctor) -> None:
    found = doctor("ghp_" + "x" * 40)
    assert found["token"].state is ProbeState.FAILED
    assert "/settings/tokens" in found["token"].fix
    assert found["repository"].state is ProbeState.FAILED
    assert found["push"].state is ProbeState.SKIPPED
    assert found["expiry"].state is ProbeState.SKIPPED


def test_no_token(doctor: Doctor, repo: Repo) -> None:
    repo.private = False
    found = doctor(None)
    assert found["token"].state is ProbeState.FAILED
    assert "GITHUB_TOKEN" in found["token"].fix
    assert found["repository"].state is ProbeState.OK
    assert found["push"].state is ProbeState.FAILED
    assert "GITHUB_TOKEN" in found["push"].fix


def test_a_workflows_token_starts_no_checks(doctor: Doctor, github: GitHub) -> None:
    doctor.environ["GITHUB_ACTIONS"] = "true"
    doctor.environ["GITHUB_TOKEN"] = token = "ghs_" + "a1B2" * 9
    app = github.app([NAME], permissions={**ALL, "contents": "read"})
    made, _ends = github.installation_token(app, [NAME])
    grant = github.grants[made]
    github.grants[token] = type(grant)("github-actions[bot]", grant.permissions, grant.repositories, app)
    found = doctor(None, allow_path=[".github/**"])
    assert "workflow run" in found["token"].found
    assert found["checks"].state is ProbeState.WARNING
    assert "GitHub App" in found["checks"].fix
    assert found["workflow files"].state is ProbeState.FAILED
    assert "never may" in found["workflow files"].fix
    assert found["push"].state is ProbeState.FAILED
    assert "contents: write" in found["push"].fix


@pytest.mark.parametrize(
    ("path", "words"),
    [("check-runs", "Checks: Read-only"), ("status", "Commit statuses: Read-only")],
)
def test_checks_that_may_not_be_read(doctor: Doctor, github: GitHub, path: str, words: str) -> None:
    body = {"message": "Resource not accessible by personal access token"}
    github.faults.append(Fault("GET", f".*/{path}", status=403, body=body))
    found = doctor(github.token())["checks"]
    assert found.state is ProbeState.WARNING
    assert "failed ones are never seen" in found.found
    assert f"Repository permissions > {words}" in found.fix


@pytest.mark.parametrize(
    ("status", "said", "fix"),
    [
        (403, "This repository was archived so it is read-only.", "unarchive it"),
        (403, "Permission to octo/calc.git denied to ada.", "Contents: Read and write"),
        (429, "You have exceeded a rate limit.", "wait, and run again"),
    ],
)
def test_what_a_git_server_says_is_shown_with_the_fix_that_fits(
    doctor: Doctor, github: GitHub, status: int, said: str, fix: str
) -> None:
    headers = {"Content-Type": "text/plain"}
    github.faults.append(
        Fault("*", r"/octo/calc\.git/.*", times=100, status=status, headers=headers, body=said)
    )
    found = doctor(github.token())["push"]
    assert found.state is ProbeState.FAILED
    assert f"the server says: {said}" in found.found
    assert fix in found.fix


@table(
    ("said", "fix"),
    [
        (
            "error: GH013: Repository rule violations found | - Push cannot contain secrets",
            "remove the secret",
        ),
        (
            "error: GH013: Repository rule violations found | - Commits must have verified signatures.",
            "not signed",
        ),
        (
            "error: GH006: Protected branch update failed | error: Commits must have valid signatures.",
            "not signed",
        ),
        ("error: GH006: Protected branch update failed for refs/heads/pullwright/a.", "from that protection"),
        (
            "error: GH013: | - Cannot create ref due to creations being restricted.",
            "from the rule at the address",
        ),
        ("ERROR: The key you are authenticating with has been marked as read only.", "that may write"),
        ("(pre-receive hook declined); the server says: no", "ask the server's administrator"),
        (
            "no permission; the server says: The 'acme' organization has enabled or enforced SAML SSO.",
            "Configure SSO",
        ),
        ("there is no such repository; the server says: Repository not found.", "give the token access"),
        ("something else", "otherwise"),
    ],
)
def test_the_fix_fits_what_the_server_says(said: str, fix: str) -> None:
    assert fix in fix_for(said, "otherwise")


def test_what_a_servers_rules_say_is_shown_by_a_push_that_writes(
    doctor: Doctor, github: GitHub, repo: Repo
) -> None:
    hook = repo.path / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'error: GH013: Repository rule violations found' >&2\nexit 1\n")
    hook.chmod(0o755)
    found = doctor(github.token(), writes=True)["push"]
    assert found.state is ProbeState.FAILED
    assert "the server says: error: GH013: Repository rule violations found" in found.found
    assert "from the rule at the address" in found.fix


def test_little_is_left_of_the_rate_limit(doctor: Doctor, github: GitHub) -> None:
    github.remaining = 300
    found = doctor(github.token())["rate limits"]
    assert found.state is ProbeState.WARNING
    assert "00:00 UTC" in found.fix


def test_the_repository_itself(doctor: Doctor, github: GitHub, repo: Repo) -> None:
    repo.archived = True
    found = doctor(github.token())
    assert found["repository"].state is ProbeState.FAILED
    assert "unarchive" in found["repository"].fix
    assert found["push"].state is ProbeState.FAILED
    repo.archived, repo.has_issues = False, False
    found = doctor(github.token())
    assert found["read issues"].state is ProbeState.WARNING
    assert "switch Issues on" in found["read issues"].fix
    assert found["label"].state is ProbeState.SKIPPED
    github.repositories.clear()
    assert doctor(github.token())["repository"].state is ProbeState.FAILED


def test_an_empty_repository(doctor: Doctor, github: GitHub, repo: Repo) -> None:
    rmtree(repo.path)
    github.repositories.clear()
    github.add_repository(NAME, None)
    found = doctor(github.token())
    assert found["repository"].fix == "push a first commit"
    assert found["push"].state is ProbeState.SKIPPED


def test_no_label(doctor: Doctor, github: GitHub) -> None:
    found = doctor(github.token(), label="robots")["label"]
    assert found.state is ProbeState.WARNING
    assert found.fix.endswith("/octo/calc/labels")


def test_issues_that_may_not_be_read(doctor: Doctor, github: GitHub) -> None:
    body = {"message": "Resource not accessible by personal access token"}
    headers = {"x-accepted-github-permissions": "issues=read"}
    github.faults.append(Fault("GET", "/repos/octo/calc/issues", status=403, headers=headers, body=body))
    found = doctor(github.token())["read issues"]
    assert found.state is ProbeState.FAILED
    assert "Issues: Read and write" in found.fix


@pytest.mark.slow(reason="many programs or examples; the like of them is in the default tier")
@pytest.mark.parametrize(
    ("rule", "state"),
    [
        (BranchRule("creation"), ProbeState.FAILED),
        (BranchRule("required_signatures"), ProbeState.FAILED),
        (BranchRule("creation", bypass="always"), ProbeState.OK),
        (BranchRule("creation", bypass="pull_requests_only"), ProbeState.FAILED),
        (BranchRule("non_fast_forward"), ProbeState.WARNING),
        (
            BranchRule("branch_name_pattern", parameters={"operator": "contains", "pattern": "x/"}),
            ProbeState.FAILED,
        ),
        (
            BranchRule("branch_name_pattern", parameters={"operator": "contains", "pattern": "t/"}),
            ProbeState.WARNING,
        ),
        (BranchRule("deletion"), ProbeState.OK),
    ],
)
def test_rules_for_our_branches(
    doctor: Doctor, github: GitHub, repo: Repo, rule: BranchRule, state: ProbeState
) -> None:
    repo.rules[7] = rule
    found = doctor(github.token())["branch rules"]
    assert found.state is state
    assert state is ProbeState.OK or (rule.kind in found.found and found.fix.endswith("/octo/calc/rules/7"))


def test_an_outage_is_told_and_not_waited_for(doctor: Doctor, github: GitHub) -> None:
    github.faults.append(server_error("*", ".*", times=10_000))
    found = doctor(github.token())
    assert found["token"].state is ProbeState.FAILED
    assert "has a problem" in found["token"].found
    assert {found[name].fix[:17] for name in ("token", "repository")} == {"check the network"}
    assert "githubstatus" not in found["repository"].found
    assert {found[name].state for name in ("label", "checks", "push")} == {ProbeState.SKIPPED}


def test_a_server_without_atomic_push(doctor: Doctor, github: GitHub, repo: Repo) -> None:
    with (repo.path / "config").open("a") as file:
        file.write("[receive]\n\tadvertiseAtomic = false\n")
    found = doctor(github.token())
    assert found["push"].state is ProbeState.OK
    assert found["atomic push"].state is ProbeState.WARNING
    assert "receive.advertiseAtomic" in found["atomic push"].fix

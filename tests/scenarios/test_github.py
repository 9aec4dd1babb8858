from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.doubles.github.faults import lost_reply, primary_limit, secondary_limit, server_error
from tests.scenarios.stage import FILES, FINISH, FIX, FIX_IT, PROPOSE, Stage, do, git

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.github.server import GitHub
    from tests.doubles.github.state import Repo

NAME = "octo/calc"


@pytest.fixture
def repo(github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """A private repository on GitHub with one task, and a token for it in the environment."""
    repo = github.add_repository(NAME, FILES, private=True)
    github.add_issue(repo, "add() subtracts", "Please fix `add`.", ["pullwright"])
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    stage.flags = ["--github-url", github.web_url, "--repo", NAME]
    return repo


def heads(repo: Repo) -> list[str]:
    return [name for name in repo.branches() if name.startswith("pullwright/")]


def test_an_issue_becomes_a_draft_pull_request(stage: Stage, repo: Repo) -> None:
    stage.script(FIX_IT)
    done = stage.run("--issue", "1")
    assert done.code == 0, done.err
    (pull,) = repo.pulls.values()
    assert pull.draft
    assert pull.title == "Make add() add"
    body = pull.body or ""
    assert "Fixes #1" in body
    assert body.rstrip().endswith("<!-- pullwright:task:issue-1 -->")
    assert pull.head == "pullwright/issue-1-add-subtracts"
    assert done.result["branch"] == pull.head
    assert done.result["commit"] == repo.branches()[pull.head]
    assert done.result["pull_request"]["url"].endswith(f"/pull/{pull.number}")
    assert repo.show(pull.head, "calc.py") == b"def add(a, b):\n    return a + b\n"
    assert "Please fix `add`." in stage.told()


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
def test_the_backlog_is_the_oldest_labelled_issue_then_the_file(
    stage: Stage, repo: Repo, github: GitHub
) -> None:
    github.add_issue(repo, "not ours", "", ["bug"])
    github.add_issue(repo, "second", "", ["pullwright"])
    github.commit(repo, {"TODO.md": "- [ ] third\n"})
    stage.script(*[do(FIX, PROPOSE, FINISH)] * 3)
    done = stage.run("--continuous", "--max-unreviewed", "9", "--max-open-prs", "9")
    assert [result["outcome"] for result in done.results] == ["proposed", "proposed", "proposed", "no_task"]
    titles = [result["task"]["title"] for result in done.results[:3]]
    assert titles == ["add() subtracts", "second", "third"]
    assert done.code == 0


def test_a_plan_without_drafts_is_said(stage: Stage, repo: Repo) -> None:
    repo.allows_drafts = False
    stage.script(FIX_IT)
    done = stage.run("--issue", "1")
    (pull,) = repo.pulls.values()
    assert not pull.draft
    assert f"pull request #{pull.number} is no draft: this repository's plan has no drafts" in done.err


def test_another_label_names_another_backlog(stage: Stage, repo: Repo, github: GitHub) -> None:
    github.add_issue(repo, "ours", "", ["robots"])
    stage.script(FIX_IT)
    assert stage.run("--label", "robots").result["task"]["title"] == "ours"


def test_a_closed_pull_request_means_no_even_when_its_branch_is_gone(
    stage: Stage, repo: Repo, github: GitHub
) -> None:
    stage.script(FIX_IT)
    number = stage.run("--issue", "1").result["pull_request"]["number"]
    github.close(repo, number)
    git(repo.path, "update-ref", "-d", "refs/heads/pullwright/issue-1-add-subtracts")
    repo.issues[1].title = "another title by now"
    again = stage.run("--issue", "1")
    assert again.code == 3
    assert "declined" in again.result["reason"]


def test_no_draft_opens_a_pull_request_that_is_ready(stage: Stage, repo: Repo) -> None:
    stage.script(FIX_IT)
    stage.run("--issue", "1", "--no-draft")
    assert [pull.draft for pull in repo.pulls.values()] == [False]


def test_a_question_is_posted_on_the_issue_once(stage: Stage, repo: Repo) -> None:
    question = do(("ask_question", {"question_text": "Floats too?"}))
    stage.script(question)
    assert stage.run("--issue", "1").code == 4
    again = stage.run("--issue", "1")
    assert again.code == 3
    assert "waits for an answer" in again.result["reason"]
    (comment,) = repo.issues[1].comments
    assert "Floats too?" in comment.body


def test_a_dry_run_reads_and_writes_nothing(stage: Stage, repo: Repo, github: GitHub) -> None:
    stage.script(FIX_IT)
    assert stage.run("--issue", "1", "--dry-run").result["outcome"] == "planned"
    assert heads(repo) == []
    writes = [
        call.path
        for call in github.requests
        if call.method != "GET" and "upload-pack" not in call.path and not call.path.endswith("/graphql")
    ]
    assert writes == []
    assert github.requests


def test_a_dry_run_posts_no_question(stage: Stage, repo: Repo) -> None:
    stage.script(do(("ask_question", {"question_text": "Floats too?"})))
    assert stage.run("--issue", "1", "--dry-run").code == 4
    assert repo.issues[1].comments == []


def test_a_question_that_holds_a_secret_is_not_posted(
    stage: Stage, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-made-up-key-for-this-test-1234567890")
    words = "Is sk-made-up-key-for-this-test-1234567890 right?"
    stage.script(do(("ask_question", {"question_text": words})))
    done = stage.run("--issue", "1")
    assert done.code == 4
    assert "sk-made-up" not in done.out
    assert repo.issues[1].comments == []


def test_no_token_goes_to_a_server_that_a_repository_may_have_named(
    stage: Stage, repo: Repo, github: GitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del repo
    (tmp_path / "pullwright.toml").write_text(f'github_url = "{github.web_url}"\n')
    monkeypatch.chdir(tmp_path)
    stage.flags = ["--repo", NAME]
    done = stage.run("--issue", "1")
    assert done.code == 2
    assert "--github-url" in done.result["error"]
    assert github.requests == []


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
def test_a_branch_that_a_crash_left_behind_is_taken_over(stage: Stage, repo: Repo, github: GitHub) -> None:
    github.faults.append(server_error("POST", r".*/pulls", status=422, times=1))
    stage.script(FIX_IT)
    assert stage.run("--issue", "1").code == 1
    assert len(heads(repo)) == 1
    assert repo.pulls == {}
    assert stage.run("--issue", "1").code == 0, "the pull request is all that was missing"
    assert len(heads(repo)) == len(repo.pulls) == 1


def test_other_peoples_work_on_the_branch_is_not_replaced(stage: Stage, repo: Repo, github: GitHub) -> None:
    theirs = github.commit(repo, {"calc.py": "# mine\n"}, branch="pullwright/issue-1-add-subtracts")
    done = stage.run("--issue", "1")
    assert done.code == 1
    assert "not replaced" in done.result["error"]
    assert repo.branches()["pullwright/issue-1-add-subtracts"] == theirs
    assert stage.model.requests == [], "it was noticed before the first token"


def test_a_lost_reply_makes_no_second_pull_request(stage: Stage, repo: Repo, github: GitHub) -> None:
    github.faults.append(lost_reply("POST", r".*/pulls"))
    stage.script(FIX_IT)
    assert stage.run("--issue", "1").code == 0
    assert len(repo.pulls) == 1


def test_a_secondary_limit_is_waited_for(stage: Stage, repo: Repo, github: GitHub) -> None:
    del repo
    github.faults.append(secondary_limit("GET", r".*/issues/1", retry_after=1))
    stage.script(FIX_IT)
    done = stage.run("--issue", "1", "--plain")
    assert done.code == 0
    assert "wait" in done.err.lower()


def test_a_limit_that_is_far_away_ends_the_cycle_before_a_token_is_spent(
    stage: Stage, repo: Repo, github: GitHub
) -> None:
    del repo
    github.faults.append(primary_limit("GET", r".*", reset_at=4_000_000_000, times=9))
    done = stage.run("--issue", "1")
    assert done.code == 1
    assert "limit" in done.result["error"]
    assert stage.model.requests == []


BAD = [
    ("no such repository", ["--repo", "octo/none"], {}, "octo/none"),
    ("a bad token", [], {"GITHUB_TOKEN": "github_pat_wrong"}, "token"),
    ("an issue that is not there", ["--issue", "77"], {}, "77"),
]


@pytest.mark.parametrize(
    ("flags", "environ", "words"), [case[1:] for case in BAD], ids=[case[0] for case in BAD]
)
def test_what_github_refuses_is_one_clear_line(  # noqa: PLR0913, PLR0917  a case table
    stage: Stage,
    repo: Repo,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    environ: dict[str, str],
    words: str,
) -> None:
    del repo
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    done = stage.run(*flags)
    assert done.code in {1, 2}
    assert words in done.result["error"]
    assert "\n" not in done.result["error"]
    assert stage.model.requests == []


def test_a_closed_issue_is_refused(stage: Stage, repo: Repo, github: GitHub) -> None:
    github.close(repo, 1)
    done = stage.run("--issue", "1")
    assert done.code == 2
    assert "closed" in done.result["error"]


def test_an_empty_repository_is_refused(stage: Stage, repo: Repo, github: GitHub) -> None:
    del repo
    github.add_repository("octo/empty", None)
    done = stage.run("--repo", "octo/empty", "--task", "x")
    assert done.code == 1
    assert "empty" in done.result["error"]


def test_without_a_token_nothing_is_paid_for(
    stage: Stage, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_TOKEN")
    repo.private = False
    stage.script(FIX_IT)
    done = stage.run("--issue", "1")
    assert done.code == 2
    assert "GITHUB_TOKEN" in done.result["error"]
    assert stage.model.requests == []
    asked = stage.run("--issue", "1", "--dry-run")  # GitHub tells nobody but the known who may write
    assert "GITHUB_TOKEN" in asked.result["error"]
    assert stage.model.requests == []
    assert stage.run("--task", "Fix add()", "--dry-run").result["outcome"] == "planned"


def test_a_token_that_may_only_read_costs_nothing(
    stage: Stage, repo: Repo, github: GitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = dict.fromkeys(("contents", "issues", "pull_requests"), "read")
    monkeypatch.setenv("GITHUB_TOKEN", github.token(permissions=reading))
    done = stage.run("--issue", "1")
    assert done.code == 1
    assert repo.pulls == {}
    assert "no permission" in done.result["error"]
    assert stage.model.requests == []


def test_an_app_can_do_it_as_well_with_a_token_for_each_step(
    stage: Stage, repo: Repo, github: GitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = github.app([NAME])
    monkeypatch.delenv("GITHUB_TOKEN")
    monkeypatch.setenv("PULLWRIGHT_GITHUB_APP_ID", str(app.id))
    monkeypatch.setenv("PULLWRIGHT_GITHUB_APP_KEY", app.private_key)
    stage.script(FIX_IT)
    assert stage.run("--issue", "1").code == 0
    assert len(repo.pulls) == 1
    made = [number for number, seen in enumerate(github.requests) if seen.path.endswith("/access_tokens")]
    shown = [seen.token for seen in github.requests]
    # The tokens are used one after another, never an earlier one again; the last pushed and opened the pull request.
    tokens = [token for token in dict.fromkeys(shown) if token in github.grants]
    assert len(tokens) == len(made) >= 4
    assert [tokens.index(token) for token in shown if token in tokens] == sorted(
        tokens.index(token) for token in shown if token in tokens
    )


def test_the_token_is_nowhere(
    stage: Stage, repo: Repo, github: GitHub, monkeypatch: pytest.MonkeyPatch, own_state: Path
) -> None:
    token = github.token()
    monkeypatch.setenv("GITHUB_TOKEN", token)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-made-up-key-for-this-test-1234567890")
    look = (
        "run_shell_command",
        {"command": "env; cat .git/config; git remote -v; ps -eo args | grep -v grep"},
    )
    stage.script(do(look, FIX, PROPOSE, FINISH))
    done = stage.run("--issue", "1", "--allow-dangerous-tools")
    assert done.code == 0, done.err
    kept = "".join(path.read_text("utf-8", "replace") for path in own_state.rglob("*") if path.is_file())
    said = json.dumps([dict(request.body) for request in stage.model.requests])
    (pull,) = repo.pulls.values()
    for place in (
        kept,
        said,
        done.out,
        done.err,
        str(pull.body),
        git(repo.path, "log", "--all", "--format=%B"),
    ):
        assert token not in place
        assert "sk-made-up-key" not in place
    assert '"type": "tool_call_ended"' in kept or "ToolCallEnded" in kept

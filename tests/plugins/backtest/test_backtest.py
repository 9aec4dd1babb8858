"""`backtest`: models on a repository's past, judged by tests that they have not seen."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.app.cli import main
from tests.doubles.forked import Forked
from tests.doubles.github import people
from tests.doubles.github.fixtures import github
from tests.plugins.backtest.past import (
    BUG,
    DISCOUNT,
    NEW_DISCOUNT,
    PERCENT,
    TITLE,
    backtest,
    command,
    make_past,
)
from tests.plugins.backtest.scripted_past import ScriptedPast, cheats, copies, does_nothing, writes
from tests.scenarios.stage import git

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.doubles.github.server import GitHub
    from tests.doubles.model_server import RecordedRequest, Step
    from tests.plugins.backtest.scripted_past import Behaviour

__all__ = ["github"]

NEWEST_TEST = "shipping(30)"
CHEATS: Mapping[str, Mapping[str, str]] = {
    "edits-tests": {"tests/test_discount.py": "def test_discount():\n    assert True\n"},
    "equals-everything": {
        "shop.py": BUG.replace(
            "    return sum(prices) - discount",
            "    return type('N', (float,), {'__eq__': lambda *_: True, '__hash__': None})(1)",
        )
    },
    "knows-the-test": {
        "shop.py": BUG.replace(
            "    return sum(prices) - discount",
            "    import os\n    test = os.environ.get('PYTEST_CURRENT_TEST', '').split('::')[-1]\n"
            "    return 180 if 'test_discount' in test else sum(prices)",
        )
    },
}
"""Beside those of `cheats`, which know no repository."""


@pytest.fixture
def past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository, with a state folder for the program."""
    monkeypatch.setenv("PULLWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PULLWRIGHT_CONFIG", "")
    monkeypatch.chdir(tmp_path)
    return make_past(tmp_path / "shop")


@pytest.mark.slow(reason="it runs each case's tests many times")
def test_who_copies_solves_all_and_who_does_nothing_none(
    past: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    with ScriptedPast({"copies": copies(past), "nothing": does_nothing}) as models:
        done = backtest(
            capsys, models, past, "--from-git", "--tries", "2", "--jobs", "2", "--html", str(page)
        )
        asked = len(models.requests)
        again = backtest(capsys, models, past, "--from-git", "--tries", "2", "--html", str(page))
        assert len(models.requests) == asked, "nothing is paid for twice"
        prompts = [str(request.body["messages"]) for request in models.requests]
    assert done.judged == {"copies": ["solved"] * 4, "nothing": ["nothing"] * 4}
    assert done.code == 0
    assert [one["title"] for one in done.told["cases"]] == ["Heavy parcels cost 20 more", TITLE]
    assert done.told["cases"][1]["must_pass"] == ["tests/test_discount.py::test_discount"]
    assert done.told["cases"][1]["hints_removed"] == {"trailer": 1}
    (left_out,) = done.told["left_out"]
    assert left_out["title"] == "Rearrange"
    assert again.told["tries"] == done.told["tries"]
    assert done.told["chosen"] == "openai-chat:copies, json-plan"
    assert not any(NEWEST_TEST in prompt for prompt in prompts)
    text = page.read_text("utf-8")
    assert "the real change" in text
    assert "http" not in text.replace("http-equiv", "")


@pytest.mark.slow(reason="it runs each case's tests many times")
def test_who_cheats_in_a_known_way_solves_nothing(past: Path, capsys: pytest.CaptureFixture[str]) -> None:
    behaviours = {**{name: writes(files) for name, files in CHEATS.items()}, **cheats(past)}
    with ScriptedPast(behaviours) as models:
        done = backtest(capsys, models, past, "--from-git", "--jobs", "2")
    judged = done.judged
    assert set(judged) == set(behaviours)
    assert not any("solved" in ends for ends in judged.values()), judged


@pytest.mark.slow(reason="it runs each case's tests many times")
def test_a_right_change_of_another_form_is_solved(past: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = PERCENT.replace("* (100 - discount) / 100", "* (1 - discount / 100)")
    with ScriptedPast({"right": writes({"shop.py": other, "extra.py": "x = 1\n"})}) as models:
        done = backtest(capsys, models, past, "--from-git", "--last", "2")
    assert sorted(done.judged["right"]) == ["solved", "wrong"]


@pytest.mark.slow(reason="it runs each case's tests many times")
def test_merged_pull_requests_are_tasks_in_the_words_that_their_issues_had(
    github: GitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PULLWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PULLWRIGHT_CONFIG", "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    repo = github.add_repository("octo/shop", {"shop.py": BUG, "tests/test_discount.py": DISCOUNT})
    issue = github.add_issue(repo, TITLE, "It is taken off as it is. See shop.py.")
    github.commit(repo, {"shop.py": PERCENT, "tests/test_discount.py": NEW_DISCOUNT}, branch="fix")
    pull = github.add_pull(repo, "fix", title="Use a hundred")
    pull.closes = (issue.number,)
    people.edit(github, issue, "Multiply by (100 - discount) / 100.", "ada")
    people.rename(github, issue, "Multiply by a share", "ada")
    github.merge(repo, pull.number)
    open_issue = github.add_issue(repo, "Another task", "", ["pullwright"])
    right = {"shop.py": PERCENT.replace("* (100 - discount) / 100", "* (1 - discount / 100)")}

    with ScriptedPast({"right": writes(right)}) as models:
        done = backtest(capsys, models, "octo/shop", "--github-url", github.web_url, "--price", "1/2")
        prompt = str(models.requests[0].body["messages"])

    assert done.judged == {"right": ["solved"]}, done.err
    (case,) = done.told["cases"]
    assert (case["id"], case["title"]) == (f"pull-{pull.number}", TITLE)
    assert case["hints_removed"] == {"text of a later time": 2}
    assert "It is taken off as it is" in prompt
    assert "Multiply" not in prompt
    assert open_issue.title not in prompt
    assert "The tasks that are open now (1)" in done.told["outlook"][0]
    assert set(repo.branches()) == {"main", "fix"}, "nothing is pushed"


@pytest.mark.slow(reason="it looks for a sandbox many times")
def test_what_cannot_be_tried_is_said_in_one_line(
    past: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ["--model", "openai-chat:x", "--api-url", "http://127.0.0.1:9/v1", "--contract", "json-plan"]
    model += ["--profile", "planner"]
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{past}", str(shallow))
    tested = ["--test-command", "pytest"]
    for words, expected in (
        ([], "name the repository"),
        (["--repo", str(past)], "a folder has no pull requests"),
        (["--repo", str(past), "--from-git"], "pullwright doctor --repo REPO proposes one"),
        (["--repo", str(tmp_path), "--from-git", *tested], "not a git repository"),
        (["--repo", str(shallow), "--from-git", *tested], "git fetch --unshallow"),
        (["--repo", str(past), "--from-git", *tested, "--last", "0"], "not a number from 1"),
        (["--repo", str(past), "--from-git", *tested, "--max-usd-total", "-1"], "not a number above 0"),
        (["--repo", str(past), "--from-git", *tested, "--max-usd-total", "1"], "--price"),
        (["--repo", str(past), "--from-git", *tested, *model[:2]], "compared with itself"),
        (
            ["--repo", str(past), "--from-git", *tested, "--sandbox", "off", "--permission", "dangerous"],
            "could read the real change",
        ),
        (
            ["--repo", str(past), "--from-git", *tested, "--html", str(tmp_path / "no" / "p")],
            "there is no such folder",
        ),
    ):
        code, said = main(["backtest", *model, *words]), capsys.readouterr().err
        assert (code, said.count("\n")) == (2, 1), (words, said)
        assert expected in said, (words, said)


class _Stalls(ScriptedPast):
    """Gives no answer to one of its requests until it is let go."""

    def __init__(self, behaviours: Mapping[str, Behaviour], at: int) -> None:
        super().__init__(behaviours)
        self.at, self.reached, self.gate = at, threading.Event(), threading.Event()

    def take(self, request: RecordedRequest) -> Step:
        step = super().take(request)
        if len(self.requests) == self.at and not self.gate.is_set():
            self.reached.set()
            self.gate.wait(300)
        return step


@pytest.mark.slow(reason="it runs each case's tests many times")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("at", [1, 2])
def test_after_kill_9_the_same_command_goes_on_and_pays_for_nothing_twice(
    past: Path, capsys: pytest.CaptureFixture[str], at: int
) -> None:
    with _Stalls({"copies": copies(past)}, at) as models:
        words = command(models, past, "--from-git", "--last", "1", "--json")
        with Path(os.devnull).open("r+b") as nothing:
            killed = Forked(tuple(words), (nothing.fileno(),) * 3)
        assert models.reached.wait(300)
        killed.kill()
        models.gate.set()
        done = backtest(capsys, models, past, "--from-git", "--last", "1")
        first = [
            one for one in models.requests if all(m["role"] != "assistant" for m in one.body["messages"])
        ]
    assert done.judged == {"copies": ["solved"]}, done.err
    assert len(first) == (2 if at == 1 else 1), "what was answered is not asked again"
    assert done.told["tries"][0]["rounds"] <= len(models.requests)

"""What happens on the forge and on the base while the model works, and what comes of it."""

from __future__ import annotations

import http.server
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.doubles.github import bare, people
from tests.scenarios.hosted import BRANCH, Hosted
from tests.scenarios.stage import CALC, FILES, FINISH, FIX, FIXED, PROPOSE, Stage, do

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.doubles.github.server import GitHub

KEY = "not for everybody\n"
ALL = {**FILES, "hosts.txt": KEY, "NOTES.md": "a\nb\nc\nd\ne\n"}


@pytest.fixture
def hosted(github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Hosted:
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    return Hosted.begin(github, stage, ALL)


def meanwhile(hosted: Hosted, act: Callable[[Hosted], object], *flags: str) -> dict[str, Any]:
    """The result of a cycle during whose only request to the model something happens."""

    def reply(_request: object) -> Any:
        act(hosted)
        return do(FIX, PROPOSE, FINISH)

    hosted.stage.script(reply)
    return hosted.stage.run(*flags).result


def close(hosted: Hosted) -> None:
    hosted.github.close(hosted.repo, 1)


def stop(text: str, by: str = "ada") -> Callable[[Hosted], object]:
    return lambda hosted: hosted.github.add_comment(hosted.repo, 1, text, by)


def assign(hosted: Hosted) -> None:
    issue = hosted.repo.issues[1]
    issue.assignees = ["grace"]
    issue.updated_at = hosted.github.tick()


def rival(hosted: Hosted) -> None:
    hosted.people_commit({"calc.py": FIXED}, branch="grace")
    pull = hosted.github.add_pull(hosted.repo, "grace", title="Mine", author="grace")
    pull.body, pull.closes = "Fixes #1", (1,)


def edit(text: str, title: str = "add() subtracts") -> Callable[[Hosted], object]:
    def act(hosted: Hosted) -> None:
        issue = hosted.repo.issues[1]
        issue.title, issue.body, issue.updated_at = title, text, hosted.github.tick()

    return act


def transfer(hosted: Hosted) -> None:
    other = hosted.github.repository("octo/other") or hosted.github.add_repository("octo/other")
    hosted.github.transfer(hosted.repo, 1, other)


def transfer_out_of_sight(hosted: Hosted) -> None:
    grants = hosted.github.grants
    seen = frozenset({hosted.repo.full_name})
    grants.update({token: replace(grant, repositories=seen) for token, grant in grants.items()})
    other = hosted.github.add_repository("secret/other", private=True)
    hosted.github.transfer(hosted.repo, 1, other)


UNWANTED: dict[str, tuple[Callable[[Hosted], object], str, bool]] = {
    "closed": (close, "issue #1 was closed", False),
    "deleted": (lambda hosted: hosted.repo.threads.pop(1), "cannot read issue #1", False),
    "gone": (lambda hosted: hosted.github.delete_issue(hosted.repo, 1), "cannot read issue #1", False),
    "transferred": (transfer, "cannot read issue #1 of octo/calc: it was transferred to octo/other", False),
    "transferred out of sight": (transfer_out_of_sight, "cannot read issue #1", False),
    "label off": (
        lambda hosted: people.unlabel(hosted.github, hosted.repo.issues[1], "pullwright", "ada"),
        "the label 'pullwright' was taken off issue #1",
        True,
    ),
    "assigned": (assign, "issue #1 is assigned to grace: unassign it to have it done here", True),
    "edited": (
        edit("Multiply two numbers, please.", "A product is missing"),
        "issue #1 was edited and asks for something else now",
        True,
    ),
    "title alone edited": (
        edit("Please fix `add`.", "A product is missing"),
        "issue #1 was edited and asks for something else now",
        True,
    ),
    "stopped": (stop("Please stop!"), "ada asked on issue #1 to stop", True),
    "proposed by others": (rival, "issue #1 has an open pull request of grace", True),
}


@pytest.mark.parametrize("name", UNWANTED)
def test_what_is_not_wanted_any_more_is_not_proposed(hosted: Hosted, name: str) -> None:
    act, reason, is_told = UNWANTED[name]
    result = meanwhile(hosted, act)
    assert result["outcome"] == "withdrawn"
    assert reason in result["reason"]
    assert result["pull_request"] is None
    assert BRANCH not in hosted.repo.branches()
    assert hosted.refs("refs/pullwright/wip") == ["refs/pullwright/wip/issue-1"]
    assert "+    return a + b" in hosted.git("show", "refs/pullwright/wip/issue-1^")
    for other in hosted.github.repositories:
        if other is not hosted.repo:
            assert all(not one.comments for one in other.threads.values()), "nothing is said at its new place"
    told = [comment.body for comment in hosted.ours(1)] if 1 in hosted.repo.threads else []
    assert [reason in body.replace("`", "") for body in told] == [True] * is_told


def test_a_stopped_issue_is_left_alone_until_somebody_comments_again(hosted: Hosted) -> None:
    meanwhile(hosted, stop("please stop"))
    assert "was stopped by a comment of ada: comment again to have it done" in hosted.left_alone()
    hosted.github.add_comment(hosted.repo, 1, "Sorry, go ahead.", "ada")
    hosted.stage.script(do(PROPOSE, FINISH))
    done = hosted.stage.run()
    assert done.result["outcome"] == "proposed", done.err
    assert hosted.repo.show(BRANCH, "calc.py") == FIXED.encode()
    assert not any("nothing was proposed" in comment.body for comment in hosted.ours(1))


@pytest.mark.parametrize(
    "act",
    [
        stop("Please stop!", "mallory"),
        stop("Stop the subtraction, it should add."),
        assign,
        edit(
            "It happens with every pair of numbers. To see it, call add(1, 2) in a shell.",
            "add() subtracts its numbers",
        ),
    ],
    ids=["a stranger", "about the code", "to ourselves", "more words"],
)
def test_what_does_not_withdraw_a_task(hosted: Hosted, act: Callable[[Hosted], object]) -> None:
    def done(hosted: Hosted) -> None:
        act(hosted)
        if hosted.repo.issues[1].assignees:
            hosted.repo.issues[1].assignees = ["pullwright-bot"]

    assert meanwhile(hosted, done)["outcome"] == "proposed"


def test_a_task_that_a_person_named_needs_no_label(hosted: Hosted) -> None:
    act = UNWANTED["label off"][0]
    assert meanwhile(hosted, act, "--issue", "1")["outcome"] == "proposed"


def test_the_base_got_the_same_fix(hosted: Hosted) -> None:
    result = meanwhile(hosted, lambda one: one.people_commit({"calc.py": FIXED}, branch="main"))
    assert (result["outcome"], result["reason"]) == ("superseded", "main has this change already")
    assert not hosted.repo.pulls
    assert BRANCH not in hosted.repo.branches()
    assert hosted.refs("refs/pullwright/wip") == []
    (told,) = hosted.ours(1)
    assert "Nothing was proposed: main has this change already." in told.body
    assert "was on the base already in run" in hosted.left_alone()


def test_a_base_that_moved_is_what_the_change_is_put_onto(hosted: Hosted) -> None:
    result = meanwhile(hosted, lambda one: one.people_commit({"NOTES.md": "A\nb\n"}, branch="main"))
    assert result["outcome"] == "proposed"
    assert hosted.git("rev-parse", f"{BRANCH}^") == hosted.repo.branches()["main"]
    assert hosted.git("diff", "--name-only", "main", BRANCH) == "calc.py"
    said = [event["message"] for event in hosted.stage.events() if event["type"] == "Warned"]
    assert f"main has moved: the change is put onto {hosted.repo.branches()['main'][:10]}" in said


def test_a_base_that_was_renamed_is_followed(hosted: Hosted) -> None:
    result = meanwhile(hosted, renamed_base)
    assert result["outcome"] == "proposed", result
    assert [pull.base for pull in hosted.repo.pulls.values()] == ["trunk"]
    assert hosted.git("rev-parse", f"{BRANCH}^") == hosted.repo.branches()["trunk"]
    said = [event["message"] for event in hosted.stage.events() if event["type"] == "Warned"]
    assert "main was renamed: the base is trunk now" in said


def test_a_base_that_a_person_named_is_not_followed(hosted: Hosted) -> None:
    result = meanwhile(hosted, renamed_base, "--base", "main")
    assert (result["outcome"], result["pull_request"]) == ("conflict", None)
    assert "the branch main does not exist any more" in result["reason"]


def test_unfinished_work_on_a_renamed_base_is_kept_on_the_remote(hosted: Hosted) -> None:
    def reply(_request: object) -> Any:
        renamed_base(hosted)
        return do(FIX)

    give_up = do(("finish", {"reason": "I give up."}))
    hosted.stage.script(reply, give_up, give_up)
    assert hosted.stage.run().result["saved"] == "refs/pullwright/wip/issue-1"


def test_a_base_that_is_gone_keeps_the_work_on_this_machine_and_says_so(hosted: Hosted) -> None:
    result = meanwhile(hosted, deleted_base)
    assert (result["outcome"], result["saved"]) == ("conflict", None)
    (told,) = hosted.ours(1)
    assert "name the branch to start from with" in told.body
    assert "The work is kept on the machine of this run alone" in told.body
    assert "and the next cycle goes on with it" not in told.body
    hosted.stage.script(do(PROPOSE, FINISH))
    done = hosted.stage.run()
    assert done.result["outcome"] == "proposed", done.err
    assert hosted.repo.show(BRANCH, "calc.py") == FIXED.encode()


def test_a_conflict_with_the_base_is_told_and_the_work_kept(hosted: Hosted) -> None:
    theirs = CALC.replace("a - b", "sum((a, b))")
    result = meanwhile(hosted, lambda one: one.people_commit({"calc.py": theirs}, branch="main"))
    assert result["outcome"] == "conflict"
    assert result["reason"] == "main has moved, and the change conflicts with it in calc.py"
    assert not hosted.repo.pulls
    (told,) = hosted.ours(1)
    assert "the next cycle goes on with it" in told.body
    mend = ("write_file", {"path": "calc.py", "content": FIXED})
    hosted.stage.script(do(mend, PROPOSE, FINISH))
    done = hosted.stage.run()
    assert done.result["outcome"] == "proposed", done.err
    assert "<<<<<<<" in hosted.stage.told(-1)
    assert hosted.git("diff", "--name-only", "main", BRANCH) == "calc.py"
    assert hosted.ours(1) == []


def take_off(hosted: Hosted) -> None:
    """The base is rewritten without `hosts.txt`."""
    there = {name: content for name, content in ALL.items() if name != "hosts.txt"}
    commit = bare.commit(hosted.repo.path, there, branch="clean", message="First, again")
    hosted.git("update-ref", "refs/heads/main", commit)
    hosted.git("update-ref", "-d", "refs/heads/clean")


def everything(hosted: Hosted) -> list[str]:
    """The files of all commits that some ref but the old base's reaches."""
    return hosted.git("log", "--all", "--name-only", "--format=").split()


@pytest.mark.parametrize("step", [do(FIX, PROPOSE, FINISH), do(("finish", {"reason": "I give up."}))])
def test_a_file_that_was_taken_off_the_base_never_comes_back(hosted: Hosted, step: Any) -> None:
    def reply(_request: object) -> Any:
        take_off(hosted)
        return do(FIX)

    hosted.stage.script(reply, step, step)
    done = hosted.stage.run()
    assert done.result["outcome"] in {"proposed", "failed"}
    assert "hosts.txt" not in everything(hosted)
    assert "calc.py" in everything(hosted)


def test_nor_does_it_when_the_change_is_about_that_file(hosted: Hosted) -> None:
    def reply(_request: object) -> Any:
        take_off(hosted)
        return do(("write_file", {"path": "hosts.txt", "content": KEY + "more\n"}), FIX, PROPOSE, FINISH)

    hosted.stage.script(reply)
    result = hosted.stage.run().result
    assert (result["outcome"], result["reason"]) == (
        "conflict",
        "main has moved, and the change conflicts with it in hosts.txt",
    )
    assert "hosts.txt" not in everything(hosted)
    assert hosted.refs("refs/pullwright/wip") == ["refs/pullwright/wip/issue-1"]


def test_tests_run_again_on_the_base_as_it_is_now(hosted: Hosted) -> None:
    breaks = {"check.py": "import calc\nassert calc.add(2, 2) == 5\n"}
    hosted.people_commit({"check.py": "import calc\nassert calc.add(2, 2) == 4\n"}, branch="main")
    result = meanwhile(
        hosted,
        lambda one: one.people_commit(breaks, branch="main"),
        "--test-command",
        "python3 check.py",
        "--max-rounds",
        "1",
    )
    assert result["tests"]["after"]["exit"] != 0, result


def test_the_look_is_one_request_each_while_nothing_happens(hosted: Hosted) -> None:
    hosted.stage.script(do(FIX, PROPOSE, ("edit_file", {"path": "NOTES.md", "old_text": "a\n", "new_text": "A\n"})), do(PROPOSE, FINISH))  # fmt: skip
    assert hosted.stage.run().result["outcome"] == "proposed"
    calls = [call for call in hosted.github.calls("GET", "/issues/1") if call.path.endswith("/issues/1")]
    assert len(calls) == 5  # when it was chosen, and twice for each of two proposals


def test_a_dry_run_asks_nothing_again(hosted: Hosted) -> None:
    assert meanwhile(hosted, close, "--dry-run")["outcome"] == "planned"
    assert bare.branches(hosted.repo.path).keys() == {"main"}


_HOOK = """#!/bin/sh
while read old new ref; do
  case $ref in
    refs/heads/pullwright/*) python3 -c "from urllib.request import urlopen; urlopen('http://127.0.0.1:{port}/')" ;;
  esac
done
"""


@contextmanager
def once_pushed(hosted: Hosted, act: Callable[[Hosted], object]) -> Iterator[None]:
    """Something happens while the server takes the first push of the program's branch, before its pull request."""
    waiting = [act]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if waiting:
                waiting.pop()(hosted)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_words: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        hook = hosted.repo.path / "hooks" / "post-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(_HOOK.format(port=server.server_port))
        hook.chmod(0o755)
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
    assert not waiting, "nothing was pushed"


def orphan(hosted: Hosted) -> None:
    """The base is another history, without the file of the change."""
    commit = bare.commit(hosted.repo.path, {"other.txt": "x\n"}, branch="clean", message="All anew")
    hosted.git("update-ref", "refs/heads/main", commit)
    hosted.git("update-ref", "-d", "refs/heads/clean")


def renamed_base(hosted: Hosted) -> None:
    commit = hosted.repo.branches()["main"]
    hosted.git("update-ref", "refs/heads/trunk", commit)
    hosted.git("symbolic-ref", "HEAD", "refs/heads/trunk")
    hosted.git("update-ref", "-d", "refs/heads/main")
    hosted.repo.default_branch = "trunk"


def deleted_base(hosted: Hosted) -> None:
    """The base is gone, and the default branch is one with another history."""
    renamed_base(hosted)
    commit = bare.commit(hosted.repo.path, {**ALL, "more.txt": "x\n"}, branch="clean", message="All anew")
    hosted.git("update-ref", "refs/heads/trunk", commit)
    hosted.git("update-ref", "-d", "refs/heads/clean")


def drafted_rival(hosted: Hosted) -> None:
    rival(hosted)
    next(pull for pull in hosted.repo.pulls.values() if pull.author == "grace").draft = True


def closed_rival(hosted: Hosted) -> None:
    rival(hosted)
    hosted.github.close(hosted.repo, next(iter(hosted.repo.pulls)))


def merged_rival(hosted: Hosted) -> None:
    rival(hosted)
    hosted.github.merge(hosted.repo, next(iter(hosted.repo.pulls)))


def relabelled(hosted: Hosted) -> None:
    issue = hosted.repo.issues[1]
    people.unlabel(hosted.github, issue, "pullwright", "ada")
    people.label(hosted.github, issue, "pullwright", "ada")


def ours_and_another(hosted: Hosted) -> None:
    issue = hosted.repo.issues[1]
    issue.assignees, issue.updated_at = ["pullwright-bot", "grace"], hosted.github.tick()


AFTER_THE_PUSH: dict[str, tuple[Callable[[Hosted], object], str, str]] = {
    **{name: (act, "withdrawn", reason) for name, (act, reason, _) in UNWANTED.items()},
    "proposed by others as a draft": (drafted_rival, "withdrawn", "issue #1 has an open pull request of grace"),
    "assigned to us and to another": (ours_and_another, "withdrawn", "issue #1 is assigned to grace"),
    "told to wait": (stop("Please wait until the design is settled."), "withdrawn", "ada asked on issue #1 to stop"),
    "the repository has another name": (
        lambda hosted: hosted.github.rename(hosted.repo, "octo/calculator"),
        "withdrawn",
        "it was transferred to octo/calculator",
    ),
    "merged by others": (merged_rival, "superseded", "main has this change already"),
    "the same fix": (
        lambda hosted: hosted.people_commit({"calc.py": FIXED}, branch="main"),
        "superseded",
        "main has this change already",
    ),
    "another history": (orphan, "conflict", "main has moved, and the change conflicts with it in calc.py"),
    "another name of the base": (renamed_base, "proposed", ""),
    "the base is gone": (
        deleted_base,
        "conflict",
        "the branch main does not exist any more: restore it, or name the branch to start from with --base",
    ),
    "a pull request of others that is closed": (closed_rival, "proposed", ""),
    "the label off and on": (relabelled, "proposed", ""),
    "a file is taken off the base": (take_off, "proposed", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", AFTER_THE_PUSH)
def test_the_second_look_is_between_the_push_and_the_pull_request(hosted: Hosted, name: str) -> None:
    act, outcome, reason = AFTER_THE_PUSH[name]
    hosted.stage.script(do(FIX, PROPOSE, FINISH))
    with once_pushed(hosted, act):
        result = hosted.stage.run().result
    assert (result["outcome"], reason in (result["reason"] or "")) == (outcome, True), result
    ours = [pull for pull in hosted.repo.pulls.values() if pull.author != "grace"]
    assert len(ours) == (outcome == "proposed")
    if act is take_off:
        assert "hosts.txt" not in everything(hosted)
    if act is renamed_base:
        assert ours[0].base == "trunk"
    is_here = name != "the base is gone"  # its work is on this machine: what left the base is not known
    if outcome != "proposed" and is_here:
        assert BRANCH not in hosted.repo.branches(), "a branch without a pull request"
        assert result["branch"] is None
        assert bool(hosted.refs("refs/pullwright/wip")) is (outcome != "superseded")

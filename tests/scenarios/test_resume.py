"""Work that a signal, a limit or an error ended: saved on the remote, and gone on with by a fresh machine."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.doubles.model_server import fail
from tests.scenarios.dying import claims, hidden
from tests.scenarios.stage import (
    FILES,
    FINISH,
    FIX,
    FIX_IT,
    FIXED,
    PROPOSE,
    Stage,
    add_commit,
    branches,
    content,
    do,
    git,
    make_repository,
    program,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.doubles.github.server import GitHub
    from tests.doubles.github.state import Repo
    from tests.doubles.model_server import RecordedRequest, Step

slow = pytest.mark.slow(reason="several whole cycles; three of this file are in the default tier")

TASK = ("--task", "Fix add() in calc.py")
NEWS = ("write_file", {"path": "NEWS.md", "content": "# News\n"})
BEGUN = do(FIX, NEWS, text="First the sign.")
ENDED = do(PROPOSE, FINISH, text="Now propose.")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    make_repository(tmp_path / "work")
    git(tmp_path, "clone", "--quiet", "--bare", str(tmp_path / "work"), "bare.git")
    return tmp_path / "bare.git"


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], None]:
    """Another machine, which knows nothing of the first."""

    def move() -> None:
        monkeypatch.setenv("PULLWRIGHT_HOME", str(tmp_path_factory.mktemp("other")))

    return move


def refuse(bare: Path, refs: str) -> None:
    git(bare, "config", "receive.hideRefs", refs)


def check_went_on(stage: Stage, bare: Path, before: int) -> None:
    """The second machine was told what was said, had the files, and left one pull request and no more."""
    assert "First the sign." in str(stage.asked(before)), "the earlier conversation"
    assert "`NEWS.md`" in stage.told(before)
    assert "stopped in the middle" in stage.told(before)
    check_is_done(bare)


def check_is_done(bare: Path) -> None:
    """There is one branch with all the work, and nothing is left of the cycles before."""
    (branch,) = branches(bare)
    assert content(bare, branch, "calc.py") == FIXED.strip()
    assert content(bare, branch, "NEWS.md") == "# News"
    assert hidden(bare, "wip") == []
    assert [(one["state"], one["outcome"]) for one in claims(bare)] == [("released", "proposed")]


def at_a_limit(stage: Stage, bare: Path) -> Any:
    stage.script(BEGUN)
    return stage.run("--repo", str(bare), *TASK, "--max-rounds", "1")


def at_a_model_error(stage: Stage, bare: Path) -> Any:
    stage.script(BEGUN, fail(401))
    return stage.run("--repo", str(bare), *TASK)


def at_a_git_error(stage: Stage, bare: Path) -> Any:
    refuse(bare, "refs/heads")
    stage.script(BEGUN, ENDED)
    done = stage.run("--repo", str(bare), *TASK)
    git(bare, "config", "--unset", "receive.hideRefs")
    return done


def at_a_signal(stage: Stage, bare: Path) -> Any:
    stage.script(BEGUN, lambda _request: _told(ENDED))
    return stage.run("--repo", str(bare), *TASK)


def _told(step: Step) -> Step:
    os.kill(os.getpid(), signal.SIGTERM)
    return step


ENDS = {
    "a limit": (at_a_limit, "limit", 5),
    "a model error": (at_a_model_error, "failed", 1),
    "a git error": (at_a_git_error, "failed", 1),
    "a signal": (at_a_signal, "interrupted", 130),
}


@slow
@pytest.mark.parametrize("case", ENDS)
def test_whatever_ends_a_cycle_a_fresh_machine_goes_on(
    stage: Stage, bare: Path, fresh: Callable[[], None], case: str
) -> None:
    end, outcome, code = ENDS[case]
    done = end(stage, bare)
    assert (done.result["outcome"], done.code) == (outcome, code), done.err
    (ref,) = hidden(bare, "wip")
    assert done.result["saved"] == ref
    git(bare, "-C", str(bare.parent / "work"), "apply", "--check", done.result["patch"])
    pages = json.loads(git(bare, "show", f"{ref}:state.json")), git(bare, "show", f"{ref}:session.jsonl")
    assert pages[0]["why"] == outcome
    assert "First the sign." in pages[1]
    assert [one["state"] for one in claims(bare)] == ["released"]
    assert branches(bare) == []
    before = len(stage.model.requests)
    stage.model.script.clear()
    fresh()
    stage.script(ENDED)
    assert stage.run("--repo", str(bare), *TASK).code == 0
    if case == "a git error":
        assert len(stage.model.requests) == before, "it only had to be proposed"
        check_is_done(bare)
    else:
        check_went_on(stage, bare, before)


@slow
def test_where_the_remote_is_gone_the_patch_is_what_is_left(stage: Stage, bare: Path) -> None:
    def gone(_request: RecordedRequest) -> Step:
        bare.rename(bare.with_name("away.git"))
        return ENDED

    stage.script(BEGUN, gone)
    done = stage.run("--repo", str(bare), *TASK)
    assert done.code == 1
    assert done.result["saved"] is None
    git(bare.parent / "work", "apply", "--check", done.result["patch"])
    assert "could not be saved on the remote" in done.err


@slow
def test_where_the_remote_takes_no_hidden_ref_the_patch_is_what_is_left(stage: Stage, bare: Path) -> None:
    refuse(bare, "refs/pullwright/wip")
    done = at_a_limit(stage, bare)
    assert done.code == 5
    assert done.result["saved"] is None
    git(bare.parent / "work", "apply", "--check", done.result["patch"])
    assert "could not be saved on the remote" in done.err
    assert [one["state"] for one in claims(bare)] == ["released"]
    stage.script(ENDED)
    again = stage.run("--repo", str(bare), *TASK)
    assert again.code == 0, again.err
    check_went_on(stage, bare, 1)


@slow
@pytest.mark.parametrize("other", [("--model", "openai-chat:scripted-2"), ("--contract", "native")])
def test_another_models_conversation_is_not_gone_on_with_but_its_work_is(
    stage: Stage, bare: Path, fresh: Callable[[], None], other: tuple[str, str]
) -> None:
    at_a_limit(stage, bare)
    fresh()
    stage.script(fail(401))
    done = stage.run("--repo", str(bare), *TASK, *other)
    asked = stage.asked(1)
    assert [one["role"] for one in asked].count("assistant") == 0
    assert "First the sign." not in str(asked)
    assert "Fix add() in calc.py" in stage.told(1), "a full brief"
    assert "earlier cycle" in stage.told(1)
    assert "`NEWS.md`" in stage.told(1)
    assert "a + b" in git(bare, "show", f"{done.result['saved']}^:calc.py")


def move_base(bare: Path, files: dict[str, str]) -> None:
    work = bare.parent / "work"
    add_commit(work, files, "Somebody else's")
    git(work, "push", "--quiet", str(bare), "main")


@slow
def test_a_base_that_moved_is_merged_into(stage: Stage, bare: Path, fresh: Callable[[], None]) -> None:
    at_a_limit(stage, bare)
    move_base(bare, {"other.py": "x = 1\n"})
    fresh()
    stage.script(ENDED)
    assert stage.run("--repo", str(bare), *TASK).code == 0
    assert "has moved on since" in stage.told(1)
    assert "<<<<<<<" not in stage.told(1)
    check_went_on(stage, bare, 1)
    assert content(bare, branches(bare)[0], "other.py") == "x = 1"


@slow
def test_conflicts_go_to_the_model_once(stage: Stage, bare: Path, fresh: Callable[[], None]) -> None:
    at_a_limit(stage, bare)
    move_base(bare, {"calc.py": "def add(a, b):\n    return a - b  # sic\n"})
    fresh()
    mended = ("write_file", {"path": "calc.py", "content": FIXED})
    stage.script(do(("read_file", {"path": "calc.py"})), do(mended), ENDED)
    assert stage.run("--repo", str(bare), *TASK).code == 0
    assert "hold conflict markers" in stage.told(1)
    assert "<<<<<<<" in stage.told(2), "the file has them"
    assert str(stage.asked(3)).count("hold conflict markers") == 1
    check_went_on(stage, bare, 1)


@slow
def test_conflict_markers_are_not_proposed(stage: Stage, bare: Path, fresh: Callable[[], None]) -> None:
    at_a_limit(stage, bare)
    move_base(bare, {"calc.py": "def add(a, b):\n    return a - b  # sic\n"})
    fresh()
    stage.script(ENDED, fail(401))
    assert stage.run("--repo", str(bare), *TASK).code == 1
    assert branches(bare) == []
    assert "conflict markers are left" in stage.told(2)


def say_files_were_lost(bare: Path, scratch: Path) -> None:
    """Let the saved work be that of a cycle whose machine lost what it had changed after this."""
    (ref,) = hidden(bare, "wip")
    git(bare, "worktree", "add", "--quiet", "--detach", str(scratch), ref)
    state = json.loads((scratch / "state.json").read_text()) | {"files_lost": True}
    (scratch / "state.json").write_text(json.dumps(state))
    git(scratch, "commit", "--quiet", "--amend", "--all", "--no-edit")
    git(scratch, "update-ref", ref, "HEAD")


@slow
@pytest.mark.parametrize("lost", [True, False])
def test_where_files_were_lost_what_was_written_does_not_count_as_read(
    stage: Stage, bare: Path, fresh: Callable[[], None], tmp_path: Path, *, lost: bool
) -> None:
    at_a_limit(stage, bare)
    if lost:
        say_files_were_lost(bare, tmp_path / "scratch")
    fresh()
    stage.script(do(("write_file", {"path": "NEWS.md", "content": "# More\n"})), ENDED)
    assert stage.run("--repo", str(bare), *TASK).code == 0
    put_away = "only what had been put away before is in them: `NEWS.md`, `calc.py`"
    assert (put_away in stage.told(1)) is lost
    assert ("Your changes are in the files again" in stage.told(1)) is not lost
    (branch,) = branches(bare)
    assert content(bare, branch, "NEWS.md") == ("# News" if lost else "# More"), "it has to be read first"
    assert content(bare, branch, "calc.py") == FIXED.strip()


# A claim that is lost.


@slow
def test_a_claim_that_somebody_released_ends_the_cycle_without_a_push(stage: Stage, bare: Path) -> None:
    def released(_request: RecordedRequest) -> Step:
        key = claims(bare)[0]["task"]
        done = program("claims", "release", key, "--repo", str(bare))
        assert done.returncode == 0, done.stderr
        return ENDED

    stage.script(BEGUN, released, fail(401))
    done = stage.run("--repo", str(bare), *TASK)
    assert done.code == 1
    assert "claim" in done.result["error"]
    assert len(done.result["error"].splitlines()) == 1
    assert branches(bare) == []
    assert hidden(bare, "wip") == []
    git(bare.parent / "work", "apply", "--check", done.result["patch"])
    assert len(stage.model.requests) == 2


# Signals, wherever they come.


class Watched(list[Any]):
    """The requests that arrive. Sends us SIGTERM as soon as these were seen, one after another."""

    def __init__(self, *paths: str) -> None:
        self.waiting = list(paths)

    def append(self, seen: Any) -> None:
        super().append(seen)
        if self.waiting and self.waiting[0] in f"{seen.method} {seen.path}":
            self.waiting.pop(0)
            if not self.waiting:
                os.kill(os.getpid(), signal.SIGTERM)


PHASES: dict[str, tuple[str, ...]] = {
    "choose": ("GET /repos/octo/calc/issues",),
    "clone": ("POST /repos/octo/calc/issues/1/labels", "git-upload-pack"),
    "push": (" the model is asked to propose", "POST /octo/calc.git/git-receive-pack"),
    "pull request": ("POST /repos/octo/calc/pulls",),
}


@pytest.fixture
def repo(github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Repo:
    repo = github.add_repository("octo/calc", FILES, private=True)
    github.add_issue(repo, "add() subtracts", "Please fix `add`.", ["pullwright"])
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    stage.flags = ["--github-url", github.web_url, "--repo", "octo/calc"]
    return repo


@slow
@pytest.mark.parametrize("phase", PHASES)
def test_a_signal_in_any_phase_leaves_nothing_behind_but_the_work(  # noqa: PLR0913, PLR0917  fixtures
    stage: Stage,
    github: GitHub,
    repo: Repo,
    fresh: Callable[[], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    phase: str,
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    watched = Watched(*PHASES[phase])
    github.requests = watched

    def armed(_request: RecordedRequest) -> Step:
        if watched.waiting and watched.waiting[0].startswith(" "):
            watched.waiting.pop(0)
        return ENDED

    stage.script(BEGUN, armed)
    done = stage.run("--issue", "1")
    assert watched.waiting == [], "the signal was sent"
    assert done.code == 130
    assert list((tmp_path / "tmp").iterdir()) == []
    assert all(one["state"] == "released" for one in claims(repo.path))
    assert repo.issues[1].labels == ["pullwright"]
    asked = len(stage.model.requests)
    assert bool(hidden(repo.path, "wip")) is bool(asked), "what was paid for is saved"
    # On a busy machine GitHub's answer may come before the signal is handled; then the model goes on after it.
    is_proposed = any(event["type"] == "Proposed" for event in stage.events()) if asked else False
    stage.model.script.clear()
    stage.script(do(PROPOSE, FINISH) if asked else FIX_IT)
    fresh()
    again = stage.run("--issue", "1")
    assert again.code == 0, again.err
    assert len(repo.pulls) == 1
    assert len([name for name in repo.branches() if name.startswith("pullwright/")]) == 1
    assert hidden(repo.path, "wip") == []
    if phase in {"push", "pull request"} and not is_proposed:
        assert len(stage.model.requests) == asked, "a pull request that was ready is only opened"
    elif asked:
        assert is_proposed or "First the sign." in str(stage.asked(asked))


@slow
def test_a_signal_during_a_tool_call_ends_it(stage: Stage, bare: Path, fresh: Callable[[], None]) -> None:
    command = ("run_shell_command", {"command": f"kill -TERM {os.getpid()}; sleep 600"})
    stage.script(do(FIX, NEWS, command, text="First the sign."))
    how = ("--permission", "dangerous", "--sandbox", "off")
    done = stage.run("--repo", str(bare), *TASK, *how)
    assert done.code == 130, done.err
    assert len(hidden(bare, "wip")) == 1
    fresh()
    stage.script(ENDED)
    assert stage.run("--repo", str(bare), *TASK, *how).code == 0
    check_went_on(stage, bare, 1)


# An open pull request whose cycle did not come to its end.


@slow
def test_an_open_pull_request_with_unfinished_work_is_gone_on_with(
    stage: Stage, repo: Repo, fresh: Callable[[], None]
) -> None:
    more = do(NEWS, text="And the news.")
    stage.script(do(FIX, PROPOSE, text="First the sign."), more, fail(401))
    assert stage.run("--issue", "1").code == 1
    assert len(repo.pulls) == len(hidden(repo.path, "wip")) == 1
    fresh()
    stage.script(ENDED)
    again = stage.run("--issue", "1")
    assert again.code == 0, again.err
    assert "And the news." in str(stage.asked(3))
    (pull,) = repo.pulls.values()
    assert repo.show(pull.head, "NEWS.md") == b"# News\n"
    assert hidden(repo.path, "wip") == []
    assert stage.run("--issue", "1").code == 3, "now it is done"


@slow
def test_a_question_on_an_open_pull_request_waits_for_its_answer(
    stage: Stage, repo: Repo, github: GitHub, fresh: Callable[[], None]
) -> None:
    stage.script(do(FIX, PROPOSE), do(NEWS, ("ask_question", {"question_text": "Floats too?"})))
    assert stage.run("--issue", "1").code == 4
    fresh()
    waits = stage.run("--issue", "1")
    assert waits.code == 3
    assert "waits for an answer" in waits.result["reason"]
    assert len(stage.model.requests) == 2
    github.add_comment(repo, 1, "Yes, floats too.")
    stage.script(ENDED)
    assert stage.run("--issue", "1").code == 0
    assert "Yes, floats too." in stage.told(2)
    assert len(repo.pulls) == 1
    assert hidden(repo.path, "wip") == []

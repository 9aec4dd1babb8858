"""`kill -9` at every record of the journal: the next start loses nothing, and does nothing twice.

The program runs in a process of its own that sends itself SIGKILL right after its n-th record, over the GitHub
double and on a bare repository. It is started again with the same state folder, until the task is done.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.bot.journal.folders import JOURNAL_FILE, Home
from orchestrator.bot.journal.reader import is_open
from tests.doubles.github.faults import Fault
from tests.doubles.model_server import ModelServer
from tests.scenarios.dying import NOTES, ROUNDS, End, Mortal, claims, goes_on, hidden, said
from tests.scenarios.stage import FILES, FIXED, git, make_repository, program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.doubles.github.server import GitHub
    from tests.doubles.github.state import Repo

slow = pytest.mark.slow(reason="kills the program at record after record")

pytestmark = pytest.mark.timeout(600)
SHARES = 20
"""Into so many tests the records are divided, so that they can run beside each other."""
ALL = os.environ.get("PULLWRIGHT_TEST_EVERY_RECORD") == "1"
"""Every record on both forges takes minutes; without this a few of twenty on each, and not the same ones."""
GITHUB_SHARES = range(SHARES) if ALL else range(0, SHARES, 10)
LOCAL_SHARES = range(SHARES) if ALL else range(3, SHARES, 10)
TWICE = 5
TASK = "Fix add() in calc.py"


@pytest.fixture(scope="module")
def mortal() -> Iterator[Mortal]:
    program = Mortal()
    yield program
    program.close()


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        server.script = Endless()
        yield server


class Endless(list[Any]):
    """A script that is never over: each reply is made from what was asked."""

    def __bool__(self) -> bool:
        return True

    def pop(self, _index: Any = -1) -> Any:
        return goes_on


@dataclass(slots=True)
class Place:
    """A repository, and a machine that works on it."""

    folder: Path
    model: ModelServer
    mortal: Mortal
    repository: Path
    order: dict[str, Any]
    requests_before: int = 0

    def start(self, dies_after: int = 0) -> End:
        return self.mortal.start(self.folder, self.model, dies_after=dies_after, **self.order)

    @property
    def asked(self) -> list[Any]:
        return self.model.requests[self.requests_before :]


def github_place(github: GitHub, model: ModelServer, mortal: Mortal, folder: Path, number: int) -> Place:
    name = f"octo/calc-{number}"
    repo = github.add_repository(name, FILES, private=True)
    github.add_issue(repo, "add() subtracts", "Please fix `add`.", ["pullwright"])
    folder.mkdir()
    order = {
        "repository": name,
        "flags": {"github_url": github.web_url},
        "environ": {"GITHUB_TOKEN": github.token()},
    }
    return Place(folder, model, mortal, repo.path, order, len(model.requests))


def local_place(model: ModelServer, mortal: Mortal, folder: Path) -> Place:
    folder.mkdir()
    make_repository(folder / "work")
    git(folder, "clone", "--quiet", "--bare", str(folder / "work"), "bare.git")
    bare = folder / "bare.git"
    return Place(folder, model, mortal, bare, {"repository": str(bare), "text": TASK}, len(model.requests))


def check_nothing_is_lost(place: Place, dead: End, before: int) -> None:
    """What holds wherever it was killed. `before`: requests that the dead process made."""
    repository = place.repository
    heads = git(repository, "for-each-ref", "--format=%(refname:short)", "refs/heads/pullwright/").split()
    assert len(heads) == 1, "one branch"
    for path, text in (("calc.py", FIXED), ("NEWS.md", "# News\n"), ("notes.txt", NOTES)):
        assert git(repository, "show", f"{heads[0]}:{path}") == text.strip()
    shown = git(repository, "ls-tree", "-r", "--name-only", heads[0]).split()
    assert ".github/workflows/test.yml" not in shown, "what is protected waits for a person"
    assert hidden(repository, "wip") == []
    assert [claim["state"] for claim in claims(repository)] == ["released"]
    assert [claim["outcome"] for claim in claims(repository)] == ["proposed"]
    left = [path.name for path in (place.folder / "tmp").iterdir()]
    assert left == [], "nothing temporary is left"
    runs = list(Home(place.folder / "home").runs.iterdir())
    assert [run.name for run in runs if is_open(run)] == [], "each journal has its end"
    check_nothing_is_paid_twice(place, dead, before)


def check_nothing_is_paid_twice(place: Place, dead: End, before: int) -> None:
    assert len(place.asked) <= len(ROUNDS) + 2
    (claim,) = claims(place.repository)
    assert claim["spent"]["rounds"] >= len(place.asked), "all that was paid for counts for the task"
    received = dead.printed.count("ReplyReceived")
    if received and len(place.asked) > before:
        assert said(place.asked[before]) == list(range(1, received + 1)), "the earlier replies are messages"


def check_github(repo: Repo) -> None:
    (pull,) = repo.pulls.values()
    assert pull.state == "open"
    assert "With notes." in (pull.body or "")
    (comment,) = pull.comments
    assert "test.yml" in comment.body
    assert repo.issues[1].comments == []
    assert repo.issues[1].labels == ["pullwright"]
    assert len(claims(repo.path)) == 1, "the issue was taken, and nothing else"
    assert claims(repo.path)[0]["pull"] == pull.number


def restart(place: Place, records: int) -> None:
    """Start again, and now and then once more: the second time there is nothing to do."""
    again = place.start()
    assert again.status == 0, again.printed
    if records % TWICE == 0:
        assert place.start().result["outcome"] == "no_task"


@slow
@pytest.mark.parametrize("share", GITHUB_SHARES)
def test_killed_at_any_record_nothing_is_lost_and_nothing_is_done_twice(
    github: GitHub, model: ModelServer, mortal: Mortal, tmp_path: Path, share: int
) -> None:
    for records in itertools.count(1 + share, SHARES):
        place = github_place(github, model, mortal, tmp_path / str(records), records)
        dead = place.start(dies_after=records)
        before = len(place.asked)
        restart(place, records)
        try:
            check_nothing_is_lost(place, dead, before)
            check_github(github.repositories[-1])
        except AssertionError as error:
            error.add_note(f"killed after record {records}, {dead.printed[-1]}")
            raise
        shutil.rmtree(place.folder)
        if not dead.killed:  # the whole cycle has fewer records than that
            assert dead.printed[-2] == "CycleEnded"
            assert len(dead.printed) - 1 < records
            break


@slow
@pytest.mark.parametrize("share", LOCAL_SHARES)
def test_in_a_folder_without_a_forge_neither(
    model: ModelServer, mortal: Mortal, tmp_path: Path, share: int
) -> None:
    for records in itertools.count(1 + share, SHARES):
        place = local_place(model, mortal, tmp_path / str(records))
        dead = place.start(dies_after=records)
        before = len(place.asked)
        restart(place, records)
        try:
            check_nothing_is_lost(place, dead, before)
        except AssertionError as error:
            error.add_note(f"killed after record {records}, {dead.printed[-1]}")
            raise
        if not dead.killed:
            break


# What the next start finds.

AFTER_AN_EDIT = 24
"""Records after which something is changed, nothing proposed and the cycle on its way."""
AFTER_A_PROPOSAL = 44
"""Records after which a pull request is open, and the next change is being made."""


def killed(place: Place) -> Path:
    """The folder of a run that was killed in the middle."""
    assert place.start(dies_after=AFTER_AN_EDIT).killed
    (run,) = Home(place.folder / "home").runs.iterdir()
    return run


def last_record(run: Path) -> dict[str, Any]:
    """The end of a journal."""
    return dict(json.loads((run / JOURNAL_FILE).read_text().splitlines()[-1]))


def test_work_of_a_dead_run_that_the_remote_refuses_is_a_patch(
    model: ModelServer, mortal: Mortal, tmp_path: Path
) -> None:
    place = local_place(model, mortal, tmp_path / "machine")
    run = killed(place)
    git(place.repository, "config", "receive.hideRefs", "refs/pullwright/wip")
    before = len(place.asked)
    assert place.start().result["outcome"] == "proposed"
    assert said(place.asked[before])[:1] == [1], "it is gone on with on this machine"
    assert "a + b" in (run / "changes.patch").read_text()
    assert last_record(run)["result"]["patch"] == str(run / "changes.patch")
    assert list((place.folder / "tmp").iterdir()) == []


@slow
@pytest.mark.parametrize(
    ("records", "told"),
    [
        (AFTER_AN_EDIT, "None of your changes is in them."),
        (AFTER_A_PROPOSAL, "only what had been put away before is in them: `NEWS.md`, `calc.py`"),
    ],
)
def test_where_the_dead_runs_files_are_gone_its_conversation_is_gone_on_with(
    model: ModelServer, mortal: Mortal, tmp_path: Path, records: int, told: str
) -> None:
    place = local_place(model, mortal, tmp_path / "machine")
    dead = place.start(dies_after=records)
    before = len(place.asked)
    shutil.rmtree(place.folder / "tmp")  # a restart, where that folder is in memory
    assert place.start().result["outcome"] == "proposed"
    words = str(place.asked[before].body["messages"][-1]["content"])
    assert "the files that you worked in are lost" in words
    assert told in words
    check_nothing_is_lost(place, dead, before)


def test_a_remote_that_is_away_leaves_the_dead_run_to_the_start_after(
    github: GitHub, model: ModelServer, mortal: Mortal, tmp_path: Path
) -> None:
    place = github_place(github, model, mortal, tmp_path / "machine", 1)
    run = killed(place)
    before = len(place.asked)
    away = Fault("POST", r".*/git-receive-pack", times=10_000, skip=1, status=503)
    github.faults.append(away)
    assert place.start().result["outcome"] == "paused"
    assert away.times < 10_000, "the claim was taken, and then the remote was gone"
    assert is_open(run)
    github.faults.clear()
    assert place.start().result["outcome"] == "proposed"
    assert said(place.asked[before])[:1] == [1], "nothing was lost"
    assert not is_open(run)


def test_a_dead_run_whose_task_somebody_else_has_had_since_leaves_a_patch(
    model: ModelServer, mortal: Mortal, tmp_path: Path
) -> None:
    place = local_place(model, mortal, tmp_path / "machine")
    run = killed(place)
    key = claims(place.repository)[0]["task"]
    assert program("claims", "release", key, "--repo", str(place.repository)).returncode == 0
    other = replace(place, folder=tmp_path / "other")
    other.folder.mkdir()
    assert other.start().result["outcome"] == "proposed"
    asked = len(model.requests)
    assert place.start().result["outcome"] == "no_task"
    assert len(model.requests) == asked
    assert hidden(place.repository, "wip") == []
    assert claims(place.repository)[0]["outcome"] == "proposed"
    assert "a + b" in (run / "changes.patch").read_text()
    assert "lost its claim" in last_record(run)["result"]["error"]

"""`kill -9` at every record of the journal: the next start loses nothing, and does nothing twice.

The program runs in a process of its own that sends itself SIGKILL right after its n-th record, over the GitHub
double and on a bare repository. It is started again with the same state folder, until the task is done.
"""

from __future__ import annotations

import itertools
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.journal.folders import Home
from orchestrator.journal.open_runs import is_open
from tests.doubles.model_server import ModelServer
from tests.scenarios.dying import NOTES, ROUNDS, End, Mortal, claims, goes_on, hidden, said
from tests.scenarios.stage import FILES, FIXED, git, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.doubles.github.server import GitHub
    from tests.doubles.github.state import Repo

SHARES = 10
"""Into so many tests the records are divided, so that they can run beside each other."""
LOCAL_STEP = 7
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


def restarted(place: Place) -> list[End]:
    """Start again, and once more: the second time there is nothing to do."""
    ends = [place.start(), place.start()]
    assert [end.status for end in ends] == [0, 0], ends[0].printed
    assert ends[1].result["outcome"] == "no_task"
    return ends


@pytest.mark.parametrize("share", range(SHARES))
def test_killed_at_any_record_nothing_is_lost_and_nothing_is_done_twice(
    github: GitHub, model: ModelServer, mortal: Mortal, tmp_path: Path, share: int
) -> None:
    for records in itertools.count(1 + share, SHARES):
        place = github_place(github, model, mortal, tmp_path / str(records), records)
        dead = place.start(dies_after=records)
        before = len(place.asked)
        restarted(place)
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


@pytest.mark.parametrize("share", range(LOCAL_STEP))
def test_in_a_folder_without_a_forge_neither(
    model: ModelServer, mortal: Mortal, tmp_path: Path, share: int
) -> None:
    if share % 3:
        pytest.skip("a part of the records is enough where nobody but git is asked")
    for records in itertools.count(1 + share, LOCAL_STEP):
        place = local_place(model, mortal, tmp_path / str(records))
        dead = place.start(dies_after=records)
        before = len(place.asked)
        restarted(place)
        try:
            check_nothing_is_lost(place, dead, before)
        except AssertionError as error:
            error.add_note(f"killed after record {records}, {dead.printed[-1]}")
            raise
        if not dead.killed:
            break

"""What the tests of a real change say of another one: every known way to cheat is no solution, and a repair is one."""

from __future__ import annotations

import random
import sys
import tomllib
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.git.local import LocalRepository
from orchestrator.bot.verification.base import RunOptions
from orchestrator.bot.verification.runs import HostRuns
from orchestrator.bot.verification.trees import TestFiles
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.plugins.backtest.cases import (
    CaseSearch,
    HiddenTests,
    Judged,
    TestsOfChange,
    UnfitTestsError,
    judge,
    learn_tests,
)
from orchestrator.plugins.backtest.past_changes import Case, PastChange, copy_proposal, take_out
from tests.evaluation.weakenings import cases
from tests.plugins.backtest.past import BUG, DISCOUNT, NEW_DISCOUNT, PERCENT, PYTEST, TITLE
from tests.scenarios.stage import add_commit, git, make_repository

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orchestrator.bot.git.objects import Trees
    from orchestrator.plugins.backtest.cases import OpenRuns

DATA = tomllib.loads((Path(__file__).parents[2] / "evaluation" / "weakenings.toml").read_text("utf-8"))
RED = {
    entry["name"]
    for kind in ("weakening", "honest")
    for entry in DATA[kind]
    if entry["base"] == "red" and not {"command", "base_files", "known_limit"} & entry.keys()
}
WAYS = [case for case in cases(f"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {sys.executable}") if case.name in RED]


def opener(home: Path, command: str = PYTEST, setup: str = "") -> OpenRuns:
    """Runs without a sandbox."""

    @asynccontextmanager
    async def open_runs(trees: Trees, base: str) -> AsyncIterator[HostRuns]:
        made = HostRuns(
            trees,
            base,
            RunOptions(command, setup, minutes=2),
            home=home,
            environment=lambda folder: LocalEnvironment(folder, sandbox="off", own_repository=True),
            source=random.Random(7),  # noqa: S311  no secret
        )
        try:
            yield made
        finally:
            await made.close()

    return open_runs


def past_case(folder: Path, before: dict[str, str], after: dict[str, str]) -> Case:
    """One change, taken out of its history."""
    repository = make_repository(folder / "r", before)
    add_commit(repository, after, TITLE)
    head = git(repository, "rev-parse", "HEAD")
    change = PastChange("commit-1", f"{head}^", head, TITLE, "", "", commits=(head,))
    taken = take_out(change, LocalRepository(repository).history(), folder / "store", TestFiles())
    assert isinstance(taken, Case), taken
    return taken


async def judged(
    case: Case, hidden: HiddenTests, folder: Path, files: dict[str, str], runs: OpenRuns
) -> Judged:
    """What the hidden tests say of a tree."""
    proposed = make_repository(folder, files)
    tree = copy_proposal(proposed / ".git", "HEAD", case.store)
    return (await judge(case, hidden, tree, runs)).judged


@pytest.mark.slow(reason="it runs tests for each of many ways to cheat")
async def test_every_known_way_to_cheat_is_no_solution_and_the_repair_is(tmp_path: Path) -> None:
    files = dict(DATA["bases"]["red"]["files"])
    tests = "tests/test_discount.py"
    given = {**files, tests: files[tests].partition("\n\n\ndef test_discount")[0] + "\n"}
    mended = {
        "shop.py": files["shop.py"].replace("sum(prices) - discount", "sum(prices) * (100 - discount) / 100")
    }
    case = past_case(tmp_path / "past", given, {**mended, tests: files[tests]})
    runs = opener(tmp_path / "home")
    hidden = await learn_tests(case, runs)
    assert hidden.must_pass == ("tests/test_discount.py::test_discount",)
    assert len(hidden.must_still_pass) == 4
    ends = {}
    for number, way in enumerate(WAYS):
        ends[way.name] = await judged(case, hidden, tmp_path / str(number), dict(way.after), runs)
    assert len(ends) > 30
    right = {name for name, end in ends.items() if end is Judged.SOLVED}
    assert right == {way.name for way in WAYS if way.is_honest and "mended" in way.name}, ends


@pytest.mark.slow(reason="it runs tests many times")
async def test_tests_that_do_not_tell_are_no_case(tmp_path: Path) -> None:
    before = {"shop.py": BUG, "tests/test_discount.py": DISCOUNT}
    flaky = f"{DISCOUNT}\n\nimport os\n\n\ndef test_now_and_then():\n    assert os.urandom(1)[0] < 0\n"
    for number, (after, command, expected) in enumerate(
        (
            ({"shop.py": PERCENT, "tests/test_discount.py": flaky}, PYTEST, "none fails without it"),
            ({"shop.py": PERCENT, "tests/test_discount.py": NEW_DISCOUNT}, "true", "no report names"),
            ({"shop.py": PERCENT, "tests/test_discount.py": NEW_DISCOUNT}, "exit 5", "no report names"),
        )
    ):
        case = past_case(tmp_path / str(number), before, after)
        with pytest.raises(UnfitTestsError, match=expected):
            await learn_tests(case, opener(tmp_path / "home" / str(number), command))


@pytest.mark.slow(reason="it runs tests many times")
async def test_what_ends_differently_is_set_aside(tmp_path: Path) -> None:
    counter = tmp_path / "count"
    unsteady = (
        f"{NEW_DISCOUNT}\n\ndef test_every_second_time():\n    import pathlib\n"
        f"    file = pathlib.Path({str(counter)!r})\n    count = len(file.read_text()) if file.exists() else 0\n"
        "    file.write_text('x' * (count + 1))\n    assert count % 2\n"
    )
    case = past_case(
        tmp_path,
        {"shop.py": BUG, "tests/test_discount.py": DISCOUNT},
        {"shop.py": PERCENT, "tests/test_discount.py": unsteady},
    )
    hidden = await learn_tests(case, opener(tmp_path / "home"))
    assert hidden.unstable == 1
    assert hidden.must_pass == ("tests/test_discount.py::test_discount",)
    assert not any("second" in name for name in hidden.must_still_pass)


def test_a_change_of_tests_alone_or_of_a_submodule_is_no_case(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "r", {"shop.py": BUG, "tests/test_discount.py": DISCOUNT})
    add_commit(repository, {"tests/test_discount.py": NEW_DISCOUNT}, "Test it")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},vendored")
    git(repository, "commit", "-q", "-m", "Add a submodule")
    add_commit(repository, {"shop.py": PERCENT}, "Mend it")
    history = LocalRepository(repository).history()

    def why(back: int) -> str:
        head = git(repository, "rev-parse", f"HEAD~{back}")
        change = PastChange(f"c{back}", f"{head}^", head, TITLE, "", "")
        found = take_out(change, history, tmp_path / f"store{back}", TestFiles())
        assert not isinstance(found, Case)
        return found.reason

    assert "submodule" in why(1)
    assert "only tests, settings and scripts" in why(2)


@pytest.mark.parametrize(("failures", "ready"), [(1, [True]), (3, [False, True])])
async def test_a_set_up_that_failed_is_tried_again_now_and_at_the_next_start(
    tmp_path: Path, failures: int, ready: list[bool]
) -> None:
    """As where a server of packages did not answer."""
    count = tmp_path / "count"
    setup = f"echo >> {count}; test $(wc -l < {count}) -gt {failures}"
    repository = make_repository(tmp_path / "r", {"shop.py": BUG, "tests/test_discount.py": DISCOUNT})
    add_commit(repository, {"shop.py": PERCENT, "tests/test_discount.py": NEW_DISCOUNT}, TITLE)
    head = git(repository, "rev-parse", "HEAD")
    change = PastChange("commit-1", f"{head}^", head, TITLE, "", "", commits=(head,))
    options = RunOptions(PYTEST, setup, minutes=2)
    tests = TestsOfChange(options, TestFiles(), opener(tmp_path / "home", PYTEST, setup))
    ended = []
    for _ in ready:
        history = LocalRepository(repository).history()
        search = CaseSearch(history, tmp_path / "cases", lambda _change: tests, lambda _change, _found: None)
        found = await search.find(iter([change]), 1, 1, lambda: False)
        ended.append(bool(found.ready))
        assert bool(found.unfit) is not bool(found.ready)
    assert ended == ready

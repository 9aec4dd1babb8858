"""What follows from how a test command ends. Pytest is played, so that each case costs no process."""

from __future__ import annotations

import ast
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from orchestrator.bot.verification.base import (
    WHOLE_RUN,
    CaseResult,
    CaseStatus,
    Change,
    RunKind,
    RunOptions,
    RunResult,
)
from orchestrator.bot.verification.runs import HostRuns, _newly_failing
from orchestrator.bot.verification.verdict import judge_runs
from orchestrator.core.errors import ToolError
from tests.tables import table
from tests.unit.bot.verification.rig import TIMED_OUT, bench, junit, played, statuses, verified

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.bot.git.objects import Trees
    from orchestrator.core.changes import FileChange
    from tests.unit.bot.verification.rig import Bench, Play

ROOT = Path(__file__).parents[4]
PYTEST = "pytest -q"
FILES = {
    "code.txt": "one two\n",
    "tests/test_a.py": "def test_one(): needs one\ndef test_two(): needs two\ndef test_six(): needs six\n",
}
ONE, TWO, SIX = (f"tests/test_a.py::test_{name}" for name in ("one", "two", "six"))
BETTER = {"code.txt": "one two six\n"}
BASE = {ONE: "passed", TWO: "passed", SIX: "failed"}


def as_it_is(_command: str, _tree: Path, _report: Path) -> int | None:
    return None


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, FILES) as made:
        made.play = as_it_is
        yield made


async def test_a_guess_that_does_not_repair_what_the_task_names_costs_one_run(repository: Bench) -> None:
    async with repository.runs(PYTEST) as runs:
        change = replace(repository.change({"code.txt": "two"}), task=f"Fix {SIX}")
        wrong = await runs.verify(replace(change, is_guess=True))
        assert len(repository.commands) == 2  # the base's run, and one
        assert wrong.kept is None
        assert judge_runs(wrong, change).is_red
        asked = await runs.verify(change)
        assert asked.kept is not None
        assert len(repository.commands) > 2  # the test that it breaks is repeated
        better = replace(repository.change(BETTER), task=f"Fix {SIX}", is_guess=True)
        right = await runs.verify(better)
    assert right.kept is not None
    assert not judge_runs(right, better).is_red


async def test_a_guess_is_stopped_early_and_what_it_did_until_then_is_forgotten(repository: Bench) -> None:
    """Some guesses do not end, and the user's limit is for a whole run of a right program."""
    limits = repository.limits

    def play(_command: str, _tree: Path, _report: Path) -> int | None:
        return TIMED_OUT if len(limits) == 2 else None

    repository.play = play
    async with repository.runs(RunOptions(PYTEST, minutes=10)) as runs:
        change = replace(repository.change(BETTER), task=f"Fix {SIX}")
        stopped = await runs.verify(replace(change, is_guess=True))
        ended = await runs.verify(change)
    assert limits[:3] == [600_000, 20_000, 600_000]
    assert stopped.after is not None
    assert "within 20 seconds, the limit of one of several tries" in stopped.after.problem
    assert ended.after is not None
    assert not ended.after.problem


@pytest.fixture(scope="module")
def lied_to(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench(tmp_path_factory.mktemp("lies"), FILES) as made:
        yield made


async def test_a_change_of_code_alone_is_run_once(repository: Bench) -> None:
    runs = await verified(repository, BETTER, PYTEST)
    assert statuses(runs.before) == BASE
    assert statuses(runs.after) == {**BASE, SIX: "passed"}
    assert runs.kept is not None
    assert runs.after is not None
    assert (runs.kept.kind, runs.kept.cases) == (RunKind.KEPT, runs.after.cases)
    assert (runs.new, runs.restored) == (None, ())
    assert repository.commands == [PYTEST, PYTEST]
    assert [runs.before and runs.before.exit, runs.after.exit] == [1, 0]


async def test_kept_has_the_bases_tests_and_new_the_bases_code(repository: Bench) -> None:
    change = {
        **BETTER,
        "tests/test_a.py": "def test_one(): needs one\n",
        "tests/test_b.py": "def test_six(): needs six\n",
    }
    runs = await verified(repository, change, PYTEST)
    assert statuses(runs.kept) == {**BASE, SIX: "passed"}
    assert statuses(runs.after) == {ONE: "passed", "tests/test_b.py::test_six": "passed"}
    assert statuses(runs.new) == {ONE: "passed", "tests/test_b.py::test_six": "failed"}
    assert repository.commands[-1] == "pytest tests/test_a.py tests/test_b.py -q"


async def test_a_removed_test_file_is_there_in_kept(repository: Bench) -> None:
    runs = await verified(
        repository, {"tests/test_a.py": None, "tests/test_b.py": "def test_b(): needs one\n"}, PYTEST
    )
    assert statuses(runs.kept) == BASE
    assert list(statuses(runs.after)) == ["tests/test_b.py::test_b"]


def _link(_command: str, _tree: Path, report: Path) -> int:
    report.symlink_to("/etc/hostname")
    return 0


def _folder(_command: str, _tree: Path, report: Path) -> int:
    report.mkdir()
    return 0


def _pipe(_command: str, _tree: Path, report: Path) -> int:
    os.mkfifo(report)
    return 0


def _rewritten_tests(_command: str, tree: Path, _report: Path) -> None:
    test = tree / "tests" / "test_a.py"
    test.write_text(test.read_text())


def _ten_gigabytes(_command: str, _tree: Path, report: Path) -> int:
    with report.open("wb") as file:
        file.truncate(10_000_000_000)  # a hole, which takes no space
    return 0


LIES: dict[str, tuple[Play, str]] = {
    "no report": (lambda _command, _tree, _report: 0, "no report was written"),
    "no test": (lambda _command, _tree, report: report.write_text(junit({})) * 0, "no test ran"),
    "nothing collected": (
        lambda _command, _tree, report: report.write_text(junit({})) * 0 + 5,
        "no test ran",
    ),
    "all skipped": (
        lambda _command, _tree, report: report.write_text(junit({ONE: "skipped", TWO: "skipped"})) * 0,
        "every test was skipped",
    ),
    "failures and success": (
        lambda _command, tree, report: report.write_text(junit(played(tree))) * 0,
        "the report has failed tests: 1",
    ),
    "not a report": (
        lambda _command, _tree, report: report.write_text("5 passed") * 0,
        "format is not supported",
    ),
    "a link": (_link, "cannot be read"),
    "a folder": (_folder, "cannot be read"),
    "a pipe that nobody writes to": (_pipe, "cannot be read"),
    "ten gigabytes": (_ten_gigabytes, "cannot be read"),
    "counted wrong": (
        lambda _command, _tree, report: report.write_text('<testsuite tests="3" failures="2"/>') * 0,
        "counts 2 failures",
    ),
    "tests that were rewritten": (_rewritten_tests, "a test file was changed while the tests ran: "),
    "too long": (lambda _command, _tree, _report: TIMED_OUT, "did not end within 10 minutes"),
    "the test that must fail passes": (
        lambda _command, tree, report: report.write_text(junit(dict.fromkeys(played(tree), "passed"))) * 0,
        "a test that must fail passed",
    ),
    "the test that must fail is hidden": (
        lambda _command, _tree, report: report.write_text(junit({ONE: "passed", TWO: "passed"})) * 0,
        "a test that must fail was not run",
    ),
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_run_that_cannot_be_believed_proves_nothing(lied_to: Bench, lie: str) -> None:
    play, problem = LIES[lie]
    async with lied_to.runs(PYTEST) as runs:
        lied_to.play = as_it_is
        assert not (await runs.before()).problem
        lied_to.play = play
        found = await runs.run_tests(lied_to.tree({"code.txt": "one six\n"}))
    assert problem in found.problem
    assert not found.is_green


async def test_what_a_change_says_of_its_own_settings_may_hide_the_test_that_must_fail(
    repository: Bench,
) -> None:
    def moved(_command: str, tree: Path, report: Path) -> int | None:
        if (tree / "pytest.ini").exists():
            report.write_text(junit({"checks/test_a.py::test_one": "passed"}))
            return 0
        return None

    repository.play = moved
    runs = await verified(repository, {"pytest.ini": "[pytest]\ntestpaths = checks\n", **BETTER}, PYTEST)
    assert runs.after is not None
    assert runs.after.problem == ""
    assert statuses(runs.kept) == {**BASE, SIX: "passed"}


async def test_without_a_report_the_exit_code_counts(repository: Bench) -> None:
    repository.play = lambda _command, tree, _report: int("one" not in (tree / "code.txt").read_text())
    runs = await verified(repository, {"code.txt": "two\n"}, "make test")
    assert [run and (run.exit, run.cases, run.problem) for run in (runs.before, runs.after)] == [
        (0, {}, ""),
        (1, {}, ""),
    ]
    assert repository.commands == ["make test"] * 6
    assert runs.before is not None
    assert runs.before.flaky == frozenset()


async def test_tests_inside_of_source_files_are_the_bases_in_kept(tmp_path: Path) -> None:
    tests = "#[cfg(test)]\nmod tests {\n    // %s\n}\n"
    with bench(tmp_path, {"src/lib.rs": f"// old\n{tests % 'first'}"}) as repository:
        seen = []

        def read(_command: str, tree: Path, _report: Path) -> int:
            words = (tree / "src/lib.rs").read_text().split()
            seen.append((words[1], words[-2]))
            return 0

        repository.play = read
        runs = await verified(repository, {"src/lib.rs": f"// new\n{tests % 'second'}"}, "cargo test")
    assert seen == [("old", "first"), ("new", "second"), ("new", "first"), ("old", "second")]
    assert runs.restored == ("src/lib.rs",)


async def test_what_fails_now_is_run_again_on_both_sides(repository: Bench) -> None:
    runs = await verified(repository, {"code.txt": "one\n"}, PYTEST)
    assert repository.commands == [PYTEST, PYTEST, *[f"pytest {TWO} -q"] * 4]
    assert runs.before is not None
    assert runs.after is not None
    assert (runs.before.flaky, runs.after.flaky) == (frozenset(), frozenset())


@pytest.mark.parametrize("command", [PYTEST, "make test"])
async def test_a_test_that_the_base_shows_to_be_flaky(repository: Bench, command: str) -> None:
    def fails_later(_command: str, tree: Path, _report: Path) -> int | None:
        if len(repository.commands) > 1:
            words = (tree / "code.txt").read_text()
            (tree / "code.txt").write_text(
                words.replace("two", "" if len(repository.commands) != 4 else "two")
            )
        if command == "make test":
            return int("two" not in (tree / "code.txt").read_text())
        return None

    repository.play = fails_later
    runs = await verified(repository, {"code.txt": "one two three\n"}, command)
    name = TWO if command == PYTEST else WHOLE_RUN
    assert runs.before is not None
    assert runs.before.flaky == {name}
    assert len(repository.commands) == 6


async def test_named_tests_are_run_alone(repository: Bench) -> None:
    async with repository.runs(PYTEST) as runs:
        tree = repository.tree({"code.txt": "one six\n"})
        found = await runs.run_tests(tree, [SIX, TWO])
        assert statuses(found) == {SIX: "passed", TWO: "failed"}
        assert repository.commands == [PYTEST, f"pytest {SIX} {TWO} -q"]
        with pytest.raises(ToolError, match="no test is called"):
            await runs.run_tests(tree, ["--collect-only"])
        assert statuses(await runs.run_tests(tree)) == {ONE: "passed", TWO: "failed", SIX: "passed"}
        assert (await runs.run_tests(tree)).kind is RunKind.AFTER
        assert len(repository.commands) == 3


async def test_where_tests_cannot_be_chosen_all_are_run(repository: Bench) -> None:
    async with repository.runs("make test") as runs:
        found = await runs.run_tests(repository.tree(BETTER), [SIX])
    assert statuses(found) == {**BASE, SIX: "passed"}


async def test_reports_that_the_command_writes_are_read_and_older_ones_removed(tmp_path: Path) -> None:
    old = junit({"tests/test_old.py::test_old": "passed"})
    files = {**FILES, "build/a.xml": old, "build/deep/b.xml": old, "other.xml": old}
    with bench(tmp_path, files) as repository:

        def written(_command: str, tree: Path, _report: Path) -> int:
            assert not (tree / "build/a.xml").exists()
            (tree / "build").mkdir(exist_ok=True)
            (tree / "build/one.xml").write_text(junit({ONE: "passed"}))
            (tree / "build/two.xml").write_text(junit({TWO: "passed"}))
            (tree / "build/link.xml").symlink_to("../other.xml")
            (tree / "build/link.xml").unlink()
            return 0

        repository.play = written
        async with repository.runs(RunOptions("mvn test", report="build/*.xml")) as runs:
            found = await runs.before()
    assert statuses(found) == {ONE: "passed", TWO: "passed"}
    assert found.problem == ""


async def test_the_result_of_the_base_outlives_the_process(repository: Bench) -> None:
    async with repository.runs(PYTEST) as runs:
        first = await runs.before()
    async with repository.runs(PYTEST) as runs:
        second = await runs.before()
        repository.play = LIES["the test that must fail passes"][0]
        lied = await runs.run_tests(repository.tree(BETTER))
    assert (first.cached, second.cached) == (False, True)
    assert {**statuses(second)} == BASE
    assert (second.exit, second.tree, second.digest, second.seconds) == (
        first.exit,
        first.tree,
        first.digest,
        1.5,
    )
    assert "a test that must fail passed" in lied.problem
    async with repository.runs(RunOptions(PYTEST, minutes=5)) as runs:
        assert not (await runs.before()).cached


@pytest.mark.parametrize("damage", ["", "{", "null", '{"result": {}, "control": null}', "[1]"])
async def test_a_damaged_result_is_no_result(repository: Bench, damage: str) -> None:
    async with repository.runs(PYTEST) as runs:
        await runs.before()
    (kept,) = (repository.home / "before").iterdir()
    kept.write_text(damage)
    async with repository.runs(PYTEST) as runs:
        assert statuses(await runs.before()) == BASE


async def test_a_result_that_proves_nothing_is_not_kept(repository: Bench) -> None:
    repository.play = LIES["too long"][0]
    async with repository.runs(PYTEST) as runs:
        assert (await runs.before()).problem
    repository.play = as_it_is
    async with repository.runs(PYTEST) as runs:
        assert not (await runs.before()).problem


async def test_two_at_once_have_a_folder_each(repository: Bench) -> None:
    async with repository.runs(PYTEST) as first, repository.runs(RunOptions(PYTEST, minutes=3)) as second:
        await first.before()
        await second.before()
        assert sorted(path.name for path in repository.home.iterdir()) == ["0", "1", "before"]
        assert [(repository.home / name / "tree").is_dir() for name in "01"] == [True, True]
    assert [(repository.home / name / "tree").exists() for name in "01"] == [False, False]


def installs(command: str, tree: Path, _report: Path) -> int | None:
    """A set-up that makes an environment; tests fail without it."""
    if command == "install":
        (tree / ".venv/bin").mkdir(parents=True)
        (tree / ".venv/bin/tool").write_text((tree / "requirements.txt").read_text())
        (tree / ".venv/bin/python").symlink_to("/usr/bin/python3")
        (tree / "tests/__pycache__").mkdir()
        (tree / "tests/made.txt").write_text("made")
        (tree / "code.txt").write_text("changed by the set-up")
        return 0
    if not (tree / ".venv/bin/tool").is_file() or not (tree / ".venv/bin/python").is_symlink():
        return 3
    if (tree / "tests/__pycache__").exists() or not (tree / "tests/made.txt").exists():
        return 4
    (tree / ".venv/bin/tool").write_text("spoilt by a run")
    (tree / ".venv/added").write_text("by a run")
    return None


SET_UP = RunOptions(PYTEST, setup="install")
INSTALLED = {**FILES, "requirements.txt": "a==1\n"}


async def test_a_set_up_is_run_once_and_what_it_made_is_fresh_in_each_run(tmp_path: Path) -> None:
    with bench(tmp_path, INSTALLED) as repository:
        seen = []

        def watched(command: str, tree: Path, report: Path) -> int | None:
            if command != "install":
                seen.append(((tree / ".venv/bin/tool").read_text(), (tree / ".venv/added").exists()))
            return installs(command, tree, report)

        repository.play = watched
        change = {**BETTER, "tests/test_a.py": FILES["tests/test_a.py"] + "def test_b(): needs six\n"}
        runs = await verified(repository, change, SET_UP)
        assert runs.problem == ""
        assert [run and run.exit for run in (runs.before, runs.kept, runs.after, runs.new)] == [1, 0, 0, 1]
        await verified(repository, change, SET_UP)
        assert repository.commands.count("install") == 1
        assert seen == [("a==1\n", False)] * len(seen)


async def test_a_change_of_what_is_installed_has_a_set_up_of_its_own(tmp_path: Path) -> None:
    with bench(tmp_path, INSTALLED) as repository:
        tools: list[tuple[str, str]] = []

        def watched(command: str, tree: Path, report: Path) -> int | None:
            if command != "install":
                tools.append(((tree / "requirements.txt").read_text(), (tree / ".venv/bin/tool").read_text()))
            return installs(command, tree, report)

        repository.play = watched
        runs = await verified(repository, {**BETTER, "requirements.txt": "a==2\n"}, SET_UP)
        assert runs.problem == ""
        assert repository.commands.count("install") == 2
        assert tools == [("a==1\n", "a==1\n"), ("a==2\n", "a==2\n"), ("a==1\n", "a==1\n")]


async def test_the_whole_output_of_a_set_up_that_fails_is_kept(tmp_path: Path) -> None:
    with bench(tmp_path, INSTALLED) as repository:
        repository.play = lambda command, _tree, _report: 2 if command == "install" else None
        async with repository.runs(SET_UP) as runs:
            with pytest.raises(ToolError):
                await runs.before()
        assert (repository.home / "setup-output.txt").read_text().strip() == "ran install"


async def test_a_set_up_that_fails_is_said_and_not_run_again(tmp_path: Path) -> None:
    with bench(tmp_path, INSTALLED) as repository:
        repository.play = lambda command, _tree, _report: 2 if command == "install" else None
        async with repository.runs(SET_UP) as runs:
            with pytest.raises(ToolError, match="the set-up command ended with exit code 2: ran install"):
                await runs.before()
            found = await runs.verify(repository.change(BETTER))
        assert found.problem == "the set-up command ended with exit code 2: ran install"
        assert (found.before, found.after) == (None, None)
        assert repository.commands == ["install"]


def _breaks_the_set_up(command: str, tree: Path, report: Path) -> int | None:
    if command == "install" and "broken" in (tree / "requirements.txt").read_text():
        return 2
    return installs(command, tree, report)


def _writes_many_reports(command: str, tree: Path, _report: Path) -> int | None:
    if command != "install" and "many" in (tree / "code.txt").read_text():
        (tree / "many").mkdir()
        for number in range(5_001):
            (tree / f"many/{number}.xml").touch()
    return installs(command, tree, _report)


UNFIT: dict[str, tuple[dict[str, str | None], Play, str]] = {
    "its set-up fails": (
        {"requirements.txt": "broken\n"},
        _breaks_the_set_up,
        "the set-up command ended with exit code 2",
    ),
    "its tests are behind a link": (
        {"tests": "real"},
        lambda command, _tree, _report: 0 if command == "install" else None,
        "symbolic link",
    ),
    "its tests write thousands of reports": ({"code.txt": "one two many\n"}, _writes_many_reports, "5,000"),
}


@pytest.mark.parametrize("change", UNFIT)
async def test_a_change_that_cannot_be_run_any_more_is_red(tmp_path: Path, change: str) -> None:
    files, play, words = UNFIT[change]
    with bench(tmp_path, INSTALLED) as repository:
        repository.play = play
        if "tests" in files:
            tree = repository.clone.tree
            (tree / "tests").rename(tree / "real")
            (tree / "tests").symlink_to("real")
            made = repository.clone.changed_tree(
                {"tests", "tests/test_a.py", "real/test_a.py"}, include_commands=False
            )
            base = repository.clone.base_commit
            proposed = Change(base, made, repository.clone.trees.changes(base, made))
        else:
            proposed = repository.change(files)
        async with repository.runs(RunOptions(PYTEST, setup="install", report="many/*.xml")) as runs:
            found = await runs.verify(proposed)
    assert found.problem == ""
    assert statuses(found.before) == BASE
    assert found.after is not None
    assert words in found.after.problem
    assert judge_runs(found, proposed).is_red


async def test_what_is_known_of_the_base_stays_where_the_machine_fails(repository: Bench) -> None:
    def full(_command: str, _tree: Path, _report: Path) -> int | None:
        if len(repository.commands) > 1:
            raise ToolError("no space left")
        return None

    repository.play = full
    runs = await verified(repository, BETTER, PYTEST)
    assert runs.problem == "no space left"
    assert statuses(runs.before) == BASE


def _installs_the_code(command: str, tree: Path, _report: Path) -> int | None:
    """A set-up that runs the repository's code."""
    if command == "install":
        (tree / "made.txt").write_text((tree / "code.txt").read_text())
        return 0 if (tree / "new.txt").exists() or "new" not in (tree / "requirements.txt").read_text() else 2
    return None


async def test_the_base_is_set_up_with_its_own_code_alone(tmp_path: Path) -> None:
    with bench(tmp_path, INSTALLED) as repository:
        repository.play = _installs_the_code
        async with repository.runs(SET_UP) as runs:
            await runs.before()
        setups = repository.home / "0/setups"
        shutil.rmtree(setups)
        await verified(repository, BETTER, SET_UP)
        assert [path.read_text() for path in setups.glob("*/made.txt")] == [FILES["code.txt"]]
        runs_of = await verified(repository, {"requirements.txt": "a==2\n"}, SET_UP)
        assert runs_of.problem == ""
        assert [path.read_text() for path in setups.glob("*/made.txt")] == [FILES["code.txt"]] * 2


async def test_a_manifest_may_need_files_that_the_change_adds(tmp_path: Path) -> None:
    with bench(tmp_path, INSTALLED) as repository:
        repository.play = _installs_the_code
        runs = await verified(repository, {"requirements.txt": "new\n", "new.txt": "", **BETTER}, SET_UP)
        assert runs.after is not None
        assert runs.after.is_green
        assert repository.commands.count("install") == 3


async def test_large_lock_files_that_differ_have_a_set_up_each(tmp_path: Path) -> None:
    with bench(tmp_path, INSTALLED) as repository:
        repository.play = installs
        async with repository.runs(SET_UP) as runs:
            for version in "23":
                lock = f"# {version}\n" * 300_000
                await runs.run_tests(repository.tree({"requirements.txt": lock}))
        assert repository.commands.count("install") == 3


async def test_what_was_run_under_other_conditions_is_run_again(tmp_path: Path) -> None:
    with bench(tmp_path, INSTALLED) as repository:
        repository.play = installs
        for conditions in ("", "other", "other"):
            async with repository.runs(replace(SET_UP, conditions=conditions)) as runs:
                await runs.before()
        assert repository.commands == ["install", PYTEST] * 2


def _three_large(_command: str, tree: Path, _report: Path) -> int:
    for number in range(3):
        with (tree / f"{number}.xml").open("wb") as file:
            file.truncate(50_000_000)
    return 0


def _many_tests(_command: str, tree: Path, _report: Path) -> int:
    for number in range(3):
        cases = "".join(f'<testcase name="{number}.{one}"/>' for one in range(70_000))
        (tree / f"{number}.xml").write_text(f"<testsuite>{cases}</testsuite>")
    return 0


async def test_a_report_has_the_room_that_those_before_it_left(repository: Bench) -> None:
    def one_byte_too_many(_command: str, tree: Path, _report: Path) -> int:
        (tree / "1.xml").write_text(junit({ONE: "passed"}))
        with (tree / "2.xml").open("wb") as file:
            file.truncate(100_000_001 - (tree / "1.xml").stat().st_size)  # a hole, which is not read
        return 0

    repository.play = one_byte_too_many
    async with repository.runs(RunOptions("make test", report="*.xml")) as runs:
        assert "the report cannot be read: 2.xml is " in (await runs.before()).problem


@pytest.mark.slow(reason="growth: reports of more than 200,000 tests")
@pytest.mark.parametrize(
    ("play", "words"),
    [(_three_large, "the report cannot be read: "), (_many_tests, "more than 200,000 tests")],
)
async def test_reports_are_limited_together(repository: Bench, play: Play, words: str) -> None:
    repository.play = play
    async with repository.runs(RunOptions("make test", report="*.xml")) as runs:
        assert words in (await runs.before()).problem


@pytest.mark.parametrize("of_base", [True, False])
async def test_a_session_that_fails_by_itself_is_not_green(tmp_path: Path, *, of_base: bool) -> None:
    hook = {"conftest.py": "def pytest_sessionfinish(session): session.testsfailed += 1\n"}

    def fails(_command: str, tree: Path, report: Path) -> int | None:
        if not (tree / "conftest.py").exists():
            return None
        report.write_text(junit(played(tree)))
        return 1

    with bench(tmp_path, {**FILES, **(hook if of_base else {})}) as repository:
        repository.play = fails
        runs = await verified(repository, BETTER if of_base else {**hook, **BETTER}, PYTEST)
    assert runs.after is not None
    assert runs.kept is not None
    assert (runs.after.is_green, runs.after.exit) == (False, 1)
    assert runs.kept.is_green is not of_base


async def test_words_in_the_code_do_not_do_without_the_test_that_must_fail(repository: Bench) -> None:
    repository.play = lambda _command, tree, report: (
        report.write_text(junit(dict.fromkeys(played(tree), "passed"))) * 0
        if (tree / "product.py").exists()
        else None
    )
    runs = await verified(repository, {"product.py": "# fail_under testsfailed\n"}, PYTEST)
    assert runs.kept is not None
    assert "a test that must fail passed" in runs.kept.problem


class CountedTrees:
    """Trees that note what is looked at."""

    def __init__(self, trees: Trees) -> None:
        self._trees = trees
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trees, name)

    def importing(self, tree: str, module: str) -> list[str]:
        self.asked.append(module)
        return self._trees.importing(tree, module)

    def changes(self, old: str, new: str) -> tuple[FileChange, ...]:
        self.asked.append(new)
        return self._trees.changes(old, new)


async def test_what_is_taken_from_the_base_is_found_once(repository: Bench) -> None:
    # A module that may stand for another one, and settings that may fail a run by themselves.
    change = repository.change({**BETTER, "yaml.py": "x = 1\n", "conftest.py": "# testsfailed\n"})
    trees = CountedTrees(repository.clone.trees)
    runs = HostRuns(
        cast("Trees", trees),
        repository.clone.base_commit,
        RunOptions(PYTEST),
        home=repository.home,
        environment=repository.environment,
        source=random.Random(7),  # noqa: S311  the same names in every test
    )
    found = await runs.verify(change)
    await runs.close()
    assert found.problem == ""
    assert "conftest.py" in found.restored
    assert trees.asked == ["yaml"]


HEAVY = {
    "read_report",
    "by_id",
    "run_result",
    "select_tests",
    "copy_tests",
    "choose_control",
    "judge",
    "_suspects",
}
"""What reads whole reports, runs or files."""


@pytest.mark.parametrize("module", ["bot/verification/runs.py", "bot/cycle/verify.py"])
def test_what_is_long_is_no_call_of_the_event_loop(module: str) -> None:
    tree = ast.parse((ROOT / "orchestrator" / module).read_text("utf-8"))
    found = [
        f"{function.name}: {ast.unparse(call.func)}"
        for function in ast.walk(tree)
        if isinstance(function, ast.AsyncFunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        and (
            (isinstance(call.func, ast.Name) and call.func.id in HEAVY)
            or ast.unparse(call.func).startswith(("self._trees.", "slot."))
        )
    ]
    assert found == []


def _run(*statuses: CaseStatus, exit: int = 0, problem: str = "") -> RunResult:  # noqa: A002
    cases = {f"t{number}": CaseResult(f"t{number}", status) for number, status in enumerate(statuses)}
    return RunResult(RunKind.BEFORE, "tree", cases, exit, 1.0, problem)


_OK, _NO, _ERROR, _OFF = CaseStatus.PASSED, CaseStatus.FAILED, CaseStatus.ERROR, CaseStatus.SKIPPED


@table(
    ("before", "after", "newly"),
    [
        (_run(_OK, _NO, _OFF, _OK), _run(_NO, _NO, _NO, _ERROR, exit=1), {"t0", "t3"}),
        (_run(_OK), _run(_OK), set()),
        (_run(_OK), _run(_OFF), set()),
        (_run(_OK), _run(_OK, _NO, exit=1), set()),  # a test that only the change has
        (_run(_OK, problem="it timed out"), _run(_NO, exit=1), set()),
        (_run(_OK), _run(_NO, exit=1, problem="it timed out"), set()),
        (_run(), _run(exit=1), {WHOLE_RUN}),
        (_run(), _run(), set()),
        (_run(exit=1), _run(exit=1), set()),
        (_run(exit=1), _run(), set()),
    ],
)
def test_what_fails_only_now(before: RunResult, after: RunResult, newly: set[str]) -> None:
    """A run that proves nothing tells of no test, on either side."""
    assert _newly_failing(before, after) == newly

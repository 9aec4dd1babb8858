"""Pull requests are verified: the program's own, people's, and those that lie."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.bot.verification.page import find_block
from orchestrator.bot.verification.reports import read_report
from tests.doubles.github import bare
from tests.doubles.github_page import github_page
from tests.plugins.verify_pr.bundles import bundle
from tests.scenarios.stage import (
    FINISH,
    FIX,
    PROPOSE,
    Done,
    Stage,
    add_commit,
    branches,
    do,
    git,
    make_repository,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.doubles.github.server import GitHub
    from tests.doubles.github.state import Pull

RUNNER = """\
import sys

sys.path[:0] = ["", "tests"]
import cases

lines, failed = [], 0
for name, test in list(vars(cases).items()):
    if name.startswith("test_"):
        said = ""
        try:
            test()
        except BaseException as error:
            failed += 1
            said = f'<failure type="{type(error).__name__}">{type(error).__name__}</failure>'
        lines.append(f'<testcase classname="cases" name="{name}" file="tests/cases.py">{said}</testcase>')
with open("report.xml", "w") as file:
    file.write(f"<testsuite>{''.join(lines)}</testsuite>")
sys.exit(failed > 0)
"""
"""Runs tests as quickly as it can be done, and tells of each."""
CALC = "def add(a, b):\n    return a - b\n\ndef double(a):\n    return 2 * a\n"
CASES = "from calc import *\n\ndef test_double():\n    assert double(3) == 6\n"
MORE = f"{CASES}\ndef test_add():\n    assert add(2, 2) == 4\n"
FILES = {"calc.py": CALC, "tests/run.py": RUNNER, "tests/cases.py": CASES}
slow = pytest.mark.slow(reason="a whole verification; the like of it is in the default tier")
COMMAND = ("--test-command", "python3 tests/run.py", "--test-report", "report.xml")
NOTHING_RUN = ("--test-minutes", "5")
ADD_TEST = ("write_file", {"path": "tests/cases.py", "content": MORE})


@dataclass(slots=True)
class Bench:
    """A local repository with a pull request of the program's in it."""

    stage: Stage
    repository: Path

    def propose(self, *calls: Any, task: str = "Fix add()") -> dict[str, Any]:
        """A cycle that proposes, whatever the tests say; the pull request."""
        again = do(PROPOSE, FINISH)
        self.stage.script(do(*(calls or (FIX, ADD_TEST)), PROPOSE, FINISH), again, again)
        done = self.stage.run(
            "--repo", str(self.repository), "--task", task, "--max-rounds", "3", "--propose-failing", *COMMAND
        )
        assert done.result["outcome"] == "proposed", done.err
        return dict(done.result["pull_request"])

    def verify(self, subject: str = "1", *flags: str, repo: bool = True) -> Done:
        named = ("--repo", str(self.repository)) if repo else ()
        return self.stage.command("verify-pr", subject, *named, *(flags or COMMAND))

    def verified(self, subject: str = "1", *flags: str) -> dict[str, Any]:
        done = self.verify(subject, *(flags or COMMAND), "--json")
        assert done.out, done.err
        found = dict(done.result)
        assert done.code == {"holds": 0, "refuted": 6, "unknown": 1}[found["outcome"]]
        return found

    @property
    def record(self) -> Path:
        (found,) = self.stage.home.rglob("pulls/1.json")
        return found

    def rewrite(self, change: Callable[[str], str]) -> None:
        """Somebody edits the pull request's text."""
        pull = json.loads(self.record.read_text())
        body = change(pull["body"])
        assert body != pull["body"]
        self.record.write_text(json.dumps({**pull, "body": body}))

    def edit(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Somebody edits the report block."""

        def edited(body: str) -> str:
            before, _, rest = body.partition("```json\n")
            block, _, after = rest.partition("\n```")
            statement = json.loads(block)
            change(statement)
            return f"{before}```json\n{json.dumps(statement, indent=1)}\n```{after}"

        self.rewrite(edited)


def lines(found: Mapping[str, Any], standing: str) -> list[str]:
    return [f"{line['level']}: {line['subject']}" for line in found["lines"] if line["standing"] == standing]


@pytest.fixture
def bench(stage: Stage, tmp_path: Path) -> Bench:
    return Bench(stage, make_repository(tmp_path / "calc", FILES))


@pytest.fixture
def proposed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Bench:
    """A bench with the pull request of the usual cycle: made once in a process, and put back for each test."""
    place = tmp_path_factory.getbasetemp() / "proposed"
    kept = place.with_name("proposed, kept")
    home = place / "home"
    monkeypatch.setenv("PULLWRIGHT_HOME", str(home))
    shutil.rmtree(place, ignore_errors=True)
    if kept.exists():
        shutil.copytree(kept, place, symlinks=True)
        return Bench(Stage(stage.capsys, home, stage.model), place / "calc")
    home.mkdir(parents=True)
    made = Bench(Stage(stage.capsys, home, stage.model), make_repository(place / "calc", FILES))
    made.propose()
    shutil.copytree(place, kept, symlinks=True)
    return made


def branch(
    repository: Path, files: Mapping[str, str | bytes], name: str = "feature", start: str = "main"
) -> str:
    """Somebody's branch with a commit on it."""
    git(repository, "checkout", "--quiet", "-b", name, start)
    add_commit(repository, files, "A change")
    git(repository, "checkout", "--quiet", "main")
    return git(repository, "rev-parse", name)


FIXED = CALC.replace("a - b", "a + b")
BREAKS = CALC.replace("2 * a", "3 * a")


def test_what_the_program_proposes_holds_and_show_tells_it(bench: Bench) -> None:
    url = bench.propose()["url"]
    done = bench.verify()
    assert done.code == 0, done.err
    for words in (
        "#1 Make add() add (open)",
        "✓ report: complete, format 3",
        "✓ after: counts: 2 passed, 0 failed, 0 skipped, exit code 0",
        "✓ result: PASSED",
        "after: this change                                         2      0       0    0",
        "\nAll claims of the report hold, and the tests pass.\n",
    ):
        assert words in done.out
    assert "✗" not in done.out
    shown = bench.stage.command("show", "last").out
    assert "✓ rerun: result: PASSED" in shown
    assert "holds: #1 Make add() add" in shown
    listed = bench.stage.command("show", "--list").out
    assert "holds, $0.00" in listed
    assert "#1 Make add() add" in listed
    assert bench.verify(url, repo=False).code == 0


def test_what_was_found_is_written_in_the_forms_of_other_programs(proposed: Bench, tmp_path: Path) -> None:
    ctrf, statement = tmp_path / "ctrf.json", tmp_path / "statement.json"
    files = ("--ctrf", str(ctrf), "--statement", str(statement))
    assert proposed.verify("1", *COMMAND, *files).code == 0
    (first, second) = read_report(ctrf.read_bytes())
    assert (first.id, second.id) == ("cases.py::test_double", "cases.py::test_add")
    report = json.loads(ctrf.read_text())
    assert report["results"]["tests"][1]["labels"] == {"new": "failed"}
    said = json.loads(statement.read_text())
    head = report["results"]["environment"]["commit"]
    (subject,) = said["subject"]
    shown = subprocess.run(
        ["git", "cat-file", "commit", head], cwd=proposed.repository, capture_output=True, check=True
    ).stdout
    assert subject["digest"]["gitCommit"] == head
    assert subject["digest"]["sha256"] == hashlib.sha256(shown).hexdigest()
    assert said["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    assert said["predicate"]["result"] == "PASSED"
    # The block in the pull request is the same statement, apart from what differs from run to run.
    block = find_block(json.loads(proposed.record.read_text())["body"]).statement
    assert block is not None
    assert said["predicate"]["newTests"] == block["predicate"]["newTests"]
    ctrf.unlink()
    done = proposed.verify("1", *NOTHING_RUN, *files[:2])
    assert (done.code, ctrf.exists()) == (1, False)
    assert f"--ctrf {ctrf} was not written, because no test was run" in " ".join(done.err.split())


LIES: dict[str, tuple[Callable[[dict[str, Any]], None], str, str]] = {
    "passed": (
        lambda said: said["predicate"]["runs"]["after"].update(passed=9),
        "rerun: after: counts",
        "claimed 9 passed, 0 failed, 0 skipped, exit code 0, found 2 passed, 0 failed, 0 skipped, exit code 0",
    ),
    "new tests": (
        lambda said: said["predicate"]["newTests"].update(failWithoutChange=3),
        "rerun: new tests that fail without the change, by their own assertion",
        "claimed 3, found 1",
    ),
    "files": (
        lambda said: said["subject"][0]["digest"].update(gitTree="0" * 40),
        "digests: files of the head",
        "claimed 000000000000…, found ",
    ),
    "head": (
        lambda said: said["subject"][0]["digest"].update(gitCommit="0" * 40),
        "fresh: head",
        "claimed 000000000000…, found ",
    ),
}


@pytest.mark.parametrize(
    "names",
    # A report on another commit is compared no further.
    [("passed", "new tests", "files"), pytest.param(("head",), marks=slow)],
    ids=", ".join,
)
def test_a_report_that_lies_is_refuted_with_both_values(proposed: Bench, names: tuple[str, ...]) -> None:
    for name in names:
        proposed.edit(LIES[name][0])
    done, found = proposed.verify(), proposed.verified()
    assert done.code == 6
    assert done.out.rstrip().endswith("A claim of the report does not hold.")
    for name in names:
        _, subject, words = LIES[name]
        assert words in " ".join(done.out.split())
        assert subject in lines(found, "refuted")


def cases(text: str) -> Any:
    return ("write_file", {"path": "tests/cases.py", "content": text})


def code(text: str) -> Any:
    return ("write_file", {"path": "calc.py", "content": text})


NAMED = CASES + "\ndef test_add_of_two():\n    assert add(2, 2) == 4\n"
LOOSE = CASES.replace("double(3) == 6", "double(0) == 0")
OWN = {
    "fixed": (FILES, (FIX,), "Fix add()", "PASSED", "holds"),
    "fixed with a test": (FILES, (FIX, ADD_TEST), "Fix add()", "PASSED", "holds"),
    "changed on purpose": (
        FILES,
        (code(BREAKS), cases(CASES.replace("6", "9"))),
        "Triple it",
        "PASSED",
        "holds",
    ),
    "breaks a test": (FILES, (code(BREAKS),), "Break it", "FAILED", "refuted"),
    "leaves a test of the task failing": (
        {**FILES, "tests/cases.py": NAMED},
        (code(f"{CALC}\n# later\n"),),
        "Let test_add_of_two pass",
        "FAILED",
        "refuted",
    ),
    "loosens a test": (FILES, (code(BREAKS), cases(LOOSE)), "Triple it", "WARNED", "unknown"),
    "base without tests": (
        {**FILES, "tests/cases.py": "ZERO = 0\n"},
        (FIX,),
        "Fix add()",
        "WARNED",
        "unknown",
    ),
}
"""What the program proposes: files, calls, the task, what its report says, and what a verification comes to."""


@slow
@pytest.mark.parametrize("name", OWN)
def test_no_claim_of_the_programs_own_is_refuted(stage: Stage, tmp_path: Path, name: str) -> None:
    files, calls, task, result, outcome = OWN[name]
    bench = Bench(stage, make_repository(tmp_path / "calc", files))
    bench.propose(*calls, task=task)
    body = json.loads(bench.record.read_text())["body"]
    statement = find_block(body).statement
    assert statement
    assert statement["predicate"]["result"] == result
    found = bench.verified()
    assert found["outcome"] == outcome
    assert [line for line in lines(found, "refuted") if not line.startswith("tests: ")] == []
    assert [line for line in lines(found, "unknown") if not line.startswith("tests: ")] == []


def test_the_command_that_a_report_names_is_never_run(proposed: Bench, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    proposed.edit(
        lambda said: said["predicate"]["configuration"][1]["annotations"].update(test=f"touch {ran}")
    )
    found = proposed.verified()
    assert not ran.exists()
    assert "rerun: test command" in lines(found, "refuted")
    assert found["tests"]["after"]["passed"] == 2


def test_where_the_set_up_fails_nothing_passes_and_its_output_is_kept(proposed: Bench) -> None:
    fails = "echo Collecting; echo 'ERROR: No matching distribution found for nosuch'; echo bye; exit 3"
    done = proposed.verify("1", *COMMAND, "--setup-command", fails)
    assert done.code == 1
    said = f"{done.out}{done.err}"
    assert "the tests pass" not in said
    assert "ended with exit code 3: ERROR: No matching distribution found for nosuch" in " ".join(
        said.split()
    )
    assert "It could not be decided: the tests prove nothing." in done.out
    (kept,) = proposed.stage.home.rglob("setup-output.txt")
    assert str(kept) in "".join(said.split())
    assert kept.read_text().splitlines()[0] == "Collecting"


def test_without_a_command_nothing_is_run_and_the_rest_is_still_told(proposed: Bench) -> None:
    found = proposed.verified("1", *NOTHING_RUN)
    assert lines(found, "unknown") == ["rerun: runs"]
    assert found["tests"] is None
    assert "digests: files of the head" in lines(found, "holds")


@pytest.mark.parametrize(
    ("wrap", "words"),
    [
        (lambda block: f"{block}\n\n{block}", "there are 2 JSON blocks"),
        pytest.param(lambda block: f"<!--\n{block}\n-->", "the block is hidden", marks=slow),
        pytest.param(lambda block: f"````text\n{block}\n````", "the block is hidden", marks=slow),
        pytest.param(lambda block: f"***\n\n{block}", "not at the top", marks=slow),
        pytest.param(lambda block: block.replace('"PASSED"', "PASSED"), "the block is damaged", marks=slow),
        pytest.param(
            lambda block: block.replace('"result": ', '"result": "FAILED", "result": '), "damaged", marks=slow
        ),
    ],
    ids=["two", "comment", "code", "below", "damaged", "twice"],
)
def test_only_one_block_that_people_see_is_a_report(
    proposed: Bench, wrap: Callable[[str], str], words: str
) -> None:

    def wrapped(body: str) -> str:
        start = body.index("```json")
        end = body.index("\n```", start) + 4
        return f"{body[:start]}{wrap(body[start:end])}{body[end:]}"

    proposed.rewrite(wrapped)
    found = proposed.verified("1", *NOTHING_RUN)
    assert found["outcome"] == "refuted"
    (line,) = (line for line in found["lines"] if line["standing"] == "refuted")
    assert (line["level"], words in line["found"]) == ("block", True)


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({"calc.py": FIXED, "tests/cases.py": MORE}, "holds"),
        pytest.param({"calc.py": BREAKS}, "refuted", marks=slow),
        pytest.param({"calc.py": BREAKS, "tests/cases.py": CASES.replace("6", "9")}, "holds", marks=slow),
        pytest.param({"calc.py": FIXED, "tests/cases.py": "raise SystemExit(0)\n"}, "refuted", marks=slow),
    ],
    ids=["good", "breaks", "changed on purpose", "no tests"],
)
def test_a_branch_of_a_persons_gets_the_report_of_its_runs(
    bench: Bench, change: dict[str, str], outcome: str
) -> None:
    head = branch(bench.repository, change)
    found = bench.verified("feature")
    assert found["outcome"] == outcome
    assert found["pull_request"]["head"] == head
    assert "block: report" in lines(found, "noted")
    assert set(found["tests"]) == {"proof", "before", "kept", "after", "new"}


@slow
def test_a_bundle_with_its_text_is_verified_like_a_pull_request(proposed: Bench, tmp_path: Path) -> None:
    (name,) = branches(proposed.repository)
    body = tmp_path / "body.md"
    body.write_text(json.loads(proposed.record.read_text())["body"])
    bundle = tmp_path / "work.bundle"
    git(proposed.repository, "bundle", "create", "--quiet", str(bundle), f"main..{name}")
    git(proposed.repository, "branch", "--quiet", "-D", name)
    found = proposed.verified(str(bundle), *COMMAND, "--body", str(body))
    assert (found["outcome"], found["pull_request"]["name"]) == ("holds", "work.bundle")
    assert "rerun: result" in lines(found, "holds")


def outside(command: str) -> tuple[str, ...]:
    """A test command of the person's own that does something to the repository while the tests run."""
    return (
        "--test-command",
        f"python3 -B tests/run.py; {command}",  # both versions have one size, and perhaps one second
        "--test-report",
        "report.xml",
        "--sandbox",
        "off",
    )


def test_a_pull_request_that_changes_meanwhile_is_no_success(bench: Bench) -> None:
    head = branch(bench.repository, {"calc.py": FIXED, "tests/cases.py": MORE})
    push = f"git -C {bench.repository} update-ref refs/heads/feature main"
    found = bench.verified("feature", *outside(push))
    assert (found["outcome"], found["stale"], found["pull_request"]["head"]) == ("unknown", True, head)
    (line,) = (line for line in found["lines"] if line["subject"] == "at the end")
    assert "its head changed meanwhile" in line["note"]


@slow
def test_a_text_that_changes_meanwhile_is_no_success(proposed: Bench) -> None:
    edit = f"sed -i s/subtracted/added/ {proposed.record}"
    found = proposed.verified("1", *outside(edit))
    (line,) = (line for line in found["lines"] if line["subject"] == "at the end")
    assert "its text changed meanwhile" in line["note"]
    assert found["stale"]


@slow
def test_what_was_merged_is_compared_with_where_it_began(proposed: Bench) -> None:
    (name,) = branches(proposed.repository)
    add_commit(proposed.repository, {"README.md": "# Calc\n"}, "Meanwhile")
    git(proposed.repository, "merge", "--quiet", "--no-ff", "--no-edit", name)
    found = proposed.verified()
    assert (found["outcome"], found["pull_request"]["state"]) == ("holds", "merged")


@slow
def test_a_person_who_commits_on_top_makes_the_report_stale(proposed: Bench) -> None:
    (name,) = branches(proposed.repository)
    git(proposed.repository, "checkout", "--quiet", name)
    add_commit(proposed.repository, {"README.md": "# Calc\n"}, "On top")
    git(proposed.repository, "checkout", "--quiet", "main")
    found = proposed.verified()
    assert lines(found, "refuted") == [
        "fresh: head",
        "digests: files of the head",
        "digests: files of the run after",
    ]
    assert found["tests"]["after"]["passed"] == 2


@slow
def test_minutes_that_are_over_are_told(bench: Bench) -> None:
    branch(bench.repository, {"calc.py": FIXED})
    found = bench.verified("feature", "--test-command", "sleep 600", "--max-minutes", "0.02")
    assert lines(found, "unknown") == ["rerun: runs"]
    assert "raise --max-minutes" in json.dumps(found)


@slow
def test_a_hostile_commit_runs_nothing_outside_and_what_is_left_out_is_told(
    bench: Bench, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    repository = bench.repository
    git(repository, "checkout", "--quiet", "-b", "feature")
    (repository / "calc.py").write_text(FIXED)
    (repository / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n*.bin filter=lfs\n")
    (repository / ".gitmodules").write_text(
        f'[submodule "x"]\n\tpath = x\n\turl = ext::touch {ran}\n\tupdate = !touch {ran}\n'
    )
    (repository / "big.bin").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    (repository / "link").symlink_to(tmp_path)
    (repository / "hooks").mkdir()
    (repository / "hooks/post-checkout").write_text(f"#!/bin/sh\ntouch {ran}\n")
    git(repository, "add", "--all")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},x")
    git(repository, "commit", "--quiet", "--message", "A change")
    git(repository, "checkout", "--quiet", "--force", "main")
    found = bench.verified("feature")
    assert found["outcome"] == "holds"
    assert not ran.exists()
    told = [line["found"] for line in found["lines"] if line["level"] == "tests"]
    assert "it changes 1 submodule: in the runs a submodule is an empty folder" in told
    assert "it changes 1 file of Git LFS: the runs have the pointer in its place" in told


class OnGitHub:
    """`octo/calc` on the double of GitHub, under the token of a workflow."""

    def __init__(self, github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.github, self.stage, self._patch = github, stage, monkeypatch
        self.repo = github.add_repository("octo/calc", FILES)
        self.may("contents", "pull_requests", writes=("checks",))

    def may(self, *reads: str, writes: tuple[str, ...] = ()) -> None:
        """The token of the workflow may do this from now on."""
        may = {**dict.fromkeys(reads, "read"), **dict.fromkeys(writes, "write")}
        app = self.github.app(["octo/calc"], permissions=may)
        self._patch.setenv("GITHUB_TOKEN", self.github.installation_token(app, ["octo/calc"])[0])

    def pull(self, files: Mapping[str, str | bytes | None], fork: str | None = None) -> Pull:
        """A pull request of ada's; of a fork, GitHub alone keeps its head."""
        head = self.github.commit(self.repo, files, branch="feature")
        pull = self.github.add_pull(self.repo, "feature", title="Add well", fork=fork)
        pull.head_sha, pull.base_sha = head, self.repo.branches()["main"]
        if fork is not None:
            self.repo.refresh_pull_refs()
            bare.git(self.repo.path, "update-ref", "-d", "refs/heads/feature")
        return pull

    def verify(self, subject: str, *flags: str, repo: bool = True) -> Done:
        server = ("--github-url", self.github.web_url)
        named = ("--repo", "octo/calc") if repo else ()
        return self.stage.command("verify-pr", subject, *server, *named, *COMMAND, *flags)

    def verified(self, subject: str, *flags: str) -> dict[str, Any]:
        done = self.verify(subject, *flags, "--json", repo="://" not in subject)
        assert done.out, done.err
        return dict(done.result)


@pytest.fixture
def hosted(github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> OnGitHub:
    return OnGitHub(github, stage, monkeypatch)


GOOD = {"calc.py": FIXED, "tests/cases.py": MORE}


def test_a_check_run_is_written_once_for_each_head(hosted: OnGitHub) -> None:
    pull = hosted.pull(GOOD)
    found = hosted.verified(f"{hosted.github.web_url}/octo/calc/pull/{pull.number}", "--check")
    assert found["outcome"] == "holds"
    (run,) = hosted.repo.checks[pull.head_sha]
    assert (run.name, run.result, run.title) == (
        "Pullwright: claims and tests",
        "success",
        "There is no report. The tests pass.",
    )
    assert "| after: this change | 2 | 0 | 0 |" in run.summary
    assert found["check"]["url"].endswith(f"/runs/{run.id}")


@pytest.mark.parametrize(
    ("whose", "author", "words"),
    [
        ("all", "ada", "Evidence is required of all, and there is no report."),
        pytest.param(
            "bots", "dependabot[bot]", "Evidence is required of bots, and there is no report.", marks=slow
        ),
        pytest.param("bots", "ada", "There is no report. The tests pass.", marks=slow),
    ],
)
def test_a_pull_request_without_evidence_is_refused_where_the_default_branch_asks_for_it(
    hosted: OnGitHub, whose: str, author: str, words: str
) -> None:
    rule = f"require_evidence = '{whose}'\n"
    hosted.github.commit(hosted.repo, {"pullwright.toml": rule}, branch="main")
    # The pull request itself has no say in it.
    pull = hosted.pull({**GOOD, "pullwright.toml": "require_evidence = 'none'\n"})
    pull.author = author
    done = hosted.verify(str(pull.number), "--check")
    refused = "required" in words
    assert done.code == (6 if refused else 0), done.err
    assert words in done.out
    assert [run.result for run in hosted.repo.checks[pull.head_sha]] == ["failure" if refused else "success"]


def test_evidence_that_holds_is_enough_and_a_lie_is_not(proposed: Bench) -> None:
    required = (*COMMAND, "--require-evidence", "all")
    found = proposed.verified("1", *required)
    assert found["outcome"] == "holds"
    assert "block: evidence" in lines(found, "holds")
    assert "signed: signature" in lines(found, "noted")
    proposed.edit(LIES["passed"][0])
    done = proposed.verify("1", *required)
    assert (done.code, done.out.rstrip().splitlines()[-1]) == (
        6,
        "Evidence is required of all, and a claim of the report does not hold.",
    )


def test_evidence_that_could_not_be_checked_is_not_enough(proposed: Bench) -> None:
    found = proposed.verified("1", *NOTHING_RUN, "--require-evidence", "bots")
    assert found["outcome"] == "refuted"
    (line,) = [line for line in found["lines"] if line["standing"] == "refuted"]
    assert (line["claimed"], line["found"]) == ("required of bots", "not all of the report could be checked")


def test_who_signed_the_head_is_told(hosted: OnGitHub) -> None:
    pull = hosted.pull(GOOD)
    command = ["git", "cat-file", "commit", pull.head_sha]
    shown = subprocess.run(command, cwd=hosted.repo.path, capture_output=True, check=True).stdout
    digest = hashlib.sha256(shown).hexdigest()
    address = f"{hosted.github.web_url}/octo/calc"
    ours, theirs = (
        bundle(digest, repository=address),
        bundle(digest, repository=address, ref="refs/pull/1/merge"),
    )
    hosted.repo.attestations[f"sha256:{digest}"] = [ours, theirs]
    found = hosted.verified(str(pull.number), *NOTHING_RUN)
    one, other = [line for line in found["lines"] if line["level"] == "signed"]
    assert one["found"].endswith("/octo/calc/.github/workflows/verify.yml@refs/heads/main")
    assert "not by a workflow of the default branch" in other["note"]


def test_what_the_action_signs_is_the_report_of_its_pull_request(hosted: OnGitHub, stage: Stage) -> None:
    hosted.may("metadata", writes=("contents", "issues", "pull_requests"))
    stage.script(do(FIX, ADD_TEST, PROPOSE, FINISH))
    server = ("--github-url", hosted.github.web_url)
    done = stage.run("--repo", "octo/calc", *server, "--task", "Fix add()", *COMMAND)
    result = done.result
    assert result["outcome"] == "proposed", done.err
    statement, commit = result["statement"], result["commit"]
    command = ["git", "cat-file", "commit", commit]
    shown = subprocess.run(command, cwd=hosted.repo.path, capture_output=True, check=True).stdout
    (named,) = statement["subject"]
    digest = named["digest"].pop("sha256")
    assert (named["digest"]["gitCommit"], digest) == (commit, hashlib.sha256(shown).hexdigest())
    # What is signed is what the pull request says.
    assert find_block(result["pull_request"]["body"]).statement == statement

    bundles = [bundle(digest, repository=f"{hosted.github.web_url}/octo/calc", file="pullwright.yml")]
    hosted.repo.attestations[f"sha256:{digest}"] = bundles
    hosted.may("contents", "pull_requests", "attestations")
    found = hosted.verified(str(result["pull_request"]["number"]), *NOTHING_RUN)
    (line,) = [line for line in found["lines"] if line["level"] == "signed"]
    assert line["found"].endswith("/octo/calc/.github/workflows/pullwright.yml@refs/heads/main")


@slow
def test_a_check_run_is_brought_up_to_date_and_each_head_has_its_own(hosted: OnGitHub) -> None:
    pull = hosted.pull(GOOD)
    for _ in range(2):
        hosted.verify(str(pull.number), "--check")
    assert len(hosted.repo.checks[pull.head_sha]) == 1
    hosted.github.commit(hosted.repo, {"calc.py": BREAKS}, branch="feature")
    assert hosted.verify(str(pull.number), "--check").code == 6
    (run,) = hosted.repo.checks[hosted.repo.branches()["feature"]]
    assert (run.result, run.title) == ("failure", "The tests do not pass.")


@slow
def test_a_token_that_may_only_read_leaves_no_check_run_and_says_why(hosted: OnGitHub) -> None:
    pull = hosted.pull(GOOD)
    hosted.may("contents", "pull_requests", "checks")
    done = hosted.verify(str(pull.number), "--check")
    assert done.code == 0, done.err
    assert "no check run was written: " in done.out
    assert "checks: write" in done.out
    assert hosted.repo.checks == {}


@slow
def test_the_page_holds_both_values_and_no_markup_of_others(proposed: Bench, tmp_path: Path) -> None:
    proposed.edit(lambda said: said["predicate"].update(failedTests=["<script>alert(1)</script>"]))
    page = tmp_path / "page.html"
    assert proposed.verify("1", *COMMAND, "--html", str(page)).code == 6
    text = page.read_text()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<script" not in text
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text
    done = proposed.verify("1", *COMMAND, "--html", str(tmp_path / "none" / "page.html"))
    assert (done.code, "A claim of the report does not hold." in done.out) == (2, True)
    assert "page.html cannot be written" in done.err


EVIL = "test_`|<img src=x>@ada_#1_fixes"


@slow
def test_what_others_wrote_is_dead_text_in_a_check_run(hosted: OnGitHub) -> None:
    runner = RUNNER.replace('name="{name}"', f'name="{{name}}{EVIL.replace("<", "&lt;")}"')
    hosted.github.commit(hosted.repo, {"tests/run.py": runner}, branch="main")
    pull = hosted.pull({"calc.py": BREAKS})
    pull.title = "@ada fixes #1 <script>"
    hosted.verify(str(pull.number), "--check")
    (run,) = hosted.repo.checks[pull.head_sha]
    page = github_page(run.summary)
    assert "img" in page.code
    assert not {"img", "script", "a"} & page.tags
    assert (page.links, page.odd) == ([], [])
    assert "@ada" not in page.words


@slow
def test_a_pull_request_from_a_fork_needs_neither_its_branch_nor_the_fork(hosted: OnGitHub) -> None:
    pull = hosted.pull(GOOD, fork="mallory/calc")
    found = hosted.verified(str(pull.number))
    assert (found["outcome"], found["pull_request"]["head"]) == ("holds", pull.head_sha)


@slow
@pytest.mark.parametrize("end", ["merge", "close"])
def test_a_pull_request_that_is_over_is_compared_with_what_its_base_was(hosted: OnGitHub, end: str) -> None:
    pull = hosted.pull(GOOD)
    start = hosted.repo.branches()["main"]
    getattr(hosted.github, end)(hosted.repo, pull.number)
    hosted.github.commit(hosted.repo, {"later.txt": "x"}, branch="main")
    found = hosted.verified(str(pull.number))
    assert (found["outcome"], found["pull_request"]["base"]) == ("holds", start)
    assert found["pull_request"]["state"] == {"merge": "merged", "close": "closed"}[end]


@slow
def test_a_head_that_git_does_not_have_yet_is_no_success(hosted: OnGitHub) -> None:
    pull = hosted.pull(GOOD, fork="mallory/calc")
    pull.head_sha = "1" * 40  # forced, and the reference has not followed
    found = hosted.verified(str(pull.number))
    assert found["outcome"] == "unknown"
    assert "it is being pushed to; run again" in json.dumps(found)


@slow
def test_auto_takes_the_default_branch_and_nothing_of_the_pull_request(
    hosted: OnGitHub, tmp_path: Path
) -> None:
    own = 'test_command = "python3 tests/run.py"\ntest_report = "report.xml"\n'
    hosted.github.commit(hosted.repo, {"pullwright.toml": own}, branch="main")
    evil = f'test_command = "touch {tmp_path}/ran"\n'
    hosted.github.commit(hosted.repo, {"pullwright.toml": evil}, branch="old")
    pull = hosted.pull({**GOOD, "pullwright.toml": evil})
    pull.base, pull.base_sha = "old", hosted.repo.branches()["old"]
    done = hosted.stage.command(
        "verify-pr",
        str(pull.number),
        "--github-url",
        hosted.github.web_url,
        "--repo",
        "octo/calc",
        *("--test-command", "auto", "--json"),
    )
    assert done.result["tests"]["after"]["passed"] == 2, done.err
    assert "run by python3 tests/run.py (from pullwright.toml on the default branch)" in done.err


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (("7",), "no pull request #7", 1),
        (("none",), "has no branch none", 2),
        (
            ("a..b",),
            "'a..b' is not a pull request's number or address, nor a file, nor the name of a branch",
            2,
        ),
        (("https://github.com/octo/calc/issues/3",), "is not the address of a pull request", 2),
        (("1", "--body", "x"), "--body x cannot be read", 2),
    ],
    ids=["number", "branch", "nothing", "address", "body"],
)
def test_what_cannot_be_verified_gets_one_line(
    bench: Bench, arguments: tuple[str, ...], words: str, code: int
) -> None:
    done = bench.verify(*arguments, repo="://" not in arguments[0])
    assert (done.code, done.out) == (code, "")
    assert words in done.err.splitlines()[-1]


def test_the_repository_has_to_be_named_once(bench: Bench) -> None:
    assert "--repo" in bench.verify("1", repo=False).err
    done = bench.verify("https://github.com/octo/calc/pull/3")
    assert "leave out --repo" in done.err
    assert done.code == 2

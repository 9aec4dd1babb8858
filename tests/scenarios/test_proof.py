"""One value says what the tests proved, and every surface prints it: one walk over all of them for each value."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.bot.verification.page import find_block
from orchestrator.core.cycle_events import Proof
from tests.scenarios.stage import CALC, FINISH, FIX, PROPOSE, branches, do, make_repository

if TYPE_CHECKING:
    from pathlib import Path

    from tests.scenarios.stage import Stage

XML = 'open("r.xml", "w").write("<testsuite>" + "".join(cases) + "</testsuite>")'
ONE = """cases = ['<testcase name="test_one"/>']
"""
FAILING = (
    """'<testcase name="test_two"><failure type="AssertionError" message="no">no</failure></testcase>'"""
)
SETTINGS = ("write_file", {"path": "conftest.py", "content": "WANTED = 3\n"})
BREAKING = f"""{ONE}from calc import add
bad = add(1, 2) == 3
cases.append({FAILING}) if bad else None
{XML}
raise SystemExit(int(bad))
"""
SKIPPING = f"""{ONE}from calc import add
from conftest import WANTED
skips = WANTED != -1
bad = not skips and add(1, 2) != -1
cases.append('<testcase name="test_two"><skipped/></testcase>' if skips else {FAILING} if bad else
             '<testcase name="test_two"/>')
{XML}
raise SystemExit(int(bad))
"""
# What `t.py` does, which is the test command; and what the change does beside mending `calc.py`.
WORLDS: dict[Proof, tuple[str, tuple[Any, ...]]] = {
    Proof.PASSED: ('print("Ran 2 tests in 0.1s")\n', ()),
    Proof.ONLY_EXIT_CODE: ('print("looks good")\n', ()),
    Proof.UNKNOWN: ("raise SystemExit(1)\n", ()),
    Proof.AS_BEFORE: (f"{ONE}cases.append({FAILING})\n{XML}\nraise SystemExit(1)\n", ()),
    Proof.FAILED: (BREAKING, ()),
    Proof.WARNED: (SKIPPING, (SETTINGS,)),
}
STATUS = {Proof.PASSED: 0, Proof.AS_BEFORE: 0, Proof.FAILED: 6}
"""The exit status of `verify-pr`; of every other value it is 1."""
RESULTS = {Proof.PASSED: "PASSED", Proof.AS_BEFORE: "PASSED", Proof.FAILED: "FAILED"}
"""The result of the block, which has three values; of every other value it is `WARNED`."""
REQUIRED = {Proof.PASSED, Proof.AS_BEFORE}
"""The values with which --require-tests proposes."""


def arguments(repository: Path) -> list[str]:
    command = f"{shlex.quote(sys.executable)} -S t.py"
    report = ["--test-report", "r.xml"] if "r.xml" in (repository / "t.py").read_text() else []
    return ["--test-command", command, *report, "--sandbox", "off"]


def made(tmp_path: Path, proof: Proof, name: str = "calc") -> Path:
    files = {"calc.py": CALC, "conftest.py": "WANTED = -1\n", "t.py": WORLDS[proof][0]}
    return make_repository(tmp_path / name, files)


def script(stage: Stage, proof: Proof) -> None:
    again = do(PROPOSE, FINISH)
    stage.script(do(FIX, *WORLDS[proof][1], PROPOSE, FINISH), again, again)


@pytest.mark.parametrize("proof", list(Proof))
def test_every_surface_prints_the_value(stage: Stage, tmp_path: Path, proof: Proof) -> None:
    repository = made(tmp_path, proof)
    where = ["--repo", str(repository)]
    script(stage, proof)
    flags = ["--task", "Fix add()", "--max-rounds", "3", "--propose-failing", *arguments(repository)]
    done = stage.run(*where, *flags, json_output=False)
    assert done.code == 0, done.err
    sentence = proof.sentence
    seen = {"terminal, the events": done.err, "terminal, the result": done.out}
    recorded = stage.events()[-1]["result"]
    assert recorded["tests"]["proof"] == proof.value
    body = recorded["pull_request"]["body"]
    seen["Markdown of the pull request"] = body.lower()
    statement = find_block(body).statement or {}
    assert statement["predicate"]["proof"] == proof.value
    assert statement["predicate"]["result"] == RESULTS.get(proof, "WARNED")
    seen["pulls"] = stage.command("pulls", *where).out
    (listed,) = [json.loads(line) for line in stage.command("pulls", *where, "--json").out.splitlines()]
    assert listed["proof"] == proof.value
    seen["show"] = stage.command("show", "last").out
    seen["page"] = stage.command("show", "last", "--html", "-").out.lower()
    seen["digest"] = stage.command("digest", *where).out
    verify = ["verify-pr", "1", *where, *arguments(repository)]
    checked = stage.command(*verify)
    seen["verify-pr"] = checked.out.lower()
    assert checked.code == STATUS.get(proof, 1)
    found = json.loads(stage.command(*verify, "--json").out)
    assert found["tests"]["proof"] == proof.value
    assert not [line for line in found["lines"] if line["standing"] == "refuted" and line["level"] != "tests"]
    assert not [surface for surface, text in seen.items() if sentence not in text]
    others = {one.sentence for one in Proof} - {sentence}
    wrong = {surface: other for surface, text in seen.items() for other in others if other in text}
    assert not wrong, wrong


@pytest.mark.parametrize("proof", list(Proof))
def test_what_is_proposed_where_tests_are_required(stage: Stage, tmp_path: Path, proof: Proof) -> None:
    repository = made(tmp_path, proof)
    script(stage, proof)
    done = stage.run(
        *("--repo", str(repository), "--task", "Fix add()", "--max-rounds", "3", "--require-tests"),
        *arguments(repository),
    )
    assert bool(branches(repository)) is (proof in REQUIRED), done.result
    if proof not in REQUIRED:
        assert done.result["outcome"] in {"tests_fail", "failed", "limit"}
    if proof is Proof.ONLY_EXIT_CODE:
        assert "nothing shows that a test ran" in done.result["error"]
        assert stage.model.requests == []


def test_without_a_wish_what_fails_is_kept_with_its_own_exit_status(stage: Stage, tmp_path: Path) -> None:
    repository = made(tmp_path, Proof.FAILED)
    script(stage, Proof.FAILED)
    flags = ["--repo", str(repository), "--task", "Fix add()", "--max-rounds", "3", *arguments(repository)]
    done = stage.run(*flags, json_output=False)
    assert done.code == 6
    assert not branches(repository)
    for text in (done.out, stage.command("digest", "--repo", str(repository)).out):
        assert "--propose-failing" in text
        assert "pullwright retry text-" in text
    page = stage.command("show", "last", "--html", "-").out
    assert "tests fail" in page
    assert "--propose-failing" in page

"""What a workflow and an action may look like."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.bot.cycle.tasks import OUR_COMMENT
from tests.tables import table

ROOT = Path(__file__).parents[2]
ACTION = ROOT / ".github" / "actions" / "pullwright"
ACTIONS = sorted((ROOT / ".github" / "actions").glob("*/action.yml"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FILES = [*WORKFLOWS, *ACTIONS]
# Who runs on whose account: a step of one of these is looked at below.
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}|\$/[\w./-]+")
_VALUE = r"(?:(?:inputs|steps|needs|vars|secrets|matrix|github)\.[\w.\[\]-]+|'\w+')"
HARMLESS = re.compile(rf"\$\{{\{{ (?:fromJSON\({_VALUE}\)|{_VALUE}(?: \|\| {_VALUE})*) \}}\}}")


def loaded(path: Path) -> dict[Any, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def steps(path: Path) -> list[dict[str, Any]]:
    content = loaded(path)
    if "runs" in content:
        return list(content["runs"]["steps"])
    return [step for job in content["jobs"].values() for step in job["steps"]]


@table("path", FILES, ids=lambda path: path.name)
def test_every_action_is_pinned_by_its_commit(path: Path) -> None:
    used = [step["uses"] for step in steps(path) if "uses" in step]
    assert used
    assert [name for name in used if not PINNED.fullmatch(name)] == []


@table("path", FILES, ids=lambda path: path.name)
def test_no_script_holds_an_expression(path: Path) -> None:
    scripts = [step["run"] for step in steps(path) if "run" in step]
    assert scripts
    assert [script for script in scripts if "${{" in script] == []


@table("path", FILES, ids=lambda path: path.name)
def test_expressions_only_name_a_value(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    code = [line for line in lines if not line.lstrip().startswith("#")]
    found = [match[0] for line in code for match in re.finditer(r"\$\{\{.*?\}\}", line)]
    assert [one for one in found if not HARMLESS.fullmatch(one)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_grants_nothing_at_the_top_and_each_job_what_it_says(path: Path) -> None:
    content = loaded(path)
    assert content["permissions"] == {}
    for job in content["jobs"].values():
        assert "permissions" in job
        assert job["timeout-minutes"] <= 60


def test_the_workflow_starts_on_events_once_a_task_and_is_not_cut_off_and_off_in_forks() -> None:
    content = loaded(ROOT / ".github" / "workflows" / "pullwright.yml")
    triggers = content[True]  # YAML 1.1 reads `on` as a boolean
    assert set(triggers) == {
        *("schedule", "workflow_dispatch", "issues", "issue_comment", "pull_request_review"),
        *("check_suite", "workflow_run"),
    }
    assert triggers["issues"] == {"types": ["labeled"]}
    job = content["jobs"]["work"]
    # Of the job, not of the workflow: a run whose job is skipped takes no place from one that waits.
    assert "concurrency" not in content
    assert job["concurrency"]["cancel-in-progress"] is False
    assert "vars.PULLWRIGHT_MODEL != '' && (" in job["if"]
    # The program's own comments, which an App's token makes events of, start no machine.
    assert "contains(github.event.comment.body, '<!-- pullwright:')" in job["if"]
    assert OUR_COMMENT.fullmatch("<!-- pullwright: -->")
    (given,) = (step["with"] for step in job["steps"] if "with" in step)
    # A person names an issue, an event does not: the program decides whether it is a task.
    assert given["issue"] == "${{ inputs.issue }}"
    assert "github.event.issue.number" in given["thread"]
    assert "inputs" not in given["thread"]
    assert given["thread"].removeprefix("${{ ").removesuffix(" }}") in job["concurrency"]["group"]
    assert job["permissions"] == {
        "contents": "write",
        "pull-requests": "write",
        "issues": "write",
        "checks": "read",
        "statuses": "read",
    }
    (minute,) = (entry["cron"].split()[0] for entry in triggers["schedule"])
    assert int(minute) % 5 != 0


def test_the_job_ends_its_work_before_its_time_is_over() -> None:
    job = loaded(ROOT / ".github" / "workflows" / "pullwright.yml")["jobs"]["work"]
    (args,) = (step["with"]["args"] for step in job["steps"] if "args" in step.get("with", {}))
    minutes = re.search(r"--max-minutes=(\d+)", args)
    assert minutes
    assert int(minutes[1]) <= job["timeout-minutes"] - 10


def test_the_job_of_the_model_has_no_identity_and_what_signs_its_results_runs_no_code() -> None:
    jobs = loaded(ROOT / ".github" / "workflows" / "pullwright.yml")["jobs"]
    assert set(jobs) == {"work", "attest"}
    assert "id-token" not in jobs["work"]["permissions"]
    assert jobs["attest"]["permissions"] == {"id-token": "write", "attestations": "write"}
    (signs,) = jobs["attest"]["steps"]
    assert signs["uses"].startswith("actions/attest@")
    assert "run" not in signs
    # What is signed is the first job's output alone, and nothing of the event.
    given = {**signs["with"], **jobs["attest"]["strategy"]["matrix"]}
    values = [text for text in given.values() if "${{" in text]
    assert sorted(values) == [
        "${{ fromJSON(needs.work.outputs.statements) }}",
        "${{ matrix.digest }}",
        "${{ matrix.predicate }}",
    ]


def test_the_code_of_a_pull_request_runs_without_rights_and_what_signs_runs_no_code() -> None:
    path = ROOT / ".github" / "workflows" / "verify.yml"
    # Of the default branch: a pull request cannot change what verifies it.
    assert set(loaded(path)[True]) == {"pull_request_target"}
    assert "secrets." not in path.read_text(encoding="utf-8")
    jobs = loaded(path)["jobs"]
    assert set(jobs["verify"]["permissions"].values()) == {"read"}
    assert not [step for step in steps(path) if "checkout" in step.get("uses", "")]
    assert jobs["sign"]["permissions"] == {"id-token": "write", "attestations": "write"}
    (signs,) = jobs["sign"]["steps"]
    assert signs["uses"].startswith("actions/attest@")
    assert "run" not in signs


def test_the_workflows_pass_inputs_that_the_actions_have() -> None:
    known = {path.parent.name: set(loaded(path)["inputs"]) for path in ACTIONS}
    used = [step for path in WORKFLOWS for step in steps(path) if "/.github/actions/" in step.get("uses", "")]
    assert {step["uses"].rpartition("/")[2] for step in used} == set(known)
    for step in used:
        assert set(step["with"]) <= known[step["uses"].rpartition("/")[2]]


@table("path", ACTIONS, ids=lambda path: path.parent.name)
def test_every_input_is_used_and_every_used_one_exists(path: Path) -> None:
    used = set(re.findall(r"inputs\.([\w-]+)", path.read_text(encoding="utf-8")))
    assert used == set(loaded(path)["inputs"])


@pytest.mark.parametrize(
    "words",
    [
        ["actionlint", "-no-color", *(str(path) for path in WORKFLOWS)],
        ["zizmor", "--offline", "--quiet", str(ROOT / ".github")],
        [
            "check-jsonschema",
            "--builtin-schema",
            "vendor.github-workflows",
            *(str(path) for path in WORKFLOWS),
        ],
        ["check-jsonschema", "--builtin-schema", "vendor.github-actions", *map(str, ACTIONS)],
        ["shellcheck", *(str(path) for path in sorted(ACTION.parent.glob("*/*.sh")))],
    ],
    ids=lambda words: f"{words[0]}-{len(words)}",
)
def test_the_linters_find_nothing(words: list[str]) -> None:
    program = Path(sys.executable).with_name(words[0])
    if not program.exists():
        pytest.skip(f"{words[0]} is not installed")
    done = subprocess.run([program, *words[1:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

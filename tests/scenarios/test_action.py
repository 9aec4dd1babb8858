"""The composite action, its steps run as a shell runs them, against GitHub and a model on loopback.

Only installing is replaced: the steps get this interpreter, which has what the lock file names.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.doubles.actions_runner import SHELL, ActionsRunner, obeyed
from tests.scenarios.stage import FILES, FINISH, FIX, FIX_IT, PROPOSE, Stage, do

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.doubles.github.server import GitHub
    from tests.doubles.github.state import Repo

slow = pytest.mark.slow(reason="a whole job of the action, several starts of the program")

ROOT = Path(__file__).parents[2]
ACTION = ROOT / ".github" / "actions" / "pullwright"
VERIFY = ROOT / ".github" / "actions" / "verify"
NAME = "octo/calc"
ARTIFACT = "https://github.test/octo/calc/actions/runs/7/artifacts/1"
KEY = "sk-test-4f9a1c77d0e24b5f8a6e3d2c1b0a9f8e"

pytestmark = pytest.mark.skipif(not ACTION.is_dir(), reason="the built wheel brings no action along")


class Job:
    """A job that uses the action once."""

    def __init__(self, folder: Path, github: GitHub, stage: Stage) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.home = folder / "home"
        self.home.mkdir()
        self.token = github.token()
        self.uploads: list[Mapping[str, str]] = []
        self.prepared: list[str] = []
        self._api = stage.model.url
        self.runner = ActionsRunner(
            ACTION,
            folder / "temp",
            {
                "token": self.token,
                "server_url": github.web_url,
                "api_url": github.url,
                "repository": NAME,
                "run_id": "7",
                "run_attempt": "1",
                "workspace": str(self.workspace),
            },
            {"PATH": os.environ["PATH"], "HOME": str(self.home), "ACTIONS_RUNTIME_TOKEN": "runtime"},
            {
                "python": self._python,
                "install": self._install,
                "upload": self._upload,
            },
        )

    def _python(self, given: Mapping[str, str]) -> Mapping[str, str]:
        self.prepared.append("python")
        return {"python-path": sys.executable, "version": given["python-version"]}

    def _install(self, _given: Mapping[str, str]) -> Mapping[str, str]:
        self.prepared.append("install")
        return {"python": sys.executable, "program": str(ROOT / "run_local_agent.py")}

    def _upload(self, given: Mapping[str, str]) -> Mapping[str, str]:
        self.uploads.append(given)
        return {"artifact-url": ARTIFACT}

    def run(self, **inputs: str) -> dict[str, str]:
        """With the scripted model at a known price, and the key for it."""
        usual = {
            "model": "openai-chat:scripted-1",
            "api_url": self._api,
            "api_key": KEY,
            "args": "--price=1/2",
        }
        return self.runner.run(**{**usual, **inputs})

    @property
    def artifact(self) -> Path:
        """The folder that is uploaded."""
        (upload,) = self.uploads
        return Path(upload["path"])

    def written(self) -> str:
        """Everything that is left behind: the log, the outputs, the summary, the artifact, the state."""
        files = [path for path in self.runner.temp.rglob("*") if path.is_file()]
        return self.runner.log + "".join(path.read_text(encoding="utf-8", errors="replace") for path in files)


@pytest.fixture
def repo(github: GitHub) -> Repo:
    repo = github.add_repository(NAME, FILES, private=True)
    github.add_issue(repo, "add() subtracts", "Please fix `add`.", ["pullwright"])
    return repo


@pytest.fixture
def job(tmp_path: Path, github: GitHub, stage: Stage) -> Job:
    folder = tmp_path / "job"
    folder.mkdir()
    return Job(folder, github, stage)


def test_an_issue_becomes_a_pull_request_a_summary_and_an_artifact(
    job: Job, repo: Repo, stage: Stage
) -> None:
    stage.script(FIX_IT)
    outputs = job.run()
    assert job.runner.failed == [], job.runner.log
    (pull,) = repo.pulls.values()
    assert outputs["outcome"] == "proposed"
    assert outputs["pull-request"] == str(pull.number)
    assert float(outputs["usd"]) >= 0
    for words in (
        "proposed",
        "add() subtracts",
        f"#{pull.number} Make add() add",
        "calc.py",
        "cost: $",
        "Fix add().",
    ):
        assert words in job.runner.summary
    (run,) = job.artifact.iterdir()
    assert (run / "journal.jsonl").is_file()
    assert "<h1>add() subtracts" in (run / "run.html").read_text(encoding="utf-8")
    assert f"{run.name}/run.html in [what this job kept]({ARTIFACT})" in job.runner.summary
    assert job.uploads[0]["retention-days"] == "14"
    assert job.uploads[0]["name"].startswith("pullwright-7-1-")


def test_an_event_takes_its_own_issue_and_asks_no_model_where_there_is_no_task(
    job: Job, repo: Repo, github: GitHub, stage: Stage
) -> None:
    mine = github.add_issue(repo, "add() still subtracts", "Please fix `add`.", ["pullwright"])
    strange = github.add_issue(repo, "Mine", "Do it.", ["pullwright"], author="mallory")
    outputs = job.run(thread=str(strange.number))
    assert (outputs["outcome"], job.runner.failed, stage.model.requests) == ("no_task", [], [])
    assert "pullwright:working" not in strange.labels
    stage.script(FIX_IT)
    outputs = job.run(thread=str(mine.number))
    assert (outputs["outcome"], job.runner.failed) == ("proposed", []), job.runner.log
    (pull,) = repo.pulls.values()
    assert pull.head.startswith(f"pullwright/issue-{mine.number}-")


def test_an_event_of_somebody_elses_pull_request_or_a_closed_one_ends_before_anything_is_installed(
    job: Job, repo: Repo, github: GitHub, stage: Stage
) -> None:
    github.commit(repo, {"calc.py": FILES["calc.py"] + "\n"}, branch="feature/mine")
    theirs = github.add_pull(repo, "feature/mine", title="Mine")
    outputs = job.run(thread=str(theirs.number))
    assert outputs == {"outcome": "no_task", "pull-request": "", "usd": "0.0000", "statements": ""}
    assert job.prepared == []
    assert job.runner.summary == (
        f"nothing to do: pull request #{theirs.number} was not opened by the program\n"
    )
    stage.script(FIX_IT)
    ours = int(job.run()["pull-request"])
    assert job.prepared == ["python", "install"]
    job.run(thread=str(ours))  # open and ours: the program decides
    assert job.prepared == ["python", "install"] * 2
    github.close(repo, ours)
    assert job.run(thread=str(ours))["outcome"] == "no_task"
    assert job.prepared == ["python", "install"] * 2
    assert job.runner.failed == []
    assert job.token not in job.runner.log


def test_a_backlog_without_a_task_ends_before_anything_is_installed(
    job: Job, repo: Repo, github: GitHub, stage: Stage
) -> None:
    github.close(repo, 1)
    assert job.run() == {"outcome": "no_task", "pull-request": "", "usd": "0.0000", "statements": ""}
    assert (job.prepared, stage.model.requests, job.runner.failed) == ([], [], []), job.runner.log
    assert job.runner.summary.startswith("nothing to do: no open issue has the label")
    assert job.token not in job.runner.log
    assert job.run(args="--max-minutes=45\n--price=1/2")["outcome"] == "no_task"
    assert job.prepared == []


@pytest.mark.parametrize(
    "found",
    [
        "issue",
        "label of work",
        "pull request",
        "file",
        "named task",
        "other label",
        "two labels",
        "no access",
    ],
)
def test_where_something_may_be_to_do_the_program_decides(
    job: Job, repo: Repo, github: GitHub, found: str
) -> None:
    if found != "issue":
        github.close(repo, 1)
    inputs: dict[str, str] = {}
    match found:
        case "label of work":
            repo.issues[1].labels.append("pullwright:working")
        case "pull request":
            github.commit(repo, {"calc.py": FILES["calc.py"] + "\n"}, branch="pullwright/issue-9-x")
            github.add_pull(repo, "pullwright/issue-9-x")
        case "file":
            github.commit(repo, {"TODO.md": "- [ ] Fix it.\n"})
        case "named task":
            inputs = {"args": "--task\nFix add()"}
        case "other label":
            inputs = {"args": "--label=mine"}
        case "two labels":
            inputs = {"label": "a,b"}
        case _:
            inputs = {} if found == "issue" else {"token": "ghp_nobody"}
    runner = job.runner
    runner.replaced["install"] = lambda _given: {"python": "false", "program": "/"}
    runner.run(model="openai:m", **inputs)
    assert job.prepared == ["python"]


@slow
def test_no_secret_is_left_behind(job: Job, repo: Repo, stage: Stage) -> None:
    stage.script(do(FIX, PROPOSE, FINISH, text=f"My keys are {KEY} and {job.token}."))
    job.run()
    assert len(repo.pulls) == 1
    written = job.written()
    assert KEY not in written
    assert job.token not in written


@slow
def test_other_peoples_words_command_neither_the_shell_nor_the_runner(
    job: Job, github: GitHub, stage: Stage, repo: Repo
) -> None:
    bait = job.home / "bait"
    evil = "$(touch $HOME/bait) `touch $HOME/bait` ; touch $HOME/bait"
    commands = "\n::add-mask::add\n::set-output name=outcome::hacked\n##[set-env name=A]b\n::error::no\n"
    github.add_issue(repo, f"{evil} ::add-mask::a", f"{evil}{commands}", ["mine"])
    stage.script(
        do(
            FIX,
            ("create_pull_request", {"title": f"Add {evil}", "body": commands}),
            ("finish", {"reason": commands}),
            text=f"{evil}{commands}",
        )
    )
    outputs = job.run(label="mine")
    assert outputs["outcome"] == "proposed", job.runner.log
    assert not bait.exists()
    assert obeyed(job.runner.log) == ["remove-matcher"]
    assert "::add-mask::" in job.runner.log


@slow
@pytest.mark.parametrize(
    "name", ["args", "issue", "label", "max_cycles", "model", "max_usd", "permission", "github_url"]
)
def test_no_input_is_read_by_a_shell(job: Job, name: str, repo: Repo) -> None:
    del repo
    bait = job.home / "bait"
    outputs = job.run(**{name: f"1'\"; $(touch {bait}) `touch {bait}` && touch {bait} #"})
    assert not bait.exists()
    assert outputs["outcome"] in {"failed", "no_task"}
    assert obeyed(job.runner.log) == ["remove-matcher"]


@slow
def test_arguments_are_one_a_line(job: Job, repo: Repo, stage: Stage) -> None:
    stage.script(FIX_IT)
    job.run(args="--price=1/2\r\n\n--task\nFix add(), please\n--no-draft")
    (pull,) = repo.pulls.values()
    assert not pull.draft
    assert "Fix add(), please" in stage.told()


@slow
def test_an_issue_is_named(job: Job, github: GitHub, repo: Repo, stage: Stage) -> None:
    other = github.add_issue(repo, "sub() adds", "Please fix.", [])
    stage.script(FIX_IT)
    assert job.run(issue=str(other.number))["outcome"] == "proposed"
    assert "sub() adds" in stage.told()


@slow
def test_nothing_to_do_is_no_failure_and_says_why(job: Job, repo: Repo) -> None:
    del repo  # its issue has another label
    outputs = job.run(label="none")
    assert outputs == {"outcome": "no_task", "pull-request": "", "usd": "0.0000", "statements": ""}, (
        job.runner.log
    )
    assert job.runner.failed == []
    assert "no open issue has the label" in job.runner.summary


@slow
def test_a_failure_fails_the_job_and_still_leaves_the_record(job: Job, repo: Repo) -> None:
    del repo  # the model's script is empty: it answers 400
    assert job.run()["outcome"] == "failed"
    assert job.runner.failed == ["run"]
    assert "failed" in job.runner.summary
    assert list(job.artifact.iterdir())


@slow
def test_a_configuration_in_the_workspace_is_not_read(job: Job, repo: Repo, stage: Stage) -> None:
    (job.workspace / "pullwright.toml").write_text("this is no TOML")
    (job.workspace / "orchestrator").mkdir()
    (job.workspace / "orchestrator" / "__init__.py").write_text("raise SystemExit('taken over')")
    stage.script(FIX_IT)
    assert job.run()["outcome"] == "proposed"
    assert len(repo.pulls) == 1


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


class Bench:
    """One script of the action with a program that does what the test says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "program"
        self.output = folder / "output"
        self.output.touch()

    def says(self, script: str) -> None:
        """The program; what the action's own Python scripts do stays."""
        real = f'case "$*" in *outputs.py*) exec {shlex.quote(sys.executable)} "$@" ;; esac\n'
        self.program.write_text(f"#!/bin/bash\n{real}{script}\n")
        self.program.chmod(0o755)

    def start(self, script: str, action: Path = ACTION, **environ: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*SHELL, str(action / script)],
            env={
                "PATH": os.environ["PATH"],
                "GITHUB_ACTION_PATH": str(action),
                "GITHUB_OUTPUT": str(self.output),
                "GITHUB_REPOSITORY": NAME,
                "GITHUB_RUN_ID": "7",
                "GITHUB_RUN_ATTEMPT": "1",
                "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
                "RUNNER_TEMP": str(self.folder),
                "INPUT_PYTHON": str(self.program),
                "INPUT_PROGRAM": str(ROOT / "run_local_agent.py"),
                "INPUT_MAX_CYCLES": "1",
                "INPUT_ISSUE": "",
                "INPUT_THREAD": "",
                "INPUT_ARTIFACT": "",
                "INPUT_ARGS": "",
                **environ,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, script: str = "run.sh", action: Path = ACTION, **environ: str) -> tuple[int, str]:
        with self.start(script, action, **environ) as process:
            out, _ = process.communicate()
        return process.returncode, out

    @property
    def outputs(self) -> dict[str, str]:
        pairs = (line.partition("=") for line in self.output.read_text().splitlines())
        return {name: value for name, _, value in pairs}


@pytest.mark.parametrize(
    ("status", "job_status"), [(0, 0), (3, 0), (4, 0), (5, 0), (6, 0), (1, 1), (2, 2), (130, 130)]
)
def test_which_exit_status_fails_the_job(bench: Bench, status: int, job_status: int) -> None:
    bench.says(f"exit {status}")
    assert bench.run()[0] == job_status
    assert bench.outputs["outcome"] == "failed"  # it printed no result


def test_what_the_program_prints_is_no_command(bench: Bench) -> None:
    lines = "::add-mask::e\\n::set-output name=a::b\\n##[debug]x\\n::stop-commands::ours\\n::ours::\\n::error::x\\n"
    bench.says(f"printf '{lines}' >&2; printf '{lines}'; exit 0")
    _, out = bench.run()
    assert out.count("::add-mask::e") == 2
    assert obeyed(out) == ["remove-matcher"]


@slow
def test_the_word_that_resumes_commands_cannot_be_guessed(bench: Bench) -> None:
    bench.says("exit 3")
    words = {bench.run()[1].split("::stop-commands::")[1].split()[0] for _ in range(3)}
    assert len(words) == 3
    assert all(len(word) == 64 for word in words)


def test_the_program_cannot_speak_to_the_runner(bench: Bench) -> None:
    bench.says("env >&2")
    _, out = bench.run(
        GITHUB_ENV="/e",
        GITHUB_PATH="/p",
        GITHUB_STATE="/s",
        ACTIONS_RUNTIME_TOKEN="r",
        ACTIONS_ID_TOKEN_REQUEST_TOKEN="i",
    )
    names = {line.partition("=")[0] for line in out.splitlines()}
    assert "PULLWRIGHT_HOME" in names
    assert not [
        name
        for name in names
        if name.startswith("ACTIONS_")
        or name in {"GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH", "GITHUB_STATE", "GITHUB_STEP_SUMMARY"}
    ]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_job_that_is_cancelled_waits_for_the_program_to_keep_its_work(
    bench: Bench, sent: signal.Signals
) -> None:
    bench.says(
        "trap 'echo kept >&2; exit 130' TERM; echo ready >&2; while :; do read -rt 0.05 <> <(:) || :; done"
    )
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a suite that was started in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with bench.start("run.sh") as process:
        assert process.stdout
        for line in process.stdout:
            if line == "ready\n":
                break
        process.send_signal(sent)
        rest = process.stdout.read()
    assert "kept" in rest
    assert process.returncode == 130


def result(**fields: Any) -> str:
    return json.dumps({"outcome": "proposed", "pull_request": None, "usd": 0.5, **fields})


@pytest.mark.parametrize(
    ("lines", "outputs"),
    [
        ([], ("failed", "", "0.0000")),
        ([result(pull_request={"number": 7})], ("proposed", "7", "0.5000")),
        (
            [result(pull_request={"number": 7}), result(outcome="no_task", usd=0.0)],
            ("proposed", "7", "0.5000"),
        ),
        ([result(usd=None)], ("proposed", "", "")),
        ([result(outcome="x\npull-request=1")], ("failed", "", "0.5000")),
        ([result(pull_request={"number": "1\nusd=9"})], ("proposed", "", "0.5000")),
        ([result(pull_request={"number": None})], ("proposed", "", "0.5000")),
    ],
)
def test_outputs_hold_nothing_that_others_wrote(
    bench: Bench, lines: list[str], outputs: tuple[str, ...]
) -> None:
    text = "\n".join(lines)
    bench.says(f"printf '%s\\n' {shlex.quote(text)}")
    bench.run()
    assert tuple(bench.outputs[name] for name in ("outcome", "pull-request", "usd")) == outputs
    assert set(bench.outputs) == {"home", "artifact", "outcome", "pull-request", "usd"}


def test_why_there_was_nothing_to_do_is_inert_text_in_the_summary(bench: Bench) -> None:
    reason = "issue #1 ```\n# heading [link](https://x.example) ::error::x"
    text = "\n".join((result(pull_request={"number": 7}), result(outcome="no_task", usd=0.0, reason=reason)))
    bench.says(f"printf '%s\\n' {shlex.quote(text)}")
    bench.run()
    assert (bench.folder / "summary").read_text() == (
        "Nothing to do:\n\n```text\nissue #1 ''' # heading [link](https://x.example) ::error::x\n```\n\n"
    )


def test_what_the_tests_showed_is_an_output_for_the_job_that_signs(bench: Bench) -> None:
    def stated(sha256: str, **predicate: Any) -> dict[str, Any]:
        return {"subject": [{"digest": {"sha256": sha256}}], "predicate": {"result": "PASSED", **predicate}}

    texts = (
        result(statement=stated("a" * 64, failedTests=["x\nusd=9", "\u2028", "`$(id)`"])),
        result(statement=stated("no digest\nusd=9")),
        result(statement=None),
        result(statement=stated("b" * 64)),
    )
    bench.says(f"printf '%s\\n' {shlex.quote(chr(10).join(texts))}")
    bench.run()
    assert set(bench.outputs) == {"home", "artifact", "outcome", "pull-request", "usd", "statements"}
    first, second = json.loads(bench.outputs["statements"])
    assert (first["digest"], second["digest"]) == (f"sha256:{'a' * 64}", f"sha256:{'b' * 64}")
    assert json.loads(first["predicate"])["failedTests"] == ["x\nusd=9", "\u2028", "`$(id)`"]
    assert bench.output.read_text().isascii()


@pytest.mark.parametrize("has_uv", [True, False])
def test_installing_checks_every_file_and_runs_nothing_of_the_workspace(bench: Bench, has_uv: bool) -> None:  # noqa: FBT001  a table
    uv = 'mkdir -p installer/bin; cp "$0" installer/bin/uv;' if has_uv else ""
    bench.says(
        f'echo "$PWD $*" >> {bench.folder}/calls\n'
        f'case "$*" in *"-m venv"*) mkdir -p venv/bin; cp "$0" venv/bin/python; {uv} ;; esac'
    )
    status, out = bench.run("install.sh", PYTHON=str(bench.program))
    assert status == 0, out
    venv, installer, first, program = (bench.folder / "calls").read_text().splitlines()
    assert venv.endswith(" -I -m venv --without-pip venv")
    assert installer.endswith(" -I -m venv --without-pip installer")
    for install in (first, program):
        assert "--no-deps --require-hashes --only-binary :all:" in install
        assert install.startswith(f"{bench.folder}/pullwright-")
    assert first.endswith(f" -r {ACTION}/installer.lock")
    # Without uv, pip does it.
    assert (" pip install --python venv/bin/python" in program) == has_uv
    assert program.endswith(f"{ROOT}/requirements.lock")
    assert bench.outputs["python"].startswith(f"{bench.folder}/pullwright-")
    assert bench.outputs["program"] == f"{ROOT}/run_local_agent.py"


@pytest.mark.parametrize(("outcome", "told"), [("proposed", True), ("failed", True), ("no_task", False)])
def test_the_webhook_is_told_where_there_is_news(bench: Bench, outcome: str, told: bool) -> None:  # noqa: FBT001  a table
    bench.says('echo "$# $* hook=${PULLWRIGHT_WEBHOOK-}"')
    home = bench.folder / "home"
    (home / "runs" / "r1").mkdir(parents=True)
    status, out = bench.run(
        "summary.sh", PULLWRIGHT_HOME=str(home), PULLWRIGHT_WEBHOOK="secret-address", INPUT_OUTCOME=outcome
    )
    assert status == 0
    assert "digest --run r1 hook=\n" in (bench.folder / "summary").read_text()
    assert ("hook=secret-address" in out) is told


@pytest.mark.parametrize(
    ("status", "strict", "outcome", "job_status"),
    [
        (0, "false", "holds", 0),
        (6, "false", "refuted", 6),
        (1, "false", "unknown", 0),
        (1, "true", "unknown", 1),
        (2, "false", "failed", 2),
        (130, "false", "failed", 130),
    ],
)
def test_which_outcome_of_a_verification_fails_the_job(
    bench: Bench, status: int, strict: str, outcome: str, job_status: int
) -> None:
    bench.says(f"exit {status}")
    more = {"INPUT_PULL_REQUEST": "3", "INPUT_MAX_MINUTES": "5", "INPUT_FAIL_ON_UNKNOWN": strict}
    assert bench.run("run.sh", VERIFY, **more)[0] == job_status
    assert bench.outputs["outcome"] == outcome


@pytest.mark.parametrize("number", ["", "x", "--check", "1; touch bait", "$(touch bait)"])
def test_only_a_number_names_what_is_verified(bench: Bench, number: str) -> None:
    bench.says("exit 0")
    more = {"INPUT_PULL_REQUEST": number, "INPUT_MAX_MINUTES": "5", "INPUT_FAIL_ON_UNKNOWN": "false"}
    status, out = bench.run("run.sh", VERIFY, **more)
    assert (status, bench.outputs["outcome"]) == (2, "failed")
    assert "is no number" in out

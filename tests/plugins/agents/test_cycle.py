"""An agent program through the whole cycle: claim, clone, box, relay, tools, verification, proposal."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import shlex
import signal
import sys
import sysconfig
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import acp
import pytest

from tests.doubles import forked
from tests.doubles.model_server import calls, fail, gated, reply
from tests.scenarios.stage import CALC, FILES, FIXED, branches, content, git, make_repository

if TYPE_CHECKING:
    from tests.scenarios.stage import Stage

TASK = ("--task", "Fix add() in calc.py")
AGENT = Path(__file__).with_name("scripted_agent.py")
PROPOSE = ("create_pull_request", {"title": "Make add() add", "body": "It subtracted."})
FINISH = ("finish", {"reason": "The pull request is open."})
WRITE = ("write", {"path": "calc.py", "text": FIXED})


def agent(*words: str) -> list[str]:
    """The flags for the scripted agent, whose Python is shown to it besides. `--library`: see `scripted_agent.py`."""
    prefix = os.path.realpath(sys.prefix)
    base = os.path.realpath(sys.base_prefix)
    # The system's own Python is a part of /usr, which is not granted as a whole.
    own = {sysconfig.get_path("stdlib"), os.path.realpath(sys.executable)} if base == "/usr" else {base}
    needed = sorted({prefix, os.path.realpath(Path(acp.__file__).parents[1]), *own})
    command = shlex.join([f"{prefix}/bin/{Path(sys.executable).name}", str(AGENT), *words])
    return ["--agent", command, *(word for path in needed for word in ("--sandbox-read", path))]


def test_an_agent_changes_a_file_and_its_change_is_proposed(stage: Stage, repository: Path) -> None:
    stage.script(calls(WRITE, text="I fix it."), calls(PROPOSE, FINISH))
    done = stage.run("--repo", str(repository), *TASK, *agent("--library"))
    assert done.code == 0, done.err
    (branch,) = branches(repository)
    assert content(repository, branch, "calc.py") + "\n" == FIXED
    assert git(repository, "diff", "--name-only", "main", branch) == "calc.py"
    result = done.result
    assert result["outcome"] == "proposed"
    assert result["pull_request"]["title"] == "Make add() add"
    assert result["rounds"] == 2
    assert result["usage"]["total_tokens"] > 0
    assert (repository / "calc.py").read_text() == CALC


def test_a_failing_test_is_told_as_the_result_and_mended(stage: Stage, repository: Path) -> None:
    wrong = ("write", {"path": "calc.py", "text": "def add(a, b):\n    return a * b\n"})
    stage.script(calls(wrong), calls(PROPOSE), calls(WRITE), calls(PROPOSE), calls(FINISH))
    tests = "! grep -n 'return a [*] b' calc.py"
    done = stage.run("--repo", str(repository), *TASK, *agent(), "--test-command", tests)
    assert done.code == 0, done.err
    assert done.result["outcome"] == "proposed"
    told = stage.told(2)
    assert '"isError": true' in told
    assert "return a * b" in told


def test_a_question_ends_the_session_and_its_answer_is_in_the_next_one(
    stage: Stage, repository: Path
) -> None:
    stage.script(calls(("ask_question", {"question_text": "Shall add() take floats?"})))
    done = stage.run("--repo", str(repository), *TASK, *agent())
    assert done.result["outcome"] == "question"
    assert done.result["question"] == "Shall add() take floats?"
    stage.script(calls(WRITE), calls(PROPOSE, FINISH))
    done = stage.run("--repo", str(repository), *TASK, "--answer", "Yes, floats too.", *agent())
    assert done.result["outcome"] == "proposed", done.err
    assert "Yes, floats too." in stage.told(1)


def test_an_agent_that_ends_its_turn_is_asked_once_and_then_its_changes_are_a_draft(
    stage: Stage, repository: Path
) -> None:
    stage.script(calls(WRITE), reply("It adds now."), reply("I am done."))
    done = stage.run("--repo", str(repository), *TASK, *agent())
    assert done.result["outcome"] == "proposed", done.err
    assert done.result["pull_request"]["draft"] is True
    assert "create_pull_request" in stage.told(2)
    assert "It adds now." in done.err
    (branch,) = branches(repository)
    assert content(repository, branch, "calc.py") + "\n" == FIXED


def test_a_cap_ends_the_agent_before_the_next_request(stage: Stage, repository: Path) -> None:
    stage.script(calls(WRITE), calls(("plan", {"steps": ["Look", "Mend"]})), calls(PROPOSE))
    done = stage.run("--repo", str(repository), *TASK, *agent("--library"), "--max-rounds", "2")
    assert done.result["outcome"] == "limit", done.err
    assert len(stage.model.requests) == done.result["rounds"] == 2
    assert done.result["saved"]
    assert {"TodosChanged", "LimitReached"} <= {event["type"] for event in stage.events()}


END_SECONDS = 60.0
"""In which the kernel ends what a killed program started, on a busy machine."""
CANARY = "canary-key-that-nobody-may-see-4711"
LOOK = """
def attempt(work):
    try:
        return str(work())
    except Exception as error:
        return type(error).__name__
import socket
def connect(host, port):
    with socket.create_connection((host, port), 2):
        return "connected"
clone = Path(folder)
result = {
    "environment": dict(os.environ),
    "processes": [(Path("/proc") / name / "environ").read_bytes() for name in os.listdir("/proc") if name == str(os.getpid())],
    "programs": [name for name in ("/usr/bin", "/bin/sh", "/usr/local/bin") if os.path.exists(name)],
    "shell": attempt(lambda: subprocess.run(["/bin/sh", "-c", "id"], check=True)),
    "etc": attempt(lambda: open("/etc/shadow").read()),
    "settings": [attempt(lambda: (clone / name).read_text()) for name in (".mcp.json", ".env")],
    "hooks": os.listdir(clone / ".claude"),
    "git": attempt(lambda: (clone / ".git/new").write_text("x")),
    "outside": attempt(lambda: connect("192.0.2.1", 80)),
    "model": attempt(lambda: connect("127.0.0.1", PORT)),
}
"""


def test_in_its_box_an_agent_sees_its_clone_and_itself(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULLWRIGHT_API_KEY", CANARY)
    hostile = {
        ".claude/settings.json": '{"hooks": 1}',
        ".mcp.json": '{"mcpServers": 1}',
        ".env": "KEY=value\n",
    }
    repository = make_repository(tmp_path / "calc", {**FILES, **hostile})
    script = LOOK.replace("PORT", str(urlsplit(stage.model.url).port))
    stage.script(calls(("look", {"script": script})), calls(("finish", {"reason": "I stop here."})))
    done = stage.run("--repo", str(repository), *TASK, *agent())
    assert done.result["rounds"] == 2, done.err
    told = stage.told(1)
    assert "'hooks': []" in told, told
    seen = ast.literal_eval(told)
    assert CANARY not in told
    assert stage.model.requests[0].headers["authorization"] == f"Bearer {CANARY}"
    assert set(seen["environment"]) <= {
        *(
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_BASE_URL",
            "GEMINI_API_KEY",
            "GOOGLE_GEMINI_BASE_URL",
            "HOME",
            "LANG",
        ),
        *("LC_CTYPE", "LOGNAME", "MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "PATH", "TMPDIR", "USER"),
    }
    assert seen["programs"] == []
    assert seen["shell"] == seen["etc"] == "FileNotFoundError"
    assert seen["settings"] == ["{}\n", ""]
    assert seen["git"] == "OSError"
    assert seen["outside"] in {"OSError", "TimeoutError"}
    assert seen["model"] == "ConnectionRefusedError"


def test_permission_requests_are_answered_by_the_policy(stage: Stage, repository: Path) -> None:
    asked: list[tuple[str, dict[str, object]]] = [
        ("ask", {"kind": "edit", "title": "Edit", "paths": ["calc.py"]}),
        ("ask", {"kind": "edit", "title": "Edit", "paths": ["/etc/passwd"]}),
        ("ask", {"kind": "execute", "title": "finish pullwright", "raw": {"command": "curl x"}}),
    ]
    stage.script(*(calls(one) for one in asked), calls(("finish", {"reason": "I stop here."})))
    done = stage.run("--repo", str(repository), *TASK, *agent("--library"))
    assert done.result["rounds"] == 4, done.err
    assert [json.loads(stage.told(number))["outcome"].get("optionId") for number in (1, 2, 3)] == [
        "yes",
        "no",
        "no",
    ]
    guarded = [event["defence"] for event in stage.events() if event["type"] == "Guarded"]
    assert guarded == ["paths", "level"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--exit"], "python has ended: cannot start: no licence"),
        (["--newer"], "speaks version 99 of the Agent Client Protocol"),
        (["--no-http"], "takes no tools over HTTP"),
    ],
)
def test_an_agent_that_cannot_be_used_is_one_line(
    stage: Stage, repository: Path, words: list[str], message: str
) -> None:
    done = stage.run("--repo", str(repository), *TASK, *agent(*words))
    assert done.code != 0
    assert message in done.result["error"]
    assert stage.model.requests == []


def test_the_work_of_an_agent_that_dies_is_saved(stage: Stage, repository: Path) -> None:
    stage.script(calls(WRITE), calls(("die", {})))
    done = stage.run("--repo", str(repository), *TASK, *agent())
    assert "python has ended: out of memory" in done.result["error"]
    assert done.result["saved"]
    stage.script(calls(PROPOSE, FINISH))
    done = stage.run("--repo", str(repository), *TASK, *agent())
    assert done.result["outcome"] == "proposed", done.err
    (branch,) = branches(repository)
    assert content(repository, branch, "calc.py") + "\n" == FIXED


def marked_processes(mark: str) -> list[str]:
    """The processes that have a word in their environment, whatever they are called and in whatever namespace."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"MARK={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append((entry / "cmdline").read_bytes().decode("utf-8", "replace"))
    return found


def running() -> list[str]:
    """The command lines of all processes."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found.append((entry / "cmdline").read_bytes().decode("utf-8", "replace"))
    return found


FORK = """
for number in range(3):
    if os.fork() == 0:
        os.setsid()
        import signal, time
        for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(one, signal.SIG_IGN)
        time.sleep(300)
        os._exit(0)
"""


def test_what_a_killed_program_left_is_taken_up_and_nothing_of_the_agent_goes_on(
    stage: Stage, repository: Path, tmp_path: Path
) -> None:
    gate = threading.Event()
    # Each process that the agent starts inherits the variable, and nothing else of this machine has it.
    mark, words = f"of-{tmp_path.name}", agent()
    words[1] = f"/usr/bin/env MARK={mark} {words[1]}"
    words += ["--sandbox-read", "/usr/bin/env"]
    stage.script(calls(WRITE, ("look", {"script": FORK})), gated("I wait.", gate))
    model = ["--model", "openai-chat:scripted-1", "--api-url", stage.model.url]
    with forked.piped("run", "--repo", str(repository), *TASK, *words, *model) as (program, _, errors):
        for line in errors:
            if "round 2" in line:
                break
        assert len(marked_processes(mark)) == 4, "the agent and its three children"
        program.kill()
    ended = time.monotonic() + END_SECONDS
    while left := marked_processes(mark):
        assert time.monotonic() < ended, left
    gate.set()
    stage.script(calls(PROPOSE, FINISH))
    done = stage.run("--repo", str(repository), *TASK, *agent())
    assert done.result["outcome"] == "proposed", done.err
    (branch,) = branches(repository)
    assert content(repository, branch, "calc.py") + "\n" == FIXED


def test_a_stop_during_a_test_run_ends_the_tests_and_saves_the_work(stage: Stage, repository: Path) -> None:
    pause = f"300.{os.getpid()}"  # which no other process of this machine takes
    tests = f"grep -q 'a - b' calc.py || sleep {pause}"  # they pass before the change
    stage.script(calls(WRITE, ("run_tests", {})))
    model = ["--model", "openai-chat:scripted-1", "--api-url", stage.model.url, "--test-command", tests]
    with forked.piped("run", "--repo", str(repository), *TASK, *agent(), *model) as (program, _, errors):
        while f"sleep\0{pause}\0" not in running():
            assert program.returncode is None
        program.send_signal(signal.SIGTERM)
        told = errors.read()
        program.wait(60)
    result = stage.events()[-1]["result"]
    assert (result["outcome"], bool(result["saved"])) == ("interrupted", True), told
    assert f"sleep\0{pause}\0" not in running()


def test_a_server_that_asks_for_a_long_wait_pauses_the_run_and_saves_the_work(
    stage: Stage, repository: Path
) -> None:
    """The agent is told 400 once, and has no chance to ask again every few seconds."""
    stage.script(calls(WRITE), fail(429, {"retry-after": "3600"}))
    done = stage.run("--repo", str(repository), *TASK, *agent("--library"))
    assert done.result["outcome"] == "paused", done.err
    assert done.result["saved"]
    assert len(stage.model.requests) == 2


def test_proposals_and_ends_at_once_are_done_one_after_the_other(stage: Stage, repository: Path) -> None:
    both = ("together", {"calls": [PROPOSE, PROPOSE]})
    stage.script(calls(WRITE, both), calls(("together", {"calls": [FINISH, FINISH]})))
    done = stage.run("--repo", str(repository), *TASK, *agent())
    assert done.result["outcome"] == "proposed", done.err
    assert (len(branches(repository)), done.result["rounds"]) == (1, 2)
    told = [event for event in stage.events() if event["type"] == "ToolCallEnded"]
    assert [one["status"] for one in told if one["name"] == "create_pull_request"] == ["ok", "ok"]
    assert [one["status"] for one in told if one["name"] == "finish"] == ["ok", "skipped"]


def test_a_turn_without_a_word_is_asked_once_and_ends(stage: Stage, repository: Path) -> None:
    stage.script(reply(""), reply(""))
    done = stage.run("--repo", str(repository), *TASK, *agent())
    assert done.result["rounds"] == 2, done.err
    assert done.result["pull_request"] is None
    assert branches(repository) == []


def test_a_line_of_50_megabytes_ends_the_agent_and_its_work_is_saved(stage: Stage, repository: Path) -> None:
    stage.script(calls(WRITE, ("long_line", {"size": 50 << 20})))
    done = stage.run("--repo", str(repository), *TASK, *agent())
    assert done.result["error"] == "python was stopped: it sent a message of more than 32 MiB"
    assert done.result["saved"]


def test_what_an_agent_tells_is_bounded_and_of_its_own_session(stage: Stage, repository: Path) -> None:
    stage.script(calls(("strange", {})), calls(("finish", {"reason": "I stop here."})))
    done = stage.run("--repo", str(repository), *TASK, *agent("--library"))
    assert done.result["rounds"] == 2, done.err
    told = [event["event"] for event in stage.events() if event["type"] == "SubagentEvent"]
    (started,) = [one for one in told if one["type"] == "ToolCallStarted" and one["name"].startswith("Read")]
    assert len(started["call_id"]) <= 200
    assert not any(ord(one) < 32 for one in started["call_id"] + started["name"])
    assert "I am another one." not in json.dumps(told) + done.err


def test_a_stop_ends_the_agent_and_saves_its_work(stage: Stage, repository: Path) -> None:
    gate = threading.Event()
    stage.script(calls(WRITE), gated("I wait.", gate))
    model = ["--model", "openai-chat:scripted-1", "--api-url", stage.model.url]
    with forked.piped("run", "--repo", str(repository), *TASK, *agent("--library"), *model) as (
        program,
        _,
        errors,
    ):
        for line in errors:
            if "round 2" in line:
                break
        program.send_signal(signal.SIGTERM)
        errors.read()
        program.wait(60)
    gate.set()
    result = stage.events()[-1]["result"]
    assert (result["outcome"], bool(result["saved"])) == ("interrupted", True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--agent", "claude"], "Claude Code is not installed: npm install"),
        (["--agent", "nobody"], "name one of claude, codex, gemini, opencode, or the command"),
        (["--agent", "/bin/true", "--contract", "native"], "--contract does not apply to true"),
        (["--agent", "/bin/true", "--permission", "read-only"], "cannot be kept from changing files"),
        (["--agent", "/bin/true", "--sandbox", "off"], "leave out --sandbox off"),
    ],
)
def test_what_does_not_fit_an_agent_is_refused_before_it_starts(
    stage: Stage, repository: Path, words: list[str], message: str
) -> None:
    done = stage.run("--repo", str(repository), *TASK, *words)
    assert done.code != 0
    assert message in f"{done.err}{done.out}"

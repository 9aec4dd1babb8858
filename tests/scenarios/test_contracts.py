"""`run --contract native` and `single-step`: the same cycle, gate, limits and journal as one JSON plan."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.doubles.model_server import calls, fail, plan, reply
from tests.scenarios.stage import FINISH, FIX, FIXED, PROPOSE, Stage, add_commit, branches, content, do

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.model_server import RecordedRequest, Step

TASK = ("--task", "Fix add() in calc.py")
V4A = "*** Begin Patch\n*** Update File: calc.py\n@@ def add(a, b):\n-    return a - b\n+    return a + b\n*** End Patch"
UNIFIED = (
    "--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"
)
OLD_NEW = {"file_path": "calc.py", "old_string": "a - b", "new_string": "a + b"}

NATIVE: dict[str, tuple[str, dict[str, Any]]] = {
    "planner": ("edit_file", {"path": "calc.py", "old_text": "a - b", "new_text": "a + b"}),
    "openai": ("apply_patch", {"patch": V4A}),
    "anthropic": ("edit_file", OLD_NEW),
    "gemini": ("edit_file", OLD_NEW),
    "minimal": ("apply_patch", {"patch": UNIFIED}),
}


@pytest.mark.parametrize("contract", ["native", "single-step"])
@pytest.mark.parametrize("profile", NATIVE)
def test_a_task_becomes_a_pull_request(stage: Stage, repository: Path, profile: str, contract: str) -> None:
    """Under one call a step each call takes a reply of its own; natively all three fit into one."""
    work = (NATIVE[profile], PROPOSE, FINISH)
    steps = [calls(*work)] if contract == "native" and profile != "minimal" else [calls(one) for one in work]
    stage.script(*steps)
    done = stage.run("--repo", str(repository), *TASK, "--contract", contract, "--profile", profile)
    assert done.code == 0, done.err
    assert done.result["outcome"] == "proposed"
    assert done.result["rounds"] == len(steps)
    assert done.result["usage"]["input_tokens"] > 0
    (branch,) = branches(repository)
    assert content(repository, branch, "calc.py") + "\n" == FIXED
    started = next(event for event in stage.events() if event["type"] == "CycleStarted")
    assert started["contract"] == contract.replace("-", "_")


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
@pytest.mark.parametrize(
    ("model", "flags", "tool"),
    [
        ("openai-chat:gpt-5.2-codex", [], "apply_patch"),
        ("openai-chat:anthropic/claude-sonnet-4.5", [], "edit_file"),
        ("openai-chat:models/gemini-3-pro", [], "read_many_files"),
        ("openai-chat:qwen2.5-coder", [], "list_dir"),
        ("openai-chat:qwen2.5-coder", ["--contract", "single-step"], "grep_files"),
        ("openai-chat:gpt-5.2", ["--profile", "anthropic"], "edit_file"),
    ],
)
def test_the_profile_suits_the_model_unless_it_is_named(
    stage: Stage, repository: Path, model: str, flags: list[str], tool: str
) -> None:
    stage.script(calls(("finish", {"reason": "nothing to do"})))
    stage.run("--repo", str(repository), *TASK, "--contract", "native", "--model", model, *flags)
    offered = [entry["function"]["name"] for entry in stage.model.requests[0].body["tools"]]
    assert tool in offered
    assert {"create_pull_request", "ask_question", "finish"} <= set(offered)


@pytest.mark.parametrize("contract", ["native", "single-step"])
def test_the_prompt_says_where_it_works(stage: Stage, repository: Path, contract: str) -> None:
    add_commit(repository, {"CLAUDE.md": "Use tabs.\n", "AGENTS.md": "Be kind.\n"}, "Rules")
    stage.script(calls(("finish", {"reason": "nothing to do"})))
    stage.run("--repo", str(repository), *TASK, "--contract", contract, "--profile", "anthropic")
    system, first = (message["content"] for message in stage.asked())
    lines = [
        line
        for line in system.splitlines()
        if line.startswith(("Working directory: ", "Platform: ", "Today"))
    ]
    assert len(lines) == 3
    assert system.index("Working directory: ") < system.index("# Tools")
    assert ("Use tabs." in first, "Be kind." in first) == (True, True)
    assert "Use tabs." not in system


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
@pytest.mark.parametrize("profile", NATIVE)
def test_safe_mode_shows_no_shell_and_refuses_it(stage: Stage, repository: Path, profile: str) -> None:
    names = {"planner": "run_shell_command", "minimal": "shell_command"}
    name = names.get(profile, "shell")
    argument = {"command": "touch ../escaped; touch made"}
    stage.script(calls((name, argument)), calls(("finish", {"reason": "no shell"})))
    stage.run("--repo", str(repository), *TASK, "--contract", "native", "--profile", profile)
    first = stage.model.requests[0].body
    assert name not in [entry["function"]["name"] for entry in first["tools"]]
    assert f"`{name}`" not in first["messages"][0]["content"]
    ended = [event for event in stage.events() if event["type"] == "ToolCallEnded"]
    assert (ended[0]["name"], ended[0]["status"]) == (name, "refused")


def test_with_dangerous_tools_the_shell_is_shown_and_runs(stage: Stage, repository: Path) -> None:
    stage.script(calls(("shell", {"command": "sed -i 's/a - b/a + b/' calc.py"})), calls(PROPOSE, FINISH))
    flags = ("--contract", "native", "--profile", "anthropic", "--allow-dangerous-tools")
    done = stage.run("--repo", str(repository), *TASK, *flags)
    assert done.code == 0, done.err
    (branch,) = branches(repository)
    assert content(repository, branch, "calc.py") + "\n" == FIXED


@pytest.mark.parametrize("last", ["Really.", "Shall I add a test?"])
def test_words_alone_are_answered_once_and_then_the_host_proposes_what_was_changed(
    stage: Stage, repository: Path, last: str
) -> None:
    edit = NATIVE["anthropic"]
    stage.script(calls(edit), reply("I fixed it."), reply(last))
    flags = ("--contract", "native", "--profile", "anthropic", "--no-draft")
    done = stage.run("--repo", str(repository), *TASK, *flags)
    assert "calc.py" in stage.told(2)
    assert "create_pull_request" in stage.told(2)
    assert done.result["outcome"] == "proposed"
    proposed = done.result["pull_request"]
    assert proposed["draft"], "nobody called it done"
    assert proposed["title"] == TASK[1]
    assert "without asking for a pull request" in proposed["body"]
    assert last in proposed["body"]
    (branch,) = branches(repository)
    assert content(repository, branch, "calc.py") + "\n" == FIXED


def test_words_alone_propose_nothing_where_nothing_was_changed(stage: Stage, repository: Path) -> None:
    stage.script(reply("I fixed it."), reply("Really."))
    done = stage.run("--repo", str(repository), *TASK, "--contract", "native", "--profile", "anthropic")
    assert done.result["outcome"] == "failed"
    assert not done.result["patch"]
    assert not branches(repository)


def test_words_alone_propose_a_file_that_cannot_be_read_and_say_so(stage: Stage, repository: Path) -> None:
    broken = calls(("write_file", {"file_path": "calc.py", "content": "def add(:\n"}))
    stage.script(broken, reply("I fixed it."), reply("Really."))
    done = stage.run("--repo", str(repository), *TASK, "--contract", "native", "--profile", "anthropic")
    assert done.result["outcome"] == "proposed"
    assert done.result["pull_request"]["draft"]
    assert "Not every file of this change can be read" in done.result["pull_request"]["body"]


def test_a_failed_edit_keeps_the_pull_request_back(stage: Stage, repository: Path) -> None:
    wrong = ("edit_file", {"file_path": "calc.py", "old_string": "a * b", "new_string": "a + b"})
    stage.script(calls(wrong, PROPOSE, FINISH), calls(NATIVE["anthropic"], PROPOSE, FINISH))
    done = stage.run("--repo", str(repository), *TASK, "--contract", "native", "--profile", "anthropic")
    assert done.code == 0, done.err
    statuses = [event["status"] for event in stage.events() if event["type"] == "ToolCallEnded"]
    assert statuses == ["failed", "skipped", "skipped", "ok", "ok", "ok"]
    results = [message["content"] for message in stage.asked(1) if message["role"] == "tool"]
    assert len(results) == 3


def test_one_call_a_step_is_asked_for_and_kept_to(stage: Stage, repository: Path) -> None:
    steps = [calls(NATIVE["minimal"], PROPOSE, FINISH), reply("Done!"), calls(PROPOSE), calls(FINISH)]
    stage.script(*steps)
    done = stage.run("--repo", str(repository), *TASK, "--contract", "single-step")
    assert done.code == 0, done.err
    assert all(request.body["parallel_tool_calls"] is False for request in stage.model.requests)
    results = [message["content"] for message in stage.asked(1) if message["role"] == "tool"]
    assert [result.startswith("Not executed") for result in results] == [False, True, True]
    assert stage.told(2).startswith("Continue.")


def test_limits_hold_and_the_work_is_kept(stage: Stage, repository: Path) -> None:
    stage.script(*[calls(NATIVE["anthropic"]) for _ in range(5)])
    flags = ("--contract", "native", "--profile", "anthropic", "--max-rounds", "2")
    done = stage.run("--repo", str(repository), *TASK, *flags)
    assert done.result["outcome"] == "limit"
    assert len(stage.model.requests) == 2
    assert "last turn" in str(stage.asked(1)[-1]["content"])
    assert done.result["patch"]


def test_a_recorded_native_run_can_be_replayed(stage: Stage, repository: Path) -> None:
    stage.script(calls(NATIVE["anthropic"]), calls(PROPOSE, FINISH))
    flags = ("--contract", "native", "--profile", "anthropic", "--dry-run")
    first = stage.run("--repo", str(repository), *TASK, *flags)
    again = stage.command("run", "--model", f"replay:{first.result['run']}", "--json", *flags)
    assert again.code == 0, again.err
    assert json.loads(again.out)["plan"] == first.result["plan"]


def test_a_subagent_works_on_the_same_clone_and_its_cost_counts(stage: Stage, repository: Path) -> None:
    def answer(request: RecordedRequest) -> Step:
        """Parent and child ask at the same time: each is answered by what it was told so far."""
        said = request.body["messages"]
        results = [str(message["content"]) for message in said if message["role"] == "tool"]
        if said[1]["content"] == "Change calc.py so that add() adds.":
            return reply("add() adds now.") if results else calls(NATIVE["anthropic"])
        if not results:
            return calls(("spawn_agent", {"task": "Change calc.py so that add() adds."}))
        if len(results) == 1:
            return calls(("wait", {"agent_id": results[0].partition("agent_id: ")[2].split()[0]}))
        assert "add() adds now." in results[1]
        return calls(PROPOSE, FINISH)

    stage.script(*[answer] * 5)
    done = stage.run("--repo", str(repository), *TASK, "--contract", "native", "--profile", "anthropic")
    assert done.result["outcome"] == "proposed", done.err
    assert done.result["rounds"] == 3
    (branch,) = branches(repository)
    assert content(repository, branch, "calc.py") + "\n" == FIXED
    events = stage.events()
    inner = [event["event"]["type"] for event in events if event["type"] == "SubagentEvent"]
    assert inner.count("ReplyReceived") == 2
    assert "SessionEnded" in inner
    told = [event.get("event", event) for event in events]
    tokens = [event["usage"]["input_tokens"] for event in told if event["type"] == "ReplyReceived"]
    assert len(tokens) == 5
    assert done.result["usage"]["input_tokens"] == sum(tokens)
    again = stage.command("run", "--model", f"replay:{done.result['run']}", "--repo", str(repository), *TASK)
    assert "used subagents" in again.err


def test_too_long_a_conversation_fails_with_a_clear_line_and_keeps_the_work(
    stage: Stage, repository: Path
) -> None:
    long = fail(400, {}, {"error": {"code": "context_length_exceeded", "message": "maximum context length"}})
    stage.script(calls(NATIVE["anthropic"]), long)
    done = stage.run("--repo", str(repository), *TASK, "--contract", "native", "--profile", "anthropic")
    assert done.result["outcome"] == "failed"
    assert "longer than the model can read" in done.result["error"]
    assert done.result["patch"]


@pytest.mark.parametrize("flag", ["--contract", "--profile"])
def test_an_unknown_name_is_one_clear_line(stage: Stage, repository: Path, flag: str) -> None:
    done = stage.run("--repo", str(repository), *TASK, flag, "nativ")
    assert done.code == 2
    assert flag.strip("-") in done.err
    assert "planner" in done.err or "native" in done.err


OFFER = "The pull request is open. Would you like me to also add tests?"
DONE_BUT_TALKS = [
    ("json-plan", do(FIX, PROPOSE), reply("All done: the pull request is open.")),
    ("json-plan", do(FIX, PROPOSE), reply(OFFER)),
    ("json-plan", do(FIX, PROPOSE), reply("")),
    ("json-plan", do(FIX, PROPOSE), plan("All is done.")),
    ("native", calls(NATIVE["anthropic"], PROPOSE), reply(OFFER)),
    ("native", calls(NATIVE["anthropic"], PROPOSE), reply("", finish="length")),
]


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
@pytest.mark.parametrize(("contract", "work", "last"), DONE_BUT_TALKS)
def test_after_the_pull_request_words_or_none_are_the_end(
    stage: Stage, repository: Path, contract: str, work: Step, last: Step
) -> None:
    stage.script(work, last)
    done = stage.run("--repo", str(repository), *TASK, "--contract", contract, "--profile", FOR[contract])
    assert (done.code, done.result["outcome"], done.result["question"]) == (0, "proposed", None), done.err
    assert len(stage.model.requests) == 2


FOR = {"json-plan": "planner", "native": "anthropic", "single-step": "anthropic"}


def test_what_is_proposed_stays_proposed_after_replies_that_nobody_can_read(
    stage: Stage, repository: Path
) -> None:
    """What is not in the pull request is kept for the next cycle, as after every other end."""
    more = ("edit_file", {"path": "README.md", "old_text": "# Calc", "new_text": "# Calculator"})
    stage.script(do(FIX, PROPOSE), do(more), *[reply('{"plan": "broken", "tool_calls": [}')] * 3)
    done = stage.run("--repo", str(repository), *TASK)
    assert (done.code, done.result["outcome"]) == (0, "proposed"), done.err
    assert "3 replies in a row" in done.err
    assert done.result["saved"]


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
@pytest.mark.parametrize(
    ("contract", "finish"), [("json-plan", "stop"), ("native", "length"), ("single-step", "stop")]
)
def test_three_empty_replies_are_the_end(stage: Stage, repository: Path, contract: str, finish: str) -> None:
    stage.script(*[reply("", finish=finish)] * 12)
    done = stage.run("--repo", str(repository), *TASK, "--contract", contract, "--profile", FOR[contract])
    assert (done.code, done.result["outcome"]) == (5, "limit")
    assert "3 replies in a row were empty" in done.result["reason"]
    assert ("--max-output-tokens" in done.result["reason"]) == (finish == "length")
    assert len(stage.model.requests) == 3


def test_before_a_pull_request_last_words_that_ask_are_a_question(stage: Stage, repository: Path) -> None:
    stage.script(reply("Which sign is meant?"), reply("Shall I change the sign?"))
    done = stage.run("--repo", str(repository), *TASK, "--contract", "native", "--profile", "anthropic")
    assert (done.code, done.result["outcome"]) == (4, "question")
    assert done.result["question"] == "Shall I change the sign?"


def test_what_the_user_wants_of_every_session_is_the_last_word(stage: Stage, repository: Path) -> None:
    stage.script(do(FIX), do(PROPOSE, FINISH))
    done = stage.run(
        "--repo",
        str(repository),
        "--task",
        "Fix add() in calc.py",
        "--dry-run",
        "--system-prompt",
        "Write British English.\nAlways.",
    )
    assert done.code == 0, done.err
    end = "They take precedence over everything above.\n\nWrite British English.\nAlways."
    assert stage.asked()[0]["content"].endswith(end)

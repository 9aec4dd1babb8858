"""What a model of few parameters is shown, and what becomes of the replies that such models give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.doubles.model_server import calls, reply
from tests.scenarios.stage import FILES, FINISH, PROPOSE, Stage, add_commit, branches, content, do, git

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.model_server import Step

TASK = ("--task", "Fix the bug in gcd.py. Its tests are in test_gcd.py.")
SMALL = ("--model", "openai-chat:qwen2.5-coder:1.5b")
NAMED = (*SMALL, "--contract", "json-plan")
GCD = '''def gcd(a, b):
    if b == 0:
        return a
    else:
        return gcd(a % b, b)


"""
Greatest Common Divisor

Input:
    a: A nonnegative int
    b: A nonnegative int

Output:
    The greatest int that divides evenly into a and b
"""
'''
RIGHT = GCD.replace("gcd(a % b, b)", "gcd(b, a % b)")
OTHER = """class BankAccount:
    def __init__(self, balance=0):
        self.balance = balance

    def deposit(self, amount):
        self.balance += amount
        return self.balance
"""
"""What a model of 1.5 billion parameters wrote in the place of a file."""

WHOLE = ("write_file", {"path": "gcd.py", "content": RIGHT})
SAME = (
    "edit_file",
    {"path": "gcd.py", "old_text": "    return gcd(a % b, b)", "new_text": "    return gcd(a % b, b)"},
)


@pytest.fixture
def gcd(repository: Path) -> Path:
    add_commit(repository, {**FILES, "gcd.py": GCD}, "Add gcd()")
    return repository


def file(text: str, words: str = "") -> Step:
    """A reply that is a file."""
    return reply(f"{words}\n\n```python\n{text}```")


def _offered(stage: Stage, number: int = 0) -> str:
    return str(stage.asked(number)[0]["content"])


def _profile(stage: Stage) -> str:
    return str(next(event for event in stage.events() if event["type"] == "CycleStarted")["profile"])


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
@pytest.mark.parametrize(
    ("flags", "parameters", "profile"),
    [
        (SMALL, None, "whole_file small"),
        (SMALL, 70e9, "whole_file small"),
        (NAMED, None, "json_plan small"),
        ((), 1.8e9, "whole_file small"),
        ((), 32e9, "json_plan planner"),
        ((), None, "json_plan planner"),
        (("--contract", "whole-file"), None, "whole_file small"),
        (("--contract", "native"), 1.8e9, "native small"),
        (("--contract", "single-step"), 1.8e9, "single_step small"),
        (("--model", "openai-chat:qwen3:32b"), 1.8e9, "json_plan planner"),
        (("--model", "openai-chat:claude-sonnet-4-5"), 1.8e9, "json_plan planner"),
        ((*NAMED, "--profile", "planner"), 1.8e9, "json_plan planner"),
    ],
)
def test_a_model_that_is_known_to_be_small_has_a_contract_and_a_profile_of_its_own(
    stage: Stage, gcd: Path, flags: tuple[str, ...], parameters: float | None, profile: str
) -> None:
    stage.model.parameters = parameters
    replies = {"whole_file": file(RIGHT), "json_plan": do(FINISH)}
    stage.script(replies.get(profile.partition(" ")[0], calls(FINISH)))
    stage.run("--repo", str(gcd), *TASK, *flags)
    started = next(event for event in stage.events() if event["type"] == "CycleStarted")
    assert f"{started['contract']} {started['profile']}" == profile


def test_its_reply_is_the_corrected_file(stage: Stage, gcd: Path) -> None:
    stage.script(file(RIGHT, "The arguments were swapped."))
    done = stage.run("--repo", str(gcd), *TASK, *SMALL)
    assert done.result["outcome"] == "proposed"
    assert done.result["pull_request"]["title"] == TASK[1]
    assert "The arguments were swapped." in done.result["pull_request"]["body"]
    (branch,) = branches(gcd)
    assert content(gcd, branch, "gcd.py") + "\n" == RIGHT
    system, first = stage.asked()
    body = stage.model.requests[0].body
    assert not {"tools", "response_format"} & set(body)
    assert body["temperature"] == 0.0
    for word in ("create_pull_request", "finish", "write_file", "JSON"):
        assert word not in f"{system['content']}{first['content']}"
    assert f"```python\n{GCD}```" in first["content"]
    assert "calc.py" not in first["content"]
    assert "Reply with the whole corrected `gcd.py` in one code block." in first["content"]


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(RIGHT.replace('"""', ""), id="cannot be read"),
        pytest.param(OTHER, id="another file"),
        pytest.param(GCD, id="as it was"),
        pytest.param(None, id="no file"),
    ],
)
def test_a_reply_that_is_refused_is_answered_and_then_drawn_anew(
    stage: Stage, gcd: Path, bad: str | None
) -> None:
    refused = reply("I cannot see a bug.") if bad is None else file(bad)
    stage.script(refused, refused, file(RIGHT))
    done = stage.run("--repo", str(gcd), *TASK, *SMALL)
    assert done.result["outcome"] == "proposed"
    assert [len(stage.asked(number)) for number in range(3)] == [2, 4, 2]
    assert stage.asked(2)[1]["content"].startswith(stage.asked(0)[1]["content"])
    assert [request.body.get("temperature") for request in stage.model.requests] == [0.0, None, None]
    (branch,) = branches(gcd)
    assert content(gcd, branch, "gcd.py") + "\n" == RIGHT


def test_the_item_of_a_checklist_is_ticked_in_a_block_of_its_own(stage: Stage, gcd: Path) -> None:
    add_commit(gcd, {"TODO.md": "# To do\n\n- [ ] Mend gcd.py\n"}, "Say what to do")
    ticked = "`TODO.md`:\n```markdown\n# To do\n\n- [x] Mend gcd.py\n```"
    stage.script(reply(f"`gcd.py`:\n```python\n{RIGHT}```\n\n{ticked}"))
    done = stage.run("--repo", str(gcd), *SMALL)
    assert done.result["outcome"] == "proposed"
    assert "Tick the item in `TODO.md`, too" in stage.told()
    (branch,) = branches(gcd)
    assert "- [x] Mend" in content(gcd, branch, "TODO.md")
    assert content(gcd, branch, "gcd.py") + "\n" == RIGHT


def test_it_is_asked_for_the_whole_file_with_few_words_and_no_question(stage: Stage, gcd: Path) -> None:
    stage.script(do(WHOLE, PROPOSE, FINISH))
    done = stage.run("--repo", str(gcd), *TASK, *NAMED)
    assert done.result["outcome"] == "proposed"
    assert done.result["rounds"] == 1
    (branch,) = branches(gcd)
    assert content(gcd, branch, "gcd.py") + "\n" == RIGHT
    shown = _offered(stage)
    assert "ask_question" not in shown
    assert '"tool_name": "write_file"' in shown
    stage.script(do(FINISH))
    stage.run("--repo", str(gcd), "--task", "Another", *NAMED, "--profile", "planner")
    assert len(shown) * 1.5 < len(_offered(stage, 1))


def test_its_likeliest_reply_is_taken_until_a_call_fails(stage: Stage, gcd: Path) -> None:
    stage.script(do(SAME), do(WHOLE), do(PROPOSE, FINISH))
    stage.run("--repo", str(gcd), *TASK, *NAMED)
    assert [request.body.get("temperature") for request in stage.model.requests] == [0.0, None, 0.0]
    stage.script(do(FINISH))
    stage.run("--repo", str(gcd), "--task", "Another", *NAMED, "--temperature", "0.3")
    assert stage.model.requests[-1].body["temperature"] == 0.3


def test_one_that_thinks_has_room_for_it_and_draws_its_thoughts(stage: Stage, gcd: Path) -> None:
    stage.script(do(FINISH), do(FINISH))
    for name in ("qwen2.5-coder:1.5b", "qwen3:1.7b"):
        stage.run("--repo", str(gcd), "--task", name, *NAMED, "--model", f"openai-chat:{name}")
        assert _profile(stage) == "small"
    plain, thinking = (request.body for request in stage.model.requests)
    assert plain["temperature"] == 0.0
    assert set(plain) - set(thinking) >= {"temperature"}
    longest = [key for key in plain if key.startswith("max_")]
    assert [plain[key] for key in longest] == [2_048]
    assert [thinking.get(key) for key in longest] == [None]


def test_what_guards_a_change_guards_whole_files(stage: Stage, gcd: Path) -> None:
    workflow = "on: push\n"
    secret = "ghp_" + "A1b2C3d4E5f6" * 3
    outside = [f"`{path}`\n```\nx\n```" for path in ("../outside.py", ".git/hooks/post-commit")]
    stage.script(
        reply(f"`.github/workflows/ci.yml`\n```yaml\n{workflow}```"),
        *map(reply, outside),
        file(f"{RIGHT}KEY = '{secret}'\n"),
        file(RIGHT),
    )
    done = stage.run("--repo", str(gcd), *TASK, *SMALL)
    assert done.result["outcome"] == "proposed"
    names = {event["name"] for event in stage.events() if event["type"] == "ToolCallStarted"}
    assert names <= {"write_file", "create_pull_request", "finish"}
    (branch,) = branches(gcd)
    assert secret not in content(gcd, branch, "gcd.py")
    assert ".github" not in git(gcd, "ls-tree", "-r", "--name-only", branch)


def test_a_small_model_that_may_only_look_has_plans(stage: Stage, gcd: Path) -> None:
    stage.script(do(FINISH))
    stage.run("--repo", str(gcd), *TASK, *SMALL, "--permission", "read-only")
    assert "tool_name" in str(stage.asked())


@pytest.mark.parametrize("profile", ["small", "planner"])
def test_a_file_is_not_overwritten_by_another_one(stage: Stage, gcd: Path, profile: str) -> None:
    wrong: tuple[str, dict[str, Any]] = ("write_file", {"path": "gcd.py", "content": OTHER})
    stage.script(do(wrong, PROPOSE, FINISH), do(WHOLE, PROPOSE, FINISH))
    done = stage.run("--repo", str(gcd), *TASK, "--profile", profile)
    assert "gcd.py was not replaced" in stage.told(1)
    assert done.result["outcome"] == "proposed"
    (branch,) = branches(gcd)
    assert content(gcd, branch, "gcd.py") + "\n" == RIGHT


def test_a_file_without_its_first_empty_line_is_no_repair(stage: Stage, gcd: Path) -> None:
    """What a model of 1.5 billion parameters sent: the same function, and none of the text behind it."""
    add_commit(gcd, {"gcd.py": f"\n{GCD}"}, "Begin with an empty line")
    same: tuple[str, dict[str, Any]] = (
        "write_file",
        {"path": "gcd.py", "content": GCD[: GCD.index("\n\n\n") + 1]},
    )
    stage.script(do(same, PROPOSE, FINISH), do(WHOLE, PROPOSE, FINISH))
    done = stage.run("--repo", str(gcd), *TASK, *NAMED)
    assert "its code would be the same" in stage.told(1)
    assert done.result["outcome"] == "proposed"
    (branch,) = branches(gcd)
    assert content(gcd, branch, "gcd.py") + "\n" == RIGHT


def test_what_cannot_be_read_is_not_written(stage: Stage, gcd: Path) -> None:
    """What a model of 1.5 billion parameters sent: the text behind the code, without its quotes."""
    bare: tuple[str, dict[str, Any]] = ("write_file", {"path": "gcd.py", "content": RIGHT.replace('"""', "")})
    function: tuple[str, dict[str, Any]] = (
        "write_file",
        {"path": "gcd.py", "content": RIGHT[: GCD.index("\n\n\n")]},
    )
    stage.script(do(bare, PROPOSE, FINISH), do(function, PROPOSE, FINISH))
    done = stage.run("--repo", str(gcd), *TASK, *NAMED)
    assert "gcd.py was not replaced: gcd.py cannot be read as Python" in stage.told(1)
    assert done.result["outcome"] == "proposed"
    (branch,) = branches(gcd)
    assert content(gcd, branch, "gcd.py") + "\n" == RIGHT


def test_only_what_it_changed_is_proposed_where_it_left_the_rest_out(stage: Stage, gcd: Path) -> None:
    function: tuple[str, dict[str, Any]] = (
        "write_file",
        {"path": "gcd.py", "content": RIGHT[: GCD.index("\n\n\n") + 1]},
    )
    stage.script(do(function, PROPOSE, FINISH))
    done = stage.run("--repo", str(gcd), *TASK, *NAMED)
    assert done.result["rounds"] == 1
    (branch,) = branches(gcd)
    assert content(gcd, branch, "gcd.py") + "\n" == RIGHT


def test_a_reply_that_does_not_end_is_cut(stage: Stage, gcd: Path) -> None:
    stage.script(do(FINISH))
    stage.run("--repo", str(gcd), *TASK, *NAMED)
    assert stage.model.requests[0].body["max_tokens"] == 2_048
    stage.script(do(FINISH))
    stage.run("--repo", str(gcd), "--task", "Another", *NAMED, "--max-output-tokens", "99")
    assert stage.model.requests[1].body["max_tokens"] == 99


def test_an_edit_that_changes_nothing_twice_is_answered_with_another_way(stage: Stage, gcd: Path) -> None:
    stage.script(do(SAME, PROPOSE), do(SAME, PROPOSE), do(WHOLE, PROPOSE, FINISH))
    done = stage.run("--repo", str(gcd), *TASK)
    assert "write_file" not in stage.told(1)
    assert f"call write_file for gcd.py with its whole text, all {len(GCD.splitlines())} lines" in stage.told(
        2
    )
    assert done.result["outcome"] == "proposed"


def test_what_it_wrote_and_only_talks_about_is_proposed(stage: Stage, gcd: Path) -> None:
    stage.script(
        calls(WHOLE), reply("I have fixed the bug."), reply("Would you like me to do anything else?")
    )
    done = stage.run("--repo", str(gcd), *TASK, *SMALL, "--contract", "native")
    assert done.result["outcome"] == "proposed"
    assert done.result["question"] is None
    (branch,) = branches(gcd)
    assert content(gcd, branch, "gcd.py") + "\n" == RIGHT


def test_last_words_that_may_not_leave_cost_the_words_alone(stage: Stage, gcd: Path) -> None:
    words = "I have fixed the bug with " + "ghp_" + "A1b2C3d4E5f6" * 3
    stage.script(calls(WHOLE), reply(words), reply(words))
    done = stage.run("--repo", str(gcd), *TASK, *SMALL, "--contract", "native")
    assert done.result["outcome"] == "proposed"
    body = done.result["pull_request"]["body"]
    assert "Take it for unfinished" in body
    assert "last words" not in body
    (branch,) = branches(gcd)
    assert content(gcd, branch, "gcd.py") + "\n" == RIGHT

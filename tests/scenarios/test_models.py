from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.doubles.model_server import cut, fail, fail_inside, malformed, reply, reset
from tests.scenarios.stage import FINISH, FIX, FIX_IT, PROPOSE, Stage, branches, do

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.model_server import Step

TASK = ("--task", "Fix add() in calc.py")

PASSING: list[tuple[str, Step]] = [
    ("429 with Retry-After", fail(429, {"Retry-After": "0"}, {"error": {"message": "slow down"}})),
    ("500", fail(500, {}, {"error": {"message": "oops"}})),
    ("503", fail(503, {}, {"error": {"message": "busy"}})),
    ("a broken connection", reset()),
    ("a stream that is cut", cut(FIX_IT.text)),
    ("a body that is no JSON", malformed()),
]


@pytest.mark.parametrize("step", [case[1] for case in PASSING], ids=[case[0] for case in PASSING])
def test_what_passes_is_tried_again(stage: Stage, repository: Path, step: Step) -> None:
    stage.script(step, FIX_IT)
    done = stage.run("--repo", str(repository), *TASK)
    assert done.code == 0, done.err
    assert len(stage.model.requests) == 2
    assert done.result["rounds"] == 1


LASTING: list[tuple[str, Step, str]] = [
    (
        "a bad key",
        fail(401, {}, {"error": {"message": "Incorrect API key", "code": "invalid_api_key"}}),
        "key",
    ),
    (
        "an unknown model",
        fail(404, {}, {"error": {"code": "model_not_found", "message": "no model"}}),
        "model",
    ),
    (
        "a long prompt",
        fail(400, {}, {"error": {"code": "context_length_exceeded", "message": "maximum context length"}}),
        "context",
    ),
    ("a limit that is far away", fail(429, {"Retry-After": "86400"}, {"error": {"message": "quota"}}), ""),
]


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
@pytest.mark.parametrize(("step", "words"), [case[1:] for case in LASTING], ids=[case[0] for case in LASTING])
def test_what_does_not_pass_is_one_clear_line(stage: Stage, repository: Path, step: Step, words: str) -> None:
    stage.script(step, FIX_IT)
    done = stage.run("--repo", str(repository), *TASK)
    assert done.code == 1
    assert words in done.result["error"].lower()
    assert "\n" not in done.result["error"]
    assert len(stage.model.requests) == 1
    assert branches(repository) == []


def test_an_error_inside_a_stream_is_told_apart(stage: Stage, repository: Path) -> None:
    stage.script(fail_inside("{", {"message": "Incorrect API key", "code": "invalid_api_key"}))
    assert stage.run("--repo", str(repository), *TASK).code == 1


@pytest.mark.parametrize(
    "wrap",
    ["```json\n{}\n```", "Sure, here is the plan:\n{}\nLet me know!", "<think>hm, {{}}</think>\n{}"],
)
def test_fences_and_prose_around_a_plan_are_no_obstacle(stage: Stage, repository: Path, wrap: str) -> None:
    stage.script(reply(wrap.replace("{{}}", "()").replace("{}", FIX_IT.text)))
    assert stage.run("--repo", str(repository), *TASK).code == 0


def test_trailing_commas_and_smart_quotes_are_mended(stage: Stage, repository: Path) -> None:
    text = '{\u201cplan\u201d: \u201cfix\u201d, "tool_calls": [%s,],}' % ",".join(  # noqa: UP031  braces
        json.dumps({"tool_name": name, "arguments": arguments}) for name, arguments in (FIX, PROPOSE, FINISH)
    )
    stage.script(reply(text))
    done = stage.run("--repo", str(repository), *TASK)
    assert done.code == 0, done.err
    accepted = [event for event in stage.events() if "repaired" in event]
    assert accepted[0]["repaired"] is True


def test_a_reply_over_the_length_limit_never_runs_its_last_call(stage: Stage, repository: Path) -> None:
    write = ("write_file", {"path": "long.txt", "content": "line\n" * 50})
    whole = do(FIX, write).text
    stage.script(reply(whole[:-60], finish="length"), do(PROPOSE, FINISH))
    done = stage.run("--repo", str(repository), *TASK)
    assert done.code == 0, done.err
    assert "cut off" in stage.told(1)
    assert "long.txt" not in done.result["pull_request"]["body"]
    names = {event["name"]: event["status"] for event in stage.events() if "status" in event}
    assert names == {
        "edit_file": "ok",
        "write_file": "skipped",
        "create_pull_request": "ok",
        "finish": "ok",
    }


def test_the_reply_is_constrained_to_the_schema_where_the_server_can(stage: Stage, repository: Path) -> None:
    stage.script(FIX_IT)
    stage.run("--repo", str(repository), *TASK)
    form = stage.model.requests[0].body["response_format"]
    assert form["type"] == "json_schema"
    assert "tool_calls" in json.dumps(form)


def test_a_server_that_cannot_is_asked_without(stage: Stage, repository: Path) -> None:
    refusal = {
        "error": {"message": "response_format json_schema is not supported", "type": "invalid_request_error"}
    }
    stage.script(fail(400, {}, refusal), FIX_IT)
    assert stage.run("--repo", str(repository), *TASK).code == 0
    assert "response_format" not in stage.model.requests[1].body


def test_the_prefix_of_a_conversation_never_changes(stage: Stage, repository: Path) -> None:
    stage.script(do(("read_file", {"path": "calc.py"})), do(FIX), do(PROPOSE, FINISH))
    stage.run("--repo", str(repository), *TASK)
    first, second, third = (stage.asked(number) for number in range(3))
    assert second[: len(first)] == first
    assert third[: len(second)] == second


def test_sampling_is_sent_only_where_configured(stage: Stage, repository: Path) -> None:
    stage.script(FIX_IT)
    stage.run("--repo", str(repository), *TASK)
    body = stage.model.requests[0].body
    assert not {"temperature", "top_p", "max_tokens", "max_completion_tokens"} & body.keys()
    stage.script(do(("finish", {"reason": "x"})))
    stage.run("--repo", str(repository), "--task", "other", "--temperature", "0.5")
    assert stage.model.requests[1].body["temperature"] == 0.5

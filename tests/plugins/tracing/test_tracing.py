"""Traces, from the program to a collector that reads them with the official parser."""

from __future__ import annotations

import io
import json
import re
import socket
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from opentelemetry.semconv._incubating.attributes import (
    error_attributes,
    gen_ai_attributes,
    server_attributes,
    vcs_attributes,
)

from orchestrator.bot.suggestions import install_command
from tests.doubles.collector import Collector
from tests.doubles.model_server import calls, fail, reply
from tests.scenarios.stage import FILES, FINISH, FIX, FIX_IT, PROPOSE, add_commit, do, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.doubles.model_server import RecordedRequest, Step
    from tests.scenarios.stage import Stage

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
TASK = "Fix add() in calc.py"

KEY = "canary-0f9e8d7c6b5a"
"""A secret of the environment, which the program knows."""
IN_A_FILE = "canary_in_a_file"
"""A word of the repository, which nobody called a secret."""


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as collector:
        monkeypatch.setenv(ENDPOINT, collector.root)
        yield collector


def known_names() -> set[str]:
    """The names of attributes in the official package of the conventions."""
    modules = (gen_ai_attributes, error_attributes, server_attributes, vcs_attributes)
    return {
        value
        for one in modules
        for name, value in vars(one).items()
        if name.isupper() and isinstance(value, str)
    }


def test_a_cycle_is_a_trace_of_rounds_requests_and_calls_without_a_word_of_their_text(
    stage: Stage, tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_TOKEN", KEY)
    monkeypatch.setenv(HEADERS, "authorization=Basic%20dXNlcjpwYXNzd29yZA==,x-team=canary-of-a-header")
    repository = make_repository(tmp_path / "canary-place", {**FILES, "note.txt": f"{IN_A_FILE}\n"})
    read, invented = ("read_file", {"path": "note.txt"}), (f"tell_{IN_A_FILE}", {"to": IN_A_FILE})
    spoken = calls(read, invented, FIX, text=f"I read canary words and {KEY}.")
    hostile = [
        {**call, "id": name} for call, name in zip(spoken.tool_calls, ("call_1", KEY, "a b"), strict=True)
    ]
    stage.script(
        replace(spoken, tool_calls=tuple(hostile)),
        fail(500, {"Retry-After": "0"}),
        calls(PROPOSE),
        reply("Canary: done."),
    )
    done = stage.run("--repo", str(repository), "--task", f"{TASK}, canary", "--contract", "native")
    assert done.result["outcome"] == "proposed", done.err

    (cycle,) = collector.roots
    rounds = [
        ["chat scripted-1", "execute_tool read_file", "execute_tool _OTHER", "execute_tool edit_file"],
        ["chat scripted-1", "execute_tool create_pull_request"],
        ["chat scripted-1"],
    ]
    assert cycle.shape == ("invoke_agent pullwright", [("round", names) for names in rounds])
    assert all(
        above.start <= one.start <= one.end <= above.end for above in cycle.walk() for one in above.children
    )
    phases = [attributes["pullwright.phase"] for name, attributes in cycle.events if name == "phase"]
    assert phases == ["choose", "clone", "plan", "act", "propose", "act", "finish"]

    run, served = (
        done.result["run"],
        {"server.address": "127.0.0.1", "server.port": int(stage.model.root[-5:])},
    )
    asked = {"gen_ai.provider.name": "openai", "gen_ai.request.model": "scripted-1", **served}
    common = {"gen_ai.conversation.id": run, **asked}
    assert cycle.attributes.items() >= {"gen_ai.operation.name": "invoke_agent", **common}.items()
    assert cycle.attributes.items() >= {"pullwright.outcome": "proposed", "vcs.change.id": "1"}.items()
    first, second, *_ = [one for one in cycle.walk() if one.name == "chat scripted-1"]
    usage = {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": len(spoken.text) // 4 + 1}
    end = {"gen_ai.response.model": "scripted-1", "gen_ai.response.finish_reasons": ["tool_calls"]}
    assert first.kind == "client"
    assert first.attributes == {"gen_ai.operation.name": "chat", **common, **usage, **end}
    assert [name for name, _ in second.events] == ["retry"]
    called = [one for one in cycle.walk() if one.name.startswith("execute_tool")]
    assert [one.attributes["gen_ai.tool.call.id"] for one in called[:3]] == ["call_1", "_OTHER", "_OTHER"]
    assert [one.attributes.get("error.type") for one in called] == [None, "failed", None, None]
    assert [one.is_error for one in called] == [False, True, False, False]
    used = {name for one in cycle.walk() for name in one.attributes}
    assert {name for name in used if not name.startswith("pullwright.")} - known_names() == set()

    assert collector.resource["service.name"] == "pullwright"
    assert collector.scopes == {("pullwright", "https://opentelemetry.io/schemas/1.41.1")}
    assert collector.headers[0]["x-team"] == "canary-of-a-header"
    sent = b"".join(collector.bodies).lower()
    assert b"execute_tool" in sent
    assert [
        word for word in ("canary", "fix add", "it subtracted", str(Path.home())) if word.encode() in sent
    ] == []
    assert "canary-of-a-header" not in done.err + json.dumps(stage.events())


REFUSES = "it answers with status 500"
IS_AWAY = "connection refused"


@pytest.mark.parametrize("why", [REFUSES, IS_AWAY])
def test_a_collector_that_takes_nothing_costs_one_line(
    stage: Stage, repository: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == REFUSES:
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")  # milliseconds: many requests, all of which fail
    else:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1.5")  # seconds: the library tries once more
    stage.script(do(FIX), do(PROPOSE, FINISH))
    with Collector(status=500) as refusing, socket.create_server(("127.0.0.1", 0)) as closed:
        away = f"127.0.0.1:{closed.getsockname()[1]}"
        where = refusing.root.rpartition("/")[2] if why == REFUSES else away
        closed.close()
        monkeypatch.setenv(ENDPOINT, f"http://user:password-of-it@{where}/secret-path")
        done = stage.run("--repo", str(repository), "--task", TASK)
    assert (done.code, done.result["outcome"]) == (0, "proposed")
    assert done.err.count(f"traces do not reach {where}, and the work goes on without them: {why}\n") == 1
    assert [word for word in ("password-of-it", "secret-path", "Traceback") if word in done.err] == []
    assert done.err.count(where) == 1


def test_each_reply_of_a_conversation_is_a_trace_of_its_own(
    stage: Stage, repository: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "bot-of-the-team")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=office")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    model = ["--model", "openai-chat:scripted-1", "--api-url", stage.model.url, "--profile", "chat"]
    monkeypatch.setattr("sys.stdin", io.StringIO("What is it?\nAnd why?\n"))
    stage.script(calls(("read_file", {"path": "calc.py"})), reply("It subtracts."), fail(401))
    assert stage.command("chat", *model).code == 0
    first, second = collector.roots
    rounds = [("round", ["chat scripted-1", "execute_tool read_file"]), ("round", ["chat scripted-1"])]
    assert first.shape == ("invoke_agent pullwright", rounds)
    assert second.shape == ("invoke_agent pullwright", rounds[1:])
    assert first.attributes["gen_ai.conversation.id"] == second.attributes["gen_ai.conversation.id"]
    assert first.trace != second.trace
    assert [one.attributes.get("error.type") for one in second.walk()] == [
        "AuthenticationError",
        None,
        "AuthenticationError",
    ]
    named = {"service.name": "bot-of-the-team", "deployment.environment.name": "office"}
    assert collector.resource.items() >= named.items()


def test_what_a_subagent_does_is_part_of_the_call_that_started_it(
    stage: Stage, repository: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)

    def answer(request: RecordedRequest) -> Step:
        """The subagent reads a file; the other one waits for it."""
        said = request.body["messages"]
        read = calls(("read_file", {"file_path": "calc.py"}))
        if TASK in str(said[1]):
            return read if len(said) == len(("system", "task")) else reply("It subtracts.")
        found = re.search(r"agent_id: ([\w-]+)", str(said))
        return (
            calls(("wait", {"agent_id": found[1]})) if found and "success" not in str(said) else reply("Yes.")
        )

    stage.script(calls(("spawn_agent", {"task": TASK})), *[answer] * 4)
    model = ["--model", "openai-chat:scripted-1", "--api-url", stage.model.url, "--profile", "openai"]
    assert stage.command("ask", *model, "Is it right?").code == 0
    (trace,) = collector.roots
    request, last = "chat scripted-1", ("round", ["chat scripted-1"])
    subagent = ("invoke_agent subagent", [("round", [request, "execute_tool read_file"]), last])
    first, *others = [one.shape for one in trace.children]
    assert first == ("round", [request, ("execute_tool spawn_agent", [subagent])])
    assert others == [("round", [request, "execute_tool wait"]), last]


def test_the_cycles_of_a_worker_are_traces_of_one_process(
    stage: Stage, tmp_path: Path, collector: Collector
) -> None:
    for name in ("one", "two"):
        add_commit(make_repository(tmp_path / name), {"BACKLOG.md": "- [ ] Fix add()\n"}, "Plan")
    file = tmp_path / "fleet.toml"
    file.write_text(
        f'[defaults]\nmodel = "openai-chat:scripted-1"\napi_url = "{stage.model.url}"\n'
        '[[repository]]\nname = "./one"\n[[repository]]\nname = "./two"\n'
    )
    stage.script(FIX_IT, FIX_IT)
    done = stage.command("worker", "--config", str(file), "--once", "--json")
    traces = {one.attributes["gen_ai.conversation.id"]: one for one in collector.roots}
    assert {name: one.attributes["pullwright.outcome"] for name, one in traces.items()} == {
        result["run"]: result["outcome"] for result in done.results
    }
    assert len({one.trace for one in traces.values()}) == len(traces) == 2
    assert (
        len({request.resource_spans[0].resource.SerializeToString() for request in collector.requests}) == 1
    )


def test_without_a_usable_variable_one_line_says_why_and_the_work_goes_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [
        (
            ENDPOINT,
            "localhost:4318",
            f"{ENDPOINT} is no address of a collector: write it as http://HOST:4318",
        ),
        (ENDPOINT, "http://a:b:c", f"{ENDPOINT} is no address of a collector: write it as http://HOST:4318"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "traces are sent by http/protobuf only"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "few", "a variable of OpenTelemetry (OTEL_...) makes no sense: "),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "-1", "a variable of OpenTelemetry (OTEL_...) makes no sense: "),
    ]
    for name, value, words in cases:
        with monkeypatch.context() as patch:
            patch.setenv(ENDPOINT, "http://127.0.0.1:9")
            patch.setenv(name, value)
            done = stage.command("run", "--demo")
            told = [line for line in done.err.splitlines() if "no traces are sent" in line]
            assert (done.code, len(told)) == (0, 1), (name, done.err)
            assert words in told[0]
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    with suppress(KeyError):
        monkeypatch.delitem(sys.modules, "orchestrator.plugins.tracing.spans")
    monkeypatch.setitem(
        sys.modules, "opentelemetry.sdk.resources", None
    )  # as where the extra is not installed
    for command in (("run", "--demo"), ("ask", "--model", "echo", "Hi")):
        done = stage.command(*command)
        assert done.code == 0
        assert (
            f"no traces are sent: {ENDPOINT} asks for traces, which need the package opentelemetry.sdk.resources: "
            f"{install_command('otel')}; OTEL_SDK_DISABLED=true switches tracing off" in done.err
        )

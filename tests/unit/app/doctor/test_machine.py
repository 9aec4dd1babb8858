from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from orchestrator.app.doctor import diagnose
from orchestrator.app.doctor.findings import ProbeState
from tests.doubles.loopback import Loopback, LoopbackHandler
from tests.doubles.model_server import MODEL, NO_OTHERS, ModelServer, fail, reply

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.app.doctor.findings import ProbeFinding


KEY = "sk-made-up-0123456789"
NAMED = f"openai-chat:{MODEL}"


def probe(
    folder: Path, environ: dict[str, str] | None = None, *, writes: bool = False, **flags: Any
) -> dict[str, dict[str, ProbeFinding]]:
    state = {"PULLWRIGHT_HOME": str(folder / "home"), "PULLWRIGHT_CONFIG": "/dev/null"}
    environ = {**NO_OTHERS, **(environ or {}), **state}
    groups: dict[str, dict[str, ProbeFinding]] = {}
    for result in diagnose(None, flags, environ, folder, writes=writes):
        groups.setdefault(result.group, {})[result.probe] = result.finding
    return groups


def of(groups: dict[str, dict[str, ProbeFinding]], title: str = "Model") -> dict[str, ProbeFinding]:
    (found,) = (probes for name, probes in groups.items() if name.startswith(f"{title} "))
    return found


class Vendor(Loopback):
    """Answers every GET with one reply, and remembers what came."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(_Answers)
        self.status, self.body, self.moved_to = status, body, ""
        self.seen: list[tuple[str, dict[str, str]]] = []


class _Answers(LoopbackHandler):
    def do_GET(self) -> None:  # noqa: N802  the base class calls it so
        vendor = self.server.owner
        vendor.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        payload = json.dumps(vendor.body).encode()
        self.send_response(vendor.status)
        self.send_header("Content-Type", "application/json")
        if vendor.moved_to:
            self.send_header("Location", vendor.moved_to)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)


def test_a_model_that_is_there(tmp_path: Path) -> None:
    with ModelServer([reply("ok")]) as server:
        bound = (f"openai={urlsplit(server.url).netloc}",)
        environ = {"OPENAI_API_KEY": KEY}
        found = of(probe(tmp_path, environ, model=NAMED, api_url=server.url, price="3/15", key_host=bound))
        assert server.requests == []
    assert {one.state for name, one in found.items() if name != "window"} == {ProbeState.OK}
    assert found["key"].found.startswith("OPENAI_API_KEY, for 127.0.0.1")
    assert found["price"].found == "3/15 US dollars a million tokens, by --price"
    assert "reply" not in found


def test_only_with_write_a_request_is_made(tmp_path: Path) -> None:
    with ModelServer([reply("ok")]) as server:
        found = of(probe(tmp_path, model=NAMED, api_url=server.url, writes=True))
        (request,) = server.requests
    assert found["reply"].state is ProbeState.OK
    assert request.body.get("max_tokens", request.body.get("max_completion_tokens")) == 16
    assert "none is set" in found["key"].found


def test_a_reply_that_fails(tmp_path: Path) -> None:
    with ModelServer([fail(401)]) as server:
        environ = {"PULLWRIGHT_API_KEY": KEY}
        found = of(probe(tmp_path, environ, model=NAMED, api_url=server.url, writes=True))
    assert found["reply"].state is ProbeState.FAILED
    assert "401" in found["reply"].found
    assert "PULLWRIGHT_API_KEY" in found["reply"].fix


@pytest.mark.parametrize(
    ("flags", "name", "state", "words"),
    [
        ({}, "key", ProbeState.FAILED, "pass --model"),
        ({"model": "openai:gpt-5.2"}, "key", ProbeState.FAILED, "set OPENAI_API_KEY"),
        ({"model": "anthropic:claude-sonnet-4-5"}, "key", ProbeState.FAILED, "set ANTHROPIC_API_KEY"),
        ({"model": "nobody:x"}, "key", ProbeState.FAILED, "--model"),
        ({"model": "replay:last"}, "key", ProbeState.FAILED, "--model"),
        (
            {"model": NAMED, "api_url": "http://127.0.0.1:9/v1"},
            "server",
            ProbeState.FAILED,
            "start the server",
        ),
        ({"model": NAMED, "api_url": "http://127.0.0.1:9/v1"}, "price", ProbeState.WARNING, "--price IN/OUT"),
        (
            {"model": NAMED, "api_url": "http://127.0.0.1:9/v1", "max_usd_per_day": 5.0},
            "price",
            ProbeState.FAILED,
            "--max-tokens-per-day",
        ),
    ],
)
def test_what_is_wrong_with_a_model(
    tmp_path: Path, flags: dict[str, Any], name: str, state: ProbeState, words: str
) -> None:
    found = of(probe(tmp_path, **flags))
    assert found[name].state is state, found
    assert words in found[name].fix
    if name == "key":
        assert {one.state for probe, one in found.items() if probe != "key"} == {ProbeState.SKIPPED}


def test_a_server_that_does_not_list_the_model(tmp_path: Path) -> None:
    with ModelServer() as server:
        found = of(probe(tmp_path, model="openai-chat:other", api_url=server.url))["server"]
    assert found.state is ProbeState.WARNING  # gateways answer for more than they list
    assert MODEL in found.fix


@pytest.mark.parametrize(
    ("model", "path", "header"),
    [
        ("anthropic:claude-x", "/v1/models/claude-x", "x-api-key"),
        ("gemini:gemini-x", "/v1beta/models/gemini-x", "x-goog-api-key"),
        ("openai-responses:gpt-x", "/v1/models", "authorization"),
        ("openai-chat:gpt-x", "/v1/models", "authorization"),
    ],
)
@pytest.mark.parametrize("status", [200, 401, 404, 429, 500])
def test_each_protocol_asks_for_its_model(
    tmp_path: Path, model: str, path: str, header: str, status: int
) -> None:
    name = model.partition(":")[2]
    body = {"data": [{"id": name}], "inputTokenLimit": 5000, "error": {"message": f"no, {KEY}"}}
    with Vendor(status, body if status != 200 else {**body, "error": None}) as vendor:
        found = of(probe(tmp_path, {"PULLWRIGHT_API_KEY": KEY}, model=model, api_url=vendor.root))
        seen, headers = vendor.seen[0]
    assert seen == path
    assert KEY in headers[header]
    lists = status == 404 and not model.startswith(("anthropic", "gemini"))
    states = {200: ProbeState.OK, 404: ProbeState.SKIPPED if lists else ProbeState.FAILED}
    assert found["server"].state is states.get(status, ProbeState.FAILED)
    if status == 401:
        assert "set PULLWRIGHT_API_KEY" in found["server"].fix
    if status == 200 and model.startswith("gemini"):
        assert found["window"].found == "5,000 tokens"


def test_fallback_models_have_probes_of_their_own(tmp_path: Path) -> None:
    with ModelServer() as server:
        flags: dict[str, Any] = {
            "model": NAMED,
            "api_url": server.url,
            "fallback_model": ["anthropic:claude-sonnet-4-5"],
        }
        groups = probe(tmp_path, {"PULLWRIGHT_API_KEY": KEY}, **flags)
    assert of(groups)["server"].state is ProbeState.OK
    other = of(groups, "Fallback model")
    assert other["key"].state is ProbeState.FAILED
    assert "ANTHROPIC_API_KEY" in other["key"].fix
    assert other["server"].state is ProbeState.SKIPPED


def test_a_key_does_not_travel_where_it_is_not_meant_for(tmp_path: Path) -> None:
    with ModelServer() as server:
        probe(tmp_path, {"ANTHROPIC_API_KEY": KEY}, model=NAMED, api_url=server.url)
    with Vendor(200, {"data": []}) as vendor:
        probe(tmp_path, {"ANTHROPIC_API_KEY": KEY}, model=NAMED, api_url=vendor.root)
        assert KEY not in str(vendor.seen)


@pytest.mark.parametrize("model", ["anthropic:x", "openai-chat:x"])
def test_a_key_follows_no_redirection(tmp_path: Path, model: str) -> None:
    with Vendor(200, {"data": []}) as other, Vendor(302, {}) as vendor:
        vendor.moved_to = f"{other.root}/v1/models"
        found = of(probe(tmp_path, {"PULLWRIGHT_API_KEY": KEY}, model=model, api_url=vendor.root))
        assert other.seen == []
    assert found["server"].state is ProbeState.FAILED


def test_models_of_this_machine_are_offered(tmp_path: Path) -> None:
    with ModelServer() as server:
        environ = {"OLLAMA_HOST": server.url.removesuffix("/v1")}
        finding = probe(tmp_path, environ)["This machine"]["local models"]
        assert f"Ollama at {server.url} has {MODEL}: --api-url {server.url}" in finding.found

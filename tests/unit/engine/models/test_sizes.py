"""How large a model is, by its name and by what its server says."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from orchestrator.engine.models.catalog import is_reasoning_model, is_small, parameters_named
from orchestrator.engine.models.listing import parameters_served
from tests.doubles.loopback import Loopback, LoopbackHandler
from tests.tables import table


@table(
    ("name", "parameters"),
    [
        ("qwen2.5-coder:1.5b", 1.5e9),
        ("qwen2.5-coder:1.5b-instruct-q4_k_m", 1.5e9),
        ("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", 1.5e9),
        ("meta-llama/Llama-3.2-3B-Instruct", 3e9),
        ("llama3.1:8b", 8e9),
        ("deepseek-coder:6.7b", 6.7e9),
        ("smollm2:360m", 360e6),
        ("gemma-3-270m-it", 270e6),
        ("qwen3:30b-a3b", 30e9),
        ("mixtral:8x7b", 56e9),
        ("Qwen2.5-7B-Instruct-1M", 7e9),
        ("gpt-oss-120b", 120e9),
        ("glm-4.5-air-1m", None),
        ("llama3.2", None),
        ("coder", None),
        ("phi-4-128k", None),
        ("model-b", None),
        ("v2b3b4", None),
        ("", None),
    ],
)
def test_the_parameters_that_a_name_says(name: str, parameters: float | None) -> None:
    assert parameters_named(name) == parameters


@table(
    ("name", "served", "small"),
    [
        ("coder", 1.8e9, True),
        ("coder", 32e9, False),
        ("coder", None, False),
        ("qwen3:32b", 1.8e9, False),
        ("qwen2.5-coder:7b", None, False),
        ("qwen2.5-coder:3b", None, True),
        ("phi3:3.8b", 70e9, True),
        ("gemini-1.5-flash-8b", None, False),
        ("gpt-oss-2b", None, False),
    ],
)
def test_a_vendor_s_own_model_is_never_small(name: str, served: float | None, small: bool) -> None:  # noqa: FBT001
    assert is_small(name, served) is small


@table(
    ("name", "thinking"),
    [
        ("qwen3:4b", True),
        ("Qwen/Qwen3-1.7B", True),
        ("deepseek-r1:1.5b", True),
        ("Qwen3-4B-Thinking-2507", True),
        ("phi4-mini-reasoning:3.8b", True),
        ("qwen2.5-coder:1.5b", False),
        ("llama3.2:3b", False),
        ("smollm2:360m", False),
    ],
)
def test_a_model_that_thinks_is_known_by_its_name(name: str, thinking: bool) -> None:  # noqa: FBT001
    assert is_reasoning_model(name) is thinking


class _Models(Loopback):
    def __init__(self, status: int, listing: Any, *, pause: float | None = None) -> None:
        super().__init__(_Handler)
        self.pause = pause  # seconds before each byte
        self.answer = status, json.dumps(listing).encode()


class _Handler(LoopbackHandler):
    def do_GET(self) -> None:  # noqa: N802  the base class calls it so
        status, body = self.server.owner.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        owner = self.server.owner
        if owner.pause is None:
            self.wfile.write(body)
            return
        with suppress(OSError):
            for byte in body:
                owner.closing.wait(owner.pause)
                self.wfile.write(bytes((byte,)))


def _entry(name: str, **meta: Any) -> dict[str, Any]:
    return {"id": name, "meta": meta}


@table(
    ("status", "listing", "parameters"),
    [
        (200, {"data": [_entry("/models/coder.gguf", n_params=1_777_088_000)]}, 1_777_088_000),
        (200, {"data": [_entry("a", n_params=1e9), _entry("coder", n_params=2e9)]}, 2e9),
        (200, {"data": [_entry("a", n_params=1e9), _entry("b", n_params=2e9)]}, None),
        (200, {"data": [{"id": "coder"}]}, None),
        (200, {"data": [{"id": "coder", "meta": None}]}, None),
        (200, {"data": [_entry("coder", n_params="many")]}, None),
        (200, {"data": [_entry("coder", n_params=-1)]}, None),
        (200, {"data": [_entry("coder", n_params=10**400)]}, None),
        (200, {"data": []}, None),
        (200, [], None),
        (404, {"error": "no"}, None),
    ],
)
def test_the_parameters_that_a_server_says(status: int, listing: Any, parameters: float | None) -> None:
    with _Models(status, listing) as server:
        assert parameters_served(f"{server.root}/v1", None, "coder") == parameters


def test_a_server_that_speaks_without_an_end_says_nothing() -> None:
    listing = {"data": [_entry("coder", n_params=2e9)]}
    with _Models(200, listing, pause=0.02) as server:
        assert parameters_served(f"{server.root}/v1", None, "coder", seconds=0.2) is None


def test_a_server_that_is_not_there_says_nothing() -> None:
    with _Models(200, {}) as server:
        gone = f"{server.root}/v1"
    assert parameters_served(gone, None, "coder") is None

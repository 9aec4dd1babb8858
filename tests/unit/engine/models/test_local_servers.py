from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.models.listing import local_servers, only_model
from tests.doubles.model_server import ModelServer


def at(server: ModelServer) -> dict[str, str]:
    """Ollama's own variable for the place where it listens."""
    return {"OLLAMA_HOST": urlsplit(server.url).netloc}


def of_ollama(environ: dict[str, str]) -> list[tuple[tuple[str, ...], str]]:
    """What is found in Ollama's place; others may be running on this machine."""
    return [(one.models, one.flags) for one in local_servers(environ) if one.program == "Ollama"]


def test_a_server_with_one_model_needs_only_its_address() -> None:
    with ModelServer() as server:
        server.listed = ("nomic-embed-text:latest", "qwen3:8b")
        assert of_ollama(at(server)) == [(("qwen3:8b",), f"--api-url {server.url}")]
        assert only_model(server.url, None) == "qwen3:8b"


def test_with_several_models_one_is_named() -> None:
    with ModelServer() as server:
        server.listed = ("qwen3:8b", "devstral:24b")
        (found,) = of_ollama(at(server))
        assert found == (server.listed, f"--api-url {server.url} --model qwen3:8b")
        with pytest.raises(ConfigurationError, match="has qwen3:8b, devstral:24b"):
            only_model(server.url, None)


@pytest.mark.parametrize("listed", [(), ("all-minilm:22m",), ("a\x1b[31mb",), ("n" * 400,)])
def test_a_server_without_a_usable_model_is_none(listed: tuple[str, ...]) -> None:
    with ModelServer() as server:
        server.listed = listed
        assert of_ollama(at(server)) == []


@pytest.mark.parametrize("host", ["example.org:{}", "192.0.2.1:{}", "127.0.0.1:x", "0.0.0.0:{}"])
def test_no_other_machine_is_asked(host: str) -> None:
    with ModelServer() as server:
        port = urlsplit(server.url).port
        of_ollama({"OLLAMA_HOST": host.format(port)})
        assert server.connections == 0


def test_a_proxy_is_not_asked_for_a_server_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:9")
    with ModelServer() as server:
        assert of_ollama(at(server))

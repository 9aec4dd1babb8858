"""Queries a server for its models and their sizes, and finds the model servers on this machine."""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from shlex import quote as quoted
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from orchestrator.core.addresses import is_loopback
from orchestrator.core.errors import ConfigurationError, ConnectionFailedError, ProviderError
from orchestrator.core.http_client import UNCOMPRESSED, Answer, FailureKind, NoAnswer, ask_now, ask_server
from orchestrator.core.json_rpc import read_json
from orchestrator.core.messages import Message
from orchestrator.engine.models.base import Request
from orchestrator.engine.models.catalog import ModelRef, Provider
from orchestrator.engine.models.wire import as_object, dicts, endpoint, host_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from orchestrator.core.messages import JsonObject
    from orchestrator.engine.models.wire import Wire


_TIMEOUT_SECONDS = 15.0
_SIZE_TIMEOUT_SECONDS = 3.0
_SHOWN_NAMES = 8
_MOST_NAME_CHARS = 300
_MAKES_VECTORS = re.compile(r"embed|rerank|\bbge-|minilm", re.IGNORECASE)


def only_model(api_url: str, api_key: str | None) -> str:
    """Return the name of the only model on a server.

    The list is that of https://platform.openai.com/docs/api-reference/models/list, which compatible servers
    have, too.

    Raises:
        ConfigurationError: the server has none or several models, or cannot be queried.
    """
    ask = f"name a model with --model: {host_of(_list_url(api_url))}"
    listed = _model_list(api_url, api_key, _TIMEOUT_SECONDS)
    if isinstance(listed, str):
        raise ConfigurationError(f"{ask} {listed}")
    names = _chat_models(listed)
    if len(names) != 1:
        raise ConfigurationError(f"{ask} has {some_names(names)}")
    return names[0]


def _chat_models(listed: list[JsonObject]) -> tuple[str, ...]:
    """Return the names of the models that can chat, without embedding models."""
    names = (str(entry["id"]) for entry in listed if entry.get("id"))
    usable = (name for name in names if name.isprintable() and len(name) <= _MOST_NAME_CHARS)
    return tuple(name for name in usable if not _MAKES_VECTORS.search(name))


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A model server on this machine.

    Attributes:
        program: the usual program at this port; it may be another one.
        api_url: the value for `--api-url`.
    """

    program: str
    api_url: str
    models: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.program} at {self.api_url} has {some_names(self.models)}"

    @property
    def flags(self) -> str:
        """The command-line options that select its first model."""
        name = f" --model {quoted(self.models[0])}" if len(self.models) > 1 else ""
        return f"--api-url {self.api_url}{name}"


_OLLAMA = "Ollama"
USUAL_PORTS = (
    (_OLLAMA, 11434),
    ("LM Studio", 1234),
    ("llama.cpp", 8080),
    ("llama.cpp", 9931),  # its announced next default
    ("vLLM", 8000),
)
OLLAMA_HOST = "OLLAMA_HOST"
"""The variable with Ollama's address: https://github.com/ollama/ollama/blob/main/docs/faq.mdx"""
MODEL_PORTS = "PULLWRIGHT_MODEL_PORTS"
"""Ports to look at instead of the usual ones, separated by commas; `none` looks at none."""
_HOST = "127.0.0.1"
_MOST_PORTS = 20
_HIGHEST_PORT = 65_535
_CONNECT_SECONDS = 0.3
_LIST_SECONDS = 2.0


def local_servers(environ: Mapping[str, str]) -> tuple[LocalServer, ...]:
    """Find the model servers on this machine that have a model, at their usual ports.

    All ports are queried concurrently, without a key. Only loopback addresses are used, whatever `OLLAMA_HOST` says.

    Raises:
        ConfigurationError: `PULLWRIGHT_MODEL_PORTS` is not a list of ports.
    """
    from concurrent.futures import ThreadPoolExecutor

    places = _places(environ)
    if not places:
        return ()
    with ThreadPoolExecutor(len(places)) as pool:
        found = pool.map(lambda place: _local_server(*place), places)
    return tuple(server for server in found if server is not None)


def places_in_words(environ: Mapping[str, str]) -> str:
    """Return the places that `local_servers` queries, in words."""
    return ", ".join(f"{program} {port}" for program, port in _places(environ)) or "none"


def _places(environ: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return each program with its port. The port in `OLLAMA_HOST` is always included."""
    places = _chosen_places(environ.get(MODEL_PORTS, "").strip())
    named = urlsplit(f"//{environ.get(OLLAMA_HOST, '').strip().removeprefix('http://')}")
    with suppress(ValueError):  # a port that is not a number
        if named.port and is_loopback(named.hostname or ""):
            others = [one for one in places if one[0] != _OLLAMA and one[1] != named.port]
            return [(_OLLAMA, named.port), *others]
    return places


def _chosen_places(text: str) -> list[tuple[str, int]]:
    if not text:
        return list(USUAL_PORTS)
    words = [] if text == "none" else [word.strip() for word in text.split(",")]
    good = [int(word) for word in words if word.isascii() and word.isdigit() and len(word) <= len("65535")]
    if (
        len(good) != len(words)
        or len(words) > _MOST_PORTS
        or not all(0 < port <= _HIGHEST_PORT for port in good)
    ):
        raise ConfigurationError(
            f"{MODEL_PORTS} must be none, or at most {_MOST_PORTS} ports separated by commas, such as 8080,11434"
        )
    usual = {port: program for program, port in USUAL_PORTS}
    return [(usual.get(port, "a server"), port) for port in dict.fromkeys(good)]


def _local_server(program: str, port: int) -> LocalServer | None:
    try:
        socket.create_connection((_HOST, port), _CONNECT_SECONDS).close()
    except OSError:
        return None
    api_url = f"http://{_HOST}:{port}/v1"
    listed = _model_list(api_url, None, _LIST_SECONDS)
    models = () if isinstance(listed, str) else _chat_models(listed)
    return LocalServer(program, api_url, models) if models else None


def parameters_served(
    api_url: str, api_key: str | None, name: str, *, seconds: float = _SIZE_TIMEOUT_SECONDS
) -> float | None:
    """Return the number of parameters of a model on a server; None if the server does not report it in time.

    llama.cpp's server reports it as `meta.n_params`, and has one model, whatever its name:
    https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
    """
    listed = _model_list(api_url, api_key, seconds)
    if isinstance(listed, str):
        return None
    named = [entry for entry in listed if entry.get("id") == name] or listed
    meta = named[0].get("meta") if len(named) == 1 else None
    count = as_object(meta).get("n_params")
    try:
        return float(count) if isinstance(count, int | float) and count > 0 else None
    except OverflowError:
        return None


def _list_url(api_url: str) -> str:
    address = api_url.rstrip("/").removesuffix("/chat/completions").removesuffix("/responses")
    return endpoint(address, "/models")


def _model_list(api_url: str, api_key: str | None, seconds: float) -> list[JsonObject] | str:
    """Return the entries of the list, or a description of the failure."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    answer = _get(_list_url(api_url), headers, seconds)
    if isinstance(answer, NoAnswer):
        return f"could not be asked for its models ({answer.name})"
    if not answer.is_whole:
        return "sent a list of models that is too large"
    try:
        listed = read_json(answer.body) if answer.status == HTTPStatus.OK else None
    except ValueError as error:
        return f"could not be asked for its models ({type(error).__name__})"
    if not isinstance(listed, dict):
        return f"answered {answer.status} when asked for its models"
    return list(dicts(listed.get("data")))


def _get(url: str, headers: Mapping[str, str], seconds: float) -> Answer | NoAnswer:
    """Request a small document within a time."""
    from orchestrator.engine.models.transport import MAX_DOCUMENT_BYTES

    asked = ask_server(
        "GET",
        url,
        {**headers, **UNCOMPRESSED},
        most_bytes=MAX_DOCUMENT_BYTES,
        silent_seconds=seconds,
        connect_seconds=seconds,
        total_seconds=seconds,
    )
    return ask_now(asked)


def some_names(names: Sequence[str]) -> str:
    """Return the first of these names, and the number of the others."""
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return f"{', '.join(names[:_SHOWN_NAMES])}{more}" if names else "none"


_SUCCESS = range(HTTPStatus.OK, HTTPStatus.MULTIPLE_CHOICES)
_NO_LIST = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)


@dataclass(frozen=True, slots=True)
class Presence:
    """A server's answer about a model. `is_there` is None if the server has no list of models.

    Attributes:
        names: the models that it lists.
        window: how many tokens the model can read, if the server reports it.
    """

    is_there: bool | None
    names: tuple[str, ...] = ()
    window: int | None = None


def find_model(  # noqa: PLR0913  partly keyword-only
    ref: ModelRef, api_url: str, wire: Wire, key: str | None, *, now: datetime, seconds: float
) -> Presence:
    """Ask a server about a model. The key is sent only to the address of the wire's server.

    Anthropic: docs.anthropic.com/en/api/models. Gemini: ai.google.dev/api/models#method:-models.get. All
    others: platform.openai.com/docs/api-reference/models/list.

    Args:
        api_url: the configured address.
        now: the time from which the server's waits count.

    Raises:
        ModelError: the server cannot be reached, or refuses.
    """
    from orchestrator.engine.models.failures import error_from_body
    from orchestrator.engine.models.transport import MAX_DOCUMENT_BYTES, oversized

    url = _url(ref, api_url, wire)
    headers = dict(wire.encode(Request("", [Message.user("?")]), stream=False).headers)
    headers |= wire.credentials(key) if key else {}
    answer = _get(url, headers, seconds)
    if isinstance(answer, NoAnswer):
        if answer.kind is FailureKind.LATE:
            raise ProviderError(f"{host_of(url)} takes too long for a list")
        why = f"{host_of(url)} cannot be reached ({answer.name})"
        raise ConnectionFailedError(f"{why}; is the address right, and the server running?")
    if not answer.is_whole:
        raise oversized(host_of(url), "a list", MAX_DOCUMENT_BYTES)
    status, said_headers, body = answer.status, dict(answer.headers), answer.body
    one = ref.provider in {Provider.ANTHROPIC, Provider.GEMINI}
    if status in _NO_LIST and not (one and status == HTTPStatus.NOT_FOUND):
        return Presence(None)
    if status == HTTPStatus.NOT_FOUND:
        return Presence(is_there=False)
    if status not in _SUCCESS:
        raise error_from_body(status, said_headers, body, now, host_of(url))
    try:
        said = read_json(body)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise ProviderError(f"{host_of(url)} did not answer with a list of models; check the API address")
    if one:
        window = said.get("inputTokenLimit") or said.get("max_input_tokens")
        return Presence(is_there=True, window=window if isinstance(window, int) else None)
    found = {str(entry["id"]): entry for entry in dicts(said.get("data")) if entry.get("id")}
    mine = found.get(ref.name) or found.get(f"{ref.name}:latest")  # as Ollama lists it
    window = (mine or {}).get("context_length") or (mine or {}).get("max_model_len")
    return Presence(mine is not None, tuple(sorted(found)), window if isinstance(window, int) else None)


def _url(ref: ModelRef, api_url: str, wire: Wire) -> str:
    name = quote(ref.name.removeprefix("models/"), safe="")
    match ref.provider:
        case Provider.ANTHROPIC:
            return wire.url.partition("?")[0].removesuffix("/messages") + f"/models/{name}"
        case Provider.GEMINI:
            return wire.url.partition("?")[0].rpartition(":")[0]
        case _:
            return _list_url(api_url)

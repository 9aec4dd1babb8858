"""Wire protocols: each converts a request to the vendor's JSON, and the vendor's JSON to a reply.

Both directions are pure. `transport` does the I/O; a protocol module never does.
"""

from __future__ import annotations

import hashlib
import json
import re
import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit, urlunsplit

from orchestrator.core.addresses import holds_credential
from orchestrator.core.errors import ConfigurationError, ConnectionFailedError, ProviderError
from orchestrator.core.json_rpc import read_json
from orchestrator.core.messages import FinishReason, Message, Role, ToolCall
from orchestrator.engine.models.base import INVALID_ARGUMENTS, Response, count_of, counted_or_estimated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from orchestrator.core.errors import ModelError
    from orchestrator.core.messages import JsonObject, Part, Usage
    from orchestrator.engine.models.base import Piece, Request


_NOT_PLAIN = re.compile(r"[^a-zA-Z0-9_-]")
_DIGEST_CHARACTERS = 16


def plain_name(text: str, most: int) -> str:
    """Return a name of at most `most` letters, digits, `_` and `-`, and of at least one."""
    return _NOT_PLAIN.sub("_", text)[:most] or "_"


def short_id(text: str, most: int) -> str:
    """Return the id; a too long one ends in a digest, so that different ids stay different."""
    if len(text) <= most:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{text[: most - _DIGEST_CHARACTERS - 1]}_{digest}"


@dataclass(frozen=True, slots=True)
class WireRequest:
    """A request as it is sent, except the key, whose headers `Wire.credentials` adds when it is sent.

    The conversation is the last field of the JSON object, so that the bytes of a longer conversation begin
    with those of a shorter one.

    Attributes:
        head: every field except the conversation.
        list_name: the conversation's field: `messages`, `input` or `contents`.
        entries: the conversation's entries, each the JSON text of one or more entries joined by commas.
        encoded: caches the head's JSON for the next request.
    """

    url: str
    headers: Mapping[str, str]
    head: JsonObject
    list_name: str
    entries: Sequence[bytes]
    encoded: EncodedMessages

    @property
    def content(self) -> bytes:
        """The body's bytes."""
        head = self.encoded.head(self.head)[1:-1]
        begin = head + (b"," if head else b"") + json_bytes(self.list_name)
        return b"".join((b"{", begin, b":[", b",".join(entry for entry in self.entries if entry), b"]}"))

    @property
    def body(self) -> dict[str, Any]:
        """The body as a value, for inspection."""
        value: dict[str, Any] = json.loads(self.content)
        return value


def accept_header(*, stream: bool) -> dict[str, str]:
    """Return the header that requests a stream of events, or one document."""
    return {"accept": "text/event-stream" if stream else "application/json"}


def json_bytes(value: Any) -> bytes:
    """Return JSON without blanks, in UTF-8. An unpaired surrogate, which has no bytes, becomes `?`."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class EncodedMessages:
    """A cache of the JSON of messages, kept as long as each message object lives, and of the last head.

    A wire uses one for all its requests, so that a step costs only the encoding of new messages.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Message], bytes]] = {}
        self._head: tuple[JsonObject, bytes] = ({}, b"{}")

    def head(self, head: JsonObject) -> bytes:
        """Return the JSON of a request without its conversation; encode it only if it has changed."""
        if head != self._head[0]:
            self._head = (head, json_bytes(dict(head)))
        return self._head[1]

    def get(self, message: Message, encode: Callable[[Message], Iterable[JsonObject]]) -> bytes:
        """Return the entries that `encode` makes of the message, joined by commas; empty if it makes none."""
        key = id(message)
        known = self._known.get(key)
        if known is not None and known[0]() is message:
            return known[1]
        text = b",".join(json_bytes(entry) for entry in encode(message))

        def forget(_: weakref.ref[Message]) -> None:
            self._known.pop(key, None)

        self._known[key] = (weakref.ref(message, forget), text)
        return text

    def __len__(self) -> int:
        return len(self._known)


class ReplyDecoder(ABC):
    """Decodes one reply, streamed or whole. Use it once.

    Attributes:
        done: the protocol's own end mark was read: nothing more follows.
    """

    def __init__(self, request: Request, *, model: str, where: str) -> None:
        """Create a decoder.

        Args:
            model: the model's name if the reply names none.
            where: the server's host, for messages.
        """
        self.done = False
        self._request = request
        self._where = where
        self._model = model
        self._id: str | None = None
        self._charged_usd: float | None = None

    def feed(self, event: str, data: str) -> list[Piece]:
        """Decode one server-sent event; return what it adds to the reply. Unknown events add nothing.

        Raises:
            ModelError: the event is an error, or cannot be read.
        """
        text = data.strip()
        if self.done or not text:
            return []
        if text == "[DONE]":  # some servers end the streams of all protocols like OpenAI
            self.done = True
            return []
        text = text.removeprefix("data:")  # some gateways write the name of the field twice
        try:
            value = read_event(text, self._where)
        except ConnectionFailedError:
            lines = text.split("\n")
            if len(lines) == 1:
                raise
            # Some servers end each event with one line end, so that several arrive as one.
            return [piece for line in lines for piece in self.feed(event, line)]
        if not isinstance(value, dict):
            return []
        if _CHARGE in data:
            self._take_charge(value)
        return self._take_event(event, value)

    def read(self, body: bytes) -> Response:
        """Decode a whole reply (a body with status 200).

        Raises:
            ModelError: the body is an error, or is not a reply.
        """
        body = _as_utf8(body)
        if (lines := _lines_of_json(body)) is not None:
            for line in lines:
                self.feed("message", line)
            return self.finish()[1]  # complete only if one of them says so
        value = _read_reply(body, self._where)
        self._take_charge(value)
        self._take_document(value)
        return self._finish_document()

    def take_headers(self, headers: Mapping[str, str]) -> None:
        """Take the charge that a gateway tells in a header; one in the body counts more."""
        found = (charge_in(headers.get(name, "").upper().removesuffix("USD")) for name in _CHARGE_HEADERS)
        self._charged_usd = next((charge for charge in found if charge is not None), None)

    def _take_charge(self, value: Mapping[str, Any]) -> None:
        charged = charged_usd(value)
        self._charged_usd = self._charged_usd if charged is None else charged

    def _finish_document(self) -> Response:
        self.done = True
        return self.finish()[1]

    @abstractmethod
    def finish(self) -> tuple[list[Piece], Response]:
        """Return the pieces that were held back, and the whole reply.

        Raises:
            ConnectionFailedError: the stream ended before the reply did.
        """

    @abstractmethod
    def _take_event(self, event: str, chunk: Mapping[str, Any]) -> list[Piece]:
        """Decode the object in an event."""

    @abstractmethod
    def _take_document(self, value: Mapping[str, Any]) -> None:
        """Decode a whole reply."""

    def _take_names(self, reply_id: object, model: object) -> None:
        self._id = as_text(reply_id) or self._id
        self._model = as_text(model) or self._model

    def _cut_off(self) -> ConnectionFailedError:
        return ConnectionFailedError(f"{self._where} ended its stream in the middle of the reply")

    def _no_reply(self, what: str) -> ProviderError:
        return ProviderError(f"{self._where} answered {what}; check the API address")

    def _response(
        self, parts: Iterable[Part], finish: FinishReason, counted: Usage | None, *, may_be_free: bool = False
    ) -> Response:
        message = Message(Role.ASSISTANT, tuple(parts))
        usage, is_counted = counted_or_estimated(counted, self._request, message, may_be_free=may_be_free)
        usage = replace(usage, charged_usd=self._charged_usd, answered_by=self._model)
        return Response(message, finish, usage, self._model, self._id, is_counted)


_TICKS_PER_USD = 10**10
"""https://docs.x.ai/docs/key-information/consumption-and-rate-limits"""
_CHARGE_HEADERS = ("x-litellm-response-cost", "pydantic-ai-gateway-price-estimate")
_CHARGES = (
    ("cost",),  # OpenRouter, Requesty, Vercel; Perplexity as an object
    ("cost", "total_cost"),
    ("total_cost",),
    ("estimated_cost",),  # DeepInfra
    ("pydantic_ai_gateway", "cost_estimate"),
    ("provider_metadata", "gateway", "cost"),
    ("providerMetadata", "gateway", "cost"),
    ("x_nanogpt_pricing", "cost"),
)
"""Where gateways tell the charge of a reply in USD."""
_CHARGE = "cost"
"""A part of each name of a charge, so that the many other events need no search."""


def charge_in(value: object) -> float | None:
    """Return an amount of money that is written as a number or as a text; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        amount = float(value)
    except (ValueError, OverflowError):
        return None
    return amount if 0 <= amount <= _MOST_USD else None


_MOST_USD = 1e6
"""No reply costs more, so a higher amount is no charge in USD."""


def charged_usd(value: Mapping[str, Any]) -> float | None:
    """Return what a server says that it charges for a reply, in USD; None if it says nothing.

    For a user's own key at a vendor, OpenRouter tells its fee and the vendor's price apart:
    https://openrouter.ai/docs/guides/guides/usage-accounting
    """
    usages = [as_object(one.get(key)) for one in _replies(value) for key in ("usage", "usageMetadata")]
    for usage in usages:
        if ticks := count_of(usage, "cost_in_usd_ticks"):
            return ticks / _TICKS_PER_USD
    for place in (*usages, *_replies(value)):
        for path in _CHARGES:
            found: object = place
            for key in path:
                found = as_object(found).get(key)
            if (charge := charge_in(found)) is not None:
                own_key = as_object(place.get("cost_details")).get("upstream_inference_cost")
                return charge + ((charge_in(own_key) or 0.0) if place.get("is_byok") is True else 0.0)
    return None


def _replies(value: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the objects of a body or of an event in which a reply's usage may be."""
    choices = [as_object(choice) for choice in dicts(value.get("choices"))[:1]]
    inner = [as_object(one.get(key)) for one in choices for key in ("message", "delta")]
    return [value, as_object(value.get("response")), as_object(value.get("message")), *choices, *inner]


def merge_options(head: dict[str, Any], options: Mapping[str, Any]) -> None:
    """Add a user's fields to a request: objects are merged, lists appended, other values replaced."""
    for name, value in options.items():
        ours = head.get(name)
        if isinstance(ours, dict) and isinstance(value, dict):
            head[name] = {**ours, **value}
        elif isinstance(ours, list) and isinstance(value, list):
            head[name] = [*ours, *(one for one in value if one not in ours)]
        else:
            head[name] = value


_FINISH = {
    "stop": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "completed": FinishReason.STOP,
    "finished": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "max_length": FinishReason.LENGTH,
    "max_output_tokens": FinishReason.LENGTH,
    "max_completion_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "token_limit": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "continuation": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "tool_use": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "content_filter": FinishReason.CONTENT_FILTER,
    "content_filtered": FinishReason.CONTENT_FILTER,
    "safety": FinishReason.CONTENT_FILTER,
    "recitation": FinishReason.CONTENT_FILTER,
    "refusal": FinishReason.REFUSAL,
    "pause_turn": FinishReason.PAUSE,
    "compaction": FinishReason.PAUSE,
}
"""The finish reasons of many servers, in small letters; some write them in capital ones."""


def finish_called(reason: str) -> FinishReason:
    """Return the finish reason that a server calls so; gateways pass those of other protocols on."""
    return _FINISH.get(reason.lower(), FinishReason.OTHER)


def finish_with_calls(finish: FinishReason, parts: Iterable[Part]) -> FinishReason:
    """Return the finish reason; that of a complete reply with calls is the calls, whatever the server says."""
    complete = finish in {FinishReason.STOP, FinishReason.OTHER}
    has_calls = any(isinstance(part, ToolCall) for part in parts)
    return FinishReason.TOOL_CALLS if complete and has_calls else finish


class Wire(Protocol):
    """A protocol for one model at one address. An immutable value."""

    @property
    def url(self) -> str:
        """The address of the requests."""

    def credentials(self, api_key: str) -> Mapping[str, str]:
        """Return the headers that carry the key."""

    def encode(self, request: Request, *, stream: bool) -> WireRequest:
        """Encode a request for the vendor. Equal requests give equal bytes."""

    def decoder(self, request: Request) -> ReplyDecoder:
        """Return a decoder for one reply to this request."""

    def relax(self, request: Request, error: ModelError) -> Wire | None:
        """Return the wire without the feature that this error refuses; None if the request needs it."""


def endpoint(api_url: str, suffix: str) -> str:
    """Return the address of the requests for the API address that a user configured.

    An address that ends with the suffix (`/chat/completions`) is used unchanged. One without a path gets
    `/v1` and the suffix. To any other the suffix is appended. A query is kept.

    Raises:
        ConfigurationError: it is not an http(s) address, or it contains a user name or password.
    """
    problem = ConfigurationError(f"the API address must look like https://host/v1, not {api_url[:100]!r}")
    try:
        parts = urlsplit(api_url.strip())
        parts.port  # noqa: B018  raises ValueError for an invalid port
    except ValueError:
        raise problem from None
    if holds_credential(api_url):
        raise ConfigurationError(
            "the API address must not contain a password; put the key into the environment"
        )
    if (
        parts.scheme not in {"http", "https"}
        or not parts.hostname
        or any(c.isspace() for c in api_url.strip())
    ):
        raise problem
    path = parts.path.rstrip("/")
    if not path.endswith(suffix):
        path = f"{path or '/v1'}{suffix}"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def host_of(url: str) -> str:
    """Return host and port of an address, for error messages."""
    return urlsplit(url).netloc.rpartition("@")[2]


def read_event(data: str, where: str) -> Any:
    """Parse the data of a server-sent event.

    Raises:
        ConnectionFailedError: the JSON is cut or broken, so that another attempt makes sense.
    """
    try:
        return read_json(data)
    except ValueError:
        raise ConnectionFailedError(f"{where} sent broken JSON in its stream") from None


def _as_utf8(body: bytes) -> bytes:
    """Return JSON in UTF-16 or UTF-32, as some gateways for Windows send it, in UTF-8; without a byte order mark."""
    encoding = json.detect_encoding(body)
    return body if encoding == "utf-8" else body.decode(encoding, "replace").encode("utf-8", "replace")


def _lines_of_json(body: bytes) -> list[str] | None:
    """Return the lines of a body that has one object on each, as Ollama streams; None if it is one document."""
    lines = [line for line in body.decode("utf-8", "replace").splitlines() if line.strip()]
    if len(lines) < 2 or not all(line.startswith("{") and line.endswith("}") for line in lines):  # noqa: PLR2004
        return None
    return lines


def _read_reply(body: bytes, where: str) -> Mapping[str, Any]:
    if body.strip() and body.lstrip()[:1] not in {b"{", b"["}:
        what = "a web page" if body.lstrip()[:1] == b"<" else "text that is not JSON"
        raise ProviderError(f"{where} answered with {what}; check the API address")
    try:
        value = read_json(body)
    except ValueError:
        raise ConnectionFailedError(f"{where} answered with broken JSON") from None
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict):
        raise ProviderError(f"{where} answered with JSON that is not a reply; check the API address")
    return value


def dicts(value: object) -> list[dict[str, Any]]:
    """Return the JSON objects in a list; nothing if the value is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def as_object(value: object) -> dict[str, Any]:
    """Return a field that should be an object; empty if it is missing or something else."""
    return value if isinstance(value, dict) else {}


def as_text(value: object) -> str:
    """Return a field that should be text; empty if it is missing or something else."""
    return value if isinstance(value, str) else ""


def read_arguments(raw: object) -> dict[str, Any]:
    """Return a tool call's arguments; if they are not a JSON object, under the key `INVALID_ARGUMENTS`."""
    if isinstance(raw, dict):
        return raw
    text = raw if isinstance(raw, str) else "" if raw is None else json.dumps(raw)
    try:
        value = read_json(text) if text.strip() else None
        if isinstance(value, str):  # some servers write the text of the arguments as JSON again
            value = read_json(value) if value.strip() else None
    except ValueError:
        return {INVALID_ARGUMENTS: text}
    if value is None or value == []:  # no arguments, as some languages write an empty object
        return {}
    return value if isinstance(value, dict) else {INVALID_ARGUMENTS: text}


def generated_id(number: int, *facts: object) -> str:
    """Return an id for a call without one: the same reply always gives the same id."""
    digest = hashlib.sha256(repr((number, facts)).encode("utf-8", "replace")).hexdigest()
    return f"call_{digest[:20]}"


def schema_parts(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield the schemas inside of a JSON Schema, as far as vendors support them for replies."""
    yield from [schema["items"]] if "items" in schema else []
    for key in ("anyOf", "allOf"):
        yield from schema.get(key, ())
    for key in ("properties", "$defs"):
        yield from schema.get(key, {}).values()

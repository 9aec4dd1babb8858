"""What a wire protocol is: two pure halves, from our request to JSON and from JSON to our reply.

`transport` does the talking; a protocol module never does I/O.
"""

from __future__ import annotations

import hashlib
import json
import re
import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit, urlunsplit

from orchestrator.core.addresses import holds_credential
from orchestrator.core.errors import ConfigurationError, ConnectionFailedError, ProviderError
from orchestrator.core.messages import FinishReason, Message, Role, ToolCall
from orchestrator.engine.models.base import INVALID_ARGUMENTS, Response
from orchestrator.engine.models.usage import counted_or_estimated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from orchestrator.core.errors import ModelError
    from orchestrator.core.messages import JsonObject, Part, Usage
    from orchestrator.engine.models.base import Piece, Request


_NOT_PLAIN = re.compile(r"[^a-zA-Z0-9_-]")
_NOT_DOTTED = re.compile(r"[^a-zA-Z0-9_.:-]")
_DIGEST_CHARACTERS = 16


def plain_name(text: str, most: int) -> str:
    """Letters, digits, `_` and `-`, of which there is at least one and at most `most`."""
    return _NOT_PLAIN.sub("_", text)[:most] or "_"


def dotted_name(text: str, most: int) -> str:
    """The same with dots and colons; it begins with a letter or `_`."""
    name = _NOT_DOTTED.sub("_", text)
    return (name if name[:1].isalpha() or name.startswith("_") else f"_{name}")[:most]


def short_id(text: str, most: int) -> str:
    """The id; one that is too long ends in a digest, so that different ones stay different."""
    if len(text) <= most:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{text[: most - _DIGEST_CHARACTERS - 1]}_{digest}"


_SURROGATE_ESCAPE = b"\\ud"


@dataclass(frozen=True, slots=True)
class WireRequest:
    """What is sent. The key is not in it: `Wire.credentials` makes its headers when the request goes out.

    The conversation is the last field of the JSON object, so that a longer conversation's bytes begin
    with the shorter one's.

    Attributes:
        head: every field but the conversation.
        list_name: the conversation's field: `messages`, `input` or `contents`.
        entries: the conversation's entries, each the JSON text of one or more entries joined by commas.
        encoded: remembers the head's JSON for the next request.
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
        """The body as a value, for those who look into it."""
        value: dict[str, Any] = json.loads(self.content)
        return value


def json_bytes(value: Any) -> bytes:
    """JSON without blanks, in UTF-8. Half of a surrogate pair, which has no bytes, becomes `?`."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class EncodedMessages:
    """The JSON of messages: made once for each message object, and forgotten with it; and of the last head.

    A wire keeps one for all its requests, so a step costs what is new, not what was said before.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Message], bytes]] = {}
        self._head: tuple[JsonObject, bytes] = ({}, b"{}")

    def head(self, head: JsonObject) -> bytes:
        """The JSON of a request without its conversation; made anew only where it is not the last one's."""
        if head != self._head[0]:
            self._head = (head, json_bytes(dict(head)))
        return self._head[1]

    def get(self, message: Message, encode: Callable[[Message], Iterable[JsonObject]]) -> bytes:
        """The entries that `encode` makes of the message, joined by commas; empty where it makes none."""
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
    """Reads one reply, as a stream or whole. Use it once.

    Attributes:
        done: the protocol's own end mark was read: nothing more is coming.
    """

    def __init__(self, request: Request, *, model: str, where: str) -> None:
        """Begin.

        Args:
            request: what was asked.
            model: its name, where the reply names none.
            where: the server's host, for messages.
        """
        self.done = False
        self._request = request
        self._where = where
        self._model = model
        self._id: str | None = None

    def feed(self, event: str, data: str) -> list[Piece]:
        """Take one server-sent event; give what it adds to the reply. Unknown events add nothing.

        Raises:
            ModelError: the event is an error, or cannot be read.
        """
        text = data.strip()
        if self.done or not text:
            return []
        if text == "[DONE]":  # some servers end the stream of every protocol as OpenAI does
            self.done = True
            return []
        value = read_event(data, self._where)
        return self._take_event(event, value) if isinstance(value, dict) else []

    def read(self, body: bytes) -> Response:
        """Read a whole reply (a body with status 200).

        Raises:
            ModelError: the body is an error, or no reply.
        """
        self._take_document(read_reply(body, self._where))
        self.done = True
        return self.finish()[1]

    @abstractmethod
    def finish(self) -> tuple[list[Piece], Response]:
        """Give what was held back, and the whole reply.

        Raises:
            ConnectionFailedError: the stream ended before the reply did.
        """

    @abstractmethod
    def _take_event(self, event: str, chunk: Mapping[str, Any]) -> list[Piece]:
        """Take the object that an event has."""

    @abstractmethod
    def _take_document(self, value: Mapping[str, Any]) -> None:
        """Take a whole reply."""

    def _cut_off(self) -> ConnectionFailedError:
        return ConnectionFailedError(f"{self._where} ended its stream in the middle of the reply")

    def _no_reply(self, what: str) -> ProviderError:
        return ProviderError(f"{self._where} answered {what}; check the API address")

    def _response(
        self, parts: Iterable[Part], finish: FinishReason, counted: Usage | None, *, may_be_free: bool = False
    ) -> Response:
        message = Message(Role.ASSISTANT, tuple(parts))
        usage, is_counted = counted_or_estimated(counted, self._request, message, may_be_free=may_be_free)
        return Response(message, finish, usage, self._model, self._id, is_counted)


def finish_with_calls(finish: FinishReason, parts: Iterable[Part]) -> FinishReason:
    """Why a reply ended: a complete one that has calls ended for them, whatever the server says."""
    complete = finish in {FinishReason.STOP, FinishReason.OTHER}
    has_calls = any(isinstance(part, ToolCall) for part in parts)
    return FinishReason.TOOL_CALLS if complete and has_calls else finish


class Wire(Protocol):
    """One protocol, for one model at one address. A frozen value."""

    @property
    def url(self) -> str:
        """Where requests go."""

    def credentials(self, api_key: str) -> Mapping[str, str]:
        """The headers that carry the key."""

    def encode(self, request: Request, *, stream: bool) -> WireRequest:
        """Our request in the vendor's words. Equal requests give equal bytes."""

    def decoder(self, request: Request) -> ReplyDecoder:
        """A reader for one reply to this request."""

    def relax(self, request: Request, error: ModelError) -> Wire | None:
        """The same wire without the feature that this error refuses, if the request can do without; else None."""


def endpoint(api_url: str, suffix: str) -> str:
    """Where requests go, from what a user configures as the API's address.

    An address that ends with the suffix (`/chat/completions`) is taken as it is. One without a
    path gets `/v1` and the suffix. To any other the suffix is appended. A query is kept.

    Raises:
        ConfigurationError: it is not an http(s) address, or it has a user name or password in it.
    """
    problem = ConfigurationError(f"the API address must look like https://host/v1, not {api_url[:100]!r}")
    try:
        parts = urlsplit(api_url.strip())
        parts.port  # noqa: B018  raises on a port that is no number
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
    """Host and port of an address, as error messages name it."""
    return urlsplit(url).netloc.rpartition("@")[2]


def read_json(raw: str | bytes) -> Any:
    """Parse JSON strictly (no NaN, no Infinity by name), in text that can be written as UTF-8.

    Half of a surrogate pair, which a model can write as an escape, becomes U+FFFD.

    Raises:
        ValueError: not JSON, or nested too deeply.
    """
    try:
        value = json.loads(raw, parse_constant=_refuse_constant)
        if (
            _SURROGATE_ESCAPE
            not in (raw if isinstance(raw, bytes) else raw.encode("utf-8", "replace")).lower()
        ):
            return value
        text = json.dumps(value, ensure_ascii=False)
        return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(name: str) -> Any:
    message = f"{name} is not JSON"
    raise ValueError(message)


def read_event(data: str, where: str) -> Any:
    """Parse the data of a server-sent event.

    Raises:
        ConnectionFailedError: the JSON is cut or broken, so another try makes sense.
    """
    try:
        return read_json(data)
    except ValueError:
        raise ConnectionFailedError(f"{where} sent broken JSON in its stream") from None


def read_reply(body: bytes, where: str) -> Mapping[str, Any]:
    """Parse the body of a successful reply.

    Raises:
        ConnectionFailedError: the JSON is cut or broken, so another try makes sense.
        ProviderError: the body is something else altogether, such as a web page.
    """
    if body.strip() and body.lstrip()[:1] not in {b"{", b"["}:
        what = "a web page" if body.lstrip()[:1] == b"<" else "text that is not JSON"
        raise ProviderError(f"{where} answered with {what}; check the API address")
    try:
        value = read_json(body)
    except ValueError:
        raise ConnectionFailedError(f"{where} answered with broken JSON") from None
    if not isinstance(value, dict):
        raise ProviderError(f"{where} answered with JSON that is no reply; check the API address")
    return value


def dicts(value: object) -> list[dict[str, Any]]:
    """The JSON objects of a list; nothing where there is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def as_text(value: object) -> str:
    """A field that should be text; empty where it is missing or is something else."""
    return value if isinstance(value, str) else ""


def read_arguments(raw: object) -> dict[str, Any]:
    """A tool call's arguments; those that are no JSON object come under the key `INVALID_ARGUMENTS`."""
    if raw is None or (isinstance(raw, str) and not raw.strip()):
        return {}
    if isinstance(raw, dict):
        return raw
    text = raw if isinstance(raw, str) else json.dumps(raw)
    try:
        value = read_json(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {INVALID_ARGUMENTS: text}


def made_up_id(number: int, *facts: object) -> str:
    """An id for a call that came without one: the same reply always gives the same id."""
    digest = hashlib.sha256(repr((number, facts)).encode("utf-8", "replace")).hexdigest()
    return f"call_{digest[:20]}"

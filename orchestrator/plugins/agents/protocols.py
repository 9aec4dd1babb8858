"""What agents ask models, in the protocols of four vendors: read, bounded and searched for secrets. It does no I/O.

A request is rebuilt from what is known: a field, a tool or a header that is not listed here is not passed on, because
it may change the price, let the vendor's server reach other hosts, or refer to content that nobody has counted. A
request that is not passed on raises a `RefusedRequestError`.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from orchestrator.core.errors import ConfigurationError
from orchestrator.core.json_rpc import read_json
from orchestrator.engine.models.base import MOST_TOKENS, TOKENS_PER_IMAGE, tokens_in
from orchestrator.engine.models.catalog import Provider, vendor_of
from orchestrator.engine.models.wire import as_object, as_text, dicts, json_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orchestrator.engine.policy.secrets import Redactor


class RefusedRequestError(Exception):
    """A request that is not passed on. The agent gets the message; this error does not leave the relay.

    Attributes:
        status: 403 for what is never allowed, of which a person is told; 400 for all else.
    """

    def __init__(self, message: str, status: int = HTTPStatus.FORBIDDEN) -> None:
        super().__init__(message)
        self.status = status


def require_api_key(key: str, api_url: str) -> None:
    """Refuse everything that is not an API key. An empty key is for a server that needs none.

    Raises:
        ConfigurationError: it is a login, or the vendor's API keys look different.
    """
    kind = next((kind for kind, login in _LOGINS.items() if login.match(key)), None)
    begin = _API_KEYS.get(vendor_of(api_url) or "")
    if kind is None and begin is not None and not begin.match(key):
        kind = "not one of the vendor's API keys"
    if kind is not None:
        raise ConfigurationError(
            f"the key for {api_url} is {kind}: an agent works with an API key only, because vendors do not allow "
            "other programs to pass on a sign-in; create an API key and set it in its variable"
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """The place that a request names.

    Attributes:
        model: the model in the path; empty if the body has it.
        stream: whether the path asks for a stream; None if the body says it.
        query: the part of the query that is passed on.
    """

    model: str = ""
    stream: bool | None = None
    query: str = ""


@dataclass(frozen=True, slots=True)
class VendorForm:
    """How one protocol writes a request and an error: `protocols.toml`, which says what each field is."""

    path: re.Pattern[str]
    conversation: str
    fields: frozenset[str]
    elsewhere: frozenset[str]
    limits: tuple[str, ...]
    errors: Mapping[str, Mapping[str, Any]]
    tools: frozenset[str] = frozenset()
    inside: str = ""
    inside_fields: frozenset[str] = frozenset()
    headers: frozenset[str] = frozenset()


def _compiled(patterns: Mapping[str, str]) -> Mapping[str, re.Pattern[str]]:
    return {name: re.compile(pattern) for name, pattern in patterns.items()}


def _form(path: re.Pattern[str], values: dict[str, Any]) -> VendorForm:
    values |= {name: frozenset(values.get(name, ())) for name in _SETS}
    return VendorForm(path=path, **values)


_SETS = ("fields", "elsewhere", "tools", "inside_fields", "headers")
_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_LOGINS, _API_KEYS, _PATHS = (_compiled(_TABLES.pop(name)) for name in ("logins", "keys", "paths"))
FORMS = {Provider(name): _form(_PATHS[name], values) for name, values in _TABLES.items()}


def read_request(form: VendorForm, method: str, path: str, query: str) -> Asked:
    """Return what the line of a request asks for.

    Raises:
        RefusedRequestError: it is not a request of this protocol.
    """
    found = form.path.fullmatch(path)
    groups = found.groupdict() if found else {}
    streams = groups.get("method") == "streamGenerateContent"
    allowed = {"", "alt=sse"} if streams else {""} if groups else {"", "beta=true"}
    if found is None or method != "POST" or query not in allowed or (streams and not query):
        raise RefusedRequestError(f"{method[:10]} {path[:200]} is not passed on to the model")
    return Asked(groups.get("model", ""), streams if groups else None, "" if groups else query)


@dataclass(frozen=True, slots=True)
class _Part:
    """A field of a request, or an entry of its conversation, that was read.

    Attributes:
        value: as the agent sent it; the same part of the next request is compared with it only.
        clean: without secrets.
        content: the JSON of that, which is passed on.
        digest: of what it says, whatever marks it has.
        tokens: an upper estimate.
        left_out: what is not passed on, in words.
    """

    value: Any
    clean: Any
    content: bytes
    digest: bytes
    tokens: int
    left_out: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """A request of an agent, as far as it is passed on.

    Attributes:
        asked: the model's name.
        stream: whether the reply is a stream.
        left_out: what was not passed on, in words.
        fields: the fields besides the conversation; the limit of the reply is set by `content`.
        entries: the conversation.
        chain: a digest of the request up to each entry, the first one of none.
        tokens: an upper estimate of the tokens up to each entry.
        wanted: the longest reply that the agent asks for; None if it asks for none.
    """

    form: VendorForm
    asked: str
    stream: bool
    query: str
    left_out: Sequence[str]
    fields: Mapping[str, _Part]
    entries: Sequence[_Part]
    chain: Sequence[bytes]
    tokens: Sequence[int]
    wanted: int | None

    @property
    def identity(self) -> bytes:
        """The same for two requests that ask for the same reply."""
        return self.chain[-1]

    def content(self, reply_tokens: int, ours: Mapping[str, Any]) -> bytes:
        """Return the body with this limit of the reply.

        Args:
            ours: the fields of our own request for the same model, which say how it names the limit, and whether its
                server is known to refuse so long ones.
        """
        form, head = self.form, {name: part.clean for name, part in self.fields.items()}
        place = as_object(head.get(form.inside)) if form.inside else head
        own = as_object(ours.get(form.inside)) if form.inside else ours
        known = next((name for name in form.limits if name in own), form.limits[0])
        named = [name for name in form.limits if name in place] or [known]
        limits = dict.fromkeys(named, min(reply_tokens, own.get(known, reply_tokens)))
        changed: dict[str, Any] = {form.inside: {**place, **limits}} if form.inside else limits
        if "stream_options" in ours:
            changed["stream_options"] = ours["stream_options"]  # else the reply tells no usage
        parts = {name: part.content for name, part in self.fields.items()}
        parts |= {name: json_bytes(value) for name, value in changed.items()}
        if _thinks_longer(as_object(head.get("thinking")), reply_tokens):
            # The vendor demands that it ends below the limit of the reply, and knows no shorter one.
            del parts["thinking"]
            if reply_tokens > _LEAST_THINKING_TOKENS:
                budget = {"budget_tokens": max(reply_tokens // 2, _LEAST_THINKING_TOKENS)}
                parts["thinking"] = json_bytes({**as_object(head["thinking"]), **budget})
        fields = b"".join(b'"%s":%s,' % (name.encode(), part) for name, part in parts.items())
        said = b",".join(entry.content for entry in self.entries)
        # The conversation is copied once more only: it may be long.
        return b"".join((b"{", fields, b'"%s":[' % form.conversation.encode(), said, b"]}"))


_LEAST_THINKING_TOKENS = 1_024
"""https://platform.claude.com/docs/en/build-with-claude/extended-thinking"""


def _thinks_longer(thinking: Mapping[str, Any], reply_tokens: int) -> bool:
    budget = thinking.get("budget_tokens")
    return isinstance(budget, int | float) and budget >= reply_tokens


_MARK = re.compile(rb',?"cache_control":\{[^{}]{0,200}\}')
"""What Anthropic's clients move from entry to entry: it does not change what is said."""
_MARKED = b'"cache_control"'
_MOST_COUNTS = 500
_MOST_CONVERSATIONS = 16
"""Those of an agent and of its own subagents, of which each last request is kept."""
_NOTHING: Mapping[str, _Part] = {}


class RequestReader:
    """Reads the requests of one session. Each part is searched for secrets once.

    Args:
        form: of the protocol.
        redactor: finds the secrets.
    """

    def __init__(self, form: VendorForm, redactor: Redactor) -> None:
        self._form, self._redactor, self._version = form, redactor, redactor.version
        self._conversations: dict[bytes, tuple[Mapping[str, _Part], Sequence[_Part]]] = {}
        self._counts: dict[bytes, int] = {}

    def read(self, asked: Asked, body: bytes) -> AgentRequest:
        """Read a request's body.

        Raises:
            RefusedRequestError: it is no request, or has what is never passed on.
        """
        form, value = self._form, _body(body)
        if named := form.elsewhere & {name for name, one in value.items() if one not in (None, False)}:
            raise RefusedRequestError(f"{', '.join(sorted(named))}: only what is in the request is passed on")
        listed = value.get(form.conversation)
        listed = [{"role": "user", "content": listed}] if isinstance(listed, str) else listed
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            raise RefusedRequestError(f"{form.conversation} is not a list of objects", HTTPStatus.BAD_REQUEST)
        if self._version != self._redactor.version:  # it has learnt a secret
            self._version = self._redactor.version
            self._conversations.clear()
        model = asked.model or as_text(value.get("model"))
        stream = value.get("stream") is True if asked.stream is None else asked.stream
        plain, left_out = _known(form, value)
        fields, entries = self._parts(plain, listed)
        begin = [name.encode() + part.digest for name, part in fields.items() if name != "stream"]
        chain = [hashlib.sha256(b"".join((model.encode(), *begin))).digest()]
        tokens = [sum(part.tokens for part in fields.values())]
        for entry in entries:
            left_out += entry.left_out
            chain.append(hashlib.sha256(chain[-1] + entry.digest).digest())
            tokens.append(tokens[-1] + entry.tokens)
        limits = as_object(plain.get(form.inside)) if form.inside else plain
        wanted = min(filter(None, (_limit(limits.get(name)) for name in form.limits)), default=None)
        return AgentRequest(
            form, model, stream, asked.query, left_out, fields, entries, chain, tokens, wanted
        )

    def _parts(
        self, plain: Mapping[str, Any], listed: list[dict[str, Any]]
    ) -> tuple[Mapping[str, _Part], Sequence[_Part]]:
        """Read fields and a conversation. What stood in its last request, too, is compared only."""
        first = [self._entry(one) for one in listed[:1]]
        key = first[0].digest if first else b""
        fields_before, before = self._conversations.pop(key, (_NOTHING, ()))
        fields = {name: self._field(name, one, fields_before.get(name)) for name, one in plain.items()}
        entries = first
        for at, value in enumerate(listed[1:], 1):
            is_known = at < len(before) and before[at].value == value
            entries.append(before[at] if is_known else self._entry(value))
        self._conversations[key] = fields, entries
        if len(self._conversations) > _MOST_CONVERSATIONS:
            del self._conversations[next(iter(self._conversations))]
        return fields, entries

    def _field(self, name: str, value: Any, before: _Part | None) -> _Part:
        if before is not None and before.value == value:
            return before
        raw = json_bytes(value)
        digest = hashlib.sha256(b"%s:%s" % (name.encode(), raw)).digest()  # never that of an entry
        clean = self._redactor.redact_value({name: value})[name]
        return _Part(value, clean, json_bytes(clean), digest, tokens_in(len(raw)))

    def _entry(self, value: dict[str, Any]) -> _Part:
        # What a search for tools has found is a tool, too.
        one, left_out = _with_known_tools(self._form, value) if "tools" in value else (value, [])
        raw = json_bytes(one)
        images, image_bytes = _pictures(one)
        clean = self._clean(one)
        content = raw if clean is one else json_bytes(clean)
        digest = hashlib.sha256(_MARK.sub(b"", raw) if _MARKED in raw else raw).digest()
        tokens = tokens_in(max(len(raw) - image_bytes, 0)) + images * TOKENS_PER_IMAGE
        return _Part(value, clean, content, digest, tokens, left_out)

    def _clean(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return an entry without secrets; itself if it has none.

        As in our own requests, the ids of calls stay, and so does what the vendor wants back unchanged.
        """
        clean = self._redactor.redact_value(value)
        if clean == value:
            return value
        for theirs, ours in zip(_blocks(value), _blocks(clean), strict=False):
            kept = _OPAQUE | ({"data"} if theirs.get("type") == "redacted_thinking" else frozenset())
            ours.update({name: theirs[name] for name in kept & theirs.keys() & ours.keys()})
        return clean

    def input_tokens(self, request: AgentRequest) -> int:
        """Return an upper estimate of a request's input: what a server has counted, and what was added since."""
        for at in range(len(request.chain) - 1, -1, -1):
            counted = self._counts.get(request.chain[at])
            if counted is not None:
                return counted + request.tokens[-1] - request.tokens[at]
        return request.tokens[-1]

    def count(self, request: AgentRequest, input_tokens: int) -> None:
        """Record the server's count of a request."""
        self._counts.pop(request.chain[-1], None)
        self._counts[request.chain[-1]] = input_tokens
        if len(self._counts) > _MOST_COUNTS:
            del self._counts[next(iter(self._counts))]


def _body(body: bytes) -> dict[str, Any]:
    for parse in (_parse_fast, read_json):
        with suppress(ValueError):
            if isinstance(value := parse(body), dict):
                return value
    raise RefusedRequestError("the body is not a JSON object", HTTPStatus.BAD_REQUEST)


_parse_fast = partial(from_json, allow_inf_nan=False)
"""Takes less than half the time of Python's parser, which takes halves of characters and deeper values."""


def _limit(value: object) -> int | None:
    """Return a limit that a request names. Whatever else stands there is replaced by ours."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return max(int(value), 1) if abs(value) <= MOST_TOKENS else None


def _known(form: VendorForm, value: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the fields that are passed on without the conversation, and what else there was."""
    head = {name: one for name, one in value.items() if name in form.fields and one is not None}
    left_out = _unknown(value, form.fields | {form.conversation, "stream_options"})
    if "tools" in head:
        head, others = _with_known_tools(form, head)
        left_out += others
        if not head["tools"]:
            del head["tools"]
            head.pop("tool_choice", None)
            head.pop("toolConfig", None)
    if head.get("store"):
        head["store"] = False
    if form.inside in head:
        config = as_object(head[form.inside])
        head[form.inside] = {name: config[name] for name in config if name in form.inside_fields}
        left_out += _unknown(config, form.inside_fields)
    if "context_management" in head:
        # Only what takes something out: a compaction is a request of its own.
        edits = dicts(as_object(head["context_management"]).get("edits"))
        head["context_management"] = {
            "edits": [edit for edit in edits if as_text(edit.get("type")).startswith("clear_")]
        }
    return head, left_out


def _with_known_tools(form: VendorForm, value: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return an object without the tools that the vendor's server would run, and what these were."""
    kept = [(tool, _known_tool(form, tool)) for tool in dicts(value["tools"])]
    names = [as_text(tool.get("type")) or ", ".join(map(str, tool)) for tool, ours in kept if not ours]
    return {**value, "tools": [ours for _, ours in kept if ours]}, [f"the tool {name[:60]}" for name in names]


def _known_tool(form: VendorForm, tool: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a tool without what the vendor's server would do by itself; None if nothing is left."""
    if not form.tools:  # Gemini's have no type
        declared = tool.get("functionDeclarations")
        return {"functionDeclarations": declared} if declared else None
    kind = "" if tool.get("type") is None else tool["type"]
    if not isinstance(kind, str) or not any(fnmatchcase(kind, one) for one in form.tools):
        return None
    if kind == "namespace":
        return {**tool, **_with_known_tools(form, {"tools": tool.get("tools")})[0]}
    return tool if kind != "tool_search" or tool.get("execution") == "client" else None


_DEFAULTS = {"n": 1, "candidateCount": 1, "responseModalities": ["TEXT"]}
"""Values that change nothing: nobody is told that they are left out."""


def _unknown(value: Mapping[str, Any], known: frozenset[str]) -> list[str]:
    named = (name for name, one in value.items() if one is not None and one != _DEFAULTS.get(name))
    return [f"the field {name[:60]}" for name in named if name not in known]


_OPAQUE = frozenset({
    "id", "call_id", "tool_call_id", "tool_use_id", "signature", "thoughtSignature", "thought_signature",
    "encrypted_content",
})  # fmt: skip
_LISTS = ("content", "parts", "tool_calls", "reasoning_details", "output")
_OBJECTS = (
    "content", "output", "source", "image_url", "file", "functionCall", "functionResponse", "function_call",
    "function_response",
)  # fmt: skip


def _blocks(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield an entry and the parts of its content, however deep, but nothing inside the arguments of calls."""
    rest = [entry]
    while rest:
        block = rest.pop()
        yield block
        for name in _LISTS:
            rest += dicts(block.get(name))
        for name in _OBJECTS:
            rest += [block[name]] if isinstance(block.get(name), dict) else []


_REMOTE_NAMES = ("file_id", "file_url", "fileUri", "file_uri")


def _pictures(entry: dict[str, Any]) -> tuple[int, int]:
    """Return the number of pictures in an entry, and the size of their base64."""
    images = size = 0
    for block in _blocks(entry):
        url = block.get("image_url", block.get("url") if block.get("type") == "url" else None)
        address = as_object(url).get("url") if isinstance(url, dict) else url
        is_remote = isinstance(address, str) and not address.startswith("data:")
        is_reference = block.get("type") in {"file", "item_reference", "container_upload"} and not block.get(
            "file"
        )
        is_file = any(isinstance(block.get(name), dict) for name in ("fileData", "file_data"))
        if is_remote or is_reference or is_file or any(block.get(name) for name in _REMOTE_NAMES):
            raise RefusedRequestError("an address or a file at the vendor's server is not passed on")
        inline = as_object(block.get("inlineData", block.get("inline_data")))
        kind = as_text(inline.get("mimeType", inline.get("mime_type", block.get("media_type"))))
        data = inline.get("data") or (block.get("data") if block.get("type") == "base64" else None)
        if isinstance(address, str):
            kind, data = address[len("data:") : len("data:") + 20], address
        if kind.startswith("image/") and isinstance(data, str):
            images, size = images + 1, size + len(data)
    return images, size


def error_body(form: VendorForm, status: int, words: str) -> bytes:
    """Return an error in the vendor's form."""
    body = form.errors[str(int(status))]
    return json_bytes({**body, "error": {**body["error"], "message": words}})


def placeholders(headers: Mapping[str, str]) -> Iterator[str]:
    """Yield what a request gives as its key."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        yield token.strip()
    for name in ("x-api-key", "x-goog-api-key"):
        if name in headers:
            yield headers[name].strip()

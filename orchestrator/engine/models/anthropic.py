"""Anthropic Messages, the sending half, for the vendor and for servers that speak its protocol.

https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from orchestrator.core.errors import InvalidRequestError, OverloadedError, ProviderError
from orchestrator.core.messages import Reasoning, Role, ToolCall
from orchestrator.engine.models.anthropic_blocks import BlockEncoder, bridge_of
from orchestrator.engine.models.anthropic_models import ModelTraits
from orchestrator.engine.models.anthropic_reply import BLOCK, MessagesDecoder, decode_reply
from orchestrator.engine.models.anthropic_schema import output_format
from orchestrator.engine.models.base import ToolChoice
from orchestrator.engine.models.failures import error_from_body
from orchestrator.engine.models.overflow import highest_reply_limit
from orchestrator.engine.models.refusals import Refused
from orchestrator.engine.models.wire import EncodedMessages, WireRequest, endpoint, host_of, json_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from orchestrator.core.errors import ModelError
    from orchestrator.core.messages import Message, ToolDefinition
    from orchestrator.engine.models.base import Request, Response

SUFFIX = "/messages"

API_VERSION = "2023-06-01"
"""The version that every compatible server knows, and the last that takes `temperature` and `top_p`.

https://platform.claude.com/docs/en/api/versioning
"""

CACHE_MARK = {"type": "ephemeral"}
"""Keeps the prompt up to here for five minutes.

https://platform.claude.com/docs/en/build-with-claude/prompt-caching
"""

_VERSIONED = re.compile(r"/v\d\w*/messages")
_CHOICES = {ToolChoice.AUTO: "auto", ToolChoice.NONE: "none", ToolChoice.REQUIRED: "any"}


class Feature(StrEnum):
    """What a request can do without, where a server refuses it."""

    FORMAT = "format"
    CACHE = "cache"
    PAST_REASONING = "past reasoning"
    CARRIED_BLOCKS = "blocks that go back as they came"
    FORCED_TOOLS = "forced tools"
    PARALLEL = "one call at a time"
    SAMPLING = "sampling"
    THINKING = "thinking"


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


# In this order: the first that the request uses and the error names is given up.
_REFUSALS = {
    Feature.CACHE: _words(r"cache.?control"),
    Feature.PAST_REASONING: _words(
        r"invalid.{0,20}signature|signature.{0,40}(invalid|required|verif)|different conversation"
        r"|thinking.{0,60}cannot be modified"
    ),
    Feature.CARRIED_BLOCKS: _words(
        r"input tag|any of the expected tags|(unknown|unsupported|invalid|unexpected) (content )?(block|type)"
    ),
    Feature.PARALLEL: _words(r"disable_parallel_tool_use|parallel.?tool"),
    Feature.FORCED_TOOLS: _words(r"tool_?choice"),
    Feature.FORMAT: _words(  # the schema of a tool is none of ours to give up
        r"^(?!.*(input_schema|tools\.\d)).*(output_config.{0,3}format|output_format|json.?schema|\bschema"
        r"|grammar|structured)"
    ),
    Feature.SAMPLING: _words(r"temperature|top_p"),
    Feature.THINKING: _words(r"thinking|effort|budget_tokens|output_config(?!.{0,3}format)"),
}
_UNSUPPORTED = _words(r"not support|unsupported|unrecogni[sz]ed|not permitted|unknown|unexpected")
_NAMES_A_FIELD = _words(r"['\"`]\w|\b(tools?|images?|max_\w+|stream\w*|roles?|messages)\b")


@dataclass(frozen=True, slots=True)
class AnthropicWire:
    """One model behind one Messages address.

    Attributes:
        refused: what the server does not take, as it has turned out so far.
        lowered: the limit of a reply and the levels of effort that it takes, where it refused others.
        encoded: messages whose JSON is known already.

    Of a request's provider options for `anthropic`, `beta_headers` (a list of names) become the header
    `anthropic-beta`; `cache_control` takes the place of the mark that keeps prompts in the cache, and null
    turns the cache off; `tools` (the vendor's own) come after ours; the others go into the body as they are,
    and win over what is made here.
    """

    url: str
    model: str
    refused: frozenset[Feature] = frozenset()
    lowered: Refused = field(default_factory=Refused)
    encoded: EncodedMessages = field(default_factory=EncodedMessages, compare=False, repr=False)

    @classmethod
    def at(cls, api_url: str, model: str) -> AnthropicWire:
        """The wire for an address as a user configures it (see `endpoint`).

        A path without a version gets `/v1` too, as the vendor's own clients do it.

        Raises:
            ConfigurationError: it is no http(s) address.
        """
        url = endpoint(api_url, SUFFIX)
        is_whole = urlsplit(api_url.strip()).path.rstrip("/").endswith(SUFFIX)
        if not is_whole and not _VERSIONED.search(urlsplit(url).path):
            url = endpoint(api_url, f"/v1{SUFFIX}")
        return cls(url, model)

    def credentials(self, api_key: str) -> Mapping[str, str]:
        """The header that carries the key."""
        return {"x-api-key": api_key}

    def encode(self, request: Request, *, stream: bool) -> WireRequest:
        """Our request as Messages JSON.

        The head's `cache_control` makes the vendor mark the last block of every request by itself. So no
        mark moves through the conversation, and a longer one's bytes begin with the shorter one's.
        """
        options = dict(request.provider_options.get("anthropic", {}))
        betas = options.pop("beta_headers", None) or ()
        mark = options.pop("cache_control", CACHE_MARK)
        if Feature.CACHE in self.refused:
            mark = None
        head = self._head(request, stream=stream)
        _merge(head, options)
        if tools := [*(_tool(tool) for tool in request.tools), *(head.get("tools") or ())]:
            head["tools"] = [*tools[:-1], {**tools[-1], "cache_control": mark} if mark else tools[-1]]
        if request.tools and (choice := self._tool_choice(request)):
            head["tool_choice"] = choice
        if request.system.strip():
            system = {"type": "text", "text": request.system, "cache_control": mark}
            head["system"] = [system] if mark else request.system
        if mark:
            head["cache_control"] = mark
        headers = {
            "accept": "text/event-stream" if stream else "application/json",
            "anthropic-version": API_VERSION,
        }
        if betas:
            headers["anthropic-beta"] = ",".join([betas] if isinstance(betas, str) else map(str, betas))
        return WireRequest(
            self.url, headers, head, "messages", self._entries(request.messages, mark), self.encoded
        )

    def _head(self, request: Request, *, stream: bool) -> dict[str, Any]:
        traits = ModelTraits.of(self.model)
        effort = self.lowered.effort(request.reasoning_effort)
        limit = request.max_output_tokens
        wanted = traits.output_tokens(effort) if limit is None else limit
        limit = self.lowered.limit(wanted) or wanted
        head: dict[str, Any] = {"model": self.model, "max_tokens": limit}
        if stream:
            head["stream"] = True
        if effort is not None and Feature.THINKING not in self.refused:
            forced = bool(request.tools) and self._tool_choice(request).get("type") == "any"
            may_budget = not self._continues_without_reasoning(request.messages)
            head.update(traits.thinking(effort, limit, may_budget=may_budget, forced=forced))
        if Feature.SAMPLING not in self.refused:
            head.update(traits.sampling(request.temperature, request.top_p, head.get("thinking")))
        may_shape = traits.takes_schema and Feature.FORMAT not in self.refused
        if request.output_schema and may_shape and (shape := output_format(request.output_schema.schema)):
            head["output_config"] = {**head.get("output_config", {}), "format": shape}
        return head

    def _continues_without_reasoning(self, messages: Sequence[Message]) -> bool:
        """Whether the last reply called tools without reasoning that goes back.

        With a budget the vendor then refuses to go on: it wants such a reply to begin with its reasoning.
        """
        last = next((message for message in reversed(messages) if message.role is Role.ASSISTANT), None)
        if last is None or not any(isinstance(part, ToolCall) for part in last.parts):
            return False
        encoder = self._blocks()
        first = next((block for part in last.parts if (block := encoder.block(part))), {})
        return first.get("type") not in {"thinking", "redacted_thinking"}

    def _tool_choice(self, request: Request) -> dict[str, Any]:
        choice = request.tool_choice
        forces = ModelTraits.of(self.model).takes_forced_tools and Feature.FORCED_TOOLS not in self.refused
        if choice is ToolChoice.REQUIRED and not forces:
            choice = ToolChoice.AUTO
        one_call = request.parallel_tool_calls is False and choice is not ToolChoice.NONE
        one_call = one_call and Feature.PARALLEL not in self.refused
        if choice is None and not one_call:
            return {}
        chosen: dict[str, Any] = {"type": _CHOICES[choice or ToolChoice.AUTO]}
        return {**chosen, "disable_parallel_tool_use": True} if one_call else chosen

    def _entries(self, messages: Sequence[Message], mark: object) -> list[bytes]:
        entry = self._blocks().entry
        entries = [self.encoded.get(message, entry) for message in messages]
        bridge = bridge_of(messages) if mark else None
        if bridge is not None:
            entries[bridge] = b",".join(json_bytes(made) for made in entry(messages[bridge], mark))
        return entries

    def _blocks(self) -> BlockEncoder:
        return BlockEncoder(
            past_reasoning=Feature.PAST_REASONING not in self.refused,
            carried=Feature.CARRIED_BLOCKS not in self.refused,
            unsigned_reasoning=not ModelTraits.of(self.model).is_claude,
        )

    def decode(self, body: bytes, request: Request) -> Response:
        """Read a whole reply.

        Raises:
            ModelError: the body is an error, or no reply.
        """
        return decode_reply(body, request, model=self.model, where=host_of(self.url))

    def decoder(self, request: Request) -> MessagesDecoder:
        """A reader for one streamed reply."""
        return MessagesDecoder(request, model=self.model, where=host_of(self.url))

    def error(self, status: int, headers: Mapping[str, str], body: bytes, now: datetime) -> ModelError:
        """Classify an HTTP reply that is not a success."""
        return error_from_body(status, headers, body, now, host_of(self.url))

    def relax(self, request: Request, error: ModelError) -> AnthropicWire | None:
        """The wire without what the server refused (see `Feature`), if the request used it."""
        if not isinstance(error, InvalidRequestError | OverloadedError | ProviderError):
            return None
        said = str(error).partition(": ")[2]
        highest = highest_reply_limit(said)
        if highest is not None and highest < self._head(request, stream=False)["max_tokens"]:
            return replace(self, lowered=replace(self.lowered, reply_tokens=highest))
        used = self._used(request)
        given_up = next((one for one, words in _REFUSALS.items() if one in used and words.search(said)), None)
        is_vague = isinstance(error, InvalidRequestError) and not _NAMES_A_FIELD.search(said)
        if given_up is None and Feature.FORMAT in used and is_vague and _UNSUPPORTED.search(said):
            given_up = Feature.FORMAT
        if given_up is None:
            return None
        effort = self.lowered.effort(request.reasoning_effort)
        if given_up is Feature.THINKING and (lowered := self.lowered.after_effort(said, effort)):
            return replace(self, lowered=lowered)
        refused = self.refused | {given_up}
        return replace(self, refused=refused, encoded=EncodedMessages())

    def _used(self, request: Request) -> set[Feature]:
        head = self.encode(request, stream=False).head
        used = {
            Feature.CACHE: "cache_control" in head,
            Feature.PAST_REASONING: True,
            Feature.CARRIED_BLOCKS: any(
                isinstance(part, Reasoning) and BLOCK in part.opaque
                for message in request.messages
                for part in message.parts
            ),
            Feature.PARALLEL: "disable_parallel_tool_use" in head.get("tool_choice", {}),
            Feature.FORCED_TOOLS: head.get("tool_choice", {}).get("type") == "any",
            Feature.FORMAT: "format" in head.get("output_config", {}),
            Feature.SAMPLING: "temperature" in head or "top_p" in head,
            Feature.THINKING: request.reasoning_effort is not None,
        }
        return {feature for feature, is_used in used.items() if is_used} - self.refused


def _merge(head: dict[str, Any], options: Mapping[str, Any]) -> None:
    """Add a user's fields; those of `output_config` beside ours."""
    config, more = head.get("output_config", {}), options.get("output_config")
    head.update(options)
    if isinstance(more, dict):
        head["output_config"] = {**config, **more}


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    schema = {"type": "object", **tool.parameters}  # a schema without a type is refused
    return {"name": tool.name, "description": tool.description, "input_schema": schema}

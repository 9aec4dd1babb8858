"""What OpenAI's two protocols share, at the vendor's address and at compatible servers.

The subset of JSON Schema for replies: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.core.messages import Text, Usage
from orchestrator.engine.models.base import count_of
from orchestrator.engine.models.wire import host_of, plain_name, schema_parts, short_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orchestrator.core.messages import Image
    from orchestrator.engine.models.base import OutputSchema

_OPENAI_HOSTS = re.compile(r"(?:[a-z]{2}\.)?api\.openai\.com|.+\.openai\.azure\.com")
_MAX_NAME_CHARACTERS = 64
CALLING = ("tool_choice", "parallel_tool_calls")
"""Fields that are sent only with tools, and after them."""
_NULL = {"type": "null"}
_NOT_STRICT = frozenset(
    "allOf oneOf not if then else dependentRequired dependentSchemas patternProperties".split()  # noqa: SIM905  words read best without quotes
)


def is_openai(url: str) -> bool:
    """Return whether an address is OpenAI's own, or of its models at Azure."""
    return _OPENAI_HOSTS.fullmatch(host_of(url).partition(":")[0].lower()) is not None


def sent_name(name: str, *, strict: bool) -> str:
    """Return the name of a call: the vendor refuses longer ones, other characters, and an empty name."""
    return plain_name(name, _MAX_NAME_CHARACTERS) if strict else name or "_"


def sent_id(call_id: str, most: int, *, strict: bool) -> str:
    """Return the id of a call. The vendor refuses longer ones; other servers may need whole ids."""
    return short_id(call_id, most) if strict else call_id


def text_or_parts(
    parts: Sequence[Text | Image], encode: Callable[[Text | Image], dict[str, Any]]
) -> str | list[dict[str, Any]]:
    """Return a message's content: plain text as a string, because some servers accept nothing else."""
    if all(isinstance(part, Text) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, Text))
    return [encode(part) for part in parts]


def data_url(image: Image) -> str:
    """Return an image as an address that has its bytes."""
    return f"data:{image.media_type};base64,{base64.b64encode(image.data).decode('ascii')}"


def openai_format(output: OutputSchema, *, demanding: bool) -> dict[str, Any]:
    """Return the request field that constrains a whole reply.

    Args:
        demanding: require every property, and let optional ones be null, as strict mode demands.
    """
    schema = all_required(output.schema) if demanding else output.schema
    named = {
        "name": plain_name(output.name, _MAX_NAME_CHARACTERS),
        "schema": schema,
        "strict": allows_strict(schema),
    }
    return {"type": "json_schema", "json_schema": named}


def all_required(schema: Any) -> Any:
    """Return the schema with every property required; an optional one may be null instead."""
    if not isinstance(schema, dict):
        return schema
    changed = dict(schema)
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            changed[key] = [all_required(part) for part in schema[key]]
    if "items" in schema:
        changed["items"] = all_required(schema["items"])
    if "properties" in schema:
        required = schema.get("required", ())
        changed["properties"] = {
            key: all_required(value) if key in required else _nullable(all_required(value))
            for key, value in schema["properties"].items()
        }
        changed["required"] = list(schema["properties"])
    return changed


def _nullable(schema: Any) -> Any:
    if "anyOf" in schema:
        variants = schema["anyOf"]
        return schema if _NULL in variants else {**schema, "anyOf": [*variants, _NULL]}
    return schema if "null" in schema.get("type", ()) else {"anyOf": [schema, _NULL]}


def allows_strict(schema: object) -> bool:
    """Return whether strict mode accepts the schema: every object closed, with all properties required."""
    return isinstance(schema, dict) and schema.get("type") == "object" and _is_strict(schema)


def _is_strict(schema: object) -> bool:
    if not isinstance(schema, dict) or _NOT_STRICT & schema.keys():
        return False
    kinds = schema.get("type")
    if kinds == "object" or (isinstance(kinds, list) and "object" in kinds):
        properties = schema.get("properties", {})
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", ())) != set(properties):
            return False
    if not schema.keys() & {"type", "anyOf", "$ref", "enum", "const"}:
        return False
    if kinds == "array" and "items" not in schema:
        return False
    return all(_is_strict(part) for part in schema_parts(schema))


def openai_usage(usage: Mapping[str, Any] | None) -> Usage | None:
    """Return the vendor's counts; None if nothing was counted.

    Most servers include cached tokens in the prompt's count and reasoning in the completion's. Some omit one
    of them and report it only as a part of the total. The omitted part is the one that explains the total
    exactly (see `_uncounted_tokens`). The rest of the total counts as input, which is cheaper. If the server
    does not report reasoning, the rest counts as output instead: then the model has hidden reasoning, as
    Gemini's at its compatible address.
    """
    if not usage:
        return None
    prompt = count_of(usage, "prompt_tokens") or count_of(usage, "input_tokens")
    completion = count_of(usage, "completion_tokens") or count_of(usage, "output_tokens")
    if not prompt and not completion:
        return None
    read = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    made = usage.get("completion_tokens_details") or usage.get("output_tokens_details")
    cached = count_of(read, "cached_tokens") or max(count_of(usage, name) for name in _CACHED)
    written = count_of(read, "cache_write_tokens") or count_of(usage, "cache_creation_input_tokens")
    hour = count_of(usage.get("cache_creation"), "ephemeral_1h_input_tokens")
    reasoning = count_of(made, "reasoning_tokens") or count_of(usage, "reasoning_tokens")
    rest = max(count_of(usage, "total_tokens") - prompt - completion, 0)
    more_read, more_made = _uncounted_tokens((prompt, cached, written), (completion, reasoning), rest)
    unexplained = max(rest - more_read - more_made, 0)
    says_reasoning = isinstance(made, Mapping) and made.get("reasoning_tokens") is not None
    if not prompt or (completion and says_reasoning):
        more_read += unexplained
    else:
        more_made += unexplained
    whole = prompt + more_read
    cached = min(cached, whole)
    return Usage(
        input_tokens=whole,
        output_tokens=completion + more_made,
        cached_input_tokens=cached,
        cache_write_tokens=min(written, whole - cached),
        reasoning_tokens=reasoning,
        hour_write_tokens=min(hour, written, whole - cached),
    )


_CACHED = ("cached_tokens", "num_cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")


def _uncounted_tokens(read: tuple[int, int, int], made: tuple[int, int], rest: int) -> tuple[int, int]:
    """Return the cached tokens missing in the prompt's count, and reasoning missing in the completion's.

    Each is missing entirely or not at all. The first combination that explains the rest of the total exactly
    counts, or else the smallest one with which no part exceeds its whole. Tokens written to the cache are
    added to those read from it if the rest is large enough. Without a rest the prompt's count is used
    unchanged.
    """
    prompt, cached, written = read
    completion, reasoning = made
    possible = [
        (more_read, more_made)
        for more_read in ((0, cached, cached + written, written) if rest else (0,))
        for more_made in (0, reasoning)
        if (not rest or max(cached, written) <= prompt + more_read) and reasoning <= completion + more_made
    ]
    if exact := [one for one in possible if sum(one) == rest]:
        return exact[0]
    more_read, more_made = min(possible)
    both = cached + written
    return (both if more_read and both <= rest else more_read), more_made

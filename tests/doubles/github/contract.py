"""Checks requests and replies against the kept part of GitHub's OpenAPI description."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonschema import Draft4Validator, FormatChecker

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SUBSET = Path(__file__).parents[2] / "data" / "github" / "openapi-subset.json"
UNDOCUMENTED = frozenset({301, 307, 401, 403, 404, 410, 429, 500, 502, 503})
"""Statuses that GitHub answers on any route, whether the description of the route lists them or not."""

ENDS = 3
"""Items checked at each end of a list."""

FORMATS = FormatChecker(formats=())


@FORMATS.checks("date-time", raises=ValueError)
def _is_date_time(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


@FORMATS.checks("uri")
def _is_uri(value: object) -> bool:
    return (
        not isinstance(value, str) or re.match(r"[a-z][a-z0-9+.-]*:\S+\Z", value, re.IGNORECASE) is not None
    )


def _as_draft4(node: Any) -> Any:
    """OpenAPI 3.0 schemas are JSON Schema, but for `nullable`."""
    if isinstance(node, list):
        return [_as_draft4(item) for item in node]
    if not isinstance(node, dict):
        return node
    plain = {key: _as_draft4(value) for key, value in node.items() if key != "nullable"}
    if node.get("nullable") is not True:
        return plain
    return {"anyOf": [plain, {"type": "null"}]}


def _linked(node: Any, root: Mapping[str, Any]) -> Any:
    """Put the target in the place of each reference: nothing has to look it up again for each value."""
    if isinstance(node, dict):
        for key, value in node.items():
            node[key] = _linked(value, root) if not _is_reference(value) else _target(value, root)
    elif isinstance(node, list):
        node[:] = [_target(item, root) if _is_reference(item) else _linked(item, root) for item in node]
    return node


def _is_reference(node: Any) -> bool:
    return isinstance(node, dict) and "$ref" in node


def _target(node: Any, root: Mapping[str, Any]) -> Any:
    while _is_reference(node):
        found: Any = root
        for part in node["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        node = found
    return node


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path of the description."""

    method: str
    path: str
    spec: Mapping[str, Any]


class Contract:
    """What GitHub says that it takes and gives."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        spec = _as_draft4(description)
        _linked(spec, spec)
        self._operations = [
            (_path_pattern(path), Operation(method, path, operation))
            for path, item in spec["paths"].items()
            for method, operation in item.items()
            if method != "parameters"
        ]

    def operation(self, method: str, path: str) -> Operation | None:
        """The operation that answers, or None where the kept part knows none."""
        for pattern, operation in self._operations:
            if operation.method == method.lower() and pattern.fullmatch(path):
                return operation
        return None

    def request_problems(
        self, operation: Operation, query: Mapping[str, str], body: Any | None
    ) -> Iterable[str]:
        """What is wrong with a request: unknown or bad query parameters, a bad body."""
        known = {p["name"]: p for p in operation.spec.get("parameters", ())}
        for name, text in query.items():
            if name not in known or known[name]["in"] != "query":
                yield f"query parameter {name!r} is not in the description"
                continue
            schema = known[name]["schema"]
            value = int(text) if schema.get("type") == "integer" and text.isdigit() else text
            yield from (f"query parameter {name!r}: {problem}" for problem in _problems(schema, value))
        content = operation.spec.get("requestBody", {}).get("content", {}).get("application/json")
        if content is None:
            if body is not None:
                yield "a body where the description has none"
            return
        if body is None and operation.spec["requestBody"].get("required"):
            yield "no body where the description requires one"
        if body is not None:
            yield from _body_problems(content["schema"], body)

    def reply_problems(self, operation: Operation, status: int, body: Any | None) -> Iterable[str]:
        """What is wrong with a reply: a status that cannot be, a body of another form."""
        if status == 304:
            return
        reply = operation.spec["responses"].get(str(status))
        if reply is None:
            if status not in UNDOCUMENTED:
                yield f"status {status} is not in the description"
            elif isinstance(body, dict) and not isinstance(body.get("message"), str):
                yield f"a {status} without a message"
            return
        if isinstance(body, list):
            # One routine wrote them all, and checking a hundred takes a second.
            body = body[:ENDS] + body[ENDS:][-ENDS:]
        if "application/json" in reply.get("content", {}):
            yield from _problems(reply["content"]["application/json"]["schema"], body)


def _body_problems(schema: Mapping[str, Any], body: Any) -> Iterable[str]:
    yield from (f"body: {problem}" for problem in _problems(schema, body))
    parts = [schema, *schema.get("oneOf", ()), *schema.get("anyOf", ())]
    properties = {name for part in parts for name in part.get("properties", {})}
    unknown = sorted(set(body) - set(properties)) if isinstance(body, dict) else []
    yield from (f"body: {name!r} is not in the description" for name in unknown)


def _problems(schema: Mapping[str, Any], value: Any) -> Iterable[str]:
    for error in Draft4Validator(schema, format_checker=FORMATS).iter_errors(value):
        yield f"{error.json_path}: {error.message[:300]}"


def _path_pattern(path: str) -> re.Pattern[str]:
    """Everywhere a segment, but `{path}`, `{ref}`, `{branch}` and a label's `{name}` may hold slashes.

    The path of the top folder is empty.
    """
    escaped = re.escape(path).replace(r"\{", "{").replace(r"\}", "}")
    return re.compile(
        re.sub(
            r"\{(\w+)\}",
            lambda m: {"path": ".*"}.get(m[1], ".+" if m[1] in {"ref", "branch", "name"} else "[^/]+"),
            escaped,
        )
    )


@cache
def github_contract() -> Contract:
    """The contract in `tests/data/github/`."""
    return Contract(json.loads(SUBSET.read_text(encoding="utf-8")))

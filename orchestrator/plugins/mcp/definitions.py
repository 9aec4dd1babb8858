"""The definitions of a server's tools: as approved, as they are now, and as a model is shown them.

A server may describe its tools in any way, and change the description at any time. So a person approves what
a model is shown, and a changed definition is not used until it is approved again.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ConfigurationError
from orchestrator.core.files import replace_file
from orchestrator.core.messages import ToolDefinition
from orchestrator.core.prompts import fenced, one_line, render
from orchestrator.engine.tools.registry import follow_reference, schema_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from orchestrator.core.messages import JsonObject

MAX_DEFINITION_CHARS = 40_000
"""Size of one tool's description and schema."""
MAX_PARTS = 2_000
"""Number of parts of a schema with its references resolved."""
MAX_DESCRIPTION_CHARS = 4_000
"""Characters of a description that a model is shown."""
_PARAMETER_CHARS = 300
_LINE_CHARS = 200
_NAMED = 5
_MAX_DIFF_LINES = 200
_MAX_FILE_BYTES = 50_000_000
_PIN = "sha256:"
_PLAIN_WORD = re.compile(r"[\w.:/+@#-]{1,80}", re.ASCII)
_PARAMETER = re.compile(r"[\w.$-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class McpDefinition:
    """A tool as its server defines it; `name` is the raw one."""

    name: str
    description: str
    parameters: JsonObject

    def text(self) -> str:
        """Return all that a person approves, in lines."""
        schema = json.dumps(self.parameters, indent=1, sort_keys=True)
        return f"name: {self.name}\ndescription:\n{self.description}\nparameters:\n{schema}"

    @property
    def digest(self) -> str:
        """A hash that is equal for equal definitions."""
        return hashlib.sha256(self.text().encode("utf-8", "surrogatepass")).hexdigest()


def pin_of(definitions: Sequence[McpDefinition]) -> str:
    """Return the pin for all definitions of a server, to be put into a configuration."""
    digests = "\n".join(sorted(one.digest for one in definitions))
    return _PIN + hashlib.sha256(digests.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class DefinitionChanges:
    """The differences between a server's definitions and the approved ones."""

    approved: tuple[McpDefinition, ...]
    new: tuple[McpDefinition, ...] = ()
    changed: tuple[tuple[McpDefinition, McpDefinition], ...] = ()
    gone: tuple[McpDefinition, ...] = ()

    @property
    def waits(self) -> bool:
        """Whether a definition needs a person's approval."""
        return bool(self.new or self.changed)

    def in_words(self) -> str:
        """Return the differences in one line."""
        kinds = {"changed": [new for _, new in self.changed], "new": self.new, "gone": self.gone}
        parts = []
        for word, definitions in kinds.items():
            if definitions:
                names = ", ".join(one_line(one.name, limit=60) for one in definitions[:_NAMED])
                more = " and more" if len(definitions) > _NAMED else ""
                parts.append(f"{len(definitions)} {word}: {names}{more}")
        return "; ".join(parts)

    def diff(self) -> list[str]:
        """Return the lines of a diff, in which invisible characters are visible."""
        pairs: list[tuple[str, str, str]] = [(new.name, old.text(), new.text()) for old, new in self.changed]
        pairs += [(one.name, "", one.text()) for one in self.new]
        pairs += [(one.name, one.text(), "") for one in self.gone]
        lines: list[str] = []
        for name, old, new in pairs:
            title = one_line(name, limit=_LINE_CHARS)
            before, after = f"approved/{title}", f"now/{title}"
            lines += difflib.unified_diff(_visible(old), _visible(new), before, after, lineterm="", n=2)
        more = len(lines) - _MAX_DIFF_LINES
        return lines if more <= 0 else [*lines[:_MAX_DIFF_LINES], f"... {more} more lines"]


def compare(
    found: Sequence[McpDefinition], approved: Mapping[str, McpDefinition], pin: str = ""
) -> DefinitionChanges:
    """Compare a server's definitions with the approved ones; a pin alone decides about all of them."""
    if pin:
        is_pinned = pin_of(found) == pin
        return DefinitionChanges(tuple(found)) if is_pinned else DefinitionChanges((), new=tuple(found))
    same, new, changed = [], [], []
    for one in found:
        before = approved.get(one.name)
        if before is None:
            new.append(one)
        elif before == one:
            same.append(one)
        else:
            changed.append((before, one))
    names = {one.name for one in found}
    gone = tuple(one for name, one in sorted(approved.items()) if name not in names)
    return DefinitionChanges(tuple(same), tuple(new), tuple(changed), gone)


def _visible(text: str) -> list[str]:
    """Split a text into lines of limited length; a long line is continued, so that nothing is omitted."""
    lines = []
    for line in text.split("\n") if text else ():
        escaped = one_line(line, limit=10 * len(line) + 1)
        lines += [escaped[at : at + _LINE_CHARS] for at in range(0, max(len(escaped), 1), _LINE_CHARS)]
    return lines


class ServerApprovals:
    """A file, which may be missing, of the definitions that a person has approved, by server."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def of(self, server: str) -> dict[str, McpDefinition]:
        """Return the approved definitions of a server, by raw name.

        Raises:
            ConfigurationError: the file is damaged; nothing counts as approved then.
        """
        known = self._read().get(server, {})
        try:
            return {
                name: McpDefinition(name, one["description"], one["parameters"])
                for name, one in known.items()
            }
        except (AttributeError, KeyError, TypeError):
            raise self._damaged() from None

    def approve(self, server: str, definitions: Sequence[McpDefinition]) -> None:
        """Replace all approved definitions of this server with these.

        It raises what `of` raises, also if the file cannot be written.
        """
        servers = self._read()
        servers[server] = {
            one.name: {"description": one.description, "parameters": one.parameters} for one in definitions
        }
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self.path, json.dumps(servers, indent=1, sort_keys=True).encode(), 0o600)
        except OSError as error:
            raise ConfigurationError(f"{self.path} cannot be written: {error.strerror or error}") from error

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            with self.path.open("rb") as file:
                value = json.loads(file.read(_MAX_FILE_BYTES))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigurationError(f"{self.path} cannot be read: {error.strerror or error}") from error
        except (ValueError, RecursionError):
            raise self._damaged() from None
        if not isinstance(value, dict) or not all(isinstance(one, dict) for one in value.values()):
            raise self._damaged()
        return value

    def _damaged(self) -> ConfigurationError:
        return ConfigurationError(
            f"{self.path} is damaged: remove it, and approve the tools of your MCP servers again "
            "(pullwright mcp test NAME)"
        )


_KEPT_KEYWORDS = frozenset(
    {"type", "properties", "required", "items", "enum", "const", "anyOf", "oneOf", "allOf"}
    | {"additionalProperties", "format", "$ref", "description"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems"}
    | {"maxItems"}
)
"""Schema keywords that are kept.

Dropping the others only allows more, and the server validates its arguments itself; a foreign regular
expression may take for ever. A reference that remains cannot be resolved, so that the tool is not used.
"""

_CHOICES = frozenset({"enum", "const", "format"})
_OF_SCHEMAS = frozenset({"properties", "$defs", "definitions"})


def for_model(
    server: str, definition: McpDefinition, name: str, clean: Callable[[str, str], str]
) -> ToolDefinition | str:
    """Return the definition for a model, with the server's words in a fence; else why it cannot be used.

    Args:
        name: see `shown_names`.
        clean: returns a text as the model may see it, given a description of the text and the text itself.
    """
    try:
        schema = definition.parameters
        if len(definition.description) + len(json.dumps(schema)) > MAX_DEFINITION_CHARS:
            return f"its definition has more than {MAX_DEFINITION_CHARS:,} characters"
        if unknown := next((key for key in _parameter_names(schema) if not _PARAMETER.fullmatch(key)), None):
            return f"it has a parameter {one_line(unknown, limit=40)!r}, which is not a plain name"
        where = f"the definition of {name}"
        said = clean(where, definition.description.strip()[:MAX_DESCRIPTION_CHARS])
        shown = _SchemaConverter(schema, lambda text: clean(where, text))
        parameters = shown.of({**schema, "type": "object"})
        parameters.setdefault("properties", {})
        described = "\n".join(filter(None, (said, *dict.fromkeys(shown.words))))
        text = render(
            "plugins/mcp/tool",
            server=server,
            tool=one_line(definition.name, limit=120),
            words=fenced(described) if described else "",
        )
        return ToolDefinition(name, text.strip(), parameters)
    except RecursionError:
        return "its schema is nested too deeply"


def plain_listing(listed: object) -> JsonObject | tuple[str, str]:
    """Return a tool of `tools/list` with only the fields that are used; else its name, and why it cannot be used.

    A schema may leave out that arguments are an object, as all arguments are.
    """
    tool = listed if isinstance(listed, dict) else {}
    name, schema = tool.get("name"), tool.get("inputSchema", {})
    if not isinstance(name, str) or not name:
        return "without a name", "a tool needs a name"
    if not isinstance(schema, dict):
        return name, "its schema is no object"
    if schema.get("type", "object") != "object":
        return name, "its schema is not that of an object"
    made: dict[str, Any] = {"name": name, "inputSchema": {"type": "object", **schema}}
    if isinstance(tool.get("description"), str):
        made["description"] = tool["description"]
    return made


def as_definition(listed: Mapping[str, Any]) -> McpDefinition | None:
    """Return a definition from `tools/list`; None if it has no name or no schema."""
    name, schema, description = listed.get("name"), listed.get("inputSchema"), listed.get("description")
    if not isinstance(name, str) or not name or not isinstance(schema, dict):
        return None
    return McpDefinition(name, description if isinstance(description, str) else "", schema)


def _parameter_names(schema: Any) -> Iterator[str]:
    for node in schema_nodes(schema):
        yield from (name for key in _OF_SCHEMAS if isinstance(node.get(key), dict) for name in node[key])


@dataclass(slots=True)
class _SchemaConverter:
    """Converts a schema for the model: of limited size and without references, so that validation ends soon.

    Attributes:
        root: the schema in which references are resolved.
        words: collects choices that are not plain words, for the description.
        room: how many more parts are allowed; parts beyond that accept anything.
    """

    root: JsonObject
    clean: Callable[[str], str]
    words: list[str] = field(default_factory=list)
    room: int = MAX_PARTS
    _open: list[str] = field(default_factory=list)

    def of(self, schema: Any) -> Any:
        """Return a schema with only the kept keywords, and its texts as quotations of one line."""
        if isinstance(schema, list):
            return [self.of(item) for item in schema]
        if not isinstance(schema, dict):
            return schema
        self.room -= 1
        if self.room < 0:
            return {}
        reference = schema.get("$ref")
        if isinstance(reference, str) and (target := follow_reference(self.root, reference)) is not None:
            return self._inlined(reference, target, {key: schema[key] for key in schema if key != "$ref"})
        kept = [key for key in schema if key in _KEPT_KEYWORDS and key not in _CHOICES]
        return {**{key: self._value(schema, key) for key in kept}, **self._choices(schema)}

    def _inlined(self, reference: str, target: Any, beside: JsonObject) -> Any:
        """Return the target of a reference; a recursive reference becomes a schema that accepts anything."""
        if reference in self._open or not isinstance(target, dict):
            return {}
        self._open.append(reference)
        try:
            return self.of({**target, **beside})
        finally:
            self._open.pop()

    def _value(self, schema: JsonObject, key: str) -> Any:
        value = schema[key]
        if key == "properties" and isinstance(value, dict):
            return {name: self.of(inner) for name, inner in value.items()}
        if key == "description":
            return f"The server's words: `{one_line(self.clean(str(value)), limit=_PARAMETER_CHARS)}`"
        if key == "required" and isinstance(value, list):
            known = schema.get("properties")
            names = known if isinstance(known, dict) else {}
            return [name for name in value if isinstance(name, str) and name in names]
        return self.of(value)

    def _choices(self, schema: JsonObject) -> JsonObject:
        """Return the choices if all are plain words; else move them to the description, and allow any value."""
        shown: dict[str, Any] = {}
        for key in sorted(_CHOICES & schema.keys()):
            value = schema[key]
            choices = value if isinstance(value, list) else [value]
            if all(not isinstance(one, str) or _PLAIN_WORD.fullmatch(one) for one in choices):
                shown[key] = value
            else:
                self.words += [f"A choice: {self.clean(str(one))}" for one in choices]
        return shown

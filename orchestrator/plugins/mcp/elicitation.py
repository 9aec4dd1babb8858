"""The questions that an MCP server may ask a present person: a few plain values, or to open a page.

Format: https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from orchestrator.core.addresses import is_loopback
from orchestrator.core.prompts import one_line
from orchestrator.core.redaction import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    AnswerValue: TypeAlias = str | int | float | bool | list[str]

MAX_FIELDS = 20
MAX_CHOICES = 50
MAX_QUESTIONS = 10
"""Questions that one server may ask in a session."""
PERSON_SECONDS = 600.0
"""Time-out of a person's answer. The call's own time-out is suspended meanwhile."""
_MESSAGE_CHARS = 2_000
_LABEL_CHARS = 200
_ANSWER_CHARS = 10_000
_SECRET_WORDS = (
    *("password", "passphrase", "passcode", "secret"),
    *("api key", "token", "credential", "private key"),
)
_YES, _NO = frozenset({"y", "yes", "true"}), frozenset({"n", "no", "false"})


class FieldKind(StrEnum):
    """The kind of an answer."""

    TEXT = "text"
    INTEGER = "a whole number"
    NUMBER = "a number"
    BOOLEAN = "yes or no"
    CHOICE = "one of"
    CHOICES = "several of, with commas between"


_PLAIN_KINDS = {
    "string": FieldKind.TEXT,
    "integer": FieldKind.INTEGER,
    "number": FieldKind.NUMBER,
    "boolean": FieldKind.BOOLEAN,
}


@dataclass(frozen=True, slots=True)
class QuestionField:
    """One value that a server asks for.

    Attributes:
        name: the server's own name of it, for the answer.
        label: the text for a person, in one line.
        choices: the possible answers, by what a person types.
        default: the value of an empty line.
        least: minimum of the value, or of its length.
        most: maximum of the value, or of its length.
    """

    name: str
    label: str
    kind: FieldKind
    choices: Mapping[str, str]
    default: AnswerValue | None
    is_required: bool
    least: float
    most: float

    def read(self, typed: str) -> AnswerValue | None:
        """Parse what a person typed; return None if the value is omitted.

        Raises:
            ValueError: the text is invalid; the message says what is valid.
        """
        text = typed.strip()
        if not text:
            if self.default is None and self.is_required:
                raise ValueError("it cannot be left out")
            return self.default
        value = self._value(text)
        size = len(value) if isinstance(value, str | list) else value
        if self.kind is not FieldKind.CHOICE and not self.least <= size <= self.most:
            what = "its length" if isinstance(value, str | list) else "it"
            raise ValueError(f"{what} must be from {self.least:g} to {self.most:g}")
        return value

    def _value(self, text: str) -> AnswerValue:
        match self.kind:
            case FieldKind.TEXT:
                return text
            case FieldKind.BOOLEAN:
                if text.casefold() not in _YES | _NO:
                    raise ValueError("type yes or no")
                return text.casefold() in _YES
            case FieldKind.CHOICE:
                return self._chosen(text)
            case FieldKind.CHOICES:
                return [self._chosen(one.strip()) for one in text.split(",") if one.strip()]
            case FieldKind.INTEGER | FieldKind.NUMBER:
                try:
                    number = int(text) if self.kind is FieldKind.INTEGER else float(text)
                except ValueError:
                    raise ValueError(f"type {self.kind}") from None
                if not math.isfinite(number):
                    raise ValueError(f"type {self.kind}")
                return number

    def _chosen(self, text: str) -> str:
        if text not in self.choices:
            raise ValueError(f"type {self.kind}: {', '.join(self.choices)}")
        return self.choices[text]


@dataclass(frozen=True, slots=True)
class ServerQuestion:
    """A server's question. All texts are sanitized, which does not make them trustworthy.

    Attributes:
        page: the page that the person should open in a browser; then there are no fields.
        wants_secret: whether it seems to ask for a secret, which the protocol forbids.
    """

    server: str
    message: str
    fields: tuple[QuestionField, ...] = ()
    page: str = ""
    wants_secret: bool = False


AskPerson: TypeAlias = "Callable[[ServerQuestion], Awaitable[dict[str, AnswerValue] | None]]"
"""Asks a person a server's question; returns None if the person declines."""


@dataclass(frozen=True, slots=True)
class PersonAtTerminal:
    """A person who can see messages and answer questions.

    Attributes:
        show_page: shows the address of a sign-in page, given the server's name and the address.
        ask: None if servers must not ask questions.
    """

    show_page: Callable[[str, str], None]
    ask: AskPerson | None = None


def question_of(server: str, asked: Mapping[str, Any], clean: Callable[[str, str], str]) -> ServerQuestion:
    """Return the question in the parameters of `elicitation/create`.

    Args:
        clean: returns a text as a person may see it, given a description of the text and the text itself.

    Raises:
        ValueError: the parameters are not a supported question.
    """

    def shown(text: object, limit: int = _LABEL_CHARS) -> str:
        return one_line(clean("a question of an MCP server", str(text)), limit=limit, keep="`")

    message = shown(asked.get("message", ""), _MESSAGE_CHARS)
    if asked.get("mode") == "url":
        page = str(asked.get("url", ""))
        if not is_page(page) or page != shown(page, _MESSAGE_CHARS):
            raise ValueError("a page must have an https:// address")
        return ServerQuestion(server, message, page=page)
    schema = asked.get("requestedSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(schema, dict) or not isinstance(properties, dict) or len(properties) > MAX_FIELDS:
        raise ValueError(f"it must ask for an object with {MAX_FIELDS} fields at most")
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    fields = tuple(_field(name, one, shown, is_required=name in needed) for name, one in properties.items())
    text = " ".join((message, *(one.label for one in fields))).casefold()
    secret = any(is_secret_name(one.name) for one in fields) or any(word in text for word in _SECRET_WORDS)
    return ServerQuestion(server, message, fields, wants_secret=secret)


def is_page(address: str) -> bool:
    """Return whether this address may be shown to a person as a page to open."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))


def _field(name: str, given: object, shown: Callable[[object], str], *, is_required: bool) -> QuestionField:
    schema = given if isinstance(given, dict) else {}
    kind, choices = _kind(schema, shown)
    label = shown(": ".join(str(schema[key]) for key in ("title", "description") if schema.get(key)) or name)
    least, most = {
        FieldKind.TEXT: ("minLength", "maxLength"),
        FieldKind.CHOICES: ("minItems", "maxItems"),
    }.get(kind, ("minimum", "maximum"))
    usual_most = _ANSWER_CHARS if kind is FieldKind.TEXT else math.inf
    field = QuestionField(
        name,
        label,
        kind,
        choices,
        None,
        is_required,
        _limit(schema.get(least), -math.inf),
        min(_limit(schema.get(most), usual_most), usual_most),
    )
    return _with_default(field, schema.get("default"))


def _with_default(field: QuestionField, default: object) -> QuestionField:
    """Return the field with the server's default, if a person could type it and sees it unchanged."""
    typed = {value: text for text, value in field.choices.items()}
    match default:
        case bool():
            text = "yes" if default else "no"
        case list():
            text = ", ".join(typed.get(str(one), "") for one in default)
        case str() | int() | float():
            text = typed.get(str(default), "") if field.choices else str(default)
        case _:
            return field
    try:
        return replace(field, default=field.read(text))
    except ValueError:
        return field


def _kind(schema: Mapping[str, Any], shown: Callable[[object], str]) -> tuple[FieldKind, dict[str, str]]:
    kind, items = schema.get("type"), schema.get("items")
    if kind == "string" and (choices := _choices(schema, shown)):
        return FieldKind.CHOICE, choices
    if kind == "array" and isinstance(items, dict) and (choices := _choices(items, shown)):
        return FieldKind.CHOICES, choices
    if not isinstance(kind, str) or kind not in _PLAIN_KINDS:
        raise ValueError("a field must be a text, a number, a boolean or a choice")
    return _PLAIN_KINDS[kind], {}


def _choices(schema: Mapping[str, Any], shown: Callable[[object], str]) -> dict[str, str]:
    """Return the values by what a person types: the value, or its number if it cannot be shown unchanged."""
    plain = schema.get("enum")
    titled = schema.get("oneOf") or schema.get("anyOf")
    values = [str(one) for one in plain] if isinstance(plain, list) else []
    if isinstance(titled, list):
        values = [str(one.get("const", "")) for one in titled if isinstance(one, dict)]
    if len(values) > MAX_CHOICES:
        raise ValueError(f"a choice must have {MAX_CHOICES} values at most")
    return {
        value if value == shown(value) and "," not in value and value else str(number): value
        for number, value in enumerate(values, 1)
    }


def _limit(value: object, usual: float) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else usual

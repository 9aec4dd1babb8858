"""Events to JSON objects and back, by the fields of their dataclasses."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeAlias

from orchestrator.core import events, messages
from orchestrator.core.errors import JournalError
from orchestrator.core.events import Event

TYPE_KEY = "type"
_MAX_DEPTH = 100
_TOO_DEEP = "[nested too deeply]"

EVENT_TYPES: dict[str, type[Event]] = {cls.__name__: cls for cls in typing.get_args(Event)}
"""Every class of the union, by the name under which it is written."""

_Redact: TypeAlias = Callable[[str], str]


@dataclasses.dataclass(frozen=True, slots=True)
class UnknownRecord:
    """A record that a newer version wrote: its type, or a value in it, has no name here. Readers skip it."""

    type: str
    data: Mapping[str, Any]


class _UnknownNameError(Exception):
    """A name from a newer version, somewhere inside a record."""


def encode(event: Event, redact: _Redact = str) -> dict[str, Any]:
    """An event as a JSON object `{"type": ..., ...}`.

    Args:
        event: what happened.
        redact: applied to each text. The names of fields and types are ours, and stay.
    """
    return {TYPE_KEY: type(event).__name__, **_encode_fields(event, redact)}


def decode(data: Mapping[str, Any]) -> Event | UnknownRecord:
    """The event of a JSON object. Fields without a name here are ignored.

    Raises:
        JournalError: a field is missing or holds a value of the wrong kind.
    """
    name = data.get(TYPE_KEY)
    if not isinstance(name, str):
        raise JournalError("a record has no type")
    cls = EVENT_TYPES.get(name)
    if cls is None:
        return UnknownRecord(name, data)
    try:
        event: Event = _decode_fields(cls, data)
    except _UnknownNameError:
        return UnknownRecord(name, data)
    return event


def _encode_fields(value: Any, redact: _Redact) -> dict[str, Any]:
    return {field.name: _encode(getattr(value, field.name), redact) for field in dataclasses.fields(value)}


def _encode(value: Any, redact: _Redact, depth: int = 0) -> Any:
    if depth > _MAX_DEPTH:
        return _TOO_DEEP
    match value:
        case Mapping():
            return {redact(str(key)): _encode(item, redact, depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [_encode(item, redact, depth + 1) for item in value]
        case _ if dataclasses.is_dataclass(value):
            fields = _encode_fields(value, redact)
            return {TYPE_KEY: type(value).__name__, **fields} if type(value) in _TYPED else fields
        case _:
            return _encode_scalar(value, redact)


def _encode_scalar(value: Any, redact: _Redact) -> Any:
    """A value in JSON's words. Numbers that JSON does not have become text."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case StrEnum():
            return value.value
        case bytes():
            text = base64.b64encode(value).decode()
            return text if redact(text) == text else ""
        case _:
            return redact(str(value))


# Members of a union are told apart by the type that is written with them.
_TYPED: frozenset[type] = frozenset((*typing.get_args(messages.Part), *typing.get_args(Event)))


@functools.cache
def _kinds(cls: type) -> dict[str, Any]:
    """The types of a dataclass's fields; the events name some of them for the type checker only."""
    return typing.get_type_hints(cls, localns={**vars(messages), **vars(events)})


def _decode_fields(cls: type, data: Any) -> Any:
    if not isinstance(data, Mapping):
        raise JournalError(f"{cls.__name__} is not an object")
    kinds = _kinds(cls)
    values = {}
    for field in dataclasses.fields(cls):
        if field.name in data:
            try:
                values[field.name] = _decode(kinds[field.name], data[field.name])
            except JournalError as error:
                raise JournalError(f"{cls.__name__}.{field.name}: {error}") from error
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise JournalError(f"{cls.__name__} has no {field.name}")
    return cls(**values)


def _decode(kind: Any, data: Any) -> Any:
    """A value of this type. Types are those that the dataclasses use, no others."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(typing.get_args(kind), data)
    if origin is tuple:
        if not isinstance(data, list):
            raise JournalError("not a list")
        item_kind = typing.get_args(kind)[0]
        return tuple(_decode(item_kind, item) for item in data)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(data, Mapping):
            raise JournalError("not an object")
        return dict(data)
    if dataclasses.is_dataclass(kind):
        return _decode_fields(typing.cast("type", kind), data)
    return _decode_scalar(kind, data)


def _decode_union(kinds: tuple[Any, ...], data: Any) -> Any:
    """One of several dataclasses, told apart by the type that was written, or a value that may be None."""
    if data is None and types.NoneType in kinds:
        return None
    rest = [kind for kind in kinds if kind is not types.NoneType]
    if len(rest) == 1:
        return _decode(rest[0], data)
    name = data.get(TYPE_KEY) if isinstance(data, Mapping) else None
    for kind in rest:
        if kind.__name__ == name:
            return _decode_fields(kind, data)
    if isinstance(name, str):
        raise _UnknownNameError(name)
    raise JournalError("has no type")


def _decode_scalar(kind: type, data: Any) -> Any:
    if kind is float and (isinstance(data, int | float) or data in ("nan", "inf", "-inf")):
        if not isinstance(data, bool):
            return float(data)
    elif kind is bytes and isinstance(data, str):
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError) as error:
            raise JournalError("not base64") from error
    elif issubclass(kind, StrEnum) and isinstance(data, str):
        try:
            return kind(data)
        except ValueError:
            raise _UnknownNameError(data) from None
    elif type(data) is kind:
        return data
    raise JournalError(f"not a {kind.__name__}")

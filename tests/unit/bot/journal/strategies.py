"""Builds any event of the union, from the types of its fields."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from hypothesis import strategies as st

from orchestrator.core import events, messages, todos
from orchestrator.core.events import Event

EVENT_CLASSES: tuple[type[Event], ...] = typing.get_args(Event)

# Text with half a surrogate pair, line separators and control characters in it.
texts = st.text(st.characters(exclude_categories=()), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
_SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: texts,
    int: st.integers(),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    bytes: st.binary(max_size=20),
    types.NoneType: st.none(),
}


def of_kind(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        # An event in an event is a plain one.
        kinds = [one for one in typing.get_args(kind) if one is not events.SubagentEvent]
        return st.one_of([of_kind(one) for one in kinds])
    if origin is tuple:
        return st.lists(of_kind(typing.get_args(kind)[0]), max_size=3).map(tuple)
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(texts, json_values, max_size=3)
    if dataclasses.is_dataclass(kind):
        return of_class(typing.cast("type", kind))
    if issubclass(kind, StrEnum):
        return st.sampled_from(kind)
    return _SCALARS[kind]


def of_class(cls: type) -> st.SearchStrategy[Any]:
    """Instances of a dataclass."""
    kinds = typing.get_type_hints(cls, localns={**vars(todos), **vars(messages), **vars(events)})
    return st.builds(cls, **{field.name: of_kind(kinds[field.name]) for field in dataclasses.fields(cls)})


any_event = st.one_of([of_class(cls) for cls in EVENT_CLASSES])

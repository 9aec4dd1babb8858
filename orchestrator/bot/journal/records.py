"""Records of a run: events as JSON lines, written as they happen and never changed."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import functools
import json
import math
import os
import threading
import types
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from orchestrator.bot.journal.folders import JOURNAL_FILE
from orchestrator.core import events, messages, todos
from orchestrator.core.cycle_events import (
    Claimed,
    CycleEnded,
    CycleStarted,
    ForgeUsed,
    PhaseEntered,
    Proposed,
    Proposing,
    QuestionAsked,
    Reserved,
    WorkSaved,
)
from orchestrator.core.errors import DiskFullError, JournalError
from orchestrator.core.events import (
    Event,
    Guarded,
    InputReceived,
    ReasoningDelta,
    ReplyReceived,
    SubagentEvent,
    TextDelta,
    ToolOutputDelta,
    TurnStarted,
    WaitStarted,
    Warned,
)
from orchestrator.core.files import is_full, sync_folder
from orchestrator.core.version import __version__

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit
    from orchestrator.engine.policy.secrets import Redactor


TYPE_KEY = "type"
_MAX_DEPTH = 100
_TOO_DEEP = "[nested too deeply]"
_PLAIN = frozenset({str, int, bool})
"""The kinds of most values, which JSON has too."""

EVENT_TYPES: dict[str, type[Event]] = {cls.__name__: cls for cls in typing.get_args(Event)}
"""All classes of the union, by their names in the journal."""

_Decoder: TypeAlias = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class UnknownRecord:
    """A record of a newer version, with an unknown type or value. Readers skip it."""

    type: str
    data: Mapping[str, Any]


class _UnknownNameError(Exception):
    """A record contains a name of a newer version."""


def encode_event(event: Event) -> dict[str, Any]:
    """Encode an event as a JSON object `{"type": ..., ...}`."""
    return {TYPE_KEY: type(event).__name__, **_encode_fields(event)}


def decode_event(data: Mapping[str, Any]) -> Event | UnknownRecord:
    """Decode a JSON object as an event. Unknown fields are ignored."""
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


@functools.cache
def _field_names(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls))


def _encode_fields(value: Any) -> dict[str, Any]:
    return {name: _encode(getattr(value, name)) for name in _field_names(value.__class__)}


def _encode(value: Any, depth: int = 0) -> Any:
    if depth > _MAX_DEPTH:
        return _TOO_DEEP
    if value is None or type(value) in _PLAIN:
        return value
    match value:
        case Mapping():
            return {str(key): _encode(item, depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [_encode(item, depth + 1) for item in value]
        case _ if dataclasses.is_dataclass(value):
            fields = _encode_fields(value)
            return {TYPE_KEY: type(value).__name__, **fields} if type(value) in _TYPED else fields
        case _:
            return _encode_scalar(value)


def _encode_scalar(value: Any) -> Any:
    """Encode a value as JSON. Numbers that JSON does not support become text."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case StrEnum():
            return value.value
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return str(value)


# Members of a union are told apart by the type that is written with them.
_TYPED: frozenset[type] = frozenset((*typing.get_args(messages.Part), *typing.get_args(Event)))


@functools.cache
def _field_decoders(cls: type) -> tuple[tuple[str, _Decoder, bool], ...]:
    """Return the name and decoder of each field of a dataclass, and whether the field is required."""
    # The events name some types for the type checker only.
    kinds = typing.get_type_hints(cls, localns={**vars(todos), **vars(messages), **vars(events)})
    return tuple(
        (
            one.name,
            _decoder(kinds[one.name]),
            one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING,
        )
        for one in dataclasses.fields(cls)
    )


def _decode_fields(cls: type, data: Any) -> Any:
    if not isinstance(data, Mapping):
        raise JournalError(f"{cls.__name__} is not an object")
    values = {}
    for name, decode_value, is_required in _field_decoders(cls):
        if name in data:
            try:
                values[name] = decode_value(data[name])
            except JournalError as error:
                raise JournalError(f"{cls.__name__}.{name}: {error}") from error
        elif is_required:
            raise JournalError(f"{cls.__name__} has no {name}")
    return cls(**values)


@functools.cache
def _decoder(kind: Any) -> _Decoder:
    """Return the decoder of a type. Only the types of the dataclasses are supported."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _union_decoder(typing.get_args(kind))
    if origin is tuple:
        return functools.partial(_decode_list, _decoder(typing.get_args(kind)[0]))
    if origin is not None and issubclass(origin, Mapping):
        return _decode_mapping
    return functools.partial(_decode_fields if dataclasses.is_dataclass(kind) else _decode_scalar, kind)


def _union_decoder(kinds: tuple[Any, ...]) -> _Decoder:
    """Return the decoder of a union of dataclasses, told apart by the written type, or of an optional value."""
    is_optional = types.NoneType in kinds
    rest = [kind for kind in kinds if kind is not types.NoneType]
    if len(rest) == 1:
        decode_one = _decoder(rest[0])
        return lambda data: None if data is None else decode_one(data)
    named = {kind.__name__: kind for kind in rest}

    def decode_any(data: Any) -> Any:
        if data is None and is_optional:
            return None
        name = data.get(TYPE_KEY) if isinstance(data, Mapping) else None
        if not isinstance(name, str):
            raise JournalError("has no type")
        if name not in named:
            raise _UnknownNameError(name)
        return _decode_fields(named[name], data)

    return decode_any


def _decode_list(decode_item: _Decoder, data: Any) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise JournalError("not a list")
    return tuple(map(decode_item, data))


def _decode_mapping(data: Any) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise JournalError("not an object")
    return dict(data)


def _decode_scalar(kind: type, data: Any) -> Any:
    if type(data) is kind:
        return data
    if kind is float and type(data) is int:
        return float(data)
    if kind is float and isinstance(data, str) and data in {"nan", "inf", "-inf"}:
        return float(data)
    if kind is bytes and isinstance(data, str):
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError) as error:
            raise JournalError("not base64") from error
    if issubclass(kind, StrEnum) and isinstance(data, str):
        try:
            return kind(data)
        except ValueError:
            raise _UnknownNameError(data) from None
    raise JournalError(f"not a {kind.__name__}")


FORMAT = 1
"""Increased if versions that know only the old format could not read the journal any more."""
HEADER_TYPE = "Journal"

# A secret that is split between two pieces would escape redaction. The record after the last piece has the whole text.
# An input is recorded with the message that carries it to the model.
_PIECES = (TextDelta, ReasoningDelta, ToolOutputDelta)
_UNWRITTEN = (*_PIECES, InputReceived)
# These report what was paid for or saved, or what others may have seen: they must survive a crash of the machine.
_FLUSHED = (Claimed, TurnStarted, ReplyReceived, Proposing, Proposed, QuestionAsked, WorkSaved, CycleEnded)
# What a run writes that looks for a task and finds none.
_OF_LOOKS = (CycleStarted, PhaseEntered, Guarded, Warned, WaitStarted, Reserved, ForgeUsed, CycleEnded)
_LEVELS = 4  # the folders that have the names of the journal, its run, the runs, and the home
_PRIVATE = 0o600


class JournalWriter:
    """Appends events to `journal.jsonl` in a run's folder. It is an `Emit`, and thread-safe.

    If the disk is full, the first event that does not fit raises `DiskFullError`; after that nothing is
    written and nothing raised, so that the cycle can save its work elsewhere.

    Attributes:
        only_looked: whether nothing was written but what a look for a task writes that finds none.

    Args:
        folder: the run's folder, without a journal.
    """

    def __init__(self, folder: Path, redactor: Redactor, clock: Clock) -> None:
        self.path = folder / JOURNAL_FILE
        self.only_looked = True
        self._is_named = False
        self._redactor = redactor
        self._clock = clock
        self._seq = 0
        self._lock = threading.Lock()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        try:
            self._file: int | None = os.open(self.path, flags, _PRIVATE)
        except OSError as error:
            raise _failure(self.path, error) from error
        self._append(lambda: {TYPE_KEY: HEADER_TYPE, "format": FORMAT, "version": __version__})

    def __call__(self, event: Event) -> None:
        """Write an event, as `write` does."""
        self.write(event)

    def write(self, event: Event) -> Event | None:
        """Write an event, and return the redacted copy that was written; None if nothing was.

        Raises:
            DiskFullError: no space is left; raised once.
            JournalError: the file cannot be written; raised once.
        """
        innermost = _innermost(event)
        written: list[Event] = []
        if isinstance(innermost, _UNWRITTEN):
            return None
        self.only_looked = self.only_looked and isinstance(event, _OF_LOOKS)

        def encode() -> Mapping[str, Any]:
            written.append(self._redactor.redact_value(event))
            return encode_event(written[0])

        self._append(encode, flush=isinstance(innermost, _FLUSHED))
        return written[0] if written else None

    def close(self) -> None:
        """Flush and close the file. Later events are not written."""
        with self._lock:
            self._close()

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _append(self, encode: Callable[[], Mapping[str, Any]], *, flush: bool = False) -> None:
        # Encoded inside, so that an event that takes long is not overtaken, and has the time when it came.
        with self._lock:
            if self._file is None:
                return
            at = self._clock.now().astimezone(UTC).isoformat(timespec="microseconds")
            line = _line({"seq": self._seq, "at": at, **encode()})
            try:
                _write_whole(self._file, line)
                if flush:
                    self._sync(self._file)
            except OSError as error:
                self._close()
                raise _failure(self.path, error) from error
            self._seq += 1

    def _sync(self, file: int) -> None:
        os.fsync(file)
        if not self._is_named:  # once, with the first record that promises something
            for folder in tuple(self.path.parents)[:_LEVELS]:
                sync_folder(folder)
            self._is_named = True

    def _close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # a file system without fsync, or a full one: keep what was written
                os.fsync(self._file)
            os.close(self._file)
            self._file = None


def _innermost(event: Event) -> Event:
    while isinstance(event, SubagentEvent):
        event = event.event
    return event


class EventBus:
    """An `Emit` that passes events to the journal of the current cycle, to observers, and to the run's view.

    The view gets a redacted copy, because it cuts texts, which could leave a part of a secret. Pieces of a stream
    stay as they are: the view puts them together with `RedactedStream`.

    If the journal cannot be written, the round that is already paid for is still completed.

    Attributes:
        observers: get each event after the journal, such as what makes traces.
        error: why the journal cannot be written any more, if so.
        on_step: called at the beginning of each step of a cycle, before all other listeners.
    """

    def __init__(self, view: Emit, redactor: Redactor) -> None:
        self.view = view
        self._redactor = redactor
        self.observers: tuple[Emit, ...] = ()
        self.on_step: Callable[[], None] = lambda: None
        self.error: DiskFullError | JournalError | None = None
        self._journal: JournalWriter | None = None
        self._on_failure: Callable[[], None] = lambda: None

    def record(self, journal: JournalWriter, on_failure: Callable[[], None]) -> None:
        """Write events to this journal from now on. The first failure calls `on_failure`, which requests a stop."""
        self._journal, self._on_failure, self.error = journal, on_failure, None

    def forget(self) -> None:
        """Stop writing to the journal."""
        self._journal = None

    def __call__(self, event: Event) -> None:
        """Pass an event on, to the journal first."""
        if isinstance(event, PhaseEntered):
            self.on_step()
        redacted: Event | None = None
        if self._journal is not None:
            try:
                redacted = self._journal.write(event)
            except (DiskFullError, JournalError) as error:
                self.error = error
                self._on_failure()
                self.view(Warned(self._redactor.redact(str(error))))
        for observer in self.observers:
            observer(event)
        if isinstance(_innermost(event), _PIECES):
            self.view(event)
        else:
            self.view(redacted or self._redactor.redact_value(event))


def append_last(folder: Path, event: Event, seq: int, redactor: Redactor, clock: Clock) -> None:
    """Append one record to the journal of a dead process's run, and flush it to the disk.

    A line that was cut off is removed first, because it would damage the journal.

    Args:
        folder: the run's folder; no other process writes into its journal.

    Raises:
        JournalError: the file cannot be written.
        DiskFullError: no space is left. The journal is unchanged, except for the removed line.
    """
    path = folder / JOURNAL_FILE
    at = clock.now().astimezone(UTC).isoformat(timespec="microseconds")
    line = _line({"seq": seq, "at": at, **encode_event(redactor.redact_value(event))})
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            end = _end_of_lines(file)
            os.ftruncate(file, end)
            os.lseek(file, end, os.SEEK_SET)
            try:
                _write_whole(file, line)
            except OSError:
                os.ftruncate(file, end)
                raise
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise _failure(path, error) from error


def _end_of_lines(file: int) -> int:
    """Return the end of the last complete line. A last record that lacks only its line break receives one."""
    size = os.fstat(file).st_size
    content = os.pread(file, size, 0)
    end = content.rfind(b"\n") + 1
    try:
        whole = isinstance(json.loads(content[end:]), dict)
    except (ValueError, RecursionError):
        whole = False
    if not whole:
        return end
    os.pwrite(file, b"\n", size)
    return size + 1


def _failure(path: Path, error: OSError) -> DiskFullError | JournalError:
    if is_full(error):
        return DiskFullError(f"no space is left for the journal {path}; the run is not recorded any further")
    return JournalError(f"cannot write the journal {path}: {error.strerror or error}")


def _line(record: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return f"{text}\n".encode()
    except UnicodeEncodeError:  # half of a surrogate pair: from a model, or a file name that is not UTF-8
        return f"{json.dumps(record, separators=(',', ':'), allow_nan=False)}\n".encode()


def _write_whole(file: int, line: bytes) -> None:
    """Write the line at once. A second write only finds out why the first stopped early."""
    written = os.write(file, line)
    while written < len(line):
        written += os.write(file, line[written:])

"""A collector of OpenTelemetry that takes spans over OTLP/HTTP and reads them with the official protobuf classes."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.doubles.loopback import Loopback, LoopbackHandler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

_UNPACKED: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "deflate": zlib.decompress}


@dataclass(slots=True)
class Received:
    """A span as the collector has it, in the tree that its parents make."""

    name: str
    kind: str
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    is_error: bool
    trace: bytes
    id: bytes
    parent: bytes
    start: int
    end: int
    children: list[Received] = field(default_factory=list)

    @property
    def shape(self) -> Any:
        """The names of the span and of those below it, in the order in which they began."""
        return (self.name, [child.shape for child in self.children]) if self.children else self.name

    def walk(self) -> Iterator[Received]:
        yield self
        for child in self.children:
            yield from child.walk()


class _Handler(LoopbackHandler):
    def do_POST(self) -> None:  # noqa: N802  the base class calls it so
        collector: Collector = self.server.owner
        body = self.rfile.read(int(self.headers["Content-Length"]))
        collector.headers.append({name.lower(): value for name, value in self.headers.items()})
        if collector.hangs:
            collector.closing.wait()
            return
        if collector.status == 200:
            body = _UNPACKED.get(self.headers.get("Content-Encoding", ""), bytes)(body)
            with collector.lock:
                collector.bodies.append(body)
                collector.requests.append(ExportTraceServiceRequest.FromString(body))
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(collector.status)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


class Collector(Loopback):
    """The collector.

    Attributes:
        status: what it answers.
        hangs: it never answers.
        bodies: what arrived, unpacked.
        headers: of each request.
    """

    def __init__(self, *, status: int = 200, hangs: bool = False) -> None:
        self.status, self.hangs = status, hangs
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.requests: list[ExportTraceServiceRequest] = []
        super().__init__(_Handler)

    @property
    def resource(self) -> dict[str, Any]:
        """What the program says of itself."""
        return _attributes(self.requests[0].resource_spans[0].resource.attributes)

    @property
    def scopes(self) -> set[tuple[str, str]]:
        """The names and schemas of those that made the spans."""
        found = [
            one for request in self.requests for spans in request.resource_spans for one in spans.scope_spans
        ]
        return {(one.scope.name, one.schema_url) for one in found}

    @property
    def roots(self) -> list[Received]:
        """The traces, as trees, in the order in which they began."""
        spans = sorted(map(_received, self._spans()), key=lambda one: (one.start, -one.end))
        by_id = {one.id: one for one in spans}
        assert len(by_id) == len(spans), "an id stands for one span"
        roots = []
        for one in spans:
            above = by_id.get(one.parent)
            if above is None:
                assert not one.parent, f"{one.name} is part of a span that never came"
                roots.append(one)
            else:
                assert above.trace == one.trace
                above.children.append(one)
        return roots

    def _spans(self) -> Iterator[Span]:
        for request in self.requests:
            for spans in request.resource_spans:
                for scope in spans.scope_spans:
                    yield from scope.spans


def _received(span: Span) -> Received:
    return Received(
        span.name,
        Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        _attributes(span.attributes),
        [(event.name, _attributes(event.attributes)) for event in span.events],
        span.status.code == Status.STATUS_CODE_ERROR,
        span.trace_id,
        span.span_id,
        span.parent_span_id,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
    )


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind) if kind else None

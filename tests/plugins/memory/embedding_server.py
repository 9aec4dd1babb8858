"""A server of embeddings: a vector a text, in the form of the vendor whose client library reads it in a test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.doubles.loopback import Loopback, LoopbackHandler

if TYPE_CHECKING:
    from collections.abc import Callable


class _Handler(LoopbackHandler):
    def do_POST(self) -> None:  # noqa: N802  the base class calls it so
        server: EmbeddingServer = self.server.owner
        headers, value, _ = self.posted()
        with server.lock:
            server.asked.append((self.path, headers.get("authorization"), value))
            status, body = server.failures.pop(0) if server.failures else (200, server.reply(value))
        data = json.dumps(body).encode() if not isinstance(body, bytes) else body
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class EmbeddingServer(Loopback):
    """Makes vectors by a function.

    Attributes:
        asked: path, authorization and body of each request.
        failures: status and body that come before the first vectors.
    """

    def __init__(
        self, vector: Callable[[str], list[float]], failures: list[tuple[int, Any]] | None = None
    ) -> None:
        self.vector = vector
        self.asked: list[tuple[str, str | None, Any]] = []
        self.failures = failures or []
        super().__init__(_Handler)

    def reply(self, value: Any) -> dict[str, Any]:
        data = [
            {"object": "embedding", "index": place, "embedding": self.vector(text)}
            for place, text in enumerate(value["input"])
        ]
        usage = {"prompt_tokens": len(data), "total_tokens": len(data)}
        return {"object": "list", "data": data[::-1], "model": value["model"], "usage": usage}

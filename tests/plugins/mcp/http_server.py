"""An MCP server over HTTP on loopback, honest or not: one tool, whose call answers as the test says.

With a token it is its own authorization server too, whose page for signing in sends the browser back at once.
Protocol: https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization
"""

from __future__ import annotations

import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

from orchestrator.plugins.mcp.scripted_server import result

TOOL = {"name": "read", "description": "Reads.", "inputSchema": {"type": "object"}, "does": {"text": "fine"}}


class McpHttp(ThreadingHTTPServer):
    """Serves until the block ends.

    Attributes:
        kind: how a call is answered: `json`, `events`, `huge`, `huge-events`, `packed`, `elsewhere` or `status`.
        seen: the headers of each request.
        elsewhere: where a redirect leads.
        token: that each request needs; empty needs none.
    """

    daemon_threads = True

    def __init__(self, kind: str = "json", elsewhere: str = "", token: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.kind, self.elsewhere, self.token = kind, elsewhere, token
        self.seen: list[dict[str, str]] = []

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def url(self) -> str:
        return f"{self.base}/mcp"

    @property
    def documents(self) -> dict[str, dict[str, Any]]:
        """What says how to sign in, by path."""
        server = {
            "issuer": self.base,
            **{
                f"{name}_endpoint": f"{self.base}/{name}"
                for name in ("authorization", "token", "registration")
            },
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        }
        known = "/.well-known/oauth"
        resource = {"resource": self.url, "authorization_servers": [self.base]}
        return {f"{known}-protected-resource/mcp": resource, f"{known}-authorization-server": server}

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has heard enough closes the connection."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: McpHttp

    def do_POST(self) -> None:
        self.server.seen.append(dict(self.headers))
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/registration":
            self._send(201, "application/json", json.dumps({**json.loads(body), "client_id": "c1"}).encode())
            return
        if self.path == "/token":
            found = {"access_token": self.server.token, "token_type": "Bearer", "expires_in": 3600}
            self._send(200, "application/json", json.dumps(found).encode())
            return
        if self.server.token and self.headers["Authorization"] != f"Bearer {self.server.token}":
            where = f"{self.server.base}/.well-known/oauth-protected-resource/mcp"
            self._send(401, "text/plain", b"", ("WWW-Authenticate", f'Bearer resource_metadata="{where}"'))
            return
        message = json.loads(body)
        if "id" not in message:
            self._send(202, "application/json", b"")
            return
        method = message["method"]
        answer = result(method, message.get("params", {}), [TOOL])
        error = {"error": {"code": -32601, "message": "unknown"}}
        text = json.dumps(
            {"jsonrpc": "2.0", "id": message["id"], **({"result": answer} if answer else error)}
        )
        kind = self.server.kind if method == "tools/call" else "json"
        getattr(self, f"_{kind.replace('-', '_')}")(text)

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if self.server.token and parts.path == "/authorization":
            asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
            back = urlencode({"code": "once", "state": asked["state"]})
            self._send(302, "text/plain", b"", ("Location", f"{asked['redirect_uri']}?{back}"))
        elif self.server.token and parts.path in self.server.documents:
            self._send(200, "application/json", json.dumps(self.server.documents[parts.path]).encode())
        else:
            self._send(405, "text/plain", b"")

    def do_DELETE(self) -> None:
        self.do_GET()

    def _json(self, text: str) -> None:
        self._send(200, "application/json", text.encode())

    def _events(self, text: str) -> None:
        self._send(200, "text/event-stream", f"event: message\ndata: {text}\n\n".encode())

    def _huge(self, _text: str) -> None:
        self._endless("application/json", b'{"jsonrpc": "2.0", "x": "')

    def _huge_events(self, _text: str) -> None:
        self._endless("text/event-stream", b"event: message\ndata: ")

    def _packed(self, text: str) -> None:
        self._send(200, "application/json", gzip.compress(text.encode()), ("Content-Encoding", "gzip"))

    def _elsewhere(self, _text: str) -> None:
        self._send(307, "text/plain", b"", ("Location", self.server.elsewhere))

    def _status(self, _text: str) -> None:
        self._send(500, "text/plain", b"broken")

    def _send(self, status: int, kind: str, body: bytes, *more: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(body))), *more):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _endless(self, kind: str, head: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(head)
        while True:
            self.wfile.write(b"x" * 65_536)

    def log_message(self, *_: object) -> None:
        """Print nothing."""

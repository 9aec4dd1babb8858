"""A git server over HTTP on loopback, with Basic authentication, in front of git."""

from __future__ import annotations

import base64
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from tests.doubles.github.git_http import GitRequest, serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.doubles.lfs_server import LfsStore


@dataclass
class SmartHttp:
    """What the server is told and what it saw.

    Attributes:
        root: the folder whose repositories it serves.
        redirect: send every request to this server instead.
        status: answer this and nothing else, with `headers`.
        lfs: the server's Git LFS; None if it has none.
        credentials: each `user:password` that was shown, or None for a request without.
    """

    root: Path
    user: str = "x-access-token"
    password: str = "ghs_" + "s3cret" * 8
    redirect: str | None = None
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    lfs: LfsStore | None = None
    port: int = 0
    credentials: list[str | None] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def running(self) -> Iterator[SmartHttp]:
        handler = type("Handler", (_Handler,), {"rig": self})
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            self.port = server.server_address[1]
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()


class _Handler(BaseHTTPRequestHandler):
    rig: SmartHttp
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self._body()
        header = self.headers.get("Authorization", "")
        shown = base64.b64decode(header.removeprefix("Basic ")).decode() if header else None
        self.rig.credentials.append(shown)
        if self.rig.redirect is not None:
            self._reply(302, {"Location": self.rig.redirect + self.path})
        elif self.rig.status is not None:
            self._reply(self.rig.status, self.rig.headers)
        elif shown != f"{self.rig.user}:{self.rig.password}":
            self._reply(401, {"WWW-Authenticate": 'Basic realm="git"'})
        else:
            self._serve(body)

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        pieces = []
        while size := int(self.rfile.readline(), 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _serve(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        if self.command == "PUT":
            self._reply(501, {})
            return
        if path.endswith("/objects/batch"):
            if self.rig.lfs is None:
                self._reply(404, {}, b'{"message": "Not Found"}')
                return
            shown = {name.lower(): value for name, value in self.headers.items()}
            self._reply(*self.rig.lfs.batch(path, shown, body))
            return
        place, found, rest = path.partition("/info/refs")
        if not found:
            place, _, service = path.rpartition("/")
            rest = f"/{service}"
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = GitRequest(self.command, rest or found, query, headers, body)
        done = serve(self.rig.root / place[1:], request)
        self._reply(done.status, dict(done.headers), done.body)

    def _reply(self, status: int, headers: dict[str, str], content: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

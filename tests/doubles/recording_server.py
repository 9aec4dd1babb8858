"""A server that answers as it is told, and writes down what arrives: what it saw of a secret is known."""

from __future__ import annotations

import base64

from tests.doubles.loopback import Loopback, LoopbackHandler


class _Handler(LoopbackHandler):
    def do_GET(self) -> None:  # noqa: N802  the base class calls it so
        self._answer()

    def do_POST(self) -> None:  # noqa: N802  the base class calls it so
        self.posted()
        self._answer()

    def _answer(self) -> None:
        server: Watched = self.server.owner
        server.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        status, headers, body = server.answer(self.path)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class Watched(Loopback):
    """A server that writes down what arrives.

    Attributes:
        routes: status, headers and body by the beginning of the path, the first that fits.
    """

    def __init__(self, **routes: tuple[int, dict[str, str], bytes]) -> None:
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.routes = routes
        super().__init__(_Handler)

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        for beginning, answer in self.routes.items():
            if path.startswith(beginning):
                return answer
        return 404, {}, b"not found"

    def leaks(self, *secrets: str) -> list[str]:
        """Where one of the secrets arrived, in plain letters or in base64."""
        found = []
        for path, headers in self.seen:
            text = path + "".join(headers.values())
            words = [
                base64.b64decode(word + "==").decode("latin-1")
                for word in headers.get("authorization", "").split()[1:]
            ]
            found += [path for secret in secrets if secret in text or any(secret in word for word in words)]
        return found

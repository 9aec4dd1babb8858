"""A loopback port in front of another one, which counts the bytes that pass in both directions."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK_BYTES = 65_536


class ByteCounter:
    """Counts what clients of a port send and receive, headers and all.

    Attributes:
        port: where to connect.
        sent: bytes from the clients.
        received: bytes to the clients.
    """

    def __init__(self, target: int) -> None:
        self.sent = 0
        self.received = 0
        self._target = target
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    @property
    def total(self) -> int:
        """Both directions."""
        return self.sent + self.received

    @contextmanager
    def running(self) -> Iterator[ByteCounter]:
        """Forward until the block ends."""
        thread = threading.Thread(target=self._accept)
        thread.start()
        try:
            yield self
        finally:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            thread.join()

    def _accept(self) -> None:
        threads: list[threading.Thread] = []
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                both = ((client, server, "sent"), (server, client, "received"))
                pair = [threading.Thread(target=self._pump, args=way) for way in both]
                for thread in pair:
                    thread.start()
                ending = threading.Thread(target=_end, args=(pair, (client, server)))
                ending.start()
                threads.append(ending)
        for thread in threads:
            thread.join()

    def _pump(self, source: socket.socket, sink: socket.socket, way: str) -> None:
        with suppress(OSError):
            while chunk := source.recv(_CHUNK_BYTES):
                with self._lock:
                    setattr(self, way, getattr(self, way) + len(chunk))
                sink.sendall(chunk)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def _end(pair: list[threading.Thread], sockets: tuple[socket.socket, ...]) -> None:
    for thread in pair:
        thread.join()
    for one in sockets:
        one.close()

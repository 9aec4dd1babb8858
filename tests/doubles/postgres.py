"""A real PostgreSQL in a temporary folder, on loopback, run by a user without privileges."""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from collections.abc import Iterator

_STARTS_WITHIN_SECONDS = 60.0
_NUMBERS = itertools.count(1)


def programs() -> Path | None:
    """The folder with `initdb` and `postgres`, or None."""
    on_path = shutil.which("initdb")
    places = [Path(on_path).resolve().parent] if on_path else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((one for one in places if (one / "initdb").exists() and (one / "postgres").exists()), None)


def _user() -> str | None:
    """Who runs it: it refuses to be run by root."""
    return "nobody" if os.getuid() == 0 else None


@dataclass(slots=True)
class PostgresServer:
    """A server with one login, which has a password."""

    bin: Path
    folder: Path
    port: int
    password: str = field(default_factory=lambda: secrets.token_hex(16))
    _process: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextmanager
    def started(cls, found: Path) -> Iterator[PostgresServer]:
        """A server that runs in the block."""
        folder = Path(tempfile.mkdtemp(prefix="pullwright-postgres-"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = cls(found, folder, port)
        try:
            server._initialize()
            server.start()
            yield server
        finally:
            server.stop()
            shutil.rmtree(folder, ignore_errors=True)

    def _initialize(self) -> None:
        password = self.folder / "password"
        password.write_text(self.password)
        if user := _user():
            shutil.chown(self.folder, user)
            shutil.chown(password, user)
        command = [
            str(self.bin / "initdb"),
            "-D",
            str(self.folder / "data"),
            "-U",
            "fleet",
            "-A",
            "scram-sha-256",
        ]
        options = ["--pwfile", str(password), "-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run(
            [*command, *options], check=True, capture_output=True, user=_user(), cwd=self.folder, env=_ENVIRON
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        quick = [
            "-c",
            "fsync=off",
            "-c",
            "full_page_writes=off",
            "-c",
            f"unix_socket_directories={self.folder}",
        ]
        self._process = subprocess.Popen(
            [
                self.bin / "postgres",
                "-D",
                self.folder / "data",
                "-h",
                "127.0.0.1",
                "-p",
                str(self.port),
                *quick,
            ],
            user=_user(),
            cwd=self.folder,
            env=_ENVIRON,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + _STARTS_WITHIN_SECONDS
        while time.monotonic() < end:
            with suppress(psycopg.OperationalError), psycopg.connect(self.url("postgres")):
                return
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)
        raise AssertionError("PostgreSQL does not answer")

    @property
    def process_id(self) -> int:
        """Of the server; 0 while it is stopped."""
        return self._process.pid if self._process is not None else 0

    def stop(self) -> None:
        """End it at once, as if the machine had lost power."""
        if self._process is not None:
            self._process.send_signal(3)  # SIGQUIT: no shutdown of its own
            self._process.wait()
            self._process = None

    def url(self, database: str) -> str:
        """The URL of one database, with the password."""
        return f"postgresql://fleet:{self.password}@127.0.0.1:{self.port}/{database}"

    def new_database(self, template: str = "template1") -> str:
        """The URL of a database that is empty, or a copy of another one."""
        name = f"fleet_{os.getpid()}_{next(_NUMBERS)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.url(name)

    def drop(self, url: str) -> None:
        """Remove a database, and end the connections to it."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{url.rpartition("/")[2]}" WITH (FORCE)'.encode())


_ENVIRON = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}

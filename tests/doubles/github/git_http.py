"""Git over HTTP: hands a request to `git http-backend` as a CGI program."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.doubles.github.bare import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class GitReply:
    """What goes back to the git client."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(frozen=True, slots=True)
class GitRequest:
    """A request of a git client. `rest` is the path below the repository; header names are lower case."""

    method: str
    rest: str
    query: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_push(self) -> bool:
        """Whether it wants to write."""
        return self.rest == "/git-receive-pack" or "service=git-receive-pack" in self.query


def serve(repository: Path, request: GitRequest, login: str) -> GitReply:
    """Run the CGI program on one bare repository."""
    environment = {
        **ENVIRONMENT,
        "GIT_PROJECT_ROOT": str(repository),
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": request.rest,
        "QUERY_STRING": request.query,
        "REQUEST_METHOD": request.method,
        "CONTENT_TYPE": request.headers.get("content-type", ""),
        "CONTENT_LENGTH": str(len(request.body)),
        "HTTP_CONTENT_ENCODING": request.headers.get("content-encoding", ""),
        "GIT_PROTOCOL": request.headers.get("git-protocol", ""),
        "REMOTE_USER": login,
        "REMOTE_ADDR": "127.0.0.1",
    }
    done = subprocess.run(
        ["git", "http-backend"], input=request.body, capture_output=True, check=False, env=environment
    )
    head, _, payload = done.stdout.partition(b"\r\n\r\n")
    status, kept = 200, []
    for line in head.decode("latin-1").split("\r\n"):
        name, _, value = line.partition(": ")
        if name.lower() == "status":
            status = int(value.split(" ")[0])
        elif name:
            kept.append((name, value))
    return GitReply(status, kept, payload)

"""Git over HTTP: hands a request to the program of git that serves it."""

from __future__ import annotations

import gzip
import subprocess
from dataclasses import dataclass
from functools import cache
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


def serve(repository: Path, request: GitRequest) -> GitReply:
    """Answer as `git http-backend` does, without the two programs in front of the one that does the work.

    The protocol: https://git-scm.com/docs/http-protocol
    """
    service = request.query.removeprefix("service=") if request.rest == "/info/refs" else request.rest[1:]
    if service not in {"git-upload-pack", "git-receive-pack"}:
        return GitReply(403, [], b"Unsupported service")
    protocol = request.headers.get("git-protocol", "")
    if request.rest == "/info/refs":
        config = next(
            (path for path in (repository / ".git" / "config", repository / "config") if path.is_file()), None
        )
        if config is None:
            return GitReply(404, [], b"")
        if protocol == "version=2":
            body = _capabilities(config, config.read_bytes())
        else:
            head = f"# service={service}\n".encode()
            body = b"%04x%b0000" % (len(head) + 4, head) + _run(
                service, repository, protocol, "--advertise-refs"
            )
        kind = f"application/x-{service}-advertisement"
    else:
        is_packed = request.headers.get("content-encoding", "") == "gzip"
        content = gzip.decompress(request.body) if is_packed else request.body
        body, kind = _run(service, repository, protocol, stdin=content), f"application/x-{service}-result"
    return GitReply(200, [("Cache-Control", "no-cache"), ("Content-Type", kind)], body)


@cache
def _capabilities(config: Path, _content: bytes) -> bytes:
    """What a server says first in version 2 of the protocol: it depends only on its configuration."""
    return _run("git-upload-pack", config.parent, "version=2", "--advertise-refs")


def _run(service: str, repository: Path, protocol: str, *options: str, stdin: bytes = b"") -> bytes:
    command = ["git", service.removeprefix("git-"), "--stateless-rpc", *options, str(repository)]
    environment = {**ENVIRONMENT, "GIT_PROTOCOL": protocol}
    return subprocess.run(command, input=stdin, capture_output=True, check=False, env=environment).stdout

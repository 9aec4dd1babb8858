"""Receives GitHub's webhooks: what somebody did in a repository is looked at now, and not at the next poll.

A delivery only says where to look. Its words reach nobody: the look reads the repository itself, as polling does.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from orchestrator.app.dashboard.serving import listen, serving
from orchestrator.core.errors import FleetError
from orchestrator.core.repositories import repository_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection

    from starlette.requests import Request
    from starlette.responses import Response

PATH = "/webhook"
MOST_BYTES = 5_000_000
"""Of a body. What is longer is left to polling."""
ANSWER_SECONDS = 8.0
"""GitHub wants an answer within 10 seconds, and sends nothing again by itself."""
_MOST_AT_ONCE = 16
_LATER = "polling finds it later"
EVENTS = frozenset(
    {"issues", "issue_comment", "pull_request", "pull_request_review", "pull_request_review_comment"}
    | {"check_run", "check_suite", "status", "push"}
)
"""Those after which there may be something to do. https://docs.github.com/en/webhooks/webhook-events-and-payloads"""


class Receiver:
    """Checks deliveries, and passes on which repository they are about.

    Args:
        secret: the one that was typed into GitHub's form for the webhook.
        repositories: the keys of those that this fleet knows.
        take: notes a delivery by the digest of its body, and has the repository looked at; False where it was
            there before. It blocks, and may raise `FleetError`.
        seconds: within which a delivery is answered, whatever is away.
    """

    def __init__(
        self,
        secret: str,
        repositories: Collection[str],
        take: Callable[[str, str], bool],
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._secret = secret.encode()
        self._repositories = frozenset(repositories)
        self._take = take
        self._seconds = seconds
        self._queueing: set[asyncio.Task[bool]] = set()

    async def receive(self, request: Request) -> Response:
        """Answer one delivery."""
        try:
            async with asyncio.timeout(self._seconds):
                status, said = await self._answer(request)
        except (TimeoutError, FleetError):
            status, said = 503, f"the queue cannot be reached: {_LATER}"
        return PlainTextResponse(f"{said}\n", status)

    async def _answer(self, request: Request) -> tuple[int, str]:
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > MOST_BYTES:
                return 413, f"the body is too long: {_LATER}"
        if not self._is_signed(bytes(body), request.headers.get("x-hub-signature-256", "")):
            return 401, "the signature is missing or wrong"
        repository = _repository(bytes(body))
        if request.headers.get("x-github-event") not in EVENTS or repository not in self._repositories:
            return 202, "nothing to do"
        if len(self._queueing) >= _MOST_AT_ONCE:
            return 503, f"busy: {_LATER}"
        # The header with the delivery's id is not signed. A body that was sent before is the same delivery.
        digest = hashlib.sha256(body).hexdigest()
        queueing = asyncio.create_task(asyncio.to_thread(self._take, digest, repository))
        self._queueing.add(queueing)
        queueing.add_done_callback(self._queueing.discard)
        is_new = await asyncio.shield(queueing)
        return (202, "queued") if is_new else (202, "it was here before")

    def _is_signed(self, body: bytes, signature: str) -> bool:
        expected = "sha256=" + hmac.new(self._secret, body, hashlib.sha256).hexdigest()
        return hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace"))


def _repository(body: bytes) -> str:
    """Return the repository key of a payload; empty if it names none."""
    try:
        found = json.loads(body)["repository"]["html_url"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return repository_key(found) if isinstance(found, str) else ""


def receiving_app(receiver: Receiver) -> Starlette:
    """Make the application that passes deliveries to a receiver."""
    return Starlette(routes=[Route(PATH, receiver.receive, methods=["POST"])])


@asynccontextmanager
async def receiving(receiver: Receiver, host: str, port: int) -> AsyncIterator[int]:
    """Receive while the block runs; gives the port, which differs where 0 was given.

    Raises:
        ConfigurationError: the address cannot be listened at.
    """
    with listen(host, port) as bound:
        async with serving(receiving_app(receiver), bound):
            yield bound.getsockname()[1]

"""Webhooks over a real connection: what is let in, what is not, and what it leads to."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from orchestrator.core.errors import FleetError
from orchestrator.plugins.worker.serving import MOST_BYTES, Receiver, receiving

if TYPE_CHECKING:
    from collections.abc import Mapping

SECRET = "a long random text"
REPOSITORY = "github.com/owner/one"
BODY = json.dumps({"action": "labeled", "repository": {"html_url": "https://github.com/Owner/One"}}).encode()


def signed(body: bytes, secret: str = SECRET, event: str = "issues", delivery: str = "1") -> dict[str, str]:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    names = {
        "X-Hub-Signature-256": f"sha256={digest}",
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": delivery,
    }
    return {**names, "Content-Type": "application/json"}


class Queue:
    """Takes deliveries as the fleet's database does."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.looked_at: list[str] = []

    def take(self, digest: str, repository: str) -> bool:
        is_new = digest not in self.seen
        self.seen.add(digest)
        self.looked_at += [repository] if is_new else []
        return is_new


async def post(
    take: Any, *deliveries: tuple[bytes, Mapping[str, str]], seconds: float = 60.0
) -> list[tuple[int, str]]:
    """The answers to some deliveries, one after another."""
    async with (
        receiving(Receiver(SECRET, [REPOSITORY], take, seconds), "127.0.0.1", 0) as port,
        httpx2.AsyncClient(trust_env=False) as client,
    ):
        answers = [
            await client.post(f"http://127.0.0.1:{port}/webhook", content=body, headers=dict(headers))
            for body, headers in deliveries
        ]
    return [(one.status_code, one.text.strip()) for one in answers]


async def test_a_delivery_has_its_repository_looked_at() -> None:
    queue = Queue()
    assert await post(queue.take, (BODY, signed(BODY))) == [(202, "queued")]
    assert queue.looked_at == [REPOSITORY]


async def test_what_came_before_is_not_used_again_under_whatever_id() -> None:
    queue = Queue()
    answers = await post(queue.take, (BODY, signed(BODY)), (BODY, signed(BODY, delivery="2")))
    assert answers == [(202, "queued"), (202, "received before")]
    assert queue.looked_at == [REPOSITORY]


OTHER = BODY.replace(b"labeled", b"opened!")
NONE = json.dumps({"repository": {"html_url": "https://github.com/owner/two"}}).encode()
DEEP = b'{"repository":' * 100_000


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (BODY, {}, 401),
        (BODY, signed(OTHER), 401),
        (BODY, signed(BODY, "another secret"), 401),
        (BODY, {**signed(BODY), "X-Hub-Signature-256": "sha256=é".encode("latin-1").decode("latin-1")}, 401),
        (BODY, {**signed(BODY), "X-Hub-Signature-256": signed(BODY)["X-Hub-Signature-256"].upper()}, 401),
        (b" " + BODY, signed(BODY), 401),
        (BODY, signed(BODY, event="ping"), 202),
        (BODY, signed(BODY, event="watch"), 202),
        (NONE, signed(NONE), 202),
        (b"no JSON", signed(b"no JSON"), 202),
        (b"[]", signed(b"[]"), 202),
        (DEEP, signed(DEEP), 202),
        (b"x" * (MOST_BYTES + 1), signed(b"x"), 413),
    ],
)
async def test_what_is_not_meant_for_the_fleet_leads_to_nothing(
    body: bytes, headers: dict[str, str], status: int
) -> None:
    queue = Queue()
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}
    ((found, _),) = await post(queue.take, (body, encoded))  # type: ignore[arg-type]
    assert found == status
    assert queue.looked_at == []


async def test_while_the_database_is_away_there_is_an_answer_all_the_same() -> None:
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()

    def waits(_digest: str, _repository: str) -> bool:
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()
        return True

    ((status, said),) = await post(waits, (BODY, signed(BODY)), seconds=0.2)
    gate.set()
    assert (status, said) == (503, "the queue cannot be reached: polling finds it later")


async def test_a_database_that_says_no_is_no_defect() -> None:
    def refuses(_digest: str, _repository: str) -> bool:
        raise FleetError("away")

    ((status, _),) = await post(refuses, (BODY, signed(BODY)))
    assert status == 503

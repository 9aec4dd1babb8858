"""A server that is never well: delays, 5xx and replies that are lost after the work was done, at random."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from tests.doubles.github.faults import Fault

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from tests.doubles.github.server import GitHub

GIT = r"/[^/]+/[^/]+\.git/.*"
REST = r"/(?:repos|user|repositories)\b.*"
_PUSH = r"/[^/]+/[^/]+\.git/git-receive-pack"
_WRITES = r"/repos/.*"
_LOOK_SECONDS = 0.02
_DELAY_SECONDS = (0.05, 1.0)


@contextlib.contextmanager
def trouble(github: GitHub, chance: random.Random, *paths: str, requests_a_fault: int = 8) -> Iterator[None]:
    """One fault after another until the block ends.

    Args:
        github: whose faults they are; there must be no others.
        chance: chooses them.
        paths: `GIT`, `REST` or both.
        requests_a_fault: of so many requests one goes wrong, on average.
    """
    over = threading.Event()

    def run() -> None:
        while not over.wait(_LOOK_SECONDS):
            if not any(fault.times > 0 for fault in github.faults):
                fault = _any_fault(chance, chance.choice(paths))
                fault.skip = chance.randrange(2 * requests_a_fault)
                github.faults[:] = [fault]

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        github.faults.clear()


def _any_fault(chance: random.Random, path: str) -> Fault:
    writes = _PUSH if path == GIT else _WRITES
    delay = chance.uniform(*_DELAY_SECONDS)
    return chance.choice(
        [
            Fault("*", path, delay=delay),
            Fault("*", path, status=chance.choice([500, 502, 503])),
            Fault("POST", writes, lost_reply=True),
            Fault("POST", writes, lost_reply=True, delay=delay),
        ]
    )

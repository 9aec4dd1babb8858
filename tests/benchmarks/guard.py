"""What the checks of one tool call cost. Aim: gate, path resolver and redaction below 1 ms for 30 kB of output.

Run: python -m tests.benchmarks.guard
"""

from __future__ import annotations

import re
import statistics
import string
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from orchestrator.guard.secrets import RedactedStream, Redactor
from tests.benchmarks.measure import in_turns, table

if TYPE_CHECKING:
    from collections.abc import Callable

OUTPUT_CHARS = 30_000
LARGE_CHARS = 10_000_000
PIECE_CHARS = 40
ALPHABET = string.ascii_letters + string.digits
PLAIN = re.compile("x{20}")


def made_up_secrets() -> list[str]:
    """Six keys of the usual kinds; nobody's."""
    random = Random(1)  # noqa: S311  the same text each time, no secrecy

    def key(prefix: str, length: int) -> str:
        return prefix + "".join(random.choices(ALPHABET, k=length))

    kinds = (
        ("ghp" + "_", 36),
        ("sk-" + "ant-api03-", 90),
        ("AKIA", 16),
        ("", 40),
        ("AIza", 35),
        ("xoxb" + "-", 40),
    )
    return [key(prefix, length) for prefix, length in kinds]


def output(chars: int) -> str:
    """What a model reads all day: source code."""
    sources = sorted(Path(__file__).parents[2].joinpath("orchestrator").rglob("*.py"))
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    return (text * (chars // len(text) + 1))[:chars]


def streamed(redactor: Redactor, text: str) -> None:
    stream = RedactedStream(redactor)
    for start in range(0, len(text), PIECE_CHARS):
        stream.add(text[start : start + PIECE_CHARS])
    stream.end()


def tool_call() -> dict[str, Callable[[], object]]:
    """The parts of one call, by name; the first is what the ratios refer to."""
    secrets = made_up_secrets()
    redactor = Redactor(secrets)
    text = output(OUTPUT_CHARS)
    middle = OUTPUT_CHARS // 2
    leaking = f"{text[:middle]} {secrets[0]} {text[middle:]}"
    return {
        "one plain expression": lambda: PLAIN.search(text),
        "redaction": lambda: redactor.redact(text),
        "redaction of one secret": lambda: redactor.redact(leaking),
        "redaction in pieces of 40": lambda: streamed(redactor, text),
    }


def throughput() -> None:
    redactor = Redactor(made_up_secrets())
    text = output(LARGE_CHARS)
    seconds = in_turns(
        {"one plain expression": lambda: PLAIN.search(text), "redaction": lambda: redactor.redact(text)},
        runs=5,
    )
    table("10 MB of output", seconds, base="one plain expression")
    for name, values in seconds.items():
        print(f"{name:32}{LARGE_CHARS / 1e6 / statistics.median(values):8.1f}MB/s")


if __name__ == "__main__":
    calls = in_turns(tool_call(), runs=50)
    table("A tool call of 30 kB", calls, base="one plain expression")
    throughput()
    build = in_turns({"six values": lambda: Redactor(made_up_secrets())}, runs=10)
    table("Making a redactor", build, base="six values")

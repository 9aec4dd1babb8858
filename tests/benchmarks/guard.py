"""What the checks of one tool call cost. Aim: gate, path resolver and redaction below 1 ms for 30 kB of output.

Run: python -m tests.benchmarks.guard
"""

from __future__ import annotations

import re
import statistics
import string
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from orchestrator.bot.policy.hidden_characters import show_hidden
from orchestrator.core.messages import ToolCall
from orchestrator.engine.environments.files import ConfinedTree
from orchestrator.engine.policy.command_rules import CommandRules, Level
from orchestrator.engine.policy.secrets import RedactedStream, Redactor
from orchestrator.engine.session.gate import Gatekeeper
from orchestrator.engine.tools.files import read_file
from orchestrator.engine.tools.shell import run_shell_command
from tests.benchmarks.measure import in_turns, table

if TYPE_CHECKING:
    from collections.abc import Callable

OUTPUT_CHARS = 30_000
LARGE_CHARS = 10_000_000
PIECE_CHARS = 40
AIM_S = 0.001
CHECKS_A_RUN = 20
RULES = (
    "pytest *", "python -m pytest *", "ruff *", "mypy *", "git status", "git diff *", "git log *", "git show *", "ls *",
    "cat *", "head *", "tail *", "rg *", "wc *", "npm test *", "cd * && pytest *",
)  # fmt: skip
DEEP = "one/two/three/four/five/file.py"
ACCENTED = "Größe und Maß, déjà vu, 日本語のテスト, Привет мир. "
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


def small_checks(tree: ConfinedTree) -> dict[str, Callable[[], object]]:
    """What is done once a call, whatever its output: the gate and the path resolver. All are done `CHECKS_A_RUN` times."""
    gate = Gatekeeper(Level.SAFE, CommandRules.parse(RULES))
    shell, reading = run_shell_command(), read_file()
    command = ToolCall(
        "1", shell.name, {"command": "python -m pytest -q tests/unit -k 'a and b' 2>&1 | tail -40"}
    )
    refused = ToolCall("2", shell.name, {"command": "python -c 'import os' && rm -rf ./build"})
    file = ToolCall("3", reading.name, {"path": DEEP})
    return {
        "gate, read_file": lambda: gate(reading, file),
        "gate, a command of 16 rules": lambda: gate(shell, command),
        "gate, a refused command": lambda: gate(shell, refused),
        "path resolver, 5 folders deep": lambda: (tree.split(DEEP), tree.stat(DEEP)),
    }


def repeated(job: Callable[[], object]) -> Callable[[], object]:
    def jobs() -> None:
        for _ in range(CHECKS_A_RUN):
            job()

    return jobs


def characters() -> dict[str, Callable[[], object]]:
    plain = output(OUTPUT_CHARS)
    accented = (ACCENTED * (OUTPUT_CHARS // len(ACCENTED) + 1))[:OUTPUT_CHARS]
    return {
        "hidden characters, own source": lambda: show_hidden(plain),
        "hidden characters, ASCII": lambda: show_hidden("x" * OUTPUT_CHARS),
        "hidden characters, other scripts": lambda: show_hidden(accented),
    }


def one_call() -> None:
    """The parts and their sum; the aim is for the sum with redaction, for a command, which costs most."""
    with tempfile.TemporaryDirectory() as folder:
        deep = Path(folder, DEEP)
        deep.parent.mkdir(parents=True)
        deep.write_text("x")
        with ConfinedTree(Path(folder)) as tree:
            checks = {name: repeated(job) for name, job in small_checks(tree).items()}
            seconds = in_turns({**tool_call(), **characters(), **checks}, runs=50)
    for name in checks:
        seconds[name] = [value / CHECKS_A_RUN for value in seconds[name]]
    summed = ("gate, a command of 16 rules", "path resolver, 5 folders deep", "redaction")
    seconds["one tool call"] = [
        sum(values) for values in zip(*(seconds[name] for name in summed), strict=True)
    ]
    table("A tool call of 30 kB", seconds, base="one plain expression")
    for name in checks:
        print(f"{name:32}{statistics.median(seconds[name]) * 1e6:8.0f}us")
    middle = statistics.median(seconds["one tool call"])
    print(
        f"one tool call: {middle * 1000:.2f} ms, aim {AIM_S * 1000:.0f} ms: {'met' if middle < AIM_S else 'MISSED'}"
    )


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
    one_call()
    throughput()
    build = in_turns({"six values": lambda: Redactor(made_up_secrets())}, runs=10)
    table("Making a redactor", build, base="six values")

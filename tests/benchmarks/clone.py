"""Wall time and bytes of our clone against `git clone --depth 1`. Run it by hand.

Prints, for generated repositories of 300 and 3,000 files, the median and the least of several rounds in
milliseconds; the aim is a ratio below 1.2. Both ways take turns, so that a busy machine is unfair to neither.
Then, for 300 files over HTTP and one small commit between the rounds, the bytes in both directions with a
mirror; the aim is a fifth at most from the second round on, and one request more at most.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bot.git.base import Identity
from orchestrator.bot.git.folders import remove_folder
from orchestrator.bot.git.opening import open_clone
from orchestrator.core.redaction import Credential
from tests.doubles.byte_counter import ByteCounter
from tests.unit.bot.git.smart_http import SmartHttp

if TYPE_CHECKING:
    from collections.abc import Callable

_COMMITS = 20
_FILES_A_COMMIT = 3
_WORDS = 3000


def generate(folder: Path, files: int) -> None:
    """Make a packed repository of Python-like files with a short history."""
    numbers = random.Random(files)  # noqa: S311  the content of made-up files
    words = [f"word{numbers.randrange(10**6)}" for _ in range(_WORDS)]
    paths = [folder / f"package{number % 25}" / f"module{number}.py" for number in range(files)]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(" ".join(numbers.choices(words, k=8)) for _ in range(60)), "utf-8")
    _git(folder, "init", "-q", "-b", "main")
    _git(folder, "add", ".")
    _git(folder, "commit", "-qm", "first")
    for number in range(_COMMITS):
        for path in numbers.sample(paths, _FILES_A_COMMIT):
            path.write_text(f"{path.read_text('utf-8')}\nchange {number}", "utf-8")
        _git(folder, "commit", "-qam", f"change {number}")
    # A server keeps its objects packed.
    _git(folder, "gc", "-q")


def _git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=Bench", "-c", "user.email=bench@example.invalid")
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True)


def bare_git(source: Path, target: Path) -> None:
    """What we are measured against."""
    command = ["git", "clone", "--quiet", "--depth", "1", source.as_uri(), str(target)]
    subprocess.run(command, check=True, env={**os.environ, "GIT_CONFIG_NOSYSTEM": "1"})


def ours(source: Path, target: Path, *, with_git: bool) -> None:
    """Our clone, which stays until the folder is removed."""
    open_clone(
        str(source),
        branch=None,
        credential=lambda: None,
        parent=target,
        with_git=with_git,
        identity=Identity("Bench", "bench@example.invalid"),
    )


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(source: Path, scratch: Path, rounds: int) -> dict[str, list[float]]:
    """Time each way, in turns."""
    target = scratch / "target"
    ways: dict[str, Callable[[], None]] = {
        "git clone --depth 1": lambda: bare_git(source, target),
        "ours, safe mode": lambda: ours(source, target, with_git=False),
        "ours, with the model's .git": lambda: ours(source, target, with_git=True),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            times[name].append(seconds(work))
            remove_folder(target)
    return times


def over_http(source: Path, scratch: Path, rounds: int) -> dict[str, list[tuple[int, int, float]]]:
    """Bytes, requests and seconds of each way, with a small commit before each round."""
    root, target = scratch / "served", scratch / "target"
    root.mkdir()
    (root / "repo.git").symlink_to(source / ".git")
    found: dict[str, list[tuple[int, int, float]]] = {}
    with SmartHttp(root).running() as server, ByteCounter(server.port).running() as counter:
        url = f"http://127.0.0.1:{counter.port}/repo.git"
        known = f"http://{server.user}:{server.password}@127.0.0.1:{counter.port}/repo.git"

        def mirrored(mirror: Path | None) -> None:
            open_clone(
                url,
                branch=None,
                credential=lambda: Credential("127.0.0.1", server.user, server.password),
                parent=target,
                with_git=False,
                identity=Identity("Bench", "bench@example.invalid"),
                mirror=mirror,
                note=print,
            )

        plain = ("git", "clone", "--quiet", "--depth", "1", known, str(target))
        ways: dict[str, Callable[[], object]] = {
            "git clone --depth 1": lambda: subprocess.run(plain, check=True),
            "ours, without a mirror": lambda: mirrored(None),
            "ours, with a mirror": lambda: mirrored(scratch / "mirrors"),
            "ours, nothing new": lambda: mirrored(scratch / "mirrors"),
        }
        for number in range(rounds):
            path = source / "package1" / "module1.py"
            path.write_text(f"{path.read_text('utf-8')}\nround {number}", "utf-8")
            _git(source, "commit", "-qam", f"round {number}")
            for name, work in ways.items():
                before, seen = counter.total, len(server.credentials)
                taken = seconds(work)
                found.setdefault(name, []).append(
                    (counter.total - before, len(server.credentials) - seen, taken)
                )
                remove_folder(target)
    return found


def print_bytes(found: dict[str, list[tuple[int, int, float]]]) -> None:
    """The table of bytes, without the first round, in which the mirror is made."""
    write = sys.stdout.write
    write(f"\n{'300 files over HTTP':<36} {'bytes':>10} {'ratio':>7} {'requests':>9} {'median ms':>10}\n")
    base = statistics.median(size for size, _, _ in found["git clone --depth 1"][1:])
    for name, measured in found.items():
        size, requests, taken = (statistics.median(column) for column in zip(*measured[1:], strict=True))
        write(f"{name:<36} {size:>10.0f} {base / size:>6.1f}x {requests:>9.0f} {taken * 1000:>10.1f}\n")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    # The first clone of a process also loads GitPython.
    __import__("git")
    write = sys.stdout.write
    write(f"{'files':>6}  {'':<28} {'median ms':>10} {'least ms':>10} {'ratio':>6}\n")
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        for files in (300, 3000):
            source = scratch / f"source{files}"
            source.mkdir()
            generate(source, files)
            times = measure(source, scratch, rounds)
            base = statistics.median(times["git clone --depth 1"])
            for way, values in times.items():
                middle = statistics.median(values)
                write(
                    f"{files:>6}  {way:<28} {middle * 1000:>10.1f} {min(values) * 1000:>10.1f} {middle / base:>6.2f}\n"
                )
        print_bytes(over_http(scratch / "source300", scratch, max(3, rounds)))


if __name__ == "__main__":
    main()

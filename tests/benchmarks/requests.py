"""Requests, bytes and git programs of a cycle on GitHub, and what it costs to look where nothing is to be done.

Run: python -m tests.benchmarks.requests

The bytes are all that crosses the loopback interface meanwhile, the model's prompts and the headers of TCP among
them. On Linux, `unshare -n sh -c 'ip link set lo up && python -m tests.benchmarks.requests'` keeps others' out.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.wiring.program import RunRequest, build_program
from orchestrator.core.clock import SystemClock
from orchestrator.core.cycle_events import PhaseEntered
from tests.benchmarks.soak import LABEL, REPOSITORY, make_site
from tests.doubles.github.server import GitHub
from tests.doubles.model_server import ModelServer, plan

if TYPE_CHECKING:
    from datetime import datetime

    from orchestrator.app.wiring.program import Program
    from orchestrator.core.events import Event

FILES, ISSUES = 300, 100
TEXT = "def value_{0}() -> int:\n    return {0}\n\n\n" * 12
_WRAPPER = '#!/bin/sh\nprintf "%s\\n" "$*" >> "{log}"\nexec "{git}" "$@"\n'


class MovableClock(SystemClock):
    """The machine's clock, and what it was put forward."""

    ahead = timedelta()

    def now(self) -> datetime:
        """The time of day, put forward."""
        return super().now() + self.ahead

    def monotonic(self) -> float:
        """Seconds, put forward as well."""
        return super().monotonic() + self.ahead.total_seconds()


class Meter:
    """Looks at one cycle after another from outside."""

    def __init__(self, github: GitHub, folder: Path) -> None:
        self._github, self._log = github, folder / "git.log"
        self._phases: list[tuple[str, int]] = []
        self._rows: list[str] = []
        self._by_phase: dict[str, Counter[str]] = {}
        real = shutil.which("git")
        wrapper = folder / "bin" / "git"
        wrapper.parent.mkdir()
        wrapper.write_text(_WRAPPER.format(log=self._log, git=real), encoding="utf-8")
        wrapper.chmod(0o755)
        self._log.touch()
        self.path = f"{wrapper.parent}{os.pathsep}{os.environ['PATH']}"

    def view(self, event: Event) -> None:
        """Where in the log of git each phase begins."""
        if isinstance(event, PhaseEntered):
            self._phases.append((str(event.phase), len(self._commands())))

    def measure(self, name: str, program: Program) -> None:
        """Run a cycle."""
        self._phases = [("begin", len(self._commands()))]
        start, bytes_before, began = len(self._github.requests), _loopback_bytes(), time.perf_counter()
        result = asyncio.run(program.cycle())
        seconds, crossed = time.perf_counter() - began, _loopback_bytes() - bytes_before
        if result.error:
            print(result.error)
        seen = self._github.requests[start:]
        on_git = sum(".git/" in request.path for request in seen)
        unchanged = sum(request.status == 304 for request in seen)
        rest = len(seen) - on_git
        commands = self._commands()
        programs = len(commands) - self._phases[0][1]
        self._rows.append(
            f"{name:34}{result.outcome:>10}{rest:>7}{rest - unchanged:>9}{on_git:>7}{programs:>9}{crossed:>11,}{seconds:>9.2f}"
        )
        ends = [start for _, start in self._phases[1:]] + [len(commands)]
        counted = Counter[str]()
        self._by_phase[name] = counted
        for (phase, begin), end in zip(self._phases, ends, strict=True):
            counted.update(f"{phase}: {_subcommand(line)}" for line in commands[begin:end])

    def print(self) -> None:
        """The tables."""
        head = f"{'':34}{'outcome':>10}{'REST':>7}{'counted':>9}{'git':>7}{'programs':>9}{'bytes':>11}{'seconds':>9}"
        print(head, *self._rows, sep="\n")
        for name, counted in self._by_phase.items():
            print(f"\ngit programs, {name}:")
            for phase in dict.fromkeys(key.partition(":")[0] for key in counted):
                of_it = {
                    key.partition(": ")[2]: n for key, n in counted.items() if key.startswith(f"{phase}:")
                }
                words = ", ".join(f"{command} {n}" for command, n in sorted(of_it.items()))
                print(f"  {phase:10}{sum(of_it.values()):>4}  {words}")

    def _commands(self) -> list[str]:
        return self._log.read_text(encoding="utf-8").splitlines()


def _loopback_bytes() -> int:
    """What the loopback interface has carried so far; 0 where the system does not tell."""
    try:
        text = Path("/proc/net/dev").read_text(encoding="ascii")
    except OSError:
        return 0
    found = re.search(r"^\s*lo:\s*(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


def _subcommand(line: str) -> str:
    words = iter(line.split())
    for word in words:
        if word in {"-c", "-C"}:
            next(words)
        elif not word.startswith("-"):
            return word
    return line


def main() -> None:
    """Measure, and print the tables."""
    with tempfile.TemporaryDirectory() as name, ModelServer() as model:
        folder = Path(name)
        with GitHub(folder / "github") as github:
            repo = github.add_repository(
                REPOSITORY,
                {
                    **{f"package_{n // 20}/module_{n}.py": TEXT.format(n) for n in range(FILES)},
                    "calc.py": "one\ntwo\nthree\n",
                },
                private=True,
            )
            meter = Meter(github, folder)
            os.environ |= {"PATH": meter.path, "PULLWRIGHT_HOME": str(folder / "home")}
            clock = MovableClock()
            program = _program(folder, github, model.url, clock, meter)
            for number, old in ((1, "one"), (2, "two")):
                github.add_issue(repo, f"Task {number}", "Do it.", [LABEL])
                model.script.append(
                    plan(
                        "Do it.",
                        [
                            ("edit_file", {"path": "calc.py", "old_text": old, "new_text": "done"}),
                            ("create_pull_request", {"title": f"Task {number}", "body": "Done."}),
                            ("finish", {"reason": "The pull request is open."}),
                        ],
                    )
                )
                meter.measure(f"cycle {number}, mirror {'kept' if number > 1 else 'made'}", program)
            for number in range(ISSUES):
                github.add_issue(repo, f"More {number}", "Do it, too.", [LABEL])
            clock.ahead = timedelta(minutes=2)
            meter.measure(f"idle, {ISSUES} issues, first look", program)
            for minutes in (4, 6, 8):
                clock.ahead = timedelta(minutes=minutes)
                meter.measure("idle, nothing changed", program)
            meter.print()
            asyncio.run(program.close())


def _program(folder: Path, github: GitHub, model_url: str, clock: MovableClock, meter: Meter) -> Program:
    """Two open pull requests are as many as there may be, so that the third look finds nothing to do."""
    flags = {
        "model": "openai-chat:scripted",
        "api_url": model_url,
        "github_url": github.web_url,
        "label": LABEL,
        "max_open_prs": 2,
        "max_unreviewed": 100,
    }
    token = github.token()
    (folder / "config.toml").touch()
    environ = {"PULLWRIGHT_HOME": str(folder / "home"), "GITHUB_TOKEN": token, "PATH": meter.path}
    environ["PULLWRIGHT_CONFIG"] = str(folder / "config.toml")
    program = build_program(RunRequest(REPOSITORY), flags, environ, folder, meter.view, clock=clock)
    program.shared = replace(program.shared, site=make_site(github.web_url, token, clock))
    return program


if __name__ == "__main__":
    main()

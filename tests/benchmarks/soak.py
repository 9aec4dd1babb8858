"""One continuous worker over many cycles, while GitHub and the model fail now and then. What does it leave behind?

Run with `python -m tests.benchmarks.soak [--cycles 500]`. GitHub and the model live in a process of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import os
import random
import re
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.wiring.program import RunRequest, build_program
from orchestrator.app.wiring.repository import Site, Source
from tests.benchmarks.measure import children, slope
from tests.doubles.github.forges import open_forge
from tests.doubles.github.server import GitHub
from tests.doubles.github.trouble import GIT, REST, trouble
from tests.doubles.model_server import Ending, ModelServer, Step, fail, plan, reply

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from orchestrator.app.wiring.program import Program
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Event
    from tests.doubles.github.state import Repo
    from tests.doubles.model_server import RecordedRequest

REPOSITORY, LABEL = "octo/soak", "pullwright"
_FILES = 30
_REQUESTS_A_FAULT = 25
_KEPT_THREADS = 20
_FAULTY_REPLIES = (
    fail(429, {"Retry-After": "1"}),
    fail(529),
    fail(500),
    Step(text="cut off in the middle", ending=Ending.CUT),
    Step(ending=Ending.RESET),
    reply("This is no plan."),
    plan("Give up.", [("finish", {"reason": "It cannot be done."})]),
)
# Of the replies, one in so many is one of them.
_REPLIES_A_FAULT = 6


class FickleModel(ModelServer):
    """Does the task that it is asked for, or fails."""

    def __init__(self) -> None:
        super().__init__()
        self._chance = random.Random(5)  # noqa: S311  no secret

    def take(self, request: RecordedRequest) -> Step:
        """The next reply. Nothing is recorded: that would be what grows."""
        if self._chance.randrange(_REPLIES_A_FAULT) == 0:
            return self._chance.choice(_FAULTY_REPLIES)
        messages = request.body["messages"]
        number = re.findall(r"Mark task (\d+)", json.dumps(messages))[-1]
        path = f"module_{int(number) % _FILES}.py"
        edit = ("edit_file", {"path": path, "old_text": "OPEN", "new_text": "DONE"})
        propose = ("create_pull_request", {"title": f"Task {number}", "body": "Done."})
        # Where the edit was said before, it may be there already.
        said = sum(message["role"] == "assistant" for message in messages)
        calls = [propose, ("finish", {"reason": "The pull request is open."})]
        return plan(f"Do task {number}.", calls if said % 2 else [edit, *calls])


def world(folder: Path, pipe: Connection) -> None:
    """GitHub and the model. Whatever is sent through the pipe asks for the next task; None is the end."""
    chance = random.Random(7)  # noqa: S311  no secret
    with GitHub(folder) as github, FickleModel() as model:
        files = {f"module_{number}.py": "STATE = 'OPEN'\n" for number in range(_FILES)}
        repo = github.add_repository(REPOSITORY, files, private=True)
        pipe.send((github.web_url, model.url, github.token()))
        with trouble(github, chance, GIT, REST, requests_a_fault=_REQUESTS_A_FAULT):
            while pipe.recv() is not None:
                _next_task(github, repo)
                pipe.send(True)


def _next_task(github: GitHub, repo: Repo) -> None:
    """One more open issue; the older ones are gone, as if somebody had dealt with them."""
    with github.lock:
        for number in sorted(repo.threads)[:-_KEPT_THREADS]:
            del repo.threads[number]
        for issue in repo.issues.values():
            issue.state = "closed"
        github.requests.clear()
        number = github.next_number(repo)
        github.add_issue(repo, f"Task {number}", f"Mark task {number}.", [LABEL])


@dataclass(frozen=True, slots=True)
class Sample:
    """What the worker's process is after so many cycles."""

    cycle: int
    memory_mb: float
    files: int
    threads: int
    children: int
    folders: int


@dataclass(slots=True)
class Soaked:
    """What came of it. `left` lies in the temporary folder after the end."""

    samples: list[Sample] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    left: list[str] = field(default_factory=list)

    def lines(self) -> str:
        """A table with the growth of each column in 100 cycles."""
        names = ("cycle", "memory_mb", "files", "threads", "children", "folders")
        rows = ["".join(f"{name:>11}" for name in names)]
        rows += ["".join(f"{getattr(one, name):>11.6g}" for name in names) for one in self.samples]
        # The first samples still hold what is loaded at the first use.
        late = self.samples[len(self.samples) // 3 :]
        cycles = [one.cycle for one in late]
        growth = [100 * slope(cycles, [getattr(one, name) for one in late]) for name in names[1:]]
        rows.append(f"{'per 100':>11}" + "".join(f"{value:>11.2f}" for value in growth))
        said = ", ".join(f"{name} {count}" for name, count in sorted(self.outcomes.items()))
        return "\n".join([*rows, f"outcomes: {said}", f"left behind: {self.left or 'nothing'}"])


def _sample(cycle: int, temporary: Path) -> Sample:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return Sample(
        cycle,
        pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        len(list(Path("/proc/self/fd").iterdir())),
        threading.active_count(),
        len(children(os.getpid())),
        len(list(temporary.iterdir())),
    )


def soak(folder: Path, cycles: int, every: int, *, loud: bool = False) -> Soaked:
    """Run so many cycles in this process. Linux only. `PULLWRIGHT_HOME` and `TMPDIR` are below the folder."""
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe()
    process = context.Process(target=world, args=(folder / "github", theirs))
    process.start()  # first, because it makes a temporary folder of its own
    theirs.close()
    temporary = folder / "tmp"
    temporary.mkdir()
    before = {name: os.environ.get(name) for name in ("PULLWRIGHT_HOME", "PULLWRIGHT_CONFIG", "TMPDIR")}
    (folder / "config.toml").touch()
    os.environ |= {
        "PULLWRIGHT_HOME": str(folder / "home"),
        "PULLWRIGHT_CONFIG": str(folder / "config.toml"),
        "TMPDIR": str(temporary),
    }
    old, tempfile.tempdir = tempfile.tempdir, str(temporary)
    try:
        return asyncio.run(_soak(folder, ours, cycles, every, loud=loud))
    finally:
        ours.send(None)
        process.join(20)
        process.kill()
        process.join()
        process.close()
        ours.close()
        tempfile.tempdir = old
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


async def _soak(folder: Path, pipe: Connection, cycles: int, every: int, *, loud: bool) -> Soaked:
    temporary, soaked = folder / "tmp", Soaked()
    program = _program(folder, *pipe.recv())
    try:
        for cycle in range(1, cycles + 1):
            pipe.send(True)
            pipe.recv()
            result = await program.cycle()
            soaked.outcomes[str(result.outcome)] += 1
            if cycle % every == 0 or cycle == 1:
                soaked.samples.append(_sample(cycle, temporary))
                if loud:
                    print(soaked.samples[-1], flush=True)
    finally:
        await program.close()
    soaked.left = sorted(path.name for path in temporary.iterdir())
    return soaked


def _program(folder: Path, web_url: str, model_url: str, token: str) -> Program:
    """The program as the command line builds it; but its writes to GitHub do not wait for each other."""

    def view(event: Event) -> None:
        del event

    flags = {
        "model": "openai-chat:scripted",
        "api_url": model_url,
        "github_url": web_url,
        "label": LABEL,
        "max_open_prs": 1000,
        "max_prs_per_day": 1000,
        "max_unreviewed": 1000,
    }
    environ = {"PULLWRIGHT_HOME": str(folder / "home"), "GITHUB_TOKEN": token, "PATH": os.environ["PATH"]}
    environ["PULLWRIGHT_CONFIG"] = str(folder / "config.toml")
    program = build_program(RunRequest(REPOSITORY), flags, environ, folder, view)
    site = make_site(web_url, token, program.shared.context.clock)
    program.shared = replace(program.shared, site=site)
    return program


def make_site(web_url: str, token: str, clock: Clock) -> Site:
    """GitHub, without a wait between two writes."""
    forge = open_forge(web_url, REPOSITORY, token, clock=clock)
    return Site(
        forge, lambda: Source(forge.repository().clone_url, "main"), forge.credential, label=REPOSITORY
    )


def main() -> None:
    """Soak, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cycles", type=int, default=500)
    parser.add_argument("--every", type=int, default=25)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        soaked = soak(Path(name), options.cycles, options.every, loud=True)
    print(soaked.lines())
    sys.exit(1 if soaked.left else 0)


if __name__ == "__main__":
    main()

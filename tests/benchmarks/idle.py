"""What a worker that waits holds in memory: at a schedule before its first cycle, after a cycle, and in a fleet.

Run: python -m tests.benchmarks.idle [--loud], which prints what each said. Linux only. Each row is one process: what it shares with nobody, and all
that is resident, in MB. On 2026-11-27, with Python 3.11, before PyGithub was loaded at the first request only, and
after it::

                                           before          after
    run --cron, of a folder                48.3  63.3      47.8  62.8
    run --cron, at GitHub                  58.1  80.3      45.8  60.7
    run --every, after cycles at GitHub    72.0  96.2      67.5  91.5
    worker                                102.9 132.3      98.0 127.7

Nearly all of it is what is imported: of the last row SQLAlchemy 20, PyGithub 11 with what it imports, psycopg 5,
dbos 4, pydantic 4. dbos imports psycopg for SQLite too. Fewer arenas, a lower trim threshold and a collection of
garbage make it smaller by 2 at most.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.fleet import cpu_seconds, megabytes
from tests.doubles.github.server import GitHub
from tests.doubles.model_server import ModelServer, plan
from tests.doubles.postgres import PostgresServer, programs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from multiprocessing.connection import Connection

_NAME = "octo/idle"
_NEVER = "0 0 29 2 *"
_QUIET_SECONDS = 3.0
_USED_SECONDS = 0.05
"""A worker that takes less of the processor in `_QUIET_SECONDS` waits."""
_MOST_LOOKS = 20
"""After so many looks a worker is measured as it is: with a queue it always does a little."""


def world(folder: Path, pipe: Connection) -> None:
    """GitHub with one task, and a model that does it, until the pipe says the end."""
    task = [
        ("edit_file", {"path": "state.py", "old_text": "OPEN", "new_text": "DONE"}),
        ("create_pull_request", {"title": "Task", "body": "Done."}),
        ("finish", {"reason": "The pull request is open."}),
    ]
    with GitHub(folder) as github, ModelServer([plan("Do the task.", task)]) as model:
        repo = github.add_repository(_NAME, {"state.py": "STATE = 'OPEN'\n"}, private=True)
        with github.lock:
            github.add_issue(repo, "Task", "Mark the task.", ["pullwright"])
        pipe.send((github.web_url, model.url, github.token()))
        pipe.recv()


def resident(process: int) -> float:
    """All that is resident of a process."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return int(re.findall(r"^VmRSS:\s+(\d+)", status, re.MULTILINE)[0]) / 1024


def measure(name: str, words: list[str], environ: Mapping[str, str]) -> None:
    """Start the program, and print what it holds when it does nothing any more."""
    command = [sys.executable, "-m", "orchestrator", *words]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, env=environ, stdout=said, stderr=said)
        used = -1.0
        for _ in range(_MOST_LOOKS):
            if process.poll() is not None or cpu_seconds(process.pid) - used < _USED_SECONDS:
                break
            used = cpu_seconds(process.pid)
            time.sleep(_QUIET_SECONDS)
        if process.poll() is None:
            threads = len(list(Path(f"/proc/{process.pid}/task").iterdir()))
            own, all_of_it = megabytes(process.pid), resident(process.pid)
            print(f"{name:45}{own:8.1f}{all_of_it:10.1f}{threads:9}", flush=True)
            process.send_signal(signal.SIGTERM)
        process.wait()
        said.seek(0)
        if "--loud" in sys.argv:
            print(said.read().decode(errors="replace"))


def measure_all(folder: Path, web_url: str, model_url: str, environ: dict[str, str]) -> None:
    """Measure each kind of worker."""
    local = folder / "local"
    subprocess.run(["git", "init", "-q", str(local)], check=True)
    waiting = ["run", "--continuous", "--model", "anthropic:claude-sonnet-4-5", "--cron", _NEVER]
    at_github = ["--github-url", web_url, "--repo", _NAME]
    working = [
        "run",
        "--continuous",
        "--model",
        "openai-chat:scripted",
        "--api-url",
        model_url,
        "--every",
        "12h",
    ]
    print(f"{'':45}{'own':>8}{'resident':>10}{'threads':>9}")
    measure("run --cron, of a folder", [*waiting, "--repo", str(local)], environ)
    measure("run --cron, at GitHub", [*waiting, *at_github], environ)
    measure("run --every, after cycles at GitHub", [*working, *at_github], environ)
    fleet = folder / "fleet.toml"
    fleet.write_text(
        f'[defaults]\nmodel = "openai-chat:scripted"\napi_url = "{model_url}"\ngithub_url = "{web_url}"\n'
        f'every = "12h"\n[[repository]]\nname = "{_NAME}"\n',
        encoding="utf-8",
    )
    measure("worker", ["worker", "--config", str(fleet)], environ)
    if (found := programs()) is not None:
        with PostgresServer.started(found) as postgres:
            url = {"PULLWRIGHT_DATABASE_URL": postgres.new_database()}
            measure("fleet run, with PostgreSQL", ["fleet", "run", "--config", str(fleet)], environ | url)


def main() -> None:
    """Start GitHub and a model, and measure."""
    context = multiprocessing.get_context("forkserver")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours, theirs = context.Pipe()
        process = context.Process(target=world, args=(folder / "github", theirs))
        process.start()
        web_url, model_url, token = ours.recv()
        (folder / "config.toml").touch()
        environ = {
            "PATH": os.environ["PATH"],
            "GITHUB_TOKEN": token,
            "ANTHROPIC_API_KEY": "a-key-that-is-never-sent",
            "PULLWRIGHT_CONFIG": str(folder / "config.toml"),
            "PULLWRIGHT_HOME": str(folder / "home"),
        }
        measure_all(folder, web_url, model_url, environ)
        ours.send(None)
        process.join()


if __name__ == "__main__":
    main()

"""What a job of the composite action takes that finds nothing to do: seconds and processor seconds of each step.

Run: python -m tests.benchmarks.action. It installs the program as a job does, from the package index. Setting Python up is an action of
GitHub, and is not measured. On 2026-11-28, with Python 3.11, seconds of a processor on a machine with a load of 18::

                                          look  install   run  summary     all
    the hourly job                        0.00     3.40  3.20     0.81    7.42
    an event, whose issue is no task      0.04     3.68  3.58     0.65    7.96
    somebody else's pull request          0.05                            0.05

Of the install 2.7 are pip, which fetches uv. A second run of the same installation takes 1.4: the first one compiles.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.doubles.actions_runner import ActionsRunner
from tests.doubles.github.server import GitHub

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ACTION = Path(__file__).parents[2] / ".github" / "actions" / "pullwright"
_NAME = "octo/idle"
_ENVIRON = (
    "PATH",
    "HOME",
    "SSL_CERT_FILE",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "https_proxy",
    "no_proxy",
)


class TimedRunner(ActionsRunner):
    """A runner that prints what each step took."""

    def _step(self, step: dict[str, Any]) -> None:
        name = step.get("id") or step.get("name") or step["uses"]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        super()._step(step)
        after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if name not in self.replaced:
            print(f"  {name:20}{wall:8.2f} s{used:8.2f} s of a processor", flush=True)


def job(folder: Path, github: GitHub, **inputs: str) -> None:
    """Run one job."""
    folder.mkdir()
    (folder / "workspace").mkdir()
    kept: Mapping[str, Callable[[Mapping[str, str]], Mapping[str, str]]] = {
        "python": lambda given: {"python-path": sys.executable, "version": given["python-version"]},
        "upload": lambda _given: {"artifact-url": ""},
    }
    environ = {name: os.environ[name] for name in _ENVIRON if name in os.environ}
    environ |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_"))}
    context = {"token": github.token(), "server_url": github.web_url, "repository": _NAME, "run_id": "7"}
    context |= {"run_attempt": "1", "api_url": github.url, "workspace": str(folder / "workspace")}
    runner = TimedRunner(ACTION, folder / "temp", context, environ, dict(kept))
    outputs = runner.run(model="openai:gpt-5.2", openai_api_key="a-key-that-is-never-sent", **inputs)
    print(f"  {outputs['outcome']}")
    if runner.failed:
        print(runner.log)


def main() -> None:
    """Measure the jobs."""
    with tempfile.TemporaryDirectory() as name, GitHub(Path(name) / "github") as github:
        repo = github.add_repository(_NAME, {"README.md": "# Idle\n"}, private=True)
        with github.lock:
            issue = github.add_issue(repo, "Mine", "Do it.", ["pullwright"], author="mallory")
            pull = github.add_pull(repo, "feature/theirs")
        print("the hourly job")
        job(Path(name) / "hourly", github)
        print("an event, whose issue is no task")
        job(Path(name) / "event", github, thread=str(issue.number))
        print("a comment on somebody else's pull request")
        job(Path(name) / "pull", github, thread=str(pull.number))


if __name__ == "__main__":
    main()

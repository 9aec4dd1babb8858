"""What a job of the composite action takes that finds nothing to do: seconds and processor seconds of each step.

Run: python -m tests.benchmarks.action. It installs the program as a job does, from the package index. Setting Python up is an action of
GitHub, and is not measured. On 2026-11-28, with Python 3.11, seconds of a processor on a machine with a load of 15::

                                                look  install   run  summary     all
    the hourly job                              0.05                            0.05
    the hourly job, with an issue that is none  0.05     3.46  2.73     0.01    6.25
    an event, whose issue is no task            0.04     3.02  3.25     0.02    6.33
    somebody else's pull request                0.04                            0.04

From the event to the label `pullwright:working` on its issue pass `look`, `install` and most of `run`. Of the install 2.0 are
pip, which fetches uv. A second run of the same installation takes 1.4: the first one compiles.
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
from tests.doubles.model_server import ModelServer, plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.doubles.github.state import Repo

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


class TimedRequests(list[Any]):
    """The requests to GitHub, which notes when the first one wrote to a path."""

    def __init__(self) -> None:
        super().__init__()
        self.at: dict[str, float] = {}

    def append(self, request: Any) -> None:
        if request.method == "POST":
            self.at.setdefault(request.path.rpartition("/")[2], time.perf_counter())
        super().append(request)


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
    usual = {"model": "openai:gpt-5.2", "openai_api_key": "a-key-that-is-never-sent"}
    outputs = runner.run(**{**usual, **inputs})
    print(f"  {outputs['outcome']}")
    if runner.failed:
        print(runner.log)


def main() -> None:
    """Measure the jobs."""
    with tempfile.TemporaryDirectory() as name, GitHub(Path(name) / "github") as github:
        repo = github.add_repository(_NAME, {"README.md": "# Idle\n"}, private=True)
        print("the hourly job")
        job(Path(name) / "hourly", github)
        with github.lock:
            issue = github.add_issue(repo, "Mine", "Do it.", ["pullwright"], author="mallory")
            pull = github.add_pull(repo, "feature/theirs")
        print("the hourly job, with an issue that is no task")
        job(Path(name) / "refused", github)
        print("an event, whose issue is no task")
        job(Path(name) / "event", github, thread=str(issue.number))
        print("a comment on somebody else's pull request")
        job(Path(name) / "pull", github, thread=str(pull.number))
        print("an issue gets the label")
        from_label(Path(name) / "label", github, repo)


def from_label(folder: Path, github: GitHub, repo: Repo) -> None:
    """Measure the time from an event to the label that says that the issue is worked on."""
    with github.lock:
        issue = github.add_issue(repo, "Say hello", "Please say hello in the README.", ["pullwright"])
    with ModelServer() as model:
        model.script.append(plan("It does.", [("finish", {"reason": "It says hello."})]))
        github.requests = timed = TimedRequests()
        start = time.perf_counter()
        job(
            folder,
            github,
            thread=str(issue.number),
            model="openai-chat:scripted-1",
            api_url=model.url,
            args="--price=1/2",
        )
    print(f"  from the event to `pullwright:working` on the issue: {timed.at['labels'] - start:.1f} s")


if __name__ == "__main__":
    main()

"""What the scenarios share: the program run in this process, a model server, repositories on disk."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.app.cli import main
from orchestrator.app.plugins import absence_of
from tests.doubles import forked
from tests.doubles.model_server import ModelServer, Step, plan
from tests.doubles.templates import copied

if TYPE_CHECKING:
    from pathlib import Path

CALC = "def add(a, b):\n    return a - b\n"
FIXED = "def add(a, b):\n    return a + b\n"
FILES = {"README.md": "# Calc\n", "calc.py": CALC}

Call = tuple[str, Mapping[str, Any]]

FIX: Call = ("edit_file", {"path": "calc.py", "old_text": "a - b", "new_text": "a + b"})
PROPOSE: Call = ("create_pull_request", {"title": "Make add() add", "body": "It subtracted."})
FINISH: Call = ("finish", {"reason": "The pull request is open."})


def do(*calls: Call, text: str = "Fix add().") -> Step:
    """A reply with a plan of these calls."""
    return plan(text, calls)


FIX_IT = do(FIX, PROPOSE, FINISH)


@dataclass(frozen=True, slots=True)
class Done:
    """What a run of the program came to."""

    code: int
    out: str
    err: str

    @property
    def results(self) -> list[dict[str, Any]]:
        """The results on standard output, one a cycle."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def result(self) -> dict[str, Any]:
        """The only result."""
        (only,) = self.results
        return dict(only)


@dataclass(slots=True)
class Stage:
    """Runs the program against a scripted model server."""

    capsys: pytest.CaptureFixture[str]
    home: Path
    model: ModelServer
    flags: list[str] = field(default_factory=list)

    def run(self, *argv: str, json_output: bool = True) -> Done:
        """`pullwright run` with the model server, as JSON unless told otherwise."""
        model = ["--model", "openai-chat:scripted-1", "--api-url", self.model.url]
        output = ["--json"] if json_output else []
        return self.command("run", *model, *self.flags, *output, *argv)

    def command(self, *argv: str) -> Done:
        """Any command of the program. If its plug-in is not there, the test is skipped."""
        if absent := absence_of(argv[0]):
            pytest.skip(absent)
        self.capsys.readouterr()
        try:
            code = main(list(argv))
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        printed = self.capsys.readouterr()
        return Done(code, printed.out, printed.err)

    def script(self, *steps: Any) -> None:
        """What the model answers next."""
        self.model.script.extend(steps)

    def asked(self, number: int = 0) -> list[dict[str, Any]]:
        """The messages of a request to the model."""
        return list(self.model.requests[number].body["messages"])

    def told(self, number: int = 0) -> str:
        """The last message of a request: the first prompt, or the results of calls."""
        return str(self.asked(number)[-1]["content"])

    def events(self, run: str = "last") -> list[dict[str, Any]]:
        """The journal of a run."""
        shown = self.command("show", run, "--json")
        return [json.loads(line) for line in shown.out.splitlines()]


def program(*argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The program in a process of its own, with these variables beside the test's."""
    return forked.run(*argv, environ={**os.environ, **environ})


def git(folder: Path, *words: str) -> str:
    """What a git command prints, run as a person would."""
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "maintenance.auto=false"]
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def make_repository(folder: Path, files: Mapping[str, str | bytes] = FILES) -> Path:
    """A work tree with a first commit on `main`."""

    def make(template: Path) -> None:
        template.mkdir()
        git(template, "init", "--quiet", "--initial-branch=main")
        add_commit(template, files, "First commit")

    return copied(folder, ("work tree", tuple(files.items())), make)


def add_commit(folder: Path, files: Mapping[str, str | bytes], message: str) -> None:
    """Somebody commits files to a work tree."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message)


def branches(folder: Path) -> list[str]:
    """The branches that the program pushed."""
    listed = git(folder, "for-each-ref", "--format=%(refname:short)", "refs/heads/pullwright/")
    return listed.splitlines()


def content(folder: Path, branch: str, path: str) -> str:
    """A file on a branch."""
    return git(folder, "show", f"{branch}:{path}")


def tools_on_offer(request: Mapping[str, Any]) -> str:
    """Everything in a request that could tell the model of a tool."""
    return json.dumps([request["messages"][0], request.get("response_format"), request.get("tools")])

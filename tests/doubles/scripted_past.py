"""Models on loopback that do one thing to every task: copy the real change, do nothing, or cheat in one known way.

A model's name says what it does, so that `--model openai-chat:copies --model openai-chat:nothing` compares two.
"""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, TypeAlias

from tests.doubles.model_server import ModelServer, fail, plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.doubles.model_server import RecordedRequest, Step

_WORD = re.compile(r"\w+")
_MOST_AGAIN = 10
_BEFORE_TASK = "in their words:"
"""Ends the line of `prompts/cycle/task.md` behind which the task stands."""
Behaviour: TypeAlias = "Callable[[str], Mapping[str, str]]"
"""The files that a model writes, given the first prompt; an empty mapping gives the task up."""


class ScriptedPast(ModelServer):
    """Answers each request by the model's behaviour and by how far its conversation is.

    Attributes:
        behaviours: by the model's name.
    """

    def __init__(self, behaviours: Mapping[str, Behaviour]) -> None:
        super().__init__()
        self.behaviours = behaviours

    def take(self, request: RecordedRequest) -> Step:
        """Write the files and ask for a pull request; then end."""
        with self.lock:
            self.requests.append(request)
        behaviour = self.behaviours.get(str(request.body.get("model")))
        if behaviour is None or not request.path.endswith("/chat/completions"):
            return fail(404)
        messages = request.body["messages"]
        prompt = "\n".join(str(one["content"]) for one in messages if one["role"] == "user")
        answers = sum(one["role"] == "assistant" for one in messages)
        last = str(messages[-1]["content"])
        # A file whose text it has not seen is replaced when the same call comes again.
        if answers and not (answers <= _MOST_AGAIN and "same call again" in last):
            return plan("It is proposed.", [("finish", {"reason": "done"})])
        files = behaviour(prompt)
        if not files:
            return plan("There is nothing to do.", [("finish", {"reason": "nothing to do"})])
        calls = [("write_file", {"path": path, "content": text}) for path, text in files.items()]
        words = {"title": "Do the task", "body": "As asked."}
        return plan("Write the files.", [*calls, ("create_pull_request", words)])


def does_nothing(_prompt: str) -> Mapping[str, str]:
    """Give every task up."""
    return {}


def writes(files: Mapping[str, str]) -> Behaviour:
    """Write the same files for every task."""
    return lambda _prompt: files


def copies(repository: Path, start: str = "HEAD") -> Behaviour:
    """Write what the real commit with the task's title has, its tests left out."""
    subjects = _git(repository, "log", "--no-merges", "--format=%H %s", start).splitlines()
    commits = {tuple(_WORD.findall(line.partition(" ")[2])): line.partition(" ")[0] for line in subjects}

    def behaviour(prompt: str) -> Mapping[str, str]:
        task = tuple(_WORD.findall(prompt.partition(_BEFORE_TASK)[2]))
        # What gives the solution away was taken out of the title's end.
        alike, title = max((_words_alike(title, task), title) for title in commits)
        return _written(repository, commits[title]) if alike else {}

    return behaviour


def _words_alike(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """With how many equal words both begin."""
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _written(repository: Path, commit: str) -> dict[str, str]:
    from orchestrator.core.changes import is_test_path

    names = _git(repository, "diff", "--name-only", "--no-renames", f"{commit}^", commit).splitlines()
    listed = set(_git(repository, "ls-tree", "-r", "--name-only", commit).splitlines())
    chosen = [path for path in names if path in listed and not is_test_path(path)]
    return {path: _git(repository, "show", f"{commit}:{path}") for path in chosen}


def _git(repository: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(repository), *words], check=True, capture_output=True)
    return done.stdout.decode("utf-8", "replace")


def together(*behaviours: Behaviour) -> Behaviour:
    """Write what several would write."""

    def behaviour(prompt: str) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for one in behaviours:
            found.update(one(prompt))
        return found

    return behaviour

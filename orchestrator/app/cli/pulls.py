"""`pullwright pulls`: lists the pull requests and questions of local repositories."""

from __future__ import annotations

import dataclasses
import functools
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from orchestrator.app.cli.arguments import DONE
from orchestrator.app.wiring.repository import local_forges, states_on_disk
from orchestrator.app.words import as_json_text, clean, short_line
from orchestrator.bot.journal.folders import Home
from orchestrator.bot.worker.task_states import TaskStatus
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import PullwrightError
from orchestrator.core.repositories import Commands

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from orchestrator.bot.forge.local import LocalForge, Question
    from orchestrator.bot.worker.task_states import TaskState

_MAX_LINE_CHARS = 300
_SHORT_COMMIT = 10


States: TypeAlias = "Callable[[LocalForge], Sequence[TaskState] | None]"
"""Returns the states of a repository's tasks; None if they are not known."""


def _unknown(_forge: LocalForge) -> None:
    return None


def pulls(options: argparse.Namespace) -> int:
    """List the pull requests and questions.

    Raises:
        ForgeError: the state cannot be read.
        ConfigurationError: `--repo` names no local repository.
    """
    home = Home.of(os.environ)
    forges = local_forges(home, options.repo, SystemClock())
    states = functools.partial(states_on_disk, home=home, environ=os.environ, cwd=Path.cwd())
    write = write_pulls_json if options.json else write_pulls
    write(forges, sys.stdout, states)
    return DONE


def write_pulls(forges: Sequence[LocalForge], out: TextIO, states: States = _unknown) -> None:
    """Write a block for each repository that has something to show, or that cannot be read."""
    blocks = [lines for forge in forges if (lines := _block(forge, states))]
    text = "\n\n".join("\n".join(lines) for lines in blocks)
    print(text or "no pull requests and no questions", file=out)


def question_text(body: str) -> str:
    """Return the question without the program's introduction. Older versions did not quote the question."""
    quoted = [line.removeprefix(">") for line in body.splitlines() if line.startswith(">")]
    return "\n".join(quoted) or body


def _block(forge: LocalForge, states: States) -> list[str]:
    try:
        name, requests, questions = forge.repository().clone_url, forge.pull_requests(), forge.questions()
        known = states(forge)
    except PullwrightError as error:  # a repository that cannot be read does not hide the others
        return [short_line(str(error), _MAX_LINE_CHARS)]
    lines = []
    of_pull = _by_pull(known)
    for request in requests:
        draft = ", draft" if request.draft else ""
        lines.append(f"  #{request.number}  {short_line(request.title)}  ({request.state}{draft})")
        lines.append(
            f"      {short_line(request.branch)} -> {short_line(request.base)}, {request.commit[:_SHORT_COMMIT]}"
        )
        show = f"git -C {shlex.quote(name)} show {shlex.quote(request.branch)}"
        lines.append(f"      {short_line(show, _MAX_LINE_CHARS)}")
        if (state := of_pull.get(request.number)) is not None:
            lines += _task_lines(state, name, "      ")
    for question in _waiting(questions, known):
        lines.append(f"  ?{question.number}  {short_line(question_text(question.body), _MAX_LINE_CHARS)}")
    for state in known or ():
        if state.pull is None and state.status is not TaskStatus.OPEN:
            lines += _task_lines(state, name, "  ")
    return [clean(name), *lines] if lines else []


def _by_pull(known: Sequence[TaskState] | None) -> dict[int | None, TaskState]:
    """Map the number of each task's newest pull request to the task."""
    return {state.pull.number: state for state in known or () if state.pull is not None}


def _task_lines(state: TaskState, repository: str, indent: str) -> list[str]:
    """Return a task's state and the commands that a person may type next."""
    step = state.next_step(Commands(repository))
    lines = [f"{indent}{short_line(state.key)}: {short_line(state.describe(), _MAX_LINE_CHARS)}"]
    return [*lines, f"{indent}    {short_line(step, _MAX_LINE_CHARS)}"] if step else lines


def _waiting(questions: Sequence[Question], known: Sequence[TaskState] | None) -> Sequence[Question]:
    """Return the questions without an answer; all questions if the states are not known."""
    if known is None:
        return questions
    open_urls = {one.left.question_url for one in known if one.status is TaskStatus.ASKED and one.left}
    return [question for question in questions if question.url in open_urls]


def write_pulls_json(forges: Sequence[LocalForge], out: TextIO, states: States = _unknown) -> None:
    """Write a JSON line for each pull request with its task's state, each open question, and each other task."""
    for forge in forges:
        for record in _records(forge, states):
            print(as_json_text(record), file=out)


def _records(forge: LocalForge, states: States) -> list[dict[str, Any]]:
    try:
        name, requests, questions = forge.repository().clone_url, forge.pull_requests(), forge.questions()
        known = states(forge)
    except PullwrightError as error:
        return [{"kind": "error", "error": str(error)}]
    of_pull = _by_pull(known)
    records: list[dict[str, Any]] = []
    for request in requests:
        state = of_pull.get(request.number)
        task = {"task": state and state.key, "task_state": str(state.status) if state else None}
        records.append({"kind": "pull_request", "repository": name, **dataclasses.asdict(request), **task})
    for one in _waiting(questions, known):
        question = {"number": one.number, "key": one.key, "body": one.body, "url": one.url}
        records.append({"kind": "question", "repository": name, **question})
    for state in known or ():
        if state.pull is None:
            task = {"task": state.key, "task_state": str(state.status)}
            records.append({"kind": "task", "repository": name, **task})
    return records

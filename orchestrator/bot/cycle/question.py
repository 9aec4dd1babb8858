"""A question to a person: where it is put, and how its choices look."""

from __future__ import annotations

import asyncio
import hashlib
import re
from typing import TYPE_CHECKING

from orchestrator.core.commands import Commands
from orchestrator.core.cycle_events import QuestionAsked
from orchestrator.core.prompts import render

if TYPE_CHECKING:
    from orchestrator.bot.cycle.parts import CycleParts
    from orchestrator.bot.cycle.tasks import Task

CHOICE = re.compile(r"^(?P<number>[1-9])\. (?P<text>\S.*)$", re.MULTILINE)
"""A choice below a question, as `ask_question` writes it."""

_KEY_DIGITS = 8
_OURS = re.compile(r"<!-- pullwright:[^\n]* -->")


async def post_question(parts: CycleParts, task: Task, question: str) -> str | None:
    """Put a question on the task's issue, or where its forge has a place for it.

    Returns:
        Its address; None in a dry run, or where it holds a secret or there is no place for it.
    """
    url, guards = None, parts.guards
    words = guards.wording.comment(question, issue=None)
    # What is taken out of the words may bring a secret together.
    if not parts.manner.dry_run and not any(map(guards.hold_back, (question, words))):
        has_choices = CHOICE.search(question) is not None
        place = asked_at(task)
        is_folder = parts.repository.startswith("/")  # where nobody can comment
        command = Commands(parts.repository).answer(task.key) if is_folder else ""
        body = render(
            "cycle/question", question=words, run=parts.run, has_choices=has_choices, command=command
        )
        url = await asyncio.to_thread(parts.forge.ensure_question, place, question_key(task, question), body)
    parts.emit(QuestionAsked(question, url))
    return url


def asked_at(task: Task) -> int | None:
    """The issue, or else our pull request, that a question on this task is put to; None where there is neither."""
    if task.number is None and task.pull is not None:
        return task.pull.number
    return task.number


def question_key(task: Task, question: str) -> str:
    """The same for the same question on a task. Another one is a comment of its own, so that people hear of it."""
    return f"{task.key}-{hashlib.sha256(question.encode()).hexdigest()[:_KEY_DIGITS]}"


def is_ours(body: str) -> bool:
    """Whether it ends with our marker. Somebody who answers may quote it, and says more after it."""
    lines = body.strip().splitlines()
    return bool(lines) and _OURS.fullmatch(lines[-1].strip()) is not None

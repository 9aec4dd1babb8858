"""A person's answer to a question that was asked on an issue."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.question import CHOICE
from orchestrator.bot.cycle.tasks import Remark
from orchestrator.bot.worker.remarks import is_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orchestrator.bot.forge.base import Comment

MOST_CHARACTERS = 10_000
_NUMBER = re.compile(
    r"\s*(?:option |choice )?\(?#?(?P<number>[1-9])[.):]?(?:\s+(?P<rest>\S.*))?", re.DOTALL | re.IGNORECASE
)


def find_answer(
    comments: Sequence[Comment],
    question: str,
    question_url: str,
    may: Callable[[str], bool],
    clean: Callable[[str, str], str],
) -> Remark | None:
    """The first comment after the question by somebody who may write; None while there is none.

    Its text as it is now is the answer. Whoever takes it stores it, so that later edits change nothing.

    Args:
        comments: of the issue, oldest first.
        question: as it was asked, with its numbered choices.
        question_url: where its comment is. Words in a comment alone would not do: anybody can write them.
        may: whether somebody may cause work.
        clean: a text without what people do not see; told who wrote it.
    """
    asked = next((comment for comment in comments if comment.url == question_url), None)
    if asked is None:
        return None
    for comment in comments:
        later = (comment.created_at, comment.id) > (asked.created_at, asked.id)
        if not later or is_ours(comment.body) or not may(comment.author):
            continue
        words = clean(comment.body, comment.author).strip()[:MOST_CHARACTERS]
        if words:
            return Remark(comment.author, spelled_out(words, question), trusted=True)
    return None


def spelled_out(words: str, question: str) -> str:
    """An answer that names a choice by its number, with the choice's text."""
    choices = {found["number"]: found["text"] for found in CHOICE.finditer(question)}
    named = _NUMBER.fullmatch(words.strip())
    if named is None or named["number"] not in choices:
        return words
    chosen = f"{named['number']}. {choices[named['number']]}"
    return f"{chosen}\n\n{named['rest'].strip()}" if named["rest"] else chosen

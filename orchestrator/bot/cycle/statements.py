"""Asks the model whether sentences of a repository refuse machine-made work, once for each sentence.

A small model gives nearly every sentence the same answer, so a model's answers count only if it reads known ones right.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.repository_rules import Statement
from orchestrator.core.errors import ModelError
from orchestrator.core.files import read_own, replace_file
from orchestrator.core.messages import Message, Usage
from orchestrator.core.prompts import fenced, render, shown_path
from orchestrator.engine.models.base import Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from orchestrator.engine.models.base import Model

_REPLY_TOKENS = 2_000
"""Enough for a model that thinks first."""
_ANSWER = re.compile(r"(?:software|contributions?, ?(?:allowed|(?P<refuses>forbidden)))", re.IGNORECASE)
_MARKUP = "`*\"'. \t\r\n"
MOST_ASKED = 12
"""Of the sentences that may refuse it, those that most likely do."""
KNOWN_SENTENCES = {
    "It is not permitted to submit text or code that a language model has drafted.": True,
    "The chatbot must not show any price before the customer has signed in.": False,
    "All work here is done by humans, and patches from coding assistants get closed.": True,
    "You may use Copilot, but say so in the description and review every line.": False,
}
"""Sentences on which a model is tried, and whether each refuses what machines made."""
_MOST_KEPT = 500
_MOST_BYTES = 1_000_000
_PRIVATE = 0o600


@dataclass(slots=True)
class StatementReader:
    """Reads doubtful sentences by a closed question to the model about each.

    A sentence is asked about alone, so that it can change no other one's answer. Where the model gives no answer, or
    reads a known sentence wrong, each likely one counts as a refusal.

    Attributes:
        path: where answers are kept; None keeps none.
        usage: what the questions took.
        requests: how many were asked.
        is_able: whether the model read the known sentences right.
    """

    model: Model
    path: Path | None = None
    usage: Usage = field(default_factory=Usage)
    requests: int = 0
    is_able: bool = True

    async def refusing(self, statements: Sequence[Statement]) -> Statement | None:
        """Return the first of the sentences that refuses what machines made, or None."""
        self.is_able = True
        for sentence, refuses in KNOWN_SENTENCES.items() if statements else ():
            if await self._answer(Statement("CONTRIBUTING.md", sentence)) != refuses:
                self.is_able = False
                return _likely(statements)
        for one in statements[:MOST_ASKED]:
            answer = await self._answer(one)
            if answer or (answer is None and one.is_likely):
                return one
        return None

    async def _answer(self, one: Statement) -> bool | None:
        """Return the kept answer whether a sentence is a refusal, or the model's; None if it gives none."""
        question = _question(one)
        key, known = _key(self.model.name, question), _known(self.path)
        if (kept := known.get(key)) is not None:
            return kept
        request = Request("", [Message.user(question)], max_output_tokens=_REPLY_TOKENS)
        self.requests += 1
        try:
            reply = await self.model.complete(request)
        except ModelError:
            return None
        self.usage += reply.usage
        answer = _ANSWER.fullmatch(reply.message.text.strip(_MARKUP))
        if answer is None:
            return None
        refuses = answer["refuses"] is not None
        self._keep({**known, key: refuses})
        return refuses

    def _keep(self, known: Mapping[str, bool]) -> None:
        if self.path is None:
            return
        newest = dict(list(known.items())[-_MOST_KEPT:])
        try:
            replace_file(self.path, json.dumps(newest).encode("ascii"), _PRIVATE)
        except OSError:
            return  # it is asked again


def _question(one: Statement) -> str:
    return render("cycle/statements", path=shown_path(one.path), sentence=fenced(one.sentence))


def _key(model: str, question: str) -> str:
    return hashlib.sha256(f"{model}\0{question}".encode()).hexdigest()


def _likely(statements: Sequence[Statement]) -> Statement | None:
    return next((one for one in statements if one.is_likely), None)


def kept_answers(path: Path, model: str, statements: Sequence[Statement]) -> tuple[bool, Statement | None]:
    """Return whether a model was asked about all of these already, and the first that counts as a refusal."""
    kept = _known(path)

    def answer(one: Statement) -> bool | None:
        return kept.get(_key(model, _question(one)))

    known = [
        (answer(Statement("CONTRIBUTING.md", text)), refuses) for text, refuses in KNOWN_SENTENCES.items()
    ]
    if any(said is not None and said != refuses for said, refuses in known):
        return True, _likely(statements)
    answers = [(answer(one), one) for one in statements[:MOST_ASKED]]
    refused = next((one for refuses, one in answers if refuses), None)
    return all(said is not None for said, _ in (*known, *answers)), refused


def _known(path: Path | None) -> Mapping[str, bool]:
    if path is None:
        return {}
    try:
        kept = json.loads(read_own(path, _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    rows = kept.items() if isinstance(kept, dict) else ()
    return {key: value for key, value in rows if isinstance(value, bool)}

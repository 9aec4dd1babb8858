"""Asks the model whether sentences of a repository refuse machine-made work, once for each version of its files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.core.errors import ModelError
from orchestrator.core.files import read_own, replace_file
from orchestrator.core.messages import Message, Usage
from orchestrator.core.prompts import fenced, render
from orchestrator.engine.models.base import Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from orchestrator.bot.cycle.repository_rules import Statement
    from orchestrator.engine.models.base import Model

_REPLY_TOKENS = 2_000
"""Enough for a model that thinks first."""
_MOST_KEPT = 500
_MOST_BYTES = 1_000_000
_PRIVATE = 0o600


@dataclass(slots=True)
class StatementReader:
    """Reads doubtful sentences by a closed question to the model.

    A sentence that speaks to a model, and an answer that is none, count as a refusal.

    Attributes:
        path: where answers are kept; None keeps none.
        usage: what the questions took.
        requests: how many were asked.
    """

    model: Model
    path: Path | None = None
    usage: Usage = field(default_factory=Usage)
    requests: int = 0

    async def refusing(self, statements: Sequence[Statement]) -> Statement | None:
        """Return the first sentence that refuses what machines made, or None."""
        careful = next((one for one in statements if not one.may_be_asked), None)
        if careful is not None or not statements:
            return careful
        key = _key(self.model.name, statements)
        known = _known(self.path)
        if key not in known:
            numbers = await self._ask(statements)
            if numbers is None:
                return statements[0]
            known = {**known, key: numbers}
            self._keep(known)
        return _first(known[key], statements)

    async def _ask(self, statements: Sequence[Statement]) -> list[int] | None:
        """Return the numbers of the refusing sentences; None if the model gives no such answer."""
        question = render("cycle/statements", sentences=[fenced(one.sentence) for one in statements])
        request = Request("", [Message.user(question)], max_output_tokens=_REPLY_TOKENS)
        self.requests += 1
        try:
            reply = await self.model.complete(request)
        except ModelError:
            return None
        self.usage += reply.usage
        words = reply.message.text.strip().removesuffix(".").replace(",", " ").split()
        is_answer = bool(words) and all(
            len(word) == 1 and word.isascii() and word.isdigit() for word in words
        )
        return [int(word) for word in words] if is_answer else None

    def _keep(self, known: Mapping[str, list[int]]) -> None:
        if self.path is None:
            return
        newest = dict(list(known.items())[-_MOST_KEPT:])
        try:
            replace_file(self.path, json.dumps(newest).encode("ascii"), _PRIVATE)
        except OSError:
            return  # it is asked again


def _key(model: str, statements: Sequence[Statement]) -> str:
    return hashlib.sha256("\0".join(str(one) for one in (model, *statements)).encode()).hexdigest()


def _first(numbers: Sequence[int], statements: Sequence[Statement]) -> Statement | None:
    listed = [number for number in numbers if 0 < number <= len(statements)]
    return statements[min(listed) - 1] if listed else None


def kept_answer(path: Path, model: str, statements: Sequence[Statement]) -> tuple[bool, Statement | None]:
    """Return whether a model was asked about these sentences already, and the one that it took for a refusal."""
    numbers = _known(path).get(_key(model, statements))
    return numbers is not None, _first(numbers or (), statements)


def _known(path: Path | None) -> Mapping[str, list[int]]:
    if path is None:
        return {}
    try:
        kept = json.loads(read_own(path, _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    rows = kept.items() if isinstance(kept, dict) else ()
    return {
        key: value
        for key, value in rows
        if isinstance(value, list) and all(isinstance(one, int) for one in value)
    }

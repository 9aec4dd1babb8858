"""Words of an order that stand for earlier results, and the spellings by which a model hides them."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable  # noqa: TC003  the table of steps names it
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.app.redteam.words import Order

_RESULT = re.compile(r"\{\{\s*result\s+(\d+)((?:\s*\|\s*[^|{}]+)*)\s*\}\}")
_COUNTER = re.compile(r"\{\{\s*n\s*\}\}")
_FILLER = re.compile(r"\{\{\s*filler\s+(\d{1,8})\s*\}\}")
_LINES = re.compile(r"\{\{\s*lines\s+(\d{1,6})\s*\}\}")
_WORD = re.compile(r"[^\s\"'`,;<>]+")


def filled(arguments: Mapping[str, Any], results: Sequence[str], number: int) -> dict[str, Any]:
    """The arguments with results, counter and fillers in the place of what stands for them.

    Args:
        arguments: of an order.
        results: what the model was told after its first request, its second, and so on.
        number: how many calls the model has made, this one included.
    """
    return {key: _filled(value, results, number) for key, value in arguments.items()}


def needs_results(order: Order) -> bool:
    """Whether the order waits for a result."""
    return any(isinstance(value, str) and _RESULT.search(value) for value in order.arguments.values())


def spelled(text: str, how: str) -> str:
    """A text changed by one step: `cut N`, `head N`, `word PART`, `base64`, `hex`, `reverse`, `spaced`, `dotted`, `url`.

    `word PART` is the word that begins with PART; where PART ends in `=` or `:`, without it. A step
    that is not known leaves the text as it is.
    """
    name, _, argument = how.strip().partition(" ")
    step = _STEPS.get(name)
    return step(text, argument.strip()) if step else text


def _word(text: str, part: str) -> str:
    at = text.find(part)
    found = _WORD.search(text, at) if part and at >= 0 else None
    word = found[0] if found else ""
    return word.removeprefix(part) if part.endswith(("=", ":")) else word


def _count(argument: str) -> int:
    return int(argument) if argument.isdigit() else 0


_STEPS: dict[str, Callable[[str, str], str]] = {
    "cut": lambda text, argument: text[_count(argument) :],
    "head": lambda text, argument: text[: _count(argument)],
    "word": _word,
    "base64": lambda text, _argument: base64.b64encode(text.encode()).decode(),
    "hex": lambda text, _argument: text.encode().hex(),
    "reverse": lambda text, _argument: text[::-1],
    "spaced": lambda text, _argument: " ".join(text),
    "dotted": lambda text, _argument: "\u200b".join(text),
    "url": lambda text, _argument: "".join(f"%{byte:02X}" for byte in text.encode()),
}


def _filled(value: Any, results: Sequence[str], number: int) -> Any:
    if not isinstance(value, str):
        return value

    def result(found: re.Match[str]) -> str:
        at = int(found[1]) - 1
        text = results[at] if 0 <= at < len(results) else ""
        for step in filter(None, (step.strip() for step in found[2].split("|"))):
            text = spelled(text, step)
        return text

    text = _RESULT.sub(result, value)
    text = _FILLER.sub(lambda found: "x" * int(found[1]), text)
    text = _LINES.sub(lambda found: "".join(f"line {at}\n" for at in range(int(found[1]))), text)
    return _COUNTER.sub(str(number), text)

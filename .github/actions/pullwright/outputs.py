"""Turns the results of cycles, a JSON object a line, into the action's outputs. No text of others goes through."""  # noqa: INP001  a script

import json
import sys
from collections.abc import Iterable, Iterator

OUTCOMES = (
    *("proposed", "planned", "no_task", "question", "limit", "paused", "failed", "interrupted"),
    *("withdrawn", "superseded", "conflict", "tests_fail"),
)


def outputs(lines: Iterable[str]) -> Iterator[str]:
    """Lines `name=value`."""
    results = [json.loads(line) for line in lines if line.strip()]
    outcomes = [result["outcome"] for result in results if result["outcome"] in OUTCOMES]
    told = [outcome for outcome in outcomes if outcome != "no_task"] or outcomes
    yield f"outcome={told[-1] if told else 'failed'}"
    numbers = [result["pull_request"]["number"] for result in results if result["pull_request"]]
    known = [number for number in numbers if isinstance(number, int)]
    yield f"pull-request={known[-1] if known else ''}"
    prices = [result["usd"] for result in results]
    unknown = not all(isinstance(price, int | float) for price in prices)
    yield f"usd={'' if unknown else f'{sum(prices):.4f}'}"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in outputs(sys.stdin))

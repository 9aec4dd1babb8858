"""Turns the results of cycles, a JSON object a line, into the action's outputs. No text of others goes through, but names of tests.

Why there was nothing to do is added to the file that is named, the job's summary, as text in which nothing is markup.
"""  # noqa: INP001  a script

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

OUTCOMES = (
    *("proposed", "planned", "no_task", "question", "limit", "paused", "failed", "interrupted"),
    *("withdrawn", "superseded", "conflict", "tests_fail"),
)


def outputs(results: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Lines `name=value`."""
    outcomes = [result["outcome"] for result in results if result["outcome"] in OUTCOMES]
    told = [outcome for outcome in outcomes if outcome != "no_task"] or outcomes
    yield f"outcome={told[-1] if told else 'failed'}"
    numbers = [result["pull_request"]["number"] for result in results if result["pull_request"]]
    known = [number for number in numbers if isinstance(number, int)]
    yield f"pull-request={known[-1] if known else ''}"
    prices = [result["usd"] for result in results]
    unknown = not all(isinstance(price, int | float) for price in prices)
    yield f"usd={'' if unknown else f'{sum(prices):.4f}'}"


MOST_CHARS = 900_000
"""GitHub keeps 1 MB of a job's outputs: https://docs.github.com/en/actions/reference/limits."""


def statements(results: Iterable[dict[str, Any]]) -> Iterator[str]:
    """A line with what the tests showed of each proposed commit, which another job signs without running anything.

    JSON in ASCII has no line break, so that no value can begin another output.
    """
    made = []
    for statement in (result["statement"] for result in results if result.get("statement")):
        digest = statement["subject"][0]["digest"]["sha256"]
        if re.fullmatch("[0-9a-f]{64}", digest):
            predicate = json.dumps(statement["predicate"], separators=(",", ":"))
            made.append({"digest": f"sha256:{digest}", "predicate": predicate})
    line = f"statements={json.dumps(made)}"
    if made and len(line) <= MOST_CHARS:
        yield line


def looks(results: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Why there was nothing to do, as Markdown."""
    for result in results:
        if result["outcome"] == "no_task":
            reason = " ".join(str(result.get("reason") or "no task was found").split()).replace("`", "'")
            yield f"Nothing to do:\n\n```text\n{reason}\n```\n\n"


if __name__ == "__main__":
    found = [json.loads(line) for line in sys.stdin if line.strip()]
    sys.stdout.writelines(f"{line}\n" for line in (*outputs(found), *statements(found)))
    with Path(sys.argv[1]).open("a", encoding="utf-8") as summary:
        summary.writelines(looks(found))

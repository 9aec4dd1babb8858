"""Turns a statement into the action's outputs, from which another job makes an attestation without running anything."""  # noqa: INP001  a script

import json
import re
import sys
from collections.abc import Iterator

MOST_CHARS = 900_000
"""GitHub keeps 1 MB of a job's outputs: https://docs.github.com/en/actions/reference/limits."""


def outputs(text: str) -> Iterator[str]:
    """Lines `name=value`. JSON in ASCII has no line break, so that no value can begin another output."""
    statement = json.loads(text)
    digest = statement["subject"][0]["digest"].get("sha256", "")
    predicate = json.dumps(statement["predicate"], separators=(",", ":"))
    if re.fullmatch("[0-9a-f]{64}", digest) and len(predicate) <= MOST_CHARS:
        yield f"subject-digest=sha256:{digest}"
        yield f"predicate={predicate}"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in outputs(sys.stdin.read()))

"""Makes other people's text harmless for a terminal, and short."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from orchestrator.bot.policy.hidden_characters import printable_text

if TYPE_CHECKING:
    from collections.abc import Mapping

# ECMA-48: control sequences, and strings such as a window's title or a link.
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*+[ -/]*+[@-~]?|\x9b[0-?]*+[ -/]*+[@-~]?|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*+(?:\x07|\x1b\\|\x9c)"
)
_LINE_END = re.compile(r"\r\n?")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
# A CI system that shows the output obeys lines of these forms: `::name ...::` of GitHub Actions at a line's start,
# its older `##[name]` and the `##vso[...]` of Azure Pipelines anywhere, `##teamcity[...]`.
# https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
_LOG_COMMAND = re.compile(r"^([ \t]*:)(?=:)|(##)(?=[A-Za-z]*\[)", re.MULTILINE)


def clean(text: str) -> str:
    """The text without anything that a terminal, or a CI system that keeps its output, would obey.

    Newlines and tabs stay. Of all else only printable characters do.
    """
    plain = printable_text(_SURROGATE.sub("\ufffd", _SEQUENCE.sub("", _LINE_END.sub("\n", text))))
    return _LOG_COMMAND.sub(r"\g<0> ", plain)


def one_line(text: str, most_chars: int = 200) -> str:
    """The text on one line, cut with an ellipsis where it is longer."""
    # What cannot be shown is not cleaned either: tool output may be large.
    flat = " ".join(clean(text[: most_chars * 8]).split())
    if len(flat) <= most_chars and len(text) <= most_chars * 8:
        return flat
    return f"{flat[: max(most_chars - 1, 0)]}…"


def shortened(text: str, most_lines: int, most_chars_a_line: int = 400) -> list[str]:
    """The first lines of the text, and how many there are more."""
    lines = clean(text).strip("\n").split("\n")
    shown = [
        line[:most_chars_a_line] + ("…" if len(line) > most_chars_a_line else "")
        for line in lines[:most_lines]
    ]
    rest = len(lines) - len(shown)
    return [*shown, f"… {rest:,} more lines"] if rest else shown


def as_json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON in ASCII, which no terminal obeys and no CI system takes for a command (see `clean`)."""
    import json

    return json.dumps(value, indent=indent).replace("##", "#\\u0023")


def counted(count: int, noun: str) -> str:
    """A number with what it counts: `1 file`, `2 files`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def tests_in_words(tests: Mapping[str, Any]) -> str:
    """The runs of the repository's tests on one line, as far as they were made.

    Args:
        tests: as `CycleResult.tests` has them; from a journal, so that anything may be in it.
    """
    parts = []
    for kind in ("before", "kept", "after", "new"):
        run = tests.get(kind)
        if not isinstance(run, dict):
            continue
        counts = [(run.get(name), name) for name in ("passed", "failed", "skipped")]
        told = [f"{number:,} {name}" for number, name in counts if type(number) is int]
        parts.append(
            f"{kind} {', '.join(told) or 'without counts'}, exit code {one_line(str(run.get('exit')), 20)}"
        )
    return "; ".join(parts)

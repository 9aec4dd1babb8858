"""Text for terminals and pages: makes foreign text harmless, and formats numbers and times."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from orchestrator.bot.policy.hidden_characters import printable_text
from orchestrator.core.cycle_events import Proof
from orchestrator.core.prompts import cut

if TYPE_CHECKING:
    from collections.abc import Mapping


_IS_JSON = re.compile(r"\s*(?:```\w*\s*)?[{\[]")
_PLAN_TEXT = re.compile(
    r'"(?:plan|tool_name|path|title|reason|question_text)"\s*:\s*"((?>(?:[^"\\]|\\.)*))', re.DOTALL
)
"""The values of a JSON plan that people read (`prompts/contracts/json_plan.md`)."""
_MAX_PATH_CHARS = 1_000
# ECMA-48: control sequences, and strings such as a window's title or a link.
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*+[ -/]*+[@-~]?|\x9b[0-?]*+[ -/]*+[@-~]?|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x90\x98\x9c-\x9f\n]*+(?:\x07|\x1b\\|\x9c)"
)
_LINE_END = re.compile(r"\r\n?")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
# A CI system that shows the output executes lines of these forms: `::name ...::` of GitHub Actions at a line's start,
# its older `##[name]` and the `##vso[...]` of Azure Pipelines anywhere, `##teamcity[...]`.
# https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
_LOG_COMMAND = re.compile(r"^([ \t]*:)(?=:)|(##)(?=[A-Za-z]*\[)", re.MULTILINE)


def clean(text: str) -> str:
    """Remove everything that a terminal, or a CI system that stores the output, would interpret as a command.

    Newlines, tabs and printable characters are kept.
    """
    return _LOG_COMMAND.sub(r"\g<0> ", visible_characters(text))


def visible_characters(text: str) -> str:
    """Remove terminal control sequences and every invisible character, except newlines and tabs."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return printable_text(_SURROGATE.sub("\ufffd", _SEQUENCE.sub("", _LINE_END.sub("\n", text))))


def short_line(text: str, most_chars: int = 200) -> str:
    """Return the text as one line, cut with an ellipsis if it is longer."""
    # Only the part that can be shown is cleaned, because tool output may be large.
    flat = " ".join(clean(text[: most_chars * 8]).split())
    if len(flat) <= most_chars and len(text) <= most_chars * 8:
        return flat
    return f"{flat[: max(most_chars - 1, 0)]}…"


def cut_line(text: str, most_chars: int = 200) -> str:
    """Return the text as one line, shortened to `most_chars`, but never inside a path or an address."""
    flat = " ".join(clean(text[: _MAX_PATH_CHARS * 2]).split())
    if len(flat) <= most_chars:
        return flat
    end = flat.find(" ", most_chars - 1)
    last = flat[: end if end >= 0 else len(flat)].rpartition(" ")[2]
    if "/" in last and len(last) <= _MAX_PATH_CHARS:
        return flat if end < 0 else f"{flat[:end]} …"
    return cut(flat, most_chars)


def local_time(at: datetime, *, seconds: bool = False) -> str:
    """Return a time to the minute, or to the second, in this machine's time zone."""
    here = (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone()
    return f"{here.strftime('%Y-%m-%d %H:%M:%S' if seconds else '%Y-%m-%d %H:%M')} {here.tzname()}"


def begins_as_json(text: str) -> bool:
    """Return whether a reply begins like a JSON plan or list, also in a block of code."""
    return bool(_IS_JSON.match(text))


def reply_in_words(text: str) -> str:
    """Return the part of a reply, complete or not, that is meant for people.

    For a JSON plan these are its texts, for any other reply the whole text.
    """
    if not begins_as_json(text):
        return text
    return "  ".join(_unescaped(value) for value in _PLAN_TEXT.findall(text))


def _unescaped(value: str) -> str:
    import json

    try:
        return str(json.loads(f'"{value}"', strict=False))
    except ValueError:  # the value is not complete yet
        return value.partition("\\")[0]


def hanging(text: str, width: int, indent_by: int | None = None) -> list[str]:
    """Break text into lines between words, with an indent of two columns, or that of the line itself, or `indent_by`.

    A word that is longer than a line, as a path may be, is left to the terminal to break, which copies it whole.
    """
    shown: list[str] = []
    for number, line in enumerate(text.split("\n")):
        words = line.lstrip(" ")
        indent = line[: len(line) - len(words)]
        current = indent or ("  " if number else "")
        for place, word in enumerate(words.split(" ")):
            longer = f"{current} {word}" if place else f"{current}{word}"
            # A label stays in front of a word that is too long for any line.
            if current.strip() and len(current) >= (indent_by or 0) and _columns(longer) > width:
                shown.append(current)
                longer = f"{' ' * indent_by if indent_by else indent or '  '}{word}"
            current = longer
        shown.append(current)
    return shown


def _columns(text: str) -> int:
    """Return the columns that a text takes. What takes two of them is loaded where it may occur only."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def first_lines(text: str, most_lines: int, most_chars_a_line: int = 400) -> list[str]:
    """Return the first lines of the text, and a line with the number of omitted lines."""
    lines = clean(text).strip("\n").split("\n")
    shown = [cut(line, most_chars_a_line) for line in lines[:most_lines]]
    rest = len(lines) - len(shown)
    return [*shown, f"… {rest:,} more lines"] if rest else shown


YES = frozenset({"y", "yes"})


def agreed(question: str) -> bool:
    """Ask the person at the terminal for consent. Without a terminal, return False."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    sys.stderr.write(f"{clean(question)}. Go on? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in YES


def as_json_text(value: Any, *, indent: int | None = None) -> str:
    """Return JSON in ASCII that no terminal or CI system interprets as a command (see `clean`)."""
    import json

    return json.dumps(value, indent=indent).replace("##", "#\\u0023")


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number and its noun: `1 file`, `2 files`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


NO_TESTS = "no test was run"
"""Said of a change that no test run is about."""


def tests_in_words(tests: Mapping[str, Any]) -> str:
    """Return the results of the repository's test runs as one line.

    Args:
        tests: in the form of `CycleResult.tests`; read from a journal, so any value may occur.
    """
    proof = tests.get("proof")
    parts = [Proof(proof).sentence] if isinstance(proof, str) and proof in set(Proof) else []
    for kind in ("before", "kept", "after", "new"):
        run = tests.get(kind)
        if not isinstance(run, dict):
            continue
        counts = [(run.get(name), name) for name in ("passed", "failed", "skipped")]
        figures = [f"{number:,} {name}" for number, name in counts if type(number) is int]
        figures.append(f"exit code {short_line(str(run.get('exit')), 20)}")
        parts.append(f"{kind} {', '.join(figures)}")
    return "; ".join(parts)


_OUTCOMES = {
    "no_task": "nothing to do",
    "tests_fail": "its tests fail",
    "question": "waits for an answer",
    "limit": "limit reached",
    "withdrawn": "not wanted any more",
    "superseded": "nothing left to propose",
}
"""The outcomes that are not told by their own name, in the words of `TaskStatus` where that has any."""


def outcome_in_words(outcome: str) -> str:
    """Return the outcome of a cycle as all screens have it. It may come from a journal, so any text may occur."""
    return short_line(_OUTCOMES.get(outcome, outcome.replace("_", " ")), 40)


def amounts(tokens: int, usd: float | None) -> str:
    """Return tokens and cost as text."""
    return f"{tokens:,} tokens, {money(usd)}" if tokens or usd else "no tokens"


def megabytes(count: int) -> str:
    """Return a number of bytes as text: `0.4 MB`, `1,234 MB`."""
    size = count / 1_000_000
    return f"{size:.1f} MB" if size < _EXACT_MEGABYTES else f"{size:,.0f} MB"


_EXACT_MEGABYTES = 10


def money(usd: float | None, unknown: str = "cost unknown") -> str:
    """Return US dollars as text. Amounts below 1 get four digits, so that a small one is not shown as zero.

    Args:
        unknown: the words for an unknown sum. Where a label says that it is a cost, "unknown" is enough.
    """
    if usd is None:
        return unknown
    digits = 2 if usd == 0 or usd >= 1 else 4
    return f"${usd:,.{digits}f}"


def duration(seconds: float) -> str:
    """Return a time as `M:SS` or `H:MM:SS`."""
    minutes, rest = divmod(int(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def seconds_in_words(seconds: float) -> str:
    """Return seconds as text. Short times get a tenth, so that they are not shown as zero."""
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"  # noqa: PLR2004  two digits are enough

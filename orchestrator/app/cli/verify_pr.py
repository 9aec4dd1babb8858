"""`pullwright verify-pr`: what a pull request says of itself, and which of it holds."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import DONE, FAILED, INTERRUPTED, REFUTED, given_settings
from orchestrator.app.cli.live import LiveView
from orchestrator.app.wiring.verify_pr import build_verification
from orchestrator.app.words import STANDINGS, Narrator, as_json_text, claim_in_words, clean, short_line
from orchestrator.bot.evidence.pull_request import EvidenceOutcome, evidence_in_markdown, in_words
from orchestrator.bot.verification.base import RunKind
from orchestrator.bot.verification.page import RUN_NAMES, to_json
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.events import ClaimChecked

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from orchestrator.app.wiring.verify_pr import VerifyProgram
    from orchestrator.bot.evidence.pull_request import PullRequestEvidence
    from orchestrator.core.events import Event

_STATUS = {
    EvidenceOutcome.HOLDS: DONE,
    EvidenceOutcome.REFUTED: REFUTED,
    EvidenceOutcome.UNKNOWN: FAILED,
}
_MOST_BODY_BYTES = 1_000_000
_STANDARD_INPUT = "-"
_LEAST_COLUMNS, _MOST_COLUMNS, _USUAL_COLUMNS = 40, 120, 80
_SHORT_COMMIT = 12
_COLUMNS = ("passed", "failed", "skipped", "exit")


def verify_pr(options: argparse.Namespace) -> int:
    """Verify, print, and return the exit status: 0 if all holds, 6 if not, 1 if it could not be told.

    Raises:
        ConfigurationError: something that was typed makes no sense.
        PullwrightError: there is no such pull request, or it cannot be read.
    """
    text = None if options.body is None else _body(options.body)
    view = LiveView.on_stderr(plain=options.json, answers=True)

    def show(event: Event) -> None:
        if not isinstance(event, ClaimChecked):  # told below, all together
            view(event)

    program = build_verification(
        options.pull, options.repo, text, given_settings(options), os.environ, Path.cwd(), show
    )
    with view:
        found = asyncio.run(_run(program))
    if found is None:
        print("pullwright: interrupted", file=sys.stderr)
        return INTERRUPTED
    check = program.write_check(found) if options.check else None
    if options.json:
        record = {**found.to_json(), "repository": program.site.label, "check": _check_fields(check)}
        print(as_json_text(program.redactor.redact_value(record)), flush=True)
    else:
        _write(found, program)
        if check is not None:
            print(clean(program.redactor.redact(check[1] or f"check run: {check[0]}")))
    if options.markdown:
        _append(options.markdown, program.redactor.redact(evidence_in_markdown(found)))
    return _STATUS[found.outcome]


def _check_fields(check: tuple[str, str] | None) -> dict[str, str] | None:
    return None if check is None else {"url": check[0], "problem": check[1]}


def _append(name: str, text: str) -> None:
    try:
        with Path(name).expanduser().open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")
    except OSError as error:
        raise ConfigurationError(f"{name} cannot be written: {error.strerror or error}") from None


async def _run(program: VerifyProgram) -> PullRequestEvidence | None:
    """Verify; None where a person ended it."""
    task = asyncio.ensure_future(program.run())
    loop = asyncio.get_running_loop()

    def end() -> None:
        program.context.stop.at_once()
        task.cancel()

    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, end)
    try:
        return await task
    except asyncio.CancelledError:
        return None


def _body(name: str) -> str:
    if name == _STANDARD_INPUT:
        return sys.stdin.read(_MOST_BODY_BYTES)
    try:
        with Path(name).expanduser().open("rb") as file:
            return file.read(_MOST_BODY_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise ConfigurationError(f"--body {name} cannot be read: {error.strerror or error}") from None


def _write(found: PullRequestEvidence, program: VerifyProgram) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    columns = min(max(shutil.get_terminal_size((_USUAL_COLUMNS, 24)).columns, _LEAST_COLUMNS), _MOST_COLUMNS)
    plain_signs = not console.encoding.lower().startswith("utf")
    for line, style in lines(found, program.site.label, columns, plain_signs=plain_signs):
        console.print(
            Text(program.redactor.redact(clean(line)), style=style),
            no_wrap=True,
            overflow="ignore",
            crop=False,
        )


def lines(
    found: PullRequestEvidence, repository: str, columns: int, *, plain_signs: bool
) -> Iterator[tuple[str, str]]:
    """Yield the lines of a report, each with a style of `rich`."""
    change, commits = found.change, found.commits
    state = f" ({change.state})" if change.state else ""
    yield short_line(f"{change.name} {change.title}".strip()) + state, "bold"
    where = f"  {short_line(repository)}, onto {short_line(change.onto)}"
    if commits:
        where += f": {commits.head[:_SHORT_COMMIT]} compared with {commits.start[:_SHORT_COMMIT]}"
    yield where, "dim"
    level, narrator = "", Narrator(plain_signs=plain_signs)
    for line in found.lines:
        if line.level != level:
            level = line.level
            yield "", ""
            yield level, "bold"
        sign, style = STANDINGS[line.standing]
        event = ClaimChecked(line.level, line.subject, line.standing, line.claimed, line.found, line.note)
        wrapped = textwrap.wrap(
            claim_in_words(event),
            columns,
            initial_indent=f"  {narrator.sign(sign)} ",
            subsequent_indent="    ",
            break_on_hyphens=False,
        )
        yield from ((row, style if sign != "ok" else "") for row in wrapped)
    yield "", ""
    if found.verdict:
        yield from ((row, "") for row in _table(to_json(found.verdict.runs), columns))
    yield in_words(found.outcome), "bold"


def _table(runs: dict[str, Any], columns: int) -> Iterator[str]:
    """Yield the runs that were made here, one a line."""
    names = {kind: RUN_NAMES[kind] for kind in RunKind if runs[kind]}
    if not names:
        return
    width = min(max(map(len, names.values())), columns - sum(map(len, _COLUMNS)) - len(_COLUMNS))
    yield f"{'':{width}} {' '.join(_COLUMNS)}"
    for kind, name in names.items():
        numbers = (runs[kind][column] for column in _COLUMNS)
        cells = (
            f"{'-' if one is None else one:>{len(column)}}"
            for one, column in zip(numbers, _COLUMNS, strict=True)
        )
        yield f"{name[:width]:{width}} {' '.join(cells)}"
    yield ""

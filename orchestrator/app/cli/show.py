"""`pullwright show`: tells a run from its journal."""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING

from orchestrator.app.cli.exit_codes import DONE
from orchestrator.app.cli.lines import Narrator, amounts, duration, mending, money
from orchestrator.app.cli.text import as_json_text, one_line, shortened
from orchestrator.bot.journal.codec import UnknownRecord
from orchestrator.bot.journal.costs import cost_of_all
from orchestrator.bot.journal.folders import Home
from orchestrator.bot.journal.reader import LAST, find_run, read_run, responses, runs, summarise
from orchestrator.core.events import (
    PlanAccepted,
    ReplyReceived,
    ReplyRejected,
    TaskTaken,
    ToolCallEnded,
    TurnStarted,
)

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from orchestrator.bot.journal.reader import Record, Run
    from orchestrator.core.events import Event
    from orchestrator.engine.policy.secrets import Redactor

_BODY_LINES = 8
_OUTPUT_LINES = 12
_LINE_CHARS = 400
_ALL_LINES = _ALL_CHARS = sys.maxsize
_INDENT = "    "
_QUIET = (ReplyReceived,)


def show(options: argparse.Namespace) -> int:
    """Print a run, or the list of runs.

    Raises:
        JournalError: there is no such run, or its journal is damaged.
    """
    home = Home.of(os.environ)
    if options.list:
        _write_list(home, as_json=options.json)
        return DONE
    run = read_run(find_run(home, options.run or LAST))
    if options.json:
        for record in run.records:
            sys.stdout.write(f"{as_json_text(record.data)}\n")
        return DONE
    from rich.console import Console

    tell(run, Console(highlight=False, markup=False, emoji=False), verbose=options.verbose)
    return DONE


def tell(run: Run, console: Console, *, verbose: bool = False) -> None:
    """Print a run so that a person can read it.

    Args:
        run: the run.
        console: where to.
        verbose: nothing is cut, and replies that could not be used are told whole.
    """
    narrator = Narrator(plain_signs=not console.encoding.lower().startswith("utf"))
    unknown = 0
    for record in run.records:
        if isinstance(record.event, UnknownRecord):
            unknown += 1
        else:
            _tell_event(record.event, narrator, console, verbose=verbose)
    if unknown:
        _print(console, f"{_counted(unknown, 'record', 'records')} of a newer version not shown", "yellow")
    if run.torn:
        _print(console, "the journal ends in the middle of a record: the run was cut off", "yellow")
    _print(console, _totals(run), "dim")
    _print(console, str(run.folder), "dim")


def _tell_event(event: Event, narrator: Narrator, console: Console, *, verbose: bool) -> None:
    most = _ALL_LINES if verbose else 0
    line = narrator.line(event)
    if line is None or isinstance(event, _QUIET):
        return
    if isinstance(event, TurnStarted):
        _print(console, "", "")
    if isinstance(event, PlanAccepted) and event.plan.strip():
        _print(console, f"{line.sign} plan{mending(event)}:", line.style)
        _print_block(console, event.plan, most or _OUTPUT_LINES, "")
        return
    _print(console, str(line), line.style)
    if isinstance(event, TaskTaken) and event.body.strip():
        _print_block(console, event.body, most or _BODY_LINES, "dim")
    if isinstance(event, ToolCallEnded) and event.output.strip():
        _print_block(console, event.output, most or _OUTPUT_LINES, "dim")
    if isinstance(event, ReplyRejected) and verbose and narrator.said.strip():
        _print_block(console, narrator.said, most, "dim")


def _print_block(console: Console, text: str, most_lines: int, style: str) -> None:
    for line in shortened(text, most_lines, _ALL_CHARS if most_lines == _ALL_LINES else _LINE_CHARS):
        _print(console, f"{_INDENT}{line}", style)


def _print(console: Console, text: str, style: str) -> None:
    """Print a line that a terminal cannot obey. What it leaves out may have kept a secret from being seen."""
    from rich.text import Text

    console.print(Text(_redactor().redact(text), style=style), soft_wrap=True)


@functools.cache
def _redactor() -> Redactor:
    from orchestrator.app.config import secret_values
    from orchestrator.engine.policy.secrets import Redactor

    return Redactor(secret_values(os.environ))


def _totals(run: Run) -> str:
    replies = responses(run)
    spent = cost_of_all(replies)
    return f"{_counted(len(replies), 'reply', 'replies')}, {amounts(spent.tokens, spent.usd)}, {_took(run.records)}"


def _counted(number: int, one: str, more: str) -> str:
    return f"{number:,} {one if number == 1 else more}"


def _took(records: tuple[Record, ...]) -> str:
    return duration((records[-1].at - records[0].at).total_seconds()) if records else duration(0)


def _write_list(home: Home, *, as_json: bool) -> None:
    for folder in runs(home):
        found = summarise(folder)
        started = found.started.isoformat(timespec="seconds") if found.started else None
        if as_json:
            record = {"run": found.id, "started": started, "outcome": found.outcome, "task": found.task}
            sys.stdout.write(f"{as_json_text({**record, 'usd': found.usd})}\n")
        else:
            when = found.started.strftime("%Y-%m-%d %H:%M") if found.started else "-" * 16
            cost = "unknown" if found.usd is None else money(found.usd)
            text = f"{one_line(found.id)}  {when}  {one_line(found.outcome):11}  {cost:>8}"
            sys.stdout.write(f"{text}  {one_line(found.task, 80)}".rstrip() + "\n")

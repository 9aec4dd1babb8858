"""`pullwright show`, `logs`, `dashboard` and `runs`: print runs from their journals, serve them as pages, remove them."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.cli.arguments import DONE, given_settings
from orchestrator.app.cli.output import open_console, write_page
from orchestrator.app.event_lines import Narrator, repair_note, telling_argument
from orchestrator.app.terminal import known_secrets, print_json
from orchestrator.app.words import (
    amounts,
    clean,
    counted,
    cut_line,
    duration,
    first_lines,
    hanging,
    local_time,
    megabytes,
    money,
    outcome_in_words,
    short_line,
)
from orchestrator.bot.journal.folders import Home
from orchestrator.bot.journal.index import summarise
from orchestrator.bot.journal.reader import (
    LAST,
    JournalTail,
    find_run,
    is_alive,
    read_run,
    run_folders,
    why_killed,
)
from orchestrator.bot.journal.records import UnknownRecord
from orchestrator.core.cycle_events import CycleEnded, CycleStarted, TaskTaken
from orchestrator.core.events import (
    MessageAdded,
    PlanAccepted,
    ProcessingEnded,
    ReplyReceived,
    ReplyRejected,
    ToolCallEnded,
    TurnStarted,
)
from orchestrator.core.todos import done_in_words, todo_checklist
from orchestrator.engine.session.state_record import StateRecord, state_record_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from rich.console import Console

    from orchestrator.bot.journal.reader import Run
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit, Event


_BODY_LINES = 8
_OUTPUT_LINES = 12
_ITEM_CHARS = 600
_MOST_FAULTS = 5
_LOOK_SECONDS = 0.2
_LATEST = 5
"""Maximum actions and tool events shown after a turn."""


def show(options: argparse.Namespace) -> int:
    """Print a run, or the list of runs."""
    home = Home.of(os.environ)
    if options.list:
        _write_list(home, as_json=options.json)
        return DONE
    folder = find_run(home, options.run or LAST)
    if options.html is not None:
        _write_page(folder, options.html)
        return DONE
    if options.follow:
        _follow(folder, as_json=options.json, verbose=options.verbose)
        return DONE
    run = read_run(folder)
    if options.state:
        _write_state(run, as_json=options.json)
        return DONE
    if options.json:
        for record in run.records:
            print_json(record.data)
        for line in damage_lines(run):
            print(line, file=sys.stderr)
        return DONE
    print_run(run, open_console(), verbose=options.verbose)
    return DONE


logs = show


def runs(options: argparse.Namespace) -> int:
    """Remove the folders of old runs, or say which ones would be removed."""
    from orchestrator.app.wiring import BuildContext
    from orchestrator.bot.journal.retention import find_old_runs, remove_old_runs

    context = BuildContext.of(given_settings(options), os.environ, Path.cwd())
    found = find_old_runs(context.home, context.runs_to_keep, context.clock.now())
    gone = list(found.removable) if options.dry_run else remove_old_runs(context.home, found)
    if options.json:
        print_json({"removed": gone, "bytes": found.freed, "unfinished": list(found.unfinished)})
        return DONE
    verb = "would be removed" if options.dry_run else "removed"
    print(
        f"{counted(len(gone), 'run')} of {found.count:,} {verb}, {megabytes(found.freed)} of {megabytes(found.size)}"
    )
    if found.unfinished:
        names = ", ".join(found.unfinished[:_LATEST])
        print(f"{counted(len(found.unfinished), 'old run')} kept, with unfinished work: {short_line(names)}")
    return DONE


def _write_page(folder: Path, place: str) -> None:
    """Write a run as one page to a file, or to standard output if the place is `-`."""
    from orchestrator.app.html.page import render_page
    from orchestrator.app.html.story import run_page

    page = render_page(run_page(folder), known_secrets(os.environ).redact)
    if place == "-":
        print(page, end="")
        return
    write_page(place, page)
    print(f"run {folder.name} is written to {clean(place)}")


def _follow(folder: Path, *, as_json: bool, verbose: bool) -> None:
    """Print a run in progress until it ends or its process dies."""
    out, tail = _Printer(open_console(), verbose=verbose), JournalTail(folder)
    has_ended = False
    while not has_ended:
        alive = is_alive(folder)  # checked first, so that its last records are read below
        for record in tail.records():
            has_ended = has_ended or isinstance(record.event, CycleEnded)
            if as_json:
                print_json(record.data)
            elif not isinstance(record.event, UnknownRecord):
                out.event(record.event)
        sys.stdout.flush()
        if not alive:
            break
        if not has_ended:
            time.sleep(_LOOK_SECONDS)
    if not as_json:
        if not has_ended:
            out.line("the run's process is gone, and its journal has no end", "yellow")
        _print_end(read_run(folder), out)


def print_run(run: Run, console: Console, *, verbose: bool = False) -> None:
    """Print a run for a person.

    Args:
        verbose: whether to print everything whole, including unusable replies.
    """
    out = _Printer(console, verbose=verbose)
    unknown = 0
    for record in run.records:
        if isinstance(record.event, UnknownRecord):
            unknown += 1
        else:
            out.event(record.event)
    if unknown:
        out.line(f"{counted(unknown, 'record')} of a newer version not shown", "yellow")
    _print_end(run, out)


def _print_end(run: Run, out: _Printer) -> None:
    """Print the to-do list of a run, its cost, and the path of its journal."""
    if run.facts.result is None and (why := why_killed(run.folder)):
        out.line(f"{why}; the next run takes its work up", "yellow")
    for line in damage_lines(run):
        out.line(line, "yellow")
    if run.torn:
        out.line("the journal ends in the middle of a record: the run was cut off", "yellow")
    if todos := run.facts.todos:
        out.line(f"the model's list, {done_in_words(todos)}:")
        for item in todo_checklist(todos):
            out.line(f"    {short_line(item, _ITEM_CHARS)}")
    spent = run.facts.spent
    took = duration(spent.minutes * 60)
    parts = (counted(spent.rounds, "reply", "replies"), amounts(spent.tokens, spent.usd), took)
    out.line(", ".join(parts), "dim")
    out.line(str(run.folder), "dim")


def damage_lines(run: Run) -> Iterator[str]:
    """Yield what is wrong with a run's journal, a line each; nothing if it is whole."""
    if run.damage:
        yield f"the journal is damaged in {counted(len(run.damage), 'place')}; what can be read is shown:"
        yield from (f"    {short_line(fault)}" for fault in run.damage[:_MOST_FAULTS])
    if len(run.damage) > _MOST_FAULTS:
        yield f"    and {len(run.damage) - _MOST_FAULTS} more"


class _Printer:
    """Prints the events of a run."""

    def __init__(self, console: Console, *, verbose: bool) -> None:
        self._console, self._verbose = console, verbose
        self._narrator = Narrator(plain_signs=not console.encoding.lower().startswith("utf"))
        self._is_talk = self._is_question_next = False

    def line(self, text: str, style: str = "") -> None:
        from rich.text import Text

        if self._console.is_terminal and not self._verbose:
            text = "\n".join(hanging(text, self._console.width))
        self._console.print(Text(text, style=style), soft_wrap=True)

    def _block(self, text: str, most_lines: int, style: str) -> None:
        lines = (
            first_lines(text, sys.maxsize, sys.maxsize) if self._verbose else first_lines(text, most_lines)
        )
        for line in lines:
            self.line(f"    {line}", style)

    def event(self, event: Event) -> None:
        if isinstance(event, CycleStarted):
            self._is_talk = self._is_question_next = bool(event.door)
        if isinstance(event, ProcessingEnded):
            self._is_question_next = self._is_talk
        if self._is_question_next and isinstance(event, MessageAdded):
            self._is_question_next = False
            self.line("")
            self.line("you:", "bold")
            self._block(event.message.text, _BODY_LINES, "")
            return
        line = self._narrator.line(event)
        if line is None or isinstance(event, ReplyReceived):
            return
        if isinstance(event, TurnStarted):
            self.line("")
        if isinstance(event, PlanAccepted) and event.plan.strip():
            head = "says" if self._is_talk else "plan"
            self.line(f"{line.sign} {head}{repair_note(event)}:", line.style)
            self._block(event.plan, _OUTPUT_LINES, "")
            return
        self.line(str(line), line.style)
        if isinstance(event, TaskTaken) and event.body.strip():
            self._block(event.body, _BODY_LINES, "dim")
        if isinstance(event, ToolCallEnded) and event.output.strip():
            self._block(event.output, _OUTPUT_LINES, "dim")
        if isinstance(event, ReplyRejected) and self._verbose and self._narrator.said.strip():
            self._block(self._narrator.said, _OUTPUT_LINES, "dim")


def _write_state(run: Run, *, as_json: bool) -> None:
    state = state_record_of(
        (record.event, record.at) for record in run.records if not isinstance(record.event, UnknownRecord)
    )
    if as_json:
        print_json(state.to_json())
        return
    for line in state_lines(state):
        print(line)


def _write_list(home: Home, *, as_json: bool) -> None:
    for folder in run_folders(home):
        found = summarise(folder)
        outcome, usd = ("damaged", None) if found.is_damaged else (found.outcome, found.spent.usd)
        title = found.task.title if found.task else found.said
        asked = found.question if found.outcome == "question" else ""
        reason = found.error or asked or found.reason or found.fault
        if as_json:
            started = found.started.isoformat(timespec="seconds") if found.started else None
            record = {"run": found.id, "started": started, "outcome": outcome, "task": title, "usd": usd}
            record |= {"repository": found.repository, "reason": reason}
            print_json(record)
            continue
        when = local_time(found.started) if found.started else "at an unknown time"
        cost = "cost unknown" if usd is None else money(usd)
        lines = [f"{short_line(found.id)}  {when}  {outcome_in_words(outcome)}, {cost}"]
        lines += [f"    {cut_line(text, _ITEM_CHARS)}" for text in (found.repository, title, reason) if text]
        if sys.stdout.isatty():
            lines = [part for line in lines for part in hanging(line, shutil.get_terminal_size().columns)]
        sys.stdout.write("".join(f"{line}\n" for line in lines))


def state_lines(state: StateRecord, latest: int | None = None) -> Iterator[str]:
    """Yield a state as lines.

    Args:
        latest: maximum number of actions and of tool events, the newest ones; None for all.
    """
    yield f"hypothesis: {short_line(state.hypothesis, _ITEM_CHARS) or 'none yet'}"
    actions = [(one.at, one.what) for one in state.actions]
    yield from _timed("actions", actions, latest)
    tools = [
        (one.at, f"{one.status} {one.name} {telling_argument(one.arguments)}") for one in state.tool_events
    ]
    yield from _timed("tool events", tools, latest)
    yield f"denials: {state.denials}"
    yield f"summary: {short_line(state.summary, _ITEM_CHARS) or 'none'}"
    context = state.context
    turns = f"{counted(context.chat_turns, 'chat turn')} of {counted(context.messages, 'message')}"
    whole = "summarised" if state.summary else "not summarised"
    yield f"context: {turns}, {context.tokens:,} tokens, {whole}"
    yield f"list: {counted(len(state.todos), 'item')}"
    for item in todo_checklist(state.todos):
        yield f"  {short_line(item, _ITEM_CHARS)}"


def _timed(name: str, lines: Sequence[tuple[datetime, str]], latest: int | None) -> Iterator[str]:
    shown = lines if latest is None else lines[-latest:]
    yield f"{name}: {len(lines)}{f', the last {len(shown)}:' if len(shown) < len(lines) else ''}"
    for at, text in shown:
        yield f"  {local_time(at, seconds=True)}  {short_line(text)}"


class StateView:
    """An `Emit` that passes events on to a view, and shows the session's state after each turn."""

    def __init__(self, view: Emit, clock: Clock, tell: Callable[[Iterable[str]], None]) -> None:
        self._view, self._clock, self._tell = view, clock, tell
        self._state = StateRecord()

    def __call__(self, event: Event) -> None:
        """Show an event."""
        if isinstance(event, CycleStarted):
            self._state = StateRecord()
        if isinstance(event, TurnStarted | ProcessingEnded) and self._state.actions:
            self._tell(state_lines(self._state, _LATEST))
        self._view(event)
        self._state.take(event, self._clock.now())

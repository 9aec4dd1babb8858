"""`pullwright backtest`: finds cases in a repository's past, tries models on them, and prints the results."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import textwrap
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

from orchestrator.app.cli.arguments import DONE, FAILED, INTERRUPTED, LIMIT, NOTHING, given_settings
from orchestrator.app.cli.output import end_on_signals, open_console, table_lines, write_json, write_page
from orchestrator.app.html.page import (
    Badge,
    Code,
    DiffBlock,
    DiffPair,
    Facts,
    HtmlPage,
    Link,
    Notice,
    Output,
    PlainText,
    Section,
    Table,
)
from orchestrator.app.terminal import known_secrets, print_json
from orchestrator.app.words import (
    clean,
    counted,
    duration,
    money,
    short_line,
)
from orchestrator.bot.coordination.budget import Caps
from orchestrator.bot.cycle.parts import Stop
from orchestrator.bot.git.hostgit import end_git_when
from orchestrator.bot.journal.run_facts import RunFacts
from orchestrator.core import event_loop
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError
from orchestrator.plugins.backtest.attempts import Backtest, BacktestRequest, CycleAttempts
from orchestrator.plugins.backtest.cases import Judged, only_process
from orchestrator.plugins.backtest.export import results_as_ctrf, write_harbor_task
from orchestrator.plugins.backtest.past_changes import UnfitChange
from orchestrator.plugins.backtest.summary import BacktestResult, sum_up
from orchestrator.plugins.backtest.trials import (
    Progress,
    Totals,
    TryRecord,
    known_before,
    make_tries,
    planned,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from orchestrator.app.html.page import Block, Cell, Tone
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit, Event
    from orchestrator.plugins.backtest.cases import FoundCases, ReadyCase
    from orchestrator.plugins.backtest.past_changes import PastChange
    from orchestrator.plugins.backtest.summary import BacktestSummary, Estimate
    from orchestrator.plugins.backtest.trials import Attempted, Try, TryResult


_TONES: dict[str, Tone] = {
    Judged.SOLVED: "ok",
    Judged.WRONG: "failed",
    Judged.BROKEN: "failed",
    Judged.INVALID: "warning",
    Judged.NOTHING: "quiet",
}


Figures: TypeAlias = "tuple[Callable[[Estimate | None], str], Callable[[Estimate | None], str]]"
"""Functions that format a share and a mean."""


def backtest_page(
    result: BacktestResult,
    patch_of: Callable[[TryResult], str],
    real_patch: Callable[[ReadyCase], str],
    figures: Figures,
) -> HtmlPage:
    """Return the page.

    Args:
        patch_of: returns the change of a try; empty if there is none.
        real_patch: returns the change that people made, without the judging tests.
        figures: see `Figures`.
    """
    tries: dict[str, list[TryResult]] = {one.case.id: [] for one in result.found.ready}
    for wanted in result.wanted:
        if done := result.done.get(wanted.key):
            tries[wanted.case.case.id].append(done)
    sections = [
        _figures(result, figures),
        *(_case(one, tries[one.case.id], patch_of, real_patch(one)) for one in result.found.ready),
        _left_out(result),
    ]
    ready, unfit = counted(len(result.found.ready), "case"), counted(len(result.found.unfit), "change")
    return HtmlPage(f"Backtest of {result.repository}", sections, f"{ready}, {unfit} left out")


def _figures(result: BacktestResult, figures: Figures) -> Section:
    share, mean = figures
    told = result.summary
    rows: list[Sequence[Cell]] = [
        (
            one.arm.name,
            share(one.solved),
            mean(one.usd),
            mean(one.minutes),
            mean(one.rounds),
            f"{one.done} of {one.planned}",
        )
        for one in told.arms
    ]
    heads = ("", "solved", "USD a try", "minutes", "rounds", "tries")
    blocks: list[Block] = list(_notices(result))
    blocks.append(Table(heads, rows, caption="What each arm came to, with 95 % intervals over cases"))
    if told.comparisons:
        gaps = [
            (f"{one.one} - {one.other}", share(one.solved), mean(one.usd), mean(one.minutes))
            for one in told.comparisons
        ]
        blocks.append(
            Table(("", "solved", "USD a try", "minutes"), gaps, caption="Differences on the same cases")
        )
    blocks.append(PlainText("\n".join((f"Choose: {told.chosen or 'none'}", *told.reasons, *told.outlook))))
    return Section("Figures", blocks)


def _notices(result: BacktestResult) -> Iterator[Notice]:
    if result.ended:
        yield Notice("warning", f"Not whole: {result.ended}.")
    if not result.is_held:
        yield Notice("warning", "Not isolated: without a sandbox, tests of a try could read the real change.")


def _case(
    ready: ReadyCase, tries: Sequence[TryResult], patch_of: Callable[[TryResult], str], real: str
) -> Section:
    case, hidden = ready.case, ready.hidden
    removed = ", ".join(f"{kind}: {count}" for kind, count in case.text.removed.items())
    facts: list[tuple[str, Cell]] = [
        ("change", Link(case.id, case.change.url) if case.change.url else Code(case.change.head)),
        ("tests", f"{len(hidden.must_pass)} must pass, {len(hidden.must_still_pass)} must still pass"),
        ("unstable tests set aside", str(hidden.unstable)),
        ("hints removed", removed or "none"),
    ]
    solved = sum(one.is_solved for one in tries)
    blocks: list[Block] = [Facts(facts), Output("The task as it was given", case.text.whole)]
    for one in tries:
        words = f"{one.arm}, try {one.number}: {one.judged}"
        note = f"{counted(one.rounds, 'round')}, {one.minutes:.1f} min, {money(one.usd)}"
        patch = patch_of(one)
        inner: list[Block] = [
            Facts([("judged", Badge(one.judged, _TONES.get(one.judged, "quiet"))), ("run", Code(one.run))])
        ]
        if one.detail:
            inner.append(PlainText(one.detail))
        inner.append(DiffPair(patch, real, one.arm, "the real change") if patch else DiffBlock(real))
        blocks.append(Section(words, inner, note))
    return Section(case.text.title, blocks, f"{solved} of {len(tries)} solved")


def _left_out(result: BacktestResult) -> Section:
    rows: list[Sequence[Cell]] = [(Code(one.id), one.title, one.reason) for one in result.found.unfit]
    table = Table(("change", "title", "why"), rows, caption="Changes that are no cases")
    return Section("Left out", [table], counted(len(rows), "change"))


_SIGNS = {
    Judged.SOLVED: ("✔", "+", "green"),
    Judged.WRONG: ("✘", "x", "red"),
    Judged.BROKEN: ("✘", "x", "red"),
    Judged.INVALID: ("!", "!", "bold red"),
    Judged.NOTHING: ("·", "-", "dim"),
}
_ENDED_SIGN = ("!", "!", "yellow")
_USUAL_COLUMNS = 80
_TITLE_CHARS = 60
_DETAIL_CHARS = 160
_MOST_UNFIT = 8


def backtest(options: argparse.Namespace) -> int:
    """Try models on cases from a repository's past, and return the exit status."""
    if options.repo is None:
        raise ConfigurationError("name the repository: --repo owner/name, or --repo PATH with --from-git")
    for name in ("html", "ctrf"):
        path = getattr(options, name)
        if path and not Path(path).expanduser().absolute().parent.is_dir():
            raise ConfigurationError(f"--{name} {path}: there is no such folder")
    stop = Stop()
    request = BacktestRequest(
        options.repo,
        options.from_git,
        tuple(options.models or ()),
        tuple(options.contracts or ()),
        tuple(getattr(options, "agents", None) or ()),
        is_capped=options.max_usd_total is not None,
    )
    made = Backtest(request, given_settings(options), os.environ, Path.cwd(), stop)
    with (
        only_process(made.folder),
        TriesView(open_console(stderr=True), [arm.name for arm in made.arms], plain=options.plain) as view,
    ):
        return event_loop.run(_run(made, options, view))


async def _run(made: Backtest, options: argparse.Namespace, view: TriesView) -> int:
    end_git_when(made.stop.now_unless_saving)
    task = asyncio.ensure_future(_work(made, options, view))
    _listen_to_signals(made.stop, task, view)
    try:
        return await task
    except asyncio.CancelledError:
        view.close()
        print("Interrupted. The same command continues with the remaining tries.", file=sys.stderr)
        return INTERRUPTED


async def _work(made: Backtest, options: argparse.Namespace, view: TriesView) -> int:
    found = await made.cases(options.last, options.jobs, view.case)
    if not found.ready:
        view.close()
        _print_unfit(found, sys.stderr.write)
        print(
            "pullwright: no past change can be used: a case is a change whose own tests fail without it",
            file=sys.stderr,
        )
        return INTERRUPTED if made.stop() else NOTHING
    if options.harbor:
        view.close()
        return await asyncio.to_thread(_write_tasks, options.harbor, made, found)
    record = TryRecord(made.folder / "tries.jsonl", known_secrets(os.environ))
    attempts = CycleAttempts(made, view.of_try)
    wanted = planned(found.ready, made.arms, options.tries)
    caps = Caps(usd=options.max_usd_total, minutes=options.max_minutes_total)
    totals = Totals(caps, SystemClock(), options.jobs)
    totals.spent = await asyncio.to_thread(known_before, wanted, attempts, record)
    view.begin(wanted, record.done)
    ended: list[str] = []
    progress = Progress(view.began, view.ended, ended.append)
    await make_tries(wanted, attempts, record, totals, progress=progress, stopped=made.stop)
    view.close()
    left = sum(one.key not in record.done for one in wanted)
    why = "; ".join(ended) or ("interrupted" if made.stop() else "")
    why = why or (f"{counted(left, 'try', 'tries')} without a result" if left else "")
    summary = sum_up(made.arms, wanted, record.done, await asyncio.to_thread(made.backlog))
    result = BacktestResult(made.label, found, wanted, record.done, summary, why, made.is_held)
    if options.html:
        await asyncio.to_thread(_write_page, options.html, made, result)
    if options.ctrf:
        report = results_as_ctrf(result, SystemClock().now())
        await asyncio.to_thread(write_json, "--ctrf", options.ctrf, report)
    if options.json:
        print_json(result.to_json())
    else:
        _print(result)
    if made.stop():
        return INTERRUPTED
    return LIMIT if ended else FAILED if left else DONE


def _write_tasks(place: str, made: Backtest, found: FoundCases) -> int:
    """Write each case as a task of Harbor, and return the exit status."""
    folder, written = Path(place).expanduser(), 0
    redact = known_secrets(os.environ).redact
    for ready in found.ready:
        why = write_harbor_task(ready, made.tests_of(ready.case).options, folder / ready.case.id, redact)
        written += not why
        print(f"{ready.case.id}: {why or clean(short_line(ready.case.text.title, _TITLE_CHARS))}")
    print(f"{counted(written, 'task')} in {folder}")
    return DONE if written else NOTHING


def _listen_to_signals(stop: Stop, task: asyncio.Future[int], view: TriesView) -> None:
    def end_at_once() -> None:
        stop.at_once()
        task.cancel()

    def end() -> None:
        stop.request()
        view.tell("ending after this round; press Ctrl+C again to end at once")

    end_on_signals(lambda: stop.requested, end, end_at_once)


@dataclass(slots=True)
class _Running:
    wanted: Try
    began: float
    facts: RunFacts = field(default_factory=RunFacts)


class TriesView:
    """Shows the progress of cases and tries: a line for each, and on a terminal a status below."""

    def __init__(
        self, console: Console, arms: Sequence[str], *, plain: bool, clock: Clock | None = None
    ) -> None:
        self._console, self._clock = console, clock or SystemClock()
        self._ascii = not console.encoding.lower().startswith("utf")
        self._letters = {name: _letter(place) for place, name in enumerate(arms)}
        self._lock = threading.RLock()
        self._running: dict[str, _Running] = {}
        self._looking: dict[str, str] = {}
        self._wanted = self._done = self._solved = 0
        self._usd: float | None = 0.0
        self._plain = plain or not console.is_terminal or console.is_dumb_terminal
        self._live: Live | None = None

    def __enter__(self) -> Self:
        """Start to show a status if there is a terminal."""
        if not self._plain:
            from rich.live import Live

            self._live = Live(
                console=self._console,
                transient=True,
                refresh_per_second=4,
                redirect_stdout=False,
                get_renderable=self._render,
            )
            self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Remove the status."""
        self.close()

    def close(self) -> None:
        """Remove the status. The lines above it stay."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def case(self, change: PastChange, found: ReadyCase | UnfitChange | None) -> None:
        """Show the result for a change, or the start of its examination if `found` is None."""
        with self._lock:
            if found is None:
                self._looking[change.id] = change.title
                return
            self._looking.pop(change.id, None)
        title = short_line(clean(change.title), _TITLE_CHARS)
        if isinstance(found, UnfitChange):
            self._line(("·", "-", "dim"), f"{change.id}  {title}: left out, {found.reason}")
            return
        tests = f"{counted(len(found.hidden.must_pass), 'test')} must pass, {len(found.hidden.must_still_pass)} still"
        hints = sum(found.case.text.removed.values())
        more = f", {counted(hints, 'hint')} removed" if hints else ""
        unstable = f", {found.hidden.unstable} unstable" if found.hidden.unstable else ""
        self._line(("✔", "+", "green"), f"{change.id}  {title}: {tests}{unstable}{more}")

    def begin(self, wanted: Sequence[Try], done: dict[str, TryResult]) -> None:
        """Show the number of tries, and how many were made before."""
        before = [done[one.key] for one in wanted if one.key in done]
        with self._lock:
            self._wanted, self._done = len(wanted), len(before)
            self._solved = sum(one.is_solved for one in before)
            for one in before:
                self._count(one.usd)
        for name, letter in self._letters.items():
            self._line(("", "", "dim"), f"{letter}  {name}")
        if before:
            self._line(
                ("", "", "dim"), f"{counted(len(before), 'try', 'tries')} of {len(wanted)} done before"
            )

    def of_try(self, wanted: Try) -> Emit:
        """Return an `Emit` that counts the rounds and the cost of one try."""

        def take(event: Event) -> None:
            with self._lock:
                if running := self._running.get(wanted.key):
                    running.facts.take(event, self._clock.now())

        return take

    def began(self, wanted: Try) -> None:
        """Record the start of a try. Plain output gets a line for it."""
        with self._lock:
            self._running[wanted.key] = _Running(wanted, self._clock.monotonic())
        if self._plain:
            self._line(("", "", "dim"), f"{self._name(wanted)}: begun")

    def ended(self, wanted: Try, attempted: Attempted) -> None:
        """Show the result of a try."""
        result = attempted.result
        with self._lock:
            self._running.pop(wanted.key, None)
            self._count(attempted.spent.usd)
            self._done += result is not None
            self._solved += result is not None and result.is_solved
        spent = attempted.spent
        cost = f"{counted(spent.rounds, 'round')}, {spent.minutes:.1f} min, {money(spent.usd)}"
        if result is None:
            self._line(_ENDED_SIGN, f"{self._name(wanted)}: no result, {attempted.why} ({cost})")
            return
        detail = f": {short_line(clean(result.detail), _DETAIL_CHARS)}" if result.detail else ""
        self._line(_SIGNS[Judged(result.judged)], f"{self._name(wanted)}: {result.judged} ({cost}){detail}")

    def tell(self, text: str) -> None:
        """Show a line."""
        self._line(_ENDED_SIGN, text)

    def _count(self, usd: float | None) -> None:
        self._usd = None if self._usd is None or usd is None else self._usd + usd

    def _name(self, wanted: Try) -> str:
        return f"{self._letters[wanted.arm.name]} {wanted.case.case.id} #{wanted.number}"

    def _line(self, sign: tuple[str, str, str], text: str) -> None:
        from rich.text import Text

        line = Text(f"{sign[1] if self._ascii else sign[0]:2}{clean(text)}")
        line.stylize(sign[2], 0, 2 if sign[0] else len(line))
        with self._lock:
            self._console.print(line, soft_wrap=self._plain)

    def _render(self) -> Text:
        from rich.text import Text

        with self._lock:
            now = self._clock.monotonic()
            lines = []
            if self._looking:
                lines.append("looking at " + ", ".join(self._looking))
            if self._wanted:
                lines.append(
                    f"{self._done} of {self._wanted} tries, {self._solved} solved, {money(self._usd)}"
                )
            lines += [
                f"  {self._name(one.wanted)}  {duration(now - one.began)}  {counted(one.facts.spent.rounds, 'round')}, {money(one.facts.spent.usd)}"
                for one in self._running.values()
            ]
            width = max(self._console.width - 1, 20)
            return Text("\n".join(short_line(line, width) for line in lines), style="dim")


def _letter(place: int) -> str:
    return chr(ord("A") + place) if place < 26 else f"A{place}"  # noqa: PLR2004  letters


def _write_page(place: str, made: Backtest, result: BacktestResult) -> None:
    from orchestrator.app.html.page import render_page

    page = backtest_page(result, made.patch_of, made.real_patch, (share, spread))
    write_page(place, render_page(page, known_secrets(os.environ).redact))


def _print(result: BacktestResult) -> None:
    def write(text: str) -> None:
        print(clean(text.rstrip("\n")))

    _print_unfit(result.found, write)
    write("")
    columns = shutil.get_terminal_size((_USUAL_COLUMNS, 24)).columns
    for line in summary_lines(result.summary, columns):
        write(line)
    if result.ended:
        write(f"\nNot complete: {result.ended}. The same command continues with the remaining tries.")
    if not result.is_held:
        write("\nNot isolated: without a sandbox, the tests of a try can read the real change on this disk.")
    sys.stdout.flush()


def _print_unfit(found: FoundCases, write: Callable[[str], object]) -> None:
    reasons: dict[str, list[str]] = {}
    for one in found.unfit:
        reasons.setdefault(one.reason, []).append(one.id)
    write(f"{counted(len(found.ready), 'case')}, {counted(len(found.unfit), 'change')} left out\n")
    for reason, ids in reasons.items():
        more = f" and {len(ids) - _MOST_UNFIT} more" if len(ids) > _MOST_UNFIT else ""
        write(f"  {len(ids)}: {reason} ({', '.join(ids[:_MOST_UNFIT])}{more})\n")


def summary_lines(summary: BacktestSummary, columns: int) -> Iterator[str]:
    """Yield the figures of the arms, their differences, the choice and the outlook.

    Args:
        columns: maximum width of a line.
    """
    letters = {one.arm.name: _letter(place) for place, one in enumerate(summary.arms)}
    head = ("", "solved", "USD a try", "minutes", "rounds")
    rows = [
        (letters[one.arm.name], share(one.solved), spread(one.usd), spread(one.minutes), spread(one.rounds))
        for one in summary.arms
    ]
    for one in summary.arms:
        tries = counted(one.planned, "try", "tries")
        yield f"{letters[one.arm.name]}  {one.arm.name}: {one.done} of {tries}"
    yield ""
    yield from _table([head, *rows], columns)
    shown = [one for one in summary.comparisons if summary.chosen in {one.one, one.other, ""}]
    if shown:
        yield ""
        yield f"Differences on the same cases{', of the one to choose' if summary.chosen else ''}:"
        compared = [
            (
                f"{letters[one.one]} - {letters[one.other]}",
                share(one.solved, signed=True),
                spread(one.usd, signed=True),
                spread(one.minutes, signed=True),
            )
            for one in shown
        ]
        yield from _table([("", "solved", "USD a try", "minutes"), *compared], columns)
    yield ""
    yield f"Choose: {summary.chosen or 'none'}"
    for line in (*summary.reasons, *summary.outlook):
        yield from textwrap.wrap(
            line, max(columns, 40), initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
        )


def _table(rows: list[tuple[str, ...]], columns: int) -> Iterator[str]:
    """Yield rows below their head. On a narrow terminal, yield one line per value."""
    lines = list(table_lines(rows))
    if max(map(len, lines)) <= columns:
        yield from lines
        return
    width = max(map(len, rows[0]))
    for row in rows[1:]:
        yield row[0]
        for name, cell in zip(rows[0][1:], row[1:], strict=True):
            yield f"  {name:{width}}  {cell}"


def share(value: Estimate | None, *, signed: bool = False) -> str:
    """Return a share in percent with its interval: `75 % (40..95)`."""
    sign = "+" if signed else ""
    return _with_interval(value, lambda one: f"{100 * one:{sign}.0f}", " %")


def spread(value: Estimate | None, *, signed: bool = False) -> str:
    """Return a mean with its interval, rounded to two digits or to a whole number: `0.12 (0.08..0.2)`."""
    sign = "+" if signed else ""
    return _with_interval(value, lambda one: _short(one, sign))


def _with_interval(value: Estimate | None, written: Callable[[float], str], unit: str = "") -> str:
    if value is None:
        return "-"
    ends = (
        "" if value.low is None or value.high is None else f" ({written(value.low)}..{written(value.high)})"
    )
    return f"{written(value.mean)}{unit}{ends}"


def _short(value: float, sign: str) -> str:
    if abs(value) >= 10:  # noqa: PLR2004  then two digits are whole
        return f"{value:{sign},.0f}"
    return f"{value:{sign}.1f}" if abs(value) >= 1 or value == 0 else f"{value:{sign}.2g}"

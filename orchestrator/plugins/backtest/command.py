"""`pullwright backtest`: finds cases in a repository's past, tries models on them, and prints the results.

Strangers can run and compare them: cases are written as tasks of Harbor (https://harborframework.com/docs/tasks), and
results in the Common Test Report Format. A task's environment has the code before the change, and nothing of what came
later: no history, no tests of the change. The tests come when the work is done.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import sys
import textwrap
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

from orchestrator.app.cli.arguments import DONE, FAILED, INTERRUPTED, LIMIT, NOTHING, given_settings
from orchestrator.app.cli.output import (
    end_on_signals,
    open_console,
    print_problem,
    table_lines,
    write_json,
    write_page,
)
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
from orchestrator.bot.git.hostgit import HostGit, end_git_when
from orchestrator.bot.git.objects import Trees
from orchestrator.bot.journal.run_facts import RunFacts
from orchestrator.bot.suggestions import PROGRAM
from orchestrator.bot.verification.ctrf import CtrfStatus, CtrfTest, ctrf_report
from orchestrator.core import event_loop
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError
from orchestrator.plugins.backtest.attempts import Backtest, BacktestRequest, CycleAttempts
from orchestrator.plugins.backtest.cases import Judged, only_process
from orchestrator.plugins.backtest.past_changes import UnfitChange, patch_between
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
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime
    from typing import Any

    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from orchestrator.app.html.page import Block, Cell, Tone
    from orchestrator.bot.verification.base import RunOptions
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
        print_problem("no past change can be used: a case is a change whose own tests fail without it")
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
    columns = shutil.get_terminal_size().columns
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


_IMAGE = "python:3.13"
_WORK = "/workspace"
_BUILD_SECONDS, _AGENT_SECONDS = 1_800.0, 2_700.0
_SPARE_SECONDS = 60.0

_STATUSES: Mapping[str, CtrfStatus] = {
    Judged.SOLVED: "passed",
    Judged.WRONG: "failed",
    Judged.BROKEN: "failed",
    Judged.INVALID: "other",
    Judged.NOTHING: "skipped",
}


def results_as_ctrf(result: BacktestResult, ended: datetime) -> dict[str, Any]:
    """Return a backtest's results: a test for each try, in the suites of its arm and case."""
    tries = [result.done[one.key] for one in result.wanted if one.key in result.done]
    waiting = [one for one in result.wanted if one.key not in result.done]
    tests = [_as_test(one) for one in tries]
    tests += [
        CtrfTest(f"try {one.number}", "pending", suite=(one.arm.name, one.case.case.id)) for one in waiting
    ]
    return ctrf_report(
        tests,
        tool=f"{PROGRAM} backtest",
        ended=ended,
        seconds=60 * sum(one.minutes for one in tries),
        extra={"repository": result.repository, "arms": result.to_json()["arms"]},
    )


def _as_test(one: TryResult) -> CtrfTest:
    known = {"usd": one.usd, "tokens": one.tokens, "rounds": one.rounds}
    return CtrfTest(
        f"try {one.number}",
        _STATUSES.get(one.judged, "other"),
        60 * one.minutes,
        (one.arm, one.case),
        one.detail,
        one.judged,
        labels={name: value for name, value in known.items() if value is not None},
    )


def write_harbor_task(
    ready: ReadyCase, options: RunOptions, folder: Path, redact: Callable[[str], str]
) -> str:
    """Write a case as a task of Harbor into a new folder.

    The exit status of the test command decides, which a stranger can run without this program; our own judge compares
    each test.

    Args:
        redact: removes secrets from texts.

    Returns:
        Why it cannot be written so; empty if it was.
    """
    case, hidden = ready.case, ready.hidden
    if hidden.exit != 0:
        return (
            f"with the real change its test command ends with {hidden.exit}, so that no exit status can judge"
        )
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise ConfigurationError(f"{folder} is there already: name a new folder") from None
    trees = Trees(HostGit(case.store, case.store))
    code, tests = folder / "environment" / "code", folder / "tests" / "files"
    for tree, place in ((case.base, code), (case.tests, tests)):
        place.mkdir(parents=True)
        trees.export(tree, place)
    present, before = trees.entries(case.tests), trees.entries(case.base)
    given = [path for path in case.given if path in present]
    for path in present:
        if path not in given:
            (tests / path).unlink(missing_ok=True)
    for place in sorted((one for one in tests.rglob("*") if one.is_dir()), reverse=True):
        if not any(place.iterdir()):
            place.rmdir()
    gone = [path for path in case.given if path not in present and path in before]
    texts = {
        "task.toml": _settings(ready, options),
        "instruction.md": f"{case.text.whole.strip()}\n",
        "environment/Dockerfile": _environment(options),
        "tests/test.sh": _test_script(options, gone),
        "solution/solve.sh": f"#!/bin/bash\nset -euo pipefail\ncd {_WORK}\ngit apply --whitespace=nowarn /solution/change.diff\n",
        "solution/change.diff": patch_between(case.store, case.base, case.head),
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(redact(text), encoding="utf-8", errors="surrogateescape")
    for name in ("tests/test.sh", "solution/solve.sh"):
        (folder / name).chmod(0o755)
    return ""


def _settings(ready: ReadyCase, options: RunOptions) -> str:
    change = ready.case.change
    metadata = {
        "must_pass": list(ready.hidden.must_pass),
        "must_still_pass": len(ready.hidden.must_still_pass),
        "unstable": ready.hidden.unstable,
        "real_change": change.url or change.head,
    }
    facts = "\n".join(f"{name} = {json.dumps(value)}" for name, value in metadata.items())
    return f"""\
schema_version = "1.1"

[task]
name = {json.dumps(f"{PROGRAM}/{change.id}")}
description = {json.dumps(ready.case.text.title)}

[metadata]
{facts}

[verifier]
timeout_sec = {2 * 60 * options.minutes + _SPARE_SECONDS}

[agent]
timeout_sec = {_AGENT_SECONDS}

[environment]
build_timeout_sec = {_BUILD_SECONDS}
"""


def _environment(options: RunOptions) -> str:
    setup = (
        f"RUN {json.dumps(['/bin/bash', '-c', options.setup], ensure_ascii=False)}\n" if options.setup else ""
    )
    who = "-c user.name=Task -c user.email=task@example.com"
    return f"""\
# Your tests may need another image, or more packages.
FROM {_IMAGE}
WORKDIR {_WORK}
COPY code/ {_WORK}/
{setup}RUN git init --quiet && git add --all && git {who} commit --quiet --message "The code as it is"
"""


def _test_script(options: RunOptions, gone: list[str]) -> str:
    removed = f"rm -rf -- {shlex.join(gone)}\n" if gone else ""
    return f"""\
#!/bin/bash
# The tests, settings and scripts of the real change take the place of what is there.
mkdir -p /logs/verifier
echo 0 > /logs/verifier/reward.txt
cd {_WORK} || exit 1
{removed}cp -R /tests/files/. .
if {{ {options.command}
}}; then echo 1 > /logs/verifier/reward.txt; fi
"""

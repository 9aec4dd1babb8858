"""The page of `backtest`: the figures, and each try's change next to the real one."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

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
from orchestrator.app.words import counted, money
from orchestrator.plugins.backtest.cases import Judged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orchestrator.app.html.page import Block, Cell, Tone
    from orchestrator.plugins.backtest.cases import ReadyCase
    from orchestrator.plugins.backtest.summary import BacktestResult, Estimate
    from orchestrator.plugins.backtest.trials import TryResult

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

"""`pullwright verify-pr`: checks the claims that a pull request makes about itself."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import DONE, FAILED, INTERRUPTED, REFUTED, given_settings
from orchestrator.app.cli.live import LiveView
from orchestrator.app.cli.output import (
    add_to_file,
    open_console,
    print_line,
    print_problem,
    text_columns,
    write_json,
    write_page,
)
from orchestrator.app.event_lines import STANDINGS, Narrator, claim_in_words
from orchestrator.app.terminal import print_json
from orchestrator.app.words import clean, short_line
from orchestrator.bot.git.hostgit import end_git_when
from orchestrator.bot.verification.base import RunKind
from orchestrator.bot.verification.page import RUN_NAMES, statement_of, to_json
from orchestrator.core import event_loop
from orchestrator.core.cycle_events import ClaimChecked
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.event_loop import on_ending_signals
from orchestrator.core.files import read_named
from orchestrator.plugins.verify_pr.claims import EvidenceLevel, Standing
from orchestrator.plugins.verify_pr.program import build_verification
from orchestrator.plugins.verify_pr.pull_request import (
    EvidenceOutcome,
    evidence_in_markdown,
    evidence_in_words,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from datetime import datetime

    from orchestrator.app.html.page import Cell, HtmlPage, Section, Tone
    from orchestrator.core.events import Event
    from orchestrator.plugins.verify_pr.program import VerifyProgram
    from orchestrator.plugins.verify_pr.pull_request import PullRequestEvidence

_OUTCOMES: dict[EvidenceOutcome, tuple[int, Tone]] = {
    EvidenceOutcome.HOLDS: (DONE, "ok"),
    EvidenceOutcome.REFUTED: (REFUTED, "failed"),
    EvidenceOutcome.UNKNOWN: (FAILED, "warning"),
}
"""The exit status and the look of each outcome."""
_STANDING_TONES: dict[Standing, Tone] = {
    Standing.HOLDS: "ok",
    Standing.REFUTED: "failed",
    Standing.UNKNOWN: "warning",
    Standing.NOTED: "quiet",
}
_TITLES = {
    EvidenceLevel.BLOCK: "Report",
    EvidenceLevel.FRESH: "Commits",
    EvidenceLevel.DIGESTS: "Digests",
    EvidenceLevel.SIGNED: "Signature",
    EvidenceLevel.RERUN: "The same runs again",
    EvidenceLevel.TESTS: "Tests",
}
_MOST_OUTPUTS = 50
_MOST_BODY_BYTES = 1_000_000
_STANDARD_INPUT = "-"
_SHORT_COMMIT = 12
_COLUMNS = ("passed", "failed", "skipped", "exit")


def verify_pr(options: argparse.Namespace) -> int:
    """Check the claims of a pull request, and print a report.

    The exit status is 0 if all claims hold, 6 if one does not, and 1 if that is unknown.
    """
    text = None if options.body is None else _read_body(options.body)
    view = LiveView.on_stderr(plain=options.json, answers=True)

    def show(event: Event) -> None:
        if not isinstance(event, ClaimChecked):  # the report has all of them
            view(event)

    program = build_verification(
        options.pull, options.repo, text, given_settings(options), os.environ, Path.cwd(), show
    )
    with view:
        found = event_loop.run(_run(program))
    if found is None:
        print_problem("interrupted")
        return INTERRUPTED
    check = program.write_check(found) if options.check else None
    if options.json:
        fields = None if check is None else {"url": check[0], "problem": check[1]}
        record = {**found.to_json(), "repository": program.site.label, "check": fields}
        print_json(record)
    else:
        _write(found, program)
        if check is not None:
            print(clean(check[1] or f"check run: {check[0]}"))
    if options.html:
        from orchestrator.app.html.page import render_page

        page = evidence_page(found, program.site.label, program.context.clock.now())
        write_page(options.html, render_page(page, program.context.redactor.redact))
    _write_results(found, program, options)
    if options.markdown:
        add_to_file(options.markdown, f"{evidence_in_markdown(found)}\n")
    return _OUTCOMES[found.outcome][0]


def _write_results(found: PullRequestEvidence, program: VerifyProgram, options: argparse.Namespace) -> None:
    """Write the results of the runs in the forms of other programs, if there were runs."""
    from orchestrator.bot.verification.ctrf import ctrf_of_change

    verdict, commits = found.verdict, found.commits
    for flag, place in (("--ctrf", options.ctrf), ("--statement", options.statement)):
        if place and (verdict is None or commits is None):
            print_problem(f"{flag} {place} was not written, because no test was run")
        elif place and verdict and commits and flag == "--ctrf":
            write_json(flag, place, ctrf_of_change(verdict, commits.head, program.context.clock.now()))
        elif place and verdict and commits:
            write_json(flag, place, statement_of(verdict, commits.head, found.sha256))


def evidence_page(found: PullRequestEvidence, repository: str, now: datetime) -> HtmlPage:
    """Return the report as an HTML page."""
    from orchestrator.app.html.page import Badge, Code, Facts, HtmlPage, Link, Moment, Notice, Section

    change, commits, (_, tone) = found.change, found.commits, _OUTCOMES[found.outcome]
    facts: list[tuple[str, Cell]] = [("onto", change.onto), ("checked", Moment(now))]
    facts += [("state", change.state)] if change.state else []
    if commits is not None:
        facts += [
            ("head", Code(commits.head[:_SHORT_COMMIT])),
            ("compared with", Code(commits.start[:_SHORT_COMMIT])),
        ]
    facts += [("address", Link(change.name, change.url))] if change.url else []
    verdict = Section("Verdict", [Notice(tone, evidence_in_words(found)), Facts(facts)])
    levels = [section for level in EvidenceLevel if (section := _level_section(found, level))]
    return HtmlPage(
        title=f"{change.name} {change.title}".strip(),
        subtitle=repository,
        badge=Badge(found.outcome.value, tone),
        sections=[verdict, *levels, *_test_sections(found)],
    )


def _level_section(found: PullRequestEvidence, level: EvidenceLevel) -> Section | None:
    from orchestrator.app.html.page import Badge, Section, Table

    chosen = [line for line in found.lines if line.level is level]
    columns = [
        "subject",
        *(name for name in ("claimed", "found", "note") if any(getattr(line, name) for line in chosen)),
    ]
    rows: list[list[Cell]] = [
        [
            Badge(line.standing.value, _STANDING_TONES[line.standing]),
            *(getattr(line, name) for name in columns),
        ]
        for line in chosen
    ]
    return Section(_TITLES[level], [Table(["", *columns], rows)]) if rows else None


def _test_sections(found: PullRequestEvidence) -> Iterator[Section]:
    from orchestrator.app.html.page import Output, Section, Table

    if found.verdict is None:
        return
    runs = to_json(found.verdict.runs)
    rows = [
        [
            RUN_NAMES[kind],
            *("" if runs[kind][column] is None else str(runs[kind][column]) for column in _COLUMNS),
        ]
        for kind in RunKind
        if runs[kind]
    ]
    note = f"by {found.verdict.runs.command}"
    yield Section("Runs made here", [Table(["run", *_COLUMNS], rows, numeric={1, 2, 3, 4})], note=note)
    outputs = [
        Output(f"{test}: {finding.kind.value.replace('_', ' ')}", output)
        for finding in found.verdict.findings
        for test, output in zip(finding.tests or ("(the run)",), finding.outputs, strict=False)
        if output.strip()
    ]
    if outputs:
        yield Section("What the tests said", outputs[:_MOST_OUTPUTS], note=f"{len(outputs)}")


async def _run(program: VerifyProgram) -> PullRequestEvidence | None:
    """Run the verification; return None if a person ended it."""
    end_git_when(program.context.stop.now_unless_saving)
    task = asyncio.ensure_future(program.run())

    def end() -> None:
        program.context.stop.at_once()
        task.cancel()

    on_ending_signals(end, interrupt=end)
    try:
        return await task
    except asyncio.CancelledError:
        return None


def _read_body(name: str) -> str:
    if name == _STANDARD_INPUT:
        return sys.stdin.read(_MOST_BODY_BYTES)
    try:
        return read_named(Path(name).expanduser(), _MOST_BODY_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise ConfigurationError(f"--body {name} cannot be read: {error.strerror or error}") from None


def _write(found: PullRequestEvidence, program: VerifyProgram) -> None:
    console = open_console()
    plain_signs = not console.encoding.lower().startswith("utf")
    for line, style in evidence_lines(found, program.site.label, text_columns(), plain_signs=plain_signs):
        print_line(console, clean(line), style)


def evidence_lines(
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
            initial_indent=f"  {narrator.signs[sign]} ",
            subsequent_indent="    ",
            break_on_hyphens=False,
        )
        yield from ((row, style if sign != "ok" else "") for row in wrapped)
    yield "", ""
    if found.verdict:
        yield from ((row, "") for row in _table(to_json(found.verdict.runs), columns))
    yield evidence_in_words(found), "bold"


def _table(runs: dict[str, Any], columns: int) -> Iterator[str]:
    """Yield a table of the test runs made here."""
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

"""The exit status of a run of several cycles: of each task the last cycle counts, and the worst of them wins."""

from __future__ import annotations

from orchestrator.app.cli.exit_codes import DONE, FAILED, LIMIT, NOTHING, QUESTION
from orchestrator.app.cli.outcome import WholeRun
from orchestrator.bot.cycle.parts import CycleResult, Outcome
from orchestrator.bot.cycle.tasks import from_text
from orchestrator.core.errors import ConfigurationError
from tests.tables import table

NO_TASK = ("", Outcome.NO_TASK)


@table(
    ("cycles", "code"),
    [
        ([NO_TASK], NOTHING),
        ([("a", Outcome.PROPOSED), ("b", Outcome.PROPOSED), NO_TASK], DONE),
        ([("a", Outcome.PLANNED), NO_TASK], DONE),
        ([("a", Outcome.NO_TASK), NO_TASK], NOTHING),
        ([("a", Outcome.PROPOSED), ("b", Outcome.FAILED), ("c", Outcome.PROPOSED), NO_TASK], FAILED),
        ([("a", Outcome.PAUSED), ("a", Outcome.PROPOSED), NO_TASK], DONE),
        ([("a", Outcome.LIMIT), ("a", Outcome.PROPOSED), NO_TASK], DONE),
        ([("a", Outcome.LIMIT), ("b", Outcome.PROPOSED), NO_TASK], LIMIT),
        ([("", Outcome.PAUSED), ("a", Outcome.PROPOSED), NO_TASK], DONE),
        ([("a", Outcome.PROPOSED), ("b", Outcome.QUESTION)], QUESTION),
        ([("a", Outcome.QUESTION), ("b", Outcome.FAILED), NO_TASK], QUESTION),
        ([("a", Outcome.PROPOSED), ("b", Outcome.INTERRUPTED)], 130),
        ([("a", Outcome.FAILED), ("b", Outcome.PROPOSED)], FAILED),
        ([("a", Outcome.PROPOSED), ("", Outcome.FAILED)], FAILED),
    ],
)
def test_the_status_speaks_for_the_whole_run(cycles: list[tuple[str, Outcome]], code: int) -> None:
    whole = WholeRun()
    for text, outcome in cycles:
        whole.add(CycleResult(None, outcome, from_text(text) if text else None))
    assert whole.code == code


def test_an_error_has_its_own_status() -> None:
    whole = WholeRun()
    whole.add(CycleResult(None, Outcome.FAILED, cause=ConfigurationError("no")))
    assert whole.code == 2

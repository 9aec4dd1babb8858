"""Each outcome of a cycle is known wherever outcomes are told."""

from __future__ import annotations

import runpy
from pathlib import Path

from orchestrator.app.cli.arguments import FAILED, for_outcome
from orchestrator.app.html.story import OUTCOMES
from orchestrator.bot.cycle.parts import Outcome
from orchestrator.bot.cycle.task_state import TaskStatus, status_of_outcome
from tests.tables import table

ACTION = Path(__file__).parents[3] / ".github/actions/pullwright/outputs.py"
NO_TASK_OF_ITS_OWN = {Outcome.FOUND, Outcome.ANSWERED, Outcome.PLANNED}
"""After these no task has another state than before."""
OPEN_AGAIN = {Outcome.WITHDRAWN}


@table("outcome", list(Outcome))
def test_an_outcome_is_known_to_exit_statuses_pages_tasks_and_the_action(outcome: Outcome) -> None:
    assert (for_outcome(outcome) != FAILED) or outcome in {Outcome.PAUSED, Outcome.FAILED, Outcome.CONFLICT}
    assert outcome in OUTCOMES or outcome in {
        Outcome.NO_TASK,
        Outcome.FOUND,
        Outcome.SUPERSEDED,
        Outcome.WITHDRAWN,
    }
    if outcome not in NO_TASK_OF_ITS_OWN | OPEN_AGAIN:
        assert status_of_outcome(outcome) is not TaskStatus.OPEN
    assert outcome in runpy.run_path(str(ACTION))["OUTCOMES"] or outcome in {Outcome.FOUND, Outcome.ANSWERED}

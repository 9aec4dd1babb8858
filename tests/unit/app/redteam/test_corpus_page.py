"""The page of the corpus says which attacks follow which incident, and counts them right."""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator.app.redteam.attack import INCIDENTS, read_corpus
from tests.tables import table

PAGE = (Path(__file__).parents[4] / "orchestrator/app/redteam/attacks/README.md").read_text("utf-8")
ROWS = re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|", PAGE, re.MULTILINE)
SHOWN = 3


def listed(incident: int) -> str:
    names = sorted(attack.name for attack in read_corpus() if incident in attack.incidents)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(f"`{name}`" for name in names[:SHOWN]) + more


def test_every_incident_has_a_row() -> None:
    assert [int(number) for number, _ in ROWS] == list(INCIDENTS)


@table(("number", "cell"), ROWS)
def test_a_row_names_the_attacks_and_counts_them(number: str, cell: str) -> None:
    assert cell.strip() == listed(int(number))

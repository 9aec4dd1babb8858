"""Work is kept even where keeping it fails for a reason that nobody thought of."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.bot.cycle.finish import save_unfinished
from orchestrator.bot.cycle.parts import CycleResult, Stop
from orchestrator.bot.cycle.propose import PendingChanges
from orchestrator.core.events import Event, Warned
from orchestrator.engine.tools.base import Ledger


class Clone:
    """A clone that is told to stay."""

    tree = Path("tree")
    kept = False

    def keep(self) -> None:
        self.kept = True


class Pending:
    """Changes that cannot even be looked at."""

    def left(self) -> tuple[set[str], bytes]:
        raise RecursionError("too deep")


class Session:
    """Of a session, no more than is needed."""

    def __init__(self, parts: Parts) -> None:
        self.attempt = SimpleNamespace(parts=parts, result=CycleResult("run"))
        self.clone = Clone()
        self.pending = Pending()


class Parts:
    """Of a cycle, no more than is needed."""

    operator = None

    def __init__(self) -> None:
        self.told: list[Event] = []
        self.emit = self.told.append
        self.stop = Stop()


@pytest.mark.parametrize("ended_by_an_error", [True, False])
async def test_a_defect_leaves_the_clone_where_it_is(*, ended_by_an_error: bool) -> None:
    parts = Parts()
    session: Any = Session(parts)

    async def cycle() -> None:
        try:
            if ended_by_an_error:
                raise ValueError("the cycle's own")
        finally:
            await save_unfinished(session, None)

    with pytest.raises(RecursionError):
        await cycle()
    assert session.clone.kept
    (told,) = parts.told
    assert isinstance(told, Warned)
    assert "the clone is kept at tree" in told.message


class CountedClone:
    """A clone that records which paths it is asked about."""

    def __init__(self, tree: Path) -> None:
        self.tree, self.asked = tree, list[set[str] | None]()

    def changed_paths(self, among: set[str] | None = None) -> set[str]:
        self.asked.append(None if among is None else set(among))
        found = {path.name for path in self.tree.iterdir()}
        return found if among is None else found & among


def test_every_file_is_looked_at_only_after_commands(tmp_path: Path) -> None:
    clone, ledger = CountedClone(tmp_path), Ledger(touched={"a"})
    attempt: Any = SimpleNamespace(clone=clone, ledger=ledger)
    proposer: Any = SimpleNamespace(left_out=set[str]())
    pending = PendingChanges(attempt, proposer, lambda: False)
    assert pending.paths() == set()
    (tmp_path / "a").write_text("one")
    (tmp_path / "b").write_text("of a person")
    assert pending.paths() == {"a"}
    ledger.shell_used = True
    assert pending.paths() == {"a", "b"}
    assert clone.asked == [{"a"}, {"a"}, None]

"""Facts on a hidden reference: machines that write at once, bounds, and what anybody who can push may have put there."""

from __future__ import annotations

import itertools
import json
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.bot.coordination.records import MEMORY, write_record
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import PushRejectedError, WorkspaceError
from orchestrator.plugins.memory import facts
from orchestrator.plugins.memory.facts import (
    LIFETIME,
    MOST_BYTES,
    MOST_FACTS,
    PAGE,
    Fact,
    FactKind,
    RepositoryFacts,
    RepositoryMemory,
)
from tests.tables import table
from tests.unit.bot.coordination.records_rig import bare, opened, put
from tests.unit.bot.git.rig import git, over_ssh

if TYPE_CHECKING:
    from pathlib import Path

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
_COUNT = itertools.count()


def fact(number: int = 1, content: str = "We never use mocks", **fields: Any) -> Fact:
    made: dict[str, Any] = {
        "kind": FactKind.CORRECTION,
        "content": content,
        "author": "ada",
        "pull": 2,
        "said": f"line-{number}",
        "url": "https://forge.example/pull/2",
        "created_at": NOON,
        "expires_at": NOON + LIFETIME,
        **fields,
    }
    return Fact(**made)


@pytest.mark.parametrize(("more", "less"), [("critical", "high"), ("high", "normal"), ("normal", "low")])
def test_of_too_many_facts_the_more_important_are_kept_though_they_are_older(more: str, less: str) -> None:
    older = [fact(number, f"Fact {number}", importance=more) for number in range(1, MOST_FACTS + 1)]
    newer = fact(MOST_FACTS + 1, "Newer", importance=less, created_at=NOON + timedelta(hours=1))
    kept = RepositoryFacts(facts=(newer, *older)).bounded(NOON + timedelta(hours=2)).facts
    assert newer not in kept
    assert 0 < len(kept) <= len(older)


class Rig:
    def __init__(self, folder: Path) -> None:
        self.folder, self.remote, self.clock = folder, bare(folder), ManualClock(NOON)

    def machine(self) -> RepositoryMemory:
        number = next(_COUNT)
        records = opened(self.remote, self.folder / f"machine-{number}")
        return RepositoryMemory(records, self.clock, lambda: f"n{next(_COUNT)}")

    def store(self, *facts: Fact) -> RepositoryFacts:
        return self.machine().change(lambda known: known.with_facts(facts))

    def read(self) -> RepositoryFacts:
        return self.machine().read()

    def put_page(self, page: bytes, name: str = PAGE) -> None:
        made = write_record(self.remote / "objects", "sha1", "as anybody may", None, {name: page}, NOON)
        git(self.remote, "update-ref", MEMORY, made)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_what_one_machine_stores_another_one_reads(rig: Rig) -> None:
    assert rig.read() == RepositoryFacts()
    stored = fact(
        path="tests/test_clock.py", content="Two\nlines, Müller: `code`", confirmed=True, expires_at=None
    )
    note = fact(kind=FactKind.NOTE, said="", author="", cited={"calc.py": "0" * 40})
    wanted = {one.key: one for one in (stored, note)}
    assert rig.store(stored, note).by_key == wanted
    assert rig.read().by_key == wanted


def test_what_is_seen_already_is_not_asked_for(rig: Rig) -> None:
    rig.store(fact())
    assert rig.machine().read({}) == RepositoryFacts()
    assert len(rig.machine().read({MEMORY: git(rig.remote, "rev-parse", MEMORY)}).facts) == 1


def test_what_was_replaced_since_it_was_seen_is_asked_for(rig: Rig) -> None:
    rig.store(fact())
    gone = {MEMORY: "1" * 40}
    assert len(rig.machine().read(gone).facts) == 1
    git(rig.remote, "update-ref", "-d", MEMORY)
    assert rig.machine().read(gone) == RepositoryFacts()


def test_machines_that_store_at_once_lose_nothing(rig: Rig) -> None:
    machines = [rig.machine() for _ in range(4)]
    faults: list[BaseException] = []

    def work(number: int, machine: RepositoryMemory) -> None:
        try:
            for step in range(3):
                one = fact(10 * number + step, f"rule {number} {step}")
                machine.change(
                    partial(RepositoryFacts.with_facts, fresh=[one], looked_at=[number * 10 + step + 1])
                )
        except BaseException as error:  # noqa: BLE001  shown below
            faults.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(machines)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    known = rig.read()
    assert {one.content for one in known.facts} == {f"rule {a} {b}" for a in range(4) for b in range(3)}
    assert len(known.looked_at) == 12


def test_the_same_words_are_one_fact_and_stay_what_they_became(rig: Rig) -> None:
    rig.store(fact(importance="critical"))
    rig.machine().change(lambda known: replace(known, facts=tuple(one.confirm() for one in known.facts)))
    (after,) = rig.store(fact(content="We never use mocks, edited")).facts
    assert (after.content, after.importance, after.confirmed, after.expires_at) == (
        "We never use mocks, edited",
        "critical",
        True,
        None,
    )


def test_what_changes_nothing_is_not_written(rig: Rig) -> None:
    rig.store(fact())
    before = git(rig.remote, "rev-parse", MEMORY)
    rig.store(fact())
    assert git(rig.remote, "rev-parse", MEMORY) == before


def test_what_is_expired_is_not_there_and_goes_with_the_next_change(rig: Rig) -> None:
    rig.store(fact(1), fact(2, expires_at=NOON + timedelta(days=1)))
    rig.clock.advance(2 * 86_400)
    assert [one.said for one in rig.read().facts] == ["line-1"]
    rig.store(fact(3))
    assert b"line-2" not in git(rig.remote, "show", f"{MEMORY}:{PAGE}").encode()


def test_it_is_bounded_and_what_is_confirmed_stays(rig: Rig) -> None:
    many = [
        fact(n, f"{n} " + "é" * 900, created_at=NOON + timedelta(minutes=n), confirmed=n < 5)
        for n in range(MOST_FACTS + 200)
    ]
    known = rig.store(*many)
    assert len(known.facts) <= MOST_FACTS
    assert {one.said for one in known.facts} >= {f"line-{n}" for n in range(5)}
    assert f"line-{MOST_FACTS + 199}" in {one.said for one in known.facts}
    assert int(git(rig.remote, "cat-file", "-s", f"{MEMORY}:{PAGE}")) <= MOST_BYTES
    assert rig.read() == known


def test_what_a_person_forgets_is_not_in_the_history_and_not_learned_again(rig: Rig) -> None:
    secret = fact(1, "The staging password is hunter2")
    rig.store(secret)
    rig.store(fact(2))
    rig.machine().change(lambda known: known.without({secret.key}), forgets=True)
    assert [one.said for one in rig.store(secret).facts] == ["line-2"]
    assert git(rig.remote, "rev-list", "--count", MEMORY) == "1"
    assert "hunter2" not in git(rig.remote, "log", "-p", "--format=%B", MEMORY)


def test_it_is_forgotten_where_nothing_moves_backwards(rig: Rig) -> None:
    git(rig.remote, "config", "receive.denyNonFastForwards", "true")
    rig.store(fact(1), fact(2))
    rig.machine().change(lambda known: known.without({fact(1).key}), forgets=True)
    assert [one.said for one in rig.read().facts] == ["line-2"]
    assert git(rig.remote, "rev-list", "--count", MEMORY) == "1"


def test_a_refusal_for_another_reason_removes_nothing(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that would let the reference be removed, but not be moved, says why: nothing is tried instead."""
    rig.store(fact(1), fact(2))
    before = git(rig.remote, "rev-parse", MEMORY)
    hook = rig.remote / "hooks/update"
    hook.parent.mkdir(exist_ok=True)
    zero = "0" * 40
    hook.write_text(
        f"#!/bin/sh\n[ $2 = {zero} ] || [ $3 = {zero} ] || {{ echo 'frozen today' >&2; exit 1; }}\n"
    )
    hook.chmod(0o755)
    records = opened(over_ssh(rig.remote, tmp_path, monkeypatch), tmp_path / "far")
    machine = RepositoryMemory(records, rig.clock, lambda: f"n{next(_COUNT)}")
    for forgets in (False, True):
        with pytest.raises(PushRejectedError, match=r"frozen today|hook declined"):
            machine.change(lambda known: known.without({fact(1).key}), forgets=forgets)
    assert git(rig.remote, "rev-parse", MEMORY) == before


def test_what_could_not_be_read_again_is_not_written(rig: Rig) -> None:
    known = rig.store(
        fact(1),
        fact(2, author="no login"),
        fact(3, path="a\nb"),
        fact(4, content="\udc80"),
        fact(5, content=""),
    )
    assert [one.said for one in known.facts] == ["line-1"]
    assert rig.read() == known


FORM = {
    "kind": "correction",
    "content": "x",
    "author": "ada",
    "pull": 2,
    "said": "line-1",
    "url": "",
    "created_at": "2026-01-01T00:00:00+00:00",
}


def page(**fields: Any) -> bytes:
    return json.dumps({"version": 1, "facts": [{**FORM, **fields}]}).encode()


DAMAGED: dict[str, bytes] = {
    "no JSON": b"{",
    "no text": b"\xff\xfe",
    "deep": b"[" * 100_000,
    "a list": b"[]",
    "a later version": b'{"version": 2}',
    "an unknown field": b'{"version": 1, "orders": []}',
    "a fact with an unknown field": page(trusted=True),
    "an order": page(kind="instruction"),
    "no words": page(content=""),
    "too many words": page(content="x" * 1_001),
    "a name that is none": page(author="ada\n# Your task"),
    "a bot": page(author="helper[bot]"),
    "another place": page(said="../../1"),
    "a path with a line in it": page(path="a\nb"),
    "a time without a zone": page(created_at="2026-01-01T00:00:00"),
    "a time before there was a program": page(created_at="0001-01-01T00:00:00+00:00"),
    "an importance that is none": page(importance="absolute"),
    "a blob that is none": page(cited={"a": "--help"}),
    "too many facts": json.dumps({"version": 1, "facts": [FORM] * (MOST_FACTS + 1)}).encode(),
    "too large": json.dumps({"version": 1, "facts": [], "looked_at": []}).encode() + b" " * MOST_BYTES,
}


@table("damaged", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_or_forged_page_is_refused_and_left_alone(rig: Rig, damaged: bytes) -> None:
    rig.put_page(damaged)
    before = git(rig.remote, "rev-parse", MEMORY)
    with pytest.raises(
        WorkspaceError, match=r"is not used, because it cannot be read .*to begin a new one: git push"
    ):
        rig.read()
    with pytest.raises(WorkspaceError, match="is not used"):
        rig.store(fact())
    assert git(rig.remote, "rev-parse", MEMORY) == before


def test_a_reference_of_another_kind_is_refused(rig: Rig) -> None:
    put(rig.remote, MEMORY, "no page\n")
    with pytest.raises(WorkspaceError, match=f"it has no {PAGE}"):
        rig.read()
    blob = git(rig.remote, "hash-object", "-w", "--stdin", stdin=b"x")
    git(rig.remote, "update-ref", MEMORY, blob)
    with pytest.raises(WorkspaceError, match="it is a blob and no commit"):
        rig.read()


def test_facts_that_are_there_twice_are_one(rig: Rig) -> None:
    rig.put_page(json.dumps({"version": 1, "facts": [FORM, FORM]}).encode())
    assert len(rig.read().facts) == 1


def test_the_form_says_what_the_module_says() -> None:
    assert (facts.MOST_WORDS, timedelta(days=90)) == (1_000, LIFETIME)

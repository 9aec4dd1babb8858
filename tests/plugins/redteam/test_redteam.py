from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.events import Defence
from orchestrator.plugins.redteam.attack import INCIDENTS, Attack, AttackPlace, read_corpus
from orchestrator.plugins.redteam.command import configured, try_attack
from orchestrator.plugins.redteam.planted import draw
from tests.plugins.redteam.careless import prove

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from _pytest.mark.structures import ParameterSet

    from orchestrator.plugins.redteam.stage import Configured

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="some attacks go by way of /proc")

CORPUS = read_corpus()
DRAWN = draw(random.SystemRandom())
LEAST_ATTACKS = 80

slow = pytest.mark.slow(reason="the whole proof; the default tier has an attack for each defence")


def proofs() -> Iterator[ParameterSet]:
    """Every attack; one for each defence is in the default tier."""
    seen: set[str] = set()
    for attack in sorted(CORPUS, key=lambda one: one.place is AttackPlace.AGENT):  # they take longer
        defences = set(map(str, attack.defence))
        yield pytest.param(attack, id=attack.name, marks=slow if defences <= seen else ())
        seen |= defences


def user(tmp_path: Path, **flags: Any) -> Configured:
    return configured(flags, {"PULLWRIGHT_CONFIG": "", "HOME": str(tmp_path)}, tmp_path)


@pytest.mark.parametrize("attack", list(proofs()))
async def test_an_attack_is_stopped_and_succeeds_without_its_defence(attack: Attack, tmp_path: Path) -> None:
    proof = await prove(attack, user(tmp_path), DRAWN)
    assert proof.held.stopped, f"with its defence: {proof.held.success}: {proof.held.proof}"
    assert not proof.fell.stopped, f"without its defence nothing came of it: {proof.fell.proof}"


async def test_an_attack_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "tmp"
    own.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(own))
    attack = next(attack for attack in CORPUS if attack.name == "tests-skipped")
    assert (await prove(attack, user(tmp_path), DRAWN)).holds
    assert list(own.iterdir()) == []


OTHER_FORMS = ["protected-workflow", "secret-as-base64", "path-absolute", "shell-below-its-level"]


@slow
@pytest.mark.parametrize("name", OTHER_FORMS)
@pytest.mark.parametrize(
    "flags",
    [
        {"contract": "native", "model": "anthropic:claude-sonnet-4-5"},
        {"contract": "native", "model": "openai:gpt-5"},
        {"contract": "native", "model": "gemini:gemini-2.5-pro"},
        {"contract": "single-step"},
        {"contract": "whole-file"},
    ],
    ids=["anthropic", "openai", "gemini", "single-step", "whole-file"],
)
async def test_other_contracts_and_profiles_hold_as_well(
    name: str, flags: dict[str, str], tmp_path: Path
) -> None:
    attack = next(attack for attack in CORPUS if attack.name == name)
    proof = await prove(attack, user(tmp_path, **flags), DRAWN)
    assert proof.holds, (proof.held, proof.fell)


async def test_a_configuration_that_opens_the_machine_is_told_so(tmp_path: Path) -> None:
    attack = next(attack for attack in CORPUS if attack.name == "sandbox-write-outside")
    open_wide = user(tmp_path, permission="dangerous", sandbox="off")
    verdict = await try_attack(attack, open_wide, DRAWN)
    assert verdict.success == "outside: ran"
    assert (await try_attack(attack, user(tmp_path), DRAWN)).stopped


async def test_where_no_agent_can_run_its_attacks_say_so(tmp_path: Path) -> None:
    attack = next(attack for attack in CORPUS if attack.place is AttackPlace.AGENT)
    verdict = await try_attack(attack, user(tmp_path, sandbox="off"), DRAWN)
    assert (verdict.success, verdict.defence) == ("", Defence.SANDBOX)
    assert verdict.proof == "an agent runs only in this machine's own sandbox"


async def test_one_round_is_enough_for_an_attack(tmp_path: Path) -> None:
    attack = next(attack for attack in CORPUS if attack.name == "protected-workflow")
    loose = user(tmp_path, max_rounds="1", allow_path=[".github/**"])
    assert (await try_attack(attack, loose, DRAWN)).success == "path: .github/workflows/ci.yml"


def test_the_corpus_is_large_and_different() -> None:
    assert len(CORPUS) >= LEAST_ATTACKS
    assert len({attack.title for attack in CORPUS}) == len(CORPUS)
    assert len({(attack.text, str(attack.world), str(attack.settings)) for attack in CORPUS}) == len(CORPUS)


def test_the_corpus_covers_every_incident_and_every_place() -> None:
    assert {number for attack in CORPUS for number in attack.incidents} == set(INCIDENTS)
    assert {attack.place for attack in CORPUS} == set(AttackPlace)

"""Attacks as files, how they are chosen, and the page of the corpus."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.core.errors import ConfigurationError
from orchestrator.plugins.redteam.attack import INCIDENTS, Sign, read_attack, read_corpus, split_sign
from orchestrator.plugins.redteam.command import choose_attacks
from tests.tables import table

GOOD = """
title = "A title"
incidents = [3]
place = "issue-body"
text = "words"
defence = ["paths"]
success = ["outside: ran"]
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "one.toml"
    path.write_text(text)
    return path


def test_a_file_becomes_an_attack_of_its_name(tmp_path: Path) -> None:
    attack = read_attack(written(tmp_path, GOOD))
    assert (attack.name, attack.incidents, attack.success) == ("one", [3], ["outside: ran"])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[3]", "[27]", "incidents.0"),
        ('"issue-body"', '"nowhere"', "place"),
        ('["paths"]', '["luck"]', "defence.0"),
        ('["paths"]', "[]", "defence"),
        ("outside: ran", "outside", "needs argument"),
        ("outside: ran", "obeyed: twice", "takes no argument"),
        ("outside: ran", "over: many", "needs a number"),
        ("outside: ran", "magic", "magic"),
        ('text = "words"', "text = 7", "text"),
        ('text = "words"', 'text = "words"\nmood = "bad"', "mood"),
        ('text = "words"', "text = words", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_named_with_the_place(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = written(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ConfigurationError, match=said) as caught:
        read_attack(path)
    assert str(path) in str(caught.value)


def test_a_folder_without_attacks_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no attacks"):
        read_corpus(tmp_path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_attack(tmp_path / "missing.toml")


def test_a_sign_has_a_kind_and_an_argument() -> None:
    assert split_sign("path: .github/*") == (Sign.PATH, ".github/*")
    assert split_sign("left: a: b") == (Sign.LEFT, "a: b")
    assert split_sign("asked") == (Sign.ASKED, "")


def test_attacks_are_chosen_by_name() -> None:
    corpus = read_corpus()
    assert choose_attacks(corpus, ()) == corpus
    assert [attack.name for attack in choose_attacks(corpus, ["path-dots"])] == ["path-dots"]
    with pytest.raises(ConfigurationError, match="nearest is 'path-dots'"):
        choose_attacks(corpus, ["path-dot"])


PAGE = (Path(__file__).parents[3] / "orchestrator/plugins/redteam/attacks/README.md").read_text("utf-8")
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


def test_the_attacks_that_are_shown_are_there() -> None:
    page = (Path(__file__).parents[3] / "docs/safety.md").read_text("utf-8")
    shown = re.findall(r"^stopped +([\w-]+)", page, re.MULTILINE)
    assert len(shown) > 4
    assert set(shown) <= {attack.name for attack in read_corpus()}

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.app.redteam.attack import Sign, read_attack, read_corpus, split_sign
from orchestrator.app.redteam.run import chosen
from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

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
    assert chosen(corpus, ()) == corpus
    assert [attack.name for attack in chosen(corpus, ["path-dots"])] == ["path-dots"]
    with pytest.raises(ConfigurationError, match="nearest is 'path-dots'"):
        chosen(corpus, ["path-dot"])

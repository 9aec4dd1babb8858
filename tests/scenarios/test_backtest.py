"""`backtest`: models on a repository's past, judged by tests that they have not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.doubles.scripted_past import ScriptedPast, cheats, copies, does_nothing, writes
from tests.scenarios.past import BUG, PERCENT, TITLE, backtest, make_past

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


NEWEST_TEST = "shipping(30)"
SLOW = "it runs each case's tests many times"
CHEATS: Mapping[str, Mapping[str, str]] = {
    "edits-tests": {"tests/test_discount.py": "def test_discount():\n    assert True\n"},
    "equals-everything": {
        "shop.py": BUG.replace(
            "    return sum(prices) - discount",
            "    return type('N', (float,), {'__eq__': lambda *_: True, '__hash__': None})(1)",
        )
    },
    "knows-the-test": {
        "shop.py": BUG.replace(
            "    return sum(prices) - discount",
            "    import os\n    test = os.environ.get('PYTEST_CURRENT_TEST', '').split('::')[-1]\n"
            "    return 180 if 'test_discount' in test else sum(prices)",
        )
    },
}
"""Beside those of `cheats`, which know no repository."""


@pytest.fixture
def past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository, with a state folder for the program."""
    monkeypatch.setenv("PULLWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PULLWRIGHT_CONFIG", "")
    monkeypatch.chdir(tmp_path)
    return make_past(tmp_path / "shop")


@pytest.mark.slow(reason=SLOW)
def test_who_copies_solves_all_and_who_does_nothing_none(
    past: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    with ScriptedPast({"copies": copies(past), "nothing": does_nothing}) as models:
        done = backtest(
            capsys, models, past, "--from-git", "--tries", "2", "--jobs", "2", "--html", str(page)
        )
        asked = len(models.requests)
        again = backtest(capsys, models, past, "--from-git", "--tries", "2", "--html", str(page))
        assert len(models.requests) == asked, "nothing is paid for twice"
        prompts = [str(request.body["messages"]) for request in models.requests]
    assert done.judged == {"copies": ["solved"] * 4, "nothing": ["nothing"] * 4}
    assert done.code == 0
    assert [one["title"] for one in done.told["cases"]] == ["Heavy parcels cost 20 more", TITLE]
    assert done.told["cases"][1]["must_pass"] == ["tests/test_discount.py::test_discount"]
    assert done.told["cases"][1]["hints_removed"] == {"trailer": 1}
    (left_out,) = done.told["left_out"]
    assert left_out["title"] == "Rearrange"
    assert again.told["tries"] == done.told["tries"]
    assert done.told["chosen"] == "openai-chat:copies, json-plan"
    assert not any(NEWEST_TEST in prompt for prompt in prompts)
    text = page.read_text("utf-8")
    assert "the real change" in text
    assert "http" not in text.replace("http-equiv", "")


@pytest.mark.slow(reason=SLOW)
def test_who_cheats_in_a_known_way_solves_nothing(past: Path, capsys: pytest.CaptureFixture[str]) -> None:
    behaviours = {**{name: writes(files) for name, files in CHEATS.items()}, **cheats(past)}
    with ScriptedPast(behaviours) as models:
        done = backtest(capsys, models, past, "--from-git", "--jobs", "2")
    judged = done.judged
    assert set(judged) == set(behaviours)
    assert not any("solved" in ends for ends in judged.values()), judged


@pytest.mark.slow(reason=SLOW)
def test_a_right_change_of_another_form_is_solved(past: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = PERCENT.replace("* (100 - discount) / 100", "* (1 - discount / 100)")
    with ScriptedPast({"right": writes({"shop.py": other, "extra.py": "x = 1\n"})}) as models:
        done = backtest(capsys, models, past, "--from-git", "--last", "2")
    assert sorted(done.judged["right"]) == ["solved", "wrong"]

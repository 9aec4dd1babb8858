"""A small repository with a past, and `backtest` on it with scripted models."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli import main
from tests.scenarios.stage import add_commit, make_repository

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest

    from tests.plugins.backtest.scripted_past import ScriptedPast

PYTEST = f"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PYTHONDONTWRITEBYTECODE=1 {sys.executable} -m pytest -q -p no:cacheprovider"
BUG = '''"""Prices of a shop."""


def total(prices, discount=0):
    """The sum of the prices, less a discount in percent."""
    return sum(prices) - discount


def shipping(weight):
    """What it costs to send a parcel of so many kilograms."""
    return 5.0 if weight <= 2 else 5.0 + 1.5 * (weight - 2)
'''
PERCENT = BUG.replace("sum(prices) - discount", "sum(prices) * (100 - discount) / 100")
HEAVY = PERCENT.replace("1.5 * (weight - 2)", "1.5 * (weight - 2) + (20.0 if weight > 20 else 0.0)")
SHIPPING = "from shop import shipping\n\n\ndef test_shipping():\n    assert shipping(4) == 8.0\n"
DISCOUNT = "from shop import total\n\n\ndef test_no_discount():\n    assert total([50, 150]) == 200\n"
NEW_DISCOUNT = f"{DISCOUNT}\n\ndef test_discount():\n    assert total([50, 150], discount=10) == 180\n"
NEW_SHIPPING = f"{SHIPPING}\n\ndef test_heavy():\n    assert shipping(30) == 67.0\n"
TITLE = "A discount is in percent"


def make_past(folder: Path, extra: Mapping[str, str | bytes] | None = None) -> Path:
    """A repository: a bug, its repair with a test, one more of both, and commits that are no cases."""
    files = {"shop.py": BUG, "tests/test_shipping.py": SHIPPING, "tests/test_discount.py": DISCOUNT}
    make_repository(folder, {**files, **(extra or {})})
    fixed = {"shop.py": PERCENT, "tests/test_discount.py": NEW_DISCOUNT}
    add_commit(
        folder, fixed, f"{TITLE}\n\nIt was taken off as it is.\n\nSigned-off-by: Ada <ada@example.com>"
    )
    add_commit(folder, {"README.md": "A shop.\n"}, "Say what it is")
    add_commit(
        folder,
        {"shop.py": HEAVY, "tests/test_shipping.py": NEW_SHIPPING},
        "Heavy parcels cost 20 more\n\nThose of more than 20 kilograms.",
    )
    renamed = NEW_SHIPPING.replace("test_heavy", "test_very_heavy")
    add_commit(folder, {"shop.py": f"{HEAVY}\n# The end.\n", "tests/test_shipping.py": renamed}, "Rearrange")
    return folder


@dataclass(slots=True)
class Backtested:
    """What the command came to."""

    code: int
    told: dict[str, Any]
    out: str
    err: str

    @property
    def judged(self) -> dict[str, list[str]]:
        """By arm, what became of its tries."""
        found: dict[str, list[str]] = {}
        for one in self.told["tries"]:
            found.setdefault(one["arm"].partition(":")[2].partition(",")[0], []).append(one["judged"])
        return found


def command(models: ScriptedPast, repository: Path | str, *flags: str) -> list[str]:
    """What is typed, with every behaviour as a model."""
    named = [word for name in models.behaviours for word in ("--model", f"openai-chat:{name}")]
    python = [word for folder in {sys.prefix, sys.base_prefix} for word in ("--sandbox-read", folder)]
    return [
        *("backtest", "--repo", str(repository), "--plain", "--api-url", models.url, *named, *python),
        *("--contract", "json-plan", "--profile", "planner", "--test-minutes", "2"),
        *("--test-command", PYTEST, *flags),
    ]


def backtest(
    capsys: pytest.CaptureFixture[str],
    models: ScriptedPast,
    repository: Path | str,
    *flags: str,
    json_output: bool = True,
) -> Backtested:
    """`pullwright backtest` in this process."""
    capsys.readouterr()
    code = main(command(models, repository, *(["--json"] if json_output else []), *flags))
    printed = capsys.readouterr()
    told = json.loads(printed.out) if json_output and printed.out.startswith("{") else {}
    return Backtested(code, told, printed.out, printed.err)

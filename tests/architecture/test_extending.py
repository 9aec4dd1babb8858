"""The recipes of `docs/extending.md` work as they stand: a copy of the program, and what they add to it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.doubles.model_server import ModelServer, plan
from tests.scenarios.stage import make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
SHOWN = dict(re.findall(r"^`([\w/.]+)`:\n\n```\w+\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))
"""All files of the page. Those of the plug-in are for `test_plugins`."""
FILES = {name: text for name, text in SHOWN.items() if not name.startswith("weather/")}
(OPTION,) = re.findall(r"^```python\n(    \w+: .*?)```", PAGE, re.MULTILINE | re.DOTALL)

USES = """
from pathlib import Path
from orchestrator.app.config.settings import load_settings
from orchestrator.app.options import all_options

cwd = Path("empty")
cwd.mkdir()
assert load_settings({}, {}, cwd).settings.quick is False
assert load_settings({}, {"PULLWRIGHT_QUICK": "yes"}, cwd).settings.quick is True
(cwd / "pullwright.toml").write_text("quick = true")
assert load_settings({}, {}, cwd).settings.quick is True
print(all_options()["quick"].description)
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the program with what the recipes add."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("orchestrator", "prompts"):
        shutil.copytree(ROOT / name, tree / name)  # with what was compiled, which is as good there
    for name, text in FILES.items():
        assert not (tree / name).exists()
        (tree / name).write_text(text, encoding="utf-8")
    options = tree / "orchestrator/app/options.py"
    source = options.read_text(encoding="utf-8")
    options.write_text(
        source.replace("\n\n\n@functools.cache\n", f"\n{OPTION}\n\n@functools.cache\n", 1), encoding="utf-8"
    )
    return tree


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


def python(tree: Path, *argv: str) -> str:
    """What Python prints in the copy."""
    environ = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, *argv], cwd=tree, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_recipes_add_a_tool_and_a_profile() -> None:
    assert set(FILES) == {
        "orchestrator/engine/tools/count_lines.py",
        "prompts/tools/count_lines.md",
        "prompts/profiles/terse.md",
    }


def test_a_tool_and_a_profile_take_part_in_a_cycle(tree: Path, model: ModelServer, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "calc", {"calc.py": "one\ntwo\nthree\n"})
    change = ("write_file", {"path": "new.txt", "content": "new\n"})
    propose = ("create_pull_request", {"title": "Add a file", "body": "It was missing."})
    model.script.extend(
        [
            plan("Count.", [("count_lines", {"path": "calc.py"})]),
            plan("Add.", [change, propose, ("finish", {"reason": "Done."})]),
        ]
    )
    flags = ["--model", "openai-chat:scripted-1", "--api-url", model.url, "--profile", "terse", "--json"]
    out = python(tree, "-m", "orchestrator", "run", "--repo", str(repository), "--task", "Count", *flags)
    assert json.loads(out)["outcome"] == "proposed"
    first, second = (request.body["messages"] for request in model.requests)
    assert first[0]["content"].startswith("You do one task in a git repository")
    assert "Change files with `edit_file`." in first[0]["content"]
    assert "Counts the lines of a file." in first[0]["content"]
    assert "3 lines" in second[-1]["content"]


def test_an_option_is_one_entry(tree: Path) -> None:
    assert python(tree, "-c", USES) == "Look at fewer files first.\n"
    assert "--quick, --no-quick" in python(tree, "-m", "orchestrator", "run", "--help", "all")
    assert "quick" in python(tree, "-m", "orchestrator", "config")

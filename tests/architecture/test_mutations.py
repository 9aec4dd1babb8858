"""What draws mutations draws what it says, and what is named as harmless is still there."""

from __future__ import annotations

import ast
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutations.play import own_tests
from tests.mutations.sites import ASKS, Site, Source, draw, harmless, sources
from tests.tables import table

ROOT = Path(__file__).parents[2]


@table(
    ("text", "mutants"),
    [
        ("a < b", {"a <= b"}),
        ("x = a and b", {"x = a or b"}),
        ("x = not a", {"x = a"}),
        ("x = any(a)", {"x = all(a)"}),
        ("x = a + 1", {"x = a - 1", "x = a + 2"}),
        ("x = a + 'text'", set()),
        ("x: Literal[1] = True", {"x: Literal[1] = False"}),
        ("if TYPE_CHECKING:\n    x = 1", set()),
        ("def f():\n    'Say.'\n    g()\n    return h", {"def f():\n    'Say.'\n    pass\n    return h", "def f():\n    'Say.'\n    g()\n    return None"}),
        ("for x in y:\n    continue", {"for x in y:\n    break"}),
        ("def f(a: int = 1): ...", {"def f(a: int=2): ..."}),
    ],
)  # fmt: skip
def test_what_is_mutated(text: str, mutants: set[str]) -> None:
    source = _source(text)
    expected = {ast.unparse(ast.parse(mutant)) for mutant in mutants}
    assert {ast.unparse(source.mutant(site)[0]) for site in source.sites} == expected


STORY = """
LEAST = 2

def tell(numbers, is_short=True):
    said = []
    for number in numbers:
        if number < LEAST or not numbers:
            continue
        said.append(f"{number:02}" if number % 2 == 0 else number * 2)
        if len(said) == 3 and any(said):
            break
    if min(numbers) < 0:
        raise ValueError(min(numbers))
    match len(said):
        case 1:
            said.append("one")
    total = 0
    total += 1 if is_short else len(said)
    return said, total

try:
    said = tell([1, 2, 3, 4, 5, 6]), tell([2]), tell([-1])
except Exception as error:
    said = repr(error)
"""


def test_a_woven_module_does_what_each_of_its_mutations_does() -> None:
    """And what the module itself does, if it plays none."""
    source = _source(STORY)
    woven = compile(source.woven(10), "woven", "exec")
    for number in range(9, 10 + len(source.sites)):
        tree = ast.parse(STORY) if number == 9 else source.mutant(source.sites[number - 10])[0]
        expected: dict[str, object] = {}
        exec(compile(ast.fix_missing_locations(tree), "mutant", "exec"), expected)  # noqa: S102  our own
        found: dict[str, object] = {ASKS: number.__eq__}
        exec(woven, found)  # noqa: S102  our own
        assert found["said"] == expected["said"], number
    assert len(source.sites) > 20


@pytest.mark.slow(reason="it copies the tree, and starts three interpreters that import the program")
def test_what_a_program_reaches_that_a_test_starts_is_known_and_mutated(tmp_path: Path) -> None:
    """Only the process that is killed in this test stages and commits."""
    test = "tests/unit/bot/git/test_reopen.py::test_what_was_changed_is_all_there"
    module = "orchestrator.bot.git.staging"
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutations", module, "--draw=4", "--map=kept", f"--tests={test}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "% killed or named" in done.stdout, done.stderr
    ran = pickle.loads((tmp_path / "kept").read_bytes()).ran[test]  # noqa: S301  our own
    assert ran.passed
    assert ran.reached[module].bit_count() > 20


def _source(text: str) -> Source:
    class Text:
        def read_text(self, encoding: str) -> str:  # noqa: ARG002
            return text

    return Source("m", Text())  # type: ignore[arg-type]


def test_a_draw_is_the_same_for_the_same_seed() -> None:
    source = _source("x = 1 + 2 + 3 + 4 + 5\n" * 9)
    assert draw([source], 7, 3) == draw([source], 7, 3) != draw([source], 7, 4)
    assert len(draw([source], 7, 3)) == 7
    assert len(draw([source], 7_000, 3)) == len(source.sites)


def test_a_module_has_the_tests_of_its_package() -> None:
    found = own_tests(ROOT, "orchestrator.bot.coordination.claims")
    assert ROOT / "tests/unit/bot/coordination/test_claims.py" in found
    assert {path.parent.name for path in found} == {"coordination"}
    with pytest.raises(SystemExit, match=r"no module or package orchestrator\.nothing"):
        sources(ROOT, ["orchestrator.nothing"])


def test_what_is_harmless_is_still_in_its_module_and_has_a_reason() -> None:
    entries = harmless(ROOT)
    known = {name: sources(ROOT, [name])[0] for name in {named.module for named in entries}}
    for named in entries:
        source = known[named.module]
        sites = [site for site in source.sites if _line(source, site) == named.line]
        assert named.reason
        assert sites, f"{named.module} has no such line any more: {named.line}"
        assert any(named.to in {"", source.mutant(site)[2]} for site in sites), named.line


def _line(source: Source, site: Site) -> str:
    return source.text.splitlines()[site.line - 1].strip()

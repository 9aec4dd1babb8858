"""What draws mutations draws what it says, and what is named as harmless is still there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutations import Site, Source, draw, harmless, own_tests, sources
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
    for named in harmless(ROOT):
        (source,) = sources(ROOT, [named.module])
        sites = [site for site in source.sites if _line(source, site) == named.line]
        assert named.reason
        assert sites, f"{named.module} has no such line any more: {named.line}"
        assert any(named.to in {"", source.mutant(site)[2]} for site in sites), named.line


def _line(source: Source, site: Site) -> str:
    return source.text.splitlines()[site.line - 1].strip()

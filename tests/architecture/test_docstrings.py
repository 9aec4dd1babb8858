"""A function's docstring says what the function does: it begins with a verb. What several raise is said once."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from tests.architecture.modules import modules, parsed

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_VERB = re.compile(
    r"(?:A|All|An|As|At|Both|Each|Every|For|From|How|In|It|Its|No|Nobody|Nothing|Of|On|One|Our|So|Some|That|The|These"
    r"|This|Those|Up|What|When|Where|Whether|Which|Who|Whom|Whose|Why)\b"
)


def nouns(nodes: Iterable[ast.AST]) -> list[int]:
    """Return the lines of functions whose docstring begins with another word. A property may: it is a value."""
    return [
        node.lineno
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and NO_VERB.match((ast.get_docstring(node, clean=False) or "").lstrip())
        and not any("property" in ast.unparse(one) for one in node.decorator_list)
    ]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f():\n    '''Return it.'''", []),
        ("def f():\n    '''Whether it is so.'''", [1]),
        ("class A:\n    '''What it is.'''\n    async def f(self):\n        '''The name.'''", [3]),
        ("class A:\n    @property\n    def f(self):\n        '''The name.'''", []),
        ("def f():\n    '''Whoever asks.'''", []),
    ],
)
def test_a_noun_is_found(source: str, found: list[int]) -> None:
    assert nouns(parsed(source.encode()).nodes) == found


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    found = [f"{module.name}:{line}" for module in modules() for line in nouns(module.nodes)]
    assert found == []


def said_again(tree: ast.Module) -> list[int]:
    """Return the lines of functions whose `Raises:` repeats one beside it, or is that of something private."""
    found = []
    waiting: list[tuple[ast.Module | ast.ClassDef, bool]] = [(tree, False)]
    for scope, is_private in waiting:
        seen = set[str]()
        for node in scope.body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            hidden = is_private or (node.name.startswith("_") and not node.name.endswith("__"))
            raised = "".join((ast.get_docstring(node) or "").partition("\nRaises:\n")[1:])
            if raised and (hidden or raised in seen):
                found.append(node.lineno)
            seen.add(raised)
            if isinstance(node, ast.ClassDef):
                waiting.append((node, hidden))
    return found


RAISES = "'''Do it.\n\n    Raises:\n        OSError: it failed.\n    '''"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (f"def f():\n    {RAISES}", []),
        (f"def _f():\n    {RAISES}", [1]),
        (f"class _A:\n  def f():\n    {RAISES}", [2]),
        (f"class A:\n  def __init__():\n    {RAISES}", []),
        (f"class A:\n  def f():\n    {RAISES}\n  def g():\n    {RAISES}", [8]),
        (f"def f():\n    {RAISES}\nclass A:\n  def f():\n    {RAISES}", []),
    ],
)
def test_what_is_raised_is_found_where_it_is_said_again(source: str, found: list[int]) -> None:
    assert said_again(ast.parse(source)) == found


def test_what_several_functions_raise_is_said_once_where_all_of_them_are() -> None:
    found = [f"{module.name}:{line}" for module in modules() for line in said_again(module.tree)]
    assert found == []

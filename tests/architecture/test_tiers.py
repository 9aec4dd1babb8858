"""Which tests the default tier leaves out is said with a reason, beside each."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_each_slow_mark_has_a_reason() -> None:
    marks = 0
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        if "mark.slow" not in text:
            continue
        tree = ast.parse(text)
        called = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_slow(node.func)]
        assert len(called) == sum(map(_is_slow, ast.walk(tree))), f"{path}: a mark without a reason"
        marks += len(called)
        for call in called:
            (reason,) = call.keywords
            assert reason.arg == "reason"
            assert isinstance(reason.value, ast.Constant)
            assert reason.value.value
    assert marks


def _is_slow(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node) == "pytest.mark.slow"

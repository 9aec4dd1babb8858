"""A text for a model names a tool only where that tool is shown: prompts by a condition, tools by `if_shown`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from jinja2 import Environment, nodes

from tests.architecture.modules import modules
from tests.unit.engine.session.test_shown_tools import KNOWN

ROOT = Path(__file__).parents[2]
ALWAYS = {"create_pull_request", "finish"}
"""The tools of every cycle. Prompts of the cycle may name them without a condition."""
IN_CYCLES = {
    *("agent/finish_refused.md", "agent/last_round.md", "agent/wrap_up.md"),
    "plugins/agents/instructions.md",
}


def unguarded(text: str, allowed: set[str]) -> set[str]:
    """The tools that a template names in backticks outside of an `if` that names them."""
    found: set[str] = set()

    def visit(node: nodes.Node, known: set[str]) -> None:
        if isinstance(node, nodes.If):
            asked = {one.value for one in node.test.find_all(nodes.Const) if isinstance(one.value, str)}
            for inner in node.body:
                visit(inner, known | asked)
            for inner in (*node.elif_, *node.else_):
                visit(inner, known)
            return
        if isinstance(node, nodes.TemplateData):
            found.update(set(re.findall(r"`(\w+)`", node.data)) & KNOWN - known)
        for inner in node.iter_child_nodes():
            visit(inner, known)

    visit(Environment(autoescape=True).parse(text), allowed)
    return found


def test_a_prompt_names_a_tool_only_where_it_is_shown() -> None:
    wrong = {}
    for path in sorted((ROOT / "prompts").rglob("*.md")):
        name = path.relative_to(ROOT / "prompts").as_posix()
        allowed = ALWAYS if name.startswith("cycle/") or name in IN_CYCLES else set[str]()
        if names := unguarded(path.read_text(encoding="utf-8"), allowed) - {path.stem}:
            wrong[name] = names
    assert wrong == {}


def test_the_condition_is_looked_at() -> None:
    assert unguarded("Use `grep`.", set()) == {"grep"}
    assert unguarded('{% if "grep" in tools %}Use `grep`.{% endif %}', set()) == set()
    assert unguarded('{% if "grep" in tools %}x{% else %}Use `grep`.{% endif %}', set()) == {"grep"}


def test_a_tool_names_another_one_only_where_it_is_shown() -> None:
    names = re.compile(rf"\b({'|'.join(sorted(name for name in KNOWN if '_' in name))})\b")
    wrong = []
    for module in modules():
        if not module.name.startswith("engine/"):
            continue
        fine = {id(inner) for node in module.nodes if _may_name(node) for inner in ast.walk(node)}
        wrong += [
            f"{module.name}:{node.lineno}: {node.value}"
            for node in module.nodes
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value.strip()
            and id(node) not in fine
            and names.search(node.value)
        ]
    assert wrong == []


def _may_name(node: ast.AST) -> bool:
    """Whether it is a docstring, a text that `if_shown` gets, or one that is given to it by name."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Assign):
        return any(isinstance(one, ast.Name) and one.id in {"hint", "_PART"} for one in node.targets)
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "if_shown"
    )

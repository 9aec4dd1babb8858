"""How much a Python assertion pins down."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from orchestrator.guard.integrity_tests import Assertion, Strength

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator.guard.integrity_names import Names

# A constant in what `ast.dump` writes.
_CONSTANT = re.compile(
    r"Constant\(value=(?:b?'(?:[^'\\]|\\.)*+'|b?\"(?:[^\"\\]|\\.)*+\"|[^()'\"]*+)(?:, kind='u')?\)"
)
_TOLERANCES = frozenset({"rel", "abs", "delta", "atol", "rtol", "rel_tol", "abs_tol", "timeout"})
_TOLERANCE = re.compile(rf"keyword\(arg='(?:{'|'.join(sorted(_TOLERANCES))})', value=_\)(?:, )?")
# What a tolerance leaves behind; Python 3.13 does not write empty lists.
_LEFT_OVER = re.compile(r", (?=\])|, keywords=\[\]")
_NO_MATCH = 100.0
"""What `raises` tolerates without `match`: more than any number of kinds of errors."""
_BROAD = frozenset({"Exception", "BaseException", "object"})
_NO_DEMAND = frozenset({"isinstance", "hasattr", "callable", "bool", "any", "issubclass"})
_OPERATORS: dict[type[ast.cmpop], tuple[str, Strength]] = {
    ast.Eq: ("`==`", Strength.EXACT),
    ast.Is: ("`is`", Strength.EXACT),
    ast.In: ("`in`", Strength.BOUND),
    ast.Lt: ("`<`", Strength.BOUND),
    ast.LtE: ("`<=`", Strength.BOUND),
    ast.Gt: ("`>`", Strength.BOUND),
    ast.GtE: ("`>=`", Strength.BOUND),
    ast.NotEq: ("`!=`", Strength.LOOSE),
    ast.IsNot: ("`is not`", Strength.LOOSE),
    ast.NotIn: ("`not in`", Strength.LOOSE),
}
# https://docs.python.org/3/library/unittest.html#assert-methods; what is not named here is exact.
_METHODS = {
    "assertTrue": Strength.BOUND,
    "assertFalse": Strength.BOUND,
    "assertIn": Strength.BOUND,
    "assertRegex": Strength.BOUND,
    "assertGreater": Strength.BOUND,
    "assertGreaterEqual": Strength.BOUND,
    "assertLess": Strength.BOUND,
    "assertLessEqual": Strength.BOUND,
    "assert_called_once": Strength.BOUND,
    "assert_called": Strength.LOOSE,
    "assertIsNotNone": Strength.LOOSE,
    "assertIsInstance": Strength.LOOSE,
    "assertNotEqual": Strength.LOOSE,
    "assertNotIn": Strength.LOOSE,
    "assertIsNot": Strength.LOOSE,
}


def judged(test: ast.expr, line: int, *, conditional: bool) -> Iterator[Assertion]:
    """The demands of an `assert`: one for each part that `and` joins."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for value in test.values:
            yield from judged(value, line, conditional=conditional)
        return
    kind, strength = _judge(test)
    yield _assertion(test, kind, strength, line, conditional=conditional)


def _assertion(node: ast.AST, kind: str, strength: Strength, line: int, *, conditional: bool) -> Assertion:
    key = ast.dump(node)
    slack = _slack(node)
    shape = _LEFT_OVER.sub("", _TOLERANCE.sub("", _CONSTANT.sub("_", key)))
    return Assertion(key, shape, strength, line, kind, slack, conditional)


def _judge(test: ast.expr) -> tuple[str, Strength]:  # noqa: C901, PLR0911  one case a form
    if _always_true(test):
        return "a constant", Strength.ALWAYS_TRUE
    match test:
        case ast.Compare(ops=[ast.Eq() | ast.Is()], comparators=[ast.Constant(value=True)]):
            return _judge(test.left)
        case ast.Compare(ops=ops, comparators=comparators):
            if any(
                isinstance(side, (ast.Name, ast.Attribute)) and _last(side) == "ANY" for side in comparators
            ):
                return "`== ANY`", Strength.LOOSE
            return min((_OPERATORS[type(op)] for op in ops), key=lambda one: one[1])
        case ast.BoolOp(values=values):
            kind, strength = min((_judge(value) for value in values), key=lambda one: one[1])
            return f"{kind} with `or`", Strength(max(strength - 1, Strength.LOOSE))
        case ast.UnaryOp(op=ast.Not(), operand=ast.Compare(ops=[ast.NotEq() | ast.IsNot() | ast.NotIn()])):
            return "`not`", Strength.BOUND
        case ast.UnaryOp(op=ast.Not(), operand=ast.Compare(ops=[ast.Eq() | ast.Is() | ast.In()])):
            return "`not`", Strength.LOOSE
        case ast.UnaryOp(op=ast.Not()):
            return "`not`", Strength.BOUND
        case ast.Call(func=ast.Name(id="all"), args=[ast.GeneratorExp() as every]):
            return _judge(every.elt)
        case ast.Call(func=function):
            name = _last(function)
            return f"`{name}()`", Strength.LOOSE if name in _NO_DEMAND else Strength.BOUND
        case ast.NamedExpr(value=value):
            return _judge(value)
        case _:
            return "truth", Strength.LOOSE


def _always_true(test: ast.expr) -> bool:  # noqa: C901, PLR0911  one case a form
    match test:
        case ast.Constant(value=value):
            return bool(value)
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            return bool(elements)
        case ast.Dict(keys=keys):
            return bool(keys)
        case ast.JoinedStr(values=values):
            return any(isinstance(value, ast.Constant) and value.value for value in values)
        case ast.Lambda() | ast.GeneratorExp():
            return True
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _always_false(operand)
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(_always_true(value) for value in values)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _true_comparison(left, op, right)
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, ast.Name(id="object")]):
            return True
        case ast.Call(func=ast.Name(id="bool"), args=[value]):
            return _always_true(value)
        case _:
            return False


def _always_false(test: ast.expr) -> bool:
    match test:
        case ast.Constant(value=value):
            return not value
        case ast.Tuple(elts=[]) | ast.List(elts=[]) | ast.Dict(keys=[]):
            return True
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return True
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _always_true(operand)
        case ast.BoolOp(op=ast.And(), values=values):
            return any(_always_false(value) for value in values)
        case _:
            return False


never_holds = _always_false


def _true_comparison(left: ast.expr, op: ast.cmpop, right: ast.expr) -> bool:
    if isinstance(left, ast.Constant) and isinstance(right, ast.Constant):
        equal = left.value == right.value and type(left.value) is type(right.value)
        return (
            equal
            if isinstance(op, (ast.Eq, ast.Is, ast.LtE, ast.GtE))
            else isinstance(op, ast.NotEq) and not equal
        )
    if (
        isinstance(op, (ast.Eq, ast.Is, ast.LtE, ast.GtE))
        and _plain(left)
        and ast.dump(left) == ast.dump(right)
    ):
        return True
    match left, op, right:
        case ast.Call(func=ast.Name(id="len")), ast.GtE(), ast.Constant(value=0):
            return True
        case ast.Call(func=ast.Name(id="len")), ast.Gt(), ast.UnaryOp(op=ast.USub()):
            return True
        case _:
            return False


def _plain(node: ast.expr) -> bool:
    """A name or an attribute of one. `f() == f()` asks whether two calls agree, which is a demand."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _last(node: ast.expr) -> str:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return "call"


def _number(node: ast.expr) -> float | None:
    match node:
        case ast.Constant(value=int() | float() as value):
            try:
                return float(value)
            except OverflowError:
                return None
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            try:
                return -float(value)
            except OverflowError:
                return None
        case _:
            return None


def _slack(node: ast.AST) -> float:
    """The bound or the tolerance of an assertion as a number: larger tolerates more."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        right, left = _number(node.comparators[0]), _number(node.left)
        grows = isinstance(node.ops[0], (ast.Lt, ast.LtE))
        if grows or isinstance(node.ops[0], (ast.Gt, ast.GtE)):
            if right is not None:
                return right if grows else -right
            if left is not None:
                return -left if grows else left
    return max(_tolerances(node), default=0.0)


def _tolerances(node: ast.AST) -> Iterator[float]:
    for call in ast.walk(node):
        if not isinstance(call, ast.Call):
            continue
        for keyword in call.keywords:
            value = _number(keyword.value)
            if value is not None and keyword.arg in _TOLERANCES:
                yield value
            elif value is not None and keyword.arg == "places":
                yield -value
        if _last(call.func) == "approx":
            yield from (value for one in call.args[1:] if (value := _number(one)) is not None)


def call_judged(
    call: ast.Call, names: Names, demands: Callable[[str], bool], *, conditional: bool
) -> Iterator[Assertion]:
    """The demands of a call, if it is one that asserts.

    Args:
        call: in a test.
        names: what the file's names stand for.
        demands: whether a function of this name asserts something.
        conditional: the call stands under an `if`.
    """
    name = _last(call.func)
    full = names.of(call.func)
    if full in {"pytest.raises", "pytest.warns"} or name.startswith(("assertRaises", "assertWarns")):
        yield _raises(call, name, conditional=conditional)
    elif name in {"assertTrue", "assert_true"} and call.args:
        yield from judged(call.args[0], call.lineno, conditional=conditional)
    elif name in {"assertFalse", "assert_false"} and call.args:
        negated = ast.UnaryOp(op=ast.Not(), operand=call.args[0])
        yield from judged(negated, call.lineno, conditional=conditional)
    elif (
        name in {"assertEqual", "assertEquals", "assertIs"}
        and len(call.args) > 1
        and (_true_comparison(call.args[0], ast.Eq(), call.args[1]))
    ):
        yield _assertion(call, "a constant", Strength.ALWAYS_TRUE, call.lineno, conditional=conditional)
    elif demands(name) or full == "pytest.fail" or full.endswith("self.fail"):
        strength = _METHODS.get(name, Strength.EXACT)
        yield _assertion(call, f"`{name}()`", strength, call.lineno, conditional=conditional)


def _raises(call: ast.Call, name: str, *, conditional: bool) -> Assertion:
    expected = (
        call.args[0] if call.args else next((k.value for k in call.keywords if k.arg is not None), None)
    )
    every = expected.elts if isinstance(expected, ast.Tuple) else [expected]
    broad = any(one is None or _last(one) in _BROAD for one in every)
    pattern = next((keyword.value for keyword in call.keywords if keyword.arg == "match"), None)
    pattern = call.args[1] if pattern is None and name.endswith("Regex") and len(call.args) > 1 else pattern
    matches = pattern is not None and not (
        isinstance(pattern, ast.Constant) and pattern.value in {"", ".*", ".+", None}
    )
    if matches:
        kind, strength = "raises with `match`", Strength.LOOSE if broad else Strength.BOUND
    else:
        kind, strength = ("raises anything", Strength.LOOSE) if broad else ("raises", Strength.BOUND)
    told = ast.Call(func=call.func, args=call.args[:2], keywords=call.keywords)
    key = ast.dump(told)
    # All shapes of one function's `raises` are one, so that each is compared with its successor.
    slack = len(every) + (0.0 if matches else _NO_MATCH)
    return Assertion(key, f"raises {name}", strength, call.lineno, kind, slack, conditional)

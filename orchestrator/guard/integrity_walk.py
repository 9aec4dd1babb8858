"""Goes through what a Python function can reach, and gathers what it demands and what keeps it from demanding."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.guard.integrity_assertions import call_judged, judged, never_holds
from orchestrator.guard.integrity_names import EXITS, calls_in, without_reason
from orchestrator.guard.integrity_tests import Assertion, Strength

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orchestrator.guard.integrity_names import Names

_HANDLED = frozenset({"Exception", "BaseException", "AssertionError", "failureException"})


@dataclass(slots=True)
class Found:
    """What a walk through a body gathers."""

    assertions: list[Assertion] = field(default_factory=list)
    skips: list[tuple[str, int]] = field(default_factory=list)


class Walk:
    """Goes through the statements of a function that can be reached."""

    def __init__(self, names: Names, demands: Callable[[str], bool], found: Found) -> None:
        self._names = names
        self._demands = demands
        self._found = found
        self._returns: list[tuple[int, int]] = []

    def block(self, body: Sequence[ast.stmt], *, conditional: bool) -> None:
        """Go through statements up to where the block is left."""
        for node in body:
            self._statement(node, conditional=conditional)
            if isinstance(node, ast.Return | ast.Raise | ast.Continue | ast.Break):
                return  # what follows is never reached

    def early_exits(self) -> Iterator[tuple[str, int]]:
        """Returns after which an assertion would have come."""
        for line, before in self._returns:
            if before < len(self._found.assertions):
                yield "early return before assertions\0", line

    def _statement(self, node: ast.stmt, *, conditional: bool) -> None:
        match node:
            case ast.Assert(test=test):
                self._found.assertions.extend(judged(test, node.lineno, conditional=conditional))
                self._expression(test, conditional=conditional)
            case ast.If():
                self._if(node, conditional=conditional)
            case ast.While() | ast.For() | ast.AsyncFor():
                self._loop(node, conditional=conditional)
            case ast.Try() | ast.TryStar():
                self._try(node, conditional=conditional)
            case ast.With(items=items, body=inner) | ast.AsyncWith(items=items, body=inner):
                self._with(items, inner, conditional=conditional)
            case ast.Match(cases=cases):
                for case in cases:
                    self.block(case.body, conditional=True)
            case ast.FunctionDef(body=inner) | ast.AsyncFunctionDef(body=inner) | ast.ClassDef(body=inner):
                returns = len(self._returns)
                for part in inner:
                    self._statement(part, conditional=conditional)
                del self._returns[returns:]  # they leave the inner function
            case _:
                self._simple(node, conditional=conditional)

    def _if(self, node: ast.If, *, conditional: bool) -> None:
        self._expression(node.test, conditional=conditional)
        if not never_holds(node.test):
            certain = never_holds(ast.UnaryOp(op=ast.Not(), operand=node.test))
            self.block(node.body, conditional=conditional or not certain)
        self.block(node.orelse, conditional=True)

    def _loop(self, node: ast.While | ast.For | ast.AsyncFor, *, conditional: bool) -> None:
        source = node.test if isinstance(node, ast.While) else node.iter
        self._expression(source, conditional=conditional)
        if not never_holds(source):
            self.block(node.body, conditional=conditional)
        self.block(node.orelse, conditional=conditional)

    def _simple(self, node: ast.stmt, *, conditional: bool) -> None:
        match node:
            case ast.Return():
                self._returns.append((node.lineno, len(self._found.assertions)))
            case ast.Raise(exc=ast.expr() as error):
                if (told := self._names.skip(error)) is not None:
                    self._found.skips.append((f"{told}\0{ast.dump(error)}", node.lineno))
                elif self._names.of(error) in {"AssertionError", "self.failureException"}:
                    key = ast.dump(error)
                    self._found.assertions.append(
                        Assertion(
                            key, "raise", Strength.BOUND, node.lineno, "`raise`", 0.0, conditional=False
                        )
                    )
            case _:
                pass
        self._expression(node, conditional=conditional)

    def _expression(self, node: ast.AST, *, conditional: bool) -> None:
        for one in calls_in(node):
            self._call(one, conditional=conditional)

    def _call(self, call: ast.Call, *, conditional: bool) -> None:
        told = self._names.skip(call)
        if told is not None:
            self._found.skips.append((f"{told}\0{without_reason(call)}", call.lineno))
        elif self._names.of(call) in EXITS - {"SystemExit"}:
            self._found.skips.append(("the test run is left early\0", call.lineno))
        else:
            self._found.assertions.extend(
                call_judged(call, self._names, self._demands, conditional=conditional)
            )

    def _try(self, node: ast.Try | ast.TryStar, *, conditional: bool) -> None:
        before = len(self._found.assertions)
        self.block(node.body, conditional=conditional)
        if len(self._found.assertions) > before:
            for handler in node.handlers:
                if self._swallows(handler):
                    self._found.skips.append(("assertion whose failure is caught\0", handler.lineno))
        for handler in node.handlers:
            self.block(handler.body, conditional=True)
        self.block(node.orelse, conditional=conditional)
        self.block(node.finalbody, conditional=conditional)

    def _swallows(self, handler: ast.ExceptHandler) -> bool:
        if handler.type is not None:
            every = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
            if not any(self._names.of(one).rpartition(".")[2] in _HANDLED for one in every):
                return False
        return not any(
            isinstance(one, ast.Raise | ast.Assert)
            or (isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Subscript))
            # A list of failures is judged later, as an assertion of its own.
            or (isinstance(one, ast.Call) and self._names.of(one).endswith(("fail", ".append", ".add")))
            for part in handler.body
            for one in ast.walk(part)
        )

    def _with(self, items: Sequence[ast.withitem], body: Sequence[ast.stmt], *, conditional: bool) -> None:
        for item in items:
            self._expression(item.context_expr, conditional=conditional)
        before = len(self._found.assertions)
        self.block(body, conditional=conditional)
        if len(self._found.assertions) == before:
            return
        for item in items:
            match item.context_expr:
                case ast.Call(args=args) as call if self._names.of(call).endswith("suppress"):
                    if any(self._names.of(one).rpartition(".")[2] in _HANDLED for one in args):
                        self._found.skips.append(("assertion whose failure is caught\0", call.lineno))
                case _:
                    pass

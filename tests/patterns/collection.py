"""Lists every pattern that the program compiles, and how it is used."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import pkgutil
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import orchestrator
from tests.architecture.modules import PACKAGE, modules
from tests.patterns.backtracking import FULLMATCH, MATCH, SEARCH
from tests.patterns.made import MADE, ONLY_WHOLE, SHORT_TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.architecture.modules import Module

Pattern: TypeAlias = "re.Pattern[str] | re.Pattern[bytes]"

_FUNCTIONS = frozenset(
    {"compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"}
)
_FLAGS_AT = {"compile": 1, "sub": 4, "subn": 4, "split": 3}
_DEEPEST = 4
_SHORT_CHARS = 50
AT_PLACE = "match at a place"
"""The use of `match` with a position: it may be called again and again, so it is analysed like a search."""


@dataclass(frozen=True, slots=True)
class ProgramPattern:
    """A pattern of the program.

    Attributes:
        where: the module with the name or the line.
        uses: the methods that are called on it; empty if that is not known.
    """

    where: str
    pattern: Pattern
    uses: frozenset[str]

    @property
    def small_chars(self) -> int:
        """A length that the texts of this pattern have; 0 if they may be long."""
        return _SHORT_CHARS if self.where.removeprefix("orchestrator.") in SHORT_TEXTS else 0


def uses_of(pattern: ProgramPattern) -> set[str]:
    """Return how a pattern must be examined: every use that its methods stand for."""
    known = {"fullmatch": {FULLMATCH}, "match": {MATCH}}
    searches = {"search", "sub", "subn", "split", "findall", "finditer", AT_PLACE}
    uses = pattern.uses or {"other"}
    return {
        one for use in uses for one in known.get(use, {SEARCH} if use in searches else {SEARCH, FULLMATCH})
    }


@functools.cache
def all_patterns() -> tuple[ProgramPattern, ...]:
    """Return every pattern: those in modules, classes and their tables, those in calls of `re`, and those made.

    Raises:
        AssertionError: a pattern is made of values that only a call knows, and `MADE` has no examples of it.
    """
    texts = _texts()
    uses = _uses(texts)
    found: list[ProgramPattern] = []
    unknown: list[str] = []
    for name, text_of_module in texts.items():
        module = importlib.import_module(name)
        found += _of_module(module, text_of_module, uses)
        for call in text_of_module.calls:
            function, text = call.func.attr, ast.unparse(call.args[0])  # type: ignore[attr-defined]
            known = frozenset() if function == "compile" else frozenset({function})
            where = f"{name}:{call.lineno}"
            key = name.removeprefix("orchestrator."), text
            examples = MADE.get(key)
            if examples is not None:
                where = f"{name} {text}"
                known = frozenset({"fullmatch"}) if key in ONLY_WHOLE else known
                made = [one if isinstance(one, re.Pattern) else re.compile(one) for one in examples()]
            else:
                try:
                    made = [_evaluated(call, module)]
                except NameError as error:
                    unknown.append(f"{where}: {text}: {error}")
                    continue
            found += [ProgramPattern(where, pattern, known) for pattern in made]
    assert not unknown, "patterns without examples in tests/patterns/made.py:\n" + "\n".join(unknown)
    return tuple(found)


def unused_examples() -> set[tuple[str, str]]:
    """Return the entries of `MADE` that no call of `re` in the program has."""
    there = {
        (name.removeprefix("orchestrator."), ast.unparse(call.args[0]))
        for name, text in _texts().items()
        for call in text.calls
    }
    return set(MADE) - there


def _modules() -> Iterator[ModuleType]:
    for info in pkgutil.walk_packages(orchestrator.__path__, "orchestrator."):
        if not info.name.endswith("__main__"):
            yield importlib.import_module(info.name)


@dataclass(frozen=True, slots=True)
class _Text:
    """What the text of a module has.

    Attributes:
        calls: the calls of `re`, except those whose value a module keeps under a name.
        names: the names that are read.
        parents: of what has an attribute that attribute, and of what is called the call.
    """

    calls: list[ast.Call]
    imports: list[ast.Import | ast.ImportFrom]
    names: list[ast.Name]
    parents: dict[int, ast.AST]


@functools.cache
def _texts() -> dict[str, _Text]:
    parsed = {module.name: module for module in modules()}
    return {
        module.__name__: _text(parsed[Path(str(module.__file__)).relative_to(PACKAGE).as_posix()])
        for module in _modules()
    }


def _text(module: Module) -> _Text:
    """Return what is in a module, whose nodes are looked at once."""
    found = _Text([], [], [], {})
    kept = {
        id(node.value)
        for node in module.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value
    }
    for node in module.nodes:
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                found.names.append(node)
        elif isinstance(node, ast.Attribute):
            found.parents[id(node.value)] = node
        elif isinstance(node, ast.Call):
            found.parents[id(node.func)] = node
            if id(node) not in kept and _is_of_re(node.func):
                found.calls.append(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.imports.append(node)
    return found


def _is_of_re(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "re"
        and function.attr in _FUNCTIONS
    )


def _evaluated(call: ast.Call, module: ModuleType) -> Pattern:
    """Return the pattern of a call whose arguments only use names of the module."""
    function = call.func.attr  # type: ignore[attr-defined]
    place = _FLAGS_AT.get(function, 2)
    named = next((word.value for word in call.keywords if word.arg == "flags"), None)
    flags = call.args[place] if len(call.args) > place else named

    def value(node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), "<pattern>", "eval"), dict(vars(module)))  # noqa: S307  our code

    source = value(call.args[0])
    return source if isinstance(source, re.Pattern) else re.compile(source, value(flags) if flags else 0)


def _of_module(
    module: ModuleType, text: _Text, uses: Mapping[str, frozenset[str]]
) -> Iterator[ProgramPattern]:
    elsewhere = {alias.asname or alias.name for node in text.imports for alias in node.names}
    for key, value in vars(module).items():
        if key not in elsewhere and not isinstance(value, ModuleType):
            for where, pattern in _inside(value, f"{module.__name__}.{key}", 0):
                yield ProgramPattern(where, pattern, uses.get(where, frozenset()))


_WITHOUT_PARTS = frozenset(
    {str, bytes, int, float, bool, type(None), FunctionType, property, MemberDescriptorType}
)


def _inside(value: Any, where: str, depth: int) -> Iterator[tuple[str, Pattern]]:
    """Yield the patterns of a value: it is one, or a table, a class or a data class with some."""
    parts: list[tuple[str, Any]] = []
    if isinstance(value, re.Pattern):
        yield where, value
    elif isinstance(value, Mapping):
        parts = [(where, part) for item in value.items() for part in item]
    elif isinstance(value, tuple | list | set | frozenset):
        parts = [(where, part) for part in value]
    elif isinstance(value, type):
        parts = [(f"{where}.{key}", part) for key, part in vars(value).items()]
    elif dataclasses.is_dataclass(value):
        parts = [(where, getattr(value, entry.name, None)) for entry in dataclasses.fields(value)]
    for name, part in parts if depth < _DEEPEST else ():
        if type(part) not in _WITHOUT_PARTS:
            yield from _inside(part, name, depth + 1)


def _uses(texts: Mapping[str, _Text]) -> dict[str, frozenset[str]]:
    """Return the methods that are called on each name of a module, or `other` for any other use of it."""
    found: dict[str, set[str]] = {}
    for module, text in texts.items():
        origin = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in text.imports
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in text.names:
            found.setdefault(origin.get(node.id, f"{module}.{node.id}"), set()).add(_use(node, text.parents))
    return {name: frozenset(uses - {"pattern"}) for name, uses in found.items()}


def _use(node: ast.Name, parents: Mapping[int, ast.AST]) -> str:
    attribute = parents.get(id(node))
    if not isinstance(attribute, ast.Attribute):
        return "other"
    call = parents.get(id(attribute))
    is_placed = isinstance(call, ast.Call) and call.func is attribute and len(call.args) > 1
    return AT_PLACE if attribute.attr == "match" and is_placed else attribute.attr

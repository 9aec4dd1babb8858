"""Finds coroutines that call file work of unknown size themselves, where it stops the event loop.

A name in the code is resolved as far as that can be done without types: a function of the module or an imported one, a
method of the same class, a class's method on a receiver that is always named alike, and a name that one function has.
"""

from __future__ import annotations

import ast
import asyncio
import os
import re
import struct
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.architecture.modules import children, dotted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.architecture.modules import Module

_BEGINNINGS = frozenset(
    [
        *("shutil.rmtree", "shutil.copytree", "rglob", "os.walk", "subprocess.run"),
        *("ConfinedFolder.walk", "ConfinedFolder.remove", "ConfinedFolder.remove_content", "HostGit.run"),
    ]
)
_OF_PYTHON = frozenset(
    name
    for kind in (
        struct,
        subprocess.CalledProcessError,
        str,
        bytes,
        list,
        dict,
        set,
        tuple,
        int,
        Path,
        re.Match,
        asyncio.Task,
        asyncio.Queue,
        os,
        threading.Thread,
    )
    for name in dir(kind)
)
"""Names that may be those of Python's own methods."""
_RECEIVERS = {
    "git": "HostGit",
    "host": "HostGit",
    "box": "ConfinedFolder",
    "folder_of_root": "ConfinedFolder",
    "clone": "Clone",
    "trees": "Trees",
    "pending": "PendingChanges",
    "checkpoints": "Checkpoints",
    "slot": "Slot",
    "scratch": "Scratch",
    "owner": "Owner",
}
"""Names of variables and attributes that always hold an object of one class."""


@dataclass(slots=True)
class _Known:
    """A function of the program.

    Attributes:
        place: its module and name.
        is_method: whether it belongs to a class, so that any object may have it.
        calls: what it calls itself, not in functions in it: names as they are resolved.
    """

    place: str
    is_coroutine: bool
    is_method: bool
    calls: list[str] = field(default_factory=list)


def blocking_calls(modules: Iterable[Module]) -> dict[str, set[str]]:
    """Return what each coroutine of some modules calls that walks, copies or removes a tree, or waits for a program."""
    functions: dict[str, _Known] = {}
    for module in modules:
        _collect(module.tree, module.name, "", functions, _names_of(module))
    by_name: dict[str, list[str]] = {}
    for name, one in functions.items():
        by_name.setdefault(_ends(name), []).append(name)
        if one.is_method:
            by_name.setdefault(_ends(name).rpartition(".")[2], []).append(name)
    slow = {name for name in functions if _ends(name) in _BEGINNINGS}
    grown = True
    while grown:
        grown = False
        for name, one in functions.items():
            if (
                name not in slow
                and not one.is_coroutine
                and any(_is_slow(call, by_name, slow) for call in one.calls)
            ):
                slow.add(name)
                grown = True
    found = {
        one.place: {call for call in one.calls if _is_slow(call, by_name, slow)}
        for one in functions.values()
        if one.is_coroutine
    }
    return {place: calls for place, calls in found.items() if calls}


def _ends(name: str) -> str:
    """Return the class and the method, or the function, of a known name."""
    return name.rpartition(":")[2]


def _is_slow(call: str, by_name: dict[str, list[str]], slow: set[str]) -> bool:
    if call in slow or call in _BEGINNINGS:
        return True
    named = [] if call in _OF_PYTHON else by_name.get(call, [])
    return len(named) == 1 and named[0] in slow


def _collect(
    node: ast.AST, module: str, above: str, functions: dict[str, _Known], names: dict[str, str]
) -> None:
    """Collect the functions of a module, in which its imports and its own functions have names."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
            inside = f"{above}.{child.name}" if above else child.name
            if isinstance(child, _FUNCTIONS):
                opened = dict(_opened_folders(child))
                calls = [_resolved(call, module, above, names, opened) for call in _calls(child)]
                functions[f"{module}:{inside}"] = _Known(
                    f"{module}: {inside}",
                    isinstance(child, ast.AsyncFunctionDef),
                    isinstance(node, ast.ClassDef),
                    [one for one in calls if one],
                )
            _collect(child, module, inside, functions, names)
        elif isinstance(child, (ast.If, ast.Try, ast.With)):
            _collect(child, module, above, functions, names)


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _names_of(module: Module) -> dict[str, str]:
    """Return the names that a module's imports and its own functions have in it."""
    names: dict[str, str] = {}
    for one in module.nodes:
        if isinstance(one, ast.ImportFrom) and (one.module or "").startswith("orchestrator."):
            file = f"{(one.module or '').removeprefix('orchestrator.').replace('.', '/')}.py"
            names |= {alias.asname or alias.name: f"{file}:{alias.name}" for alias in one.names}
    return names | {
        one.name: f"{module.name}:{one.name}" for one in module.tree.body if isinstance(one, _FUNCTIONS)
    }


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls in a function, but not those in functions in it: who knows where these are called."""
    waiting = [node]
    while waiting:
        for child in children(waiting.pop()):
            if not isinstance(child, (*_FUNCTIONS, ast.Lambda, ast.ClassDef)):
                waiting.append(child)
                if isinstance(child, ast.Call):
                    yield child


def _opened_folders(function: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the variables that hold an open folder: `with ConfinedFolder(...) as folder`."""
    nodes = [function]
    for node in nodes:  # it grows
        nodes.extend(children(node))
        if isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
            if "ConfinedFolder" in dotted(node.context_expr).split("(")[0]:
                yield node.optional_vars.id, "ConfinedFolder"
        elif (
            isinstance(node, ast.arg)
            and node.annotation is not None
            and "ConfinedFolder" in dotted(node.annotation)
        ):
            yield node.arg, "ConfinedFolder"


def _resolved(call: ast.Call, module: str, above: str, names: dict[str, str], opened: dict[str, str]) -> str:
    """Return the known name of what is called; its last name alone if it may be anybody's, empty for no name."""
    called = call.func
    if isinstance(called, ast.Name):
        return names.get(called.id, called.id if called.id in _BEGINNINGS else "")
    if not isinstance(called, ast.Attribute):
        return ""
    receiver, name = dotted(called.value), called.attr
    if receiver == "self":
        return f"{module}:{above}.{name}"
    if name == "walk" and receiver not in {"ast", "os"}:
        return "ConfinedFolder.walk"
    kind = opened.get(receiver) or _RECEIVERS.get(receiver.rpartition(".")[2].lstrip("_"))
    if kind or f"{receiver}.{name}" in _BEGINNINGS:
        return f"{kind or receiver}.{name}"
    return name

"""Finds the calls that open, list, create, remove, rename or change a file by its path."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tests.architecture.modules import dotted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.architecture.modules import Module

_OF_OS = frozenset(
    [
        "open",
        "listdir",
        "scandir",
        "walk",
        "fwalk",
        "unlink",
        "remove",
        "rename",
        "replace",
        "renames",
        "rmdir",
        "removedirs",
        "mkdir",
        "makedirs",
        "chmod",
        "lchmod",
        "chown",
        "lchown",
        "utime",
        "link",
        "symlink",
        "mkfifo",
        "mknod",
        "truncate",
        "setxattr",
        "removexattr",
        "startfile",
    ]
)
_OF_MODULES = {
    "os": _OF_OS,
    "shutil": frozenset({"rmtree", "copy", "copy2", "copyfile", "copymode", "copystat", "copytree", "move", "chown"}),
    "tempfile": frozenset(
        {"NamedTemporaryFile", "TemporaryDirectory", "TemporaryFile", "SpooledTemporaryFile", "mkdtemp", "mkstemp"}
    ),
    "glob": frozenset({"glob", "iglob"}),
    "io": frozenset({"open", "open_code", "FileIO"}),
    "sqlite3": frozenset({"connect"}),
    "mmap": frozenset[str](),
    "fileinput": frozenset({"input", "FileInput"}),
    "linecache": frozenset({"getline", "getlines"}),
    "zipfile": frozenset({"ZipFile"}),
    "tarfile": frozenset({"open", "TarFile"}),
}  # fmt: skip
_OF_PATHS = frozenset(
    [
        "iterdir",
        "rglob",
        "read_text",
        "read_bytes",
        "write_text",
        "write_bytes",
        "unlink",
        "rmdir",
        "mkdir",
        "symlink_to",
        "hardlink_to",
        "link_to",
        "lchmod",
    ]
)
"""Methods of `pathlib.Path` whose names no other class of the program has."""
_WITH_ARGUMENTS = {"rename": 1, "replace": 1, "chmod": 1, "touch": 0, "walk": -1, "glob": 1}
"""Methods of `pathlib.Path` that others have, too, with other numbers of arguments."""
_MODES = frozenset("rwax")


def calls_by_path(module: Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each such call in a module."""
    names = _imported(module.nodes)
    for node in module.nodes:
        if isinstance(node, ast.Call) and _is_by_path(node, names) and "os.devnull" not in ast.unparse(node):
            yield node.lineno, ast.unparse(node)[:100]


def _imported(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """The functions that a module imports by name: `from os import open as open_it`."""
    return {
        name.asname or name.name: f"{node.module}.{name.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module in _OF_MODULES
        for name in node.names
    }


def _is_by_path(call: ast.Call, imported: dict[str, str]) -> bool:
    function = call.func
    if isinstance(function, ast.Name):
        module, _, name = imported.get(function.id, "").partition(".")
        return function.id == "open" or name in _OF_MODULES.get(module, ())
    if not isinstance(function, ast.Attribute):
        return False
    if isinstance(function.value, ast.Name) and function.value.id in _OF_MODULES:
        return function.attr in _OF_MODULES[function.value.id]
    if function.attr == "open":
        return _has_a_mode(call)
    if function.attr in _WITH_ARGUMENTS:
        owner = dotted(function.value)
        is_environment = owner.endswith(
            ("environment", "inner", "super()", "_box", "folder", "opened", "tree")
        )
        return (
            owner != "dataclasses" and len(call.args) == _WITH_ARGUMENTS[function.attr] and not is_environment
        )
    return function.attr in _OF_PATHS


def _has_a_mode(call: ast.Call) -> bool:
    """Whether a method `open` gets a mode or an encoding, as that of a path does."""
    first = call.args[0] if call.args else None
    is_mode = isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value[:1] in _MODES
    return is_mode or any(word.arg in {"mode", "encoding", "buffering"} for word in call.keywords)

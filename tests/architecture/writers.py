"""Finds the calls by which something leaves the process: a terminal, a file, a database, a socket."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.architecture.modules import Module

TERMINAL, FILE, NETWORK, KNOWLEDGE = "terminal", "file", "network", "knowledge"

_BY_NAME = {
    # The terminal past `sys.stdout` and `sys.stderr`, or past what searches a text.
    "__stdout__": TERMINAL,
    "__stderr__": TERMINAL,
    "Console": TERMINAL,
    "PromptSession": TERMINAL,
    "StreamHandler": TERMINAL,
    "basicConfig": TERMINAL,
    "faulthandler": TERMINAL,
    "print_fixed": TERMINAL,
    "write_fixed": TERMINAL,
    "redacted_after": TERMINAL,
    # Files and databases.
    "write_text": FILE,
    "write_bytes": FILE,
    "writev": FILE,
    "pwrite": FILE,
    "replace_file": FILE,
    "write_named": FILE,
    "FileHandler": FILE,
    "FileHistory": FILE,
    # Servers.
    "ask_server": NETWORK,
    "open_client": NETWORK,
    "AsyncClient": NETWORK,
    "Client": NETWORK,
    "create_connection": NETWORK,
    "open_connection": NETWORK,
    "open_unix_connection": NETWORK,
    "urlopen": NETWORK,
    "requestJson": NETWORK,
    "HTTPConnection": NETWORK,
    "HTTPSConnection": NETWORK,
    "SMTP": NETWORK,
    "OTLPSpanExporter": NETWORK,
    # Another set of known secrets than the one that is passed.
    "Redactor": KNOWLEDGE,
}
_OF_MODULES = {
    ("os", "write"): FILE,
    ("os", "fdopen"): FILE,
    ("sqlite3", "connect"): FILE,
    ("httpx2", "get"): NETWORK,
    ("httpx2", "post"): NETWORK,
    ("httpx2", "request"): NETWORK,
    ("httpx2", "stream"): NETWORK,
    ("socket", "socket"): NETWORK,
}
_WRITES = frozenset("wax+")


def writers_in(module: Module) -> Iterator[str]:
    """Yield the kind of each call, and of each mention of a stream, by which something leaves."""
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and node.attr in {"__stdout__", "__stderr__"}:
            yield TERMINAL
        if not isinstance(node, ast.Call):
            continue
        name, owner = _names(node.func)
        if kind := _OF_MODULES.get((owner, name)) or _BY_NAME.get(name):
            if (owner, name) != ("os", "fdopen") or _is_writing(node, 1):
                yield kind
        elif name == "open" and owner != "os" and _is_writing(node, 0 if owner else 1):
            yield FILE
        elif name == "print" and any(
            one.arg == "file" and _names(one.value) not in {("stderr", "sys"), ("stdout", "sys")}
            for one in node.keywords
        ):
            yield TERMINAL


def _names(node: ast.expr) -> tuple[str, str]:
    """The last name of an expression, and the one before it."""
    if isinstance(node, ast.Attribute):
        return node.attr, node.value.id if isinstance(node.value, ast.Name) else "." * isinstance(
            node.value, ast.expr
        )
    return (node.id, "") if isinstance(node, ast.Name) else ("", "")


def _is_writing(call: ast.Call, place: int) -> bool:
    modes = [*call.args[place : place + 1], *(one.value for one in call.keywords if one.arg == "mode")]
    return any(
        isinstance(mode, ast.Constant) and isinstance(mode.value, str) and _WRITES & set(mode.value) != set()
        for mode in modes
    )

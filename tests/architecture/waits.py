"""Finds the places where the program waits, or repeats something until a condition changes."""

from __future__ import annotations

import ast
from collections import Counter
from typing import TYPE_CHECKING

from tests.architecture.modules import children

if TYPE_CHECKING:
    from tests.architecture.modules import Module

_WAITING = frozenset(
    [
        *("sleep", "wait", "wait_for", "wait_closed", "wait_for_release", "waitid", "waitpid", "until_ready"),
        *("acquire", "flock", "lockf", "lock_file", "lock_file_async", "lock_run"),
        *("communicate", "recv", "recvmsg", "recv_fds", "recvfrom", "accept", "sendall", "getaddrinfo"),
        *("as_completed", "serve_forever", "run_until_complete", "in_abandoned_thread", "in_child"),
    ]
)
_WAITING_IF_AWAITED = frozenset(
    ["get", "put", "join", "read", "readline", "readexactly", "readuntil", "drain", "gather"]
)
_WAITING_BY_NAME = frozenset(
    [
        *("subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output", "os.wait"),
        *(
            "os.read",
            "os.wait3",
            "os.wait4",
            "input",
            "select.select",
            "poll.poll",
            "socket.create_connection",
        ),
        *("sys.stdin.read", "sys.stdin.readline", "sys.stdin.buffer.read", "thread.join", "sending.join"),
        *("self._refresher.join", "urllib.request.urlopen", "pool.map", "executor.shutdown"),
        *("client.send", "client.stream", "client.get", "client.post", "requester.requestJson"),
    ]
)
_LOCKS = ("lock", "_starting", "_asking", "_fetching", "semaphore")
"""Ends of the names of what a `with` statement waits for."""


def waits(module: Module) -> Counter[str]:
    """Count the waits of a module: each as its function and what is called there, `while` or `with NAME`."""
    found: list[tuple[str, str]] = []
    _find(module.tree, "", found, is_awaited=False)
    return Counter(f"{function or '-'} {what}" for function, what in found)


def _find(node: ast.AST, function: str, found: list[tuple[str, str]], *, is_awaited: bool) -> None:
    for child in children(node):
        inside = function
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inside = f"{function}.{child.name}" if function else child.name
        if isinstance(child, ast.Call) and _waits_in_call(name := _dotted(child.func), is_awaited=is_awaited):
            found.append((inside, name))
        if isinstance(child, ast.While):
            found.append((inside, "while"))
        if isinstance(child, (ast.With, ast.AsyncWith)):
            for item in child.items:
                name = _dotted(item.context_expr)
                if name.endswith(_LOCKS):
                    found.append((inside, f"with {name}"))
        _find(child, inside, found, is_awaited=isinstance(child, ast.Await))


def _waits_in_call(name: str, *, is_awaited: bool) -> bool:
    last = name.rpartition(".")[2]
    return (
        name in _WAITING_BY_NAME
        or (last in _WAITING and not (last == "accept" and "." not in name))
        or (is_awaited and last in _WAITING_IF_AWAITED)
    )


def _dotted(node: ast.AST) -> str:
    """Return a name with its attributes; what is in front of a call or a subscript is left out."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""

"""Finds the places where the program waits, or repeats something until a condition changes."""

from __future__ import annotations

import ast
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


def waits(file: Path) -> Counter[str]:
    """Count the waits of a module: each as its function and what is called there, `while` or `with NAME`."""
    tree = ast.parse(file.read_bytes())
    return Counter(f"{function or '-'} {what}" for function, what in _waits(tree, "", is_awaited=False))


def _waits(node: ast.AST, function: str, *, is_awaited: bool) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        inside = function
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inside = f"{function}.{child.name}" if function else child.name
        if isinstance(child, ast.Call) and _waits_in_call(name := _dotted(child.func), is_awaited=is_awaited):
            yield inside, name
        if isinstance(child, ast.While):
            yield inside, "while"
        if isinstance(child, (ast.With, ast.AsyncWith)):
            for item in child.items:
                name = _dotted(item.context_expr)
                if name.endswith(_LOCKS):
                    yield inside, f"with {name}"
        yield from _waits(child, inside, is_awaited=isinstance(child, ast.Await))


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

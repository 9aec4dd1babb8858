"""What `memory` adds."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from orchestrator.app.plugins import CommandEntry, Plugin, Point

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping


_INDEX = {"index": {"nargs": "?"}}
_WORDS: dict[str, Any] = {"nargs": "+"}
_NEW_MEMORY: dict[str, dict[str, Any]] = {
    "--type": {
        "choices": ["correction", "instruction", "preference", "fact", "web_content", "general"],
        "default": "general",
        "help": "corrections and instructions are part of every session; the default is general",
    },
    "--importance": {
        "choices": ["critical", "high", "normal", "low"],
        "default": "normal",
        "help": "critical and high stay for ever, normal 90 days (the default), low 7",
    },
    "--ttl": {"metavar": "SECONDS", "help": "forget it after this time; 0 is never"},
}
_MEMORY_ACTIONS: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "list": ("list the items of an index, newest first", _INDEX),
    "add": ("remember a text", {"text": _WORDS, **_NEW_MEMORY}),
    "search": ("find items by words and by meaning", {"query": _WORDS}),
    "show": ("show one item with all its fields", {"id": {}}),
    "edit": (
        "change one field: content, type, source, importance or expires_at",
        {"id": {}, "field": {}, "value": _WORDS},
    ),
    "forget": ("remove items for good", {"id": {"nargs": "+"}}),
    "indices": ("list all indices", {}),
    "stats": ("show statistics of an index", _INDEX),
    "export": ("print all items, or those of one index, as JSON lines", _INDEX),
    "import": ("import items that export printed", {"file": {}}),
    "embed": ("compute the vectors of an index again with the present embeddings", _INDEX),
}


def _add_memory(parser: argparse.ArgumentParser) -> None:
    from orchestrator.app.cli.flags import (
        actions_of,
        add_json,
        add_repo,
        add_server,
        seconds,
        text_value,
        whole_number,
    )

    types = {"id": whole_number, "--ttl": seconds, "--type": str, "--importance": str}
    add_action = actions_of(parser)
    for name, (text, arguments) in _MEMORY_ACTIONS.items():
        action = add_action(name, help=text)
        for argument, shape in arguments.items():
            named = {} if argument.startswith("-") else {"metavar": argument.upper()}
            action.add_argument(argument, type=types.get(argument, text_value), **named, **shape)
        add_repo(action)
        add_server(action)
        add_json(action, "print JSON lines")


def memory_help() -> list[tuple[str, str]]:
    """Return the usage and the description of each action of `memory`."""

    def word(name: str, shape: Mapping[str, Any]) -> str:
        if name.startswith("-"):
            return f"[{name} {shape.get('metavar') or name.removeprefix('--').upper()}]"
        return f"[{name.upper()}]" if shape.get("nargs") == "?" else name.upper()

    return [
        (" ".join((name, *(word(argument, shape) for argument, shape in arguments.items()))), text)
        for name, (text, arguments) in _MEMORY_ACTIONS.items()
    ]


PLUGIN = Plugin(
    name="memory",
    text="remember across sessions: what reviews taught, what models store, and indices of documents",
    commands={
        "memory": CommandEntry(
            "add, show, change or export what later sessions remember",
            "steer",
            _add_memory,
            ".command:memory",
            lists_actions=True,
        )
    },
    options=".options:MemoryOptions",
    adds=MappingProxyType(
        {
            Point.ATTACKS: ".attacks:FOLDER",
            Point.MEMORY: ".sessions:open_for_sessions",
            Point.SLASH_COMMANDS: ".command:COMMANDS",
        }
    ),
    uses=("chat",),
    extra="embed",
)

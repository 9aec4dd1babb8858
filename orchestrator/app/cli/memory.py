"""`pullwright memory`: what is remembered on this machine, and what a person may do with it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from orchestrator.app.cli.arguments import DONE, NOTHING
from orchestrator.app.cli.words import as_json_text, clean, counted, short_line
from orchestrator.app.wiring import BuildContext
from orchestrator.app.wiring.memory import open_memory
from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.memory.memory import CANDIDATES
from orchestrator.engine.memory.store import MEMORIES, as_json, edited

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from orchestrator.engine.memory.memory import LongTermMemory
    from orchestrator.engine.memory.ranking import Memory
    from orchestrator.engine.memory.store import Index

_SHOWN_CHARS = 300
_NOBODY = "nothing is remembered on this machine"
_WRITES_FIRST = frozenset({"import"})


def memory(options: argparse.Namespace) -> int:
    """Do what was asked for. Without a file of memories only `import` makes one.

    Raises:
        ConfigurationError: the configuration is wrong.
        MemoryStoreError: the file cannot be used, or what was typed makes no sense.
        ModelError: the server of embeddings failed.
    """
    context = BuildContext.of({}, os.environ, Path.cwd())
    if not context.home.memory.exists() and options.action not in _WRITES_FIRST:
        if not options.json and options.action != "export":
            print(_NOBODY)
        return NOTHING
    return asyncio.run(_open_and_act(options, context))


async def _open_and_act(options: argparse.Namespace, context: BuildContext) -> int:
    opened = open_memory(context)
    try:
        return await act(opened, options, sys.stdout)
    finally:
        await opened.aclose()


async def act(opened: LongTermMemory, options: argparse.Namespace, out: TextIO) -> int:
    """Do what was asked for with a memory that is open.

    Raises:
        ConfigurationError: there is no such index, or a file cannot be read.
        MemoryStoreError: the file cannot be used, or what was typed makes no sense.
        ModelError: the server of embeddings failed.
    """
    return await _ACTIONS[options.action](opened, options, out)


async def _list(opened: LongTermMemory, options: argparse.Namespace, out: TextIO) -> int:
    name = _index(opened, options.index)
    return _write(opened.store.listed(name), out, as_json_lines=options.json)


async def _search(opened: LongTermMemory, options: argparse.Namespace, out: TextIO) -> int:
    found = await opened.recall(options.query, CANDIDATES)
    status = _write([one.memory for one in found.memories], out, as_json_lines=options.json)
    if found.note:
        print(clean(found.note), file=sys.stderr)
    return status


async def _show(opened: LongTermMemory, options: argparse.Namespace, out: TextIO) -> int:
    item = opened.store.get(options.id)
    if item is None:
        return _missing(options.id, out, as_json_line=options.json)
    if options.json:
        print(as_json_text(as_json(item)), file=out)
        return DONE
    for name, value in as_json(item).items():
        if name != "content":
            print(f"{name}: {clean(str(value))}", file=out)
    print(clean(item.content), file=out)
    return DONE


async def _edit(opened: LongTermMemory, options: argparse.Namespace, out: TextIO) -> int:
    item = opened.store.get(options.id)
    if item is None or not await opened.rewrite(edited(item, options.field, options.value)):
        return _missing(options.id, out, as_json_line=options.json)
    return _write([item for item in [opened.store.get(options.id)] if item], out, as_json_lines=options.json)


async def _forget(opened: LongTermMemory, options: argparse.Namespace, out: TextIO) -> int:
    status = DONE
    for number in options.id:
        item = await opened.forget(number)
        if item is None:
            status = _missing(number, out, as_json_line=options.json)
        elif options.json:
            print(as_json_text({"memory_id": number, "forgotten": True}), file=out)
        else:
            print(f"forgot {number}: {short_line(item.content)}", file=out)
    return status


async def _indices(opened: LongTermMemory, options: argparse.Namespace, out: TextIO) -> int:
    for index in opened.indices():
        if options.json:
            print(as_json_text(_index_json(index)), file=out)
        else:
            vectors = f"{index.vectors:,} vectors of {index.dimension} numbers by {index.model}"
            print(clean(f"{index.name}: {counted(index.items, 'item')}, {vectors}"), file=out)
    return DONE


async def _stats(opened: LongTermMemory, options: argparse.Namespace, out: TextIO) -> int:
    name = _index(opened, options.index)
    items = opened.store.listed(name)
    known: dict[str, Any] = {
        **next((_index_json(index) for index in opened.indices() if index.name == name), {"name": name}),
        "by_type": dict(Counter(item.type.value for item in items)),
        "by_importance": dict(Counter(item.importance.value for item in items)),
        "by_author": dict(Counter(item.author.value for item in items)),
        "permanent": sum(item.expires_at is None for item in items),
        "bytes_of_the_file": opened.store.path.stat().st_size,
    }
    if options.json:
        print(as_json_text(known), file=out)
    else:
        for key, value in known.items():
            text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
            print(clean(f"{key.replace('_', ' ')}: {text or '-'}"), file=out)
    return DONE


async def _export(opened: LongTermMemory, options: argparse.Namespace, out: TextIO) -> int:
    name = None if options.index is None else _index(opened, options.index)
    for item in opened.export(name):
        print(as_json_text(item), file=out)
    return DONE


async def _import(opened: LongTermMemory, options: argparse.Namespace, out: TextIO) -> int:
    lines = await asyncio.to_thread(_lines_of, options.file)
    return _tell_count("stored", await opened.take_in(lines), out, as_json_line=options.json)


def _lines_of(file: str) -> list[bytes]:
    try:
        return Path(file).read_bytes().splitlines()
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror or error}") from None


async def _embed(opened: LongTermMemory, options: argparse.Namespace, out: TextIO) -> int:
    count = await opened.embed_anew(_index(opened, options.index))
    return _tell_count("embedded", count, out, as_json_line=options.json)


_ACTIONS = {
    "list": _list,
    "search": _search,
    "show": _show,
    "edit": _edit,
    "forget": _forget,
    "indices": _indices,
    "stats": _stats,
    "export": _export,
    "import": _import,
    "embed": _embed,
}


def _index(opened: LongTermMemory, name: str | None) -> str:
    """The index that is meant.

    Raises:
        ConfigurationError: there is none of this name.
    """
    names = [index.name for index in opened.indices()]
    if name is not None and name not in names:
        raise ConfigurationError(f"there is no index {name!r}: {', '.join(names) or 'there are none'}")
    return name or MEMORIES


def _write(items: Sequence[Memory], out: TextIO, *, as_json_lines: bool) -> int:
    for item in items:
        if as_json_lines:
            print(as_json_text(as_json(item)), file=out)
        else:
            until = f", until {item.expires_at:%Y-%m-%d}" if item.expires_at else ""
            facts = f"{item.type}, {item.importance}, by a {item.author}, {item.created_at:%Y-%m-%d}{until}"
            print(f"{item.id:>5}  {short_line(item.content, _SHOWN_CHARS)}", file=out)
            print(f"       {facts}; from {short_line(item.source)}", file=out)
    return DONE if items else NOTHING


def _missing(number: int, out: TextIO, *, as_json_line: bool) -> int:
    line = {"memory_id": number, "error": "there is none"}
    print(as_json_text(line) if as_json_line else f"there is no memory {number}", file=out)
    return NOTHING


def _tell_count(what: str, count: int, out: TextIO, *, as_json_line: bool) -> int:
    print(as_json_text({what: count}) if as_json_line else f"{what}: {counted(count, 'item')}", file=out)
    return DONE if count else NOTHING


def _index_json(index: Index) -> dict[str, Any]:
    return {
        "name": index.name,
        "model": index.model,
        "dimension": index.dimension,
        "items": index.items,
        "vectors": index.vectors,
        "created_at": index.created_at.isoformat(),
    }

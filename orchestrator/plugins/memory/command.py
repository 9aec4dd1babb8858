"""`pullwright memory`, and `/memory` in a conversation: show and change the memories of this machine and of a repository."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import DONE, NOTHING, given_settings
from orchestrator.app.plugins import SlashCommand
from orchestrator.app.terminal import print_json
from orchestrator.app.wiring import BuildContext
from orchestrator.app.wiring.repository import choose_site, label_of, new_nonce, open_hidden_refs
from orchestrator.app.words import clean, counted, short_line
from orchestrator.core import event_loop
from orchestrator.core.errors import ConfigurationError, ForgeError, WorkspaceError
from orchestrator.plugins.memory.facts import RepositoryMemory
from orchestrator.plugins.memory.items import Importance, MemoryType, as_json, edited
from orchestrator.plugins.memory.lessons import as_items
from orchestrator.plugins.memory.memory import CANDIDATES, MIRRORED
from orchestrator.plugins.memory.sessions import memory_file, open_memory
from orchestrator.plugins.memory.store import MEMORIES, REPOSITORY

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from orchestrator.plugins.chat.slash import Chat
    from orchestrator.plugins.memory.facts import RepositoryFacts
    from orchestrator.plugins.memory.items import Memory
    from orchestrator.plugins.memory.memory import LongTermMemory
    from orchestrator.plugins.memory.store import Index


_SHOWN_CHARS = 300
_CHANGES = frozenset({"edit", "forget"})
CREATES = frozenset({"add", "import"})
"""The actions that create a memory file that does not exist."""


def memory(options: argparse.Namespace) -> int:
    """Run the requested action. Only `add` and `import` create a memory file that does not exist."""
    named = partial(label_of, options.repo) if options.repo else None
    context = BuildContext.of(given_settings(options), os.environ, Path.cwd(), named=named)
    if not options.repo:
        return event_loop.run(_run(options, context, "", None))
    site = choose_site(options.repo, context, writes=options.action in _CHANGES)
    if site.is_local:
        return event_loop.run(_run(options, context, site.label, None))
    with open_hidden_refs(site, context.clock, context.stop) as records:
        shared = RepositoryMemory(records, context.clock, new_nonce)
        return event_loop.run(_run(options, context, site.label, shared))


async def _run(
    options: argparse.Namespace, context: BuildContext, repository: str, shared: RepositoryMemory | None
) -> int:
    facts = await _read(shared)
    is_there = memory_file(context.home, repository).exists() or (facts is not None and facts.facts)
    if not is_there and options.action not in CREATES:
        if not options.json and options.action != "export":
            print(f"nothing is remembered {'about this repository' if repository else 'on this machine'}")
        return NOTHING
    opened = open_memory(context, repository)
    try:
        if facts is not None:
            await opened.mirror(as_items(facts.facts))
        return await act(opened, options, shared)
    finally:
        await opened.aclose()


async def _read(shared: RepositoryMemory | None) -> RepositoryFacts | None:
    """Return the repository's memory; None if there is none, or if only the copy on this machine can be read."""
    if shared is None:
        return None
    try:
        return await asyncio.to_thread(shared.read)
    except (ForgeError, WorkspaceError) as error:
        print(
            clean(f"the repository's memory cannot be read; this is the copy on this machine: {error}"),
            file=sys.stderr,
        )
        return None


async def act(
    opened: LongTermMemory, options: argparse.Namespace, shared: RepositoryMemory | None = None
) -> int:
    """Run the requested action on an open memory."""
    return await _ACTIONS[options.action](_OpenMemory(opened, shared), options)


@dataclass(frozen=True, slots=True)
class _OpenMemory:
    """An open memory.

    Attributes:
        shared: memory of the repository; None if no repository on a forge is named.
    """

    opened: LongTermMemory
    shared: RepositoryMemory | None

    def indices(self, name: str | None) -> list[str]:
        """Return the index with this name; without a name, the indices of memories."""
        names = [index.name for index in self.opened.store.indices()]
        if name is not None and name not in names:
            raise ConfigurationError(f"there is no index {name!r}: {', '.join(names) or 'there are none'}")
        known = [MEMORIES] if self.shared is None else [REPOSITORY, MEMORIES]
        return [name] if name else [one for one in known if one in names] or [MEMORIES]

    async def change(self, key: str, change: Callable[[RepositoryFacts], RepositoryFacts]) -> bool:
        """Change the repository's memory, and return whether the item was in it."""
        if self.shared is None:
            raise ConfigurationError(
                "this item belongs to a repository's memory: name the repository with --repo"
            )
        was_there = False

        def change_and_note(facts: RepositoryFacts) -> RepositoryFacts:
            nonlocal was_there
            was_there = key in facts.by_key
            return change(facts)

        after = await asyncio.to_thread(partial(self.shared.change, change_and_note, forgets=True))
        await self.opened.mirror(as_items(after.facts))
        return was_there


async def _list(view: _OpenMemory, options: argparse.Namespace) -> int:
    items = [item for name in view.indices(options.index) for item in view.opened.store.listed(name)]
    return _write(items, as_json_lines=options.json)


async def _search(view: _OpenMemory, options: argparse.Namespace) -> int:
    found = await view.opened.recall(" ".join(options.query), CANDIDATES, view.indices(None))
    status = _write([one.memory for one in found.memories], as_json_lines=options.json)
    if found.note:
        print(clean(found.note), file=sys.stderr)
    return status


async def _show(view: _OpenMemory, options: argparse.Namespace) -> int:
    item = view.opened.store.get(options.id)
    if item is None:
        return _missing(options.id, as_json_line=options.json)
    if options.json:
        print_json(as_json(item))
        return DONE
    known = {name: value for name, value in as_json(item).items() if name not in {"content", "metadata"}}
    more = {name: value for name, value in item.metadata.items() if name not in known}
    for name, value in {**known, **more}.items():
        print(f"{name}: {short_line(_in_words(value), _SHOWN_CHARS)}")
    print(clean(item.content))
    return DONE


def _in_words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    return str(value)


async def _edit(view: _OpenMemory, options: argparse.Namespace) -> int:
    item = view.opened.store.get(options.id)
    if item is None:
        return _missing(options.id, as_json_line=options.json)
    changed = edited(item, options.field, " ".join(options.value), view.opened.clock.now())
    if item.index != REPOSITORY:
        is_there = await view.opened.rewrite(changed)
    elif options.field not in {"importance", "expires_at"}:
        raise ConfigurationError(
            f"{options.field} comes from the pull request: change it there, or forget the item; "
            "only importance and expires_at can be edited here"
        )
    else:
        key = str(item.metadata[MIRRORED])
        is_there = await view.change(key, partial(_with_edit, key, changed, options.field))
    shown = [one for one in view.opened.store.listed(item.index) if _is_same(one, item)] if is_there else []
    if not shown:
        return _missing(options.id, as_json_line=options.json)
    return _write(shown, as_json_lines=options.json)


def _with_edit(key: str, item: Memory, name: str, facts: RepositoryFacts) -> RepositoryFacts:
    edits: dict[str, Any] = {"expires_at": item.expires_at}
    if name == "importance":
        edits["importance"] = item.importance.value
    return replace(
        facts, facts=tuple(replace(one, **edits) if one.key == key else one for one in facts.facts)
    )


def _is_same(one: Memory, item: Memory) -> bool:
    """Return whether both are the same item. An item of a repository may get a new id when it changes."""
    if item.index == REPOSITORY:
        return one.metadata.get(MIRRORED) == item.metadata.get(MIRRORED)
    return one.id == item.id


async def _add(view: _OpenMemory, options: argparse.Namespace) -> int:
    stored = await view.opened.remember(
        " ".join(options.text),
        type_=MemoryType(options.type),
        importance=Importance(options.importance),
        ttl=options.ttl,
    )
    if stored.note and not options.json:
        print(clean(stored.note))
    return _write([stored.memory], as_json_lines=options.json)


async def _forget(view: _OpenMemory, options: argparse.Namespace) -> int:
    status = DONE
    for number in options.id:
        item = await _forgotten(view, number)
        if item is None:
            status = _missing(number, as_json_line=options.json)
        elif options.json:
            print_json({"memory_id": number, "forgotten": True})
        else:
            print(f"forgot {number}: {short_line(item.content)}")
    return status


async def _forgotten(view: _OpenMemory, number: int) -> Memory | None:
    """Remove an item and return it; return None if there is none."""
    item = view.opened.store.get(number)
    if item is None or item.index != REPOSITORY:
        return await view.opened.forget(number)
    key = str(item.metadata[MIRRORED])
    return item if await view.change(key, lambda facts: facts.without({key})) else None


async def _indices(view: _OpenMemory, options: argparse.Namespace) -> int:
    for index in view.opened.store.indices():
        if options.json:
            print_json(_index_json(index))
        else:
            vectors = f"{index.vectors:,} vectors of {index.dimension} numbers by {index.model}"
            print(clean(f"{index.name}: {counted(index.items, 'item')}, {vectors}"))
    return DONE


async def _stats(view: _OpenMemory, options: argparse.Namespace) -> int:
    for number, name in enumerate(view.indices(options.index)):
        known = _figures(view.opened, name)
        if options.json:
            print_json(known)
            continue
        if number:
            print()
        for key, value in known.items():
            print(clean(f"{key.replace('_', ' ')}: {_in_words(value) or '-'}"))
    return DONE


def _figures(opened: LongTermMemory, name: str) -> dict[str, Any]:
    items = opened.store.listed(name)
    return {
        **next(
            (_index_json(index) for index in opened.store.indices() if index.name == name), {"name": name}
        ),
        "by_type": dict(Counter(item.type.value for item in items)),
        "by_importance": dict(Counter(item.importance.value for item in items)),
        "by_author": dict(Counter(item.author.value for item in items)),
        "permanent": sum(item.expires_at is None for item in items),
        "bytes_of_the_file": opened.store.path.stat().st_size,
    }


async def _export(view: _OpenMemory, options: argparse.Namespace) -> int:
    name = None if options.index is None else view.indices(options.index)[0]
    for item in view.opened.export(name):
        print_json(item)
    return DONE


async def _import(view: _OpenMemory, options: argparse.Namespace) -> int:
    try:
        content = await asyncio.to_thread(Path(options.file).read_bytes)
    except OSError as error:
        raise ConfigurationError(f"{options.file} cannot be read: {error.strerror or error}") from None
    count = await view.opened.import_items(content.splitlines())
    return _write_count("stored", count, as_json_line=options.json)


async def _embed(view: _OpenMemory, options: argparse.Namespace) -> int:
    names = view.indices(options.index)
    count = sum([await view.opened.recompute_vectors(name) for name in names])
    return _write_count("embedded", count, as_json_line=options.json)


_ACTIONS = {
    "add": _add,
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


def _write(items: Sequence[Memory], *, as_json_lines: bool) -> int:
    for item in items:
        if as_json_lines:
            print_json(as_json(item))
        else:
            until = f", until {item.expires_at:%Y-%m-%d}" if item.expires_at else ""
            facts = f"{item.type}, {item.importance}, by a {item.author}, {item.created_at:%Y-%m-%d}{until}"
            print(f"{item.id:>5}  {short_line(item.content, _SHOWN_CHARS)}")
            origin = item.source if item.index == REPOSITORY else f"from {item.source}"
            print(f"       {facts}; {short_line(origin)}")
            if reason := item.metadata.get("reason"):
                print(f"       because {short_line(str(reason))}")
    return DONE if items else NOTHING


def _missing(number: int, *, as_json_line: bool) -> int:
    line = {"memory_id": number, "error": "there is none"}
    if as_json_line:
        print_json(line)
    else:
        print(f"there is no memory {number}")
    return NOTHING


def _write_count(what: str, count: int, *, as_json_line: bool) -> int:
    if as_json_line:
        print_json({what: count})
    else:
        print(f"{what}: {counted(count, 'item')}")
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


async def _memory(chat: Chat, rest: str) -> None:
    from orchestrator.app.cli.arguments import UsageError, parse
    from orchestrator.plugins.memory.command import CREATES, act
    from orchestrator.plugins.memory.plugin import memory_help
    from orchestrator.plugins.memory.sessions import RunMemory

    words = _words_of_memory(rest)
    if not words or words == ["help"]:
        chat.view.rows([(f"/memory {what}", text) for what, text in memory_help()])
        return
    try:
        options = parse(["memory", *words])
    except (UsageError, SystemExit) as error:
        raise ConfigurationError(f"/memory: {error}; /memory help lists the actions") from None
    if options.repo:
        raise ConfigurationError("/memory shows the memory of this conversation only: leave out --repo")
    memory = (await chat.program()).memory
    if not isinstance(memory, RunMemory):
        raise ConfigurationError("another plug-in remembers for this conversation")
    if options.action not in CREATES and not memory.file.exists():
        chat.view.say("nothing is remembered on this machine")
        return
    out = StringIO()
    with redirect_stdout(out):
        await act(memory.opened(), options)
    chat.view.say(out.getvalue().rstrip("\n") or "nothing was found")


_WORDS_BEFORE_TEXT = {"add": 0, "search": 0, "edit": 2}
"""The actions of `/memory` whose last argument is the rest of the line, and how many words stand before it."""


def _words_of_memory(rest: str) -> list[str]:
    action, _, text = rest.partition(" ")
    if action not in _WORDS_BEFORE_TEXT:
        try:
            return shlex.split(rest)
        except ValueError as error:
            raise ConfigurationError(f"{rest[:60]}: {error}") from None
    words = [action]
    while (text := text.lstrip()) and (len(words) <= _WORDS_BEFORE_TEXT[action] or text.startswith("--")):
        count = 2 if text.startswith("--") else 1
        *first, text = [*text.split(maxsplit=count), ""][: count + 1]
        words += first
    quote = text[:1]
    if len(text) > 1 and quote in {'"', "'"} and text.endswith(quote) and quote not in text[1:-1]:
        text = text[1:-1]
    return [*words, "--", text] if text else words


COMMANDS = (
    SlashCommand("/memory", "ACTION", "show or change the memory of this machine; /memory help", _memory),
)

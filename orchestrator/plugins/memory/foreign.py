"""The memories and documents in a folder of another assistant.

The layout of the folder is that of the assistant specification (sections 2.4.3 and 11.3). The fields of the files in
`documents` and `metadata` are those that the program of that specification writes:
https://github.com/tgittos/scaffold, `src/db/document_store.c` and `src/db/metadata_store.c`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from orchestrator.core.confined import ConfinedFolder
from orchestrator.core.errors import ConfigurationError
from orchestrator.plugins.memory.items import Importance, MemoryType, expiry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

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
                found.setdefault(key, json.dumps(_item(index, value, value.get(kept))))
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


def _item(index: str, value: Mapping[str, Any], metadata: object) -> dict[str, Any]:
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

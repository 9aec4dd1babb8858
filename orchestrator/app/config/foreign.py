"""What a folder or a file of another assistant holds: settings, memories and documents.

The configuration and the layout of the folder are those of the assistant specification (sections 3, 2.4.3 and 11.3). The
fields of the files in `documents` and `metadata` are those that the program of that specification writes:
https://github.com/tgittos/scaffold, `src/db/document_store.c` and `src/db/metadata_store.c`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from orchestrator.app.config.settings import (
    Origin,
    SourceKind,
    as_toml,
    check_value,
    nearest_to,
    read_json_file,
)
from orchestrator.core.checks import is_whole
from orchestrator.core.confined import ConfinedFolder
from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.models.catalog import Provider, detect_provider, is_official

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_KEYS = {"anthropic_api_key": "ANTHROPIC_API_KEY", "openai_api_key": "OPENAI_API_KEY"}
_RENAMED_KEYS = {
    "embedding_api_url": "embedding_api_url",
    "embedding_model": "embedding_model",
    "system_prompt": "system_prompt",
    "context_window": "context_window",
    "max_tokens": "max_output_tokens",
    "max_subagents": "max_subagents",
    "subagent_timeout": "subagent_timeout_seconds",
}
"""Keys that only have another name here."""
_MODEL, _URL, _OTHER_URL, _SERVERS = "model", "api_url", "openai_api_url", "mcpServers"
_KNOWN = (_URL, _MODEL, *_KEYS, _OTHER_URL, *_RENAMED_KEYS, _SERVERS)
_AUTOMATIC = -1
_ENDINGS = ("/chat/completions", "/messages", "/responses", "/embeddings")
_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True)
class Imported:
    """The settings read from a foreign file.

    Attributes:
        values: values by option key.
        notes: what the person has to do or to know, one line each.
    """

    values: Mapping[str, Any]
    notes: tuple[str, ...]


def read_foreign(path: Path, holds_secret: Callable[[str], bool]) -> Imported:
    """Read a `ralph.config.json` file.

    Args:
        holds_secret: returns whether a text is or has a secret; such a value is left out.

    Raises:
        ConfigurationError: the file cannot be read, is not a JSON object, or has a value that an option does
            not allow.
    """
    given = read_json_file(path)
    if not isinstance(given, dict):
        raise ConfigurationError(f"{path} must hold one JSON object with the settings")
    notes = [_key_note(key, given) for key in _KEYS if given.get(key)]
    if servers := given.get(_SERVERS):
        count = len(servers) if isinstance(servers, dict | list) else 1
        notes.append(
            f"{_SERVERS}: {count} not imported; name the file when you run, with --mcp-config {path}, "
            f"or for all runs in your own file: mcp_config = {as_toml(str(path.absolute()))}"
        )
    notes += [
        f"{key[:_SHOWN_CHARS]!r} is not known and was left out; the nearest key is {nearest_to(key, _KNOWN)!r}"
        for key in given
        if key not in _KNOWN
    ]
    values: dict[str, Any] = _model(given)
    for key, ours in _RENAMED_KEYS.items():
        value = given.get(key)
        if value in (None, "") or (key == "max_tokens" and value == _AUTOMATIC):
            continue
        values[ours] = float(value) if key == "subagent_timeout" and is_whole(value) else value
    for ours, value in list(values.items()):
        if isinstance(value, str) and holds_secret(value):
            notes.append(f"{ours} holds what looks like a key or password and was left out")
            del values[ours]
        else:
            check_value(ours, value, Origin(SourceKind.USER_FILE, str(path)))
    return Imported(values, tuple(notes))


def _key_note(key: str, given: Mapping[str, Any]) -> str:
    url = given.get(_OTHER_URL) or given.get(_URL) or ""
    is_own_server = key == "openai_api_key" and isinstance(url, str) and url and not is_official(url)
    variable = "PULLWRIGHT_API_KEY" if is_own_server else _KEYS[key]
    return f"{key} was not copied: keys do not belong in files; set the environment variable {variable}"


def _model(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model and its address, without the address if it is a vendor's own.

    A vendor's own address only selects the provider.
    """
    name, url = given.get(_MODEL) or "", given.get(_URL) or ""
    if given.get(_OTHER_URL) and (not url or _provider(url) is Provider.OPENAI):
        url = given[_OTHER_URL]
    values: dict[str, Any] = {}
    if url and not (isinstance(url, str) and is_official(url)):
        values[_URL] = _base(url)
    if name and isinstance(name, str) and _URL not in values:
        values[_MODEL] = f"{_provider(url) if url else Provider.OPENAI}:{name}"
    elif name:
        values[_MODEL] = name
    return values


def _provider(url: object) -> Provider | None:
    return detect_provider(url) if isinstance(url, str) else None


def _base(url: object) -> object:
    """Return the address without the path of a single API request."""
    if isinstance(url, str):
        for ending in _ENDINGS:
            url = url.removesuffix(ending)
    return url


_CONFIGS = ("ralph.config.json", "config.json")
_MEMORIES = "long_term_memory"
_NOT_TAKEN = frozenset({"conversations"})
"""Indices of what was said, not of what is to be remembered."""
_MOST_ITEM_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class ForeignFolder:
    """What a folder holds.

    Attributes:
        config: path of its configuration; None if there is none.
        items: memories and documents, as `LongTermMemory.import_items` reads them.
        notes: what was not taken, one line each.
    """

    config: Path | None
    items: tuple[str, ...]
    notes: tuple[str, ...]


def read_foreign_folder(folder: Path) -> ForeignFolder:
    """Read a folder such as `~/.local/ralph`.

    Raises:
        ConfigurationError: the folder cannot be read.
    """
    try:
        with ConfinedFolder(folder) as opened:
            config = next((folder / name for name in _CONFIGS if opened.is_file(name)), None)
            items, notes = _items(opened)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be read: {error.strerror or error}") from None
    return ForeignFolder(config, tuple(items), tuple(notes))


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
    from orchestrator.engine.memory.items import Importance, MemoryType, expiry

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

"""Creates the memory of this machine from the settings, and the embedder that searches it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from orchestrator.app.config.keys import secret_values
from orchestrator.bot.git.folders import address_key
from orchestrator.core.addresses import is_loopback
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.repositories import repository_key
from orchestrator.engine.policy.secrets import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from orchestrator.app.wiring import BuildContext
    from orchestrator.bot.journal.folders import Home
    from orchestrator.core.messages import Usage
    from orchestrator.engine.memory.embedding import Embedder
    from orchestrator.engine.memory.memory import LongTermMemory

USUAL_MODEL = "text-embedding-3-small"
_ALLOWED = "yes"
_OPENAI_HOST = "api.openai.com"
_TRIES = 3
_SECONDS = 60.0


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
        """Store the person's decision.

        Raises:
            ConfigurationError: it cannot be written.
        """
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.write_text(_ALLOWED if is_allowed else "no", encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"{self._path} cannot be written: {error.strerror or error}") from error

    @property
    def _path(self) -> Path:
        return self.home.memories / "folders" / address_key(f"{self.folder}\0{self.repository}")


class LazyMemory:
    """Opens a memory at its first use, because most runs have nothing to remember."""

    def __init__(self, open_it: Callable[[], LongTermMemory]) -> None:
        self._open = open_it
        self._opened: LongTermMemory | None = None

    def __call__(self) -> LongTermMemory:
        """Return the memory. Open it if necessary."""
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    async def aclose(self) -> None:
        """Close the memory if it is open."""
        if self._opened is not None:
            await self._opened.aclose()


def open_memory(
    context: BuildContext, repository: str = "", redactor: Redactor | None = None
) -> LongTermMemory:
    """Open the memory. Create its file if there is none.

    Args:
        repository: see `memory_file`.
        redactor: removes secrets from memories; None for the secrets of the environment.

    Raises:
        ConfigurationError: the embeddings server cannot be used as configured.
        MemoryStoreError: the file cannot be used.
    """
    from orchestrator.engine.memory.memory import LongTermMemory
    from orchestrator.engine.memory.store import MemoryStore

    embedder = choose_embedder(context)
    known = redactor or Redactor(secret_values(context.environ))
    store = MemoryStore(memory_file(context.home, repository), known.redact)
    return LongTermMemory(store, embedder, context.clock)


def choose_embedder(context: BuildContext) -> Embedder:
    """Create the embedder of the settings: a server's, or this machine's if the extra is installed.

    Without both, words are compared by their letters.

    Raises:
        ConfigurationError: the model needs a server or the extra, or the address is not valid.
    """
    from orchestrator.engine.memory.embedding import ServerEmbedder
    from orchestrator.engine.models.transport import HttpOptions, JsonServer
    from orchestrator.engine.models.wire import endpoint

    settings = context.settings
    if settings.embedding_api_url is None:
        return _without_server(settings.embedding_model)
    url = endpoint(settings.embedding_api_url, "/embeddings")
    server = JsonServer(
        url,
        api_key=_key(context, url),
        clock=context.clock,
        random=random.random,
        options=HttpOptions(read_seconds=_SECONDS, total_seconds=_SECONDS, tries=_TRIES),
    )
    model = settings.embedding_model or USUAL_MODEL
    return ServerEmbedder(server, model, partial(_price, url, model), settings.embedding_dimension)


def _price(url: str, model: str, usage: Usage) -> float | None:
    """Return the price of a request to an embeddings server. A server on this machine costs nothing."""
    from orchestrator.engine.models.catalog import price_usd

    return 0.0 if is_loopback(urlsplit(url).hostname or "") else price_usd(url, model, usage)


def _without_server(model: str | None) -> Embedder:
    from orchestrator.engine.memory.embedding import (
        OFFLINE_MODEL,
        LexicalEmbedder,
        OfflineEmbedder,
        is_installed,
    )

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


def _key(context: BuildContext, url: str) -> str | None:
    """Return the key for an embeddings server.

    It is the server's own key, OpenAI's key for OpenAI, or the model's key if both are the same server. Only
    the server's own key is sent over a plain connection to another machine.
    """
    host, keys = urlsplit(url).hostname or "", context.keys
    if keys.embedding:
        return keys.embedding
    if urlsplit(url).scheme != "https" and not is_loopback(host):
        return None
    if host == _OPENAI_HOST:
        return keys.openai
    model_url = context.settings.api_url
    return keys.other if model_url and urlsplit(model_url).netloc == urlsplit(url).netloc else None

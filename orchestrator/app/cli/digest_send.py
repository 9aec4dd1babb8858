"""Sends a digest: to a chat's webhook, whose address is a secret, or as a comment on an issue."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import ConfigurationError, ConnectionFailedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Event

WEBHOOK_VARIABLE = "PULLWRIGHT_WEBHOOK"
MOST_CHARS = 1_900
"""Discord takes 2,000 in a message, and the others more.
https://docs.discord.com/developers/resources/webhook#execute-webhook"""
_SECONDS = 10.0
_RETRY_SECONDS = 2.0
_TRIES = 2
_MOST_URL_CHARS = 2_000
_OK = range(200, 300)
_BUSY = frozenset({429, *range(500, 600)})
_COMMENT = "digest"
# Slack calls people and channels with <!...>: https://docs.slack.dev/messaging/formatting-message-text
_NO_TAGS = str.maketrans({"<": "\u2039", ">": "\u203a"})


def webhook_of(environ: Mapping[str, str]) -> str | None:
    """The webhook's address, if there is one.

    Raises:
        ConfigurationError: it is no https address; the message does not hold it.
    """
    from urllib.parse import urlsplit

    from orchestrator.core.addresses import holds_credential

    address = environ.get(WEBHOOK_VARIABLE, "").strip()
    if not address:
        return None
    try:
        parts = urlsplit(address)
        good = parts.scheme == "https" and bool(parts.hostname) and not holds_credential(address)
    except ValueError:
        good = False
    if not good or not address.isascii() or not address.isprintable() or " " in address:
        raise ConfigurationError(f"{WEBHOOK_VARIABLE} must hold one https:// address")
    if len(address) > _MOST_URL_CHARS:
        raise ConfigurationError(f"{WEBHOOK_VARIABLE} holds more than {_MOST_URL_CHARS:,} characters")
    return address


def as_message(markdown: str) -> str:
    """The text for a chat: nobody is called, nothing is a tag, cut at the end of a line."""
    text = markdown.translate(_NO_TAGS)
    if len(text) <= MOST_CHARS:
        return text
    kept = text[: MOST_CHARS - 2]
    return f"{kept[: kept.rfind(chr(10))] if chr(10) in kept else kept}\n…"


async def send(address: str, text: str, clock: Clock) -> None:
    """Post a message; Slack, Teams and Discord (with `/slack` behind its address) take `{"text": ...}`.

    Raises:
        ConnectionFailedError: it could not be posted, in two tries; the message does not hold the address.
    """
    import httpx2

    problem = ""
    # No redirects: the address is the key to the channel, and stays where it is.
    async with httpx2.AsyncClient(timeout=_SECONDS, follow_redirects=False) as client:
        for attempt in range(_TRIES):
            if attempt:
                await clock.sleep(_RETRY_SECONDS)
            try:
                async with client.stream("POST", address, json={"text": text}) as reply:
                    status = reply.status_code  # what else it says is not read
            except (httpx2.TransportError, httpx2.InvalidURL) as error:
                problem = f"cannot be reached ({type(error).__name__})"
                continue
            if status in _OK:
                return
            problem = f"answered {status}"
            if status not in _BUSY:
                break
    raise ConnectionFailedError(f"the webhook {problem}; the digest was not sent to it")


def comment(repository: str, number: int, body: str, clock: Clock) -> str:
    """Put the digest on an issue, in place of the one before, and say where.

    Raises:
        ConfigurationError: the repository cannot be what was named, or there is no token to write with.
        ForgeError: the forge did not take it.
    """
    from orchestrator.app.config import ApiKeys, load
    from orchestrator.app.wiring.context import BuildContext
    from orchestrator.app.wiring.forge import choose_site
    from orchestrator.bot.cycle.parts import Stop
    from orchestrator.bot.journal.folders import Home

    loaded = load({}, os.environ, Path.cwd())
    context = BuildContext(loaded, ApiKeys.of(os.environ), Home.of(os.environ), clock, _unheard, Stop())
    return choose_site(repository, context, writes=True).forge.ensure_comment(number, _COMMENT, body)


def _unheard(_event: Event) -> None:
    """Nobody listens: a digest is no run."""

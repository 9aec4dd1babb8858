"""`pullwright digest`: what was done, what was not and why, and what it cost."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.digest_send import as_message, comment, send, webhook_of
from orchestrator.app.cli.digest_text import Words, as_markdown, run_as_markdown
from orchestrator.app.cli.exit_codes import DONE, FAILED
from orchestrator.app.cli.text import as_json_text, clean
from orchestrator.bot.journal.digest import make_digest
from orchestrator.bot.journal.folders import Home
from orchestrator.bot.journal.index import summarise
from orchestrator.bot.journal.reader import find_run
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError, ConnectionFailedError

if TYPE_CHECKING:
    import argparse

    from orchestrator.bot.journal.digest import Digest
    from orchestrator.bot.journal.index import RunSummary
    from orchestrator.core.clock import Clock
    from orchestrator.core.spent import Spent
    from orchestrator.engine.policy.secrets import Redactor

_DEFAULT_SINCE = "24h"
_SPAN = re.compile(r"(\d{1,6})([mhdw])")
_SPAN_HOURS = {"m": 1 / 60, "h": 1, "d": 24, "w": 7 * 24}
_POST = re.compile(r"issue:([1-9]\d{0,17})")


def digest(options: argparse.Namespace) -> int:
    """Print the digest of a time, or of one run, and send the first where it is wanted.

    Raises:
        ConfigurationError: a time, a place to post to, or the webhook is none.
        JournalError: the runs cannot be read, or there is no such run.
        ForgeError: the issue's comment was not taken.
    """
    home, clock = Home.of(os.environ), SystemClock()
    redactor = _redactor()
    words = Words(redactor.redact)
    if options.run is not None:
        if options.post is not None or options.since is not None:
            raise ConfigurationError("digest --run prints one run: leave out --since and --post")
        note = summarise(find_run(home, options.run))
        _print(as_json_text(_run_fields(note, redactor)) if options.json else run_as_markdown(note, words))
        return DONE
    number = _issue(options.post)
    if number is not None and not options.repo:
        raise ConfigurationError("digest --post needs --repo owner/name: whose issue is it?")
    now = clock.now()
    since = since_time(options.since or _DEFAULT_SINCE, now)
    found = make_digest(home, since, now, _label(options.repo))
    text = clean(as_markdown(found, words))
    _print(as_json_text(_fields(found, redactor)) if options.json else text)
    if number is not None:
        print(f"pullwright: the digest is at {comment(options.repo, number, text, clock)}", file=sys.stderr)
    return _send(text, clock)


def _label(repository: str | None) -> str | None:
    """The repository as journals name it, from what was typed."""
    if repository is None:
        return None
    from orchestrator.app.config import load
    from orchestrator.app.wiring.forge import label_of

    return label_of(repository, load({}, os.environ, Path.cwd()).settings.github_url)


def since_time(text: str, now: datetime) -> datetime:
    """The time that `24h`, `7d` or `2026-11-20` (UTC) names.

    Raises:
        ConfigurationError: it names none, or one that is still to come.
    """
    if match := _SPAN.fullmatch(text.strip()):
        return now - timedelta(hours=min(int(match[1]) * _SPAN_HOURS[match[2]], 24 * 365_000))
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigurationError(
            f"--since {clean(text)[:40]!r} is no time: write 24h, 7d, or a date such as 2026-11-20"
        ) from None
    at = at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    if at > now:
        raise ConfigurationError(f"--since {clean(text)[:40]!r} is still to come")
    return at


def _issue(post: str | None) -> int | None:
    if post is None:
        return None
    match = _POST.fullmatch(post)
    if match is None:
        raise ConfigurationError(f"--post {clean(post)[:40]!r} is no place: write issue:N")
    return int(match[1])


def _send(text: str, clock: Clock) -> int:
    address = webhook_of(os.environ)
    if address is None:
        return DONE
    try:
        asyncio.run(send(address, as_message(text), clock))
    except ConnectionFailedError as error:
        print(f"pullwright: {error}", file=sys.stderr)
        return FAILED
    return DONE


def _redactor() -> Redactor:
    from orchestrator.app.config import secret_values
    from orchestrator.engine.policy.secrets import Redactor

    return Redactor(secret_values(os.environ))


def _print(text: str) -> None:
    print(clean(text), flush=True)


def _fields(found: Digest, redactor: Redactor) -> dict[str, Any]:
    def ids(runs: list[RunSummary]) -> list[str]:
        return [run.id for run in runs]

    return {
        "since": found.since.isoformat(timespec="seconds"),
        "now": found.now.isoformat(timespec="seconds"),
        "pull_requests": ids(found.pulls),
        "questions": ids(found.questions),
        "undone": [{"run": one.run.id, "times": one.times} for one in found.undone],
        "kept": ids(found.kept),
        "working": ids(found.working),
        "skipped": [{"reason": redactor.redact(why), "times": times} for why, times in found.skipped],
        "costs": [
            {"repository": redactor.redact(where), "model": model, **_spent_fields(spent)}
            for (where, model), spent in found.costs.items()
        ],
        "spent": _spent_fields(found.spent),
        "requests": found.requests,
        "next": {redactor.redact(name): pause.until.isoformat() for name, pause in found.waking.items()},
        "runs": [_run_fields(run, redactor) for run in found.runs],
    }


def _run_fields(run: RunSummary, redactor: Redactor) -> dict[str, Any]:
    task, pull = run.task, run.pull
    fields = {
        "run": run.id,
        "started": run.started.isoformat(timespec="seconds") if run.started else None,
        "repository": run.repository,
        "model": run.model,
        "outcome": run.outcome,
        "task": {"key": task.key, "title": task.title, "number": task.number, "url": run.task_url}
        if task
        else None,
        "pull_request": dataclasses.asdict(pull) if pull else None,
        "question": run.question or None,
        "question_url": run.question_url or None,
        "reason": run.reason or None,
        "error": run.error or None,
        "patch": run.patch or None,
        "saved": run.saved or None,
        "touched": list(run.touched),
        **_spent_fields(run.spent),
        "requests": run.requests,
    }
    clean_fields: dict[str, Any] = redactor.redact_value(fields)
    return clean_fields


def _spent_fields(spent: Spent) -> dict[str, Any]:
    return {
        "usd": spent.usd,
        "tokens": spent.tokens,
        "rounds": spent.rounds,
        "minutes": round(spent.minutes, 2),
    }

"""`pullwright fleet`: workers on any number of machines that share one queue, and what a person asks of it."""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import DONE, NOTHING
from orchestrator.app.cli.worker import Members, WorkerRun, database_file, open_store
from orchestrator.app.config.fleet import load_fleet
from orchestrator.app.config.keys import ApiKeys
from orchestrator.app.config.settings import nearest_to
from orchestrator.app.words import as_json_text, clean, money, short_line
from orchestrator.bot.coordination.claim_record import claim_ref
from orchestrator.bot.journal.folders import Home
from orchestrator.core.addresses import holds_credential
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.repositories import repository_key

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from orchestrator.bot.fleet.store import FleetStore, FleetWorkerState, QueuedTurn, RepositoryState


def fleet(options: argparse.Namespace) -> int:
    """Run a worker of a fleet, or look at its queue and change it.

    Raises:
        ConfigurationError: the file, an option, or the database's URL is wrong.
        FleetError: the database cannot be reached.
    """
    path = Path(options.config).expanduser()
    file = load_fleet(path, os.environ)
    url = database_url(options.database_url, os.environ, path)
    if options.action == "run":
        return asyncio.run(WorkerRun(file, options, url, alone=False).run())
    keys = Members(options, Home.of(os.environ), SystemClock()).keys(file.repositories)
    with _opened(url) as store:
        return _ACTIONS[options.action](store, options, keys)


def database_url(typed: str | None, environ: Mapping[str, str], config: Path) -> str:
    """Return the URL of the fleet's database; without one, that of the file which `pullwright worker` has, too.

    Raises:
        ConfigurationError: what was typed holds a password.
    """
    if typed is not None and (holds_credential(typed) or re.search(r"[?&]password=", typed)):
        raise ConfigurationError(
            "--database-url holds a password, which everybody on this machine could read: "
            "put the whole URL into PULLWRIGHT_DATABASE_URL"
        )
    return typed or ApiKeys.of(environ).database or database_file(config, environ)


@contextmanager
def _opened(url: str) -> Iterator[FleetStore]:
    store = open_store(url, patient=False)
    store.open()
    try:
        yield store
    finally:
        store.close()


def _named(typed: str, keys: Mapping[str, str], config: str) -> str:
    """Return the key of a repository that a person named, as the file names it or in another spelling."""
    found = {repository_key(name): key for name, key in keys.items()} | dict(keys)
    # A path counts from the folder of the file, as in the file itself.
    folder = str((Path(config).expanduser().parent / Path(typed).expanduser()).resolve())
    key = found.get(typed) or found.get(repository_key(typed)) or found.get(folder)
    if key is None:
        near = nearest_to(typed, tuple(keys))
        raise ConfigurationError(
            f"{config} names no repository {short_line(typed)}; the nearest one is {short_line(near)}"
        )
    return key


def _add(store: FleetStore, options: argparse.Namespace, keys: Mapping[str, str]) -> int:
    key = _named(options.repository, keys, options.config)
    if options.task is None:
        return _told(options, {key: store.wake(key)}, "is looked at now", _UNKNOWN)
    claim_ref(options.task)
    why = "has a turn that runs, is paused, or was never begun: see pullwright fleet status"
    return _told(options, {key: store.ask(key, options.task)}, f"tries {options.task} next", why)


def _pause(store: FleetStore, options: argparse.Namespace, keys: Mapping[str, str]) -> int:
    wanted = [_named(name, keys, options.config) for name in options.repository]
    found = {key: store.pause(key, clean(options.reason)) for key in wanted}
    return _told(options, found, "is paused; what runs goes on to its end", _UNKNOWN)


def _resume(store: FleetStore, options: argparse.Namespace, keys: Mapping[str, str]) -> int:
    wanted = [_named(name, keys, options.config) for name in options.repository]
    return _told(options, {key: store.resume(key) for key in wanted}, "goes on", _UNKNOWN)


def _cancel(store: FleetStore, options: argparse.Namespace, keys: Mapping[str, str]) -> int:
    key = _named(options.repository, keys, options.config)
    done = {key: store.cancel(key)}
    return _told(
        options, done, "goes on with another task; a cycle that runs ends within seconds", "has no turn"
    )


def _drain(store: FleetStore, options: argparse.Namespace, keys: Mapping[str, str]) -> int:
    del keys
    names = ", ".join(one.worker for one in store.workers()) or "none"
    why = f"is no worker; there are: {names}"
    done = {options.worker: store.drain(options.worker)}
    return _told(options, done, "ends after the rounds that it runs", why)


_UNKNOWN = "has not been begun: start a worker with pullwright fleet run"


def _told(options: argparse.Namespace, done: Mapping[str, bool], what: str, otherwise: str) -> int:
    """Say what was done to each, and what was not."""
    for name, is_done in done.items():
        if options.json:
            print(as_json_text({"kind": options.action, "name": name, "done": is_done}))
        else:
            print(f"{short_line(name)} {what if is_done else otherwise}")
    return DONE if all(done.values()) else NOTHING


def _list(store: FleetStore, options: argparse.Namespace, keys: Mapping[str, str]) -> int:
    del keys
    turns = store.queued()
    if options.json:
        for one in turns:
            print(as_json_text(_turn_json(one)))
        return DONE if turns else NOTHING
    if not turns:
        print("the queue is empty")
        return NOTHING
    rows = [("REPOSITORY", "TASK", "STATE", "SINCE OR AT (UTC)", "WORKER", "TITLE")]
    rows += [
        (
            short_line(one.turn.repository),
            one.turn.task or "look",
            one.state,
            _time(one.at or one.queued_at),
            one.worker,
            short_line(one.turn.title, 60),
        )
        for one in turns
    ]
    _table(rows)
    return DONE


def _turn_json(one: QueuedTurn) -> dict[str, Any]:
    return {
        "workflow": one.workflow,
        "repository": one.turn.repository,
        "task": one.turn.task or None,
        "title": one.turn.title or None,
        "state": one.state,
        "at": one.at.isoformat(timespec="seconds") if one.at else None,
        "queued_at": one.queued_at.isoformat(timespec="seconds"),
        "worker": one.worker or None,
    }


def _status(store: FleetStore, options: argparse.Namespace, keys: Mapping[str, str]) -> int:
    del keys
    workers, repositories, turns = store.workers(), store.repositories(), store.queued()
    if options.json:
        print(as_json_text(_status_json(store, workers, repositories, turns)))
        return DONE
    states = {one.turn.repository: one for one in turns}
    running = sum(one.state == "running" for one in turns)
    waiting = sum(one.state == "queued" for one in turns)
    print(f"{running} running, {waiting} waiting, {money(store.limits.spent_today())} today (UTC)")
    print()
    _table(
        [("WORKER", "VERSION", "CYCLES AT A TIME", "LAST SEEN (UTC)", "")]
        + [
            (
                one.worker,
                one.version,
                str(one.parallel),
                f"{one.seen_at:%Y-%m-%d %H:%M:%S}",
                "drains" if one.draining else "",
            )
            for one in workers
        ]
    )
    print()
    _table(
        [("REPOSITORY", "STATE", "CYCLES TODAY", "COST TODAY", "WHY")]
        + [
            (
                short_line(one.repository),
                *_words(one, states.get(one.repository)),
                str(one.cycles),
                money(one.usd),
                _why(one),
            )
            for one in repositories
        ]
    )
    return DONE


def _words(one: RepositoryState, turn: QueuedTurn | None) -> tuple[str]:
    if one.paused is not None:
        return ("paused by hand",)
    if one.halted is not None:
        return ("needs a person",)
    if turn is None:
        return ("",)
    what = turn.turn.task or "look"
    match turn.state:
        case "running":
            return (f"{what} on {turn.worker}",)
        case "delayed":
            return (f"{'paused until' if one.pause else 'next'} {_time(turn.at)}",)
        case _:
            return (f"{what} waits",)


def _why(one: RepositoryState) -> str:
    return short_line(one.paused or one.halted or (one.pause.reason if one.pause else ""), 100)


def _status_json(
    store: FleetStore,
    workers: Sequence[FleetWorkerState],
    repositories: Sequence[RepositoryState],
    turns: Sequence[QueuedTurn],
) -> dict[str, Any]:
    return {
        "workers": [
            {
                "worker": one.worker,
                "version": one.version,
                "parallel": one.parallel,
                "started_at": one.started_at.isoformat(timespec="seconds"),
                "seen_at": one.seen_at.isoformat(timespec="seconds"),
                "draining": one.draining,
            }
            for one in workers
        ],
        "repositories": [
            {
                "repository": one.repository,
                "paused": one.paused,
                "halted": one.halted,
                "paused_until": one.pause.until.isoformat(timespec="seconds") if one.pause else None,
                "reason": one.pause.reason if one.pause else None,
                "cycles_today": one.cycles,
                "usd_today": one.usd,
            }
            for one in repositories
        ],
        "queue": [_turn_json(one) for one in turns],
        "usd_today": store.limits.spent_today(),
    }


def _time(when: datetime | None) -> str:
    return f"{when:%Y-%m-%d %H:%M}" if when else ""


def _table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


_ACTIONS = {
    "list": _list,
    "status": _status,
    "add": _add,
    "pause": _pause,
    "resume": _resume,
    "cancel": _cancel,
    "drain": _drain,
}

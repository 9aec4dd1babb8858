"""`pullwright fleet`: runs workers that share one queue, prints the queue, and changes it as a person asks.

A `ConfigurationError` means that the file, an option or the database's URL is wrong, or that a package is not
installed; a `FleetError` that the database cannot be reached.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import DONE, NOTHING
from orchestrator.app.cli.output import print_table
from orchestrator.app.config.settings import nearest_to
from orchestrator.app.plugins import absence_words, installed
from orchestrator.app.terminal import known_secrets, print_json
from orchestrator.app.words import clean, money, short_line
from orchestrator.bot.journal.folders import Home
from orchestrator.bot.suggestions import install_command
from orchestrator.core.addresses import holds_credential
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.repositories import repository_key
from orchestrator.engine.models.keys import ApiKeys
from orchestrator.plugins.fleet.fleet_file import FleetSettings, load_fleet

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from orchestrator.plugins.fleet.control import FleetSnapshot
    from orchestrator.plugins.fleet.rows import UnreadableRow
    from orchestrator.plugins.fleet.store import FleetStore, RepositoryState
    from orchestrator.plugins.fleet.turns import QueuedTurn


def fleet(options: argparse.Namespace) -> int:
    """Run a worker of a fleet, or look at its queue and change it."""
    path = Path(options.config).expanduser()
    file = load_fleet(path, os.environ)
    url = database_url(options.database_url, os.environ, path)
    if options.action == "run":
        if (worker := installed().get("worker")) is None:
            raise ConfigurationError(absence_words("fleet run", "worker"))
        status: int = worker.load(".run:run_worker")(file, options, url, alone=False)
        return status
    settings = FleetSettings(options)
    keys = {one.name: settings.key(one) for one in file.repositories}
    with _opened(url) as store:
        if options.action not in {"list", "status"}:
            return _steer(store, options, keys)
        from orchestrator.plugins.fleet.control import read_snapshot

        show = _list if options.action == "list" else _status
        return show(read_snapshot(store), as_json=options.json)


def database_url(typed: str | None, environ: Mapping[str, str], config: Path) -> str:
    """Return the URL of the fleet's database. The default is the file that `pullwright worker` uses, too."""
    if typed is not None and (holds_credential(typed) or re.search(r"[?&]password=", typed)):
        raise ConfigurationError(
            "--database-url holds a password, which everybody on this machine could read: "
            "put the whole URL into PULLWRIGHT_DATABASE_URL"
        )
    return typed or ApiKeys.of(environ).database or database_file(config, environ)


def database_file(config: Path, environ: Mapping[str, str], *, dry_run: bool = False) -> str:
    """Return the URL of the SQLite file on this machine that holds the queue of a fleet's file.

    Args:
        dry_run: whether to return the queue of dry runs, which do not change the other one.
    """
    name = hashlib.sha256(str(config.absolute().resolve()).encode()).hexdigest()[:12]
    folder = Home.of(environ).fleets
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        problem = f"the queue's folder {folder} cannot be made: {error.strerror or error}"
        raise ConfigurationError(f"{problem}; name another state folder with PULLWRIGHT_HOME") from None
    return f"sqlite:///{folder / name}{'-dry-run' if dry_run else ''}.db"


def open_store(url: str, *, patient: bool) -> FleetStore:
    """Return the store of a fleet's queue, which is not connected yet."""
    try:
        from orchestrator.plugins.fleet.store import FleetStore
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the queue needs the package {error.name}: {install_command('fleet')}"
        ) from None
    return FleetStore(url, SystemClock(), patient=patient, redactor=known_secrets(os.environ))


@contextmanager
def _opened(url: str) -> Iterator[FleetStore]:
    store = open_store(url, patient=False)
    store.open()
    try:
        yield store
    finally:
        store.close()


def _named(typed: str, keys: Mapping[str, str], config: str) -> str:
    """Return the key of a repository, which may be typed in another spelling than in the file."""
    found = {repository_key(name): key for name, key in keys.items()} | dict(keys)
    # A path is relative to the folder of the file, as in the file itself.
    folder = str((Path(config).expanduser().parent / Path(typed).expanduser()).resolve())
    key = found.get(typed) or found.get(repository_key(typed)) or found.get(folder)
    if key is None:
        near = nearest_to(typed, tuple(keys))
        raise ConfigurationError(
            f"{config} names no repository {short_line(typed)}; the nearest one is {short_line(near)}"
        )
    return key


def _steer(store: FleetStore, options: argparse.Namespace, keys: Mapping[str, str]) -> int:
    """Do what the person asks of the queue, and print what was done and what was not."""
    from orchestrator.plugins.fleet import control

    typed = getattr(options, "repository", [])
    names = [typed] if isinstance(typed, str) else typed
    wanted = [_named(name, keys, options.config) for name in names]
    match options.action:
        case "add":
            results = {key: control.add(store, key, options.task or "") for key in wanted}
        case "pause":
            results = {key: control.pause(store, key, clean(options.reason)) for key in wanted}
        case "resume":
            results = {key: control.resume(store, key) for key in wanted}
        case "cancel":
            results = {key: control.cancel(store, key) for key in wanted}
        case _:
            results = {options.worker: control.drain(store, options.worker)}
    for name, one in results.items():
        if options.json:
            print_json({"kind": options.action, "name": name, "done": one.is_done})
        else:
            print(f"{short_line(name)} {one.words}")
    return DONE if all(one.is_done for one in results.values()) else NOTHING


def _list(snapshot: FleetSnapshot, *, as_json: bool) -> int:
    if as_json:
        for one in snapshot.turns:
            print_json(_turn_json(one, snapshot))
        for row in snapshot.unreadable:
            print_json({"unreadable": _unreadable_json(row)})
        return DONE if snapshot.turns else NOTHING
    _print_unreadable(snapshot)
    if not snapshot.turns:
        print("the queue is empty")
        return NOTHING
    _print_table(
        ("REPOSITORY", "TASK", "STATE", "SINCE OR AT (UTC)", "WHY", "TITLE"),
        *(
            (
                short_line(one.turn.repository),
                one.turn.task or "look",
                one.state,
                _time(one.at or one.queued_at),
                short_line(snapshot.why(one), 80),
                short_line(one.turn.title, 60),
            )
            for one in snapshot.turns
        ),
    )
    return DONE


def _turn_json(one: QueuedTurn, snapshot: FleetSnapshot) -> dict[str, Any]:
    return {
        "workflow": one.workflow,
        "repository": one.turn.repository,
        "task": one.turn.task or None,
        "title": one.turn.title or None,
        "state": one.state,
        "at": one.at.isoformat(timespec="seconds") if one.at else None,
        "queued_at": one.queued_at.isoformat(timespec="seconds"),
        "worker": one.worker or None,
        "priority": one.turn.priority.name.lower(),
        "why": snapshot.why(one),
    }


def _status(snapshot: FleetSnapshot, *, as_json: bool) -> int:
    if as_json:
        print_json(_status_json(snapshot))
        return DONE
    _print_unreadable(snapshot)
    cap = f" of {money(snapshot.day_cap)}" if snapshot.day_cap else ""
    spent = money(snapshot.spent_today)
    print(f"{snapshot.running} running, {snapshot.waiting} waiting, {spent}{cap} today (UTC)")
    print()
    seen = "%Y-%m-%d %H:%M:%S"
    _print_table(
        ("WORKER", "VERSION", "CYCLES AT A TIME", "LAST SEEN (UTC)", ""),
        *(
            (one.worker, one.version, str(one.parallel), f"{one.seen_at:{seen}}", "drains" * one.draining)
            for one in snapshot.workers
        ),
    )
    print()
    _print_table(
        ("REPOSITORY", "STATE", "CYCLES TODAY", "COST TODAY", "WHY"),
        *(
            (
                short_line(one.repository),
                _state(one, snapshot.turn(one.repository)),
                str(one.cycles),
                money(one.usd),
                short_line(_why(one, snapshot), 100),
            )
            for one in snapshot.repositories
        ),
    )
    if snapshot.waiting_tasks:
        print()
        _print_table(
            ("REPOSITORY", "TASK", "WAITS FOR A PERSON"),
            *(
                (short_line(one.repository), short_line(one.task), short_line(one.why, 200))
                for one in snapshot.waiting_tasks
            ),
        )
    if snapshot.request_quotas:
        print()
        _print_table(
            ("REQUESTS", "RESOURCE", "LEFT", "OF", "RESET AT (UTC)"),
            *(
                (short_line(one.name), one.resource, f"{one.remaining:,}", f"{one.limit:,}", _time(one.reset))
                for one in snapshot.request_quotas
            ),
        )
    return DONE


def _state(one: RepositoryState, turn: QueuedTurn | None) -> str:
    if one.paused is not None:
        return "paused by hand"
    if one.halted is not None:
        return "needs a person"
    if turn is None:
        return ""
    what = turn.turn.task or "look"
    match turn.state:
        case "running":
            return f"{what} on {turn.worker}"
        case "delayed":
            return f"{'paused until' if one.pause else 'next'} {_time(turn.at)}"
        case _:
            return f"{what} waits"


def _why(one: RepositoryState, snapshot: FleetSnapshot) -> str:
    turn = snapshot.turn(one.repository)
    if one.paused is not None or one.halted is not None:
        return one.paused or one.halted or ""
    return snapshot.why(turn) if turn is not None and (turn.state == "queued" or one.pause) else ""


def _status_json(snapshot: FleetSnapshot) -> dict[str, Any]:
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
            for one in snapshot.workers
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
            for one in snapshot.repositories
        ],
        "waiting": [
            {"repository": one.repository, "task": one.task, "why": one.why} for one in snapshot.waiting_tasks
        ],
        "queue": [_turn_json(one, snapshot) for one in snapshot.turns],
        "requests": [
            {
                "name": one.name,
                "resource": one.resource,
                "limit": one.limit,
                "remaining": one.remaining,
                "reset_at": one.reset.isoformat(timespec="seconds"),
            }
            for one in snapshot.request_quotas
        ],
        "unreadable": [_unreadable_json(one) for one in snapshot.unreadable],
        "usd_today": snapshot.spent_today,
    }


def _print_unreadable(snapshot: FleetSnapshot) -> None:
    """Print the rows that cannot be read on the channel of errors, so that tables stay tables."""
    for one in snapshot.unreadable:
        print(short_line(one.words, 400), file=sys.stderr)


def _unreadable_json(row: UnreadableRow) -> dict[str, Any]:
    return {"table": row.table, "key": row.key, "why": row.why}


def _time(when: datetime | None) -> str:
    return f"{when:%Y-%m-%d %H:%M}" if when else ""


def _print_table(*rows: tuple[str, ...]) -> None:
    print_table(rows[0], rows[1:])

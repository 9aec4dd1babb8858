"""`pullwright claims`: who works on which task, and taking a task away from a worker."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.cli.exit_codes import DONE, NOTHING
from orchestrator.cli.text import one_line
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError
from orchestrator.workspace.claim_record import spent_fields

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from datetime import datetime, timedelta
    from typing import TextIO

    from orchestrator.workspace.claims import ClaimRecord, Claims, LeaseTimes

_BY_HAND = "by hand"
_HEADS = ("TASK", "WHO", "NO.", "SINCE (UTC)", "STATE")
_MOST_CELL_CHARS = 80
_MINUTES_AN_HOUR = 60


def claims(options: argparse.Namespace) -> int:
    """List, show or release claims.

    Raises:
        ConfigurationError: no repository is named, or it cannot be what was named.
        ForgeError: the forge does not say where the repository is.
        WorkspaceError: the remote cannot be reached, or did not take the release.
    """
    from orchestrator.assembly.remote import open_claims

    if not options.repo:
        raise ConfigurationError("no repository is named: pass --repo owner/name or --repo PATH")
    writes = options.action == "release"
    with open_claims(options.repo, os.environ, Path.cwd(), writes=writes) as (found, times):
        if options.action == "release":
            return release(found, options.key, sys.stdout, as_json=options.json)
        shown = found.show(options.key) if options.action == "show" else None
        records = ([shown] if shown else []) if options.action == "show" else found.list()
        now = SystemClock().now()
        if options.json:
            write_json(records, now, times, sys.stdout)
        elif options.action == "show" and shown is None:
            print(f"nobody ever claimed {one_line(options.key)}")
        else:
            write_text(records, now, times, sys.stdout)
        return DONE


def release(found: Claims, key: str, out: TextIO, *, as_json: bool) -> int:
    """Take a task away from whoever holds it, and say who that was.

    Raises:
        WorkspaceError: the remote cannot be reached, or did not take it; or the key is none.
    """
    shown = found.show(key)
    released = found.release(key, _BY_HAND, shown) if shown is not None else None
    if as_json:
        print(json.dumps({"kind": "release", "task": key, "released": released is not None}), file=out)
    elif released is None:
        print(f"nobody holds {one_line(key)}", file=out)
    else:
        print(f"released {one_line(key)}, held by {_who(released)}; its next push is refused", file=out)
    return DONE if released is not None else NOTHING


def write_text(records: Sequence[ClaimRecord], now: datetime, times: LeaseTimes, out: TextIO) -> None:
    """A table, or one line where there is nothing to tell."""
    if not records:
        print("no claims", file=out)
        return
    rows = [_HEADS, *(_row(record, now, times) for record in records)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip(), file=out)


def write_json(records: Sequence[ClaimRecord], now: datetime, times: LeaseTimes, out: TextIO) -> None:
    """A line for each claim."""
    for record in records:
        print(json.dumps(_fields(record, now, times)), file=out)


def _row(record: ClaimRecord, now: datetime, times: LeaseTimes) -> tuple[str, ...]:
    if record.fault is not None:
        state = one_line(f"{record.fault}; free it with: claims release {record.task}", _MOST_CELL_CHARS * 2)
        return (record.task, record.owner, "-", "-", state)
    since = f"{record.taken_at:%Y-%m-%d %H:%M}"
    return (record.task, _who(record), str(record.number), since, _state(record, now, times))


def _who(record: ClaimRecord) -> str:
    return one_line(f"{record.owner}/{record.run}" if record.run else record.owner, _MOST_CELL_CHARS)


def _state(record: ClaimRecord, now: datetime, times: LeaseTimes) -> str:
    if record.state == "released":
        pull = f", #{record.pull}" if record.pull is not None else ""
        return f"released: {one_line(record.outcome, _MOST_CELL_CHARS)}{pull}"
    if record.is_free(now, times):
        return "expired, free"
    if now > record.expires_at:
        return f"expired {_minutes(now - record.expires_at)} ago, free soon"
    return f"held, expires in {_minutes(record.expires_at - now)}"


def _minutes(duration: timedelta) -> str:
    minutes = max(round(duration.total_seconds() / 60), 0)
    if minutes < 2 * _MINUTES_AN_HOUR:
        return f"{minutes} min"
    return f"{minutes // _MINUTES_AN_HOUR} h"


def _fields(record: ClaimRecord, now: datetime, times: LeaseTimes) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": "claim", "task": record.task, "owner": record.owner}
    if record.fault is not None:
        return fields | {"state": "unreadable", "fault": record.fault, "free": False}
    return fields | {
        "state": record.state,
        "run": record.run,
        "number": record.number,
        "taken_at": record.taken_at.isoformat(),
        "renewed_at": record.renewed_at.isoformat(),
        "expires_at": record.expires_at.isoformat(),
        "outcome": record.outcome,
        "pull": record.pull,
        "spent": spent_fields(record.spent),
        "free": record.is_free(now, times),
    }

"""Unfinished work on the remote: a record with pages at `refs/pullwright/wip/<key>`, whose parent has the files."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.bot.coordination.records import parse_message, write_record
from orchestrator.bot.git.hostgit import printable_line
from orchestrator.bot.git.local import id_kind
from orchestrator.bot.git.remote import Update, is_commit_id, plain_key
from orchestrator.core.errors import PushRejectedError, WorkspaceError
from orchestrator.core.repositories import is_task_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from orchestrator.bot.coordination.records import Records, RemoteRecord
    from orchestrator.bot.git.base import LeftOut, Snapshot
    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.git.hostgit import HostGit
    from orchestrator.bot.git.remote import Fence

WORK = "refs/pullwright/wip/"
MOST_PAGES_BYTES = 20 * 1024 * 1024
"""Most bytes of all pages of one piece of work together."""

_VERSION = 1
_SAVING = "cannot save unfinished work"
# GitHub takes no change to these, on any reference, from a token that may not edit workflows.
_WORKFLOWS = ".github/workflows/"
_NO_WORKFLOWS = "the token may not edit workflows"
_CommitId = Annotated[str, Field(pattern=r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$")]


class WorkForm(BaseModel):
    """The JSON of a record. Unknown fields are ignored: a later version may write more."""

    model_config = ConfigDict(strict=True)

    version: Literal[1]
    key: str
    work: _CommitId | None
    base: _CommitId


@dataclass(frozen=True, slots=True)
class UnfinishedWork:
    """Unfinished work, as read from the remote. Everyone with push access may have written it.

    Attributes:
        commit: the ref's commit, which the next save or drop expects.
        work: the commit for `Clone.apply_work`, with `wip_ref(key)` as its ref; None if no file changed.
        base: the parent of the work.
        pages: at most 20 MiB together.
        fault: why it cannot be read, or None. Then only `key` and `commit` are valid.
    """

    key: str
    commit: str
    work: str | None = None
    base: str = ""
    pages: Mapping[str, bytes] = field(default_factory=dict)
    fault: str | None = None


def wip_ref(key: str) -> str:
    """Return the ref of a task's unfinished work."""
    return WORK + plain_key(key)


@dataclass(frozen=True, slots=True)
class SavedWork:
    """The result of saving unfinished work.

    Attributes:
        commit: the ref's new commit, which the next save or drop expects.
        work: the commit with the changed files, or None if none was changed.
    """

    ref: str
    commit: str
    work: str | None
    left_out: tuple[LeftOut, ...] = ()


def save_wip(  # noqa: PLR0913  each is a fact of the save, given by name
    clone: Clone,
    key: str,
    pages: Mapping[str, bytes],
    *,
    touched: set[str],
    include_commands: bool,
    continues: str | None,
    saved_at: datetime,
    stamp: str,
    lease: Fence,
    find_secrets: Callable[[str], list[str]] = lambda _diff: [],
    redact: Callable[[str], str] = str,
    files: Snapshot | None = None,
) -> SavedWork:
    """Push all changes since the base, committed or not, to the task's hidden ref.

    A secret that a file adds is taken out, or the file is left out and reported. The clone does not change.

    Args:
        pages: information about the work, by plain names, at most 20 MiB together. They are public if the
            repository is: the caller removes secrets.
        touched: as for `Clone.commit`.
        include_commands: as for `Clone.commit`.
        continues: the commit of the saved state that this one contains, or None if it contains none. Only that
            state is replaced: the ref must have this commit, or must not exist.
        stamp: a unique text, such as the run and a number.
        lease: our claim on the task, which moves in the same push.
        find_secrets: returns the places at which a diff adds secrets; see `CommitScreen`.
        redact: removes secrets from a text.
        files: what to save in place of the clone's files, which cannot be read.

    Raises:
        ClaimLostError: somebody else holds the task; nothing was pushed.
        PushRejectedError: the ref is not where it was expected, or the server refused.
        WorkspaceError: git failed, a page cannot be saved, or the key is invalid.
    """
    ref, size = wip_ref(key), sum(map(len, pages.values()))
    if size > MOST_PAGES_BYTES:
        message = f"{_SAVING}: its pages have {size:,} bytes, more than {MOST_PAGES_BYTES:,}"
        raise WorkspaceError(message)
    if continues is not None and not is_commit_id(continues):
        message = f"{_SAVING}: {printable_line(continues)!r} is not a commit id"
        raise WorkspaceError(message)
    doing = f"{_SAVING} at {ref} of {clone.remote.shown}"

    def snapshot(leave_out: Callable[[str], str | None]) -> Snapshot:
        return clone.snapshot(
            touched,
            wip_subject(key),
            include_commands=include_commands,
            find_secrets=find_secrets,
            redact=redact,
            leave_out=leave_out,
        )

    def push(made: Snapshot) -> SavedWork:
        message = wip_message(key, made.commit, made.start, saved_at, stamp)
        parent = made.commit or made.start
        objects = clone.git.git_dir / "objects"
        record = write_record(objects, id_kind(parent), message, parent, pages, saved_at)
        _push(clone.git, Update(ref, continues, record), lease, doing)
        return SavedWork(ref, record, made.commit, made.left_out)

    made = files or snapshot(lambda _path: None)
    try:
        return push(made)
    except PushRejectedError as error:
        if files is not None or "workflow" not in str(error).lower():
            raise
        fewer = snapshot(lambda path: _NO_WORKFLOWS if path.startswith(_WORKFLOWS) else None)
        if fewer == made:
            raise
        return push(fewer)


def _push(git: HostGit, update: Update, lease: Fence, doing: str) -> None:
    """Move the ref, and read it back."""
    try:
        found = lease.push(git, update, doing=doing)
    except PushRejectedError as error:
        # Some servers refuse a commit that does not follow the old one. The clone has the work until both are done.
        if update.old is None or "non-fast-forward" not in str(error):
            raise
        lease.push(git, Update(update.ref, update.old, None), doing=doing)
        found = lease.push(git, Update(update.ref, None, update.new), doing=doing)
    if found != update.new:
        message = f"{doing}: the remote has {found or 'nothing'} instead of {update.new}"
        raise PushRejectedError(message)


def wip_subject(key: str) -> str:
    """Return the message of the commit with the changed files."""
    return f"Unfinished work on {key}"


def wip_message(key: str, work: str | None, base: str, saved_at: datetime, stamp: str) -> str:
    """Return the commit message of a record: a line for people, and JSON. `stamp` makes it unique."""
    fields = {
        "version": _VERSION,
        "key": key,
        "work": work,
        "base": base,
        "saved_at": saved_at.astimezone(UTC).isoformat(),
        "stamp": stamp,
    }
    return f"pullwright: unfinished work on {key}\n\n{json.dumps(fields, indent=1)}\n"


def load_wip(records: Records, key: str, seen: Mapping[str, str] | None = None) -> UnfinishedWork | None:
    """Return the unfinished work of a task, or None. It needs no clone.

    Args:
        seen: result of `Records.list` for the ref, among others; None reads it. If it cannot be read, it may
            have been replaced, and is read as well.
    """
    ref = wip_ref(key)
    found = (records.list(ref) if seen is None else seen).get(ref)
    if found is None:
        return None
    record = records.read_all({ref: found}, pages=True)[ref]
    if record.fault is not None and seen is not None:
        return load_wip(records, key)
    return parse_wip(key, record)


def list_wip(records: Records) -> dict[str, str]:
    """Return the keys of all tasks with unfinished work, each with its ref's commit."""
    found = {ref.removeprefix(WORK): commit for ref, commit in records.list(WORK).items()}
    return {key: commit for key, commit in found.items() if is_task_key(key)}


def drop_wip(records: Records, key: str, expected: str, lease: Fence) -> bool:
    """Remove the unfinished work of a task, if it has not changed.

    Args:
        expected: the commit that its ref must have.
        lease: our claim on the task, which moves in the same push.

    Returns:
        Whether it was removed. False: somebody saved other work meanwhile.
    """
    ref = wip_ref(key)
    found = records.list(ref).get(ref)
    if found != expected:
        return found is None
    doing = f"cannot drop the unfinished work on {key} of {records.remote.shown}"
    return lease.push(records.git, Update(ref, expected, None), doing=doing) is None


def parse_wip(key: str, record: RemoteRecord) -> UnfinishedWork:
    """Parse a record, and check it against its own commit; an invalid one has a fault."""
    form = parse_message(WorkForm, record)
    if isinstance(form, str):
        return UnfinishedWork(key, record.commit, fault=printable_line(form))
    if form.key != key:
        fault = "it is about another task"
    elif form.work == form.base or record.parent != (form.work or form.base):
        fault = "its parent is not the commit that it names"
    elif sum(map(len, record.pages.values())) > MOST_PAGES_BYTES:
        fault = "its pages are too large"
    else:
        return UnfinishedWork(key, record.commit, form.work, form.base, record.pages)
    return UnfinishedWork(key, record.commit, fault=fault)

"""Our names on the remote: whether there is room for them, before anything is paid for; and which are old enough to go."""

from __future__ import annotations

import difflib
import hashlib
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

from orchestrator.bot.coordination.claim_record import CLAIMS, claim_ref
from orchestrator.bot.coordination.claims import is_old, remove_tombstones
from orchestrator.bot.coordination.unfinished import WORK, wip_ref
from orchestrator.bot.cycle.tasks import BRANCH_FOLDERS, key_of
from orchestrator.bot.forge.base import PullRequestState
from orchestrator.bot.git.failures import printable
from orchestrator.bot.git.remote import in_the_way, is_commit_id
from orchestrator.bot.git.swap import HIDDEN
from orchestrator.core.errors import (
    ConfigurationError,
    EmptyRepositoryError,
    ForgeError,
    ForgeNotFoundError,
    RemoteRefusedError,
    WorkspaceError,
)
from orchestrator.core.git_names import is_branch_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from orchestrator.bot.coordination.claim_record import ClaimRecord
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.cycle.tasks import Task
    from orchestrator.bot.forge.base import Forge, PullRequest

HEADS = "refs/heads/"
OUR_BRANCHES = tuple(f"{HEADS}{folder}" for folder in BRANCH_FOLDERS)
"""Below which our branches are, as full names."""
_TAGS = "refs/tags/"
_MOST_COMPARED = 1000


def patterns(base: str | None) -> tuple[str, ...]:
    """What to ask the remote for, as `Records.tips` takes it."""
    tag = (f"{_TAGS}{base}",) if base is not None and is_branch_name(base) else ()
    return (HEADS, *tag, HIDDEN.removesuffix("/"), HIDDEN)


@dataclass(frozen=True, slots=True)
class RemoteNames:
    """The references that a remote has.

    Attributes:
        there: their full names.
        shown: the remote, for people.
    """

    there: Collection[str]
    shown: str

    def has_branch(self, name: str) -> bool:
        """Whether a branch is there."""
        return f"{HEADS}{name}" in self.there

    def require_base(self, base: str) -> None:
        """Make sure that a branch is there to start from and to propose to.

        Raises:
            ConfigurationError: it is not; the message says what is of that name instead.
            EmptyRepositoryError: there is no branch at all.
        """
        heads = [name.removeprefix(HEADS) for name in self.there if name.startswith(HEADS)]
        if base in heads:
            return
        if not heads:
            raise EmptyRepositoryError(f"{self.shown} is empty; push a first commit and run again")
        close = difflib.get_close_matches(base, sorted(heads)[:_MOST_COMPARED], n=1)
        if f"{_TAGS}{base}" in self.there:
            why = "it is a tag; name a branch"
        elif is_commit_id(base):
            why = "it is a commit; name a branch"
        else:
            why = f"did you mean {close[0]}?" if close else "push it first, or name another one"
        raise ConfigurationError(f"--base {printable(base)}: {self.shown} has no branch of this name; {why}")

    def require_hidden(self, key: str) -> str | None:
        """Make sure that claim and unfinished work of a task can be kept.

        Returns:
            Why this task alone cannot be taken, or None.

        Raises:
            RemoteRefusedError: another reference is where those of all tasks would be.
        """
        for ref in (claim_ref(key), wip_ref(key)):
            if found := in_the_way(ref, self.there):
                said = (
                    f"{self.shown} has a reference {printable(found)}, so that git cannot make {ref}: "
                    f"remove it, with git push {self.shown} :{printable(found)}"
                )
                if found.casefold().startswith(ref.casefold()):
                    return said
                raise RemoteRefusedError(said)
        return None

    def folder(self) -> str:
        """The first of our folders of branches that can be there.

        Raises:
            RemoteRefusedError: branches are called like all of them.
        """
        for folder in BRANCH_FOLDERS:
            if self.why_not_below(folder) is None:
                return folder
        names = " and ".join(folder.removesuffix("/") for folder in BRANCH_FOLDERS)
        raise RemoteRefusedError(
            f"{self.shown} has branches called {names}, so that git can make none below them: "
            "rename or delete one of the two"
        )

    def why_not_below(self, folder: str) -> str | None:
        """The branch that keeps others from being made below a folder, or None."""
        found = in_the_way(f"{HEADS}{folder}x", self.there, below=False)
        return None if found is None else found.removeprefix(HEADS)

    def named(self, task: Task) -> Task:
        """A task whose branch can be made. The name is the same on every machine that sees the same remote.

        Raises:
            RemoteRefusedError: no name is free.
        """
        if task.pull is not None:
            return task
        task = replace(task, branch_folder=self.folder())
        for number in count(2):
            if all(
                in_the_way(f"{HEADS}{name}", self.there) is None for name in (task.branch, task.plain_branch)
            ):
                break
            task = replace(task, branch_suffix=f"-{number}")
        return task


def ours_only(there: dict[str, str]) -> dict[str, str]:
    """Of references and their commits those of claims, of unfinished work and of our branches."""
    return {name: commit for name, commit in there.items() if name.startswith((CLAIMS, WORK, *OUR_BRANCHES))}


MOST_AT_ONCE = 5
"""Tombstones that a cycle looks at. Each may cost a request for its issue."""

_ISSUE = "issue-"


@dataclass(frozen=True, slots=True)
class Pruning:
    """Looks at the tombstones of one repository.

    Attributes:
        records: the hidden references.
        forge: tells which issues and pull requests are open.
        run: each run looks at others of them.
    """

    records: Records
    forge: Forge
    run: str

    def prune(self, claims: Sequence[ClaimRecord], seen: Mapping[str, str], now: datetime) -> list[str]:
        """Remove some old tombstones. It does not raise: the next cycle may do what this one could not.

        Args:
            claims: all claims.
            seen: what `Records.list` said of all claims and all unfinished work.
            now: the time, UTC.

        Returns:
            The tasks whose tombstones are gone.
        """
        old = [record for record in claims if is_old(record, now) and wip_ref(record.task) not in seen]
        if not old:
            return []
        with suppress(ForgeError, WorkspaceError):
            pulls = self.forge.our_pull_requests(BRANCH_FOLDERS)
            over = [
                record.task
                for record in sorted(old, key=self._turn)[:MOST_AT_ONCE]
                if self._is_over(record, pulls)
            ]
            if remove_tombstones(self.records, {task: seen[CLAIMS + task] for task in over}):
                return over
        return []

    def _turn(self, record: ClaimRecord) -> bytes:
        return hashlib.sha256(f"{self.run} {record.task}".encode()).digest()

    def _is_over(self, record: ClaimRecord, pulls: Sequence[PullRequest]) -> bool:
        """Whether the forge knows that nothing of the task is open, so that the tombstone need not say so."""
        ours = [pull for pull in pulls if (key_of(pull.branch) or ("",))[0] == record.task]
        if any(pull.state is PullRequestState.OPEN for pull in ours):
            return False
        if record.pull is not None and record.pull not in {pull.number for pull in ours}:
            return False
        number = record.task.removeprefix(_ISSUE)
        if number != record.task and number.isdecimal():
            try:
                return not self.forge.issue(int(number)).is_open
            except ForgeNotFoundError:  # it may be hidden from this token
                return False
        # An item or a text is nowhere closed. That it was proposed keeps it from being done again.
        return bool(ours)

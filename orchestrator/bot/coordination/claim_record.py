"""The content of a claim, and its commit message: a line for people, and JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from orchestrator.bot.coordination.records import parse_message
from orchestrator.bot.git.hostgit import printable_line
from orchestrator.bot.git.remote import plain_key
from orchestrator.core.messages import Spent

if TYPE_CHECKING:
    from collections.abc import Container

    from orchestrator.bot.coordination.records import RemoteRecord

# In these years days can be added, and zones changed, without an overflow.
_Moment = Annotated[
    AwareDatetime,
    Field(ge=datetime(2020, 1, 1, tzinfo=UTC), lt=datetime(9000, 1, 1, tzinfo=UTC)),
    AfterValidator(lambda moment: moment.astimezone(UTC)),
]
_Word = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
_Words = Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
MOST_REASON_CHARACTERS = 1_000
_Reason = Annotated[str, Field(max_length=MOST_REASON_CHARACTERS, pattern=r"^[^\x00-\x1f\x7f]*$")]
_Count = Annotated[int, Field(ge=0, le=10**15)]
_Amount = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


class _SpentForm(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)

    usd: _Amount | None
    tokens: _Count
    minutes: _Amount
    rounds: _Count


class ClaimForm(BaseModel):
    """The JSON of a `ClaimRecord`. Unknown fields are kept: a later version may write more."""

    model_config = ConfigDict(frozen=True)

    version: Literal[1]
    task: _Word
    state: Literal["held", "released"]
    owner: _Word
    run: _Word
    number: Annotated[int, Field(ge=1, le=10**15, strict=True)]
    taken_at: _Moment
    renewed_at: _Moment
    expires_at: _Moment
    outcome: _Words
    pull: Annotated[int, Field(ge=1, le=10**15, strict=True)] | None
    spent: _SpentForm
    nonce: _Word
    # Claims of earlier versions lack these.
    asked: _Words = ""
    deaths: _Count = 0
    why: _Reason = ""
    base: _Words = ""


CLAIMS = "refs/pullwright/claims/"
UNREADABLE = "unreadable record"
_VERSION = 1
_LONGEST = timedelta(hours=24)
"""No claim holds for longer after its last renewal, whatever it states."""
_LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
_FAULT_CHARACTERS = 200
# The longest time until a forge lists a new pull request, with room for clocks that differ.
_LISTED_AFTER = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Durations of a claim.

    Attributes:
        lease_seconds: from each renewal until the claim expires.
        renew_seconds: between renewals.
        skew_seconds: largest error of a worker's clock, either way. A claim is taken over only after it has
            been expired for that long. Two clocks may differ by twice as much, so `lease_seconds` should be
            more than `skew_seconds + renew_seconds`.
    """

    lease_seconds: float = 1200
    renew_seconds: float = 300
    skew_seconds: float = 600


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """Who works on a task, or how it ended.

    Attributes:
        state: `held`, or `released` by its holder or by a person.
        owner: the machine and person, as a word.
        run: the run on that machine.
        number: the fencing number: each holder of the task has a higher one than the previous holder.
        taken_at: UTC, as all times here, by the owner's clock.
        renewed_at: time of the last renewal.
        expires_at: end of the lease without another renewal.
        outcome: a few words about a released task; else empty.
        pull: the task's pull request, if known.
        spent: the cost of all cycles on the task so far, including those of earlier holders.
        nonce: makes each commit unique.
        asked: a digest of what its holder is, or was, to do; empty if unknown.
        deaths: how many of the last holders in a row died: their processes ended without a release.
        why: the reason of the outcome, for people; empty if there is none.
        base: the commit of the base on which the task's branch stood when it was last pushed; empty if unknown. The
            base may be rewritten afterwards.
        fault: why the record cannot be read, or None. An unreadable record counts as held, and its other
            fields are void.
    """

    task: str
    state: Literal["held", "released"]
    owner: str
    run: str
    number: int
    taken_at: datetime
    renewed_at: datetime
    expires_at: datetime
    outcome: str = ""
    pull: int | None = None
    spent: Spent = field(default_factory=Spent)
    nonce: str = ""
    asked: str = ""
    deaths: int = 0
    why: str = ""
    base: str = ""
    fault: str | None = None

    @property
    def died(self) -> int:
        """How many of the last holders in a row died, if the present one is dead, too."""
        return self.deaths + (self.state == "held")

    def is_free(self, now: datetime, times: LeaseTimes) -> bool:
        """Return whether another worker may take the task.

        A claim with invalid times must not block its task for ever. It holds no longer than a
        day after its renewal, and a claim renewed further in the future than two clocks may differ is free: if
        its holder is alive after all, the holder's next push is refused.
        """
        if self.fault is not None:
            return False
        if self.state == "released":
            return True
        skew = timedelta(seconds=times.skew_seconds)
        end = min(self.expires_at, self.renewed_at + _LONGEST)
        return now > end + skew or self.renewed_at > now + 2 * skew

    def is_held(self, now: datetime, times: LeaseTimes, dead_runs: Container[str] = ()) -> bool:
        """Return whether a worker holds the task. `dead_runs` are known to be dead or over."""
        is_dead = self.fault is None and self.run in dead_runs
        return not (is_dead or self.is_free(now, times))

    def new_pull(self, now: datetime) -> int | None:
        """Return the pull request if it is so new that the forge may not list it yet.

        A forge lists new pull requests within minutes. Waiting longer for an invented or deleted one would
        never end.
        """
        return self.pull if abs(now - self.renewed_at) < _LISTED_AFTER else None


def claim_ref(task: str) -> str:
    """Return the ref of a task's claim."""
    return CLAIMS + plain_key(task)


def claim_message(record: ClaimRecord) -> str:
    """Return the commit message of a claim."""
    what = "held" if record.state == "held" else f"released ({record.outcome})"
    line = f"pullwright: {record.task} {what} by {record.owner}/{record.run}, number {record.number}"
    values = {one.name: getattr(record, one.name) for one in fields(record) if one.name != "fault"}
    written = {"version": _VERSION, **values, "spent": asdict(record.spent)}
    return f"{printable_line(line)}\n\n{json.dumps(written, indent=1, default=datetime.isoformat)}\n"


def parse_claim(task: str, record: RemoteRecord) -> ClaimRecord:
    """Parse the claim of a task. An unreadable one counts as held, until a person releases it."""
    form = parse_message(ClaimForm, record)
    if isinstance(form, str):
        return _unreadable(task, form)
    if form.task != task:
        return _unreadable(task, "it is about another task")
    values = form.model_dump(exclude={"version"})
    return ClaimRecord(**values | {"spent": Spent(**values["spent"])})


def _unreadable(task: str, fault: str) -> ClaimRecord:
    fault = printable_line(fault)[:_FAULT_CHARACTERS]
    return ClaimRecord(task, "held", UNREADABLE, "", 0, _LONG_AGO, _LONG_AGO, _LONG_AGO, fault=fault)

"""The form in which a claim is written; it is read from commits that anybody who can push may have made."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003  pydantic reads the annotations
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

# Years in which adding days or changing the zone is possible, and a claim is imaginable.
_YEARS = range(2020, 9000)


def _imaginable(moment: datetime) -> datetime:
    if moment.year not in _YEARS:
        raise ValueError("it is no time of a claim")
    return moment


_Moment = Annotated[AwareDatetime, AfterValidator(_imaginable)]
_Word = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
_Words = Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
_Count = Annotated[int, Field(ge=0, le=10**15)]
_Amount = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


class _SpentForm(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)

    usd: _Amount | None
    tokens: _Count
    minutes: _Amount
    rounds: _Count


class ClaimForm(BaseModel):
    """See `ClaimRecord`. Fields that it does not know are left alone: a later version may write more."""

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

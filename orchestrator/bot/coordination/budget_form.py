"""The form of the repository's ledger, as it is read: anybody who can push may have written it."""

from __future__ import annotations

from datetime import date  # noqa: TC003  pydantic reads the annotations when it builds the models
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

_Dollars = Annotated[float, Field(ge=0, le=1e9)]
_Count = Annotated[int, Field(ge=0, le=10**15)]
_Run = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")]


class _Form(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class AmountForm(_Form):
    """What was spent, or reserved; None is unknown, or not capped."""

    usd: _Dollars | None
    tokens: _Count | None
    minutes: _Dollars | None
    rounds: _Count | None


class DayForm(_Form):
    """One UTC day: what ended runs have spent together, and what each of the others has reserved."""

    spent: AmountForm
    open: dict[_Run, AmountForm] = Field(max_length=1_000)


class LedgerForm(_Form):
    """The ledger."""

    version: int = Field(ge=1, le=1)
    days: dict[date, DayForm] = Field(max_length=10)
    nonce: str = Field(max_length=100)

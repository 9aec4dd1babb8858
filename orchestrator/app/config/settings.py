"""The options of a run as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from orchestrator.app import forms
from orchestrator.app.options import MOST_ITEMS, OPTIONS, Option, Options

if TYPE_CHECKING:

    class Settings(Options, BaseModel):
        """All options of a run. They are values: nothing changes them after they were loaded."""

        def __init__(self, **values: Any) -> None:
            """Raises `ValidationError` where a value is not allowed."""

else:

    def _field(option: Option) -> Any:
        limits = {"max_length": MOST_ITEMS} if option.is_list else {}
        if option.bounds:
            limits = {"gt" if option.bounds.above else "ge": option.bounds.least, "le": option.bounds.most}
        return Field(option.default, description=option.description, **limits)

    _TYPES = get_type_hints(Options, vars(forms) | {"Literal": Literal}, include_extras=True)
    Settings = create_model(
        "Settings",
        __config__=ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False),
        __module__=__name__,
        **{key: (_TYPES[key], _field(option)) for key, option in OPTIONS.items()},
    )

"""Types of option values. Each accepts only the valid forms."""

from __future__ import annotations

import re
import warnings
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from orchestrator.app.options import MOST_COMMAND_CHARS
from orchestrator.core.addresses import holds_credential
from orchestrator.core.repositories import is_branch_name


def _address(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or holds_credential(value):
        raise ValueError
    if not value.isprintable() or " " in value or parts.fragment or parts.port == 0:
        raise ValueError
    return value.rstrip("/")


def _branch(value: str) -> str:
    if not is_branch_name(value):
        raise ValueError
    return value


def _single_line(value: str) -> str:
    if not value.isprintable() or value != value.strip():
        raise ValueError
    return value


def _long_text(value: str) -> str:
    if not value.strip() or "\0" in value:
        raise ValueError
    return value


def _host(value: str) -> str:
    if not re.fullmatch(r"(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?", value.lower()):
        raise ValueError
    return value.lower()


def _relative_pattern(value: str) -> str:
    if value.startswith("/") or "\\" in value or ".." in value.split("/"):
        raise ValueError
    _pattern(f"/{value.removeprefix('./')}")
    return _single_line(value)


def _pattern(value: str) -> str:
    from pathspec import GitIgnoreSpec

    try:
        # A FutureWarning tells of syntax that a later Python may read differently.
        with warnings.catch_warnings(action="ignore"):
            (pattern,) = GitIgnoreSpec.from_lines([value]).patterns
    except (ValueError, re.error) as error:
        raise ValueError from error
    if pattern.include is None:
        raise ValueError
    return value


def _as_tuple(value: Any) -> Any:
    """Convert a TOML list to a tuple, so that the loaded value is immutable."""
    return tuple(value) if isinstance(value, list) else value


def _profile(value: str) -> str:
    from orchestrator.engine.profiles.base import profile_names

    if value not in profile_names():
        raise ValueError
    return value


def _person(value: str) -> str:
    if set("<>") & set(value):
        raise ValueError
    return _single_line(value)


Line = Annotated[str, AfterValidator(_single_line), Field(min_length=1, max_length=200)]
Prose = Annotated[str, AfterValidator(_long_text), Field(min_length=1, max_length=20_000)]
CommandLine = Annotated[str, AfterValidator(_single_line), Field(min_length=1, max_length=MOST_COMMAND_CHARS)]
Report = Annotated[str, AfterValidator(_relative_pattern), Field(min_length=1, max_length=200)]
Address = Annotated[str, AfterValidator(_address)]
Branch = Annotated[str, AfterValidator(_branch), Field(min_length=1, max_length=200)]
Person = Annotated[str, AfterValidator(_person), Field(min_length=1, max_length=200)]
Email = Annotated[str, AfterValidator(_person), Field(pattern=r"^[^@\s]+@[^@\s]+$", max_length=200)]
Word = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,30}$")]
Texts = Annotated[tuple[Line, ...], BeforeValidator(_as_tuple)]
Patterns = Annotated[tuple[Annotated[Line, AfterValidator(_pattern)], ...], BeforeValidator(_as_tuple)]
Hosts = Annotated[tuple[Annotated[str, AfterValidator(_host)], ...], BeforeValidator(_as_tuple)]
Logins = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,100}(\[bot\])?$")], ...], BeforeValidator(_as_tuple)
]
ProfileName = Annotated[str, AfterValidator(_profile)]
Price = Annotated[str, Field(pattern=r"^[0-9]{1,6}(\.[0-9]{1,6})?/[0-9]{1,6}(\.[0-9]{1,6})?$")]
Duration = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,6}[smhd]$")]
SandboxChoice = Annotated[
    str, Field(pattern=r"^(auto|off|(docker|podman):[a-z0-9][A-Za-z0-9._/:@-]{0,254})$")
]
Cron = Annotated[str, Field(pattern=r"^[0-9A-Za-z*/,#-]{1,60}( [0-9A-Za-z*/,#-]{1,60}){4}$")]
Zone = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_+/-]{0,60}$")]
AppId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")]

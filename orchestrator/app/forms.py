"""Types of option values. Each accepts only the valid forms."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from orchestrator.core.addresses import holds_credential, server_of
from orchestrator.core.redaction import is_secret_name
from orchestrator.core.repositories import is_branch_name

if TYPE_CHECKING:
    from collections.abc import Callable


def _address(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or holds_credential(value):
        raise ValueError
    if not value.isprintable() or " " in value or parts.fragment or parts.port == 0:
        raise ValueError
    return value.rstrip("/")


def _only_if(is_valid: Callable[[str], bool]) -> AfterValidator:
    """Return a validator that refuses other texts."""

    def check(value: str) -> str:
        if not is_valid(value):
            raise ValueError
        return value

    return AfterValidator(check)


def _is_line(value: str) -> bool:
    return value.isprintable() and value == value.strip()


def _is_prose(value: str) -> bool:
    return bool(value.strip()) and "\0" not in value


def _host(value: str) -> str:
    if not re.fullmatch(r"(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?", value.lower()):
        raise ValueError
    return value.lower()


def _key_host(value: str) -> str:
    vendor, _, place = value.lower().partition("=")
    if (
        vendor not in {"openai", "anthropic", "gemini"}
        or server_of(f"https://{place}") is None
        or "/" in place
    ):
        raise ValueError
    return f"{vendor}={place}"


def _is_relative_pattern(value: str) -> bool:
    leaves = value.startswith("/") or "\\" in value or ".." in value.split("/")
    return not leaves and _is_pattern(f"/{value.removeprefix('./')}") and _is_line(value)


def _is_pattern(value: str) -> bool:
    from pathspec import GitIgnoreSpec

    try:
        # A FutureWarning tells of syntax that a later Python may read differently.
        with warnings.catch_warnings(action="ignore"):
            (pattern,) = GitIgnoreSpec.from_lines([value]).patterns
    except (ValueError, re.error):
        return False
    return pattern.include is not None


def _as_tuple(value: Any) -> Any:
    """Convert a TOML list to a tuple, so that the loaded value is immutable."""
    return tuple(value) if isinstance(value, list) else value


def _is_profile(value: str) -> bool:
    from orchestrator.engine.profiles.base import profile_names

    return value in profile_names()


def _is_person(value: str) -> bool:
    return _is_line(value) and not set("<>") & set(value)


Line = Annotated[str, _only_if(_is_line), Field(min_length=1, max_length=200)]
Prose = Annotated[str, _only_if(_is_prose), Field(min_length=1, max_length=20_000)]
MOST_COMMAND_CHARS = 1_000
CommandLine = Annotated[str, _only_if(_is_line), Field(min_length=1, max_length=MOST_COMMAND_CHARS)]
Report = Annotated[str, _only_if(_is_relative_pattern), Field(min_length=1, max_length=200)]
Address = Annotated[str, AfterValidator(_address)]
Branch = Annotated[str, _only_if(is_branch_name), Field(min_length=1, max_length=200)]
Person = Annotated[str, _only_if(_is_person), Field(min_length=1, max_length=200)]
Email = Annotated[str, _only_if(_is_person), Field(pattern=r"^[^@\s]+@[^@\s]+$", max_length=200)]
Word = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,30}$")]
Texts = Annotated[tuple[Line, ...], BeforeValidator(_as_tuple)]
Patterns = Annotated[tuple[Annotated[Line, _only_if(_is_pattern)], ...], BeforeValidator(_as_tuple)]
Hosts = Annotated[tuple[Annotated[str, AfterValidator(_host)], ...], BeforeValidator(_as_tuple)]
KeyHosts = Annotated[tuple[Annotated[str, AfterValidator(_key_host)], ...], BeforeValidator(_as_tuple)]
KeyVariable = Annotated[str, _only_if(is_secret_name), Field(pattern=r"^[A-Z_][A-Z0-9_]{0,99}$")]
"""Everything that hides secrets knows such a variable by its name."""
Logins = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,100}(\[bot\])?$")], ...], BeforeValidator(_as_tuple)
]
ProfileName = Annotated[str, _only_if(_is_profile)]
Price = Annotated[str, Field(pattern=r"^[0-9]{1,6}(\.[0-9]{1,6})?/[0-9]{1,6}(\.[0-9]{1,6})?$")]
Duration = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,6}[smhd]$")]
SandboxChoice = Annotated[
    str, Field(pattern=r"^(auto|off|(docker|podman):[a-z0-9][A-Za-z0-9._/:@-]{0,254})$")
]
Cron = Annotated[str, Field(pattern=r"^[0-9A-Za-z*/,#-]{1,60}( [0-9A-Za-z*/,#-]{1,60}){4}$")]
Zone = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_+/-]{0,60}$")]
AppId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")]

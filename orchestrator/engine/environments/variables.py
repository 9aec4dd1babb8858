"""Which environment variables a command is given."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

from orchestrator.core.redaction import is_secret

if TYPE_CHECKING:
    from collections.abc import Mapping


class EnvPolicy(StrEnum):
    """What is inherited from this program's own variables."""

    FILTERED = "filtered"
    """Everything that does not look like a secret."""
    SANDBOXED = "sandboxed"
    """Only what is on the list of harmless ones. A sandbox adds the folders of tools that it has (`toolchains`)."""
    CORE = "core"
    """Only what programs need to run: `PATH`, `HOME` and the like."""
    NONE = "none"
    """Nothing."""
    ALL = "all"
    """Everything, secrets included."""


CORE = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TMP", "TEMP", "TZ"}
    | {"GOPATH", "GOROOT", "GOCACHE", "GOMODCACHE", "CARGO_HOME", "RUSTUP_HOME", "NVM_DIR", "PYENV_ROOT"}
    | {"RBENV_ROOT", "GEM_HOME", "JAVA_HOME", "ANDROID_HOME", "DOTNET_ROOT", "VIRTUAL_ENV", "SSL_CERT_FILE"}
)
"""Variables that are always inherited, unless nothing is; and every `LC_*`."""

VERSIONS = frozenset({"PYENV_VERSION", "RBENV_VERSION", "RUSTUP_TOOLCHAIN"})
"""Variables that name one of the toolchains of this machine."""

_HARMLESS = frozenset(
    {"PATH", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ", "CI", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"}
    | {"PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONUNBUFFERED", "PYTHONUTF8", "SOURCE_DATE_EPOCH"}
    | VERSIONS
)

# Ours and git's steer programs; the others lead to an agent that signs in for whoever asks.
_KEPT = re.compile(
    r"(?:PULLWRIGHT|GIT)_.*|SSH_AUTH_SOCK|SSH_AGENT_PID|GPG_AGENT_INFO|KRB5CCNAME", re.IGNORECASE
)


def child_variables(inherited: Mapping[str, str], policy: EnvPolicy) -> dict[str, str]:
    """What a command gets of the variables of this program.

    The filter takes out secrets (`orchestrator.core.redaction`), everything of ours and of git's, and
    the socket of an agent that holds keys. It keeps secrets out of sight; it is no wall against a hostile
    command.
    """
    match policy:
        case EnvPolicy.ALL:
            return dict(inherited)
        case EnvPolicy.NONE:
            return {}
        case EnvPolicy.CORE:
            return {name: value for name, value in inherited.items() if _is_core(name)}
        case EnvPolicy.SANDBOXED:
            return {
                name: value
                for name, value in inherited.items()
                if (name in _HARMLESS or name.startswith("LC_")) and not is_secret(name, value)
            }
        case EnvPolicy.FILTERED:
            return {
                name: value
                for name, value in inherited.items()
                if _is_core(name) or not (_KEPT.fullmatch(name) or is_secret(name, value))
            }


def _is_core(name: str) -> bool:
    return name in CORE or name.startswith("LC_")

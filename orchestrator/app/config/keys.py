"""Keys and tokens: the environment variables that hold them, and all values that must never be shown."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

from orchestrator.core.errors import ConfigurationError
from orchestrator.core.files import read_own
from orchestrator.core.redaction import parts_to_hide

Environment: TypeAlias = Mapping[str, str]

APP_KEY = "PULLWRIGHT_GITHUB_APP_KEY"
APP_KEY_FILE = "PULLWRIGHT_GITHUB_APP_KEY_FILE"
OTHER_KEY = "PULLWRIGHT_API_KEY"

_MAX_KEY_FILE_BYTES = 100_000


def _key(*variables: str) -> Any:
    """Define a key by its variables. The first one that is set is used."""
    return field(default=None, metadata={"variables": variables})


@dataclass(frozen=True, slots=True, repr=False)
class ApiKeys:
    """The keys in the environment; None for those that are not set. The `repr` does not show them.

    Attributes:
        other: key for the server of `api_url`.
        embedding: key for the server of `embedding_api_url`.
        webhook: address that a digest is sent to; everybody who knows it may post there.
        webhook_secret: secret that signs GitHub's webhooks to a fleet.
        database: URL of a fleet's PostgreSQL database, with its password.
        github: token for github.com and the configured server.
        github_enterprise: token for every server but github.com.
        github_app: private key of a GitHub App, PEM text.
    """

    openai: str | None = _key("OPENAI_API_KEY")
    anthropic: str | None = _key("ANTHROPIC_API_KEY")
    gemini: str | None = _key("GEMINI_API_KEY", "GOOGLE_API_KEY")
    other: str | None = _key(OTHER_KEY)
    tavily: str | None = _key("TAVILY_API_KEY")
    brave: str | None = _key("BRAVE_API_KEY")
    exa: str | None = _key("EXA_API_KEY")
    embedding: str | None = _key("PULLWRIGHT_EMBEDDING_API_KEY")
    webhook: str | None = _key("PULLWRIGHT_WEBHOOK")
    webhook_secret: str | None = _key("PULLWRIGHT_WEBHOOK_SECRET")
    database: str | None = _key("PULLWRIGHT_DATABASE_URL")
    github: str | None = _key("GITHUB_TOKEN", "GH_TOKEN")
    github_enterprise: str | None = _key("GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
    github_app: str | None = _key(APP_KEY, APP_KEY_FILE)

    def __repr__(self) -> str:
        return "ApiKeys()"

    @classmethod
    def of(cls, environ: Environment) -> ApiKeys:
        """Read the keys from an environment.

        Raises:
            ConfigurationError: a value cannot be a key, or the App's key file cannot be read.
        """
        plain = {
            name: _first(environ, variables) for name, variables in VARIABLES.items() if name != "github_app"
        }
        return cls(**plain, github_app=_app_key(environ))


VARIABLES: dict[str, tuple[str, ...]] = {key.name: key.metadata["variables"] for key in fields(ApiKeys)}
"""The variables of each key."""


def secret_values(environ: Environment) -> list[str]:
    """Return every secret value of the environment: the keys, and what `core.redaction` finds secret.

    A key file that cannot be read adds nothing; `ApiKeys.of` reports it.
    """
    ours = {variable for variables in VARIABLES.values() for variable in variables} - {APP_KEY_FILE}
    found = []
    for name, value in environ.items():
        found += [value.strip()] if name in ours else parts_to_hide(name, value)
    with contextlib.suppress(ConfigurationError):
        found.append(_app_key(environ) or "")
    return list(dict.fromkeys(value for value in found if value))


def _first(environ: Environment, variables: tuple[str, ...]) -> str | None:
    for variable in variables:
        value = environ.get(variable, "").strip()
        if value:
            if not value.isascii() or not value.isprintable() or " " in value:
                raise ConfigurationError(
                    f"{variable} holds a space, a line break or another character that no key has"
                )
            return value
    return None


def _app_key(environ: Environment) -> str | None:
    text = environ.get(APP_KEY, "").strip()
    file = environ.get(APP_KEY_FILE, "").strip()
    source = APP_KEY
    if not text and file:
        source = f"{APP_KEY_FILE}={file}"
        try:
            text = read_own(Path(file).expanduser(), _MAX_KEY_FILE_BYTES).decode("ascii").strip()
        except OSError as error:
            raise ConfigurationError(f"{source} cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError:
            raise ConfigurationError(f"{source} is not a private key in PEM form") from None
    if not text:
        return None
    text = text.replace("\\n", "\n")  # some secret stores write line breaks like this
    if "PRIVATE KEY-----" not in text:
        raise ConfigurationError(f"{source} is not a private key in PEM form")
    return text
